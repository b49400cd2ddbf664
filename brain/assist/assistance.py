"""What Brain does for the model in one turn, and what it has learned about the model. No I/O."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

CallingOutcome = Literal["right", "other", "none"]
"""What a model did with a message that needs a specialist: it called this one, another one, or none."""

MAX_MISSES = 3
"""Messages in a row without a call, after which Brain calls specialists for the model."""
PROBE_EVERY = 20
"""Sure messages from one probe to the next. The number doubles with each probe in vain, up to `MAX_DOUBLED` times."""
MAX_DOUBLED = 3
SMALL_MODEL = 1_000_000_000
"""Parameters of a model below which Brain expects that it calls nothing by itself, and lets it read less."""


class Assistance(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Brain does for the model in one turn.

    Attributes:
        is_assisted: Whether Brain calls the specialist, and the model reads only its result. Otherwise the model is
            left to itself.
        is_small: Whether the model reads little. It is a small or a base model.
        name: The specialist that the message needs; empty if it needs none.
        question: What Brain asks before it makes the call; empty if the message is clear.
        message: The earlier message that the call is for, if the user now answered such a question with `yes`.
        schema: JSON Schema by which the model writes the parameters, if no rule found them.
        refusal: For people: why Brain does not do what the message asks for, and how they do it.
        is_counted: Whether the model's own call, or its lack, says something about the model.
        is_probe: Whether a model that Brain assists otherwise is left to itself, to see whether it calls now.
    """

    is_assisted: bool
    is_small: bool = False
    name: str = ""
    params: dict[str, Any] | None = None
    question: str = ""
    message: str = ""
    schema: Mapping[str, Any] | None = None
    refusal: str = ""
    is_counted: bool = False
    is_probe: bool = False
    calls_after_miss: bool = False


class CallingState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Brain has learned about a model: whether it calls specialists by itself.

    Attributes:
        misses: Specialists that it did not call, since it last called one.
        since_probe: Sure messages since the last probe.
        probes: Probes in vain.
    """

    is_assisted: bool = False
    right_calls: int = 0
    misses: tuple[str, ...] = ()
    since_probe: int = 0
    probes: int = 0

    @property
    def is_probe_due(self) -> bool:
        """Whether the next sure message is left to an assisted model, to see whether it calls now."""
        return self.is_assisted and self.since_probe + 1 >= PROBE_EVERY << min(self.probes, MAX_DOUBLED)

    def assist(self) -> "CallingState":
        """Count a sure message for which Brain called the specialist."""
        return msgspec.structs.replace(self, since_probe=self.since_probe + 1)

    def learn(self, outcome: CallingOutcome, specialist: str, *, is_private: bool, is_small: bool) -> "CallingState":
        """Learn from a sure message that was left to the model.

        Assistance begins after `MAX_MISSES` misses. A capable model may know what an encyclopedia says, so the misses
        of one specialist are enough only if its results are private. For a small model, one miss is enough.
        """
        if outcome == "right":
            return CallingState(right_calls=self.right_calls + 1)
        if outcome == "other":
            return msgspec.structs.replace(self, since_probe=0)
        misses = (*self.misses, specialist)[-MAX_MISSES:]
        is_enough = len(misses) >= MAX_MISSES and (is_private or len(set(misses)) > 1)
        is_enough = is_enough or (is_small and not self.right_calls)
        return msgspec.structs.replace(
            self,
            misses=misses,
            is_assisted=self.is_assisted or is_enough,
            since_probe=0,
            probes=self.probes + self.is_assisted,
        )

    def describe(self) -> str:
        """Return what Brain does for the model, as a phrase for people."""
        if self.is_assisted:
            return "Brain calls specialists for it, because it calls none by itself"
        return "calls specialists by itself" if self.right_calls else "not known yet whether it calls specialists"
