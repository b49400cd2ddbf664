"""Result and error blocks. Their text is neutralized and cut to size."""

import re
from collections.abc import Callable, Iterable

import regex

from brain.assist.result_answer import ResultText, compose_answer
from brain.markers.neutralize import BLOCK_BYTES, neutralize
from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.messages import Call
from brain.text import BYTES_PER_TOKEN, one_line, shorten, utf8_size

MAX_SHOWN_BYTES = 2_000
"""Size of a result that is shown as the answer."""
REASON_LENGTH = 400
REMEDY_LENGTH = 300
"""Longest reason, and longest instruction to get the rest of a result, in characters."""
_NOTE_GROWTH = 8
"""Largest difference in length between two notes, in characters: their numbers differ."""

_ENDS = re.compile(
    r"""[.!?…:]["'”’)\]*_]*\s | [。！？][」』”’）]*           # a sentence
      | (?<=\|)\n | \n(?=\s*(?:\n|[|#>]|[-*+•]\s|\d+[.)]\s))  # a row, a paragraph, an item
    """,
    re.VERBOSE,
)
_BREAKS = ((_ENDS, 0.75), (re.compile(r"\n"), 0.5), (re.compile(r"\s"), 0.5))
"""Places where a text may be cut, best first, each with the share of the text before which it is not used."""
_TRAILING_HEADS = re.compile(r"(?:\n+#{1,6} [^\n]*|\n+\|[^\n]*\n\|[ :|-]+)+\Z")
_GRAPHEME = regex.compile(r"\X")


def max_block_bytes(context_tokens: int | None) -> int:
    """Return the size limit of a block: `BLOCK_BYTES`, or a fifth of a smaller model's context."""
    return BLOCK_BYTES if context_tokens is None else min(BLOCK_BYTES, max(512, context_tokens * BYTES_PER_TOKEN // 5))


def result_text(
    text: str,
    max_bytes: int = BLOCK_BYTES,
    more: Callable[[int], str] | None = None,
    tokens: ControlTokens = ALL_TOKENS,
) -> str:
    """Return a specialist's text for its block and its event: neutralized, and cut to `max_bytes` of UTF-8.

    Args:
        more: Called with the number of characters shown. Returns the instruction to get the rest.
    """
    full_length, text = len(text), text.lstrip("\r\n")
    skipped, text = full_length - len(text), text.rstrip("\r\n")
    head = neutralize(text[: 2 * max_bytes], tokens)
    if len(text) <= 2 * max_bytes and len(head.encode()) <= max_bytes:
        return head if head.strip() else "(nothing found)"

    def note(shown: int) -> str:
        remedy = neutralize(more(shown), tokens)[:REMEDY_LENGTH] if more else ""
        remedy = f"To see more, {remedy}" if remedy else "To see more, request a smaller part"
        return f"\n[Cut: this is the beginning of {len(text):,} characters. {remedy}.]"

    shown = cut_text(head, max_bytes - len(note(skipped + len(head)).encode()) - _NOTE_GROWTH)
    return shown + note(skipped + len(shown))


def cut_text(text: str, max_bytes: int) -> str:
    """Return a text, or its start up to the end of a row, a sentence, a line or a word.

    The start never ends with a heading or the head of a table.
    """
    if utf8_size(text) <= max_bytes:
        return text
    text = text.encode()[: max(max_bytes, 0)].decode(errors="ignore")
    row = text.rfind("\n") + 1
    is_in_row = text.startswith("|", row)
    for pattern, share in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, int(len(text) * share))]
        ends = [end for end in ends if end <= row] if is_in_row else ends
        if ends:
            return _TRAILING_HEADS.sub("", text[: ends[-1]].rstrip()).rstrip()
    graphemes = [match.end() for match in _GRAPHEME.finditer(text, max(0, len(text) - 64))]
    return text[: graphemes[-2]] if len(graphemes) > 1 else text


def reason_text(reason: str, tokens: ControlTokens = ALL_TOKENS) -> str:
    """Return a reason or advice for its block and its event: one neutralized line."""
    line = neutralize(one_line(reason[: 4 * REASON_LENGTH]), tokens) or "no reason was given"
    return shorten(line, REASON_LENGTH)


def result_block(name: str, text: str) -> str:
    """Return the block of a successful call. `text` comes from `result_text`."""
    return f"[SPECIALIST_RESULT: {name}]\n{text}\n[/SPECIALIST_RESULT]"


def error_block(name: str, reason: str, advice: str = "") -> str:
    """Return the block of a failed call: `reason; advice`. Both come from `reason_text`.

    The first `; ` separates them.
    """
    reason = reason.replace("; ", ", ")
    return f"[SPECIALIST_ERROR: {name} failed - {f'{reason}; {advice}' if advice else reason}]"


def block_content(name: str, block: str, failed: bool) -> str:
    """Return the text of a result block, or the reason of an error block; else `block` itself."""
    begin, end = (error_block(name, "\0") if failed else result_block(name, "\0")).split("\0")
    block = block.strip("\n")
    is_block = block.startswith(begin) and block.endswith(end) and len(block) >= len(begin) + len(end)
    return block[len(begin) : len(block) - len(end)] if is_block else block


def read_result(call: Call) -> ResultText:
    """Return the result of a call, or why it failed."""
    failed = call.code is not None
    return ResultText(call.name, block_content(call.name, call.block, failed), failed)


def write_answer(results: Iterable[ResultText]) -> str:
    """Return an answer that quotes the beginning of each result, and says what failed."""
    return compose_answer(
        one if one.failed else one._replace(text=result_text(one.text, MAX_SHOWN_BYTES)) for one in results
    )
