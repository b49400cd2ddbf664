"""Ground: what stands in the log. A record is one line, whatever is in it, and a turn is one record.

No word of the user, the model or a specialist stands in a turn's record. What others put into theirs, such as the name
of a user or the text of a stranger's exception, can neither break a line nor begin one that looks like ours.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from brain.report import TurnReport

TEXT_MOST = 16_384
"""Characters of a message, and of a traceback; the middle of a longer one is left out."""

_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class TextLines(logging.Formatter):
    """`LEVEL logger: message`, and a traceback in lines that are set in."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        first = f"{record.levelname} {record.name}: {_bounded(record.getMessage())}"
        return "\n    ".join(_one_line(line) for line in [first, *_traceback(self, record).splitlines()])


class JsonLines(logging.Formatter):
    """One JSON object, in ASCII: `time`, `level`, `logger`, `pid`, `message`, the fields of a turn, `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": _bounded(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if traceback := _traceback(self, record):
            found["traceback"] = traceback
        return json.dumps(found)


def turn(report: TurnReport) -> str:
    """What the log says of a turn that ended."""
    usage = report.usage
    first = "no text" if report.first_token_ms is None else f"first token after {report.first_token_ms} ms"
    return (
        f"turn {report.turn_id} of {report.user}: {report.outcome}, {report.wire}, {report.model}, "
        f"{len(report.calls)} calls, {len(report.passes)} passes, "
        f"{usage.prompt_tokens} + {usage.completion_tokens} tokens, {first}, {report.total_ms} ms"
    )


def turn_fields(report: TurnReport) -> dict[str, str | int | None]:
    """The same as fields."""
    return {
        "turn_id": report.turn_id,
        "user": report.user,
        "wire": report.wire,
        "model": report.model,
        "outcome": report.outcome,
        "calls": len(report.calls),
        "passes": len(report.passes),
        "prompt_tokens": report.usage.prompt_tokens,
        "completion_tokens": report.usage.completion_tokens,
        "reused_tokens": report.usage.reused_tokens,
        "first_token_ms": report.first_token_ms,
        "total_ms": report.total_ms,
    }


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [
        formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else "",
        record.stack_info or "",
    ]
    return _bounded("\n".join(filter(None, parts)))


def _bounded(text: str) -> str:
    half = TEXT_MOST // 2
    return text if len(text) <= TEXT_MOST else f"{text[:half]} ... {text[-half:]}"


def _one_line(text: str) -> str:
    """The text with what breaks lines, or moves a terminal's cursor, written out."""
    return _unprintable.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
