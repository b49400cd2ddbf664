import json
import tracemalloc

import pytest

from brain.ask import Attachment
from brain.errors import BadRequest
from brain.events import Citation
from brain.messages import Called, Exchange, Message, Part, Said
from brain.store import memory
from brain.store.memory import MemoryStore


def used(store: MemoryStore, user: str | None, name: str, size: int = 0) -> None:
    """A turn of this conversation, with a file of this size."""
    record = store.take(user, name)
    record.exchanges.append(Exchange("Hi", [Said("Hello", 1)]))
    if size:
        record.attachments.append(Attachment(1, "a", "text/plain", b"x" * size))
    store.give_back(record)


def turns(store: MemoryStore, user: str | None, name: str) -> int:
    """How many turns are kept of it."""
    record = store.take(user, name)
    store.give_back(record)
    return len(record.exchanges)


def test_a_conversation_is_found_again() -> None:
    store = MemoryStore()
    used(store, "ada", "c")
    used(store, "ada", "c")
    assert turns(store, "ada", "c") == 2


def test_conversations_belong_to_their_user() -> None:
    store = MemoryStore()
    used(store, "ada", "c")
    used(store, None, "c")
    assert [turns(store, user, "c") for user in ("ada", None, "eve")] == [1, 1, 0]


def test_one_turn_at_a_time() -> None:
    store = MemoryStore()
    record = store.take("ada", "c")
    with pytest.raises(BadRequest) as caught:
        store.take("ada", "c")
    assert (caught.value.code, caught.value.status, caught.value.field) == ("busy", 409, "conversation_id")
    store.take("eve", "c")
    store.give_back(record)
    assert store.take("ada", "c").busy


def test_a_conversation_without_a_word_is_forgotten() -> None:
    store = MemoryStore()
    store.give_back(store.take("ada", "c"))
    assert len(store) == 0
    used(store, "ada", "c")
    store.give_back(store.take("ada", "c"))
    assert len(store) == 1


def test_the_longest_unused_conversation_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONVERSATIONS_MOST", 2)
    store = MemoryStore()
    for name in ("a", "b", "a", "c"):
        used(store, "ada", name)
    assert len(store) == 2
    assert [turns(store, "ada", name) for name in ("a", "c")] == [2, 1]
    assert turns(store, "ada", "b") == 0


def test_files_make_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BYTES_MOST", 10_000)
    store = MemoryStore()
    used(store, "ada", "a", 5_000)
    used(store, "eve", "b", 4_000)
    assert len(store) == 2
    used(store, "ada", "c", 1_000)
    assert turns(store, "ada", "a") == 0
    assert [turns(store, user, name) for user, name in (("eve", "b"), ("ada", "c"))] == [1, 1]


@pytest.mark.parametrize("part", ["question", "answer", "marker", "block", "before", "behind", "cited"])
def test_text_makes_room_too(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(memory, "BYTES_MOST", 10_000)
    store = MemoryStore()
    long = {part: "x" * (3_000 if part == "marker" else 6_000)}  # which its parameters say once more
    for name in ("a", "b"):
        record = store.take("ada", name)
        cited = [Citation("1", long.get("cited", ""))]
        call = Called("c1", "web", {}, long.get("marker", ""), None, long.get("block", ""), cited, 1)
        before, behind = ((Message("system", long.get(place, "")),) for place in ("before", "behind"))
        parts: list[Part] = [Said(long.get("answer", ""), 1), call]
        record.exchanges.append(Exchange(long.get("question", ""), parts, before, behind))
        store.give_back(record)
    assert [turns(store, "ada", name) for name in ("a", "b")] == [0, 1]


def test_parameters_count_as_the_objects_that_they_are() -> None:
    params: dict[str, object] = {"a": [[0.5] for _ in range(10_000)]}
    marker = f"SPECIALIST_REQUEST[web:{json.dumps(params)}]"
    tracemalloc.start()
    kept = json.loads(json.dumps(params))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    record = MemoryStore().take("ada", "c")
    record.exchanges.append(Exchange("", [Called("c1", "web", kept, marker, None, "", (), 1)]))
    assert taken <= record.size <= 3 * taken


def test_who_keeps_too_much_loses_his_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "USER_BYTES_MOST", 10_000)
    store = MemoryStore()
    used(store, "eve", "e", 9_000)
    for name in ("a", "b", "c"):
        used(store, "ada", name, 4_500)
    assert turns(store, "ada", "a") == 0
    assert [turns(store, user, name) for user, name in (("eve", "e"), ("ada", "b"), ("ada", "c"))] == [1, 1, 1]


def test_a_full_conversation_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONVERSATION_BYTES_MOST", 10_000)
    store = MemoryStore()
    used(store, "ada", "c", 6_000)
    record = store.take("ada", "c")
    record.check_room(Exchange("More"), [Attachment(1, "a", "text/plain", b"x" * 3_000)])
    with pytest.raises(BadRequest) as caught:
        record.check_room(Exchange("More"), [Attachment(1, "a", "text/plain", b"x" * 4_000)])
    assert (caught.value.code, caught.value.status, caught.value.field) == ("too_large", 413, "attachments")
    with pytest.raises(BadRequest) as caught:
        record.check_room(Exchange("More" * 1_000), [])
    assert caught.value.field == "conversation_id"
    with pytest.raises(BadRequest, match="A conversation may hold"):
        record.check_room(Exchange("More", before=(Message("system", "x" * 4_000),)), [])


def test_what_is_in_use_and_the_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONVERSATIONS_MOST", 1)
    store = MemoryStore()
    used(store, "ada", "a")
    busy = store.take("ada", "a")
    used(store, "ada", "b")
    assert len(store) == 2
    store.give_back(busy)
    assert len(store) == 1
