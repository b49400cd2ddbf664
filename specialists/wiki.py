"""`wiki`, pages of Wikipedia, other MediaWikis and offline files: found, introduced, read by section."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated
from urllib.parse import unquote

from msgspec import Meta

from brain import Context, Progress, Refused, Result, specialist
from specialists._kit.text import content_words
from specialists._wiki import answer, zim
from specialists._wiki.api import Api, ApiError
from specialists._wiki.article import Article, Hit, Page, Section, Source
from specialists._wiki.mediawiki import MediaWiki
from specialists._wiki.names import OfflineWiki, OnlineWiki, WikiSettings, choose_wiki, find_problem, zim_files

HITS_TRIED = 3
WORDS_LENGTH = 300
"""Of what is looked for; Wikipedia's search takes no more."""
_OF_WIKIS = frozenset({
    "article", "articles", "define", "describe", "encyclopedia", "entry", "explain", "find", "give", "look", "page",
    "please", "read", "say", "says", "search", "section", "show", "tell", "up", "were", "wiki", "wikipedia",
})  # fmt: skip
"""Words of questions to an encyclopedia which its pages need not have."""
_ADDRESS = re.compile(r"https?://(?P<language>[\w-]{2,15})(?:\.m)?\.wikipedia\.org/wiki/(?P<title>[^?]+)(?:\?.*)?")


async def _health(*, settings: WikiSettings, context: Context) -> str | None:
    """Whether the default wiki answers and the offline ones can be read."""
    wikis = [choose_wiki(name, None, settings) for name in (settings.default, *zim_files(settings))]
    for wiki in wikis:
        trouble = await (
            zim.Zim(wiki).find_problem() if isinstance(wiki, OfflineWiki) else _find_problem(wiki, settings, context)
        )
        if trouble:
            return trouble
    return None


async def _find_problem(wiki: OnlineWiki, settings: WikiSettings, context: Context) -> str | None:
    try:
        await Api(wiki, context, settings.contact).query(meta="siteinfo", siprop="general")
    except Refused as refusal:
        return refusal.reason.partition(";")[0]
    except ApiError:
        return f"{wiki.label} does not answer as a MediaWiki does"
    return None


@specialist(
    read_only=True,
    sends=("query", "page", "language", "wiki"),
    timeout=20,
    cache_seconds=600,
    settings=WikiSettings,
    needs=find_problem,
    health=_health,
    tags=("web", "wikipedia", "encyclopedia"),
    examples=(
        "who was Ada Lovelace",
        "what does Wikipedia say about photosynthesis",
        "look up Berlin in the encyclopedia",
        "read the section History of the Wikipedia article on Rome",
        "when was the Eiffel Tower built",
        "what is the capital of Australia",
        "tell me about the French Revolution",
        "find the German Wikipedia page on Goethe",
        "how tall is Mount Everest",
        "which planets does the solar system have",
        "where was Marie Curie born",
    ),
)
async def wiki(
    query: Annotated[str | None, Meta(description="words or a title to look for")] = None,
    page: Annotated[str | None, Meta(description="exact title to read instead")] = None,
    section: Annotated[str | int | None, Meta(description="name or number of a section to read")] = None,
    language: Annotated[str | None, Meta(description="code of a Wikipedia, such as de")] = None,
    wiki: Annotated[str | None, Meta(description="name of another wiki")] = None,
    offset: Annotated[int | None, Meta(description="where to go on in a long text")] = None,
    *,
    settings: WikiSettings,
    context: Context,
) -> AsyncIterator[Progress | Result]:
    """Encyclopedia: looks up a subject in Wikipedia or another wiki; gives a page's introduction, or a section."""
    if address := _ADDRESS.fullmatch((page or query or "").strip()):
        page, language = unquote(address["title"]), address["language"]
    source = _source(wiki, language, settings, context)
    yield Progress(f"asking {source.label}")
    where = "".join(f', {key}="{value}"' for key, value in (("wiki", wiki), ("language", language)) if value)
    title, _, anchor = _one_line((page or "").replace("_", " ")).partition("#")
    section_name = ("" if section is None else str(section).strip()) or anchor or None
    words = _one_line(query or "")
    if title:
        found = await source.page(title)
        if found is None:
            raise answer.no_page(source.label, title, await source.nearest(title))
        yield await _read(source, replace(found, where=where), section_name, offset)
        return
    if not words:
        raise Refused("say what to look for: query for a search, or page for the exact title of a page")
    best, others = await _search(source, words, verbatim=words == _one_line(context.message))
    best = replace(best, where=where)
    if section_name is not None or offset is not None or best.fragment:
        yield await _read(source, best, section_name, offset)
    else:
        yield await _introduce(source, best, others)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:WORDS_LENGTH]


