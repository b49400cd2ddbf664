"""Ground: what a client asks of one turn, parsed and checked, and what it attached."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from brain.sampling import UNSAID, Sampling

SyntaxName = Literal["bracket", "function_call", "mention"]
Source = Literal["chat", "voice", "api"]
"""How a message was said: typed, spoken, or sent by a program."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may use at most; times in seconds."""

    calls: int = 5
    calls_per_specialist: int = 3
    turn_seconds: float = 600.0
    call_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of the conversation; `id` counts from 1 through it. `data` is as the client sent it: untrusted."""

    id: int
    name: str
    type: str
    data: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """`image`, `pdf`, or the first word of the type; its content counts more than what the client calls it."""
        kind, _, rest = sniff(self.data, self.type).partition("/")
        return "pdf" if rest == "pdf" else kind

    @property
    def text(self) -> str | None:
        """Its content, when that is plain text in UTF-8."""
        if self.kind in ("image", "pdf") or b"\0" in self.data:
            return None
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None


@dataclass(frozen=True, slots=True)
class TakenAlong:
    """A file of the question that is replaced, which is to be the new one's, too.

    `field` is the name by which the client asked for it.
    """

    id: int
    field: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the client brought, and runs itself; `parameters` is a JSON Schema. Untrusted, like all it says."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a turn. Nothing in it is trusted but `user`, which the door checked.

    Attributes:
        attachments: new ones, numbered from 1 in this message; the conversation renumbers them.
        specialists: the only names that may be called; None allows all.
        system: the client's own instructions, behind Brain's and the operator's.
        call_seconds: how long the request wants a call to take at most; None leaves it to the specialist.
        now: when it was asked, in the user's time zone; None tells the model of no time.
        tools: the client's own; a call of one ends the turn, for the client to answer.
        must_call: whether one of the tools has to be called; a name says which.
        stop: texts at the first of which the answer ends, without it.
        replaces: the id of the stored answer that this turn takes the place of, with all behind it.
        taken_along: files of its question, which stand before the new ones.
        request_id: the client's own, by which the turn can be joined.
        asks_person: whether somebody can be asked to approve a call; without, such a call is declined at once.
        source: how the message was said; a spoken one is answered for the ear.
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
    sampling: Sampling = UNSAID
    replaces: str | None = None
    taken_along: tuple[TakenAlong, ...] = ()
    request_id: str | None = None
    asks_person: bool = False
    source: Source = "chat"
    memory: bool = True
    barge_in: bool = False


def renumbered(attachments: tuple[Attachment, ...], after: int) -> tuple[Attachment, ...]:
    """The same attachments with ids that go on after `after`."""
    return tuple(replace(attachment, id=after + n) for n, attachment in enumerate(attachments, 1))


def sniff(data: bytes, claimed: str) -> str:
    """The media type that the first bytes of `data` show, else `claimed`."""
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return claimed
