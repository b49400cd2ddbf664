"""The strategy `mono`: one model answers, and calls specialists in the middle of its answer."""

from brain.events import Limits
from brain.turn.strategy import Passes, Plan
from brain.turn.turn import Turn
from brain.turn_request import DEFAULT_DECODING, Decoding


class Mono:
    """One pass after another, until one has no calls. See `Strategy`."""

    max_rounds = 0

    def __init__(self, turn: Turn, decoding: Decoding = DEFAULT_DECODING) -> None:
        self._decoding = decoding
        self.writer = turn.add_participant(is_private=False)
        self.participants = (self.writer,)

    def passes(self) -> Passes:
        """Ask until the model makes no calls. After a call of an unknown tool, ask once more."""
        has_retried = False
        while True:
            result = yield Plan(participant=self.writer, is_json=True, decoding=self._decoding)
            if result.calls and not result.was_last:
                continue
            if result.calls or result.unknown_tool is None or has_retried:
                return result.finish
            has_retried = True

    def best_text(self, results: str = "") -> str:
        """Return the results: all other text is shown."""
        return results

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """One pass per call, one whose call exceeds the limit, a last one, and one more after an unknown tool."""
        return limits.calls + 3
