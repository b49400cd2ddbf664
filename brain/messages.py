"""Messages to a model, chunks of its answer, and what is stored: calls, exchanges, histories, facts and memories."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

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
    Role,
    Round,
    SpecialistError,
    SpecialistResult,
    SpecialistStart,
    StopReason,
    StrategyName,
    Thinking,
    Usage,
)

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""A number that every client can read, including those in JavaScript."""
PassNumber = Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)]
"""Number of a pass in its turn, from 1. Passes of a history that the client sends are negative."""

ClientSource = Literal["chat", "voice", "api"]
"""Source of a client's message: typed, spoken, or sent by a program."""
Source = Literal["chat", "voice", "api", "task", "report"]
"""Source of a message: a client, a run of a task in a conversation of its own, or a report on tasks."""
Author = Literal["user", "model", "unknown"]
"""Who wrote a message: the user, a model (the prompt of a task), or unknown (an import)."""


class Marks(NamedTuple):
    """What a text may contain. Everything that a model makes of it inherits both marks.

    Attributes:
        untrusted: Content that someone other than the user wrote.
        private_data: Data from files, memory, private specialists or client tools.
    """

    untrusted: bool = False
    private_data: bool = False


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
    """A file of a conversation. IDs count from 1. `data` comes from the client and is untrusted."""

    id: int
    name: str
    type: str
    data: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """`image`, `pdf`, or the first part of the media type. The content wins over the client's type."""
        kind, _, rest = sniff(self.data, self.type).partition("/")
        return "pdf" if rest == "pdf" else kind

    @property
    def text(self) -> str | None:
        """The content, if it is plain text in UTF-8."""
        if self.kind in ("image", "pdf") or b"\0" in self.data:
            return None
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None


def renumber(attachments: tuple[Attachment, ...], after: int) -> tuple[Attachment, ...]:
    """Give attachments the IDs that follow `after`."""
    return tuple(replace(attachment, id=after + n) for n, attachment in enumerate(attachments, 1))


def sniff(data: bytes, claimed: str) -> str:
    """Return the media type from the first bytes of `data`, else `claimed`."""
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
    """One message of a request to a model. `images` are encoded image files."""

    role: Literal["system", "user", "assistant"]
    content: str
    images: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def is_unfinished(self) -> bool:
        """Whether the model continues this message, if it is the last one."""
        return self.role == "assistant"

    @property
    def texts(self) -> Sequence[str]:
        """All texts that the model reads."""
        return (self.content,)


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A call in a `CallMessage`, with its result. `id` is unique in the request. `arguments` is a JSON object."""

    id: str
    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class CallMessage(Message):
    """A message of the assistant that ends with tool calls, and their results. It is never stored."""

    calls: tuple[CompletedCall, ...] = ()

    @property
    def is_unfinished(self) -> bool:
        """False: the model continues after the results."""
        return False

    @property
    def texts(self) -> Sequence[str]:
        """All texts that the model reads."""
        return (self.content, *(text for call in self.calls for text in (call.name, call.arguments, call.result)))


@dataclass(frozen=True, slots=True)
class PassUsage:
    """The server's token count of one pass. `reused` is the cached part of the prompt."""

    prompt: int
    completion: int
    reused: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the model stopped by itself, or its server stopped it (`content_filter`)."""

    reason: Literal["stop", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Progress on a prompt: tokens read so far, of all tokens outside the server's cache."""

    read: int
    of: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A tool call in the server's format. It is not checked, and `arguments` may not be JSON.

    Attributes:
        name: As the server sent it; empty if the call could not be read.
        problem: Why the call must not run, if it is not certain what the model wrote.
    """

    name: str
    arguments: str
    problem: str = ""


Chunk = str | Thinking | NativeCall | PassUsage | Finish | PromptProgress
"""A piece of a model's stream. A plain string is answer text: the text of one read."""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text of an answer."""

    text: str
    turn_pass: PassNumber


