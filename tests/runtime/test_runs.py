"""Runs: each executes its turn once for all readers, and can be found for a while after its end."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import pytest
from limits import WAIT_SECONDS
from turn_helpers import Item, Player, ask_for, echo, registry_of, sends, short, turn_of, words

from brain import Progress, specialist
from brain.errors import BadRequest
from brain.events import Done, Event, SpecialistProgress, Token, TurnStart, Usage
from brain.messages import Exchange, History
from brain.runtime.commands import CancelTurn, SteerTurn
from brain.runtime.run import Run, RunOptions
from brain.runtime.runs import RunRegistry
from brain.turn_request import TurnRequest

TINY, HUGE = 1e-6, 1e6
"""Seconds that pass at once, and that no test waits for."""
LONG = [" ".join(words(8_000)[n : n + 1_000]) for n in range(0, 8_000, 1_000)]
"""Different texts of about nine thousand characters."""
ECHO = 'SPECIALIST_REQUEST[echo:{"text":"b"}]'
STUCK = "SPECIALIST_REQUEST[stuck]"
SENDS = "SPECIALIST_REQUEST[sends]"


@specialist(timeout=HUGE)
async def stuck() -> AsyncGenerator[Progress | str, None]:
    """Says that it runs, and waits for ever."""
    yield Progress("running")
    await asyncio.Event().wait()
    yield "never"


def request(user: str | None = "ada", request_id: str | None = None) -> TurnRequest:
    return ask_for(user=user, request_id=request_id, asks_person=True)


class Server:
    """Begins runs, and has the exchanges of ended ones."""

    def __init__(self) -> None:
        self.turns = RunRegistry()
        self.settled: list[Exchange] = []

    @property
    def outcomes(self) -> list[str]:
        return [one.outcome for one in self.settled]

    def begin(
        self,
        *passes: Sequence[Item] | str,
        user: str | None = "ada",
        request_id: str | None = None,
        conversation: str = "c",
        model: Any = None,
        on_end: Callable[[Run], None] | None = None,
        **options: Any,
    ) -> Run:
        """Return a run whose model plays these passes, and waits for any `asyncio.Event` in them."""
        ask = request(user, request_id)
        registry = registry_of(echo, sends, stuck)
        turn = turn_of(model or Player(*passes), registry, ask, History(conversation))
        run = self.turns.add(turn, "native", RunOptions(**options))
        run.on_end.append(on_end or (lambda run: self.settled.append(run.snapshot())))
        return run

    def start(self, *passes: Sequence[Item] | str, **options: Any) -> Run:
        run = self.begin(*passes, **options)
        run.start()
        return run

    async def complete(self, *passes: Sequence[Item] | str, **options: Any) -> Run:
        run = self.start(*passes, **options)
        await run.wait_ended()
        return run

    async def pass_tiny_time(self) -> None:
        """Wait until all earlier timers of a `TINY` time have fired: the newest one fires last."""
        witness = self.start([asyncio.Event()], user="witness", on_end=lambda report: None, unread_seconds=TINY)
        await witness.wait_ended()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr("brain.runtime.runs.SWEEP_SECONDS", 0.0)
    return Server()


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop, and check that no runs are left."""

    async def checked(server: Server, arguments: dict[str, Any]) -> None:
        await test(server=server, **arguments)
        assert server.turns.running == []
        server.turns.close()
        await all_tasks_end()

    @wraps(test)
    def run(server: Server, **arguments: Any) -> None:
        asyncio.run(checked(server, arguments))

    return run


