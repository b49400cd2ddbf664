"""The words of a question that tell what is asked about."""

import re

_WORD = re.compile(r"\w+")
_ASKING = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get",
    "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our", "own", "should",
    "so", "that", "the", "their", "them", "then", "there", "these", "this", "to", "was", "we", "what", "when", "where",
    "which", "who", "why", "will", "with", "work", "you", "your",
})  # fmt: skip
"""Words of questions. Documents hardly use them, so that they would outweigh what is asked about."""


def telling(query: str) -> list[str]:
    """The words of a query without those of the question; all of them when there are no others."""
    words = _WORD.findall(query.lower())
    return [word for word in words if word not in _ASKING] or words
