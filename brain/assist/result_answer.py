"""An answer for people from the results of specialists alone, without a language model."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_PASSAGE = re.compile(r"^\[\d+\] (?P<title>.+)\n\n(?P<text>(?s:.*?))(?=\n\n\[\d+\] |\Z)", re.MULTILINE)


_EMPTY = re.compile(
    r"\bno (?:\w+ )?(?:events?|results?|matches|tasks?|facts?|memories|articles?|documents?|entries)\b"
    r"|\bnothing (?:more )?(?:in|found|matches)\b",
    re.IGNORECASE,
)
_MAX_BEGINNING = 300


class ResultText(NamedTuple):
    """The result of a specialist, or why it failed."""

    name: str
    text: str
    failed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the result seems to say that nothing was found."""
        return _EMPTY.search(self.text[:_MAX_BEGINNING]) is not None


def compose_answer(found: Iterable[ResultText]) -> str:
    """Return an answer that quotes the results, and says what failed."""
    sentences = []
    for one in found:
        if one.failed:
            name = "A call" if one.name == "?" else one.name
            cause = one.text.partition("; ")[0]  # the rest is advice for the model
            sentences.append(f"{name} failed: {cause.rstrip('.')}.")
        else:
            sentences.append(f"{_heading(one.name)}{_quote_passages(one.text.rstrip())}")
    return "\n\n".join(sentences) or "The specialists returned nothing."


def repeats_result(answer: str, name: str) -> bool:
    """Return whether an answer, or its beginning, quotes the result of this specialist."""
    return answer.lstrip("\n").startswith(_heading(name))


def _heading(name: str) -> str:
    return f"From {name}:\n\n"


def _quote_passages(text: str) -> str:
    """Return numbered passages as quotations under their titles; other text unchanged."""
    head, _, rest = text.partition("\n\n")
    if "\n" in head or not _PASSAGE.match(rest):
        return text
    passages = [
        f"**{passage['title']}**\n\n> " + "\n> ".join(passage["text"].splitlines()).replace("> \n", ">\n")
        for passage in _PASSAGE.finditer(rest)
    ]
    return "\n\n".join([head, *passages])
