"""NCBI's E-utilities: requests within the rate limit, and search results."""

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from brain import Context, Page, Progress, Refused
from specialists._kit.http import retry_after
from specialists._pubmed.dates import EARLIEST, Period
from specialists._pubmed.rate_limit import RateLimit, shared_limit
from specialists._pubmed.records import unreadable

TOOL = "brain-sse"
BASE = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/"
WAITING = "waiting for PubMed's rate limit"
BACKOFF = (0.5, 1.0, 2.0)
"""Delay before each retry, in seconds, unless the server names one."""
ANSWER_SECONDS = 15.0
ARTICLES_BYTES = 8 * 1024 * 1024
ANSWER_BYTES = 256 * 1024
"""Limit for JSON, because its parser blocks other threads; a response with 20 PMIDs has about 5 KB."""
_MARGIN = 1.0
"""Time between the end of a request and the call's deadline, so that the call fails with a reason."""
_GET_LENGTH = 1500
_MAX_PAUSE = 30.0
_TYPES = ("application/json", "application/xml", "text/*")
NO_ARTICLE_ADVICE = "search for words of its title"
_WITHOUT = "continue without it"
BAD_KEY = "PubMed rejects the API key of this server"
_LIMITED = "PubMed receives too many requests from this server"
_DOWN = "PubMed is not working at the moment"

log = logging.getLogger("brain")
Rejection = tuple[str, str]
"""Reason and advice for a request that the server rejects."""
_BAD_QUERY = (
    "PubMed cannot run this query",
    "check its brackets, quotation marks and [field tags], or use plain words",
)
_NO_ARTICLE = ("PubMed has no article with this PMID", NO_ARTICLE_ADVICE)


@dataclass(frozen=True, slots=True)
class PubmedSettings:
    """Contact and rate limit for NCBI."""

    email: Annotated[
        str,
        Meta(description="your e-mail address; NCBI requires one to contact you before it blocks your server"),
    ] = "brain-sse@example.org"
    api_key: Annotated[
        str, Meta(description="NCBI API key, for 10 requests per second instead of 3", extra={"secret": True})
    ] = ""
    base: Annotated[
        str, Meta(description="URL of the E-utilities, for example of a mirror", pattern=r"^https?://[^\s/?#]+")
    ] = BASE
    requests_per_second: Annotated[
        int, Meta(description="rate limit per process; 0: the limit that NCBI allows", ge=0, le=100)
    ] = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search: total number of articles, PMIDs of some, and PubMed's interpretation of the query."""

    total: int
    pmids: Sequence[str]
    translation: str
    remarks: Sequence[str]


@dataclass(frozen=True, slots=True)
class Eutils:
    """The E-utilities for one call."""

    context: Context
    settings: PubmedSettings

    async def search(
        self, term: str, when: Period | None, *, sort: str, first: int, most: int
    ) -> AsyncIterator[Progress | SearchResult]:
        """Search articles, skip `first` of them, and return up to `most`; the last item is the result."""
        params = {"term": term, "retmode": "json", "retstart": str(first), "retmax": str(most), "sort": sort}
        if when is not None:
            start, end = when.start or EARLIEST, when.end
            params |= {
                "datetype": "pdat",
                "mindate": f"{start:%Y/%m/%d}",
                "maxdate": f"{end:%Y/%m/%d}" if end else "3000",
            }
        async for item in self.request("esearch", params, _BAD_QUERY):
            yield item if isinstance(item, Progress) else await asyncio.to_thread(parse_search, item)

    def articles(self, pmids: Sequence[str]) -> AsyncIterator[Progress | Page]:
        """Fetch the records of articles; the last item is their XML."""
        return self.request("efetch", {"id": ",".join(pmids), "retmode": "xml", "rettype": "abstract"}, _NO_ARTICLE)

    def about(self) -> AsyncIterator[Progress | Page]:
        """Fetch the description of the database."""
        return self.request("einfo", {"retmode": "json"}, ("PubMed rejected the request", _WITHOUT))

    async def request(
        self, program: str, params: Mapping[str, str], rejection: Rejection
    ) -> AsyncIterator[Progress | Page]:
        """Send a request, with retries while the server is busy; the last item is the response.

        Raises:
            Refused: if there is no response in time, or the server rejects the request.
        """
        until = time.monotonic() + self.context.seconds_left - _MARGIN
        limit = self._limit
        for backoff in (*BACKOFF, None):
            if limit.is_busy:
                yield Progress(WAITING)
            page = await self._send(program, params, until)
            problem = _check(page, rejection)
            if problem is None:
                yield page
                return
            pause = retry_after(page, backoff or 0.0)
            if backoff is None or time.monotonic() + pause > until:
                later = f"in {math.ceil(pause)} seconds" if pause else "later"
                raise Refused(problem, f"{_WITHOUT} or call again {later}")
            if problem == _LIMITED:
                limit.pause(min(pause, _MAX_PAUSE))
            yield Progress(f"PubMed is busy, retrying in {round(pause, 1):g} s")
            await asyncio.sleep(pause)

    async def _send(self, program: str, params: Mapping[str, str], until: float) -> Page:
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
            reason = "too many calls are waiting for PubMed's rate limit"
            raise Refused(reason, f"{_WITHOUT} or call again in a few seconds") from None
        except Refused as refusal:  # its reason names the host
            reason = "PubMed did not answer properly"
            raise Refused(reason, f"request fewer articles or {_WITHOUT}") from refusal

    @property
    def _limit(self) -> RateLimit:
        allowed = 10 if self.settings.api_key else 3
        return shared_limit(self.settings.base, self.settings.requests_per_second or allowed)


