"""What the router learned: the weight of each feature of a text for each class.

The classifier is ridge regression, fitted by coordinate descent on the dual. Its weights are stored as int8 with one
scale per class. Those of the included specialists are in `router.bin`, which `tests/bench/router_weights.py` writes.
"""

import hashlib
import math
import random
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter, mul, sub
from pathlib import Path
from struct import Struct

import msgspec
import regex

MAX_LENGTH = 4_000
"""Characters of a message that are read."""
MAX_WORDS = 60
"""Words of a long message that count: the first and the last ones."""
SHIPPED = Path(__file__).parent / "router.bin"
_RIDGE = 0.1
_MAX_ROUNDS = 14
_LEAST_STEP = 0.1
"""A change of a weight below this is not worth another round."""
_N_GRAMS = (3, 4)
_PAIR_WEIGHT, _GRAM_WEIGHT, _FIRST_WEIGHT = 0.7, 0.35, 0.7
"""Weights of features; words have 1."""
_SHORT = 3
"""Words of a short message, which is a feature."""
WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")

Vector = tuple[Sequence[int], Sequence[float]]
"""The features of a text: their numbers and values."""


class Weights(msgspec.Struct, frozen=True, array_like=True):
    """Linear scores of classes.

    Attributes:
        scales: Value of a weight of 1 of each class.
        constants: Score of each class without features.
    """

    scales: list[float]
    constants: list[float]
    rows: bytes

    def score(self, vector: Vector) -> list[float]:
        """Return the score of each class."""
        (indices, values), count = vector, len(self.scales)
        read_row = Struct(f"{count}b").unpack_from
        rows = [read_row(self.rows, index * count) for index in indices]
        totals = [sum(map(mul, values, column)) for column in zip(*rows, strict=True)] or [0.0] * count
        return [
            constant + scale * total for constant, scale, total in zip(self.constants, self.scales, totals, strict=True)
        ]


class Learned(msgspec.Struct, frozen=True, array_like=True):
    """Weights of classes, and the features that they are for.

    Attributes:
        classes: Hashes of the texts of each class, by its name.
        features: The features in lines, without those of `base`.
        counts: Number of texts with each feature, as unsigned 16-bit numbers.
        base: Hash of the weights that these add to; empty for those of `router.bin`.
        sigmoid: Offset and slope that turn a lead into a probability; only in `router.bin`.
    """

    classes: dict[str, str]
    features: str
    counts: bytes
    texts: int
    weights: Weights
    base: str = ""
    sigmoid: tuple[float, float] = (0.0, 0.0)

    @property
    def key(self) -> str:
        """Hash of all texts, for weights that add to these."""
        return digest([*self.classes.values()])

    def pack(self) -> bytes:
        return zlib.compress(msgspec.msgpack.encode(self), 9)


def digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "replace")).hexdigest()[:16]


