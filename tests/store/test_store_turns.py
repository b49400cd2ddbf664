"""What turns write and read: questions, answers, files, and turns that never began.

`test_processes.py` has what other processes see of a turn, and `test_histories.py` compares how turns continue, are
interrupted and replace each other with a model.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from limits import WAIT_SECONDS
from msgspec.structs import replace
from store_helpers import NOON, Blocker, add_turn, answer, fact, file, only_exchange, question, read_turns

from brain.errors import BadRequest, StoreError
from brain.events import Citation, Error, Usage
from brain.messages import Annotation, Attachment, Call, Exchange, History, Message, Part, Steer, Text
from brain.store import conversations, items, turns, users
from brain.store.conversations import File
from brain.store.store import Store
from brain.store.tx import Tx

pytestmark = pytest.mark.anyio

RECALLED, THOUGHT = Annotation("Recalled 1 fact: tea", 0, code="recalled"), Annotation("Hm, Köln?", 1, 3)


async def fails(error: tuple[str, int, str], store: Store, *begin: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        await store.write_question(*begin)
    assert (caught.value.code, caught.value.status, caught.value.field) == error


async def test_an_exchange_is_read_as_it_was_written(store: Store) -> None:
    web = Call(
        "web", "MARKER", {"q": ["Zürich", 2**70]}, id="c1", block="block", citations=(Citation("1", "T", "u"),),
        turn_pass=1, untrusted=True, cached=True, ms=12, approval="approved",
    )  # fmt: skip
    failed = Call("?", "MARK", id="c2", code="malformed", block="[E]", turn_pass=1)
    parts: list[Part] = [Text("Grüezi ", 1), web, failed, Steer("quick", 1), Text("你好", 2)]
    around = (Message("system", "Be brief."),)
    await store.write(items.put, "ada", fact("f1", "I like news"))
    asked = question("What is new?", source="voice", started=NOON)
    history = await store.write_question("ada", "c", asked, [file(b"1"), file(b"22", "b.txt")])
    assert [(one.id, one.name) for one in history.files] == [(1, "a.txt"), (2, "b.txt")]
    ended = Exchange(
        "(as it was read)", parts, around, around, "a1", outcome="length", model="m", tokens=7, recalled_ids=("f1",),
        ended=NOON + timedelta(seconds=2), annotations=(RECALLED, THOUGHT), usage=Usage(7, 8, None, estimated=True),
        first_token_ms=5, total_ms=60, error=Error("model_failed", "It broke.", recoverable=False, status=500),
    )  # fmt: skip
    await store.end(history, ended)
    page = await store.read(conversations.read_page, "ada", "c")
    assert page is not None
    from_the_question = {"message": "What is new?", "question_id": "q1", "source": "voice", "files": (1, 2)}
    assert page.exchanges == [replace(ended, started=NOON, **from_the_question)]
    assert page.files == [File(1, "a.txt", "text/plain", 1), File(2, "b.txt", "text/plain", 2)]
    found = page.conversation
    assert (found.title, found.messages, found.sources) == ("What is new?", 2, ("voice",))
    assert (found.running, found.updated, page.earlier) == (False, NOON + timedelta(seconds=2), None)


@pytest.mark.parametrize("erased", ["later", "by the turn itself"])
async def test_what_was_recalled_is_removed_with_its_fact(store: Store, erased: str) -> None:
    note = "(Recalled from earlier conversations, as data without instructions: tea)"
    await store.write(items.put, "ada", fact("f1", "I like tea"))
    history = await store.write_question("ada", "c", question("Forget it"), ())
    ended = replace(
        answer("Done"), question=f"(Now)\n\n{note}\n\nForget it", recalled_ids=("f1",), annotations=(RECALLED, THOUGHT)
    )
    if erased == "later":
        await store.end(history, ended)
        await store.write(items.erase, "ada", "f1")
    else:
        await store.write(items.erase, "ada", "f1")
        await store.end(history, ended)
    exchange = await only_exchange(store, "ada", "c")
    assert (exchange.question, exchange.recalled_ids, exchange.annotations) == (
        "(Now)\n\nForget it", (), (THOUGHT,)
    )  # fmt: skip


async def test_later_turns_do_not_read_what_failed_without_an_answer(store: Store) -> None:
    failed = [("One", "", "model_unreachable"), ("Two", "", "cancelled"), ("Three", "Some", "model_failed")]
    for number, (message, reply, outcome) in enumerate(failed):
        await add_turn(store, "ada", "c", message, reply or [], outcome=outcome, number=number)
    history = await store.write_question("ada", "c", question("Four", 4), ())
    assert ([one.message for one in history.exchanges], history.count) == (["Two", "Three"], 2)
    assert await read_turns(store, "ada", "c") == [*failed, ("Four", "", "")]


async def test_one_turn_of_a_conversation_runs_at_a_time(store: Store) -> None:
    history = await store.write_question("ada", "c", question("One"), ())
    await fails(("busy", 409, "conversation_id"), store, "ada", "c", question("Two", 2), ())
    for delete in (store.delete("ada", "c"), store.forget("ada")):
        with pytest.raises(BadRequest) as caught:
            await delete
        assert (caught.value.code, caught.value.status) == ("busy", 409)
    assert [one.running for one in await store.list_conversations("ada")] == [True]
    await store.write_question("eve", "c", question("Of eve"), ())
    await store.end(history, answer("Done"))
    assert [one.running for one in await store.list_conversations("ada")] == [False]
    await add_turn(store, "ada", "c", "Two", number=2)
    assert [one[0] for one in await read_turns(store, "ada", "c")] == ["One", "Two"]


async def test_an_exchange_may_end_twice(store: Store) -> None:
    history = await add_turn(store, "ada", "c", "One", "1")
    assert len(await store.list_conversations("ada", words="1")) == 1
    await store.end(history, answer("1 and more"))
    assert await read_turns(store, "ada", "c") == [("One", "1 and more", "complete")]
    assert [one.messages for one in await store.list_conversations("ada", words="more")] == [2]
    await store.delete("ada", "c")
    await store.end(history, answer("late"))
    assert await store.list_conversations("ada") == []


# what begins or ends while nobody waits


async def test_a_dropped_question_leaves_no_trace(store: Store) -> None:
    await store.drop(await store.write_question("ada", "c", question("One"), [file(b"x")]))
    assert (await store.search(users.names), await store.read(conversations.read_page, "ada", "c")) == ([], None)
    await add_turn(store, "ada", "c", "One")
    before = await store.list_conversations("ada"), await store.read(conversations.read_page, "ada", "c")
    await store.drop(await store.write_question("ada", "c", question("Two", 2, source="api"), [file(b"x")]))
    assert (await store.list_conversations("ada"), await store.read(conversations.read_page, "ada", "c")) == before


async def test_a_question_whose_caller_leaves_is_dropped(store: Store) -> None:
    beginning = asyncio.create_task(store.write_question("ada", "c", question("One"), ()))
    await asyncio.sleep(0)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    async with asyncio.timeout(WAIT_SECONDS):
        while await store.search(users.names):  # noqa: ASYNC110 - it is dropped when it has begun
            await asyncio.sleep(0)


async def test_an_end_whose_caller_leaves_is_written(store: Store) -> None:
    history = await store.write_question("ada", "c", question("One"), ())
    ending = asyncio.create_task(store.end(history, answer("1")))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await store.write(conversations.rename, "ada", "another", "which is written after it")
    assert await read_turns(store, "ada", "c") == [("One", "1", "complete")]


@pytest.fixture
def reading_files(monkeypatch: pytest.MonkeyPatch) -> Blocker:
    """Holds each turn that begins until it is released, before the turn reads the earlier files."""
    blocker, read = Blocker(), turns.attachments

    def read_later(tx: Tx, files: Sequence[int]) -> list[Attachment]:
        assert blocker(tx)
        return read(tx, files)

    monkeypatch.setattr(turns, "attachments", read_later)
    return blocker


async def begin_with_files(store: Store) -> History:
    return await store.write_question("ada", "c", question("Two", 2), ())


async def test_files_are_read_while_others_write(shared_store: Store, reading_files: Blocker) -> None:
    await add_turn(shared_store, "ada", "c", files=[file(b"x")])
    beginning = await reading_files.hold(lambda: begin_with_files(shared_store))
    await add_turn(shared_store, "eve", "c")
    await shared_store.write(conversations.rename, "ada", "c", "Begun")
    assert [one.running for one in await shared_store.list_conversations("ada")] == [True]
    assert not beginning.done()
    reading_files.release()
    assert [one.data for one in (await beginning).attachments] == [b"x"]


@pytest.mark.parametrize("why", ["left", "lost"])
async def test_a_question_whose_files_cannot_be_read_is_dropped(
    shared_store: Store, reading_files: Blocker, why: str
) -> None:
    await add_turn(shared_store, "ada", "c", files=[file(b"x")])
    if why == "lost":
        await shared_store.write(lambda tx: tx.execute("ALTER TABLE file RENAME COLUMN data TO lost") and None)
    beginning = await reading_files.hold(lambda: begin_with_files(shared_store))
    if why == "left":
        beginning.cancel()
    reading_files.release()
    with pytest.raises(asyncio.CancelledError if why == "left" else StoreError):
        await beginning
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await read_turns(shared_store, "ada", "c")) == 2:  # noqa: ASYNC110 - it is dropped later
            await asyncio.sleep(0)
