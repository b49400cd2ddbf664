"""Occurrences of events in files of other programs: rules, exceptions, time zones, and invalid files."""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from calendars import CASES, MORNING, NOW, Calendars, ics, lines

from specialists._calendar.expand import Expander, Window
from specialists._calendar.ics_read import parse_file

CUSTOM_ZONE = """BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:{summer}
TZOFFSETTO:{winter}
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:{winter}
TZOFFSETTO:{summer}
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
"""
WEEKLY = f"{MORNING}\nRRULE:FREQ=WEEKLY"


@pytest.fixture
def calendars(tmp_path: Path) -> Calendars:
    return Calendars(tmp_path)


def berlin(start: str, end: str) -> str:
    return f"DTSTART;TZID=Europe/Berlin:{start}\nDTEND;TZID=Europe/Berlin:{end}"


OCCURRENCES: list[dict[str, Any]] = [{**group, **row} for group in CASES["occurrences"] for row in group["rows"]]


@pytest.mark.parametrize("case", OCCURRENCES, ids=lambda case: case.get("name") or case["event"])
def test_occurrences(calendars: Calendars, case: dict[str, Any]) -> None:
    calendars.zone = case.get("zone", calendars.zone)
    head = case.get("head", "")
    if name := case.get("described_zone"):
        head = CUSTOM_ZONE.format(name=name, winter="+0100", summer="+0200")
    events = [f"UID:1\nSUMMARY:It\n{event}" for event in case.get("events") or [case["event"]]]
    is_day = len("".join(case["expected"][:1])) == len("2026-03-23")

    def check(*files: Sequence[str]) -> None:
        for number, some in enumerate(files):
            calendars.put(f"{number}.ics", *some, head=head)
        starts = [line.split()[0] for line in calendars.times(*case.get("between", ("2026-03-23", "2026-04-05")))]
        assert [start[:10] if is_day else start for start in starts] == case["expected"]

    check(events)
    if len(events) > 1:
        check(*([event] for event in reversed(events)))


@pytest.mark.parametrize("event", CASES["ends"])
def test_ends(calendars: Calendars, event: str) -> None:
    calendars.put("one.ics", f"UID:1\nSUMMARY:It\n{event}")
    assert calendars.times("2026-03-27", "2026-03-29")[0] == f"{CASES['ends'][event]} It"


def test_extra_dates_and_changes_of_all_later_occurrences(calendars: Calendars) -> None:
    more = "RDATE;TZID=Europe/Berlin:20260325T120000\nRDATE;VALUE=PERIOD;TZID=Europe/Berlin:20260326T120000/PT3H"
    calendars.put("one.ics", f"UID:1\nSUMMARY:Extra\n{MORNING}\n{more}")
    onward = "RECURRENCE-ID;RANGE=THISANDFUTURE;TZID=Europe/Berlin:20260401T090000"
    later = f"{onward}\n{berlin('20260401T110000', '20260401T130000')}"
    first = MORNING.replace("20260323", "20260331")
    calendars.put("two.ics", f"UID:2\nSUMMARY:Old\n{first}\nRRULE:FREQ=DAILY", f"UID:2\nSUMMARY:New\n{later}")
    assert calendars.times("2026-03-23", "2026-04-02") == [
        "2026-03-23T09:00+01:00 2026-03-23T10:00+01:00 Extra",
        "2026-03-25T12:00+01:00 2026-03-25T13:00+01:00 Extra",
        "2026-03-26T12:00+01:00 2026-03-26T15:00+01:00 Extra",
        "2026-03-31T09:00+02:00 2026-03-31T10:00+02:00 Old",
        "2026-04-01T11:00+02:00 2026-04-01T13:00+02:00 New",
        "2026-04-02T11:00+02:00 2026-04-02T13:00+02:00 New",
    ]


