"""Chooses the specialist that a message needs, or none, by its similarity to examples.

The classifier is ridge regression on one class per specialist and one for messages that need none. Its features are
words, pairs of words, the first words and letter n-grams, weighted by their rarity. The weights of the included
specialists are in `router.bin`; those of others are fitted once and stored. A specialist of few examples also gets the
messages about the topics of its examples and description. Where an embedding model is configured, a classifier of
embeddings joins in.
"""

import asyncio
import base64
import math
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

from brain.assist import weights
from brain.assist.fitting import learn_apart
from brain.assist.weights import MAX_LENGTH, WORD, Learned, Vocabulary, count_features, read_shipped, unpack
from brain.concurrency import call_in_thread
from brain.errors import StoreError
from brain.plugins.specialist import Specialist
from brain.store import server_data
from brain.store.store import Store

ACT, ASK = 0.62, 0.25
"""Probabilities from which on Brain makes a call, and asks whether the user wants it."""
SURE, CLEAR = 0.6, 1.0
"""Leads with which a message stands for itself, whatever came before it: the second one is for a message that continues
the previous one, such as `and on Friday?`."""
MAX_EMBEDDED, MAX_EMBEDDED_NONE = 40, 200
"""Examples of each specialist and of none whose embeddings are learned; a server may take seconds for them."""
MAX_FITTED = 8
"""Routers that a process keeps."""
_FOLLOW_UP_WORDS = 8
"""Most words of a message that may follow up on the previous one."""
_FOLLOW_UP_SHARE = 0.3
"""Share of both messages together in its score; the message alone has the rest."""
_FOLLOW_UP_BONUS, _SAME_BONUS, _CONTINUE_BONUS = 0.2, 0.1, 0.5
"""Added to the leads of a message that follows up: for all, for the specialist of the previous message, and for it if
the message is a part of a sentence that continues it."""
FILE_BONUS = 0.4
"""Added for specialists that read files, if the message has files."""
ADDRESS_BONUS = 1.0
"""Added for specialists that open addresses, if the message has one."""
_EMBEDDING_WEIGHT = 0.3
"""Share of the classifier of embeddings in a score."""
_FEW = 15
"""Specialists with fewer examples than this also match by topic."""
_TOPIC_BONUS = 0.5
"""Added for a specialist of few examples, if the message is about its topic."""
_COMMON_TOPIC = 30
"""Examples of all specialists on a topic, from which on it says less about one of them."""
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
NONE = ""
"""Name of the class of messages that need no specialist."""
STORED = "router"
"""Name of the stored value with the weights of specialists that `router.bin` lacks."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The specialist that fits a message best."""

    name: str
    confidence: float = 1.0
    follows_up: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether Brain may make the call without a question."""
        return self.confidence >= ACT


@dataclass(frozen=True, slots=True)
class Previous:
    """The user's previous message, and the specialist that was called for it."""

    message: str
    specialist: str = ""


