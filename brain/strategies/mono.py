"""The strategy `mono`: one model answers, and calls specialists in the middle of its answer."""

from brain.events import Limits
from brain.turn.strategy import Passes, Plan
from brain.turn.tag_filter import Output
from brain.turn.turn import Turn
from brain.turn_request import DEFAULT_DECODING, Decoding

MAX_UNSHOWN = 1_000
"""Characters in which a model that may call before it answers in JSON writes its call."""


class Mono:
    """One pass after another, until one has no calls. See `Strategy`.

    A text in JSON cannot have calls. So with tools of the client, the model may call in passes that are not shown, and
    then writes the JSON.
    """

    max_rounds = 0

    def __init__(self, turn: Turn, decoding: Decoding = DEFAULT_DECODING) -> None:
        self._decoding = decoding
        self._calls_first = bool(turn.setup.tools) and turn.setup.request.sampling.format is not None
        self.writer = turn.add_participant(is_private=False)
        self.participants = (self.writer,)

    def passes(self) -> Passes:
        """Ask until the model makes no calls. After a call of an unknown tool, ask once more."""
        has_retried, may_call = False, self._calls_first
        while True:
            output = Output({}, {}, ends=lambda text: len(text) > MAX_UNSHOWN) if may_call else None
            offers = may_call or not self._calls_first
            result = yield Plan(
                participant=self.writer, output=output, offers=offers, is_json=not may_call, decoding=self._decoding
            )
            if result.calls and not result.was_last:
                continue
            if may_call:
                may_call = False
                continue
            if result.calls or result.unknown_tool is None or has_retried:
                return result.finish
            has_retried = True

    def best_text(self, results: str = "") -> str:
        """Return the results: all other text is shown."""
        return results

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """One pass per call, one whose call exceeds the limit, a last one, and two more.

        These are after an unknown tool, and for JSON after calls.
        """
        return limits.calls + 4
