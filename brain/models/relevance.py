"""What embeddings mean: the check of a model, and how relevant stored items are to a message. Pure.

The check embeds short questions and answers that share no words. A chat model whose embeddings carry no meaning fails
it; Brain then uses keyword search only.

Cosines of different models, messages and items cannot be compared: with some models, all of them lie between 0.75 and
0.9. So Brain compares them with the cosines of texts of its own, which have nothing to do with the message:

1. An embedding is centred: the mean embedding of Brain's messages, or of its items, is subtracted.
2. The cosine of a message and an item is compared with those of the message to Brain's items and to the nearest items
   of the user, and with those of the item to Brain's messages. Relevance is the mean of the two z-scores.
3. The least relevance depends on the model: it lies between that of unrelated and of related messages.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from operator import mul
from statistics import fmean, pstdev

import msgspec

from brain.messages import EmbeddingCheck
from brain.settings.models import Prefixes
from brain.store.vectors import ItemEmbedding

Vector = Sequence[float]
NO_PREFIXES = Prefixes()
_texts = msgspec.json.decode(resources.files(__package__).joinpath("relevance.json").read_bytes())
MESSAGES: Sequence[str] = [message for message, _ in _texts["related"]]
ITEMS: Sequence[str] = [item for _, item in _texts["related"]]
"""Each is related to the message at its place."""
UNRELATED: Sequence[str] = _texts["unrelated"]
"""Messages that none of the items is related to."""
MAX_NEAREST = 30
"""Number of the user's nearest items with which a message is compared."""
BACKGROUND_STEP = 2
"""A message is compared with every second one of Brain's items."""
PAIRS = (
    ("Which jewellery do I wear?", "A silver ring and a string of pearls are put on every day."),
    ("How did I vote?", "At the last election the ballot went to the liberals."),
    ("Who defends me in court?", "An attorney called Brandt prepares the trial."),
    ("What have I lost?", "A wallet and an umbrella were left behind on the bus."),
    ("Which clothes must be washed?", "Two shirts and the trousers wait for the laundry."),
    ("Can I dance?", "Waltz and tango lessons were taken in a ballroom."),
    ("Which tools do I own?", "A hammer, a saw and a drill hang in the cellar."),
    ("What do I give to charity?", "A donation goes to orphans every Christmas."),
)  # fmt: skip
"""Questions and answers of the embedding check, which share no words."""
VERSION = hashlib.blake2b(repr((PAIRS, MESSAGES, ITEMS, UNRELATED, "relevance")).encode(), digest_size=4).hexdigest()
"""Identifies the check: results and embeddings of another version do not count."""
_DIGITS = 5
_MIN_SPREAD = 0.01


def grade(
    name: str, questions: Sequence[Vector], answers: Sequence[Vector], prefixes: Prefixes = NO_PREFIXES
) -> EmbeddingCheck:
    """Grade a model by its embeddings of `PAIRS`."""
    asked, answered = [unit(one) for one in questions], [unit(one) for one in answers]
    cosines = [[cosine(one, other) for other in answered] for one in asked]
    count = len(cosines)
    own = sum(cosines[n][n] for n in range(count)) / count
    other = (sum(map(sum, cosines)) - own * count) / (count * (count - 1))
    right = sum(max(range(count), key=row.__getitem__) == n for n, row in enumerate(cosines))
    # the longest dimensions of the first embeddings identify a model; rounding does not change them
    first = (asked[0], answered[0], asked[1], answered[1])
    longest = [max(range(len(row)), key=lambda place, row=row: abs(row[place])) for row in first]  # type: ignore[misc]
    identity = repr((len(asked[0]), longest, prefixes, VERSION))
    digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
    return EmbeddingCheck(f"{name}#{digest}", len(asked[0]), right, own, other)


