"""The strategy `dual`: one model directs, another one calls specialists and writes the answer."""

import json
import math
import re
from collections.abc import Generator, Sequence

from brain.events import Limits, StopReason
from brain.markers.neutralize import neutralize
from brain.messages import Call
from brain.strategies.deliverable import (
    DELIVERABLE,
    FINAL,
    PARTS,
    SHOWN,
    TASK_DONE,
    WORK,
    WRAP_UP_SHARE,
    find_any,
    find_best,
    make_output,
)
from brain.turn.participant import PromptOptions
from brain.turn.strategy import Answer, NewRound, Passes, PassResult, Plan, Step
from brain.turn.tag_filter import Output
from brain.turn.turn import Turn
from brain.turn_request import CRITIC_ROUNDS

THINKER = """\
You direct another model, the actor. You plan and judge; the actor works. You cannot call specialists, and you do not \
write the answer. In each message, think first. Mark facts with [known], ideas with [option], decisions with [choice], \
and doubts with [check]. Then give one step:
<deep_thinking>
[known] … [option] … [choice] … [check] …
</deep_thinking>
<instruction>
one clear step for the actor
</instruction>
<input>
what the actor must know for this step
</input>
The actor can call these specialists:
{specialists}
You then read what the actor found. If a step failed, change it. When the results suffice, or no specialist is needed, \
write TASK_DONE and, in <instruction>, what the answer must contain. There are {rounds} rounds. Write TASK_DONE after \
{wrap_up} of them at the latest."""
ACTOR = """\
Another model, the thinker, directs you. Follow its newest instruction, and nothing else:
<shallow_thinking>
how you follow it
</shallow_thinking>
<action>
calls of specialists, or your own work
</action>
Do not answer the user before you read TASK_DONE. Then write:
{parts}
The user reads only the final output."""
CRITIC = """\
You check an answer before the user reads it. You get the answer and the results that it rests on. Check each claim of \
the answer against the results that it cites. Write each claim that they do not support, with the reason:
<unsupported>
the claim, and why
</unsupported>
If they support all claims, write only: ALL_SUPPORTED"""
ALL_SUPPORTED = "ALL_SUPPORTED"
REPORT = "The actor reports:\n\n{report}\n\nJudge it. Then write the next <instruction>, or TASK_DONE."
NO_REPORT = "The actor wrote nothing."
INSTRUCTION = "Instruction of the thinker:\n\n{instruction}"
DELIVER = "TASK_DONE. Write the <deliverable> now, without calls.\n\n{notes}"
CITE = "Name the result behind each claim by its number, such as [1]. These are the results, by number:\n{results}"
DELIVER_JSON = "TASK_DONE. Write the answer for the user now, in the required JSON format and nothing else.\n\n{notes}"
CORRECT = "These claims are not supported:\n\n{claims}\n\nWrite the <deliverable> again without them, or correct them."
WRAP_UP = "Come to an end now: write TASK_DONE in this round or the next."
CITATION = re.compile(r"\[(\d{1,3})\]")
CHECK = "The answer:\n\n{answer}\n\nThe results:\n\n{results}"


