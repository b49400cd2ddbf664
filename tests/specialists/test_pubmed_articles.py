"""Articles out of PubMed's XML: every kind of record, and XML that was made to harm."""

import random
import re
import tracemalloc

import pytest
from eutils import DOCTYPE, article_set, record

from brain import Refused
from specialists._pubmed.articles import Article, Notice, articles, format_article, format_summary, shorten

BOOK = """<PubmedBookArticle><BookDocument><PMID Version="1">28613779</PMID><ArticleIdList>
<ArticleId IdType="bookaccession">NBK430685</ArticleId></ArticleIdList><Book><Publisher>
<PublisherName>Example Publishing</PublisherName><PublisherLocation>Springfield</PublisherLocation></Publisher>
<BookTitle book="examples">ExamplePearls</BookTitle><PubDate><Year>2025</Year><Month>01</Month></PubDate>
<AuthorList Type="editors"><Author><LastName>Editor</LastName><Initials>E</Initials></Author></AuthorList>
<Medium>Internet</Medium></Book><ArticleTitle book="examples" part="a1">Gout</ArticleTitle><Language>eng</Language>
<AuthorList Type="authors"><Author><LastName>Fenando</LastName><Initials>A</Initials></Author></AuthorList>
<PublicationType UI="D000072643">Study Guide</PublicationType><Abstract><AbstractText>Gout is common.</AbstractText>
</Abstract><ContributionDate><Year>2023</Year><Month>8</Month><Day>8</Day></ContributionDate></BookDocument>
<PubmedBookData><ArticleIdList><ArticleId IdType="pubmed">28613779</ArticleId></ArticleIdList></PubmedBookData>
</PubmedBookArticle>"""


def one(xml: str) -> Article:
    found, is_whole = articles(article_set(xml).encode())
    assert is_whole
    assert len(found) == 1
    return found[0]


def test_an_article_is_read_whole() -> None:
    sections = (
        '<AbstractText Label="BACKGROUND" NlmCategory="BACKGROUND">It was <b>not</b> known.</AbstractText>'
        '<AbstractText Label="RESULTS" NlmCategory="RESULTS">p&lt;0.05.</AbstractText><CopyrightInformation>©'
        "</CopyrightInformation>"
    )
    article = one(
        record(
            "31978945",
            abstract=sections,
            inside='<ELocationID EIdType="doi" ValidYN="Y">10.1056/NEJMoa2001017</ELocationID>',
            ids='<ArticleId IdType="pmc">PMC7092803</ArticleId>',
            types=("Journal Article", "Review"),
            behind="<MeshHeadingList><MeshHeading><DescriptorName MajorTopicYN='N'>Dementia</DescriptorName>"
            "<QualifierName MajorTopicYN='Y'>prevention &amp; control</QualifierName></MeshHeading></MeshHeadingList>"
            "<KeywordList><Keyword>metformin</Keyword><Keyword> old  age </Keyword></KeywordList>",
        )
    )
    assert article == Article(
        pmid="31978945",
        title="Metformin and dementia.",
        original_title="",
        languages=("eng",),
        authors=("Doe JA",),
        more_authors=False,
        journal="J Ex",
        date="2023-07-06",
        year=2023,
        volume="389(1):11-22",
        doi="10.1056/NEJMoa2001017",
        pmcid="PMC7092803",
        types=("Journal Article", "Review"),
        retracted=False,
        notices=(),
        abstract=(("BACKGROUND", "It was not known."), ("RESULTS", "p<0.05.")),
        other_abstracts=(),
        keywords=("metformin", "old age"),
        mesh=("Dementia/prevention & control*",),
    )
    assert article.url == "https://pubmed.ncbi.nlm.nih.gov/31978945/"


