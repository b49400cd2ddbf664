"""The records of PubMed's XML, one by one. Bytes go in, an element for each record comes out.

Nothing in the XML is trusted: it may declare no entities, nest no deeper than PubMed does, and break off anywhere.
"""

import html.entities
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from brain import Refused
from specialists._pubmed.eutils import UNREADABLE

MAX_DEPTH = 200
MAX_ELEMENTS = 60_000
"""Of one article, where each author takes four. They are freed in one go, in which nothing else runs."""
_PIECE = 64 * 1024
_UNREAD = frozenset({"AffiliationInfo", "ChemicalList", "GrantList", "History", "InvestigatorList", "ReferenceList"})
_KINDS = ("PubmedArticle", "PubmedBookArticle")


class Reading:
    """Builds one record at a time, so that an answer of many never stands in memory as a whole.

    Args:
        take: is given each record that is complete.
    """

    def __init__(self, take: Callable[[Element], None]) -> None:
        self._take = take
        self._builder: TreeBuilder | None = None
        self._depth = self._begun_at = self._elements = self._unread_at = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.SkippedEntityHandler = self._skipped
        self._parser.EntityDeclHandler = _refuse

    def read(self, data: bytes) -> None:
        """Reads an answer; raises ExpatError, ValueError or LookupError where it is none any more."""
        for start in range(0, len(data), _PIECE):
            self._parser.Parse(data[start : start + _PIECE])
            if start - self._parser.CurrentByteIndex > _PIECE:
                raise ValueError("a tag without end")
        self._parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Refused(UNREADABLE)
        if self._builder is None and tag in _KINDS:
            self._builder, self._begun_at, self._elements = TreeBuilder(), self._depth, 0
        if self._builder is not None and not self._unread_at and tag in _UNREAD:
            self._unread_at = self._depth
        if self._builder is not None and not self._unread_at:
            self._elements += 1
            if self._elements > MAX_ELEMENTS:
                raise ValueError("more than an article has")
            self._builder.start(tag, attributes)

    def _end(self, tag: str) -> None:
        if self._unread_at:
            self._unread_at = self._unread_at if self._depth > self._unread_at else 0
        elif self._builder is not None:
            self._builder.end(tag)
            if self._depth == self._begun_at:
                record, self._builder = self._builder.close(), None
                self._take(record)
        self._depth -= 1

    def _text(self, text: str) -> None:
        if self._builder is not None and not self._unread_at:
            self._builder.data(text)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        """An entity of the document type, which is never fetched; those of HTML are known anyway."""
        self._text(html.entities.html5.get(f"{name};", ""))


def _refuse(*_: object) -> None:
    """Declared entities can grow without end, or name files."""
    raise Refused(UNREADABLE)


MAX_ARTICLES = 100
MAX_TEXT = 100_000
"""Characters of one text."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DOI = re.compile(r"10\.[\d.]{1,20}/\S+")
_PMCID = re.compile(r"PMC\d+")
_RETRACTED_TITLE = re.compile(r"(?:RETRACTED|Retracted)(?: ARTICLE| Article)?\s*[:.]")
_NOTICES = {
    "retractionin": "retraction notice",
    "partialretractionin": "partial retraction",
    "expressionofconcernin": "expression of concern",
    "correctedandrepublishedin": "corrected and republished as",
    "retractedandrepublishedin": "retracted and republished as",
    "updatein": "newer version",
    "erratumin": "erratum",
    "retractionof": "retracts",
    "correctedandrepublishedfrom": "corrects and replaces",
    "retractedandrepublishedfrom": "replaces the retracted",
    "updateof": "newer version of",
    "erratumfor": "erratum for",
    "expressionofconcernfor": "expression of concern about",
}
"""What is said of an article elsewhere, in the order in which a reader has to know it; comments are left out."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What another publication says about an article; `pmid` is that one's, if it has one."""

    kind: str
    source: str
    pmid: str


@dataclass(frozen=True, slots=True)
class Article:
    """One record of PubMed.

    Attributes:
        original_title: in the article's own language, when the title is a translation.
        languages: codes of ISO 639-2, such as `eng`.
        authors: `Doe J` each, or the name of a group; all of them, unless `more_authors`.
        journal: abbreviated; of a chapter, the book and its publisher.
        date: ISO, as exact as it is known, else in PubMed's words.
        volume: with issue and pages, as in `389(1):11-22`.
        abstract: sections, with their labels.
        other_abstracts: in plain words or other languages.
    """

    pmid: str
    title: str
    original_title: str
    languages: tuple[str, ...]
    authors: tuple[str, ...]
    more_authors: bool
    journal: str
    date: str
    year: int | None
    volume: str
    doi: str
    pmcid: str
    types: tuple[str, ...]
    retracted: bool
    notices: tuple[Notice, ...]
    abstract: tuple[tuple[str, str], ...]
    other_abstracts: tuple[tuple[str, str], ...]
    keywords: tuple[str, ...]
    mesh: tuple[str, ...]

    @property
    def plain_title(self) -> str:
        """Without the publisher's `RETRACTED:`, which `retracted` says for all."""
        said = _RETRACTED_TITLE.match(self.title) if self.retracted else None
        return (self.title[said.end() :].strip() if said else "") or self.title

    @property
    def url(self) -> str:
        return f"https://pubmed.ncbi.nlm.nih.gov/{self.pmid}/"


