"""What stands in the answers of foreign protocols for events for which they have no word."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from brain.events import ApprovalRequired, Citation, Event, SpecialistError, SpecialistResult
from brain.protocols.bodies import encode
from brain.settings import ShowResults

PARAMS_SHOWN = 2_000

_TICKS = re.compile("`+")
_TAG = re.compile("<(?=[A-Za-z/!?])")
_TAG_IN_JSON = r"\\u003c"
"""The same character for who reads JSON, and no tag for a page that looks for them in code, too."""
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>()#!|~&]")


@dataclass(frozen=True, slots=True)
class InlineText:
    """The text for an event; empty for most.

    Args:
        show: how the results of specialists appear.
        turn_url: the address of the turn.
        keyed: whether a request needs a key.
    """

    show: ShowResults
    turn_url: str
    keyed: bool = False

    def __call__(self, event: Event) -> str:
        """What stands between the texts of the model, with a blank line before and after."""
        if isinstance(event, ApprovalRequired):
            return f"\n\n{self._asked(event)}\n\n"
        if self.show == "hidden" or not isinstance(event, SpecialistResult | SpecialistError):
            return ""
        return f"\n\n{_block(event) if self.show == 'block' else _details(event)}\n\n"

    def _asked(self, event: ApprovalRequired) -> str:
        """How to approve a call, for who reads the answer: their client has no button for it."""
        key = "-H 'Authorization: Bearer YOUR_KEY' " if self.keyed else ""
        command = (
            f"curl -X POST {self.turn_url}/approvals/{event.call_id} {key}"
            """-H 'Content-Type: application/json' -d '{"approve": true}'"""
        )
        would = f"{event.name} would do this: {_in_line(event.text)}. " if event.text else ""
        shown, is_cut = format_params(event.params, PARAMS_SHOWN)
        params = _span(_TAG.sub(_TAG_IN_JSON, shown))
        whole = f" This is cut, not all that you would approve; to see the whole: `curl {key}{self.turn_url}`."
        return (
            f"{would}{event.name} would be called with {params} and waits for your approval until "
            f"{event.expires_at:%H:%M:%S} UTC.{whole if is_cut else ''} To approve it: {_span(command)}; "
            "to decline, say false."
        )


def _block(event: SpecialistResult | SpecialistError) -> str:
    """The block as it stands in the transcript."""
    if isinstance(event, SpecialistError):
        return f"[SPECIALIST_ERROR: {event.name} failed - {event.reason}]"
    return f"[SPECIALIST_RESULT: {event.name}]\n{event.text}\n[/SPECIALIST_RESULT]"


def _details(event: SpecialistResult | SpecialistError) -> str:
    """A part of a page that can be unfolded. Nothing in it can close it, or is taken for HTML."""
    if isinstance(event, SpecialistError):
        return _folded(f"{event.name} failed", _fenced(event.reason))
    listed = "\n".join(map(_listed, event.citations))
    return _folded(event.name, _fenced(event.text) + (f"\n\n{listed}" if listed else ""))


def _folded(summary: str, content: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>"


def _fenced(text: str) -> str:
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}text\n{_without_tags(text)}\n{fence}"


def _span(text: str) -> str:
    ticks = "`" * (_longest(text) + 1)
    return f"{ticks} {text} {ticks}" if len(ticks) > 1 else f"`{text}`"


def _in_line(text: str) -> str:
    return _span(_without_tags(" ".join(text.split())))


def _listed(citation: Citation) -> str:
    title = _plain(" ".join(citation.title.split()))
    if citation.url is None or not citation.url.startswith(("http://", "https://")):
        return f"- {title}"
    return f"- [{title}]({quote(citation.url, safe=':/?#@!$&*+,;=%~')})"


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _without_tags(text: str) -> str:
    """The opener of each tag becomes its full-width form, as in blocks: some pages look for tags in code, too."""
    return _TAG.sub("＜", text)


def _plain(text: str) -> str:
    """Text in which no character means anything to Markdown or HTML."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text)


SHORTEST = 8
"""Characters of a value that are shown at least."""


def exact(text: str) -> str:
    """The same, with the number of each character that nobody sees, or that turns others around."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_exact(character) for character in text)


def _exact(character: str) -> str:
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def format_params(params: Mapping[str, Any], most: int) -> tuple[str, bool]:
    """The parameters as JSON, and whether values of them were cut for all names to be seen in `most` characters.

    Where the names alone are longer, it is cut behind the last that is whole.
    """
    whole = exact(encode(params).decode())
    if len(whole) <= most:
        return whole, False
    names = [exact(encode(name).decode()) for name in params]
    values = [exact(encode(value).decode()) for value in params.values()]
    room = most - 1 - sum(len(name) + 2 for name in names)
    longest = _longest_run(values, room)
    shown = "{" + ",".join(f"{name}:{_cut(value, longest)}" for name, value in zip(names, values, strict=True)) + "}"
    return (shown if len(shown) <= most else f"{shown[:most]}…"), True


def _longest_run(values: list[str], room: int) -> int:
    """How long each value may be, so that all fit: short ones leave their room to the longer ones."""
    left = len(values)
    for value in sorted(values, key=len):
        share = room // left
        if len(value) > share:
            return max(SHORTEST, share)
        room -= len(value)
        left -= 1
    return max(map(len, values), default=0)


def _cut(value: str, most: int) -> str:
    return value if len(value) <= most else f"{value[: most - 1]}…"
