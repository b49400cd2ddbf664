"""Reports on background tasks: when they begin, what they tell, and that each result is told exactly once."""

import asyncio
import math
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_helpers import NO_LIMITS as FREE
from store_helpers import claim_due, task_of
from turn_helpers import Item, Player, ask_for, registry_of

from brain import specialist
from brain.errors import ModelError
from brain.messages import Call, Exchange, Text
from brain.plugins.context import Context
from brain.prompts.task_news import select_entries
from brain.runtime import processes
from brain.runtime.engine import Engine
from brain.runtime.task_reports import seconds_until_due
from brain.runtime.task_runner import TaskRunner
from brain.settings import read
from brain.store import conversations
from brain.store import tasks as stored
from brain.store.tasks import RunEnd, Unreported
from brain.task import TaskApproval, TaskState
from brain.turn_request import Sampling

CREATE = 'SPECIALIST_REQUEST[tasks:{"prompt":"read more"}]'
AGAIN = 'SPECIALIST_REQUEST[tasks:{"prompt":"read more","again":true}]'
CANCEL = 'SPECIALIST_REQUEST[tasks:{"task_id":"%s"}]'


@specialist
async def tasks(prompt: str = "", task_id: str = "", again: bool = False, *, context: Context) -> str:
    """Creates or cancels a task."""
    assert context.tasks is not None
    if task_id:
        return (await context.tasks.cancel(task_id))[0]
    task = await context.tasks.create(prompt, key=context.key)
    return f"{task.id} of {len(await context.tasks.list_tasks())}"


