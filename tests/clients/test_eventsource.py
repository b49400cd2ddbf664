"""The parser by which our streams are judged, rule by rule of the standard, and with every cut of the bytes."""

import pytest
from sse_parser import EventSource, Message, read


def message(data: str, kind: str = "message", last_event_id: str = "") -> Message:
    return Message(kind, data, last_event_id)


RULES: list[tuple[str, bytes, list[Message]]] = [
    # the standard's own examples
    ("several lines of data", b"data: YHOO\ndata: +2\ndata: 10\n\n", [message("YHOO\n+2\n10")]),
    (
        "comments, ids that stay, an id that is cleared, a space that stays",
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [message("first event", last_event_id="1"), message("second event"), message(" third event")],
    ),
    ("empty data is data, and what has no end is none", b"data\n\ndata\ndata\n\ndata:", [message(""), message("\n")]),
    ("one space is as good as none", b"data:test\n\ndata: test\n\n", [message("test"), message("test")]),
    # bytes
    ("a byte order mark at the beginning", b"\xef\xbb\xbfdata: a\n\n", [message("a")]),
    ("only one of them", b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [message("b")]),
    ("one within data", b"data: \xef\xbb\xbfa\n\n", [message("\ufeffa")]),
    ("characters of many bytes", "data: hä “😀”\n\n".encode(), [message("hä “😀”")]),
    ("other line ends are text", "data: a\u2028b\x85c\x0bd\x0ce\n\n".encode(),
     [message("a\u2028b\x85c\x0bd\x0ce")]),
    # ends of lines
    ("LF", b"event: e\ndata: a\n\ndata: b\n\n", [message("a", "e"), message("b")]),
    ("CR LF", b"event: e\r\ndata: a\r\n\r\ndata: b\r\n\r\n", [message("a", "e"), message("b")]),
    ("CR", b"event: e\rdata: a\r\rdata: b\r\r", [message("a", "e"), message("b")]),
    ("mixed", b"event: e\rdata: a\n\r\ndata: b\r\n\rdata: c\r\r\n", [message("a", "e"), message("b"), message("c")]),
    ("LF CR are two", b"data: a\n\rdata: b\n\r", [message("a"), message("b")]),
    # fields
    ("a comment is nothing", b":\n: a\n:data: b\n::\n\n", []),
    ("a comment within an event", b"data: a\n: comment\ndata: b\n\n", [message("a\nb")]),
    ("names are as they are written", b"Data: a\nDATA: b\n data: c\ndata : d\ndatum: e\n\n", []),
    ("a line without a colon is a name", b"data\ndata: a\nevent\n\n", [message("\na")]),
    ("colons in values", b"data:a:b: c\n\n", [message("a:b: c")]),
    ("spaces in values", b"data:   a \ndata:\tb\n\n", [message("  a \n\tb")]),
    # dispatch
    ("without data there is no event", b"event: e\n\nevent: f\nid: 1\n\n", []),
    ("a type is for one event", b"event: e\n\ndata: a\n\nevent: f\ndata: b\n\ndata: c\n\n",
     [message("a"), message("b", "f"), message("c")]),
    ("the last type counts", b"event: e\nevent: f\ndata: a\n\n", [message("a", "f")]),
    ("an empty type is the usual one", b"event: e\nevent:\ndata: a\n\n", [message("a")]),
    ("blank lines are nothing", b"\n\n\ndata: a\n\n\n\n\n", [message("a")]),
    ("an event without a blank line is lost", b"data: a\n\ndata: b\n", [message("a")]),
    # ids
    ("an id stays", b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\n",
     [message("a", last_event_id="1"), message("b", last_event_id="1"), message("c", last_event_id="2")]),
    ("an id of an event without data stays, too", b"id: 1\n\ndata: a\n\n", [message("a", last_event_id="1")]),
    ("an id after the data", b"data: a\nid: 1\n\n", [message("a", last_event_id="1")]),
    ("the last id counts", b"id: 1\nid: 2\ndata: a\n\n", [message("a", last_event_id="2")]),
    ("an id with a zero byte is ignored", b"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n",
     [message("a", last_event_id="1"), message("b", last_event_id="1")]),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "messages"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_rule_with_every_cut(stream: bytes, messages: list[Message]) -> None:
    assert read(stream) == messages
    source = EventSource()
    assert [one for n in range(len(stream)) for one in source.feed(stream[n : n + 1])] == messages
    whole = EventSource()
    whole.feed(stream)
    for cut in range(len(stream) + 1):
        source = EventSource()
        assert source.feed(stream[:cut]) + source.feed(stream[cut:]) == messages
        state = (source.last_event_id, source.retry, source.comments, source.ignored)
        assert state == (whole.last_event_id, whole.retry, whole.comments, whole.ignored)


@pytest.mark.parametrize(
    ("stream", "retry"),
    [
        (b"retry: 2000\n\n", 2000),
        (b"retry:1\nretry: 2\ndata: a\n\n", 2),
        (b"retry: 2000", None),
        (b"retry: 20\nretry: -1\nretry: 1.5\nretry: 1s\nretry:  7\nretry\nretry: \n\n", 20),
        ("retry: ٣\n\n".encode(), None),
    ],
)
def test_when_to_come_back(stream: bytes, retry: int | None) -> None:
    source = EventSource()
    assert [message.type for message in source.feed(stream)] in ([], ["message"])
    assert source.retry == retry


def test_what_is_no_field_is_told() -> None:
    source = EventSource()
    source.feed(b"Data: a\n data: b\nid: \x00\nretry: x\nfoo\n: one\n:two\n\n")
    assert source.ignored == ["Data", " data", "id", "retry", "foo"]
    assert source.comments == [" one", "two"]


@pytest.mark.parametrize("stream", [b"data: \xff\n\n", b"data: \xc3\n\n", b"\xed\xa0\x80", b"data: \xf0\x9f\n"])
def test_what_is_no_utf_8_is_an_error(stream: bytes) -> None:
    source = EventSource()
    with pytest.raises(UnicodeDecodeError):
        [source.feed(stream[n : n + 1]) for n in range(len(stream))]


def test_an_event_is_dispatched_with_its_blank_line_and_not_later() -> None:
    for stream in (b"data: a\n\n", b"data: a\r\r", b"data: a\r\n\r"):
        source = EventSource()
        assert source.feed(stream[:-1]) == []
        assert source.feed(stream[-1:]) == [message("a")]


def test_a_new_connection_keeps_the_id_and_nothing_else() -> None:
    source = EventSource()
    assert source.feed(b"retry: 5\nid: 1\ndata: a\n\nid: 2\nevent: e\ndata: b\xc3") == [message("a", last_event_id="1")]
    assert (source.last_event_id, source.retry) == ("1", 5)
    source.opened()
    assert source.feed(b"\xef\xbb\xbf\ndata: c\n\n") == [message("c", last_event_id="1")]
    assert (source.last_event_id, source.retry) == ("1", 5)
    source.feed(b"data: d\r")
    source.opened()
    assert source.feed(b"\ndata: e\n\n") == [message("e", last_event_id="1")]
