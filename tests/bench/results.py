"""The results at the top of the page, computed from the tables."""

from collections.abc import Mapping

from tables import Table, number
from whole import RATE

NEEDED = ("cpu", "latency", "capacity", "memory", "leaving", "marker")


def summarize(tables: Mapping[str, Table]) -> str | None:
    """Return the results as Markdown; None while a table or a server is missing."""
    try:
        cpu, latency, capacity, memory, leaving, marker = (tables[name] for name in NEEDED)
        rows = [
            ("latency that Brain adds to a token", f"{_added(latency, 0)} ms (p50), {_added(latency, 1)} ms (p99)"),
            ("time that Brain adds to the first token", f"{_added(latency, 2)} ms (p50)"),
            (f"CPU time per token, 200 streams of {RATE} tokens/s", f"{_value(cpu, 'brain', 2)} µs"),
            ("CPU time per token, when several arrive together", f"{_value(cpu, 'brain', 0)} µs"),
            ("CPU time of a one-token answer", f"{_value(cpu, 'brain', 3)} µs"),
            (f"streams of {RATE} tokens/s on one core, p99 latency below 50 ms", _value(capacity, "brain", 0)),
            ("the same with a common implementation ([baseline](#whole-servers))", _value(capacity, "baseline", 0)),
            ("memory per waiting stream", f"{_value(memory, 'brain', 1)} KiB"),
            ("from a client's disconnect to the close of the model's stream, p50", f"{_value(leaving, 'brain', 0)} ms"),
            ("from the end of a call to the start of the specialist", f"{_value(marker, 'at once', 0)} ms"),
        ]
    except KeyError:
        return None
    return "\n".join(
        ["| question | result |", "|---|---|", *(f"| {question} | {result} |" for question, result in rows)]
    )


def _value(table: Table, row: str, column: int) -> str:
    median = table.median(row, table.columns[column])
    if median is None:
        raise KeyError(row)
    return number(median)


def _added(latency: Table, column: int) -> str:
    """How much more Brain takes than the tools alone."""
    brain, direct = (latency.median(name, latency.columns[column]) for name in ("brain", "direct"))
    if brain is None or direct is None:
        raise KeyError(column)
    return number(brain - direct)
