"""The strategy `reason`: one model works in rounds. It thinks, calls specialists, reads results, and delivers."""

import math

from brain.events import Limits, StopReason
from brain.strategies.deliverable import (
    FINAL,
    FINAL_OR_PLAIN,
    PARTS,
    WRAP_UP_SHARE,
    find_answer,
    find_any,
    find_best,
    make_output,
)
from brain.turn.participant import PromptOptions
from brain.turn.strategy import Answer, NewRound, Passes, Plan
from brain.turn.tag_filter import Output
from brain.turn.turn import Turn

INSTRUCTIONS = """\
Work in rounds. Begin each round with your thoughts. Mark facts with [known], ideas with [option], decisions with \
[choice], and doubts with [check]:
<deep_thinking>
[known] … [option] … [choice] … [check] …
</deep_thinking>
Then either call specialists, and stop:
<action>
the calls
</action>
The results follow, and the next round begins. Or, when you know enough, deliver:
{parts}
The user reads only the final output. There are {rounds} rounds. Deliver after {wrap_up} of them at the latest."""
GO_ON = "Go on: call specialists in <action>, or write the <deliverable>."
WRAP_UP = "Come to an end now. Write the <deliverable> in this round or the next."
FINISH = "Write the complete answer for the user now, without calls and without tags."
FINISH_JSON = "Write the complete answer for the user now, in the required JSON format and nothing else."


class Reason:
    """One model in rounds. The last round is reserved for a pass without specialists, also for a JSON answer."""

    def __init__(self, turn: Turn) -> None:
        self.max_rounds = turn.setup.request.limits.rounds or 2
        self._turn = turn
        self._wrap_up = math.ceil(self.max_rounds * WRAP_UP_SHARE)
        self._is_json = turn.setup.request.sampling.format is not None
        instructions = INSTRUCTIONS.format(parts=PARTS, rounds=self.max_rounds, wrap_up=self._wrap_up)
        self.writer = turn.add_participant("thinker", PromptOptions(instructions=instructions))
        self.participants = (self.writer,)
        self._outputs: list[Output] = []

    def passes(self) -> Passes:
        """Ask in rounds until there is a deliverable, or no time, rounds or new thoughts are left."""
        turn, writer = self._turn, self.writer
        reason: StopReason = "round_limit"
        output: Output | None = None
        idle_rounds = 0
        while turn.can_call and turn.rounds < self.max_rounds - 1:
            if output is None:
                if turn.rounds + 1 == self._wrap_up:
                    writer.add_message(WRAP_UP)
                output = make_output(None if self._is_json else FINAL)
                self._outputs.append(output)
            result = yield Plan(participant=writer, output=output, round=NewRound("thinker"))
            if result.calls:
                idle_rounds = 0
                if output.has_answer:  # a call in the middle of the answer does not end it
                    output.resume()
                else:
                    output = None
                continue
            if find_answer(output):
                if self._is_json:
                    reason = "deliverable"
                    break
                return "deliverable" if result.finish == "complete" else result.finish
            if result.is_interrupted:
                output = None
                continue
            idle_rounds += 1
            if result.finish == "repetition" or idle_rounds == 2:
                reason = "converged"
                break
            writer.add_message(GO_ON)
            output = None
        else:
            if turn.is_answer_time:
                reason = "deadline"
        return (yield from self._finish(reason, output))

    def _finish(self, reason: StopReason, output: Output | None) -> Passes:
        """Ask for the answer without specialists, or for the rest of an answer that has begun."""
        new_round = NewRound("writer")
        if self._is_json:
            self.writer.add_message(FINISH_JSON)
            result = yield Plan(participant=self.writer, round=new_round, offers=False, is_json=True)
        else:
            is_unknown = not find_best(self._outputs, self._turn.results_text)
            if output is None or not output.has_answer:
                self.writer.add_message(FINISH)
                output = make_output(FINAL_OR_PLAIN, holds_thinking=is_unknown)
                self._outputs.append(output)
            result = yield Plan(participant=self.writer, output=output, round=new_round, offers=False)
            if is_unknown and not output.has_answer:
                yield Answer(find_any(self._outputs))
        return reason if result.finish == "complete" else result.finish

    def best_text(self, results: str = "") -> str:
        """Return the best text; see `find_best`."""
        return find_best(self._outputs, results)

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """Every round has one pass."""
        return limits.rounds or 2
