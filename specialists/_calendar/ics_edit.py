"""Edits calendar files. An edit replaces only the lines that it changes; all others stay byte for byte.

icalendar can also write files. But it reformats every line, and it drops what it cannot parse.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar import rules
from specialists._calendar.draft import EventDraft, TimeFormat, needs_vtimezone, new_times, rule_lines, time_format_for
from specialists._calendar.expand import Occurrence, main_of
from specialists._calendar.ics_lines import (
    Block,
    blocks,
    changed_component,
    components,
    content_lines,
    escape,
    fold,
    line_end,
    own_properties,
    replace_lines,
)
from specialists._calendar.ics_read import Event, File
from specialists._calendar.times import Moment, as_kind_of, at, day_of, vtimezone_lines

_SERIES_PROPERTIES = ("RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID")


class Edit:
    """A change to one event in a file.

    Args:
        file: as it was read.
        uid: which event.
        zone: the user's.
        now: when, for the record that the format wants.
    """

    def __init__(self, file: File, uid: str, zone: ZoneInfo, now: datetime) -> None:
        self._events = file.series[uid]
        self._zone = zone
        self._stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        self._lines = content_lines(file.data)
        self._tops = blocks(line.text for line in self._lines)
        self._blocks = list(components(self._tops, "VEVENT"))
        self._replacements: dict[int, tuple[int, bytes]] = {}
        self._zone_year: int | None = None

    def change_event(self, draft: EventDraft) -> bytes:
        """The file with an event changed that happens once."""
        event = self._events[0]
        start, end = new_times(event.start, event.end, draft, self._zone)
        changes = self._texts(draft)
        if draft.changes_time or draft.repeat:
            time_format = self._format_for(event, start)
            kind = start if time_format.model is start else event.start
            start, end = as_kind_of(at(start, self._zone), kind), as_kind_of(at(end, self._zone), kind)
            changes |= self._times(time_format, start, end)
            if draft.repeat:
                changes["RRULE"] = rule_lines(draft.repeat, start)
        self._replace(event, changes)
        return self._result()

    def change_occurrence(self, occurrence: Occurrence, draft: EventDraft) -> bytes:
        """The file with one occurrence of a series changed."""
        assert occurrence.original is not None
        start, end = new_times(occurrence.start, occurrence.end, draft, self._zone)
        time_format = self._format_for(occurrence.event, start)
        kind = start if time_format.model is start else occurrence.event.start
        times = self._times(time_format, as_kind_of(at(start, self._zone), kind), as_kind_of(at(end, self._zone), kind))
        event = occurrence.event
        if event.recurrence_id is not None and not event.this_and_future:
            self._replace(event, self._texts(draft) | (times if draft.changes_time else {}))
            return self._result()
        if event.this_and_future and self._is_same(event.recurrence_id, occurrence.original):
            raise Refused("all later occurrences take after this one, so it cannot be changed alone; use scope=series")
        main = self._format_of(main_of(self._events) or event)
        block = self._block(event)
        original = as_kind_of(at(occurrence.original, self._zone), main.model)
        changes = self._texts(draft) | times | {name: [] for name in _SERIES_PROPERTIES}
        changes["RECURRENCE-ID"] = [main.line("RECURRENCE-ID", original)]
        copy = changed_component(self._lines, block, changes | self._version_stamps(event))
        self._replacements[block.last + 1] = (block.last + 1, copy)
        return self._result()

    def change_series(self, occurrence: Occurrence, draft: EventDraft) -> bytes:
        """The file with a whole series changed.

        Args:
            occurrence: the one that the new times are said of; all others move as far.
        """
        main = main_of(self._events)
        if main is None:
            raise Refused("the series itself is not in this calendar, only changes to it; use scope=this")
        start, end = new_times(occurrence.start, occurrence.end, draft, self._zone)
        if draft.changes_time and isinstance(start, datetime) is not isinstance(main.start, datetime):
            raise Refused("a series of times cannot become one of whole days, or back; delete it and make a new one")
        shift, lengthening = (
            self._shift(main, occurrence, start, end) if draft.changes_time else (timedelta(), timedelta())
        )
        for event in self._events:
            self._replace(event, self._series_changes(event, main, shift, lengthening, draft))
        return self._result()

    def remove_occurrence(self, occurrence: Occurrence) -> bytes | None:
        """The file without one occurrence of a series; None when nothing else is in it."""
        assert occurrence.original is not None
        event, main = occurrence.event, main_of(self._events)
        if len(self._events) == 1 and main is None:
            return self.remove_event()
        if event.recurrence_id is not None and not event.this_and_future:
            self._drop(self._block(event))
        if main is not None:
            time_format, block = self._format_of(main), self._block(main)
            original = as_kind_of(at(occurrence.original, self._zone), main.start)
            known = [line.text for line in own_properties(self._lines, block) if line.name == "EXDATE"]
            self._replace(main, {"EXDATE": [*known, time_format.line("EXDATE", original)]})
        return self._result()

    def remove_event(self) -> bytes | None:
        """The file without the event; None when nothing else is in it."""
        for event in self._events:
            self._drop(self._block(event))
        dropped = {self._block(event).first for event in self._events}
        others = [b for top in self._tops for b in top.inner if b.name != "VTIMEZONE" and b.first not in dropped]
        return self._result() if others else None

    def _shift(self, main: Event, occurrence: Occurrence, start: Moment, end: Moment) -> tuple[timedelta, timedelta]:
        """How far all occurrences move on the series' own clocks, and how much longer they take."""
        places = [_local_time(as_kind_of(at(moment, self._zone), main.start)) for moment in (occurrence.start, start)]
        longer = (_local_time(end) - _local_time(start)) - (_local_time(occurrence.end) - _local_time(occurrence.start))
        return places[1] - places[0], longer

    def _series_changes(
        self, event: Event, main: Event, shift: timedelta, lengthening: timedelta, draft: EventDraft
    ) -> dict[str, Sequence[str]]:
        """What changes in one event of a series; one that differs keeps what it differs in."""
        is_same = {"SUMMARY": event.title == main.title, "LOCATION": event.location == main.location}
        is_same["DESCRIPTION"] = event.description == main.description
        changes = {name: lines for name, lines in self._texts(draft).items() if event is main or is_same[name]}
        is_in_place = (
            event.recurrence_id is None or event.this_and_future or self._is_same(event.recurrence_id, event.start)
        )
        if (shift or lengthening) and is_in_place:
            start = _shifted(event.start, shift)
            changes |= self._times(self._format_of(event), start, _shifted(event.end, shift + lengthening))
        if shift and event.recurrence_id is not None:
            changes["RECURRENCE-ID"] = [self._replaced_line(event, main, shift)]
        if event is main and (shift or draft.repeat):
            changes |= self._repeats(main, shift, draft.repeat)
        return changes

    def _replaced_line(self, event: Event, main: Event, shift: timedelta) -> str:
        assert event.recurrence_id is not None
        line = self._format_of(main).line(
            "RECURRENCE-ID", as_kind_of(at(_shifted(event.recurrence_id, shift), self._zone), main.start)
        )
        return line.replace("RECURRENCE-ID", "RECURRENCE-ID;RANGE=THISANDFUTURE", 1) if event.this_and_future else line

    def _repeats(self, main: Event, shift: timedelta, repeat: str | None) -> dict[str, Sequence[str]]:
        """The rule and the dates of a series that moves."""
        start, time_format = _shifted(main.start, shift), self._format_of(main)
        if any(isinstance(added, tuple) for added in main.extra_dates):
            raise Refused("the series has extra dates with lengths of their own; change its occurrences one by one")
        days = [m for m in main.excluded_dates if isinstance(m, datetime) is not isinstance(main.start, datetime)]
        times = [
            as_kind_of(at(_shifted(m, shift), self._zone), main.start) for m in main.excluded_dates if m not in days
        ]
        added = [
            as_kind_of(at(_shifted(m, shift), self._zone), main.start)
            for m in main.extra_dates
            if not isinstance(m, tuple)
        ]
        moved_days = [day_of(_shifted(m, timedelta(days=(day_of(start) - day_of(main.start)).days))) for m in days]
        return {
            "RRULE": self._rules(main, start, shift, repeat),
            "EXDATE": [time_format.line("EXDATE", m) for m in times]
            + [f"EXDATE;VALUE=DATE:{d:%Y%m%d}" for d in moved_days],
            "RDATE": [time_format.line("RDATE", moment) for moment in added],
        }

    def _rules(self, main: Event, start: Moment, shift: timedelta, repeat: str | None) -> list[str]:
        if repeat:
            return rule_lines(repeat, start)
        try:
            return [f"RRULE:{rules.shift_rule(rule, main.start, shift)}" for rule in main.rules]
        except rules.BadRule:
            rule = "; ".join(main.rules)[:100]
            raise Refused(f"the series repeats by {rule}, which does not fit the new start; give repeat too") from None

    def _format_of(self, event: Event) -> TimeFormat:
        """How the event's own start is written."""
        line = next(line for line in own_properties(self._lines, self._block(event)) if line.name == "DTSTART")
        head, value = _split(line.text)
        return TimeFormat(head, event.start, utc=value.strip().upper().endswith("Z"))

    def _format_for(self, event: Event, start: Moment) -> TimeFormat:
        """The event's own form, or the user's where a day becomes a time or the other way."""
        if isinstance(start, datetime) is isinstance(event.start, datetime):
            return self._format_of(event)
        time_format = time_format_for(self._zone, start)
        if needs_vtimezone(time_format):
            self._zone_year = start.year
        return time_format

    def _times(self, time_format: TimeFormat, start: Moment, end: Moment) -> dict[str, Sequence[str]]:
        return {
            "DTSTART": [time_format.line("DTSTART", start)],
            "DTEND": [time_format.line("DTEND", end)],
            "DURATION": [],
        }

    def _texts(self, draft: EventDraft) -> dict[str, Sequence[str]]:
        return {name: [f"{name}:{escape(text)}"] if text else [] for name, text in draft.texts.items()}

    def _version_stamps(self, event: Event) -> dict[str, Sequence[str]]:
        return {
            "DTSTAMP": [f"DTSTAMP:{self._stamp}"],
            "LAST-MODIFIED": [f"LAST-MODIFIED:{self._stamp}"],
            "SEQUENCE": [f"SEQUENCE:{event.sequence + 1}"],
        }

    def _block(self, event: Event) -> Block:
        return self._blocks[event.number]

    def _is_same(self, one: Moment | None, other: Moment) -> bool:
        return one is not None and at(one, self._zone) == at(other, self._zone)

    def _replace(self, event: Event, changes: dict[str, Sequence[str]]) -> None:
        block = self._block(event)
        if changes:
            replacement = changed_component(self._lines, block, changes | self._version_stamps(event))
            self._replacements[block.first] = (block.last + 1, replacement)

    def _drop(self, block: Block) -> None:
        self._replacements[block.first] = (block.last + 1, b"")

    def _result(self) -> bytes:
        if self._zone_year is not None and not self._has_zone():
            newline = line_end(self._lines)
            vtimezone = b"".join(fold(line, newline) for line in vtimezone_lines(self._zone.key, self._zone_year))
            first = self._blocks[0].first
            end, event = self._replacements.get(first, (first, b""))
            self._replacements[first] = (end, vtimezone + event)
        return replace_lines(self._lines, self._replacements)

    def _has_zone(self) -> bool:
        described = (
            line.text for block in components(self._tops, "VTIMEZONE") for line in own_properties(self._lines, block)
        )
        return f"TZID:{self._zone.key}" in described


def _split(text: str) -> tuple[str, str]:
    """A date property's parameters, as they stand, and its value."""
    quoted = False
    for number, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif character == ":" and not quoted:
            name_end = min(n for n in (text.find(";"), number) if n >= 0)
            return text[name_end:number], text[number + 1 :]
    return "", ""


def _local_time(moment: Moment) -> datetime:
    """A moment as its own clocks show it."""
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else datetime.combine(moment, time())


def _shifted(moment: Moment, shift: timedelta) -> Moment:
    """Moved on its own clocks."""
    return moment + shift if isinstance(moment, datetime) else moment + timedelta(days=shift.days)
