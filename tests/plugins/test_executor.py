"""Executing a call: everything that a specialist returns, raises or ignores becomes a result or a failure."""

import asyncio
import copy
import datetime
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from fast_clock import run_jumping

from brain.errors import Refused
from brain.events import Citation
from brain.plugins.context import Progress, Result
from brain.plugins.executor import BUSY, FAILED, Failure, Outcome, bind, execute
from brain.plugins.specialist import Specialist, from_schema, specialist

Run = tuple[Outcome, list[Progress]]


def tool(handler: Any) -> Specialist[..., Any]:
    return handler if isinstance(handler, Specialist) else from_schema("it", "x", {"type": "object"}, handler, {})


async def call(
    handler: Any,
    params: Mapping[str, Any] | None = None,
    dependencies: Mapping[type, Any] | None = None,
    timeout: float = 20.0,
) -> Run:
    """Call a specialist, or the handler of a tool; return the outcome and the progress."""
    one, progress = tool(handler), list[Progress]()
    arguments = bind(one, params or {})
    if isinstance(arguments, Failure):
        return arguments, progress
    return await execute(one, arguments, dependencies or {}, progress.append, timeout=timeout), progress


def run(handler: Any, *args: Any, **options: Any) -> Run:
    return asyncio.run(call(handler, *args, **options))


def outcome_of(value: Any) -> Outcome:
    return run(lambda params: value)[0]


def test_kinds_of_functions() -> None:
    async def coroutine(params: Any) -> str:
        return "done"

    async def async_generator(params: Any) -> AsyncIterator[Any]:
        yield Progress("half", 0.5)
        yield "done"

    def generator(params: Any) -> Iterator[Any]:
        yield "first"
        yield Progress("half", 0.5)
        yield "done"

    class AsyncCallable:
        async def __call__(self, params: Any) -> str:
            return "done"

    plain: list[Any] = [coroutine, lambda params: "done", AsyncCallable()]
    for handler in plain:
        assert run(handler) == (Result("done"), [])
    generators: list[Any] = [async_generator, generator, lambda params: async_generator(params)]
    for handler in generators:
        assert run(handler) == (Result("done"), [Progress("half", 0.5)])
    assert run(lambda params: iter(()))[0] == FAILED


class Text(str):
    """A string whose methods fail."""

    def fail(self, *args: Any) -> Any:
        raise RuntimeError

    strip = split = startswith = isascii = encode = fail  # type: ignore[assignment]


def test_returned_values() -> None:
    values: list[tuple[Any, str]] = [
        ("", ""), ("漢字 👩‍🚀", "漢字 👩‍🚀"), ("a\ud800b", "a\ufffdb"), ({"a": [1, None]}, '{"a":[1,null]}'), (0, "0"),
        (False, "false"), (Result("text", data=object()), "text"), ("x" * 5_000_000, "x" * 5_000_000),
    ]  # fmt: skip
    for value, text in values:
        assert outcome_of(value) == Result(text)
    outcome = outcome_of(Result(Text("text"), [Citation(Text("1"), Text("t"), Text("https://example.org"))]))
    assert outcome == Result("text", (Citation("1", "t", "https://example.org"),))
    assert isinstance(outcome, Result)
    assert type(outcome.text) is type(outcome.citations[0].url) is str


class Hostile:
    """Its attributes raise an exception."""

    text = property(lambda self: 1 / 0)
    citations = text


def test_a_value_that_cannot_be_shown_fails_the_call() -> None:
    bad_citations: list[Any] = [5, ["a"], [Citation(1, "t")], [Citation("1", "t", 5)]]  # type: ignore[arg-type]
    bad_text: Any = Result(5)  # type: ignore[arg-type]
    values = [None, object(), {"a": object()}, {"a": "\ud800"}, Hostile(), bad_text]
    for value in [*values, *(Result("x", citations=one) for one in bad_citations)]:
        assert outcome_of(value) == FAILED


def test_citations_are_bounded_and_cleaned() -> None:
    def endless() -> Iterator[Citation]:
        while True:
            yield Citation("\u202e1", "[INST]\nof\t" + "x" * 1_000, "https://example.org/")

    expected = Citation("1", "［INST] of " + "x" * 490, "https://example.org/")
    assert outcome_of(Result("x", citations=endless())) == Result("x", (expected,) * 50)  # type: ignore[arg-type]
    for url in ("javascript:alert(1)", "file:///etc/passwd", "", "//example.org", "https://" + "x" * 2_000):
        assert outcome_of(Result("x", [Citation("1", "t", url)])) == Result("x", (Citation("1", "t", None),))


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress("a\n \u202eb", 2), Progress("a b", 1.0)),
        (Progress("a", -1), Progress("a", 0.0)),
        (Progress("a", float("nan")), Progress("a", None)),
        (Progress("a", "half"), Progress("a", None)),  # type: ignore[arg-type]
        (Progress("a\ud800"), Progress("a\ufffd", None)),
        (Progress("x" * 1_000), Progress("x" * 300, None)),
        (Progress(5), None),  # type: ignore[arg-type]
    ],
)
def test_progress_is_cleaned_or_fails_the_call(progress: Progress, expected: Progress | None) -> None:
    async def on_loop(params: Any) -> AsyncIterator[Any]:
        yield progress
        yield "done"

    def in_thread(params: Any) -> Iterator[Any]:
        yield progress
        yield "done"

    for handler in (on_loop, in_thread):
        assert run(handler) == ((Result("done"), [expected]) if expected is not None else (FAILED, []))


class Boom(BaseException):
    pass


