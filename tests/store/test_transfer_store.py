"""Exports and imports: everything of a user, nothing of others, all or none; wrong records are named."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from store_helpers import (
    NO_LIMITS,
    NOON,
    TOMORROW,
    add_turn,
    answer,
    fact,
    file,
    memory,
    question,
    read_turns,
    refuse_nul,
    store_at,
    task_of,
)  # fmt: skip

from brain.errors import BadRequest
from brain.events import Citation, Error, Usage
from brain.messages import Annotation, Call, FormerText, Part, Steer, Text
from brain.runtime import import_sanitizer
from brain.store import conversations, items, tasks, transfer, turns, users, vectors
from brain.store.store import Store
from brain.store.turns import QuestionOptions
from brain.store.users import Counts
from brain.store.vectors import ItemEmbedding

pytestmark = pytest.mark.anyio

BLOCK = "[SPECIALIST_RESULT: web]\nIt rains.\n[/SPECIALIST_RESULT]"


async def exported(store: Store, user: str) -> list[dict[str, Any]]:
    """An export, by way of JSON."""
    return [json.loads(json.dumps(record)) async for record in store.export(user)]


async def import_records(store: Store, user: str, records: Any) -> Counts:
    return await store.import_user(user, records, import_sanitizer)


async def fill(store: Store, user: str) -> None:
    web = Call(
        "web", 'SPECIALIST_REQUEST[web:{"q":["Köln"]}]', {"q": ["Köln"]}, id="c1", block=BLOCK,
        citations=(Citation("1", "T", "u"),), turn_pass=1, untrusted=True,
    )  # fmt: skip
    automatic = Call("web", params={}, id="c0", block=BLOCK, turn_pass=0)
    parts: list[Part] = [automatic, Text("Fine ", 1), web, Steer("so", 2)]
    history = await store.write_question(user, "c", question("I like jazz"), [file(b"\xff\x00")])
    details: dict[str, Any] = {
        "annotations": (Annotation("Recalled 1 fact: tea", 0, code="recalled"), Annotation("Hm, Köln?", 1, 3)),
        "usage": Usage(7, 8, None, estimated=True), "first_token_ms": 5, "total_ms": 60,
        "error": Error("model_failed", "It broke.", recoverable=False, status=500),
    }  # fmt: skip
    await store.end(history, answer(parts, **details))
    await add_turn(store, user, "d", "Failed", [], outcome="model_failed")
    await store.write(conversations.rename, user, "d", "Mine")
    former = (FormerText("I like pop", NOON),)
    await store.write(items.put, user, fact("f1", "I like jazz", conversation_id="c", message_id="q1", former=former))
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 1)
    await store.write(conversations.set_memory, idle, memory("m1", "They like jazz", conversation_id="c"))
    await store.write(users.set_recalls, user, False)


async def test_a_private_conversation_stays_private(store: Store) -> None:
    history = await store.write_question("ada", "c", question("I like jazz"), [], QuestionOptions(private=True))
    await store.end(history, answer([Text("Fine.", 1)]))
    await add_turn(store, "ada", "c", "I like tea", [Text("Fine.", 1)])
    await add_turn(store, "ada", "open", "I like pop", [Text("Fine.", 1)])
    async with store_at(None) as other:
        await import_records(other, "ada", await exported(store, "ada"))
        for one in (store, other):
            assert {found.id: found.private for found in await one.list_conversations("ada")} == {
                "c": True,
                "open": False,
            }
            assert (await one.write_question("ada", "c", question("And?"), [])).private
            assert [
                idle.conversation_id for idle in await one.write_unsynced(conversations.claim_idle, TOMORROW, 9)
            ] == ["open"]
            assert [recent.conversation_id for recent in await one.read(conversations.recent, "ada", 9)] == ["open"]


@pytest.mark.parametrize("mark", [False, True, None])
async def test_an_import_carries_the_mark_of_private_data(store: Store, mark: bool | None) -> None:
    """A record without it is of an older version, and may contain some. Nobody knows who wrote what is imported."""
    history = await store.write_question("ada", "c", question("I like jazz"), [])
    await store.end(history, answer([Text("Fine.", 1)], private_data=bool(mark)))
    task = await store.write(tasks.create, task_of("ada", "I like jazz"), NO_LIMITS)
    records = await exported(store, "ada")
    for record in records:
        if mark is None:
            record.pop("private_data", None)
    await import_records(store, "bob", records)
    history = await store.read(turns.history, "bob", "c", 9)
    assert [(one.private_data, one.untrusted, one.user_messages) for one in history.exchanges] == [
        (mark is not False, True, [])
    ]
    (imported,) = await store.read(tasks.list_tasks, "bob")
    assert imported.prompt == task.prompt
    assert (imported.private_data, imported.untrusted, imported.user_text) == (mark is None, True, "")


async def test_an_export_has_everything_of_its_user(store: Store) -> None:
    await fill(store, "ada")
    await add_turn(store, "eve", "c", "secret of eve")
    records = await exported(store, "ada")
    assert [record["kind"] for record in records] == [
        "brain", "conversation", "file", "exchange", "conversation", "exchange", "item", "item", "preferences"
    ]  # fmt: skip
    assert (records[0]["version"], records[0]["user"]) == (2, "ada")
    assert records[2] == {
        "kind": "file", "conversation": "c", "id": 1, "name": "a.txt", "type": "text/plain", "data": "/wA="
    }  # fmt: skip
    assert "eve" not in json.dumps(records)
    async with store_at(None) as other:
        whole = Counts(conversations=2, messages=3, files=1, facts=1, memories=1)
        assert await import_records(other, "bob", records) == whole
        assert await import_records(other, "bob", records) == Counts()
        marks = {"untrusted": True, "author": "unknown"}
        untrusted = [one | marks if one["kind"] == "exchange" else one for one in records]
        assert (await exported(other, "bob"))[1:] == untrusted[1:]
        before, after = await store.list_conversations("ada"), await other.list_conversations("bob")
        assert [(one.id, one.title, one.updated, one.messages) for one in after] == [
            (one.id, one.title, one.updated, one.messages) for one in before
        ]
        assert len(await other.list_conversations("bob", words="jazz")) == 1
        assert len(await other.read(items.search, "bob", "jazz", kinds=("fact", "memory"), limit=9)) == 2
        assert not await other.read(users.recalls, "bob")
        assert await other.write_unsynced(conversations.claim_idle, TOMORROW, 9) == []  # m1 sums up all of it
        history = await other.write_question("bob", "c", question("More", 2), [file(b"x")])
        assert [one.data for one in history.attachments] == [b"\xff\x00"]
        assert history.files[0].id == 2


async def test_a_memory_of_several_conversations_is_exported_once(store: Store) -> None:
    for name in ("a", "b"):
        await add_turn(store, "ada", name, "I like jazz")
        (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 1)
        await store.write(conversations.set_memory, idle, memory("m1", "They like jazz", conversation_id=name))
    assert [one.count for one in await store.read(items.list_items, "ada")] == [2]
    records = await exported(store, "ada")
    (record,) = (one for one in records if one["kind"] == "item")
    assert (record["conversation_id"], "count" in record) == ("b", False)
    async with store_at(None) as other:
        await import_records(other, "ada", records)
        assert [one.count for one in await other.read(items.list_items, "ada")] == [1]
        (idle,) = await other.write_unsynced(conversations.claim_idle, TOMORROW, 9)  # whose summary will say the same
        assert idle.conversation_id == "a"


async def test_what_exists_is_left_as_it_is(store: Store) -> None:
    await fill(store, "ada")
    records = await exported(store, "ada")
    await add_turn(store, "ada", "c", "More", number=2)
    await store.write(items.put, "ada", fact("f1", "I like rock"))
    await store.delete("ada", "d")
    await store.write(users.set_recalls, "ada", True)
    assert await import_records(store, "ada", records) == Counts(conversations=1, messages=1)
    assert [one[0] for one in await read_turns(store, "ada", "c")] == ["I like jazz", "More"]
    assert [one.text for one in await store.read(items.list_items, "ada", kind="fact")] == ["I like rock"]


async def test_exports_of_a_running_turn_and_of_nobody(store: Store) -> None:
    await store.write_question("ada", "c", question("Well"), ())
    records = await exported(store, "ada")
    assert [record["outcome"] for record in records if record["kind"] == "exchange"] == ["interrupted"]
    await import_records(store, "bob", records)
    assert await read_turns(store, "bob", "c") == [("Well", "", "interrupted")]
    records = await exported(store, "nobody")
    assert [record["kind"] for record in records] == ["brain", "preferences"]
    await store.write(users.set_recalls, "ada", False)
    assert await import_records(store, "ada", records) == Counts()
    assert not await store.read(users.recalls, "ada")


async def test_an_export_is_of_one_moment_while_others_write(shared_store: Store) -> None:
    for n in range(100):
        await add_turn(shared_store, "ada", f"c{n}")
    seen: list[dict[str, Any]] = []
    async with aclosing(shared_store.export("ada")) as records:
        async for record in records:
            if len(seen) < 2:
                await add_turn(shared_store, "ada", "new")
                await shared_store.delete("ada", "c99")
            seen.append(record)
    assert [record["id"] for record in seen if record["kind"] == "conversation"] == [f"c{n}" for n in range(100)]
    async with aclosing(shared_store.export("ada")) as records:
        await anext(records)
    assert len(await shared_store.list_conversations("ada", limit=200)) == 100


EARLY, LATE, NAIVE = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00"
NOW = "2026-01-01T00:00:00Z"
HEAD = {"kind": "brain", "version": 2}
C = {"kind": "conversation", "id": "c", "title": "T", "created": NOW}
FILE = {"kind": "file", "conversation": "c", "id": 1, "name": "a", "type": "t", "data": "eA=="}
EXCHANGE = {
    "kind": "exchange", "conversation": "c", "question_id": "q", "answer_id": "a", "message": "s", "question": "s",
    "started": NOW, "outcome": "complete",
}  # fmt: skip
TEXT = {"type": "text", "text": "t", "turn_pass": 1}
CALL = {"type": "call", "id": "c1", "name": "web", "params": {}, "marker": "", "block": "", "turn_pass": 1}
USAGE = {"prompt_tokens": 1, "completion_tokens": -1, "reused_tokens": None, "estimated": False}
ERROR = {"code": "internal", "message": "m", "recoverable": True, "status": -1}
NOTE = {"text": "t", "position": 0}
FACT = {"kind": "item", "type": "fact", "id": "f", "text": "t", "created": NOW, "updated": NOW}
TASK = {
    "kind": "task", "id": "task0123456789abcdef", "title": "T", "prompt": "p", "conversation_id": "c", "work_id": "w",
    "created": NOW, "changed": NOW, "time_zone": "UTC",
}  # fmt: skip


@pytest.mark.parametrize(
    ("records", "field"),
    [
        ([], ""),
        ([C], "kind"),
        ([HEAD | {"version": 3}], "version"),
        ([HEAD, HEAD], "kind"),
        ([HEAD, 7], ""),
        ([HEAD, {"kind": "song"}], "kind"),
        ([HEAD, {"id": "c"}], "kind"),
        ([HEAD, C | {"title": 5}], "title"),
        ([HEAD, C | {"created": NAIVE}], "created"),
        ([HEAD, C | {"created": LATE}], "created"),
        ([HEAD, C | {"id": ""}], "id"),
        ([HEAD, C | {"title": "\ud800"}], ""),
        ([HEAD, C, C], ""),  # the first one has no exchange
        ([HEAD, C], ""),
        ([HEAD, C, EXCHANGE, C], "id"),
        ([HEAD, EXCHANGE], "conversation"),
        ([HEAD, C, EXCHANGE, FACT, EXCHANGE], "conversation"),
        ([HEAD, C, FILE, EXCHANGE], ""),  # no exchange has the file
        ([HEAD, C, FILE, FILE], "id"),
        ([HEAD, C, FILE | {"data": "!"}], "data"),
        ([HEAD, C, FILE | {"id": 2**70}], "id"),
        ([HEAD, C, EXCHANGE | {"files": [1]}], "files"),
        ([HEAD, C, EXCHANGE | {"tokens": -1}], "tokens"),
        ([HEAD, C, EXCHANGE | {"outcome": ""}], "outcome"),
        ([HEAD, C, EXCHANGE | {"source": "radio"}], "source"),
        ([HEAD, C, EXCHANGE | {"started": EARLY}], "started"),
        ([HEAD, C, EXCHANGE | {"ended": LATE}], "ended"),
        ([HEAD, C, EXCHANGE | {"total_ms": 2**53}], "total_ms"),
        ([HEAD, C, EXCHANGE | {"first_token_ms": -5}], "first_token_ms"),
        ([HEAD, C, EXCHANGE | {"usage": USAGE}], "usage.completion_tokens"),
        ([HEAD, C, EXCHANGE | {"error": ERROR}], "error.status"),
        ([HEAD, C, EXCHANGE | {"parts": [{"type": "text"}]}], "parts[0].text"),
        ([HEAD, C, EXCHANGE | {"parts": [TEXT | {"turn_pass": -(2**53)}]}], "parts[0].turn_pass"),
        ([HEAD, C, EXCHANGE | {"parts": [CALL | {"ms": 10**30}]}], "parts[0].ms"),
        ([HEAD, C, EXCHANGE | {"parts": [CALL | {"ms": 2**53}]}], "parts[0].ms"),
        ([HEAD, C, EXCHANGE | {"annotations": [NOTE | {"position": -3}]}], "annotations[0].position"),
        ([HEAD, C, EXCHANGE | {"annotations": [NOTE | {"offset": 2**53}]}], "annotations[0].offset"),
        ([HEAD, FACT | {"type": "rumour"}], "type"),
        ([HEAD, FACT | {"created": EARLY}], "created"),
        ([HEAD, FACT | {"updated": LATE}], "updated"),
        ([HEAD, FACT | {"was": [{"text": "t", "until": NAIVE}]}], "was[0].until"),
        ([HEAD, FACT | {"was": [{"text": "t", "until": EARLY}]}], "was[0].until"),
        ([HEAD, FACT, FACT], "id"),
        ([HEAD, TASK | {"prompt": ""}], "prompt"),
        ([HEAD, TASK | {"state": "unreadable"}], "state"),
        ([HEAD, TASK | {"start": LATE}], "start"),
        ([HEAD, TASK | {"result": "x" * 70_000}], "result"),
        ([HEAD, TASK | {"run": -1}], "run"),
        ([HEAD, TASK, TASK], "id"),
        ([HEAD, TASK, TASK | {"id": "task2"}], "id"),
        ([HEAD, TASK, C | {"id": "w"}], ""),  # without an exchange
    ],
)
async def test_a_wrong_record_is_named_and_nothing_is_imported(
    memory_store: Store, records: list[Any], field: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        await import_records(memory_store, "ada", records)
    place = f"records[{max(0, len(records) - 1)}]" + (f".{field}" if field else "")
    assert (caught.value.status, caught.value.field) == (400, place)
    assert await memory_store.search(users.names) == []


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("conversation", "title"),
        *(("file", field) for field in ("name", "type")),
        *(("exchange", field) for field in ("question_id", "answer_id", "message", "question", "outcome")),
        *(("item", field) for field in ("id", "text")),
        *(("task", field) for field in ("id", "title", "prompt")),
    ],
)
async def test_nul_characters_are_not_stored(
    memory_store: Store, kind: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_nul(monkeypatch)
    records: list[dict[str, Any]] = [HEAD, TASK, C, FILE, EXCHANGE | {"files": [1]}, FACT]
    with_nul = [one | ({field: f"{one[field]}\0"} if one["kind"] == kind else {}) for one in records]
    counts = await import_records(memory_store, "ada", with_nul)
    assert counts == Counts(conversations=1, messages=1, files=1, facts=1, tasks=1)
    ((_, _, outcome),) = await read_turns(memory_store, "ada", "c")
    assert outcome == "complete"


DAILY = {"every": "FREQ=DAILY;BYHOUR=8;BYMINUTE=0", "start": "2027-01-01T08:00:00Z"}


@pytest.mark.parametrize(
    ("record", "state", "paused", "every"),
    [
        ({"state": "succeeded", "result": "r"}, "succeeded", False, ""),
        ({"state": "failed", "reason": "r"}, "failed", False, ""),
        ({"state": "pending"}, "canceled", False, ""),
        ({"state": "running"}, "canceled", False, ""),
        ({"state": "waiting", "approval": {"call_id": "c1", "name": "web", "params": {}}}, "canceled", False, ""),
        ({"state": "waiting", **DAILY}, "waiting", True, DAILY["every"]),
        ({"state": "running", **DAILY, "attempt": 2}, "waiting", True, DAILY["every"]),
        ({"state": "waiting", "start": DAILY["start"], "next_run": DAILY["start"]}, "waiting", True, ""),
        ({"state": "waiting", **DAILY, "every": "now and then"}, "canceled", False, ""),
        ({"state": "waiting", **DAILY, "time_zone": "Mars/Base"}, "canceled", False, ""),
    ],
)
async def test_an_imported_task_does_not_run_by_itself(
    store: Store, record: dict[str, Any], state: str, paused: bool, every: str
) -> None:
    run = [C | {"id": "w"}, EXCHANGE | {"conversation": "w", "source": "task"}]
    records = [HEAD, TASK | record, *run]
    assert await import_records(store, "ada", records) == Counts(tasks=1)
    assert await import_records(store, "ada", records) == Counts()
    assert await import_records(store, "eve", records) == Counts(tasks=1)  # with another ID
    (task,), (other,) = await store.read(tasks.list_tasks, "ada"), await store.read(tasks.list_tasks, "eve")
    assert (task.id, task.state, task.paused, task.every) == (TASK["id"], state, paused, every)
    assert (task.approval, task.work_id, task.finished) == (None, "work0123456789abcdef", "q")
    look = await store.read(tasks.look, 9, 9)
    assert (look.due, look.seconds_until_due) == ([], None)
    assert await store.list_conversations("ada") == []
    for user, one in (("ada", task), ("eve", other)):
        page = await store.read(conversations.read_page, user, one.work_id)
        assert page is not None
        assert page.conversation.sources == ("task",)
    assert [one["kind"] for one in await exported(store, "ada")] == [
        "brain", "task", "conversation", "exchange", "preferences"
    ]  # fmt: skip


async def test_tasks_of_others_hide_no_imported_conversation(store: Store) -> None:
    records = [HEAD, C, EXCHANGE | {"source": "task"}]
    assert await import_records(store, "ada", records) == Counts(conversations=1, messages=1)
    assert [one.sources for one in await store.list_conversations("ada")] == [("api",)]


async def test_an_import_over_the_limit_of_tasks_is_rejected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_ENDED", 1)
    records = [HEAD, *(TASK | {"id": f"{n}", "work_id": f"w{n}", "state": "succeeded"} for n in range(2))]
    with pytest.raises(BadRequest) as caught:
        await import_records(store, "ada", records)
    assert (caught.value.code, await store.read(tasks.list_tasks, "ada")) == ("too_large", [])


async def test_what_is_nested_too_deeply_is_not_imported(memory_store: Store) -> None:
    nested: list[Any] = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(BadRequest) as caught:
        await import_records(memory_store, "ada", [HEAD, {"kind": nested}])
    assert caught.value.field == "records[1]"


@pytest.mark.parametrize(
    ("module", "limit"),
    [
        (users, "MAX_CONVERSATION_BYTES"),
        (users, "MAX_USER_BYTES"),
        (transfer, "MAX_LINE"),
        (transfer, "MAX_SPOOLED"),
    ],
)
async def test_too_much_is_not_imported(
    shared_store: Store, module: Any, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 4_000)
    with pytest.raises(BadRequest) as caught:
        await import_records(shared_store, "ada", [HEAD, C, EXCHANGE | {"message": "x" * 5_000}])
    assert (caught.value.code, caught.value.field) == ("too_large", "records[2]")
    assert await shared_store.search(users.names) == []


async def test_others_write_while_records_come_slowly(store: Store) -> None:
    may_continue, has_begun = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[Any]:
        yield HEAD
        has_begun.set()
        await may_continue.wait()
        yield FACT

    importing = asyncio.create_task(import_records(store, "ada", slowly()))
    await has_begun.wait()
    await add_turn(store, "eve", "c")
    may_continue.set()
    assert await importing == Counts(facts=1)


async def test_a_forgotten_user_is_in_no_file(path: Path) -> None:
    def bytes_of(word: str) -> int:
        return sum(one.read_bytes().lower().count(word.encode()) for one in path.parent.iterdir())

    async with store_at(path) as store:
        for user, word in (("adelheid", "xylofon"), ("eve", "trombon")):  # which are their own stems
            for n in range(30):
                files = [file(f"{word} ".encode() * 100, f"{word}.txt")]
                await add_turn(store, user, f"c{n}", f"I play the {word}", f"The {word}! " * 50, files=files)
            former = (FormerText(f"no {word}", NOON),)
            await store.write(items.put, user, fact("f1", f"I play the {word}", former=former))
            await store.delete(user, "c3")
            await store.write(users.set_recalls, user, False)
            assert len(await store.list_conversations(user, words=word)) == 29
        await store.write_unsynced(vectors.write, [("adelheid", "f1", "I play the xylofon", ItemEmbedding([1.0]))], "m")
        whole = Counts(conversations=29, messages=58, files=29, facts=1)
        assert [await store.search(users.count, "adelheid"), await store.forget("adelheid")] == [whole, whole]
        await store.scrub()
        assert (bytes_of("xylofon"), bytes_of("adelheid")) == (0, 0)
        assert bytes_of("trombon") > 1_000
        assert (
            await store.search(users.names),
            await store.list_conversations("adelheid"),
            await store.read(items.list_items, "adelheid"),
        ) == (["eve"], [], [])
        assert await store.read(users.recalls, "adelheid")
        assert await store.forget("adelheid") == await store.search(users.count, "adelheid") == Counts()
        assert len(await store.list_conversations("eve", words="trombon")) == 29
    assert bytes_of("xylofon") == 0


async def test_ids_that_no_route_accepts_become_others_always_the_same(store: Store) -> None:
    ids = {"conversation": "a/b c"}
    odd = [
        HEAD,
        C | {"id": "a/b c"},
        EXCHANGE | ids | {"question_id": ""},
        EXCHANGE | ids | {"question_id": "Q 1", "answer_id": ""},
        EXCHANGE | ids,
        EXCHANGE | ids,
        FACT | {"id": "A"},
        FACT | {"id": "f2", "conversation_id": "a/b c", "message_id": "Q 1"},
    ]
    counts = Counts(conversations=1, messages=4, facts=2)
    assert [await import_records(store, "ada", odd) for _ in range(2)] == [counts, Counts()]
    (found,) = await store.list_conversations("ada")
    assert found.id == "x0af99a6091695385"
    page = await store.read(conversations.read_page, "ada", found.id)
    assert page is not None
    assert len({one.question_id for one in page.exchanges}) == 4
    second, first = await store.read(items.list_items, "ada")
    assert (first.id, second.id) == ("x559aead08264d579", "f2")
    assert (second.conversation_id, second.message_id) == (found.id, "x53aeb28579b498b0")
