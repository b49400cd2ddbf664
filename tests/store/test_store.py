import asyncio
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from stores import DETAILS, NOON, Clock, answered, asked, fact, file, kept, memory, only, said, turn

from brain.errors import BadRequest, StoreError
from brain.events import Citation
from brain.messages import Call, Exchange, File, History, Interaction, Message, Part, Query, Steer, Text
from brain.store import conversations, open_store, schema, users
from brain.store.rows import micros
from brain.store.sqlite import SQLite
from brain.store.turn_log import Frames, NewTurn, Progress

Test = Callable[[SQLite], Awaitable[None]]


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "kept" / "brain.db"


def run(path: Path | None, test: Test, clock: Clock | None = None) -> None:
    async def main() -> None:
        async with kept(path, clock) as store:
            await test(store)

    asyncio.run(main())


async def exported(store: SQLite) -> list[object]:
    return [record async for record in store.export("ada")]


def refused(error: pytest.ExceptionInfo[BadRequest]) -> tuple[str, int, str | None]:
    return error.value.code, error.value.status, error.value.field


def test_what_was_said_is_kept_as_it_was(path: Path | None) -> None:
    called = Call(
        "web",
        "MARKER",
        {"q": ["Zürich", 2**70]},
        id="c1",
        block="block",
        citations=(Citation("1", "T", "u"),),
        turn_pass=1,
        untrusted=True,
    )
    failed = Call("?", "MARK", id="c2", code="malformed", block="[E]", turn_pass=1)
    parts: list[Part] = [Text("Grüezi ", 1), called, failed, Steer("quick", 1), Text("你好", 2)]
    around = (Message("system", "Be brief."),)

    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "I like news"))
        question = asked("What is new?", source="voice", started=NOON)
        record = await store.begin("ada", "c", question, [file(b"1"), file(b"22", "b.txt")])
        assert [(one.id, one.name) for one in record.files] == [(1, "a.txt"), (2, "b.txt")]
        end = Exchange(
            "(as it was read)", parts, around, around, "a1", outcome="length", model="m", tokens=7,
            recalled_ids=("f1",),
            ended=NOON + timedelta(seconds=2),
        )  # fmt: skip
        await store.end(record, end)
        found = await store.conversation("ada", "c")
        assert found is not None
        (exchange,) = found.exchanges
        kept_from_beginning = {"message": "What is new?", "question_id": "q1", "source": "voice", "files": (1, 2)}
        assert exchange == replace(end, started=NOON, **kept_from_beginning)
        assert (exchange.question_id, exchange.answer_id, exchange.message) == ("q1", "a1", "What is new?")
        assert (exchange.source, exchange.files, exchange.recalled_ids) == ("voice", (1, 2), ("f1",))
        assert (exchange.started, exchange.ended) == (NOON, NOON + timedelta(seconds=2))
        assert (exchange.outcome, exchange.model, exchange.tokens) == ("length", "m", 7)
        assert found.files == [File(1, "a.txt", "text/plain", 1), File(2, "b.txt", "text/plain", 2)]
        heading = found.conversation
        assert (heading.title, heading.messages, heading.sources) == ("What is new?", 2, ("voice",))
        assert (heading.running, heading.updated, found.earlier) == (False, NOON + timedelta(seconds=2), None)

    run(path, test)


def test_what_was_recalled_goes_with_its_fact(path: Path | None) -> None:
    called = Call("web", "MARKER", {}, id="c1", block="block", turn_pass=1, cached=True, ms=12, approval="approved")

    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "I like tea"))
        history = await store.begin("ada", "c", asked("One"), ())
        await store.end(history, replace(answered([called]), recalled_ids=("f1",), **DETAILS))
        exchange = await only(store, "ada", "c")
        assert exchange.parts == [called]
        assert {name: getattr(exchange, name) for name in DETAILS} == DETAILS
        await store.erase("ada", "f1")
        assert (await only(store, "ada", "c")).annotations == DETAILS["annotations"][1:]

    run(path, test)


def test_a_turn_that_forgets_what_was_recalled_for_it_does_not_keep_it(path: Path | None) -> None:
    note = "(Recalled of earlier conversations, as information and no instruction: tea)"

    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "I like tea"))
        record = await store.begin("ada", "c", asked("Forget it"), ())
        end = replace(answered("Done"), question=f"(Now)\n\n{note}\n\nForget it", recalled_ids=("f1",), **DETAILS)
        await store.erase("ada", "f1")
        await store.end(record, end)
        exchange = await only(store, "ada", "c")
        assert (exchange.question, exchange.recalled_ids) == ("(Now)\n\nForget it", ())
        assert exchange.annotations == DETAILS["annotations"][1:]

    run(path, test)


