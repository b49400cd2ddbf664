"""Processes that share a store: when they live, and how another one takes over the turns of one that died."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from store_helpers import (
    NOON,
    Clock,
    DatabasePlace,
    add_turn,
    answer,
    file,
    join,
    only_exchange,
    question,
    read_turns,
    store_at,
)

from brain.errors import BadRequest
from brain.messages import Annotation, Call, History, Text, to_answer_id
from brain.store import conversations, processes, turns
from brain.store.processes import Process
from brain.store.store import Store
from brain.store.turns import Appended, Place, QuestionOptions, RequestTaken

pytestmark = pytest.mark.anyio

RESUMABLE = QuestionOptions(resume="{}")
THOUGHT = Annotation("Hm", 0, 3)


class Uptime:
    """Seconds on the clock of the machine, which all its processes share."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Machine(NamedTuple):
    """Three processes that share a file; their clocks are 30 seconds apart, but they agree on the uptime."""

    uptime: Uptime
    stores: Sequence[Store]

    async def others(self) -> list[tuple[bool, bool]]:
        """How the last process sees the others: whether the lease is over, and whether it stops."""
        *_, watcher = self.stores
        found = {one.id: one for one in await watcher.read(processes.read)}
        seen = [found.get(store.database.process) for store in self.stores[:-1]]
        return [(one.is_over, one.is_stopping) for one in seen if one is not None]


@pytest.fixture
async def machine(shared_place: DatabasePlace) -> AsyncIterator[Machine]:
    uptime = Uptime()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(store_at(shared_place, Clock(step=0), uptime)) for _ in range(3)]
        for number, store in enumerate(stores):
            assert isinstance(store.database.clock, Clock)
            store.database.clock.advance(seconds=30 * number)
            await join(store, f"unix:{number}")
        yield Machine(uptime, stores)


async def die(dead: Store, heir: Store) -> None:
    """Let the lease of a process end, and another one find that."""
    assert isinstance(heir.database.uptime, Uptime)
    heir.database.uptime.now += processes.LEASE_SECONDS + 0.1
    await heir.write(processes.renew, "")
    assert await heir.write(processes.remove_dead)
    assert dead.database.process not in {one.id for one in await heir.read(processes.read)}


async def claim(store: Store, *, continues: bool = True) -> list[turns.Claimed]:
    """Claim turns as a process does, if it sees some."""
    if not await store.read(turns.has_orphans, continues=continues):
        return []
    claimed, has_more = await store.write(turns.claim, 9, continues=continues)
    assert not has_more
    assert not await store.read(turns.has_orphans, continues=continues)
    return list(claimed)


async def begin(store: Store, name: str = "c", options: QuestionOptions = RESUMABLE, **fields: Any) -> History:
    return await store.write_question("ada", name, question("One", name, **fields), (), options)


# processes


async def test_a_process_lives_until_its_lease_is_over(machine: Machine) -> None:
    uptime, (one, two, three) = machine
    secrets = {await store.write(processes.add, "again") for store in machine.stores}
    assert [len(secret) for secret in secrets] == [64]  # all know the same one
    assert await three.read(processes.read) == sorted(
        Process(store.database.process, f"unix:{n}", is_over=False, is_stopping=False)
        for n, store in enumerate(machine.stores)
    )
    uptime.now += 2.9
    assert await machine.others() == [(False, False), (False, False)]
    await one.write(processes.renew, "unix:0", is_stopping=True)
    await three.write(processes.renew, "unix:2")
    uptime.now += 0.2
    assert await machine.others() == [(False, True), (True, False)]
    assert await three.write(processes.remove_dead) == ["unix:1"]
    assert await three.write(processes.remove_dead) == []
    await one.write(processes.renew, "unix:0", is_stopping=True)
    await two.write(processes.renew, "unix:1")  # it is out
    assert await machine.others() == [(False, True)]
    await one.write(processes.remove)
    assert await machine.others() == []


async def test_a_clock_that_is_set_back_ends_no_lease(machine: Machine) -> None:
    machine.uptime.now -= 0.5
    one, _, _ = machine.stores
    assert await machine.others() == [(False, False), (False, False)]
    assert await one.write(processes.remove_dead) == []


async def test_leases_from_before_a_restart_of_the_machine_are_over(machine: Machine) -> None:
    machine.uptime.now -= 100
    one, _, _ = machine.stores
    await one.write(processes.renew, "unix:0")
    assert await machine.others() == [(False, False), (True, False)]
    assert sorted(await one.write(processes.remove_dead)) == ["unix:1", "unix:2"]


