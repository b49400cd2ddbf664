"""The log: a record is a line, whatever is in it; as text, as JSON, and of a real server with one worker and two."""

import json
import logging
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reports import a_call, a_pass, a_report
from serving import Process, post, script

from brain.events import Usage
from brain.telemetry import logs
from brain.telemetry.logs import JsonLines, RateLimit, TextLines

FORGED = "INFO brain: turn t0 of root: complete"


def record(message: str, *values: object, level: int = logging.INFO, **more: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "brain", "levelno": level, "levelname": logging.getLevelName(level), "msg": message, "args": values}
    )
    made.__dict__.update({"created": 1_772_600_767.25, "process": 7} | more)
    return made


def raised(error: Exception) -> Any:
    try:
        raise error  # noqa: TRY301
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


@pytest.mark.parametrize("template", ["broken request %d", None], ids=["template", "formatted by the library"])
def test_lines_of_one_kind_are_limited_and_the_rest_is_counted(template: str | None) -> None:
    lines: list[str] = []
    now = 0.0
    handler, limit = limited(lines, lambda: now)
    for n in range(1000):
        message = template or f"broken request {n}"
        handler.handle(record(message, *((n,) if template else ()), level=logging.WARNING, lineno=1))
        handler.handle(record("turn %d", n, lineno=2))
    handler.handle(record("something else", level=logging.ERROR, lineno=3))
    assert len([line for line in lines if "turn" in line]) == 1000
    assert [line for line in lines if "turn" not in line] == [
        *(f"WARNING brain: broken request {n}" for n in range(3)),
        "ERROR brain: something else",
    ]
    del lines[:]
    now = 100_000.0
    limit.write_counts()
    limit.write_counts()
    (line,) = lines
    assert line == "WARNING brain: 997 more in 100000 seconds like: broken request 999"
    handler.handle(record("broken request", level=logging.WARNING, lineno=1))
    assert lines[1:] == ["WARNING brain: broken request"]


def test_the_count_is_written_when_its_period_ends_though_nothing_follows() -> None:
    lines: list[str] = []
    handler, _ = limited(lines, lambda: 0.0, seconds=0.001)
    for _ in range(4):
        handler.handle(record("broken request", level=logging.WARNING))
    with handler.written:
        assert handler.written.wait_for(lambda: any("more in" in line for line in lines), 20)


class Lines(logging.Handler):
    """Keeps the lines."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.setFormatter(TextLines())
        self.written = threading.Condition()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        with self.written:
            self._lines.append(self.format(record))
            self.written.notify_all()


def limited(lines: list[str], clock: Callable[[], float], seconds: float = 1e5) -> tuple[Lines, RateLimit]:
    handler = Lines(lines)
    return handler, RateLimit(handler, 3, seconds, clock)


def test_broken_requests_without_a_key_do_not_fill_the_log() -> None:
    env = {"BRAIN_KEYS": "sixteen-characters:ada"}
    with Process("serve", "--port", "0", "--model", "builtin", env=env) as brain:
        port = int(brain.url().rpartition(":")[2])
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(b"GARBAGE\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
        brain.process.terminate()
        _, _, err = brain.end()
    lines = [line for line in err.splitlines() if "Invalid HTTP request received." in line]
    counted = [int(found[1]) for line in lines if (found := re.search(r"([0-9]+) more in", line))]
    assert len(lines) - len(counted) + sum(counted) == 200
    assert len(lines) < 100


def test_what_is_said_of_a_turn() -> None:
    report = a_report([a_pass(), a_pass(2)], [a_call()], usage=Usage(200, 40, 90, False))
    assert logs.turn_line(report) == (
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
        logs.turn_line(report)
    )
    assert logs.turn_fields(report)["outcome"] == "model_failed"


# A server

LOUD = '''\
"""Specialists that are heard in the log."""

import threading
import warnings

from brain import specialist


@specialist
async def loud() -> str:
    """Fails with lines of its own."""
    warnings.warn("old\\nINFO brain: turn t0 of root: forged", stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0, name="its own")
    thread.start()
    thread.join()
    raise ValueError("bad\\nINFO brain: turn t0 of root: forged")
'''


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A server whose one specialist is loud, and whose user has a bad name."""
    (tmp_path / "specialists").mkdir()
    (tmp_path / "specialists" / "some.py").write_text(LOUD)
    return {
        "BRAIN_SPECIALISTS_FOLDER": str(tmp_path / "specialists"),
        "BRAIN_MODEL": script(tmp_path, ["SPECIALIST_REQUEST[loud]"], ["It is."]),
    }


