import asyncio
import datetime
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from brain.errors import Refused
from brain.events import Citation
from brain.plugins import executor
from brain.plugins.context import Progress, Result
from brain.plugins.executor import BUSY, FAILED, Answer, Failure, Outcome
from brain.plugins.specialist import Specialist, from_schema, specialist


async def outcome_and_progress(
    one: Specialist[..., Any],
    params: Mapping[str, Any] | None = None,
    provided: Mapping[type, Any] | None = None,
    timeout: float = 2.0,
) -> tuple[Outcome, list[Progress]]:
    progress: list[Progress] = []
    arguments = executor.prepare(one, params or {})
    if isinstance(arguments, Failure):
        return arguments, progress
    outcome = await executor.execute(one, arguments, provided or {}, progress.append, timeout=timeout)
    return outcome, progress


def run(one: Any, params: Mapping[str, Any] | None = None, **options: Any) -> tuple[Outcome, list[Progress]]:
    made = one if isinstance(one, Specialist) else from_schema("it", "Does it.", {"type": "object"}, one, {})
    return asyncio.run(outcome_and_progress(made, params, **options))


# What a handler may be.


async def coroutine(params: Any) -> str:
    return "done"


async def async_generator(params: Any) -> AsyncIterator[Any]:
    yield Progress("half", 0.5)
    await asyncio.sleep(0)
    yield "done"


def plain(params: Any) -> str:
    return "done"


def generator(params: Any) -> Iterator[Any]:
    yield Progress("half", 0.5)
    yield "done"


def returns_a_coroutine(params: Any) -> Any:
    return coroutine(params)


def returns_an_async_generator(params: Any) -> Any:
    return async_generator(params)


class AsyncCallable:
    async def __call__(self, params: Any) -> str:
        return "done"


@pytest.mark.parametrize("handler", [coroutine, plain, returns_a_coroutine, AsyncCallable(), lambda params: "done"])
def test_handlers(handler: Any) -> None:
    assert run(handler) == (Answer("done"), [])


@pytest.mark.parametrize("handler", [async_generator, generator, returns_an_async_generator])
def test_handlers_with_progress(handler: Any) -> None:
    assert run(handler) == (Answer("done"), [Progress("half", 0.5)])


# What a handler may return.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("", ""),
        ("漢字 👩‍🚀", "漢字 👩‍🚀"),
        ("a\ud800b", "a\ufffdb"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([1, 2], "[1,2]"),
        (0, "0"),
        (False, "false"),
        (Result("text"), "text"),
        (Result("text", data=object()), "text"),
        ("x" * 5_000_000, "x" * 5_000_000),
    ],
)
def test_answers(value: Any, expected: str) -> None:
    async def handler(params: Any) -> Any:
        return value

    assert run(handler)[0] == Answer(expected)


class Lying:
    """No text, whatever is asked of it."""

    text = property(lambda self: 1 / 0)
    citations = text


class Boom(BaseException):
    pass


@pytest.mark.parametrize(
    "value",
    [
        None,
        object(),
        {"a": object()},
        {"a": "\ud800"},
        Result(5),  # type: ignore[arg-type]
        Result(None),  # type: ignore[arg-type]
        Result("x", citations=5),  # type: ignore[arg-type]
        Result("x", citations=["a"]),  # type: ignore[list-item]
        Result("x", citations=[Citation(1, "t")]),  # type: ignore[arg-type]
        Result("x", citations=[Citation("1", "t", 5)]),  # type: ignore[arg-type]
        Lying(),
    ],
)
def test_what_cannot_be_shown_is_a_failure(value: Any) -> None:
    async def handler(params: Any) -> Any:
        return value

    assert run(handler) == (FAILED, [])


def test_nothing_yielded_is_a_failure() -> None:
    async def handler(params: Any) -> AsyncIterator[Any]:
        yield Progress("working")

    assert run(handler) == (FAILED, [Progress("working")])


def test_the_last_item_counts() -> None:
    def handler(params: Any) -> Iterator[Any]:
        yield "first"
        yield Result("last")
        yield Progress("tidying")

    assert run(handler) == (Answer("last"), [Progress("tidying")])


def test_what_is_told_in_a_line_turns_nothing_round() -> None:
    def handler(params: Any) -> Iterator[Progress | Result]:
        yield Progress("pages \u202eread")
        yield Result("x", [Citation("1", "Sign in \u202eat\u2067", "https://moc.example.evil.example/")])

    outcome, told = run(handler)
    assert [one.text for one in told] == ["pages read"]
    assert isinstance(outcome, Answer)
    assert outcome.citations[0].title == "Sign in at"


