import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from stores import DETAILS, NOON, answered, asked, fact, file, kept, memory, said, turn

from brain.errors import BadRequest
from brain.events import Citation
from brain.messages import Call, ConversationPage, Counts, FormerText, Part, Steer, Text
from brain.runtime import import_sanitizer
from brain.store import transfer, users
from brain.store.sqlite import SQLite


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "brain.db"


def run(path: Path | None, test: Callable[[SQLite], Awaitable[None]]) -> None:
    async def main() -> None:
        async with kept(path) as store:
            await test(store)

    asyncio.run(main())


async def records(store: SQLite, user: str) -> list[dict[str, Any]]:
    """An export, by way of JSON."""
    return [json.loads(json.dumps(record)) async for record in store.export(user)]


MARKER = 'SPECIALIST_REQUEST[web:{"q":["Köln"]}]'
BLOCK = "[SPECIALIST_RESULT: web]\nIt rains.\n[/SPECIALIST_RESULT]"


async def fill(store: SQLite, user: str) -> None:
    called = Call(
        "web",
        MARKER,
        {"q": ["Köln"]},
        id="c1",
        block=BLOCK,
        citations=(Citation("1", "T", "u"),),
        turn_pass=1,
        untrusted=True,
    )
    read = Call("web", params={}, id="c0", block=BLOCK, turn_pass=0)
    answer: list[Part] = [read, Text("Fine ", 1), called, Steer("so", 2)]
    record = await turn(store, user, "c", "I like jazz", answer, files=[file(b"\xff\x00")])
    await store.end(record, replace(answered(answer), **DETAILS))
    await turn(store, user, "d", "Failed", [], outcome="model_failed")
    await store.rename(user, "d", "Mine")
    was = (FormerText("I like pop", NOON),)
    await store.put(user, fact("f1", "I like jazz", conversation_id="c", message_id="q1", former=was))
    (resting,) = await store.claim_idle(NOON + timedelta(days=1), 1)
    await store.set_memory(resting, memory("m1", "They like jazz", conversation_id="c"))
    await store.set_recall(user, False)


def test_a_copy_is_all_there_is(path: Path | None, tmp_path: Path) -> None:
    async def test(store: SQLite) -> None:
        await fill(store, "ada")
        await turn(store, "eve", "c", "secret of eve")
        copy = await records(store, "ada")
        assert [record["kind"] for record in copy] == [
            "brain", "conversation", "file", "exchange", "conversation", "exchange", "item", "item", "preferences"
        ]  # fmt: skip
        assert (copy[0]["version"], copy[0]["user"]) == (2, "ada")
        assert copy[2] == {
            "kind": "file", "conversation": "c", "id": 1, "name": "a.txt", "type": "text/plain", "data": "/wA="
        }  # fmt: skip
        assert "eve" not in json.dumps(copy)
        async with kept(tmp_path / "other.db") as other:
            whole = Counts(conversations=2, messages=3, files=1, facts=1, memories=1)
            assert await other.import_user("bob", copy, import_sanitizer) == whole
            assert await other.import_user("bob", copy, import_sanitizer) == Counts()
            as_strange = [one | {"untrusted": True} if one["kind"] == "exchange" else one for one in copy]
            assert (await records(other, "bob"))[1:] == as_strange[1:]
            before, after = await store.conversations("ada"), await other.conversations("bob")
            assert [(h.id, h.title, h.updated, h.messages) for h in after] == [
                (h.id, h.title, h.updated, h.messages) for h in before
            ]
            assert len(await other.conversations("bob", words="jazz")) == 1
            assert len(await other.search_words("bob", "jazz", kinds=("fact", "memory"), limit=9)) == 2
            assert not await other.is_recall_on("bob")
            assert await other.claim_idle(NOON + timedelta(days=1), 9) == []  # m1 holds all of it
            record = await other.begin("bob", "c", asked("More", 2), [file(b"x")])
            assert [one.data for one in record.attachments] == [b"\xff\x00"]
            assert record.files[0].id == 2

    run(path, test)


