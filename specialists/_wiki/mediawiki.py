"""Pages and searches of one MediaWiki, with or without the extensions that Wikipedia has."""

import difflib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from brain import Refused
from specialists._wiki.api import Api, ApiError, Json, Later, listed, mapping, text_of
from specialists._wiki.article import Article, of_contents, of_extract, read
from specialists._wiki.source import Found, Hit, Page

HITS = 6
NEAREST = 5
TITLE_BYTES = 255
LINE_LENGTH = 160
_NOT_IN_TITLES = re.compile(r"[#<>\[\]{}|\x00-\x1f\x7f]")
_NO_PAGE = frozenset({"missingtitle", "invalidtitle", "nosuchpageid", "pagecannotexist"})
_MARKUP = re.compile(
    r"<ref[^<>]{0,200}>[^<>]{0,300}</ref>|<[^<>]{0,300}>|'{2,5}|\[\[(?:[^\[\]|]{0,200}\|)?|\]\]|\{\{[^{}]{0,300}\}\}"
)
_CHOOSING = re.compile(
    r"(?:all |article |all article )?disambig|.*?(?:begriffsklärung|homonymi|d[eé]sambigua|disambigua|doorverwijs|"
    r"förgrening|ujednoznaczn|неоднозначн|багатозначн|rozcestník|消歧义|消歧義|曖昧さ回避|동음이의|توضيح)",
    re.IGNORECASE,
)
"""What the categories of disambiguation pages are called where no extension marks them."""
_CHOOSING_TITLE = re.compile(
    r"\((?:disambiguation|begriffsklärung|homonymie|desambiguación|disambigua|doorverwijspagina|значения)\)$",
    re.IGNORECASE,
)


Params = Mapping[str, str | int]