def test_two_files_may_define_one_zone_differently(calendars: Calendars) -> None:
    event = "DTSTART;TZID=Customized Time Zone:20260328T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2"
    for number, (winter, summer) in enumerate((("+0100", "+0200"), ("+0000", "+0100"))):
        head = CUSTOM_ZONE.format(name="Customized Time Zone", winter=winter, summer=summer)
        calendars.put(f"{number}.ics", f"UID:{number}\nSUMMARY:{number}\n{event}", head=head)
    assert [line.split()[::2] for line in calendars.times("2026-03-27", "2026-03-29")] == [
        ["2026-03-28T09:00+01:00", "0"],
        ["2026-03-28T10:00+01:00", "1"],
        ["2026-03-29T09:00+02:00", "0"],
        ["2026-03-29T10:00+02:00", "1"],
    ]


def test_whole_days_are_those_of_the_user(calendars: Calendars) -> None:
    calendars.put("one.ics", "UID:1\nSUMMARY:Fair\nDTSTART;VALUE=DATE:20260328\nDTEND;VALUE=DATE:20260331")
    for calendars.zone in ("Pacific/Auckland", "America/Los_Angeles"):
        assert calendars.times("2026-03-30", "2026-03-30") == ["2026-03-28 2026-03-30 Fair"]
        assert calendars.times("2026-03-31", "2026-03-31") == calendars.times("2026-03-27", "2026-03-27") == []


def test_marks_in_the_list(calendars: Calendars) -> None:
    moved = f"RECURRENCE-ID;TZID=Europe/Berlin:20260330T090000\n{berlin('20260401T110000', '20260401T120000')}"
    gone = f"RECURRENCE-ID;TZID=Europe/Berlin:20260323T090000\nSTATUS:CANCELLED\n{MORNING}"
    calendars.put("a.ics", *(f"UID:1\nSUMMARY:It\n{event}" for event in (WEEKLY, moved, gone)))
    calendars.put("b.ics", "UID:2\nSUMMARY:Odd\nDTSTART;TZID=Nowhere/Land:20260402T090000\nTRANSP:TRANSPARENT")
    first, second, note = calendars.text(start="2026-03-23", end="2026-04-04").splitlines()[1:]
    assert first.endswith(", repeats, moved from 2026-03-30T09:00)")
    assert second.endswith(", does not block time, unknown time zone 'Nowhere/Land')")
    assert note == "Cancelled events omitted: 1."


def test_several_events_in_one_file_have_their_own_ids(calendars: Calendars) -> None:
    task = "BEGIN:VTODO\nUID:t\nSUMMARY:Task\nDTSTART:20260323T090000Z\nEND:VTODO\n"
    calendars.put("all.ics", f"UID:1\nSUMMARY:A\n{MORNING}", f"UID:2\nSUMMARY:B\n{MORNING}", head=task)
    ids = [event["id"] for event in calendars.data(start="2026-03-23")["events"]]
    assert [lines(calendars.text(event_id=event_id)) for event_id in ids] == [
        ["2026-03-23 Mon 09:00–10:00 A"],
        ["2026-03-23 Mon 09:00–10:00 B"],
    ]


# Broken and hostile files


def test_a_broken_event_does_not_affect_others(calendars: Calendars) -> None:
    broken = ["UID:2\nSUMMARY:No start", "UID:3\nDTSTART:garbage", "UID:4\nDTSTART:20261332T090000"]
    calendars.put("all.ics", f"UID:1\nSUMMARY:A\n{MORNING}\nDURATION;X=:nonsense\nGEO:x\nX-ODD", *broken)
    calendars.put_text("cut.ics", ics(f"UID:9\nSUMMARY:B\n{MORNING}", "UID:10\nSUMMARY:C").partition("SUMMARY:C")[0])
    calendars.put_text("page.ics", "<html>moved</html>")
    (calendars.folder / "ada/home/folder.ics").mkdir()
    (calendars.folder / "secret").write_text(ics(f"UID:5\nSUMMARY:Secret\n{MORNING}"))
    (calendars.folder / "ada/home/link.ics").symlink_to(calendars.folder / "secret")
    text = calendars.text(start="2026-03-23", end="2026-03-23")
    assert lines(text) == ["2026-03-23 Mon 09:00–10:00 A", "2026-03-23 Mon 09:00–10:00 B"]
    lost = "invalid or excess events of"
    assert f"Not read: 3 {lost} all.ics; 1 {lost} cut.ics; folder.ics" in text
    assert text.endswith(" and 2 more.")


