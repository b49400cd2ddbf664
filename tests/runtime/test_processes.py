"""Two engines with one store, like two processes: each finds the turns of the other, and continues them if it dies."""

import asyncio
import inspect
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import pytest
from store_helpers import lose_outcome
from turn_helpers import Item, Player, ask_for, echo, registry_of, sends

from brain.errors import BadRequest, OutcomeUnknown, RunsElsewhere, StoreError
from brain.events import ApprovalRequired, Done, Rewind, SpecialistError, Token
from brain.messages import Exchange
from brain.models.model import Model
from brain.runtime.commands import Decide
from brain.runtime.engine import Engine
from brain.runtime.event_log import EPOCH_EVENTS
from brain.runtime.processes import Processes
from brain.runtime.run import Run, RunOptions
from brain.settings import read
from brain.store import conversations, processes, turns
from brain.store.turns import RequestTaken
from brain.store.tx import Tx

ECHO = 'SPECIALIST_REQUEST[echo:{"text":"b"}]'
DETACHED: dict[str, Any] = {"is_detached": True}


class Process:
    """An engine whose model plays."""

    def __init__(self, engine: Engine, setting: str) -> None:
        self.engine = engine
        self.setting = setting

    @property
    def processes(self) -> Processes:
        assert self.engine.runs.processes is not None
        return self.engine.runs.processes

    async def start(self, *passes: Sequence[Item] | str, conversation_id: str = "c", **options: Any) -> Run:
        self.engine.models = [Player(*passes)]
        names = [field.name for field in fields(RunOptions) if field.name in options]
        run_options = RunOptions(**{name: options.pop(name) for name in names})
        request = ask_for(conversation_id=conversation_id, asks_person=True, **options)
        run = await self.engine.begin(request, "native", options=run_options)
        run.start()
        return run

    def plays(self, text: str) -> None:
        """Let the model answer each request with a text."""
        self.engine.models = [Player(script=lambda turn_pass: [text])]

    async def find(self, run: Run, user: str | None = "ada") -> Run | None:
        return await self.engine.runs.find(run.id, user)

    async def stored(self, conversation_id: str = "c") -> list[Exchange]:
        page = await self.engine.store.read(conversations.read_page, "ada", conversation_id)
        return [] if page is None else list(page.exchanges)

    async def bury(self, other: "Process") -> None:
        """Let the lease of another process be over."""
        await self.engine.store.write(_remove, other.processes.process)
        await self.processes.look()


def _remove(tx: Tx, process: str) -> None:
    tx.execute("DELETE FROM process WHERE id = ?", (process,))


@asynccontextmanager
async def opened(setting: str) -> AsyncIterator[Process]:
    settings = read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": setting, "BRAIN_ASSIST": "off"})
    engine = Engine(settings, registry_of(echo, sends))
    await engine.open()
    try:
        process = Process(engine, setting)
        await process.processes.listen_at(f"unix:/{process.processes.process}")
        yield process
    finally:
        await engine.close()


