"""Compare the strategies on the same questions: `python tests/bench/strategies.py --model openai:NAME --model-url URL`.

Each question of `questions.jsonl` names the specialists that help, and perhaps a pattern of the fact in a good answer.
Questions without specialists need none. `questions-fixtures.json` has the calendar, the documents, the facts and the
pictures that they are about. Web requests may fail: a call counts nevertheless. The model needs a limit of tokens per
answer at its server, since small models write until their context is full.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, cast, get_args

from tables import number

from brain import settings
from brain.events import ApprovalRequired, Error, StrategyName
from brain.messages import Attachment, TurnReport
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.settings import LOCAL_USER, Settings
from brain.turn_request import TurnRequest

HERE = Path(__file__).parent
WAYS = (*get_args(StrategyName), "native")
"""The strategies, and native tool calls with `mono`."""
TURN_SECONDS = 60.0
UNCALLED = ("unknown", "malformed", "oversized", "forged")
"""Codes of what a model wrote instead of a call."""
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
    lines = (HERE / "questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    questions = [one for one in questions if int(one["id"].rpartition("-")[2]) % given.every == 0]
    fixtures = json.loads((HERE / "questions-fixtures.json").read_text("utf-8"))
    head = f"| | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}"
    print(head, flush=True)
    for way in given.ways:
        with tempfile.TemporaryDirectory() as folder:
            options = make_settings(way, given, Path(folder), fixtures)
            answers = asyncio.run(ask(questions, way, options, fixtures))
        print(f"| {way} | {' | '.join(summarize(answers))} |", flush=True)
    return 0


def make_settings(way: str, given: argparse.Namespace, folder: Path, fixtures: Mapping[str, Any]) -> Settings:
    """Write the calendar and the documents. Return the settings that lead to them."""
    calendar = folder / "calendar" / LOCAL_USER / "personal"
    calendar.mkdir(parents=True)
    for n, event in enumerate(fixtures["events"]):
        hour, minute = map(int, event["time"].split(":"))
        start = datetime.now(UTC).replace(hour=hour, minute=minute) + timedelta(days=event["day"])
        end = start + timedelta(minutes=event["minutes"])
        lines = [
            *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Brain//EN"),
            *("BEGIN:VEVENT", f"UID:{n}", "DTSTAMP:20260101T000000Z"),
            *(f"DTSTART:{start:%Y%m%dT%H%M00}", f"DTEND:{end:%Y%m%dT%H%M00}", f"SUMMARY:{event['title']}"),
            *("END:VEVENT", "END:VCALENDAR", ""),
        ]
        (calendar / f"{n}.ics").write_text("\r\n".join(lines), "utf-8", newline="")
    documents = folder / "documents"
    documents.mkdir()
    for name, text in fixtures["notes"].items():
        (documents / name).write_text(text, "utf-8")
    url = given.native_url if way == "native" and given.native_url else given.model_url
    environ = {
        "BRAIN_MODEL": given.model,
        "BRAIN_STORE": "memory:",
        "BRAIN_TIME_ZONE": "UTC",
        "BRAIN_TURN_SECONDS": str(TURN_SECONDS),
        "BRAIN_SYNTAX": "native,bracket" if way == "native" else "bracket,function_call",
        "BRAIN_SPECIALIST_CALENDAR_FOLDER": str(folder / "calendar"),
        "BRAIN_SPECIALIST_KNOWLEDGE_FOLDERS": str(documents),
        "BRAIN_SPECIALIST_KNOWLEDGE_DATABASE": str(folder / "index"),
        **({"BRAIN_MODEL_URL": url} if url else {}),
    }
    return settings.read({**os.environ, **environ})


async def ask(
    questions: Sequence[Mapping[str, Any]], way: str, options: Settings, fixtures: Mapping[str, Any]
) -> list[Answer]:
    """Ask all questions, each in a new conversation."""
    strategy = cast(StrategyName, "mono" if way == "native" else way)
    engine = Engine(options, Registry(options).discover())
    await engine.open()
    try:
        for fact in fixtures["facts"]:
            await engine.memory.edits.write(LOCAL_USER, fact, None, mutable=True)
        answers = []
        for question in questions:
            answers.append(await ask_one(question, strategy, engine, fixtures["pictures"]))
            sys.stderr.write(f"{way} {question['id']} {answers[-1].called} {answers[-1].text[:60]!r}\n")
        return answers
    finally:
        await engine.close()


async def ask_one(
    question: Mapping[str, Any], strategy: StrategyName, engine: Engine, pictures: Mapping[str, Any]
) -> Answer:
    """Run one turn, and decline all approvals."""
    limits = engine.settings.limits(strategy)
    request = TurnRequest(
        message=question["message"],
        user=LOCAL_USER,
        limits=limits,
        syntax=engine.settings.syntax,
        time_zone="UTC",
        strategy=strategy,
        now=datetime.now(UTC),
        asks_person=True,
    )
    if "attach" in question:
        name = question["attach"]
        kind = "application/pdf" if name.endswith(".pdf") else "image/png"
        request = replace(request, attachments=(Attachment(1, name, kind, draw(name, pictures[name])),))
    began = time.monotonic()
    reports: list[TurnReport] = []
    run = await engine.begin(request, "native", reports.append)
    answer = Answer(question)
    async for events in run.events():
        for event in events:
            if isinstance(event, ApprovalRequired):
                run.decide(event.call_id, False)
            answer.has_failed = answer.has_failed or isinstance(event, Error)
            answer.text = getattr(event, "text", "") if type(event).__name__ == "Done" else answer.text
    (report,) = reports
    answer.seconds = time.monotonic() - began
    answer.called = [call.name for call in report.calls if call.by == "model" and call.code not in UNCALLED]
    answer.passes = len(report.passes)
    answer.reused = sum(one.reused_tokens or 0 for one in report.passes)
    answer.evaluated = sum(one.prompt_tokens for one in report.passes) - answer.reused
    answer.written = sum(one.completion_tokens for one in report.passes)
    return answer


def draw(name: str, content: Mapping[str, Any]) -> bytes:
    """Return a picture or a PDF with lines of text, a QR code or colours."""
    import zxingcpp
    from PIL import Image, ImageDraw, ImageFont

    if "qr" in content:
        code = zxingcpp.create_barcode(content["qr"], zxingcpp.BarcodeFormat.QRCode)
        picture = Image.fromarray(zxingcpp.write_barcode_to_image(code, scale=8)).convert("RGB")
    elif "draw" in content:
        picture = Image.new("RGB", tuple(content["size"]), content["draw"][0])
        for n, colour in enumerate(content["draw"][1:]):
            ImageDraw.Draw(picture).rectangle((40 + 150 * n, 60 * n, 180 + 150 * n, 400), fill=colour)
    else:
        picture = Image.new("RGB", (900, 60 + 52 * len(content["lines"])), "white")
        for n, line in enumerate(content["lines"]):
            ImageDraw.Draw(picture).text((40, 30 + 52 * n), line, fill="black", font=ImageFont.load_default(34))
    encoded = BytesIO()
    picture.save(encoded, "PDF" if name.endswith(".pdf") else "PNG")
    return encoded.getvalue()


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
