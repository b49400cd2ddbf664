"""The log: a record is a line, whatever is in it; as text, as JSON, and of a real server with one worker and with two."""

import json
import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from reports import a_call, a_pass, a_report
from serving import Process, post, script

from brain import logs
from brain.events import Usage
from brain.logs import JsonLines, TextLines

FORGED = "INFO brain: turn t0 of root: complete"


def record(message: str, *values: object, level: int = logging.INFO, **more: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "brain", "levelno": level, "levelname": logging.getLevelName(level), "msg": message, "args": values}
    )
    made.__dict__.update({"created": 1_772_600_767.25, "process": 7} | more)
    return made


def raised(error: Exception) -> Any:
    try:
        raise error
    except Exception:  # noqa: BLE001 - the test's own
        return sys.exc_info()


def test_a_record_as_text() -> None:
    assert TextLines().format(record("turn %s of %s", "t1", "ann")) == "INFO brain: turn t1 of ann"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_value_breaks_a_line(end: str) -> None:
    line = TextLines().format(record("specialist %s", f"x{end}{FORGED}"))
    assert line.startswith("INFO brain: specialist x\\")
    assert len(line.splitlines()) == 1
    line = JsonLines().format(record("specialist %s", f"x{end}{FORGED}"))
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == f"specialist x{end}{FORGED}"


def test_no_value_moves_the_cursor_or_turns_the_text_around() -> None:
    line = TextLines().format(record("user %s", "a\x1b[2K\x07\x00b\u202ec\u2066d ä – ok"))
    assert line == "INFO brain: user a\\x1b[2K\\x07\\x00b\\u202ec\\u2066d ä – ok"


def test_an_exception_cannot_forge_a_line_either() -> None:
    found = TextLines().format(record("it failed", exc_info=raised(ValueError(f"bad\n{FORGED}\r{FORGED}\x1b[2K"))))
    lines = found.splitlines()
    assert lines[:2] == ["INFO brain: it failed", "    Traceback (most recent call last):"]
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[-3:] == ["    ValueError: bad", f"    {FORGED}", f"    {FORGED}\\x1b[2K"]


def test_a_record_as_json() -> None:
    line = JsonLines().format(record("turn %s", "t1", fields={"turn_id": "t1", "total_ms": 5}))
    assert line == (
        '{"time": "2026-03-04T05:06:07.250Z", "level": "INFO", "logger": "brain", "pid": 7, '
        '"message": "turn t1", "turn_id": "t1", "total_ms": 5}'
    )


def test_a_traceback_is_a_field() -> None:
    error = raised(ValueError("Zürich \ud800\n{}"))
    found = json.loads(JsonLines().format(record("it failed", level=logging.ERROR, exc_info=error)))
    assert list(found) == ["time", "level", "logger", "pid", "message", "traceback"]
    assert (found["level"], found["message"]) == ("ERROR", "it failed")
    assert found["traceback"].startswith("Traceback (most recent call last):\n")
    assert found["traceback"].endswith("ValueError: Zürich \ud800\n{}")


def test_records_are_bounded() -> None:
    for form in (TextLines(), JsonLines()):
        line = form.format(record("begin %s end", "x" * 1_000_000, exc_info=raised(ValueError("y" * 1_000_000))))
        assert len(line) < 40_000
        assert "begin xxx" in line
        assert "xxx end" in line
        assert "ValueError: yyy" in line
        assert line.rstrip('"}').endswith("yyy")


def test_what_is_said_of_a_turn() -> None:
    report = a_report([a_pass(), a_pass(2)], [a_call()], usage=Usage(200, 40, 90, False))
    assert logs.turn(report) == (
        "turn t1 of ann: complete, native, ollama:llama3, 1 calls, 2 passes, 200 + 40 tokens, "
        "first token after 120 ms, 1000 ms"
    )
    assert logs.turn_fields(report) == {
        "turn_id": "t1",
        "user": "ann",
        "wire": "native",
        "model": "ollama:llama3",
        "outcome": "complete",
        "calls": 1,
        "passes": 2,
        "prompt_tokens": 200,
        "completion_tokens": 40,
        "reused_tokens": 90,
        "first_token_ms": 120,
        "total_ms": 1000,
    }


def test_what_is_said_of_a_turn_that_failed() -> None:
    report = a_report(error="model_failed", state="error", stop_reason=None, first_token_ms=None)
    assert ": model_failed, native, ollama:llama3, 0 calls, 1 passes, 100 + 20 tokens, no text, 1000 ms" in (
        logs.turn(report)
    )
    assert logs.turn_fields(report)["outcome"] == "model_failed"
