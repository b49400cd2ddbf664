"""Calls: which ones may run, and that each has its event and exactly one block."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from fast_clock import run_jumping
from turn_helpers import (
    PNG,
    WAIT,
    Player,
    ask_for,
    done,
    echo,
    failed,
    played,
    read,
    registry_of,
    short,
    succeeded,
    turn_of,
)

from brain.events import Citation, Limits, SpecialistResult
from brain.messages import Attachment, Call, Exchange, History, Text
from brain.plugins.context import Context, Progress, Result
from brain.plugins.registry import Registry
from brain.plugins.specialist import specialist
from brain.prompts.templates import REASONS
from brain.settings import Settings

ECHO = "SPECIALIST_REQUEST[echo]"
PRIVATE = "SPECIALIST_REQUEST[private]"


def numbered(n: int, name: str = "echo") -> str:
    return f'SPECIALIST_REQUEST[{name}:{{"text":"{n}"}}]'


def outcomes(*passes: str, **options: Any) -> list[str | None]:
    """The outcomes of the calls of a turn, in order."""
    events, turn, _ = played(*passes, "Done.", **options)
    calls = [part for part in turn.state.exchange.parts if isinstance(part, Call)]
    emitted = {event["error"]: event["code"] for event in events if "error" in event}
    assert emitted == {call.id: call.code for call in calls if call.code is not None}
    assert all(call.block.count("[SPECIALIST_") == 1 for call in calls)
    return [call.outcome for call in calls]


MALFORMED = "SPECIALIST_REQUEST[echo:{]"


@pytest.mark.parametrize(
    ("limits", "calls", "expected"),
    [
        (Limits(calls=2), [numbered(n) for n in range(3)], ["ok", "ok", "call_limit"]),
        (Limits(calls=1), [MALFORMED, MALFORMED], ["malformed", "call_limit"]),
        (
            Limits(calls_per_specialist=2),
            [numbered(1), numbered(2), MALFORMED, numbered(3), "SPECIALIST_REQUEST[add]"],
            ["ok", "ok", "malformed", "specialist_limit", "invalid_params"],
        ),
        (
            Limits(calls=9, calls_per_specialist=5),
            [numbered(1), numbered(1), numbered(2), numbered(1), numbered(2)],
            ["ok", "ok", "ok", "repeated", "ok"],
        ),
        (Limits(calls_per_specialist=2), [ECHO] * 3, ["ok", "ok", "repeated"]),
        (Limits(calls_per_specialist=1), [MALFORMED, numbered(1, "x"), ECHO], ["malformed", "unknown", "ok"]),
    ],
)
def test_limits_of_calls(limits: Limits, calls: list[str], expected: list[str]) -> None:
    assert outcomes("".join(calls), ask=ask_for(limits=limits)) == expected


@pytest.mark.parametrize(
    ("marker", "options", "expected"),
    [
        (ECHO, {"registry": registry_of(registry=Registry(Settings(allowed_specialists=("add",))))}, "denied"),
        (ECHO, {"ask": ask_for(specialists=["add"])}, "denied"),
        (ECHO, {"ask": ask_for(specialists=["echo"])}, "ok"),
        (PRIVATE, {"ask": ask_for(user=None)}, "unauthorized"),
        (PRIVATE, {}, "ok"),
        ("SPECIALIST_REQUEST[oracle]", {}, "unknown"),
    ],
)
def test_access_to_specialists(marker: str, options: dict[str, Any], expected: str) -> None:
    assert outcomes(marker, **options) == [expected]


@pytest.mark.parametrize(
    ("code", "marker", "runs", "reason"),
    [
        ("malformed", 'SPECIALIST_REQUEST[echo:{"text"}]', False, None),
        ("malformed", "SPECIALIST_REQUEST[add:{", False, None),
        ("invalid_params", 'SPECIALIST_REQUEST[add:{"a":"x","c":1}]', False, None),
        ("oversized", "SPECIALIST_REQUEST[echo:{" + " " * 20000 + "}]", False, None),
        ("unavailable", "SPECIALIST_REQUEST[absent]", False, REASONS["unavailable"]),
        ("declined", "SPECIALIST_REQUEST[sends]", False, None),
        ("refused", "SPECIALIST_REQUEST[refuses]", True, "Which calendar? home, work"),
        ("timeout", "SPECIALIST_REQUEST[hangs]", True, None),
        ("failed", "SPECIALIST_REQUEST[breaks]", True, None),
    ],
)
def test_a_call_that_fails(code: str, marker: str, runs: bool, reason: str | None) -> None:
    events, turn, model = played(f"Look: {marker}" + ("" if marker.endswith("{") else " and"), "Done.")
    name = marker.partition("[")[2].partition(":")[0].rstrip("]")
    start = succeeded(name, "")[:1] if runs else []
    assert events == ["Look: ", *start, failed(name, code), "Done.", done("Look: Done.", 1, 2)]
    before, call, after = turn.state.exchange.parts
    assert (before, after) == (Text("Look: ", 1), Text("Done.", 2))
    assert isinstance(call, Call)
    assert (call.reason == reason) or reason is None
    assert call.block.startswith(f"[SPECIALIST_ERROR: {name} failed - {call.reason}")
    assert "swordfish" not in repr(events) + repr(model.requests)


@pytest.mark.parametrize(
    ("call", "ends"),
    [
        (Call("absent", "SPECIALIST_REQUEST[absent]", {}, "c1"), [failed("absent", "unavailable")]),
        (Call("gone", "SPECIALIST_REQUEST[gone]", {}, "c1"), [failed("gone", "unknown")]),
        (Call("echo", ECHO, {}, "c1"), succeeded("echo", "nothing")),
        (Call("echo", ECHO, {}, "c1", has_started=True), [failed("echo", "interrupted")]),
    ],
)
def test_a_call_of_an_interrupted_turn_is_checked_again(call: Call, ends: list[Any]) -> None:
    question = Exchange("Hi", [call])
    events, _, _ = played("Done.", conversation=History("c", question=question), resumes_after=0)
    assert events[:-2] == ends


# Identical calls


def test_a_failing_first_of_two_identical_adjacent_calls_is_tried_once_more() -> None:
    tries = []

    @specialist
    async def flaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError
        return "works"

    marker = "SPECIALIST_REQUEST[flaky]"
    events, _, _ = played(marker * 2, "Done.", registry=registry_of(flaky))
    assert events[1:4] == [failed("flaky", "failed"), *succeeded("flaky", "works", "c2")]


def test_a_result_is_cached_for_the_same_user_files_and_model() -> None:
    runs = []

    @specialist(read_only=True, cache_seconds=60)
    async def news(topic: str) -> str:
        """News."""
        runs.append(topic)
        return f"news {len(runs)}"

    registry = registry_of(news)

    def ask(name: str = "player", sees_images: bool = False, **options: Any) -> tuple[str, bool]:
        model = Player('SPECIALIST_REQUEST[news:{"topic":"x"}]', "Done.")
        model.name, model.sees_images = name, sees_images
        events = short(asyncio.run(read(turn_of(model, registry, ask_for(**options)))))
        return next((event["text"], "cached" in event) for event in events if "result" in event)

    assert ask() == ("news 1", False)
    assert ask() == ("news 1", True)
    assert ask(user="eve") == ("news 2", False)
    assert ask(attachments=(Attachment(1, "a.png", "image/png", PNG),)) == ("news 3", False)
    assert ask("other") == ("news 4", False)
    assert ask(sees_images=True) == ("news 5", False)


class CountingRegistry(Registry):
    """Records the sizes of cached results. With `is_full`, caching fails."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__()
        self.is_full = is_full
        self.sizes: list[int] = []

    def cache(self, key: Any, answer: Result, seconds: float) -> None:
        if self.is_full:
            raise OSError
        self.sizes.append(len(answer.text))
        super().cache(key, answer, seconds)


