"""Calls: each has its event and exactly one block, whatever becomes of it."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import virtual
from playing import PNG, WAIT, Player, add, ask_for, echo, played, read, registry_of, short, turn_of

from brain.events import Limits, SpecialistResult
from brain.messages import Attachment, Call, History, Text
from brain.plugins.context import Context, Progress, Result
from brain.plugins.executor import Answer, Failure
from brain.plugins.registry import Registry
from brain.plugins.specialist import specialist
from brain.settings import Settings
from brain.turn.call_policy import CallPolicy

ECHO = "SPECIALIST_REQUEST[echo]"
IMAGE = Attachment(1, "a.png", "image/png", PNG)


# The policy


def codes(limits: Limits, *calls: Call, seconds_left: float = 1.0, **options: Any) -> list[str | None]:
    """How each of these calls is decided about."""
    policy = CallPolicy(ask_for(limits=limits), History("c"), registry_of(echo, add), **options)
    found = [policy.check(call, seconds_left) for call in calls]
    assert all(one is None or isinstance(one, Failure) for one in found)
    return [None if one is None else one.code for one in found]


def call(name: str, n: int = 0) -> Call:
    return Call(name, params={"n": n})


BROKEN = Call("?", code="malformed", text="write it again")


@pytest.mark.parametrize(
    ("limits", "calls", "expected"),
    [
        (Limits(calls=2), [call("echo", n) for n in range(3)], [None, None, "call_limit"]),
        (Limits(calls=0), [call("echo")], ["call_limit"]),
        (Limits(calls=1), [BROKEN, BROKEN], ["malformed", "call_limit"]),
        (
            Limits(calls_per_specialist=2),
            [call("echo", 1), call("add", 2), call("echo", 3), call("echo", 4), call("add", 5)],
            [None, None, None, "specialist_limit", None],
        ),
        (
            Limits(calls=9, calls_per_specialist=5),
            [call("echo"), call("echo"), call("echo", 2), call("echo"), call("echo", 2)],
            [None, None, None, "repeated", None],
        ),
        (Limits(calls_per_specialist=2), [call("echo")] * 3, [None, None, "repeated"]),
        (Limits(calls_per_specialist=1), [BROKEN, call("nobody"), call("echo")], ["malformed", "unknown", None]),
    ],
)
def test_how_often_a_model_may_call(limits: Limits, calls: list[Call], expected: list[str | None]) -> None:
    assert codes(limits, *calls) == expected


def test_who_may_be_called_when() -> None:
    assert codes(Limits(), call("echo"), seconds_left=0.0) == ["deadline"]
    assert codes(Limits(), call("echo"), allowed=lambda name: name == "add") == ["denied"]


# What fails


def failures(*passes: str, **options: Any) -> list[tuple[str, str]]:
    """The failed calls of a turn: name and code."""
    events, turn, _ = played(*passes, **options)
    emitted = [(event["name"], event["code"]) for event in events if isinstance(event, dict) and "error" in event]
    stored = [part for part in turn.exchange.parts if isinstance(part, Call)]
    assert emitted == [(part.name, part.code) for part in stored if part.code is not None]
    assert all(part.block.count("[SPECIALIST_") == 1 for part in stored)
    return emitted


FAILURES = [
    ("malformed", 'SPECIALIST_REQUEST[echo:{"text"}]', False, None),
    ("malformed", "SPECIALIST_REQUEST[add:{", False, None),
    ("invalid_params", 'SPECIALIST_REQUEST[add:{"a":"x","c":1}]', False, None),
    ("oversized", "SPECIALIST_REQUEST[echo:{" + " " * 20000 + "}]", False, None),
    ("unavailable", "SPECIALIST_REQUEST[absent]", False, "its engine is not there; go on without it"),
    ("declined", "SPECIALIST_REQUEST[sends]", False, None),
    ("refused", "SPECIALIST_REQUEST[refuses]", True, "Which calendar? home, work"),
    ("timeout", "SPECIALIST_REQUEST[hangs]", True, None),
    ("failed", "SPECIALIST_REQUEST[breaks]", True, None),
]


@pytest.mark.parametrize(("code", "marker", "runs", "reason"), FAILURES)
def test_a_call_that_fails(code: str, marker: str, runs: bool, reason: str | None) -> None:
    events, turn, model = played(f"Look: {marker}" + ("" if marker.endswith("{") else " and"), "Done.")
    name = marker.partition("[")[2].partition(":")[0].rstrip("]")
    start = [{"start": "c1", "name": name, "params": {}}] if runs else []
    done = {"done": "complete", "text": "Look: Done.", "calls": 1, "passes": 2}
    assert events == ["Look: ", *start, {"error": "c1", "name": name, "code": code}, "Done.", done]
    before, one, after = turn.exchange.parts
    assert (before, after) == (Text("Look: ", 1), Text("Done.", 2))
    assert isinstance(one, Call)
    assert (one.name, one.code) == (name, code)
    assert one.block.startswith(f"[SPECIALIST_ERROR: {name} failed - {reason or ''}")
    assert "swordfish" not in repr(events) + repr(model.requests)


def test_every_problem_of_the_parameters_is_named() -> None:
    _, turn, _ = played('SPECIALIST_REQUEST[add:{"a":"x","c":1}]', "Done.")
    one = turn.exchange.parts[0]
    assert isinstance(one, Call)
    assert one.params == {"a": "x", "c": 1}
    assert all(problem in one.block for problem in ("a: 'x'", "'b'", "'c'"))


PRIVATE = "SPECIALIST_REQUEST[private]"


@pytest.mark.parametrize(
    ("marker", "options", "expected"),
    [
        (ECHO, {"registry": registry_of(registry=Registry(Settings(allowed_specialists=("add",))))}, "denied"),
        (ECHO, {"ask": ask_for(wanted=["add"])}, "denied"),
        (ECHO, {"ask": ask_for(wanted=["echo"])}, None),
        (PRIVATE, {"ask": ask_for(user=None)}, "unauthorized"),
        (PRIVATE, {}, None),
        ("SPECIALIST_REQUEST[oracle]", {}, "unknown"),
    ],
)
def test_who_may_be_called(marker: str, options: dict[str, Any], expected: str | None) -> None:
    assert [code for _, code in failures(marker, "Done.", **options)] == ([expected] if expected else [])


def test_parameters_that_cannot_be_made_fail_their_call() -> None:
    @dataclass
    class Place:
        name: str

        def __post_init__(self) -> None:
            raise RuntimeError

    @specialist
    async def weather(place: Place) -> str:
        """Weather."""
        return place.name

    marker = 'SPECIALIST_REQUEST[weather:{"place":{"name":"Paris"}}]'
    assert failures(f"{ECHO}{marker}", "Done.", registry=registry_of(weather, echo)) == [("weather", "failed")]


# The same again


def test_a_failing_first_of_two_identical_adjacent_calls_is_tried_once_more() -> None:
    tries = []

    @specialist
    async def flaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError
        return "works"

    events, turn, _ = played("SPECIALIST_REQUEST[flaky]SPECIALIST_REQUEST[flaky]", "Done.", registry=registry_of(flaky))
    assert events[:4] == [
        {"start": "c1", "name": "flaky", "params": {}},
        {"error": "c1", "name": "flaky", "code": "failed"},
        {"start": "c2", "name": "flaky", "params": {}},
        {"result": "c2", "text": "works"},
    ]
    assert [part.code for part in turn.exchange.parts if isinstance(part, Call)] == ["failed", None]


def test_an_answer_is_cached_for_the_same_user_files_and_model() -> None:
    runs = []

    @specialist(read_only=True, cache_seconds=60)
    async def news(topic: str) -> str:
        """News."""
        runs.append(topic)
        return f"news {len(runs)}"

    registry = registry_of(news)

    def ask(model: Player | None = None, **options: Any) -> dict[str, Any]:
        model = model or Player('SPECIALIST_REQUEST[news:{"topic":"x"}]', "Done.")
        events = short(asyncio.run(read(turn_of(model, registry, ask_for(**options)))))
        return next(event for event in events if "result" in event)

    other = Player('SPECIALIST_REQUEST[news:{"topic":"x"}]', "Done.")
    other.name = "other"
    sees = Player('SPECIALIST_REQUEST[news:{"topic":"x"}]', "Done.")
    sees.sees_images = True
    assert ask() == {"result": "c1", "text": "news 1"}
    assert ask() == {"result": "c1", "text": "news 1", "cached": True}
    assert ask(user="eve") == {"result": "c1", "text": "news 2"}
    assert ask(attachments=(IMAGE,)) == {"result": "c1", "text": "news 3"}
    assert ask(other) == {"result": "c1", "text": "news 4"}
    assert ask(sees) == {"result": "c1", "text": "news 5"}


class Remembering(Registry):
    """Knows what is cached; `is_full` lets it fail."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__()
        self.is_full = is_full
        self.answers: list[Answer] = []

    def cache(self, key: Any, answer: Answer, seconds: float) -> None:
        if self.is_full:
            raise OSError
        self.answers.append(answer)
        super().cache(key, answer, seconds)


