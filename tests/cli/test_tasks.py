"""`brain tasks`: background tasks are listed, added, changed, decided and watched by hand."""

import io
import json
import select
import sys
from typing import Any

import pytest
from store_helpers import NO_LIMITS, answer, claim_due, question, task_of

from brain.messages import Call, Text
from brain.store import tasks
from brain.store.store import Store
from brain.store.tasks import RunEnd
from brain.task import TaskApproval
from cli.command import Brain, interrupt

DAILY = ("--every", "every day at 8", "--yes")


class Tty(io.StringIO):
    """One side of a terminal."""

    def isatty(self) -> bool:
        return True


def read_json(brain: Brain, *arguments: str) -> Any:
    code, out, _ = brain("tasks", *arguments, "--json")
    return json.loads(out) if code == 0 else None


def add(brain: Brain, prompt: str = "Read", *arguments: str) -> str:
    task_id: str = read_json(brain, "add", prompt, *arguments)["id"]
    return task_id


async def run_next(store: Store, *, asks: bool = False) -> None:
    """Run the next task as a server does: to its end, or until it needs an approval."""
    (task,) = await claim_due(store)
    history = await store.write_question(task.user, task.work_id, question(task.prompt, task.id, source="task"), [])
    call = Call("calendar", params={"title": "Tea\x1b[2J"}, id="c1", turn_pass=1, approval="asked")
    ended = answer([call] if asks else [Text("Forty papers.", 1)])
    approval = TaskApproval("c1", "calendar", {"title": "Tea\x1b[2J"}, "Adds an event.") if asks else None
    outcome: Any = "waiting" if asks else "succeeded"
    await store.end(history, ended, RunEnd(task, ended, outcome, approval=approval))


def test_tasks_are_listed_newest_first(brain: Brain) -> None:
    assert brain("tasks", "add", "Read", "--title", "Papers\x1b[2J")[0] == 0
    brain.use(run_next)
    daily = add(brain, "Briefing", *DAILY)
    add(brain, "Of ada", "--user", "ada")
    expected = [("Briefing", "waiting"), ("Papers\x1b[2J", "succeeded")]
    assert [(task["title"], task["state"]) for task in read_json(brain, "list")["tasks"]] == expected
    assert read_json(brain)["tasks"][0]["id"] == daily
    code, out, err = brain("tasks")
    assert (code, err, "\x1b" in out) == (0, "", False)
    lines = [line.split() for line in out.splitlines()]
    assert [lines[0], lines[2][1:], lines[3]] == [
        [daily[:8], "waiting", "Briefing"], ["succeeded", "Papers\\u{1b}[2J"], ["Forty", "papers."]
    ]  # fmt: skip
    assert brain("tasks", "--user", "ada")[1].split()[1:] == ["pending", "Of", "ada"]
    assert brain("tasks", "--user", "eve")[1] == "No tasks for user eve.\n"


def test_only_the_latest_ended_tasks_are_listed(brain: Brain) -> None:
    async def fill(store: Store) -> None:
        for n in range(23):
            task = await store.write(tasks.create, task_of("local", f"{n}"), NO_LIMITS)
            await store.write(tasks.cancel, "local", task.id)

    brain.use(fill)
    assert len(brain("tasks")[1].splitlines()) == 21
    assert len(brain("tasks", "list", "--all")[1].splitlines()) == len(read_json(brain, "list")["tasks"]) == 23


