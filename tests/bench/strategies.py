"""Compare the strategies on the same questions: `python tests/bench/strategies.py --model openai:NAME --model-url URL`.

Web requests may fail: a call counts nevertheless. The model needs a limit of tokens per answer at its server, since
small models write until their context is full. Brain calls no specialist for the model.
"""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from questions import NO_CALL, make_request, open_engine, read_fixtures, read_questions
from tables import number

from brain.events import ApprovalRequired, Error, StrategyName
from brain.runtime.engine import Engine

WAYS = (*get_args(StrategyName), "native")
"""The strategies, and native tool calls with `mono`."""
COLUMNS = (
    "right call", "wrong call", "fact in answer", "false calls", "failed", "passes", "tokens evaluated", "reused",
    "written", "seconds",
)  # fmt: skip


@dataclass
class Answer:
    """What one turn brought. `called` are the names of the specialists that the model called."""

    question: Mapping[str, Any]
    called: list[str] = field(default_factory=list)
    text: str = ""
    has_failed: bool = False
    passes: int = 0
    evaluated: int = 0
    reused: int = 0
    written: int = 0
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-url")
    parser.add_argument("--native-url", help="server of the same model with a chat template for tools")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--every", type=int, default=1, help="ask only every n-th question of each kind")
    given = parser.parse_args()
    questions, fixtures = read_questions(every=given.every), read_fixtures()
    head = f"| | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}"
    print(head, flush=True)
    for way in given.ways:
        answers = asyncio.run(ask(questions, way, given, fixtures))
        print(f"| {way} | {' | '.join(summarize(answers))} |", flush=True)
    return 0


async def ask(
    questions: Sequence[Mapping[str, Any]], way: str, given: argparse.Namespace, fixtures: Mapping[str, Any]
) -> list[Answer]:
    """Ask all questions, each in a new conversation."""
    url = given.native_url if way == "native" and given.native_url else given.model_url
    environ = {
        "BRAIN_MODEL": given.model,
        "BRAIN_ASSIST": "off",
        "BRAIN_SYNTAX": "native,bracket" if way == "native" else "bracket,function_call",
        **({"BRAIN_MODEL_URL": url} if url else {}),
    }
    strategy = cast(StrategyName, "mono" if way == "native" else way)
    answers = []
    async with open_engine(fixtures, environ) as engine:
        for question in questions:
            answers.append(await ask_one(question, strategy, engine, fixtures["pictures"]))
            sys.stderr.write(f"{way} {question['id']} {answers[-1].called} {answers[-1].text[:60]!r}\n")
    return answers


async def ask_one(
    question: Mapping[str, Any], strategy: StrategyName, engine: Engine, pictures: Mapping[str, Any]
) -> Answer:
    """Run one turn, and decline all approvals."""
    request = make_request(question, engine, pictures, strategy)
    began = time.monotonic()
    run = await engine.begin(request, "native")
    answer = Answer(question)
    async for events in run.events():
        for event in events:
            if isinstance(event, ApprovalRequired):
                run.decide(event.call_id, False)
            answer.has_failed = answer.has_failed or isinstance(event, Error)
            answer.text = getattr(event, "text", "") if type(event).__name__ == "Done" else answer.text
    exchange = run.snapshot()
    answer.seconds = time.monotonic() - began
    answer.called = [call.name for call in exchange.calls if call.by == "model" and call.code not in NO_CALL]
    answer.passes = len(exchange.passes)
    answer.reused = sum(one.reused_tokens or 0 for one in exchange.passes)
    answer.evaluated = sum(one.prompt_tokens for one in exchange.passes) - answer.reused
    answer.written = sum(one.completion_tokens for one in exchange.passes)
    return answer


def summarize(answers: Sequence[Answer]) -> list[str]:
    """Return one row of the table."""
    needing = [one for one in answers if one.question["expect"]]
    facts = [one for one in answers if "fact" in one.question]
    others = [one for one in answers if not one.question["expect"]]
    right = [one for one in needing if set(one.called) & set(one.question["expect"])]
    told = [one for one in facts if re.search(one.question["fact"], one.text, re.IGNORECASE)]
    wrong = sum(bool(one.called) for one in needing) - len(right)

    def mean(name: str) -> str:
        return number(sum(getattr(one, name) for one in answers) / len(answers))

    return [
        f"{len(right)}/{len(needing)}",
        str(wrong),
        f"{len(told)}/{len(facts)}",
        f"{sum(bool(one.called) for one in others)}/{len(others)}",
        str(sum(one.has_failed for one in answers)),
        *map(mean, ("passes", "evaluated", "reused", "written", "seconds")),
    ]


if __name__ == "__main__":
    sys.exit(main())
