"""Calendars on a CalDAV server, accessed with the library `caldav`.

Requests go only to the operator's server. References and redirects to another origin are rejected. Time and size of
each response are limited. Proxies and netrc from the environment are ignored.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, timedelta
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit
from xml.sax.saxutils import escape

from brain import Refused
from specialists._calendar.calendars import (
    ASK_OPERATOR,
    Calendar,
    Resource,
    VersionConflict,
    is_event_id,
    make_file_id,
    sort_calendars,
)
from specialists._calendar.expand import Window
from specialists._calendar.folder import FileCache
from specialists._calendar.ics_read import Unreadable

MAX_ANSWER = 8_000_000
"""Maximum size of one response, in bytes."""
REQUEST_SECONDS = 10.0
MAX_REDIRECTS = 3
CALENDARS_SECONDS = 300.0
"""Cache lifetime of the list of calendars, in seconds."""
_UNREACHABLE = ("the calendar server cannot be reached", "continue without it or try again later")
_TOO_LARGE = ("the response of the calendar server is too large", "use a shorter period")
_OTHER_ORIGIN = ("the calendar server refers to another server, which is not allowed", ASK_OPERATOR)
_NO_CALDAV = ("the server at the calendar URL does not support CalDAV", ASK_OPERATOR)
_LOGIN_REJECTED = ("the calendar server rejected the login", ASK_OPERATOR)
_CALENDAR_QUERY = (
    '<C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav">'
    "<D:prop><D:getetag/><C:calendar-data/></D:prop>"
    '<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT">{filter}</C:comp-filter></C:comp-filter>'
    "</C:filter></C:calendar-query>"
)
_MARGIN = timedelta(days=1)
"""Servers interpret dates and floating times in other time zones."""
_file_cache = FileCache()
_calendars: dict[str, tuple[float, list[Calendar]]] = {}
_lock = threading.Lock()


class CalDavStore:
    """The calendars of one account.

    Args:
        url: URL of the server, set by the operator.
        seconds_left: returns the time left for requests, in seconds.
    """

    def __init__(self, url: str, user: str, password: str, seconds_left: Callable[[], float]) -> None:
        import caldav

        self.unread: list[str] = []
        self._url = url if "/" in url.partition("://")[2] else f"{url}/"
        self.place = f"{user}@{self._url}"
        client: Any = caldav.DAVClient  # `caldav` loads it lazily, without a type
        self._client = client(
            url=self._url, username=user, password=password, enable_rfc6764=False, rate_limit_handle=False
        )
        self._client.session.close()
        self._client.session = _SingleOriginSession(self._url, seconds_left)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def calendars(self, *, fresh: bool = False) -> list[Calendar]:
        """Return the account's calendars; `fresh` bypasses the cache."""
        with _lock:
            until, found = _calendars.get(self.place, (0.0, []))
        if fresh or not found or time.monotonic() > until:
            with _refuse_errors():
                found = []
                for one in self._client.get_calendars():
                    url = urljoin(self._url, str(one.url))
                    last = unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2])
                    found.append(Calendar(url, " ".join(str(one.get_display_name() or last).split())[:60]))
            found = sort_calendars(found)
            with _lock:
                _calendars[self.place] = (time.monotonic() + CALENDARS_SECONDS, found)
        return found

    def create_calendar(self, name: str) -> Calendar:
        raise Refused("the calendar account has no calendar", "tell the user to create one there first")

    def files(self, calendar: Calendar, window: Window) -> Iterator[Resource]:
        widened = (window.start - _MARGIN, window.end + _MARGIN)
        start, end = (f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}" for moment in widened)
        yield from self._query(calendar, f'<C:time-range start="{start}" end="{end}"/>')

    def find(self, calendar: Calendar, event_id: str) -> Iterator[Resource]:
        found = list(self._find_by_id(calendar, event_id)) if is_event_id(event_id) else []
        if not found:
            matching = f'<C:text-match collation="i;octet">{escape(event_id[:500])}</C:text-match>'
            by_uid = self._query(calendar, f'<C:prop-filter name="UID">{matching}</C:prop-filter>')
            found = [resource for resource in by_uid if event_id in resource.file.series]
        yield from found

    def _find_by_id(self, calendar: Calendar, event_id: str) -> Iterator[Resource]:
        with _refuse_errors():
            listed = self._client.propfind(calendar.id, ["getetag"], depth=1)
            _check(listed)
            names = [self._name(calendar, found.href) for found in listed.parse_propfind()]
        for name in names:
            if name and make_file_id(calendar, name) == event_id[:8]:
                with _refuse_errors():
                    answer = self._client.request(urljoin(calendar.id, name))
                    if answer.status == 404:
                        continue
                    _check(answer)
                    etag, data = answer.headers.get("ETag"), answer.raw
                yield from self._parse(calendar, name, etag, data)

    def _query(self, calendar: Calendar, component_filter: str) -> Iterator[Resource]:
        with _refuse_errors():
            answer = self._client.report(calendar.id, _CALENDAR_QUERY.format(filter=component_filter), depth=1)
            _check(answer)
            found = answer.parse_calendar_query()
        for one in found:
            name = self._name(calendar, one.href)
            if name and one.status == 200:
                yield from self._parse(calendar, name, one.etag, one.calendar_data)

    def _parse(self, calendar: Calendar, name: str, etag: str | None, text: str | bytes | None) -> Iterator[Resource]:
        data = text.encode() if isinstance(text, str) else text or b""
        try:
            file = _file_cache.parse(data)
        except Unreadable as problem:
            self.unread.append(f"an entry of {calendar.name} ({problem})")
        else:
            if file.series:
                yield Resource(calendar, name, etag or "", file)
            if file.unreadable:
                self.unread.append(f"{file.unreadable} invalid or excess events of {calendar.name}")

    def _name(self, calendar: Calendar, href: str) -> str:
        """Return the path of an entry; empty if it is outside the calendar."""
        address = urlsplit(urljoin(calendar.id, quote(href, safe="/%:@!$&'()*+,;=~")))
        home = urlsplit(calendar.id)
        folder = home.path.rstrip("/")
        inside = address.path.startswith(f"{folder}/") and address.path.rstrip("/") != folder
        return address.path if inside and address[:2] == home[:2] else ""

    def choose_file_name(self, calendar: Calendar, uid: str) -> str:
        return f"{urlsplit(calendar.id).path.rstrip('/')}/{uid}.ics"

    def write(self, calendar: Calendar, name: str, data: bytes, version: str | None) -> str:
        _require_version(version)
        headers = {"If-Match": version} if version else {"If-None-Match": "*"}
        headers["Content-Type"] = "text/calendar; charset=utf-8"
        with _refuse_errors():
            answer = self._client.put(urljoin(calendar.id, name), data, headers)
            _check(answer, writing=True)
        return answer.headers.get("ETag") or ""

    def remove(self, calendar: Calendar, name: str, version: str) -> None:
        _require_version(version)
        with _refuse_errors():
            _check(self._client.delete(urljoin(calendar.id, name), {"If-Match": version}), writing=True)


