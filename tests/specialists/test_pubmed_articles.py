"""Articles in PubMed's XML: every kind of record, and malicious XML."""

import random
import re
import tracemalloc
from typing import Any

import pytest
from eutils import DOCTYPE, article_set, record

from brain import Refused
from specialists._pubmed.articles import Article, Notice, read_articles
from specialists._pubmed.text import format_article, format_summary, shorten

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
EDITED_BOOK = re.sub(r'<AuthorList Type="authors">.*?</AuthorList>', "", BOOK)
WHOLE_BOOK = EDITED_BOOK.replace('<ArticleTitle book="examples" part="a1">Gout</ArticleTitle>', "")


def one(xml: str) -> Article:
    found, is_whole = read_articles(article_set(xml).encode())
    assert (is_whole, len(found)) == (True, 1)
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
            after="<OtherAbstract Type='plain-language-summary' Language='eng'><AbstractText>It helps.</AbstractText>"
            "</OtherAbstract><MeshHeadingList><MeshHeading><DescriptorName MajorTopicYN='N'>Dementia</DescriptorName>"
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
        other_abstracts=(("plain-language-summary", "It helps."),),
        keywords=("metformin", "old age"),
        mesh=("Dementia/prevention & control*",),
    )
    assert format_article(article) == (
        "Metformin and dementia.\nDoe JA\nJ Ex 2023-07-06;389(1):11-22 · Review\n"
        "PMID 31978945 · doi:10.1056/NEJMoa2001017 · PMC7092803\n\n"
        "BACKGROUND: It was not known.\nRESULTS: p<0.05.\nOther abstract, plain-language-summary: It helps.\n"
        "Keywords: metformin; old age\nMeSH, * main topics: Dementia/prevention & control*"
    )


ONLINE = '<ArticleDate DateType="Electronic"><Year>2024</Year><Month>02</Month><Day>01</Day></ArticleDate>'
PEOPLE = (
    "<Author ValidYN='Y'><LastName>O’Neil</LastName><ForeName>Ann</ForeName><Initials>A</Initials>"
    "<Suffix>Jr</Suffix><AffiliationInfo><Affiliation>Somewhere</Affiliation></AffiliationInfo></Author>"
    "<Author ValidYN='N'><LastName>Oneil</LastName><Initials>A</Initials></Author>"
    "<Author><ForeName>Plato</ForeName><Initials>P</Initials></Author><Author></Author>"
    "<Author><LastName>Roe</LastName><ForeName>Ann</ForeName></Author>"
    "<Author><CollectiveName>RECOVERY <i>Group</i></CollectiveName></Author>"
)
NUMBERS = record(
    inside='<ELocationID EIdType="pii" ValidYN="Y">S0140</ELocationID>'
    '<ELocationID EIdType="doi" ValidYN="N">10.1000/old</ELocationID>'
    '<ELocationID EIdType="doi" ValidYN="Y">10.1000/right</ELocationID>'
).replace(
    "</PubmedData>",
    "<ReferenceList><Reference><ArticleIdList><ArticleId IdType='doi'>10.1000/cited</ArticleId>"
    "<ArticleId IdType='pmc'>PMC9</ArticleId></ArticleIdList></Reference></ReferenceList></PubmedData>",
)
FORMULA = (
    "Ratio <mml:math xmlns:mml='m'>\n <mml:mi>He</mml:mi>\n <mml:mo>/</mml:mo>\n <mml:mi>Xe</mml:mi>\n</mml:math> up"
)
GERMAN = "<VernacularTitle>Metformin im Alter.</VernacularTitle>"
RETRACTION = (
    "<CommentsCorrectionsList>"
    "<CommentsCorrections RefType='CommentIn'><RefSource>Blog</RefSource></CommentsCorrections>"
    "<CommentsCorrections RefType='ErratumIn'><RefSource>J Ex. 2024;1:2</RefSource></CommentsCorrections>"
    "<CommentsCorrections RefType='RetractionIn'><RefSource>J Ex. 2025;2:3</RefSource><PMID Version='1'>777</PMID>"
    "</CommentsCorrections></CommentsCorrectionsList>"
)


