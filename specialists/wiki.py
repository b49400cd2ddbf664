"""`wiki` searches Wikipedia, other MediaWikis and offline wikis, and reads their pages by section."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated
from urllib.parse import unquote

from msgspec import Meta

from brain import AssistContext, Context, Progress, Refused, Result, specialist
from specialists._kit.examples import read_examples
from specialists._kit.text import content_words, word_set
from specialists._wiki import answer
from specialists._wiki.api import Api, ApiError
from specialists._wiki.article import Hit, Page, Source
from specialists._wiki.mediawiki import MediaWiki
from specialists._wiki.names import OfflineWiki, WikiSettings, choose_wiki, find_problem, zim_files
from specialists._wiki.zim import Zim

HITS_TRIED = 3
WORDS_LENGTH = 300
"""Maximum characters of a query in Wikipedia's search."""
MAX_WORDS = 8
"""Words of an assisted search."""
_WIKI_WORDS = frozenset({
    "article", "articles", "define", "describe", "encyclopedia", "entry", "explain", "find", "give", "look", "page",
    "please", "read", "say", "says", "search", "section", "show", "tell", "up", "were", "wiki", "wikipedia",
    "encyclopaedia", "according", "enzyklopädie", "lexikon", "encyclopédie", "enciclopedia",
})  # fmt: skip
"""Words of a question that do not name its subject."""
_ASKING_WORDS = word_set("year long tall high big old far deep first short paragraph homework version trouble began")
"""Words of a question about a subject that its article does not need."""
_LANGUAGES = {"german": "de", "french": "fr", "spanish": "es", "italian": "it", "dutch": "nl", "polish": "pl"}
_NAMED_LANGUAGE = re.compile(rf"\b({'|'.join(_LANGUAGES)}) (?:wikipedia|wiki|encyclop(?:a)?edia)\b", re.IGNORECASE)
_LANGUAGE_WORDS = {
    "de": word_set(
        "der die das den dem ein eine ist war und wer wie wann wo was welche hat von im zum über gibt wurde"
    ),
    "fr": word_set("le la les un une est et qui que quand où quel quelle quelles dans du des sur née né sont combien"),
    "es": word_set("el la los las un una es fue y quién qué cuándo dónde cuál del en está cómo son cuántos nació"),
}
_QUESTION_WORDS = {
    "de": word_set("wer wie wann wo woher warum wieso welche welcher welches wem"),
    "fr": word_set("qui quand où quel quelle quels quelles combien pourquoi comment qu c"),
    "es": word_set("quién quiénes qué cuándo dónde cuál cuáles cuántos cuántas cómo"),
}
_URL = re.compile(r"https?://(?P<language>[\w-]{2,15})(?:\.m)?\.wikipedia\.org/wiki/(?P<title>[^?]+)(?:\?.*)?")