def test_text_is_unfolded_between_the_octets_of_a_character(calendars: Calendars) -> None:
    folded = "SUMMARY:Grüße\\, Köln\\; b".encode()
    first = folded.index("ü".encode()) + 1
    path = calendars.put("one.ics", f"UID:1\n{MORNING}\nTITLE")
    path.write_bytes(path.read_bytes().replace(b"TITLE", folded[:first] + b"\r\n " + folded[first:]))
    assert lines(calendars.text(start="2026-03-23")) == ["2026-03-23 Mon 09:00–10:00 Grüße, Köln; b"]


@pytest.mark.parametrize("rule", [*CASES["rules"]["not_followed"], "X" * 50_000], ids=lambda rule: rule[:40])
def test_unsupported_rules_are_reported(calendars: Calendars, rule: str) -> None:
    """Some would be evaluated wrongly, others need too much work or contradict themselves."""
    calendars.put("evil.ics", f"UID:2\nSUMMARY:Evil\n{MORNING}\nRRULE:{rule}")
    calendars.put("good.ics", f"UID:1\nSUMMARY:Good\n{WEEKLY}")
    text = calendars.text(start="2026-03-30", end="2026-03-30")
    assert lines(text) == ["2026-03-30 Mon 09:00–10:00 Good"]
    assert re.search(r"Omitted: (repeats of )?'Evil'", text)


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN:VCALENDAR\n" + "BEGIN:VEVENT\n" * 50_000,
        "BEGIN:VCALENDAR\n" + "BEGIN:X\n" * 50_000 + "END:Y\n" * 50_000,
        "BEGIN:VCALENDAR\n" + "BEGIN:X\n" * 50_000 + "END:X\n" * 50_000,
        ics("UID:1\nSUMMARY:" + "A" * 3_000_000 + "\nDTSTART:20260401T090000Z"),
        ics("UID:1\nSUMMARY:f" + "\n x" * 300_000 + "\nDTSTART:20260401T090000Z"),
        ics("UID:1\nDTSTART" + ";" * 90_000 + ":20260401T090000Z"),
        ics("UID:1\nDTSTART" + ";A=b" * 20_000 + ":20260401T090000Z"),
        ics("UID:1\nDTSTART:20260401T090000Z\nRRULE:FREQ=DAILY\nEXDATE:20260403" + ",20260403" * 100_000),
        ics("UID:1\nDTSTART;VALUE=DATE:17000101\nDTEND;VALUE=DATE:20990101\nRRULE:FREQ=DAILY"),
        ics(
            "UID:1\nDTSTART;TZID=E:20260401T090000",
            head="BEGIN:VTIMEZONE\nTZID:E\nBEGIN:STANDARD\nDTSTART:16010101T000000\nRRULE:FREQ=SECONDLY\n"
            "TZOFFSETFROM:+0100\nTZOFFSETTO:+0200\nEND:STANDARD\nEND:VTIMEZONE\n",
        ),
        "x" * 4_000_001,
    ],
    ids=[
        "deep events", "unclosed", "deep", "long line", "folds", "semicolons", "parameters", "dates", "overlaps",
        "zone", "large",
    ],
)  # fmt: skip
def test_hostile_files_do_not_hang(calendars: Calendars, text: str) -> None:
    calendars.put_text("evil.ics", text)
    calendars.put("good.ics", f"UID:1\nSUMMARY:Good\n{WEEKLY}")
    assert lines(calendars.text(start="2026-03-30", end="2026-03-30")) == ["2026-03-30 Mon 09:00–10:00 Good"]


def test_expansion_ends_with_the_time_of_the_call() -> None:
    hourly = "SUMMARY:It\nDTSTART:20260320T000000Z\nRRULE:FREQ=HOURLY"
    file = parse_file(ics(*(f"UID:{number}\n{hourly}" for number in range(3))).encode())
    seconds_left = iter([1.0, 1.0, 0.0])
    expander = Expander(Window(NOW, NOW + timedelta(hours=2), NOW.tzinfo), lambda: next(seconds_left))  # type: ignore[arg-type]
    assert [uid for uid, _ in expander.file_occurrences(file)] == ["0", "0", "1", "1"]
    assert len(expander.left_out) == 1
