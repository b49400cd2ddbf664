"""What a wiki is asked and answers, be it one of the web or a file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specialists._wiki.article import Article


@dataclass(frozen=True, slots=True)
class Page:
    """A page that exists.

    Attributes:
        url: its canonical address, if it has one.
        revision, date: of its text; the date is an ISO one.
        redirected_from: the title that led to it.
        fragment: the section a redirect points to.
        introduction: plain text, when the wiki gives it without the page.
        licence: of the text, in the wiki's words.
        where: the parameters besides its title by which a model asks for it again, such as `, wiki="own"`.
    """

    title: str
    url: str | None = None
    revision: int | None = None
    date: str = ""
    redirected_from: str | None = None
    fragment: str | None = None
    introduction: str = ""
    disambiguation: bool = False
    licence: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that a search found, and a line of it."""

    title: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: the page of exactly that title, if there is one, and others; or words to try instead."""

    page: Page | None = None
    hits: Sequence[Hit] = field(default_factory=tuple)
    suggestion: str = ""


class Source(Protocol):
    """A wiki."""

    @property
    def label(self) -> str:
        """What it is called in answers."""

    async def search(self, query: str) -> Found:
        """Looks for a title and for words."""

    async def page(self, title: str) -> Page | None:
        """The page of a title, redirects followed."""

    async def nearest(self, title: str) -> list[str]:
        """At most five titles like one that does not exist."""

    async def article(self, page: Page) -> Article:
        """What the page says."""

    async def introduction(self, page: Page) -> Article:
        """The same, or as much of it as its introduction needs."""

    async def section(self, page: Page, article: Article, index: str) -> Article:
        """A section of an article that is not whole, with those within it."""