def test_an_id_may_be_shortened_while_it_is_unique(brain: Brain) -> None:
    whole = add(brain)
    for typed in (whole, whole[:8], whole.removeprefix("task"), whole[4:7].upper(), f"#{whole}"):
        assert read_json(brain, "show", typed)["id"] == whole
    for typed in ("taskx", "task", "", f"{whole}0", "%"):
        assert brain("tasks", "show", typed)[:2] == (1, "")
    for n in range(17):  # two of them begin with the same digit
        add(brain, f"{n}")
    ids = [task["id"] for task in read_json(brain, "list")["tasks"]]
    first = next(one[4] for one in ids if sum(other[4] == one[4] for other in ids) > 1)
    assert brain("tasks", "delete", first)[0] == 1
    assert brain("tasks", "show", whole, "--user", "ada")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ([], {"state": "pending", "profile": "standard", "tell": "always"}),
        (
            ["--title", "T", "--profile", "expert", "--tell", "never"],
            {"title": "T", "profile": "expert", "tell": "never"},
        ),
        (["--conversation", "c"], {"conversation_id": "c"}),
        (["--when", "2100-01-31T08:00", "--yes"], {"state": "waiting", "next_run": "2100-01-31T08:00:00Z"}),
        (DAILY, {"state": "waiting", "every": "FREQ=DAILY;BYHOUR=8;BYMINUTE=0"}),
    ],
)
def test_a_task_is_added(
    brain: Brain, arguments: list[str], fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_TIME_ZONE", "UTC")
    task = read_json(brain, "add", "Read", *arguments)
    assert task.items() >= {"prompt": "Read", **fields}.items()
    assert brain("tasks", "add", "Read", *arguments)[:2] == (1, "")  # a duplicate


@pytest.mark.parametrize(("typed", "is_added"), [("y\n", True), ("n\n", False), ("", False)])
def test_a_schedule_is_added_after_a_question(
    brain: Brain, typed: str, is_added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", shown := Tty())
    code, _, _ = brain("tasks", "add", "Read", "--every", "every day at 8", stdin=Tty(typed))
    assert (code, shown.getvalue().count(" 08:00")) == (0 if is_added else 1, 4)
    assert len(read_json(brain, "list")["tasks"]) == int(is_added)
    assert brain("tasks", "add", "Write", "--every", "every day at 8")[0] == 2  # nobody to ask


def test_a_task_changes(brain: Brain) -> None:
    once, daily = add(brain), add(brain, "Briefing", *DAILY)
    assert brain("tasks", "pause", once)[0] == 1
    assert read_json(brain, "pause", daily)["paused"]
    assert brain("tasks")[1].split()[1] == "paused"
    assert "paused" not in read_json(brain, "resume", daily)
    assert read_json(brain, "run", daily)["state"] == "pending"
    assert brain("tasks", "run", daily)[0] == 1
    assert read_json(brain, "cancel", daily)["outcome"] == "canceled"
    assert read_json(brain, "cancel", daily)["outcome"] == "already_canceled"
    code, _, err = brain("tasks", "run", daily)
    assert (code, "Try: brain tasks add" in err) == (1, True)
    brain.use(run_next)
    assert brain("tasks", "cancel", once)[0] == 1
    assert "Forty papers." in brain("tasks", "show", once)[1]
    assert brain("tasks", "delete", once, "taskx")[0] == 1
    assert brain("tasks", "delete", once, daily)[0] == 0
    assert read_json(brain, "list") == {"tasks": []}


@pytest.mark.parametrize(("action", "approval"), [(["approve", "--yes"], "approved"), (["decline"], "declined")])
def test_an_approval_is_decided(brain: Brain, action: list[str], approval: str) -> None:
    task_id = add(brain)
    assert brain("tasks", *action, task_id)[0] == 1

    async def ask(store: Store) -> None:
        await run_next(store, asks=True)

    brain.use(ask)
    assert "approval" in brain("tasks")[1]
    if approval == "approved":
        assert brain("tasks", "approve", task_id)[0] == 2  # nobody to ask
    code, out, _ = brain("tasks", *action, task_id)
    assert (code, "Adds an event." in out, "\x1b" in out) == (0, True, False)
    assert json.loads(brain.query("SELECT data FROM exchange")[0][0])["parts"][0]["approval"] == approval
    assert read_json(brain, "show", task_id)["state"] == "pending"


def test_changes_are_watched_until_ctrl_c(brain: Brain) -> None:
    add(brain, "Before")
    with brain.process("tasks", "watch", "--json", MODEL="builtin") as watching:
        out = watching.process.stdout
        assert out is not None
        task_ids: list[str] = []
        while not select.select([out], [], [], 0.1)[0]:  # until it has begun
            task_ids.append(add(brain, f"Now {len(task_ids)}"))
        packet = json.loads(out.readline())
        assert packet["task_id"] in task_ids
        assert (packet["state"], packet["kind"], "Before" in packet["title"]) == ("pending", "state", False)
        assert interrupt(watching) == 130
