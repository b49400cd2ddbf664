"""Format articles for a model: a summary in a list, or one whole article."""

import re
from collections.abc import Sequence
from itertools import groupby

from specialists._pubmed.articles import Article

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
"""Publication types that are not shown."""
_LANGUAGES = {
    "chi": "Chinese", "cze": "Czech", "dan": "Danish", "dut": "Dutch", "fin": "Finnish", "fre": "French",
    "ger": "German", "gre": "Greek", "heb": "Hebrew", "hun": "Hungarian", "ita": "Italian", "jpn": "Japanese",
    "kor": "Korean", "nor": "Norwegian", "per": "Persian", "pol": "Polish", "por": "Portuguese", "rum": "Romanian",
    "rus": "Russian", "spa": "Spanish", "swe": "Swedish", "tur": "Turkish", "ukr": "Ukrainian",
}  # fmt: skip


def format_summary(article: Article, number: int) -> str:
    """Return an entry of a list, with the most important sentences of the abstract."""
    abstract = _shorten_abstract(article.abstract) or "No abstract."
    return "\n".join([f"[{number}] {_format_title(article)}", *_format_details(article, AUTHORS_SHOWN), abstract])


def format_article(article: Article) -> str:
    """Return an article with its whole abstract, keywords and MeSH headings."""
    sections = [_format_section(label, text[:_SECTION_LENGTH]) for label, text in article.abstract] or ["No abstract."]
    others = [
        _format_section(f"Other abstract, {label}", text[:_SECTION_LENGTH]) for label, text in article.other_abstracts
    ]
    terms = (("Keywords", article.keywords), ("MeSH, * main topics", article.mesh))
    tail = [f"{name}: {'; '.join(words[:_TERMS_SHOWN])}"[:2000] for name, words in terms if words]
    return "\n".join(
        [_format_title(article), *_format_details(article, AUTHORS_SHOWN_WHOLE), "", *sections, *others, *tail]
    )


def shorten(text: str, most: int) -> str:
    """Cut a text after a sentence if possible, else after a word."""
    if len(text) <= most:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text, 0, most + 2)]
    return f"{text[: ends[-1]] if ends else text[:most].rpartition(' ')[0] or text[:most]} {_CUT}"


def _format_title(article: Article) -> str:
    mark = "⚠ RETRACTED, do not rely on it: " if article.retracted else ""
    return mark + shorten(article.plain_title, _TITLE_LENGTH)


def _format_details(article: Article, most_authors: int) -> list[str]:
    """Return lines: original title, authors, source, numbers and warnings."""
    names = ", ".join(_LANGUAGES.get(code, code) for code in article.languages if code != "eng")
    foreign = f"In {names}" if names and "eng" not in article.languages else ""
    if article.original_title:
        foreign = f"In {names or 'another language'}: {article.original_title}"
    has_more = len(article.authors) > most_authors or article.more_authors
    authors = ", ".join(article.authors[:most_authors]) + (", et al." if has_more and article.authors else "")
    if len(article.authors) > AUTHORS_SHOWN_WHOLE:
        authors += f" ({len(article.authors)} authors)"
    source = " ".join(filter(None, (article.journal, article.date)))
    source += f";{article.volume}" if article.volume else ""
    types = "; ".join(one for one in article.types if not _ORDINARY.fullmatch(one))
    numbers = (f"PMID {article.pmid}", article.doi and f"doi:{article.doi}", article.pmcid)
    lines = [foreign, authors, " · ".join(filter(None, (source, types))), " · ".join(filter(None, numbers))]
    for notice in article.notices[:_NOTICES_SHOWN]:
        other = ", ".join(filter(None, (notice.source, notice.pmid and f"PMID {notice.pmid}")))
        lines.append(f"⚠ {notice.kind}: {other}" if other else f"⚠ {notice.kind}")
    return [line if most_authors > AUTHORS_SHOWN else line[:_LINE_LENGTH] for line in lines if line]


def _format_section(label: str, text: str) -> str:
    return f"{label}: {text}" if label else text


def _shorten_abstract(sections: Sequence[tuple[str, str]]) -> str:
    """Return about `ABSTRACT_LENGTH` characters: the conclusion, and as much of the beginning as fits."""
    if len(sections) < 2:
        return "".join(_format_section(label, shorten(text, ABSTRACT_LENGTH)) for label, text in sections)
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
            lines += [_format_section(sections[n][0], shown[n]) for n in numbers]
        else:
            lines.append(_format_section(", ".join(label for n in numbers if (label := sections[n][0])), _CUT))
    return "\n".join(lines)
