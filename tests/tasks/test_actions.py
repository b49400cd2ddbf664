"""What each action does to a task in each state: the tables of `docs/how-to/operate-background-tasks.md`."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from store_helpers import NO_LIMITS, NOON, Clock, answer, claim_due, lose_turns, question, store_at, task_of

from brain.errors import BadRequest
from brain.messages import Call
from brain.settings import read
from brain.store import tasks
from brain.store.store import Store
from brain.store.tasks import DayLimits, Duplicate, RunEnd
from brain.task import NewTask, Task, TaskApproval, TaskEdit, TaskState
from brain.tasks import Tasks, schedule

pytestmark = pytest.mark.anyio

ONE_RUN = DayLimits(1, 0)
MONDAY = datetime(2026, 3, 2, 8, tzinfo=UTC)  # tests begin on Sunday at noon

WITHOUT_SCHEDULE = """
action      pending    running    approval   skipped    succeeded      canceled
run now     busy       busy       busy       pending    pending        pending
pause       400        400        400        400        gone           gone
resume      400        400        400        400        gone           gone
run ends    -          succeeded  -          -          -              -
cancel run  -          canceled   -          -          -              -
cancel task canceled   canceled   canceled   canceled   already_done   already_canceled
limit       Mon_00:00  running    approval   Tue_00:00  succeeded      canceled
crash       pending    pending    approval   Mon_00:00  succeeded      canceled
6_crashes   -          failed     -          -          -              -
clock       running    running    approval   Mon_00:00  succeeded      canceled
"""
ONE_TIME = """
action      waiting    paused     early      running    approval       succeeded      canceled
run now     pending    pending*   busy       busy       busy           pending        gone
pause       paused     paused     running*   running*   approval*      gone           gone
resume      Mon_08:00  Mon_08:00  running    running    approval       gone           gone
run ends    -          -          Mon_08:00  succeeded  -              -              -
cancel run  -          -          Mon_08:00  canceled   -              -              -
cancel task canceled   canceled   canceled   canceled   canceled       already_done   already_canceled
limit       Tue_00:00  paused     running    running    approval       succeeded      canceled
crash       Mon_08:00  paused     pending    pending    approval       succeeded      canceled
6_crashes   -          -          Mon_08:00  failed     -              -              -
clock       Mon_08:00  paused     running    running    approval       succeeded      canceled
"""
EVERY_MONDAY = """
action      waiting    paused     early      running    approval       canceled
run now     pending    pending*   busy       busy       busy           gone
pause       paused     paused     running*   running*   approval*      gone
resume      Mon_08:00  Mon_08:00  running    running    approval       gone
run ends    -          -          Mon_08:00  next_Mon   -              -
cancel run  -          -          Mon_08:00  next_Mon   -              -
cancel task canceled   canceled   canceled   canceled   canceled       already_canceled
limit       next_Mon   paused     running    running    approval       canceled
crash       Mon_08:00  paused     pending    pending    approval       canceled
6_crashes   -          -          Mon_08:00  next_Mon   -              -
clock       Mon_08:00  paused     running    running    approval       canceled
"""
SCHEDULES = {
    WITHOUT_SCHEDULE: {},
    ONE_TIME: {"when": "2026-03-02T08:00"},
    EVERY_MONDAY: {"every": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=8;BYMINUTE=0"},
}
REJECTED = {(400, "bad_request"): "400", (409, "busy"): "busy", (409, "gone"): "gone"}
TIMES = {
    "02 00:00": "Mon_00:00",
    "02 08:00": "Mon_08:00",
    "03 00:00": "Tue_00:00",
    "03 08:00": "Tue_08:00",
    "09 08:00": "next_Mon",
}
CELLS = [
    (times, state, row[:11].strip(), cell)
    for table, times in SCHEDULES.items()
    for states, *rows in [table.strip().splitlines()]
    for row in rows
    for state, cell in zip(states.split()[1:], row[11:].split(), strict=True)
    if cell != "-"
]


class User:
    """A user with one task, and the process that runs it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.tasks = Tasks(store, read({"BRAIN_MODEL": "builtin"}), lambda: clock.time)
        self.id = ""

    async def task(self) -> Task:
        task = await self.store.read(tasks.find, "ada", self.id)
        assert task is not None
        return task

    async def claim(self, limits: DayLimits = NO_LIMITS, at_once: int = 9) -> None:
        await claim_due(self.store, at_once, 9, limits)

    async def end_run(self, task: Task, outcome: TaskState) -> None:
        question_id = f"{task.id} {task.run}"
        history = await self.store.write_question("ada", task.work_id, question("Work", question_id, source="task"), [])
        asked = [Call("letter", params={}, id="c1", turn_pass=1, approval="asked")]
        ended = answer(asked if outcome == "waiting" else "Done.")
        approval = TaskApproval("c1", "letter", {}) if outcome == "waiting" else None
        next_run = schedule.next_run(task, self.clock.time)
        await self.store.end(history, ended, RunEnd(task, ended, outcome, next_run, approval=approval))

    async def bring(self, state: str, times: dict[str, str]) -> None:
        """Create the task, and bring it to a state."""
        new = NewTask(prompt="Work", conversation_id="c", time_zone="UTC", **times)  # type: ignore[arg-type]
        self.id = (await self.tasks.create(self.tasks.check("ada", new))).id
        if state == "early":
            await self.tasks.run_now("ada", self.id)
        elif times and state in ("running", "approval", "succeeded"):
            self.clock.now = MONDAY.timestamp()
        if state in ("early", "running", "approval", "succeeded"):
            await self.claim()
        match state:
            case "approval":
                await self.end_run(await self.task(), "waiting")
            case "succeeded":
                await self.end_run(await self.task(), "succeeded")
            case "skipped":
                await self.reach_limit()
            case "paused":
                await self.tasks.change("ada", self.id, TaskEdit(paused=True))
            case "canceled":
                await self.tasks.write(tasks.cancel, "ada", self.id)

    async def reach_limit(self) -> None:
        """Use up the runs of the day on which the task is due, and let the process look for due tasks."""
        next_run = (await self.task()).next_run
        self.clock.now = max(self.clock.now, 0.0 if next_run is None else next_run.timestamp())
        running = (await self.store.read(tasks.count_states)).get("running", 0)
        first = task_of("ada", f"First {self.clock.now}", start=NOON, next_run=datetime(2000, 1, 1, tzinfo=UTC))
        other = await self.store.write(tasks.create, first, NO_LIMITS)
        await self.claim(at_once=running + 1)
        claimed = await self.store.read(tasks.find, "ada", other.id)
        assert claimed is not None
        await self.end_run(claimed, "succeeded")
        await self.claim(ONE_RUN)

    async def crash(self) -> None:
        lose_turns(self.store)
        await self.store.write(tasks.recover)

    async def do(self, action: str) -> str:
        """Act on the task; return an outcome, or the state in which it then is."""
        outcome = None
        match action:
            case "run now":
                await self.tasks.run_now("ada", self.id)
            case "pause" | "resume":
                await self.tasks.change("ada", self.id, TaskEdit(paused=action == "pause"))
            case "run ends":
                await self.end_run(await self.task(), "succeeded")
            case "cancel run":
                await self.end_run(await self.task(), "canceled")
            case "cancel task":
                outcome, _ = await self.tasks.write(tasks.cancel, "ada", self.id)
            case "limit":
                await self.reach_limit()
            case "crash":
                await self.crash()
            case "6_crashes":
                for _ in range(6):
                    await self.crash()
                    await self.claim()
            case "clock":
                self.clock.advance(days=60)
                await self.store.write(tasks.recover)
                await self.store.write(tasks.change, "ada", self.id, _postpone)
                self.clock.advance(days=-60)
                await self.store.write(tasks.recover)
                waiting = await self.store.read(tasks.list_waiting)
                await self.store.write(tasks.correct_times, schedule.find_late(waiting, self.clock.time))
                await self.claim()
        return outcome or describe(await self.task())


