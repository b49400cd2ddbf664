"""Two engines with one store, like two processes: each finds, reads and controls the turns of the other."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from turn_helpers import Item, Player, ask_for, echo, registry_of, sends, short

from brain.errors import BadRequest, StoreError
from brain.events import Error, Event, Token
from brain.runtime.commands import CancelTurn, Command, Decide, ShowTurn, SteerTurn, encode
from brain.runtime.engine import Engine
from brain.runtime.relay import RemoteRun
from brain.runtime.run import AnyRun, Run, RunOptions
from brain.settings import read
from brain.store import conversations
from brain.store.turn_log import RequestTaken

SENDS = "SPECIALIST_REQUEST[sends]"
ECHO = 'SPECIALIST_REQUEST[echo:{"text":"b"}]'


class Process:
    """An engine whose model plays."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def begin(self, *passes: Sequence[Item] | str, conversation_id: str = "c", **options: Any) -> Run:
        self.engine.models = [Player(*passes)]
        names = [field.name for field in fields(RunOptions) if field.name in options]
        run_options = RunOptions(**{name: options.pop(name) for name in names})
        request = ask_for(conversation_id=conversation_id, asks_person=True, **options)
        return await self.engine.begin(request, "native", options=run_options)

    async def start(self, *passes: Sequence[Item] | str, **options: Any) -> Run:
        run = await self.begin(*passes, **options)
        run.start()
        return run

    async def find(self, run: AnyRun, user: str | None = "ada") -> AnyRun:
        found = await self.engine.runs.find(run.id, user)
        assert found is not None
        return found

    async def stored(self, conversation_id: str = "c") -> list[tuple[str, str]]:
        """Answers and outcomes of a conversation."""
        page = await self.engine.store.read(conversations.read_page, "ada", conversation_id)
        return [] if page is None else [(one.answer, one.outcome) for one in page.exchanges]

    async def control(self, run: AnyRun, command: Command) -> str:
        """Send a command from this process. Return the new state, or the error code."""
        try:
            return (await (await self.find(run)).control(command)).state
        except BadRequest as error:
            return f"{error.code} {error.status}"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Process]:
    settings = read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": f"sqlite:{path}"})
    engine = Engine(settings, registry_of(echo, sends))
    await engine.open()
    try:
        yield Process(engine)
    finally:
        await engine.close()


