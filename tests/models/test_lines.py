import time
from collections.abc import Iterator

import pytest

from brain.errors import ModelError
from brain.models.lines import LINE_BYTES, Lines, ServerSentEvents, Splitter


def splits(data: bytes) -> Iterator[list[bytes]]:
    """Whole, cut once at every place, and byte by byte; with empty reads in between."""
    yield [data]
    for place in range(len(data) + 1):
        yield [data[:place], b"", data[place:]]
    yield [data[place : place + 1] for place in range(len(data))]


def lines(pieces: list[bytes]) -> list[bytes]:
    return items(Lines(), pieces)


def events(pieces: list[bytes]) -> list[bytes]:
    return items(ServerSentEvents(), pieces)


def items(splitter: Splitter, pieces: list[bytes]) -> list[bytes]:
    found = [item for piece in pieces for item in splitter.items(splitter.feed(piece))]
    data = [splitter.data(item) for item in [*found, *splitter.items(splitter.close())]]
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
def test_lines_end_at_lf_cr_and_crlf_however_they_are_cut(data: bytes, expected: list[bytes]) -> None:
    for pieces in splits(data):
        assert lines(pieces) == expected, pieces


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # the examples of WHATWG HTML, 9.2.6
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         [b"first event", b"second event", b" third event"]),
        (b"data\n\ndata\ndata\n\ndata:", [b"", b"\n"]),
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
        (b"data: unfinished\n", []),
    ],
)  # fmt: skip
def test_events_are_those_of_the_standard_however_they_are_cut(data: bytes, expected: list[bytes]) -> None:
    for pieces in splits(data):
        assert events(pieces) == expected, pieces


def test_a_line_that_never_ends_is_an_error_and_not_all_memory() -> None:
    splitter = Lines()
    splitter.feed(b"x" * LINE_BYTES)
    with pytest.raises(ModelError, match="The model server sent a line that never ends") as raised:
        splitter.feed(b"x")
    assert raised.value.code == "model_failed"


def test_an_event_that_never_ends_is_one_too() -> None:
    splitter = ServerSentEvents()
    line = b"data: " + b"x" * (LINE_BYTES // 4) + b"\n"
    for _ in range(3):
        assert splitter.feed(line) == b""
    with pytest.raises(ModelError):
        splitter.feed(line)


@pytest.mark.alone
def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    def seconds(length: int) -> float:
        splitter, began = Lines(), time.perf_counter()
        for _ in range(length // 64):
            splitter.feed(b"x" * 64)
        assert len(splitter.feed(b"\n")) == length + 1
        return time.perf_counter() - began

    short = max(min(seconds(96 * 1024) for _ in range(3)), 0.002)
    assert min(seconds(1536 * 1024) for _ in range(3)) < 64 * short
