"""What a specialist is given (`Context`) and what it gives (`Result`, `Progress`)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from brain.events import Citation
from brain.messages import Attachment, Category, EmbeddingCheck, Interaction, Item

if TYPE_CHECKING:
    from brain.net.fetch import Fetch


@dataclass(frozen=True, slots=True)
class Result:
    """What a specialist found.

    Attributes:
        text: for the model and the reader; data, never instruction. Brain cuts it to size and makes markers harmless.
        citations: where it comes from.
        data: the same for programs that call the specialist themselves; it goes to no model.
        more: given how many characters of the text are shown, returns how to request the rest, such as
            `ask again with page=4`.
        outside: whether it holds untrusted content; None to use the specialist's option for all of its results.
    """

    text: str
    citations: Sequence[Citation] = ()
    data: Any = None
    more: Callable[[int], str] | None = None
    outside: bool | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running specialist is; `fraction` is from 0 to 1, when known."""

    text: str
    fraction: float | None = None


class ModelView(Protocol):
    """What a specialist may use of the turn's model."""

    @property
    def sees_images(self) -> bool:
        """Whether the model server takes images."""

    async def describe(self, image: bytes, question: str) -> str:
        """Return what the model sees in an encoded image; only when `sees_images`."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one embedding per text; raises `Refused` when the model server has none."""

    async def check_embeddings(self) -> EmbeddingCheck:
        """Return whether the embeddings carry meaning; raises `Refused` when the model server has none."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of a fact that was to be saved.

    Attributes:
        item: as it is stored now; `was` is the previous text of a corrected one.
        how: whether it is new, was stored already, or replaced the previous text.
    """

    item: Item
    how: Literal["new", "known", "corrected"]


class MemoryView(Protocol):
    """What a specialist may ask of the memory of the user who is served, and of no other.

    It stores only sentences that the user wrote in this conversation, word for word. A given text finds them: they
    share at least two thirds of its content words. Reasons of `Refused` are for the model.
    """

    async def recent(self, most: int = 5) -> Sequence[Interaction]:
        """Return the last messages and answers of any conversation, newest first."""

    async def memories(self, words: str = "", most: int = 5) -> Sequence[Item]:
        """Memories of conversations: those that fit the words best, without any the newest."""

    async def facts(self, words: str = "", category: Category | None = None, most: int = 50) -> Sequence[Item]:
        """Facts that the user stated, newest first: those that fit the words best, without any the newest."""

    async def search(self, words: str, most: int = 5) -> Sequence[Item]:
        """Facts and memories that fit the words best."""

    async def save(self, text: str, category: Category | None = None, *, mutable: bool = True) -> Saved:
        """Stores the user's sentence as a fact; one with the same words is only given its date.

        Args:
            category: `general` when left out.

        Raises:
            Refused: when the user did not write it, or too much is stored of them.
        """

    async def update(self, which: str, text: str, category: Category | None = None) -> Saved:
        """Replace the text of a fact that is named by its id, or by words that it alone has.

        Raises:
            Refused: as `save`; when not exactly one fact matches, it is protected, or another fact has the text.
        """

    async def store(self, text: str) -> Item:
        """Stores the user's sentences as a memory of the conversation.

        Raises:
            Refused: as `save`.
        """

    async def find_item(self, which: str, words: str = "") -> Item:
        """The fact or memory that `forget` would remove, which stays.

        Raises:
            Refused: as `forget`.
        """

    async def forget(self, which: str, words: str = "", approved: Item | None = None) -> Item:
        """Remove a fact or a memory that is named as in `update`, and has these words; what it was.

        Args:
            approved: the item that a person approved; no other is removed, and not if its text has changed.

        Raises:
            Refused: as `update`; when it is not the one that was approved.
        """


@dataclass(frozen=True, slots=True)
class Context:
    """What surrounds a call; injected into a keyword-only parameter of this type.

    Attributes:
        user: the user of the turn; None for a library call without one.
        message: the user's newest message.
        attachments: the conversation's files, ids from 1; for a one-way call only the one that activated it.
        time_zone: the user's, an IANA name.
        deadline: when the call is given up, on the clock of `time.monotonic`.
        settings: an instance of the specialist's own settings class.
        model: what the turn's model can do besides the turn.
        fetch: the guarded way to the web.
        memory: the memory of the user; None where nothing is stored.
        approved: the preview of this call, which a person approved; None without one.
    """

    user: str | None
    conversation_id: str
    message: str
    attachments: Sequence[Attachment]
    time_zone: str
    deadline: float
    settings: Any
    model: ModelView
    fetch: "Fetch"
    memory: MemoryView | None = None
    approved: Result | None = None

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()
