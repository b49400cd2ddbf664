"""What goes to a model (messages), what comes back from it (chunks), and what is kept of it (parts)."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from brain.events import Approval, CallCode, CalledBy, Citation, Error, ErrorCode, Notice, StopReason, Thinking, Usage

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""A number that every client can read: those in JavaScript have no larger ones."""
PassNumber = Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)]
"""Counts the passes of a turn from 1. Those of a history that the client holds are negative."""

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


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a request to a model; `images` are encoded image files."""

    role: Literal["system", "user", "assistant"]
    content: str
    images: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class PassUsage:
    """What the server counted for one pass; `reused` is the part of the prompt it had in its cache."""

    prompt: int
    completion: int
    reused: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the model stopped by itself."""

    reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How many tokens of the prompt the server has read, out of those that it did not have in its cache."""

    read: int
    of: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A tool call in the server's own form; nothing in it is checked, and `arguments` may be anything but JSON."""

    name: str
    arguments: str


Chunk = str | Thinking | NativeCall | PassUsage | Finish | PromptProgress
"""What a model streams; a plain string is text of the answer, as much as one read brought."""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text of an answer."""

    text: str
    turn_pass: PassNumber


class Call(msgspec.Struct, tag="call", omit_defaults=True):
    """A call: the scanner makes it, the turn completes it, the store encodes it.

    Attributes:
        name: of the specialist or client tool; `?` where the marker could not be read.
        marker: as the model wrote it; empty where there is none to be shown.
        params: None when they could not be read.
        id: unique in the turn; for a client tool, in all turns.
        by: who asked for it: the model, or an attachment (`auto`). `client`: the client runs it itself.
        turn_pass: the number of the pass; 0 for a call of an attachment.
        code: why it failed; None with a block is a success.
        text: what the scanner found wrong with the marker. A complete call has its words in the block alone.
        block: answers it in the transcript; empty until the call is complete.
        approval: whether a person was asked, and what came of it.
        preview: what the person read that it would do.
        cached: whether an earlier call was answered so.
        untrusted: whether the block may hold the words of strangers.
        began_ms: milliseconds from the beginning of the turn to the call.
        ms: how long it took, without the wait for an approval; None while it runs.
    """

    name: str
    marker: str = ""
    params: dict[str, Any] | None = None
    id: str = ""
    by: CalledBy = "model"
    turn_pass: PassNumber = 0
    code: CallCode | None = None
    text: str = ""
    block: str = ""
    citations: tuple[Citation, ...] = ()
    approval: Approval | None = None
    preview: str | None = None
    cached: bool = False
    untrusted: bool = False
    began_ms: Count = 0
    ms: Count | None = None

    @property
    def outcome(self) -> Literal["ok"] | CallCode | None:
        """`ok` or its code; None while it runs."""
        return (self.code or "ok") if self.block else None


class Steer(msgspec.Struct, frozen=True, tag="steer"):
    """A message that the user sent while the answer was written."""

    text: str
    turn_pass: PassNumber


Part = Text | Call | Steer


@dataclass(frozen=True, slots=True)
class Annotation:
    """What its reader saw beside the text of an answer: a notice, or what the model thought.

    Attributes:
        place: how many calls and texts of the answer stand before it, also those that files asked for; `at`, how many
            characters of the text behind do.
    """

    told: Notice | Thinking
    place: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class AnswerDetails:
    """How an answer came to be, for its reader. No model ever reads it.

    Attributes:
        failure: with which it ended, if so.
    """

    asides: tuple[Annotation, ...] = ()
    usage: Usage | None = None
    first_token_ms: int | None = None
    total_ms: int | None = None
    failure: Error | None = None


@dataclass(slots=True)
class Exchange:
    """One message of a user, as the model read it, and the answer to it. Times are aware and UTC.

    Attributes:
        question: as the model read it, with clock, files and blocks; empty when nobody asked: what follows is then
            answered.
        before: instructions that a client put before the question; `behind`, between it and the answer.
        answer_id, question_id: by which the two messages can be named later.
        said: the user's own words, and nothing else.
        files: the ids of the attachments that came with it.
        asked, answered: when it was asked, and when its answer ended.
        outcome: how it ended: `interrupted` where the server died, else a stop reason or the code of an error; empty as
            long as it runs.
        model: who answered.
        tokens: what it takes of a prompt, as far as the server counted; 0 where it did not.
        recalled: the ids of the facts and memories that the model read with it.
        outside: whether the model had read words of strangers when the answer ended: blocks, files, what was recalled.
        one_way: the calls that its files asked for, whose blocks stand in the question.
        about: what its reader sees beside the parts.
    """

    question: str
    parts: list[Part] = field(default_factory=list)
    before: tuple[Message, ...] = ()
    behind: tuple[Message, ...] = ()
    answer_id: str = field(default="", compare=False)
    question_id: str = field(default="", compare=False)
    said: str = field(default="", compare=False)
    files: tuple[int, ...] = field(default=(), compare=False)
    source: Source = field(default="chat", compare=False)
    asked: datetime | None = field(default=None, compare=False)
    answered: datetime | None = field(default=None, compare=False)
    outcome: str = field(default="", compare=False)
    model: str = field(default="", compare=False)
    tokens: int = field(default=0, compare=False)
    recalled: tuple[str, ...] = field(default=(), compare=False)
    outside: bool = field(default=False, compare=False)
    one_way: tuple[Call, ...] = field(default=(), compare=False)
    about: AnswerDetails = field(default=AnswerDetails(), compare=False)

    @property
    def own_words(self) -> list[str]:
        """What the user said: first, and while the answer was written."""
        return [self.said, *(part.text for part in self.parts if isinstance(part, Steer))]

    @property
    def visible(self) -> str:
        """The answer as its reader saw it."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def new_message_id() -> str:
    """An id of a question or an answer, that nobody guesses."""
    return f"m{secrets.token_hex(8)}"


