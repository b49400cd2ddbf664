"""Splitting bodies into lines and events, and decoding events that differ in their text only."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from model_answers import cuts

from brain.errors import ModelError
from brain.events import Thinking
from brain.messages import Finish
from brain.models.event_template import EventTemplate
from brain.models.lines import MAX_LINE_BYTES, Lines, ServerSentEvents, Splitter
from brain.models.openai import decode_event
from brain.models.reply import Reply, ReplyPart, ReportedValues


def items(splitter: Splitter, pieces: list[bytes]) -> list[bytes]:
    whole = [item for piece in pieces for item in splitter.items(splitter.feed(piece))]
    data = [splitter.data(item) for item in [*whole, *splitter.items(splitter.close())]]
    return [one for one in data if one is not None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\r", [b"a", b"b"]),
        (b"a\r\r\nb\n\r", [b"a", b"", b"b", b""]),
        (b"a\r\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\n\n\n", [b"a", b"", b""]),
        (b"\r\n\r\n\r\n", [b"", b"", b""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
        (b"\xef\xbb\xbfa", [b"a"]),
        (
            "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n".encode(),
            [b"a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d\x0be\x0cf\x1cg"],
        ),
    ],
)
def test_lines(data: bytes, expected: list[bytes]) -> None:
    for pieces in cuts(data):
        assert items(Lines(), pieces) == expected, pieces


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # the examples of WHATWG HTML, 9.2.6
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         [b"first event", b"second event", b" third event"]),
        (b"data\n\ndata\ndata\n\ndata:", [b"", b"\n", b""]),
        (b"data:test\n\ndata: test\n\n", [b"test", b"test"]),
        # and what servers do
        (b"event: ping\n\nretry: 3000\n\nid: 7\n\ndata: a\n\n", [b"a"]),
        (b": keep-alive\n\n: keep-alive\r\n\r\ndata: a\r\n\r\n", [b"a"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n: in between\nevent: x\ndata: b\n\n", [b"a\nb"]),
        (b"database: a\nDATA: b\n data: c\n\n", []),
        (b"data: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: {\"a\":\"\xe2\x80\xa8\xc2\x85\"}\n\n", [b"{\"a\":\"\xe2\x80\xa8\xc2\x85\"}"]),
        # the last event of a body may have no end
        (b"data: a\n\ndata: b\n", [b"a", b"b"]),
        (b"data: a\n\ndata: b\r", [b"a", b"b"]),
        (b"data: a\n\ndata: b", [b"a", b"b"]),
        (b"data: a\n\nevent: x\ndata: b\nid: 1", [b"a", b"b"]),
        (b"data: a\n\n: bye", [b"a"]),
        # errors that only the name of the event or of the field tells
        (b'event: error\ndata: {"error": {"message": "boom"}}\n\n', [b'{"error":{"message":"boom"}}']),
        (b'event: error\ndata: {"message": "boom"}\n\n', [b'{"error":{"message":"boom"}}']),
        (b"event: error\ndata: boom\n\n", [b'{"error":"boom"}']),
        (b"event: error\n\n", [b'{"error":"an event named error"}']),
        (b'error: {"code": 500}\n\n', [b'{"error":{"code":500}}']),
        (b'event:error\rdata:{"error":"\xff"}\r\r', [b'{"error":"{\\"error\\":\\"\xef\xbf\xbd\\"}"}']),
        # JSON instead of a stream
        (b'{"error": "boom"}', [b'{"error": "boom"}']),
        (b'\n{\n  "error": "boom"\n}\n', [b'\n{\n  "error": "boom"\n}\n']),
    ],
)  # fmt: skip
def test_events(data: bytes, expected: list[bytes]) -> None:
    for pieces in cuts(data):
        assert items(ServerSentEvents(), pieces) == expected, pieces


@pytest.mark.parametrize("splitter", [Lines(), ServerSentEvents()])
def test_an_item_without_end_is_an_error(splitter: Splitter) -> None:
    assert splitter.feed(b"data: ") == b""
    for _ in range(3):
        assert splitter.feed(b"x" * (MAX_LINE_BYTES // 4)) == b""
    with pytest.raises(ModelError, match="too long") as caught:
        splitter.feed(b"x" * (MAX_LINE_BYTES // 4))
    assert caught.value.code == "model_failed"


# frames


def item(text: Any, **more: Any) -> bytes:
    fields = {"id": "c1", "created": 1, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return json.dumps(fields | more).encode()


def decode(reads: Sequence[Sequence[bytes]]) -> tuple[list[Any], int]:
    """The chunks of each read, `failed` once for an error, and how many items were decoded whole."""
    whole = 0
    checks = ReportedValues()

    def count(data: bytes) -> Sequence[ReplyPart]:
        nonlocal whole
        whole += 1
        return decode_event(checks, data)

    reply = Reply(ServerSentEvents(), count, EventTemplate("content"))
    chunks: list[Any] = []
    for read in reads:
        found: list[Any] = list(reply.feed(b"".join(b"data: %b\n\n" % one for one in read)))
        if reply.error is not None and ["failed"] not in [one[-1:] for one in chunks]:
            found.append("failed")
        chunks.append(found)
    return chunks, whole


def test_only_the_first_of_a_kind_is_decoded_whole() -> None:
    texts = ["Hel", "lo", " wörld", "😀", '"quoted"', "a\\b", "line\n", "\u2028", "x" * 10_000, "[1,", '",\n"', "  "]
    every = [item(text) for text in texts]
    assert decode([[one] for one in every]) == ([[text] for text in texts], 1)
    assert decode([[item("Oh ")], every]) == ([["Oh "], ["".join(texts)]], 1)
    assert decode([every, [item("!")]]) == ([["".join(texts)], ["!"]], 1)


@pytest.mark.parametrize(
    ("odd", "chunks"),
    [
        (item(None), []),
        (item(""), []),
        (item("b", created=2), ["b"]),
        (item("b").replace(b'"b"', b'"b", "content": "c"'), ["c"]),
        (item("b").replace(b'"b"', b'"b", "reasoning": "c"'), [Thinking("c"), "b"]),
        (item("b").replace(b"null", b'"stop"'), ["b", Finish("stop")]),
        (item("b").replace(b'"b"', b' "b"\t'), ["b"]),
        (item("b").replace(b'"b"', b'"\xff"'), ["\ufffd"]),
        (b'{"other": 1}', []),
        (b"", []),
    ],
)
def test_an_item_that_differs_in_more_than_its_text(odd: bytes, chunks: list[Any]) -> None:
    assert decode([[item("a")], [odd], [item("d")]])[0] == [["a"], chunks, ["d"]]


@pytest.mark.parametrize(
    "odd",
    [
        item("b").replace(b'"b"', b'"b'),
        item("b").replace(b'"b"', b'b"'),
        item("b").replace(b'"b"', b'"b""'),
        item("b").replace(b'"b"', b'"b","c"'),
        item("b").replace(b'"b"', b'"b" "c"'),
        item("b").replace(b'"b"', b'"b]"]'),
        item("b").replace(b'"b"', b'"a\tb"'),
        item("b").replace(b'"b"', b'\n"b"'),
        item("b").replace(b'"b"', b'"b"\r'),
        item("b").replace(b'"b"', b""),
        item("b")[:-1],
    ],
)
def test_a_broken_item_is_left_out_wherever_it_stands(odd: bytes) -> None:
    assert decode([[item("a")], [odd], [item("d")]])[0] == [["a"], [], ["d"]]
    assert decode([[item("a")], [item("b"), odd, item("d")]])[0] == [["a"], ["bd"]]


@pytest.mark.parametrize("odd", [b'{"error": "out of memory"}', b'{"error": "out of', b"upstream error", b"Overloaded"])
def test_a_failure_is_an_error_wherever_it_stands(odd: bytes) -> None:
    assert decode([[item("a")], [odd], [item("d")]])[0] == [["a"], ["failed"], []]
    assert decode([[item("a")], [item("b"), odd, item("d")]])[0] == [["a"], ["b", "failed"]]


def test_a_line_without_end_ends_the_answer() -> None:
    reply = Reply(ServerSentEvents(), lambda data: ())
    assert reply.feed(b"x" * (MAX_LINE_BYTES + 1)) == []
    assert reply.is_over
    assert reply.error is not None
    assert "too long" in reply.error.message


@pytest.mark.parametrize("value", ["9" * 5000, 10**30, -1, True, 1.5, "1.5", [1]])
def test_an_impossible_count_is_ignored(value: Any) -> None:
    assert ReportedValues().count("tokens", value) is None