class Relevance(msgspec.Struct, frozen=True):
    """The relevance of a model's embeddings.

    Attributes:
        message_mean: Mean embedding of `UNRELATED`.
        item_mean: Mean embedding of `ITEMS`.
        background: Centred embeddings of some of `ITEMS`.
        unrelated: Mean relevance of the most relevant item for each of `UNRELATED`.
        related: Mean relevance of `ITEMS` for their `MESSAGES`.
    """

    message_mean: list[float]
    item_mean: list[float]
    background: list[list[float]]
    unrelated: float = 0.0
    related: float = 0.0

    def least(self, share: float) -> float:
        """Return the relevance at this share of the way from unrelated to related items."""
        return self.unrelated + share * max(0.0, self.related - self.unrelated)

    def center_message(self, vector: Vector) -> list[float]:
        """Return the centred embedding of a message."""
        return center(vector, self.message_mean)

    def center_item(self, vector: Vector, unrelated: Iterable[Vector]) -> ItemEmbedding:
        """Return the centred embedding of an item, with its cosines to messages.

        Args:
            unrelated: centred embeddings of `UNRELATED`.
        """
        centred = center(vector, self.item_mean)
        cosines = [cosine(centred, message) for message in unrelated]
        return ItemEmbedding(centred, fmean(cosines), max(_MIN_SPREAD, pstdev(cosines)))

    def score(self, message: Vector, near: Sequence[tuple[float, float, float]]) -> list[float]:
        """Return the relevance of items for a message.

        Args:
            message: Centred embedding of the message.
            near: Cosine of each item, nearest first, and mean and spread of the item's cosines to `UNRELATED`.
        """
        cosines = [cosine(message, item) for item in self.background]
        cosines += [one for one, *_ in near[:MAX_NEAREST]]
        mean, spread = fmean(cosines), max(_MIN_SPREAD, pstdev(cosines))
        return [((one - mean) / spread + (one - item_mean) / item_spread) / 2 for one, item_mean, item_spread in near]


def measure(
    messages: Sequence[Vector], items: Sequence[Vector], unrelated: Sequence[Vector]
) -> tuple[Relevance, list[list[float]]]:
    """Measure the relevance of a model by its embeddings of `MESSAGES`, `ITEMS` and `UNRELATED`.

    Returns:
        The relevance, and the centred embeddings of `UNRELATED`.
    """
    message_mean, item_mean = mean_vector(unrelated), mean_vector(items)
    references = [center(vector, message_mean) for vector in unrelated]
    background = [
        [round(number, _DIGITS) for number in center(vector, item_mean)] for vector in items[::BACKGROUND_STEP]
    ]
    relevance = Relevance(message_mean, item_mean, background)
    embedded = [relevance.center_item(vector, references) for vector in items]

    def score(message: Vector) -> list[float]:
        near = [(cosine(message, item.vector), item.mean, item.spread) for item in embedded]
        order = sorted(range(len(near)), key=lambda place: -near[place][0])
        scores = relevance.score(message, [near[place] for place in order])
        return [one for _, one in sorted(zip(order, scores, strict=True))]

    best = fmean(max(score(message)) for message in references)
    right = fmean(score(relevance.center_message(vector))[place] for place, vector in enumerate(messages))
    return msgspec.structs.replace(relevance, unrelated=best, related=right), references


def mean_vector(vectors: Sequence[Vector]) -> list[float]:
    """Return the mean of vectors, each scaled to length 1."""
    scaled = [unit(vector) for vector in vectors]
    return [round(fmean(numbers), _DIGITS) for numbers in zip(*scaled, strict=True)]


def center(vector: Vector, mean: Vector) -> list[float]:
    """Return a vector less the mean, scaled to length 1; zeros stay zeros."""
    scaled = unit(vector)
    return unit([number - other for number, other in zip(scaled, mean, strict=True)]) if any(scaled) else scaled


def cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors of length 1."""
    return float(sum(map(mul, one, other)))


def unit(vector: Vector) -> list[float]:
    """Return a vector scaled to length 1; a zero or infinite vector becomes zeros."""
    length = math.hypot(*vector)
    return [number / length for number in vector] if 0 < length < math.inf else [0.0] * len(vector)
