"""Search and read one MediaWiki, with or without the extensions of Wikipedia."""

import difflib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from brain import Refused
from specialists._wiki.api import Api, ApiError, Json, TryLater, as_mapping, as_objects, as_text
from specialists._wiki.article import (
    Article,
    Hit,
    Page,
    SearchResult,
    article_from_contents,
    article_from_extract,
    read,
)

HITS = 6
NEAREST = 5
TITLE_BYTES = 255
LINE_LENGTH = 160
_NOT_IN_TITLES = re.compile(r"[#<>\[\]{}|\x00-\x1f\x7f]")
_NO_PAGE = frozenset({"missingtitle", "invalidtitle", "nosuchpageid", "pagecannotexist"})
_MARKUP = re.compile(
    r"<ref[^<>]{0,200}>[^<>]{0,300}</ref>|<[^<>]{0,300}>|'{2,5}|\[\[(?:[^\[\]|]{0,200}\|)?|\]\]|\{\{[^{}]{0,300}\}\}"
)
_DISAMBIGUATION = re.compile(
    r"(?:all |article |all article )?disambig|.*?(?:begriffsklärung|homonymi|d[eé]sambigua|disambigua|doorverwijs|"
    r"förgrening|ujednoznaczn|неоднозначн|багатозначн|rozcestník|消歧义|消歧義|曖昧さ回避|동음이의|توضيح)",
    re.IGNORECASE,
)
"""Category names of disambiguation pages, for wikis without the extension that marks them."""
_DISAMBIGUATION_TITLE = re.compile(
    r"\((?:disambiguation|begriffsklärung|homonymie|desambiguación|disambigua|doorverwijspagina|значения)\)$",
    re.IGNORECASE,
)


Params = Mapping[str, str | int]


