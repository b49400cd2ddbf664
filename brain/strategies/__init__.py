"""The strategies of a turn, by name."""

from collections.abc import Mapping

from brain.events import StrategyName
from brain.strategies.dual import Dual
from brain.strategies.mono import Mono
from brain.strategies.reason import Reason
from brain.strategies.step import Step

STRATEGIES: Mapping[StrategyName, type[Mono | Reason | Dual | Step]] = {
    "mono": Mono,
    "reason": Reason,
    "dual": Dual,
    "step": Step,
}
