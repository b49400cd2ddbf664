"""Messages to a model, chunks of its answer, and what is stored: calls, exchanges, conversations, items of memory."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from brain.events import (
    Approval,
    CallCode,
    CalledBy,
    Citation,
    Error,
    ErrorCode,
    NoticeCode,
    StopReason,
    Thinking,
    Usage,
)

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""A number that every client can read: those in JavaScript have no larger ones."""
PassNumber = Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)]
"""Counts the passes of a turn from 1. Those of a history that the client holds are negative."""

Source = Literal["chat", "voice", "api"]
"""How a message was written: typed, spoken, or sent by a program."""


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
        """`image`, `pdf`, or the first word of the type; the content counts more than the client's type."""
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
class FileReference:
    """A file of the replaced question that the new question has, too; `field` is the client's name of the parameter."""

    id: int
    field: str


def renumber(attachments: tuple[Attachment, ...], after: int) -> tuple[Attachment, ...]:
    """Give attachments the ids that follow `after`."""
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
        by: the model, or an attachment (`auto`). `client`: the client runs it itself.
        turn_pass: the number of the pass; 0 for a call of an attachment.
        code: why it failed; None with a block is a success.
        reason: why it failed, for people.
        block: answers it in the transcript; empty until the call is complete.
        approval: a person's decision, if it needed one; `preview`, what the person read that it would do.
        cached: whether the result is that of an earlier call.
        untrusted: whether the block may hold untrusted content.
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
    reason: str = ""
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


class Annotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notice, or what the model thought, which the user saw beside the text of an answer.

    Attributes:
        position: the number of automatic calls and parts before it.
        offset: the number of characters before it in the part at its position, if that is text.
        code: of the notice; None for what the model thought.
    """

    text: str
    position: Count
    offset: Count = 0
    code: NoticeCode | None = None


Time = Annotated[datetime, Meta(tz=True)]
"""Aware; UTC where Brain made it."""


class Exchange(msgspec.Struct, omit_defaults=True):
    """One message of a user and the answer to it, as the store encodes them.

    Attributes:
        question: what the model read: the message with clock, files and blocks. Empty when there is no message: then
            the model answers `messages_after`.
        parts: the answer; its calls have their blocks.
        messages_before: messages of a client before the question; `messages_after`, between question and answer.
        message: the user's own words, and nothing else.
        files: ids of the attachments that came with the message.
        outcome: a stop reason or the code of an error; `interrupted` where the server died; empty while it runs.
        tokens: what it takes of a prompt, as the model's server counted; 0 where it did not.
        recalled_ids: of the facts and memories that the model read with the question.
        untrusted: whether the model had read untrusted content when the answer ended: blocks, files, recalled items.
        automatic_calls: those that the files made, whose blocks are in the question.
        annotations: what only the user reads, in order; also `usage`, the times in milliseconds, and `error`.
    """

    question: str
    parts: list[Part] = []
    messages_before: tuple[Message, ...] = ()
    messages_after: tuple[Message, ...] = ()
    answer_id: str = ""
    question_id: str = ""
    message: str = ""
    files: tuple[int, ...] = ()
    source: Source = "chat"
    started: Time | None = None
    ended: Time | None = None
    outcome: str = ""
    model: str = ""
    tokens: Count = 0
    recalled_ids: tuple[str, ...] = ()
    untrusted: bool = False
    automatic_calls: tuple[Call, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    usage: Usage | None = None
    first_token_ms: Count | None = None
    total_ms: Count | None = None
    error: Error | None = None

    @property
    def user_messages(self) -> list[str]:
        """The messages of the user: the first, and those sent while the answer was written."""
        return [self.message, *(part.text for part in self.parts if isinstance(part, Steer))]

    @property
    def answer(self) -> str:
        """The text that the user sees."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def new_message_id() -> str:
    """Return an ID of a question or an answer, which nobody can guess."""
    return f"m{secrets.token_hex(8)}"


def new_turn_id() -> str:
    """Return an ID of a turn."""
    return f"t{secrets.token_hex(8)}"


def new_conversation_id() -> str:
    """Return an ID of a conversation."""
    return f"conv{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class ClientToolCall:
    """A call of a client's own tool, in a history that the client holds."""

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
RECALL_NOTE = r"\(Recalled (?:from|of) earlier conversations, "
"""A pattern for the start of the recall note in a question. Older versions stored questions with `of`."""


