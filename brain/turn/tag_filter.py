"""Splits the text of a model at the tags of a strategy, such as `<deep_thinking>`. No I/O.

The split of the text into chunks does not matter. A tag in code or in quotation marks does not count, because a model
may write about its tags. Models also forget to close tags. So an opening tag that does not belong into the open one
closes it at the start of a line; in the middle of a line, unless the open one is closed before it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol

Shown = Literal["answer", "thinking"]
"""How the reader sees a text."""
MAX_TAG = 64
"""Longest tag, in characters."""
MAX_DOUBT = 1_000
"""Characters after an opening tag in the middle of a line among which a closing tag decides about it."""
MAX_REST = 300
"""Characters after the last tag in which the model may still begin a call."""
_QUOTES = "\"'“”‘’«»`"


class TaggedText(NamedTuple):
    """A piece of text. `tag` is the innermost open tag, and `n` counts opening tags; empty and 0 outside of tags."""

    tag: str
    text: str
    n: int = 0


UNTAGGED = TaggedText("", "")


class TagFilter:
    """Reads the text of one round. `feed` and `close` return the text that is settled, without the tags.

    Args:
        tags: The tags inside each tag; those under the empty name may stand on their own.
        last: The tag whose end is the end of the text. Later text is dropped.
        signal: A word for Brain, which is no text.

    Attributes:
        is_done: Whether the rest does not matter: the last tag has ended, and no call followed soon.
    """

    def __init__(self, tags: Mapping[str, Sequence[str]], last: str = "", signal: str = "") -> None:
        self.is_done = False
        self._tags = tags
        self._last_tag = last
        self._signal = signal
        self._special = re.compile(rf"<|`{{1,16}}|\n|{signal}(?!\w)[.!]?" if signal else r"<|`{1,16}|\n")
        self._open: list[TaggedText] = []
        self._opened = 0
        self._rest: int | None = None  # characters to read after the last tag
        self._may_restart = False
        self._pending = ""  # the beginning of a tag or the signal, backticks that may become more, or a tag in doubt
        self._code = ""  # the backticks that opened the current code
        self._is_line_start = True
        self._last = ""  # the character before the next one

    @property
    def tag(self) -> str:
        """The innermost open tag."""
        return self._innermost.tag

    @property
    def _innermost(self) -> TaggedText:
        return self._open[-1] if self._open else UNTAGGED

    def feed(self, text: str) -> list[TaggedText]:
        """Take the next characters."""
        return _join(self._read(self._pending + text, is_end=False))

    def close(self) -> list[TaggedText]:
        """End the text of a pass. Tags stay open for the next one."""
        return _join(self._read(self._pending, is_end=True))

    def resume(self) -> None:
        """Begin the pass after a call. It continues the text, or begins again with a tag."""
        self.is_done, self._rest, self._may_restart = False, None, True

    @property
    def is_holding(self) -> bool:
        """Whether characters are held back."""
        return bool(self._pending)

    def _read(self, text: str, *, is_end: bool) -> Iterator[TaggedText]:
        self._pending = ""
        at = 0
        while at < len(text):
            if self._rest is not None:
                self._rest -= len(text) - at
                self.is_done = self._rest < 0
                return
            found = self._special.search(text, at)
            start = len(text) if found is None else found.start()
            if self._signal and not is_end:
                start = min(start, self._find_begun_signal(text, at))
            if start > at:
                yield self._text(text[at:start])
            if found is None or start < found.start():
                self._pending = text[start:]
                return
            end = found.end() if found[0] != "<" else text.find(">", start, start + MAX_TAG) + 1
            is_cut = end == 0 and len(text) < start + MAX_TAG if found[0] == "<" else end == len(text)
            if not is_end and is_cut and found[0] != "\n":
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
            elif piece[0] != "<":
                if _is_word(self._last) or self._is_quoted(text[end : end + 1]):
                    yield self._text(piece)
            else:
                is_tag = self._read_tag(piece, text[end:], is_end=is_end)
                if is_tag is None:
                    self._pending = text[start:]
                    return
                if not is_tag:
                    end = start + 1
                    yield self._text("<")
            at = end

    def _find_begun_signal(self, text: str, at: int) -> int:
        """Return where the signal may have begun. The next character may show that it is part of a word."""
        for start in range(max(at, len(text) - len(self._signal)), len(text)):
            before = text[start - 1] if start > at else self._last
            if self._signal.startswith(text[start:]) and not _is_word(before):
                return start
        return len(text)

    def _read_backticks(self, piece: str) -> None:
        is_fence = len(piece) >= 3 and self._is_line_start
        if not self._code:
            self._code = piece if is_fence or len(piece) < 3 else ""
        elif len(self._code) < 3:
            self._code = "" if len(piece) == len(self._code) else self._code
        elif is_fence and len(piece) >= len(self._code):
            self._code = ""

    def _read_tag(self, piece: str, rest: str, *, is_end: bool) -> bool | None:
        """Open or close a tag, if this is one that counts here. Return None if later text decides."""
        if self._is_quoted(rest[:1]):
            return False
        name = piece[1:-1].strip()
        if self._signal and name.strip("/ ") == self._signal:
            return True
        if name.startswith("/"):
            name = name[1:].strip()
            names = [one.tag for one in self._open]
            if name in names:
                del self._open[names.index(name) :]
                if name == self._last_tag:
                    self._rest = MAX_REST
            elif self.tag == self._last_tag != "" or not self._levels(name):
                return False
        else:
            level = self._find_level(name, rest, is_end=is_end)
            if level is None or level < 0:
                return None if level is None else False
            self._opened += 1
            self._open[level:] = [TaggedText(name, "", self._opened)]
        self._is_line_start, self._may_restart = True, False
        self._last = ""
        return True

    def _levels(self, name: str) -> list[int]:
        """Return the numbers of open tags, from 0, among which this one may stand."""
        return [n for n, one in enumerate((UNTAGGED, *self._open)) if name in self._tags.get(one.tag, ())]

    def _find_level(self, name: str, rest: str, *, is_end: bool) -> int | None:
        """Return how many tags stay open around an opening one; -1 if it is text, None if later text decides."""
        levels = self._levels(name)
        if self._may_restart and levels[:1] == [0]:
            return 0
        if not levels or (self.tag == self._last_tag != ""):
            return -1
        if levels[-1] == len(self._open) or self._is_line_start:
            return levels[-1]
        closing = re.search(
            rf"</\s*(?:(?P<own>{name})|{'|'.join(one.tag for one in self._open)})\s*>", rest[:MAX_DOUBT]
        )
        if closing is None and not is_end and len(rest) < MAX_DOUBT:
            return None
        return levels[-1] if (closing["own"] if closing is not None else is_end) else -1

    def _is_quoted(self, following: str) -> bool:
        """Whether what stands before this character is in code or in quotation marks."""
        return self._code != "" or (self._is_quote(self._last) and self._is_quote(following))

    @staticmethod
    def _is_quote(character: str) -> bool:
        return character != "" and character in _QUOTES

    def _text(self, text: str) -> TaggedText:
        self._last = text[-1]
        line = text.rpartition("\n")[2]
        self._is_line_start = not line.strip() and ("\n" in text or self._is_line_start)
        self._may_restart = self._may_restart and text.isspace()
        return self._innermost._replace(text=text)


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

    def restart(self) -> None:
        """Forget the text so far: it was reasoning."""


PARAGRAPH = "\n\n"
"""Separates the texts of two tags."""


class Output:
    """The text of one round of a strategy, by tag, and its visible part.

    Args:
        tags, last, signal: See `TagFilter`.
        shown: How the reader sees the text of each tag. Text of other tags is not shown.
        ends: Whether the round ends with this text outside of all tags.
        holds_thinking: Whether thoughts are shown only when the answer begins: without one, they may be all there is.
    """

    def __init__(
        self,
        tags: Mapping[str, Sequence[str]],
        shown: Mapping[str, Shown],
        last: str = "",
        ends: Callable[[str], bool] | None = None,
        signal: str = "",
        *,
        holds_thinking: bool = False,
    ) -> None:
        self._make_filter = partial(TagFilter, tags, last, signal)
        self._ends = ends
        self._shown = shown
        self._holds_thinking = holds_thinking
        self.restart()

    def restart(self) -> None:
        """Forget the text so far: it was reasoning."""
        self._filter = self._make_filter()
        self._texts: dict[str, dict[int, list[str]]] = {}
        self._newest: dict[Shown, tuple[str, int]] = {}  # the tag of the newest text of each kind
        self._space: dict[Shown, str] = {}  # white space between that text and the next one
        self._held: list[tuple[Shown, str]] | None = [] if self._holds_thinking else None

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
        texts = ("".join(one).strip() for one in self._texts.get(tag, {}).values())
        return PARAGRAPH.join(filter(None, texts))

    def resume(self) -> None:
        """Begin the pass after a call; see `TagFilter.resume`."""
        self._filter.resume()

    def feed(self, text: str) -> list[tuple[Shown, str]]:
        """Take the next characters. Return what to show."""
        return self._sort(self._filter.feed(text))

    def close(self) -> list[tuple[Shown, str]]:
        """End the text of a pass. Return what to show."""
        return self._sort(self._filter.close())

    def _sort(self, parts: Sequence[TaggedText]) -> list[tuple[Shown, str]]:
        shown: list[tuple[Shown, str]] = []
        for tag, text, n in parts:
            self._texts.setdefault(tag, {}).setdefault(n, []).append(text)
            kind, place = self._shown.get(tag), (tag, n)
            if kind is None or (self._newest.get(kind) != place and not text.strip()):
                continue
            if self._newest.get(kind) != place:
                text = text.lstrip()
                self._space[kind] = PARAGRAPH if kind in self._newest else ""
                self._newest[kind] = place
            text = self._space[kind] + text
            self._space[kind] = text[len(text.rstrip()) :]
            if not (text := text.rstrip()):
                continue
            if self._held is not None and kind == "thinking":
                self._held.append((kind, text))
                continue
            shown += [*(self._held or ()), (kind, text)]
            self._held = None
        return shown


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _join(parts: Iterator[TaggedText]) -> list[TaggedText]:
    """Join neighbours inside the same tag."""
    joined: list[TaggedText] = []
    for part in parts:
        if joined and joined[-1].n == part.n:
            joined[-1] = part._replace(text=joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
