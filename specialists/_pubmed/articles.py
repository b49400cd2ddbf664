"""Read articles from PubMed's XML."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element
from xml.parsers import expat

from specialists._pubmed.records import RecordParser, unreadable

MAX_ARTICLES = 100
MAX_TEXT = 100_000
"""Characters per text."""
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
"""Relations to other publications in order of importance; comments are ignored."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A relation to another publication, with the other publication's PMID if it has one."""

    kind: str
    source: str
    pmid: str


@dataclass(frozen=True, slots=True)
class Article:
    """One record of PubMed.

    Attributes:
        original_title: title in the article's language, if `title` is a translation.
        languages: ISO 639-2 codes, such as `eng`.
        authors: names such as `Doe J`, or groups; incomplete if `more_authors`.
        journal: abbreviated name, or book and publisher of a chapter.
        date: ISO date, possibly without day or month, or PubMed's text.
        volume: volume, issue and pages, such as `389(1):11-22`.
        abstract: labels and texts of the sections.
        other_abstracts: plain-language abstracts and abstracts in other languages.
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
        """The title without the publisher's `RETRACTED:`."""
        mark = _RETRACTED_TITLE.match(self.title) if self.retracted else None
        return (self.title[mark.end() :].strip() if mark else "") or self.title

    @property
    def url(self) -> str:
        return f"https://pubmed.ncbi.nlm.nih.gov/{self.pmid}/"


def read_articles(data: bytes) -> tuple[list[Article], bool]:
    """Return the articles of a response, and whether it was complete.

    Raises:
        Refused: if a truncated response has no article, or the XML is dangerous.
    """
    found: list[Article] = []

    def take(record: Element) -> None:
        if len(found) < MAX_ARTICLES:
            found.extend(_read_article(record))

    try:
        RecordParser(take).feed(data)
    except (expat.ExpatError, ValueError, LookupError):  # the last two also for unknown encodings
        if not found:
            raise unreadable() from None
        return found, False
    return found, True


def _read_article(record: Element) -> Iterator[Article]:
    """Yield the article of a record, if it has a PMID to cite."""
    book = record.find("BookDocument")
    whole = record.find("MedlineCitation") if book is None else book
    article = whole.find("Article") if book is None and whole is not None else whole
    pmid = read_text(whole.find("PMID")) if whole is not None else ""
    if whole is None or article is None or not re.fullmatch(r"[0-9]{1,12}", pmid):
        return
    ids = _read_ids(record, article)
    title = read_text(article.find("ArticleTitle"))
    original = read_text(article.find("VernacularTitle"))
    types = _read_texts(article, "PublicationTypeList/PublicationType") or _read_texts(article, "PublicationType")
    notices = _read_notices(whole)
    date, year = _read_date(article)
    lists = [*article.findall("AuthorList"), *article.findall("Book/AuthorList")]
    author_list = min(lists, key=lambda each: each.get("Type") == "editors", default=None)
    yield Article(
        pmid=pmid,
        title=title or original or read_text(article.find("Book/BookTitle")) or "(no title)",
        original_title=original if title else "",
        languages=_read_texts(article, "Language"),
        authors=tuple(filter(None, map(_read_author, author_list if author_list is not None else ()))),
        more_authors=author_list is not None and author_list.get("CompleteYN") == "N",
        journal=_read_journal(whole, article),
        date=date,
        year=year,
        volume=_read_volume(article),
        doi=ids["doi"],
        pmcid=ids["pmc"],
        types=types,
        retracted="Retracted Publication" in types
        or any(notice.kind.startswith("retract") and notice.kind != "retracts" for notice in notices)
        or (bool(_RETRACTED_TITLE.match(title)) and not any(kind.startswith("Retraction") for kind in types)),
        notices=notices,
        abstract=tuple(_read_sections(article.find("Abstract"))),
        other_abstracts=tuple(
            (label or other.get("Type", ""), text)
            for other in whole.findall("OtherAbstract")
            for label, text in _read_sections(other)
        ),
        keywords=_read_texts(whole, "KeywordList/Keyword"),
        mesh=tuple(map(_read_heading, whole.findall("MeshHeadingList/MeshHeading"))),
    )


def read_text(element: Element | None) -> str:
    """Return the text of an element on one line, without markup; 10<sup>6</sup> becomes 10^6."""
    pieces: list[str] = []

    def add(text: str | None, in_formula: bool) -> None:
        if text:
            pieces.append(text[:MAX_TEXT].strip() if in_formula else text[:MAX_TEXT])

    def collect(element: Element, in_formula: bool) -> None:
        in_formula = in_formula or element.tag.startswith("mml:")
        add(element.text, in_formula and element.tag != "mml:mtext")
        for child in element:
            if child.tag == "sup" and pieces and pieces[-1][-1:].isdigit() and re.match(r"[-−+]?\d", child.text or ""):
                pieces.append("^")
            collect(child, in_formula)
            add(child.tail, in_formula)

    if element is not None:
        collect(element, in_formula=False)
    return " ".join("".join(pieces)[:MAX_TEXT].split())