def relation(kind: str) -> str:
    return record(after=RETRACTION.replace("RetractionIn", kind))


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        *(
            (record(published=published), {"date": date, "year": year})
            for published, date, year in (
                ("<Year>2023</Year><Month>Nov</Month><Day>5</Day>", "2023-11-05", 2023),
                ("<Year>2023</Year><Month>11</Month>", "2023-11", 2023),
                ("<Year>2023</Year>", "2023", 2023),
                ("<Year>2023</Year><Season>Winter</Season>", "2023 Winter", 2023),
                ("<MedlineDate>2023 Nov-Dec</MedlineDate>", "2023 Nov-Dec", 2023),
                ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "1998 Dec-1999 Jan", 1998),
                ("<MedlineDate>undated</MedlineDate>", "undated", None),
                ("", "", None),
            )
        ),
        (record(published="", inside=ONLINE), {"date": "2024-02-01"}),
        *(
            (record(title=title), {"title": shown})
            for title, shown in (
                ("<i>Escherichia coli</i> at 10<sup>6</sup> CFU/mL.", "Escherichia coli at 10^6 CFU/mL."),
                ("10<sup>-3</sup> M Ca<sup>2+</sup>, CD4<sup>+</sup>", "10^-3 M Ca2+, CD4+"),
                ("H<sub>2</sub>O &amp; &lt;b&gt; &#945;-tocopherol &nbsp;x &alpha;", "H2O & <b> α-tocopherol x α"),
                ("A\n   <b>bold <i>nested</i></b>\u2009claim.", "A bold nested claim."),
                (FORMULA, "Ratio He/Xe up"),
                ("<![CDATA[Raw <tags> & all]]>", "Raw <tags> & all"),
                ("caf&eacute; &unknown; end", "café end"),  # the document type is never fetched
                ("", "(no title)"),
            )
        ),
        (record(authors=PEOPLE), {"authors": ("O’Neil A Jr", "Plato", "Roe Ann", "RECOVERY Group")}),
        (NUMBERS, {"doi": "10.1000/right", "pmcid": ""}),
        (record(ids='<ArticleId IdType="doi">10.1000/in-list</ArticleId>'), {"doi": "10.1000/in-list"}),
        (record(ids='<ArticleId IdType="doi">javascript:alert(1)</ArticleId>'), {"doi": ""}),
        (
            BOOK,
            {
                "title": "Gout", "authors": ("Fenando A",), "date": "2023-08-08", "types": ("Study Guide",),
                "journal": "ExamplePearls, Example Publishing", "abstract": (("", "Gout is common."),),
            },
        ),
        (EDITED_BOOK, {"authors": ("Editor E",)}),
        (WHOLE_BOOK, {"title": "ExamplePearls"}),
        (record(title="", inside=GERMAN), {"title": "Metformin im Alter.", "original_title": ""}),
        (
            record(after=RETRACTION),
            {
                "pmid": "1",
                "retracted": True,
                "notices": (
                    Notice("retraction notice", "J Ex. 2025;2:3", "777"),
                    Notice("erratum", "J Ex. 2024;1:2", ""),
                ),
            },
        ),
        (record(types=("Journal Article", "Retracted Publication")), {"retracted": True}),
        (record(title="RETRACTED: A claim."), {"retracted": True, "plain_title": "A claim."}),
        (
            record(title="Retracted: A.", types=("Retraction of Publication",)),
            {"retracted": False, "plain_title": "Retracted: A."},
        ),
        (record(title="Retracted articles in dementia research."), {"retracted": False}),
        (relation("RetractionOf"), {"retracted": False}),
        (relation("ExpressionOfConcernIn"), {"retracted": False}),
        (relation("RetractedandRepublishedIn"), {"retracted": True}),
        (relation("CorrectedandRepublishedIn"), {"retracted": False}),
        (f"<!-- comment --><?pi x?>{record('7')}", {"pmid": "7"}),
    ],
)  # fmt: skip
def test_fields(xml: str, expected: dict[str, Any]) -> None:
    article = one(xml)
    assert {name: getattr(article, name) for name in expected} == expected
    assert DOCTYPE.count("http") == 1


NAME = "<Author><LastName>N{}</LastName><Initials>A</Initials></Author>"


@pytest.mark.parametrize(
    ("xml", "shown"),
    [
        (record(authors="".join(map(NAME.format, range(3)))), "\nN0 A, N1 A, N2 A\n"),
        (record(authors="".join(map(NAME.format, range(4)))), "\nN0 A, N1 A, N2 A, et al.\n"),
        (record(authors="".join(map(NAME.format, range(3000)))), "\nN0 A, N1 A, N2 A, et al. (3000 authors)\n"),
        (record(after=RETRACTION), "[1] ⚠ RETRACTED"),
        (record(after=RETRACTION), "⚠ retraction notice: J Ex. 2025;2:3, PMID 777"),
        (relation("CorrectedandRepublishedIn"), "⚠ corrected and republished as: J Ex. 2025;2:3, PMID 777"),
        (
            record(title="[Metformin in old age].", inside=GERMAN).replace(">eng<", ">ger<"),
            "[1] [Metformin in old age].\nIn German: Metformin im Alter.\n",
        ),
        (record(abstract="").replace("<Abstract></Abstract>", ""), "\nNo abstract."),
    ],
)
def test_summaries(xml: str, shown: str) -> None:
    assert shown in format_summary(one(xml), 1)


def test_a_summary_ends_abstracts_after_sentences_and_has_the_conclusion() -> None:
    sentence = "Of {} patients, 12.5% (95% CI 1.0-2.0) improved, e.g. in memory. "
    text = "".join(sentence.format(n) for n in range(8))
    sections = ("BACKGROUND", "METHODS", "RESULTS", "CONCLUSIONS")
    article = one(record(abstract="".join(f'<AbstractText Label="{k}">{text}</AbstractText>' for k in sections)))
    shown = format_summary(article, 1).partition("PMID 1\n")[2]
    assert 400 < len(shown) < 700
    first, between, last = shown.splitlines()
    assert re.fullmatch(r"BACKGROUND: .*in memory\. \[…\]", first)
    assert between == "METHODS, RESULTS: […]"
    assert re.fullmatch(r"CONCLUSIONS: .*in memory\. \[…\]", last)
    assert "[…]" not in format_article(article)


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("one two three", 9, "one two […]"),
        ("x" * 20, 9, "xxxxxxxxx […]"),
        ("It was so. It was", 12, "It was so. […]"),
        ("short", 9, "short"),
    ],
)
def test_shorten(text: str, most: int, shown: str) -> None:
    assert shorten(text, most) == shown


