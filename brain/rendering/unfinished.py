"""The end of a text that is still written, as it will be: marks that are not closed yet are no words."""

import re

from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

_LINK = re.compile(r"(?<![A-Za-z0-9_])!?\[([^\[\]`]+)\]\([^()\s`]*$")
"""One whose address is not whole: its words are shown, and lead nowhere yet."""
_STARS = re.compile(r"(?:^|(?<=\s))\*+$|(?<=\*\*)([^\s*][^*]*)\*$")
"""They open what comes, or are the first of two that close what is bold."""
_STAR = ord("*")


def last_words(state: StateCore) -> Token | None:
    """Those at the end of a text, if it goes on, nothing stands behind them, and they end in no code."""
    if not state.env.get("open") or state.src.rstrip(" \t").endswith("\n\n"):
        return None
    last = next((token for token in reversed(state.tokens) if token.nesting != -1), None)
    return last if last and last.type == "inline" and last.content.count("`") % 2 == 0 else None


def without_marks(text: str) -> str:
    """Words without what at their end is about to be something else."""
    return _LINK.sub(r"\1", _STARS.sub(r"\1", text))


def bold(state: StateInline) -> None:
    """The parser's rule for what is bold up to the end of a text that goes on."""
    marks = state.delimiters
    at = next((at for at in reversed(range(len(marks) - 1)) if _opens(*marks[at : at + 2])), -1)
    if not state.env.get("ends") or at < 0 or any(mark.end > at for mark in marks[:at]):
        return
    for opener in (marks[at + 1], marks[at]):
        opener.end = len(marks)
        state.push("text", "", 0)
        marks.append(Delimiter(_STAR, 2, len(state.tokens) - 1, -1, open=False, close=True))


def _opens(first: Delimiter, second: Delimiter) -> bool:
    """Whether these two stars open what nothing closes, and could close nothing themselves, as those of 2**3 could."""
    opening = all(one.marker == _STAR and one.length == 2 and one.end < 0 and one.open for one in (first, second))
    return opening and not first.close and second.token == first.token + 1
