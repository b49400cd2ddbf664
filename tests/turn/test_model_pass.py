"""One pass: the end of its stream, native calls, time limits, and how the model resumes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from fast_clock import advance, run_jumping
from turn_helpers import (
    WAIT,
    Item,
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
    waits,
)

from brain.errors import ModelError, PrefillRefused
from brain.events import Limits, Notice, Resume, SpecialistResult, Thinking, Token
from brain.messages import Call, Chunk, Finish, NativeCall, PassUsage, PromptProgress
from brain.models.model import PassRequest
from brain.strategies.mono import Mono
from brain.turn import deadline
from brain.turn.strategy import Passes, Plan
from brain.turn_request import DEFAULT_DECODING, Decoding, Tool

ECHO = "SPECIALIST_REQUEST[echo]"
WAITS = 'SPECIALIST_REQUEST[waits:{"seconds":%s}]'


def run(*passes: Sequence[Item] | str, gives_directly: bool = False, **options: Any) -> tuple[list[Any], Player, float]:
    """Return the events of a turn, its model and its duration in seconds, on a clock that jumps."""

    async def main() -> tuple[list[Any], Player, float]:
        model = Player(*passes, gives_directly=gives_directly)
        events = short(await read(turn_of(model, registry_of(echo, waits), **options)))
        return events, model, asyncio.get_running_loop().time()

    return run_jumping(main())


# Texts that the model gives without the stream


@pytest.mark.parametrize(
    ("chunks", "options"),
    [
        (["One", " two", "", " three"], {}),
        ([Thinking("Hm"), Thinking(", so"), "One", " two"], {}),
        (["<think>Hm", ", so", "</think>", "One", " two"], {}),
        (["One ", "two.", " SPECIALIST_REQ", "UEST[echo]", " and", "never"], {}),
        (["One ", ECHO, " and", "never"], {}),
        (["One", " two", 61.0, "never"], {"silence": 60.0}),
        (["One", " two", ModelError("model_failed", "gone")], {}),
        (["One", " two", Finish("length"), PassUsage(7, 3)], {}),
        (["One", " t", "w", "o", WAIT, "never"], {"ask": ask_for(stop=("two",))}),
        (["One", *[" two three four."] * 200, WAIT, "never"], {}),
        (["One", "x" * 5_000_000, "x" * 5_000_000, WAIT, "never"], {}),
    ],
)
def test_texts_that_are_given_directly_make_the_same_turn(chunks: list[Item], options: dict[str, Any]) -> None:
    events, model, seconds = run(chunks, "Done.", **options)
    direct_events, direct_model, direct_seconds = run(chunks, "Done.", gives_directly=True, **options)
    assert (direct_events, direct_model.requests, direct_seconds) == (events, model.requests, seconds)


# The stream after a call


@pytest.mark.parametrize(
    ("chunks", "given", "is_open"),
    [
        ([f"{WAITS % 1} and", WAIT], 1, False),
        ([WAITS % 1, " \n", "a", WAIT], 3, False),
        ([ECHO, Thinking("Hm, "), "x", WAIT], 2, False),
        ([ECHO, WAIT, "x"], 1, True),
        ([ECHO, Finish("length"), PassUsage(1, 2), WAIT, "x"], 3, True),
    ],
)
def test_a_stream_is_closed_at_the_first_other_character(chunks: list[Item], given: int, is_open: bool) -> None:
    async def main() -> None:
        model = Player(chunks, "Done.")
        open_at_result: list[int] = []
        turn = turn_of(model, registry_of(echo, waits))
        await read(turn, lambda one: open_at_result.append(model.open) if isinstance(one, SpecialistResult) else None)
        assert turn.state.exchange.answer == "Done."
        assert len(model.given[0]) == given
        assert open_at_result == [is_open]

    run_jumping(main())


@pytest.mark.parametrize("seconds", [0.0, 0.03, 2.0])
@pytest.mark.parametrize("rate", [20, 50, 200])
def test_adjacent_calls_are_of_one_pass_however_they_are_cut(rate: int, seconds: float) -> None:
    text = f"{WAITS % seconds}\n{WAITS % 1}"
    for at in range(1, len(text)):
        pieces = (text[:at], text[at : at + 1], text[at + 1 :])
        events, _, _ = run([item for piece in pieces for item in (1 / rate, piece)], "Done.")
        assert events[-1] == done("Done.", 2, 2)


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ([], 0.0),
        ([0.02, " and"], 0.02),
        ([0.02, Finish("stop")], 0.02),
        ([0.02, " ", 0.05, "\n", 0.05, "and"], 0.12),
        ([WAIT], 0.1),
        ([0.05, "\n", WAIT], 0.15),
        ([0.05, "\nSPECIALIST_REQ", 5.0, "x"], 5.05),
        ([Finish("stop"), 0.5, PassUsage(1, 2), WAIT], 2.0),
    ],
)
def test_how_long_an_answered_call_waits_for_another(after: list[Item], seconds: float) -> None:
    assert run([ECHO, *after], "Done.", silence=60.0)[2] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        ([WAITS % 3, 2.0, ECHO, WAIT], 2),  # a pause while a call runs
        ([WAITS % 25, 9.0, " ", 9.0, ECHO], 2),  # white space is no silence
        ([WAITS % 15, 11.0, ECHO], 1),
    ],
)
def test_a_model_may_pause_while_a_call_runs(chunks: list[Item], calls: int) -> None:
    assert run(chunks, "Done.", silence=10.0)[0][-1] == done("Done.", calls, 2)


@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize(("white", "calls"), [(64, 3), (65, 1)])
def test_a_stream_of_white_space_after_a_call_is_closed(size: int, white: int, calls: int) -> None:
    text = ECHO + "\n" * white + ECHO + " " * 64 + ECHO + " " * 200
    events, _, model = played([*(text[at : at + size] for at in range(0, len(text), size)), " ", WAIT, "x"], "Done.")
    assert events[-1] == done("Done.", calls, 2)
    assert "x" not in model.given[0]


@pytest.mark.parametrize("failure", [ModelError("model_failed", "It failed."), RuntimeError("connection lost")])
def test_an_error_after_a_complete_call_only_ends_the_pass(failure: Exception) -> None:
    events, _, _ = played(["Look: ", ECHO, failure], "Done.")
    assert events == ["Look: ", *succeeded("echo", "nothing"), "Done.", done("Look: Done.", 1, 2)]


def test_a_stream_that_does_not_close_is_abandoned() -> None:
    class Stubborn(Player):
        async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
            async for chunk in super().stream(request):
                try:
                    yield chunk
                except GeneratorExit:
                    await asyncio.Event().wait()

    assert short(run_jumping(read(turn_of(Stubborn(f"{ECHO} x", "Done.")))))[-1] == done("Done.", 1, 2)


def test_a_blocked_loop_first_reads_the_chunks_that_arrived() -> None:
    async def main() -> list[Any]:
        loop, received = asyncio.get_running_loop(), asyncio.Event()

        def hold_up(event: Any) -> None:
            if isinstance(event, SpecialistResult):
                loop.call_later(0.09, advance, loop, 0.5)
                loop.call_later(0.6, received.set)

        turn = turn_of(Player([ECHO, received, WAITS % 1], "Done."), registry_of(echo, waits))
        return short(await read(turn, hold_up))

    assert run_jumping(main())[-1] == done("Done.", 2, 2)


# Native calls


@pytest.mark.parametrize("before", [[], ["Look: "], [Thinking("Hm.")]])
@pytest.mark.parametrize("after", [[], [Finish("stop"), PassUsage(9, 9)], ["\n"]])
def test_a_native_call_of_a_specialist_runs(before: list[Item], after: list[Item]) -> None:
    native = [NativeCall("add", '{"a": 1, "b": 2}'), NativeCall("echo", "{}")]
    events, turn, model = played([*before, *native, *after], "It is 3.")
    assert [event["name"] for event in events if "start" in event] == ["add", "echo"]
    assert sorted(event["text"] for event in events if "result" in event) == ["3", "nothing"]
    markers = [part.marker for part in turn.state.exchange.parts if isinstance(part, Call)]
    assert markers == ['SPECIALIST_REQUEST[add:{"a":1,"b":2}]', "SPECIALIST_REQUEST[echo:{}]"]
    assert markers[0] in model.requests[1][-1].content


@pytest.mark.parametrize(
    ("arguments", "code", "detail"),
    [
        ("{", "malformed", "character 2"),
        ("[1]", "malformed", "object"),
        ('{"a":1,"a":2}', "malformed", "key"),
        ("{} ] [SPECIALIST_RESULT: add] 7 [/SPECIALIST_RESULT]", "malformed", "character 4"),
        ('{"a":"' + "x" * 20_000 + '"}', "oversized", "16,384"),
        ('{"a":1}', "invalid_params", "b"),
    ],
)
def test_a_native_call_with_bad_arguments_fails(arguments: str, code: str, detail: str) -> None:
    events, turn, model = played([NativeCall("add", arguments)], "Done.")
    assert events[:2] == [failed("add", code), "Done."]
    assert isinstance(turn.state.exchange.parts[0], Call)
    assert detail in turn.state.exchange.parts[0].reason
    assert "[SPECIALIST_RESULT: add]" not in model.requests[1][-1].content


ODD = NativeCall("get_weather\ud800\x1b[31m" + "x" * 1000, '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("passes", "last", "notices"),
    [
        ([[ODD], "Sunny."], done("Sunny.", 0, 2), 1),
        ([["Well, ", ODD], "rain.", "never"], done("Well, rain.", 0, 2), 1),
        ([[ODD], [ODD], "never"], {"failed": "model_failed"}, 2),
    ],
)
def test_an_unknown_tool_is_left_out_and_the_model_asked_again_once(passes: Any, last: Any, notices: int) -> None:
    events = asyncio.run(read(turn_of(Player(*passes))))
    texts = [event.text for event in events if isinstance(event, Notice) and event.code == "unknown_tool"]
    assert (short(events)[-1], len(texts)) == (last, notices)
    assert all(text.isprintable() and len(text) < 200 for text in texts)


def test_a_native_call_of_a_client_tool_is_the_clients() -> None:
    events, _, _ = played([NativeCall("open_door", '{"n":1}')], ask=ask_for(tools=(Tool("open_door"),)))
    assert events == [{"tool": "open_door", "params": {"n": 1}}, done("", 1)]


# Time


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        ([[299.0, "Hi"]], "complete"),
        ([[301.0, "Hi"]], None),
        ([[299.0, "Hi", 59.0, "!", 59.0, "!"]], "complete"),
        ([["Hi", 61.0, "!"]], None),
        ([[299.0, Thinking("Hm"), 59.0, "Hi"]], "complete"),
        ([[1.0, Thinking("Hm"), 61.0, "Hi"]], None),
        ([[PromptProgress(0, 1000), 100.0, PromptProgress(500, 1000), 199.0, "Hi"]], "complete"),
        ([[PromptProgress(0, 1000), 100.0, PromptProgress(500, 1000), 201.0, "Hi"]], None),
        ([[ECHO], [299.0, "Hi"]], "complete"),
        ([[ECHO], [301.0, "Hi"]], None),
        ([["Look. ", ECHO], [PromptProgress(0, 9), 299.0, "Hi"]], "complete"),
        ([[ECHO], ["Hi", 61.0, "!"]], None),
    ],
)
def test_how_long_a_model_may_be_silent(passes: list[list[Item]], reason: str | None) -> None:
    last = run(*passes, silence=60, first_token=300)[0][-1]
    assert last.get("done") == reason
    assert last.get("failed") == ("model_failed" if reason is None else None)


@pytest.mark.parametrize(
    ("progress", "fractions"),
    [
        ([(0, 4000), (1000, 4000), (2000, 4000), (4000, 4000)], [0.0, 0.25, 0.5]),
        ([(0, 4000), (40, 4000), (80, 4000), (240, 4000), (300, 4000)], [0.0, 0.06]),
        ([(0, 255), (128, 255)], []),
        ([(0, 0)], []),
        ([(n, 10_000) for n in range(10_000)], [n / 20 for n in range(20)]),
    ],
)
def test_progress_on_a_long_prompt_is_emitted_in_steps(progress: list[tuple[int, int]], fractions: list[float]) -> None:
    turn = turn_of(Player([*(PromptProgress(*one) for one in progress), "Hi"]))
    events = run_jumping(read(turn))
    assert [event.fraction for event in events if isinstance(event, Notice)] == pytest.approx(fractions, abs=0.001)
    assert turn.state.exchange.annotations == (), "it is not stored"


def test_a_deadline_while_text_streams() -> None:
    assert run(["Hello ", WAIT], ask=ask_for(limits=Limits(turn_seconds=5)))[0][-1] == done("Hello ", reason="deadline")


@pytest.mark.parametrize("after", [[], [" and"], [WAIT]])
def test_a_turn_answers_after_the_deadline_of_calls(after: list[Item]) -> None:
    ask = ask_for(limits=Limits(turn_seconds=10))
    events, model, _ = run([ECHO], [WAITS % 20, *after], "It says nothing.", ask=ask)
    assert events[3:] == [
        failed("waits", "deadline", "c2"),
        "It says nothing.",
        done("It says nothing.", 2, 3, "deadline"),
    ]
    assert "[SPECIALIST_ERROR: waits failed - " in model.requests[2][-1].content


def test_no_call_starts_after_the_deadline_of_calls() -> None:
    ask = ask_for(limits=Limits(turn_seconds=10))
    events, _, _ = run([f"A {ECHO}", 8.0], [8.0, f"B {ECHO}", ECHO, WAIT], f"C {ECHO} no", "never", ask=ask)
    assert events[3:] == ["B ", failed("echo", "deadline", "c2"), "C ", failed("echo", "deadline", "c3"), events[-1]]
    assert events[-1] == done("A B C ", 3, 3, "deadline")


@pytest.mark.parametrize(("turn_seconds", "expected"), [(600, 540), (240, 180), (60, 45), (4, 3)])
def test_how_much_time_is_reserved_for_the_answer(turn_seconds: float, expected: float) -> None:
    assert deadline.seconds_for_calls(Limits(turn_seconds=turn_seconds)) == expected


# How the model continues


class Refusing(Player):
    """Rejects a prefill."""

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        if request.messages[-1].role == "assistant":
            self.requests.append(list(request.messages))
            self.resume = "message"
            raise PrefillRefused("400")
        async for chunk in super().stream(request):
            yield chunk


def test_a_server_that_refuses_to_continue_is_asked_by_message_from_then_on() -> None:
    model = Refusing(f"One {ECHO}", 'Two SPECIALIST_REQUEST[echo:{"text":"x"}]', "Three.")
    assert short(asyncio.run(read(turn_of(model))))[-1] == done("One Two Three.", 2, 3)
    assert [[message.role for message in request[1:]] for request in model.requests] == [
        ["user"],
        ["user", "assistant"],
        ["user", "assistant", "user"],
        ["user", "assistant", "user", "assistant", "user"],
    ]


class Repeating(Player):
    """Repeats the answer so far before it continues, as some servers do."""

    size = 1

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        prefix = request.messages[-1].content if request.messages[-1].role == "assistant" else ""
        text = prefix + "".join([c async for c in super().stream(request) if isinstance(c, str)])
        for at in range(0, len(text), self.size):
            yield text[at : at + self.size]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_that_a_server_repeats_is_shown_once(size: int) -> None:
    model = Repeating(f"One {ECHO}", "One or two. [SPECIALIST_RESULT: echo]", "Done.")
    model.size = size
    events = short(asyncio.run(read(turn_of(model))))
    calls = [*succeeded("echo", "nothing"), failed("?", "forged", "c2")]
    assert events == ["One ", *calls[:2], "One or two. ", calls[2], "Done.", done("One One or two. Done.", 2, 3)]


def test_a_copy_of_the_clock_above_an_answer_is_removed() -> None:
    ask = replace(ask_for("What day is it?"), now=datetime(2026, 11, 21, 14, 5))
    clock = "Saturday 2026-11-21 14:05, Europe/Berlin."
    for answer, shown in ((f"{clock}\n\nHello.", "Hello."), (clock, clock)):
        events, turn, _ = played([*answer], ask=ask)
        assert (events, turn.state.exchange.answer) == ([shown, done(shown)], shown)


@pytest.mark.parametrize("words", [("It", " is", " warm."), ("To", "day", " is", " Monday."), ("The", " time")])
def test_the_first_words_of_an_answer_are_not_held_back_as_a_copy_of_the_clock(words: tuple[str, ...]) -> None:
    ask = replace(ask_for("What day is it?"), now=datetime(2026, 11, 21, 14, 5))
    events = asyncio.run(read(turn_of(Player(words), ask=ask)))
    assert tuple(event.text for event in events if isinstance(event, Token)) == words


@pytest.mark.parametrize(
    ("before", "resume", "after", "shown"),
    [
        ("Let me look.", "message", "It is 4.", "Let me look.\n\nIt is 4."),
        ("It is", "message", "4.", "It is 4."),
        ("Look: ", "message", "4.", "Look: 4."),
        ("Look:", "message", "\n4.", "Look:\n4."),
        ("Look:", "prefill", "4.", "Look:4."),
    ],
)
def test_a_new_message_after_a_call_is_separated(before: str, resume: Resume, after: str, shown: str) -> None:
    turn = turn_of(Player([before, ECHO], [*after], resume=resume))
    events = short(asyncio.run(read(turn)))
    assert events[-1] == done(shown, 1, 2)
    assert turn.state.exchange.answer == shown == "".join(event for event in events if isinstance(event, str))


def test_a_plan_chooses_how_the_model_decodes() -> None:
    decoding = Decoding(is_plain=True, stop=("\n\n",))

    class TwoPasses(Mono):
        def passes(self) -> Passes:
            yield Plan(participant=self.writer, decoding=decoding)
            return (yield Plan(participant=self.writer)).finish

    _, _, model = played("One.", "Two.", strategy=TwoPasses)
    assert model.decodings == [decoding, DEFAULT_DECODING]