async def test_a_process_never_removes_itself(machine: Machine) -> None:
    """It was alone and did not renew its lease, or was frozen and wakes first."""
    machine.uptime.now += 60
    _, two, _ = machine.stores
    assert sorted(await two.write(processes.remove_dead)) == ["unix:0", "unix:2"]
    assert [one.id for one in await two.read(processes.read)] == [two.database.process]
    await two.write(processes.renew, "unix:new")
    (found,) = await two.read(processes.read)
    assert (found.address, found.is_over) == ("unix:new", False)


# taking over


async def test_turns_of_a_dead_process_are_claimed_once_each_and_twenty_at_a_time(machine: Machine) -> None:
    _, (dead, one, two) = machine
    names = [f"c{n:02}" for n in range(50)]
    for name in names:
        await begin(dead, name)
    await begin(one, "own")
    assert [await claim(store) for store in machine.stores] == [[], [], []]  # its process lives
    await two.write(processes.renew, "")
    await die(dead, two)
    await join(one)
    counts, found = [], []
    for store in (one, two, one, two):
        claimed, has_more = await store.write(turns.claim, 9, continues=True)
        counts.append((len(claimed), has_more))
        found += [(each.history.id, each.history.epoch, each.resume, each.last) for each in claimed]
    assert counts == [(20, True), (20, True), (10, False), (0, False)]
    assert found == [(name, 1, "{}", 0) for name in names]


async def test_a_turn_that_is_claimed_again_has_another_epoch(machine: Machine) -> None:
    _, (first, second, third) = machine
    history = await begin(first)
    for epoch, (dead, heir) in enumerate([(first, second), (second, third)], 1):
        await die(dead, heir)
        (claimed,) = await claim(heir)
        assert (claimed.history.key, claimed.history.epoch) == (history.key, epoch)
        await join(third)
    await third.end(claimed.history, answer("Done"))
    assert await read_turns(first, "ada", "c") == [("One", "Done", "complete")]


async def test_a_claimed_turn_has_its_conversation_files_and_marks(machine: Machine) -> None:
    _, (dead, heir, _) = machine
    for number in (1, 2, 3):
        await add_turn(dead, "ada", "c", f"Old {number}", number=number, files=[file(b"%d" % number)])
    options = QuestionOptions(resume="{}", replaces="q3", private=True)
    asked = question("New", 4, answer_id="a4", untrusted=True)
    await dead.write_question("ada", "c", asked, [file(b"4")], options)
    await die(dead, heir)
    claimed, _ = await heir.write(turns.claim, 1, continues=True)
    (history,) = (one.history for one in claimed)
    assert history.question is not None
    assert (history.user, history.id, history.private) == ("ada", "c", True)
    assert (history.untrusted, history.private_data) == (True, False)
    assert (history.question.message, history.question.question_id, history.question.answer_id) == ("New", "q4", "a4")
    assert ([one.message for one in history.exchanges], history.count) == (["Old 2"], 2)
    assert [one.data for one in history.attachments] == [b"1", b"2"]
    assert [(one.id, one.data) for one in history.files] == [(4, b"4")]
    await heir.end(history, answer("Better", 4))
    assert [one[0] for one in await read_turns(dead, "ada", "c")] == ["Old 1", "Old 2", "New"]


@pytest.mark.parametrize(
    ("resume", "continues", "outcome"),
    [("{}", True, ""), ("{}", False, ""), ("", True, "interrupted"), ("", False, "interrupted")],
)
async def test_a_turn_that_nobody_can_continue_is_interrupted_with_its_text(
    machine: Machine, resume: str, continues: bool, outcome: str
) -> None:
    _, (dead, heir, other) = machine
    history = await begin(dead, options=QuestionOptions(resume=resume))
    running, ended = Call("web", id="c2", turn_pass=1), Call("web", id="c1", block="block", turn_pass=1)
    sends = Call("letter", id="c3", turn_pass=1, has_started=True, if_interrupted=("unknown", "It may have been sent."))
    so_far = question("One", "c", started=NOON, parts=[Text("Once", 1), ended, running, sends])
    assert await dead.write(turns.checkpoint, history, 7, so_far)
    assert await dead.write(turns.append, history, 9, Appended(" upon", 1, (THOUGHT,)))
    assert await read_turns(other, "ada", "c") == [("One", "Once upon", "")]
    await die(dead, heir)
    claimed = await claim(heir, continues=continues)
    assert [one.last for one in claimed] == ([9] if outcome == "" and continues else [])
    if not outcome:
        (left,) = claimed or await claim(other)
        assert left.history.question is not None
        taker = heir if continues else other
        for store, epoch in ((dead, 0), (taker, 0), (taker, 2)):  # which do not have it
            await store.write(turns.interrupt, replace(history, epoch=epoch))
        assert await read_turns(other, "ada", "c") == [("One", "Once upon", "")]
        await taker.write(turns.interrupt, replace(history, epoch=1))
    exchange = await only_exchange(other, "ada", "c")
    # no model may read a call without a block, and each must know of one that may have changed something
    parts = {"code": "interrupted", "reason": "unknown", "block": "It may have been sent.", "if_interrupted": None}
    assert exchange.calls == [ended, replace(sends, **parts)]
    assert (exchange.answer, exchange.annotations, exchange.outcome) == ("Once upon", (THOUGHT,), "interrupted")
    assert [one.running for one in await other.list_conversations("ada")] == [False]
    assert len(await other.list_conversations("ada", words="upon")) == 1
    await begin(other)  # the conversation is free