class Dual:
    """A thinker tells an actor what to do, in rounds.

    The last round is reserved for the answer; with a critic, the last three.
    """

    def __init__(self, turn: Turn) -> None:
        request = turn.setup.request
        self.max_rounds = request.limits.rounds or 2
        self._turn = turn
        self._is_json = request.sampling.format is not None
        self._has_critic = request.critic and not self._is_json and self.max_rounds >= CRITIC_ROUNDS
        self._wrap_up = math.ceil(self.max_rounds * WRAP_UP_SHARE)
        specialists = "\n".join(f"- {one.name}: {one.description}" for one in turn.setup.usable) or "- none"
        thinker = THINKER.format(specialists=specialists, rounds=self.max_rounds, wrap_up=self._wrap_up)
        self._thinker = turn.add_participant("thinker", PromptOptions(instructions=thinker, offers=False))
        self.writer = turn.add_participant("actor", PromptOptions(instructions=ACTOR.format(parts=PARTS)))
        critic = PromptOptions(instructions=CRITIC, offers=False)
        self._critic = turn.add_participant("critic", critic) if self._has_critic else None
        self.participants = tuple(filter(None, (self._thinker, self.writer, self._critic)))
        self._outputs: list[Output] = []  # of the actor

    def passes(self) -> Passes:
        """Let the thinker and the actor take turns until the thinker says that the task is done."""
        turn = self._turn
        reserved = 3 if self._has_critic else 1
        notes = instruction = ""
        is_done = has_converged = False
        while turn.can_call and turn.rounds + 2 + reserved <= self.max_rounds and not (is_done or has_converged):
            if turn.rounds + 1 >= self._wrap_up:
                self._thinker.add_message(WRAP_UP)
            plan = Output({"": (*WORK, "input"), **DELIVERABLE}, SHOWN)
            result = yield Plan(participant=self._thinker, output=plan, round=NewRound("thinker"), reads_on=True)
            if result.is_interrupted:
                continue
            spoken = "\n\n".join(filter(None, (plan.text("instruction"), plan.text("input"))))
            other = find_best([plan]) or "\n".join(map(_describe, result.calls))
            is_done = TASK_DONE in spoken or TASK_DONE in other or TASK_DONE in plan.text("")
            notes = neutralize((spoken or other).replace(TASK_DONE, "").strip(), turn.setup.tokens)
            has_converged = turn.rounds > 1 and notes == instruction
            instruction = notes
            if not (is_done or has_converged) and turn.can_call:
                yield from self._act(notes)
        reason: StopReason = "deliverable" if is_done else "converged" if has_converged else "round_limit"
        if turn.is_answer_time:
            reason = "deadline"
        finish = yield from self._deliver(notes)
        return reason if finish == "complete" else finish

    def _act(self, instruction: str) -> Passes:
        """Let the actor follow an instruction, and report to the thinker."""
        self.writer.add_message(INSTRUCTION.format(instruction=instruction or "Do what the user asks for."))
        report: list[str] = []
        new_round: NewRound | None = NewRound("actor", instruction)
        while True:
            output = make_output()
            self._outputs.append(output)
            result: PassResult = yield Plan(participant=self.writer, output=output, round=new_round)
            new_round = None
            text = "\n\n".join(dict.fromkeys(filter(None, (output.text("action"), find_best([output])))))
            report += filter(None, (neutralize(text, self._turn.setup.tokens), *(call.block for call in result.calls)))
            if not result.calls or not self._turn.can_call:
                break
        self._thinker.add_message(REPORT.format(report="\n\n".join(report) or NO_REPORT))
        return "complete"

    def _deliver(self, notes: str) -> Passes:
        """Let the actor write the answer. The critic reads it before the user, if there is one."""
        if self._is_json:
            self.writer.add_message(DELIVER_JSON.format(notes=notes).strip())
            new_round = NewRound("writer", notes)
            result = yield Plan(participant=self.writer, round=new_round, offers=False, is_json=True)
            return result.finish
        results = self._turn.results
        known = self._turn.results_text
        is_unknown = not find_best(self._outputs, known)
        has_critic = self._critic is not None and not self._turn.is_answer_time
        final_notes = notes
        if has_critic and results:
            calls = (f"[{n}] {_describe(call)}" for n, call in enumerate(results, 1))
            names = neutralize("\n".join(calls), self._turn.setup.tokens)
            final_notes = "\n\n".join(filter(None, (notes, CITE.format(results=names))))
        self.writer.add_message(DELIVER.format(notes=final_notes).strip())
        if not has_critic:
            return (yield from self._write(notes, is_unknown=is_unknown))
        output = make_output(holds_thinking=is_unknown)
        self._outputs.append(output)
        result = yield Plan(participant=self.writer, output=output, round=NewRound("writer", notes), offers=False)
        answer = find_any(self._outputs) if is_unknown else find_best(self._outputs, known)
        is_checked = answer not in ("", known) and not self._turn.is_answer_time
        claims = (yield from self._check(answer, results)) if is_checked else ""
        if claims:
            self.writer.add_message(CORRECT.format(claims=claims))
            return (yield from self._write(claims))
        yield Answer(answer)
        return result.finish

    def _write(self, text: str, *, is_unknown: bool = False) -> Passes:
        """Let the actor write the answer, and show it. If nothing else is known, its thoughts may be the answer."""
        output = make_output(FINAL, holds_thinking=is_unknown)
        self._outputs.append(output)
        new_round = NewRound("writer", text)
        result = yield Plan(participant=self.writer, output=output, round=new_round, offers=False)
        if is_unknown and not output.has_answer:
            yield Answer(find_any(self._outputs))
        return result.finish

    def _check(self, answer: str, results: Sequence[Call]) -> Generator[Step, PassResult, str]:
        """Return the claims of the answer that the results do not support, as the critic writes them."""
        assert self._critic is not None
        cited = {int(number) for number in CITATION.findall(answer)}
        blocks = [f"[{n}]\n{call.block}" for n, call in enumerate(results, 1) if n in cited or not cited]
        text = neutralize(answer, self._turn.setup.tokens)
        self._critic.add_message(CHECK.format(answer=text, results="\n\n".join(blocks) or "none"))
        output = Output({"": (*WORK, "unsupported"), **DELIVERABLE}, SHOWN)
        yield Plan(participant=self._critic, output=output, round=NewRound("critic"), reads_on=True, may_fail=True)
        claims = output.text("unsupported") or ("" if self._turn.is_answer_time else output.text(""))
        return "" if ALL_SUPPORTED in claims else neutralize(claims, self._turn.setup.tokens)

    def best_text(self, results: str = "") -> str:
        """Return the best text of the actor; see `find_best`."""
        return find_best(self._outputs, results)

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """Return one pass per round, one per call, and one for a call that exceeds the limit.

        A pass of the actor ends its round, or has a call and is followed by another pass.
        """
        return (limits.rounds or 2) + limits.calls + 1


def _describe(call: Call) -> str:
    return f"{call.name} {json.dumps(call.params, ensure_ascii=False)}"