def test_what_is_there_is_left_as_it_is(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await fill(store, "ada")
        copy = await records(store, "ada")
        await turn(store, "ada", "c", "More", number=2)
        await store.put("ada", fact("f1", "I like rock"))
        await store.delete("ada", "d")
        await store.set_recall("ada", True)
        assert await store.import_user("ada", copy, import_sanitizer) == Counts(conversations=1, messages=1)
        assert [one[0] for one in await said(store, "ada", "c")] == ["I like jazz", "More"]
        assert [one.text for one in await store.items("ada", kind="fact")] == ["I like rock"]

    run(path, test)


def test_a_turn_that_runs_is_copied_as_interrupted(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await store.begin("ada", "c", asked("Well"), ())
        copy = await records(store, "ada")
        assert [record["outcome"] for record in copy if record["kind"] == "exchange"] == ["interrupted"]
        await store.import_user("bob", copy, import_sanitizer)
        assert await said(store, "bob", "c") == [("Well", "", "interrupted")]

    run(path, test)


def test_a_copy_of_nobody(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        copy = await records(store, "nobody")
        assert [record["kind"] for record in copy] == ["brain", "preferences"]
        await store.set_recall("ada", False)
        assert await store.import_user("ada", copy, import_sanitizer) == Counts()
        assert not await store.is_recall_on("ada")
        await store.import_user("bob", copy, import_sanitizer)
        assert await store.is_recall_on("bob")

    run(path, test)


def test_a_copy_is_of_one_moment_and_holds_nobody_up(tmp_path: Path) -> None:
    async def test(store: SQLite) -> None:
        for n in range(100):
            await turn(store, "ada", f"c{n}")
        seen: list[dict[str, Any]] = []
        async with aclosing(store.export("ada")) as copy:
            async for record in copy:
                if len(seen) < 2:
                    await turn(store, "ada", "new")
                    await store.delete("ada", "c99")
                seen.append(record)
        assert [record["id"] for record in seen if record["kind"] == "conversation"] == [f"c{n}" for n in range(100)]
        async with aclosing(store.export("ada")) as copy:
            async for _ in copy:
                break
        assert len(await store.conversations("ada", limit=200)) == 100

    run(tmp_path / "brain.db", test)


EARLY, LATE = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"
HEAD = {"kind": "brain", "version": 2}
C = {"kind": "conversation", "id": "c", "title": "T", "created": "2026-01-01T00:00:00Z"}
FILE = {"kind": "file", "conversation": "c", "id": 1, "name": "a", "type": "t", "data": "eA=="}
EXCHANGE = {
    "kind": "exchange", "conversation": "c", "question_id": "q", "answer_id": "a", "message": "s", "question": "s",
    "started": "2026-01-01T00:00:00Z", "outcome": "complete",
}  # fmt: skip
SAID = {"type": "text", "text": "t", "turn_pass": 1}
CALLED = {
    "type": "call", "id": "c1", "name": "web", "params": {}, "marker": "", "block": "", "turn_pass": 1
}  # fmt: skip
USAGE = {"prompt_tokens": 1, "completion_tokens": -1, "reused_tokens": None, "estimated": False}
FAILURE = {"code": "internal", "message": "m", "recoverable": True, "status": -1}
ASIDE = {"text": "t", "position": 0}
FACT = {
    "kind": "item", "type": "fact", "id": "f", "text": "t", "created": "2026-01-01T00:00:00Z",
    "updated": "2026-01-01T00:00:00Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("copy", "field", "says"),
    [
        ([], "records[0]", "Record 1: there is none"),
        ([C], "records[0].kind", "the first record must be the head"),
        ([HEAD | {"version": 3}], "records[0].version", "reads version 2"),
        ([HEAD, HEAD], "records[1].kind", "the head comes once"),
        ([HEAD, 7], "records[1]", "Expected `object`"),
        ([HEAD, {"kind": "song"}], "records[1].kind", "Invalid value 'song'"),
        ([HEAD, {"id": "c"}], "records[1]", "missing required field `kind`"),
        ([HEAD, C | {"title": 5}], "records[1].title", "Record 2, title: Expected `str`, got `int`."),
        ([HEAD, C | {"created": "2026-01-01T00:00:00"}], "records[1].created", "timezone"),
        ([HEAD, C | {"id": ""}], "records[1].id", "length >= 1"),
        ([HEAD, C, C], "records[2]", "the conversation before it has no exchange"),
        ([HEAD, C], "records[1]", "the conversation before it has no exchange"),
        ([HEAD, C, EXCHANGE, C], "records[3].id", "two records of this conversation"),
        ([HEAD, EXCHANGE], "records[1].conversation", "behind the record of its conversation"),
        ([HEAD, C, EXCHANGE, FACT, EXCHANGE], "records[4].conversation", "behind the record of its conversation"),
        ([HEAD, C, FILE, EXCHANGE], "records[3]", "file 1 of the conversation before it belongs to no exchange"),
        ([HEAD, C, FILE, FILE], "records[3].id", "two records of this file"),
        ([HEAD, C, EXCHANGE | {"files": [1]}], "records[2].files", "no such file"),
        ([HEAD, C, FILE | {"data": "!"}], "records[2].data", "base64"),
        ([HEAD, C, FILE | {"id": 2**70}], "records[2].id", "Expected `int`"),
        ([HEAD, C, EXCHANGE | {"tokens": -1}], "records[2].tokens", ">= 0"),
        ([HEAD, C, EXCHANGE | {"outcome": ""}], "records[2].outcome", "length >= 1"),
        ([HEAD, C, EXCHANGE | {"source": "radio"}], "records[2].source", "radio"),
        ([HEAD, C, EXCHANGE | {"parts": [{"type": "text"}]}], "records[2].parts[0]", "missing required field `text`"),
        (
            [HEAD, C, EXCHANGE | {"parts": [SAID | {"turn_pass": -(2**53)}]}],
            "records[2].parts[0].turn_pass",
            ">= -9007199254740991",
        ),
        ([HEAD, C, EXCHANGE | {"parts": [CALLED | {"ms": 10**30}]}], "records[2].parts[0].ms", "Expected `int`"),
        ([HEAD, C, EXCHANGE | {"parts": [CALLED | {"ms": 2**53}]}], "records[2].parts[0].ms", "<= 9007199254740991"),
        ([HEAD, C, EXCHANGE | {"total_ms": 2**53}], "records[2].total_ms", "<= 9007199254740991"),
        ([HEAD, C, EXCHANGE | {"first_token_ms": -5}], "records[2].first_token_ms", ">= 0"),
        ([HEAD, C, EXCHANGE | {"usage": USAGE}], "records[2].usage.completion_tokens", ">= 0"),
        ([HEAD, C, EXCHANGE | {"error": FAILURE}], "records[2].error.status", ">= 0"),
        (
            [HEAD, C, EXCHANGE | {"annotations": [ASIDE | {"position": -3}]}],
            "records[2].annotations[0].position",
            ">= 0",
        ),
        (
            [HEAD, C, EXCHANGE | {"annotations": [ASIDE | {"offset": 2**53}]}],
            "records[2].annotations[0].offset",
            "<= 9007",
        ),
        ([HEAD, FACT | {"type": "rumour"}], "records[1].type", "rumour"),
        ([HEAD, FACT, FACT], "records[2].id", "two records of this item"),
        (
            [HEAD, FACT | {"was": [{"text": "t", "until": "2026-01-01T00:00:00"}]}],
            "records[1].was[0].until",
            "timezone",
        ),
        ([HEAD, FACT | {"was": [{"text": "t", "until": EARLY}]}], "records[1].was[0].until", "between 1970 and 2199"),
        ([HEAD, FACT | {"created": EARLY}], "records[1].created", "between 1970 and 2199"),
        ([HEAD, FACT | {"updated": LATE}], "records[1].updated", "between 1970 and 2199"),
        ([HEAD, C | {"created": LATE}], "records[1].created", "between 1970 and 2199"),
        ([HEAD, C, EXCHANGE | {"started": EARLY}], "records[2].started", "between 1970 and 2199"),
        ([HEAD, C, EXCHANGE | {"ended": LATE}], "records[2].ended", "between 1970 and 2199"),
        ([HEAD, C | {"title": "\ud800"}], "records[1]", "UTF-8 cannot carry"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_taken_in(copy: list[Any], field: str, says: str) -> None:
    async def test(store: SQLite) -> None:
        with pytest.raises(BadRequest) as caught:
            await store.import_user("ada", copy, import_sanitizer)
        assert (caught.value.status, caught.value.field) == (400, field)
        assert says in str(caught.value)
        assert await store.users() == []

    run(None, test)


def test_what_is_nested_too_deeply_is_not_taken_in() -> None:
    nested: list[Any] = []
    for _ in range(5_000):
        nested = [nested]

    async def test(store: SQLite) -> None:
        with pytest.raises(BadRequest, match="nested too deeply"):
            await store.import_user("ada", [HEAD, {"kind": nested}], import_sanitizer)

    run(None, test)


def test_too_much_is_not_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = EXCHANGE | {"message": "x" * 5_000}

    async def test(store: SQLite) -> None:
        for constant, records_before in ((users, "CONVERSATION_BYTES_MOST"), (users, "USER_BYTES_MOST")):
            with monkeypatch.context() as patch:
                patch.setattr(constant, records_before, 4_000)
                with pytest.raises(BadRequest) as caught:
                    await store.import_user("ada", [HEAD, C, large], import_sanitizer)
                assert (caught.value.code, caught.value.field) == ("too_large", "records[2]")
        for name in ("LINE_MOST", "SPOOLED_MOST"):
            with monkeypatch.context() as patch:
                patch.setattr(transfer, name, 4_000)
                with pytest.raises(BadRequest) as caught:
                    await store.import_user("ada", [HEAD, C, large], import_sanitizer)
                assert (caught.value.code, caught.value.field) == ("too_large", "records[2]")
        assert await store.users() == []

    run(tmp_path / "brain.db", test)


def test_records_may_come_slowly(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        going_on = asyncio.Event()

        async def slowly() -> AsyncIterator[Any]:
            yield HEAD
            await going_on.wait()
            yield FACT

        taking_in = asyncio.create_task(store.import_user("ada", slowly(), import_sanitizer))
        await asyncio.sleep(0.01)
        await turn(store, "eve", "c")
        going_on.set()
        assert await taking_in == Counts(facts=1)

    run(path, test)


def test_a_forgotten_user_is_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "brain.db"

    def bytes_of(word: str) -> int:  # which is its own stem
        return sum(one.read_bytes().lower().count(word.encode()) for one in tmp_path.iterdir())

    async def test(store: SQLite) -> None:
        for user, word in (("ada", "xylofon"), ("eve", "trombon")):
            for n in range(30):
                files = [file(f"{word} ".encode() * 100, f"{word}.txt")]
                await turn(store, user, f"c{n}", f"I play the {word}", f"The {word}! " * 50, files=files)
            await store.put(user, fact("f1", f"I play the {word}", former=(FormerText(f"no {word}", NOON),)))
            await store.delete(user, "c3")
            await store.set_recall(user, False)
        await store.embed("m", [("ada", "f1", "I play the xylofon", [1.0])])
        assert await store.count("ada") == Counts(conversations=29, messages=58, files=29, facts=1)
        assert await store.forget("ada") == Counts(conversations=29, messages=58, files=29, facts=1)
        await store.scrub()
        assert (bytes_of("xylofon"), bytes_of("ada")) == (0, 0)
        assert bytes_of("trombon") > 1_000
        assert (await store.users(), await store.conversations("ada"), await store.items("ada")) == (["eve"], [], [])
        assert await store.is_recall_on("ada")
        assert await store.forget("ada") == await store.count("ada") == Counts()
        assert len(await store.conversations("eve", words="trombon")) == 29

    run(path, test)
    assert bytes_of("xylofon") == 0


def test_who_is_being_answered_is_not_forgotten(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        record = await store.begin("ada", "c", asked("Well"), ())
        with pytest.raises(BadRequest) as caught:
            await store.forget("ada")
        assert (caught.value.code, caught.value.status) == ("busy", 409)
        await store.drop(record)
        await store.forget("ada")
        assert await store.users() == []

    run(path, test)


def test_ids_that_nobody_could_ask_for_become_others_always_the_same() -> None:
    odd = [
        HEAD,
        C | {"id": "a/b c"},
        EXCHANGE | {"conversation": "a/b c", "question_id": ""},
        EXCHANGE | {"conversation": "a/b c", "question_id": "Q 1", "answer_id": ""},
        EXCHANGE | {"conversation": "a/b c"},
        EXCHANGE | {"conversation": "a/b c"},
        FACT | {"id": "A"},
        FACT | {"id": "f2", "conversation_id": "a/b c", "message_id": "Q 1"},
    ]

    async def test(store: SQLite) -> None:
        counts = Counts(conversations=1, messages=4, facts=2)
        assert [await store.import_user("ada", odd, import_sanitizer) for _ in range(2)] == [counts, Counts()]
        (heading,) = await store.conversations("ada")
        assert heading.id == "x0af99a6091695385"
        assert len({page.exchanges[0].question_id for page in await pages(store, heading.id)}) == 4
        second, first = await store.items("ada")
        assert (first.id, second.id) == ("x559aead08264d579", "f2")
        assert (second.conversation_id, second.message_id) == (heading.id, "x53aeb28579b498b0")

    run(None, test)


async def pages(store: SQLite, conversation_id: str) -> list[ConversationPage]:
    """A conversation, exchange by exchange, newest first."""
    found, before = list[ConversationPage](), None
    while True:
        page = await store.conversation("ada", conversation_id, before=before, limit=1)
        assert page is not None
        assert len(found) < 10
        found.append(page)
        before = page.earlier
        if before is None:
            return found
