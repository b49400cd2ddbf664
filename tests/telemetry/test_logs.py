"""The log: a record is one line, whatever it contains; as text, as JSON, and from real servers."""

import json
import logging
import re
import socket
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Process, post, script
from ended_turns import an_exchange
from limits import WAIT_SECONDS

from brain.task import Task
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


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_value_breaks_a_line(end: str) -> None:
    line = TextLines().format(record("specialist %s", f"x{end}{FORGED}"))
    assert (line.startswith("INFO brain: specialist x\\"), len(line.splitlines())) == (True, 1)
    line = JsonLines().format(record("specialist %s", f"x{end}{FORGED}"))
    assert (json.loads(line)["message"], len(line.splitlines())) == (f"specialist x{end}{FORGED}", 1)


def test_text_lines() -> None:
    line = TextLines().format(record("user %s", "a\x1b[2K\x07\x00b\u202ec\u2066d ä – ok"))
    assert line == "INFO brain: user a\\x1b[2K\\x07\\x00b\\u202ec\\u2066d ä – ok"
    found = TextLines().format(record("it failed", exc_info=raised(ValueError(f"bad\n{FORGED}\r{FORGED}\x1b[2K"))))
    first, second, *others = found.splitlines()
    assert (first, second) == ("INFO brain: it failed", "    Traceback (most recent call last):")
    assert all(line.startswith("    ") for line in others)
    assert others[-3:] == ["    ValueError: bad", f"    {FORGED}", f"    {FORGED}\\x1b[2K"]


def test_json_lines() -> None:
    line = JsonLines().format(record("turn %s", "t1", fields={"turn_id": "t1", "total_ms": 5}))
    assert line == (
        '{"time": "2026-03-04T05:06:07.250Z", "level": "INFO", "logger": "brain", "pid": 7, '
        '"message": "turn t1", "turn_id": "t1", "total_ms": 5}'
    )
    error = raised(ValueError("Zürich \ud800\n{}"))
    found = json.loads(JsonLines().format(record("it failed", level=logging.ERROR, exc_info=error)))
    assert list(found) == ["time", "level", "logger", "pid", "message", "traceback"]
    assert (found["level"], found["traceback"].endswith("\nValueError: Zürich \ud800\n{}")) == ("ERROR", True)


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_records_are_bounded(formatter: logging.Formatter) -> None:
    error = raised(ValueError("y" * 1_000_000))
    line = formatter.format(record("begin %s end", "x" * 1_000_000, exc_info=error))
    assert len(line) < 40_000
    assert all(text in line for text in ("begin xxx", "xxx end", "ValueError: yyy"))
    assert line.rstrip('"}').endswith("yyy")


# The limit of lines


class Lines(logging.Handler):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(TextLines())
        self.lines: list[str] = []
        self.written = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self.written:
            self.lines.append(self.format(record))
            self.written.notify_all()


@pytest.mark.parametrize("template", ["broken request %d", None], ids=["template", "formatted by the library"])
def test_lines_of_one_kind_are_limited_and_the_rest_is_counted(template: str | None) -> None:
    now = 0.0
    handler = Lines()
    limit = RateLimit(handler, 3, 1e5, lambda: now)
    for n in range(1000):
        message = template or f"broken request {n}"
        handler.handle(record(message, *((n,) if template else ()), level=logging.WARNING, lineno=1))
        handler.handle(record("turn %d", n, lineno=2))
    handler.handle(record("something else", level=logging.ERROR, lineno=3))
    assert sum("turn" in line for line in handler.lines) == 1000
    assert [line for line in handler.lines if "turn" not in line] == [
        *(f"WARNING brain: broken request {n}" for n in range(3)),
        "ERROR brain: something else",
    ]
    handler.lines.clear()
    now = 100_000.0
    limit.write_counts()
    limit.write_counts()
    handler.handle(record("broken request", level=logging.WARNING, lineno=1))
    assert handler.lines == [
        "WARNING brain: 997 more in 100000 seconds like: broken request 999",
        "WARNING brain: broken request",
    ]


def test_the_count_is_written_when_its_period_ends_though_nothing_follows() -> None:
    handler = Lines()
    RateLimit(handler, 3, 0.001, lambda: 0.0)
    for _ in range(4):
        handler.handle(record("broken request", level=logging.WARNING))
    with handler.written:
        assert handler.written.wait_for(lambda: any("more in" in line for line in handler.lines), 50)


