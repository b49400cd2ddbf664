"""When events happen, as files of other programs say it: rules, exceptions, zones, and what is wrong in them."""

from datetime import timedelta
from pathlib import Path

import pytest
from calendars import NOW, Calendars, ics, starts

from specialists._calendar.expand import Expander, Window
from specialists._calendar.ics_read import parse_file

BERLIN = "DTSTART;TZID=Europe/Berlin:{0}\nDTEND;TZID=Europe/Berlin:{1}"
MORNING = BERLIN.format("20260323T090000", "20260323T100000")
CUSTOM_ZONE = """BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:{summer}
TZOFFSETTO:{winter}
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:{winter}
TZOFFSETTO:{summer}
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
"""


@pytest.fixture
def calendars(tmp_path: Path) -> Calendars:
    return Calendars(tmp_path)


def happens(
    calendars: Calendars, *events: str, start: str = "2026-03-23", end: str = "2026-04-05", head: str = ""
) -> list[str]:
    """The starts of what a file says, in Berlin."""
    calendars.put("one.ics", ics(*(f"UID:1\nSUMMARY:It\n{event}" for event in events), head=head))
    return starts(calendars.times(start, end))


def test_nine_in_berlin_stays_nine_when_the_clocks_change(calendars: Calendars) -> None:
    assert happens(calendars, f"{MORNING}\nRRULE:FREQ=WEEKLY") == [
        "2026-03-23T09:00:00+01:00",
        "2026-03-30T09:00:00+02:00",
    ]


def test_nine_in_new_york_is_seen_in_berlin(calendars: Calendars) -> None:
    """The two change their clocks three weeks apart."""
    new_york = "DTSTART;TZID=America/New_York:20260302T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=6"
    assert happens(calendars, new_york, start="2026-03-01", end="2026-04-30") == [
        "2026-03-02T15:00:00+01:00",
        "2026-03-09T14:00:00+01:00",
        "2026-03-16T14:00:00+01:00",
        "2026-03-23T14:00:00+01:00",
        "2026-03-30T15:00:00+02:00",
        "2026-04-06T15:00:00+02:00",
    ]


def test_new_york_user(calendars: Calendars) -> None:
    calendars.zone = "America/New_York"
    event = "DTSTART;TZID=America/New_York:20261026T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY"
    assert happens(calendars, event, start="2026-10-26", end="2026-11-08") == [
        "2026-10-26T09:00:00-04:00",
        "2026-11-02T09:00:00-05:00",
    ]


def test_a_series_in_utc_moves_with_the_clocks(calendars: Calendars) -> None:
    assert happens(calendars, "DTSTART:20260323T080000Z\nRRULE:FREQ=WEEKLY") == [
        "2026-03-23T09:00:00+01:00",
        "2026-03-30T10:00:00+02:00",
    ]


def test_a_time_that_the_change_skips_is_read_by_the_offset_before(calendars: Calendars) -> None:
    event = BERLIN.format("20260328T023000", "20260328T030000")
    assert happens(calendars, f"{event}\nRRULE:FREQ=DAILY;COUNT=3") == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:30:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


@pytest.mark.parametrize(("rule", "first"), [("\nRRULE:FREQ=DAILY;COUNT=2", "20260328"), ("", "20260329")])
@pytest.mark.parametrize(("end", "expected"), [("0300", "04:00"), ("0330", "04:30")])
def test_what_begins_in_the_hour_that_is_skipped_keeps_its_length(
    calendars: Calendars, rule: str, first: str, end: str, expected: str
) -> None:
    event = BERLIN.format(f"{first}T023000", f"{first}T{end}00")
    calendars.put("one.ics", ics(f"UID:1\nSUMMARY:It\n{event}{rule}"))
    assert calendars.times("2026-03-29", "2026-03-29") == [
        ("2026-03-29T03:30:00+02:00", f"2026-03-29T{expected}:00+02:00", "It")
    ]
    assert f"03:30–{expected} It" in calendars.text(start="2026-03-29", end="2026-03-29")


