"""The data in the screenshots: earlier conversations, a calendar, facts, a file."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PIL import Image

DENTIST = "2026-11-24"
"""A Tuesday."""

EVENTS = {
    "dentist": ("Dentist", "20261124T090000", "20261124T094500", ""),
    "planning": ("Planning", "20261125T100000", "20261125T110000", "RRULE:FREQ=WEEKLY\r\n"),
}
EVENT = """\
BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//Brain//screens//EN\r
BEGIN:VEVENT\r
UID:{uid}\r
DTSTAMP:20261101T080000Z\r
SUMMARY:{title}\r
DTSTART;TZID=Europe/Berlin:{start}\r
DTEND;TZID=Europe/Berlin:{end}\r
{more}END:VEVENT\r
END:VCALENDAR\r
"""
FACTS = [
    {"text": "I don't drink coffee", "category": "preferences"},
    {"text": "I am allergic to penicillin", "category": "personal", "mutable": False},
    {"text": "My bicycle has a 56 cm frame", "category": "knowledge"},
]
EARLIER = [
    ("Body mass index of 80 kg and 180 cm", 20),
    ("Remember that I don't drink coffee", 60),
    ("Text for an invitation", 24 * 60),
    ("How do I run Brain behind nginx?", 25 * 60),
    ("Names for a bicycle shop", 26 * 60),
]
"""Titles, and how many minutes ago."""
SUMMARIES = {
    2: "The user is planning a garden party in June and wanted a text for the invitation.",
    3: "The user runs Brain behind nginx. Buffering must be off.",
    4: "The user is looking for a short name for a bicycle shop.",
}
"""Summaries of conversations, by their place in EARLIER."""


def fill_calendar(data: Path) -> None:
    """Create the local user's calendar `home` in a data folder."""
    home = data / "brain" / "calendars" / "local" / "home"
    home.mkdir(parents=True)
    for uid, (title, start, end, more) in EVENTS.items():
        text = EVENT.format(uid=uid, title=title, start=start, end=end, more=more)
        (home / f"{uid}.ics").write_bytes(text.encode())


def make_pdf(picture: Path, path: Path, count: int) -> Path:
    """Create a PDF with this picture on each page."""
    with Image.open(picture) as opened:
        page = opened.convert("RGB")
    page.save(path, save_all=True, append_images=[page] * (count - 1))
    return path


def import_conversations(store: str) -> None:
    """Import the earlier conversations into a store."""
    lines: list[dict[str, object]] = [{"kind": "brain", "version": 1}]
    for number, (title, minutes) in enumerate(EARLIER):
        at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
        lines.append({"kind": "conversation", "id": f"c{number}", "title": title, "created": at, "named": True})
        lines.append({
            "kind": "exchange", "conversation": f"c{number}", "question_id": f"q{number}", "answer_id": f"a{number}",
            "said": title, "question": title, "asked": at, "answered": at, "outcome": "complete", "model": "demo",
            "parts": [{"kind": "said", "text": "Yes.", "turn_pass": 1}],
        })  # fmt: skip
    for number, text in SUMMARIES.items():
        at = (datetime.now(UTC) - timedelta(minutes=EARLIER[number][1])).isoformat()
        item = {"kind": "item", "id": f"i{number}", "type": "memory", "created": at, "updated": at, "text": text}
        lines.append({**item, "conversation": f"c{number}", "upto": f"q{number}"})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    command = [sys.executable, "-m", "brain", "import", "-", "--user", "local"]
    subprocess.run(command, input=text, env={"BRAIN_STORE": store}, capture_output=True, text=True, check=True)