async def _health(*, settings: WikiSettings, context: Context) -> str | None:
    """Return what is wrong with the default wiki or an offline wiki, or None."""
    for name in (settings.default, *zim_files(settings)):
        wiki = choose_wiki(name, None, settings)
        if isinstance(wiki, OfflineWiki):
            problem = await Zim(wiki).find_problem()
        else:
            problem = None
            try:
                await Api(wiki, context, settings.contact).query(meta="siteinfo", siprop="general")
            except Refused as refusal:
                cause = refusal.__cause__
                problem = f"{wiki.label}: {cause.reason}" if isinstance(cause, Refused) else refusal.reason
            except ApiError:
                problem = f"{wiki.label} is not a MediaWiki"
        if problem:
            return problem
    return None


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call."""
    words = context.find_subject(message, _WIKI_WORDS | _ASKING_WORDS)
    params = {"query": " ".join(words[:MAX_WORDS]) or _one_line(message)}
    if language := _find_language(message):
        params["language"] = language
    return params


def _find_language(message: str) -> str | None:
    """Return the code of the Wikipedia that a message names, or of its language if that is not English."""
    if named := _NAMED_LANGUAGE.search(message):
        return _LANGUAGES[named[1].lower()]
    words = re.findall(r"\w+", message.lower())
    shared = {
        code: len(of_language.intersection(words)) + 2 * (words[:1] != [] and words[0] in _QUESTION_WORDS[code])
        for code, of_language in _LANGUAGE_WORDS.items()
    }
    best = max(shared, key=lambda code: shared[code])
    return best if shared[best] > 1 and list(shared.values()).count(shared[best]) == 1 else None


@specialist(
    read_only=True,
    sends=("query", "page", "language", "wiki"),  # and the number of a section
    timeout=20,
    cache_seconds=600,
    settings=WikiSettings,
    needs=find_problem,
    health=_health,
    assist=make_params,
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
        *read_examples("wiki"),
    ),
)
async def wiki(
    query: Annotated[str | None, Meta(description="words or title to look for")] = None,
    page: Annotated[str | None, Meta(description="exact title to read instead")] = None,
    section: Annotated[str | int | None, Meta(description="name or number of a section to read")] = None,
    language: Annotated[str | None, Meta(description="code of a Wikipedia, such as de")] = None,
    wiki: Annotated[str | None, Meta(description="name of another wiki")] = None,
    offset: Annotated[int | None, Meta(description="character to start at in a long text")] = None,
    *,
    settings: WikiSettings,
    context: Context,
) -> AsyncIterator[Progress | Result]:
    """Encyclopedia: looks up a subject in Wikipedia or another wiki, and reads a page's introduction or a section."""
    if url := _URL.fullmatch((page or query or "").strip()):
        page, language = unquote(url["title"]), url["language"]
    source = _open_source(wiki, language, settings, context)
    yield Progress(f"asking {source.label}")
    where = "".join(f', {key}="{value}"' for key, value in (("wiki", wiki), ("language", language)) if value)
    title, _, anchor = _one_line((page or "").replace("_", " ")).partition("#")
    section_name = ("" if section is None else str(section).strip()) or anchor or None
    if title:
        found = await source.page(title)
        if found is None:
            raise answer.refuse_page(source.label, title, await source.nearest(title))
        yield await _read(source, replace(found, where=where), section_name, offset)
        return
    words = _one_line(query or "")
    if not words:
        raise Refused("the call has no query and no page", "give query to search, or page with an exact title")
    best, others = await _search(source, words, is_verbatim=words == _one_line(context.message))
    best = replace(best, where=where)
    if section_name is not None or offset is not None or best.fragment:
        yield await _read(source, best, section_name, offset)
        return
    article = await source.introduction(best)
    if article.is_disambiguation and article.choices:
        yield answer.show_choices(source.label, best, article)
    else:
        yield answer.show_hit(source.label, best, article, others)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:WORDS_LENGTH]


def _open_source(name: str | None, language: str | None, settings: WikiSettings, context: Context) -> Source:
    wiki = choose_wiki(name, language, settings)
    if isinstance(wiki, OfflineWiki):
        return Zim(wiki)
    home = None if wiki.is_trusted else wiki.api.replace("/w/api.php", "/wiki/")
    return MediaWiki(wiki.label, Api(wiki, context, settings.contact, [*zim_files(settings)]), home)


async def _search(source: Source, words: str, *, is_verbatim: bool) -> tuple[Page, Sequence[Hit]]:
    """Return the page with this title, or else the first hit, and the other hits.

    A query without hits is searched again by its subject, and so is a query that is the user's whole message.
    """
    found = await source.search(words)
    subject = _find_subject(words)
    if found.page is None and subject != words and (is_verbatim or not found.hits):
        again = await source.search(subject)
        found = again if again.page or again.hits else found
    best = found.page
    if best is None:
        hits = sorted(found.hits, key=lambda hit: hit.title.casefold() != words.casefold())
        for hit in hits[:HITS_TRIED]:  # an index may contain deleted pages
            if best := await source.page(hit.title):
                break
    if best is None:
        near = [found.suggestion] if found.suggestion else []
        raise answer.refuse_search(source.label, words, [*near, *await source.nearest(words)])
    title = best.title
    return best, [hit for hit in found.hits if hit.title != title]


def _find_subject(words: str) -> str:
    """Return the words of a question that name its subject, with their symbols: `C#`."""
    subject = set(content_words(words)) - _WIKI_WORDS or set(content_words(words))
    chosen = (word.rstrip(",;:?!") for word in words.split() if subject.intersection(content_words(word)))
    return " ".join(chosen).rstrip(".")


async def _read(source: Source, page: Page, section_name: str | None, offset: int | None) -> Result:
    """Read a section of a page, the whole page from an offset, or its beginning."""
    article = await source.article(page)
    section = article.find(section_name) if section_name is not None else None
    if section_name is not None and section is None:
        raise answer.refuse_section(page, article, section_name)
    if section_name is None and offset is None:
        if article.is_disambiguation and article.choices:
            return answer.show_choices(source.label, page, article)
        section = article.find(page.fragment) if page.fragment else None
        if section is None:
            return answer.show_page(source.label, page, article)
    if section is None:
        if not article.is_whole:
            raise answer.refuse_whole(page, article)
        text = article.text
    elif not section.level:
        text = article.introduction
    elif article.is_whole:
        text = article.below(section)
    else:
        text = (await source.section(page, article, section.index)).text
    return answer.show_text(source.label, page, text, section, max(0, offset or 0))
