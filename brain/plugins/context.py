"""The input of a specialist (`Context`) and its output (`Result`, `Progress`)."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from brain.errors import Refused
from brain.events import Citation
from brain.messages import Attachment, Category, EmbeddingCheck, Interaction, Item, Purpose
from brain.task import CancelOutcome, Origin, ProfileName, Task, Tell

if TYPE_CHECKING:
    from brain.net.fetch import Fetch


@dataclass(frozen=True, slots=True)
class Result:
    """The return value of a specialist.

    Attributes:
        text: Result for the model and the user. Brain cuts it to the size of a block and neutralizes call markers.
        citations: Sources, in the order to list them.
        data: Structured result for Python callers. The model does not get it.
        more: Called with the number of characters shown. Returns the instruction for the rest, such as
            ``ask again with page=4``.
        outside: Whether the text contains untrusted content. None uses the specialist's ``outside`` option.
        private: Whether the text contains private data of the user. None uses the specialist's ``private`` option.
    """

    text: str
    citations: Sequence[Citation] = ()
    data: Any = None
    more: Callable[[int], str] | None = None
    outside: bool | None = None
    private: bool | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a running specialist. `fraction` is from 0 to 1, if known."""

    text: str
    fraction: float | None = None


class ModelView(Protocol):
    """The functions of the turn's model that a specialist may use."""

    @property
    def sees_images(self) -> bool:
        """Whether the model accepts images."""

    async def describe(self, image: bytes, question: str) -> str:
        """Return the model's answer about an encoded image. Requires `sees_images`."""

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]:
        """Return one embedding per text: finite numbers, and all of the same size.

        Args:
            purpose: adds the prefix that the embedding model expects; None sends the texts as they are.

        Raises:
            Refused: The model server has no such embeddings.
        """

    async def check_embeddings(self) -> EmbeddingCheck:
        """Return whether the embeddings carry meaning.

        Raises:
            Refused: The model server has no embeddings.
        """


class WithoutEmbeddings:
    """A model for specialists in a private conversation, when a remote model makes the embeddings."""

    def __init__(self, model: ModelView) -> None:
        self._model = model

    @property
    def sees_images(self) -> bool:
        return self._model.sees_images

    async def describe(self, image: bytes, question: str) -> str:
        return await self._model.describe(image, question)

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]:
        raise Refused("the conversation is private, and no local model makes embeddings")

    async def check_embeddings(self) -> EmbeddingCheck:
        raise Refused("the conversation is private, and no local model makes embeddings")


@dataclass(frozen=True, slots=True)
class Saved:
    """The result of saving a fact.

    Attributes:
        item: The stored fact. Its `former` has the previous text of a corrected fact.
        how: Whether the fact is new, was already stored, or corrects an earlier one.
    """

    item: Item
    how: Literal["new", "known", "corrected"]


class MemoryView(Protocol):
    """The memory of the turn's user.

    It stores only sentences that the user wrote in this conversation, word for word. A text finds a sentence that
    contains at least two thirds of its content words.
    """

    async def recent(self, most: int = 5) -> Sequence[Interaction]:
        """Return the last messages and answers of all conversations, newest first."""

    async def memories(self, words: str = "", most: int = 5) -> Sequence[Item]:
        """Return the memories that match the words best, or the newest ones without words."""

    async def facts(self, words: str = "", category: Category | None = None, most: int = 50) -> Sequence[Item]:
        """Return the facts that match the words best, or the newest ones without words; newest first."""

    async def search(self, words: str, most: int = 5) -> Sequence[Item]:
        """Return the facts and memories that match the words best."""

    async def save(self, text: str, category: Category | None = None, *, mutable: bool = True) -> Saved:
        """Store the user's sentence as a fact. A fact with the same words only gets a new date.

        Args:
            category: Category of the fact (default: `general`).

        Raises:
            Refused: The user did not write the sentence, or the user's storage is full.
        """

    async def update(self, which: str, text: str, category: Category | None = None) -> Saved:
        """Replace the text of a fact.

        Args:
            which: ID of the fact, or words that no other fact has.

        Raises:
            Refused: As for `save`. Also if not exactly one fact matches, it is protected, or another fact has the text.
        """

    async def store(self, text: str) -> Item:
        """Store the user's sentences as a memory of the conversation.

        Raises:
            Refused: As for `save`.
        """

    async def find_item(self, which: str, words: str = "") -> Item:
        """Return the fact or memory that `forget` would delete.

        Raises:
            Refused: As for `forget`.
        """

    async def forget(self, which: str, words: str = "", approved: Item | None = None) -> Item:
        """Delete a fact or a memory, and return it.

        Args:
            which: As for `update`.
            words: Words that the item must contain.
            approved: The item that a person approved. Any other item, or a changed text, is rejected.

        Raises:
            Refused: As for `update`. Also if the item is not the approved one.
        """


