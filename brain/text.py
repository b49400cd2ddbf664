"""Text helpers: surrogates, invisible characters, lines, names, suggestions, sizes, and a buffer for growing text."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

import regex

NAME_LENGTH = 64
SPECIALIST_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{NAME_LENGTH - 1}}}")
"""The name of a specialist or of a client tool, as models call it."""
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""An ID of a conversation, request, turn or message that a client may choose."""
BLOCK_BYTES = 448
"""Size of a block of growing text. Python allocates blocks of this size from its pools."""

find_surrogate = re.compile("[\ud800-\udfff]").search
"""Finds a high or low surrogate, which is half of a character."""

_JOINING = "".join(
    rf"\p{{{script}}}"
    for script in (
        *("Arabic", "Syriac", "Mandaic", "Nko", "Mongolian", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya"),
        *("Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Khmer", "Myanmar", "Tibetan", "Thai", "Lao"),
    )
)
_PICTURE = r"\p{Extended_Pictographic}"
_SHAPING = (
    rf"((?<=[{_JOINING}])[\u200c\u200d]"
    rf"|(?<=[{_PICTURE}\ufe0f\U0001f3fb-\U0001f3ff])\u200d(?={_PICTURE})"
    rf"|(?<={_PICTURE})\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3))"
)
"""Characters that join or separate the characters before them, or turn them into an emoji."""
_UNSEEN = r"\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}"
_HIDDEN = regex.compile(rf"{_SHAPING}|[{_UNSEEN}]")
_PILED = r"[\p{M}\p{GCB=V}\p{GCB=T}]"
"""Characters without width."""
_BLANK = regex.compile(rf"{_SHAPING}|(?! )[{_UNSEEN}\p{{Cs}}\p{{Z}}\u2800]|(?<={_PILED}{{3}}){_PILED}")


def strip_invisible(text: str) -> str:
    """Return the text without invisible and reversing characters. Those that separate words become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda hidden: hidden[1] or (" " if hidden[0].isspace() else ""), text)


def one_line(text: str) -> str:
    """Return the text without invisible characters; any white space is one space."""
    return " ".join(strip_invisible(text).split())


def shorten(text: str, length: int) -> str:
    """Return the text up to this length; a longer one ends with `…`."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def first_words(text: str, length: int) -> str:
    """Return the first words of a text as one line up to this length; `…` stands for the rest."""
    line = one_line(text.lstrip()[: 4 * length])  # linear in the length, for texts of megabytes
    whole, space, _ = line[:length].rpartition(" ")
    return f"{whole}…" if space and len(line) > length else shorten(line, length)


def escape_invisible(text: str) -> str:
    """Return the text with escapes for characters that are invisible, reverse text or look like a space.

    From the fourth mark on one character, marks become escapes as well.
    """
    if text.isascii() and text.isprintable():
        return text
    return _BLANK.sub(lambda blank: blank[1] or f"\\u{{{ord(blank[0]):x}}}", text)


def join_surrogates(text: str) -> tuple[str, str]:
    """Return the text with pairs of surrogates joined and lone ones replaced by U+FFFD.

    A high surrogate at the end is returned separately, because its partner may come with the next text.
    """
    if text.isascii() or not find_surrogate(text):
        return text, ""
    half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    return text.removesuffix(half).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), half


def replace_surrogates(text: str) -> str:
    """Return a whole text with pairs of surrogates joined and lone ones replaced by U+FFFD."""
    whole, half = join_surrogates(text)
    return whole + "\ufffd" if half else whole


def find_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a wrong one, if any is."""
    names = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), names, 1)
    return names[near[0]] if near else None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` with the known name that is most similar to a wrong one, or nothing."""
    near = find_similar(name, known)
    return f" Did you mean '{near}'?" if near else ""


class TextBuffer:
    """A growing text that needs little more memory than its length.

    A list of pieces would need ten times as much, and one large buffer would fragment the heap.
    """

    __slots__ = ("_blocks", "_last")

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._last = bytearray()

    def add(self, piece: str) -> None:
        """Append a piece of whole characters."""
        self._last += piece.encode()
        if len(self._last) >= BLOCK_BYTES:
            self._blocks.append(bytes(self._last))
            self._last.clear()

    def end(self) -> str:
        """Return the last few characters."""
        return b"".join([*self._blocks[-1:], self._last])[-64:].decode(errors="ignore")

    def whole(self) -> str:
        """Return the text so far."""
        return b"".join([*self._blocks, self._last]).decode()


BYTES_PER_TOKEN = 4
"""For estimates, if the model server does not count tokens."""


def utf8_size(text: str) -> int:
    """Return the size of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_tokens(size_in_bytes: int) -> int:
    """Estimate the tokens of a text from its size in bytes."""
    return -(-size_in_bytes // BYTES_PER_TOKEN)
