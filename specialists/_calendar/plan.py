"""A planned change to a calendar, and its preview for approval."""

import json
from dataclasses import dataclass
from datetime import timedelta

from brain import Refused, Result
from specialists._calendar.calendars import CONFLICT, Resource
from specialists._calendar.expand import Expander, Window
from specialists._calendar.ics_read import find_main
from specialists._calendar.listing import MAX_PLACE, Entry, format_title
from specialists._calendar.rules import LAST_YEAR, BadRule, parse_rule
from specialists._calendar.zones import localize
from specialists._kit.text import one_line

MAX_COUNT_WORK = 10_000
"""Maximum work for counting the occurrences of a series; it takes far less than a second."""
_MARGIN = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned change.

    Attributes:
        before: current state of the event; None for a new event.
        after: new state of the event; None if it is removed.
        file: new state of the file; None if it is removed.
        is_whole_event: False for one occurrence of a series.
    """

    before: Entry | None
    after: Entry | None
    file: Resource | None
    is_whole_event: bool

    @property
    def version(self) -> str:
        """Current version of the changed file."""
        return self.before.resource.version if self.before else ""

    def preview(self) -> Result:
        """Return the description of the change, with the file version to which it applies."""
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
        lines = [f"{verb} {scope} {where} calendar {calendar}, times in {entry.zone.key}:"]
        lines.append(_format_entry(entry, is_whole=entry is self.after))
        if self.before and self.after:
            lines.append(f"becomes {_format_entry(self.after, is_whole=True)}")
        old, new = (one.occurrence.event.description if one else "" for one in (self.before, self.after))
        if self.after and old != new:
            lines.append(f"with the description {_quote(_whole_line(new))}" if new else "without a description")
        if self.before and self.after:
            old_rule, new_rule = _format_rules(self.before), _format_rules(self.after)
            if old_rule != new_rule and (self.is_whole_event or not old_rule):
                lines.append(f"repeating by {new_rule}" if new_rule else "without repeating")
        return Result("\n".join(lines), data=self.version)

    def check(self, approved: Result | None) -> None:
        """Check that this is the approved change, if approval was required.

        Raises:
            Refused: if the change or the file differs.
        """
        if approved is None:
            return
        if approved.data != self.version:
            raise Refused(*CONFLICT)
        if approved.text != self.preview().text:
            raise Refused("the change now differs from the approved one", "call again with full dates")


def count_occurrences(entry: Entry) -> str:
    """Return the number of occurrences of a series as text."""
    events, zone = entry.series, entry.zone
    try:
        rules = [(event, parse_rule(text, event.start)) for event in events for text in event.rules]
    except BadRule:
        return "unsupported repeat rule"
    if any(rule.last.year >= LAST_YEAR for _, rule in rules):
        return "no end date"
    if sum(rule.work(event.start, rule.last) for event, rule in rules) > MAX_COUNT_WORK:
        return "too many occurrences to count"
    moments = [rule.last for _, rule in rules]
    for event in events:
        moments += [event.start, *(extra[0] if isinstance(extra, tuple) else extra for extra in event.extra_dates)]
    times = [localize(moment, zone) for moment in moments]
    expander = Expander(Window(min(times) - _MARGIN, max(times) + _MARGIN, zone))
    count = sum(1 for _ in expander.series_occurrences(events))
    if expander.left_out:
        return "too many occurrences to count"
    return f"{count} occurrence{'' if count == 1 else 's'}"


def _format_rules(entry: Entry) -> str:
    main = find_main(entry.series)
    return _whole_line("; ".join(main.rules)) if main else ""


def _format_entry(entry: Entry, *, is_whole: bool) -> str:
    """Return an event on one line. A person approves the whole of a new one, and recognizes an old one by its start."""
    event = entry.occurrence.event
    title, location = format_title(event), one_line(event.location, MAX_PLACE)
    if is_whole:
        title, location = _whole_line(event.title) or title, _whole_line(event.location)
    return f"{entry.when()} {_quote(title)}{f' @ {_quote(location)}' if location else ''}"


def _whole_line(text: str) -> str:
    return one_line(text, len(text) + 1)


def _quote(text: str) -> str:
    """Return untrusted text in quotes, with its own quotes escaped."""
    return json.dumps(text, ensure_ascii=False)