def articles(data: bytes) -> tuple[list[Article], bool]:
    """The articles of an answer, and whether it was whole; one that broke off has those before.

    Raises:
        Refused: when it is no such answer, or holds what could harm.
    """
    found: list[Article] = []

    def take(record: Element) -> None:
        if len(found) < MAX_ARTICLES:
            found.extend(_article(record))

    try:
        Reading(take).read(data)
    except (expat.ExpatError, ValueError, LookupError):  # the last two also of an encoding that is none
        if not found:
            raise Refused(UNREADABLE) from None
        return found, False
    return found, True


def _article(record: Element) -> Iterator[Article]:
    """The record, if it is one: without a number it is nothing that could be cited."""
    book = record.find("BookDocument")
    whole = record.find("MedlineCitation") if book is None else book
    article = whole.find("Article") if book is None and whole is not None else whole
    pmid = text_of(whole.find("PMID")) if whole is not None else ""
    if whole is None or article is None or not re.fullmatch(r"[0-9]{1,12}", pmid):
        return
    ids = _ids(record, article)
    title = text_of(article.find("ArticleTitle"))
    original = text_of(article.find("VernacularTitle"))
    types = _texts(article, "PublicationTypeList/PublicationType") or _texts(article, "PublicationType")
    notices = _notices(whole)
    date, year = _date(article)
    lists = [*article.findall("AuthorList"), *article.findall("Book/AuthorList")]
    author_list = min(lists, key=lambda each: each.get("Type") == "editors", default=None)
    yield Article(
        pmid=pmid,
        title=title or original or text_of(article.find("Book/BookTitle")) or "(no title)",
        original_title=original if title else "",
        languages=_texts(article, "Language"),
        authors=tuple(filter(None, map(_author, author_list if author_list is not None else ()))),
        more_authors=author_list is not None and author_list.get("CompleteYN") == "N",
        journal=_journal(whole, article),
        date=date,
        year=year,
        volume=_volume(article),
        doi=ids["doi"],
        pmcid=ids["pmc"],
        types=types,
        retracted="Retracted Publication" in types
        or any(notice.kind.startswith("retract") and notice.kind != "retracts" for notice in notices)
        or (bool(_RETRACTED_TITLE.match(title)) and not any(kind.startswith("Retraction") for kind in types)),
        notices=notices,
        abstract=tuple(_sections(article.find("Abstract"))),
        other_abstracts=tuple(
            (label or other.get("Type", ""), text)
            for other in whole.findall("OtherAbstract")
            for label, text in _sections(other)
        ),
        keywords=_texts(whole, "KeywordList/Keyword"),
        mesh=tuple(map(_heading, whole.findall("MeshHeadingList/MeshHeading"))),
    )


def text_of(element: Element | None) -> str:
    """All text in an element, on one line, without its markup; 10<sup>6</sup> stays a power."""
    pieces: list[str] = []
    if element is not None:
        _collect(element, pieces, in_formula=False)
    return " ".join("".join(pieces)[:MAX_TEXT].split())


def _collect(element: Element, pieces: list[str], *, in_formula: bool) -> None:
    formula = in_formula or element.tag.startswith("mml:")
    _take(element.text, pieces, formula and element.tag != "mml:mtext")
    for child in element:
        if child.tag == "sup" and pieces and pieces[-1][-1:].isdigit() and re.match(r"[-−+]?\d", child.text or ""):
            pieces.append("^")
        _collect(child, pieces, in_formula=formula)
        _take(child.tail, pieces, formula)


def _take(text: str | None, pieces: list[str], in_formula: bool) -> None:
    if text:
        text = text[:MAX_TEXT]
        pieces.append(text.strip() if in_formula else text)


def _texts(element: Element, path: str) -> tuple[str, ...]:
    return tuple(filter(None, map(text_of, element.findall(path))))


def _ids(record: Element, article: Element) -> dict[str, str]:
    """DOI and PMCID of the article itself; its references have their own."""
    found = {"doi": "", "pmc": ""}
    own = record.findall("*/ArticleIdList/ArticleId")
    valid = [place for place in article.findall("ELocationID") if place.get("ValidYN") != "N"]
    pairs = [(each.get("EIdType") or each.get("IdType"), text_of(each)) for each in (*valid, *own)]
    for kind, pattern in (("doi", _DOI), ("pmc", _PMCID)):
        found[kind] = next((text for said, text in pairs if said == kind and pattern.fullmatch(text)), "")
    return found


