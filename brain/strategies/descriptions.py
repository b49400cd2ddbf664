"""Descriptions of the strategies, for clients."""

from collections.abc import Mapping
from dataclasses import dataclass

from brain.events import Role, StrategyName


@dataclass(frozen=True, slots=True)
class Description:
    """A strategy in one sentence, and the roles of its models."""

    sentence: str
    roles: tuple[Role, ...]


DESCRIPTIONS: Mapping[StrategyName, Description] = {
    "mono": Description("One model calls specialists and writes the answer.", ("writer",)),
    "reason": Description("One model thinks and calls specialists in rounds until its answer is ready.", ("thinker",)),
    "dual": Description(
        "One model plans and judges, and another one calls specialists and writes the answer.", ("thinker", "actor")
    ),
    "step": Description(
        "A small model chooses one short step after the other, then writes the answer.", ("planner", "writer")
    ),
}