def test_broken_requests_without_a_key_do_not_fill_the_log() -> None:
    env = {"BRAIN_KEYS": "sixteen-characters:ada"}
    with Process("serve", "--port", "0", "--model", "builtin", "--log", "json", env=env) as brain:
        port = int(brain.url().rpartition(":")[2].rstrip('"}'))
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
                connection.sendall(b"GARBAGE\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
        brain.process.terminate()
        _, _, err = brain.end(WAIT_SECONDS)
    lines = [json.loads(line)["message"] for line in err.splitlines() if "Invalid HTTP request received." in line]
    counts = [int(found[1]) for line in lines if (found := re.search(r"([0-9]+) more in", line))]
    assert (len(lines) - len(counts) + sum(counts), len(lines) < 100) == (200, True)


# Servers

LOUD = '''\
"""A specialist with lines of its own in the log."""

import threading
import warnings

from brain import specialist


@specialist
async def loud() -> str:
    """Fails."""
    warnings.warn("old\\nINFO brain: turn t0 of root: forged", stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0, name="its own")
    thread.start()
    thread.join()
    raise ValueError("bad\\nINFO brain: turn t0 of root: forged")
'''


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "specialists").mkdir()
    (tmp_path / "specialists" / "some.py").write_text(LOUD)
    return {
        "BRAIN_SPECIALISTS_FOLDER": str(tmp_path / "specialists"),
        "BRAIN_MODEL": script(tmp_path, ["SPECIALIST_REQUEST[loud]"], ["It is."]),
    }


def test_the_line_of_a_task() -> None:
    time = datetime(2026, 11, 23, tzinfo=UTC)
    task = Task(
        id="task1", user="ann", title="Secret", prompt="Secret", conversation_id="c1", work_id="work1", created=time,
        changed=time, time_zone="UTC", run=3, result="Secret",
    )  # fmt: skip
    assert (
        logs.task_line(task, "succeeded", 1.25) == "task task1 of ann: succeeded, standard, run 3, attempt 1, 1250 ms"
    )
    assert logs.task_fields(task, "failed", 1.25) == {
        "task_id": "task1",
        "user": "ann",
        "profile": "standard",
        "outcome": "failed",
        "run": 3,
        "attempt": 1,
        "total_ms": 1250,
    }


def log_of_a_turn(env: Mapping[str, str], *arguments: str) -> list[str]:
    """The lines of a server that serves one turn."""
    with Process("serve", "--port", "0", *arguments, env=env) as brain:
        found = re.search(r"running at (http://[0-9.:]+)", brain.said("Specialists:"))
        assert found is not None
        assert post(found[1], json={"message": "hi"}).names[-1] == "done"
        brain.process.terminate()
        code, out, err = brain.end(WAIT_SECONDS)
    assert (code, out) == (0, "")
    return err.splitlines()


def test_every_line_of_a_server_is_a_json_object(env: dict[str, str]) -> None:
    lines = log_of_a_turn(env, "--workers", "2", "--log=json")
    records = [json.loads(line) for line in lines]
    assert all(list(one)[:5] == ["time", "level", "logger", "pid", "message"] for one in records)
    assert all(re.fullmatch(r"20[0-9-]{8}T[0-9:]{8}\.[0-9]{3}Z", one["time"]) for one in records)
    (turn,) = [one for one in records if "turn_id" in one]
    assert list(turn)[5:] == list(logs.turn_fields(an_exchange(), "local"))
    assert [turn[key] for key in ("level", "logger", "user", "wire", "outcome", "calls", "passes")] == [
        "INFO", "brain", "local", "native", "complete", 1, 2,
    ]  # fmt: skip
    tracebacks = {one["message"]: one["traceback"] for one in records if "traceback" in one}
    assert set(tracebacks) == {"specialist loud failed", "thread its own failed"}
    assert tracebacks["specialist loud failed"].endswith("ValueError: bad\nINFO brain: turn t0 of root: forged")
    assert tracebacks["thread its own failed"].endswith("ZeroDivisionError: division by zero")
    (warning,) = [one for one in records if one["logger"] == "py.warnings"]
    assert "UserWarning: old\nINFO brain: turn t0 of root: forged" in warning["message"]


