"""The strategies of a turn, by name."""

from collections.abc import Callable, Mapping

from brain.assist.assistance import Assistance
from brain.events import StrategyName
from brain.strategies.assisted import Assisted, Probe
from brain.strategies.dual import Dual
from brain.strategies.mono import Mono
from brain.strategies.reason import Reason
from brain.strategies.step import Step
from brain.turn.strategy import Strategy
from brain.turn.turn import Turn

STRATEGIES: Mapping[StrategyName, type[Mono | Reason | Dual | Step]] = {
    "mono": Mono,
    "reason": Reason,
    "dual": Dual,
    "step": Step,
}


def find_strategy(name: StrategyName, assistance: Assistance | None = None) -> Callable[[Turn], Strategy]:
    """Return what makes the strategy of a turn."""
    if assistance is not None and assistance.is_assisted:
        return Assisted
    return Probe if assistance is not None and assistance.calls_after_miss else STRATEGIES[name]
