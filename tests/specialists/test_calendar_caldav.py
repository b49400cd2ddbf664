"""`calendar` on a CalDAV server: a real Radicale, and servers that lie, drip, flood, or point elsewhere."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from calendar_servers import PASSWORD, USER, FakeServer, Radicale, Response, fake_server, run_radicale
from calendars import Calendars, ics, id_in, starts

from brain import Refused
from brain.plugins.executor import Answer
from specialists._calendar import caldav
from specialists._calendar.calendars import VersionConflict
from specialists._calendar.expand import Window
from specialists.calendar import calendar, health, preview

MORNING = "DTSTART;TZID=Europe/Berlin:20260323T090000\nDTEND;TZID=Europe/Berlin:20260323T100000"
LOGIN = {"caldav_user": USER, "caldav_password": PASSWORD, "caldav_for": "ada"}
CHANGED = "the event was changed meanwhile: list it again, then ask again if it is still right"
UNREACHABLE = "the calendar server cannot be reached; go on without it, or ask again later"
ELSEWHERE = "the calendar server points to another server, which is not followed; the operator must set that address"
NO_CALDAV = "what is at the calendar server's address does not answer as CalDAV; tell the user"


@pytest.fixture(scope="module")
def radicale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Radicale]:
    with run_radicale(tmp_path_factory.mktemp("radicale")) as running:
        running.make_calendar("home", "Home & Garden")
        running.make_calendar("work", "Work")
        yield running


def calendars_at(url: str, tmp_path: Path, **more: str) -> Calendars:
    return Calendars(tmp_path, options={"caldav_url": url, **LOGIN, **more})


@pytest.fixture
def calendars(radicale: Radicale, tmp_path: Path) -> Calendars:
    for name in ("home", "work"):
        radicale.request("DELETE", f"{USER}/{name}/")
    radicale.make_calendar("home", "Home & Garden")
    radicale.make_calendar("work", "Work")
    return calendars_at(radicale.url, tmp_path)


class TestRadicale:
    def test_there_and_back(self, calendars: Calendars) -> None:
        new = {"action": "create", "title": "Grüße, an alle", "start": "2026-03-30T09:00"}
        assert calendars.refusal(**new) == "which calendar? there are: Home & Garden, Work; ask again with calendar"
        made = id_in(calendars.text(**new, calendar="home & garden", location="Garten"))
        assert "- 2026-03-30 Mon 09:00–10:00 Grüße, an alle @ Garten [Home & Garden]" in calendars.text(
            start="2026-03-30"
        )
        assert "2026-03-31 Tue 09:00–10:00 Grüße" in calendars.text(action="update", event_id=made, start="2026-03-31")
        assert "Deleted" in calendars.text(action="delete", event_id=made)
        assert calendars.times("2026-03-01", "2026-04-30") == []
        assert "no event has the id" in calendars.refusal(action="delete", event_id=made)

    def test_a_series_with_one_moved_and_one_removed(self, calendars: Calendars, radicale: Radicale) -> None:
        radicale.put(
            "home", "standup.ics", ics(f"UID:standup\nSUMMARY:Standup\nX-KEPT:yes\n{MORNING}\nRRULE:FREQ=WEEKLY")
        )
        change = {"event_id": "standup", "scope": "this"}
        calendars.text(action="update", occurrence="2026-03-30T09:00", start="2026-04-01T11:00", **change)
        calendars.text(action="delete", occurrence="2026-04-06T09:00", **change)
        assert starts(calendars.times("2026-03-23", "2026-04-19")) == [
            "2026-03-23T09:00:00+01:00",
            "2026-04-01T11:00:00+02:00",
            "2026-04-13T09:00:00+02:00",
        ]
        stored = radicale.get("home", "standup.ics")
        assert stored.count("X-KEPT:yes") == 2
        assert stored.count("BEGIN:VEVENT") == 2
        calendars.text(action="update", event_id="standup", scope="series", start="2026-03-23T08:00")
        assert starts(calendars.times("2026-04-13", "2026-04-13")) == ["2026-04-13T08:00:00+02:00"]
        calendars.text(action="delete", event_id="standup", scope="series")
        assert "<title>" not in radicale.get("home", "standup.ics")
        assert calendars.times("2026-03-23", "2026-04-19") == []

    def test_all_day_and_floating_events_at_the_windows_edge(self, calendars: Calendars, radicale: Radicale) -> None:
        radicale.put("home", "day.ics", ics("UID:day\nSUMMARY:Day\nDTSTART;VALUE=DATE:20260330"))
        radicale.put("home", "late.ics", ics("UID:late\nSUMMARY:Late\nDTSTART:20260330T233000\nDURATION:PT15M"))
        for zone in ("Pacific/Auckland", "America/Los_Angeles"):
            account = replace(calendars, zone=zone)
            assert [title for *_, title in account.times("2026-03-30", "2026-03-30")] == ["Day", "Late"]

    def test_two_writers(self, calendars: Calendars, radicale: Radicale) -> None:
        event = ics(f"UID:1\nSUMMARY:Old\n{MORNING}")
        radicale.put("home", "a.ics", event)
        for conversation in ("one", "two"):
            calendars.text(conversation, start="2026-03-23")
        calendars.text("one", action="update", event_id="1", title="First")
        assert calendars.refusal("two", action="update", event_id="1", title="Second") == CHANGED
        assert "SUMMARY:First" in radicale.get("home", "a.ics")

    def test_what_was_approved_is_done_or_nothing(self, calendars: Calendars, radicale: Radicale) -> None:
        radicale.put("home", "a.ics", ics(f"UID:1\nSUMMARY:Old\n{MORNING}"))
        wanted = {"action": "delete", "event_id": "1"}
        context = calendars.context()
        shown = preview(wanted, context=context, settings=calendars.settings)
        assert shown is not None
        assert '"Home & Garden", times in Europe/Berlin:\n2026-03-23 Mon 09:00–10:00 "Old"' in shown.text
        radicale.put("home", "a.ics", ics(f"UID:1\nSUMMARY:New\n{MORNING}"))
        approved = replace(context, approved=shown)
        with pytest.raises(Refused, match=CHANGED):
            calendar(action="delete", event_id="1", context=approved, settings=calendars.settings)
        assert "SUMMARY:New" in radicale.get("home", "a.ics")

    def test_a_change_between_reading_and_writing_is_noticed(self, calendars: Calendars, radicale: Radicale) -> None:
        radicale.put("home", "a.ics", ics(f"UID:1\nSUMMARY:Old\n{MORNING}"))
        one = caldav.CalDavStore(radicale.url, USER, PASSWORD, lambda: 10)
        home = one.calendars(fresh=True)[0]
        (resource,) = one.find(home, "1")
        radicale.put("home", "a.ics", ics(f"UID:1\nSUMMARY:New\n{MORNING}"))
        for write in (
            lambda: one.write(home, resource.name, resource.file.data, resource.version),
            lambda: one.write(home, resource.name, resource.file.data, None),
            lambda: one.remove(home, resource.name, resource.version),
        ):
            with pytest.raises(VersionConflict):
                write()
        one.close()
        assert "SUMMARY:New" in radicale.get("home", "a.ics")

    def test_free_time_and_conflicts(self, calendars: Calendars, radicale: Radicale) -> None:
        radicale.put("work", "a.ics", ics(f"UID:1\nSUMMARY:Meeting\n{MORNING}"))
        text = calendars.text(action="free", start="2026-03-23", end="2026-03-23")
        assert text.endswith("- 2026-03-23T10:00 to 2026-03-23T17:00")
        made = calendars.text(action="create", title="x", start="2026-03-23T09:30", calendar="work")
        assert "Conflicts with:\n- 2026-03-23 Mon 09:00–10:00 Meeting [Work]" in made

    def test_uids_are_no_addresses(self, calendars: Calendars, radicale: Radicale) -> None:
        radicale.put("home", "odd%20name%2B.ics", ics(f'UID:../../eve/<&>"]]>\nSUMMARY:Odd\n{MORNING}'))
        found = id_in(calendars.text(event_id='../../eve/<&>"]]>'))
        assert "New" in calendars.text(action="update", event_id=found, title="New")
        assert "SUMMARY:New" in radicale.get("home", "odd%20name%2B.ics")
        assert "no event has the id" in calendars.refusal(action="delete", event_id="</C:text-match>")

    def test_only_the_account_owner_gets_it(self, calendars: Calendars) -> None:
        eve = replace(calendars, user="eve")
        reason = "the calendar account set up here belongs to another user; tell the user that there is none for them"
        assert eve.refusal(start="2026-03-23") == reason

    def test_a_wrong_password(self, calendars: Calendars) -> None:
        calendars.options["caldav_password"] = "wrong"
        reason = "the calendar server does not accept the login; tell the user that the operator has to look at it"
        assert calendars.refusal(start="2026-03-23") == reason
        assert asyncio.run(health(settings=calendars.settings)) == reason

    def test_no_login_at_all(self, calendars: Calendars, radicale: Radicale) -> None:
        bare = replace(calendars.settings, caldav_user="", caldav_password="")
        reason = "the calendar server does not accept the login; tell the user that the operator has to look at it"
        assert asyncio.run(health(settings=bare)) == reason

    def test_health(self, calendars: Calendars, radicale: Radicale) -> None:
        assert asyncio.run(health(settings=calendars.settings)) is None

    def test_no_proxy_of_the_environment_is_used(self, calendars: Calendars, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert asyncio.run(health(settings=calendars.settings)) is None


def multistatus(*responses: tuple[str, str], status: int = 207) -> Response:
    """An answer with these properties, by address."""
    inner = "".join(
        f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>{props}</D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        for href, props in responses
    )
    names = 'xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
    body = f'<?xml version="1.0"?><D:multistatus {names}>{inner}</D:multistatus>'
    return Response(status, body.encode(), {"Content-Type": "application/xml"})


BERLIN = ZoneInfo("Europe/Berlin")
WEEK = Window(datetime(2026, 3, 23, tzinfo=BERLIN), datetime(2026, 3, 30, tzinfo=BERLIN), BERLIN)
COLLECTION = "<D:resourcetype><D:collection/></D:resourcetype>"
IS_CALENDAR = "<D:resourcetype><D:collection/><C:calendar/></D:resourcetype><D:displayname>Home</D:displayname>"


class FakeAccount:
    """A server with one account and one calendar, whose files are told; everything can be told otherwise."""

    def __init__(self, **responses: Response) -> None:
        self.responses = responses

    def __call__(self, method: str, path: str) -> Response:
        if path == "/cal/" and method == "REPORT":
            return self.responses.get("report") or multistatus()
        if path == "/cal/" and method == "PROPFIND":
            return self.responses.get("home") or multistatus(("/cal/", COLLECTION), ("/cal/home/", IS_CALENDAR))
        if method == "REPORT":
            return self.responses.get("report") or multistatus()
        if method == "PUT":
            return self.responses.get("put") or Response(201)
        principal = "<D:current-user-principal><D:href>/me/</D:href></D:current-user-principal>"
        home = self.responses.get("home_set") or "<C:calendar-home-set><D:href>/cal/</D:href></C:calendar-home-set>"
        return self.responses.get("principal") or multistatus((path, f"{principal}{home}"))


def listed(tmp_path: Path, account: FakeAccount, **params: Any) -> tuple[str, FakeServer]:
    with fake_server(account) as running:
        found = calendars_at(running.url, tmp_path).call(start="2026-03-23", **params)
        return found.text if isinstance(found, Answer) else found.reason, running


def data(text: str, etag: str = '"1"') -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f"<D:getetag>{etag}</D:getetag><C:calendar-data>{escaped}</C:calendar-data>"


EVENT = data(ics(f"UID:1\nSUMMARY:It\n{MORNING}"))


class TestServersOfAllKinds:
    def test_one_that_behaves(self, tmp_path: Path) -> None:
        text, _ = listed(tmp_path, FakeAccount(report=multistatus(("/cal/home/1.ics", EVENT))))
        assert "- 2026-03-23 Mon 09:00–10:00 It (id" in text

    def test_entries_that_lie_elsewhere_are_passed_over(self, tmp_path: Path) -> None:
        elsewhere = ["//evil.example/cal/home/1.ics", "/other/1.ics", "/cal/home/", "/cal/home/../1.ics/../../x.ics"]
        text, _ = listed(tmp_path, FakeAccount(report=multistatus(*((href, EVENT) for href in elsewhere))))
        assert "no events" in text

    def test_an_entry_by_a_foreign_address_is_taken_for_the_path_on_this_server(self, tmp_path: Path) -> None:
        with fake_server(lambda method, path: Response(200)) as trap:
            report = multistatus((f"{trap.url}cal/home/1.ics", EVENT))
            with fake_server(FakeAccount(report=report)) as running:
                assert "New" in calendars_at(running.url, tmp_path).text(action="update", event_id="1", title="New")
            assert trap.requests == []
            assert ("PUT", "/cal/home/1.ics") in running.requests

    def test_a_redirect_elsewhere_is_not_followed(self, tmp_path: Path) -> None:
        with fake_server(lambda method, path: Response(200)) as trap:
            for status in (301, 302, 307, 308):
                redirect = Response(status, headers={"Location": trap.url})
                with fake_server(lambda method, path, redirect=redirect: redirect) as running:  # type: ignore[misc]
                    assert calendars_at(running.url, tmp_path).refusal() == ELSEWHERE
            assert trap.requests == []

    def test_a_calendar_home_elsewhere_is_not_followed(self, tmp_path: Path) -> None:
        with fake_server(lambda method, path: Response(200)) as trap:
            home = f"<C:calendar-home-set><D:href>{trap.url}cal/</D:href></C:calendar-home-set>"
            principal = f"<D:current-user-principal><D:href>/me/</D:href></D:current-user-principal>{home}"
            text, _ = listed(tmp_path, FakeAccount(principal=multistatus(("/", principal))))
            assert text == ELSEWHERE
            assert trap.requests == []

    def test_a_redirect_on_the_same_server_is(self, tmp_path: Path) -> None:
        account = FakeAccount(report=multistatus(("/cal/home/1.ics", EVENT)))

        def moved(method: str, path: str) -> Response:
            if path.startswith("/dav"):
                return Response(308, headers={"Location": path.removeprefix("/dav") or "/"})
            return account(method, path)

        with fake_server(moved) as running:
            assert "It" in calendars_at(f"{running.url}dav/", tmp_path).text(start="2026-03-23")

    def test_a_circle_of_redirects(self, tmp_path: Path) -> None:
        with fake_server(lambda method, path: Response(302, headers={"Location": "/again"})) as running:
            reason = calendars_at(running.url, tmp_path).refusal()
        assert reason == "the calendar server did not do it (status 310); ask again later, or tell the user"
        assert len(running.requests) <= 8

    @pytest.mark.parametrize(
        "body",
        [b"", b"hello", b"<html><body>Welcome</body></html>", b"<a>" * 100_000, b"\xff\xfe\x00", b"{}"],
        ids=["nothing", "text", "page", "deep", "octets", "json"],
    )
    def test_what_is_no_caldav(self, tmp_path: Path, body: bytes) -> None:
        responses = Response(200, body, {"Content-Type": "text/html"})
        with fake_server(lambda method, path: responses) as running:
            found = calendars_at(running.url, tmp_path).call()
        assert getattr(found, "reason", "") == NO_CALDAV or "no events" in getattr(found, "text", "")

    def test_entities_are_not_resolved(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("SECRET")
        report = multistatus(
            ("/cal/home/1.ics", data(ics(f"UID:1\nSUMMARY:It&x;\n{MORNING}")).replace("&amp;x;", "&x;"))
        )
        declared = f'<!DOCTYPE d [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
        body = report.body.replace(b'<?xml version="1.0"?>', f'<?xml version="1.0"?>{declared}'.encode())
        text, _ = listed(tmp_path, FakeAccount(report=replace(report, body=body)))
        assert "SECRET" not in text

    def test_a_flood(self, tmp_path: Path) -> None:
        flood = Response(207, b" " * (caldav.MAX_ANSWER + 100_000), {"Content-Type": "application/xml"})
        text, _ = listed(tmp_path, FakeAccount(report=flood))
        assert text == "the calendar server's answer is too large; ask for a shorter time"

    def test_a_drip(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        drip = Response(207, b" " * 1_000_000, {"Content-Type": "application/xml"})
        with fake_server(FakeAccount(report=drip)) as running:
            store = caldav.CalDavStore(running.url, USER, PASSWORD, lambda: 3.0)
            (home,) = store.calendars(fresh=True)
            seconds = count()  # one second per look at the clock, so after each piece of the body
            monkeypatch.setattr(caldav, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
            with pytest.raises(Refused, match="cannot be reached"):
                list(store.files(home, WEEK))
            store.close()

    def test_silence_and_a_closed_port(self, tmp_path: Path) -> None:
        assert calendars_at("http://127.0.0.1:9/", tmp_path).refusal() == UNREACHABLE
        settings = calendars_at("http://127.0.0.1:9/", tmp_path).settings
        assert asyncio.run(health(settings=settings)) == UNREACHABLE

    @pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
    def test_statuses(self, tmp_path: Path, status: int) -> None:
        with fake_server(lambda method, path: Response(status, b"secret detail")) as running:
            reason = calendars_at(running.url, tmp_path).refusal()
        assert "secret" not in reason
        assert "calendar server" in reason

    def test_broken_entries_leave_the_others(self, tmp_path: Path) -> None:
        report = multistatus(
            ("/cal/home/1.ics", EVENT),
            ("/cal/home/2.ics", data("nonsense")),
            ("/cal/home/3.ics", "<D:getetag>x</D:getetag>"),
            ("/cal/home/4.ics", data(ics("UID:4\nSUMMARY:No start"))),
        )
        text, _ = listed(tmp_path, FakeAccount(report=report))
        assert "1 event," in text
        assert "Not read: an entry of Home: it is no calendar; an entry of Home: it is no calendar" in text

    def test_a_server_without_versions_is_not_written_to(self, tmp_path: Path) -> None:
        report = multistatus(("/cal/home/1.ics", EVENT.replace('<D:getetag>"1"</D:getetag>', "")))
        with fake_server(FakeAccount(report=report)) as running:
            account = calendars_at(running.url, tmp_path)
            reason = account.refusal(action="update", event_id="1", title="New")
        assert reason == "the calendar server names no versions, so that nothing can be changed there safely"
        assert "PUT" not in [method for method, _ in running.requests]

    def test_what_the_server_refuses(self, tmp_path: Path) -> None:
        report = multistatus(("/cal/home/1.ics", EVENT))
        for status, reason in (
            (412, CHANGED),
            (507, "the calendar server did not do it (status 507); ask again later, or tell the user"),
        ):
            with fake_server(FakeAccount(report=report, put=Response(status))) as running:
                account = calendars_at(running.url, tmp_path)
                assert account.refusal(action="update", event_id="1", title="New") == reason

    def test_an_account_without_calendars(self, tmp_path: Path) -> None:
        with fake_server(FakeAccount(home=multistatus(("/cal/", "")))) as running:
            account = calendars_at(running.url, tmp_path)
            assert "no events" in account.text()
            reason = account.refusal(action="create", title="x", start="2026-03-30")
        assert reason == "the calendar account has no calendar; the user must make one there first"
