"""A recorded turn, played again, has the same events, apart from times."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from turn_helpers import EVERYONE, KINDS, PNG, Item, Player, ask_for, registry_of, turn_of

from brain import specialist
from brain.assist.assistance import Assistance
from brain.errors import BadRequest, ModelError, PrefillRefused, Refused, ToolsRefused
from brain.events import (
    ApprovalRequired,
    CallCode,
    Event,
    Limits,
    Role,
    SpecialistError,
    SpecialistStart,
    Thinking,
    Token,
    Usage,
)
from brain.messages import (
    Attachment,
    Exchange,
    Finish,
    History,
    Message,
    NativeCall,
    PassUsage,
    PromptProgress,
    RecallResult,
)
from brain.messages import Item as StoredItem
from brain.protocols.native import EVENT_NAMES, event_data
from brain.runtime.commands import SteerTurn
from brain.runtime.recording import MAX_LENGTH, Line, PassLine, Recorder
from brain.runtime.replay import Recording, ReplayLoop, make_run
from brain.runtime.run import Run
from brain.strategies import find_strategy
from brain.turn_request import Sampling, Tool

SAME_CODES: tuple[CallCode, ...] = (
    "unknown", "malformed", "oversized", "forged", "declined", "repeated", "call_limit", "specialist_limit",
    "deadline", "cancelled",
)  # fmt: skip
"""Codes of calls that depend on the turn. The other failures are refusals in a replay."""
TIMES = ("ms", "first_token_ms", "total_ms", "expires_at")
CUT_OFF = ModelError("model_failed", "Cut off.", "at http://secret.example with key sk-1")
TEXT_FILE = Attachment(1, "a.txt", "text/plain", b"The word is swordfish.")
React = Callable[[Run, Event], None]


class TickingLoop(ReplayLoop):
    """Two moments of a real turn are never the same."""

    ticks = itertools.count()

    def __init__(self) -> None:
        super().__init__(is_instant=True)

    def time(self) -> float:
        return super().time() + next(self.ticks) * 1e-6


@specialist(read_only=True)
async def finds(text: str) -> str:
    """Finds a text."""
    if text == "none":
        raise Refused("Nothing found")
    return f"The tower has {text}, and Bonn is far."


@specialist(activates_on=["image", "text"])
async def looks() -> str:
    """Looks at files."""
    return "seen"


async def events_of(run: Run) -> list[Event]:
    async with aclosing(run.events()) as batches:
        return [event async for batch in batches for event in batch]


def plain(events: Sequence[Event]) -> list[tuple[str, Any]]:
    """Events as in the native protocol, without times, and without what depends on the prompts."""
    found: list[tuple[str, Any]] = []
    for event in events:
        if isinstance(event, Usage):
            if not event.estimated:
                found.append(("usage", (event.prompt_tokens, event.completion_tokens, event.reused_tokens)))
            continue
        data = {key: value for key, value in event_data(event).items() if key not in TIMES}
        if isinstance(event, SpecialistError) and event.code not in SAME_CODES:
            data["code"] = "refused"
            found = [one for one in found if one[0] != "specialist_start" or one[1]["call_id"] != event.call_id]
        found.append((EVENT_NAMES[type(event)], data))
    return found


def record(players: Sequence[Player], react: React, options: Mapping[str, Any]) -> tuple[list[Event], list[Line]]:
    """The events of a turn, and its recording as it is read from a file."""

    async def main() -> tuple[list[Event], list[Line]]:
        request = ask_for(options.get("message", "Hi"), **{"asks_person": True, **options.get("ask", {})})
        history = options.get("history") or History("c")
        registry = registry_of(*EVERYONE, finds, looks)
        assistance = options.get("assistance")
        first, *rest = players
        role_models: dict[Role, Sequence[Player]] = {}
        if request.strategy == "dual":
            role_models, rest = {"thinker": (first,), "actor": rest, "critic": (first,)}, []
        recorder = Recorder()
        turn = turn_of(
            first, registry, request, history, fallbacks=rest, role_models=role_models,
            strategy=find_strategy(request.strategy, assistance), assistance=assistance,
            open_stream=recorder.open_stream, silence=5.0, approval_seconds=9.0,
        )  # fmt: skip
        run = Run(turn, "native")

        def take(events: Sequence[Event], frames: bytes) -> None:
            recorder.take(events)
            for event in events:
                react(run, event)

        run.log.subscribe(take)
        events = await events_of(run)
        lines = [msgspec.json.encode(line) for line in recorder.lines(turn.setup, run.snapshot(), run.commands)]
        return events, [msgspec.json.decode(line, type=Line) for line in lines]

    with asyncio.Runner(loop_factory=TickingLoop) as runner:
        return runner.run(main())


def play(lines: Sequence[Line]) -> list[Event]:
    async def main() -> list[Event]:
        return await events_of(make_run(Recording(lines)))

    with asyncio.Runner(loop_factory=partial(ReplayLoop, is_instant=True)) as runner:
        return runner.run(main())


def slowly(text: str, size: int = 1) -> list[Item]:
    """A text in small chunks, with a pause after each."""
    return [item for n in range(0, len(text), size) for item in (text[n : n + size], 0.01)]


def nothing(run: Run, event: Event) -> None:
    pass


def decide(approve: bool) -> React:
    def react(run: Run, event: Event) -> None:
        if isinstance(event, ApprovalRequired):
            asyncio.get_running_loop().call_later(1.0, run.decide, event.call_id, approve)

    return react


def on(kind: type[Event], act: Callable[[Run], object]) -> React:
    """React to the first event of a kind."""
    done: list[Event] = []

    def react(run: Run, event: Event) -> None:
        if isinstance(event, kind) and not done:
            done.append(event)
            act(run)

    return react


def using(strategy: str) -> tuple[React, dict[str, Any]]:
    limits = Limits(calls=9, rounds=9, steps=9 if strategy == "step" else None)
    return nothing, {"ask": {"strategy": strategy, "limits": limits}}


ECHO = "SPECIALIST_REQUEST[echo]"
CALLS = [[*slowly(f"One. {kind % n if '%' in kind else kind}")] for n, kind in enumerate(KINDS)]
SEVERAL = (
    'SPECIALIST_REQUEST[hangs]SPECIALIST_REQUEST[echo]SPECIALIST_REQUEST[counts:{"to":3}] SPECIALIST_REQUEST[echo]'
)
TURNS: dict[str, tuple[list[Player], React, dict[str, Any]]] = {
    "text": ([Player(slowly("<think>Hm</think>Hello there."))], nothing, {}),
    "reasoning without an opening tag": ([Player(slowly("Hm</think>Hello there.<|im_end|>And"))], nothing, {}),
    "a known template": (
        [
            Player(
                slowly("Hm <|im_end|></think><tool_call>echo</tool_call>"), "End.", template="<think>{{ m }}<arg_key>"
            )
        ],
        nothing,
        {},
    ),
    "server events": (
        [Player([PromptProgress(100, 900), 1.0, Thinking("Hm"), "Hi", PassUsage(900, 1, 800), Finish("length")])],
        nothing,
        {},
    ),
    "calls of every kind": ([Player(*CALLS[:5], "End.")], nothing, {}),
    "more calls of every kind": ([Player(*CALLS[5:], "End.")], nothing, {}),
    "calls side by side": ([Player(slowly(SEVERAL), slowly("End."))], nothing, {}),
    "whole chunks": ([Player([SEVERAL], SEVERAL, "End.")], nothing, {}),
    "too many calls": (
        [Player(*(f'SPECIALIST_REQUEST[echo:{{"text":"{n}"}}]' for n in range(4)))],
        nothing,
        {"ask": {"limits": Limits(calls=2)}},
    ),
    "approved": ([Player("SPECIALIST_REQUEST[sends]SPECIALIST_REQUEST[echo]", "End.")], decide(True), {}),
    "declined": ([Player("SPECIALIST_REQUEST[sends]", "End.")], decide(False), {}),
    "approval expired": ([Player("SPECIALIST_REQUEST[sends]", "End.")], nothing, {}),
    "steered": (
        [Player(slowly("One. Two. Three."), "More.")],
        on(Token, lambda run: run.apply(SteerTurn("Stop."))),
        {},
    ),
    "stopped in the text": ([Player(slowly("One. Two."))], on(Token, lambda run: run.stop()), {}),
    "stopped in a call": (
        [Player("SPECIALIST_REQUEST[waits]")],
        on(SpecialistStart, lambda run: run.stop("shutdown")),
        {},
    ),
    "out of time": (
        [Player("SPECIALIST_REQUEST[waits]SPECIALIST_REQUEST[echo]", [20.0, "x"])],
        nothing,
        {"ask": {"limits": Limits(turn_seconds=9.0)}},
    ),
    "fallback": ([Player([*slowly("The ans"), CUT_OFF], name="a"), Player(slowly("wer."), name="b")], nothing, {}),
    "failed": ([Player([*slowly("The ans"), CUT_OFF])], nothing, {}),
    "silent": ([Player(["The ans", 60.0])], nothing, {}),
    "refused prefill": ([Player("SPECIALIST_REQUEST[echo]", [PrefillRefused()], "End.")], nothing, {}),
    "too long": (
        [Player([ModelError("model_context", "Too long.")], "End.")],
        nothing,
        {"history": History("c", [Exchange("a"), Exchange("b")], trimmed=3, recalled=RecallResult(sentence="Tea."))},
    ),
    "files": (
        [Player(slowly("End."))],
        nothing,
        {"ask": {"attachments": (TEXT_FILE, Attachment(2, "a.png", "image/png", PNG))}},
    ),
    "reason": (
        [Player(slowly(f"<action>{ECHO}</action>"), slowly("<deliverable>4 m</deliverable>"))],
        *using("reason"),
    ),
    "dual": (
        [
            Player(slowly("<instruction>Ask.</instruction>"), "TASK_DONE<instruction>Say it.</instruction>", name="a"),
            Player(slowly(ECHO), "Found.", slowly("<deliverable>4 m</deliverable>"), name="b"),
        ],
        *using("dual"),
    ),
    "step": ([Player(slowly('echo(text="sea") and'), "analyze()", "Not yet.", ECHO, "ready()", "4 m")], *using("step")),
    "native calls": (
        [
            Player(
                [ToolsRefused(), "Look", NativeCall("echo", '{"text": "a"}'), NativeCall("find", "{"), Finish("stop")],
                [PrefillRefused()],
                ["End."],
                accepts_tools=True,
            )
        ],
        nothing,
        {"ask": {"syntax": ("native", "bracket")}},
    ),
    "native calls and their results": (
        [Player(["Look", NativeCall("echo", '{"text": "a"}'), NativeCall("echo", "{")], "End.", accepts_tools=True)],
        nothing,
        {"ask": {"syntax": ("native", "bracket")}},
    ),
    "tool of the client": (
        [Player('SPECIALIST_REQUEST[find:{"q":"tea"}]')],
        nothing,
        {"ask": {"tools": (Tool("find"),), "sampling": Sampling(max_tokens=9), "stop": ("x",)}},
    ),
}

TOWER = "The tower has 330 m. "
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RECALLED = RecallResult(relevant=(StoredItem("u1", "fact", "I live in Ulm.", BEGAN, BEGAN),))
FOUND = Assistance(is_assisted=True, name="finds", params={"text": "330 m"})
FAILING = msgspec.structs.replace(FOUND, params={"text": "none"})
WRITTEN = Assistance(is_assisted=True, name="finds", schema={"type": "object"})
PROBED = msgspec.structs.replace(FOUND, is_assisted=False, calls_after_miss=True)
TURNS |= {
    f"assisted: {name}": (players, nothing, {"assistance": assistance, "history": History("c", recalled=RECALLED)})
    for name, players, assistance in (
        ("prose", [Player(slowly(f"{TOWER}Ulm is in Ulm, near Ulm."))], FOUND),
        ("dropped prose", [Player(slowly("I like the moon. It is 7."))], FOUND),
        ("failed", [Player()], FAILING),
        ("refused", [Player()], Assistance(is_assisted=True, refusal="Write a letter.")),
        ("plain", [Player(slowly(f"{TOWER}{TOWER}"))], Assistance(is_assisted=True)),
        ("parameters", [Player(slowly('{"text": "9 m"}'), slowly("The tower has 9 m."))], WRITTEN),
        ("no parameters", [Player(slowly("9 m"), slowly("The tower has 9 m."))], WRITTEN),
        ("refused parameters", [Player([CUT_OFF], slowly("The tower has 9 m."))], WRITTEN),
        ("examined", [Player(slowly("Well."))], PROBED),
        ("fallback", [Player([CUT_OFF], name="a"), Player(slowly(TOWER), name="b")], FOUND),
    )
}


@pytest.mark.parametrize("name", TURNS)
def test_a_recorded_turn_has_the_same_events(name: str) -> None:
    players, react, options = TURNS[name]
    events, lines = record(players, react, options)
    assert plain(play(lines)) == plain(events)


def test_a_recording_has_no_files_and_no_texts_of_servers() -> None:
    files = (TEXT_FILE, Attachment(2, "a.png", "image/png", PNG))
    _, lines = record(
        [Player("Hi.")], nothing, {"ask": {"attachments": files}, "assistance": Assistance(is_assisted=True)}
    )
    (line,) = [line for line in lines if isinstance(line, PassLine)]
    assert "swordfish" not in line.messages[-1]["content"]
    _, lines = record([Player([CUT_OFF])], nothing, {"ask": {"attachments": files}})
    text = json.dumps(msgspec.to_builtins(lines))
    assert "swordfish" not in text
    assert "secret.example" not in text
    (line,) = [line for line in lines if isinstance(line, PassLine)]
    assert (line.number, line.attempt, line.model) == (1, 1, "player")
    assert line.report is not None
    assert line.report.error == "model_failed"
    assert line.messages[-1]["size"] > len(line.messages[-1]["content"])


def test_an_image_is_only_named() -> None:
    message = Message("user", "Look", (PNG,))
    history = History("c", [Exchange("", messages_before=(message,))])
    _, lines = record([Player("Nice.")], nothing, {"history": history})
    (line,) = [line for line in lines if isinstance(line, PassLine)]
    assert [one.get("images") for one in line.messages][1:] in (
        [[]],
        [None],
        [[{"type": "image/png", "size": len(PNG)}]],
    )


@pytest.mark.parametrize("cut", [0, -1])
def test_an_incomplete_recording_is_rejected(cut: int) -> None:
    _, lines = record([Player("Hi.")], nothing, {})
    with pytest.raises(BadRequest):
        Recording(lines[1:] if not cut else lines[:cut])


@pytest.mark.parametrize("chunk", [None, 1, [], {}, {"Finish": 1}, {"Nothing": {}}])
def test_a_recording_with_a_wrong_chunk_is_rejected(chunk: object) -> None:
    _, lines = record([Player("Hi.")], nothing, {})
    (line,) = [line for line in lines if isinstance(line, PassLine)]
    line.chunks = [(0.0, chunk)]
    with pytest.raises(BadRequest):
        Recording(lines)


def test_a_request_that_the_server_refuses_is_an_attempt() -> None:
    refusing = iter([PrefillRefused(), ToolsRefused()])

    def script(turn_pass: int) -> list[Item]:
        return [ECHO] if not turn_pass else [next(refusing, "End.")]

    _, lines = record([Player(script=script)], nothing, {})
    attempts = [line for line in lines if isinstance(line, PassLine)]
    assert [(line.number, line.attempt, line.report is None) for line in attempts] == [
        (1, 1, False), (2, 1, True), (2, 2, True), (2, 3, False),
    ]  # fmt: skip
    report = attempts[-1].report
    assert report is not None
    assert (report.is_prefill_refused, report.are_tools_refused) == (True, True)


def test_the_size_of_a_recording_is_limited() -> None:
    _, lines = record([Player("Hi.")], nothing, {"message": "x" * MAX_LENGTH})
    (line,) = [line for line in lines if isinstance(line, PassLine)]
    assert (line.messages, line.chunks) == ((), [])
    with pytest.raises(BadRequest):
        Recording(lines)