def _read_texts(element: Element, path: str) -> tuple[str, ...]:
    return tuple(filter(None, map(read_text, element.findall(path))))


def _read_ids(record: Element, article: Element) -> dict[str, str]:
    """Return DOI and PMCID of the article, not of its references."""
    found = {"doi": "", "pmc": ""}
    own = record.findall("*/ArticleIdList/ArticleId")
    valid = [place for place in article.findall("ELocationID") if place.get("ValidYN") != "N"]
    pairs = [(each.get("EIdType") or each.get("IdType"), read_text(each)) for each in (*valid, *own)]
    for kind, pattern in (("doi", _DOI), ("pmc", _PMCID)):
        found[kind] = next((text for name, text in pairs if name == kind and pattern.fullmatch(text)), "")
    return found


def _read_author(author: Element) -> str:
    """Return a name such as `Doe J Jr`, or of a group; empty for a name with a correction in the list."""
    if author.get("ValidYN") == "N":
        return ""
    last, first, initials, suffix, group = (
        read_text(author.find(part)) for part in ("LastName", "ForeName", "Initials", "Suffix", "CollectiveName")
    )
    return group or " ".join(filter(None, (last, (initials if last else "") or first, suffix)))


def _read_journal(whole: Element, article: Element) -> str:
    book = article.find("Book")
    if book is not None:
        parts = (read_text(book.find("BookTitle")), read_text(book.find("Publisher/PublisherName")))
        return ", ".join(filter(None, parts))
    paths = (article, "Journal/ISOAbbreviation"), (whole, "MedlineJournalInfo/MedlineTA"), (article, "Journal/Title")
    return next(filter(None, (read_text(element.find(path)) for element, path in paths)), "")


def _read_volume(article: Element) -> str:
    issue, volume = (
        read_text(article.find("Journal/JournalIssue/Issue")),
        read_text(article.find("Journal/JournalIssue/Volume")),
    )
    first, last = read_text(article.find("Pagination/StartPage")), read_text(article.find("Pagination/EndPage"))
    pages = read_text(article.find("Pagination/MedlinePgn")) or "-".join(filter(None, (first, last)))
    return volume + (f"({issue})" if issue else "") + (f":{pages}" if pages else "")


def _read_date(article: Element) -> tuple[str, int | None]:
    """Return the date of publication, and the year."""
    paths = ("Journal/JournalIssue/PubDate", "ContributionDate", "Book/PubDate", "ArticleDate")
    for date in filter(None, (_format_date(article.find(path)) for path in paths)):
        year = re.search(r"(?<!\d)[12]\d{3}(?!\d)", date)
        return date, int(year[0]) if year else None
    return "", None


def _format_date(element: Element | None) -> str:
    if element is None:
        return ""
    year, month, day = (read_text(element.find(part)) for part in ("Year", "Month", "Day"))
    season, other = read_text(element.find("Season")), read_text(element.find("MedlineDate"))
    number = (
        int(month) if month.isdecimal() else _MONTHS.index(month[:3].lower()) + 1 if month[:3].lower() in _MONTHS else 0
    )
    if not number:
        return " ".join(filter(None, (year, season or month))) or other
    return f"{year}-{number:02}" + (f"-{int(day):02}" if day.isdecimal() else "")


def _read_notices(whole: Element) -> tuple[Notice, ...]:
    kinds = list(_NOTICES)
    relations = whole.findall("CommentsCorrectionsList/CommentsCorrections")
    known = [(each.get("RefType", "").lower(), each) for each in relations]
    ordered = sorted((pair for pair in known if pair[0] in _NOTICES), key=lambda pair: kinds.index(pair[0]))
    return tuple(
        Notice(_NOTICES[kind], read_text(each.find("RefSource")), read_text(each.find("PMID")))
        for kind, each in ordered
    )


def _read_sections(abstract: Element | None) -> Iterator[tuple[str, str]]:
    for section in abstract.findall("AbstractText") if abstract is not None else ():
        text, label = read_text(section), " ".join((section.get("Label") or "").split()).strip(": ")
        if text:
            yield ("" if label.upper() == "UNLABELLED" else label), text


def _read_heading(heading: Element) -> str:
    """Return a MeSH heading with its qualifiers; an asterisk marks a main topic."""
    parts = [(read_text(part), part.get("MajorTopicYN") == "Y") for part in heading]
    return "/".join(text for text, _ in parts if text) + ("*" if any(major for _, major in parts) else "")
