"""Conversations and facts as JSON, and the queries and bodies of their routes."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from brain.errors import BadRequest
from brain.events import Citation, Error, Usage
from brain.messages import Annotation, Call, Exchange, Part, PassRecord, RoundRecord, Steer, Text
from brain.prompts.blocks import block_content
from brain.protocols.common import decode
from brain.protocols.native import resources
from brain.protocols.native.queries import (
    ChangeBody,
    ConversationsQuery,
    FactBody,
    MemoryQuery,
    PageQuery,
    RecallBody,
    TasksQuery,
    parse_change,
    parse_query,
    parse_title,
)
from brain.store.conversations import Conversation, ConversationPage, File

NOON = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
TIME = "2026-05-03T12:00:00Z"


def encode(*exchanges: Exchange, turn_id: str | None = None) -> dict[str, Any]:
    conversation = Conversation("c1", "Tea", NOON, NOON, 4, ("chat", "voice"))
    page = ConversationPage(conversation, exchanges, [File(1, "a.txt", "text/plain", 12)], None)
    body = resources.encode_page(page, lambda exchange: exchange.tokens or 7, block_content, turn_id)
    answer: dict[str, Any] = json.loads(body)
    return answer


def exchange(*parts: Part, outcome: str = "complete", **more: Any) -> Exchange:
    return Exchange(
        "(a note)\n\nWhat is tea?",
        [*parts],
        question_id="q1",
        answer_id="a1",
        message="What is tea?",
        started=NOON,
        ended=NOON,
        outcome=outcome,
        model="m",
        **more,
    )


def answer_of(found: Exchange) -> dict[str, Any]:
    answer: dict[str, Any] = encode(found)["messages"][1]
    return answer


def test_a_conversation_has_parts_and_the_users_own_words() -> None:
    block = "[SPECIALIST_RESULT: wiki]\nTea is a drink.\n[/SPECIALIST_RESULT]"
    unread = "[SPECIALIST_ERROR: ? failed - no name]"
    cited = (Citation("1", "Tea", "https://example.org/tea"), Citation("2", "A note"))
    marker = "SPECIALIST_REQUEST[wiki:…]"
    call = Call("wiki", marker, {"query": "tea"}, id="c1", block=block, citations=cited, turn_pass=1, untrusted=True)
    failed = Call("?", "SPECIALIST_REQUEST[", id="c2", code="malformed", block=unread, turn_pass=2)
    parts = (Text("I look. ", 1), call, Steer("And coffee?", 1), failed, Text("Tea is a drink.", 2))
    citations = [{"id": "1", "title": "Tea", "url": "https://example.org/tea"}, {"id": "2", "title": "A note"}]
    assert encode(exchange(*parts, files=(1,), recalled_ids=("f3a9",), source="voice", tokens=120)) == {
        "id": "c1",
        "title": "Tea",
        "created": TIME,
        "updated": TIME,
        "sources": ["chat", "voice"],
        "running": False,
        "messages": [
            {
                "id": "q1",
                "role": "user",
                "time": TIME,
                "source": "voice",
                "parts": [{"type": "text", "text": "What is tea?"}],
                "files": [1],
                "recalled": ["f3a9"],
            },
            {
                "id": "a1",
                "role": "assistant",
                "time": TIME,
                "parts": [
                    {"type": "text", "text": "I look. "},
                    {
                        "type": "call",
                        "call_id": "c1",
                        "name": "wiki",
                        "params": {"query": "tea"},
                        "outcome": None,
                        "block": block,
                        "text": "Tea is a drink.",
                        "citations": citations,
                        "cached": False,
                    },
                    {"type": "steered", "text": "And coffee?"},
                    {
                        "type": "call",
                        "call_id": "c2",
                        "name": "?",
                        "params": None,
                        "outcome": "malformed",
                        "block": unread,
                        "reason": "no name",
                        "citations": [],
                        "cached": False,
                    },
                    {"type": "text", "text": "Tea is a drink."},
                ],
                "state": "complete",
                "stop_reason": "complete",
                "model": "m",
                "strategy": "mono",
                "tokens": {"count": 120, "counted": "server"},
                "citations": citations,
            },
        ],
        "files": [{"id": 1, "name": "a.txt", "type": "text/plain", "size": 12}],
        "earlier": None,
    }


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("complete", {"state": "complete", "stop_reason": "complete"}),
        ("call_limit", {"state": "complete", "stop_reason": "call_limit"}),
        ("cancelled", {"state": "cancelled"}),
        ("interrupted", {"state": "interrupted"}),
        ("model_unreachable", {"state": "error", "error": "model_unreachable"}),
    ],
)
def test_an_answer_has_the_state_in_which_it_ended(outcome: str, expected: Mapping[str, str]) -> None:
    answer = answer_of(exchange(outcome=outcome))
    assert {name: answer[name] for name in ("state", "stop_reason", "error") if name in answer} == expected
    assert (answer["parts"], answer["tokens"]) == ([], {"count": 7, "counted": "bytes/4"})


def test_a_running_answer_has_no_id_and_no_time() -> None:
    found = encode(Exchange("Hi", message="Hi", question_id="q1", started=NOON), turn_id="t1")
    answer = found["messages"][1]
    assert (found["turn_id"], answer["id"], answer["time"], answer["state"]) == ("t1", None, None, "running")


def test_annotations_stand_in_their_places() -> None:
    call = Call("wiki", params={}, id="c1", turn_pass=1, by="assist", cached=True, ms=12, approval="approved")
    annotations = (
        Annotation("Recalled 1 fact: tea", 0, code="recalled"),
        Annotation("Hm.", 0),
        Annotation("And then?", 0, 5),
        Annotation("Again.", 1, code="repeated_call"),
        Annotation("So.", 2),
        Annotation("Late.", 7, -3),
    )
    answer = answer_of(exchange(Text("Well, tea.", 1), call, Text("Tea.", 2), annotations=annotations))
    names = ("type", "text", "code", "by", "cached", "ms", "approval")
    assert [{name: part[name] for name in names if name in part} for part in answer["parts"]] == [
        {"type": "notice", "code": "recalled", "text": "Recalled 1 fact: tea"},
        {"type": "thinking", "text": "Hm."},
        {"type": "text", "text": "Well,"},
        {"type": "thinking", "text": "And then?"},
        {"type": "text", "text": " tea."},
        {"type": "notice", "code": "repeated_call", "text": "Again."},
        {"type": "call", "text": "", "by": "assist", "cached": True, "ms": 12, "approval": "approved"},
        {"type": "thinking", "text": "So."},
        {"type": "text", "text": "Tea."},
        {"type": "thinking", "text": "Late."},
    ]


def test_parts_belong_to_rounds() -> None:
    answer = answer_of(
        exchange(
            Call("wiki", params={}, id="c1", turn_pass=2, round=2),
            Text("Tea.", 3),
            strategy="dual",
            rounds=(
                RoundRecord(1, 9, "thinker", "big", began_ms=3, ms=4),
                RoundRecord(2, 9, "actor", "small", "Look."),
                RoundRecord(3, 9, "actor", "small", "Write.", 9),
            ),
            annotations=(Annotation("Hm.", 0, round=1), Annotation("Again.", 1, code="repeated_call", round=2)),
            passes=tuple(PassRecord(n, 0, None, None, 0, 0, None, False, None, round=n) for n in (1, 2, 3)),
        )
    )
    assert (answer["strategy"], answer["rounds"]) == (
        "dual",
        [
            {"n": 1, "of": 9, "role": "thinker", "model": "big", "began_ms": 3, "ms": 4},
            {"n": 2, "of": 9, "role": "actor", "model": "small", "text": "Look.", "began_ms": 0},
            {"n": 3, "of": 9, "role": "actor", "model": "small", "text": "Write.", "began_ms": 9},
        ],
    )
    parts = [(part["type"], part["round"]) for part in answer["parts"]]
    assert parts == [("thinking", 1), ("call", 2), ("notice", 2), ("text", 3)]


def test_an_answer_has_its_usage_and_its_error() -> None:
    usage, error = Usage(3, 4, None, estimated=True), Error("model_failed", "It broke.", False, 500)
    answer = answer_of(exchange(outcome="model_failed", usage=usage, first_token_ms=5, total_ms=6, error=error))
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "estimated": True}
    assert (answer["first_token_ms"], answer["total_ms"], answer["state"]) == (5, 6, "error")
    assert {name: answer[name] for name in ("error", "message", "recoverable", "status")} == {
        "error": "model_failed",
        "message": "It broke.",
        "recoverable": False,
        "status": 500,
    }


def test_lone_surrogates_are_replaced() -> None:
    answer = answer_of(exchange(Call("a", params={"x": "\ud800"}, id="c1", turn_pass=1)))
    assert answer["parts"][0]["params"] == {"x": "\ufffd"}


def test_queries_and_bodies() -> None:
    found = parse_query({"q": "tea", "before": "c1", "limit": "5"}, ConversationsQuery)
    assert (found.q, found.before, found.limit) == ("tea", "c1", 5)
    assert parse_query({"before": "m1"}, PageQuery) == PageQuery("m1", 50)
    memory = parse_query({"kind": "fact", "category": "general"}, MemoryQuery)
    assert (memory.kind, memory.category, memory.q) == ("fact", "general", "")
    assert parse_query({"state": "running,waiting,running"}, TasksQuery).states == ["running", "waiting"]
    assert parse_query({}, TasksQuery).states == []
    assert parse_title(json.dumps({"title": f" {'ü' * 200} "}).encode()) == "ü" * 200
    body = b'{"text": "I like tea", "category": "preferences", "mutable": false}'
    assert decode(body, FactBody) == FactBody("I like tea", "preferences", mutable=False)
    assert parse_change(b'{"text": "I like coffee"}') == ChangeBody("I like coffee")
    assert parse_change(b'{"mutable": false}') == ChangeBody(mutable=False)


def query(kind: type[Any]) -> Any:
    return lambda sent: parse_query(sent, kind)


def body(kind: type[Any]) -> Any:
    return lambda sent: decode(sent, kind)


def bodies(parse: Any, *rows: tuple[Any, str]) -> Sequence[Any]:
    return [pytest.param(parse, json.dumps(body).encode(), field) for body, field in rows]


@pytest.mark.parametrize(
    ("parse", "sent", "field"),
    [
        *[(query(PageQuery), {"limit": limit}, "limit") for limit in ("", "0", "201", "１", "9" * 5_000)],
        *[(query(PageQuery), {"before": before}, "before") for before in ("a b", "a\n", "", "x" * 65)],
        (query(ConversationsQuery), {"q": "x" * 1_001}, "q"),
        (query(ConversationsQuery), {"page": "2"}, "page"),
        (query(PageQuery), {"q": "tea"}, "q"),
        (query(MemoryQuery), {"kind": "summary"}, "kind"),
        (query(TasksQuery), {"conversation_id": "a b"}, "conversation_id"),
        (lambda sent: query(TasksQuery)(sent).states, {"state": "running,done"}, "state"),
        *bodies(
            parse_title, *(({"title": text}, "title") for text in ("", "  ", "a\nb", "a\u2028b", "a\x00b", "x" * 201))
        ),
        *bodies(body(FactBody), ({}, "text"), ({"text": None}, "text"), ({"text": "x", "kind": "memory"}, "kind")),
        *bodies(body(FactBody), ({"text": "x", "category": "family"}, "category")),
        *bodies(parse_change, ({}, "text"), ({"category": None}, "text"), ({"id": "x"}, "id")),
        *bodies(body(RecallBody), ({}, "recall"), ({"recall": 0}, "recall")),
    ],
)
def test_what_is_wrong_is_rejected_with_its_field(parse: Any, sent: Any, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(sent)
    assert caught.value.field == field
