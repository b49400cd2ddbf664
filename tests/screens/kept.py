"""What is there before a picture is taken: earlier conversations, a calendar, facts, a file."""

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
    {"text": "I drink no coffee", "category": "preferences"},
    {"text": "I am allergic to penicillin", "category": "personal", "mutable": False},
    {"text": "My bicycle has a frame of 56 cm", "category": "knowledge"},
]
EARLIER = [
    ("Body mass index of 80 kg and 180 cm", 20),
    ("Remember that I drink no coffee", 60),
    ("Words for the invitation", 24 * 60),
    ("How do I run Brain behind nginx?", 25 * 60),
    ("A name for a bicycle shop", 26 * 60),
]
"""Titles, and how many minutes ago."""
RESTED = {
    2: "The user invites friends to a garden party in June, and wanted words for it.",
    3: "Brain shall run behind nginx; the user was told to switch buffering off.",
    4: "The user looks for the name of a bicycle shop, and likes short ones.",
}
"""What is left of those that rested."""


def fill_calendar(data: Path) -> None:
    """The calendar `home` of the one local user, in a data folder."""
    home = data / "brain" / "calendars" / "local" / "home"
    home.mkdir(parents=True)
    for uid, (title, start, end, more) in EVENTS.items():
        text = EVENT.format(uid=uid, title=title, start=start, end=end, more=more)
        (home / f"{uid}.ics").write_bytes(text.encode())


def several_pages(picture: Path, path: Path, count: int) -> Path:
    """A PDF with this picture on each page."""
    with Image.open(picture) as opened:
        page = opened.convert("RGB")
    page.save(path, save_all=True, append_images=[page] * (count - 1))
    return path


def conversations(store: str) -> None:
    """Puts earlier conversations into a store, as `brain import` does."""
    records = [one for number in range(len(EARLIER)) for one in _records(number)]
    lines = [{"kind": "brain", "version": 1}, *records, *map(_memory, RESTED)]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    command = [sys.executable, "-m", "brain", "import", "-", "--user", "local"]
    done = subprocess.run(command, input=text, env={"BRAIN_STORE": store}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _records(number: int) -> list[dict[str, object]]:
    title, minutes = EARLIER[number]
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    conversation: dict[str, object] = {
        "kind": "conversation",
        "id": f"c{number}",
        "title": title,
        "created": at,
        "named": True,
    }
    exchange: dict[str, object] = {
        "kind": "exchange", "conversation": f"c{number}", "question_id": f"q{number}", "answer_id": f"a{number}",
        "said": title, "question": title, "asked": at, "answered": at, "outcome": "complete", "model": "demo",
        "parts": [{"kind": "said", "text": "Yes.", "turn_pass": 1}],
    }  # fmt: skip
    return [conversation, exchange]


def _memory(number: int) -> dict[str, object]:
    """What is left of a conversation that rested."""
    at = (datetime.now(UTC) - timedelta(minutes=EARLIER[number][1])).isoformat()
    place = {"conversation": f"c{number}", "upto": f"q{number}"}
    return {"kind": "item", "id": f"i{number}", "type": "memory", "created": at, "updated": at,
            "text": RESTED[number], **place}  # fmt: skip
