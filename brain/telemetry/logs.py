"""Formats log records, one line each. A turn is one record, and so is a run of a background task.

These records contain no text from the user, the model or a specialist. Other values, such as user names or
exception texts, cannot break or forge a line.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from traceback import format_exception, format_tb
from typing import Any

from brain.errors import is_private
from brain.messages import Exchange
from brain.task import Task

TEXT_LENGTH = 16_384
"""Maximum length of a message and of a traceback, in characters; the middle of a longer one is cut."""

MIN_SECRET = 8
"""Characters of the shortest key that is kept out of the log."""
LINES_PER_PERIOD = 20
"""Warnings and errors of one kind per period."""
PERIOD_SECONDS = 60.0

_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class TextLines(logging.Formatter):
    """`LEVEL logger: message`, and an indented traceback."""

    def format(self, record: logging.LogRecord) -> str:
        first = f"{record.levelname} {record.name}: {_bounded(record.getMessage())}"
        return "\n    ".join(_one_line(line) for line in [first, *_traceback(self, record).splitlines()])


class JsonLines(logging.Formatter):
    """One JSON object, in ASCII: `time`, `level`, `logger`, `pid`, `message`, those of a turn or run, `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": _bounded(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if traceback := _traceback(self, record):
            fields["traceback"] = traceback
        return json.dumps(fields)


@dataclass(slots=True)
class _Period:
    """The records of one kind since `start`."""

    start: float
    written: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None


class Redaction(logging.Filter):
    """Keeps keys out of all records, and texts of exceptions out of those of private conversations.

    Args:
        secrets: API keys and passwords. Short ones are words, and no secrets.
    """

    def __init__(self, secrets: Iterable[str | None]) -> None:
        super().__init__()
        self._secrets = sorted({one for one in secrets if one and len(one) >= MIN_SECRET}, key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record if needed. Return True."""
        message, private = record.getMessage(), is_private.get()
        if (clean := self._redact(message)) != message or private:  # it may be formatted again elsewhere
            record.msg, record.args = clean, ()
        if isinstance(record.exc_info, tuple) and (error := record.exc_info[1]) is not None:
            traceback = _describe_types(error) if private else "".join(format_exception(error)).rstrip()
            if (clean := self._redact(traceback)) != traceback or private:
                record.exc_info, record.stack_info = None, clean
        return True

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return text


def _describe_types(error: BaseException) -> str:
    """Return a traceback without the texts of the exceptions, which may repeat what they were about."""
    lines: list[str] = []
    one: BaseException | None = error
    while one is not None:
        lines[:0] = ["Traceback (most recent call last):\n", *format_tb(one.__traceback__), f"{type(one).__name__}\n"]
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "".join(lines).rstrip()


class RateLimit(logging.Filter):
    """Limits warnings and errors of one kind per period; one line reports the number of suppressed records.

    So clients without a key cannot fill the disk. A kind is a place in the code, since some libraries format messages
    before they log them. Records of level INFO, such as those of turns, are not limited.
    """

    def __init__(
        self,
        handler: logging.Handler,
        most: int = LINES_PER_PERIOD,
        seconds: float = PERIOD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._handler = handler
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._periods: dict[tuple[str, str, int], _Period] = {}
        handler.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record; count it otherwise."""
        if record.levelno < logging.WARNING:
            return True
        kind = record.name, record.pathname, record.lineno
        now = self._clock()
        with self._lock:
            period = self._periods.get(kind)
            if period is None or (now - period.start >= self._seconds and not period.left_out):
                period = self._periods[kind] = _Period(now)
            if period.written < self._most:
                period.written += 1
                return True
            if not period.left_out:
                timer = threading.Timer(period.start + self._seconds - now, self._end_period, (kind,))
                timer.daemon = True
                timer.start()
            period.left_out += 1
            period.last = record
        return False

    def write_counts(self) -> None:
        """Write how many records were left out so far, one line per kind, and begin new periods."""
        for kind in list(self._periods):
            self._end_period(kind)

    def _end_period(self, kind: tuple[str, str, int]) -> None:
        with self._lock:
            period = self._periods.pop(kind, None)
        if period is None or period.last is None:
            return
        last = period.last
        message, args = (
            "%d more in %.0f seconds like: %s",
            (period.left_out, self._clock() - period.start, last.getMessage()),
        )
        self._handler.acquire()
        try:
            self._handler.emit(
                logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, message, args, None)
            )
        finally:
            self._handler.release()


def turn_line(exchange: Exchange, user: str | None) -> str:
    """Return the log line of a turn."""
    usage, first_ms = exchange.total_usage, exchange.first_token_ms
    first = "no text" if first_ms is None else f"first token after {first_ms} ms"
    return (
        f"turn {exchange.turn_id} of {user}: {exchange.outcome}, {exchange.wire}, {exchange.model}, "
        f"{len(exchange.calls)} calls, {len(exchange.passes)} passes, "
        f"{usage.prompt_tokens} + {usage.completion_tokens} tokens, {first}, {exchange.duration_ms} ms"
    )


def turn_fields(exchange: Exchange, user: str | None) -> dict[str, str | int | None]:
    """Return the JSON fields of a turn."""
    usage = exchange.total_usage
    return {
        "turn_id": exchange.turn_id,
        "user": user,
        "wire": exchange.wire,
        "model": exchange.model,
        "outcome": exchange.outcome,
        "calls": len(exchange.calls),
        "passes": len(exchange.passes),
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "reused_tokens": usage.reused_tokens,
        "first_token_ms": exchange.first_token_ms,
        "total_ms": exchange.duration_ms,
    }


def task_line(task: Task, outcome: str, seconds: float) -> str:
    """Return the log line of a run of a background task."""
    return (
        f"task {task.id} of {task.user}: {outcome}, {task.profile}, run {task.run}, attempt {task.attempt}, "
        f"{round(seconds * 1000)} ms"
    )


def task_fields(task: Task, outcome: str, seconds: float) -> dict[str, str | int]:
    """Return the JSON fields of a run of a background task."""
    return {
        "task_id": task.id,
        "user": task.user,
        "profile": task.profile,
        "outcome": outcome,
        "run": task.run,
        "attempt": task.attempt,
        "total_ms": round(seconds * 1000),
    }


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [
        formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else "",
        record.stack_info or "",
    ]
    return _bounded("\n".join(filter(None, parts)))


def _bounded(text: str) -> str:
    half = TEXT_LENGTH // 2
    return text if len(text) <= TEXT_LENGTH else f"{text[:half]} ... {text[-half:]}"


def _one_line(text: str) -> str:
    """Escape characters that break lines or control a terminal."""
    return _unprintable.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