def test_citations_are_bounded_and_made_fit() -> None:
    def endless() -> Iterator[Citation]:
        n = 0
        while True:
            n += 1
            yield Citation(str(n), "title\nof\t" + "x" * 1_000, "https://example.org/" + str(n))

    async def handler(params: Any) -> Result:
        return Result("x", citations=endless())  # type: ignore[arg-type]

    outcome, _ = run(handler)
    assert isinstance(outcome, Answer)
    assert len(outcome.citations) == 50
    assert outcome.citations[0] == Citation("1", "title of " + "x" * 491, "https://example.org/1")


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "", "//example.org", "https://" + "x" * 2_000]
)
def test_an_address_that_is_no_link_is_dropped(url: str) -> None:
    async def handler(params: Any) -> Result:
        return Result("x", citations=[Citation("1", "t", url)])

    assert run(handler)[0] == Answer("x", (Citation("1", "t", None),))


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress("a\n b", 2), Progress("a b", 1.0)),
        (Progress("a", -1), Progress("a", 0.0)),
        (Progress("a", float("nan")), Progress("a", None)),
        (Progress("a", float("inf")), Progress("a", 1.0)),
        (Progress("a", "half"), Progress("a", None)),  # type: ignore[arg-type]
        (Progress("a\ud800"), Progress("a\ufffd", None)),
        (Progress("x" * 1_000), Progress("x" * 300, None)),
    ],
)
def test_progress_is_made_fit(progress: Progress, expected: Progress) -> None:
    async def handler(params: Any) -> AsyncIterator[Any]:
        yield progress
        yield "done"

    assert run(handler) == (Answer("done"), [expected])


def test_progress_that_is_no_text_is_a_failure() -> None:
    async def of_loop(params: Any) -> AsyncIterator[Any]:
        yield Progress(5)  # type: ignore[arg-type]
        yield "done"

    def of_thread(params: Any) -> Iterator[Any]:
        yield Progress(5)  # type: ignore[arg-type]
        yield "done"

    assert run(of_loop) == (FAILED, [])
    assert run(of_thread) == (FAILED, [])


# What a handler may raise.

RAISED = [
    *(ValueError("/etc/passwd"), KeyError("x"), StopIteration(), StopAsyncIteration(), RecursionError(), MemoryError()),
    *(SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), Boom(), TimeoutError()),
]


@pytest.mark.parametrize("error", RAISED, ids=repr)
def test_whatever_is_raised_ends_the_call_and_nothing_else(error: BaseException) -> None:
    async def in_coroutine(params: Any) -> str:
        raise error

    async def in_async_generator(params: Any) -> AsyncIterator[Any]:
        yield Progress("a")
        raise error

    def in_plain(params: Any) -> str:
        raise error

    def in_generator(params: Any) -> Iterator[Any]:
        yield Progress("a")
        raise error

    assert run(in_coroutine) == (FAILED, [])
    assert run(in_async_generator) == (FAILED, [Progress("a")])
    assert run(in_plain) == (FAILED, [])
    assert run(in_generator) == (FAILED, [Progress("a")])


def test_the_text_of_an_exception_goes_to_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(params: Any) -> str:
        raise ValueError("/secret/path")

    with caplog.at_level(logging.WARNING, "brain"):
        assert run(handler)[0] == Failure(
            "failed", "it ran into an error of its own; go on without it, or try other parameters"
        )
    assert "/secret/path" in caplog.text


def test_a_refusal_is_shown_as_written() -> None:
    async def of_loop(params: Any) -> str:
        raise Refused("Which calendar? home, work")

    def of_thread(params: Any) -> Iterator[Any]:
        yield Progress("looking")
        raise Refused("Which calendar? home, work")

    assert run(of_loop)[0] == Failure("refused", "Which calendar? home, work")
    assert run(of_thread)[0] == Failure("refused", "Which calendar? home, work")


def test_a_refusal_that_is_no_text_has_no_reason() -> None:
    async def handler(params: Any) -> str:
        raise Refused(Lying())  # type: ignore[arg-type]

    assert run(handler)[0] == Failure("refused", "")


# Parameters and what is injected.


class Fridge:
    pass


class Cellar:
    pass


@specialist
async def cook(dish: str, servings: int = 2, *, fridge: Fridge, cellar: Cellar | None = None) -> str:
    """Cooks."""
    return f"{dish} for {servings}, {type(fridge).__name__}, {type(cellar).__name__}"