def with_two(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test with two engines. They look at the store only when the test says so."""

    @wraps(test)
    def run(store_setting: str, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
        monkeypatch.setattr("brain.runtime.processes.LOOK_SECONDS", 1e6)

        async def main() -> None:
            async with opened(store_setting) as here, opened(store_setting) as there:
                await test(here=here, there=there, **arguments)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    parameters = inspect.signature(test).parameters.items()
    own = [parameter for name, parameter in parameters if name not in ("here", "there")]
    fixtures = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("store_setting", "monkeypatch")]
    run.__signature__ = inspect.Signature([*fixtures, *(one.replace(kind=one.KEYWORD_ONLY) for one in own)])  # type: ignore[attr-defined]
    return run


async def until(run: Run, reached: Callable[[], bool]) -> None:
    """Wait until an event of the run makes a condition true."""
    arrived = asyncio.Event()
    unsubscribe = run.join(lambda events, frames: arrived.set() if reached() else None)
    if not reached():
        await arrived.wait()
    unsubscribe()
    run.leave()


@with_two
async def test_a_turn_of_another_process_is_found_there(here: Process, there: Process) -> None:
    go = asyncio.Event()
    run = await here.start(["a", go], request_id="r")
    ask = ask_for(conversation_id="c", request_id="r")
    for find in (
        there.find(run),
        there.engine.runs.find_requested(ask),
        there.engine.runs.find_newest("c", "ada"),
        there.start("b"),
        there.start("b", barge_in=True),
        there.engine.delete("ada", "c"),
    ):
        with pytest.raises(RunsElsewhere) as found:
            await find
        assert (found.value.process, found.value.address) == (here.processes.process, here.processes.address)
    assert await there.engine.runs.find("t0", "ada") is None
    with pytest.raises(RunsElsewhere):  # who asks is checked there
        await there.find(run, "bob")
    go.set()
    await run.wait_ended()
    with pytest.raises(RunsElsewhere):  # its events can be read for a while
        await there.find(run)
    assert (await there.start("b", conversation_id="d")).id != run.id


@with_two
async def test_a_process_is_found_as_soon_as_it_has_an_address(here: Process, there: Process) -> None:
    await here.processes.listen_at("")
    await there.processes.look()
    await here.processes.listen_at("unix:/here")
    run = await here.start([asyncio.Event()])
    with pytest.raises(RunsElsewhere) as found:
        await there.find(run)
    assert found.value.address == "unix:/here"


@with_two
async def test_what_a_process_wrote_before_its_death_is_looked_for(here: Process, there: Process) -> None:
    changed = asyncio.Event()
    here.engine.store.database.on_change = changed.set
    await here.processes.look()
    changed.clear()
    await here.bury(there)
    assert changed.is_set()


def test_nobody_can_sign_requests_for_a_process_that_has_not_joined(
    store_setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tx: Tx, address: str) -> str:
        raise StoreError("the disk is full")

    monkeypatch.setattr("brain.store.processes.add", fail)

    async def main() -> set[bytes]:
        async with opened(store_setting) as one, opened(store_setting) as two:
            return {one.processes.secret, two.processes.secret}

    assert [len(secret) for secret in asyncio.run(main())] == [32, 32]


@with_two
async def test_one_of_two_requests_with_an_id_begins(here: Process, there: Process) -> None:
    async def once(process: Process) -> Run | None:
        process.engine.models = [Player("a")]
        ask = ask_for(conversation_id="c", request_id="r")
        try:
            _, new = await process.engine.runs.find_or_begin(ask, lambda: process.engine.begin(ask, "native"))
        except (RunsElsewhere, RequestTaken):
            return None
        return new

    begun = [run for run in await asyncio.gather(once(here), once(there)) if run is not None]
    assert len(begun) == 1
    begun[0].start()
    await begun[0].wait_ended()


def test_a_process_without_others_needs_no_renewal(store_setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.processes.LOOK_SECONDS", 1e6)

    async def main() -> None:
        async with opened(store_setting) as alone:
            store = alone.engine.store
            await store.write(lambda tx: tx.execute("UPDATE process SET until = 0").rowcount)  # long ago
            submit, writes = store.database.submit, list[object]()

            def note(*arguments: Any, **options: Any) -> Any:
                writes.append(arguments)
                return submit(*arguments, **options)

            store.database.submit = note  # type: ignore[method-assign]
            for _ in range(3):
                await alone.processes.look()
            assert (writes, [one.is_over for one in await store.read(processes.read)]) == ([], [True])
            async with opened(store_setting) as other:
                await other.processes.look()
                await alone.processes.look()  # it sees the other one, and renews its lease
                assert (alone.processes.can_take_over, other.processes.can_take_over) == (True, True)
                assert [one.is_over for one in await store.read(processes.read)] == [False, False]
                run = await alone.start("a")
                await run.wait_ended()
                assert (await alone.stored())[0].outcome == "complete"

    asyncio.run(main())


@with_two
async def test_a_detached_turn_continues_from_its_checkpoint(here: Process, there: Process) -> None:
    run = await here.start(["One, ", ECHO], ["two, ", asyncio.Event()], **DETACHED)
    await until(run, lambda: Token("two, ") in run.log.events())
    await here.processes.look()
    at_checkpoint = run.log.last
    there.plays("three.")
    await there.bury(here)
    heir = await there.find(run)
    assert heir is not None
    await heir.wait_ended()
    events = heir.log.events()
    assert events[0] == Rewind(at_checkpoint, "One, two, ")
    assert isinstance(done := events[-1], Done)
    assert done.text == "One, two, three."
    assert heir.log.start == EPOCH_EVENTS
    assert heir.log.events(at_checkpoint + 5) == events  # a client that has lost some events
    ((stored,),) = [await there.stored()]
    assert (stored.answer, stored.outcome, stored.turn_id) == ("One, two, three.", "complete", run.id)
    assert [call.outcome for call in stored.calls] == ["ok"]
    await here.processes.look()  # it finds that it was considered dead
    await run.wait_ended()
    assert run.log.is_cut_off
    assert await here.stored() == [stored]


@with_two
async def test_a_client_may_come_back_at_any_moment_of_a_take_over(here: Process, there: Process) -> None:
    run = await here.start([asyncio.Event()], **DETACHED)
    there.plays("a")
    burying = asyncio.create_task(there.bury(here))
    while not burying.done():
        await asyncio.sleep(0)
        with suppress(RunsElsewhere):  # it is asked again soon
            assert await there.find(run) is not None
    await burying
    assert await there.find(run) is not None


@with_two
async def test_a_frozen_process_ends_no_stream_of_a_turn_that_another_one_has(here: Process, there: Process) -> None:
    go = asyncio.Event()
    run = await here.start(["One, ", go, "two."])
    received = list[Any]()
    run.join(lambda events, frames: received.append(events))
    await until(run, lambda: Token("One, ") in run.log.events())
    await there.bury(here)
    go.set()
    await run.wait_ended()
    assert (received[-1], any(isinstance(event, Done) for events in received for event in events)) == ((), False)
    assert [one.outcome for one in await there.stored()] == [""]


@with_two
async def test_a_draft_that_is_written_after_the_end_cuts_off_no_reader(here: Process, there: Process) -> None:
    """The turn fails, and replaced an answer, which stays: of its own exchange there is nothing left then."""
    store, goes_on = here.engine.store, asyncio.Event()
    await (await here.start("A first answer.")).wait_ended()
    replaced = (await here.stored())[0].answer_id
    run = await here.start([goes_on, RuntimeError("the model fails")], replaces=replaced)
    await until(run, lambda: run.log.last > 0)
    write_unsynced = store.write_unsynced

    async def write_after_the_end(*arguments: Any, **named: Any) -> Any:
        goes_on.set()
        await run.wait_ended()
        return await write_unsynced(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "write_unsynced", write_after_the_end)
        await here.processes.look()
    assert run.log.has_ended
    assert not run.log.is_cut_off
    assert [one.answer for one in await here.stored()] == ["A first answer."]


@with_two
async def test_turns_whose_claim_has_an_unknown_outcome_are_claimed_again(here: Process, there: Process) -> None:
    known = await here.start(["One", asyncio.Event()])
    await there.bury(here)
    await here.processes.look()
    await known.wait_ended()
    await here.start([asyncio.Event()], conversation_id="d", **DETACHED)
    lose_outcome(there.engine.store, turns.claim)
    there.plays("Done.")
    with pytest.raises(OutcomeUnknown):
        await there.bury(here)
    await there.processes.look()
    (run,) = there.engine.runs.running
    await run.wait_ended()
    assert [(one.answer, one.outcome) for one in await there.stored("d")] == [("Done.", "complete")]
    heir = await there.find(known)
    assert heir is not None
    assert heir.log.start == EPOCH_EVENTS  # claimed once
    await heir.wait_ended()
    await here.processes.look()


@with_two
async def test_a_turn_without_a_checkpoint_starts_again(here: Process, there: Process) -> None:
    run = await here.start([asyncio.Event()], **DETACHED)
    there.plays("a")
    await there.bury(here)
    heir = await there.find(run)
    assert heir is not None
    await heir.wait_ended()
    assert [one.answer for one in await there.stored()] == ["a"]
    assert heir.log.events()[0] == Rewind(0, "")


@pytest.mark.parametrize("returns", [True, False])
@with_two
async def test_another_turn_waits_for_its_client(here: Process, there: Process, returns: bool) -> None:
    run = await here.start(["One, ", asyncio.Event()])
    await until(run, lambda: Token("One, ") in run.log.events())
    await here.processes.look()
    there.plays("two.")
    await there.bury(here)
    assert [one.outcome for one in await there.stored()] == [""]
    if returns:
        heir = await there.find(run)
        assert heir is not None
        await heir.wait_ended()
        assert [(one.answer, one.outcome) for one in await there.stored()] == [("One, two.", "complete")]
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("brain.runtime.processes.time.monotonic", lambda: 1e12)
            await there.processes.look()
        assert [(one.answer, one.outcome) for one in await there.stored()] == [("One, ", "interrupted")]
        assert await there.find(run) is None


@with_two
async def test_a_claimed_turn_that_cannot_be_continued_now_is_continued_later(here: Process, there: Process) -> None:
    """Neither is it lost with others that were claimed together."""
    runs = [await here.start([asyncio.Event()], conversation_id=name, **DETACHED) for name in ("c", "d")]
    there.plays("a")
    find_model = there.engine.find_model

    def fail_once(*arguments: Any, **options: Any) -> Model:
        there.engine.find_model = find_model  # type: ignore[method-assign]
        raise StoreError("The disk is full.", may_pass=True)

    there.engine.find_model = fail_once  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await there.bury(here)
    await there.processes.look()
    for run in runs:
        heir = await there.find(run)
        assert heir is not None
        await heir.wait_ended()
        assert [one.answer for one in await there.stored(run.conversation_id)] == ["a"]


@with_two
async def test_a_turn_of_an_unknown_form_is_interrupted(here: Process, there: Process) -> None:
    """A process of another version wrote it."""
    run = await here.start([asyncio.Event()], **DETACHED)
    await here.engine.store.write(lambda tx: tx.execute("UPDATE exchange SET resume = '[1]'").rowcount)
    await there.bury(here)
    assert [one.outcome for one in await there.stored()] == ["interrupted"]
    assert await there.find(run) is None


@with_two
async def test_a_new_message_interrupts_a_turn_whose_client_is_gone(here: Process, there: Process) -> None:
    run = await here.start(["One, ", asyncio.Event()])
    await until(run, lambda: Token("One, ") in run.log.events())
    await here.processes.look()
    await there.bury(here)
    await (await there.start("New.")).wait_ended()
    assert [(one.answer, one.outcome) for one in await there.stored()] == [
        ("One, ", "interrupted"),
        ("New.", "complete"),
    ]


@with_two
async def test_a_call_that_had_started_never_runs_again(here: Process, there: Process) -> None:
    run = await here.start(["SPECIALIST_REQUEST[sends]"], **DETACHED)
    await until(run, lambda: bool(run.snapshot().calls))
    await here.processes.look()
    call = run.snapshot().calls[0]
    call.has_started, call.approval = True, "approved"
    await here.processes.look()
    there.plays("It may have been sent.")
    await there.engine.store.write(_start_call)
    await there.bury(here)
    heir = await there.find(run)
    assert heir is not None
    await heir.wait_ended()
    errors = [event.code for event in heir.log.events() if isinstance(event, SpecialistError)]
    assert errors == ["interrupted"]


@pytest.mark.parametrize("stored", [0, 1, 2])
@with_two
async def test_a_call_starts_only_if_no_other_process_would_repeat_it(
    here: Process, there: Process, stored: int
) -> None:
    run = await here.start(["SPECIALIST_REQUEST[sends]"], ["Done."])
    await until(run, lambda: any(isinstance(event, ApprovalRequired) for event in run.log.events()))
    store, left = here.engine.store, stored
    write = store.write

    async def write_some(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal left
        if work is turns.checkpoint:
            left -= 1
            if left < 0:
                raise StoreError("The disk is full.", may_pass=True)
        return await write(work, *arguments, **options)

    store.write = write_some  # type: ignore[assignment]
    run.apply(Decide(run.snapshot().calls[0].id, True))
    await run.wait_ended()
    ends = [event.code for event in run.log.events() if isinstance(event, SpecialistError)]
    assert ends == ([] if stored else ["unavailable"])
    assert [("sent" in (call.block or ""), call.has_started) for call in run.snapshot().calls] == [(bool(stored),) * 2]
    assert run.snapshot().outcome == "complete"


def _start_call(tx: Tx) -> None:
    replaced = '"approval":"asked"', '"has_started":true'
    tx.execute("UPDATE exchange SET data = replace(data, ?, ?)", replaced)


@with_two
async def test_shutdown_hands_over_what_needs_no_client(here: Process, there: Process) -> None:
    go = asyncio.Event()
    detached = await here.start(["One, ", asyncio.Event()], **DETACHED)
    other = await here.start(["a", go], conversation_id="d")
    await until(detached, lambda: Token("One, ") in detached.log.events())
    last = detached.log.last
    there.plays("two.")
    await there.processes.look()
    draining = asyncio.create_task(here.engine.drain())
    await detached.wait_ended()
    await until(other, lambda: Token("a") in other.log.events())
    while not (heirs := there.engine.runs.running):
        await there.processes.look()
    await heirs[0].wait_ended()
    assert heirs[0].log.events()[0] == Rewind(last, "One, ")
    assert [(one.answer, one.outcome) for one in await there.stored()] == [("One, two.", "complete")]
    assert not draining.done()
    go.set()
    await draining
    assert [(one.answer, one.outcome) for one in await there.stored("d")] == [("a", "complete")]


@with_two
async def test_shutdown_hands_over_when_the_store_is_back(here: Process, there: Process) -> None:
    detached = await here.start(["One, ", asyncio.Event()], **DETACHED)
    await until(detached, lambda: Token("One, ") in detached.log.events())
    there.plays("two.")
    await here.processes.look()
    await there.processes.look()
    store, reads = here.engine.store, asyncio.Semaphore(0)

    async def fail(*arguments: Any, **options: Any) -> Any:
        reads.release()
        raise StoreError("The database cannot be reached.", may_pass=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "read", fail)
        draining = asyncio.create_task(here.engine.drain())
        await reads.acquire()  # to record that the process stops
        await reads.acquire()  # to see whether the other one stops, too
        await asyncio.sleep(0)
        assert (draining.done(), detached.is_stopping, detached.log.is_cut_off) == (False, False, False)
    await here.processes.look()
    await draining
    while not (heirs := there.engine.runs.running):
        await there.processes.look()
    await heirs[0].wait_ended()
    assert [(one.answer, one.outcome) for one in await there.stored()] == [("One, two.", "complete")]


@with_two
async def test_a_turn_that_begins_while_its_process_stops_runs_to_its_end(here: Process, there: Process) -> None:
    go = asyncio.Event()
    await here.start(["a", go], conversation_id="d")
    draining = asyncio.create_task(here.engine.drain())
    await asyncio.sleep(0)
    assert here.engine.is_closing
    late = await here.start(["b"])
    await late.wait_ended()
    assert not draining.done()
    go.set()
    await draining
    assert [(one.answer, one.outcome) for one in await here.stored()] == [("b", "complete")]
    last = await here.start(["d"], conversation_id="f")
    await last.wait_ended()
    assert last.snapshot().outcome == "shutdown"


@with_two
async def test_a_turn_that_has_moved_is_found_while_its_first_process_stops(here: Process, there: Process) -> None:
    moved = await here.start(["One, ", asyncio.Event()], **DETACHED)
    other = await here.start([asyncio.Event()], conversation_id="d")  # for which that process waits
    async with opened(here.setting) as third:
        await here.processes.look()
        draining = asyncio.create_task(here.engine.drain())
        await moved.wait_ended()
        await there.start([asyncio.Event()], conversation_id="e")
        await there.processes.look()
        await third.processes.look()
        with pytest.raises(RunsElsewhere) as found:
            await third.find(moved)
        assert found.value.process == there.processes.process
        with pytest.raises(RunsElsewhere) as found:
            await third.find(other)
        assert found.value.process == here.processes.process
        other.stop()
        await draining


@with_two
async def test_a_frozen_process_is_out(here: Process, there: Process) -> None:
    here.engine.models = [Player(["a", asyncio.Event()])]
    run = await here.engine.begin(ask_for(conversation_id="c"), "native")
    before, batches = here.processes.process, run.events()
    while Token("a") not in await anext(batches):
        pass
    await there.bury(here)
    await here.processes.look()
    assert here.processes.process != before
    with pytest.raises(BadRequest, match="took over"):
        await anext(batches)
    assert run.has_ended


class Unclosable(asyncio.Event):
    """What a model waits for: it is not set, and a model that is cancelled goes on until `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def wait(self) -> Literal[True]:
        try:
            return await super().wait()
        except asyncio.CancelledError:
            await self.released.wait()
            raise


@with_two
async def test_a_frozen_process_may_continue_its_own_turn(here: Process, there: Process) -> None:
    waits = Unclosable()
    first = await here.start(["One, ", waits], **DETACHED)
    await until(first, lambda: Token("One, ") in first.log.events())
    await here.processes.look()
    await there.engine.store.write(_remove, here.processes.process)
    here.engine.models = [Player(script=lambda turn_pass: ["two, ", asyncio.Event()])]
    for _ in range(2):  # it joins again, then it claims
        await here.processes.look()
    second = await here.find(first)
    assert second is not None
    assert second is not first
    await until(second, lambda: second.snapshot().answer == "One, two, ")
    waits.released.set()
    await first.wait_ended()
    await here.processes.look()
    assert await here.find(first) is second
    there.plays("three.")
    await there.bury(here)
    third = await there.find(first)
    assert third is not None
    await third.wait_ended()
    assert [one.answer for one in await there.stored()] == ["One, two, three."]


@pytest.mark.parametrize("is_frozen", [True, False])
@with_two
async def test_only_the_socket_of_a_dead_process_is_removed(here: Process, there: Process, is_frozen: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="brain-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "sockets" / "here.sock"
        path.parent.mkdir()
        listener.bind(str(path))
        if is_frozen:
            listener.listen()
        await _look_after_death(here, there, path)
        assert (path.exists(), path.parent.exists()) == (is_frozen, is_frozen)


@with_two
async def test_no_other_file_is_removed_with_a_dead_process(here: Process, there: Process) -> None:
    with tempfile.NamedTemporaryFile() as other:
        await _look_after_death(here, there, Path(other.name))
        assert Path(other.name).exists()


async def _look_after_death(dead: Process, heir: Process, path: Path) -> None:
    await dead.processes.listen_at(f"unix:{path}")
    await heir.engine.store.write(_end_lease, dead.processes.process)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brain.runtime.processes.LEASE_SECONDS", 0.0)
        await heir.processes.look()


def _end_lease(tx: Tx, process: str) -> None:
    tx.execute("UPDATE process SET until = 0 WHERE id = ?", (process,))