# Broken and hostile XML


NO_ARTICLE = "<DeleteCitation><PMID>9</PMID></DeleteCitation>"
ATTRIBUTES = "<PubmedArticle " + " ".join(f'a{n}="1"' for n in range(300_000)) + "/>"


@pytest.mark.parametrize(
    ("xml", "pmids", "is_whole"),
    [
        (f"<PubmedArticle/>{record('abc')}{record('7')}{NO_ARTICLE}", ["7"], True),
        (record("1") + record("2") + record("3").partition(">3<")[0], ["1", "2"], False),
        # reading stops at records that would block other threads
        (record("1") + record(authors="<Author><LastName>D</LastName></Author>" * 40_000), ["1"], False),
        (record("1") + ATTRIBUTES + record("2"), ["1"], False),
        (f"{record('1')}<!--{'x' * 3_000_000}-->{record('2')}", ["1"], False),
    ],
    ids=["no articles", "broken off", "authors", "attributes", "comment"],
)
def test_other_records_and_truncated_responses(xml: str, pmids: list[str], is_whole: bool) -> None:
    found, whole = read_articles(article_set(xml).encode())
    assert ([article.pmid for article in found], whole) == (pmids, is_whole)


BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
HARMFUL = {
    "billion laughs": f'<!DOCTYPE x [<!ENTITY e0 "ha">{BOMB}]><x>{record(title="&e11;")}</x>',
    "a file": f'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>{record(title="&f;")}</x>',
    "an address": f'<!DOCTYPE x [<!ENTITY f SYSTEM "http://127.0.0.1:1/">]><x>{record(title="&f;")}</x>',
    "parameter entities": f'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd"> %p;]><x>{record()}</x>',
    "one harmless entity": f'<!DOCTYPE x [<!ENTITY a "b">]><x>{record(title="&a;")}</x>',
    "depth": f"<PubmedArticleSet><PubmedArticle>{'<a>' * 100_000}",
    "unknown encoding": f'<?xml version="1.0" encoding="rot13"?><x>{record()}</x>',
    "no XML": "API rate limit exceeded",
    "nothing": "",
    "binary": "\x00\x01\x02",
    "two roots": "<a/><b/>",
    "giant attribute": "<a b='" + "x" * 8_000_000,
    "giant comment": "<!--" + "-x" * 4_000_000,
    "giant text": "<a>" + "&amp;" * 1_500_000,
}


@pytest.mark.parametrize("kind", HARMFUL)
def test_malicious_xml_is_refused(kind: str) -> None:
    with pytest.raises(Refused):
        read_articles(HARMFUL[kind].encode())


@pytest.mark.alone
def test_giant_answers_stay_small_in_memory() -> None:
    authors = "<Author><LastName>N</LastName><Initials>A</Initials><AffiliationInfo><Affiliation>" + "x" * 400
    authors += "</Affiliation></AffiliationInfo></Author>"
    data = article_set(*(record(str(n), authors=authors * 400) for n in range(1, 41))).encode()
    assert len(data) > 7_000_000
    tracemalloc.start()
    found, is_whole = read_articles(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (is_whole, len(found)) == (True, 40)
    assert peak < 10_000_000


def test_long_texts_are_cut_and_unread_lists_may_be_long() -> None:
    article = one(record(abstract=f"<AbstractText>{'word ' * 100_000}</AbstractText>"))
    assert len(article.abstract[0][1]) == 99_999
    investigators = "<Investigator><LastName>X</LastName><Initials>Y</Initials></Investigator>" * 20_000
    article = one(record(inside=f"<InvestigatorList>{investigators}</InvestigatorList><Language>ger</Language>"))
    assert (article.languages, article.authors) == (("eng", "ger"), ("Doe JA",))


def test_corrupted_responses_are_read_or_refused() -> None:
    good = article_set(record("1", after=RETRACTION), BOOK, record("2", title="<i>x</i> 10<sup>6</sup>")).encode()
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
                    marks = [b"<", b">", b"&", b"]]>", b"<sup>", b"<!ENTITY a 'b'>", b"\xff\xfe", b"&#0;"]
                    data[at:at] = rng.choice(marks)
        try:
            found, is_whole = read_articles(bytes(data))
        except Refused:
            outcomes["refused"] += 1
            continue
        outcomes["whole" if is_whole else "broken"] += 1
        assert all(
            article.pmid.isdecimal() and format_summary(article, 1) and format_article(article) for article in found
        )
    assert min(outcomes.values()) > 10, outcomes
