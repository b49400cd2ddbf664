"""Texts as vectors, made by the model's server. They count only once they have shown that they mean something.

The exam is short questions whose answers share no word with them. A chat model that hands out vectors of no meaning
fails it, and words alone are used.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from brain.messages import Near
from brain.models.script import EmbeddingModel

log = logging.getLogger("brain")

QUERY_SECONDS = 0.25
"""How long a question waits for its vector."""
BATCH_SECONDS = 60.0
AGAIN_SECONDS = 300.0
"""How long a server that has no vectors is not asked again."""
LATE_MOST = 3
"""So many questions in a row whose vectors came too late; then the server is left in peace for a while."""
TEXT_LENGTH = 2000
SHORT_LENGTH = 200
"""What is tried of a text that the server refuses."""
PASSED = 6
"""Right answers with which the exam is passed."""
FLOOR_SHARE = 0.7
"""Of the way from a wrong answer's cosine to a right one's."""
_EXAM = (
    ("Which jewellery do I wear?", "A silver ring and a string of pearls are put on every day."),
    ("How did I vote?", "At the last election the ballot went to the liberals."),
    ("Who defends me in court?", "An attorney called Brandt prepares the trial."),
    ("What have I lost?", "A wallet and an umbrella were left behind on the bus."),
    ("Which clothes must be washed?", "Two shirts and the trousers wait for the laundry."),
    ("Can I dance?", "Waltz and tango lessons were taken in a ballroom."),
    ("Which tools do I own?", "A hammer, a saw and a drill hang in the cellar."),
    ("What do I give to charity?", "A donation goes to orphans every Christmas."),
)  # fmt: skip

_EDITION = hashlib.blake2b(repr((_EXAM, FLOOR_SHARE)).encode(), digest_size=4).hexdigest()
"""Names the exam, whose results say nothing of another one."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What the exam told of a model's vectors.

    Attributes:
        key: names the model by its vectors, since another one may serve under the same name later.
        own: the mean cosine of a question and its answer.
        floor: below it, by the exam, a text has nothing to do with a question.
    """

    key: str
    size: int
    right: int
    own: float
    floor: float


class Exams(Protocol):
    """Where is kept how exams went, whatever process they were sat in."""

    async def exam(self, name: str) -> str | None: ...
    async def set_exam(self, name: str, result: str) -> None: ...


class Embedder:
    """The vectors of one model.

    Attributes:
        grade: what is known of them, from this process or an earlier one.
        sat: whether the exam was sat in this process: another model may serve under the name by now.
    """

    def __init__(self, model: EmbeddingModel, exams: Exams | None = None) -> None:
        self._model = model
        self._exams = exams
        self._exam_name = f"{model.name} {_EDITION}"
        self.sat = False
        self._not_before = 0.0
        self._late = 0
        self._late_at = 0.0
        self._told = False
        self.grade: Grade | None = None

    @property
    def usable(self) -> bool:
        """Whether the exam is passed, and the server not left in peace."""
        return self.grade is not None and self.grade.right >= PASSED and time.monotonic() >= self._not_before

    async def take_up(self) -> None:
        """Goes by an earlier exam until there is a new one: a process may end before that."""
        result = await self._exams.exam(self._exam_name) if self._exams is not None else None
        if result is not None:
            self.grade = msgspec.json.decode(result, type=Grade)

    async def examined(self) -> bool:
        """Has the model sit the exam, once; whether its vectors can be used now."""
        if not self.sat and time.monotonic() >= self._not_before:
            answers = await self._embedded([text for pair in _EXAM for text in pair], None)
            if answers is None:
                return False
            self.grade, self.sat = await asyncio.to_thread(graded, self._model.name, answers), True
            if self._exams is not None:
                await self._exams.set_exam(self._exam_name, msgspec.json.encode(self.grade).decode())
            told = "count" if self.usable else "tell nothing, so that words alone count"
            log.info("memory: the vectors of %s %s", self._model.name, told)
        return self.usable

    async def near(self, text: str) -> Near | None:
        """The vector of a question, if it comes at once; words must do without."""
        if not self.usable or self.grade is None:
            return None
        asked = time.monotonic()
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                vectors = await self._embedded([text[:TEXT_LENGTH]], self.grade)
        except TimeoutError:
            self._came_late(asked)
            return None
        self._late = 0
        return Near(self.grade.key, vectors[0]) if vectors else None

    def _came_late(self, asked: float) -> None:
        """Those of questions that were asked at once count once: the server may have been busy for a moment."""
        if asked < self._late_at:
            return
        self._late, self._late_at = self._late + 1, time.monotonic()
        if self._late >= LATE_MOST:
            self._late = 0
            self._rest("its vectors come too late")

    async def of(self, texts: Sequence[str]) -> list[list[float]] | None:
        """A vector for each text; None when the server makes none any more.

        A text that the server refuses even when it is short gets a vector that is near to nothing, so that it is not
        tried for ever. Whether it is the text or the server, a question of the exam shows, which was answered before.
        """
        vectors = await self._tried(texts)
        if vectors is not None or self.grade is None:
            return vectors
        found = [await self._alone(text, self.grade.size) for text in texts]
        if await self._embedded([_EXAM[0][0]], self.grade) is None:
            return None
        return found

    async def _alone(self, text: str, size: int) -> list[float]:
        vectors = await self._tried([text]) or await self._tried([text[:SHORT_LENGTH]])
        return vectors[0] if vectors else [0.0] * size

    async def _tried(self, texts: Sequence[str]) -> list[list[float]] | None:
        try:
            async with asyncio.timeout(BATCH_SECONDS):
                return await _vectors(self._model, [text[:TEXT_LENGTH] for text in texts], self.grade)
        except TimeoutError:
            return None

    async def _embedded(self, texts: Sequence[str], grade: Grade | None) -> list[list[float]] | None:
        """A vector for each text, like those of the grade; a server that gives none is not asked again for a while."""
        vectors = await _vectors(self._model, texts, grade)
        if vectors is None:
            self._rest("it gives no vectors")
        return vectors

    def _rest(self, why: str) -> None:
        log.log(
            logging.DEBUG if self._told else logging.INFO, "memory: words alone count: %s: %s", self._model.name, why
        )
        self._told = True
        self._not_before = time.monotonic() + AGAIN_SECONDS


async def _vectors(model: EmbeddingModel, texts: Sequence[str], grade: Grade | None) -> list[list[float]] | None:
    """What the server makes of texts; None when that is not one finite vector for each, of the right length."""
    try:
        vectors = await model.embed(texts)
    except Exception as error:  # noqa: BLE001 - a server that is gone, slow or talks nonsense; words are there still
        log.debug("memory: %s made no vectors: %r", model.name, error)
        return None
    lengths = {len(vector) for vector in vectors} | ({grade.size} if grade is not None else set())
    if len(vectors) != len(texts) or len(lengths) != 1 or 0 in lengths:
        return None
    return vectors if all(map(math.isfinite, (number for vector in vectors for number in vector))) else None


def graded(name: str, answers: Sequence[Sequence[float]]) -> Grade:
    """How an exam went whose questions and answers have these vectors, in turn."""
    rows = [_unit(row) for row in answers]
    cosines = [[sum(a * b for a, b in zip(q, a_, strict=True)) for a_ in rows[1::2]] for q in rows[0::2]]
    count = len(cosines)
    own = sum(cosines[n][n] for n in range(count)) / count
    others = (sum(map(sum, cosines)) - own * count) / (count * (count - 1))
    right = sum(max(range(count), key=row.__getitem__) == n for n, row in enumerate(cosines))
    return Grade(_key(name, rows), len(rows[0]), right, own, others + FLOOR_SHARE * (own - others))


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.hypot(*vector) or 1.0
    return [number / length for number in vector]


def _key(name: str, rows: Sequence[Sequence[float]]) -> str:
    """The name of a model, its size, and where its vectors are longest, which rounding does not change."""
    longest = [max(range(len(row)), key=lambda place, row=row: abs(row[place])) for row in rows[:4]]  # type: ignore[misc]
    digest = hashlib.blake2b(repr((len(rows[0]), longest)).encode(), digest_size=4).hexdigest()
    return f"{name}#{digest}"