@pytest.mark.parametrize(
    ("published", "date", "year"),
    [
        ("<Year>2023</Year><Month>Nov</Month><Day>5</Day>", "2023-11-05", 2023),
        ("<Year>2023</Year><Month>11</Month>", "2023-11", 2023),
        ("<Year>2023</Year>", "2023", 2023),
        ("<Year>2023</Year><Season>Winter</Season>", "2023 Winter", 2023),
        ("<MedlineDate>2023 Nov-Dec</MedlineDate>", "2023 Nov-Dec", 2023),
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "1998 Dec-1999 Jan", 1998),
        ("<MedlineDate>undated</MedlineDate>", "undated", None),
        ("", "", None),
    ],
)
def test_dates_are_as_exact_as_they_are_known(published: str, date: str, year: int | None) -> None:
    article = one(record(published=published))
    assert (article.date, article.year) == (date, year)


def test_without_a_date_of_the_issue_that_of_the_article_counts() -> None:
    online = '<ArticleDate DateType="Electronic"><Year>2024</Year><Month>02</Month><Day>01</Day></ArticleDate>'
    assert one(record(published="", inside=online)).date == "2024-02-01"


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("<i>Escherichia coli</i> at 10<sup>6</sup> CFU/mL.", "Escherichia coli at 10^6 CFU/mL."),
        ("10<sup>-3</sup> M Ca<sup>2+</sup>, CD4<sup>+</sup>", "10^-3 M Ca2+, CD4+"),
        ("H<sub>2</sub>O &amp; &lt;b&gt; &#945;-tocopherol &nbsp;x &alpha;", "H2O & <b> α-tocopherol x α"),
        ("A\n   <b>bold <i>nested</i></b>\u2009claim.", "A bold nested claim."),
        (
            "Ratio <mml:math xmlns:mml='m'>\n <mml:mi>He</mml:mi>\n <mml:mo>/</mml:mo>\n <mml:mi>Xe</mml:mi>\n"
            "</mml:math> up",
            "Ratio He/Xe up",
        ),
        ("<![CDATA[Raw <tags> & all]]>", "Raw <tags> & all"),
        ("", "(no title)"),
    ],
)
def test_titles_lose_their_markup_and_nothing_else(title: str, shown: str) -> None:
    assert one(record(title=title)).title == shown


def test_authors_are_people_and_groups() -> None:
    names = (
        "<Author ValidYN='Y'><LastName>O’Neil</LastName><ForeName>Ann</ForeName><Initials>A</Initials>"
        "<Suffix>Jr</Suffix><AffiliationInfo><Affiliation>Somewhere</Affiliation></AffiliationInfo></Author>"
        "<Author ValidYN='N'><LastName>Oneil</LastName><Initials>A</Initials></Author>"
        "<Author><ForeName>Plato</ForeName><Initials>P</Initials></Author><Author></Author>"
        "<Author><LastName>Roe</LastName><ForeName>Ann</ForeName></Author>"
        "<Author><CollectiveName>RECOVERY <i>Group</i></CollectiveName></Author>"
    )
    assert one(record(authors=names)).authors == ("O’Neil A Jr", "Plato", "Roe Ann", "RECOVERY Group")


def test_a_list_shows_three_authors_and_says_how_many_there_are() -> None:
    name = "<Author><LastName>N{}</LastName><Initials>A</Initials></Author>"
    assert "\nN0 A, N1 A, N2 A\n" in format_summary(one(record(authors="".join(map(name.format, range(3))))), 1)
    assert "\nN0 A, N1 A, N2 A, et al.\n" in format_summary(one(record(authors="".join(map(name.format, range(4))))), 1)
    many = one(record(authors="".join(map(name.format, range(3000)))))
    assert len(many.authors) == 3000
    assert "\nN0 A, N1 A, N2 A, et al. (3000 authors)\n" in format_summary(many, 1)
    assert "N49 A, et al. (3000 authors)" in format_article(many)