def unpack(packed: bytes) -> Learned:
    """Return what `Learned.pack` encoded."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(packed), type=Learned)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError("damaged weights") from error


@lru_cache(maxsize=1)
def read_shipped() -> Learned:
    """Return the weights of the included specialists."""
    return unpack(SHIPPED.read_bytes())


class Vocabulary:
    """Features by number, and their rarity."""

    def __init__(self, learned: Iterable[Learned] = ()) -> None:
        self.numbers: dict[str, int] = {}
        self.rarities: list[float] = []
        for one in learned:
            features = one.features.split("\n") if one.features else []
            self._add(features, array("H", one.counts), one.texts)

    def learn(self, counted: Sequence[Mapping[str, float]]) -> tuple[str, bytes]:
        """Add the features of texts. Return the new ones and their counts, as `Learned` has them."""
        found_in = Counter(feature for features in counted for feature in features if feature not in self.numbers)
        counts = array("H", (min(count, 0xFFFF) for count in found_in.values()))
        self._add(found_in, counts, len(counted))
        return "\n".join(found_in), counts.tobytes()

    def _add(self, features: Iterable[str], counts: Sequence[int], texts: int) -> None:
        by_count = {count: math.log((1 + texts) / (1 + count)) + 1 for count in set(counts)}
        first = len(self.numbers)
        self.numbers.update((feature, first + n) for n, feature in enumerate(features))
        self.rarities += [by_count[count] for count in counts]

    def vector(self, features: Mapping[str, float], size: int | None = None) -> Vector:
        """Return the features of a text as a vector of length 1, without unknown ones.

        Args:
            size: Only the first features.
        """
        size = len(self.numbers) if size is None else size
        known = [(n, weight) for one, weight in features.items() if (n := self.numbers.get(one, size)) < size]
        values = [weight * self.rarities[n] for n, weight in known]
        length = math.sqrt(sum(map(mul, values, values))) or 1.0
        return [n for n, _ in known], [value / length for value in values]


class EmbeddingClassifier(msgspec.Struct, frozen=True, array_like=True):
    """Scores embeddings, for `Router.choose`."""

    middle: list[float]
    scale: float
    weights: Weights

    def score(self, vector: Sequence[float]) -> list[float] | None:
        """Return the score of each class; None for an embedding of another size."""
        if len(vector) != len(self.middle):
            return None
        scaled = [(number - middle) * self.scale for number, middle in zip(vector, self.middle, strict=True)]
        return self.weights.score((range(len(scaled)), scaled))


def fit_embeddings(vectors: Sequence[Sequence[float]], labels: Sequence[int]) -> EmbeddingClassifier:
    """Fit a classifier. Takes `Router.sample` with its embeddings."""
    middle = [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
    centred = [[*map(sub, vector, middle)] for vector in vectors]
    scale = math.sqrt(len(vectors) / (sum(sum(map(mul, one, one)) for one in centred) or 1.0))
    scaled = [(range(len(one)), [number * scale for number in one]) for one in centred]
    count = max(labels) + 1
    return EmbeddingClassifier(middle, scale, fit(scaled, labels, len(middle), range(count), count))


def learn(
    classes: Sequence[tuple[str, str]], labelled: Sequence[tuple[str, int]], base: Learned | None = None
) -> Learned:
    """Fit the classes that `base` lacks against all texts; without `base`, all classes. It takes seconds of CPU.

    Args:
        classes: Name and hash of each class; "none" is the last one.
        labelled: Texts with the number of their class.
    """
    known = {} if base is None else base.classes
    none = len(classes) - 1
    new = [n for n, (name, found) in enumerate(classes) if known.get(name) != found and (n != none or base is None)]
    counted = [count_features(text) for text, _ in labelled]
    vocabulary = Vocabulary([] if base is None else [base])
    features, counts = vocabulary.learn(counted)
    vectors = [vocabulary.vector(one) for one in counted]
    weights = fit(vectors, [label for _, label in labelled], len(vocabulary.numbers), new, len(classes))
    found = dict(classes[n] for n in new)
    return Learned(found, features, counts, len(counted), weights, "" if base is None else base.key)


def fit(vectors: Sequence[Vector], labels: Sequence[int], size: int, classes: Sequence[int], count: int) -> Weights:
    """Fit the weights of some classes against all texts.

    A class of few examples counts as much as one of many: their weight is the inverse square root of their number.

    Args:
        size: Number of features.
        count: Number of all classes.
    """
    texts = len(vectors)
    mean = [0.0] * size
    for indices, values in vectors:
        for index, value in zip(indices, values, strict=True):
            mean[index] += value / texts
    # each vector without the mean is dense; its products follow from sparse ones
    getters, with_mean, squares = [], [], []
    for indices, values in vectors:
        getters.append(_getter(indices))
        with_mean.append(sum(map(mul, values, getters[-1](mean))))
        squares.append(sum(map(mul, values, values)))
    of_mean = sum(map(mul, mean, mean))
    sizes = Counter(labels)
    weights = [sizes[label] ** -0.5 for label in labels]
    ridges = [_RIDGE * sum(weights) / texts / weight for weight in weights]
    steps = [
        1 / (square - 2 * product + of_mean + ridge)
        for square, product, ridge in zip(squares, with_mean, ridges, strict=True)
    ]
    columns, constants, scales = [], [], []
    everything = random.Random(0).sample(range(texts), texts)  # classes in turn: it converges in fewer rounds
    for number in classes:
        column, total, offset = [0.0] * size, 0.0, 0.0
        duals = [0.0] * texts
        targets = [1.0 if label == number else -1 / (count - 1) for label in labels]
        active = everything
        for turn in range(_MAX_ROUNDS):
            changed = []
            for n in active:
                indices, values = vectors[n]
                score = sum(map(mul, values, getters[n](column))) - total * (with_mean[n] - of_mean) - offset
                step = (targets[n] - score - ridges[n] * duals[n]) * steps[n]
                if abs(step) < _LEAST_STEP:
                    continue
                changed.append(n)
                duals[n] += step
                total += step
                offset += step * with_mean[n]
                for index, value in zip(indices, values, strict=True):
                    column[index] += step * value
            if not changed and active is everything:
                break
            active = changed if changed and turn % 4 != 3 else everything
        column = [weight - total * middle for weight, middle in zip(column, mean, strict=True)]
        scale = max(map(abs, column), default=0.0) / 127 or 1.0
        columns.append(array("b", (round(weight / scale) for weight in column)))
        scales.append(scale)
        constants.append(total * of_mean - offset)
    rows = array("b", bytes(size * len(columns)))
    for n, quantized in enumerate(columns):
        rows[n :: len(columns)] = quantized
    return Weights(scales, constants, rows.tobytes())


def _getter(indices: Sequence[int]) -> Callable[[Sequence[float]], Sequence[float]]:
    """Return a function that returns the items with these numbers."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda items: [items[index] for index in indices]


def count_features(text: str) -> Mapping[str, float]:
    """Return the features of a text with their weights, which grow with the logarithm of their number."""
    words = ["0" if word.isdecimal() else word for word in WORD.findall(text[:MAX_LENGTH].lower())]
    if len(words) > MAX_WORDS:
        words = [*words[: MAX_WORDS // 2], *words[-MAX_WORDS // 2 :]]
    padded = [f"^{word}$" for word in words]
    grams = [f"#{word[at : at + size]}" for word in padded for size in _N_GRAMS for at in range(len(word) - size + 1)]
    kinds: tuple[tuple[Sequence[str], float], ...] = (
        (words, 1.0),
        ([f"{before} {word}" for before, word in pairwise(words)], _PAIR_WEIGHT),
        (grams, _GRAM_WEIGHT),
        ([f"{n}:{word}" for n, word in enumerate(words[:2])], _FIRST_WEIGHT),
        (["short:"] if len(words) <= _SHORT else [], 1.0),
    )
    return {
        feature: weight * (1 + math.log(count)) if count > 1 else weight
        for features, weight in kinds
        for feature, count in Counter(features).items()
    }
