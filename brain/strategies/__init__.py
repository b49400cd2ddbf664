"""The strategies of a turn, by name."""

from collections.abc import Callable, Mapping

from brain.events import StrategyName
from brain.strategies.mono import Mono
from brain.turn.strategy import Strategy
from brain.turn.turn import Turn

STRATEGIES: Mapping[StrategyName, Callable[[Turn], Strategy]] = {"mono": Mono}
