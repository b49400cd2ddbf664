"""A change to a calendar before it is made, and how a person is told of it who is to approve it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from brain import Refused, Result
from specialists._calendar.calendars import CHANGED, Resource
from specialists._calendar.expand import Happening, Window, main_of
from specialists._calendar.ics_read import Event
from specialists._calendar.listing import PLACE_MOST, Entry, one_line, title, when
from specialists._calendar.rules import LAST_YEAR, BadRule, read
from specialists._calendar.times import Moment, at

COUNTED_MOST = 10_000
"""Steps that it may take to count the occurrences of a series; far less than a second."""
OTHERWISE = "it would now do something else than what was approved; ask again, with full dates"
_AROUND = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that can be made.

    Attributes:
        was: the event as it is; None for a new one.
        becomes: as it will be; None for one that is removed.
        file: what its file will be; None where that is removed.
        whole: whether all of a series is meant, not one occurrence.
    """

    was: Entry | None
    becomes: Entry | None
    file: Resource | None
    whole: bool

    @property
    def version(self) -> str:
        """Of the file that is changed."""
        return self.was.resource.version if self.was else ""

    def preview(self) -> Result:
        """What a person is told, with the state of the file in which it is true."""
        entry = self.was or self.becomes
        assert entry is not None
        verb, where = (
            ("Change", "in") if self.was and self.becomes else ("Delete", "from") if self.was else ("Add", "to")
        )
        calendar = _quoted(one_line(entry.resource.calendar.name, 40))
        head = f"{verb} {self._what(entry)} {where} calendar {calendar}, times in {entry.zone.key}:"
        return Result("\n".join([head, _line(entry), *self._changes()]), data=self.version)

    def check(self, approved: Result | None) -> None:
        """Looks whether this is what a person approved, if one did.

        Raises:
            Refused: when it is not.
        """
        if approved is None:
            return
        if approved.data != self.version:
            raise Refused(CHANGED)
        if approved.text != self.preview().text:
            raise Refused(OTHERWISE)

    def _what(self, entry: Entry) -> str:
        if not entry.repeats:
            return "one event"
        return (
            f"a whole series ({how_many(_series(entry), entry.zone)})" if self.whole else "one occurrence of a series"
        )

    def _changes(self) -> list[str]:
        if self.was is None or self.becomes is None:
            return []
        lines = [f"becomes {_line(self.becomes)}"]
        if self.was.occurrence.event.description != self.becomes.occurrence.event.description:
            lines.append("with another description")
        before, behind = _rules(self.was), _rules(self.becomes)
        if before != behind and (self.whole or not before):
            lines.append(f"repeated by {behind}" if behind else "which is repeated no more")
        return lines


def how_many(events: Sequence[Event], zone: ZoneInfo) -> str:
    """How often a series happens, in words."""
    try:
        rules = [(event, read(text, event.start)) for event in events for text in event.rules]
    except BadRule:
        return "by a rule that cannot be followed"
    if any(rule.last.year >= LAST_YEAR for _, rule in rules):
        return "without end"
    if sum(rule.work(event.start, rule.last) for event, rule in rules) > COUNTED_MOST:
        return "more occurrences than can be counted"
    moments = [moment for event in events for moment in _moments(event)] + [rule.last for _, rule in rules]
    times = [at(moment, zone) for moment in moments]
    happening = Happening(Window(min(times) - _AROUND, max(times) + _AROUND, zone))
    count = sum(1 for _ in happening.of_one(events))
    if happening.left_out:
        return "more occurrences than can be counted"
    return f"{count} occurrence{'' if count == 1 else 's'}"


def _moments(event: Event) -> list[Moment]:
    """When it happens besides its rules."""
    return [event.start, *(added[0] if isinstance(added, tuple) else added for added in event.added)]


def _series(entry: Entry) -> Sequence[Event]:
    return entry.resource.file.series[entry.uid]


def _rules(entry: Entry) -> str:
    main = main_of(_series(entry))
    return one_line("; ".join(main.rules), 200) if main else ""


def _line(entry: Entry) -> str:
    event = entry.occurrence.event
    place = f" @ {_quoted(one_line(event.location, PLACE_MOST))}" if event.location else ""
    return f"{when(entry.occurrence, entry.zone)} {_quoted(title(event.title))}{place}"


def _quoted(text: str) -> str:
    """A stranger's words, of which one sees where they end."""
    return json.dumps(text, ensure_ascii=False)
