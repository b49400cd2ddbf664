"""Background tasks in the store: created once, claimed in turn, ended and reported exactly once, never in a list."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from store_helpers import (
    NO_LIMITS,
    NOON,
    TOMORROW,
    Clock,
    DatabasePlace,
    add_turn,
    answer,
    claim_due,
    join,
    question,
    store_at,
    task_of,
)

from brain.errors import BadRequest
from brain.events import Usage
from brain.messages import Call, History, Text
from brain.store import conversations, processes, tasks, turns, users
from brain.store.store import Store
from brain.store.tasks import DayLimits, DueTask, Duplicate, ReportEnd, RunEnd
from brain.store.turns import QuestionOptions
from brain.store.users import Counts
from brain.task import Task, TaskApproval

pytestmark = pytest.mark.anyio

DAILY = "FREQ=DAILY;BYHOUR=8;BYMINUTE=0"


async def create(
    store: Store, prompt: str = "Read", user: str = "ada", limits: DayLimits = NO_LIMITS, **fields: Any
) -> Task:
    return await store.write(tasks.create, task_of(user, prompt, **fields), limits)


async def claim(store: Store, at_once: int = 3, per_user: int = 2, limits: DayLimits = NO_LIMITS) -> list[Task]:
    return await claim_due(store, at_once, per_user, limits)


async def own(store: Store) -> set[str]:
    return set((await store.read(tasks.look, 0, 0)).own)


async def last_packet(store: Store) -> int:
    return (await store.read(tasks.look, 0, 0)).last_packet


async def begin_run(store: Store, task: Task) -> History:
    asked = question(task.prompt, f"{task.id}-{task.run}-{task.attempt}-{task.resumes}", source="task")
    return await store.write_question(task.user, task.work_id, asked, [])


async def end_run(store: Store, task: Task, outcome: Any = "succeeded", **fields: Any) -> Task:
    """Run a claimed task to its end; return it as it is then."""
    history = await begin_run(store, task)
    parts = fields.pop("parts", [Text("Done.", 1)])
    next_run = fields.pop("next_run", None)
    ended = answer(parts, usage=Usage(60, 40, None, estimated=False))
    await store.end(history, ended, RunEnd(task, ended, outcome, next_run, **fields))
    return await found(store, task)


async def found(store: Store, task: Task) -> Task:
    stored = await store.read(tasks.find, task.user, task.id)
    assert stored is not None
    return stored


async def damage(store: Store, table: str, where: str = "1 = 1") -> None:
    await store.write(lambda tx: tx.execute(f"UPDATE {table} SET data = 'x' WHERE {where}").rowcount)


async def test_a_task_is_created_once(store: Store) -> None:
    first = await create(store, "Read  forty papers", title="Papers")
    assert (first.title, first.state, first.run, first.conversation_id) == ("Papers", "pending", 0, "c")
    schedule: dict[str, Any] = {"every": DAILY, "start": TOMORROW, "next_run": TOMORROW}
    daily = await create(store, "Read", **schedule)
    assert (daily.state, daily.next_run) == ("waiting", TOMORROW)
    rows: list[tuple[str, dict[str, Any], Task | None]] = [
        ("read forty PAPERS", {"title": "papers"}, first),
        ("Read forty papers", {"title": "papers", "profile": "expert"}, None),
        ("Read forty papers", {"title": "others"}, None),
        ("Read forty papers", {"title": "papers", "user": "eve"}, None),
        ("Read", schedule | {"start": TOMORROW + timedelta(hours=1)}, daily),
        ("Read", {"every": "FREQ=DAILY", "start": TOMORROW, "next_run": TOMORROW}, None),
    ]
    for prompt, fields, same in rows:
        if same is None:
            await create(store, prompt, **fields)
        else:
            with pytest.raises(Duplicate) as caught:
                await create(store, prompt, **fields)
            assert (caught.value.code, caught.value.task.id) == ("duplicate", same.id)
    await store.write(tasks.cancel, "ada", first.id)
    assert (await create(store, "Read forty papers", title="Papers")).id != first.id
    keyed = [await create(store, "The same request", id="task1") for _ in range(2)]
    assert keyed[0] == keyed[1]


async def test_tasks_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_ACTIVE", 3)
    monkeypatch.setattr(tasks, "MAX_ENDED", 1)
    for n in range(3):
        await create(store, f"{n}", limits=DayLimits(4, 0))
    for limits in (NO_LIMITS, DayLimits(3, 0)):
        with pytest.raises(BadRequest) as caught:
            await create(store, "more", limits=limits)
        assert caught.value.code == "rate_limited"
    for task in await store.read(tasks.list_tasks, "ada"):
        await store.write(tasks.cancel, "ada", task.id)
    await create(store, "last", limits=DayLimits(4, 0))
    assert [task.prompt for task in await store.read(tasks.list_tasks, "ada")] == ["last", "2"]
    with pytest.raises(BadRequest) as caught:
        await create(store, "again", limits=DayLimits(4, 0))
    assert caught.value.code == "rate_limited"


async def test_tasks_are_listed_newest_first_page_by_page(store: Store) -> None:
    made = [await create(store, f"{n}", conversation_id=f"c{n % 2}") for n in range(5)]
    await create(store, user="eve")
    await store.write(tasks.cancel, "ada", made[4].id)
    pages = [await store.read(tasks.list_tasks, "ada", limit=2)]
    while pages[-1]:
        pages.append(await store.read(tasks.list_tasks, "ada", limit=2, before=pages[-1][-1].id))
    assert [[task.prompt for task in page] for page in pages] == [["4", "3"], ["2", "1"], ["0"], []]
    assert [task.prompt for task in await store.read(tasks.list_tasks, "ada", ["canceled"])] == ["4"]
    assert [task.prompt for task in await store.read(tasks.list_tasks, "ada", conversation_id="c1")] == ["3", "1"]
    assert await store.read(tasks.count_states) == {"pending": 5, "canceled": 1}
    with pytest.raises(BadRequest):
        await store.read(tasks.list_tasks, "eve", before=made[0].id)


async def test_claims_alternate_between_users(store: Store) -> None:
    for n in range(100):
        await create(store, f"ada {n}")
    for user in ("bob", "eve"):
        for n in range(2):
            await create(store, f"{user} {n}", user)
    assert [task.prompt for task in await claim(store)] == ["ada 0", "bob 0", "eve 0"]
    order: list[str] = []
    running = await store.read(tasks.list_tasks, "ada", ["running"])
    running += [task for user in ("bob", "eve") for task in await store.read(tasks.list_tasks, user, ["running"])]
    while len(order) < 6:
        await end_run(store, running.pop(0))
        claimed = await claim(store)
        order += [task.prompt for task in claimed]
        running += claimed
    assert order == ["ada 1", "bob 1", "eve 1", "ada 2", "ada 3", "ada 4"]
    assert await claim(store, at_once=9, per_user=2) == []


async def test_a_task_that_changed_since_the_look_is_left_to_the_next_one(store: Store, clock: Clock) -> None:
    task = await create(store)
    later = await create(store, "later", every=DAILY, start=TOMORROW, next_run=TOMORROW)
    (seen,) = (await store.read(tasks.look, 1, 1)).due
    (waiting,) = await store.read(tasks.list_waiting)
    assert seen is not None
    for one in (task, later):
        await store.write(tasks.change, "ada", one.id, lambda task: replace(task, title=f"New {task.title}"))
    assert await store.write(tasks.claim, [DueTask(seen, None, NO_LIMITS)], 1, 1) == []
    await store.write(tasks.correct_times, [(waiting, clock.time)])
    assert (await found(store, later)).next_run == TOMORROW
    assert [one.title for one in await claim(store)] == ["New Read"]


async def test_many_users_with_tasks_at_the_same_time_wait_for_their_turn(store: Store) -> None:
    users = [f"user{n}" for n in range(2 * tasks.MAX_DUE + 1)]
    for user in users:
        for n in range(2):
            await create(store, f"{n}", user, every=DAILY, start=NOON, next_run=NOON)
    claimed = await claim(store, at_once=len(users) + 1)
    assert [(task.user, task.prompt) for task in claimed] == [(user, "0") for user in users] + [("user0", "1")]


async def test_a_claim_looks_at_due_tasks_only(path: Path, connections: list[sqlite3.Connection]) -> None:
    plans: list[str] = []
    async with store_at(path) as store:
        await create(store)
        trace = connections[0].set_trace_callback
        trace(lambda statement: plans.append(statement) if "FROM task" in statement else None)
        assert len(await claim(store)) == 1
        trace(None)
    with closing(sqlite3.connect(path)) as db:
        steps = [row[3] for plan in plans for row in db.execute(f"EXPLAIN QUERY PLAN {plan}")]
    assert len(steps) >= 4
    scans = [step for step in steps if step.startswith("SCAN") and "INDEX" not in step]
    assert set(scans) <= {"SCAN n"}  # the one account whose task is next


async def test_a_task_is_private_if_its_conversation_became_so(store: Store) -> None:
    assert (await create(store)).private is False
    await store.write_question("ada", "c", question("Diagnosis"), [], QuestionOptions(private=True))
    assert [task.private for task in await claim(store)] == [True]


async def test_another_process_continues_when_one_dies(shared_place: DatabasePlace) -> None:
    """Two processes claim a run in turn. Each is only frozen, and finds that it no longer owns the task."""
    async with store_at(shared_place, Clock(step=0)) as store, store_at(shared_place, Clock(step=0)) as other:
        for one in (store, other):
            await join(one)
        await create(store)
        (task,) = await claim(store)
        history = await begin_run(store, task)
        assert (await own(store), await own(other)) == ({task.id}, set())
        await other.write(tasks.recover)
        assert await claim(other) == []
        owner, peer = store, other
        for n in range(5):
            await owner.write(processes.remove)
            assert (await peer.read(tasks.look, 9, 9)).has_stale
            await peer.write(tasks.recover)
            assert await own(owner) == set()
            (again,) = await claim(peer)
            assert (again.id, again.run, again.resumes) == (task.id, 1, n + 1)
            assert not await owner.write_unsynced(tasks.set_turn, task, "t", "lost")
            await join(owner)
            owner, peer = peer, owner
        late = answer("late")
        await store.end(history, late, RunEnd(task, late, "succeeded"))
        assert (await found(store, task)).state == "running"
        await owner.write(processes.remove)
        await peer.write(tasks.recover)
        assert await claim(peer) == []
        failed = await found(store, task)
        assert (failed.state, failed.reason) == ("failed", "the server stopped 6 times while the task ran")


async def test_a_clock_that_is_set_back_delays_nothing(shared_place: DatabasePlace) -> None:
    clock = Clock(step=0)
    async with store_at(shared_place, clock) as store, store_at(shared_place, clock) as other:
        for one in (store, other):
            await join(one)
        await create(store, "running")
        (running,) = await claim(store)
        queued = await create(store, "queued")
        clock.advance(hours=-2)
        assert (await other.read(tasks.look, 9, 9)).has_stale
        await other.write(tasks.recover)
        assert [task.prompt for task in await claim(other)] == ["queued"]
        assert await own(store) == {running.id}
        await end_run(store, running, "pending")
        await store.write(tasks.cancel, "ada", queued.id)
        clock.advance(hours=-2)
        await other.write(tasks.recover)
        assert [task.prompt for task in await claim(other)] == ["running"]


FAILED: dict[str, Any] = {"outcome": "failed", "reason": "no model"}


@pytest.mark.parametrize(
    ("schedule", "end", "state", "kind"),
    [
        ("", {}, "succeeded", "result"),
        ("", FAILED, "failed", "failure"),
        ("", FAILED | {"may_retry": True}, "pending", "state"),
        ("", {"outcome": "pending"}, "pending", "state"),
        (DAILY, {"next_run": TOMORROW}, "waiting", "result"),
        (DAILY, FAILED | {"next_run": TOMORROW}, "waiting", "failure"),
        (DAILY, {}, "succeeded", "result"),
        ("", {"outcome": "waiting", "approval": TaskApproval("c1", "calendar", {}, "Add")}, "waiting", "approval"),
    ],
)
async def test_the_end_of_a_run(
    store: Store, clock: Clock, schedule: str, end: dict[str, Any], state: str, kind: str
) -> None:
    await create(store, every=schedule, start=clock.time if schedule else None, next_run=clock.time)
    (task,) = await claim(store)
    cursor = await last_packet(store)
    ended = await end_run(store, task, **end)
    assert (ended.state, ended.run) == (state, 1)
    assert [packet.kind for packet in await store.read(tasks.read_channel, "ada", cursor)] == [kind]
    told = await store.read(tasks.read_unreported, "ada", "c")
    assert [packet.kind for packet in told] == ([] if kind == "state" else [kind])
    assert await own(store) == set()
    if ended.next_run is None:
        assert await claim(store) == []


async def test_a_failed_run_is_retried_once_after_five_seconds(store: Store, clock: Clock) -> None:
    await create(store)
    (task,) = await claim(store)
    await end_run(store, task, **FAILED, may_retry=True)
    assert await claim(store) == []
    clock.advance(seconds=5)
    (task,) = await claim(store)
    assert (task.run, task.attempt) == (1, 2)
    assert (await end_run(store, task, **FAILED, may_retry=True)).state == "failed"


async def test_a_schedule_pauses_after_five_failures_in_a_row(store: Store, clock: Clock) -> None:
    daily = await create(store, every=DAILY, start=clock.time, next_run=clock.time)
    for n in range(6):
        (task,) = await claim(store)
        fails = n != 0
        daily = await end_run(store, task, **(FAILED if fails else {}), next_run=clock.time)
    assert (daily.run, daily.failures, daily.paused, daily.state) == (6, 5, True, "waiting")
    assert [packet.kind for packet in await store.read(tasks.read_unreported, "ada", "c")][-1] == "paused"
    assert await claim(store) == []


async def test_a_run_that_could_not_begin_does_not_let_the_next_one_continue_the_last(
    store: Store, clock: Clock
) -> None:
    await create(store, every=DAILY, start=clock.time, next_run=clock.time)
    (task,) = await claim(store)
    await end_run(store, task, next_run=clock.time)
    (task,) = await claim(store)
    await store.write(tasks.end_run, RunEnd(task, answer([]), "failed", clock.time, "no model"))
    (task,) = await claim(store)
    assert (task.run, await store.read(tasks.current_exchange, task)) == (3, None)


async def test_a_paused_schedule_ends_its_run(store: Store, clock: Clock) -> None:
    daily = await create(store, every=DAILY, start=clock.time, next_run=clock.time)
    for _ in range(5):
        (task,) = await claim(store)
        daily = await end_run(store, task, **FAILED, next_run=clock.time)
    await store.write(tasks.change, "ada", daily.id, lambda task: replace(task, state="pending", paused=False))
    (task,) = await claim(store)
    asked = Call("calendar", params={}, id="c1", turn_pass=1, approval="asked")
    waiting = await end_run(store, task, "waiting", parts=[asked], approval=TaskApproval("c1", "calendar", {}, "Add"))
    assert (waiting.state, waiting.paused) == ("waiting", False)
    await store.write(tasks.change, "ada", daily.id, lambda task: replace(task, paused=True))
    await store.write(tasks.decide, "ada", daily.id, "c1", approve=True)
    (task,) = await claim(store)
    assert (task.run, (await end_run(store, task, next_run=clock.time)).state) == (6, "waiting")
    assert await claim(store) == []


@pytest.mark.parametrize(("limits", "reason"), [(DayLimits(1, 0), "1 task runs"), (DayLimits(0, 100), "100 tokens")])
async def test_runs_over_a_daily_limit_are_skipped_and_reported_once(
    store: Store, clock: Clock, limits: DayLimits, reason: str
) -> None:
    await create(store, "first")
    (task,) = await claim(store, limits=limits)
    await end_run(store, task)
    hourly: dict[str, Any] = {"every": "FREQ=HOURLY", "start": NOON, "next_run": NOON}
    made = [await create(store, "once"), await create(store, "hourly", **hourly)]
    told = len(await store.read(tasks.read_unreported, "ada", "c"))
    for hour in (13, 14):
        assert await claim(store, limits=limits) == []
        once, often = [await found(store, task) for task in made]
        assert (once.state, once.run, once.next_run) == ("waiting", 0, datetime(2026, 3, 2, tzinfo=UTC))
        assert (often.state, often.failures, often.next_run) == ("waiting", 0, NOON.replace(hour=hour))
        assert reason in once.reason
        packets = (await store.read(tasks.read_unreported, "ada", "c"))[told:]
        assert sorted((packet.title, packet.kind, packet.run) for packet in packets) == [
            ("hourly", "skipped", 1),
            ("once", "skipped", 1),
        ]
        clock.advance(hours=1)
    clock.advance(days=1)
    (task,) = await claim(store, limits=limits, at_once=1)
    assert (task.prompt, task.run, task.reason) == ("hourly", 1, "")


@pytest.mark.parametrize("approve", [True, False])
async def test_a_decision_continues_the_run(store: Store, approve: bool) -> None:
    task = await create(store)
    with pytest.raises(BadRequest):
        await store.write(tasks.decide, "ada", task.id, "c1", approve)
    (task,) = await claim(store)
    asked = Call("calendar", params={}, id="c1", turn_pass=1, approval="asked")
    await end_run(store, task, "waiting", parts=[asked], approval=TaskApproval("c1", "calendar", {}, "Add"))
    for user, call_id in (("eve", "c1"), ("ada", "c2")):
        with pytest.raises(BadRequest) as caught:
            await store.write(tasks.decide, user, task.id, call_id, approve)
        assert caught.value.code == "not_found"
    decided = [await store.write(tasks.decide, "ada", task.id, "c1", approve) for _ in range(2)]
    assert [(one.state, one.approval) for one in decided] == [("pending", None)] * 2
    with pytest.raises(BadRequest) as caught:
        await store.write(tasks.decide, "ada", task.id, "c1", not approve)
    assert caught.value.code == "decided"
    page = await store.read(conversations.read_page, "ada", task.work_id)
    assert page is not None
    assert [part.approval for part in page.exchanges[0].parts if isinstance(part, Call)] == [
        "approved" if approve else "declined"
    ]
    assert [one.run for one in await claim(store)] == [1]


async def test_a_task_is_canceled_in_every_state(store: Store, clock: Clock) -> None:
    made = [
        await create(store, name, every=every, start=clock.time if every else None, next_run=clock.time)
        for name, every in (("ends", ""), ("waits", ""), ("runs", ""), ("daily", DAILY), ("queued", ""))
    ]
    for _ in range(3):
        (task,) = await claim(store, 1)
        if task.prompt == "waits":
            await end_run(store, task, "waiting", approval=TaskApproval("c1", "calendar", {}, "Add"))
        elif task.prompt == "ends":
            await end_run(store, task)
        else:
            history = await begin_run(store, task)
    expected = ["already_done", "canceled", "canceled", "canceled", "canceled"]
    assert [(await store.write(tasks.cancel, "ada", task.id))[0] for task in made] == expected
    assert [(await store.write(tasks.cancel, "ada", task.id))[0] for task in made] == ["already_done"] + [
        "already_canceled"
    ] * 4
    assert (await store.write(tasks.cancel, "eve", made[0].id))[0] == "not_found"
    assert await own(store) == set()
    late = answer("late")
    await store.end(history, late, RunEnd(made[2], late, "succeeded"))
    assert (await found(store, made[2])).state == "canceled"
    assert await claim(store) == []

    await store.write(tasks.change, "ada", made[1].id, lambda task: replace(task, state="pending", next_run=clock.time))
    assert [(task.prompt, task.run) for task in await claim(store)] == [("waits", 2)]  # it does not continue the first


async def test_a_change_of_a_running_task_leaves_it_running(store: Store) -> None:
    await create(store)
    (task,) = await claim(store)
    renamed = await store.write(tasks.change, "ada", task.id, lambda task: replace(task, title="New"))
    assert renamed is not None
    assert await own(store) == {task.id}
    assert (await end_run(store, task)).title == "New"


async def test_each_packet_is_reported_once(store: Store, clock: Clock) -> None:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("a", {}), ("b", {"conversation_id": "d"}), ("c", {"tell": "never"}), ("d", {})
    ]  # fmt: skip
    for prompt, fields in rows:
        await create(store, prompt, **fields)
    for task in await claim(store, 9, 9):
        await end_run(store, task)
    unreported = await store.read(tasks.list_unreported)
    assert sorted((one.user, one.conversation_id) for one in unreported) == [("ada", "c"), ("ada", "d")]
    first, second = await store.read(tasks.read_unreported, "ada", "c")
    assert (first.kind, first.title, first.text, second.title) == ("result", "a", "Done.", "d")
    actions: list[str] = []
    history = await store.write_question("ada", "c", question("(report)", 9, source="report"), [])
    end = ReportEnd("ada", "c", first.key, [lambda tx: actions.append("done")])
    await store.end(history, answer("Told."), end)
    assert actions == ["done"]
    assert [packet.title for packet in await store.read(tasks.read_unreported, "ada", "c")] == ["d"]
    everything = await store.read(tasks.read_channel, "ada", 0)
    assert [packet.key for packet in everything] == sorted(packet.key for packet in everything)
    clock.advance(days=2)
    await create(store, "later")
    assert {packet.title for packet in await store.read(tasks.read_channel, "ada", 0)} == {"b", "d", "later"}
    assert await last_packet(store) == everything[-1].key + 1


async def test_damaged_rows_are_counted_and_stop_nothing(shared_place: DatabasePlace, clock: Clock) -> None:
    async with store_at(shared_place, clock) as store:
        damaged = [await create(store, "due"), await create(store, "runs")]
        for task in await claim(store):
            await store.write_unsynced(tasks.set_turn, task, "t", "reads")
        await create(store, "also due")
        await damage(store, "task")
        await damage(store, "channel", "key = 1")
        await create(store, "good")
        await create(store, "also due")
        assert await store.read(tasks.count_unreadable) == 4
        assert await store.read(tasks.find, "ada", damaged[0].id) is None
        assert [task.prompt for task in await store.read(tasks.list_tasks, "ada")] == ["also due", "good"]
        assert len(await store.read(tasks.read_channel, "ada", 0)) == 8
    async with store_at(shared_place, clock) as store:  # after a restart
        await store.write(tasks.recover)  # as a process does that finds tasks of a dead one
        assert [task.prompt for task in await claim(store)] == ["good", "also due"]
        await store.write(tasks.set_aside_damaged)
        assert await store.read(tasks.count_unreadable) == 4
        assert await store.delete("ada", "c") is False
        assert (await store.forget("ada")).tasks == 5


async def test_a_conversation_in_which_a_task_runs_is_in_no_list(store: Store, clock: Clock) -> None:
    await add_turn(store, "ada", "c", "My question")
    task = await create(store, "Compare the xylophones")
    (task,) = await claim(store)
    await end_run(store, task)
    assert [one.id for one in await store.list_conversations("ada")] == ["c"]
    for words in ("xylophones", "compare", "?"):
        assert await store.list_conversations("ada", words=words) == []
    assert [one.conversation_id for one in await store.read(conversations.recent, "ada", 9)] == ["c"]
    assert [one.conversation_id for one in await store.write_unsynced(conversations.claim_idle, TOMORROW, 9)] == ["c"]
    assert await store.search(users.count, "ada") == Counts(1, 2, tasks=1)
    newest = await store.search(conversations.find_answer, "ada", None)
    assert newest is not None
    assert newest[0] == "c"
    page = await store.read(conversations.read_page, "ada", task.work_id)
    assert page is not None
    assert (page.conversation.sources, page.exchanges[0].answer) == (("task",), "Done.")
    assert (await store.search(conversations.find_answer, "ada", page.exchanges[0].answer_id) or ("",))[
        0
    ] == task.work_id
    renamed = await store.write(conversations.rename, "ada", task.work_id, "Xylophones")
    assert renamed is not None
    assert await store.list_conversations("ada", words="xylophones") == []


async def test_tasks_vanish_with_their_conversation(store: Store) -> None:
    await add_turn(store, "ada", "c")
    await add_turn(store, "ada", "d")
    task = await create(store, "a")
    (task,) = await claim(store)
    child = await create(store, "child", depth=2, parent=task.id)
    other = await create(store, "b", conversation_id="d")
    await end_run(store, task)
    assert await store.write(tasks.cancel_all, "ada", "c") == [task.work_id]
    assert ((await found(store, child)).state, (await found(store, other)).state) == ("canceled", "pending")
    assert await store.delete("ada", "c")
    assert [one.id for one in await store.read(tasks.list_tasks, "ada")] == [other.id]
    assert await store.read(conversations.read_page, "ada", task.work_id) is None
    assert {packet.task_id for packet in await store.read(tasks.read_channel, "ada", 0)} == {other.id}
    assert await store.read(tasks.list_unreported) == []
    await create(store, "of eve", "eve")
    assert (await store.forget("ada")).tasks == 1
    assert [one.user for one in await claim(store)] == ["eve"]


async def test_active_tasks_keep_their_conversations_in_memory(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory_store
    monkeypatch.setattr(users, "MAX_MEMORY_CONVERSATIONS", 4)
    await add_turn(store, "ada", "c")
    await create(store, "daily", every=DAILY, start=TOMORROW, next_run=TOMORROW)
    once = await create(store, "once")
    (task,) = await claim(store)
    waiting = await end_run(store, task, "waiting", approval=TaskApproval("c1", "calendar", {}))
    for n in range(6):
        await add_turn(store, "ada", f"d{n}")
    assert [one.id for one in await store.list_conversations("ada")] == ["d5", "d4", "c"]
    assert await store.read(conversations.read_page, "ada", waiting.work_id) is not None
    await store.write(tasks.cancel, "ada", once.id)
    await add_turn(store, "ada", "d6")
    assert await store.read(conversations.read_page, "ada", waiting.work_id) is None
    assert await store.search(users.count, "ada") == Counts(4, 8, tasks=2)


async def test_no_turn_begins_for_a_task_that_was_deleted_meanwhile(store: Store) -> None:
    await create(store)
    (task,) = await claim(store)
    await store.write(tasks.remove, task.user, task.id)
    with pytest.raises(BadRequest) as raised:
        await begin_run(store, task)
    assert raised.value.code == "gone"
    assert await store.read(turns.find_newest, task.user, task.work_id) is None