def with_two(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test with two engines that poll each other often."""

    @wraps(test)
    def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
        monkeypatch.setattr("brain.runtime.relay.WRITE_SECONDS", 0.001)
        monkeypatch.setattr("brain.runtime.relay.POLL_SECONDS", 0.001)
        monkeypatch.setattr("brain.runtime.relay.CHECK_SECONDS", 0.01)

        async def main() -> None:
            async with opened(tmp_path / "brain.db") as here, opened(tmp_path / "brain.db") as there:
                await test(here=here, there=there, **arguments)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    parameters = inspect.signature(test).parameters.items()
    own = [parameter for name, parameter in parameters if name not in ("here", "there")]
    fixtures = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("tmp_path", "monkeypatch")]
    run.__signature__ = inspect.Signature([*fixtures, *(one.replace(kind=one.KEYWORD_ONLY) for one in own)])  # type: ignore[attr-defined]
    return run


async def until(run: AnyRun, reached: Callable[[], bool]) -> None:
    """Wait until an event of the run makes a condition true."""
    arrived = asyncio.Event()
    unsubscribe = run.join(lambda events, frames: arrived.set() if reached() else None)
    if not reached():
        await arrived.wait()
    unsubscribe()
    run.leave()


def frames(run: AnyRun, after: int = 0) -> bytes:
    return b"".join(run.log.frames(after))


@with_two
async def test_a_reader_elsewhere_gets_the_same_frames(here: Process, there: Process) -> None:
    go = asyncio.Event()
    run = await here.start(["a", ECHO], ["b", go, "c\n\u2028ü"])
    await until(run, lambda: Token("b") in run.log.events())
    remote = await there.find(run)
    assert isinstance(remote, RemoteRun)
    heard: list[Event] = []
    seen = await remote.control(ShowTurn())
    await remote.catch_up()
    before = remote.log.last
    assert (seen.state, remote.has_ended, before) == ("running", False, run.log.last)
    remote.join(lambda events, frames: heard.extend(events))
    go.set()
    await remote.wait_ended()
    assert frames(remote) == frames(run)
    assert heard == run.log.events(before)
    assert await there.find(run) is remote
    assert encode(await remote.control(ShowTurn())) == encode(run.snapshot())


@with_two
async def test_a_client_has_events_that_are_not_stored_yet(here: Process, there: Process) -> None:
    run = await here.start(["a", "b", asyncio.Event()])
    remote = await there.find(run)
    await until(run, lambda: run.log.events()[-1] == Token("b"))
    await remote.catch_up(run.log.last)
    assert frames(remote, 1) == frames(run, 1)
    with pytest.raises(BadRequest) as raised:
        remote.log.frames(run.log.last + 1)
    assert raised.value.code == "gone"


@with_two
async def test_runs_of_other_processes_are_found(here: Process, there: Process) -> None:
    run = await here.start([asyncio.Event()], request_id="r", client_options="its own")
    turns = there.engine.runs
    found = await turns.find(run.id, "ada")
    assert found is not None
    assert (found.id, found.user, found.conversation_id, found.options) == (run.id, "ada", "c", "its own")
    assert await turns.find_requested(ask_for(request_id="r")) is found
    assert await turns.find_newest("c", "ada") is found
    assert await here.engine.runs.find_newest("c", "ada") is run
    for user, turn_id, request_id, conversation_id in [("bob", run.id, "r", "c"), ("ada", "t0", "s", "d")]:
        assert await turns.find(turn_id, user) is None
        assert await turns.find_requested(ask_for(user=user, request_id=request_id)) is None
        assert await turns.find_newest(conversation_id, user) is None


COMMANDS: list[tuple[Command, str, str, list[Any]]] = [
    (ShowTurn(), "waiting", "done", []),
    (CancelTurn(), "done", "done", ["cancelled"]),
    (SteerTurn("hurry"), "waiting", "gone 410", [{"steered": "hurry"}]),
    (Decide("c1", approve=True), "waiting", "gone 410", [{"result": "c1", "text": "sent"}]),
    (Decide("c1", approve=False), "waiting", "gone 410", [{"error": "c1", "name": "sends", "code": "declined"}]),
    (Decide("c9", approve=True), "not_found 404", "gone 410", []),
]
"""A command, the reply while a call waits, the reply after the end, and the effect."""


@pytest.mark.parametrize(("command", "answer", "late", "happened"), COMMANDS)
@with_two
async def test_commands_reach_the_turn_wherever_it_is(
    here: Process, there: Process, command: Command, answer: str, late: str, happened: list[Any]
) -> None:
    run = await here.start([SENDS], ["Done."])
    await until(run, lambda: run.is_waiting)
    state = await there.control(run, command)
    assert state in ((answer, "waiting") if isinstance(command, CancelTurn) else (answer, "running"))
    if not isinstance(command, CancelTurn | Decide) or state == "not_found 404":
        run.decide("c1", approve=True)
    remote = await there.find(run)
    await remote.wait_ended()
    events = short(remote.log.events())
    assert [one for one in happened if one not in [*events, run.snapshot().outcome]] == []
    assert await there.control(run, command) == late
    assert await there.stored() == await here.stored()


@with_two
async def test_requests_of_one_id_begin_one_turn(here: Process, there: Process) -> None:
    async def once(process: Process) -> tuple[AnyRun, Run | None]:
        request = ask_for(request_id="r")
        return await process.engine.runs.find_or_begin(request, lambda: process.start(["a"], request_id="r"))

    found = await asyncio.gather(*(once(process) for process in (here, there) * 4))
    assert len({run.id for run, _ in found}) == 1
    assert [new for _, new in found if new is not None] == [run for run, new in found if new is not None]
    assert len({id(new) for _, new in found if new is not None}) == 1
    for run, _ in found:
        await run.wait_ended()
    again, new = await once(there)
    assert (again.id, new) == (found[0][0].id, None)


@pytest.mark.parametrize("how", ["busy", "barge in", "stopped before", "delete"])
@with_two
async def test_one_turn_of_a_conversation_at_a_time(here: Process, there: Process, how: str) -> None:
    run = await here.start(["a", asyncio.Event()])
    await until(run, lambda: Token("a") in run.log.events())
    if how == "busy":
        with pytest.raises(BadRequest) as raised:
            await there.begin("b")
        assert (raised.value.code, raised.value.status) == ("busy", 409)
    elif how == "delete":
        assert await there.engine.delete("ada", "c")
        assert await there.engine.runs.find(run.id, "ada") is None
    else:
        if how == "stopped before":
            run.stop()
        other = await there.start(["b"], barge_in=how == "barge in")
        await other.wait_ended()
        assert await here.stored() == [("a", "cancelled"), ("b", "complete")]
    assert run.has_ended is (how != "busy")


@pytest.mark.parametrize("stays", [True, False])
@with_two
async def test_a_reader_elsewhere_keeps_a_run_alive(here: Process, there: Process, *, stays: bool) -> None:
    go = asyncio.Event()
    run = await here.begin(["a", go], unread_seconds=0.0)
    run.join(lambda events, frames: None)
    run.start()
    remote = await there.find(run)
    remote.join(lambda events, frames: None)
    await remote.control(ShowTurn())  # commands are carried out in their order
    assert run.readers == 2
    run.leave()
    if stays:
        go.set()
    else:
        remote.last_received = 3
        remote.leave()
    await run.wait_ended()
    assert (run.snapshot().outcome, run.last_received) == (("complete", 0) if stays else ("cancelled", 3))


@with_two
async def test_how_far_a_turn_was_read_is_known_elsewhere(here: Process, there: Process) -> None:
    run = await here.start(["a"])
    run.join(lambda events, frames: None)
    await run.wait_ended()
    relay = here.engine.runs.relay
    assert relay is not None
    await relay.write()
    run.last_received = run.log.last
    run.leave()
    await relay.write()
    remote = await there.engine.runs.find_newest("c", "ada")
    assert remote is not None
    assert (remote.has_ended, remote.last_received) == (True, run.log.last)


@with_two
async def test_turns_of_a_dead_process_end_as_interrupted(here: Process, there: Process) -> None:
    run = await here.start(["Once ", ECHO], ["upon ", "a time", asyncio.Event()])
    await until(run, lambda: Token("a time") in run.log.events())
    gone, left = here.engine.runs.relay, there.engine.runs.relay
    assert gone is not None
    assert left is not None
    await gone.write()
    remote = await there.find(run)
    await left.check()
    assert not remote.has_ended, "its lease is not over"
    clock, there.engine.store.clock = there.engine.store.clock, lambda: clock() + 16
    await left.check()
    await remote.catch_up(run.log.last + 1_000)
    assert remote.log.events(run.log.last + 1_000) == remote.log.events()[-1:]
    assert short(remote.log.events())[-2:] == ["upon a time", {"failed": "shutdown"}]
    assert remote.log.events()[:-1] == run.log.events()
    assert await there.stored() == [("Once upon a time", "interrupted")]
    assert await there.control(run, SteerTurn("more")) == "gone 410"
    there.engine.store.clock = clock
    run.stop()  # it was suspended only: what it writes late is for itself
    await run.wait_ended()
    await gone.write()
    assert remote.log.last == (await there.find(run)).log.last


@with_two
async def test_a_turn_that_is_not_replayable_can_be_stopped_but_not_read(here: Process, there: Process) -> None:
    run = await here.start(["a", asyncio.Event()], replayable=False)
    remote = await there.find(run)
    assert not remote.log.replayable
    with pytest.raises(BadRequest):
        remote.log.frames(0)
    await remote.control(CancelTurn())
    await run.wait_ended()
    assert await there.stored() == [("a", "cancelled")]


@with_two
async def test_dropped_runs_are_deleted_from_the_store(here: Process, there: Process) -> None:
    run = await here.start(["a"])
    await run.wait_ended()
    relay = here.engine.runs.relay
    assert relay is not None
    await relay.write()
    assert await there.engine.runs.find(run.id, "ada") is not None
    here.engine.runs.forget("c", "ada")
    await relay.write()
    assert await there.engine.runs.find(run.id, "ada") is None


@with_two
async def test_readers_of_deleted_and_unstored_logs_do_not_wait_forever(here: Process, there: Process) -> None:
    go = asyncio.Event()
    forgotten = await here.start(["a", go])
    hidden = await here.start(["a", go], conversation_id="d", replayable=False)
    remotes = [await there.find(run) for run in (forgotten, hidden)]
    waits = [asyncio.create_task(remote.wait_ended()) for remote in remotes]
    relay = here.engine.runs.relay
    assert relay is not None
    relay.delete(forgotten.id)
    go.set()
    await asyncio.gather(*waits)
    assert [type(remote.log.events()[-1]) for remote in remotes[:1]] == [Error]


@pytest.mark.parametrize(
    ("method", "is_reader"),
    [("write", False), ("find_expired", False), ("read_news", True), ("add_command", True), ("leave", True)],
)
@with_two
async def test_a_store_that_fails_briefly_only_delays_readers(
    here: Process, there: Process, method: str, *, is_reader: bool
) -> None:
    turn_log = (there if is_reader else here).engine.store.turn_log
    assert turn_log is not None
    work, failures = getattr(turn_log, method), [StoreError("busy", "SQLITE_BUSY")] * 2
    has_failed = asyncio.Event()

    def fail_twice(*arguments: Any, **options: Any) -> Any:
        if failures:
            has_failed.set()
            raise failures.pop()
        return work(*arguments, **options)

    go = asyncio.Event()
    run = await here.start(["a", go, "b"])
    remote = await there.find(run)
    setattr(turn_log, method, fail_twice)
    unsubscribe = remote.join(lambda events, frames: None)
    remote.leave()
    go.set()
    await has_failed.wait()
    await remote.wait_ended()
    unsubscribe()
    assert frames(remote) == frames(run)


@with_two
async def test_a_request_id_of_an_unknown_turn_is_rejected(here: Process, there: Process) -> None:
    async def begin() -> Run:
        raise RequestTaken("It is taken.", code="busy", status=409)

    with pytest.raises(RequestTaken):
        await there.engine.runs.find_or_begin(ask_for(request_id="r"), begin)