def test_numbers_are_those_of_the_article_and_not_of_what_it_cites() -> None:
    xml = record(
        inside='<ELocationID EIdType="pii" ValidYN="Y">S0140</ELocationID>'
        '<ELocationID EIdType="doi" ValidYN="N">10.1000/old</ELocationID>'
        '<ELocationID EIdType="doi" ValidYN="Y">10.1000/right</ELocationID>'
    ).replace(
        "</PubmedData>",
        "<ReferenceList><Reference><ArticleIdList><ArticleId IdType='doi'>10.1000/cited</ArticleId>"
        "<ArticleId IdType='pmc'>PMC9</ArticleId></ArticleIdList></Reference></ReferenceList></PubmedData>",
    )
    assert (one(xml).doi, one(xml).pmcid) == ("10.1000/right", "")
    assert one(record(ids='<ArticleId IdType="doi">10.1000/in-list</ArticleId>')).doi == "10.1000/in-list"
    assert one(record(ids='<ArticleId IdType="doi">javascript:alert(1)</ArticleId>')).doi == ""


def test_a_chapter_is_cited_with_its_book() -> None:
    article = one(BOOK)
    assert (article.title, article.authors, article.date) == ("Gout", ("Fenando A",), "2023-08-08")
    assert article.journal == "ExamplePearls, Example Publishing"
    assert article.types == ("Study Guide",)
    assert article.abstract == (("", "Gout is common."),)


def test_a_whole_book_has_its_own_authors_or_editors() -> None:
    book = re.sub(r'<AuthorList Type="authors">.*?</AuthorList>', "", BOOK)
    assert one(book).authors == ("Editor E",)
    without = book.replace('<ArticleTitle book="examples" part="a1">Gout</ArticleTitle>', "")
    assert one(without).title == "ExamplePearls"


RETRACTION = (
    "<CommentsCorrectionsList>"
    "<CommentsCorrections RefType='CommentIn'><RefSource>Blog</RefSource></CommentsCorrections>"
    "<CommentsCorrections RefType='ErratumIn'><RefSource>J Ex. 2024;1:2</RefSource></CommentsCorrections>"
    "<CommentsCorrections RefType='RetractionIn'><RefSource>J Ex. 2025;2:3</RefSource><PMID Version='1'>777</PMID>"
    "</CommentsCorrections></CommentsCorrectionsList>"
)


def test_a_retracted_article_says_so_first() -> None:
    article = one(record(behind=RETRACTION))
    assert article.retracted
    assert article.pmid == "1"
    assert article.notices == (
        Notice("retraction notice", "J Ex. 2025;2:3", "777"),
        Notice("erratum", "J Ex. 2024;1:2", ""),
    )
    assert format_summary(article, 1).startswith("[1] ⚠ RETRACTED, not to be relied on: Metformin and dementia.")
    assert "⚠ retraction notice: J Ex. 2025;2:3, PMID 777" in format_article(article)


def test_a_retraction_is_said_once() -> None:
    article = one(record(title="RETRACTED ARTICLE: A claim.", types=("Retracted Publication",)))
    assert format_summary(article, 1).startswith("[1] ⚠ RETRACTED, not to be relied on: A claim.\n")
    assert one(record(title="Retracted: A.", types=("Retraction of Publication",))).plain_title == "Retracted: A."


@pytest.mark.parametrize(
    ("changes", "retracted"),
    [
        ({"types": ("Journal Article", "Retracted Publication")}, True),
        ({"title": "RETRACTED: Metformin and dementia."}, True),
        ({"title": "Retracted: Metformin.", "types": ("Retraction of Publication",)}, False),
        ({"title": "Retracted articles in dementia research."}, False),
        ({"behind": RETRACTION.replace("RetractionIn", "RetractionOf")}, False),
        ({"behind": RETRACTION.replace("RetractionIn", "ExpressionOfConcernIn")}, False),
        ({"behind": RETRACTION.replace("RetractionIn", "RetractedandRepublishedIn")}, True),
        ({"behind": RETRACTION.replace("RetractionIn", "CorrectedandRepublishedIn")}, False),
    ],
)
def test_only_what_was_retracted_is_called_so(changes: dict[str, str], retracted: bool) -> None:
    assert one(record(**changes)).retracted is retracted


def test_corrections_name_the_other_publication() -> None:
    article = one(record(behind=RETRACTION.replace("RetractionIn", "CorrectedandRepublishedIn")))
    assert "⚠ corrected and republished as: J Ex. 2025;2:3, PMID 777" in format_summary(article, 1)


