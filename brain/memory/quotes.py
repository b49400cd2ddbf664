"""Finds the user's sentences that support a text from a model; only these sentences are stored. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import regex

from brain.markers.neutralize import neutralize
from brain.memory.terms import WordMatcher, content_words, words
from brain.text import one_line

BETWEEN = " / "
"""Separates the quotes in a memory."""
SHARED, OF = 2, 3
"""A sentence must share two thirds of the content words."""
MESSAGES_READ = 100
MESSAGE_LENGTH, PASTED_LENGTH = 8_000, 32_000
"""Limits per message in characters, without and with pasted text."""
TOTAL_LENGTH, SENTENCES_READ = 20_000, 500
"""Limits for all messages, newest first: characters and sentences."""

_PASTED = regex.compile(
    r"(?P<fence>`{3,}|^[^\S\n]*~{3,})(?:[^\n]*?(?P=fence)|.*?(?:^[^\S\n]*(?P=fence)[`~]*[^\S\n]*$|\Z))"
    r"|^[^\S\n]*>[^\n]*$",
    regex.DOTALL | regex.MULTILINE,
)
"""Code fences, closed or not, and lines that begin with `>`."""
_QUOTATION = r"(?<!\w)\"[^\"]+\"|“[^“”]+”|„[^„“”]+[“”]|«[^«»]+»|「[^「」]+」|『[^『』]+』"
_SEVERAL = regex.compile(r"\n|(?:\.\s+|(?!\.)\p{Sentence_Terminal}\s*)[\p{L}\p{N}]")
_SENTENCE = regex.compile(
    rf"(?:{_QUOTATION}|[:：][^\S\n]*\n(?!\s*\n)|\.(?=[\p{{L}}\p{{N}}])|\.{{2,}}|[^\n\p{{Sentence_Terminal}}])++"
    r"\p{Sentence_Terminal}*+[\"'”’»)」』]*+"
)
"""A line, or a part of it up to a mark such as `.` or `。`, but not in a word (`evil.example`) or in quotation marks. A
line that ends in a colon includes the next line, so that it stays clear who said it."""
_LIST_MARK = regex.compile(r"^(?:[-*•+]|\d{1,3}[.)])\s+")
_QUESTION = regex.compile(r"[?？؟]\P{L}*$")


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message that the user wrote. It has no ID if it is not stored."""

    text: str
    id: str | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of the user as one line, and its message."""

    text: str
    message: UserMessage


def find_quotes(messages: Sequence[UserMessage], text: str, most: int) -> list[Quote]:
    """Find the user's sentences that share most words with a text.

    Each sentence of the text needs a sentence of the user with two thirds of its content words, in any inflection. The
    newest match wins; a question wins only if no statement shares as many words. If a sentence has no match, one
    sentence of the user with two thirds of the words of the whole text is enough.

    Args:
        messages: messages of the user, oldest first; pasted text in them does not count.

    Returns:
        The quotes as the user wrote them, oldest first; none if the user did not say the text.
    """
    parts = [found for sentence in _SENTENCE.findall(text) if (found := content_words(sentence))]
    matcher = WordMatcher([word for part in parts for word in part])
    quotes = list(_sentences(messages, most))[-SENTENCES_READ:]
    scored = [
        (matcher.match_any(words(quote.text)), _QUESTION.search(quote.text) is None, place)
        for place, quote in enumerate(quotes)
    ]

    def find_best(part: int) -> int | None:
        shared, _, place = max(scored, key=lambda one: ((one[0] & part).bit_count(), *one[1:]), default=(0, True, 0))
        return place if OF * (shared & part).bit_count() >= SHARED * part.bit_count() else None

    places = {find_best(matcher.bits(part)) for part in parts}
    if None in places:
        places = {find_best(matcher.bits())}
    return [quotes[place] for place in sorted(place for place in places if place is not None)]


def _sentences(messages: Sequence[UserMessage], most: int) -> Iterator[Quote]:
    """Yield the sentences of the newest messages, oldest first."""
    read, room = list[tuple[UserMessage, str]](), TOTAL_LENGTH
    for message in reversed(messages[-MESSAGES_READ:]):
        own = _without_pasted(message.text[:PASTED_LENGTH])[: MESSAGE_LENGTH + 1]
        room -= len(own)
        if room < 0:
            break
        read.append((message, own))
    for message, own in reversed(read):
        for found in _SENTENCE.finditer(own):
            line = neutralize(one_line(_LIST_MARK.sub("", found[0].strip())))
            if found.end() <= MESSAGE_LENGTH and 0 < len(line) <= most:
                yield Quote(line, message)


def _without_pasted(message: str) -> str:
    """Return a message without pasted text: code fences, `>` lines and quotations of several sentences."""
    own = _PASTED.sub("\n\n", message)
    return regex.sub(_QUOTATION, lambda found: '"…"' if _SEVERAL.search(found[0], 1, -1) else found[0], own)
