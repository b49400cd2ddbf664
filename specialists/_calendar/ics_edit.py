"""Edit calendar files. An edit replaces only the lines that it changes and keeps all others byte for byte.

icalendar can write files too, but it reformats every line and drops lines that it cannot parse.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar import rules
from specialists._calendar.draft import EventDraft, TimeFormat, choose_time_format, format_rule, resolve_times
from specialists._calendar.expand import Occurrence
from specialists._calendar.ics_lines import (
    Block,
    Changes,
    edit_component,
    find_components,
    find_line_end,
    fold,
    list_properties,
    parse_blocks,
    replace_lines,
    split_lines,
)
from specialists._calendar.ics_read import Event, File, find_main
from specialists._calendar.occurrences import NO_SERIES
from specialists._calendar.zones import (
    Moment,
    build_vtimezone,
    convert_like,
    localize,
    shift_moment,
    to_date,
    to_local_time,
)

_DATE_PROPERTY = re.compile(r'[^;:]*((?:"[^"]*"|[^":])*):(.*)', re.DOTALL)
_SERIES_PROPERTIES = ("RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID")


class Edit:
    """A change to one event in a file.

    Args:
        file: the current file.
        uid: UID of the event.
        zone: the user's time zone.
        now: time of the change, for DTSTAMP and LAST-MODIFIED.
    """

    def __init__(self, file: File, uid: str, zone: ZoneInfo, now: datetime) -> None:
        self._events = file.series[uid]
        self._zone = zone
        self._stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        self._lines = split_lines(file.data)
        self._tops = parse_blocks(line.text for line in self._lines)
        self._blocks = list(find_components(self._tops, "VEVENT"))
        self._replacements: dict[int, tuple[int, bytes]] = {}
        self._zone_year: int | None = None

    def change_event(self, draft: EventDraft) -> bytes:
        """Return the file with a single event changed."""
        event = self._events[0]
        changes = dict[str, Sequence[str]](draft.text_lines)
        start, times = self._new_times(event, event.start, event.end, draft)
        if draft.changes_time or draft.repeat:
            changes |= times
            if draft.repeat:
                changes["RRULE"] = format_rule(draft.repeat, start)
        self._replace(event, changes)
        return self._result()

    def change_occurrence(self, occurrence: Occurrence, draft: EventDraft) -> bytes:
        """Return the file with one occurrence of a series changed."""
        assert occurrence.original is not None
        event = occurrence.event
        _, times = self._new_times(event, occurrence.start, occurrence.end, draft)
        if event.recurrence_id is not None and not event.this_and_future:
            self._replace(event, {**draft.text_lines, **(times if draft.changes_time else {})})
            return self._result()
        if event.this_and_future and self._is_same(event.recurrence_id, occurrence.original):
            raise Refused("all later occurrences depend on this one", "use scope=series")
        main = self._format_of(find_main(self._events) or event)
        original = convert_like(main.model, occurrence.original, self._zone)
        changes = {**draft.text_lines, **times, **{name: [] for name in _SERIES_PROPERTIES}}
        changes["RECURRENCE-ID"] = [main.line("RECURRENCE-ID", original)]
        block = self._block(event)
        copy = edit_component(self._lines, block, changes | self._version_stamps(event))
        self._replacements[block.last + 1] = (block.last + 1, copy)
        return self._result()

    def change_series(self, occurrence: Occurrence, draft: EventDraft) -> bytes:
        """Return the file with a whole series changed.

        Args:
            occurrence: the occurrence to which the draft applies; all others move by the same amount.
        """
        main = find_main(self._events)
        if main is None:
            raise Refused(*NO_SERIES)
        start, end = resolve_times(occurrence.start, occurrence.end, draft, self._zone)
        shift = lengthening = timedelta()
        if draft.changes_time:
            if isinstance(start, datetime) is not isinstance(main.start, datetime):
                reason = "a series with times cannot become an all-day series, or vice versa"
                raise Refused(reason, "delete it and create a new one")
            old, new = (convert_like(main.start, moment, self._zone) for moment in (occurrence.start, start))
            shift = to_local_time(new) - to_local_time(old)
            old_length = to_local_time(occurrence.end) - to_local_time(occurrence.start)
            lengthening = to_local_time(end) - to_local_time(start) - old_length
        for event in self._events:
            self._replace(event, self._series_changes(event, main, shift, lengthening, draft))
        return self._result()

    def remove_occurrence(self, occurrence: Occurrence) -> bytes | None:
        """Return the file without one occurrence of a series; None if nothing else remains."""
        assert occurrence.original is not None
        event, main = occurrence.event, find_main(self._events)
        if len(self._events) == 1 and main is None:
            return self.remove_event()
        if event.recurrence_id is not None and not event.this_and_future:
            self._drop(event)
        if main is not None:
            original = convert_like(main.start, occurrence.original, self._zone)
            known = [line.text for line in list_properties(self._lines, self._block(main)) if line.name == "EXDATE"]
            self._replace(main, {"EXDATE": [*known, self._format_of(main).line("EXDATE", original)]})
        return self._result()

    def cancel_occurrence(self, occurrence: Occurrence) -> bytes:
        """Return the file with a changed occurrence marked as cancelled, for a series that another file has."""
        if occurrence.event.this_and_future:
            raise Refused("all later occurrences depend on this one", "tell the user to use the calendar app")
        self._replace(occurrence.event, {"STATUS": ["STATUS:CANCELLED"]})
        return self._result()

    def remove_event(self) -> bytes | None:
        """Return the file without the event; None if nothing else remains."""
        for event in self._events:
            self._drop(event)
        dropped = {self._block(event).first for event in self._events}
        others = [b for top in self._tops for b in top.inner if b.name != "VTIMEZONE" and b.first not in dropped]
        return self._result() if others else None

    def _new_times(
        self, event: Event, start: Moment, end: Moment, draft: EventDraft
    ) -> tuple[Moment, dict[str, Sequence[str]]]:
        """Return the new start and the lines of the new times, in the notation of the event if possible."""
        start, end = resolve_times(start, end, draft, self._zone)
        time_format = self._format_of(event)
        if isinstance(start, datetime) is not isinstance(event.start, datetime):
            time_format = choose_time_format(self._zone, start)
            if time_format.needs_vtimezone:
                self._zone_year = start.year
        start, end = (convert_like(time_format.model, moment, self._zone) for moment in (start, end))
        return start, _format_times(time_format, start, end)

    def _series_changes(
        self, event: Event, main: Event, shift: timedelta, lengthening: timedelta, draft: EventDraft
    ) -> dict[str, Sequence[str]]:
        """Return the changes of one event of a series; a changed occurrence keeps its differences."""
        is_same = {"SUMMARY": event.title == main.title, "LOCATION": event.location == main.location}
        is_same["DESCRIPTION"] = event.description == main.description
        changes: dict[str, Sequence[str]] = {
            name: lines for name, lines in draft.text_lines.items() if event is main or is_same[name]
        }
        is_in_place = event.recurrence_id is None or event.this_and_future
        if (shift or lengthening) and (is_in_place or self._is_same(event.recurrence_id, event.start)):
            start, end = shift_moment(event.start, shift), shift_moment(event.end, shift + lengthening)
            changes |= _format_times(self._format_of(event), start, end)
        if shift and event.recurrence_id is not None:
            original = convert_like(main.start, shift_moment(event.recurrence_id, shift), self._zone)
            name = "RECURRENCE-ID;RANGE=THISANDFUTURE" if event.this_and_future else "RECURRENCE-ID"
            changes["RECURRENCE-ID"] = [self._format_of(main).line(name, original)]
        if event is main and (shift or draft.repeat):
            changes |= self._repeat_changes(main, shift, draft.repeat)
        return changes

    def _repeat_changes(self, main: Event, shift: timedelta, repeat: str | None) -> dict[str, Sequence[str]]:
        """Return the new rule and dates of a series that moves."""
        start, time_format = shift_moment(main.start, shift), self._format_of(main)
        if any(isinstance(added, tuple) for added in main.extra_dates):
            raise Refused("the series has extra dates with other durations", "change its occurrences one by one")

        def moved(name: str, moment: Moment) -> str:
            return time_format.line(name, convert_like(main.start, shift_moment(moment, shift), self._zone))

        days = [m for m in main.excluded_dates if isinstance(m, datetime) is not isinstance(main.start, datetime)]
        whole_days = timedelta(days=(to_date(start) - to_date(main.start)).days)
        if repeat:
            rule = format_rule(repeat, start)
        else:
            try:
                rule = [f"RRULE:{rules.shift_rule(text, main.start, shift)}" for text in main.rules]
            except rules.BadRule:
                old = "; ".join(main.rules)[:100]
                raise Refused(f"the repeat rule {old} does not match the new start", "give repeat too") from None
        return {
            "RRULE": rule,
            "EXDATE": [
                *(moved("EXDATE", moment) for moment in main.excluded_dates if moment not in days),
                *(f"EXDATE;VALUE=DATE:{to_date(shift_moment(day, whole_days)):%Y%m%d}" for day in days),
            ],
            "RDATE": [moved("RDATE", moment) for moment in main.extra_dates if not isinstance(moment, tuple)],
        }

    def _format_of(self, event: Event) -> TimeFormat:
        """Return the notation of the event's start."""
        line = next(line for line in list_properties(self._lines, self._block(event)) if line.name == "DTSTART")
        found = _DATE_PROPERTY.fullmatch(line.text)
        params, value = (found[1], found[2]) if found else ("", "")
        return TimeFormat(params, event.start, utc=value.strip().upper().endswith("Z"))

    def _version_stamps(self, event: Event) -> dict[str, Sequence[str]]:
        return {
            "DTSTAMP": [f"DTSTAMP:{self._stamp}"],
            "LAST-MODIFIED": [f"LAST-MODIFIED:{self._stamp}"],
            "SEQUENCE": [f"SEQUENCE:{event.sequence + 1}"],
        }

    def _block(self, event: Event) -> Block:
        return self._blocks[event.number]

    def _is_same(self, one: Moment | None, other: Moment) -> bool:
        return one is not None and localize(one, self._zone) == localize(other, self._zone)

    def _replace(self, event: Event, changes: Changes) -> None:
        block = self._block(event)
        if changes:
            replacement = edit_component(self._lines, block, {**changes, **self._version_stamps(event)})
            self._replacements[block.first] = (block.last + 1, replacement)

    def _drop(self, event: Event) -> None:
        block = self._block(event)
        self._replacements[block.first] = (block.last + 1, b"")

    def _result(self) -> bytes:
        """Return the file; add a VTIMEZONE if a time now uses the user's zone."""
        names = (
            line.text for b in find_components(self._tops, "VTIMEZONE") for line in list_properties(self._lines, b)
        )
        if self._zone_year is not None and f"TZID:{self._zone.key}" not in names:
            newline = find_line_end(self._lines)
            vtimezone = b"".join(fold(line, newline) for line in build_vtimezone(self._zone.key, self._zone_year))
            first = self._blocks[0].first
            end, event = self._replacements.get(first, (first, b""))
            self._replacements[first] = (end, vtimezone + event)
        return replace_lines(self._lines, self._replacements)


def _format_times(time_format: TimeFormat, start: Moment, end: Moment) -> dict[str, Sequence[str]]:
    lines = [time_format.line("DTSTART", start)], [time_format.line("DTEND", end)]
    return {"DTSTART": lines[0], "DTEND": lines[1], "DURATION": []}