async def all_tasks_end(but: Run | None = None) -> None:
    """Wait until all tasks have ended, apart from that of one run."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks := {task for task in others if but is None or task.get_name() != f"run {but.id}"}:
        _, running = await asyncio.wait(tasks, timeout=WAIT_SECONDS)
        assert not running


async def swept() -> None:
    """Wait until the registry, whose interval is 0 here, has dropped what it drops."""
    for _ in range(3):
        await asyncio.sleep(0)


async def until(run: Run, reached: Callable[[], bool]) -> None:
    """Wait until an event of the run makes a condition true."""
    arrived = asyncio.Event()
    unsubscribe = run.log.subscribe(lambda events, frames: arrived.set() if reached() else None)
    if not reached():
        await arrived.wait()
    unsubscribe()


async def until_event(run: Run, kind: type[Event]) -> None:
    await until(run, lambda: any(isinstance(event, kind) for event in run.log.events()))


def kinds(run: Run) -> list[type[Event]]:
    return [type(event) for event in run.log.events()]


def refusal(action: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(BadRequest) as raised:
        action()
    return raised.value.code, raised.value.status


# One execution, any number of readers


@on_loop
async def test_a_run_executes_its_turn_once_for_all_readers(server: Server) -> None:
    go = asyncio.Event()
    model = Player(["a", ECHO], [go, "c"])
    run = server.begin(model=model)
    early: list[Event] = []
    late: list[Event] = []
    run.join(lambda events, frames: early.extend(events))
    run.start()
    await until_event(run, Token)
    late += run.log.events()
    run.join(lambda events, frames: late.extend(events))
    go.set()
    await run.wait_ended()
    assert short(early) == [
        "a",
        {"start": "c1", "name": "echo", "params": {"text": "b"}},
        {"result": "c1", "text": "b"},
        "c",
        {"done": "complete", "text": "ac", "calls": 1, "passes": 2},
    ]
    assert early == late == run.log.events()
    assert (run.readers, len(model.requests), model.open) == (2, 2, 0)


@pytest.mark.parametrize("is_replayable", [True, False])
@on_loop
async def test_it_is_settled_once_and_before_any_reader_learns_of_the_end(
    server: Server, *, is_replayable: bool
) -> None:
    run = server.begin(["a", ECHO], "c", replayable=is_replayable)
    seen: list[tuple[bool, bool, list[str], str]] = []
    run.join(lambda events, _: seen.append((run.log.has_ended, run.has_ended, server.outcomes, run.snapshot().state)))
    run.start()
    await run.wait_ended()
    run.stop()
    await run.abort()
    assert seen[:-1] == [(False, False, [], "running")] * (len(seen) - 1)
    assert seen[-1] == (True, True, ["complete"], "done")
    assert [(one.turn_id, one.parts) for one in server.settled] == [(run.id, run.snapshot().parts)]


@on_loop
async def test_the_end_reaches_readers_also_when_it_cannot_be_recorded(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(run: Run) -> None:
        raise OSError("the disk is full")

    run = server.begin("a", on_end=fail)
    heard: list[Event] = []
    run.join(lambda events, frames: heard.extend(events))
    run.start()
    await run.wait_ended()
    assert (type(heard[-1]), run.has_ended, run.snapshot().outcome) == (Done, True, "complete")
    assert [(record.levelname, run.id in record.getMessage()) for record in caplog.records] == [("ERROR", True)]


@on_loop
async def test_an_ended_run_holds_neither_its_turn_nor_a_timer(server: Server) -> None:
    model = Player(["a", ECHO], "c")
    run = server.start(model=model, unread_seconds=HUGE)
    models, runs = weakref.WeakSet([model]), weakref.WeakSet([run])
    del model
    await run.wait_ended()
    await all_tasks_end()
    gc.collect()
    assert len(models) == 0
    server.turns.close()
    del run
    gc.collect()
    assert len(runs) == 0


# Stopping

WHERE: dict[str, tuple[list[Any], Callable[[Run], bool] | None]] = {
    "before the start": ([], None),
    "at the start": ([], lambda run: True),
    "in the model's stream": (["a", asyncio.Event], lambda run: Token in kinds(run)),
    "in a call": (["a", STUCK], lambda run: SpecialistProgress in kinds(run)),
    "before an approval": (["a", SENDS], lambda run: run.is_waiting),
}
"""The items of the model, and the condition to wait for. None: the run is not started."""


async def begin_at(server: Server, where: str) -> Run:
    items, reached = WHERE[where]
    run = server.begin([item() if item is asyncio.Event else item for item in items])
    if reached is not None:
        run.start()
        await until(run, lambda: reached(run))
    return run


@pytest.mark.parametrize("where", WHERE)
@on_loop
async def test_stopping_ends_a_run_with_an_event(server: Server, where: str) -> None:
    run = await begin_at(server, where)
    run.stop()
    run.stop("shutdown")  # the first reason counts
    assert (run.is_stopping, run.has_ended) == (True, False)
    if where == "before the start":
        run.start()
    await run.wait_ended()
    assert kinds(run)[0] is TurnStart
    assert kinds(run)[-2:] == [Usage, Done]
    assert server.outcomes == ["cancelled"]
    assert (run.is_stopping, run.is_waiting, run.snapshot().state) == (False, False, "done")


@pytest.mark.parametrize("where", WHERE)
@on_loop
async def test_aborting_ends_a_run_at_once(server: Server, where: str) -> None:
    run = await begin_at(server, where)
    await run.abort()
    assert (run.has_ended, run.log.has_ended, server.outcomes) == (True, True, ["cancelled"])
    assert kinds(run)[-2:] == [Usage, Done]
    await run.wait_ended()


# Readers


@pytest.mark.parametrize("unread_seconds", [None, 0.0, TINY, HUGE])
@pytest.mark.parametrize(
    ("steps", "is_unread"),
    [("", True), ("+", False), ("++-", False), ("+-+", False), ("+-", True), ("++--", True), ("+-+-", True)],
)
@on_loop
async def test_a_reader_keeps_a_run_alive(
    server: Server, unread_seconds: float | None, steps: str, *, is_unread: bool
) -> None:
    if unread_seconds == 0 and steps not in ("", "+", "++-", "+-"):
        return
    go = asyncio.Event()
    run = server.begin(["a", go, "b"], unread_seconds=unread_seconds)
    if not steps:
        run.start()
    for n, step in enumerate(steps):
        if step == "+":
            run.join(lambda events, frames: None)
        else:
            run.leave()
        if n == 0:
            run.start()
            await until_event(run, Token)
    assert run.readers == steps.count("+") - steps.count("-")
    await server.pass_tiny_time()
    go.set()
    await run.wait_ended()
    assert server.outcomes == ["cancelled" if is_unread and unread_seconds in (0.0, TINY) else "complete"]


@pytest.mark.parametrize(
    ("first", "will_reconnect", "reconnect_seconds", "outcome"),
    [
        (SENDS, True, 30.0, "complete"),
        (SENDS, False, 30.0, "cancelled"),
        (SENDS, True, -600.0, "cancelled"),  # no time is left, as the approval itself may take 600 seconds
        ("a", True, 30.0, "cancelled"),  # there is nothing to approve
    ],
)
@on_loop
async def test_a_run_waits_for_a_reader_that_reconnects_with_an_approval(
    server: Server,
    first: str,
    outcome: str,
    reconnect_seconds: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    will_reconnect: bool,
) -> None:
    monkeypatch.setattr("brain.runtime.run.RECONNECT_SECONDS", reconnect_seconds)
    run = server.begin([first, *([] if first == SENDS else [asyncio.Event()])], "Sent.", unread_seconds=0.0)
    run.join(lambda events, frames: None)
    run.start()
    await until(run, lambda: run.is_waiting or Token in kinds(run))
    run.leave(will_reconnect=will_reconnect)
    await server.pass_tiny_time()
    if outcome == "complete":
        run.join(lambda events, frames: None)
        run.decide("c1", approve=True)
    await run.wait_ended()
    assert server.outcomes == [outcome]


# Steering and approvals


@pytest.mark.parametrize(("race_seconds", "is_refused"), [(HUGE, True), (0.0, False)])
@on_loop
async def test_stopping_a_run_right_after_an_approval_needs_a_second_request(
    server: Server, race_seconds: float, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    monkeypatch.setattr("brain.turn.approvals.RACE_SECONDS", race_seconds)
    run = server.start([SENDS], [asyncio.Event()])
    await until(run, lambda: run.is_waiting)
    run.decide("c1", approve=True)
    if is_refused:
        assert refusal(lambda: run.apply(CancelTurn())) == ("decided", 409)
        run.stop()
    run.apply(CancelTurn())
    await run.wait_ended()
    run.apply(CancelTurn())
    assert server.outcomes == ["cancelled"]


@on_loop
async def test_an_ended_run_rejects_messages_and_decisions(server: Server) -> None:
    complete = await server.complete("a")
    stopped = server.start([SENDS])
    await until(stopped, lambda: stopped.is_waiting)
    stopped.stop()
    await stopped.wait_ended()
    for run in (complete, stopped):
        assert refusal(lambda: run.apply(SteerTurn("more"))) == ("gone", 410)  # noqa: B023 - it is called at once
        assert refusal(lambda: run.decide("c9", approve=True)) == ("gone", 410)  # noqa: B023
    assert refusal(lambda: stopped.decide("c1", approve=True)) == ("cancelled", 409)


# The turns of a process


@pytest.mark.parametrize(
    ("asked", "count", "new"),
    [
        ([("ada", "r"), ("ada", "r"), ("ada", "r")], 1, [True, False, False]),
        ([("ada", "r"), ("bob", "r"), ("ada", "s")], 3, [True, True, True]),
        ([("ada", None), ("ada", None)], 2, [True, True]),
    ],
)
@on_loop
async def test_requests_of_one_id_begin_one_run(
    server: Server, asked: list[tuple[str, str | None]], count: int, new: list[bool]
) -> None:
    waiting, all_wait, go = 0, asyncio.Event(), asyncio.Event()

    async def once(user: str, request_id: str | None) -> tuple[Run, bool]:
        async def begin() -> Run:
            nonlocal waiting
            waiting += 1
            if waiting == count:
                all_wait.set()
            await go.wait()
            return server.start("a", user=user, request_id=request_id)

        run, new = await server.turns.find_or_begin(request(user, request_id), begin)
        return run, new is run

    requests = [asyncio.create_task(once(*one)) for one in asked]
    await all_wait.wait()
    go.set()
    found = await asyncio.gather(*requests)
    assert [is_new for _, is_new in found] == new
    assert (len({run.id for run, _ in found}), waiting) == (count, count)
    for run, _ in found:
        await run.wait_ended()
    again = [await once(*one) for one in asked]  # also after its end
    assert [is_new for _, is_new in again] == [request_id is None for _, request_id in asked]
    for run, _ in again:
        await run.wait_ended()


@on_loop
async def test_a_request_that_cannot_begin_lets_the_next_one_try(server: Server) -> None:
    go = asyncio.Event()

    async def fail() -> Run:
        asyncio.get_running_loop().call_soon(go.set)
        await go.wait()
        raise OSError("no store")

    async def begin() -> Run:
        go.clear()
        asyncio.get_running_loop().call_soon(go.set)
        await go.wait()
        return await server.complete("a", request_id="r")

    tries = [server.turns.find_or_begin(request("ada", "r"), one) for one in (fail, begin, fail)]
    failed, first, second = await asyncio.gather(*tries, return_exceptions=True)
    assert isinstance(failed, OSError)
    assert isinstance(first, tuple)
    assert first[0] is first[1]
    assert second == (first[0], None)


@on_loop
async def test_runs_are_found_by_their_user_their_request_and_their_conversation(server: Server) -> None:
    turns = server.turns
    first = await server.complete("a", conversation="x", request_id="r1")
    newest = await server.complete("a", conversation="x")
    other = await server.complete("a", conversation="x", user=None)
    running = server.start([asyncio.Event()], conversation="y", request_id="r2")
    by_id = [(first.id, "ada"), (other.id, None), (first.id, "bob"), (first.id, None), (other.id, "ada"), ("", "ada")]
    assert [await turns.find(*one) for one in by_id] == [first, other, None, None, None, None]
    requests = [("ada", "r1"), ("ada", "r2"), ("bob", "r1"), (None, "r1"), ("ada", "r3"), ("ada", None)]
    found = [await turns.find_requested(request(*one)) for one in requests]
    assert found == [first, running, None, None, None, None]
    conversations = [("x", "ada"), ("x", None), ("y", "ada"), ("y", "bob"), ("z", "ada")]
    found = [await turns.find_newest(*one) for one in conversations]
    assert found == [newest, other, running, None, None]
    turns.close()
    assert (len(turns), await turns.find(first.id, "ada"), await turns.find_newest("x", "ada")) == (0, None, None)
    await running.abort()
    again = await server.complete("a")
    await swept()
    assert await turns.find(again.id, "ada") is again


@on_loop
async def test_a_run_that_another_process_continues_is_gone_at_once(server: Server) -> None:
    run = server.start([asyncio.Event()], request_id="r1")
    for _ in range(2):  # the process may find out about it again, before the run has ended
        server.turns.hand_over(run)
        assert await server.turns.find(run.id, "ada") is None
        assert server.turns.find_newest_here(run.conversation_id, "ada") is None
    await run.wait_ended()
    assert (len(server.turns), server.turns.running) == (0, [])
    server.turns.forget(run.conversation_id, "ada")  # nothing is left of it
    await swept()


@on_loop
async def test_a_run_is_gone_whose_end_is_stored_when_another_process_has_it(server: Server) -> None:
    run = await server.complete("a", conversation="x")
    await swept()
    server.turns.hand_over(run)
    assert await server.turns.find(run.id, "ada") is None
    await server.complete("b", conversation="x")
    await swept()
    assert len(server.turns) == 1


@on_loop
async def test_forgetting_a_conversation_drops_its_ended_runs(server: Server) -> None:
    over = await server.complete("a", conversation="x", request_id="r")
    others = [
        await server.complete("a", conversation="y"),
        await server.complete("a", conversation="x", user="bob"),
    ]
    running = server.start([asyncio.Event()], conversation="x")
    server.turns.forget("x", "ada")
    assert await server.turns.find(over.id, "ada") is None
    assert await server.turns.find_requested(request("ada", "r")) is None
    assert await server.turns.find_newest("x", "ada") is running
    assert [await server.turns.find(run.id, run.user) for run in [*others, running]] == [*others, running]
    running.stop()
    await running.wait_ended()
    server.turns.forget("x", "ada")
    assert await server.turns.find_newest("x", "ada") is None
    assert len(server.turns) == 2


@pytest.mark.parametrize(("quiet_seconds", "is_idle"), [(HUGE, False), (0.0, True)])
@on_loop
async def test_the_registry_is_idle_some_time_after_the_last_turn(
    server: Server, quiet_seconds: float, monkeypatch: pytest.MonkeyPatch, *, is_idle: bool
) -> None:
    monkeypatch.setattr("brain.runtime.runs.QUIET_SECONDS", quiet_seconds)
    seen = [server.turns.is_idle]
    run = server.start("a")
    seen.append(server.turns.is_idle)
    await run.wait_ended()
    assert [*seen, server.turns.is_idle] == [True, False, is_idle]


# What is forgotten by itself


@pytest.mark.parametrize(("life_seconds", "remaining"), [(HUGE, 4), (-1.0, 1)])
@on_loop
async def test_runs_are_dropped_some_time_after_their_end(
    server: Server, life_seconds: float, remaining: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.runs.REPLAY_SECONDS", life_seconds)
    running = server.start([asyncio.Event()], request_id="running")
    over = weakref.WeakSet([await server.complete("a", request_id=f"r{n}") for n in range(3)])
    await swept()
    await all_tasks_end(but=running)
    gc.collect()
    assert (len(server.turns), len(over)) == (remaining, remaining - 1)
    found = [await server.turns.find_requested(request("ada", f"r{n}")) is not None for n in range(3)]
    assert found == [remaining > 1] * 3
    assert await server.turns.find(running.id, "ada") is running
    running.stop()
    await running.wait_ended()


@pytest.mark.parametrize(
    ("answers", "stay"),
    [(["a"] * 6, 6), ([LONG[0]] * 6, 3), ([" ".join(LONG[:4]), "a", "a"], 2), (["a", " ".join(LONG[:4])], 0)],
    ids=["short", "long", "oldest", "newest"],
)
@on_loop
async def test_ended_runs_have_a_total_size_limit(
    server: Server, answers: list[str], stay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.runs.MAX_ENDED_BYTES", 87_000)
    runs = [await server.complete(answer) for answer in answers]
    await swept()
    found = [await server.turns.find(run.id, "ada") is not None for run in runs]
    assert found == [False] * (len(runs) - stay) + [True] * stay


@on_loop
async def test_all_logs_have_a_total_size_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.runs.MAX_BYTES", 75_000)
    monkeypatch.setattr("brain.runtime.event_log.BLOCK_BYTES", 4_000)

    async def written(*texts: str) -> Run:
        run = server.start([*texts, asyncio.Event()])
        await until(run, lambda: run.log.bytes > sum(map(len, texts)))
        return run

    over = await server.complete(LONG[0])
    small, large = await written("short"), await written(*LONG[:6])
    await swept()  # those that are over make room first
    assert await server.turns.find(over.id, "ada") is None
    large.log.check(0)
    more = await written(*LONG[6:])
    await swept()  # then the largest that runs loses its beginning
    assert refusal(lambda: large.log.check(0)) == ("gone", 410)
    large.log.check(large.log.last)
    small.log.check(0)
    more.log.check(0)
    for run in (small, large, more):
        await run.abort()