class Conversation(msgspec.Struct, frozen=True):
    """One conversation in a list.

    Attributes:
        messages: the number of questions and answers in it.
        sources: how its messages were sent.
        running: whether a turn of it runs.
        excerpt: a part of it that has words of a search.
    """

    id: str
    title: str
    created: datetime
    updated: datetime
    messages: int
    sources: tuple[Source, ...] = ()
    running: bool = False
    excerpt: str = msgspec.field(name="found", default="")


@dataclass(frozen=True, slots=True)
class File:
    """An attachment without its content."""

    id: int
    name: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Some exchanges of a conversation, oldest first, and the files that came with them.

    Attributes:
        earlier: the id of the oldest question here when there are more before it, else None.
        size: about how many bytes the exchanges take.
    """

    conversation: Conversation
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
        parts: of an answer: the automatic calls, then texts, calls and messages sent meanwhile, in their order.
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
    question = ChatMessage(exchange.question_id, "user", exchange.started, exchange.source, exchange.message)
    answer = ChatMessage(
        exchange.answer_id,
        "assistant",
        exchange.ended,
        exchange.source,
        exchange.answer,
        (*exchange.automatic_calls, *exchange.parts),
        exchange.outcome,
    )
    return question, answer


class FormerText(msgspec.Struct, frozen=True):
    """A text of a fact before it was corrected."""

    text: str
    until: Time


class Item(msgspec.Struct, frozen=True):
    """A fact that the user stated, or a memory: the summary of a conversation.

    Attributes:
        category: of a fact.
        mutable: whether a model may correct or delete it.
        conversation_id, message_id: of the user's message that it quotes; None where the user wrote it by hand, or the
            conversation was deleted.
        untrusted: whether it may hold untrusted content.
        former: its earlier texts, oldest first.
    """

    id: str
    kind: Kind
    text: str
    created: Time
    updated: Time
    category: Category | None = None
    mutable: bool = True
    conversation_id: str | None = None
    message_id: str | None = None
    untrusted: bool = msgspec.field(name="outside", default=False)
    former: tuple[FormerText, ...] = msgspec.field(name="was", default=())

    @property
    def is_summary(self) -> bool:
        """Whether a model wrote the text; facts and other memories quote the user."""
        return self.kind == "memory" and not self.text.startswith(OWN_WORDS)


@dataclass(frozen=True, slots=True)
class IdleConversation:
    """A conversation in which nothing happened for some time, and what its summary does not have yet.

    Attributes:
        exchanges: the newest of these, oldest first.
        memory: the summary of the earlier ones.
        last_key: the store's key of the newest one.
    """

    user: str
    conversation_id: str
    title: str
    exchanges: Sequence[Exchange]
    memory: Item | None
    last_key: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a user has in the store, or how much was deleted or imported."""

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
class Query:
    """A text to search for by its meaning: its vector, and the model that made it."""

    model: str
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class Interaction:
    """A message of the user and the text of the answer.

    Attributes:
        untrusted: whether the answer may hold untrusted content.
    """

    conversation_id: str
    started: datetime
    message: str
    answer: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class RecallResult:
    """What is recalled for a question.

    Attributes:
        note: what the model reads; empty when nothing is recalled.
        sentence: the same for the user.
    """

    note: str = ""
    items: tuple[Item, ...] = ()
    sentence: str = ""

    @property
    def untrusted(self) -> bool:
        """Whether it may hold untrusted content."""
        return any(item.untrusted for item in self.items)


class History(msgspec.Struct):
    """What a turn continues from: the conversation until now and the files that came with it.

    Attributes:
        id: of the conversation.
        key: the store's key of the exchange that the turn writes; 0 where the store has none.
        exchanges: the newest that ended, oldest first.
        count: how many the conversation has, with those left out here.
        attachments: the files of all earlier exchanges, in the order of their ids; `files`, those of the new message.
        question: the new exchange, or the one that the turn continues.
        trimmed: how many of the oldest exchanges are left out, if that changed with this question.
        after_idle: whether all are left out, because the conversation was idle for long.
        untrusted: whether it may hold untrusted content, although no block says so.
    """

    id: str
    exchanges: Sequence[Exchange] = ()
    attachments: Sequence[Attachment] = ()
    user: str = ""
    key: int = 0
    count: int = 0
    files: tuple[Attachment, ...] = ()
    question: Exchange | None = None
    trimmed: int = 0
    after_idle: bool = False
    untrusted: bool = False
    recalled: RecallResult = RecallResult()

    @property
    def all_exchanges(self) -> list[Exchange]:
        """The exchanges, and the question as the last one."""
        return [*self.exchanges, *([self.question] if self.question is not None else [])]


State = Literal["running", "waiting", "done", "error"]
"""`waiting`: for an approval."""


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
    """One turn; `wire` is the protocol of the client."""

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