def test_keyword_only_parameters_are_filled_by_type() -> None:
    fridge, cellar = Fridge(), Cellar()
    assert run(cook, {"dish": "soup"}, provided={Fridge: fridge})[0] == Answer("soup for 2, Fridge, NoneType")
    assert run(cook, {"dish": "soup", "servings": 4}, provided={Fridge: fridge, Cellar: cellar})[0] == Answer(
        "soup for 4, Fridge, Cellar"
    )


def test_parameters_come_as_the_annotations_say() -> None:
    @specialist
    async def book(day: datetime.date, seats: list[int]) -> str:
        """Books."""
        return f"{type(day).__name__} {day.year} {seats[0]}"

    assert run(book, {"day": "2024-02-29", "seats": [7]})[0] == Answer("date 2024 7")
    assert run(book, {"day": "tomorrow", "seats": [7]})[0] == Failure(
        "invalid_params", "Invalid RFC3339 encoded date - at `$.day`; correct the parameters and ask again"
    )


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_a_class_of_parameters_that_raises_fails_the_call(error: type[BaseException]) -> None:
    @dataclass
    class Place:
        name: str

        def __post_init__(self) -> None:
            raise error

    @specialist
    async def weather(place: Place) -> str:
        """Weather."""
        return place.name

    assert run(weather, {"place": {"name": "Paris"}}) == (FAILED, [])


class Odd(str):
    """A string of a stranger: everything that is done with it fails."""

    def fails(self, *args: Any) -> Any:
        raise RuntimeError

    strip = split = startswith = isascii = encode = fails  # type: ignore[assignment]


def test_a_string_of_a_strangers_class_becomes_a_string() -> None:
    def answers(params: Any) -> Result:
        return Result(Odd("text"), [Citation(Odd("1"), Odd("t"), Odd("https://example.org"))])

    def refuses(params: Any) -> str:
        raise Refused(Odd("no"))

    outcome, _ = run(answers)
    assert outcome == Answer("text", (Citation("1", "t", "https://example.org"),))
    assert isinstance(outcome, Answer)
    assert type(outcome.text) is type(outcome.citations[0].url) is str
    outcome, _ = run(refuses)
    assert isinstance(outcome, Failure)
    assert type(outcome.reason) is str


