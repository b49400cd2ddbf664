"""Measure assisted calls: `python tests/bench/assist.py --model openai:NAME --model-url URL`, one row per ASSIST mode.

Without `--model`, the command measures only the choice of the specialist and its parameters, offline. Web requests may
fail: a call counts nevertheless. The model needs a limit of tokens per answer at its server, since small models write
until their context is full.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from questions import FIXTURES, NO_CALL, QUESTIONS, make_request, open_engine, read_fixtures, read_questions

from brain import settings
from brain.assist.params import Filled, build_params
from brain.assist.proposal import propose
from brain.assist.router import AnySpecialist, Choice, Previous, find_router
from brain.events import ApprovalRequired, AssistMode, Done, Error, SpecialistResult, Token
from brain.messages import Call
from brain.plugins.context import AssistContext
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine

WAYS: Sequence[AssistMode] = ("off", "auto", "always")
COLUMNS = (
    "right", "notice", "asked", "wrong", "none", "false", "asked in vain", "valid", "sensible", "fact in result",
    "fact in answer", "fact visible", "failed", "first token with a call, ms", "without, ms", "seconds",
)  # fmt: skip
CHOICE_COLUMNS = (*COLUMNS[:9], "ms, median", "ms, p99")


@dataclass
class Answer:
    """What one turn brought.

    Attributes:
        calls: All calls, whoever made them.
        is_refused: Whether a notice says why Brain does not do what the message asks for.
        asked: What Brain asked instead of making a call.
        first_ms: Milliseconds to the first text.
    """

    question: Mapping[str, Any]
    calls: Sequence[Call] = ()
    is_refused: bool = False
    asked: str = ""
    results: list[str] = field(default_factory=list)
    text: str = ""
    has_failed: bool = False
    first_ms: float | None = None
    seconds: float = 0.0

    @property
    def wanted(self) -> list[Call]:
        """The calls that help."""
        return [call for call in self.calls if call.name in self.question["expect"]]

    def has_fact(self, *texts: str) -> bool:
        """Whether one of the texts contains the fact."""
        return any(re.search(self.question["fact"], text, re.IGNORECASE) for text in texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--model-url")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--every", type=int, default=1, help="ask only every n-th question of each kind")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, metavar="FILE")
    parser.add_argument("--fixtures", type=Path, default=FIXTURES, metavar="FILE")
    given = parser.parse_args()
    questions, fixtures = read_questions(given.questions, given.every), read_fixtures(given.fixtures)
    if given.model is None:
        _print_row("", CHOICE_COLUMNS)
        _print_row("---", ["---"] * len(CHOICE_COLUMNS))
        _print_row("router", asyncio.run(choose(questions)))
        return 0
    _print_row("ASSIST", COLUMNS)
    _print_row("---", ["---"] * len(COLUMNS))
    environ = {"BRAIN_MODEL": given.model, **({"BRAIN_MODEL_URL": given.model_url} if given.model_url else {})}
    for way in given.ways:
        answers = asyncio.run(ask(questions, way, environ, fixtures))
        _print_row(f"`{way}`", summarize(answers))
    return 0


async def choose(questions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the row of the router without a model: the calls that it leads to, and its CPU time per message."""
    registry = Registry(settings.read(os.environ)).discover()
    specialists = {one.name: one for one in registry.usable()}
    router = await find_router(tuple(specialists.values()))
    names = [name for name, one in specialists.items() if one.approval != "always"]
    router.choose("warm up", names)
    answers, times = [], []
    for question in questions:
        answer, has_files, message = Answer(question), "attach" in question, question["message"]
        previous = Previous(question["previous"], question["specialist"]) if "previous" in question else None
        can_read_files = has_files or (previous is not None and previous.specialist in ("ocr", "vision"))

        def find(
            without: str,
            message: str = message,
            previous: Previous | None = previous,
            has_files: bool = has_files,
            can_read_files: bool = can_read_files,
        ) -> Choice | None:
            return router.choose(
                message,
                names,
                previous=previous,
                has_files=has_files,
                can_read_files=can_read_files,
                without=without,
            )

        async def fill(
            one: AnySpecialist, found: Choice, message: str = message, previous: Previous | None = previous
        ) -> Filled | None:
            earlier = previous.message if previous is not None and found.follows_up else ""
            return build_params(one, message, AssistContext(datetime.now(UTC), "UTC", previous=earlier))

        began = time.process_time()
        find("")
        times.append((time.process_time() - began) * 1000)
        answer.calls = [Call("ocr", params={}, by="auto")] if has_files else []
        proposal = await propose(specialists, find, fill)
        if proposal is not None:
            answer.is_refused = proposal.refusal != "" and proposal.choice.is_sure
            answer.asked = proposal.question
            if proposal.filled is not None and not answer.asked:
                answer.calls = [*answer.calls, Call(proposal.choice.name, params=proposal.filled.params, by="assist")]
        answers.append(answer)
    return [*_judge(answers), f"{statistics.median(times):.2f}", f"{statistics.quantiles(times, n=100)[98]:.2f}"]


