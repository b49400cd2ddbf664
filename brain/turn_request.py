"""One request for a turn, the same for all protocols."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from brain.events import Limits, SyntaxName
from brain.messages import Attachment, FileReference, Source

Dialect = Literal["openai", "ollama"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a client asks of the model's writing; None leaves it to the model's server.

    Attributes:
        max_tokens: of the whole answer, over all passes.
        effort: whether and how hard to think first: False, True, or a level such as `low`.
        format: what the answer must be: `json`, or a JSON Schema. A model that must write JSON can write no marker, so
            no specialist is offered to it.
        keep_alive: how long an Ollama server keeps the model loaded after the answer.
        dialect: the protocol in which `more` is written; only models of that protocol get it.
        more: further fields of the request, unchanged; of an Ollama client's, further options.
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
    dialect: Dialect | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the client brings, and runs itself; `parameters` is a JSON Schema. All of it is untrusted."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One request for a turn. Nothing in it is trusted but `user`, which the auth middleware checked.

    Attributes:
        attachments: new ones, numbered from 1 in this message; the conversation renumbers them.
        specialists: the only names that may be called; None allows all.
        system: the client's own instructions, after Brain's and the operator's.
        call_seconds: the client's time limit for a call; None leaves it to the specialist.
        now: the time of the request, in the user's time zone; None tells the model no time.
        tools: the client's own; a call of one ends the turn, for the client to answer.
        must_call: whether one of the tools has to be called; a name says which.
        stop: texts at the first of which the answer ends, without it.
        replaces: the id of the stored answer that this turn replaces, with all after it.
        file_references: files of its question, which stand before the new ones.
        request_id: the client's own, by which the turn can be joined.
        asks_person: whether a person can approve a call; otherwise such a call is declined at once.
        source: how the message was written; a spoken one is answered for the ear.
        memory: whether facts and memories of the user are recalled for it.
        barge_in: whether it ends a turn of the same conversation that still runs.
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
    call_seconds: float | None = None
    now: datetime | None = field(default=None, compare=False)
    tools: tuple[Tool, ...] = ()
    must_call: bool | str = False
    stop: tuple[str, ...] = ()
    sampling: Sampling = DEFAULT_SAMPLING
    replaces: str | None = None
    file_references: tuple[FileReference, ...] = ()
    request_id: str | None = None
    asks_person: bool = False
    source: Source = "chat"
    memory: bool = True
    barge_in: bool = False