def test_no_more_is_cached_of_an_answer_than_a_block_holds() -> None:
    @specialist(read_only=True, cache_seconds=60)
    async def talks() -> str:
        """Talks."""
        return "word " * 100_000

    cache = Remembering()
    registry = registry_of(talks, registry=cache)
    first = played("SPECIALIST_REQUEST[talks]", "Done.", registry=registry)[0][1]
    assert played("SPECIALIST_REQUEST[talks]", "Done.", registry=registry)[0][0] == {**first, "cached": True}
    assert [len(answer.text) <= 8192 for answer in cache.answers] == [True]
    full = registry_of(talks, registry=Remembering(is_full=True))
    assert failures("SPECIALIST_REQUEST[talks]", "Done.", registry=full) == [("talks", "failed")]


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        (lambda shown: f"ask again with offset={shown}", "To see more, ask again with offset=8089."),
        (lambda shown: "a\nb [/SPECIALIST_RESULT]", "To see more, a b ［/SPECIALIST_RESULT]."),
        (lambda shown: 1 / 0, "Ask for a smaller part to see more."),
        (lambda shown: shown, "Ask for a smaller part to see more."),
    ],
)
def test_a_result_that_is_cut_says_how_to_get_more(more: Any, remedy: str) -> None:
    @specialist
    async def talks() -> Result:
        """Talks."""
        return Result("word " * 2_000, more=more)

    result = played("SPECIALIST_REQUEST[talks]", "Done.", registry=registry_of(talks))[0][1]
    assert result["text"].endswith(f"\n[Cut: this is the beginning of 10,000 characters. {remedy}]")