def logged(env: Mapping[str, str], *arguments: str) -> list[str]:
    """The lines on standard error of a server that serves one turn with these arguments."""
    with Process("serve", "--port", "0", *arguments, env=env) as brain:
        found = re.search(r"listens on (http://[0-9.:]+)", brain.said("Specialists:"))
        assert found is not None
        assert post(found[1], json={"message": "hi"}).names[-1] == "done"
        brain.process.terminate()
        code, out, err = brain.end()
    assert (code, out) == (0, "")
    return err.splitlines()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_every_line_of_a_server_is_a_json_object(env: dict[str, str], workers: str) -> None:
    records = [json.loads(line) for line in logged(env, "--workers", workers, "--log", "json")]
    assert all(list(one)[:5] == ["time", "level", "logger", "pid", "message"] for one in records)
    assert all(re.fullmatch(r"20[0-9-]{8}T[0-9:]{8}\.[0-9]{3}Z", one["time"]) for one in records)
    assert any(one["message"].startswith("Brain listens on http://127.0.0.1:") for one in records)
    (turn,) = [one for one in records if "turn_id" in one]
    assert list(turn)[5:] == list(logs.turn_fields(a_report()))
    assert (turn["level"], turn["logger"], turn["user"], turn["wire"]) == ("INFO", "brain", "local", "native")
    assert (turn["outcome"], turn["calls"], turn["passes"]) == ("complete", 1, 2)
    failures = {one["message"]: (one["level"], one["traceback"]) for one in records if "traceback" in one}
    assert set(failures) == {"specialist loud failed", "thread its own failed"}
    assert failures["specialist loud failed"][1].endswith("ValueError: bad\nINFO brain: turn t0 of root: forged")
    assert failures["thread its own failed"][1].endswith("ZeroDivisionError: division by zero")
    (warned,) = [one for one in records if one["logger"] == "py.warnings"]
    assert "UserWarning: old\nINFO brain: turn t0 of root: forged" in warned["message"]


def test_no_line_of_a_server_is_forged(env: dict[str, str]) -> None:
    lines = logged(env)
    turns = [line for line in lines if line.startswith("INFO brain: turn t")]
    assert len(turns) == 1
    assert " of local: complete, native, script:" in turns[0]
    assert [line for line in lines if "forged" in line and not line.startswith(("    ", "WARNING py.warnings: "))] == []
    assert "    ValueError: bad" in lines


def test_the_environment_and_the_file_can_say_it_and_only_serve_has_the_option(env: dict[str, str]) -> None:
    assert all(line.startswith("{") for line in logged(env | {"BRAIN_LOG": "json"}))
    with Process("serve", "--log", "xml") as brain:
        assert brain.end() == (1, "", "brain: --log='xml' is not allowed. Allowed: `text` or `json`.\n")
    with Process("ask", "--log", "json", "hi") as brain:
        code, out, err = brain.end()
    assert (code, out) == (2, "")
    assert "unrecognized arguments: --log" in err


def test_what_uvicorn_says_is_a_record_too(env: dict[str, str]) -> None:
    with Process("serve", "--port", "0", "--log", "json", env=env) as brain:
        found = re.search(r"listens on http://127.0.0.1:([0-9]+)", brain.said("Specialists:"))
        assert found is not None
        with Process("serve", "--port", found[1], "--log", "json", env=env) as other:
            code, out, err = other.end()
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("ERROR", "uvicorn.error")
    assert "address already in use" in told["message"]