class MediaWiki:
    """One MediaWiki.

    Args:
        label: name in results.
        home: prefix of page URLs, if it is known without a request.
    """

    def __init__(self, label: str, api: Api, home: str | None = None) -> None:
        self.label = label
        self._api = api
        self._home = home

    async def search(self, query: str) -> SearchResult:
        """Look up this exact title and search the texts, in one request."""
        words: Params = {"list": "search", "srsearch": query, "srwhat": "text", "srlimit": HITS, "srinfo": "suggestion"}
        answer = await self._query(**(_page_params(query) if is_title(query) else {}), **words)
        if "search" not in answer:
            answer = {**await self._query(**words), **answer}
        found = [
            Hit(_clean_title(hit.get("title")), _clean_snippet(hit.get("snippet")))
            for hit in as_objects(answer.get("search"))
        ]
        suggestion = _clean_title(as_mapping(answer.get("searchinfo")).get("suggestion"))
        return SearchResult(self._make_page(answer), [hit for hit in found if hit.title], suggestion)

    async def page(self, title: str) -> Page | None:
        if not is_title(title):
            return None
        answer = await self._query(**_page_params(title))
        if as_objects(answer.get("interwiki")):
            raise Refused(f"'{title[:80]}' is in another wiki", "leave out the prefix and use language or wiki")
        return self._make_page(answer)

    async def nearest(self, title: str) -> list[str]:
        for beginning in dict.fromkeys((title[:80], title[: max(2, len(title[:80]) // 2)])):
            answer = await self._request(action="opensearch", search=beginning, limit=20)
            found = answer[1] if isinstance(answer, list) and len(answer) > 1 and isinstance(answer[1], list) else []
            if found:
                return nearest_titles(title, [_clean_title(one) for one in found if _clean_title(one)])
        return []

    async def article(self, page: Page) -> Article:
        """Read the whole page, or if that fails its introduction and list of sections, or else its plain text."""
        reason: Refused | None = None
        for read_article in (self._read_whole, self._read_introduction, self._read_extract):
            try:
                return await read_article(page)
            except TryLater:
                raise
            except Refused as refusal:
                reason = reason or refusal
        assert reason is not None
        raise reason

    async def introduction(self, page: Page) -> Article:
        brief = article_from_extract(page.introduction, is_disambiguation=page.is_disambiguation)
        return brief if page.introduction and not brief.is_disambiguation else await self.article(page)

    async def section(self, page: Page, article: Article, index: str) -> Article:
        return await self._parse(page, "text", section=index)

    async def _read_whole(self, page: Page) -> Article:
        return await self._parse(page, "text|categories|properties")

    async def _read_introduction(self, page: Page) -> Article:
        introduction = await self._parse(page, "text|categories|properties", section="0")
        answer = await self._request(action="parse", page=page.title, prop="sections")
        sections = as_mapping(as_mapping(answer).get("parse")).get("sections")
        return article_from_contents(introduction, as_objects(sections))

    async def _read_extract(self, page: Page) -> Article:
        answer = await self._query(titles=page.title, prop="extracts", explaintext=1, exsectionformat="wiki")
        text = next((as_text(one.get("extract")) for one in as_objects(answer.get("pages"))), "")
        if not text:
            raise self._no_text(page)
        return article_from_extract(text, is_disambiguation=page.is_disambiguation)

    async def _parse(self, page: Page, prop: str, **more: str) -> Article:
        fixed = {"disableeditsection": 1, "disabletoc": 1, "disablelimitreport": 1}
        answer = await self._request(action="parse", page=page.title, prop=prop, **fixed, **more)
        parsed = as_mapping(as_mapping(answer).get("parse"))
        text = as_text(parsed.get("text"))
        if not text:
            raise self._no_text(page)
        article = await read(text)
        chosen_from = page.is_disambiguation or _is_disambiguation(page.title, parsed)
        return replace(article, is_disambiguation=article.is_disambiguation or chosen_from)

    def _no_text(self, page: Page) -> Refused:
        return Refused(f"{self.label} has no text for '{page.title[:80]}'", "use another page")

    async def _query(self, **params: str | int) -> Json:
        try:
            return await self._api.query(**params)
        except ApiError as error:
            if error.code in _NO_PAGE:
                return {}
            raise self._refuse(error) from None

    async def _request(self, **params: str | int) -> Any:
        try:
            return await self._api.request(**params)
        except ApiError as error:
            raise self._refuse(error) from None

    def _refuse(self, error: ApiError) -> Refused:
        return Refused(f"{self.label} rejected the request ({error.code})", "use other words or another page")

    def _make_page(self, answer: Json) -> Page | None:
        """Return the page of a query, if it exists."""
        found = next(iter(as_objects(answer.get("pages"))), None)
        if found is not None and "special" in found:
            raise Refused(f"'{as_text(found.get('title'))[:80]}' is a page without text", "use another page")
        title = _clean_title(found.get("title")) if found is not None else ""
        if found is None or {"missing", "invalid"} & found.keys() or not title:
            return None
        redirects = as_objects(answer.get("redirects"))
        latest = next(iter(as_objects(found.get("revisions"))), {})
        revision = latest.get("revid") or found.get("lastrevid")
        url = as_text(found.get("canonicalurl")) or as_text(found.get("fullurl"))
        if url.startswith("//"):
            url = f"https:{url}"
        if not url and self._home is not None:
            url = self._home + quote(title.replace(" ", "_"), safe="/:(),")
        return Page(
            title=title,
            url=url or None,
            revision=revision if isinstance(revision, int) else None,
            date=as_text(latest.get("timestamp"))[:10],
            redirected_from=_clean_title(redirects[0].get("from")) if redirects else None,
            fragment=as_text(redirects[-1].get("tofragment")) or None if redirects else None,
            introduction=as_text(found.get("extract")).partition("\n==")[0].strip(),
            is_disambiguation="disambiguation" in as_mapping(found.get("pageprops"))
            or _is_disambiguation(title, found),
            licence=" ".join(as_text(as_mapping(answer.get("rightsinfo")).get("text")).split())[:80],
        )


def is_title(text: str) -> bool:
    """Whether a text can be the title of one page."""
    return bool(text.strip()) and not _NOT_IN_TITLES.search(text) and len(text.encode()) <= TITLE_BYTES


def nearest_titles(title: str, names: Sequence[str]) -> list[str]:
    """Return the names most similar to a title, best first."""

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, title.casefold()[:80], name.casefold()[:80]).ratio()

    return sorted(dict.fromkeys(names), key=likeness, reverse=True)[:NEAREST]


def _page_params(title: str) -> Params:
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


def _clean_title(title: Any) -> str:
    return " ".join(as_text(title).split())[:300]


def _clean_snippet(snippet: Any) -> str:
    """Return the excerpt of a hit without markup."""
    words = " ".join(html.unescape(_MARKUP.sub("", html.unescape(_MARKUP.sub("", as_text(snippet)[:2000])))).split())
    if words.startswith("#"):  # the text of a redirect
        return ""
    return words if len(words) <= LINE_LENGTH else words[:LINE_LENGTH].rpartition(" ")[0] + " …"


def _is_disambiguation(title: str, answer: Json) -> bool:
    """Whether a page is a disambiguation page, by its response to a query or a parse."""
    properties = answer.get("properties")
    names = [as_text(one.get("name")) for one in as_objects(properties)] + [*as_mapping(properties)]
    categories = [
        as_text(one.get("title") or one.get("category") or one) for one in as_objects(answer.get("categories"))
    ]
    return (
        _DISAMBIGUATION_TITLE.search(title) is not None
        or "disambiguation" in names
        or any(_DISAMBIGUATION.match(name.partition(":")[2] or name) for name in categories)
    )
