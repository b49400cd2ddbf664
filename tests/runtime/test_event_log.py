"""The event log: numbered native frames, readable from any event, in bounded memory."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Limits,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.runtime.event_log import EventLog

DONE = Done("complete", "m1", "", 0, 1, None, 5)
EVERY_KIND: list[Event] = [
    TurnStart("t1", "c1", "builtin", "mono", Limits(2, 1, 30.0, 0.5)),
    Token("Grüße 😀\n\nid: t1.3\n\n\r\u2028"),
    Thinking("event: done\ndata: {}"),
    SpecialistStart("c1", "ocr", {"page": 3, "x": None, "n": 10**30, "deep": [{"ä": [1.5]}]}, "auto"),
    SpecialistProgress("c1", "half", 0.5),
    SpecialistProgress("c1", "somewhere"),
    SpecialistResult("c1", "ocr", {}, "a\n\nb", (Citation("1", "A"), Citation("2", "B", "https://b")), True, 12),
    SpecialistResult("c1", "ocr", {"page": 3}, "", (), False, 0, "approved"),
    SpecialistError("c2", "?", None, "malformed", "no JSON", 0),
    SpecialistError("c2", "ocr", {"page": 0}, "declined", "no", 3, "declined"),
    ApprovalRequired("c3", "mail", {"to": "ann"}, datetime(2026, 11, 21, 8, 30, 0, 250, tzinfo=UTC), "To: ann\nHi"),
    ApprovalRequired("c3", "mail", {}, datetime(2026, 11, 21, tzinfo=UTC)),
    ToolCall("call_1", "theirs", {"a": {}}),
    Notice("prompt_progress", "Reading", 0.25),
    Notice("steered", "more"),
    Usage(7, 2, None, True),
    Usage(7, 2, 0, False),
    Error("model_failed", "It broke.", True),
    Error("model_failed", "It broke.", False, 503),
    Done("length", "m1", "Hi", 1, 2, 4, 9),
    DONE,
]
# Far more than one block; the long texts close blocks of their own.
MIXED: list[Event] = [
    *(Token(f"wörd{n}") for n in range(70)),
    Thinking("\n\nid: t1.9\n\n"),
    Token("😀" * 30_000),
    *(Token("\n") for _ in range(3)),
    Notice("steered", "a" * 70_000),
    *(Token(f"{n}\n\n") for n in range(64)),
    *EVERY_KIND,
]


def log_with(events: Sequence[Event], size: int = 1, *, replayable: bool = True) -> EventLog:
    """Return a log with these events, appended in batches of this size."""
    log = EventLog("t1", replayable=replayable)
    for n in range(0, len(events), size):
        log.append(events[n : n + size])
    return log


def readable_after(log: EventLog) -> list[int]:
    """Return the event numbers after which the log can be read."""
    numbers = []
    for after in range(-1, log.last + 2):
        try:
            log.check(after)
        except BadRequest as error:
            assert (error.code, error.status) == ("gone", 410)  # noqa: PT017 - most numbers raise nothing
        else:
            numbers.append(after)
    return numbers


def test_events_are_numbered_frames() -> None:
    log = log_with([Token("a"), Thinking("ü"), Token("\n"), DONE], size=3)
    assert log.last == 4
    assert log.frames(0) == [
        b'retry: 2000\nevent: token\ndata: {"text":"a"}\nid: t1.1\n\n'
        b'event: thinking\ndata: {"text":"\xc3\xbc"}\nid: t1.2\n\n'
        b'event: token\ndata: {"text":"\\n"}\nid: t1.3\n\n'
        b'event: done\ndata: {"stop_reason":"complete","message_id":"m1","text":"","calls":0,"passes":1,'
        b'"first_token_ms":null,"total_ms":5}\nid: t1.4\n\n'
    ]
    assert log.frames(1, 2) == [b'event: thinking\ndata: {"text":"\xc3\xbc"}\nid: t1.2\n\n']


@pytest.mark.parametrize("size", [1, 7, 64, 1_000])
def test_every_cut_gives_exactly_the_events_between(size: int) -> None:
    log = log_with(MIXED, size)
    whole = b"".join(log.frames(0))
    ends = [0, *(whole.index(b"\nid: t1.%d\n\n" % n) + len(b"\nid: t1.%d\n\n" % n) for n in range(1, log.last + 1))]
    assert log.last == len(MIXED)
    assert ends[-1] == len(whole)
    for after, begin in enumerate(ends):
        assert b"".join(log.frames(after)) == whole[begin:]
        for until in {after, after + 1, after + 64, 70, 71, 72, log.last - 1, log.last, log.last + 1}:
            end = ends[min(until, log.last)]
            pieces = log.frames(after, until)
            assert b"".join(pieces) == whole[begin:end]
            assert b"" not in pieces


@pytest.mark.parametrize("sent", [0, 1, 70, 300])
def test_the_numbers_of_the_next_process_begin_after_all_that_the_last_one_may_have_sent(sent: int) -> None:
    """A reader of the last process gets all events of the next one, whatever it received."""
    log = EventLog("t1", epoch=2)
    assert (log.start, log.last, log.first, log.events()) == (200_000_000, 200_000_000, 200_000_001, [])
    log.append([Token("a"), DONE])
    assert log.frames(sent)[0].startswith(b'event: token\ndata: {"text":"a"}\nid: t1.200000001\n\n')
    for after in (sent, 100_000_000 + sent, 200_000_000):
        assert log.events(after) == [Token("a"), DONE]
    assert (log.events(200_000_001), log.events(sent, 200_000_001)) == ([DONE], [Token("a")])
    with pytest.raises(BadRequest) as raised:
        log.events(200_000_003)
    assert (raised.value.code, raised.value.status, raised.value.field) == ("gone", 410, "last-event-id")


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_an_event_is_decoded_to_an_equal_one(event: Event) -> None:
    assert log_with([event]).events() == [event]


@pytest.mark.parametrize(
    ("after", "until", "field"),
    [(5, None, "last-event-id"), (-1, None, "last-event-id"), (0, 5, None)],
)
def test_events_that_never_happened_are_gone(after: int, until: int | None, field: str | None) -> None:
    log = log_with([Token("a")] * 4)
    with pytest.raises(BadRequest) as raised:
        log.events(after, until)
    assert (raised.value.code, raised.value.status, raised.value.field) == ("gone", 410, field)


def test_a_long_log_loses_its_older_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 20_000)
    log = EventLog("t1")
    lost = set()
    for n in range(1, 2_001):
        log.append([Token(f"{n:05}")])
        assert log.bytes <= 20_000 + 64 * 60
        if n % 64 == 0:
            lost.add(readable_after(log)[0])
    readable = readable_after(log)
    assert readable == list(range(readable[0], 2_001))
    assert all(after % 64 == 0 for after in lost)  # whole blocks
    assert log.bytes == sum(map(len, log.frames(readable[0])))
    assert log.bytes >= 10_000 - 64 * 60
    assert log.events(readable[0]) == [Token(f"{n:05}") for n in range(readable[0] + 1, 2_001)]
    for after, field in [(0, None), (readable[0] - 1, "last-event-id")]:
        with pytest.raises(BadRequest) as raised:
            log.frames(after)
        assert (raised.value.code, raised.value.status, raised.value.field) == ("gone", 410, field)


def test_the_newest_block_is_never_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 100_000)
    large = Done("complete", "m1", "ä" * 200_000, 0, 1, None, 5)
    log = log_with([*[Token("a" * 1_000)] * 100, large])
    assert log.events(100) == [large]
    for _ in range(9):
        log.discard_older_half()
    assert log.events(readable_after(log)[0])[-1] == large


def test_a_log_that_is_not_replayable_keeps_nothing() -> None:
    log = EventLog("t1", replayable=False)
    heard: list[tuple[Sequence[Event], bytes]] = []
    log.subscribe(lambda events, frames: heard.append((events, frames)))
    for batch in ([Token("a" * 100_000)] * 100, [DONE]):
        log.append(batch)
    assert (log.last, log.has_ended, log.bytes) == (101, True, 0)
    assert heard == [([Token("a" * 100_000)] * 100, b""), ([DONE], b"")]
    for after in (0, 1, 101):
        with pytest.raises(BadRequest) as raised:
            log.frames(after)
        assert (raised.value.code, raised.value.status) == ("gone", 410)


def test_subscribers_are_notified_of_everything_from_then_on() -> None:
    log = log_with([Token("a")])
    heard: list[tuple[str, int, bool, bytes]] = []
    leave_first = log.subscribe(lambda events, frames: heard.append(("first", log.last, log.has_ended, frames)))
    log.append([Token("b")])
    leave_second = log.subscribe(lambda events, frames: heard.append(("second", log.last, log.has_ended, frames)))
    log.append([Token("c"), DONE])
    assert log.subscribers == 2
    leave_first()
    leave_first()  # changes nothing
    leave_second()
    assert log.subscribers == 0
    log.append([Token("d")])
    b, rest = b"".join(log.frames(1, 2)), b"".join(log.frames(2, 4))
    assert heard == [("first", 2, False, b), ("first", 4, True, rest), ("second", 4, True, rest)]


def test_a_subscriber_may_unsubscribe_while_it_is_notified() -> None:
    log = EventLog("t1")
    heard: list[tuple[str, Sequence[Event]]] = []

    def once(events: Sequence[Event], frames: bytes) -> None:
        heard.append(("once", events))
        unsubscribe()

    log.subscribe(lambda events, frames: heard.append(("before", events)))
    unsubscribe = log.subscribe(once)
    log.subscribe(lambda events, frames: heard.append(("after", events)))
    log.append([Token("a")])
    log.append([DONE])
    assert heard == [
        ("before", [Token("a")]),
        ("once", [Token("a")]),
        ("after", [Token("a")]),
        ("before", [DONE]),
        ("after", [DONE]),
    ]


def test_all_readers_of_a_log_that_is_cut_off_must_connect_again() -> None:
    log = log_with([Token("a")])
    heard: list[tuple[Sequence[Event], bytes]] = []
    for _ in range(2):
        log.subscribe(lambda events, frames: heard.append((events, frames)))
    log.cut_off()
    assert (heard, log.is_cut_off, log.has_ended, log.subscribers) == ([((), b"")] * 2, True, False, 0)
    log.append([DONE])  # that nobody must hear
    assert len(heard) == 2
