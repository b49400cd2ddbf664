"""When events happen, as files of other programs say: rules, exceptions, time zones, and what is wrong in them."""

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from calendars import MORNING, NOW, Calendars, ics, lines

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
ROME = CUSTOM_ZONE.format(name="(UTC+01:00) Rome\\, Vienna", winter="+0100", summer="+0200")


@pytest.fixture
def calendars(tmp_path: Path) -> Calendars:
    return Calendars(tmp_path)


def berlin(start: str, end: str) -> str:
    return f"DTSTART;TZID=Europe/Berlin:{start}\nDTEND;TZID=Europe/Berlin:{end}"


class Case(NamedTuple):
    """The lines of one file's events, separated by empty lines, and the starts of what is listed."""

    events: str
    expected: str
    start: str = "2026-03-23"
    end: str = "2026-04-05"
    zone: str = "Europe/Berlin"
    head: str = ""


WEEKLY = f"{MORNING}\nRRULE:FREQ=WEEKLY"
DAILY = f"{MORNING}\nRRULE:FREQ=DAILY"
FIVE_REMOVED = "2026-03-23T09:00+01:00 2026-03-25T09:00+01:00 2026-03-26T09:00+01:00 2026-03-28T09:00+01:00"
BOTH_REMOVED = f"{FIVE_REMOVED} 2026-03-29T09:00+02:00"
LAST_MARCH_DAYS = "2026-03-23T09:00+01:00 2026-03-24T09:00+01:00"
MOVED = f"RECURRENCE-ID:20260330T070000Z\n{berlin('20260915T110000', '20260915T120000')}"
SUMMER = ("2026-07-01", "2026-07-01")
CASES = {
    "9 in Berlin stays 9 when the clocks change": Case(WEEKLY, "2026-03-23T09:00+01:00 2026-03-30T09:00+02:00"),
    "two zones change their clocks three weeks apart": Case(
        "DTSTART;TZID=America/New_York:20260302T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=6",
        "2026-03-02T15:00+01:00 2026-03-09T14:00+01:00 2026-03-16T14:00+01:00 2026-03-23T14:00+01:00 "
        "2026-03-30T15:00+02:00 2026-04-06T15:00+02:00",
        *("2026-03-01", "2026-04-30"),
    ),
    "user in New York": Case(
        "DTSTART;TZID=America/New_York:20261026T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY",
        "2026-10-26T09:00:00-04:00 2026-11-02T09:00:00-05:00",
        *("2026-10-26", "2026-11-08", "America/New_York"),
    ),
    "UTC moves with the clocks": Case(
        "DTSTART:20260323T080000Z\nRRULE:FREQ=WEEKLY", "2026-03-23T09:00+01:00 2026-03-30T10:00+02:00"
    ),
    "floating in Berlin": Case(
        "DTSTART:20260328T090000\nRRULE:FREQ=DAILY;COUNT=2", "2026-03-28T09:00+01:00 2026-03-29T09:00+02:00"
    ),
    "floating in New York": Case(
        "DTSTART:20260328T090000", "2026-03-28T09:00:00-04:00", zone="America/New_York"
    ),
    "skipped time is read by the offset before": Case(
        f"{berlin('20260328T023000', '20260328T030000')}\nRRULE:FREQ=DAILY;COUNT=3",
        "2026-03-28T02:30+01:00 2026-03-29T03:30+02:00 2026-03-30T02:30+02:00",
    ),
    "repeated time is the first": Case(
        f"{berlin('20261024T023000', '20261024T030000')}\nRRULE:FREQ=DAILY;COUNT=3",
        "2026-10-24T02:30+02:00 2026-10-25T02:30+02:00 2026-10-26T02:30+01:00",
        *("2026-10-24", "2026-10-26"),
    ),
    "until, UTC": Case(f"{DAILY};UNTIL=20260324T080000Z", LAST_MARCH_DAYS),
    "until, a second too early": Case(f"{DAILY};UNTIL=20260325T075959Z", LAST_MARCH_DAYS),
    "until, local": Case(f"{DAILY};UNTIL=20260324T090000", LAST_MARCH_DAYS),
    "until, a day": Case(f"{DAILY};UNTIL=20260324", LAST_MARCH_DAYS),
    "until, local in the zone of the start": Case(
        "DTSTART;TZID=America/New_York:20260324T200000\nDURATION:PT1H\nRRULE:FREQ=DAILY;UNTIL=20260325T200000",
        "2026-03-25T01:00+01:00 2026-03-26T01:00+01:00",
    ),
    "until, days with a day": Case(
        "DTSTART;VALUE=DATE:20260323\nRRULE:FREQ=DAILY;UNTIL=20260324", "2026-03-23 2026-03-24"
    ),
    "until, days with a time": Case(
        "DTSTART;VALUE=DATE:20260323\nRRULE:FREQ=DAILY;UNTIL=20260324T000000Z", "2026-03-23 2026-03-24"
    ),
    "count includes the start": Case("DTSTART;VALUE=DATE:20260323\nRRULE:FREQ=DAILY;COUNT=2", "2026-03-23 2026-03-24"),
    "count includes what is removed": Case(
        f"{DAILY};COUNT=2\nEXDATE;TZID=Europe/Berlin:20260324T090000", "2026-03-23T09:00+01:00"
    ),
    "endless since 1970": Case(
        "DTSTART;TZID=Europe/Berlin:19700101T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY",
        "2026-03-29T09:00+02:00",
        *("2026-03-29", "2026-03-29"),
    ),
    "29 February": Case(
        "DTSTART;VALUE=DATE:20240229\nRRULE:FREQ=YEARLY", "2028-02-29", *("2028-02-01", "2028-12-31")
    ),
    "no 29 February": Case("DTSTART;VALUE=DATE:20240229\nRRULE:FREQ=YEARLY", "", *("2027-01-01", "2027-12-31")),
    "moved": Case(
        f"{WEEKLY}\n\nRECURRENCE-ID;TZID=Europe/Berlin:20260330T090000\n{berlin('20260401T110000', '20260401T120000')}",
        "2026-03-23T09:00+01:00 2026-04-01T11:00+02:00",
    ),
    "moved away": Case(f"{WEEKLY};COUNT=2\n\n{MOVED}", "2026-03-23T09:00+01:00"),
    "moved far": Case(
        f"{WEEKLY};COUNT=2\n\n{MOVED}", "2026-09-15T11:00+02:00", *("2026-09-15", "2026-09-15")
    ),
    "moved, named by its day": Case(
        f"{WEEKLY}\n\nRECURRENCE-ID;VALUE=DATE:20260330\n{berlin('20260330T150000', '20260330T160000')}",
        "2026-03-23T09:00+01:00 2026-03-30T15:00+02:00",
    ),
    "moved, without its series": Case(MOVED, "2026-09-15T11:00+02:00", *("2026-09-15", "2026-09-15")),
    "cancelled": Case(
        f"{WEEKLY}\n\nRECURRENCE-ID;TZID=Europe/Berlin:20260330T090000\nSTATUS:CANCELLED\n"
        + berlin("20260330T090000", "20260330T100000"),
        "2026-03-23T09:00+01:00",
    ),
    "zone of a whole calendar, UTC": Case(
        "DTSTART:20260302T140000Z\nRRULE:FREQ=WEEKLY;COUNT=2",
        "2026-03-02T15:00+01:00 2026-03-09T14:00+01:00",
        *("2026-03-01", "2026-03-15"),
        head="X-WR-TIMEZONE:America/New_York\n",
    ),
    "zone of a whole calendar, floating": Case(
        "DTSTART:20260330T090000", "2026-03-30T15:00+02:00", head="X-WR-TIMEZONE:America/New_York\n"
    ),
    "zone described in the file": Case(
        'DTSTART;TZID="(UTC+01:00) Rome, Vienna":20260701T160000', "2026-07-01T10:00:00-04:00", *SUMMER,
        zone="America/New_York", head=ROME,
    ),
    "zone described in the file, escaped": Case(
        'DTSTART;TZID="(UTC+01:00) Rome\\, Vienna":20260701T160000', "2026-07-01T10:00:00-04:00", *SUMMER,
        zone="America/New_York", head=ROME,
    ),
} | {
    f"removed by {value}": Case(f"{DAILY}\nEXDATE{value}", BOTH_REMOVED, end="2026-03-29")
    for value in (
        ";TZID=Europe/Berlin:20260324T090000,20260327T090000", ":20260324T080000Z\nEXDATE:20260327T080000Z",
        ":20260324T090000,20260327T090000", ";VALUE=DATE:20260324,20260327",
        ";TZID=America/New_York:20260324T040000,20260327T040000",
    )
} | {
    f"zone {name}": Case(f"DTSTART;TZID={name}:20260701T090000", f"2026-07-01T{expected}+02:00", *SUMMER)
    for name, expected in {
        "W. Europe Standard Time": "09:00", "Eastern Standard Time": "15:00", "Tokyo Standard Time": "02:00",
        "/freeassociation.sourceforge.net/Europe/London": "10:00", '"Europe/London"': "10:00",
        "/mozilla.org/20050126_1/America/Argentina/Buenos_Aires": "14:00", "tzone": "09:00",
        '"tzone://Microsoft/Utc"': "11:00", "GMT-0300": "14:00", '"(UTC+09:00)"': "02:00",
    }.items()
} | {
    rule: Case(f"DTSTART;VALUE=DATE:{first}\nRRULE:{rule}", expected, "2026-01-01", "2026-03-31")
    for rule, first, expected in (
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "20260130", "2026-01-30 2026-02-27 2026-03-31"),
        ("FREQ=MONTHLY;BYDAY=2TU", "20260113", "2026-01-13 2026-02-10 2026-03-10"),
        ("FREQ=MONTHLY;BYMONTHDAY=31", "20260131", "2026-01-31 2026-03-31"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "20260131", "2026-01-31 2026-02-28 2026-03-31"),
        ("FREQ=WEEKLY;INTERVAL=6;BYDAY=SA;WKST=MO", "20260103", "2026-01-03 2026-02-14 2026-03-28"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "20200329", "2026-03-29"),
        ("FREQ=YEARLY;BYWEEKNO=10", "20250305", "2026-03-04"),  # of that week only the weekday of the start
        ("FREQ=YEARLY;BYWEEKNO=2,-1;BYDAY=TH", "20251225", "2026-01-08"),
        ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=TH,SU;WKST=SU", "20250102", "2026-01-04 2026-01-08"),
        ("FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=2", "20260311", "2026-03-11 2026-03-18 2026-03-25"),
        ("FREQ=WEEKLY;BYDAY=SU,TU,FR;BYSETPOS=-1", "20260315", "2026-03-15 2026-03-22 2026-03-29"),
        ("FREQ=WEEKLY;BYDAY=SU,TU,FR;BYSETPOS=-1;WKST=SU", "20260313", "2026-03-13 2026-03-20 2026-03-27"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;BYSETPOS=2;COUNT=2", "20260312", "2026-03-12 2026-03-26"),
    )
} | {
    f"RFC 5545: {rule}": Case(
        f"DTSTART;TZID=America/New_York:{first}T090000\nRRULE:{rule}", expected, "1997-09-01", "1998-06-30", "Etc/GMT+5"
    )
    for rule, first, expected in (  # the examples of section 3.8.5.3
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH", "19970902",
         "1997-09-02 1997-09-04 1997-09-16 1997-09-18 1997-09-30 1997-10-02 1997-10-14 1997-10-16"),
        ("FREQ=MONTHLY;INTERVAL=2;COUNT=6;BYDAY=1SU,-1SU", "19970907",
         "1997-09-07 1997-09-28 1997-11-02 1997-11-30 1998-01-04 1998-01-25"),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=-2MO", "19970922", "1997-09-22 1997-10-20 1997-11-17"),
        ("FREQ=MONTHLY;COUNT=5;BYMONTHDAY=1,-1", "19970930", "1997-09-30 1997-10-01 1997-10-31 1997-11-01 1997-11-30"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "19970512", "1998-05-11"),
        ("FREQ=YEARLY;INTERVAL=3;COUNT=10;BYDAY=20MO", "19950515", "1998-05-18"),
        ("FREQ=MONTHLY;BYDAY=TU,WE,TH;BYSETPOS=3;COUNT=3", "19970904", "1997-09-04 1997-10-07 1997-11-06"),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "19970805", ""),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_occurrences(calendars: Calendars, name: str) -> None:
    case = CASES[name]
    calendars.zone = case.zone
    calendars.put("a.ics", *(f"UID:1\nSUMMARY:It\n{event}" for event in case.events.split("\n\n")), head=case.head)
    size = 10 if name.startswith("RFC") else None
    assert [line.split()[0][:size] for line in calendars.times(case.start, case.end)] == case.expected.split()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART:20260327T090000Z", "2026-03-27T10:00+01:00 2026-03-27T10:00+01:00"),
        ("DTSTART;VALUE=DATE:20260327", "2026-03-27 2026-03-27"),
        ("DTSTART:20260327", "2026-03-27 2026-03-27"),
        ("DTSTART;VALUE=DATE:20260327\nDTEND;VALUE=DATE:20260327", "2026-03-27 2026-03-27"),
        ("DTSTART;VALUE=DATE:20260327\nDURATION:P1W", "2026-03-27 2026-04-02"),
        ("DTSTART:20260327T080000Z\nDURATION:PT1H30M", "2026-03-27T09:00+01:00 2026-03-27T10:30+01:00"),
        ("DTSTART:20260327T080000Z\nDTEND:20260327T070000Z", "2026-03-27T08:00+01:00 2026-03-27T09:00+01:00"),
        ("DTSTART:20260327T230000\nDTEND:20260327T240000", "2026-03-27T23:00+01:00 2026-03-28T00:00+01:00"),
        ("DTSTART:20260327T080000Z\nDTEND:20260328", "2026-03-27T09:00+01:00 2026-03-28T01:00+01:00"),
        # a night over the change of the clocks, by its end and by its length
        (berlin("20260328T220000", "20260329T060000"), "2026-03-28T22:00+01:00 2026-03-29T06:00+02:00"),
        (
            "DTSTART;TZID=Europe/Berlin:20260328T220000\nDURATION:PT8H",
            "2026-03-28T22:00+01:00 2026-03-29T07:00+02:00",
        ),
        # what begins in the skipped hour keeps its length, alone and in a series
        (berlin("20260329T023000", "20260329T030000"), "2026-03-29T03:30+02:00 2026-03-29T04:00+02:00"),
        (
            f"{berlin('20260328T023000', '20260328T033000')}\nRRULE:FREQ=DAILY;COUNT=2",
            "2026-03-28T02:30+01:00 2026-03-28T03:30+01:00",
        ),
        (
            "DTSTART;TZID=Europe/Berlin:20260327T100000\nDTEND;TZID=America/New_York:20260327T130000",
            "2026-03-27T10:00+01:00 2026-03-27T18:00+01:00",
        ),
    ],
)
def test_ends(calendars: Calendars, event: str, expected: str) -> None:
    calendars.put("one.ics", f"UID:1\nSUMMARY:It\n{event}")
    assert calendars.times("2026-03-27", "2026-03-29")[0] == f"{expected} It"