def test_a_time_that_is_there_twice_is_the_first(calendars: Calendars) -> None:
    event = BERLIN.format("20261024T023000", "20261024T030000")
    assert happens(calendars, f"{event}\nRRULE:FREQ=DAILY;COUNT=3", start="2026-10-24", end="2026-10-26") == [
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_a_night_over_the_change_has_its_own_hours(calendars: Calendars) -> None:
    calendars.put("one.ics", ics(f"UID:1\nSUMMARY:Night\n{BERLIN.format('20260328T220000', '20260329T060000')}"))
    assert calendars.times("2026-03-28", "2026-03-29") == [
        ("2026-03-28T22:00:00+01:00", "2026-03-29T06:00:00+02:00", "Night")
    ]
    assert "2026-03-28 Sat 22:00 – 2026-03-29 Sun 06:00 Night" in calendars.text(start="2026-03-29", end="2026-03-29")


def test_eight_hours_are_eight_hours(calendars: Calendars) -> None:
    calendars.put("one.ics", ics("UID:1\nSUMMARY:Night\nDTSTART;TZID=Europe/Berlin:20260328T220000\nDURATION:PT8H"))
    assert calendars.times("2026-03-28", "2026-03-28")[0][1] == "2026-03-29T07:00:00+02:00"


@pytest.mark.parametrize(
    "exdate",
    [
        "EXDATE;TZID=Europe/Berlin:20260324T090000,20260330T090000",
        "EXDATE:20260324T080000Z\nEXDATE:20260330T070000Z",
        "EXDATE:20260324T090000,20260330T090000",
        "EXDATE;VALUE=DATE:20260324,20260330",
        "EXDATE;TZID=America/New_York:20260324T040000,20260330T030000",
    ],
    ids=["zone", "utc", "floating", "days", "another zone"],
)
def test_removed_occurrences(calendars: Calendars, exdate: str) -> None:
    assert happens(calendars, f"{MORNING}\nRRULE:FREQ=DAILY\n{exdate}", end="2026-03-31") == [
        "2026-03-23T09:00:00+01:00",
        "2026-03-25T09:00:00+01:00",
        "2026-03-26T09:00:00+01:00",
        "2026-03-27T09:00:00+01:00",
        "2026-03-28T09:00:00+01:00",
        "2026-03-29T09:00:00+02:00",
        "2026-03-31T09:00:00+02:00",
    ]


def test_extra_dates_with_and_without_a_length(calendars: Calendars) -> None:
    more = "RDATE;TZID=Europe/Berlin:20260325T120000\nRDATE;VALUE=PERIOD;TZID=Europe/Berlin:20260326T120000/PT3H"
    calendars.put("one.ics", ics(f"UID:1\nSUMMARY:It\n{MORNING}\n{more}"))
    assert calendars.times("2026-03-23", "2026-03-29") == [
        ("2026-03-23T09:00:00+01:00", "2026-03-23T10:00:00+01:00", "It"),
        ("2026-03-25T12:00:00+01:00", "2026-03-25T13:00:00+01:00", "It"),
        ("2026-03-26T12:00:00+01:00", "2026-03-26T15:00:00+01:00", "It"),
    ]


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20260325T080000Z", "2026-03-25T09:00:00+01:00"),
        ("20260325T075959Z", "2026-03-24T09:00:00+01:00"),
        ("20260325T090000", "2026-03-25T09:00:00+01:00"),
        ("20260325", "2026-03-25T09:00:00+01:00"),  # a day is meant with that day
    ],
)
def test_the_end_of_a_rule_is_in_it(calendars: Calendars, until: str, last: str) -> None:
    assert happens(calendars, f"{MORNING}\nRRULE:FREQ=DAILY;UNTIL={until}")[-1] == last


def test_a_local_end_is_of_the_zone_of_the_start(calendars: Calendars) -> None:
    event = "DTSTART;TZID=America/New_York:20260323T200000\nDURATION:PT1H\nRRULE:FREQ=DAILY;UNTIL=20260325T200000"
    assert len(happens(calendars, event)) == 3


