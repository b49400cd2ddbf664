"""Chooses the specialist that a message needs, or none, by its similarity to examples.

The classifier is ridge regression on one class per specialist and one for messages that need none. Its features are
words, pairs of words, the first words and letter n-grams, weighted by their rarity. A specialist of few examples also
gets the messages about the topics of its examples and description. Where an embedding model is configured, a
classifier of embeddings joins in.
"""

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from operator import itemgetter, mul
from pathlib import Path
from typing import Any

import regex

from brain.concurrency import call_in_thread
from brain.plugins.specialist import Specialist

MARGIN = 0.3
"""Lead over "none" that a specialist needs."""
FOLLOW_UP_MARGIN = 0.2
"""The same for a message that follows up on the previous one."""
SURE, CLEAR = 0.6, 1.0
"""Leads with which a message stands for itself, whatever came before it: the second one is for a message that continues
the previous one, such as `and on Friday?`."""
MAX_EMBEDDED, MAX_EMBEDDED_NONE = 40, 200
"""Examples of each specialist and of none whose embeddings are learned; a server may take seconds for them."""
MAX_FITTED = 8
"""Routers that a process keeps."""
MAX_LENGTH = 4_000
"""Characters of a message that are read."""
MAX_WORDS = 60
"""Words of a long message that count: the first and the last ones."""
_FOLLOW_UP_WORDS = 8
"""Most words of a message that may follow up on the previous one."""
_FOLLOW_UP_SHARE = 0.3
"""Share of both messages together in its score; the message alone has the rest."""
_SAME_BONUS, _CONTINUE_BONUS = 0.1, 0.5
"""Added for the specialist of the previous message, and if the message is a part of a sentence that continues it."""
FILE_BONUS = 0.4
"""Added for specialists that read files, if the message has files."""
ADDRESS_BONUS = 1.0
"""Added for specialists that open addresses, if the message has one."""
_RIDGE = 0.1
_MAX_ROUNDS = 14
_LEAST_STEP = 0.1
"""A change of a weight below this is not worth another round."""
_EMBEDDING_WEIGHT = 0.3
"""Share of the classifier of embeddings in a score."""
_N_GRAMS = (3, 4)
_PAIR_WEIGHT, _GRAM_WEIGHT, _FIRST_WEIGHT = 0.7, 0.35, 0.7
"""Weights of features; words have 1."""
_SHORT = 3
"""Words of a short message, which is a feature."""
_FEW = 15
"""Specialists with fewer examples than this also match by topic."""
_TOPIC_BONUS = 0.7
"""Added for a specialist of few examples, if the message is about its topic."""
_COMMON_TOPIC = 30
"""Examples of all specialists on a topic, from which on it says less about one of them."""
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_CONTINUES = regex.compile(
    r"^\W*(?:and|what about|how about|only|just|also|the same|now (?:with|for)|und|auch|nur|was ist mit|wie sieht"
    r"|et|aussi|y|e|o)\b",
    regex.IGNORECASE,
)
"""The opening of a message that continues the previous one."""
_POINTS = regex.compile(
    r"^\W*(?:but|or|any|oder|ou)\b|\b(?:it|its|he|she|they|him|his|her|their|them|there|those|these|that one|this one"
    r"|er|es|dort|davon|ihr|ihm|sie|il|elle|ils|elles|son|sa|ses|ella|él|allí|su|sus|lo"
    r"|(?:for|about|on|of|with) that|eso)\b",
    regex.IGNORECASE,
)
"""The opening or the pronoun of a message that needs the previous one."""
MAX_INSTRUCTION = 20
"""Words of a message with an instruction only; a longer one that begins like that has the text, too."""
_WORKS_ON_TEXT = regex.compile(
    r"^\W*(?:(?:please|kindly|can you|could you|bitte|kannst du|peux-tu|puedes)\s+)*(?:summari[sz]e|shorten|translate"
    r"|rewrite|rephrase|proofread|correct|fasse?|übersetze?|kürze?|korrigiere?|résume[rz]?|tradui[st]|corrige[rz]?|resume|traduce)\b",
    regex.IGNORECASE,
)
"""The opening of a request to work on a text that the message contains."""
_ADDRESS = regex.compile(r"https?://\S|\bwww\.\S+\.\S")

AnySpecialist = Specialist[..., Any]
Vector = tuple[Sequence[int], Sequence[float]]
"""The features of a text: their numbers and values."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The specialist that fits a message best.

    Attributes:
        lead: Its lead over "none".
        follows_up: Whether the message needs the previous one.
    """

    name: str
    lead: float
    follows_up: bool = False


