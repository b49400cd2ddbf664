"""Built in: articles of PubMed as a model reads them: short in a list, whole one by one."""

import re
from collections.abc import Sequence
from itertools import groupby

from specialists._pubmed.articles import Article, Notice

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


def listed(article: Article, number: int) -> str:
    """An article in a list: what it is, and the sentences of its abstract that tell most."""
    abstract = _short(article.abstract) or "No abstract."
    return "\n".join([f"[{number}] {_titled(article)}", *_about(article, AUTHORS_SHOWN), abstract])


def whole(article: Article) -> str:
    """All of an article that PubMed has for readers."""
    sections = [_section(label, text[:_SECTION_LENGTH]) for label, text in article.abstract] or ["No abstract."]
    others = [_section(f"Other abstract, {label}", text[:_SECTION_LENGTH]) for label, text in article.other_abstracts]
    terms = (("Keywords", article.keywords), ("MeSH, * main topics", article.mesh))
    tail = [f"{name}: {'; '.join(words[:_TERMS_SHOWN])}"[:2000] for name, words in terms if words]
    return "\n".join([_titled(article), *_about(article, AUTHORS_SHOWN_WHOLE), "", *sections, *others, *tail])


def cut(text: str, most: int) -> str:
    """The same, ended behind a sentence if there is one, else behind a word."""
    if len(text) <= most:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text, 0, most + 2)]
    return f"{text[: ends[-1]] if ends else text[:most].rpartition(' ')[0] or text[:most]} {_CUT}"


def _titled(article: Article) -> str:
    mark = "⚠ RETRACTED, not to be relied on: " if article.retracted else ""
    return mark + cut(article.plain_title, _TITLE_LENGTH)


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
        return "".join(_section(label, cut(text, ABSTRACT_LENGTH)) for label, text in sections)
    last = next((n for n, (label, _) in enumerate(sections) if "CONCLUSION" in label.upper()), len(sections) - 1)
    shown = {last: cut(sections[last][1], _CONCLUSION_LENGTH)}
    left = ABSTRACT_LENGTH - len(shown[last])
    for n, (_, text) in enumerate(sections):
        if n == last:
            continue
        if n and len(text) > left and not _SENTENCE.search(text[: max(0, left)]):
            break
        shown[n] = cut(text, left)
        left -= len(shown[n])
    lines = list[str]()
    for is_shown, numbers in groupby(range(len(sections)), key=shown.__contains__):
        if is_shown:
            lines += [_section(sections[n][0], shown[n]) for n in numbers]
        else:
            lines.append(_section(", ".join(label for n in numbers if (label := sections[n][0])), _CUT))
    return "\n".join(lines)