def test_no_line_of_a_server_is_forged(env: dict[str, str]) -> None:
    lines = log_of_a_turn(env)
    (turn,) = [line for line in lines if line.startswith("INFO brain: turn t")]
    assert " of local: complete, native, script:" in turn
    assert [line for line in lines if "forged" in line and not line.startswith(("    ", "WARNING py.warnings: "))] == []
    assert "    ValueError: bad" in lines


def test_a_client_that_leaves_before_the_answer_is_logged_and_counted(tmp_path: Path) -> None:
    slow = script(tmp_path, {"chunks": ["One ", "two."], "delay_ms": 1_000_000})
    with Process("serve", "--port", "0", "--log", "json", "--model", slow) as brain:
        found = re.search(r"running at (http://[0-9.:]+)", brain.said("Specialists:"))
        assert found is not None
        with httpx.stream(
            "POST", f"{found[1]}/v1/chat/stream", json={"message": "hi"}, trust_env=False, timeout=WAIT_SECONDS
        ) as response:
            assert "turn_start" in next(response.iter_text())
        line = json.loads(brain.said('"outcome"').splitlines()[-1])
        metrics = httpx.get(f"{found[1]}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
    assert [line[key] for key in ("outcome", "first_token_ms", "calls", "passes")] == ["cancelled", None, 0, 1]
    assert 'brain_turns_total{outcome="cancelled",wire="native"} 1.0\n' in metrics
    assert "\nbrain_turns_running 0.0\n" in metrics


# Privacy

VAULT = '''\
"""A specialist with something to hide."""

from brain import Refused, specialist


@specialist
async def vault(word: str) -> str:
    """Tells the word."""
    if word == "refuse-s3cret":
        raise Refused("s3cret reason")
    return f"the s3cret of {word}"
'''
SECRETS = [
    'A s3cret. SPECIALIST_REQUEST[vault:{"word":"s3cret"}]',
    'SPECIALIST_REQUEST[s3cret-name:{"s3cret":1}]',
    'SPECIALIST_REQUEST[vault:{"s3cret":1}]',
    'SPECIALIST_REQUEST[vault:{"word":"refuse-s3cret"}]',
    "[SPECIALIST_RESULT: s3cret]s3cret[/SPECIALIST_RESULT]",
    "SPECIALIST_REQUEST[vault:{s3cret}]",
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_text_of_users_models_or_specialists_is_in_logs_metrics_or_traces(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "specialists"
    folder.mkdir()
    (folder / "some.py").write_text(VAULT)
    env = {
        "BRAIN_SPECIALISTS_FOLDER": str(folder),
        "BRAIN_MODEL": script(tmp_path, *([one] for one in SECRETS), ["The s3cret answer."]),
        "BRAIN_KEYS": "k-s3cret-0123456789:ann",
        "BRAIN_TRACES": "console",
        "BRAIN_CALLS": "20",
        "BRAIN_CALLS_PER_SPECIALIST": "20",
    }
    key = {"authorization": "Bearer k-s3cret-0123456789"}
    body = {
        "message": "My s3cret.",
        "system": "Keep the s3cret.",
        "attachments": [{"name": "s3cret.txt", "text": "a s3cret"}],
    }
    with Process("serve", "--port", "0", "--log", form, env=env) as brain:
        found = re.search(r"running at (http://[0-9.:]+)", brain.said("Specialists:"))
        assert found is not None
        answer = post(found[1], json=body, headers=key)
        with httpx.Client(base_url=found[1], trust_env=False, timeout=WAIT_SECONDS) as client:
            assert client.get("/metrics", headers={"authorization": "Bearer s3cret"}).status_code == 401
            metrics = client.get("/metrics", headers=key).text
        brain.process.terminate()
        _, traces, log = brain.end(WAIT_SECONDS)
    outcomes = re.findall(r'^brain_calls_total{outcome="(\w+)",specialist="([^"]*)"} 1.0$', metrics, re.MULTILINE)
    assert sorted(outcomes) == [
        ("forged", "?"), ("invalid_params", "vault"), ("malformed", "vault"), ("ok", "vault"), ("refused", "vault"),
        ("unknown", "?"),
    ]  # fmt: skip
    assert (answer.body.count(b"s3cret") > 5, traces.count("execute_tool") > 5) == (True, True)
    assert ("ann" in log, "ann" in metrics + traces) == (True, False)
    assert [text for text in (log, metrics, traces) if "s3cret" in text] == []