def _postpone(task: Task) -> Task:
    """The task with the time that a clock 60 days ahead leaves."""
    return task if task.next_run is None else replace(task, next_run=task.next_run.replace(month=5))


def describe(task: Task) -> str:
    if task.state == "waiting" and task.approval is None:
        assert task.next_run is not None
        return "paused" if task.paused else TIMES[f"{task.next_run:%d %H:%M}"]
    state = task.state if task.approval is None else "approval"
    return f"{state}*" if task.paused else state


@pytest.mark.parametrize(("times", "state", "action", "cell"), CELLS)
async def test_each_action_in_each_state(times: dict[str, str], state: str, action: str, cell: str) -> None:
    clock = Clock(step=0)
    async with store_at(None, clock) as store:
        user = User(store, clock)
        await user.bring(state, times)
        try:
            found = await user.do(action)
        except BadRequest as error:
            found = REJECTED[error.status, error.code]
        assert found == cell


async def test_no_change_makes_two_active_tasks_the_same() -> None:
    clock = Clock(step=0)
    async with store_at(None, clock) as store:
        user = User(store, clock)
        await user.bring("succeeded", {})
        ended = user.id
        await user.bring("pending", {})
        other = await user.tasks.create(user.tasks.check("ada", NewTask(prompt="Work", title="Other")))
        with pytest.raises(Duplicate) as caught:
            await user.tasks.run_now("ada", ended)
        assert (caught.value.status, caught.value.task.id) == (409, user.id)
        with pytest.raises(Duplicate):
            await user.tasks.change("ada", other.id, TaskEdit(title="work"))
        await user.tasks.write(tasks.cancel, "ada", user.id)
        again = await user.tasks.run_now("ada", ended)
        assert again is not None
        assert again.state == "pending"


@pytest.mark.parametrize("knows_it", [False, True])
async def test_a_schedule_that_changes_during_a_run_counts_at_its_end(knows_it: bool) -> None:
    clock = Clock(step=0)
    async with store_at(None, clock) as store:
        user = User(store, clock)
        await user.bring("running", SCHEDULES[EVERY_MONDAY])
        running = await user.task()
        await user.tasks.change("ada", user.id, TaskEdit(every="daily at 8"))
        await user.end_run(await user.task() if knows_it else running, "succeeded")
        assert describe(await user.task()) == "Tue_08:00"