@dataclass(frozen=True, slots=True)
class Previous:
    """The user's previous message, and the specialist that was called for it."""

    message: str
    specialist: str = ""


class Classifier:
    """Linear scores of classes, fitted by coordinate descent on the dual of ridge regression.

    A class of few examples counts as much as one of many: their weight is the inverse square root of their number.
    """

    def __init__(self, vectors: Sequence[Vector], labels: Sequence[int], size: int) -> None:
        count, classes = len(vectors), max(labels) + 1
        mean = [0.0] * size
        for indices, values in vectors:
            for index, value in zip(indices, values, strict=True):
                mean[index] += value / count
        getters = [_getter(indices) for indices, _ in vectors]
        # each vector without the mean is dense; its products follow from sparse ones
        with_mean = [sum(map(mul, values, get(mean))) for (_, values), get in zip(vectors, getters, strict=True)]
        of_mean = sum(map(mul, mean, mean))
        sizes = Counter(labels)
        weights = [sizes[label] ** -0.5 for label in labels]
        ridges = [_RIDGE * sum(weights) / count / weight for weight in weights]
        scales = [
            1 / (sum(map(mul, values, values)) - 2 * product + of_mean + ridge)
            for (_, values), product, ridge in zip(vectors, with_mean, ridges, strict=True)
        ]
        columns, self._constants = [], []
        everything = random.Random(0).sample(range(count), count)  # classes in turn: it converges in fewer rounds
        for number in range(classes):
            column, total, offset = [0.0] * size, 0.0, 0.0
            duals = [0.0] * count
            targets = [1.0 if label == number else -1 / (classes - 1) for label in labels]
            active = everything
            for turn in range(_MAX_ROUNDS):
                changed = []
                for n in active:
                    indices, values = vectors[n]
                    score = sum(map(mul, values, getters[n](column))) - total * (with_mean[n] - of_mean) - offset
                    step = (targets[n] - score - ridges[n] * duals[n]) * scales[n]
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
            columns.append([weight - total * middle for weight, middle in zip(column, mean, strict=True)])
            self._constants.append(total * of_mean - offset)
        self._rows = [*zip(*columns, strict=True)]

    def score(self, vector: Vector) -> list[float]:
        """Return the score of each class."""
        scores = self._constants
        for index, value in zip(*vector, strict=True):
            scores = [score + value * weight for score, weight in zip(scores, self._rows[index], strict=True)]
        return scores


