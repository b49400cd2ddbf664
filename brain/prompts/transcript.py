"""Makes the messages for a model of what was said in a conversation.

The same parts give byte for byte the same messages in every later request, so that a server's prefix cache holds.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby

from brain.events import Resume
from brain.markers.neutralize import without_control_tokens
from brain.markers.template_tokens import ControlTokens
from brain.messages import Call, Exchange, Message, Part, Steer
from brain.prompts.templates import CONTINUE


class Transcript:
    """What the model of one turn reads: its instructions, what was said before, question and answer so far."""

    __slots__ = ("_earlier", "_exchange", "_is_whole", "_system")

    def __init__(self, system: str, earlier: Sequence[Exchange], exchange: Exchange) -> None:
        self._system = system
        self._earlier = earlier
        self._exchange = exchange
        self._is_whole = True

    def messages(self, resume: Resume) -> list[Message]:
        """The request for the next pass."""
        return messages(self._system, [*self._earlier, self._exchange], resume)

    def shorten(self) -> int:
        """Leaves out the older half of what was said before, once; how many exchanges these are."""
        left_out = (len(self._earlier) + 1) // 2 if self._is_whole else 0
        self._earlier = self._earlier[left_out:]
        self._is_whole = False
        return left_out


def neutralized(exchange: Exchange, tokens: ControlTokens) -> Exchange:
    """An earlier exchange for a model with these control tokens; it may have been written for another model.

    What the model itself said stays, byte for byte.
    """

    def clean(text: str) -> str:
        return without_control_tokens(text, tokens)

    def part(one: Part) -> Part:
        if isinstance(one, Call):
            return replace(one, block=clean(one.block))
        return replace(one, text=clean(one.text)) if isinstance(one, Steer) else one

    return replace(
        exchange,
        question=clean(exchange.question),
        before=tuple(replace(message, content=clean(message.content)) for message in exchange.before),
        behind=tuple(replace(message, content=clean(message.content)) for message in exchange.behind),
        parts=[part(one) for one in exchange.parts],
    )


def messages(system: str, exchanges: Sequence[Exchange], resume: Resume) -> list[Message]:
    """The request for the next pass: all that was said, ready to be answered or gone on with.

    Roles alternate: some models' templates refuse two messages of a user in a row, as a turn that was cut leaves them.
    """
    front = [Message("system", system)] if system else []
    said = chain(front, *(_of(exchange, resume) for exchange in exchanges))
    return [
        Message(role, "\n\n".join(message.content for message in group))
        for role, group in groupby(said, key=lambda message: message.role)
    ]


def _of(exchange: Exchange, resume: Resume) -> list[Message]:
    """An exchange's messages; what the user put in later cuts the answer in two."""
    asked = [Message("user", exchange.question)] if exchange.question else []
    found = [*exchange.before, *asked, *exchange.behind]
    for steered, group in groupby(exchange.parts, key=lambda part: isinstance(part, Steer)):
        parts = list(group)
        found += [Message("user", _text(part)) for part in parts] if steered else _answer(parts, resume)
    return found


def written(parts: Sequence[Part]) -> str:
    """An answer as one text: what was said, the markers, and each pass's blocks behind them."""
    return "".join(text + (f"\n\n{blocks}\n\n" if blocks else "") for text, blocks in _passes(parts))


def _answer(parts: Sequence[Part], resume: Resume) -> list[Message]:
    if resume == "prefill":
        content = written(parts)
        return [Message("assistant", content)] if content else []
    found = []
    for text, blocks in _passes(parts):
        if text:
            found.append(Message("assistant", text))
        if blocks:
            found.append(Message("user", f"{blocks}\n\n{CONTINUE}"))
    return found


def _passes(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """For each pass: its text and markers, and its blocks with a blank line between them."""
    found = []
    for _, group in groupby(parts, key=lambda part: part.turn_pass):
        of_pass = list(group)
        text = "".join(map(_text, of_pass))
        blocks = "\n\n".join(part.block for part in of_pass if isinstance(part, Call))
        found.append((text, blocks))
    return found


def _text(part: Part) -> str:
    return part.marker if isinstance(part, Call) else part.text