def test_an_article_in_another_language_has_both_titles() -> None:
    article = one(
        record(
            title="[Metformin in old age].", inside="<VernacularTitle>Metformin im Alter.</VernacularTitle>"
        ).replace("<Language>eng</Language>", "<Language>ger</Language>")
    )
    assert "[1] [Metformin in old age].\nIn German: Metformin im Alter.\n" in format_summary(article, 1)
    only = one(record(title="", inside="<VernacularTitle>Metformin im Alter.</VernacularTitle>"))
    assert (only.title, only.original_title) == ("Metformin im Alter.", "")


def test_without_an_abstract_it_says_so() -> None:
    without = one(record(abstract="").replace("<Abstract></Abstract>", ""))
    assert format_summary(without, 1).endswith("\nNo abstract.")
    assert "No abstract." in format_article(without)


def test_a_list_ends_abstracts_behind_sentences_and_keeps_the_conclusion() -> None:
    sentence = "Of {} patients, 12.5% (95% CI 1.0-2.0) improved, e.g. in memory. "
    texts = {
        label: "".join(sentence.format(n) for n in range(8))
        for label in ("BACKGROUND", "METHODS", "RESULTS", "CONCLUSIONS")
    }
    article = one(record(abstract="".join(f'<AbstractText Label="{k}">{v}</AbstractText>' for k, v in texts.items())))
    shown = format_summary(article, 1).partition("PMID 1\n")[2]
    assert 400 < len(shown) < 700
    assert [line.partition(":")[0] for line in shown.splitlines()] == ["BACKGROUND", "METHODS, RESULTS", "CONCLUSIONS"]
    first, between, last = shown.splitlines()
    assert first.endswith("in memory. […]")
    assert between == "METHODS, RESULTS: […]"
    assert last.endswith("in memory. […]")
    assert "RESULTS: Of 0 patients" in format_article(article)
    assert "[…]" not in format_article(article)


def test_text_without_sentences_is_cut_behind_a_word() -> None:
    assert shorten("one two three", 9) == "one two […]"
    assert shorten("x" * 20, 9) == "xxxxxxxxx […]"
    assert shorten("It was so. It was", 12) == "It was so. […]"
    assert shorten("short", 9) == "short"


def test_reading_whole_gives_other_abstracts_keywords_and_subjects() -> None:
    behind = (
        "<OtherAbstract Type='plain-language-summary' Language='eng'><AbstractText>It helps.</AbstractText>"
        "</OtherAbstract>"
        "<KeywordList><Keyword>metformin</Keyword></KeywordList>"
    )
    text = format_article(one(record(behind=behind)))
    assert text.endswith(
        "Metformin helped. It was safe.\nOther abstract, plain-language-summary: It helps.\nKeywords: metformin"
    )


def test_what_is_no_article_is_passed_over() -> None:
    found, is_whole = articles(
        article_set(
            "<PubmedArticle/>", record("abc"), record("7"), "<DeleteCitation><PMID>9</PMID></DeleteCitation>"
        ).encode()
    )
    assert is_whole
    assert [article.pmid for article in found] == ["7"]


def test_an_answer_that_broke_off_has_the_articles_before() -> None:
    data = article_set(record("1"), record("2"), record("3")).encode()
    found, is_whole = articles(data[: data.index(b">3<")])
    assert not is_whole
    assert [article.pmid for article in found] == ["1", "2"]


BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
HARMFUL = {
    "billion laughs": f'<!DOCTYPE x [<!ENTITY e0 "ha">{BOMB}]><x>{record(title="&e11;")}</x>',
    "a file": f'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>{record(title="&f;")}</x>',
    "an address": f'<!DOCTYPE x [<!ENTITY f SYSTEM "http://127.0.0.1:1/">]><x>{record(title="&f;")}</x>',
    "parameter entities": f'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd"> %p;]><x>{record()}</x>',
    "one harmless entity": f'<!DOCTYPE x [<!ENTITY a "b">]><x>{record(title="&a;")}</x>',
    "depth": f"<PubmedArticleSet><PubmedArticle>{'<a>' * 100_000}",
    "an encoding that is none": f'<?xml version="1.0" encoding="rot13"?><x>{record()}</x>',
    "no XML": "API rate limit exceeded",
    "nothing": "",
    "binary": "\x00\x01\x02",
    "two roots": "<a/><b/>",
}


