"""Transactions of a turn and of a task need few statements, since each one takes a round trip on some engines."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_helpers import NO_LIMITS, add_turn, answer, claim_due, join, question, store_at, task_of

from brain.store import tasks
from brain.store.tasks import DayLimits
from brain.store.turns import QuestionOptions

pytestmark = pytest.mark.anyio

STATEMENTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@contextmanager
def counted(connection: sqlite3.Connection) -> Iterator[list[str]]:
    """The statements of a connection that read or write tables."""
    found = list[str]()
    connection.set_trace_callback(lambda sql: found.append(sql) if sql.startswith(STATEMENTS) else None)
    yield found
    connection.set_trace_callback(None)


@pytest.mark.parametrize("conversation", ["first", "second"])
async def test_a_turn_begins_and_ends_in_few_statements(
    path: Path, connections: list[sqlite3.Connection], conversation: str
) -> None:
    async with store_at(path) as store:
        await join(store)
        for number in range(3):
            await add_turn(store, "ada", "first", number=number)
            await add_turn(store, "ada", "second", number=number)
        options = QuestionOptions(request_id="r")
        with counted(connections[0]) as began:
            history = await store.write_question("ada", conversation, question("More", 9), (), options)
        assert [one.message for one in history.exchanges] == ["Hello"] * 3
        assert len(began) <= 6
        with counted(connections[0]) as ended:
            await store.end(history, answer("Yes", 9))
        assert len(ended) <= 8


@pytest.mark.parametrize("limits", [NO_LIMITS, DayLimits(9, 9_999)])
async def test_a_task_is_claimed_in_few_statements(
    path: Path, connections: list[sqlite3.Connection], limits: DayLimits
) -> None:
    async with store_at(path) as store:
        await join(store)
        await add_turn(store, "ada", "c")
        await store.write(tasks.create, task_of("ada"), limits)
        with counted(connections[0]) as statements:
            (task,) = await claim_due(store, limits=limits)
        assert (task.state, task.run) == ("running", 1)
        assert len(statements) <= 8