class Router:
    """Chooses among specialists by the words of a message.

    Args:
        learned: `router.bin`, and what `learn` returned for the specialists that it lacks. Without it, those match by
            their examples only.
    """

    def __init__(self, specialists: Sequence[AnySpecialist], learned: Sequence[Learned]) -> None:
        self._specialists = specialists
        self._learned = learned
        self._vocabulary = Vocabulary(learned)
        self._sizes = [len(learned[0].features.split("\n")), len(self._vocabulary.numbers)]
        self._by_example = {_normalize(example): one.name for one in reversed(specialists) for example in one.examples}
        self._topics = _find_topics(specialists)
        self._takes_files = {one.name for one in specialists if _has_parameter(one, "image_id")}
        self._takes_address = {one.name for one in specialists if _has_parameter(one, "url")}

    @property
    def sample(self) -> list[tuple[str, int]]:
        """Some examples of each class, from all parts of its list, for a classifier of embeddings."""
        by_label: dict[int, list[str]] = {}
        for text, label in label_texts(self._specialists):
            by_label.setdefault(label, []).append(text)
        chosen = []
        for label, texts in by_label.items():
            count = min(len(texts), MAX_EMBEDDED_NONE if label == len(self._specialists) else MAX_EMBEDDED)
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
        without: str = "",
    ) -> Choice | None:
        """Return the specialist that fits best, or None if the message needs none or this one may not be called.

        Args:
            has_files: Whether the message has files.
            can_read_files: Whether the conversation has files.
        """
        example = self._by_example.get(_normalize(message))
        if example is not None and example in allowed and example != without:
            return Choice(example) if can_read_files or example not in self._takes_files else None
        words, has_address = len(WORD.findall(message[:MAX_LENGTH])), _ADDRESS.search(message) is not None
        has_text = words > MAX_INSTRUCTION and not has_address and _WORKS_ON_TEXT.match(message) is not None
        if not self._specialists or not words or has_text:
            return None
        leads = self._leads(message, embedding_scores)
        leads.pop(without, None)
        if not leads:
            return None
        if has_files:
            for name in self._takes_files.intersection(leads):
                leads[name] += FILE_BONUS
        if has_address:
            for name in self._takes_address.intersection(leads):
                leads[name] += ADDRESS_BONUS
        name = max(leads, key=leads.__getitem__)
        is_follow_up = previous is not None and follows_up(message)
        continues = is_follow_up and _CONTINUES.match(message) is not None
        if previous is not None and is_follow_up and leads[name] < (CLEAR if continues else SURE):
            together = self._leads(f"{previous.message[: MAX_LENGTH // 2]} {message}", None)
            share = _FOLLOW_UP_SHARE
            leads = {one: share * together[one] + (1 - share) * lead + _FOLLOW_UP_BONUS for one, lead in leads.items()}
            if previous.specialist in leads:
                leads[previous.specialist] += _CONTINUE_BONUS if continues else _SAME_BONUS
            name = max(leads, key=leads.__getitem__)
        offset, slope = self._learned[0].sigmoid
        confidence = 1 / (1 + math.exp(offset - slope * leads[name]))
        if confidence < (ACT if is_follow_up else ASK) or (name in self._takes_files and not can_read_files):
            return None  # a question about a file that nobody attached has no answer
        return Choice(name, confidence, is_follow_up) if name in allowed else None

    def _leads(self, message: str, embedding_scores: Sequence[float] | None) -> dict[str, float]:
        """Return the lead of each specialist over "none"."""
        features, by_class = count_features(message), dict[str, float]()
        for learned, size in zip(self._learned, self._sizes, strict=False):  # added classes do not affect the others
            scores = learned.weights.score(self._vocabulary.vector(features, size))
            by_class |= zip(learned.classes, scores, strict=True)
        names = [*(one.name for one in self._specialists), NONE]
        if embedding_scores is not None:
            for name, other in zip(names, embedding_scores, strict=True):
                if name in by_class:
                    by_class[name] += _EMBEDDING_WEIGHT * (other - by_class[name])
        leads = {name: by_class[name] - by_class[NONE] for name in names[:-1] if name in by_class}
        topics = topics_of(message) if self._topics else ()
        for name in leads.keys() & self._topics.keys():
            strengths = self._topics[name]
            leads[name] += _TOPIC_BONUS * max((strengths.get(topic, 0.0) for topic in topics), default=0.0)
        return leads


def learn(specialists: Sequence[AnySpecialist], base: Learned | None = None) -> Learned:
    """Fit the classes that `base` lacks against all texts; without `base`, all classes. It takes seconds of CPU."""
    return weights.learn(_list_classes(specialists), label_texts(specialists), base)


def _list_classes(specialists: Sequence[AnySpecialist]) -> list[tuple[str, str]]:
    """Return the name and digest of each class; "none" is the last one."""
    classes = [(one.name, digest(one)) for one in specialists]
    return [*classes, (NONE, weights.digest(_read_lines("no_specialist.txt")))]


def find_added(specialists: Sequence[AnySpecialist]) -> Mapping[str, str]:
    """Return the digests of the specialists that `router.bin` lacks, by name."""
    known, found = read_shipped().classes, {one.name: digest(one) for one in specialists}
    return {name: one for name, one in found.items() if known.get(name) != one}


def digest(specialist: AnySpecialist) -> str:
    """Return a hash of the texts from which the class of a specialist is learned."""
    return weights.digest([_describe(specialist), *specialist.examples, *specialist.not_examples])


def label_texts(specialists: Sequence[AnySpecialist]) -> list[tuple[str, int]]:
    """Return all texts with the number of their specialist; that of "none" is the last one."""
    none = len(specialists)
    labelled = [(text, n) for n, one in enumerate(specialists) for text in (*one.examples, _describe(one))]
    others = [text for one in specialists for text in one.not_examples]
    return labelled + [(text, none) for text in (*_read_lines("no_specialist.txt"), *others)]


_Routers = dict[Sequence[AnySpecialist], Router]
_fitted: _Routers = {}
_partial: _Routers = {}
_making: dict[tuple[asyncio.AbstractEventLoop, bool, Sequence[AnySpecialist]], asyncio.Task[None]] = {}


def find_fitted(specialists: tuple[AnySpecialist, ...]) -> Router | None:
    """Return the router of these specialists, if it was made."""
    return _fitted.get(specialists)


