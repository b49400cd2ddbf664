"""What the tests of turns share: a model that plays passes and keeps what it was asked, specialists, short events."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

from fast_clock import run_jumping

from brain.errors import Refused
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Limits,
    Notice,
    Resume,
    Rewind,
    Round,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    SyntaxName,
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.messages import Attachment, Chunk, Finish, History, Message
from brain.models.model import Model, PassRequest, Take
from brain.plugins.context import Progress, Result
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist, specialist
from brain.strategies.mono import Mono
from brain.turn.setup import Timeouts, TurnSetup
from brain.turn.turn import Turn
from brain.turn_request import Decoding, Sampling, TurnRequest

PNG = b"\x89PNG\r\n\x1a\n"
WAIT = 30.0
"""Longer than any test may take: what waits for so long is waited for by nobody."""

Item = Chunk | float | asyncio.Event | Exception
"""What a pass plays: a chunk to give, seconds or something to wait for, an error to raise."""


async def _give(take: Take | None, text: str | Thinking) -> bool:
    """Give a text to a pass as the transport does: in a callback, while the stream waits."""
    taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def give() -> None:
        is_taken = take is not None and take(text)
        if not taken.done():  # the text has not ended the pass
            taken.set_result(is_taken)

    asyncio.get_running_loop().call_soon(give)
    return await taken


class Player(Model):
    """A model that plays passes, and keeps what it was asked and offered, what it gave, and which streams are open.

    Attributes:
        begun: set when a request has come, for a test in another thread.
        closed: set when a stream has ended or was closed, likewise.
    """

    is_language_model = False

    def __init__(
        self,
        *passes: Sequence[Item] | str,
        resume: Resume = "prefill",
        accepts_tools: bool = False,
        context_tokens: int | None = None,
        name: str = "player",
        template: str = "",
        script: Callable[[int], Sequence[Item]] | None = None,
        gives_directly: bool = False,
    ) -> None:
        super().__init__(name)
        self.gives_directly = gives_directly
        self.template = template
        self.resume = resume
        self.context_tokens = context_tokens
        self.accepts_tools = accepts_tools
        self.requests: list[list[Message]] = []
        self.offers: list[tuple[Sequence[Mapping[str, Any]], str]] = []
        self.samplings: list[Sampling] = []
        self.decodings: list[Decoding] = []
        self.given: list[list[Chunk]] = []
        self.open = 0
        self.begun = threading.Event()
        self.closed = threading.Event()
        self._passes = passes
        self._script = script

    def _items(self, turn_pass: int) -> Sequence[Item]:
        if self._script is not None:
            return self._script(turn_pass)
        played = self._passes[turn_pass] if turn_pass < len(self._passes) else ()
        return [played] if isinstance(played, str) else played

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(list(request.messages))
        self.offers.append((request.tools, request.tool_choice))
        self.samplings.append(request.sampling)
        self.decodings.append(request.decoding)
        self.given.append([])
        self.open += 1
        self.begun.set()
        try:
            items = self._items(request.turn_pass)
            for item in [*items, *([] if any(isinstance(item, Finish) for item in items) else [Finish("stop")])]:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, int | float | asyncio.Event):
                    await (item.wait() if isinstance(item, asyncio.Event) else asyncio.sleep(item))
                    continue
                self.given[-1].append(item)
                if self.gives_directly and isinstance(item, str | Thinking) and await _give(request.take, item):
                    continue
                yield item
        finally:
            self.open -= 1
            self.closed.set()


@specialist
async def echo(text: str = "nothing") -> Result:
    """Says the text again."""
    return Result(text, [Citation("1", "The text", "https://example.org/text")])


@specialist
async def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError("the password is swordfish")


@specialist
async def refuses() -> str:
    """Says no."""
    raise Refused("Which calendar? home, work")


@specialist(timeout=0.05)
async def hangs() -> str:
    """Takes longer than it may."""
    await asyncio.sleep(WAIT)
    return "never"


@specialist(timeout=WAIT)
async def waits(seconds: float = WAIT) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g}"


@specialist
async def counts(to: int) -> AsyncGenerator[Progress | str, None]:
    """Counts."""
    yield Progress("counting", 0.5)
    yield f"counted to {to}"


@specialist(requires_user=True)
async def private() -> str:
    """Only for users."""
    return "secret"


@specialist(approval="always")
async def sends() -> str:
    """Sends a letter."""
    return "sent"


@specialist(needs=lambda: "its engine is not there: pip install engine")
async def absent() -> str:
    """Lacks its engine."""
    return "never"


EVERYONE: tuple[Specialist[..., Any], ...] = (echo, add, breaks, refuses, hangs, waits, counts, private, sends, absent)

KINDS = (
    'SPECIALIST_REQUEST[echo:{"text":"%d"}]',
    'SPECIALIST_REQUEST[add:{"a":%d,"b":1}]',
    "SPECIALIST_REQUEST[echo]",
    "SPECIALIST_REQUEST[breaks]",
    "SPECIALIST_REQUEST[oracle%d]",
    "SPECIALIST_REQUEST[echo:{%d",
    'SPECIALIST_REQUEST[add:{"a":"%d"}]',
    "[SPECIALIST_RESULT: echo]%d[/SPECIALIST_RESULT]",
    "SPECIALIST_REQUEST[sends]",
    '<function_call>{"name":"echo"}</function_call>',
)
"""Calls of every kind; `%d` makes them differ."""


def registry_of(*specialists: Specialist[..., Any], registry: Registry | None = None) -> Registry:
    """A registry of these specialists, or of everyone."""
    registry = Registry() if registry is None else registry
    for one in specialists or EVERYONE:
        registry.add(one)
    return registry


def ask_for(
    message: str = "Hi",
    *,
    limits: Limits | None = None,
    user: str | None = "ada",
    attachments: tuple[Attachment, ...] = (),
    specialists: Iterable[str] | None = None,
    syntax: tuple[SyntaxName, ...] = ("bracket", "function_call"),
    **more: Any,
) -> TurnRequest:
    """What is asked, with the usual limits."""
    return TurnRequest(
        message=message,
        user=user,
        limits=limits or Limits(),
        syntax=syntax,
        time_zone="Europe/Berlin",
        attachments=attachments,
        specialists=None if specialists is None else frozenset(specialists),
        **more,
    )


def turn_of(
    model: Any,
    registry: Registry | None = None,
    ask: TurnRequest | None = None,
    conversation: History | None = None,
    **options: Any,
) -> Turn:
    """A turn, ready to be read."""
    times = {"silence": "silence", "first_token": "first_token", "approval_seconds": "approval"}
    timeouts = Timeouts(**{times[name]: options.pop(name) for name in times if name in options})
    strategy = options.pop("strategy", Mono)
    setup = TurnSetup(
        request=ask or ask_for(),
        history=conversation or History("c"),
        models=[model, *options.pop("fallbacks", ())],
        registry=registry_of() if registry is None else registry,
        timeouts=timeouts,
        **options,
    )
    return Turn(setup, strategy)


async def read(turn: Turn, on_event: Callable[[Event], None] = lambda event: None) -> list[Event]:
    """All events of a turn; what every turn promises is looked at here."""
    events: list[Event] = []

    def emit(batch: Sequence[Event]) -> None:
        assert batch
        for event in batch:
            events.append(event)
            on_event(event)

    try:
        await turn.run(emit)
    finally:
        emit(turn.end())
    assert isinstance(events[0], TurnStart | Rewind)
    assert isinstance(events[-2], Usage)
    ends = [event for event in events if isinstance(event, Done | Error)]
    assert ends == [events[-1]]
    return events


def played(
    *passes: Sequence[Item] | str, registry: Registry | None = None, ask: TurnRequest | None = None, **options: Any
) -> tuple[list[Any], Turn, Player]:
    """The events of a turn, in short, when the model plays these passes; waiting takes no time.

    Nothing of it may be left running.
    """

    async def main() -> tuple[list[Any], Turn, Player]:
        model = Player(*passes)
        turn = turn_of(model, registry, ask, **options)
        events = short(await read(turn))
        assert model.open == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return events, turn, model

    return run_jumping(main())


def short(events: Iterable[Event]) -> list[Any]:
    """Events without ids of turns, times and usage; neighbouring texts are joined."""
    found: list[Any] = []
    for event in events:
        piece = _short(event)
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif isinstance(event, Thinking) and found and "thinking" in found[-1] and not isinstance(found[-1], str):
            found[-1] = {"thinking": found[-1]["thinking"] + event.text}
        elif piece is not None:
            found.append(piece)
    return found


def _short(event: Event) -> Any:
    match event:
        case Token(text):
            return text
        case Thinking(text):
            return {"thinking": text}
        case SpecialistStart(call_id, name, params, by):
            return {"start": call_id, "name": name, "params": _plain(params), **({"by": by} if by != "model" else {})}
        case Round(n, role=role):
            return f"\n{n} {role}: "
        case SpecialistProgress(call_id, text, fraction):
            return {"progress": call_id, "text": text, "fraction": fraction}
        case SpecialistResult(call_id, text=text, cached=cached):
            return {"result": call_id, "text": text, **({"cached": True} if cached else {})}
        case SpecialistError(call_id, name, code=code):
            return {"error": call_id, "name": name, "code": code}
        case ApprovalRequired(call_id, name, params):
            return {"approve": call_id, "name": name, "params": _plain(params)}
        case ToolCall(_, name, params):
            return {"tool": name, "params": _plain(params)}
        case Notice("steered", text):
            return {"steered": text}
        case Notice(code):
            return {"notice": code}
        case Error(code):
            return {"failed": code}
        case Done(stop_reason, text=text, calls=calls, passes=passes):
            return {"done": stop_reason, "text": text, "calls": calls, "passes": passes}
    return None


def _plain(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(params or {})


def done(text: str, calls: int = 0, passes: int = 1, reason: str = "complete") -> dict[str, Any]:
    """The end of a turn, in short."""
    return {"done": reason, "text": text, "calls": calls, "passes": passes}


def failed(name: str, code: str, call_id: str = "c1") -> dict[str, Any]:
    """A failed call, in short."""
    return {"error": call_id, "name": name, "code": code}


def succeeded(name: str, text: str, call_id: str = "c1", **params: Any) -> list[dict[str, Any]]:
    """A call that starts and succeeds, in short."""
    return [{"start": call_id, "name": name, "params": params}, {"result": call_id, "text": text}]


def outcome(turn: Turn) -> str:
    """How a turn ended, or that it was cut, with its numbers of calls and passes."""
    exchange = turn.snapshot()
    calls = sum(call.by == "model" for call in exchange.calls)
    return f"{exchange.outcome or 'cut'}, {calls} calls, {len(exchange.passes)} passes"


def prose(length: int, seed: int = 0) -> str:
    """Text of so many characters that does not repeat itself; nor does it that of another seed."""
    return " ".join(f"{seed:x}x{n:x}" for n in range(length // 4 + 1))[:length]


def words(count: int) -> list[str]:
    """Different words, for long texts: a model that repeats itself is stopped."""
    return ["word" + "".join("abcdefghij"[int(digit)] for digit in str(n)) for n in range(count)]