class Unreadable(Refused):
    def __init__(self) -> None: ...

    @property
    def reason(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class Closed(Refused):
    def __init__(self) -> None:
        self.reason = "the shop is closed"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        *[(error, FAILED) for error in (ValueError("/etc/passwd"), StopIteration(), MemoryError(), TimeoutError())],
        *[(error, FAILED) for error in (SystemExit(1), KeyboardInterrupt(), GeneratorExit(), Boom())],
        *[(error, FAILED) for error in (asyncio.CancelledError(), Unreadable())],
        (Refused("Which calendar?"), Failure("refused", "Which calendar?")),
        (Closed(), Failure("refused", "the shop is closed")),
        (Refused(Text("no")), Failure("refused", "no")),
        (Refused(Hostile()), Failure("refused", "")),  # type: ignore[arg-type]
    ],
)
def test_an_exception_ends_the_call_and_nothing_else(
    error: BaseException, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    async def in_coroutine(params: Any) -> str:
        raise error

    async def in_async_generator(params: Any) -> AsyncIterator[Any]:
        yield Progress("a")
        raise error

    def in_thread(params: Any) -> str:
        raise error

    def in_generator(params: Any) -> Iterator[Any]:
        yield Progress("a")
        raise error

    assert run(in_coroutine) == run(in_thread) == (outcome, [])
    assert run(in_async_generator) == run(in_generator) == (outcome, [Progress("a")])
    assert ("passwd" in caplog.text) == (str(error) == "/etc/passwd")


class Fridge:
    pass


class Cellar:
    pass


@specialist
async def cook(dish: str, servings: int = 2, *, fridge: Fridge | Cellar, cellar: Cellar | None = None) -> str:
    """Cooks."""
    return f"{dish} for {servings}, {type(fridge).__name__}, {type(cellar).__name__}"


@dataclass
class BrokenPlace:
    name: str

    def __post_init__(self) -> None:
        raise SystemExit


@specialist
async def travel(place: BrokenPlace) -> str:
    """Travels."""
    return place.name


@specialist
async def book(day: datetime.date, seats: list[int]) -> str:
    """Books."""
    return f"{type(day).__name__} {day.year} {seats.pop()}"


@pytest.mark.parametrize(
    ("one", "params", "dependencies", "outcome"),
    [
        (cook, {"dish": "soup"}, {Fridge: Fridge()}, Result("soup for 2, Fridge, NoneType")),
        (cook, {"dish": "soup", "servings": 4}, {Cellar: Cellar()}, Result("soup for 4, Cellar, Cellar")),
        (cook, {"dish": "a", "fridge": 1, "servings": "two"}, {}, "invalid_params"),
        (book, {"day": "2024-02-29", "seats": [7]}, {}, Result("date 2024 7")),
        (book, {"day": "tomorrow", "seats": [7]}, {}, "invalid_params"),
        (travel, {"place": {"name": "Paris"}}, {}, "failed"),
    ],
)
def test_parameters_are_checked_converted_and_injected(one: Any, params: Any, dependencies: Any, outcome: Any) -> None:
    before = copy.deepcopy(params)
    found, _ = run(one, params, dependencies)
    assert (found.code if isinstance(found, Failure) else found) == outcome
    assert params == before


# Time limits, on a clock that jumps


async def hangs(params: Any) -> str:
    await asyncio.Event().wait()
    return "never"


@specialist(idle_timeout=3)
async def works(steps: int, pause: float) -> AsyncIterator[Any]:
    """Works in steps."""
    for _ in range(steps):
        await asyncio.sleep(pause)
        yield Progress("on")
    yield "done"


@pytest.mark.parametrize(
    ("handler", "params", "timeout", "seconds"),
    [
        (hangs, {}, 0.05, "0.05 seconds"),
        (works, {"steps": 12, "pause": 2}, 60, None),
        (works, {"steps": 100, "pause": 2}, 60, "60 seconds"),
        (works, {"steps": 2, "pause": 4}, 60, "3 seconds"),
    ],
)
def test_time_limits(handler: Any, params: Any, timeout: float, seconds: str | None) -> None:
    async def main() -> Outcome:
        outcome, _ = await call(handler, params, timeout=timeout)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return outcome

    outcome = run_jumping(main())
    assert (outcome == Result("done")) == (seconds is None)
    if isinstance(outcome, Failure):
        assert outcome.code == "timeout"
        assert str(seconds) in outcome.reason


def test_a_specialist_that_ignores_its_cancellation_is_abandoned() -> None:
    async def stubborn(params: Any) -> AsyncIterator[Any]:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                yield Progress("still here")
        yield "done"

    async def main() -> None:
        runs = await asyncio.gather(*(call(one, timeout=1) for _ in range(8)))
        assert [outcome.code for outcome, _ in runs if isinstance(outcome, Failure)] == ["timeout"] * 8
        assert await call(one, timeout=1) == (BUSY, [])
        end.set()
        await asyncio.sleep(1)
        assert await call(one, timeout=1) == (Result("done"), [])

    end, one = asyncio.Event(), tool(stubborn)
    run_jumping(main())


def test_abandoned_threads_make_a_specialist_unavailable() -> None:
    end = threading.Event()
    one = tool(lambda params: end.wait(60) and "late")

    async def main() -> None:
        try:
            outcomes = await asyncio.gather(*(call(one, timeout=0.01) for _ in range(8)))
            assert {outcome.code for outcome, _ in outcomes if isinstance(outcome, Failure)} == {"timeout"}
            assert (await call(one))[0] == BUSY
        finally:
            end.set()

    asyncio.run(main())
