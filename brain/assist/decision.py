"""What Brain does for the model in one turn, and what it has learned about the model. No I/O."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Outcome = Literal["right", "other", "none"]
"""What a model did with a message that needs a specialist: it called this one, another one, or none."""

SURE_LEAD = 0.35
"""Lead of a choice from which the model's answer counts as evidence."""
MAX_MISSES = 3
"""Messages in a row without a call, after which Brain calls specialists for the model."""
EXAMINE_EVERY = 20
"""Sure messages from one examination to the next."""
SMALL_MODEL = 1_000_000_000
"""Parameters of a model below which Brain expects that it does not ask."""


class Assistance(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Brain does for the model in one turn.

    Attributes:
        is_assisted: Whether Brain calls the specialist, and the model reads only its result. Otherwise the model is
            left to itself.
        name: The specialist that the message needs; empty if it needs none.
        params: Parameters of the call.
        schema: JSON Schema by which the model writes the parameters, if no rule found them.
        refusal: For people: why Brain does not do what the message asks for, and how they do it.
        is_evidence: Whether the model's own call, or its lack, says something about the model.
        rescues: Whether Brain makes the call after an answer without one.
    """

    is_assisted: bool
    name: str = ""
    params: dict[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    refusal: str = ""
    is_evidence: bool = False
    rescues: bool = False


class Habit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Brain has learned about a model: whether it asks for specialists by itself.

    Attributes:
        is_small: Whether it is a small or a base model. One miss is then enough.
        assists: Whether Brain calls specialists for it.
        asked: How often it called the right specialist.
        missed: Specialists that it did not call, since it last called one.
        sure: Sure messages since the last examination.
    """

    is_small: bool = False
    assists: bool = False
    asked: int = 0
    missed: tuple[str, ...] = ()
    sure: int = 0

    @property
    def is_examination_due(self) -> bool:
        """Whether the next sure message is left to an assisted model, to see whether it asks now."""
        return self.assists and self.sure + 1 >= EXAMINE_EVERY

    def assist(self) -> "Habit":
        """Count a sure message for which Brain called the specialist."""
        return msgspec.structs.replace(self, sure=self.sure + 1)

    def learn(self, outcome: Outcome, specialist: str, *, is_private: bool) -> "Habit":
        """Learn from a sure message that was left to the model.

        Assistance begins after `MAX_MISSES` misses. A capable model may know what an encyclopedia says, so the misses
        of one specialist are enough only if its results are private.
        """
        if outcome == "other":
            return self
        if outcome == "right":
            return Habit(is_small=self.is_small, asked=self.asked + 1)
        missed = (*self.missed, specialist)[-MAX_MISSES:]
        is_enough = len(missed) >= MAX_MISSES and (is_private or len(set(missed)) > 1)
        is_enough = is_enough or (self.is_small and not self.asked)
        if self.assists:
            return msgspec.structs.replace(self, missed=missed, sure=0)
        return msgspec.structs.replace(self, missed=missed, assists=is_enough, sure=0)

    def describe(self) -> str:
        """Return what Brain does for the model, as a phrase for people."""
        if self.assists:
            return "Brain calls specialists for it, because it calls none by itself"
        return "calls specialists by itself" if self.asked else "not known yet whether it calls specialists"
