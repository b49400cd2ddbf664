"""Selects the facts and memories that are relevant to a question. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from brain.memory.terms import FIRST_PERSON, WordMatcher, content_words, significant_words, words
from brain.messages import MEMORY_LENGTH, Item
from brain.prompts import templates
from brain.text import BYTES_PER_TOKEN, shorten, utf8_size

MAX_WORDS = 40
"""Maximum number of search words of a question; the longest are used."""
MAX_LETTERS = 12_000
"""Total characters of candidates to compare, best first; more than are ever recalled."""
LONG_QUESTION = 12
"""If a question has more significant words than this, three of them must match instead of two."""
OVERLAP, STRICT_OVERLAP = 6, 4
"""An item matches if `OVERLAP * common² >= words of the question * words of the item`; strictly with embeddings."""
WORDS_WEIGHT = 0.5
"""Weight of the best keyword match; the best semantic match has about 1."""
MAX_FILL = 5
FILL_LENGTH = 120
"""Limits of the facts about the user that come with any question, such as allergies: their number and characters."""
ITEM_SHARE = 0.5
"""Share of the budget for one item; a longer item is cut."""
SENTENCE_LENGTH = 240
"""Maximum length of the notice for the user."""
_PLURALS = {"fact": "facts", "memory": "memories", "summary": "summaries"}


@dataclass(frozen=True, slots=True)
class Found:
    """Search results for a question, best first, with their scores: only relative ones by words.

    `least` and `typical` are the lowest and the typical relevance of related items.
    """

    by_words: Sequence[tuple[Item, float]] = ()
    by_meaning: Sequence[tuple[Item, float]] = ()
    least: float = 0.0
    typical: float = 1.0
    items: Mapping[str, Item] = field(init=False)

    def __post_init__(self) -> None:
        items = {item.id: item for item, _ in (*self.by_words, *self.by_meaning)}
        object.__setattr__(self, "items", items)


def rank(found: Found, question: "QuestionWords | None" = None) -> list[Item]:
    """Return the relevant items, best first. Semantic matches weigh more than keyword matches.

    A message, unlike an explicit search, has a `question`, and needs more matching words.
    """
    most = max((score for _, score in found.by_words), default=0.0) or 1.0
    by_words = found.by_words
    if question is not None:
        by_words = list(_matching(by_words, question, is_strict=bool(found.by_meaning)))
    shares = {item.id: score / most for item, score in by_words}
    width = max(found.typical - found.least, 0.1)
    by_meaning = found.by_meaning if question is None or question.words else ()
    near = {item.id: (score - found.least) / width for item, score in by_meaning if score >= found.least}

    def score(item_id: str) -> float:
        return near.get(item_id, 0.0) + WORDS_WEIGHT * shares.get(item_id, 0.0) ** 2

    return [found.items[item_id] for item_id in sorted({**near, **shares}, key=score, reverse=True)]


def _matching(
    by_words: Sequence[tuple[Item, float]], question: "QuestionWords", *, is_strict: bool
) -> Iterator[tuple[Item, float]]:
    room = MAX_LETTERS
    for item, score in by_words:
        room -= min(len(item.text), MEMORY_LENGTH)
        if room < 0:
            return
        if question.matches(item, is_strict=is_strict):
            yield item, score


class QuestionWords:
    """The significant words of a question, and whether the user speaks of themselves."""

    def __init__(self, question: str) -> None:
        found = significant_words(question)
        self.is_first_person = not FIRST_PERSON.isdisjoint(words(question))
        if not found and self.is_first_person:
            found = content_words(question)
        longest = set(sorted(found, key=len, reverse=True)[:MAX_WORDS])
        self._words = [word for word in found if word in longest]
        self._matcher = WordMatcher(self._words)

    @property
    def words(self) -> str:
        """The search words, separated by spaces."""
        return " ".join(self._words)

    def matches(self, item: Item, *, is_strict: bool) -> bool:
        """Return whether an item shares enough words: several, or a large part of all words.

        Args:
            is_strict: whether embeddings find the items that share one word and are relevant; else a question of one
                word matches any item with it.
        """
        found, asked = content_words(item.text[:MEMORY_LENGTH]), len(self._words)
        common = self._matcher.match_any(found).bit_count()
        if common >= (2 if asked <= LONG_QUESTION else 3):
            return True
        is_large_part = (STRICT_OVERLAP if is_strict else OVERLAP) * common**2 >= asked * len(found)
        return common > 0 and (is_large_part or (asked == 1 and not is_strict))


def choose(
    relevant: Sequence[Item], about_user: Sequence[Item], tokens: int, present: Collection[str]
) -> tuple[list[Item], list[Item]]:
    """Choose the items that fit into the budget.

    Returns:
        The relevant items, and a few short facts about the user.
    """
    room = tokens * BYTES_PER_TOKEN - utf8_size(templates.recall_note([]))
    separator = utf8_size(templates.recall_note(["", ""])) - utf8_size(templates.recall_note([]))
    chosen: dict[str, Item] = {}

    def choose_from(items: Sequence[Item]) -> list[Item]:
        nonlocal room
        before = len(chosen)
        for item in items:
            cost = utf8_size(templates.memory_line(item, _max_bytes(tokens))) + (separator if chosen else 0)
            is_known = item.id in chosen or item.id in present or item.message_id in present
            if not is_known and cost <= room:
                chosen[item.id] = item
                room -= cost
        return list(chosen.values())[before:]

    short = [item for item in about_user if len(item.text) <= FILL_LENGTH]
    return choose_from(relevant), choose_from(short[:MAX_FILL])


def format_note(items: Sequence[Item], tokens: int) -> str:
    """Return the note for the model, newest item first, so that the newest of contradicting facts leads."""
    newest_first = sorted(items, key=lambda item: item.updated, reverse=True)
    return (
        templates.recall_note([templates.memory_line(item, _max_bytes(tokens)) for item in newest_first])
        if items
        else ""
    )


def format_sentence(items: Sequence[Item]) -> str:
    """Return the notice for the user. A summary by a model is never counted as a fact."""
    if not items:
        return ""
    kinds = Counter("summary" if item.is_summary else item.kind for item in items)
    *first, last = [f"{count} {kind if count == 1 else _PLURALS[kind]}" for kind, count in sorted(kinds.items())]
    text = "; ".join(item.text for item in items)
    return f"Recalled {', '.join(first)}{' and ' if first else ''}{last}: {shorten(text, SENTENCE_LENGTH)}"


def _max_bytes(tokens: int) -> int:
    """Return the byte limit for one item."""
    return int(tokens * BYTES_PER_TOKEN * ITEM_SHARE)
