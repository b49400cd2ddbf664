"""Tasks run without readers, wait for approvals without a process, and stop in every state."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from limits import WAIT_SECONDS
from store_helpers import NO_LIMITS, TOMORROW, fact, lose_outcome, opened, sqlite_of, task_of
from turn_helpers import Item, Player, ask_for, registry_of

from brain import Context, specialist
from brain.errors import ModelError, StoreError
from brain.messages import Attachment, Call
from brain.models.model import PassRequest
from brain.runtime import priority, task_runner
from brain.runtime.commands import CancelTurn
from brain.runtime.engine import Engine
from brain.settings import read
from brain.store import conversations, database_of, items, tasks
from brain.store import tasks as task_rows
from brain.store.store import Store
from brain.task import NewTask, Task


class Runner:
    """An engine that runs tasks, and what its specialists did."""

    def __init__(self, engine: Engine, effects: list[str], started: asyncio.Event, outcomes: list[str]) -> None:
        self.engine = engine
        self.effects = effects
        self.started = started
        self.outcomes = outcomes

    def play(self, *passes: Sequence[Item] | str, **options: Any) -> Player:
        player = Player(*passes, **options)
        self.engine.models = [player]
        return player

    async def add(self, prompt: str = "Work", **options: Any) -> Task:
        new = NewTask(prompt=prompt, conversation_id="c", **options)
        return await self.engine.tasks.create(self.engine.tasks.check("ada", new))

    async def wait_for(self, task: Task, is_reached: Callable[[Task], bool]) -> Task:
        changed = asyncio.Event()
        unsubscribe = self.engine.tasks.subscribe(changed.set)
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                changed.clear()
                found = await self.engine.store.read(tasks.find, "ada", task.id)
                assert found is not None
                if is_reached(found):
                    unsubscribe()
                    return found
                await changed.wait()

    async def finish(self, task: Task) -> Task:
        return await self.wait_for(task, lambda one: one.has_ended)

    async def calls(self, task: Task) -> list[tuple[str, str | None]]:
        page = await self.engine.store.read(conversations.read_page, "ada", task.work_id)
        assert page is not None
        parts = [part for exchange in page.exchanges for part in exchange.parts]
        return [(part.name, part.outcome) for part in parts if isinstance(part, Call)]


@asynccontextmanager
async def running(**settings: str) -> AsyncIterator[Runner]:
    effects: list[str] = []
    started = asyncio.Event()

    @specialist(read_only=False, approval="always", outside=False, preview=lambda params: f"Write {params['n']}.")
    async def write(n: int, *, context: Context) -> str:
        """Has an effect."""
        effects.append(f"{n} {context.key.partition('-')[2]}")
        return f"wrote {n}"

    @specialist(read_only=True, timeout=WAIT_SECONDS)
    async def wait() -> str:
        """Waits until it is cancelled."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            effects.append("cancelled")
        return "never"

    values = {"MODEL": "builtin", "STORE": "memory:", "TIME_ZONE": "UTC", **settings}
    engine = Engine(read({f"BRAIN_{key}": value for key, value in values.items()}), registry_of(write, wait))
    outcomes: list[str] = []
    await engine.open(lambda task, outcome, seconds: outcomes.append(outcome))
    try:
        yield Runner(engine, effects, started, outcomes)
    finally:
        await engine.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("approve", "effects", "calls"),
    [
        (True, ["1 1-c1"], [("write", "ok")]),
        (False, [], [("write", "declined")]),
        (True, ["1 1-c1"], [("write", "ok")] * 2),  # identical calls have one effect
        (False, [], [("write", "declined")] * 2),
    ],
)
def test_an_approval_ends_the_turn_and_the_run_continues_later(
    approve: bool, effects: list[str], calls: list[tuple[str, str]]
) -> None:
    async def main() -> None:
        async with running() as runner:
            runner.play(["I ", *['SPECIALIST_REQUEST[write:{"n":1}]'] * len(calls)], "did it.")
            task = await runner.wait_for(await runner.add(), lambda one: one.state == "waiting")
            assert task.approval is not None
            assert (task.approval.name, task.approval.text) == ("write", "Write 1.")
            assert not runner.engine.runs.running
            await runner.engine.tasks.write(tasks.decide, "ada", task.id, task.approval.call_id, approve)
            task = await runner.finish(task)
            assert (task.state, task.result, task.run) == ("succeeded", "I did it.", 1)
            assert runner.effects == effects
            assert await runner.calls(task) == calls

    asyncio.run(main())


