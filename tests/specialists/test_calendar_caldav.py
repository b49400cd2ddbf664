"""`calendar` with a CalDAV server: a real Radicale, and hostile or broken servers."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from calendar_servers import PASSWORD, USER, FakeServer, Radicale, Response, fake_server, run_radicale
from calendars import CHANGED, MEETING, MORNING, Calendars, check_repeated_calls, ics, id_in, lines

from brain import Refused
from specialists._calendar import caldav
from specialists._calendar.calendars import Calendar, VersionConflict
from specialists._calendar.expand import Window
from specialists.calendar import calendar, health, preview

LOGIN = {"caldav_user": USER, "caldav_password": PASSWORD, "caldav_for": "ada"}
NO_LOGIN, UNREACHABLE, ELSEWHERE, NO_CALDAV = "rejected the login", "be reached", "another server", "CalDAV"
EVENT = ics(MEETING)


def calendars_at(url: str, tmp_path: Path) -> Calendars:
    return Calendars(tmp_path, options={"caldav_url": url, **LOGIN})


def checked(calendars: Calendars) -> str | None:
    return asyncio.run(health(settings=calendars.settings))


# A real server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Radicale]:
    with run_radicale(tmp_path_factory.mktemp("radicale")) as server:
        yield server


@pytest.fixture
def radicale(running: Radicale) -> Radicale:
    for name, title in (("home", "Home & Garden"), ("work", "Work")):
        running.request("DELETE", f"{USER}/{name}/")
        running.make_calendar(name, title)
    return running


@pytest.fixture
def calendars(radicale: Radicale, tmp_path: Path) -> Calendars:
    return calendars_at(radicale.url, tmp_path)


def test_there_and_back(calendars: Calendars) -> None:
    new = {"action": "create", "title": "Grüße, an alle", "start": "2026-03-30T09:00"}
    assert calendars.refusal(**new).endswith("one of: Home & Garden, Work")
    made = id_in(calendars.text(**new, calendar="home & garden", location="Garten"))
    assert lines(calendars.text(start="2026-03-30")) == [
        "2026-03-30 Mon 09:00–10:00 Grüße, an alle @ Garten [Home & Garden]"
    ]
    conflict = calendars.text(action="create", title="x", start="2026-03-30T09:30", calendar="work")
    assert "Conflicts with:\n- 2026-03-30 Mon 09:00–10:00 Grüße" in conflict
    assert lines(calendars.update(made, start="2026-03-31"))[0].startswith("2026-03-31 Tue 09:00–10:00 Grüße")
    free = calendars.data(action="free", start="2026-03-31", end="2026-03-31")["free"]
    assert [one["start"] for one in free] == ["2026-03-31T10:00:00+02:00"]
    assert "Deleted" in calendars.text(action="delete", event_id=made)
    assert calendars.times("2026-03-31", "2026-04-30") == []
    assert "no event has the ID" in calendars.refusal(action="delete", event_id=made)


def test_a_call_that_runs_again_changes_nothing(calendars: Calendars) -> None:
    check_repeated_calls(calendars, calendar="work")


def test_a_series_with_one_moved_and_one_removed(calendars: Calendars, radicale: Radicale) -> None:
    radicale.put("home", "standup.ics", ics(f"UID:1\nSUMMARY:Standup\nX-OWN:yes\n{MORNING}\nRRULE:FREQ=WEEKLY"))
    calendars.update(occurrence="2026-03-30T09:00", start="2026-04-01T11:00", scope="this")
    calendars.text(action="delete", event_id="1", occurrence="2026-04-06T09:00", scope="this")
    calendars.update(scope="series", start="2026-03-23T08:00")
    assert [line.split()[0] for line in calendars.times("2026-03-23", "2026-04-19")] == [
        "2026-03-23T08:00+01:00",
        "2026-04-01T11:00+02:00",
        "2026-04-13T08:00+02:00",
    ]
    stored = radicale.get("home", "standup.ics")
    assert (stored.count("X-OWN:yes"), stored.count("BEGIN:VEVENT")) == (2, 2)
    calendars.text(action="delete", event_id="1", scope="series")
    assert calendars.times("2026-03-23", "2026-04-19") == []


def test_all_day_and_floating_events_at_the_edge_of_the_window(calendars: Calendars, radicale: Radicale) -> None:
    radicale.put("home", "day.ics", ics("UID:day\nSUMMARY:Day\nDTSTART;VALUE=DATE:20260330"))
    radicale.put("home", "late.ics", ics("UID:late\nSUMMARY:Late\nDTSTART:20260330T233000\nDURATION:PT15M"))
    for calendars.zone in ("Pacific/Auckland", "America/Los_Angeles"):
        assert [line.split()[-1] for line in calendars.times("2026-03-30", "2026-03-30")] == ["Day", "Late"]


def test_two_writers(calendars: Calendars, radicale: Radicale) -> None:
    radicale.put("home", "a.ics", EVENT)
    for conversation in ("one", "two"):
        calendars.text(conversation, start="2026-03-23")
    calendars.text("one", action="update", event_id="1", title="First")
    assert CHANGED in calendars.refusal("two", action="update", event_id="1", title="Second")
    wanted = {"action": "delete", "event_id": "1"}
    shown = preview(wanted, context=calendars.context(), settings=calendars.settings)
    assert shown is not None
    assert '"Home & Garden", times in Europe/Berlin:\n2026-03-23 Mon 09:00–10:00 "First"' in shown.text
    store = caldav.CalDavStore(radicale.url, USER, PASSWORD, lambda: 10)
    home = store.calendars(fresh=True)[0]
    (resource,) = store.find(home, "1")
    radicale.put("home", "a.ics", EVENT.replace("It", "Third"))
    with pytest.raises(Refused, match=CHANGED):
        calendar(
            action="delete",
            event_id="1",
            context=replace(calendars.context(), approved=shown),
            settings=calendars.settings,
        )
    for write in (
        lambda: store.write(home, resource.name, resource.file.data, resource.version),
        lambda: store.write(home, resource.name, resource.file.data, None),
        lambda: store.remove(home, resource.name, resource.version),
    ):
        with pytest.raises(VersionConflict):
            write()
    store.close()
    assert "SUMMARY:Third" in radicale.get("home", "a.ics")


def test_uids_are_no_addresses(calendars: Calendars, radicale: Radicale) -> None:
    radicale.put("home", "odd%20name%2B.ics", ics(f'UID:../../eve/<&>"]]>\nSUMMARY:Odd\n{MORNING}'))
    found = id_in(calendars.text(event_id='../../eve/<&>"]]>'))
    assert "New" in calendars.update(found, title="New")
    assert "SUMMARY:New" in radicale.get("home", "odd%20name%2B.ics")
    assert "no event has the ID" in calendars.refusal(action="delete", event_id="</C:text-match>")


def test_logins(calendars: Calendars, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):  # ignored
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert checked(calendars) is None
    eve = replace(calendars, user="eve")
    assert "belongs to another user" in eve.refusal()
    calendars.options["caldav_password"] = "wrong"
    assert NO_LOGIN in calendars.refusal()
    assert NO_LOGIN in str(checked(calendars))
    calendars.options |= {"caldav_user": "", "caldav_password": ""}
    assert NO_LOGIN in str(checked(calendars))


# Fake servers


def multistatus(*responses: tuple[str, str]) -> Response:
    """Return a multistatus response with properties by URL."""
    inner = "".join(
        f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>{props}</D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        for href, props in responses
    )
    names = 'xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
    body = f'<?xml version="1.0"?><D:multistatus {names}>{inner}</D:multistatus>'
    return Response(207, body.encode(), {"Content-Type": "application/xml"})


def entry(text: str, etag: str = '<D:getetag>"1"</D:getetag>') -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f"{etag}<C:calendar-data>{escaped}</C:calendar-data>"


COLLECTION = "<D:resourcetype><D:collection/></D:resourcetype>"
IS_CALENDAR = "<D:resourcetype><D:collection/><C:calendar/></D:resourcetype><D:displayname>Home</D:displayname>"
PRINCIPAL = "<D:current-user-principal><D:href>/me/</D:href></D:current-user-principal>"
HOME = "<C:calendar-home-set><D:href>{url}/cal/</D:href></C:calendar-home-set>"


class FakeAccount:
    """A server with one account and one calendar; each response can be replaced."""

    def __init__(self, **responses: Response) -> None:
        self.responses = {
            "REPORT": multistatus(("/cal/home/1.ics", entry(EVENT))),
            "PUT": Response(201),
            "home": multistatus(("/cal/", COLLECTION), ("/cal/home/", IS_CALENDAR)),
            "principal": multistatus(("/", PRINCIPAL + HOME.format(url=""))),
        } | responses

    def __call__(self, method: str, path: str) -> Response:
        if method in ("REPORT", "PUT"):
            return self.responses[method]
        return self.responses["home" if path == "/cal/" and method == "PROPFIND" else "principal"]


def listed(tmp_path: Path, **responses: Response) -> str:
    with fake_server(FakeAccount(**responses)) as server:
        return calendars_at(server.url, tmp_path).text(start="2026-03-23")


@pytest.fixture
def trap() -> Iterator[FakeServer]:
    """A server that must not receive any request."""
    with fake_server(lambda method, path: Response(200)) as server:
        yield server
    assert server.requests == []


def test_entries_outside_the_calendar_are_skipped(tmp_path: Path, trap: FakeServer) -> None:
    elsewhere = ["//evil.example/cal/home/1.ics", "/other/1.ics", "/cal/home/", "/cal/home/../1.ics/../../x.ics"]
    report = multistatus(*((href, entry(EVENT)) for href in elsewhere))
    assert lines(listed(tmp_path, REPORT=report)) == []
    foreign = FakeAccount(REPORT=multistatus((f"{trap.url}cal/home/1.ics", entry(EVENT))))
    with fake_server(foreign) as server:  # the path is used, but on this server
        assert "New" in calendars_at(server.url, tmp_path).update(title="New")
    assert ("PUT", "/cal/home/1.ics") in server.requests


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_other_servers_are_not_contacted(tmp_path: Path, trap: FakeServer, status: int) -> None:
    redirect = Response(status, headers={"Location": trap.url})
    with fake_server(lambda method, path: redirect) as server:
        assert ELSEWHERE in calendars_at(server.url, tmp_path).refusal()
    home = multistatus(("/", PRINCIPAL + HOME.format(url=trap.url.rstrip("/"))))
    with fake_server(FakeAccount(principal=home)) as server:
        assert ELSEWHERE in calendars_at(server.url, tmp_path).refusal()


def test_redirects_on_the_same_server(tmp_path: Path) -> None:
    account = FakeAccount()

    def moved(method: str, path: str) -> Response:
        if path.startswith("/dav"):
            return Response(308, headers={"Location": path.removeprefix("/dav") or "/"})
        return account(method, path)

    with fake_server(moved) as server:
        assert "It" in calendars_at(f"{server.url}dav/", tmp_path).text(start="2026-03-23")
    with fake_server(lambda method, path: Response(302, headers={"Location": "/again"})) as server:
        assert "status 310" in calendars_at(server.url, tmp_path).refusal()
    assert len(server.requests) <= 8


@pytest.mark.parametrize("kind", ["text/html", "application/xml"])
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"hello", b"<a>" * 100_000, b"\xff\xfe\x00", b"{}", b"<html><body>Welcome</body></html>"),
        multistatus(("", PRINCIPAL)).body,
        multistatus(("http://[x", PRINCIPAL)).body,
        multistatus(("/", PRINCIPAL + HOME.format(url=""))).body.replace(b"200 OK", b""),
    ],
    ids=["nothing", "text", "deep", "octets", "json", "page", "no href", "no URL", "no status"],
)
@pytest.mark.parametrize("status", [200, 207])
def test_other_protocols(tmp_path: Path, status: int, body: bytes, kind: str) -> None:
    with fake_server(lambda method, path: Response(status, body, {"Content-Type": kind})) as server:
        assert NO_CALDAV in calendars_at(server.url, tmp_path).refusal()


def test_our_own_errors_are_not_the_server_s(tmp_path: Path) -> None:
    with fake_server(FakeAccount()) as server:
        store = caldav.CalDavStore(server.url, USER, PASSWORD, lambda: None)  # type: ignore[arg-type, return-value]
        for read in (
            lambda: store.calendars(fresh=True),
            lambda: list(store.find(Calendar(f"{server.url}a/", ""), "1")),
        ):
            with pytest.raises(TypeError):
                read()
        store.close()


def test_entities_are_not_resolved(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    declared = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'.encode()
    report = multistatus(("/cal/home/1.ics", entry(ics(MEETING.replace(":It", ":It&x;"))).replace("&amp;x;", "&x;")))
    body = report.body.replace(b'<?xml version="1.0"?>', declared)
    assert "SECRET" not in listed(tmp_path, REPORT=replace(report, body=body))


def test_a_flood(tmp_path: Path) -> None:
    flood = Response(207, b" " * (caldav.MAX_ANSWER + 100_000), {"Content-Type": "application/xml"})
    with pytest.raises(Refused, match="too large"):
        listed(tmp_path, REPORT=flood)


def test_a_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    drip = Response(207, b" " * 1_000_000, {"Content-Type": "application/xml"})
    berlin = ZoneInfo("Europe/Berlin")
    week = Window(datetime(2026, 3, 23, tzinfo=berlin), datetime(2026, 3, 30, tzinfo=berlin), berlin)
    with fake_server(FakeAccount(REPORT=drip)) as server:
        store = caldav.CalDavStore(server.url, USER, PASSWORD, lambda: 3.0)
        (home,) = store.calendars(fresh=True)
        seconds = count()  # one second per piece of the body
        monkeypatch.setattr(caldav, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
        with pytest.raises(Refused, match=UNREACHABLE):
            list(store.files(home, week))
        store.close()


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_statuses(tmp_path: Path, status: int) -> None:
    with fake_server(lambda method, path: Response(status, b"secret detail")) as server:
        reason = calendars_at(server.url, tmp_path).refusal()
    assert "calendar" in reason
    assert "secret" not in reason


def test_a_closed_port(tmp_path: Path) -> None:
    calendars = calendars_at("http://127.0.0.1:9/", tmp_path)
    assert UNREACHABLE in calendars.refusal()
    assert UNREACHABLE in str(checked(calendars))


def test_broken_entries_leave_the_others(tmp_path: Path) -> None:
    report = multistatus(
        ("/cal/home/1.ics", entry(EVENT)),
        ("/cal/home/2.ics", entry("nonsense")),
        ("/cal/home/3.ics", "<D:getetag>x</D:getetag>"),
        ("/cal/home/4.ics", entry(ics("UID:4\nSUMMARY:No start"))),
    )
    text = listed(tmp_path, REPORT=report)
    assert lines(text) == ["2026-03-23 Mon 09:00–10:00 It"]
    assert text.count("an entry of Home (not a calendar)") == 2


def test_changed_occurrences_in_entries_of_their_own(tmp_path: Path) -> None:
    moved = "UID:1\nSUMMARY:It\nRECURRENCE-ID:20260330T070000Z\nDTSTART:20260325T090000Z\nDURATION:PT1H"
    report = multistatus(
        ("/cal/home/1.ics", entry(ics(moved))),
        ("/cal/home/2.ics", entry(ics(f"{MEETING}\nRRULE:FREQ=WEEKLY;COUNT=2"))),
    )
    assert lines(listed(tmp_path, REPORT=report)) == [
        "2026-03-23 Mon 09:00–10:00 It",
        "2026-03-25 Wed 10:00–11:00 It",
    ]


@pytest.mark.parametrize(
    ("etag", "put", "reason"),
    [
        ("", 201, "no ETag"),
        ("<D:getetag>x</D:getetag>", 412, CHANGED),
        ("<D:getetag>x</D:getetag>", 507, "status 507"),
    ],
)
def test_writes_that_fail(tmp_path: Path, etag: str, put: int, reason: str) -> None:
    report = multistatus(("/cal/home/1.ics", entry(EVENT, etag)))
    with fake_server(FakeAccount(REPORT=report, PUT=Response(put))) as server:
        calendars = calendars_at(server.url, tmp_path)
        assert reason in calendars.refusal(action="update", event_id="1", title="New")
    assert [method for method, _ in server.requests].count("PUT") == (put != 201)


def test_an_account_without_calendars(tmp_path: Path) -> None:
    with fake_server(FakeAccount(home=multistatus(("/cal/", "")))) as server:
        calendars = calendars_at(server.url, tmp_path)
        assert "no events" in calendars.text()
        reason = calendars.refusal(action="create", title="x", start="2026-03-30")
    assert "no calendar" in reason