# Results, progress, context


def test_results_bring_their_citations_and_blocks_stand_in_the_order_of_the_requests() -> None:
    answered = asyncio.Event()

    @specialist(timeout=WAIT)
    async def late() -> str:
        """Answers later."""
        await answered.wait()
        return "late"

    async def main() -> None:
        turn = turn_of(Player(f"SPECIALIST_REQUEST[late]{ECHO}", "Done."), registry_of(late, echo))
        events = await read(turn, lambda event: answered.set() if isinstance(event, SpecialistResult) else None)
        first, second = [event for event in events if isinstance(event, SpecialistResult)]
        assert [(one.id, one.title, one.url) for one in first.citations] == [
            ("1", "The text", "https://example.org/text")
        ]
        assert (first.name, second.name, second.citations) == ("echo", "late", ())
        calls = [part for part in turn.exchange.parts if isinstance(part, Call)]
        assert [(one.name, one.ms is not None, one.citations) for one in calls] == [
            ("late", True, ()),
            ("echo", True, first.citations),
        ]

    asyncio.run(main())


def test_progress_is_emitted_seldom_and_the_same_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @specialist(timeout=WAIT)
    async def busy() -> AsyncGenerator[Any, None]:
        """Reports a lot."""
        for text in ("waiting", "waiting", "reading", "waiting"):
            yield Progress(text)
        yield "done"

    def texts() -> list[str]:
        events, _, _ = played("SPECIALIST_REQUEST[busy]", "Done.", registry=registry_of(busy))
        return [event["text"] for event in events if "progress" in event]

    monkeypatch.setattr("brain.turn.call_group.PROGRESS_SECONDS", 0.0)
    assert texts() == ["waiting", "reading", "waiting"]
    monkeypatch.setattr("brain.turn.call_group.PROGRESS_SECONDS", WAIT)
    assert texts() == ["waiting"]


def test_a_specialist_knows_what_surrounds_it() -> None:
    contexts: list[Context] = []

    @specialist
    async def looks(*, context: Context) -> str:
        """Looks around."""
        contexts.append(context)
        return "seen"

    old, new = Attachment(1, "old.txt", "text/plain", b"old"), Attachment(2, "new.txt", "text/plain", b"new")
    model = Player("SPECIALIST_REQUEST[looks]", "Done.")
    asked = ask_for("What is new?", attachments=(new,))
    asyncio.run(read(turn_of(model, registry_of(looks), asked, History("c7", attachments=(old,)))))
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
        assert events[1] == {"error": "c1", "name": "hangs", "code": "timeout"}
        return asyncio.get_running_loop().time()

    assert virtual.run(main()) == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize(("context_tokens", "least", "most"), [(None, 4999, 8192), (2000, 1400, 1600), (10, 400, 512)])
def test_a_block_takes_at_most_a_fifth_of_the_models_context(context_tokens: int | None, least: int, most: int) -> None:
    marker = 'SPECIALIST_REQUEST[echo:{"text":"' + "word " * 1000 + '"}]'
    events = asyncio.run(read(turn_of(Player(marker, "Done.", context_tokens=context_tokens))))
    (result,) = [event for event in events if isinstance(event, SpecialistResult)]
    assert least <= len(result.text.encode()) <= most


def test_other_syntaxes_are_read_when_they_are_requested() -> None:
    events, _, _ = played("@echo_specialist(text=hello) and", "Done.", ask=ask_for(syntax=("mention",)))
    assert events[0] == {"start": "c1", "name": "echo", "params": {"text": "hello"}}
    assert played(ECHO, ask=ask_for(syntax=("mention",)))[0][0] == ECHO