async def start(runner: Runner, state: str) -> Task:
    """Return a task in a state."""
    if state == "scheduled":
        return await runner.add(when="2100-01-01T08:00")
    if state == "pending":
        return await runner.add()
    if state == "approval":
        runner.play(['SPECIALIST_REQUEST[write:{"n":1}]'])
        return await runner.wait_for(await runner.add(), lambda one: one.approval is not None)
    if state == "specialist":
        runner.play(["SPECIALIST_REQUEST[wait]"])
        task = await runner.add()
        await runner.started.wait()
        return task
    if state == "model":
        player = runner.play(["Text ", asyncio.Event()])
        task = await runner.wait_for(await runner.add(), lambda one: bool(one.turn_id))
        async with asyncio.timeout(WAIT_SECONDS):
            while not player.open:  # noqa: ASYNC110
                await asyncio.sleep(0)
        return task
    runner.play("Done." if state == "succeeded" else [ModelError("model_failed", "no", recoverable=False)])
    return await runner.finish(await runner.add())


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("pending", "canceled"),
        ("scheduled", "canceled"),
        ("approval", "canceled"),
        ("specialist", "canceled"),
        ("model", "canceled"),
        ("succeeded", "already_done"),
        ("failed", "already_done"),
    ],
)
def test_cancel_in_every_state(state: str, outcome: str) -> None:
    async def main() -> None:
        async with running(TASKS_AT_ONCE="0" if state == "pending" else "3") as runner:
            task = await start(runner, state)
            found, _ = await runner.engine.tasks.write(tasks.cancel, "ada", task.id)
            assert found == outcome
            async with asyncio.timeout(WAIT_SECONDS):
                for run in runner.engine.runs.running:
                    await run.wait_ended()
            task = await runner.finish(task)
            assert task.state == ("canceled" if outcome == "canceled" else state)
            assert runner.effects == (["cancelled"] if state == "specialist" else [])
            if outcome == "canceled":
                assert (await runner.engine.tasks.write(tasks.cancel, "ada", task.id))[0] == "already_canceled"
            assert (await runner.engine.tasks.write(tasks.cancel, "ada", "task0"))[0] == "not_found"
            assert (await runner.engine.tasks.write(tasks.cancel, "eve", task.id))[0] == "not_found"

    asyncio.run(main())


def test_another_process_adds_and_cancels_a_task(store_setting: str) -> None:
    async def main() -> None:
        async with running(STORE=store_setting) as runner, opened(Store(database_of(store_setting))) as other:
            changed = asyncio.Event()
            runner.engine.tasks.subscribe(changed.set)
            runner.play(["Text ", asyncio.Event()])
            task = await other.write(tasks.create, task_of("ada"), NO_LIMITS)
            await runner.wait_for(task, lambda one: bool(one.turn_id))
            await other.write(tasks.cancel, "ada", task.id)
            async with asyncio.timeout(WAIT_SECONDS):
                while not runner.outcomes:
                    await changed.wait()
                    changed.clear()
            assert runner.outcomes == ["canceled"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("failures", "outcomes"),
    [
        ([ModelError("model_failed", "busy", recoverable=True)], ["pending", "succeeded"]),
        ([ModelError("model_failed", "busy", recoverable=True)] * 2, ["pending", "failed"]),
        ([ModelError("model_failed", "wrong", recoverable=False)], ["failed"]),
    ],
)
def test_one_retry_for_failures_that_may_pass(
    monkeypatch: pytest.MonkeyPatch, failures: list[ModelError], outcomes: list[str]
) -> None:
    monkeypatch.setattr(task_rows, "RETRY_SECONDS", 0)

    async def main() -> None:
        async with running() as runner:
            left = list(failures)
            player = runner.play(script=lambda turn_pass: [left.pop(0)] if left else ["Done."])
            task = await runner.finish(await runner.add())
            assert (task.state, len(player.requests)) == (outcomes[-1], len(outcomes))
        assert runner.outcomes == outcomes

    asyncio.run(main())


