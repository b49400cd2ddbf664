"""One offline wiki, a ZIM file as Kiwix offers them."""

import importlib.util
from typing import Any

from brain import Refused, install_command
from specialists._kit.isolated import Ended, Limits, run_isolated
from specialists._wiki.article import Article, Found, Hit, Page, read
from specialists._wiki.mediawiki import nearest_titles
from specialists._wiki.names import OfflineWiki

SECONDS = 12.0
LIMITS = Limits(memory=None)


class Zim:
    """One ZIM file."""

    def __init__(self, wiki: OfflineWiki) -> None:
        self.label = wiki.label
        self._path = str(wiki.path)

    async def search(self, query: str) -> Found:
        answer = await self._run("search", query)
        return Found(_make_page(answer["page"]), [Hit(title) for title in answer["hits"]])

    async def page(self, title: str) -> Page | None:
        return _make_page(await self._run("page", title))

    async def nearest(self, title: str) -> list[str]:
        return nearest_titles(title, await self._run("nearest", title))

    async def article(self, page: Page) -> Article:
        html = await self._run("html", page.title)
        if html is None:
            raise Refused(f"'{page.title[:80]}' is too large to be read; try another page")
        return await read(html)

    introduction = article

    async def section(self, page: Page, article: Article, index: str) -> Article:
        raise AssertionError("its articles are whole")

    async def find_problem(self) -> str | None:
        """The problem of the file, if any."""
        if importlib.util.find_spec("libzim") is None:
            return f"offline wikis need the package libzim: {install_command('wiki-offline')}"
        try:
            await self._run("check", "")
        except Refused as refusal:
            return refusal.reason.partition(";")[0]
        return None

    async def _run(self, action: str, term: str) -> Any:
        if importlib.util.find_spec("libzim") is None:
            raise Refused("offline wikis need the package libzim, which is not installed")
        try:
            return await run_isolated("_wiki.archive", [action, self._path, term], limits=LIMITS, seconds=SECONDS)
        except Ended as error:
            reason = f"{self.label} cannot be read; go on without it, its file is missing or damaged"
            raise Refused(reason) from error


def _make_page(fields: dict[str, str] | None) -> Page | None:
    if fields is None:
        return None
    redirected_from, licence = fields["redirected_from"] or None, fields["licence"][:80]
    return Page(fields["title"], date=fields["date"][:10], redirected_from=redirected_from, licence=licence)