@pytest.mark.parametrize("damage", ["data = '{\"te'", "data = ''", "data = '{\"text\": 3}'"])
async def test_a_damaged_draft_loses_only_its_own_text(machine: Machine, damage: str) -> None:
    _, (dead, heir, other) = machine
    for name in ("c", "d", "e"):
        history = await begin(dead, name, RESUMABLE if name == "c" else QuestionOptions())
        for number, text in enumerate(("Once", " upon", " a time"), 1):
            assert await dead.write(turns.append, history, number, Appended(text, 1))
    await other.write(lambda tx: tx.execute(f"UPDATE draft SET {damage} WHERE last = 2").rowcount)
    await die(dead, heir)
    await begin(heir, "e")  # interrupts the turn before it
    (claimed,) = await claim(heir)
    assert claimed.history.question is not None
    assert (claimed.history.question.answer, claimed.last) == ("Once a time", 3)
    assert await read_turns(other, "ada", "d") == [("One", "Once a time", "interrupted")]
    assert (await read_turns(other, "ada", "e"))[0] == ("One", "Once a time", "interrupted")


async def test_a_task_keeps_the_calls_that_have_not_ended(machine: Machine) -> None:
    _, (dead, heir, _) = machine
    history = await begin(dead, "c", QuestionOptions())
    so_far = question("One", "c", source="task", started=NOON, parts=[Call("write", id="c1", turn_pass=1)])
    assert await dead.write(turns.checkpoint, history, 3, so_far)
    await die(dead, heir)
    assert await claim(heir) == []
    exchange = await only_exchange(heir, "ada", "c")
    assert ([call.id for call in exchange.calls], exchange.outcome) == (["c1"], "interrupted")


async def test_the_next_message_interrupts_a_turn_whose_process_died(machine: Machine) -> None:
    _, (dead, heir, _) = machine
    await begin(dead)
    for store in (dead, heir):
        with pytest.raises(BadRequest) as caught:
            await begin(store)
        assert isinstance(caught.value, turns.ConversationBusy)
        assert (caught.value.process, caught.value.is_report) == (dead.database.process, False)
    await die(dead, heir)
    await begin(heir)
    assert [one[2] for one in await read_turns(heir, "ada", "c")] == ["interrupted", ""]
    assert await claim(heir) == []


async def test_a_released_turn_is_claimed_at_once(machine: Machine) -> None:
    _, (ending, heir, other) = machine
    history = await begin(ending)
    exchange = question("One", "c", started=NOON, parts=[Text("Half", 1)], outcome="shutdown")
    await ending.write(turns.release, history, 12, exchange)
    (claimed,) = await claim(heir)
    assert claimed.history.question is not None
    assert (claimed.history.epoch, claimed.last) == (1, 12)
    assert (claimed.history.question.answer, claimed.history.question.outcome) == ("Half", "")
    assert (await claim(other), await claim(ending)) == ([], [])
    await ending.write(turns.release, history, 12, exchange)  # a second time: it is not its own any more
    assert await claim(other) == []


async def test_no_write_of_a_frozen_process_hits_a_row(machine: Machine) -> None:
    _, (frozen, heir, _) = machine
    history = await begin(frozen)
    await die(frozen, heir)
    await claim(heir)
    so_far = answer("late", message="One", question_id="qc")
    before = await only_exchange(heir, "ada", "c")
    for process, epoch in ((frozen, 0), (frozen, 1), (heir, 0), (heir, 2)):
        late = replace(history, epoch=epoch)
        assert not await process.write(turns.checkpoint, late, 1, so_far)
        assert not await process.write(turns.append, late, 1, Appended("late"))
        assert not await process.write(turns.end, late, so_far)
        await process.write(turns.release, late, 1, so_far)
        await process.write(turns.drop, late)
    await frozen.end(history, answer("late"))
    await frozen.drop(history)
    assert await only_exchange(heir, "ada", "c") == before
    assert await heir.write(turns.append, replace(history, epoch=1), 1, Appended("in time"))
    assert await read_turns(frozen, "ada", "c") == [("One", "in time", "")]


