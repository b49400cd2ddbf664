"""Ground: what is kept of a user: conversations with their messages, facts and memories. Times are aware and UTC."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from brain.ask import Attachment, Source
from brain.events import Citation
from brain.messages import Called, Exchange, Part

Category = Literal["personal", "preferences", "knowledge", "general"]
Kind = Literal["fact", "memory"]
CLOCK_NOTE = r"\(Now: \w{1,20} \d{4}-\d\d-\d\d .{1,80}\)|It is \w{1,20} \d{4}-\d\d-\d\d \d\d:\d\d, .{1,80}\."
"""A pattern of the line in a question that tells the time. Questions stored by older versions have the first form."""
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
class Heading:
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
class History:
    """A conversation as its user reads it: some of its exchanges, oldest first, and the files that came with them.

    Attributes:
        earlier: the id of the oldest question here, before which there are more; None when there are none.
        size: about how many bytes the exchanges take.
    """

    heading: Heading
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
        return [part.call_id for part in self.parts if isinstance(part, Called)]

    @property
    def citations(self) -> list[Citation]:
        """Of all its calls."""
        return [citation for part in self.parts if isinstance(part, Called) for citation in part.citations]


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
        against: the ids of facts that it may contradict.
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
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resting:
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
class Conversation:
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