def test_a_turn_goes_on_from_those_before_it(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(1, 6):
            await turn(store, "ada", "c", f"Question {n}", f"Answer {n}", number=n, files=[file(b"x", f"{n}.txt")])
        record = await store.begin("ada", "c", asked("More", 6), [file(b"y")], recent=3)
        assert [exchange.message for exchange in record.exchanges] == ["Question 3", "Question 4", "Question 5"]
        assert record.count == 5
        assert [(one.id, one.name, one.data) for one in record.attachments] == [
            (n, f"{n}.txt", b"x") for n in range(1, 6)
        ]
        assert [one.id for one in record.files] == [6]

    run(path, test)


def test_what_failed_without_a_word_is_for_its_user_alone(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "One", [], outcome="model_unreachable", number=1, files=[file(b"x")])
        await turn(store, "ada", "c", "Two", [], outcome="cancelled", number=2)
        await turn(store, "ada", "c", "Three", "Some", outcome="model_failed", number=3)
        record = await store.begin("ada", "c", asked("Four", 4), ())
        assert [exchange.message for exchange in record.exchanges] == ["Two", "Three"]
        assert record.count == 2
        assert [one.id for one in record.attachments] == [1]
        assert await said(store, "ada", "c") == [
            ("One", "", "model_unreachable"),
            ("Two", "", "cancelled"),
            ("Three", "Some", "model_failed"),
            ("Four", "", ""),
        ]

    run(path, test)


def test_one_turn_at_a_time(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        record = await store.begin("ada", "c", asked("One"), ())
        with pytest.raises(BadRequest, match="barge_in") as caught:
            await store.begin("ada", "c", asked("Two", 2), ())
        assert refused(caught) == ("busy", 409, "conversation_id")
        with pytest.raises(BadRequest) as caught:
            await store.delete("ada", "c")
        assert refused(caught) == ("busy", 409, "conversation_id")
        assert [heading.running for heading in await store.conversations("ada")] == [True]
        await store.begin("eve", "c", asked("Hers"), ())
        await store.end(record, answered("Done"))
        assert [heading.running for heading in await store.conversations("ada")] == [False]
        await turn(store, "ada", "c", "Two", number=2)
        assert [one[0] for one in await said(store, "ada", "c")] == ["One", "Two"]

    run(path, test)


def test_a_turn_whose_process_is_gone_was_interrupted(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        lost = await store.begin("ada", "c", asked("One"), ())
        clock.now += 10
        with pytest.raises(BadRequest):
            await store.begin("ada", "c", asked("Two", 2), ())
        store._leases.keys.clear()
        clock.now += 10
        assert await said(store, "ada", "c") == [("One", "", "interrupted")]
        assert [heading.running for heading in await store.conversations("ada")] == [False]
        record = await store.begin("ada", "c", asked("Two", 2), ())
        assert (record.exchanges, record.count) == ([], 0)
        await store.end(lost, answered("late", 1))
        await store.end(record, answered("Two!", 2))
        assert await said(store, "ada", "c") == [("One", "late", "complete"), ("Two", "Two!", "complete")]

    run(path, test, clock)


def test_turns_that_run_are_prolonged(path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.leases.PROLONG_SECONDS", 0.01)
    clock = Clock()

    async def test(store: SQLite) -> None:
        await store.begin("ada", "c", asked("One"), ())
        for _ in range(4):
            clock.now += 8
            await asyncio.sleep(0.05)
        with pytest.raises(BadRequest):
            await store.begin("ada", "c", asked("Two", 2), ())

    run(path, test, clock)


def test_how_far_an_answer_was_is_there_when_its_process_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    turn = NewTurn("t1", "ada", "c")

    def progress(frames: Frames, text: str, snapshot: Exchange | None, key: int) -> Progress:
        return Progress(turn, key, frames, text, snapshot, 1, False, 0, "")

    async def dies(store: SQLite) -> None:
        question = asked("One")
        history = await store.begin("ada", "c", question, (), turn=turn)
        snapshot = replace(question, question="(read)", parts=[Text("Once", 1)], **DETAILS)
        assert store.turn_log is not None
        await store.turn_log.write([progress(Frames(1, 2, b"..."), "", snapshot, history.key)], ())
        await store.turn_log.write([progress(Frames(3, 3, b"..."), " upon", None, history.key)], ())
        assert await said(store, "ada", "c") == [("One", "Once upon", "")]

    async def goes_on(store: SQLite) -> None:
        assert await said(store, "ada", "c") == [("One", "Once upon", "interrupted")]
        found = await store.conversation("ada", "c")
        assert found is not None
        assert found.exchanges[0].annotations == DETAILS["annotations"]
        history = await store.begin("ada", "c", asked("And?", 2), ())
        assert [one.question for one in history.exchanges] == ["(read)"]
        (heading,) = await store.conversations("ada", words="upon")
        assert heading.messages == 3

    run(path, dies)
    run(path, goes_on)


def test_a_clock_that_is_set_forward_ends_no_turn_of_this_process(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        record = await store.begin("ada", "c", asked("One"), ())
        clock.now += 20
        for trying in (store.begin("ada", "c", asked("Two", 2), ()), store.delete("ada", "c"), store.forget("ada")):
            with pytest.raises(BadRequest) as caught:
                await trying
            assert caught.value.code == "busy"
        await store.end(record, answered("Well", 1))
        await turn(store, "ada", "c", "Two", "Well", number=2)
        assert [one[2] for one in await said(store, "ada", "c")] == ["complete", "complete"]

    run(path, test, clock)


def test_a_clock_that_is_set_back_does_not_keep_what_a_dead_process_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.store.leases.PROLONG_SECONDS", 0.01)
    clock = Clock(look=0)

    async def test(store: SQLite) -> None:
        await store.begin("ada", "c", asked("One"), ())
        store._leases.keys.clear()  # its process is gone, and this one lives on
        clock.now -= 7200
        await asyncio.sleep(0.1)
        with pytest.raises(BadRequest):
            await store.begin("ada", "c", asked("Two", 2), ())
        clock.now += 16
        await store.begin("ada", "c", asked("Two", 2), ())

    run(tmp_path / "kept.db", test, clock)


def test_who_comes_late_still_replaces_what_it_was_to_replace(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        for number in (1, 2):
            await turn(store, "ada", "c", f"old {number}", number=number)
        late = await store.begin("ada", "c", asked("edited", 3), (), replaces="q2")
        store._leases.keys.clear()
        clock.now += 20
        await turn(store, "ada", "c", "meanwhile", number=4)
        await store.end(late, answered("Well", 3))
        assert [one[0] for one in await said(store, "ada", "c")] == ["old 1", "edited", "meanwhile"]

    run(path, test, clock)


@pytest.mark.parametrize("named", ["q2", "a2"])
def test_an_answer_takes_the_place_of_others(path: Path | None, named: str) -> None:
    async def test(store: SQLite) -> None:
        for n in (1, 2, 3):
            await turn(store, "ada", "c", f"Question {n}", f"Answer {n}", number=n, files=[file(b"x")])
        record = await store.begin("ada", "c", asked("Again", 4), [file(b"y")], replaces=named)
        assert ([exchange.message for exchange in record.exchanges], record.count) == (["Question 1"], 1)
        assert ([one.id for one in record.attachments], [one.id for one in record.files]) == ([1], [4])
        assert [one[0] for one in await said(store, "ada", "c")] == ["Question 1", "Again"]
        await store.end(record, answered("Better", 4))
        assert await said(store, "ada", "c") == [
            ("Question 1", "Answer 1", "complete"),
            ("Again", "Better", "complete"),
        ]
        found = await store.conversation("ada", "c")
        assert found is not None
        assert [one.id for one in found.files] == [1, 4]
        assert found.conversation.messages == 4
        assert [(await store.begin("ada", "c", asked("N", 5), [file(b"z")])).files[0].id] == [5]

    run(path, test)


def test_who_replaces_without_a_word_replaces_nothing(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "One", "1", number=1)
        before = await store.conversations("ada")
        await turn(store, "ada", "c", "Again", [], number=2, replaces="a1", outcome="cancelled")
        assert await said(store, "ada", "c") == [("One", "1", "complete")]
        assert await store.conversations("ada") == before
        with pytest.raises(BadRequest) as caught:
            await store.begin("ada", "c", asked("Again", 3), (), replaces="a2")
        assert refused(caught) == ("not_found", 404, "replace_from")
        with pytest.raises(BadRequest):
            await store.begin("ada", "new", asked("Again", 3), (), replaces="a1")
        assert [heading.id for heading in await store.conversations("ada")] == ["c"]

    run(path, test)


def test_of_a_question_that_fails_again_and_again_the_last_attempt_is_there(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "One", "1", number=1)
        await turn(store, "ada", "c", "Two", [], number=2, outcome="model_failed")
        await turn(store, "ada", "c", "Two", [], number=3, outcome="model_failed", replaces="a2", files=[file(b"x")])
        assert await said(store, "ada", "c") == [("One", "1", "complete"), ("Two", "", "model_failed")]
        await store.begin("ada", "c", asked("Two", 4), (), replaces="a3")
        store._leases.keys.clear()
        clock.now += 20  # it was interrupted
        await turn(store, "ada", "c", "Two", "2", number=5, replaces="q4")
        assert await said(store, "ada", "c") == [("One", "1", "complete"), ("Two", "2", "complete")]

    run(path, test, clock)


def test_the_first_question_gives_the_title_also_when_it_is_replaced(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "Old words", number=1)
        await turn(store, "ada", "c", "New words", number=2, replaces="q1")
        assert [heading.title for heading in await store.conversations("ada")] == ["New words"]
        assert await store.conversations("ada", words="old") == []
        renamed = await store.rename("ada", "c", "  My \n own ")
        assert renamed is not None
        assert renamed.title == "My own"
        await turn(store, "ada", "c", "Newest", number=3, replaces="q2")
        assert [heading.title for heading in await store.conversations("ada", words="own")] == ["My own"]
        assert await store.rename("eve", "c", "Hers") is None

    run(path, test)


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("  One\n two ", "One two"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 30, "word " * 10 + "word word…"),
        ("", "a.txt b.txt"),
    ],
)
def test_titles(words: str, title: str) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", words, files=[file(b""), file(b"", "b.txt")])
        assert [heading.title for heading in await store.conversations("ada")] == [title]

    run(None, test)


def test_a_turn_that_could_not_begin_leaves_no_trace(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await store.drop(await store.begin("ada", "c", asked("One"), [file(b"x")]))
        assert (await store.users(), await store.conversation("ada", "c")) == ([], None)
        await turn(store, "ada", "c", "One")
        before = await store.conversations("ada"), await store.conversation("ada", "c")
        await store.drop(await store.begin("ada", "c", asked("Two", 2, source="api"), [file(b"x")]))
        assert (await store.conversations("ada"), await store.conversation("ada", "c")) == before

    run(path, test)


def test_who_leaves_while_it_begins_leaves_no_trace(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        beginning = asyncio.create_task(store.begin("ada", "c", asked("One"), ()))
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        for _ in range(500):
            with suppress(BadRequest):
                await turn(store, "ada", "c", "Two", number=2)
                break
            await asyncio.sleep(0.01)
        assert await said(store, "ada", "c") == [("Two", "Hi", "complete")]

    run(path, test)


def test_a_question_that_cannot_be_removed_keeps_nothing_from_closing(
    path: Path | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with kept(path) as store:
            beginning = asyncio.create_task(store.begin("ada", "c", asked("One"), ()))
            await asyncio.sleep(0)
            beginning.cancel()
            await store._database.outside(lambda db: db.execute("PRAGMA query_only = ON"))
        with pytest.raises(RuntimeError, match="shutdown"):
            await store.conversations("ada")

    asyncio.run(main())
    sentence = "a question whose turn did not begin could not be removed: "
    assert [record.getMessage().partition("What")[0] for record in caplog.records][-1:] == [sentence]


@asynccontextmanager
async def beginning_behind_a_read(
    store: SQLite, last: Callable[[sqlite3.Connection], None] = lambda db: None
) -> AsyncIterator[tuple["asyncio.Task[History]", threading.Event]]:
    """A turn that begins in a conversation with a file, which is read behind something that ends when it may."""
    begun, may_end = threading.Event(), threading.Event()

    def long(db: sqlite3.Connection) -> None:
        begun.set()
        assert may_end.wait(10)
        last(db)

    await turn(store, "ada", "c", files=[file(b"x")])
    reading = asyncio.create_task(store._database.read(long))
    assert await asyncio.to_thread(begun.wait, 10)
    beginning = asyncio.create_task(store.begin("ada", "c", asked("Two", 2), ()))
    await asyncio.sleep(0)
    yield beginning, may_end
    await reading


def test_files_are_read_while_others_write(tmp_path: Path) -> None:
    async def test(store: SQLite) -> None:
        async with beginning_behind_a_read(store) as (beginning, may_end):
            await turn(store, "eve", "c")  # behind the beginning, whose files are still to be read
            assert not beginning.done()
            assert [heading.running for heading in await store.conversations("ada")] == [True]
            may_end.set()
            assert [one.data for one in (await beginning).attachments] == [b"x"]

    run(tmp_path / "kept.db", test)


@pytest.mark.parametrize("why", ["leaves", "damaged"])
def test_who_gets_no_files_leaves_no_trace(tmp_path: Path, why: str) -> None:
    def damage(db: sqlite3.Connection) -> None:
        if why == "damaged":
            db.set_authorizer(lambda *what: sqlite3.SQLITE_DENY if "file" in what else sqlite3.SQLITE_OK)

    async def test(store: SQLite) -> None:
        async with beginning_behind_a_read(store, damage) as (beginning, may_end):
            await store.rename("ada", "c", "Begun")  # behind the beginning
            if why == "leaves":
                beginning.cancel()
            may_end.set()
            with pytest.raises(asyncio.CancelledError if why == "leaves" else StoreError):
                await beginning
        await asyncio.gather(*store._leaving)
        assert [heading.running for heading in await store.conversations("ada")] == [False]

    run(tmp_path / "kept.db", test)


def test_who_leaves_at_the_end_leaves_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept(tmp_path / "brain.db") as store:
            beginning = asyncio.create_task(store.begin("ada", "c", asked("One"), ()))
            await asyncio.sleep(0)
            beginning.cancel()
            await asyncio.sleep(0)
        async with kept(tmp_path / "brain.db") as store:
            assert await store.users() == []

    asyncio.run(main())


def test_an_end_that_nobody_waits_for_is_written(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        record = await store.begin("ada", "c", asked("One"), ())
        ending = asyncio.create_task(store.end(record, answered("1")))
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        await store.rename("ada", "another", "that waits its turn")
        assert await said(store, "ada", "c") == [("One", "1", "complete")]

    run(path, test)


def test_an_end_may_come_twice(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        record = await turn(store, "ada", "c", "One", "1")
        await store.end(record, answered("1 and more"))
        assert await said(store, "ada", "c") == [("One", "1 and more", "complete")]
        assert [heading.messages for heading in await store.conversations("ada", words="more")] == [2]
        await store.delete("ada", "c")
        await store.end(record, answered("late"))
        assert await store.conversations("ada") == []

    run(path, test)


def test_conversations_are_listed_page_by_page(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in (1, 2, 3, 4, 5, 2):
            await turn(store, "ada", f"c{n}")
        await turn(store, "eve", "c9")
        pages = [await store.conversations("ada", limit=2)]
        while pages[-1]:
            pages.append(await store.conversations("ada", limit=2, before=pages[-1][-1].id))
        assert [[heading.id for heading in page] for page in pages] == [["c2", "c5"], ["c4", "c3"], ["c1"], []]
        with pytest.raises(BadRequest) as caught:
            await store.conversations("ada", before="c9")
        assert refused(caught) == ("bad_request", 400, "before")

    run(path, test)


def test_a_conversation_is_read_page_by_page(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(1, 6):
            await turn(store, "ada", "c", f"{n}", number=n, files=[file(b"x", f"{n}")])
        seen = []
        before: str | None = None
        while True:
            page = await store.conversation("ada", "c", before=before, limit=2)
            assert page is not None
            seen.append(([one.message for one in page.exchanges], [one.name for one in page.files], page.earlier))
            before = page.earlier
            if before is None:
                break
        assert seen == [(["4", "5"], ["4", "5"], "q4"), (["2", "3"], ["2", "3"], "q2"), (["1"], ["1"], None)]
        with pytest.raises(BadRequest) as caught:
            await store.conversation("ada", "c", before="q9")
        assert refused(caught) == ("bad_request", 400, "before")
        assert await store.conversation("eve", "c") is None

    run(path, test)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("penicillin", ["c1"]),
        ("PENICILLINS", ["c1"]),
        ("penic", ["c1"]),  # the last word may be begun
        ("penic doctor", ["c3", "c1"]),  # not the others
        ("doctor allergic", ["c1"]),  # both in one message and its answer
        ("muller", ["c3"]),
        ("müll", ["c3"]),
        ("北京", ["c2"]),
        ("天气", ["c2"]),
        ("京天", []),
        ("the", ["c3"]),
        ("to", ["c3", "c1"]),
        ('" OR NEAR( * ^ -', []),
        ("title:penicillin", ["c1"]),
        ("journey", ["c2"]),
        ("eve", []),
        ("", ["c3", "c2", "c1"]),
        ("   ", ["c3", "c2", "c1"]),
        ("?", ["c3"]),  # signs stand in no index; titles have them
        ("%", []),
        ("_", []),
    ],
)
def test_conversations_are_found_by_their_words(path: Path | None, words: str, found: list[str]) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c1", "I am allergic to penicillin", "Tell your doctor.")
        await turn(store, "ada", "c2", "北京的天气好吗", "很好")
        await store.rename("ada", "c2", "Journeys")
        await turn(store, "ada", "c3", "Who is the doctor?", "Dr. Müller, the one to ask.")
        await turn(store, "eve", "c1", "I take penicillin, says eve's doctor")
        assert [heading.id for heading in await store.conversations("ada", words=words)] == found

    run(path, test)


def test_signs_are_found_in_titles(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for conversation_id, question in (("c1", 'What does "%" do?'), ("c2", "100 %, at most"), ("c3", "Hello")):
            await turn(store, "ada", conversation_id, question, "It is %s.")
        await turn(store, "eve", "c1", "90 %")
        for words, found in (("%", ["c2", "c1"]), (' "', ["c1"]), ("%,", ["c2"]), ("\\", []), ("'", [])):
            assert [heading.id for heading in await store.conversations("ada", words=words)] == found
        (older,) = await store.conversations("ada", words="%", before="c2")
        assert (older.id, older.excerpt) == ("c1", "")

    run(path, test)


def test_a_search_tells_where_the_words_stand(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "Hello", "lorem " * 100 + "The appointment is\non Friday. " + "ipsum " * 100)
        (heading,) = await store.conversations("ada", words="appointments")
        assert "The appointment is on Friday." in heading.excerpt
        assert (heading.excerpt[0], heading.excerpt[-1], len(heading.excerpt) < 170) == ("…", "…", True)
        (heading,) = await store.conversations("ada", words="hello")
        assert heading.excerpt.startswith("Hello lorem")

    run(path, test)


def test_what_is_replaced_deleted_or_running_is_not_found(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "apple", "pear", number=1)
        await turn(store, "ada", "c", "plum", "cherry", number=2, replaces="q1")
        assert [len(await store.conversations("ada", words=word)) for word in ("apple", "pear", "plum")] == [0, 0, 1]
        await store.begin("ada", "c", asked("quince", 3), ())
        assert await store.conversations("ada", words="quince") == []
        await turn(store, "ada", "d", "grape")
        await store.delete("ada", "d")
        assert await store.conversations("ada", words="grape") == []

    run(path, test)


def test_deleting_takes_all_but_what_was_stated(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for user in ("ada", "eve"):
            await turn(store, user, "c", "I like jazz", files=[file(b"x")])
            await store.put(user, fact("f1", "I like jazz", conversation_id="c", message_id="q1"))
            await store.put(user, memory("m1", "They like jazz", conversation_id="c"))
        assert await store.delete("ada", "c")
        assert not await store.delete("ada", "c")
        assert (await store.conversations("ada"), await store.recent("ada", 5)) == ([], [])
        assert [(one.id, one.conversation_id, one.message_id) for one in await store.items("ada")] == [
            ("f1", None, None)
        ]
        assert len(await store.conversations("eve", words="jazz")) == 1
        assert [(one.id, one.conversation_id, one.message_id) for one in await store.items("eve")] == [
            ("m1", "c", None), ("f1", "c", "q1")
        ]  # fmt: skip
        assert (await store.begin("ada", "c", asked("Anew"), [file(b"y")])).files[0].id == 1

    run(path, test)


def test_what_was_said_last_in_any_conversation(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "a", "1", number=1)
        await turn(store, "ada", "b", "2", number=2)
        await turn(store, "ada", "a", "3", [], number=3, outcome="model_failed")
        await turn(store, "eve", "a", "not hers")
        await store.begin("ada", "b", asked("runs", 4), ())
        found = await store.recent("ada", 2)
        assert [(one.conversation_id, one.message, one.answer) for one in found] == [("a", "3", ""), ("b", "2", "Hi")]
        assert found[1] == Interaction("b", found[1].started, "2", "Hi")
        assert [one.message for one in await store.recent("ada", 9)] == ["3", "2", "1"]

    run(path, test)


def test_a_full_conversation_takes_no_more(path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "CONVERSATION_BYTES_MOST", 10_000)

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "x" * 2_000, files=[file(b"x" * 4_000)])  # said, and as it was read
        for words, files, field in (
            ("More", [file(b"x" * 5_000)], "attachments"),
            ("x" * 3_000, [], "conversation_id"),
        ):
            with pytest.raises(BadRequest, match="A conversation may hold") as caught:
                await store.begin("ada", "c", asked(words, 2), files)
            assert refused(caught) == ("too_large", 413, field)
        await turn(store, "ada", "c", "More", number=2, files=[file(b"x" * 1_000)])
        await turn(store, "ada", "c", "Less", number=3, replaces="q1")
        await turn(store, "ada", "c", "More", number=4, files=[file(b"x" * 4_000)])

    run(path, test)


def test_who_keeps_too_much_keeps_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "USER_BYTES_MOST", 10_000)

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "a", files=[file(b"x" * 6_000)])
        with pytest.raises(BadRequest, match="A user may keep") as caught:
            await store.begin("ada", "b", asked("More"), [file(b"x" * 5_000)])
        assert refused(caught) == ("too_large", 413, "attachments")
        with pytest.raises(BadRequest) as caught:
            await store.put("ada", fact("f1", "x" * 5_000))
        assert refused(caught) == ("too_large", 413, "text")
        await turn(store, "eve", "b", files=[file(b"x" * 5_000)])
        await store.delete("ada", "a")
        await turn(store, "ada", "b", files=[file(b"x" * 5_000)])

    run(tmp_path / "kept.db", test)


def test_in_memory_the_longest_unused_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MEMORY_USER_BYTES_MOST", 10_000)
    monkeypatch.setattr(users, "MEMORY_BYTES_MOST", 15_000)
    monkeypatch.setattr(users, "MEMORY_CONVERSATIONS_MOST", 4)

    async def listed(store: SQLite) -> dict[str, list[str]]:
        return {user: sorted(one.id for one in await store.conversations(user)) for user in ("ada", "eve")}

    async def test(store: SQLite) -> None:
        await turn(store, "eve", "e", files=[file(b"x" * 6_000)])
        busy = await store.begin("ada", "a", asked("Hi"), [file(b"x" * 4_000)])
        for name in ("b", "c"):
            await turn(store, "ada", name, files=[file(b"x" * 4_000)])
        assert await listed(store) == {"ada": ["a", "c"], "eve": ["e"]}  # her own, and not what runs
        await turn(store, "eve", "f", files=[file(b"x" * 3_000)])
        assert await listed(store) == {"ada": ["a", "c"], "eve": ["f"]}  # of who has the most
        await store.end(busy, answered("Done"))
        for name in ("g", "h"):
            await turn(store, "eve", name)
        assert await listed(store) == {"ada": ["a", "c"], "eve": ["g", "h"]}

    run(None, test)


def test_what_makes_room_in_memory_takes_its_memory_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MEMORY_USER_BYTES_MOST", 10_000)

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "a", files=[file(b"x" * 6_000)])
        (resting,) = await store.claim_idle(NOON + timedelta(days=1), 1)
        await store.set_memory(resting, memory("m1", "They sent a file", conversation_id="a"))
        await store.put("ada", fact("f1", "I send files", conversation_id="a", message_id="q1"))
        await turn(store, "ada", "b", files=[file(b"x" * 6_000)])
        assert [one.id for one in await store.conversations("ada")] == ["b"]
        assert await store.items("ada") == [fact("f1", "I send files")]

    run(None, test)


def test_in_memory_conversations_make_room_for_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MEMORY_USER_BYTES_MOST", 10_000)
    monkeypatch.setattr(users, "MEMORY_BYTES_MOST", 15_000)

    async def refuses(store: SQLite, user: str, sentence: str) -> None:
        with pytest.raises(BadRequest, match=sentence) as caught:
            await store.put(user, fact("f2", "x" * 5_000))
        assert refused(caught) == ("too_large", 413, "text")

    async def test(store: SQLite) -> None:
        for name in ("a", "b"):
            await turn(store, "ada", name, files=[file(b"x" * 4_000)])
        await store.put("ada", fact("f1", "x" * 5_000))
        assert [one.id for one in await store.conversations("ada")] == ["b"]
        running = await store.begin("ada", "b", asked("More", 2), ())
        await refuses(store, "ada", "A user may keep")
        await store.end(running, answered("Well", 2))
        await store.put("eve", fact("f1", "x" * 9_000))
        assert await store.conversations("ada") == []
        await refuses(store, "bob", "There is no room left")
        assert [[one.id for one in await store.items(user)] for user in ("ada", "eve", "bob")] == [["f1"], ["f1"], []]

    run(None, test)


BY_TURNS: list[Callable[[SQLite], Awaitable[object]]] = [
    lambda store: store.history("ada", "c", 5),
    lambda store: store.conversation("ada", "c"),
    lambda store: store.recent("ada", 5),
    lambda store: store.items("ada"),
    lambda store: store.search_words("ada", "jazz", kinds=("fact",), limit=5),
    lambda store: store.search_vectors("ada", Query("m", [1.0]), kinds=("fact",), limit=5),
    lambda store: store.is_recall_on("ada"),
]
BY_USERS: list[Callable[[SQLite], Awaitable[object]]] = [
    lambda store: store.conversations("ada", words="jazz"),
    lambda store: store.items("ada", words="jazz"),
    lambda store: store.without_vector("m", 5),
    lambda store: store.users(),
    exported,
]


@pytest.mark.parametrize(("aside", "asked_for"), [(True, BY_TURNS), (False, BY_USERS)], ids=["turns", "users"])
def test_no_turn_waits_behind_what_users_look_through(
    tmp_path: Path, aside: bool, asked_for: Sequence[Callable[[SQLite], Awaitable[object]]]
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def long(db: sqlite3.Connection) -> bool:
        begun.set()
        return may_end.wait(10)

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "I like jazz")
        reading = asyncio.create_task(store._database.read(long, aside=aside))
        assert await asyncio.to_thread(begun.wait, 10)
        for ask in asked_for:
            await ask(store)
        assert not reading.done()
        may_end.set()
        assert await reading

    run(tmp_path / "kept.db", test)


def test_a_file_keeps_what_memory_forgets(tmp_path: Path) -> None:
    async def main() -> None:
        for path, left in ((None, []), (tmp_path / "a" / "kept.db", [("Hello", "Hi", "complete")])):
            async with kept(path) as store:
                await turn(store, "ada", "c")
                await store.begin("ada", "d", asked("Lost"), ())
            async with kept(path) as store:
                assert await said(store, "ada", "c") == left
                assert [one[2] for one in await said(store, "ada", "d")] == ["interrupted"] * len(left)
                if left:
                    assert len(await store.conversations("ada", words="lost")) == 1
                    await turn(store, "ada", "d", number=2)  # at once: nobody else is alive

    asyncio.run(main())
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "a").iterdir()} == {0o600}


def test_the_setting_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    async def main() -> None:
        for setting in (None, "memory:", f"sqlite:{tmp_path}/named.db"):
            await (await open_store(setting)).close()

    asyncio.run(main())
    assert (tmp_path / "data" / "brain" / "brain.db").exists()
    assert (tmp_path / "named.db").exists()


def strange(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_text("Dear diary, " * 1000), "is no database; name another file."),
        (lambda path: strange(path, "CREATE TABLE t (x)"), "is a database of another program; name another file."),
        (lambda path: path.mkdir(), "is a folder; name a file."),
    ],
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, make: Callable[[Path], object], sentence: str) -> None:
    make(tmp_path / "kept.db")
    with pytest.raises(StoreError) as caught:
        asyncio.run(open_store(f"sqlite:{tmp_path}/kept.db"))
    assert str(caught.value) == f"{tmp_path}/kept.db {sentence}"


def test_what_was_used_last_is_on_top_when_the_clock_was_set_back(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "before")
        clock.now += 1_000_000
        await turn(store, "ada", "ahead")
        await turn(store, "ada", "also ahead")
        clock.now -= 1_000_000
        await turn(store, "ada", "after")
        await turn(store, "ada", "ahead", number=2)
        await turn(store, "ada", "last")
        order = ["last", "ahead", "after", "also ahead", "before"]
        assert [heading.id for heading in await store.conversations("ada")] == order
        assert [one.id for one in await store.conversations("ada", before="after", limit=1)] == ["also ahead"]
        (last, *_) = await store.conversations("ada")
        assert last.updated - NOON < timedelta(days=1)  # as the clock told
        await store.drop(await store.begin("ada", "after", asked("Taken back", 9), ()))
        assert [heading.id for heading in await store.conversations("ada", limit=2)] == ["last", "ahead"]

    run(path, test, clock)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async def use() -> None:
        async with kept(tmp_path / "kept.db") as store:
            await turn(store, "ada", "c")

    asyncio.run(use())
    strange(tmp_path / "kept.db", "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="was written by a newer version of Brain; use that version, or another file"):
        asyncio.run(use())
    strange(tmp_path / "kept.db", f"PRAGMA user_version = {len(schema.MIGRATIONS)}")
    asyncio.run(use())


def test_a_file_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    async def ask(store: SQLite) -> None:
        await turn(store, "ada", "c", "And?", "Well", number=2)
        assert await said(store, "ada", "c") == [("Hello", "Hi", "complete"), ("And?", "Well", "complete")]

    with closing(sqlite3.connect(tmp_path / "kept.db")) as db, db:
        for statement in schema.MIGRATIONS[0]:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        db.execute("PRAGMA user_version = 1")
        at = micros(NOON)
        db.execute("INSERT INTO user (key, name) VALUES (1, 'ada')")
        db.execute(
            "INSERT INTO conversation (key, user, id, created, updated, last) VALUES (1, 1, 'c', ?, ?, 1)", (at, at)
        )
        db.execute(
            "INSERT INTO exchange (key, conversation, told, asked, answered, outcome, source, question_id, said, "
            "question, parts) VALUES (?, 1, 1, ?, ?, 'complete', 'chat', 'q1', 'Hello', 'Hello', ?)",
            (1 << 32 | 1, at, at, '[{"kind":"said","text":"Hi","turn_pass":1}]'),
        )
    run(tmp_path / "kept.db", ask)


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="check the folder and its permissions"):
        asyncio.run(open_store(f"sqlite:{tmp_path}/file/kept.db"))


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    async def test(store: SQLite) -> None:
        record = await store.begin("ada", "c", asked("One"), ())
        await store._database.write(lambda db: db.execute("PRAGMA max_page_count = 1"))
        with pytest.raises(StoreError) as caught:
            await store.end(record, answered("x" * 1_000_000))
        assert caught.value.message == "There is no room left to keep this."
        assert await said(store, "ada", "c") == [("One", "", "")]
        await store._database.write(lambda db: db.execute("PRAGMA max_page_count = 1000000"))
        await store.end(record, answered("1"))
        assert await said(store, "ada", "c") == [("One", "1", "complete")]

    run(tmp_path / "kept.db", test)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"

    async def fill() -> None:
        async with kept(path) as store:
            await turn(store, "ada", "c", answer="x" * 100_000)

    asyncio.run(fill())
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xee" * (len(whole) - 4096))
    with pytest.raises(StoreError) as caught:
        asyncio.run(fill())
    assert str(caught.value).startswith(
        f"{path} is damaged; put a copy in its place that is whole, or name another file."
    )


def test_long_conversations_are_read_in_more_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "PAGE_BYTES", 4000)
    in_params = Call("web", params={"q": "ß" * 800}, id="c1", turn_pass=1)
    cited = msgspec.structs.replace(in_params, params={}, citations=(Citation("1", "T", "u" * 1600),))

    async def test(store: SQLite) -> None:
        answers: list[list[Part]] = [[in_params], [Text("short", 1)], [cited], [in_params], [in_params] * 3]
        for number, answer in enumerate(answers):
            await turn(store, "ada", "c", answer=answer, number=number)
        seen, before = list[list[str]](), None
        while len(seen) < 9:
            page = await store.conversation("ada", "c", before=before)
            assert page is not None
            assert 1600 < page.size < 6000
            seen.append([one.question_id for one in page.exchanges])
            before = page.earlier
            if before is None:
                break
        assert seen == [["q4"], ["q1", "q2", "q3"], ["q0"]]

    run(None, test)


def test_in_memory_who_has_the_most_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(store: SQLite) -> None:
        monkeypatch.setattr(users, "MEMORY_CONVERSATIONS_MOST", 4)
        await turn(store, "ada", "old")
        for number in range(9):
            await turn(store, "eve", f"c{number}", number=number)
        assert [one.id for one in await store.conversations("ada")] == ["old"]
        assert [one.id for one in await store.conversations("eve")] == ["c8", "c7", "c6"]
        monkeypatch.setattr(users, "MEMORY_BYTES_MOST", 10_000)
        await turn(store, "eve", "large", files=[file(b"x" * 9_000)])
        await turn(store, "ada", "new", "x" * 1_500)
        assert [one.id for one in await store.conversations("ada")] == ["new", "old"]
        assert await store.conversations("eve") == []

    run(None, test)