def _check(page: Page, rejection: Rejection) -> str | None:
    """Return the problem if a retry may help, or None.

    Raises:
        Refused: if the server rejects the request.
    """
    head = page.body[:4096]
    if page.status == 429:
        return _LIMITED
    if page.status in (401, 403):
        raise Refused("PubMed blocks requests from this server", _WITHOUT)
    if page.status >= 500 or b"Search Backend failed" in head or head.lstrip()[:14].lower().startswith(_HTML):
        return _DOWN
    message = _read_json(page).get("error") if head.startswith(b"{") and len(page.body) <= len(head) else None
    if isinstance(message, str):
        if "api key" in message.lower():
            log.warning("pubmed: PubMed rejects the API key: check BRAIN_SPECIALIST_PUBMED_API_KEY")
            raise Refused(BAD_KEY, _WITHOUT)
        return _LIMITED  # the only other error in this form, in several wordings
    if not 200 <= page.status < 300:
        raise Refused(*rejection)
    return None


_HTML = (b"<!doctype html", b"<html")


def parse_search(page: Page) -> SearchResult:
    """Parse a response of esearch.

    Raises:
        Refused: if it cannot be parsed, or the query is invalid.
    """
    answer = _read_json(page).get("esearchresult")
    if not isinstance(answer, dict):
        raise unreadable()
    if "ERROR" in answer:
        raise Refused(*_BAD_QUERY)
    total, pmids = str(answer.get("count")), answer.get("idlist")
    if not re.fullmatch(r"[0-9]{1,12}", total) or not isinstance(pmids, list):
        raise unreadable()
    known = [str(one) for one in pmids if re.fullmatch(r"[0-9]{1,12}", str(one))]
    return SearchResult(
        int(total), list(dict.fromkeys(known)), _join_lines(answer.get("querytranslation")), _read_remarks(answer)
    )


def _read_json(page: Page) -> dict[str, Any]:
    try:
        found = json.loads(page.text, strict=False)
    except (ValueError, RecursionError):
        raise unreadable() from None
    return found if isinstance(found, dict) else {}


_REMARKS = (
    ("errorlist", "phrasesnotfound", "not found in PubMed"),
    ("errorlist", "fieldsnotfound", "unknown field tag"),
    ("warninglist", "quotedphrasesnotfound", "phrase not found, so its words were searched separately"),
    ("warninglist", "phrasesignored", "ignored"),
    ("warninglist", "outputmessages", "PubMed reports"),
)


def _read_remarks(answer: Mapping[str, Any]) -> list[str]:
    """Return the parts of a query that PubMed could not use."""
    remarks = []
    for name, kind, words in _REMARKS:
        section = answer.get(name)
        found = section.get(kind) if isinstance(section, dict) else None
        texts = [_join_lines(text)[:80] for text in (found if isinstance(found, list) else [found])[:5]]
        if shown := ", ".join(text for text in texts if text and text != "No items found."):
            remarks.append(f"{words}: {shown}")
    return remarks


def _join_lines(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""
