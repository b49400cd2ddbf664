"""Words changes to calendar files. An edit touches the lines it is about; all others stay as they are."""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar import rules
from specialists._calendar.draft import Form, Wish, form_in, moved, needs_zone, rule_lines
from specialists._calendar.expand import Occurrence, main_of
from specialists._calendar.ics_lines import (
    Block,
    blocks,
    changed,
    components,
    content_lines,
    escaped,
    folded,
    line_end,
    own,
    spliced,
)
from specialists._calendar.ics_read import Event, File
from specialists._calendar.times import Moment, at, day_of, description, like

_OF_SERIES = ("RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID")


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
        self._pieces: dict[int, tuple[int, bytes]] = {}
        self._zone_wanted: int | None = None

    def whole(self, wish: Wish) -> bytes:
        """The file with an event changed that happens once."""
        event = self._events[0]
        start, end = moved(event.start, event.end, wish, self._zone)
        changes = self._texts(wish)
        if wish.moves or wish.repeat:
            form = self._form_for(event, start)
            kind = start if form.model is start else event.start
            start, end = like(at(start, self._zone), kind), like(at(end, self._zone), kind)
            changes |= self._times(form, start, end)
            if wish.repeat:
                changes["RRULE"] = rule_lines(wish.repeat, start)
        self._replace(event, changes)
        return self._file()

    def once(self, occurrence: Occurrence, wish: Wish) -> bytes:
        """The file with one occurrence of a series changed."""
        assert occurrence.original is not None
        start, end = moved(occurrence.start, occurrence.end, wish, self._zone)
        form = self._form_for(occurrence.event, start)
        kind = start if form.model is start else occurrence.event.start
        times = self._times(form, like(at(start, self._zone), kind), like(at(end, self._zone), kind))
        event = occurrence.event
        if event.instead_of is not None and not event.onward:
            self._replace(event, self._texts(wish) | (times if wish.moves else {}))
            return self._file()
        if event.onward and self._same(event.instead_of, occurrence.original):
            raise Refused("all later occurrences take after this one, so it cannot be changed alone; use scope=series")
        main = self._form(main_of(self._events) or event)
        block = self._block(event)
        original = like(at(occurrence.original, self._zone), main.model)
        changes = self._texts(wish) | times | {name: [] for name in _OF_SERIES}
        changes["RECURRENCE-ID"] = [main.line("RECURRENCE-ID", original)]
        copy = changed(self._lines, block, changes | self._stamped(event))
        self._pieces[block.last + 1] = (block.last + 1, copy)
        return self._file()

    def series(self, occurrence: Occurrence, wish: Wish) -> bytes:
        """The file with a whole series changed.

        Args:
            occurrence: the one that the new times are said of; all others move as far.
        """
        main = main_of(self._events)
        if main is None:
            raise Refused("the series itself is not in this calendar, only changes to it; use scope=this")
        start, end = moved(occurrence.start, occurrence.end, wish, self._zone)
        if wish.moves and isinstance(start, datetime) is not isinstance(main.start, datetime):
            raise Refused("a series of times cannot become one of whole days, or back; delete it and make a new one")
        shift, stretch = self._shift(main, occurrence, start, end) if wish.moves else (timedelta(), timedelta())
        for event in self._events:
            self._replace(event, self._of_series(event, main, shift, stretch, wish))
        return self._file()

    def without(self, occurrence: Occurrence) -> bytes | None:
        """The file without one occurrence of a series; None when nothing else is in it."""
        assert occurrence.original is not None
        event, main = occurrence.event, main_of(self._events)
        if len(self._events) == 1 and main is None:
            return self.nothing()
        if event.instead_of is not None and not event.onward:
            self._drop(self._block(event))
        if main is not None:
            form, block = self._form(main), self._block(main)
            original = like(at(occurrence.original, self._zone), main.start)
            known = [line.text for line in own(self._lines, block) if line.name == "EXDATE"]
            self._replace(main, {"EXDATE": [*known, form.line("EXDATE", original)]})
        return self._file()

    def nothing(self) -> bytes | None:
        """The file without the event; None when nothing else is in it."""
        for event in self._events:
            self._drop(self._block(event))
        dropped = {self._block(event).first for event in self._events}
        others = [b for top in self._tops for b in top.inner if b.name != "VTIMEZONE" and b.first not in dropped]
        return self._file() if others else None

    def _shift(self, main: Event, occurrence: Occurrence, start: Moment, end: Moment) -> tuple[timedelta, timedelta]:
        """How far all occurrences move on the series' own clocks, and how much longer they take."""
        places = [_wall(like(at(moment, self._zone), main.start)) for moment in (occurrence.start, start)]
        longer = (_wall(end) - _wall(start)) - (_wall(occurrence.end) - _wall(occurrence.start))
        return places[1] - places[0], longer

    def _of_series(
        self, event: Event, main: Event, shift: timedelta, stretch: timedelta, wish: Wish
    ) -> dict[str, Sequence[str]]:
        """What changes in one event of a series; one that differs keeps what it differs in."""
        same = {"SUMMARY": event.title == main.title, "LOCATION": event.location == main.location}
        same["DESCRIPTION"] = event.description == main.description
        changes = {name: lines for name, lines in self._texts(wish).items() if event is main or same[name]}
        in_place = event.instead_of is None or event.onward or self._same(event.instead_of, event.start)
        if (shift or stretch) and in_place:
            start = _plus(event.start, shift)
            changes |= self._times(self._form(event), start, _plus(event.end, shift + stretch))
        if shift and event.instead_of is not None:
            changes["RECURRENCE-ID"] = [self._replaced_line(event, main, shift)]
        if event is main and (shift or wish.repeat):
            changes |= self._repeats(main, shift, wish.repeat)
        return changes

    def _replaced_line(self, event: Event, main: Event, shift: timedelta) -> str:
        assert event.instead_of is not None
        line = self._form(main).line("RECURRENCE-ID", like(at(_plus(event.instead_of, shift), self._zone), main.start))
        return line.replace("RECURRENCE-ID", "RECURRENCE-ID;RANGE=THISANDFUTURE", 1) if event.onward else line

    def _repeats(self, main: Event, shift: timedelta, repeat: str | None) -> dict[str, Sequence[str]]:
        """The rule and the dates of a series that moves."""
        start, form = _plus(main.start, shift), self._form(main)
        if any(isinstance(added, tuple) for added in main.added):
            raise Refused("the series has extra dates with lengths of their own; change its occurrences one by one")
        days = [m for m in main.removed if isinstance(m, datetime) is not isinstance(main.start, datetime)]
        times = [like(at(_plus(m, shift), self._zone), main.start) for m in main.removed if m not in days]
        added = [like(at(_plus(m, shift), self._zone), main.start) for m in main.added if not isinstance(m, tuple)]
        moved_days = [day_of(_plus(m, timedelta(days=(day_of(start) - day_of(main.start)).days))) for m in days]
        return {
            "RRULE": self._rules(main, start, shift, repeat),
            "EXDATE": [form.line("EXDATE", m) for m in times] + [f"EXDATE;VALUE=DATE:{d:%Y%m%d}" for d in moved_days],
            "RDATE": [form.line("RDATE", moment) for moment in added],
        }

    def _rules(self, main: Event, start: Moment, shift: timedelta, repeat: str | None) -> list[str]:
        if repeat:
            return rule_lines(repeat, start)
        try:
            return [f"RRULE:{rules.moved(rule, main.start, shift)}" for rule in main.rules]
        except rules.BadRule:
            rule = "; ".join(main.rules)[:100]
            raise Refused(f"the series repeats by {rule}, which does not fit the new start; give repeat too") from None

    def _form(self, event: Event) -> Form:
        """How the event's own start is written."""
        line = next(line for line in own(self._lines, self._block(event)) if line.name == "DTSTART")
        head, value = _split(line.text)
        return Form(head, event.start, utc=value.strip().upper().endswith("Z"))

    def _form_for(self, event: Event, start: Moment) -> Form:
        """The event's own form, or the user's where a day becomes a time or the other way."""
        if isinstance(start, datetime) is isinstance(event.start, datetime):
            return self._form(event)
        form = form_in(self._zone, start)
        if needs_zone(form):
            self._zone_wanted = start.year
        return form

    def _times(self, form: Form, start: Moment, end: Moment) -> dict[str, Sequence[str]]:
        return {"DTSTART": [form.line("DTSTART", start)], "DTEND": [form.line("DTEND", end)], "DURATION": []}

    def _texts(self, wish: Wish) -> dict[str, Sequence[str]]:
        return {name: [f"{name}:{escaped(text)}"] if text else [] for name, text in wish.texts.items()}

    def _stamped(self, event: Event) -> dict[str, Sequence[str]]:
        return {
            "DTSTAMP": [f"DTSTAMP:{self._stamp}"],
            "LAST-MODIFIED": [f"LAST-MODIFIED:{self._stamp}"],
            "SEQUENCE": [f"SEQUENCE:{event.sequence + 1}"],
        }

    def _block(self, event: Event) -> Block:
        return self._blocks[event.number]

    def _same(self, one: Moment | None, other: Moment) -> bool:
        return one is not None and at(one, self._zone) == at(other, self._zone)

    def _replace(self, event: Event, changes: dict[str, Sequence[str]]) -> None:
        block = self._block(event)
        if changes:
            piece = changed(self._lines, block, changes | self._stamped(event))
            self._pieces[block.first] = (block.last + 1, piece)

    def _drop(self, block: Block) -> None:
        self._pieces[block.first] = (block.last + 1, b"")

    def _file(self) -> bytes:
        if self._zone_wanted is not None and not self._has_zone():
            end = line_end(self._lines)
            piece = b"".join(folded(line, end) for line in description(self._zone.key, self._zone_wanted))
            first = self._blocks[0].first
            behind, there = self._pieces.get(first, (first, b""))
            self._pieces[first] = (behind, piece + there)
        return spliced(self._lines, self._pieces)

    def _has_zone(self) -> bool:
        described = (line.text for block in components(self._tops, "VTIMEZONE") for line in own(self._lines, block))
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


def _wall(moment: Moment) -> datetime:
    """A moment as its own clocks show it."""
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else datetime.combine(moment, time())


def _plus(moment: Moment, shift: timedelta) -> Moment:
    """Moved on its own clocks."""
    return moment + shift if isinstance(moment, datetime) else moment + timedelta(days=shift.days)