class TaskView(Protocol):
    """The background tasks of the turn's user. Every method raises `Refused` with the reason if it cannot do that.

    Attributes:
        on_change: Called with each task that a call of this turn adds or cancels.
        origin: Returns where the texts of a call come from.
    """

    on_change: Callable[[Task], None]
    origin: Callable[[], Origin]

    async def create(
        self,
        prompt: str,
        title: str = "",
        *,
        profile: ProfileName = "standard",
        when: str = "",
        every: str = "",
        tell: Tell = "always",
        key: str = "",
    ) -> Task:
        """Add a task. For a duplicate, the refusal names the existing task.

        Args:
            when: First time, in ISO 8601 or plain words. Empty for at once.
            every: Recurrence, as an RRULE or in plain words. Empty for a task that runs once.
            key: The same for a repeated request, which then returns the same task; see `Context.key`.
        """

    def describe_schedule(self, when: str, every: str, profile: ProfileName = "standard") -> str:
        """Return a schedule in words, with its next three times, for the person who approves it.

        A private task with this profile is refused if its model is remote.
        """

    def format_schedule(self, task: Task) -> str:
        """Return the schedule of a task in words; empty for a task without one."""

    def parse_time(self, when: str) -> datetime:
        """Return the time of `when`, which changes with the current time if it is in plain words."""

    async def list_tasks(self, most: int = 20) -> Sequence[Task]:
        """Return the tasks, those that changed last first."""

    async def cancel(self, task_id: str) -> tuple[CancelOutcome, Task | None]:
        """Cancel a task, and return one of five outcomes."""

    async def summarize(self, task_id: str, summary: str) -> Task:
        """Store a summary of a task's result."""

    async def feedback(self, message: str) -> None:
        """Log what the model reports about its instructions or the specialists, for the operator."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a call. Brain injects it into a keyword-only parameter of this type.

    Attributes:
        user: User of the turn. None for a library call without a user.
        message: The user's newest message. Of a specialist that declares `sends`: only if the call sends it.
        attachments: Files of the conversation, with IDs from 1. An automatic call gets only its own file.
        time_zone: IANA name of the user's time zone.
        deadline: Time limit of the call on the `time.monotonic` clock.
        settings: An instance of the specialist's settings class.
        model: Functions of the turn's model.
        fetch: HTTP client for public hosts.
        memory: The user's memory. None if there is no user.
        approved: The preview that a person approved. None without a preview.
        private: Whether only local models may read the conversation, now and later.
        key: ID of the call, the same if a task runs again. A specialist with effects recognizes a repetition.
        tasks: The user's background tasks. None if there is no user, or no conversation to report in.
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
    private: bool = False
    key: str = ""
    tasks: TaskView | None = None

    @property
    def seconds_left(self) -> float:
        """The seconds left until the deadline; negative after it."""
        return self.deadline - time.monotonic()


@dataclass(frozen=True, slots=True)
class AssistContext:
    """The context in which an `assist` function makes the parameters of a call. Its methods read four languages.

    Attributes:
        now: Current time in the user's time zone.
        time_zone: IANA name of the user's time zone.
        attachments: Files of the conversation, with IDs from 1.
        previous: The user's previous message if the new one follows up on it, or an empty text.
    """

    now: datetime
    time_zone: str = "UTC"
    attachments: Sequence[Attachment] = ()
    previous: str = ""

    def find_subject(self, message: str, drop: Collection[str] = ()) -> list[str]:
        """Return the words that name the subject of a message, as written.

        A message without a subject of its own, such as `and how tall is it?`, has the subject of the previous one.

        Args:
            drop: Words to leave out, in lower case, such as `document`.
        """
        from brain.words import join_previous  # its patterns take longer to compile than all of this module

        return join_previous(message, self.previous, drop)

    def find_days(self, message: str) -> tuple[date, date] | None:
        """Return the first and last day that a message names, such as `next week` and `12 March`; None without.

        Raises:
            Refused: It names a day such as `3/4`, which is 3 April or 4 March.
        """
        from brain.dates import AmbiguousDate, find_days

        try:
            return find_days(message, self.now)
        except AmbiguousDate as error:
            raise Refused(str(error)) from None
