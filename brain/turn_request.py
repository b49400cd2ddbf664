"""The request for a turn, the same for all protocols."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, count
from typing import Any, Literal

from brain.events import AssistMode, Limits, MarkerSyntax, StrategyName, SyntaxName
from brain.messages import Attachment, Source
from brain.task import Task
from brain.text import NAME_LENGTH, SPECIALIST_NAME


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options of a client. None means the model server's default.

    Attributes:
        max_tokens: Token limit of the whole answer, over all passes.
        effort: Whether and how hard to think first: False, True, or a level such as `low`.
        format: Format of the answer: `json`, or a JSON Schema. A model that must write JSON cannot write calls. So it
            gets no specialists with the strategy `mono`. With others, only the pass that writes the answer is bound.
        keep_alive: Time for which an Ollama server keeps the model loaded.
        dialect: Protocol of `more`. Only models of this protocol get these fields.
        more: Other fields of the request, unchanged. For Ollama clients, other options.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    effort: bool | str | None = None
    format: Literal["json"] | Mapping[str, Any] | None = None
    keep_alive: str | float | None = None
    dialect: Literal["openai", "ollama"] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a model decodes one pass, chosen by Brain.

    Attributes:
        is_plain: Whether a base model continues the messages as plain text. Other models ignore it.
        call_grammar: Grammar (GBNF) that applies from the first `SPECIALIST_REQUEST` in the text of the model. Only
            llama.cpp applies it, and only if the chat template has no reasoning. Other servers ignore it.
        stop: Texts before which the server ends the pass.
    """

    is_plain: bool = False
    call_grammar: str = ""
    stop: tuple[str, ...] = ()


DEFAULT_DECODING = Decoding()


def marker_syntaxes(syntax: Sequence[SyntaxName], *, is_native: bool = False) -> tuple[MarkerSyntax, ...]:
    """Return the forms of calls to read in a model's text, the one to teach first.

    Args:
        syntax: The call syntaxes of a request.
        is_native: Whether the model has tools. A model without tools always gets one form.
    """
    found = tuple(name for name in syntax if name != "native")
    return found or (() if is_native else ("bracket",))


TOOL_CHOICES = ("auto", "none", "required")
"""What a request may say about its tools, besides the name of one that the model must call."""

STRATEGY_OPTIONS: Mapping[StrategyName, tuple[str, ...]] = {"mono": (), "reason": (), "dual": ("critic",), "step": ()}
"""Fields of a request that only some strategies have."""
CRITIC_ROUNDS = 5
"""Rounds that the strategy `dual` needs for a critic."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A client tool, which the client runs. `parameters` is a JSON Schema. All of it is untrusted."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def name_tools(tools: Sequence[Tool], reserved: Container[str]) -> dict[str, Tool]:
    """Return the tools by unique names for the model, none of which is `reserved`."""
    named: dict[str, Tool] = {}
    for tool in tools:
        name = callable_name(tool.name, reserved)
        endings = chain([""], map("_{}".format, count(2)))
        names = (name[: NAME_LENGTH - len(ending)] + ending for ending in endings)
        named[next(name for name in names if name not in named and name not in reserved)] = tool
    return named


def callable_name(name: str, reserved: Container[str] = ()) -> str:
    """Return a tool's name if the model can use it, else a similar name."""
    if SPECIALIST_NAME.fullmatch(name) and name not in reserved and name not in TOOL_CHOICES:
        return name
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in name)
    return f"client_{letters}"[:NAME_LENGTH]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for a turn. Only `user` is trusted, because the auth middleware checked it.

    Attributes:
        attachments: New files, numbered from 1 in this message. The conversation renumbers them.
        specialists: Names of the specialists that the model may call. None allows all.
        system: Instructions of the client, after those of Brain and the operator.
        context: Texts that the model reads before the message, by their names: `goal`, `background`, and so on.
        call_seconds: The client's time limit for a call. None means the specialist's.
        now: Time of the request in the user's time zone. None gives the model no time.
        tools: Client tools. A call of one ends the turn, and the client answers it.
        must_call: Whether the model must call one of the tools, or the name of that tool.
        stop: Stop sequences. The answer ends before the first of them.
        replaces: ID of the stored answer that this turn replaces, with everything after it.
        reused_files: IDs of files of the replaced question, before the new ones; with their fields, for errors.
        request_id: The client's ID, by which other requests can join the turn.
        asks_person: Whether a person can approve calls. Otherwise Brain declines them at once.
        source: How the user wrote the message. A spoken message gets an answer to listen to.
        private: Whether only local models may read the conversation. Also True if the stored conversation is private.
        memory: Whether to recall facts and memories of the user.
        barge_in: Whether to end a running turn of the same conversation.
        strategy: How the turn uses models.
        critic: Whether the strategy `dual` checks the answer before it is shown.
        assist: When Brain calls specialists for the model; None for the setting.
        task: The background task that the turn runs. Its calls wait for approvals as long as it takes.
    """

    message: str
    user: str | None
    limits: Limits
    syntax: tuple[SyntaxName, ...]
    time_zone: str
    conversation_id: str | None = None
    attachments: tuple[Attachment, ...] = ()
    model: str | None = None
    specialists: frozenset[str] | None = None
    system: str = ""
    context: tuple[tuple[str, str], ...] = ()
    call_seconds: float | None = None
    now: datetime | None = field(default=None, compare=False)
    tools: tuple[Tool, ...] = ()
    must_call: bool | str = False
    stop: tuple[str, ...] = ()
    sampling: Sampling = DEFAULT_SAMPLING
    replaces: str | None = None
    reused_files: Mapping[int, str] = field(default_factory=dict)
    request_id: str | None = None
    asks_person: bool = False
    source: Source = "chat"
    private: bool = False
    memory: bool = True
    barge_in: bool = False
    strategy: StrategyName = "mono"
    critic: bool = False
    assist: AssistMode | None = None
    task: Task | None = None
