"""Which facts and memories belong to a question. Pure; nothing that is not to the point comes."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from brain.memory.terms import FIRST_PERSON, WordMatcher, content_words, significant_words, words
from brain.memory.texts import MEMORY_LENGTH
from brain.messages import Item
from brain.prompts import templates
from brain.text import BYTES_PER_TOKEN, utf8_size

MAX_WORDS = 40
"""Words of a question that are looked for, the longest."""
MAX_ITEM_WORDS = 200
MAX_LETTERS = 12_000
"""Characters that are read of items with a word of the question, best first: more than are ever recalled."""
LONG_QUESTION = 12
"""From so many significant words of a question on, two in common are not enough."""
SHORT_QUESTION = 2
"""Up to so many, one in common is enough, however long the text is."""
OVERLAP = 9
"""An item matches when the square of the common words, times this, is at least the product of both counts of words."""
WORDS_WEIGHT = 0.5
"""Of the item that has most of a question's words; the nearest in meaning has about 1."""
FILL_SHARE = 0.5
"""The part of the budget for what matters without sharing a word, such as what somebody does not eat."""
ITEM_SHARE = 0.5
"""The part of the budget that one item may take; a longer one is cut."""
SENTENCE_LENGTH = 240
"""Characters of the sentence for the user."""
_PLURALS = {"fact": "facts", "memory": "memories", "summary": "summaries"}


@dataclass(frozen=True, slots=True)
class Found:
    """What a store found for a question, best first.

    Attributes:
        by_words: with scores of which only the order and the ratio tell anything.
        by_meaning: with cosines.
        floor, own: by the embedding check, the least cosine of texts that belong together, and their usual one.
    """

    by_words: Sequence[tuple[Item, float]] = ()
    by_meaning: Sequence[tuple[Item, float]] = ()
    floor: float = 0.0
    own: float = 1.0
    items: Mapping[str, Item] = field(init=False)

    def __post_init__(self) -> None:
        items = {item.id: item for item, _ in (*self.by_words, *self.by_meaning)}
        object.__setattr__(self, "items", items)


def rank(found: Found, question: "QuestionWords | None" = None) -> list[Item]:
    """The items that belong to a question, best first. Meaning weighs more than words: it finds other wordings.

    Args:
        question: its words, where nobody looked for something: a single word in common may be too little then.
    """
    most = max((score for _, score in found.by_words), default=0.0) or 1.0
    by_words = found.by_words if question is None else _matching(found.by_words, question)
    shares = {item.id: score / most for item, score in by_words}
    width = max(found.own - found.floor, 0.05)
    by_meaning = found.by_meaning if question is None or question.words else ()
    near = {item.id: (cosine - found.floor) / width for item, cosine in by_meaning if cosine >= found.floor}

    def score(item_id: str) -> float:
        return near.get(item_id, 0.0) + WORDS_WEIGHT * shares.get(item_id, 0.0) ** 2

    return [found.items[item_id] for item_id in sorted({**near, **shares}, key=score, reverse=True)]


def _matching(by_words: Sequence[tuple[Item, float]], question: "QuestionWords") -> Iterator[tuple[Item, float]]:
    room = MAX_LETTERS
    for item, score in by_words:
        room -= min(len(item.text), MEMORY_LENGTH)
        if room < 0:
            return
        if question.matches(item):
            yield item, score


class QuestionWords:
    """The words of a question that say what it is about."""

    def __init__(self, question: str) -> None:
        found = significant_words(question)
        if not found and FIRST_PERSON.intersection(words(question)):
            found = content_words(question)
        longest = set(sorted(found, key=len, reverse=True)[:MAX_WORDS])
        self._words = [word for word in found if word in longest]
        self._matcher = WordMatcher(self._words)

    @property
    def words(self) -> str:
        """What to look for."""
        return " ".join(self._words)

    def matches(self, item: Item) -> bool:
        """Whether an item has enough of them: several, or a good part of those of both."""
        found, asked = content_words(item.text[:MEMORY_LENGTH])[:MAX_ITEM_WORDS], len(self._words)
        common = self._matcher.match_any(found).bit_count()
        if common >= (2 if asked <= LONG_QUESTION else 3) or OVERLAP * common**2 >= asked * len(found):
            return common > 0
        return common > 0 and asked <= SHORT_QUESTION


def choose(relevant: Sequence[Item], about_user: Sequence[Item], tokens: int, present: Collection[str]) -> list[Item]:
    """Choose what fits into the budget: what belongs to the question, then facts about the user, newest first.

    Args:
        present: IDs of items and of messages that the model reads anyway.
    """
    room = tokens * BYTES_PER_TOKEN - utf8_size(templates.recall_note([]))
    separator = utf8_size(templates.recall_note(["", ""])) - utf8_size(templates.recall_note([]))
    fill = int(room * FILL_SHARE)
    chosen: dict[str, Item] = {}
    for item, is_fill in (*((item, False) for item in relevant), *((item, True) for item in about_user)):
        cost = utf8_size(templates.memory_line(item, _max_bytes(tokens))) + (separator if chosen else 0)
        is_known = item.id in chosen or item.id in present or item.message_id in present
        if is_known or cost > (min(room, fill) if is_fill else room):
            continue
        chosen[item.id] = item
        room -= cost
        fill -= cost if is_fill else 0
    return list(chosen.values())


def format_note(items: Sequence[Item], tokens: int) -> str:
    """What the model reads of them, newest first: of facts that contradict each other, the first one is the newest."""
    newest_first = sorted(items, key=lambda item: item.updated, reverse=True)
    return (
        templates.recall_note([templates.memory_line(item, _max_bytes(tokens)) for item in newest_first])
        if items
        else ""
    )


def format_sentence(items: Sequence[Item]) -> str:
    """What the user reads of them. A summary that a model wrote is counted as such, and never as a fact."""
    if not items:
        return ""
    kinds = Counter("summary" if item.is_summary else item.kind for item in items)
    *first, last = [f"{count} {kind if count == 1 else _PLURALS[kind]}" for kind, count in sorted(kinds.items())]
    text = "; ".join(item.text for item in items)
    shown = text if len(text) <= SENTENCE_LENGTH else text[: SENTENCE_LENGTH - 1].rstrip() + "…"
    return f"Recalled {', '.join(first)}{' and ' if first else ''}{last}: {shown}"


def _max_bytes(tokens: int) -> int:
    """Bytes that one item may take of the budget."""
    return int(tokens * BYTES_PER_TOKEN * ITEM_SHARE)
