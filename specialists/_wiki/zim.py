"""An offline wiki in a ZIM file, as published by Kiwix."""

import asyncio
import importlib.util
import logging
import os
from typing import Any

from brain import Refused, install_command
from specialists._kit.isolated import Ended, Limits, run_isolated
from specialists._wiki.article import Article, Hit, Page, SearchResult, read
from specialists._wiki.mediawiki import nearest_titles
from specialists._wiki.names import OfflineWiki

SECONDS = 12.0
LIMITS = Limits(memory=None)
ADVICE = "use another wiki or continue without it"

log = logging.getLogger("brain")


class Zim:
    """One ZIM file."""

    def __init__(self, wiki: OfflineWiki) -> None:
        self.label = wiki.label
        self._path = str(wiki.path)

    async def search(self, query: str) -> SearchResult:
        answer = await self._run("search", query)
        return SearchResult(_make_page(answer["page"]), [Hit(title) for title in answer["hits"]])

    async def page(self, title: str) -> Page | None:
        return _make_page(await self._run("page", title))

    async def nearest(self, title: str) -> list[str]:
        return nearest_titles(title, await self._run("nearest", title))

    async def article(self, page: Page) -> Article:
        html = await self._run("html", page.title)
        if html is None:
            raise Refused(f"the page '{page.title[:80]}' is too large to read", "use another page")
        return await read(html)

    introduction = article

    async def section(self, page: Page, article: Article, index: str) -> Article:
        raise AssertionError("articles in ZIM files are whole")

    async def find_problem(self) -> str | None:
        """Return why the file cannot be read, or None."""
        if importlib.util.find_spec("libzim") is None:
            return f"offline wikis need the package libzim: {install_command('wiki-offline')}"
        try:
            await self._run("check", "")
        except Refused:
            return f"{self.label} cannot be read: {self._path} is missing or damaged"
        return None

    async def _run(self, action: str, term: str) -> Any:
        if importlib.util.find_spec("libzim") is None:
            log.warning("wiki: offline wikis need the package libzim: %s", install_command("wiki-offline"))
            raise Refused("offline wikis are not set up on this server", ADVICE)
        try:
            return await run_isolated("_wiki.archive", [action, self._path, term], limits=LIMITS, seconds=SECONDS)
        except Ended as error:
            if not await asyncio.to_thread(os.path.exists, self._path):
                log.warning("wiki: BRAIN_SPECIALIST_WIKI_ZIM: there is no file %s", self._path)
                raise Refused(f"this server does not have the file of {self.label}", ADVICE) from error
            raise Refused(f"{self.label} cannot be read", ADVICE) from error


def _make_page(fields: dict[str, str] | None) -> Page | None:
    if fields is None:
        return None
    redirected_from, licence = fields["redirected_from"] or None, fields["licence"][:80]
    return Page(fields["title"], date=fields["date"][:10], redirected_from=redirected_from, licence=licence)
