"""A change to a calendar before it is made, and the preview that a person approves."""

import json
from dataclasses import dataclass
from datetime import timedelta

from brain import Refused, Result
from specialists._calendar.calendars import CONFLICT_REASON, Resource
from specialists._calendar.expand import Expander, Window, find_main
from specialists._calendar.listing import MAX_PLACE, Entry, format_title, one_line
from specialists._calendar.rules import LAST_YEAR, BadRule, parse_rule
from specialists._calendar.zones import localize

MAX_COUNT_WORK = 10_000
"""Steps for counting the occurrences of a series; they take far less than a second."""
_MARGIN = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that can be made.

    Attributes:
        before: the event as it is; None for a new one.
        after: the event as it will be; None for a removal.
        file: the file as it will be; None if it is removed.
        is_whole_event: False for one occurrence of a series.
    """

    before: Entry | None
    after: Entry | None
    file: Resource | None
    is_whole_event: bool

    @property
    def version(self) -> str:
        """Version of the file that is changed."""
        return self.before.resource.version if self.before else ""

    def preview(self) -> Result:
        """Return what a person reads, with the version of the file for which it is true."""
        entry = self.before or self.after
        assert entry is not None
        verb, where = ("Add", "to")
        if self.before:
            verb, where = ("Change", "in") if self.after else ("Delete", "from")
        scope = "one event"
        if entry.repeats:
            scope = (
                f"a whole series ({count_occurrences(entry)})" if self.is_whole_event else "one occurrence of a series"
            )
        calendar = _quote(one_line(entry.resource.calendar.name, 40))
        lines = [f"{verb} {scope} {where} calendar {calendar}, times in {entry.zone.key}:", _line(entry)]
        if self.before and self.after:
            lines.append(f"becomes {_line(self.after)}")
            if self.before.occurrence.event.description != self.after.occurrence.event.description:
                lines.append("with another description")
            old_rule, new_rule = _rules(self.before), _rules(self.after)
            if old_rule != new_rule and (self.is_whole_event or not old_rule):
                lines.append(f"repeated by {new_rule}" if new_rule else "which is repeated no more")
        return Result("\n".join(lines), data=self.version)

    def check(self, approved: Result | None) -> None:
        """Check that this is what a person approved, if one did.

        Raises:
            Refused: if it is not.
        """
        if approved is None:
            return
        if approved.data != self.version:
            raise Refused(CONFLICT_REASON)
        if approved.text != self.preview().text:
            raise Refused("it would now do something else than what was approved; ask again, with full dates")


def count_occurrences(entry: Entry) -> str:
    """Return the number of occurrences of a series in words."""
    events, zone = entry.series, entry.zone
    try:
        rules = [(event, parse_rule(text, event.start)) for event in events for text in event.rules]
    except BadRule:
        return "by a rule that cannot be followed"
    if any(rule.last.year >= LAST_YEAR for _, rule in rules):
        return "without end"
    if sum(rule.work(event.start, rule.last) for event, rule in rules) > MAX_COUNT_WORK:
        return "more occurrences than can be counted"
    moments = [rule.last for _, rule in rules]
    for event in events:
        moments += [event.start, *(extra[0] if isinstance(extra, tuple) else extra for extra in event.extra_dates)]
    times = [localize(moment, zone) for moment in moments]
    expander = Expander(Window(min(times) - _MARGIN, max(times) + _MARGIN, zone))
    count = sum(1 for _ in expander.series_occurrences(events))
    if expander.left_out:
        return "more occurrences than can be counted"
    return f"{count} occurrence{'' if count == 1 else 's'}"


def _rules(entry: Entry) -> str:
    main = find_main(entry.series)
    return one_line("; ".join(main.rules), 200) if main else ""


def _line(entry: Entry) -> str:
    event = entry.occurrence.event
    place = f" @ {_quote(one_line(event.location, MAX_PLACE))}" if event.location else ""
    return f"{entry.when()} {_quote(format_title(event))}{place}"


def _quote(text: str) -> str:
    """Return a stranger's words with visible ends."""
    return json.dumps(text, ensure_ascii=False)
