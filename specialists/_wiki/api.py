"""The Action API of one MediaWiki, https://www.mediawiki.org/wiki/API:Action_API.

Its responses are untrusted: any field may be missing or in the older of the API's two formats.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from brain import Context, Refused
from specialists._kit.http import retry_after
from specialists._wiki.names import OnlineWiki

MAX_WAITS = 2
"""Number of retries while a wiki is busy."""
WAIT_SECONDS = 1.0
"""Delay before a retry if the wiki names none."""
MAX_BATCHES = 5
MAX_BYTES = 4 * 1024 * 1024
SECONDS = 10.0
SPARE_SECONDS = 1.5
"""Time reserved for the answer before the call's deadline."""
_BUSY = frozenset({429, 502, 503, 504})
_BUSY_CODES = frozenset({"cirrussearch-too-busy-error", "maxlag", "ratelimited"})
_CODE = re.compile(r"[A-Za-z0-9_-]{1,50}")

Json = Mapping[str, Any]


class TryLater(Refused):
    """The wiki is busy until after this call's deadline."""


class ApiError(Exception):
    """An error of the API, with its code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Api:
    """The API of one wiki, for one call.

    Args:
        contact: the operator's address, sent to the wiki.
        offline: names of offline wikis that the advice suggests instead.
    """

    def __init__(self, wiki: OnlineWiki, context: Context, contact: str, offline: Sequence[str] = ()) -> None:
        self._wiki = wiki
        self._context = context
        instead = f'use wiki="{offline[0]}", which is offline' if offline else "use another wiki"
        self._advice = f"{instead} or continue without it"
        self._agent = f"brain-sse/{version('brain-sse')} ({contact or 'reads single pages for its users'})"

    async def query(self, **params: str | int) -> Json:
        """Return the merged batches of `action=query`; raises `ApiError`."""
        found: dict[str, Any] = {}
        continuation: Json = {}
        for _ in range(MAX_BATCHES):
            answer = await self.request(action="query", **{**params, **continuation})
            batch = as_mapping(as_mapping(answer).get("query"))
            pages = as_objects(found.get("pages"))
            for page in as_objects(batch.get("pages")):
                known = next((one for one in pages if one.get("title") == page.get("title")), None)
                if isinstance(known, dict):
                    known |= {key: value for key, value in page.items() if key not in known}
                else:
                    pages.append(page)
            found |= {key: value for key, value in batch.items() if key not in found}
            if pages:
                found["pages"] = pages
            following = as_mapping(as_mapping(answer).get("continue"))
            continuation = {key: value for key, value in following.items() if isinstance(value, str | int)}
            if not continuation or "batchcomplete" in answer:
                break
        return found

    async def request(self, **params: str | int) -> Any:
        """Return one response, after up to `MAX_WAITS` retries. Raises `ApiError` and `Refused`."""
        answer, delay = await self._request_once(params)
        for _ in range(MAX_WAITS):
            if delay is None or delay > self._seconds_left:
                break
            await asyncio.sleep(delay)
            answer, delay = await self._request_once(params)
        if delay is None:
            return answer
        when = f" for {delay:.0f} seconds" if delay > 1 else ""
        raise TryLater(f"{self._wiki.label} is busy{when}", "continue without it or tell the user to try again later")

    async def _request_once(self, params: Mapping[str, str | int]) -> tuple[Any, float | None]:
        """Return a response, and the delay in seconds before a retry if the wiki is busy."""
        label = self._wiki.label
        try:
            page = await self._context.fetch(
                self._wiki.api,
                params={"format": "json", "formatversion": 2, **params},
                headers={"User-Agent": self._agent},
                types=("application/json", "text/*"),
                most=MAX_BYTES,
                seconds=max(0.1, min(SECONDS, self._seconds_left)),
                trusted=self._wiki.api if self._wiki.is_trusted else None,
            )
        except Refused as refusal:  # its reason names the host, which may be in the operator's private network
            reason = f"{label} did not answer properly"
            raise Refused(reason, self._advice) from refusal
        delay = retry_after(page, WAIT_SECONDS)
        if page.status in _BUSY:
            return {}, delay
        if page.status in (401, 403):
            raise Refused(f"{label} does not allow programs to read it", self._advice)
        if page.status in (404, 410):
            raise Refused(f"{label} has no API at its configured URL", self._advice)
        if page.status != 200:
            raise Refused(f"{label} failed with status {page.status}", self._advice)
        try:
            answer = page.json()
        except Refused:
            answer = None
        if isinstance(answer, list):  # of `opensearch`
            return answer, None
        if not isinstance(answer, dict):
            raise Refused(f"{label} did not respond with JSON", self._advice)
        errors = answer.get("errors")  # of newer formats
        error = errors[0] if isinstance(errors, list) and errors else answer.get("error")
        code = as_mapping(error).get("code")
        if code in _BUSY_CODES:
            return {}, delay
        if code is not None:
            raise ApiError(code if isinstance(code, str) and _CODE.fullmatch(code) else "unknown")
        return answer, None

    @property
    def _seconds_left(self) -> float:
        return self._context.seconds_left - SPARE_SECONDS


def as_mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Json]:
    """Return the objects of a list, or of a mapping in the older format."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """Return a text, which the older format wraps in an object."""
    if isinstance(value, dict):
        value = value.get("*")
    return value if isinstance(value, str) else ""