async def ask(
    questions: Sequence[Mapping[str, Any]], way: AssistMode, environ: Mapping[str, str], fixtures: Mapping[str, Any]
) -> list[Answer]:
    """Ask all questions, each in a new conversation."""
    answers = []
    async with open_engine(fixtures, environ) as engine:
        for question in questions:
            answers.append(answer := await ask_one(question, way, engine, fixtures["pictures"]))
            calls = [f"{call.name}({call.by}, {call.outcome}, {call.params})" for call in answer.calls]
            sys.stderr.write(f"{way} {question['id']} {calls} {answer.text[:60]!r}\n")
    return answers


async def ask_one(question: Mapping[str, Any], way: AssistMode, engine: Engine, pictures: Mapping[str, Any]) -> Answer:
    """Run one turn, and decline all approvals."""
    request = replace(make_request(question, engine, pictures), assist=way)
    answer = Answer(question)
    began = time.monotonic()
    run = await engine.begin(request, "native")
    async for events in run.events():
        for event in events:
            match event:
                case Token(text) if answer.first_ms is None and text.strip():
                    answer.first_ms = (time.monotonic() - began) * 1000
                case ApprovalRequired():
                    run.decide(event.call_id, False)
                case SpecialistResult():
                    answer.results.append(event.text)
                case Done():
                    answer.text = event.text
                case Error():
                    answer.has_failed = True
    answer.seconds = time.monotonic() - began
    exchange = run.snapshot()
    answer.calls = [call for call in exchange.calls if call.code not in NO_CALL]
    answer.asked = answer.text if answer.text.startswith("Do you want ") else ""
    answer.is_refused = any(notice.code == "assist" for notice in exchange.notices)
    return answer


def summarize(answers: Sequence[Answer]) -> list[str]:
    """Return one row of the table."""
    facts = [one for one in answers if "fact" in one.question]
    return [
        *_judge(answers),
        f"{sum(one.has_fact(*one.results) for one in facts)}/{len(facts)}",
        f"{sum(one.has_fact(one.text) for one in facts)}/{len(facts)}",
        f"{sum(one.has_fact(one.text, *one.results) for one in facts)}/{len(facts)}",
        str(sum(one.has_failed for one in answers)),
        _median(one.first_ms for one in answers if one.calls),
        _median(one.first_ms for one in answers if not one.calls),
        f"{statistics.mean(one.seconds for one in answers):.1f}",
    ]


def _judge(answers: Sequence[Answer]) -> list[str]:
    """Return the columns about the calls. A call that an attachment starts is right if it helps, and never wrong."""
    needing = [one for one in answers if one.question["expect"]]
    others = [one for one in answers if not one.question["expect"]]
    right = [one for one in needing if one.wanted]
    rest = [one for one in needing if not one.wanted]
    notice = [one for one in rest if one.is_refused]
    asked = [one for one in rest if one.asked]
    wrong = [one for one in rest if not one.is_refused and any(call.by != "auto" for call in one.calls)]
    valid = [one for one in right if any(call.code != "invalid_params" for call in one.wanted)]
    sensible = [one for one in right if any(_is_sensible(one.question, call) for call in one.wanted)]
    return [
        f"{len(right)}/{len(needing)}",
        str(len(notice)),
        str(len(asked)),
        str(len(wrong)),
        str(len(rest) - len(notice) - len(asked) - len(wrong)),
        f"{sum(bool(one.calls) or one.is_refused for one in others)}/{len(others)}" if others else "–",
        f"{sum(one.asked != '' for one in others)}/{len(others)}" if others else "–",
        f"{len(valid)}/{len(right)}",
        f"{len(sensible)}/{len(right)}",
    ]


def _is_sensible(question: Mapping[str, Any], call: Call) -> bool:
    """Whether the parameters match all patterns of the question. That of `*` is for all parameters as JSON."""
    params = call.params or {}
    texts = {**params, "*": json.dumps(params, ensure_ascii=False)}
    patterns = question.get("params", {}).items()
    return all(re.search(pattern, str(texts.get(name, "")), re.IGNORECASE) for name, pattern in patterns)


def _median(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):,.0f}" if known else "–"


def _print_row(first: str, cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {first} | {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