class MediaWiki:
    """One MediaWiki.

    Args:
        label: what it is called in answers.
        home: what its pages' addresses begin with, if that is known without asking.
    """

    def __init__(self, label: str, api: Api, home: str | None = None) -> None:
        self._label = label
        self._api = api
        self._home = home

    @property
    def label(self) -> str:
        return self._label

    async def search(self, query: str) -> Found:
        """One request for both: the page of exactly this title, and a search of the texts."""
        words: Params = {"list": "search", "srsearch": query, "srwhat": "text", "srlimit": HITS, "srinfo": "suggestion"}
        answer = await self._queried(**(_about(query) if is_title(query) else {}), **words)
        if "search" not in answer:
            answer = {**await self._queried(**words), **answer}
        found = [Hit(_name(hit.get("title")), _line(hit.get("snippet"))) for hit in listed(answer.get("search"))]
        suggestion = _name(mapping(answer.get("searchinfo")).get("suggestion"))
        return Found(self._page(answer), [hit for hit in found if hit.title], suggestion)

    async def page(self, title: str) -> Page | None:
        if not is_title(title):
            return None
        answer = await self._queried(**_about(title))
        if listed(answer.get("interwiki")):
            raise Refused(f"'{title[:80]}' leads to another wiki; leave out the prefix, and name its language or wiki")
        return self._page(answer)

    async def nearest(self, title: str) -> list[str]:
        for beginning in dict.fromkeys((title[:80], title[: max(2, len(title[:80]) // 2)])):
            said = await self._asked(action="opensearch", search=beginning, limit=20)
            found = said[1] if isinstance(said, list) and len(said) > 1 and isinstance(said[1], list) else []
            if found:
                return nearest_of(title, [_name(one) for one in found if _name(one)])
        return []

    async def article(self, page: Page) -> Article:
        """All of a page; if that is too much at once, its introduction and list of sections; else plain text."""
        reason: Refused | None = None
        for way in (self._whole, self._beginning, self._plain):
            try:
                return await way(page)
            except Later:
                raise
            except Refused as refusal:
                reason = reason or refusal
        assert reason is not None
        raise reason

    async def introduction(self, page: Page) -> Article:
        brief = of_extract(page.introduction, disambiguation=page.disambiguation)
        return brief if page.introduction and not brief.disambiguation else await self.article(page)

    async def section(self, page: Page, article: Article, index: str) -> Article:
        return await self._parsed(page, "text", section=index)

    async def _whole(self, page: Page) -> Article:
        return await self._parsed(page, "text|categories|properties")

    async def _beginning(self, page: Page) -> Article:
        introduction = await self._parsed(page, "text|categories|properties", section="0")
        said = await self._asked(action="parse", page=page.title, prop="sections")
        return of_contents(introduction, listed(mapping(mapping(said).get("parse")).get("sections")))

    async def _plain(self, page: Page) -> Article:
        answer = await self._queried(titles=page.title, prop="extracts", explaintext=1, exsectionformat="wiki")
        text = next((text_of(one.get("extract")) for one in listed(answer.get("pages"))), "")
        if not text:
            raise Refused(f"{self._label} gives no text for '{page.title[:80]}'; try another page")
        return of_extract(text, disambiguation=page.disambiguation)

    async def _parsed(self, page: Page, prop: str, **more: str) -> Article:
        fixed = {"disableeditsection": 1, "disabletoc": 1, "disablelimitreport": 1}
        said = await self._asked(action="parse", page=page.title, prop=prop, **fixed, **more)
        parsed = mapping(mapping(said).get("parse"))
        text = text_of(parsed.get("text"))
        if not text:
            raise Refused(f"{self._label} gives no text for '{page.title[:80]}'; try another page")
        article = await read(text)
        chosen_from = page.disambiguation or _chosen_from(page.title, parsed)
        return replace(article, disambiguation=article.disambiguation or chosen_from)

    async def _queried(self, **params: str | int) -> Json:
        try:
            return await self._api.query(**params)
        except ApiError as error:
            if error.code in _NO_PAGE:
                return {}
            raise self._no(error) from None

    async def _asked(self, **params: str | int) -> Any:
        try:
            return await self._api.ask(**params)
        except ApiError as error:
            raise self._no(error) from None

    def _no(self, error: ApiError) -> Refused:
        return Refused(f"{self._label} could not answer that ({error.code}); try other words or another page")

    def _page(self, answer: Json) -> Page | None:
        """The page that a query was about, if it exists."""
        found = next(iter(listed(answer.get("pages"))), None)
        if found is not None and "special" in found:
            raise Refused(f"'{text_of(found.get('title'))[:80]}' is no page with a text; ask for another page")
        if found is None or {"missing", "invalid"} & found.keys() or not _name(found.get("title")):
            return None
        led = listed(answer.get("redirects"))
        latest = next(iter(listed(found.get("revisions"))), {})
        revision = latest.get("revid") or found.get("lastrevid")
        title = _name(found.get("title"))
        return Page(
            title=title,
            url=self._url(title, text_of(found.get("canonicalurl")) or text_of(found.get("fullurl"))),
            revision=revision if isinstance(revision, int) else None,
            date=text_of(latest.get("timestamp"))[:10],
            redirected_from=_name(led[0].get("from")) if led else None,
            fragment=text_of(led[-1].get("tofragment")) or None if led else None,
            introduction=text_of(found.get("extract")).partition("\n==")[0].strip(),
            disambiguation="disambiguation" in mapping(found.get("pageprops")) or _chosen_from(title, found),
            licence=" ".join(text_of(mapping(answer.get("rightsinfo")).get("text")).split())[:80],
        )

    def _url(self, title: str, said: str) -> str | None:
        if said.startswith("//"):
            said = f"https:{said}"
        if said or self._home is None:
            return said or None
        return self._home + quote(title.replace(" ", "_"), safe="/:(),")


def is_title(text: str) -> bool:
    """Whether a page could be called that; `|` would ask for several, `#` for a part of one."""
    return bool(text.strip()) and not _NOT_IN_TITLES.search(text) and len(text.encode()) <= TITLE_BYTES


def nearest_of(title: str, names: Sequence[str]) -> list[str]:
    """The names most like a title, best first."""

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, title.casefold()[:80], name.casefold()[:80]).ratio()

    return sorted(dict.fromkeys(names), key=likeness, reverse=True)[:NEAREST]


def _about(title: str) -> Params:
    return {
        "titles": title,
        "redirects": 1,
        "converttitles": 1,
        "prop": "info|revisions|pageprops|extracts|categories",
        "inprop": "url",
        "rvprop": "ids|timestamp",
        "ppprop": "disambiguation",
        "exintro": 1,
        "explaintext": 1,
        "exlimit": 1,
        "clshow": "!hidden",
        "cllimit": "max",
        "meta": "siteinfo",
        "siprop": "rightsinfo",
    }


def _name(title: Any) -> str:
    return " ".join(text_of(title).split())[:300]


def _line(snippet: Any) -> str:
    """What a search shows of a page, without mark-up."""
    words = " ".join(html.unescape(_MARKUP.sub("", html.unescape(_MARKUP.sub("", text_of(snippet)[:2000])))).split())
    if words.startswith("#"):  # a redirect, whose text is only where it leads
        return ""
    return words if len(words) <= LINE_LENGTH else words[:LINE_LENGTH].rpartition(" ")[0] + " …"


def _chosen_from(title: str, said: Json) -> bool:
    """Whether a page is of those that only list others, by what a query or a parse tells of it."""
    properties = said.get("properties")
    named = [text_of(one.get("name")) for one in listed(properties)] + [*mapping(properties)]
    categories = [text_of(one.get("title") or one.get("category") or one) for one in listed(said.get("categories"))]
    return (
        _CHOOSING_TITLE.search(title) is not None
        or "disambiguation" in named
        or any(_CHOOSING.match(name.partition(":")[2] or name) for name in categories)
    )