def _author(author: Element) -> str:
    """`Doe J Jr`, or a group; empty for a name that PubMed has corrected elsewhere in the list."""
    if author.get("ValidYN") == "N":
        return ""
    last, first, initials, suffix, group = (
        text_of(author.find(part)) for part in ("LastName", "ForeName", "Initials", "Suffix", "CollectiveName")
    )
    return group or " ".join(filter(None, (last, (initials if last else "") or first, suffix)))


def _journal(whole: Element, article: Element) -> str:
    book = article.find("Book")
    if book is not None:
        parts = (text_of(book.find("BookTitle")), text_of(book.find("Publisher/PublisherName")))
        return ", ".join(filter(None, parts))
    paths = (article, "Journal/ISOAbbreviation"), (whole, "MedlineJournalInfo/MedlineTA"), (article, "Journal/Title")
    return next(filter(None, (text_of(element.find(path)) for element, path in paths)), "")


def _volume(article: Element) -> str:
    issue, volume = (
        text_of(article.find("Journal/JournalIssue/Issue")),
        text_of(article.find("Journal/JournalIssue/Volume")),
    )
    first, last = text_of(article.find("Pagination/StartPage")), text_of(article.find("Pagination/EndPage"))
    pages = text_of(article.find("Pagination/MedlinePgn")) or "-".join(filter(None, (first, last)))
    return volume + (f"({issue})" if issue else "") + (f":{pages}" if pages else "")


def _date(article: Element) -> tuple[str, int | None]:
    """When it was published, and the year."""
    paths = ("Journal/JournalIssue/PubDate", "ContributionDate", "Book/PubDate", "ArticleDate")
    for date in filter(None, (_written_date(article.find(path)) for path in paths)):
        year = re.search(r"(?<!\d)[12]\d{3}(?!\d)", date)
        return date, int(year[0]) if year else None
    return "", None


def _written_date(element: Element | None) -> str:
    if element is None:
        return ""
    year, month, day = (text_of(element.find(part)) for part in ("Year", "Month", "Day"))
    season, other = text_of(element.find("Season")), text_of(element.find("MedlineDate"))
    number = (
        int(month) if month.isdecimal() else _MONTHS.index(month[:3].lower()) + 1 if month[:3].lower() in _MONTHS else 0
    )
    if not number:
        return " ".join(filter(None, (year, season or month))) or other
    return f"{year}-{number:02}" + (f"-{int(day):02}" if day.isdecimal() else "")


def _notices(whole: Element) -> tuple[Notice, ...]:
    kinds = list(_NOTICES)
    said = [
        (each.get("RefType", "").lower(), each) for each in whole.findall("CommentsCorrectionsList/CommentsCorrections")
    ]
    ordered = sorted((kinds.index(kind), n) for n, (kind, _) in enumerate(said) if kind in _NOTICES)
    return tuple(
        Notice(_NOTICES[kinds[kind]], text_of(said[n][1].find("RefSource")), text_of(said[n][1].find("PMID")))
        for kind, n in ordered
    )


def _sections(abstract: Element | None) -> Iterator[tuple[str, str]]:
    for section in abstract.findall("AbstractText") if abstract is not None else ():
        text, label = text_of(section), " ".join((section.get("Label") or "").split()).strip(": ")
        if text:
            yield ("" if label.upper() == "UNLABELLED" else label), text


def _heading(heading: Element) -> str:
    """A subject with its aspects; an asterisk marks what the article is mainly about."""
    parts = [(text_of(part), part.get("MajorTopicYN") == "Y") for part in heading]
    return "/".join(text for text, _ in parts if text) + ("*" if any(major for _, major in parts) else "")


AUTHORS_SHOWN = 3
AUTHORS_SHOWN_WHOLE = 50
ABSTRACT_LENGTH = 600
_CONCLUSION_LENGTH = 300
_TITLE_LENGTH = 400
_LINE_LENGTH = 300
_SECTION_LENGTH = 20_000
_NOTICES_SHOWN = 4
_TERMS_SHOWN = 40
_CUT = "[…]"
_SENTENCE = re.compile(r"[.!?][)\]\"'”’]*(?=\s+[^a-z\s])|[。！？]")
_ORDINARY = re.compile(r"journal article|research support.*|english abstract", re.IGNORECASE)
"""Kinds of publication that tell a reader nothing."""
_LANGUAGES = {
    "chi": "Chinese", "cze": "Czech", "dan": "Danish", "dut": "Dutch", "fin": "Finnish", "fre": "French",
    "ger": "German", "gre": "Greek", "heb": "Hebrew", "hun": "Hungarian", "ita": "Italian", "jpn": "Japanese",
    "kor": "Korean", "nor": "Norwegian", "per": "Persian", "pol": "Polish", "por": "Portuguese", "rum": "Romanian",
    "rus": "Russian", "spa": "Spanish", "swe": "Swedish", "tur": "Turkish", "ukr": "Ukrainian",
}  # fmt: skip


