"""A change to a calendar before it is made, and the preview that a person approves."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from brain import Refused, Result
from specialists._calendar.calendars import CONFLICT_REASON, Resource
from specialists._calendar.expand import Expander, Window, main_of
from specialists._calendar.ics_read import Event
from specialists._calendar.listing import MAX_PLACE, Entry, format_when, one_line, title
from specialists._calendar.rules import LAST_YEAR, BadRule, parse_rule
from specialists._calendar.times import Moment, at

MAX_COUNT_WORK = 10_000
"""Steps that it may take to count the occurrences of a series; far less than a second."""
PLAN_DIFFERS = "it would now do something else than what was approved; ask again, with full dates"
_MARGIN = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that can be made.

    Attributes:
        before: the event as it is; None for a new one.
        after: as it will be; None for one that is removed.
        file: what its file will be; None where that is removed.
        is_whole_event: whether all of a series is meant, not one occurrence.
    """

    before: Entry | None
    after: Entry | None
    file: Resource | None
    is_whole_event: bool

    @property
    def version(self) -> str:
        """Of the file that is changed."""
        return self.before.resource.version if self.before else ""

    def preview(self) -> Result:
        """What a person is told, with the state of the file in which it is true."""
        entry = self.before or self.after
        assert entry is not None
        verb, where = (
            ("Change", "in") if self.before and self.after else ("Delete", "from") if self.before else ("Add", "to")
        )
        calendar = _quote(one_line(entry.resource.calendar.name, 40))
        head = f"{verb} {self._scope(entry)} {where} calendar {calendar}, times in {entry.zone.key}:"
        return Result("\n".join([head, _line(entry), *self._changes()]), data=self.version)

    def check(self, approved: Result | None) -> None:
        """Looks whether this is what a person approved, if one did.

        Raises:
            Refused: when it is not.
        """
        if approved is None:
            return
        if approved.data != self.version:
            raise Refused(CONFLICT_REASON)
        if approved.text != self.preview().text:
            raise Refused(PLAN_DIFFERS)

    def _scope(self, entry: Entry) -> str:
        if not entry.repeats:
            return "one event"
        return (
            f"a whole series ({count_occurrences(_series(entry), entry.zone)})"
            if self.is_whole_event
            else "one occurrence of a series"
        )

    def _changes(self) -> list[str]:
        if self.before is None or self.after is None:
            return []
        lines = [f"becomes {_line(self.after)}"]
        if self.before.occurrence.event.description != self.after.occurrence.event.description:
            lines.append("with another description")
        old_rule, new_rule = _rules(self.before), _rules(self.after)
        if old_rule != new_rule and (self.is_whole_event or not old_rule):
            lines.append(f"repeated by {new_rule}" if new_rule else "which is repeated no more")
        return lines


def count_occurrences(events: Sequence[Event], zone: ZoneInfo) -> str:
    """How often a series happens, in words."""
    try:
        rules = [(event, parse_rule(text, event.start)) for event in events for text in event.rules]
    except BadRule:
        return "by a rule that cannot be followed"
    if any(rule.last.year >= LAST_YEAR for _, rule in rules):
        return "without end"
    if sum(rule.work(event.start, rule.last) for event, rule in rules) > MAX_COUNT_WORK:
        return "more occurrences than can be counted"
    moments = [moment for event in events for moment in _moments(event)] + [rule.last for _, rule in rules]
    times = [at(moment, zone) for moment in moments]
    expander = Expander(Window(min(times) - _MARGIN, max(times) + _MARGIN, zone))
    count = sum(1 for _ in expander.series_occurrences(events))
    if expander.left_out:
        return "more occurrences than can be counted"
    return f"{count} occurrence{'' if count == 1 else 's'}"


def _moments(event: Event) -> list[Moment]:
    """When it happens besides its rules."""
    return [event.start, *(extra[0] if isinstance(extra, tuple) else extra for extra in event.extra_dates)]


def _series(entry: Entry) -> Sequence[Event]:
    return entry.resource.file.series[entry.uid]


def _rules(entry: Entry) -> str:
    main = main_of(_series(entry))
    return one_line("; ".join(main.rules), 200) if main else ""


def _line(entry: Entry) -> str:
    event = entry.occurrence.event
    place = f" @ {_quote(one_line(event.location, MAX_PLACE))}" if event.location else ""
    return f"{format_when(entry.occurrence, entry.zone)} {_quote(title(event.title))}{place}"


def _quote(text: str) -> str:
    """A stranger's words, of which one sees where they end."""
    return json.dumps(text, ensure_ascii=False)