async def find_partial_router(specialists: tuple[AnySpecialist, ...]) -> Router:
    """Return a router at once, in which specialists that `router.bin` lacks match by their examples only."""
    return await _share(_partial, specialists, lambda: _build(_partial, specialists, None))


async def find_router(specialists: tuple[AnySpecialist, ...], store: Store | None = None) -> Router:
    """Return the router of these specialists. Those that `router.bin` lacks take seconds of CPU, once per store.

    Raises:
        FitError, NoThread: They cannot be learned.
    """
    return await _share(_fitted, specialists, lambda: _learn_new(specialists, store))


async def _share(
    routers: _Routers, specialists: tuple[AnySpecialist, ...], make: Callable[[], Coroutine[Any, Any, None]]
) -> Router:
    """Return a router. All who wait for it in an event loop share the task that makes it."""
    key, waiting = (asyncio.get_running_loop(), routers is _fitted, specialists), asyncio.current_task()
    while (router := routers.get(specialists)) is None:
        if (making := _making.get(key)) is None:
            making = _making[key] = asyncio.create_task(make(), name="router")

            def forget(task: asyncio.Task[None]) -> None:
                del _making[key]
                if not task.cancelled():
                    task.exception()  # the turns that wait get it, if any still do

            making.add_done_callback(forget)
        try:
            await asyncio.shield(making)
        except asyncio.CancelledError:
            if not making.cancelled() or waiting is None or waiting.cancelling():
                raise  # otherwise another engine in this event loop was closed
    return router


async def end_making() -> None:
    """Cancel what makes routers in this event loop."""
    making = [task for (loop, *_), task in _making.items() if loop is asyncio.get_running_loop()]
    for task in making:
        task.cancel()
    await asyncio.gather(*making, return_exceptions=True)


async def _learn_new(specialists: tuple[AnySpecialist, ...], store: Store | None) -> None:
    added = find_added(specialists)
    learned = await _read_stored(store, added) if added and store is not None else None
    if added and learned is None:
        learned = await learn_apart(_list_classes(specialists), label_texts(specialists))
        if store is not None:
            value = base64.b64encode(learned.pack()).decode()
            with suppress(StoreError):  # the next start fits again
                await store.write_unsynced(server_data.set_server_value, STORED, value)
    await _build(_fitted, specialists, learned)


async def _build(routers: _Routers, specialists: tuple[AnySpecialist, ...], learned: Learned | None) -> None:
    added = [] if learned is None else [learned]
    routers[specialists] = await call_in_thread("router", lambda: Router(specialists, [read_shipped(), *added]))
    if len(routers) > MAX_FITTED:
        del routers[next(iter(routers))]


async def _read_stored(store: Store, digests: Mapping[str, str]) -> Learned | None:
    """Return the stored weights of these specialists, if they still fit."""
    with suppress(StoreError, ValueError):
        text = await store.read(server_data.server_value, STORED)
        learned = unpack(base64.b64decode(text)) if text else None
        if learned is not None and (learned.classes, learned.base) == (digests, read_shipped().key):
            return learned
    return None


def follows_up(message: str) -> bool:
    """Whether a message is short, and continues or points to the previous one."""
    is_short = len(WORD.findall(message[:MAX_LENGTH])) <= _FOLLOW_UP_WORDS
    return is_short and (_CONTINUES.match(message) is not None or _POINTS.search(message) is not None)


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
    return " ".join(WORD.findall(text[:MAX_LENGTH].lower()))


# Topics


def topics_of(text: str) -> set[str]:
    """Return the topics that the words of a text belong to."""
    by_word = _topics_by_word()
    return {topic for word in WORD.findall(text[:MAX_LENGTH].lower()) for topic in by_word.get(word, ())}


@lru_cache(maxsize=1)
def _topics_by_word() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for line in _read_lines("topics.txt"):
        topic, _, words = line.partition(":")
        for word in words.split():
            found.setdefault(word, []).append(topic)
    return found


def _find_topics(specialists: Sequence[AnySpecialist]) -> Mapping[str, Mapping[str, float]]:
    """Return the topics of each specialist of few examples, from 0 to 1.

    A topic counts fully if two of its texts are about it, and if it is rare in all texts.
    """
    few = [one for one in specialists if len(one.examples) < _FEW]
    texts = label_texts(specialists) if few else []
    counts = Counter(topic for text, _ in texts for topic in topics_of(text))
    found = {}
    for one in few:
        own = Counter(topic for text in (*one.examples, _describe(one)) for topic in topics_of(text))
        found[one.name] = {
            topic: min(1.0, count / 2) * min(1.0, _COMMON_TOPIC / counts[topic]) for topic, count in own.items()
        }
    return found


def _read_lines(name: str) -> Sequence[str]:
    return (Path(__file__).parent / name).read_text("utf-8").splitlines()