def test_a_run_whose_begin_cannot_be_stored_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    set_turn = tasks.set_turn

    def fail_once(*arguments: Any) -> bool:
        monkeypatch.setattr(tasks, "set_turn", set_turn)
        raise StoreError("disk full")

    async def main() -> None:
        async with running() as runner:
            runner.play("Done.")
            monkeypatch.setattr(tasks, "set_turn", fail_once)
            task = await runner.finish(await runner.add())
            assert (task.state, task.run, task.result) == ("succeeded", 1, "Done.")

    asyncio.run(main())


def test_a_result_that_finds_no_space_is_stored_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("brain.store.store.MAINTAIN_SECONDS", 0.01)

    async def main() -> None:
        async with running() as runner:

            async def limit(pages: int) -> None:
                work = lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close()  # noqa: E731
                await sqlite_of(runner.engine.store).run_outside(work)

            release = asyncio.Event()
            text = " ".join(map(str, range(10_000)))
            player = runner.play([release, text])
            task = await runner.wait_for(await runner.add(), lambda one: bool(one.turn_id))
            await limit(1)
            release.set()
            async with asyncio.timeout(WAIT_SECONDS):
                while "an answer was not stored" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await limit(1_000_000)
            task = await runner.finish(task)
            assert (task.state, task.run, task.attempt, task.result) == ("succeeded", 1, 1, text)
            assert len(player.requests) == 1

    asyncio.run(main())


def test_a_persons_turn_interrupts_the_pass_of_a_task_which_then_continues_its_text() -> None:
    async def main() -> None:
        async with running() as runner:
            never, shown = asyncio.Event(), asyncio.Event()
            player = runner.play(script=lambda turn_pass: ["One "] if turn_pass == 0 else ["two."])

            async def stream(request: PassRequest) -> Any:
                async with asyncio.timeout(WAIT_SECONDS):
                    async for chunk in type(player).stream(player, request):
                        yield chunk
                        shown.set()
                        if len(player.requests) == 1:
                            await never.wait()

            player.stream = stream  # type: ignore[method-assign]
            task = await runner.add()
            await shown.wait()
            run = await runner.engine.begin(ask_for("Hi", conversation_id="c"), "native")
            async for _ in run.events():
                pass
            task = await runner.finish(task)
            assert task.result == "One two."
            assert [message.content for message in player.requests[-1]][-1] == "One "

    asyncio.run(main())


def test_a_schedule_runs_again_and_reads_its_last_result() -> None:
    async def main() -> None:
        async with running() as runner:
            player = runner.play("Nothing new.")
            task = await runner.add(every="FREQ=YEARLY;BYMONTH=1;BYMONTHDAY=1;BYHOUR=8;BYMINUTE=0")
            for number in (1, 2):
                await runner.engine.tasks.run_now("ada", task.id)
                task = await runner.wait_for(task, lambda one: one.run == number and one.state == "waiting")  # noqa: B023
            assert task.next_run is not None
            assert task.next_run > datetime.now(UTC)
            assert (task.next_run.month, task.next_run.day, task.next_run.hour) == (1, 1, 8)
            questions = [request[-1].content for request in player.requests]
            assert ["Nothing new." in question for question in questions] == [False, True]

    asyncio.run(main())