def test_a_long_result_is_cut_before_it_is_cached() -> None:
    @specialist(read_only=True, cache_seconds=60)
    async def talks() -> str:
        """Talks."""
        return "word " * 100_000

    registry = registry_of(talks, registry=CountingRegistry())
    first = played("SPECIALIST_REQUEST[talks]", "Done.", registry=registry)[0][1]
    assert played("SPECIALIST_REQUEST[talks]", "Done.", registry=registry)[0][0] == {**first, "cached": True}
    assert isinstance(registry, CountingRegistry)
    assert [size <= 8192 for size in registry.sizes] == [True]
    full = registry_of(talks, registry=CountingRegistry(is_full=True))
    assert outcomes("SPECIALIST_REQUEST[talks]", registry=full) == ["failed"]


# Results


@pytest.mark.parametrize(("context_tokens", "least", "most"), [(None, 4999, 8192), (2000, 1400, 1600), (10, 400, 512)])
def test_a_block_takes_at_most_a_fifth_of_the_models_context(context_tokens: int | None, least: int, most: int) -> None:
    marker = 'SPECIALIST_REQUEST[echo:{"text":"' + "word " * 1000 + '"}]'
    events = asyncio.run(read(turn_of(Player(marker, "Done.", context_tokens=context_tokens))))
    (result,) = [event for event in events if isinstance(event, SpecialistResult)]
    assert least <= len(result.text.encode()) <= most