def format_summary(article: Article, number: int) -> str:
    """An article in a list: what it is, and the sentences of its abstract that tell most."""
    abstract = _short(article.abstract) or "No abstract."
    return "\n".join([f"[{number}] {_titled(article)}", *_about(article, AUTHORS_SHOWN), abstract])


def format_article(article: Article) -> str:
    """All of an article that PubMed has for readers."""
    sections = [_section(label, text[:_SECTION_LENGTH]) for label, text in article.abstract] or ["No abstract."]
    others = [_section(f"Other abstract, {label}", text[:_SECTION_LENGTH]) for label, text in article.other_abstracts]
    terms = (("Keywords", article.keywords), ("MeSH, * main topics", article.mesh))
    tail = [f"{name}: {'; '.join(words[:_TERMS_SHOWN])}"[:2000] for name, words in terms if words]
    return "\n".join([_titled(article), *_about(article, AUTHORS_SHOWN_WHOLE), "", *sections, *others, *tail])


def shorten(text: str, most: int) -> str:
    """The same, ended behind a sentence if there is one, else behind a word."""
    if len(text) <= most:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text, 0, most + 2)]
    return f"{text[: ends[-1]] if ends else text[:most].rpartition(' ')[0] or text[:most]} {_CUT}"


def _titled(article: Article) -> str:
    mark = "⚠ RETRACTED, not to be relied on: " if article.retracted else ""
    return mark + shorten(article.plain_title, _TITLE_LENGTH)


def _about(article: Article, authors: int) -> list[str]:
    """Title in its language, authors, source, numbers and warnings, a line each."""
    lines = [
        _foreign(article),
        _authors(article, authors),
        " · ".join(filter(None, (_source(article), "; ".join(t for t in article.types if not _ORDINARY.fullmatch(t))))),
        " · ".join(filter(None, (f"PMID {article.pmid}", article.doi and f"doi:{article.doi}", article.pmcid))),
    ]
    warnings = [_notice(notice) for notice in article.notices[:_NOTICES_SHOWN]]
    return [line if authors > AUTHORS_SHOWN else line[:_LINE_LENGTH] for line in (*lines, *warnings) if line]


def _foreign(article: Article) -> str:
    names = ", ".join(_LANGUAGES.get(code, code) for code in article.languages if code != "eng")
    if article.original_title:
        return f"In {names or 'another language'}: {article.original_title}"
    return f"In {names}" if names and "eng" not in article.languages else ""


def _authors(article: Article, most: int) -> str:
    more = len(article.authors) > most or article.more_authors
    shown = ", ".join(article.authors[:most]) + (", et al." if more and article.authors else "")
    return f"{shown} ({len(article.authors)} authors)" if len(article.authors) > AUTHORS_SHOWN_WHOLE else shown


def _source(article: Article) -> str:
    source = " ".join(filter(None, (article.journal, article.date)))
    return f"{source};{article.volume}" if article.volume else source


def _notice(notice: Notice) -> str:
    said = ", ".join(filter(None, (notice.source, notice.pmid and f"PMID {notice.pmid}")))
    return f"⚠ {notice.kind}: {said}" if said else f"⚠ {notice.kind}"


def _section(label: str, text: str) -> str:
    return f"{label}: {text}" if label else text


def _short(sections: Sequence[tuple[str, str]]) -> str:
    """About `ABSTRACT_LENGTH` characters: what was concluded, then what goes in from the beginning, in order."""
    if len(sections) < 2:
        return "".join(_section(label, shorten(text, ABSTRACT_LENGTH)) for label, text in sections)
    last = next((n for n, (label, _) in enumerate(sections) if "CONCLUSION" in label.upper()), len(sections) - 1)
    shown = {last: shorten(sections[last][1], _CONCLUSION_LENGTH)}
    left = ABSTRACT_LENGTH - len(shown[last])
    for n, (_, text) in enumerate(sections):
        if n == last:
            continue
        if n and len(text) > left and not _SENTENCE.search(text[: max(0, left)]):
            break
        shown[n] = shorten(text, left)
        left -= len(shown[n])
    lines = list[str]()
    for is_shown, numbers in groupby(range(len(sections)), key=shown.__contains__):
        if is_shown:
            lines += [_section(sections[n][0], shown[n]) for n in numbers]
        else:
            lines.append(_section(", ".join(label for n in numbers if (label := sections[n][0])), _CUT))
    return "\n".join(lines)
