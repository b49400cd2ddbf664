"""Splits the text of a model at the tags of a strategy, such as `<deep_thinking>`. No I/O.

The split of the text into chunks does not matter. A tag in code or in quotation marks does not count, because a model
may write about its tags. Inside a tag, only closing tags and the tags that it may contain count.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

Shown = Literal["answer", "thinking"]
"""How the reader sees a text."""
MAX_TAG = 64
"""Longest tag, in characters."""
_QUOTES = "\"'“”‘’«»`"
_SPECIAL = re.compile(r"<|`{1,16}|\n")


class Part(NamedTuple):
    """A piece of text. `tag` is the innermost open tag; empty outside of tags."""

    tag: str
    text: str


class TagFilter:
    """Reads the text of one round. `feed` and `close` return the text that is settled, without the tags.

    Args:
        tags: The tags inside each tag; those under the empty name may stand on their own.
        last: The tag whose end is the end of the text. Later text is dropped.

    Attributes:
        is_done: Whether the last tag has ended.
    """

    def __init__(self, tags: Mapping[str, Sequence[str]], last: str = "") -> None:
        self.is_done = False
        self._tags = tags
        self._last_tag = last
        self._open: list[str] = []
        self._pending = ""  # the beginning of a tag, or backticks that may become more
        self._code = ""  # the backticks that opened the current code
        self._is_line_start = True
        self._last = ""  # the character before the next one

    @property
    def tag(self) -> str:
        """The innermost open tag."""
        return self._open[-1] if self._open else ""

    def feed(self, text: str) -> list[Part]:
        """Take the next characters."""
        return _join(self._read(self._pending + text, is_end=False))

    def close(self) -> list[Part]:
        """End the text of a pass. Tags stay open for the next one."""
        return _join(self._read(self._pending, is_end=True))

    @property
    def is_holding(self) -> bool:
        """Whether characters are held back."""
        return bool(self._pending)

    def _read(self, text: str, *, is_end: bool) -> Iterator[Part]:
        self._pending = ""
        at = 0
        while at < len(text) and not self.is_done:
            found = _SPECIAL.search(text, at)
            start = len(text) if found is None else found.start()
            if start > at:
                yield self._text(text[at:start])
            if found is None:
                return
            end = found.end() if found[0] != "<" else text.find(">", start, start + MAX_TAG) + 1
            if not is_end and (end == len(text) if found[0][0] == "`" else end == 0 and len(text) < start + MAX_TAG):
                self._pending = text[start:]
                return
            end = end or start + 1
            if not is_end and end == len(text) and self._is_quote(self._last):
                self._pending = text[start:]  # the next character may close the quotation
                return
            piece = text[start:end]
            if piece[0] == "`":
                self._read_backticks(piece)
                yield self._text(piece)
            elif piece[0] == "\n":
                self._code = self._code if len(self._code) >= 3 else ""  # inline code ends with its line
                yield self._text(piece)
            elif not self._read_tag(piece, text[end : end + 1]):
                end = start + 1
                yield self._text("<")
            at = end

    def _read_backticks(self, piece: str) -> None:
        is_fence = len(piece) >= 3 and self._is_line_start
        if not self._code:
            self._code = piece if is_fence or len(piece) < 3 else ""
        elif len(self._code) < 3:
            self._code = "" if len(piece) == len(self._code) else self._code
        elif is_fence and len(piece) >= len(self._code):
            self._code = ""

    def _read_tag(self, piece: str, following: str) -> bool:
        """Open or close a tag, if this is one that counts here."""
        if self._code or (self._is_quote(self._last) and self._is_quote(following)):
            return False
        name = piece[1:-1].strip()
        if name.startswith("/"):
            name = name[1:].strip()
            if name in self._open:
                del self._open[self._open.index(name) :]
                self.is_done = name == self._last_tag
            elif self._open or name not in self._tags.get("", ()):
                return False
        elif name in self._tags.get(self.tag, ()):
            self._open.append(name)
        else:
            return False
        self._is_line_start = True
        self._last = ""
        return True

    @staticmethod
    def _is_quote(character: str) -> bool:
        return character != "" and character in _QUOTES

    def _text(self, text: str) -> Part:
        self._last = text[-1]
        line = text.rpartition("\n")[2]
        self._is_line_start = not line.strip() and ("\n" in text or self._is_line_start)
        return Part(self.tag, text)


class OutputFilter(Protocol):
    """Takes the text of a pass, and decides what to show of it.

    Attributes:
        is_done: Whether the rest of the text does not matter.
        is_holding: Whether characters are held back.
    """

    @property
    def is_done(self) -> bool: ...
    @property
    def is_holding(self) -> bool: ...

    def feed(self, text: str) -> Sequence[tuple[Shown, str]]:
        """Take the next characters. Return what to show."""

    def close(self) -> Sequence[tuple[Shown, str]]:
        """End the text of a pass. Return what to show."""


PARAGRAPH = "\n\n"
"""Separates the texts of two tags."""


class Output:
    """The text of one round of a strategy, by tag, and its visible part.

    Args:
        tags, last: See `TagFilter`.
        shown: How the reader sees the text of each tag. Text of other tags is not shown.
        ends: Whether the round ends with this text outside of all tags.
    """

    def __init__(
        self,
        tags: Mapping[str, Sequence[str]],
        shown: Mapping[str, Shown],
        last: str = "",
        ends: Callable[[str], bool] | None = None,
    ) -> None:
        self._filter = TagFilter(tags, last)
        self._ends = ends
        self._shown = shown
        self._texts: dict[str, list[str]] = {}
        self._newest: dict[Shown, str] = {}  # the tag of the newest text of each kind
        self._space: dict[Shown, str] = {}  # white space between that text and the next one

    @property
    def is_done(self) -> bool:
        """Whether the rest of the text does not matter."""
        return self._filter.is_done or (self._ends is not None and self._ends(self.text("")))

    @property
    def has_answer(self) -> bool:
        """Whether text of the answer is shown."""
        return "answer" in self._newest

    @property
    def is_holding(self) -> bool:
        """Whether characters are held back."""
        return self._filter.is_holding

    def text(self, tag: str) -> str:
        """Return the text inside a tag; with an empty name, the text outside of all tags."""
        return "".join(self._texts.get(tag, ())).strip()

    def feed(self, text: str) -> list[tuple[Shown, str]]:
        """Take the next characters. Return what to show."""
        return self._sort(self._filter.feed(text))

    def close(self) -> list[tuple[Shown, str]]:
        """End the text of a pass. Return what to show."""
        return self._sort(self._filter.close())

    def _sort(self, parts: Sequence[Part]) -> list[tuple[Shown, str]]:
        shown: list[tuple[Shown, str]] = []
        for tag, text in parts:
            self._texts.setdefault(tag, []).append(text)
            kind = self._shown.get(tag)
            if kind is None or (self._newest.get(kind) != tag and not text.strip()):
                continue
            if self._newest.get(kind) != tag:
                text = text.lstrip()
                self._space[kind] = PARAGRAPH if kind in self._newest else ""
                self._newest[kind] = tag
            text = self._space[kind] + text
            self._space[kind] = text[len(text.rstrip()) :]
            if text := text.rstrip():
                shown.append((kind, text))
        return shown


def _join(parts: Iterator[Part]) -> list[Part]:
    """Join neighbours with the same tag."""
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].tag == part.tag:
            joined[-1] = Part(part.tag, joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