def test_results_come_as_they_are_ready_and_blocks_stand_in_the_order_of_the_requests() -> None:
    answered = asyncio.Event()

    @specialist(timeout=WAIT)
    async def late() -> str:
        """Answers later."""
        await answered.wait()
        return "late"

    turn = turn_of(Player(f"SPECIALIST_REQUEST[late]{ECHO}", "Done."), registry_of(late, echo))
    events = asyncio.run(read(turn, lambda event: answered.set() if isinstance(event, SpecialistResult) else None))
    results = [(event.name, event.citations) for event in events if isinstance(event, SpecialistResult)]
    citations = (Citation("1", "The text", "https://example.org/text"),)
    assert results == [("echo", citations), ("late", ())]
    calls = [(part.name, part.citations) for part in turn.state.exchange.parts if isinstance(part, Call)]
    assert calls == [("late", ()), ("echo", citations)]


def test_progress_is_emitted_seldom_and_the_same_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @specialist(timeout=WAIT)
    async def busy() -> AsyncGenerator[Any, None]:
        """Reports a lot."""
        for text in ("waiting", "waiting", "reading", "waiting"):
            yield Progress(text)
        yield "done"

    for seconds, expected in ((0.0, ["waiting", "reading", "waiting"]), (WAIT, ["waiting"])):
        monkeypatch.setattr("brain.turn.call_group.PROGRESS_SECONDS", seconds)
        events, _, _ = played("SPECIALIST_REQUEST[busy]", "Done.", registry=registry_of(busy))
        assert [event["text"] for event in events if "progress" in event] == expected


# What a call knows and how long it may take


def test_a_specialist_knows_its_context() -> None:
    contexts: list[Context] = []

    @specialist
    async def looks(*, context: Context) -> str:
        """Looks around."""
        contexts.append(context)
        return "seen"

    old, new = Attachment(1, "old.txt", "text/plain", b"old"), Attachment(2, "new.txt", "text/plain", b"new")
    model = Player("SPECIALIST_REQUEST[looks]", "Done.")
    ask = ask_for("What is new?", attachments=(new,))
    asyncio.run(read(turn_of(model, registry_of(looks), ask, History("c7", attachments=(old,)))))
    (context,) = contexts
    assert (context.user, context.conversation_id, context.message) == ("ada", "c7", "What is new?")
    assert (context.attachments, context.time_zone, context.model) == ((old, new), "Europe/Berlin", model)


@pytest.mark.parametrize(
    ("declared", "operator", "requested", "expected"),
    [
        (None, 5.0, None, 5.0),
        (0.5, 5.0, None, 0.5),
        (10.0, 5.0, None, 10.0),
        (10.0, 5.0, 2.0, 2.0),
        (1.0, 5.0, 2.0, 1.0),
        (None, 20.0, 3.0, 3.0),
    ],
)
def test_how_long_a_call_may_take(
    declared: float | None, operator: float, requested: float | None, expected: float
) -> None:
    async def hangs() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return "never"

    made: Any = specialist(hangs) if declared is None else specialist(timeout=declared)(hangs)
    registry = registry_of(made, registry=Registry(Settings(call_seconds=operator)))

    async def main() -> float:
        model = Player(["SPECIALIST_REQUEST[hangs] x"], "Done.")
        events = short(await read(turn_of(model, registry, replace(ask_for(), call_seconds=requested))))
        assert events[1] == failed("hangs", "timeout")
        return asyncio.get_running_loop().time()

    assert run_jumping(main()) == pytest.approx(expected, abs=0.2)