class Call(msgspec.Struct, tag="call", omit_defaults=True):
    """A call. The scanner creates it, the turn completes it, and the store encodes it.

    Attributes:
        name: Name of the specialist or client tool; `?` if the marker could not be parsed.
        marker: The marker in the model's text; empty without a marker to show.
        params: Parameters; None if parsing failed.
        id: Unique in the turn; for a client tool, unique across all turns.
        by: The model, an attachment (`auto`), or Brain for a model that calls none (`assist`). `client` means
            that the client runs it.
        turn_pass: Number of the pass; 0 for an automatic call.
        round: Number of the strategy's round; 0 without one.
        code: Error code. None with a block means success.
        reason: Why it failed, for people.
        block: Its block in the transcript; empty until the call is complete.
        approval: A person's decision, if the call needed approval.
        preview: Text that the person read about the effect of the call.
        cached: Whether the result comes from an earlier call.
        untrusted: Whether the block may contain untrusted content.
        private_data: Whether the block may contain private data of the user.
        picks: Number of values from results that it sent to other hosts without approval.
        has_started: Whether its specialist started. Without a block, the process ended before the call did.
        if_interrupted: Of a running call that must not run again: its reason and block if the process ends first.
        began_ms: Milliseconds from the start of the turn to the call.
        ms: Duration in milliseconds, without the wait for approval; None while it runs.
    """

    name: str
    marker: str = ""
    params: dict[str, Any] | None = None
    id: str = ""
    by: CalledBy = "model"
    turn_pass: PassNumber = 0
    round: Count = 0
    code: CallCode | None = None
    reason: str = ""
    block: str = ""
    citations: tuple[Citation, ...] = ()
    approval: Approval | None = None
    preview: str | None = None
    cached: bool = False
    untrusted: bool = False
    private_data: bool = False
    picks: Count = 0
    has_started: bool = False
    if_interrupted: tuple[str, str] | None = None
    began_ms: Count = 0
    ms: Count | None = None

    @property
    def outcome(self) -> Literal["ok"] | CallCode | None:
        """`ok` or its code; None while it runs."""
        return (self.code or "ok") if self.block else None

    def start_event(self) -> SpecialistStart:
        """Return the event of its start."""
        return SpecialistStart(self.id, self.name, self.params or {}, self.by, self.round or None)

    def end_event(self, text: str) -> SpecialistResult | SpecialistError:
        """Return the event of its end. `text` is that of its block."""
        round_ = self.round or None
        if self.code is not None:
            return SpecialistError(
                self.id, self.name, self.params, self.code, self.reason, self.ms or 0, self.approval, round_
            )
        return SpecialistResult(
            self.id,
            self.name,
            self.params or {},
            text,
            self.citations,
            self.cached,
            self.ms or 0,
            self.approval,
            round_,
            "assist" if self.by == "assist" else None,
        )


class Steer(msgspec.Struct, frozen=True, tag="steer"):
    """A message that the user added during the answer."""

    text: str
    turn_pass: PassNumber


Part = Text | Call | Steer


class Annotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notice or a part of the model's reasoning, which the user sees beside the answer.

    Attributes:
        position: Number of automatic calls and parts before it.
        offset: Number of characters before it in the part at its position, if that is text.
        code: Code of the notice; None for reasoning.
        round: Number of the strategy's round; 0 without one.
        turn_pass: Number of the pass during or after which it was added; 0 before the first one.
    """

    text: str
    position: Count
    offset: Count = 0
    code: NoticeCode | None = None
    round: Count = 0
    turn_pass: Count = 0


class RoundRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A round of a strategy. `ms` is None while it runs."""

    n: Count
    of: Count
    role: Role
    model: str
    text: str = ""
    began_ms: Count = 0
    ms: Count | None = None

    @property
    def event(self) -> Round:
        """The event that began it."""
        return Round(self.n, self.of, self.role, self.model, self.text or None)