def test_extra_dates_with_and_without_a_length_and_changes_of_all_later_occurrences(calendars: Calendars) -> None:
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


def test_two_files_may_describe_two_zones_by_one_name(calendars: Calendars) -> None:
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
    assert note == "1 cancelled left out."


def test_several_events_in_one_file_have_their_own_ids(calendars: Calendars) -> None:
    task = "BEGIN:VTODO\nUID:t\nSUMMARY:Task\nDTSTART:20260323T090000Z\nEND:VTODO\n"
    calendars.put("all.ics", f"UID:1\nSUMMARY:A\n{MORNING}", f"UID:2\nSUMMARY:B\n{MORNING}", head=task)
    ids = [event["id"] for event in calendars.data(start="2026-03-23")["events"]]
    assert [lines(calendars.text(event_id=event_id)) for event_id in ids] == [
        ["2026-03-23 Mon 09:00–10:00 A"],
        ["2026-03-23 Mon 09:00–10:00 B"],
    ]


# Broken and hostile files


def test_a_broken_event_leaves_the_others(calendars: Calendars) -> None:
    broken = ["UID:2\nSUMMARY:No start", "UID:3\nDTSTART:garbage", "UID:4\nDTSTART:20261332T090000"]
    calendars.put("all.ics", f"UID:1\nSUMMARY:A\n{MORNING}\nDURATION;X=:nonsense\nGEO:x\nX-ODD", *broken)
    calendars.put_text("cut.ics", ics(f"UID:9\nSUMMARY:B\n{MORNING}", "UID:10\nSUMMARY:C").partition("SUMMARY:C")[0])
    calendars.put_text("page.ics", "<html>moved</html>")
    (calendars.folder / "ada/home/folder.ics").mkdir()
    (calendars.folder / "secret").write_text(ics(f"UID:5\nSUMMARY:Secret\n{MORNING}"))
    (calendars.folder / "ada/home/link.ics").symlink_to(calendars.folder / "secret")
    text = calendars.text(start="2026-03-23", end="2026-03-23")
    assert lines(text) == ["2026-03-23 Mon 09:00–10:00 A", "2026-03-23 Mon 09:00–10:00 B"]
    lost = "of its events are broken or too many"
    assert text.endswith(f"Not read: all.ics: 3 {lost}; cut.ics: 1 {lost}; folder.ics: it is no plain file and 2 more.")