def test_days_end_with_a_day_or_a_time(calendars: Calendars) -> None:
    for until in ("20260325", "20260325T000000Z"):
        days = happens(calendars, f"DTSTART;VALUE=DATE:20260323\nRRULE:FREQ=DAILY;UNTIL={until}")
        assert days == ["2026-03-23", "2026-03-24", "2026-03-25"]


def test_the_start_counts_among_so_many(calendars: Calendars) -> None:
    assert len(happens(calendars, "DTSTART;VALUE=DATE:20260323\nRRULE:FREQ=DAILY;COUNT=3")) == 3
    assert len(happens(calendars, f"{MORNING}\nRRULE:FREQ=DAILY;COUNT=3")) == 3
    removed = "EXDATE;TZID=Europe/Berlin:20260324T090000"
    assert len(happens(calendars, f"{MORNING}\nRRULE:FREQ=DAILY;COUNT=3\n{removed}")) == 2


@pytest.mark.parametrize(
    ("rule", "first", "expected"),
    [
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "20260130", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        ("FREQ=MONTHLY;BYDAY=2TU", "20260113", ["2026-01-13", "2026-02-10", "2026-03-10"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31", "20260131", ["2026-01-31", "2026-03-31"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "20260131", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("FREQ=WEEKLY;INTERVAL=6;BYDAY=SA;WKST=MO", "20260103", ["2026-01-03", "2026-02-14", "2026-03-28"]),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "20200329", ["2026-03-29"]),
        ("FREQ=YEARLY;BYWEEKNO=10", "20250305", ["2026-03-04"]),  # of that week only the day of the start
        ("FREQ=YEARLY;BYWEEKNO=2,-1;BYDAY=TH", "20251225", ["2026-01-08"]),
        ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=TH,SU;WKST=SU", "20250102", ["2026-01-04", "2026-01-08"]),
        ("FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=2", "20260311", ["2026-03-11", "2026-03-18", "2026-03-25"]),
        ("FREQ=WEEKLY;BYDAY=SU,TU,FR;BYSETPOS=-1", "20260315", ["2026-03-15", "2026-03-22", "2026-03-29"]),
        ("FREQ=WEEKLY;BYDAY=SU,TU,FR;BYSETPOS=-1;WKST=SU", "20260313", ["2026-03-13", "2026-03-20", "2026-03-27"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;BYSETPOS=2;COUNT=2", "20260312", ["2026-03-12", "2026-03-26"]),
    ],
)  # fmt: skip
def test_rules(calendars: Calendars, rule: str, first: str, expected: list[str]) -> None:
    event = f"DTSTART;VALUE=DATE:{first}\nRRULE:{rule}"
    assert happens(calendars, event, start="2026-01-01", end="2026-03-31") == expected


def test_the_29th_of_february_comes_every_four_years(calendars: Calendars) -> None:
    event = "DTSTART;VALUE=DATE:20240229\nRRULE:FREQ=YEARLY"
    assert happens(calendars, event, start="2027-03-01", end="2028-02-28") == []
    assert happens(calendars, event, start="2028-02-01", end="2028-03-31") == ["2028-02-29"]


def test_an_endless_series_of_long_ago(calendars: Calendars) -> None:
    event = "DTSTART;TZID=Europe/Berlin:19700101T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY"
    assert happens(calendars, event, start="2026-03-29", end="2026-03-29") == ["2026-03-29T09:00:00+02:00"]


def test_a_moved_occurrence_stands_where_it_is(calendars: Calendars) -> None:
    moved = f"RECURRENCE-ID;TZID=Europe/Berlin:20260330T090000\n{BERLIN.format('20260401T110000', '20260401T120000')}"
    assert happens(calendars, f"{MORNING}\nRRULE:FREQ=WEEKLY", moved) == [
        "2026-03-23T09:00:00+01:00",
        "2026-04-01T11:00:00+02:00",
    ]
    assert "moved from 2026-03-30T09:00" in calendars.text(start="2026-04-01", end="2026-04-01")


def test_an_occurrence_moved_far_is_found_where_it_went(calendars: Calendars) -> None:
    moved = f"RECURRENCE-ID:20260330T070000Z\n{BERLIN.format('20260915T110000', '20260915T120000')}"
    master = f"{MORNING}\nRRULE:FREQ=WEEKLY;COUNT=2"
    assert happens(calendars, master, moved) == ["2026-03-23T09:00:00+01:00"]
    assert happens(calendars, master, moved, start="2026-09-15", end="2026-09-15") == ["2026-09-15T11:00:00+02:00"]


def test_a_change_named_by_its_day_only(calendars: Calendars) -> None:
    moved = f"RECURRENCE-ID;VALUE=DATE:20260330\n{BERLIN.format('20260330T150000', '20260330T160000')}"
    assert happens(calendars, f"{MORNING}\nRRULE:FREQ=WEEKLY", moved) == [
        "2026-03-23T09:00:00+01:00",
        "2026-03-30T15:00:00+02:00",
    ]


def test_this_and_all_later_ones(calendars: Calendars) -> None:
    onward = "RECURRENCE-ID;RANGE=THISANDFUTURE;TZID=Europe/Berlin:20260325T090000"
    later = f"{onward}\n{BERLIN.format('20260325T110000', '20260325T130000')}"
    calendars.put("one.ics", ics(f"UID:1\nSUMMARY:Old\n{MORNING}\nRRULE:FREQ=DAILY", f"UID:1\nSUMMARY:New\n{later}"))
    assert calendars.times("2026-03-23", "2026-03-26") == [
        ("2026-03-23T09:00:00+01:00", "2026-03-23T10:00:00+01:00", "Old"),
        ("2026-03-24T09:00:00+01:00", "2026-03-24T10:00:00+01:00", "Old"),
        ("2026-03-25T11:00:00+01:00", "2026-03-25T13:00:00+01:00", "New"),
        ("2026-03-26T11:00:00+01:00", "2026-03-26T13:00:00+01:00", "New"),
    ]


def test_a_cancelled_occurrence_does_not_happen(calendars: Calendars) -> None:
    times = BERLIN.format("20260330T090000", "20260330T100000")
    gone = f"RECURRENCE-ID;TZID=Europe/Berlin:20260330T090000\nSTATUS:CANCELLED\n{times}"
    assert happens(calendars, f"{MORNING}\nRRULE:FREQ=WEEKLY", gone) == ["2026-03-23T09:00:00+01:00"]
    assert "1 cancelled left out." in calendars.text(start="2026-03-30", end="2026-03-30")


def test_a_change_without_its_series_is_shown(calendars: Calendars) -> None:
    alone = f"RECURRENCE-ID;TZID=Europe/Berlin:20260330T090000\n{BERLIN.format('20260330T110000', '20260330T120000')}"
    assert happens(calendars, alone) == ["2026-03-30T11:00:00+02:00"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("W. Europe Standard Time", "2026-07-01T09:00:00+02:00"),
        ("Eastern Standard Time", "2026-07-01T15:00:00+02:00"),
        ("Tokyo Standard Time", "2026-07-01T02:00:00+02:00"),
        ("/freeassociation.sourceforge.net/Europe/London", "2026-07-01T10:00:00+02:00"),
        ("/mozilla.org/20050126_1/America/Argentina/Buenos_Aires", "2026-07-01T14:00:00+02:00"),
        ('"Europe/London"', "2026-07-01T10:00:00+02:00"),
        ("tzone", "2026-07-01T09:00:00+02:00"),
        ('"tzone://Microsoft/Utc"', "2026-07-01T11:00:00+02:00"),
        ("GMT-0300", "2026-07-01T14:00:00+02:00"),
        ('"(UTC+09:00)"', "2026-07-01T02:00:00+02:00"),
    ],
)
def test_zones_by_their_names(calendars: Calendars, name: str, expected: str) -> None:
    assert happens(calendars, f"DTSTART;TZID={name}:20260701T090000", start="2026-07-01", end="2026-07-01") == [
        expected
    ]


def test_a_zone_that_nobody_knows_is_said(calendars: Calendars) -> None:
    calendars.put("one.ics", ics("UID:1\nSUMMARY:It\nDTSTART;TZID=Nowhere/Land:20260701T090000"))
    assert "It (id" in calendars.text(start="2026-07-01", end="2026-07-01")
    assert "unknown time zone 'Nowhere/Land'" in calendars.text(start="2026-07-01", end="2026-07-01")


def test_a_zone_of_the_files_own(calendars: Calendars) -> None:
    """Outlook calls many zones by one name, so that two files may mean two zones by it."""
    name = "Customized Time Zone"
    event = f"DTSTART;TZID={name}:20260327T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3"
    for number, (winter, summer) in enumerate((("+0100", "+0200"), ("+0000", "+0100"))):
        head = CUSTOM_ZONE.format(name=name, winter=winter, summer=summer)
        calendars.put(f"{number}.ics", ics(f"UID:{number}\nSUMMARY:{number}\n{event}", head=head))
    assert [(start, title) for start, _, title in calendars.times("2026-03-27", "2026-03-29")] == [
        ("2026-03-27T09:00:00+01:00", "0"),
        ("2026-03-27T10:00:00+01:00", "1"),
        ("2026-03-28T09:00:00+01:00", "0"),
        ("2026-03-28T10:00:00+01:00", "1"),
        ("2026-03-29T09:00:00+02:00", "0"),
        ("2026-03-29T10:00:00+02:00", "1"),
    ]


def test_a_zone_as_exchange_describes_it(calendars: Calendars) -> None:
    zone = CUSTOM_ZONE.format(name="Customized Time Zone", winter="+0100", summer="+0200")
    head = zone.replace("FREQ=YEARLY;", "FREQ=YEARLY;INTERVAL=1;")
    calendars.zone = "America/New_York"
    event = "DTSTART;TZID=Customized Time Zone:20260701T160000"
    assert happens(calendars, event, start="2026-07-01", end="2026-07-01", head=head) == ["2026-07-01T10:00:00-04:00"]


@pytest.mark.parametrize("said", ["(UTC+01:00) Rome, Vienna", "(UTC+01:00) Rome\\, Vienna"])
def test_the_name_of_a_zone_is_a_text_with_escapes(calendars: Calendars, said: str) -> None:
    head = CUSTOM_ZONE.format(name="(UTC+01:00) Rome\\, Vienna", winter="+0100", summer="+0200")
    calendars.zone = "America/New_York"
    event = f'DTSTART;TZID="{said}":20260701T160000'
    assert happens(calendars, event, start="2026-07-01", end="2026-07-01", head=head) == ["2026-07-01T10:00:00-04:00"]


def test_a_floating_time_is_that_of_the_user(calendars: Calendars) -> None:
    event = "DTSTART:20260328T090000\nRRULE:FREQ=DAILY;COUNT=2"
    assert happens(calendars, event) == ["2026-03-28T09:00:00+01:00", "2026-03-29T09:00:00+02:00"]
    calendars.zone = "America/New_York"
    assert happens(calendars, event) == ["2026-03-28T09:00:00-04:00", "2026-03-29T09:00:00-04:00"]


def test_the_zone_of_a_whole_calendar(calendars: Calendars) -> None:
    """Google names it and writes times in UTC; a time without zone is of it, too."""
    head = "X-WR-TIMEZONE:America/New_York\n"
    in_utc = "DTSTART:20260302T140000Z\nRRULE:FREQ=WEEKLY;COUNT=2"
    assert happens(calendars, in_utc, start="2026-03-01", end="2026-03-15", head=head) == [
        "2026-03-02T15:00:00+01:00",
        "2026-03-09T14:00:00+01:00",
    ]
    assert happens(calendars, "DTSTART:20260330T090000", head=head) == ["2026-03-30T15:00:00+02:00"]


def test_whole_days_are_those_of_the_user(calendars: Calendars) -> None:
    calendars.put("one.ics", ics("UID:1\nSUMMARY:Fair\nDTSTART;VALUE=DATE:20260328\nDTEND;VALUE=DATE:20260331"))
    for zone in ("Pacific/Auckland", "America/Los_Angeles"):
        calendars.zone = zone
        assert calendars.times("2026-03-30", "2026-03-30") == [("2026-03-28", "2026-03-30", "Fair")]
        assert calendars.times("2026-03-31", "2026-03-31") == []
        assert calendars.times("2026-03-27", "2026-03-27") == []
    assert "- 2026-03-28 Sat – 2026-03-30 Mon all day Fair" in calendars.text(start="2026-03-28")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART:20260327T090000Z", "2026-03-27T10:00:00+01:00 2026-03-27T10:00:00+01:00"),
        ("DTSTART;VALUE=DATE:20260327", "2026-03-27 2026-03-27"),
        ("DTSTART:20260327", "2026-03-27 2026-03-27"),
        ("DTSTART;VALUE=DATE:20260327\nDTEND;VALUE=DATE:20260327", "2026-03-27 2026-03-27"),
        ("DTSTART;VALUE=DATE:20260327\nDURATION:P1W", "2026-03-27 2026-04-02"),
        ("DTSTART:20260327T080000Z\nDURATION:PT1H30M", "2026-03-27T09:00:00+01:00 2026-03-27T10:30:00+01:00"),
        ("DTSTART:20260327T080000Z\nDTEND:20260327T070000Z", "2026-03-27T08:00:00+01:00 2026-03-27T09:00:00+01:00"),
        ("DTSTART:20260327T230000\nDTEND:20260327T240000", "2026-03-27T23:00:00+01:00 2026-03-28T00:00:00+01:00"),
        ("DTSTART:20260327T080000Z\nDTEND:20260328", "2026-03-27T09:00:00+01:00 2026-03-28T01:00:00+01:00"),
    ],
)
def test_ends(calendars: Calendars, event: str, expected: str) -> None:
    calendars.put("one.ics", ics(f"UID:1\nSUMMARY:It\n{event}"))
    assert calendars.times("2026-03-27", "2026-03-27") == [(*expected.split(), "It")]


def test_a_flight_ends_in_another_zone(calendars: Calendars) -> None:
    event = "DTSTART;TZID=Europe/Berlin:20260327T100000\nDTEND;TZID=America/New_York:20260327T130000"
    calendars.put("one.ics", ics(f"UID:1\nSUMMARY:Flight\n{event}"))
    assert calendars.times("2026-03-27", "2026-03-27")[0][1] == "2026-03-27T18:00:00+01:00"


def test_several_events_and_a_task_in_one_file(calendars: Calendars) -> None:
    task = "BEGIN:VTODO\nUID:t\nSUMMARY:Task\nDTSTART:20260323T090000Z\nEND:VTODO\n"
    text = ics(f"UID:1\nSUMMARY:A\n{MORNING}", f"UID:2\nSUMMARY:B\n{MORNING}", head=task)
    calendars.put("all.ics", text)
    assert [title for *_, title in calendars.times("2026-03-23", "2026-03-23")] == ["A", "B"]
    ids = [event["id"] for event in calendars.data(start="2026-03-23")["events"]]
    assert len(set(ids)) == 2
    assert "one event" in calendars.text(event_id=ids[1])


def test_a_broken_event_leaves_the_others(calendars: Calendars) -> None:
    broken = ["UID:2\nSUMMARY:No start", "UID:3\nDTSTART:garbage", "UID:4\nDTSTART:20261332T090000"]
    calendars.put("all.ics", ics(f"UID:1\nSUMMARY:A\n{MORNING}\nDURATION;X=:nonsense\nGEO:x\nX-ODD", *broken))
    calendars.put(
        "cut.ics", ics(f"UID:9\nSUMMARY:B\n{MORNING}", f"UID:10\nSUMMARY:C\n{MORNING}").partition("SUMMARY:C")[0]
    )
    calendars.put("page.ics", "<html>moved</html>")
    text = calendars.text(start="2026-03-23", end="2026-03-23")
    assert "2 events" in text
    lost = "of its events are broken or too many"
    assert f"Not read: all.ics: 3 {lost}; cut.ics: 1 {lost}; page.ics: it is no calendar." in text


def test_text_is_unfolded_between_the_octets_of_a_character(calendars: Calendars) -> None:
    folded = "SUMMARY:Gr\u00fc\u00dfe\\, K\u00f6ln\\; b".encode()
    first = folded.index("ü".encode()) + 1
    data = ics(f"UID:1\n{MORNING}\nTITLE").encode().replace(b"TITLE", folded[:first] + b"\n " + folded[first:])
    path = calendars.put("one.ics", "")
    path.write_bytes(data)
    assert calendars.times("2026-03-23", "2026-03-23")[0][2] == "Grüße, Köln; b"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("FREQ=MONTHLY;BYWEEKNO=10", "BYWEEKNO goes with FREQ=YEARLY only"),
        ("FREQ=YEARLY;BYWEEKNO=10;BYDAY=1MO", "BYWEEKNO takes no numbers before days"),
        ("FREQ=YEARLY;BYWEEKNO=10;BYDAY=MO,TU;BYSETPOS=1", "BYWEEKNO and BYSETPOS together are not known"),
        ("FREQ=YEARLY;BYWEEKNO=53", "weeks 52 and 53 are not known, but BYWEEKNO=-1 for the last one of a year is"),
        ("FREQ=YEARLY;INTERVAL=2;BYWEEKNO=1", "the first and last weeks of a year need INTERVAL=1"),
        ("FREQ=WEEKLY;BYDAY=MO;BYMONTH=2;BYSETPOS=1", "BYSETPOS in a week goes with BYDAY alone"),
        ("FREQ=WEEKLY;BYDAY=MO;BYSETPOS=2", "no day fits it"),
        ("FREQ=YEARLY;BYMONTH=2;BYDAY=50MO", "no day fits it"),
    ],
)
def test_rules_that_would_come_out_wrong_are_named_with_the_reason(calendars: Calendars, rule: str, why: str) -> None:
    calendars.put("odd.ics", ics(f"UID:2\nSUMMARY:Odd\n{MORNING}\nRRULE:{rule}"))
    assert f"Left out: 'Odd' repeats by a rule that cannot be followed ({why}), and is shown once" in calendars.text(
        start="2026-03-23", end="2026-03-30"
    )


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY",
        "FREQ=SECONDLY;UNTIL=99991231T235959Z",
        "FREQ=HOURLY;INTERVAL=0",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;BYSETPOS=5",
        "FREQ=DAILY;BYSETPOS=5",
        "FREQ=DAILY;COUNT=999999999",
        "FREQ=DAILY;COUNT=20000;BYYEARDAY=1;BYMONTH=2",
        "FREQ=WEEKLY;INTERVAL=99999999999999999999",
        "FREQ=YEARLY;BYHOUR=0,1,2,3,4,5;BYMINUTE=0,1,2,3,4,5,6,7,8,9;BYSECOND=0,1,2,3,4,5,6,7,8,9;BYSETPOS=9",
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=3",
        "FREQ=SOMETIMES",
        "BYDAY=MO",
        "FREQ=WEEKLY;BYDAY=XX",
        "X" * 50_000,
    ],
    ids=lambda rule: rule[:40],
)
def test_rules_that_ask_for_too_much_or_nonsense_are_named_at_once(calendars: Calendars, rule: str) -> None:
    calendars.put("evil.ics", ics(f"UID:2\nSUMMARY:Evil\n{MORNING}\nRRULE:{rule}"))
    calendars.put("good.ics", ics(f"UID:1\nSUMMARY:Good\n{MORNING}\nRRULE:FREQ=WEEKLY"))
    text = calendars.text(start="2026-03-30", end="2026-03-30")
    assert "09:00–10:00 Good" in text
    assert "Left out: 'Evil' repeats" in text


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN:VCALENDAR\n" + "BEGIN:VEVENT\n" * 50_000,
        "BEGIN:VCALENDAR\n" + "BEGIN:X\n" * 50_000 + "END:Y\n" * 50_000,
        "BEGIN:VCALENDAR\n" + "BEGIN:X\n" * 50_000 + "END:X\n" * 50_000,
        ics("UID:1\nSUMMARY:" + "A" * 3_000_000 + "\nDTSTART:20260330T090000Z"),
        ics("UID:1\nSUMMARY:f" + "\n x" * 300_000 + "\nDTSTART:20260330T090000Z"),
        ics("UID:1\nDTSTART" + ";" * 90_000 + ":20260330T090000Z"),
        ics("UID:1\nDTSTART" + ";A=b" * 20_000 + ":20260330T090000Z"),
        ics("UID:1\nDTSTART:20260330T090000Z\nRRULE:FREQ=DAILY\nEXDATE:20260403" + ",20260403" * 100_000),
        ics(
            "UID:1\nDTSTART;TZID=E:20260330T090000",
            head="BEGIN:VTIMEZONE\nTZID:E\nBEGIN:STANDARD\nDTSTART:16010101T000000\nRRULE:FREQ=SECONDLY\n"
            "TZOFFSETFROM:+0100\nTZOFFSETTO:+0200\nEND:STANDARD\nEND:VTIMEZONE\n",
        ),
        "x" * 4_000_001,
    ],
    ids=["deep events", "unclosed", "deep", "long line", "folds", "semicolons", "parameters", "dates", "zone", "large"],
)  # fmt: skip
def test_files_made_to_hang_do_not(calendars: Calendars, text: str) -> None:
    calendars.put("evil.ics", text)
    calendars.put("good.ics", ics(f"UID:1\nSUMMARY:Good\n{MORNING}\nRRULE:FREQ=WEEKLY"))
    assert "09:00–10:00 Good" in calendars.text(start="2026-03-30", end="2026-03-30")