async def test_a_frozen_process_whose_turns_nobody_claimed_continues_them(machine: Machine) -> None:
    _, (frozen, heir, _) = machine
    history = await begin(frozen)
    await die(frozen, heir)
    assert await frozen.write(turns.append, history, 1, Appended("On"))
    await frozen.end(history, answer("On and on"))
    assert await claim(heir) == []
    assert await read_turns(heir, "ada", "c") == [("One", "On and on", "complete")]


async def test_an_ended_turn_takes_no_more(store: Store) -> None:
    history = await begin(store)
    assert await store.write(turns.append, history, 1, Appended("One"))
    await store.end(history, answer("Done"))
    assert await store.write(turns.append, history, 2, Appended("more")), "no other process has it"
    assert await store.write(turns.checkpoint, history, 2, answer("more"))
    drafts = "SELECT count(*) FROM draft"
    assert await store.read(lambda tx: tx.execute(drafts).fetchone()) == (0,)
    # one that another transaction wrote at the same time
    late = 'INSERT INTO draft (exchange, last, data) VALUES (?, 3, \'{"text":"late"}\')'
    await store.write(lambda tx: tx.execute(late, (history.key,)).rowcount)
    assert await read_turns(store, "ada", "c") == [("One", "Done", "complete")]
    assert len(await store.list_conversations("ada", words="done")) == 1
    assert await store.read(lambda tx: tx.execute(drafts).fetchone()) == (0,)
    assert await store.delete("ada", "c")


# where a turn runs


async def test_the_place_of_a_turn_is_found(machine: Machine) -> None:
    _, (one, other, _) = machine
    turn = f"t{one.database.process}1"
    options = QuestionOptions(request_id="r1", resume="{}")
    asked = question("One", 1, answer_id=to_answer_id(turn))
    history = await one.write_question("ada", "c", asked, (), options)
    running = Place(turn, one.database.process, is_running=True, has_expired=False)

    async def places(user: str = "ada") -> list[Place | None]:
        return [
            await other.read(turns.find_place, user, turn),
            await other.read(turns.find_request, user, "r1"),
            await other.read(turns.find_newest, user, "c"),
        ]

    assert await places() == [running] * 3
    assert await places("eve") == [None] * 3
    for store, name in ((one, "c"), (other, "d")):
        with pytest.raises(RequestTaken) as caught:
            await store.write_question("ada", name, question("Two", 2), (), options)
        assert (caught.value.code, caught.value.status, caught.value.field) == ("busy", 409, "request_id")
    await other.write_question("eve", "c", question("Two", 2), (), options)  # another user's
    await one.end(history, replace(answer("Done"), answer_id=asked.answer_id))
    assert await places() == [running._replace(is_running=False)] * 3
    assert isinstance(other.database.clock, Clock)
    other.database.clock.advance(seconds=turns.REPEAT_SECONDS)  # it is 30 seconds ahead, too
    # a turn ID is not searched for in all that the user has
    assert await places() == [None, None, running._replace(is_running=False, has_expired=True)]
    again = await other.write_question("ada", "d", question("Two", 2, answer_id="m2"), (), options)
    found = await one.read(turns.find_request, "ada", "r1")
    assert found is not None
    turn_id = again.question.turn_id if again.question else ""
    assert (found.turn_id, found.process) == (turn_id, other.database.process)
    assert await other.read(turns.find_newest, "ada", "nothing") is None


async def test_the_place_of_a_turn_moves_with_it(machine: Machine) -> None:
    _, (dead, heir, other) = machine
    options = QuestionOptions(request_id="r1", resume="{}")
    history = await begin(dead, "c", options, answer_id="m1")
    half = question("One", "c", answer_id="m1", started=NOON, parts=[Text("Half", 1)])
    await dead.write(turns.release, history, 1, half)
    found = await other.read(turns.find_request, "ada", "r1")
    assert found is not None
    assert (found.process, found.is_running) == ("", True)
    await claim(heir)
    assert await other.read(turns.find_request, "ada", "r1") == found._replace(process=heir.database.process)
    await heir.write(turns.interrupt, replace(history, epoch=1))
    assert await other.read(turns.find_request, "ada", "r1") == found._replace(is_running=False)


async def test_a_store_in_memory_needs_no_processes(memory_store: Store) -> None:
    store = memory_store
    history = await begin(store)
    assert (await store.read(processes.read), await claim(store)) == ([], [])
    with pytest.raises(BadRequest, match="running turn"):
        await begin(store)
    await store.end(history, answer("Done"))
    assert await read_turns(store, "ada", "c") == [("One", "Done", "complete")]
    page = await store.read(conversations.read_page, "ada", "c")
    assert page is not None
    assert not page.conversation.running