def test_text_is_unfolded_between_the_octets_of_a_character(calendars: Calendars) -> None:
    folded = "SUMMARY:Grüße\\, Köln\\; b".encode()
    first = folded.index("ü".encode()) + 1
    path = calendars.put("one.ics", f"UID:1\n{MORNING}\nTITLE")
    path.write_bytes(path.read_bytes().replace(b"TITLE", folded[:first] + b"\r\n " + folded[first:]))
    assert lines(calendars.text(start="2026-03-23")) == ["2026-03-23 Mon 09:00–10:00 Grüße, Köln; b"]


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=MONTHLY;BYWEEKNO=10", "FREQ=YEARLY;BYWEEKNO=10;BYDAY=1MO", "FREQ=YEARLY;BYWEEKNO=53",
        "FREQ=YEARLY;BYWEEKNO=10;BYDAY=MO,TU;BYSETPOS=1", "FREQ=YEARLY;INTERVAL=2;BYWEEKNO=1",
        "FREQ=WEEKLY;BYDAY=MO;BYMONTH=2;BYSETPOS=1", "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=2",
        "FREQ=YEARLY;BYMONTH=2;BYDAY=50MO", "FREQ=SECONDLY", "FREQ=SECONDLY;UNTIL=99991231T235959Z",
        "FREQ=HOURLY;INTERVAL=0", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;BYSETPOS=5", "FREQ=DAILY;BYSETPOS=5", "FREQ=DAILY;COUNT=999999999",
        "FREQ=DAILY;COUNT=20000;BYYEARDAY=1;BYMONTH=2", "FREQ=WEEKLY;INTERVAL=99999999999999999999",
        "FREQ=YEARLY;BYHOUR=0,1,2,3,4,5;BYMINUTE=0,1,2,3,4,5,6,7,8,9;BYSECOND=0,1,2,3,4,5,6,7,8,9;BYSETPOS=9",
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=3", "FREQ=SOMETIMES", "BYDAY=MO", "FREQ=WEEKLY;BYDAY=XX", "X" * 50_000,
    ],
    ids=lambda rule: rule[:40],
)  # fmt: skip
def test_a_rule_that_cannot_be_followed_is_named(calendars: Calendars, rule: str) -> None:
    """Some would come out wrong, others ask for too much or make no sense."""
    calendars.put("evil.ics", f"UID:2\nSUMMARY:Evil\n{MORNING}\nRRULE:{rule}")
    calendars.put("good.ics", f"UID:1\nSUMMARY:Good\n{WEEKLY}")
    text = calendars.text(start="2026-03-30", end="2026-03-30")
    assert lines(text) == ["2026-03-30 Mon 09:00–10:00 Good"]
    assert "Left out: 'Evil' repeats" in text


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
def test_files_made_to_hang_do_not(calendars: Calendars, text: str) -> None:
    calendars.put_text("evil.ics", text)
    calendars.put("good.ics", f"UID:1\nSUMMARY:Good\n{WEEKLY}")
    assert lines(calendars.text(start="2026-03-30", end="2026-03-30")) == ["2026-03-30 Mon 09:00–10:00 Good"]


def test_expansion_ends_with_the_time_of_the_call() -> None:
    hourly = "DTSTART:19850101T000000Z\nRRULE:FREQ=HOURLY;BYMINUTE=0"
    file = parse_file(ics(*(f"UID:{number}\nSUMMARY:Evil\n{hourly}" for number in range(1000))).encode())
    seconds_left = iter([1.0, 1.0, 0.0])
    expander = Expander(Window(NOW, NOW + timedelta(hours=2), NOW.tzinfo), lambda: next(seconds_left))  # type: ignore[arg-type]
    assert [uid for uid, _ in expander.file_occurrences(file)] == ["0", "0", "1", "1"]
    assert expander.left_out == ["what there was no time for: ask for one calendar, or a shorter time"]
