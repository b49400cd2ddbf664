"""The words of a question that name its subject."""

import re

_WORD = re.compile(r"\w+")
_QUESTION_WORDS = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get",
    "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our", "own", "should",
    "so", "that", "the", "their", "them", "then", "there", "these", "this", "to", "was", "we", "what", "when", "where",
    "which", "who", "why", "will", "with", "work", "you", "your",
})  # fmt: skip
"""Documents hardly use them, so that they would outweigh the words of the subject."""


def content_words(query: str) -> list[str]:
    """The words of a query without `_QUESTION_WORDS`; all of them when there are no others."""
    words = _WORD.findall(query.lower())
    return [word for word in words if word not in _QUESTION_WORDS] or words