def test_an_event_that_is_on_a_hundred_thousand_times_at_once_is_left_out(calendars: Calendars) -> None:
    for_ever = "DTSTART;VALUE=DATE:17000101\nDTEND;VALUE=DATE:20990101"
    calendars.put("evil.ics", ics(f"UID:1\nSUMMARY:Evil\n{for_ever}\nRRULE:FREQ=DAILY"))
    assert "Left out: 'Evil' repeats too often to be listed." in calendars.text(start="2026-03-23")


def test_expansion_ends_with_the_time_of_the_call() -> None:
    hourly = "DTSTART:19850101T000000Z\nRRULE:FREQ=HOURLY;BYMINUTE=0"
    file = parse_file(ics(*(f"UID:{number}\nSUMMARY:Evil\n{hourly}" for number in range(1000))).encode())
    seconds_left = iter([1.0, 1.0, 0.0])
    expander = Expander(Window(NOW, NOW + timedelta(hours=2), NOW.tzinfo), lambda: next(seconds_left))  # type: ignore[arg-type]
    assert [uid for uid, _ in expander.file_occurrences(file)] == ["0", "0", "1", "1"]
    assert expander.left_out == ["what there was no time for: ask for one calendar, or a shorter time"]


def test_what_is_no_plain_file_is_not_opened(calendars: Calendars, tmp_path: Path) -> None:
    secret = tmp_path / "secret.ics"
    secret.write_text(ics(f"UID:1\nSUMMARY:Secret\n{MORNING}"))
    folder = calendars.put("good.ics", ics(f"UID:2\nSUMMARY:Good\n{MORNING}")).parent
    (folder / "link.ics").symlink_to(secret)
    (folder / "folder.ics").mkdir()
    text = calendars.text(start="2026-03-23", end="2026-03-23")
    assert "1 event," in text
    assert "Not read: folder.ics: it is no plain file; link.ics: it is no plain file." in text