@pytest.mark.parametrize("waits_for", ["an approval", "a specialist", "a person who does not start it"])
def test_a_persons_turn_that_uses_no_model_delays_no_task(monkeypatch: pytest.MonkeyPatch, waits_for: str) -> None:
    monkeypatch.setattr(priority, "MAX_WAIT_SECONDS", 1e6)
    call = "SPECIALIST_REQUEST[wait]" if waits_for == "a specialist" else 'SPECIALIST_REQUEST[write:{"n":1}]'

    async def main() -> None:
        async with running() as runner:
            runner.play([call])
            run = await runner.engine.begin(ask_for("Hi", conversation_id="d", asks_person=True), "native")
            if waits_for == "a specialist":
                run.start()
                await runner.started.wait()
            elif waits_for == "an approval":
                run.start()
                async with asyncio.timeout(WAIT_SECONDS):
                    while not run.is_waiting:  # noqa: ASYNC110
                        await asyncio.sleep(0)
            runner.play("Done.")
            task = await runner.finish(await runner.add())
            assert (task.result, run.has_ended) == ("Done.", False)
            if waits_for == "a person who does not start it":
                run.start()
            run.stop()
            await run.wait_ended()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("schedule", "state", "next_run"), [({}, "canceled", None), ({"when": "2100-01-04T08:00"}, "waiting", 2100)]
)
def test_canceling_a_run_ends_only_the_run(schedule: dict[str, str], state: str, next_run: int | None) -> None:
    async def main() -> None:
        async with running() as runner:
            runner.play(["SPECIALIST_REQUEST[wait]"], "Done.")
            task = await runner.add(**schedule)
            if schedule:
                await runner.engine.tasks.run_now("ada", task.id)
            await runner.started.wait()
            (run,) = runner.engine.runs.running
            run.apply(CancelTurn())
            task = await runner.wait_for(task, lambda one: one.state not in ("pending", "running"))
            assert (task.state, task.failures, task.reason) == (state, 0, "")
            assert (None if task.next_run is None else task.next_run.year) == next_run
            await runner.engine.tasks.run_now("ada", task.id)
            runner.play("Done.")
            task = await runner.wait_for(task, lambda one: one.result == "Done.")
            assert task.run == 2

    asyncio.run(main())


@pytest.mark.parametrize("is_new", [False, True])
def test_a_wrong_clock_delays_no_schedule(monkeypatch: pytest.MonkeyPatch, is_new: bool) -> None:
    monkeypatch.setattr(task_runner, "LOOK_SECONDS", 0.01)

    async def main() -> None:
        async with running() as runner:
            runner.play("Done.")
            store = runner.engine.store
            clock, sixty_days = store.database.clock, timedelta(days=60)
            task = None if is_new else await runner.add(every="every 5 minutes")
            store.database.clock = lambda: clock() + sixty_days.total_seconds()
            if task is None:
                task = await runner.add(every="every 5 minutes")
            else:
                task = await runner.wait_for(task, lambda one: one.state == "waiting" and one.run == 1)
            assert task.next_run is not None
            assert task.next_run > datetime.now(UTC) + timedelta(days=59)
            store.database.clock = clock
            soon = datetime.now(UTC) + timedelta(minutes=5, seconds=WAIT_SECONDS)
            await runner.wait_for(task, lambda one: one.next_run is not None and one.next_run < soon)

    asyncio.run(main())


def test_a_task_reads_the_files_of_its_conversation() -> None:
    async def main() -> None:
        async with running() as runner:
            player = runner.play("Done.")
            notes = Attachment(1, "notes.txt", "text/plain", b"Buy milk.")
            run = await runner.engine.begin(ask_for("Hi", conversation_id="c", attachments=(notes,)), "native")
            async for _ in run.events():
                pass
            await runner.finish(await runner.add())
            question = player.requests[-1][-1].content
            assert ("notes.txt" in question, "Buy milk." in question) == (True, True)

    asyncio.run(main())


def test_a_task_whose_claim_has_an_unknown_outcome_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "LOOK_SECONDS", 0.01)

    async def main() -> None:
        async with running() as runner:
            runner.play("Done.")
            lose_outcome(runner.engine.store, tasks.claim)
            task = await runner.finish(await runner.add())
            assert (task.state, task.result, task.run) == ("succeeded", "Done.", 1)

    asyncio.run(main())


@pytest.mark.postgresql
def test_only_tasks_of_other_processes_are_news_for_the_subscribers(postgresql_store_url: str) -> None:
    async def main() -> None:
        async with (
            running(STORE=postgresql_store_url) as runner,
            opened(Store(database_of(postgresql_store_url))) as other,
        ):
            store, heard = runner.engine.store, asyncio.Event()
            runner.engine.tasks.subscribe(heard.set)
            version, _ = store.database.known_version
            await other.write(items.put, "ada", fact("f1", "Likes jazz"))
            async with asyncio.timeout(WAIT_SECONDS):
                while store.database.known_version[0] == version:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert not heard.is_set()
            await other.write(tasks.create, task_of("ada", start=TOMORROW, next_run=TOMORROW), NO_LIMITS)
            await asyncio.wait_for(heard.wait(), WAIT_SECONDS)

    asyncio.run(main())