def new_turn_id() -> str:
    """The same of a turn."""
    return f"t{secrets.token_hex(8)}"


def new_conversation_id() -> str:
    """The same of a conversation."""
    return f"conv{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class ClientToolCall:
    """A call of a client's own tool, as the client tells of it."""

    call_id: str
    name: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One message of a history that the client holds; nothing in it is trusted.

    Attributes:
        attachments: its files; their ids are given later.
        calls: of the assistant's, those of the client's own tools.
        call_id: of a tool's, the call that it answers.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    calls: tuple[ClientToolCall, ...] = ()
    call_id: str = ""


Category = Literal["personal", "preferences", "knowledge", "general"]
Kind = Literal["fact", "memory"]
CLOCK_NOTE = r"\(Now: \w{1,20} \d{4}-\d\d-\d\d .{1,80}\)|It is \w{1,20} \d{4}-\d\d-\d\d \d\d:\d\d, .{1,80}\."
"""A pattern of the line in a question that tells the time. Questions stored by older versions have the first form."""
OWN_WORDS = "In the user's own words: "
"""The beginning of a memory of a conversation that quotes the user. No summary that a model writes begins so."""
NOTE_OPENS = "(Recalled of earlier conversations, "
"""How the line of a question begins that tells the model what is recalled for it; nobody else can write it."""


@dataclass(slots=True)
class Record:
    """A conversation that one turn holds.

    Attributes:
        key: of the turn's own place in the store.
        exchanges: the newest of those before it that ended, oldest first, as many as were asked for.
        count: how many there are.
        attachments: the files of all of them, in the order of their ids.
        files: those that came with the new message, with ids that go on from the earlier ones.
    """

    key: int
    user: str
    id: str
    exchanges: list[Exchange] = field(default_factory=list)
    count: int = 0
    attachments: list[Attachment] = field(default_factory=list)
    files: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation in a list of them.

    Attributes:
        messages: how many the user and the model said.
        running: whether a turn of it runs.
        found: for a search, the place where the words stand.
    """

    id: str
    title: str
    created: datetime
    updated: datetime
    messages: int
    sources: Sequence[Source] = ()
    running: bool = False
    found: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """An attachment without its content."""

    id: int
    name: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A conversation as its user reads it: some of its exchanges, oldest first, and the files that came with them.

    Attributes:
        earlier: the id of the oldest question here, before which there are more; None when there are none.
        size: about how many bytes the exchanges take.
    """

    heading: Conversation
    exchanges: Sequence[Exchange]
    files: Sequence[File]
    earlier: str | None
    size: int = 0


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation, as its user reads it.

    Attributes:
        time: when it was asked, or its answer ended; None while that is written.
        text: the user's own words, or the visible answer.
        parts: of an answer: texts, calls with their blocks (first those that files asked for), and what the user put
            in, in their order.
        outcome: of an answer, how it ended; empty while it is written.
    """

    id: str
    role: Literal["user", "assistant"]
    time: datetime | None
    source: Source
    text: str
    parts: Sequence[Part] = ()
    outcome: str = ""

    @property
    def call_ids(self) -> list[str]:
        """Of the calls in it, in their order."""
        return [part.id for part in self.parts if isinstance(part, Call)]

    @property
    def citations(self) -> list[Citation]:
        """Of all its calls."""
        return [citation for part in self.parts if isinstance(part, Call) for citation in part.citations]


def chat_messages(exchange: Exchange) -> tuple[ChatMessage, ChatMessage]:
    """The two messages of an exchange."""
    asked = ChatMessage(exchange.question_id, "user", exchange.asked, exchange.source, exchange.said)
    answer = ChatMessage(
        exchange.answer_id,
        "assistant",
        exchange.answered,
        exchange.source,
        exchange.visible,
        (*exchange.one_way, *exchange.parts),
        exchange.outcome,
    )
    return asked, answer


@dataclass(frozen=True, slots=True)
class Former:
    """What a fact said before it was corrected."""

    text: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Item:
    """A fact that the user stated, or the memory of a conversation.

    Attributes:
        category: of a fact.
        mutable: whether a model may correct or forget it.
        conversation_id, message_id: where it was said; None where the user wrote it down, or that was deleted.
        outside: whether strangers' words may stand in it.
        was: what it said before, oldest first.
    """

    id: str
    kind: Kind
    text: str
    created: datetime
    updated: datetime
    category: Category | None = None
    mutable: bool = True
    conversation_id: str | None = None
    message_id: str | None = None
    outside: bool = False
    was: tuple[Former, ...] = ()

    @property
    def is_summary(self) -> bool:
        """Whether a model wrote the text; facts and other memories quote the user."""
        return self.kind == "memory" and not self.text.startswith(OWN_WORDS)


@dataclass(frozen=True, slots=True)
class IdleConversation:
    """A conversation that rests, with what its memory does not hold yet.

    Attributes:
        exchanges: the newest of these, oldest first.
        memory: what was made of the earlier ones.
        upto: the key of the newest one, in the store.
    """

    user: str
    conversation_id: str
    title: str
    exchanges: Sequence[Exchange]
    memory: Item | None
    upto: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of a user is kept, was forgotten, or was taken in."""

    conversations: int = 0
    messages: int = 0
    files: int = 0
    facts: int = 0
    memories: int = 0