def _require_version(version: str | None) -> None:
    if version == "":
        raise Refused("the calendar server sends no ETag, so events cannot be changed safely", ASK_OPERATOR)


def _check(answer: Any, *, writing: bool = False) -> None:
    if writing and answer.status in (404, 409, 412):
        raise VersionConflict
    if answer.status == 404:
        raise Refused(*_NO_CALDAV)
    if answer.status >= 300:
        raise _failed_status(int(answer.status))


@contextmanager
def _refuse_errors() -> Iterator[None]:
    """Turn the errors of `caldav` and of the network into refusals; an error in this module stays one."""
    import niquests
    from caldav.lib.error import AuthorizationError, DAVError, RateLimitError
    from lxml.etree import LxmlError

    try:
        yield
    except (
        AuthorizationError,
        NotImplementedError,
    ) as error:  # the latter for a missing login
        raise Refused(*_LOGIN_REJECTED) from error
    except RateLimitError as error:
        raise Refused("the calendar server limits the number of requests", "try again in a minute") from error
    except (niquests.exceptions.RequestException, OSError) as error:
        raise Refused(*_UNREACHABLE) from error
    except (DAVError, LxmlError) as error:
        raise Refused(*_NO_CALDAV) from error


def _failed_status(status: int) -> Refused:
    return Refused(f"the calendar server failed with status {status}", "try again later or tell the user")


class _SingleOriginSession:
    """An HTTP session for one origin, with limits on time and size."""

    def __init__(self, url: str, seconds_left: Callable[[], float]) -> None:
        import niquests

        self._session = niquests.Session(revocation_configuration=None, retries=0)
        self._session.trust_env = False
        self._origin = _origin(url)
        self._seconds_left = seconds_left

    def close(self) -> None:
        self._session.close()

    def request(self, method: str, url: str, **options: Any) -> Any:
        """Send a request; `caldav` calls this method. Redirects keep method and body."""
        for _ in range(MAX_REDIRECTS + 1):
            if _origin(url) != self._origin:
                raise Refused(*_OTHER_ORIGIN)
            timeout = min(REQUEST_SECONDS, self._seconds_left())
            if timeout <= 0:
                raise Refused(*_UNREACHABLE)
            deadline = time.monotonic() + timeout
            options |= {"timeout": timeout, "allow_redirects": False, "stream": True, "proxies": None}
            response = self._session.request(method, url, **options)
            target = response.headers.get("Location") if response.status_code in (301, 302, 307, 308) else None
            if not target:
                return _check_body(method, _read_body(response, deadline))
            response.close()
            url = urljoin(url, target)
        raise _failed_status(310)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _read_body(response: Any, deadline: float) -> Any:
    """Return the response with its body read, within the limits."""
    pieces: list[bytes] = []
    size = 0
    for piece in response.iter_content(65_536):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER or time.monotonic() > deadline:
            response.close()
            raise Refused(*(_TOO_LARGE if size > MAX_ANSWER else _UNREACHABLE))
    response._content = b"".join(pieces)  # `niquests` stores the body here
    response._content_consumed = True
    return response


def _check_body(method: str, response: Any) -> Any:
    """Return the response if `caldav` can parse its body; for other protocols, it raises errors of any type."""
    from lxml import etree

    if response.status_code >= 300:
        response._content = b""  # nothing reads what an error says
    elif method in ("PROPFIND", "REPORT"):
        with suppress(etree.LxmlError, ValueError):
            root = etree.fromstring(response._content, etree.XMLParser(resolve_entities=False, no_network=True))
            for href in root.iter("{DAV:}href"):
                urlsplit(href.text or "")
            names = [one.findtext("{DAV:}href") for one in root.iter("{DAV:}response")]
            if root.tag == "{DAV:}multistatus" and all(name and name.strip() for name in names):
                return response
        raise Refused(*_NO_CALDAV)
    return response