def test_a_refusal_that_cannot_be_read_is_a_failure() -> None:
    class Broken(Refused):
        def __init__(self) -> None: ...

        @property
        def reason(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    def handler(params: Any) -> str:
        raise Broken

    assert run(handler) == (FAILED, [])


def test_the_model_cannot_give_what_is_injected() -> None:
    outcome, _ = run(cook, {"dish": "soup", "fridge": "mine", "servings": "two"}, provided={Fridge: Fridge()})
    assert outcome == Failure(
        "invalid_params",
        "Additional properties are not allowed ('fridge' was unexpected), only dish, servings; "
        "servings: 'two' is not of type 'integer'; correct the parameters and ask again",
    )


def test_the_first_of_several_types_is_taken() -> None:
    @specialist
    async def either(*, store: Fridge | Cellar) -> str:
        """Takes either."""
        return type(store).__name__

    assert run(either, provided={Cellar: Cellar(), Fridge: Fridge()})[0] == Answer("Fridge")
    assert run(either, provided={Cellar: Cellar()})[0] == Answer("Cellar")


def test_a_handler_cannot_change_what_was_asked() -> None:
    params = {"a": {"b": [1]}}

    def handler(given: dict[str, Any]) -> str:
        given["a"]["b"].clear()
        given.clear()
        return "done"

    assert run(handler, params)[0] == Answer("done")
    assert params == {"a": {"b": [1]}}


# The clocks.


@pytest.mark.alone
def test_the_hard_clock() -> None:
    async def hangs(params: Any) -> str:
        await asyncio.sleep(30)
        return "late"

    began = time.monotonic()
    outcome, _ = run(hangs, timeout=0.05)
    assert outcome == Failure("timeout", "it took longer than 0.05 seconds; ask for less, or go on without it")
    assert 0.05 <= time.monotonic() - began < 0.5


def test_one_second_is_no_seconds() -> None:
    async def hangs(params: Any) -> str:
        await asyncio.sleep(30)
        return "late"

    assert run(hangs, timeout=1)[0] == Failure(
        "timeout", "it took longer than 1 second; ask for less, or go on without it"
    )


def test_progress_sets_back_the_idle_clock_and_not_the_hard_one() -> None:
    @specialist(idle_timeout=0.25)
    async def steady(times: int) -> AsyncIterator[Any]:
        """Works."""
        for _ in range(times):
            await asyncio.sleep(0.03)
            yield Progress("on")
        yield "done"

    assert run(steady, {"times": 12})[0] == Answer("done")
    assert run(steady, {"times": 100}, timeout=0.3)[0] == Failure(
        "timeout", "it took longer than 0.3 seconds; ask for less, or go on without it"
    )


@pytest.mark.parametrize("blocking", [True, False])
def test_the_idle_clock(blocking: bool) -> None:
    end = threading.Event()

    @specialist(idle_timeout=0.05)
    async def waits() -> AsyncIterator[Any]:
        """Waits."""
        yield Progress("on")
        await asyncio.sleep(30)

    @specialist(idle_timeout=0.05)
    def blocks() -> Iterator[Any]:
        """Blocks."""
        yield Progress("on")
        end.wait(30)

    outcome, progress = run(blocks if blocking else waits)
    end.set()
    assert outcome == Failure("timeout", "it took longer than 0.05 seconds; ask for less, or go on without it")
    assert progress == [Progress("on")]


def test_an_endless_stream_of_progress_is_ended_by_the_hard_clock() -> None:
    async def of_loop(params: Any) -> AsyncIterator[Any]:
        while True:
            yield Progress("on")

    def of_thread(params: Any) -> Iterator[Any]:
        while True:
            yield Progress("on")

    assert run(of_loop, timeout=0.1)[0] == Failure(
        "timeout", "it took longer than 0.1 seconds; ask for less, or go on without it"
    )
    assert run(of_thread, timeout=0.1)[0] == Failure(
        "timeout", "it took longer than 0.1 seconds; ask for less, or go on without it"
    )


# Letting go.


async def stubborn(params: Any) -> AsyncIterator[Any]:
    """Goes on for half a second, however often it is cancelled."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
        yield Progress("still here")
    yield "done"


@pytest.mark.alone
def test_one_that_ignores_its_cancellation_is_left_to_itself() -> None:
    one = from_schema("stubborn", "Does it.", {"type": "object"}, stubborn, {})

    async def main() -> None:
        began = time.monotonic()
        outcome, progress = await outcome_and_progress(one, timeout=0.05)
        assert isinstance(outcome, Failure)
        assert outcome.code == "timeout"
        assert time.monotonic() - began < 0.4
        heard = len(progress)
        await asyncio.sleep(0.05)
        assert len(progress) == heard

    asyncio.run(main())


def test_those_that_ignore_their_cancellation_are_bounded() -> None:
    one = from_schema("stubborn", "Does it.", {"type": "object"}, stubborn, {})

    async def main() -> None:
        given_up = await asyncio.gather(*(outcome_and_progress(one, timeout=0.01) for _ in range(8)))
        assert {outcome.code for outcome, _ in given_up if isinstance(outcome, Failure)} == {"timeout"}
        assert (await outcome_and_progress(one, timeout=0.01))[0] == BUSY
        await asyncio.sleep(0.6)
        assert (await outcome_and_progress(one, timeout=2))[0] == Answer("done")

    asyncio.run(main())


def block(end: threading.Event) -> Any:
    return lambda params: end.wait(30) and "late"


@pytest.mark.alone
def test_a_cancelled_call_lets_go_at_once() -> None:
    end = threading.Event()

    async def cleans_up(params: Any) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(30)
        return "late"

    async def seconds_to_let_go(handler: Any) -> float:
        one = from_schema("it", "Does it.", {"type": "object"}, handler, {})
        task = asyncio.ensure_future(outcome_and_progress(one))
        await asyncio.sleep(0.02)
        began = time.monotonic()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return time.monotonic() - began

    async def main() -> None:
        for handler in (coroutine_that_hangs, block(end), stubborn, cleans_up):
            assert await seconds_to_let_go(handler) < 0.15
        end.set()

    asyncio.run(main())


async def coroutine_that_hangs(params: Any) -> str:
    await asyncio.Event().wait()
    return "never"


def test_too_many_abandoned_threads_make_it_unavailable() -> None:
    end = threading.Event()
    one = from_schema("blocks", "Does it.", {"type": "object"}, block(end), {})

    async def main() -> None:
        for outcome, _ in await asyncio.gather(*(outcome_and_progress(one, timeout=0.02) for _ in range(8))):
            assert isinstance(outcome, Failure)
            assert outcome.code == "timeout"
        assert (await outcome_and_progress(one))[0] == BUSY
        end.set()

    asyncio.run(main())


def test_nothing_is_left_running() -> None:
    async def main() -> set[Any]:
        one = from_schema("it", "Does it.", {"type": "object"}, coroutine_that_hangs, {})
        await outcome_and_progress(one, timeout=0.01)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()