@pytest.mark.alone
@pytest.mark.parametrize("kind", HARMFUL)
def test_xml_that_could_harm_is_refused(kind: str) -> None:
    with pytest.raises(Refused, match="PubMed's answer cannot be read; go on without it, or ask again later"):
        articles(HARMFUL[kind].encode())


def test_the_document_type_is_never_fetched_and_its_entities_are_those_of_html() -> None:
    xml = record(title="caf&eacute; &unknown; end")
    assert one(xml).title == "café end"
    assert one(f"<!-- comment --><?pi x?>{xml}").pmid == "1"
    assert DOCTYPE.count("http") == 1


@pytest.mark.alone
def test_giant_answers_stay_small_in_memory() -> None:
    authors = "<Author><LastName>N</LastName><Initials>A</Initials><AffiliationInfo><Affiliation>" + "x" * 400
    authors += "</Affiliation></AffiliationInfo></Author>"
    data = article_set(*(record(str(n), authors=authors * 400) for n in range(1, 41))).encode()
    assert len(data) > 7_000_000

    tracemalloc.start()
    found, is_whole = articles(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert is_whole
    assert len(found) == 40
    assert peak < 10_000_000


@pytest.mark.parametrize(
    "data", [b"<a b='" + b"x" * 8_000_000, b"<!--" + b"-x" * 4_000_000, b"<a>" + b"&amp;" * 1_500_000]
)
def test_giant_tokens_take_no_quadratic_time(data: bytes) -> None:
    with pytest.raises(Refused):
        articles(data)


def test_whatever_is_done_to_the_bytes_articles_or_a_refusal_come() -> None:
    good = article_set(record("1", behind=RETRACTION), BOOK, record("2", title="<i>x</i> 10<sup>6</sup>")).encode()
    rng = random.Random(4711)
    outcomes = {"whole": 0, "broken": 0, "refused": 0}
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randrange(1, 200)]
                case 2:
                    data[at:at] = data[rng.randrange(len(data)) :][: rng.randrange(1, 200)]
                case _:
                    data[at:at] = rng.choice(
                        [b"<", b">", b"&", b"]]>", b"<sup>", b"<!ENTITY a 'b'>", b"\xff\xfe", b"&#0;"]
                    )
        try:
            found, is_whole = articles(bytes(data))
        except Refused:
            outcomes["refused"] += 1
            continue
        outcomes["whole" if is_whole else "broken"] += 1
        assert all(
            article.pmid.isdecimal() and format_summary(article, 1) and format_article(article) for article in found
        )
    assert min(outcomes.values()) > 10, outcomes


INVESTIGATOR = "<Investigator><LastName>X</LastName><Initials>Y</Initials></Investigator>"


def test_lists_that_nobody_reads_may_be_long() -> None:
    article = one(
        record(inside=f"<InvestigatorList>{INVESTIGATOR * 20_000}</InvestigatorList><Language>ger</Language>")
    )
    assert article.languages == ("eng", "ger")
    assert article.authors == ("Doe JA",)


@pytest.mark.parametrize(
    "mad",
    [
        record(authors="<Author><LastName>D</LastName></Author>" * 40_000),
        "<PubmedArticle " + " ".join(f'a{n}="1"' for n in range(300_000)) + "/>",
        f"<!--{'x' * 3_000_000}-->",
    ],
)
def test_what_would_hold_everything_up_is_not_read_further(mad: str) -> None:
    """A tag of 600,000 attributes took 1.3 s, in one go."""
    found, is_whole = articles(article_set(record("1"), mad, record("2")).encode())
    assert ([article.pmid for article in found], is_whole) == (["1"], False)


def test_a_text_without_end_is_cut() -> None:
    article = one(record(abstract=f"<AbstractText>{'word ' * 100_000}</AbstractText>"))
    assert len(article.abstract[0][1]) == 99_999
