"""The questions of the benchmarks that ask a model, and an engine with the data that they are about.

Each question of `questions.jsonl` names the specialists that help, and perhaps patterns of good parameters and of the
fact in a good answer. Questions without specialists need none. `questions-fixtures.json` has the calendar, the
documents, the facts and the pictures.
"""

import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from brain import settings
from brain.events import StrategyName
from brain.messages import Attachment
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.settings import LOCAL_USER
from brain.turn_request import TurnRequest

HERE = Path(__file__).parent
QUESTIONS, FIXTURES = HERE / "questions.jsonl", HERE / "questions-fixtures.json"
TURN_SECONDS = 60.0
NO_CALL = ("unknown", "malformed", "oversized", "forged")
"""Codes of what a model wrote instead of a call."""


def read_questions(path: Path = QUESTIONS, every: int = 1) -> list[Mapping[str, Any]]:
    """Return the questions of a file, or only every n-th question of each kind."""
    questions = map(json.loads, path.read_text("utf-8").splitlines())
    return [one for one in questions if int(one["id"].rpartition("-")[2]) % every == 0]


def read_fixtures(path: Path = FIXTURES) -> Mapping[str, Any]:
    """Return what the questions are about."""
    found: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@asynccontextmanager
async def open_engine(fixtures: Mapping[str, Any], environ: Mapping[str, str]) -> AsyncIterator[Engine]:
    """Open an engine with these settings, in which the specialists find the fixtures."""
    with tempfile.TemporaryDirectory() as folder:
        options = settings.read({**os.environ, **_write_fixtures(Path(folder), fixtures), **environ})
        engine = Engine(options, Registry(options).discover())
        await engine.open()
        try:
            for fact in fixtures["facts"]:
                await engine.memory.edits.write(LOCAL_USER, fact, None, mutable=True)
            yield engine
        finally:
            await engine.close()


def make_request(
    question: Mapping[str, Any], engine: Engine, pictures: Mapping[str, Any], strategy: StrategyName = "mono"
) -> TurnRequest:
    """Return the request of a question, in a new conversation."""
    request = TurnRequest(
        message=question["message"],
        user=LOCAL_USER,
        limits=engine.settings.limits(strategy),
        syntax=engine.settings.syntax,
        time_zone="UTC",
        strategy=strategy,
        now=datetime.now(UTC),
        asks_person=True,
    )
    if "attach" not in question:
        return request
    name = question["attach"]
    kind = "application/pdf" if name.endswith(".pdf") else "image/png"
    return replace(request, attachments=(Attachment(1, name, kind, draw(name, pictures[name])),))


def _write_fixtures(folder: Path, fixtures: Mapping[str, Any]) -> Mapping[str, str]:
    """Write the calendar and the documents. Return the environment variables that lead to them."""
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
    return {
        "BRAIN_STORE": "memory:",
        "BRAIN_TIME_ZONE": "UTC",
        "BRAIN_TURN_SECONDS": str(TURN_SECONDS),
        "BRAIN_SPECIALIST_CALENDAR_FOLDER": str(folder / "calendar"),
        "BRAIN_SPECIALIST_KNOWLEDGE_FOLDERS": str(documents),
        "BRAIN_SPECIALIST_KNOWLEDGE_DATABASE": str(folder / "index"),
    }


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
