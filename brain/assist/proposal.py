"""The call that a message needs, or the question whether the user wants it."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import regex

from brain.assist.params import Filled, fill_params
from brain.assist.router import Choice
from brain.assist.schema_hints import read_profile
from brain.errors import Refused
from brain.markers.neutralize import neutralize
from brain.plugins.context import AssistContext
from brain.plugins.specialist import Specialist
from brain.text import shorten
from brain.words import DATE_WORDS, split_words

MAX_VALUE = 80
"""Characters of a value in a question."""
_YES = regex.compile(
    r"\W*(?:(?:yes|yeah|yep|yup|sure|ok|okay|please|of course|do it|do that|go ahead|i do|i would"
    r"|ja|jo|gerne?|bitte|klar|mach das|oui|volontiers|d'accord|s'il (?:te|vous) pla[iî]t|vas-y|sí|si|claro|vale"
    r"|por favor|hazlo|adelante)\b\W*){1,3}",
    regex.IGNORECASE,
)


class Proposal(NamedTuple):
    """The call that a message may need.

    Attributes:
        filled: Its parameters; None if the message does not give them.
        refusal: For people: why Brain does not do what the message asks for, and how they do it.
    """

    specialist: Specialist[..., Any]
    choice: Choice
    filled: Filled | None
    refusal: str = ""

    @property
    def question(self) -> str:
        """What Brain asks before it makes the call; empty if it is certain."""
        if self.filled is None or (self.choice.is_sure and self.filled.is_certain):
            return ""
        return word_question(self.specialist, self.filled.params)


async def propose(
    specialists: Mapping[str, Specialist[..., Any]],
    choose: Callable[[str], Choice | None],
    fill: Callable[[Specialist[..., Any], Choice], Awaitable[Filled | None]],
) -> Proposal | None:
    """Return the call that a message may need.

    A specialist without an `assist` function whose values it lacks is hardly meant; another one may be.

    Args:
        choose: Returns the specialist that fits best, without the one of this name.
    """
    found = None
    for _ in range(2):
        choice = choose("" if found is None else found.choice.name)
        if choice is None or (found is not None and not choice.is_sure):
            break
        specialist = specialists[choice.name]
        try:
            found = Proposal(specialist, choice, await fill(specialist, choice))
        except Refused as refused:
            return Proposal(specialist, choice, None, refused.reason)
        if found.filled is not None or specialist.assist is not None:
            break
    return found


def is_yes(message: str) -> bool:
    """Whether a message only agrees."""
    return len(message) <= MAX_VALUE and _YES.fullmatch(message.replace("’", "'")) is not None


def word_question(specialist: Specialist[..., Any], params: Mapping[str, Any]) -> str:
    """Return the question whether the user wants this call, in the words of an example that has the same parameters.

    The same call always gets the same question, so a `yes` after it can be understood.
    """
    shown = {name: _show(value) for name, value in params.items()}
    for example in specialist.examples[:3] if specialist.assist is None else ():
        with suppress(Refused):  # the example has an ambiguous date
            filled = fill_params(specialist, example, AssistContext(datetime.now(UTC)))
            phrase = None if filled is None else _replace_values(specialist, example, filled.params, shown)
            if phrase is not None:
                return f"Do you want this: {neutralize(phrase)}?"
    values = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in shown.items())
    about = specialist.description.partition(". ")[0].rstrip(".")
    return neutralize(f"Do you want me to use {specialist.name}{f' ({values})' if values else ''}? {about}.")


def _replace_values(
    specialist: Specialist[..., Any], example: str, params: Mapping[str, Any], others: Mapping[str, str]
) -> str | None:
    """Return an example with other values for its parameters; None if it has others, or does not show them."""
    if params.keys() != others.keys():
        return None
    choices = {word for one in read_profile(specialist).properties for word in one.choices}
    shown = {word.bare for value in params.values() for word in split_words(_show(value))}
    for n, word in enumerate(split_words(example)):
        is_value = word.bare in choices | DATE_WORDS or word.text[0].isdigit() or (n > 0 and word.text[0].isupper())
        if is_value and word.bare not in shown:  # it would stay in the phrase
            return None
    phrase = example.rstrip("?.! ")
    for name, value in params.items():
        before, found, after = phrase.partition(_show(value))
        if not found or _show(value) in after:
            return None
        phrase = f"{before}{others[name]}{after}"
    return phrase


def _show(value: Any) -> str:
    return shorten(f"{value:g}" if isinstance(value, float) else " ".join(str(value).split()), MAX_VALUE)
