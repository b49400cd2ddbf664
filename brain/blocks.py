"""Core: the blocks that stand in a transcript, and how text from outside is made harmless and cut to size."""

import re

import regex

from brain.unicode import well_formed

BLOCK_BYTES = 8192
REASON_LENGTH = 400

# The opener's first character becomes its full-width form: people still read it, no scanner takes it for a delimiter.
_DELIMITER = re.compile(
    r"""\[(?=\s*(?:/\s*)?SPECIALIST_(?:RESULT|ERROR)\b)
      | (?<=SPECIALIST_REQUEST)\[
      | <(?=\s*(?:/\s*)?(?:function_call|tool_call)\s*>)
      | @(?=[A-Za-z][A-Za-z0-9_-]*_specialist\()
      | (?:^|(?<=[\r\v\f\x85\u2028\u2029]))[ \t]*
        \((?=\s*(?:(?:Content|End)\s+of\s+attachment\b|Attached,\s+by\s+image_id\b|Now:))""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_FULL_WIDTH = {"[": "［", "<": "＜", "@": "＠", "(": "（"}
_BREAKS = (re.compile(r"\n"), re.compile(r"[.!?][\"'”’)\]]*\s|[。！？][」』”’）]*"), re.compile(r"\s"))
_GRAPHEME = regex.compile(r"\X")


def harmless(text: str) -> str:
    """The same text, with nothing in it that could be taken for a marker, a note, or the delimiter of a block."""
    return _DELIMITER.sub(lambda match: match[0][:-1] + _FULL_WIDTH[match[0][-1]], well_formed(text))


def result_text(text: str, most: int = BLOCK_BYTES) -> str:
    """A specialist's text as it stands in its block and in its event: harmless and at most `most` UTF-8 bytes."""
    text = text.strip("\r\n")
    head = harmless(text[: 2 * most])
    if len(text) <= 2 * most and len(head.encode()) <= most:
        return head if head.strip() else "(nothing found)"
    note = f"\n[Cut: this is the beginning of {len(text):,} characters. Ask for a smaller part to see more.]"
    return _cut(head, most - len(note)) + note


def _cut(text: str, most: int) -> str:
    """The beginning of `text`, at most `most` bytes, up to the end of a line or row, a sentence, or a word."""
    text = text.encode()[:most].decode(errors="ignore")
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, len(text) // 2)]
        if ends:
            return text[: ends[-1]].rstrip()
    whole = [match.end() for match in _GRAPHEME.finditer(text, max(0, len(text) - 64))]
    return text[: whole[-2]] if len(whole) > 1 else text


def reason_text(reason: str) -> str:
    """A reason as it stands in its block and in its event: one line, short, harmless."""
    line = " ".join(harmless(reason[: 4 * REASON_LENGTH]).split()) or "no reason was given"
    return line if len(line) <= REASON_LENGTH else line[: REASON_LENGTH - 1] + "…"


def result_block(name: str, text: str) -> str:
    """The block of a call that succeeded; `text` comes from `result_text`."""
    return f"[SPECIALIST_RESULT: {name}]\n{text}\n[/SPECIALIST_RESULT]"


def error_block(name: str, reason: str) -> str:
    """The block of a call that failed; `reason` comes from `reason_text`."""
    return f"[SPECIALIST_ERROR: {name} failed - {reason}]"