class Router:
    """Chooses among specialists by the words of a message."""

    def __init__(self, specialists: Sequence[AnySpecialist]) -> None:
        self._names = [one.name for one in specialists]
        none = len(specialists)
        labelled = [(text, n) for n, one in enumerate(specialists) for text in (*one.examples, _describe(one))]
        others = [text for one in specialists for text in one.not_examples]
        labelled += [(text, none) for text in (*_read_lines("no_specialist.txt"), *others)]
        texts, labels = [text for text, _ in labelled], [label for _, label in labelled]
        self._labelled = labelled
        self._by_example = {_normalize(example): one.name for one in reversed(specialists) for example in one.examples}
        counted = [_count_features(text) for text in texts]
        found_in = Counter(feature for features in counted for feature in features)
        self._numbers = {feature: n for n, feature in enumerate(found_in)}
        self._rarities = [math.log((1 + len(counted)) / (1 + count)) + 1 for count in found_in.values()]
        vectors = [self._vector(features) for features in counted]
        self._words = Classifier(vectors, labels, len(found_in))
        self._topics = _find_topics(specialists, texts)
        self._takes_files = {one.name for one in specialists if _has_parameter(one, "image_id")}
        self._takes_address = {one.name for one in specialists if _has_parameter(one, "url")}

    @property
    def sample(self) -> list[tuple[str, int]]:
        """Some examples of each class, from all parts of its list, for a classifier of embeddings."""
        by_label: dict[int, list[str]] = {}
        for text, label in self._labelled:
            by_label.setdefault(label, []).append(text)
        chosen = []
        for label, texts in by_label.items():
            count = min(len(texts), MAX_EMBEDDED_NONE if label == len(self._names) else MAX_EMBEDDED)
            chosen += [(texts[n * len(texts) // count], label) for n in range(count)]
        return chosen

    def choose(
        self,
        message: str,
        allowed: Collection[str],
        embedding_scores: Sequence[float] | None = None,
        previous: Previous | None = None,
        *,
        has_files: bool = False,
        can_read_files: bool = False,
    ) -> Choice | None:
        """Return the specialist that fits best, or None if the message needs none or this one may not be called.

        Args:
            allowed: Names of the specialists that may be called.
            embedding_scores: Scores of an `EmbeddingClassifier`.
            has_files: Whether the message has files.
            can_read_files: Whether the conversation has files.
        """
        example = self._by_example.get(_normalize(message))
        if example is not None and example in allowed:
            return Choice(example, 2.0) if can_read_files or example not in self._takes_files else None
        words, has_address = len(_WORD.findall(message[:MAX_LENGTH])), _ADDRESS.search(message) is not None
        has_text = words > MAX_INSTRUCTION and not has_address and _WORKS_ON_TEXT.match(message) is not None
        if not self._names or not words or has_text:
            return None
        leads = self._leads(message, embedding_scores)
        if has_files:
            for name in self._takes_files.intersection(leads):
                leads[name] += FILE_BONUS
        if has_address:
            for name in self._takes_address.intersection(leads):
                leads[name] += ADDRESS_BONUS
        choice = _best(leads)
        is_follow_up = previous is not None and follows_up(message)
        continues = is_follow_up and _CONTINUES.match(message) is not None
        margin = MARGIN
        if previous is not None and is_follow_up and choice.lead < (CLEAR if continues else SURE):
            together = self._leads(f"{previous.message[: MAX_LENGTH // 2]} {message}", None)
            share = _FOLLOW_UP_SHARE
            leads = {name: share * together[name] + (1 - share) * lead for name, lead in leads.items()}
            if previous.specialist in leads:
                leads[previous.specialist] += _CONTINUE_BONUS if continues else _SAME_BONUS
            choice, margin = _best(leads), FOLLOW_UP_MARGIN
        if choice.lead <= margin or (choice.name in self._takes_files and not can_read_files):
            return None  # a question about a file that nobody attached has no answer
        return replace(choice, follows_up=is_follow_up) if choice.name in allowed else None

    def _leads(self, message: str, embedding_scores: Sequence[float] | None) -> dict[str, float]:
        """Return the lead of each specialist over "none"."""
        scores = self._words.score(self._vector(_count_features(message)))
        if embedding_scores is not None:
            scores = [
                one + _EMBEDDING_WEIGHT * (other - one) for one, other in zip(scores, embedding_scores, strict=True)
            ]
        leads = {name: score - scores[-1] for name, score in zip(self._names, scores, strict=False)}
        topics = topics_of(message) if self._topics else ()
        for name, strengths in self._topics.items():
            leads[name] += _TOPIC_BONUS * max((strengths.get(topic, 0.0) for topic in topics), default=0.0)
        return leads

    def _vector(self, features: Mapping[str, float]) -> Vector:
        numbers = [self._numbers[feature] for feature in features if feature in self._numbers]
        values = [
            weight * self._rarities[self._numbers[feature]]
            for feature, weight in features.items()
            if feature in self._numbers
        ]
        length = math.sqrt(sum(map(mul, values, values))) or 1.0
        return numbers, [value / length for value in values]


class EmbeddingClassifier:
    """Scores embeddings, for `Router.choose`. Args: `Router.sample` with its embeddings."""

    def __init__(self, vectors: Sequence[Sequence[float]], labels: Sequence[int]) -> None:
        self._middle = [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
        centred = [[*map(float.__sub__, vector, self._middle)] for vector in vectors]
        self._scale = math.sqrt(len(vectors) / (sum(sum(map(mul, one, one)) for one in centred) or 1.0))
        scaled = [(range(len(one)), [number * self._scale for number in one]) for one in centred]
        self._classifier = Classifier(scaled, labels, len(self._middle))

    def score(self, vector: Sequence[float]) -> list[float] | None:
        """Return the score of each class; None for an embedding of another size."""
        if len(vector) != len(self._middle):
            return None
        scaled = [(number - middle) * self._scale for number, middle in zip(vector, self._middle, strict=True)]
        return self._classifier.score((range(len(scaled)), scaled))


_fitted: dict[Sequence[AnySpecialist], Router] = {}
_fitting = threading.Lock()


def find_fitted(specialists: tuple[AnySpecialist, ...]) -> Router | None:
    """Return the router of these specialists, if it was fitted."""
    return _fitted.get(specialists)


async def find_router(specialists: tuple[AnySpecialist, ...]) -> Router:
    """Return the router of these specialists. Fitting it takes a few seconds of CPU, once per process."""
    router: Router = _fitted.get(specialists) or await call_in_thread("router", partial(_fit, specialists))
    return router


def _fit(specialists: tuple[AnySpecialist, ...]) -> Router:
    with _fitting:
        router = _fitted.get(specialists)
        if router is None:
            router = _fitted[specialists] = Router(specialists)
            if len(_fitted) > MAX_FITTED:
                del _fitted[next(iter(_fitted))]
        return router


def _best(leads: Mapping[str, float]) -> Choice:
    name = max(leads, key=leads.__getitem__)
    return Choice(name, leads[name])


def follows_up(message: str) -> bool:
    """Whether a message is short, and continues or points to the previous one."""
    is_short = len(_WORD.findall(message[:MAX_LENGTH])) <= _FOLLOW_UP_WORDS
    return is_short and (_CONTINUES.match(message) is not None or _POINTS.search(message) is not None)


def _getter(indices: Sequence[int]) -> Callable[[Sequence[float]], Sequence[float]]:
    """Return a function that returns the items with these numbers."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda items: [items[index] for index in indices]


def _count_features(text: str) -> Mapping[str, float]:
    """Return the features of a text with their weights, which grow with the logarithm of their number."""
    words = ["0" if word.isdecimal() else word for word in _WORD.findall(text[:MAX_LENGTH].lower())]
    if len(words) > MAX_WORDS:
        words = [*words[: MAX_WORDS // 2], *words[-MAX_WORDS // 2 :]]
    weights, counts = dict.fromkeys(words, 1.0), Counter(words)

    def add(feature: str, weight: float) -> None:
        weights[feature] = weight
        counts[feature] += 1

    for before, word in pairwise(words):
        add(f"{before} {word}", _PAIR_WEIGHT)
    for word in words:
        padded = f"^{word}$"
        for size in _N_GRAMS:
            for at in range(len(padded) - size + 1):
                add(f"#{padded[at : at + size]}", _GRAM_WEIGHT)
    for n, word in enumerate(words[:2]):
        add(f"{n}:{word}", _FIRST_WEIGHT)
    if len(words) <= _SHORT:
        add("short:", 1.0)
    return {feature: weight * (1 + math.log(counts[feature])) for feature, weight in weights.items()}


def _describe(specialist: AnySpecialist) -> str:
    """Return name, description and parameters of a specialist as one text."""
    parts = [specialist.name.replace("_", " "), specialist.description]
    for name, schema in specialist.parameters.get("properties", {}).items():
        parts.append(name.replace("_", " "))
        if isinstance(schema, Mapping):
            parts += [str(schema.get("description", "")), *map(str, schema.get("enum", ()))]
    return " ".join(parts)[:MAX_LENGTH]


def _has_parameter(specialist: AnySpecialist, name: str) -> bool:
    return name in specialist.parameters.get("properties", {})


def _normalize(text: str) -> str:
    """Return the words of a text in lower case, without punctuation."""
    return " ".join(_WORD.findall(text[:MAX_LENGTH].lower()))


# Topics


def topics_of(text: str) -> set[str]:
    """Return the topics that the words of a text belong to."""
    by_word = _topics_by_word()
    return {topic for word in _WORD.findall(text[:MAX_LENGTH].lower()) for topic in by_word.get(word, ())}


@lru_cache(maxsize=1)
def _topics_by_word() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for line in _read_lines("topics.txt"):
        topic, _, words = line.partition(":")
        for word in words.split():
            found.setdefault(word, []).append(topic)
    return found


def _find_topics(specialists: Sequence[AnySpecialist], texts: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """Return the topics of each specialist of few examples, from 0 to 1.

    A topic counts fully if two of its texts are about it, and if it is rare in all texts.
    """
    few = [one for one in specialists if len(one.examples) < _FEW]
    counts = Counter(topic for text in texts for topic in topics_of(text)) if few else Counter[str]()
    found = {}
    for one in few:
        own = Counter(topic for text in (*one.examples, _describe(one)) for topic in topics_of(text))
        found[one.name] = {
            topic: min(1.0, count / 2) * min(1.0, _COMMON_TOPIC / counts[topic]) for topic, count in own.items()
        }
    return found


def _read_lines(name: str) -> Sequence[str]:
    return (Path(__file__).parent / name).read_text("utf-8").splitlines()