class EmbeddingCheck(msgspec.Struct, frozen=True):
    """Whether a model's embeddings carry meaning: questions must be nearest to their own answers.

    Attributes:
        key: names the model by its embeddings, since another one may have the same name later.
        size: numbers of an embedding.
        right: questions, of 8, that are nearest to their own answers.
        own: the mean cosine of a question and its answer.
        other: the mean cosine of a question and another answer.
    """

    key: str
    size: int
    right: int
    own: float
    other: float

    @property
    def is_meaningful(self) -> bool:
        """Whether the check is passed."""
        return self.right >= 6

    def floor(self, share: float) -> float:
        """The cosine at this share of the way from `other` to `own`, below which a text is unrelated to a query."""
        return self.other + share * (self.own - self.other)


@dataclass(frozen=True, slots=True)
class Near:
    """What is looked for by its meaning: the vector that a model makes of it."""

    model: str
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class Interaction:
    """What was said once, literally: the user's words and what was answered.

    `outside` says whether strangers' words may stand in the answer.
    """

    conversation_id: str
    asked: datetime
    said: str
    answer: str
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is recalled for a question.

    Attributes:
        note: what the model reads; empty when nothing is recalled.
        said: the same in a sentence for the user.
    """

    note: str = ""
    items: tuple[Item, ...] = ()
    said: str = ""

    @property
    def outside(self) -> bool:
        """Whether strangers' words may stand in it."""
        return any(item.outside for item in self.items)


@dataclass(frozen=True, slots=True)
class History:
    """What a turn goes on from: what was said before, and the files that came with it.

    Attributes:
        trimmed: how many of the oldest exchanges are left out, if more than were for the question before.
        rested: whether all are, because the conversation rested for long.
        recalled: what the memory has to the question.
        begun: what an answer is gone on with, if it was begun: the newest question with what clients put around it, and
            the calls that they answered since.
        outside: whether strangers' words may stand in it, although no block says so.
    """

    id: str
    exchanges: Sequence[Exchange] = ()
    attachments: Sequence[Attachment] = ()
    trimmed: int = 0
    begun: Exchange | None = None
    outside: bool = False
    rested: bool = False
    recalled: Recalled = field(default_factory=Recalled)


State = Literal["running", "waiting", "done", "error"]
"""`waiting` is for somebody's approval."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """One request to the model; `first_token_ms` is that of its first visible text."""

    number: int
    began_ms: int
    first_token_ms: int | None
    ended_ms: int | None
    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int | None
    estimated: bool
    finish: StopReason | None
    error: ErrorCode | None = None


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn; `wire` is the protocol of who asked."""

    turn_id: str
    conversation_id: str
    message_id: str
    user: str | None
    wire: str
    model: str
    state: State
    began: datetime
    total_ms: int
    first_token_ms: int | None
    stop_reason: StopReason | None
    error: ErrorCode | None
    usage: Usage
    passes: Sequence[PassReport]
    calls: Sequence[Call]

    @property
    def outcome(self) -> str:
        """How it ended: its error's code, or its stop reason; while it runs, its state."""
        return self.error or self.stop_reason or self.state
