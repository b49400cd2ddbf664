"""Parses the queries of `pubmed`: words, PMIDs, and the user's message."""

import re

from brain import Refused
from specialists._kit.text import word_set

MAX_READ = 10
QUERY_LENGTH = 4000
MESSAGE_LENGTH = 500

_PMID = re.compile(
    r"(?:pmid[:\s]*|https?://(?:www\.)?pubmed\.ncbi\.nlm\.nih\.gov/)?([1-9][0-9]{0,8})/?\.?", re.IGNORECASE
)
_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
_SYNTAX = re.compile(r"[\[\]\"*()]|\b(?:AND|OR|NOT)\b")
_YEARS = re.compile(
    r"\b(?:last|past) (?:[1-9]\d? (?:year|month|week)s?|year|month|week)\b|\b(?:since|in) [12]\d{3}\b"
    r"|\b[12]\d{3} ?(?:[-–]|to|and) ?[12]\d{3}\b",
    re.IGNORECASE,
)
_NAMED_FIELD = re.compile(r"(?:\bpmids?\b[:\s]{0,3}|\bpubmed\.ncbi\.nlm\.nih\.gov/)([1-9][0-9]{0,8})\b", re.IGNORECASE)
_ASKING = frozenset({
    "a", "about", "an", "and", "any", "are", "article", "articles", "by", "can", "do", "does", "evidence", "find",
    "for", "from", "get", "give", "has", "have", "how", "i", "in", "is", "it", "latest", "list", "literature", "look",
    "me", "medline", "newest", "of", "on", "paper", "papers", "please", "publication", "publications", "published",
    "pubmed", "recent", "say", "says", "search", "show", "some", "studies", "study", "tell", "that", "the",
    "there", "to", "up", "was", "were", "what", "which", "who", "with", "you",
})  # fmt: skip
"""Words of a question that do not name its subject."""
ASKING_WORDS = _ASKING | word_set(
    "abstract abstracts journal journals trial trials randomized randomised controlled systematic review reviews meta "
    "meta-analysis meta-analyses meta-analyse meta-analysen metaanalysis peer-reviewed reviewed medical scientific "
    "clinical research seminar ward case reports report guideline guidelines exist exists compared published only "
    "argue studien studie artikel aktuelle aktuell neue neueste klinische medizinische fachartikel literatur "
    "veröffentlicht études étude articles article médicaux médicale médical cliniques clinique récentes récents "
    "publications estudios estudio artículos clínicos clínico ensayos ensayo médicos recientes publicados literatura "
    "science pmid newest latest one two three"
)
"""Words of a message in four languages that do not name the subject of an article."""


def clean_query(query: str) -> str:
    """Return a query on one line, without invisible characters; raises `Refused` if it is empty or too long."""
    text = " ".join("".join(char if char.isprintable() else " " for char in query.translate(_QUOTES)).split())
    if not re.search(r"\w", text):
        raise Refused("the call has no query and no pmid", "give query to search, or pmid to read an article")
    if len(text) > QUERY_LENGTH:
        raise Refused(f"the query has {len(text):,} characters, the limit is {QUERY_LENGTH:,}", "use fewer words")
    return text


def content_words(message: str) -> tuple[str, str | None]:
    """Return the content words of a message, and its dates. A message in PubMed's syntax is unchanged."""
    if _SYNTAX.search(message):
        return message, None
    years = _YEARS.search(message)
    rest = message.replace(years[0], " ") if years else message
    words = (word.strip("?!.,;:") for word in rest.split())
    left = " ".join(word for word in words if word and (word.lower() not in _ASKING or word.isupper()))
    return left, years[0] if years else None


def find_pmids(query: str) -> str:
    """Return the PMIDs in a question without PubMed's syntax, separated by commas."""
    return "" if _SYNTAX.search(query) else ",".join(_NAMED_FIELD.findall(query)[:MAX_READ])


def parse_pmids(text: str) -> list[str]:
    """Return the PMIDs in a parameter, each once."""
    found = []
    for word in re.sub(r"(?i)\bpmids?\b:?", " ", text[:1000]).replace(",", " ").replace(";", " ").split():
        match = _PMID.fullmatch(word)
        if match is None:
            advice = (
                "use a number such as 31978945. Find a DOI with query='10.1000/x[doi]', and a PMCID with "
                "query='PMC123[pmcid]'"
            )
            raise Refused(f"'{word[:40]}' is not a PMID", advice)
        found.append(match[1])
    if not 0 < len(found) <= MAX_READ:
        raise Refused(f"pmid has {len(found)} PMIDs instead of 1 to {MAX_READ}", "call again with fewer PMIDs")
    return list(dict.fromkeys(found))