def _source(name: str | None, language: str | None, settings: WikiSettings, context: Context) -> Source:
    found = choose_wiki(name, language, settings)
    if isinstance(found, OfflineWiki):
        return zim.Zim(found)
    home = None if found.trusted else found.api.replace("/w/api.php", "/wiki/")
    return MediaWiki(found.label, Api(found, context, settings.contact, [*zim_files(settings)]), home)


async def _search(source: Source, words: str, *, verbatim: bool) -> tuple[Page, Sequence[Hit]]:
    """The best page and the others: the one of exactly this title, else the first one found.

    What a user said word for word is rather searched by what it is about.
    """
    found = await source.search(words)
    subject = _subject_of(words)
    if found.page is None and subject != words and (verbatim or not found.hits):
        again = await source.search(subject)
        found = again if again.page or again.hits else found
    best = found.page or await _first_existing(
        source, sorted(found.hits, key=lambda hit: hit.title.casefold() != words.casefold())
    )
    if best is None:
        near = [found.suggestion] if found.suggestion else []
        raise answer.nothing(source.label, words, [*near, *await source.nearest(words)])
    return best, [hit for hit in found.hits if hit.title != best.title]


async def _first_existing(source: Source, hits: Sequence[Hit]) -> Page | None:
    """The first page that exists; an index may know some that were deleted."""
    for hit in hits[:HITS_TRIED]:
        if page := await source.page(hit.title):
            return page
    return None


async def _introduce(source: Source, page: Page, others: Sequence[Hit]) -> Result:
    """The best page of a search; what it may mean when it only lists others."""
    article = await source.introduction(page)
    if article.disambiguation and article.choices:
        return answer.choices(source.label, page, article)
    return answer.search_result(source.label, page, article, others)


def _subject_of(words: str) -> str:
    """A question as words to look for; signs such as those of `C#` are kept."""
    telling_words = set(content_words(words)) - _OF_WIKIS or set(content_words(words))
    shown = (word.rstrip(",;:?!") for word in words.split() if telling_words.intersection(content_words(word)))
    return " ".join(shown).rstrip(".")


async def _read(source: Source, page: Page, section_name: str | None, offset: int | None) -> Result:
    """A page that exists: a section of it, all of it from an offset on, or its beginning."""
    article = await source.article(page)
    section = article.find(section_name) if section_name is not None else None
    if section_name is not None and section is None:
        raise answer.no_section(page, article, section_name)
    if section_name is None and offset is None:
        if article.disambiguation and article.choices:
            return answer.choices(source.label, page, article)
        section = article.find(page.fragment) if page.fragment else None
        if section is None:
            return answer.page_result(source.label, page, article)
    return answer.passage_result(
        source.label, page, await _text(source, page, article, section), section, max(0, offset or 0)
    )


async def _text(source: Source, page: Page, article: Article, section: Section | None) -> str:
    if section is None:
        if not article.whole:
            raise answer.too_long(page, article)
        return article.text
    if not section.level:
        return article.introduction
    return article.below(section) if article.whole else (await source.section(page, article, section.index)).text