Time = Annotated[datetime, Meta(tz=True)]
"""An aware time. Brain's own times are in UTC."""


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did and used.

    Attributes:
        began_ms: Milliseconds from the start of the turn, like the other times.
        first_token_ms: Time of its first visible text.
        round: Number of the strategy's round; 0 without one.
        is_prefill_refused: Whether the server refused to continue the started answer, so Brain sent a message.
        are_tools_refused: Whether the server refused tools, so Brain described them in the prompt.
        status: HTTP status of the model server, if it caused the error.
    """

    number: int
    began_ms: Count
    first_token_ms: Count | None
    ended_ms: Count | None
    prompt_tokens: Count
    completion_tokens: Count
    reused_tokens: Count | None
    estimated: bool
    finish: StopReason | None
    error: ErrorCode | None = None
    model: str = ""
    round: Count = 0
    is_prefill_refused: bool = False
    are_tools_refused: bool = False
    status: Count | None = None


STOP_REASONS: frozenset[str] = frozenset(get_args(StopReason))


class Exchange(msgspec.Struct, omit_defaults=True):
    """A message of the user and its answer: while a turn writes it, as stored, and as the report of the turn.

    Attributes:
        question: The message for the model, with clock, files and blocks. Empty without a message; the model then
            answers `messages_after`.
        parts: Parts of the answer. Its calls include their blocks.
        messages_before: The client's messages before the question.
        messages_after: The client's messages between question and answer.
        message: The message alone. It is the user's own words if `author` is `user`.
        files: IDs of the attachments of the message.
        outcome: Stop reason or error code; `interrupted` if the server died; empty while the turn runs.
        tokens: Prompt tokens of the exchange; 0 if the model server did not count them.
        recalled_ids: IDs of the facts and memories that the model read with the question.
        told_tasks: IDs of the background tasks whose news the model read with the question.
        untrusted: Whether the model had read untrusted content by the end, now or earlier in the conversation.
        private_data: The same for private data; see `Marks`.
        automatic_calls: Calls of the files. Their blocks are in the question.
        annotations: Notices and reasoning, in order. Only the user reads them, like the fields below.
        rounds: The rounds of the strategy, in order.
        passes: Reports of all passes. Answers of older versions have none.
        wire: Protocol of the client; empty in answers of older versions.
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
    told_tasks: tuple[str, ...] = ()
    untrusted: bool = False
    private_data: bool = False
    author: Author = "user"
    automatic_calls: tuple[Call, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    strategy: StrategyName = "mono"
    rounds: tuple[RoundRecord, ...] = ()
    passes: tuple[PassRecord, ...] = ()
    usage: Usage | None = None
    first_token_ms: Count | None = None
    total_ms: Count | None = None
    error: Error | None = None
    wire: str = ""

    @property
    def turn_id(self) -> str:
        """The ID of the turn that writes the answer, or wrote it."""
        return to_turn_id(self.answer_id)

    @property
    def state(self) -> Literal["running", "waiting", "done", "error"]:
        """`waiting` means waiting for approval."""
        if self.outcome:
            return "done" if self.outcome in STOP_REASONS else "error"
        return "waiting" if any(call.approval == "asked" and not call.block for call in self.calls) else "running"

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the answer ended; None while it is written and after an error."""
        return cast("StopReason", self.outcome) if self.outcome in STOP_REASONS else None

    @property
    def error_code(self) -> str | None:
        """The code of the error that ended the turn; `interrupted` if the server died."""
        return (self.outcome or None) if self.outcome not in STOP_REASONS else None

    @property
    def calls(self) -> list[Call]:
        """All calls, in order."""
        return [part for part in (*self.automatic_calls, *self.parts) if isinstance(part, Call)]

    @property
    def calls_by_name(self) -> Mapping[str, int]:
        """The number of calls of each specialist and client tool."""
        return Counter(call.name for call in self.calls)

    @property
    def total_usage(self) -> Usage:
        """The tokens of all passes; of an interrupted answer, those of the known ones."""
        return self.usage or Usage(
            sum(one.prompt_tokens for one in self.passes),
            sum(one.completion_tokens for one in self.passes),
            sum(one.reused_tokens or 0 for one in self.passes) or None,
            any(one.estimated for one in self.passes),
        )

    @property
    def duration_ms(self) -> int:
        """The milliseconds from the start of the turn to its end, or to its last known event."""
        return self.total_ms or max((one.ended_ms or 0 for one in self.passes), default=0)

    @property
    def user_messages(self) -> list[str]:
        """The user's own words: the first message, and those added during the answer."""
        added = [part.text for part in self.parts if isinstance(part, Steer)]
        return {"user": [self.message, *added], "model": added, "unknown": []}[self.author]

    @property
    def notices(self) -> list[Annotation]:
        """The notices and the messages that the user added, by pass."""
        found = [one for one in self.annotations if one.code is not None]
        steers = [part for part in self.parts if isinstance(part, Steer)]
        found += [Annotation(one.text, 0, 0, "steered", turn_pass=one.turn_pass) for one in steers]
        return sorted(found, key=lambda one: one.turn_pass)

    @property
    def answer(self) -> str:
        """The text that the user sees."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def new_message_id() -> str:
    """Return a random ID for a question or an answer."""
    return f"m{secrets.token_hex(8)}"


PROCESS_LENGTH = 8


def new_process_id() -> str:
    """Return a random ID for a process."""
    return secrets.token_hex(PROCESS_LENGTH // 2)


def new_turn_id(process: str = "") -> str:
    """Return a random ID for a turn. It begins with that of its process, by which other processes find it."""
    return f"t{process}{secrets.token_hex(8)}"


def process_of(turn_id: str) -> str:
    """Return the ID of the process that began a turn, or any text for an ID of another form."""
    return turn_id[1 : 1 + PROCESS_LENGTH]


def to_answer_id(turn_id: str) -> str:
    """Return the ID of the answer of a turn, by which a stored answer is found."""
    return f"m{turn_id[1:]}"


def to_turn_id(answer_id: str) -> str:
    """Return the ID of the turn that wrote an answer."""
    return f"t{answer_id[1:]}"


def new_conversation_id() -> str:
    """Return a random ID for a conversation."""
    return f"conv{secrets.token_hex(8)}"


Category = Literal["personal", "preferences", "knowledge", "general"]
Kind = Literal["fact", "memory"]
CLOCK_NOTE = (
    r"\(Now: \w{1,20} \d{4}-\d\d-\d\d .{1,80}\)"
    r"|(?:It is )?(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day \d{4}-\d\d-\d\d \d\d:\d\d, .{1,80}\."
)
"""A pattern for the clock note in a question. Older versions stored questions with the first form."""
OWN_WORDS = "In the user's own words: "
"""The start of a memory that quotes the user. No summary of a model starts like this."""
FACT_LENGTH, MEMORY_LENGTH = 500, 1_000
"""Characters of a fact, and of a memory."""
RECALL_NOTE = r"\(Recalled (?:from|of) earlier conversations, "
"""A pattern for the start of the recall note in a question. Older versions stored questions with `of`."""


class FormerText(msgspec.Struct, frozen=True):
    """An earlier text of a corrected fact."""

    text: str
    until: Time


class Item(msgspec.Struct, frozen=True):
    """A fact that the user stated, or a memory: the summary of a conversation.

    Attributes:
        category: Category of a fact.
        mutable: Whether a model may correct or delete it.
        conversation_id: Conversation of the quoted message. None if the user entered the item, or the conversation was
            deleted.
        message_id: ID of the quoted message; None as for `conversation_id`.
        untrusted: Whether it may contain untrusted content.
        former: Earlier texts, oldest first.
        count: Number of conversations that a memory stands for, since their memories say the same.
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
    count: int = 1

    @property
    def is_summary(self) -> bool:
        """Whether a model wrote the text. Facts and other memories quote the user."""
        return self.kind == "memory" and not self.text.startswith(OWN_WORDS)


class EmbeddingCheck(msgspec.Struct, frozen=True):
    """The result of the embedding check: each question must be nearest to its own answer.

    Attributes:
        key: Identifies the model by its embeddings, because another model may get the same name later.
        size: Dimension of an embedding.
        right: Number of questions, of 8, that are nearest to their own answers.
        own: Mean cosine of questions and their answers.
        other: Mean cosine of questions and other answers.
    """

    key: str
    size: int
    right: int
    own: float
    other: float

    @property
    def is_meaningful(self) -> bool:
        """Whether the model passes the check."""
        return self.right >= 6

    def floor(self, share: float) -> float:
        """Return the cosine at this share of the way from `other` to `own`. Texts below it are unrelated to a query."""
        return self.other + share * (self.own - self.other)


Purpose = Literal["query", "passage", "fact"]
"""What an embedding is for: to search, to be found, or to be found by messages (a short text such as a fact)."""


@dataclass(frozen=True, slots=True)
class Interaction:
    """A message of the user and the text of the answer.

    Attributes:
        untrusted: Whether the answer may contain untrusted content.
    """

    conversation_id: str
    started: datetime
    message: str
    answer: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The recalled facts and memories for a question.

    Attributes:
        note: Note for the model, with the relevant items and a few facts about the user; empty without both.
        items: The items of the note.
        sentence: The relevant items, for the user.
        relevant: The relevant items, without the facts about the user that come with any message.
    """

    note: str = ""
    items: tuple[Item, ...] = ()
    sentence: str = ""
    relevant: tuple[Item, ...] = ()

    @property
    def untrusted(self) -> bool:
        """Whether it may contain untrusted content."""
        return any(item.untrusted for item in self.items)


@dataclass(frozen=True, slots=True)
class TaskNews:
    """News of background tasks that a turn tells the user.

    Attributes:
        text: Note for the model.
        fixed_text: Answer of a report if all models fail.
        cursor: Key of the newest packet that it contains.
        task_ids: IDs of the tasks.
        private_data: Whether one of the tasks has read private data, or its prompt may contain some.
    """

    text: str = ""
    fixed_text: str = ""
    cursor: int = 0
    task_ids: tuple[str, ...] = ()
    private_data: bool = False


class History(msgspec.Struct):
    """The conversation that a turn continues, with its files.

    Attributes:
        id: ID of the conversation.
        key: Key of the turn's exchange in the store; 0 if it is not stored.
        epoch: Number of claims of the turn by processes that continued it.
        exchanges: The newest finished exchanges, oldest first.
        count: Number of all exchanges of the conversation.
        attachments: Files of all earlier exchanges, in the order of their IDs.
        files: Files of the new message.
        question: The new exchange, or the one that the turn continues.
        trimmed: Number of the oldest exchanges that are left out, if it changed with this question.
        after_idle: Whether all are left out because the conversation was idle.
        untrusted: Whether the whole conversation, not only `exchanges`, may contain untrusted content.
        private_data: The same for private data; see `Marks`.
        private: Whether only local models may read it.
        has_news: Whether there are news of background tasks to tell.
        task_news: News of background tasks for this turn.
    """

    id: str
    exchanges: Sequence[Exchange] = ()
    attachments: Sequence[Attachment] = ()
    user: str = ""
    key: int = 0
    epoch: int = 0
    count: int = 0
    files: tuple[Attachment, ...] = ()
    question: Exchange | None = None
    trimmed: int = 0
    after_idle: bool = False
    untrusted: bool = False
    private_data: bool = False
    private: bool = False
    recalled: RecallResult = RecallResult()
    has_news: bool = False
    task_news: TaskNews | None = None

    @property
    def all_exchanges(self) -> list[Exchange]:
        """The exchanges, with the question as the last one."""
        return [*self.exchanges, *([self.question] if self.question is not None else [])]
