"""The blocks that stand in a transcript, and how text from outside is made harmless and cut to size."""

import re
from collections.abc import Callable

import regex

from brain.markers.neutralize import BLOCK_BYTES, neutralize
from brain.markers.template_tokens import EVERY, ControlTokens
from brain.text import BYTES_A_TOKEN, strip_invisible

REASON_LENGTH = 400
_MORE_LENGTH = 300
_NOTE_GROWS = 8
"""Characters by which one note may be longer than another, by the numbers in it."""


_WHOLE = re.compile(
    r"""[.!?…:]["'”’)\]*_]*\s | [。！？][」』”’）]*           # a sentence
      | (?<=\|)\n | \n(?=\s*(?:\n|[|#>]|[-*+•]\s|\d+[.)]\s))  # a row, a paragraph, an item
    """,
    re.VERBOSE,
)
_BREAKS = ((_WHOLE, 0.75), (re.compile(r"\n"), 0.5), (re.compile(r"\s"), 0.5))
"""Where a text may end, best first, and from which part of it on."""
_LONELY = re.compile(r"(?:\n+#{1,6} [^\n]*|\n+\|[^\n]*\n\|[ :|-]+)+\Z")
_GRAPHEME = regex.compile(r"\X")


def max_block_bytes(context_tokens: int | None) -> int:
    """How large a block may be: a fifth of the model's context, if that is less than the usual."""
    return BLOCK_BYTES if context_tokens is None else min(BLOCK_BYTES, max(512, context_tokens * BYTES_A_TOKEN // 5))


def result_text(
    text: str, most: int = BLOCK_BYTES, more: Callable[[int], str] | None = None, tokens: ControlTokens = EVERY
) -> str:
    """A specialist's text as it stands in its block and in its event: harmless and at most `most` UTF-8 bytes.

    Args:
        more: given how many characters of `text` are shown, says what to ask for to see the rest.
    """
    whole, text = len(text), text.lstrip("\r\n")
    skipped, text = whole - len(text), text.rstrip("\r\n")
    head = neutralize(text[: 2 * most], tokens)
    if len(text) <= 2 * most and len(head.encode()) <= most:
        return head if head.strip() else "(nothing found)"
    length = f"{len(text):,}"
    shown = _cut(head, most - len(_note(length, more, skipped + len(head), tokens).encode()) - _NOTE_GROWS)
    return shown + _note(length, more, skipped + len(shown), tokens)


def _note(length: str, more: Callable[[int], str] | None, shown: int, tokens: ControlTokens) -> str:
    said = neutralize(more(shown), tokens)[:_MORE_LENGTH] if more else ""
    remedy = f"To see more, {said}" if said else "Ask for a smaller part to see more"
    return f"\n[Cut: this is the beginning of {length} characters. {remedy}.]"


def _cut(text: str, most: int) -> str:
    """The beginning of `text`, at most `most` bytes, up to the end of a row, a sentence, a line, or a word.

    A heading, or the head of a table, does not stand alone at its end.
    """
    text = text.encode()[: max(most, 0)].decode(errors="ignore")
    row = text.rfind("\n") + 1
    inside_row = text.startswith("|", row)
    for pattern, least in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, int(len(text) * least))]
        ends = [end for end in ends if end <= row] if inside_row else ends
        if ends:
            return _LONELY.sub("", text[: ends[-1]].rstrip()).rstrip()
    whole = [match.end() for match in _GRAPHEME.finditer(text, max(0, len(text) - 64))]
    return text[: whole[-2]] if len(whole) > 1 else text


def reason_text(reason: str, tokens: ControlTokens = EVERY) -> str:
    """A reason as it stands in its block and in its event: one line, short, harmless."""
    line = " ".join(neutralize(strip_invisible(reason[: 4 * REASON_LENGTH]), tokens).split()) or "no reason was given"
    return line if len(line) <= REASON_LENGTH else line[: REASON_LENGTH - 1] + "…"


def result_block(name: str, text: str) -> str:
    """The block of a call that succeeded; `text` comes from `result_text`."""
    return f"[SPECIALIST_RESULT: {name}]\n{text}\n[/SPECIALIST_RESULT]"


def error_block(name: str, reason: str) -> str:
    """The block of a call that failed; `reason` comes from `reason_text`."""
    return f"[SPECIALIST_ERROR: {name} failed - {reason}]"


def block_content(name: str, block: str, failed: bool) -> str:
    """The text, or the reason, that stands in a block; all of it where it is none."""
    begin, end = (error_block(name, "\0") if failed else result_block(name, "\0")).split("\0")
    block = block.strip("\n")
    is_one = block.startswith(begin) and block.endswith(end) and len(block) >= len(begin) + len(end)
    return block[len(begin) : len(block) - len(end)] if is_one else block
