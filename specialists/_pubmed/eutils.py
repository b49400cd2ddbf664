"""How many requests a second `pubmed` makes, counted over all turns, event loops and threads of a process."""

import asyncio
import json
import math
import re
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from brain import Context, Page, Progress, Refused
from specialists._pubmed.query import EARLIEST, Period

_STEP = 0.01
_MAX_STEP = 0.2


class RateLimit:
    """So many places, first come first served; each is free again a while after the request in it was answered.

    Counting from the answer, and not from the sending, keeps the limit at the server too, however late a request comes
    there. It is used from several event loops, hence the lock and the looking again instead of waking.
    """

    def __init__(
        self,
        requests: int,
        seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock, self._sleep = clock, sleep
        self._free_at = [0.0] * requests
        self._paused_until = 0.0
        self._queue: deque[object] = deque()
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether the next request has to wait."""
        now = self._clock()
        with self._lock:
            return bool(self._queue) or max(self._paused_until, min(self._free_at)) > now

    def pause(self, seconds: float) -> None:
        """Lets nobody begin for so long: the server asked for it."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    @asynccontextmanager
    async def acquire(self, until: float) -> AsyncIterator[None]:
        """A place for one request.

        Args:
            until: when there is no use for it any more, on the clock of `time.monotonic`.

        Raises:
            TimeoutError: when there is none before.
        """
        number = await self._wait_for_slot(until)
        try:
            yield
        finally:
            with self._lock:
                self._free_at[number] = self._clock() + self._seconds

    async def _wait_for_slot(self, until: float) -> int:
        ticket = object()
        with self._lock:
            self._queue.append(ticket)
        try:
            while (number := self._take_slot(ticket)) is None:
                if self._clock() >= until:
                    raise TimeoutError
                await self._sleep(min(_STEP * self._queue_position(ticket), _MAX_STEP))
            return number
        finally:
            with self._lock:
                self._queue.remove(ticket)

    def _queue_position(self, ticket: object) -> int:
        with self._lock:
            return self._queue.index(ticket) + 1

    def _take_slot(self, ticket: object) -> int | None:
        """The number of a free place, if it is this one's turn."""
        with self._lock:
            now = self._clock()
            if self._queue[0] is not ticket or now < self._paused_until:
                return None
            for number, free_at in enumerate(self._free_at):
                if free_at <= now:
                    self._free_at[number] = math.inf
                    return number
        return None


_limits: dict[tuple[str, int], RateLimit] = {}
_limits_lock = threading.Lock()


def shared_limit(server: str, requests: int) -> RateLimit:
    """The one limit of this process for a server: `requests` a second."""
    with _limits_lock:
        return _limits.setdefault((server, requests), RateLimit(requests))


TOOL = "brain-sse"
BASE = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/"
WAITING = "waiting for PubMed's rate limit"
BACKOFF = (0.5, 1.0, 2.0)
"""Seconds before each further try, unless the server says how long."""
ANSWER_SECONDS = 15.0
ARTICLES_BYTES = 8 * 1024 * 1024
ANSWER_BYTES = 256 * 1024
"""Of answers in JSON, whose parser lets nobody else run; an answer with 20 PMIDs has some 5 KB."""
_MARGIN = 1.0
"""Seconds before the deadline by which everything is said, so that the model gets a reason and not a time-out."""
_GET_LENGTH = 1500
_MAX_PAUSE = 30.0
_TYPES = ("application/json", "application/xml", "text/*")
_LATER = "go on without it, or ask again later"

UNREADABLE = f"PubMed's answer cannot be read; {_LATER}"
_UNREACHABLE = (
    "PubMed could not be reached in time, or answered too much; ask for fewer articles, or go on without it and ask "
    "again later"
)
_LIMITED = "PubMed gets too many requests from here"
_DOWN = "PubMed has trouble of its own"
_BLOCKED = "PubMed refuses requests from here; the operator has to ask NCBI why; go on without it"
_BAD_KEY = "PubMed does not know the API key of its settings; the operator has to correct it; go on without it"
_NO_TIME = "too many questions to PubMed are waiting for its rate limit; ask again in a few seconds"
_BAD_QUERY = "PubMed cannot run this query; check its brackets, quotation marks and [field tags], or ask in plain words"
_NO_ARTICLE = "PubMed has no article of that PMID; look for words of its title"


@dataclass(frozen=True, slots=True)
class PubmedSettings:
    """Whom NCBI may write to, and at what pace it may be asked."""

    email: Annotated[
        str,
        Meta(description="your e-mail address, which NCBI wants with each request to write to you before it blocks"),
    ] = "brain-sse@example.org"
    api_key: Annotated[
        str, Meta(description="key of an NCBI account, for 10 requests a second instead of 3", extra={"secret": True})
    ] = ""
    base: Annotated[
        str, Meta(description="address of the E-utilities, such as that of a mirror", pattern=r"^https?://[^\s/?#]+")
    ] = BASE
    requests_per_second: Annotated[
        int, Meta(description="for all turns of a process together; 0 is what NCBI allows", ge=0, le=100)
    ] = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: how many articles, the PMIDs of some, and how PubMed took the query."""

    total: int
    pmids: Sequence[str]
    translation: str
    remarks: Sequence[str]


@dataclass(frozen=True, slots=True)
class Eutils:
    """The E-utilities of one call."""

    context: Context
    settings: PubmedSettings

    async def search(
        self, term: str, when: Period | None, *, sort: str, first: int, most: int
    ) -> AsyncIterator[Progress | Found]:
        """Articles that fit, `first` of them left out; the last item is what was found."""
        params = {"term": term, "retmode": "json", "retstart": str(first), "retmax": str(most), "sort": sort}
        if when is not None:
            start, end = when.start or EARLIEST, when.end
            params |= {
                "datetype": "pdat",
                "mindate": f"{start:%Y/%m/%d}",
                "maxdate": f"{end:%Y/%m/%d}" if end else "3000",
            }
        async for item in self.ask("esearch", params, _BAD_QUERY):
            yield item if isinstance(item, Progress) else await asyncio.to_thread(found_in, item)

    async def articles(self, pmids: Sequence[str]) -> AsyncIterator[Progress | Page]:
        """The records of articles; the last item is their XML."""
        params = {"id": ",".join(pmids), "retmode": "xml", "rettype": "abstract"}
        async for item in self.ask("efetch", params, _NO_ARTICLE):
            yield item

    async def about(self) -> AsyncIterator[Progress | Page]:
        """What the database is: a question that costs nothing."""
        async for item in self.ask("einfo", {"retmode": "json"}, UNREADABLE):
            yield item

    async def ask(self, program: str, params: Mapping[str, str], wrong: str) -> AsyncIterator[Progress | Page]:
        """One question, asked again while the server is busy; the last item is the answer.

        Args:
            wrong: what to say when the server takes the question for a wrong one.

        Raises:
            Refused: when there is no answer in time, or the question was wrong.
        """
        until = time.monotonic() + self.context.seconds_left - _MARGIN
        limit = self._limit
        for backoff in (*BACKOFF, None):
            if limit.is_busy:
                yield Progress(WAITING)
            page = await self._once(program, params, until)
            trouble = _trouble(page, wrong)
            if trouble is None:
                yield page
                return
            pause = _retry_after(page, backoff or 0.0)
            if backoff is None or time.monotonic() + pause > until:
                raise Refused(f"{trouble}; {_again(pause)}")
            if trouble == _LIMITED:
                limit.pause(min(pause, _MAX_PAUSE))
            yield Progress(f"PubMed is busy, asking again in {round(pause, 1):g} s")
            await asyncio.sleep(pause)

    async def _once(self, program: str, params: Mapping[str, str], until: float) -> Page:
        own = {"db": "pubmed", **params, "tool": TOOL, "email": self.settings.email, "api_key": self.settings.api_key}
        own = {key: value for key, value in own.items() if value}
        body = urlencode(own).encode("ascii")
        short = len(body) <= _GET_LENGTH
        try:
            async with self._limit.acquire(until):
                return await self.context.fetch(
                    f"{self.settings.base.rstrip('/')}/{program}.fcgi",
                    params=own if short else None,
                    method="GET" if short else "POST",
                    body=None if short else body,
                    headers=None if short else {"Content-Type": "application/x-www-form-urlencoded"},
                    types=_TYPES,
                    most=ARTICLES_BYTES if program == "efetch" else ANSWER_BYTES,
                    seconds=max(0.1, min(ANSWER_SECONDS, until - time.monotonic())),
                    trusted=None if self.settings.base == BASE else self.settings.base,
                )
        except TimeoutError:
            raise Refused(_NO_TIME) from None
        except Refused as refusal:  # which names the host, and sends the model to other sources
            raise Refused(_UNREACHABLE) from refusal

    @property
    def _limit(self) -> RateLimit:
        allowed = 10 if self.settings.api_key else 3
        return shared_limit(self.settings.base, self.settings.requests_per_second or allowed)


def _trouble(page: Page, wrong: str) -> str | None:
    """Why there is no answer now, None when there is one; a question that stays wrong is refused at once."""
    head = page.body[:4096]
    if page.status == 429:
        return _LIMITED
    if page.status in (401, 403):
        raise Refused(_BLOCKED)
    if page.status >= 500 or b"Search Backend failed" in head or head.lstrip()[:14].lower().startswith(_HTML):
        return _DOWN
    said = _json(page).get("error") if head.startswith(b"{") and len(page.body) <= len(head) else None
    if isinstance(said, str):
        if "api key" in said.lower():
            raise Refused(_BAD_KEY)
        return _LIMITED  # as it says in these or other words
    if not 200 <= page.status < 300:
        raise Refused(wrong)
    return None


_HTML = (b"<!doctype html", b"<html")


def _retry_after(page: Page, otherwise: float) -> float:
    """Seconds until the server wants to be asked again (RFC 9110, section 10.2.3)."""
    said = page.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", said):
        return float(said)
    with suppress(ValueError, TypeError, OverflowError):
        when = parsedate_to_datetime(said)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return otherwise


def _again(pause: float) -> str:
    return f"ask again in {math.ceil(pause)} seconds, or go on without it" if pause else _LATER


def found_in(page: Page) -> Found:
    """What an answer of esearch says; its JSON may hold bare line ends in texts.

    Raises:
        Refused: when it says nothing that can be read, or that the query was wrong.
    """
    answer = _json(page).get("esearchresult")
    if not isinstance(answer, dict) or "ERROR" in answer:
        raise Refused(_BAD_QUERY if isinstance(answer, dict) else UNREADABLE)
    total, pmids = str(answer.get("count")), answer.get("idlist")
    if not re.fullmatch(r"[0-9]{1,12}", total) or not isinstance(pmids, list):
        raise Refused(UNREADABLE)
    known = [str(one) for one in pmids if re.fullmatch(r"[0-9]{1,12}", str(one))]
    return Found(int(total), list(dict.fromkeys(known)), _line(answer.get("querytranslation")), _remarks(answer))


def _json(page: Page) -> dict[str, Any]:
    try:
        found = json.loads(page.text, strict=False)
    except (ValueError, RecursionError):
        raise Refused(UNREADABLE) from None
    return found if isinstance(found, dict) else {}


_REMARKS = (
    ("errorlist", "phrasesnotfound", "PubMed knows nothing of"),
    ("errorlist", "fieldsnotfound", "no such field tag"),
    ("warninglist", "quotedphrasesnotfound", "no such phrase, so its words were looked for one by one"),
    ("warninglist", "phrasesignored", "left out"),
    ("warninglist", "outputmessages", "PubMed says"),
)
_SAID_OTHERWISE = "No items found."


def _remarks(answer: Mapping[str, Any]) -> list[str]:
    """What PubMed could make nothing of, in words with which a query can be corrected."""
    remarks = []
    for where, kind, words in _REMARKS:
        format_summary = answer.get(where)
        said = format_summary.get(kind) if isinstance(format_summary, dict) else None
        texts = [_line(text)[:80] for text in (said if isinstance(said, list) else [said])[:5]]
        shown = ", ".join(text for text in texts if text and text != _SAID_OTHERWISE)
        if shown:
            remarks.append(f"{words}: {shown}")
    return remarks


def _line(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""