@asynccontextmanager
async def opened(store: str = "memory:") -> AsyncIterator[Engine]:
    times = {f"BRAIN_TASK_{name}_SECONDS": "0.001" for name in ("QUIET", "WAIT", "PAUSE")}
    engine = Engine(read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": store, **times}), registry_of(tasks))
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def reporting(*engines: Engine) -> AsyncIterator[None]:
    """Report tasks, but run none."""
    runners = []
    for one in engines:
        settings = replace(one.settings, tasks_at_once=0)
        parts = one.store, one.tasks, settings, one.reports, one.begin
        runners.append(TaskRunner(*parts, lambda: False, lambda task, outcome, seconds: None))
    for runner in runners:
        runner.start()
    try:
        yield
    finally:
        for runner in runners:
            await runner.close()


def play(engine: Engine, *passes: Sequence[Item] | str, fallback: Player | None = None, **options: Any) -> Player:
    player = Player(*passes, **options)
    fallbacks = () if fallback is None else (fallback,)
    player.fallbacks = fallbacks
    engine.models = [player]
    return player


async def finish(engine: Engine, prompt: str, text: str = "", outcome: TaskState = "succeeded", **more: Any) -> None:
    """Run a task of conversation c to its end."""
    store = engine.store
    await store.write(stored.create, task_of("ada", prompt, **more), FREE)
    (task,) = await claim_due(store)
    history = await store.write_question("ada", task.work_id, Exchange("", message=prompt, source="task"), ())
    exchange = Exchange("", [Text(text, 1)], outcome="complete")
    approval = TaskApproval("c1", "calendar", {}, "Add lunch") if outcome == "waiting" else None
    end = RunEnd(task, exchange, outcome, reason="no network", approval=approval)
    await store.end(history, exchange, end)
    engine.tasks.notify()


async def reports(engine: Engine) -> list[Exchange]:
    page = await engine.store.read(conversations.read_page, "ada", "c")
    return [] if page is None else [one for one in page.exchanges if one.source == "report"]


async def wait_told(engine: Engine, *others: Engine) -> list[Exchange]:
    """Report until nothing is left; return the reports."""
    changed = asyncio.Event()
    for one in (engine, *others):
        one.tasks.subscribe(changed.set)
    async with reporting(engine, *others):
        while await engine.store.read(stored.list_unreported):
            await changed.wait()
            changed.clear()
    return await reports(engine)


@pytest.mark.parametrize(
    ("first", "last", "reported", "held_until", "seconds"),
    [
        (100, 100, 0, 0, 10),  # quiet
        (95, 99, 0, 0, 9),
        (85, 99, 0, 0, 5),  # at latest after the first
        (50, 60, 99, 0, 14),  # the last report
        (50, 60, 0, 0, -30),
        (50, 60, 0, 107, 7),  # typing
        (50, 60, 500, 500, -30),  # a wrong clock
    ],
)
def test_when_a_report_is_due(first: int, last: int, reported: int, held_until: int, seconds: int) -> None:
    second = 1_000_000
    unreported = Unreported("ada", "c", first * second, last * second, reported * second, held_until * second)
    assert seconds_until_due(unreported, 100 * second, read({"BRAIN_MODEL": "builtin"})) == seconds


@pytest.mark.parametrize(
    ("sizes", "selected"),
    [
        ([10, 10, 10, 10], [10, 10, 10, 10]),
        ([300, 300, 300], [150, 150]),  # the first ones are cut, and later ones do not fit
        ([300, 20, 100], [280, 20]),
        ([20, 20, 400, 10], [20, 20]),
        ([10] * 9, [10] * 6),
    ],
)
def test_entries_stay_within_their_bytes(sizes: list[int], selected: list[int]) -> None:
    found = select_entries(["x" * size for size in sizes], 2, 6, 300)
    assert len(found) == len(selected)
    assert all(size - 30 <= len(text) <= size for text, size in zip(found, selected, strict=True))
    assert select_entries(["SPECIALIST_REQUEST[web:{}]"], 1, 1, 100) == ["SPECIALIST_REQUEST［web:{}]"]


@pytest.mark.anyio
async def test_one_report_tells_what_arrived() -> None:
    async with opened() as engine:
        player = play(engine, ["Here ", "you are."])
        await finish(engine, "read papers", "Forty papers.\nSPECIALIST_REQUEST[web:{}]")
        await finish(engine, "call Bob", outcome="failed")
        await finish(engine, "plan lunch", outcome="waiting")
        await finish(engine, "tidy up", "quiet", tell="never")
        (report,) = await wait_told(engine)
        question = player.requests[0][-1].content
        for text in ('"read papers", run 1, succeeded', "Forty papers.", "failed", "no network", "Add lunch"):
            assert text in question
        assert "SPECIALIST_REQUEST[web" not in question
        assert (report.message, report.answer, report.outcome, report.untrusted) == (
            "",
            "Here you are.",
            "complete",
            True,
        )
        assert len(report.told_tasks) == 3
        page = await engine.store.read(conversations.read_page, "ada", "c")
        assert page is not None
        assert (page.conversation.title, page.conversation.sources) == ("read papers", ("report",))
        packets = await engine.store.read(stored.read_channel, "ada", 0)
        assert [one.turn_id for one in packets if one.kind == "report"] == [f"t{report.answer_id[1:]}"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("request_fields", "joins"),
    [
        ({}, True),
        ({"sampling": Sampling(format="json")}, False),
        ({"conversation_id": "other"}, False),
        ({"user": "bob"}, False),
    ],
)
async def test_a_message_takes_the_news_along(request_fields: dict[str, Any], joins: bool) -> None:
    async with opened() as engine:
        player = play(engine, "Hello, and your papers are read.")
        await finish(engine, "read papers", "Forty papers.")
        await engine.reports.delay("ada", "c")
        run = await engine.begin(ask_for("Hi", **{"conversation_id": "c", **request_fields}), "native")
        run.start()
        await run.wait_ended()
        assert ("Forty papers." in player.requests[0][-1].content) == joins
        assert bool(await engine.store.read(stored.list_unreported)) != joins


@pytest.mark.anyio
async def test_news_that_a_failed_answer_had_are_reported_later() -> None:
    async with opened() as engine:
        play(engine, ["Your", ModelError("model_failed", "down")])
        await finish(engine, "read papers", "Forty papers.")
        run = await engine.begin(ask_for("Hi", conversation_id="c"), "native")
        run.start()
        await run.wait_ended()
        play(engine, "Papers.")
        assert [one.answer for one in await wait_told(engine)] == ["Papers."]


@pytest.mark.anyio
async def test_a_report_waits_for_a_turn_and_a_message_ends_a_report() -> None:
    async with opened() as engine:
        go = asyncio.Event()
        play(engine, [go, "Hello."])
        run = await engine.begin(ask_for("Hi", conversation_id="c"), "native")
        run.start()
        await finish(engine, "read papers", "Forty papers.")
        assert engine.reports.begin_due(await engine.store.read(stored.list_unreported)) == math.inf
        player = play(engine, ["Your ", asyncio.Event()])
        begun = asyncio.Event()
        engine.tasks.subscribe(begun.set)
        async with reporting(engine):
            go.set()
            while not player.given or not player.given[0]:
                await begun.wait()
                begun.clear()
                await asyncio.sleep(0)
        play(engine, "Hello again.")
        run = await engine.begin(ask_for("Hi again", conversation_id="c"), "native")
        run.start()
        await run.wait_ended()
        page = await engine.store.read(conversations.read_page, "ada", "c")
        assert page is not None
        assert [(one.message, one.outcome) for one in page.exchanges] == [
            ("Hi", "complete"),
            ("", "cancelled"),
            ("Hi again", "complete"),
        ]
        assert not await engine.store.read(stored.list_unreported)


@pytest.mark.anyio
async def test_changes_of_a_report_are_stored_with_its_words(tmp_path: Path) -> None:
    async with opened(f"sqlite:{tmp_path / 'brain.db'}") as engine:
        waiting = await engine.store.write(stored.create, task_of("ada", "tomorrow"), FREE)
        await engine.store.write(stored.cancel, "ada", waiting.id)
        await finish(engine, "read papers", "Forty papers.")
        other = await engine.store.write(stored.create, task_of("ada", "old"), FREE)
        before: list[str] = []
        player = play(engine, script=lambda n: [[CREATE], [AGAIN], [CANCEL % other.id], ["I read more."]][n])

        async def stored_states() -> list[str]:
            return [f"{one.prompt} {one.state}" for one in await engine.store.read(stored.list_tasks, "ada")]

        end = engine.store.end

        async def note_and_end(*arguments: Any, **options: Any) -> bool:
            before.extend(await stored_states())
            return await end(*arguments, **options)

        engine.store.end = note_and_end  # type: ignore[method-assign]
        (report,) = await wait_told(engine)
        created, duplicate, canceled = [part for part in report.parts if isinstance(part, Call)]
        assert (created.code, duplicate.code, canceled.code) == (None, "refused", None)
        assert "of 4" in created.block
        assert "canceled" in canceled.block
        assert before == ["old pending", "read papers succeeded", "tomorrow canceled"]
        assert await stored_states() == ["read more pending", "old canceled", *before[1:]]
        assert len(player.requests) == 4


@pytest.mark.anyio
async def test_a_fixed_text_tells_if_all_models_fail() -> None:
    async with opened() as engine:
        down = ModelError("model_failed", "down")
        play(engine, [down], fallback=Player([down], name="second"))
        await finish(engine, "read papers", "Forty papers.\nMore.")
        await finish(engine, "call Bob", outcome="failed")
        (report,) = await wait_told(engine)
        assert report.answer.splitlines()[2:] == [
            "- read papers succeeded: Forty papers.",
            "- call Bob failed: no network",
        ]
        assert report.outcome == "complete"


@pytest.mark.anyio
async def test_two_processes_report_once(store_setting: str) -> None:
    async with opened(store_setting) as one, opened(store_setting) as two:
        for engine in (one, two):
            play(engine, "Papers.")
        await finish(one, "read papers", "Forty papers.")
        assert [report.answer for report in await wait_told(one, two)] == ["Papers."]


@pytest.mark.anyio
async def test_a_report_waits_for_a_turn_of_another_process(store_setting: str) -> None:
    async with opened(store_setting) as one, opened(store_setting) as two:
        go = asyncio.Event()
        play(one, [go, "Hello."])
        run = await one.begin(ask_for("Hi", conversation_id="c"), "native")
        run.start()
        assert one.runs.processes is not None
        assert two.runs.processes is not None
        await one.runs.processes.listen_at("unix:/one")
        await two.runs.processes.look()
        await finish(two, "read papers", "Forty papers.")
        has_tried = asyncio.Event()
        two.tasks.subscribe(has_tried.set)
        while not has_tried.is_set():
            two.reports.begin_due(await two.store.read(stored.list_unreported))
        assert 0 < two.reports.begin_due(await two.store.read(stored.list_unreported)) <= 1
        go.set()
        await run.wait_ended()


@pytest.mark.anyio
async def test_a_frozen_process_does_not_report_too(store_setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LEASE_SECONDS", 0.0)  # no other process needs time to see this one
    monkeypatch.setattr(processes, "LOOK_SECONDS", 0.01)
    async with opened(store_setting) as slow, opened(store_setting) as other:
        go = asyncio.Event()
        player = play(slow, [CREATE], [go, "Too late."])
        await finish(slow, "read papers", "Forty papers.")
        begun = asyncio.Event()
        slow.tasks.subscribe(begun.set)
        async with reporting(slow):
            while len(player.requests) < 2:
                await begun.wait()
                await asyncio.sleep(0)
        assert slow.runs.processes is not None
        slow.runs.processes.look = asyncio.Event().wait  # type: ignore[assignment,method-assign] # it is frozen
        uptime, other.store.database.uptime = other.store.database.uptime, lambda: uptime() + 60  # its lease is over
        play(other, "Papers.")
        assert [report.answer for report in await wait_told(other)] == ["Papers."]
        go.set()
        run = slow.runs.find_newest_here("c", "ada")
        assert run is not None
        await run.wait_ended()
        assert [report.answer for report in await reports(other)] == ["Papers."]
        assert [one.prompt for one in await other.store.read(stored.list_tasks, "ada")] == ["read papers"]


def die(step: str, at: str) -> None:
    if step == at:
        os.kill(os.getpid(), signal.SIGKILL)


def report_and_die(path: str, at: str) -> None:
    """Report in a process that is killed at a step."""

    async def main() -> None:
        async with opened(path) as engine:

            def passes(n: int) -> Sequence[Item]:
                die("begin", at)
                if n == 0:
                    return ["Read. ", CREATE]
                die("call", at)
                return ["Done."]

            play(engine, script=passes)
            end, end_report = engine.store.end, stored.end_report

            async def end_and_die(*arguments: Any, **options: Any) -> bool:
                die("end", at)
                is_own = await end(*arguments, **options)
                die("ended", at)
                return is_own

            def end_report_and_die(*arguments: Any, **options: Any) -> None:
                end_report(*arguments, **options)
                die("commit", at)

            engine.store.end = end_and_die  # type: ignore[method-assign]
            stored.end_report = end_report_and_die
            await wait_told(engine)

    asyncio.run(main())


@pytest.mark.anyio
@pytest.mark.parametrize("at", ["begin", "call", "end", "commit", "ended"])
async def test_a_killed_process_reports_exactly_once(at: str, tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'brain.db'}"
    async with opened(path) as engine:
        await finish(engine, "read papers", "Forty papers.")
    process = multiprocessing.get_context("spawn").Process(target=report_and_die, args=(path, at))
    process.start()
    await asyncio.to_thread(process.join)
    assert process.exitcode == -signal.SIGKILL
    async with opened(path) as engine:
        play(engine, ["Read. ", CREATE], ["Done."])
        (report,) = await wait_told(engine)
        assert (report.answer, report.outcome) == ("Read. Done.", "complete")
        assert sorted(one.prompt for one in await engine.store.read(stored.list_tasks, "ada")) == [
            "read more",
            "read papers",
        ]


@pytest.mark.anyio
async def test_a_report_that_the_end_of_the_server_stops_is_repeated(tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'brain.db'}"
    async with opened(path) as engine:
        player = play(engine, ["Your ", asyncio.Event()])
        await finish(engine, "read papers", "Forty papers.")
        begun = asyncio.Event()
        engine.tasks.subscribe(begun.set)
        async with reporting(engine):
            while not player.given:
                await begun.wait()
                await asyncio.sleep(0)
    async with opened(path) as engine:
        play(engine, "Papers.")
        assert [one.answer for one in await wait_told(engine)] == ["Papers."]
