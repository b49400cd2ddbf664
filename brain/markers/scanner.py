"""Finds calls in a model's text. Text in, pieces out; no clock, no I/O.

- Any split of a text gives the same pieces, once neighbouring texts are joined.
- The work is linear. Ordinary text is searched once for openers, and each syntax reads a marker's body once.
- Memory is bounded. The scanner holds back only text that can still become a marker, up to `MARKER_LIMIT` characters.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

from brain.events import MarkerSyntax, Thinking
from brain.markers import bracket, call_tokens, function_call, harmony, llama, mention, mistral, tags
from brain.markers.cursor import TOO_LONG, UNNAMED, Channel, Cursor, ParsedMarker, Reader, resume
from brain.markers.template_tokens import ANSWER_HEADERS, REASONING, find_message_tokens, find_open_reasoning
from brain.messages import Call
from brain.text import TextBuffer, find_surrogate, join_surrogates

BACKTICK = "`"
FORGED_OPENERS = ("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:")
BLOCK_CLOSER = "[/SPECIALIST_RESULT]"
MAX_WHITESPACE_BEFORE_THINKING = 64
"""Longest white space before the opening tag, in characters. Longer white space is text."""
MAX_WHITESPACE_AFTER_CALL = 64
"""Longest white space between two calls, in characters. Some models end with endless white space."""
MAX_WHITESPACE_AFTER_MESSAGE = 64
"""Longest white space within a line after a possible end of the message, in characters. A token before more is text."""


@dataclass(frozen=True, slots=True)
class PassEnd:
    """The rest of the pass does not matter, so its stream can be closed."""


@dataclass(frozen=True, slots=True)
class ReasoningEnd:
    """All text of the pass before this piece was reasoning: its opening tag was missing."""


Piece = str | Thinking | Call | ReasoningEnd | PassEnd
"""A plain string is text to show. A call with a `code` could not be parsed; its `reason` explains why."""

PASS_END, REASONING_END = PassEnd(), ReasoningEnd()
FORGED_REASON = "the model wrote a result block itself"

_SYNTAXES = {"bracket": bracket, "function_call": function_call, "mention": mention}
"""A syntax is a module with `OPENERS` and a function `read`, which reads a marker after its opener."""
_MODEL_FORMATS = (tags, mistral, llama, call_tokens)
"""Further syntaxes in the same form. They count with `function_call`, if the template has one of `TEMPLATE_WORDS`."""

_Read = Callable[[Cursor, str], Reader]
_Mode = Callable[["Scanner", str, int, list[Piece]], int]
_Search = Callable[..., re.Match[str] | None]
_Meaning = Literal["forged", "dropped", "section end", "end", "possible end", "subject", "reasoned"]
FindSchema = Callable[[str], Mapping[str, Any] | None]

_NOT_WHITE = re.compile(r"\S")


@dataclass(frozen=True)
class _Delimiters:
    """The delimiters to search for. The patterns also match an incomplete one at the end of the text.

    They are compiled when they are first used: each takes milliseconds, and most answers need two of them.
    """

    openers: Mapping[str, _Read]
    others: Mapping[str, _Meaning]
    headers: Sequence[str]
    tokens: Collection[str]

    @cached_property
    def beginning_at(self) -> _Search:
        return re.compile(_build_pattern(self.headers)).match

    @cached_property
    def opener_at(self) -> _Search:
        return re.compile(_build_pattern(self.openers) or r"(?!)").match

    @cached_property
    def after_end_at(self) -> _Search:
        """Match after a token that may end a message. The group is what shows that it does."""
        return re.compile(
            rf"[^\S\r\n]{{0,{MAX_WHITESPACE_AFTER_MESSAGE}}}"
            rf"(?:([\r\n]|{'|'.join(map(re.escape, self.tokens))})|\Z|{_build_pattern(self.tokens)})"
        ).match

    @cached_property
    def find(self) -> _Search:
        return re.compile(_build_pattern((*self.openers, *self.others)) + rf"|{BACKTICK}\Z").search

    @cached_property
    def beginnings(self) -> frozenset[str]:
        return _list_beginnings((*self.openers, *self.others))

    @cached_property
    def opener_beginnings(self) -> frozenset[str]:
        return _list_beginnings(self.openers)


class Scanner:
    """Scans one pass.

    Args:
        template: Chat template of the model, with its first and last token. Empty if it is unknown: then all formats of
            models count.
        find_schema: Returns the JSON Schema of a specialist's parameters, for formats whose values are all texts.
        stops: Whether the pass ends at the first character after a call that is neither white space nor the start of
            another call. If False, text continues after each call.
    """

    __slots__ = (
        "_assumed", "_beginnings", "_buffer", "_delimiters", "_find", "_find_schema", "_has_called", "_has_section",
        "_has_subject", "_high_surrogate", "_is_literal", "_is_plain", "_marker", "_mode", "_stops", "_syntaxes",
        "_thinking_end", "_whitespace",
    )  # fmt: skip

    def __init__(
        self,
        syntaxes: Sequence[MarkerSyntax],
        template: str = "",
        *,
        is_continued: bool = False,
        find_schema: FindSchema | None = None,
        stops: bool = True,
    ) -> None:
        self._syntaxes = tuple(syntaxes)
        self._delimiters = _find_delimiters(self._syntaxes, template, stops)
        self._find: _Search  # compiled when the answer begins: another scanner may replace this one before
        self._find_schema = find_schema
        self._thinking_end = "" if is_continued else find_open_reasoning(template)  # the tag after the reasoning
        self._assumed = TextBuffer() if self._thinking_end else None  # text that is reasoning if that tag comes
        self._has_subject = False
        self._stops = stops
        self._has_called = False
        self._has_section = False  # calls whose common closing tag may follow, if text after calls counts
        self._whitespace = 0  # white-space characters since the last call
        self._mode: _Mode = Scanner._at_start
        self._is_plain = False  # in the answer, nothing buffered or quoted: nearly always
        self._buffer = ""  # the end of the text that may still start a delimiter
        self._beginnings: frozenset[str] = frozenset()  # in the answer: buffers that may still become a delimiter
        self._is_literal = False  # the next character starts nothing: it is quoted, or was tried before
        self._high_surrogate = ""  # its partner may come with the next text
        self._marker: tuple[Cursor, Reader] | None = None

    def feed(self, text: str) -> Sequence[Piece]:
        """Take the next characters. Return the pieces that they complete."""
        if self.is_plain(text):
            return (text,) if text else ()
        if self._high_surrogate or not text.isascii():
            text, self._high_surrogate = join_surrogates(self._high_surrogate + text)
        if self._buffer:
            text = self._buffer + text
            if text in self._beginnings:
                self._buffer = text
                return ()
            self._buffer = ""
        elif self._marker is not None and not self._marker[0].feed(text):
            return ()
        pieces: list[Piece] = []
        self._is_plain = False
        if self._marker is not None:
            text = self._continue_marker(*self._marker, text, pieces)
        at = 0
        while at < len(text):
            at = self._mode(self, text, at, pieces)
        return pieces

    def is_plain(self, text: str) -> bool:
        """Whether the next characters are text of the answer only, and nothing is held back."""
        return self._is_plain and (text.isascii() or not find_surrogate(text)) and self._find(text) is None

    @property
    def is_holding(self) -> bool:
        """Whether the scanner holds back a possible delimiter."""
        return bool(self._buffer) or self._marker is not None

    def skip_reasoning(self) -> None:
        """Expect no reasoning in the text, because the server sends it separately."""
        if self._assumed is not None and self._mode is Scanner._at_start:
            self._assumed, self._thinking_end = None, ""

    def close(self, *, is_cut: bool = False) -> Sequence[Piece]:
        """End the pass. Return the pieces that were held back.

        Args:
            is_cut: Whether the model had to stop. Otherwise, reasoning without an opening and a closing tag is none.
        """
        pieces: list[Piece] = []
        if self._high_surrogate:
            self._high_surrogate = ""
            pieces += self.feed("\ufffd")
        if self._assumed is not None and self._mode is Scanner._in_thinking and not is_cut:
            text, self._buffer = self._assumed.whole() + self._buffer, ""
            self._start_answer()
            pieces += self.feed(text)
        while self._marker is not None:
            self._marker[0].close()
            pieces += self.feed("")
        if self._buffer and self._mode is Scanner._in_thinking:
            pieces.append(Thinking(self._buffer))
        elif self._buffer and not self._has_called and not self._ends_message():
            pieces.append(self._buffer)
        self._mode, self._buffer, self._is_plain = Scanner._at_end, "", False
        return pieces

    def _continue_marker(self, cursor: Cursor, reader: Reader, text: str, pieces: list[Piece]) -> str:
        """Continue a marker from an earlier text. Return the text after it, for the next mode."""
        parsed, is_waiting = resume(reader, cursor)
        if is_waiting:
            return ""
        self._marker = None
        if parsed is not None:
            return text[self._add_parsed(parsed, cursor, pieces) :]
        if self._has_called:
            self._end(text, pieces)
            return ""
        self._is_literal = True
        return cursor.all_text()

    # The modes. Each reads the text from `at`, adds complete pieces, and returns where the next mode starts.

    def _at_start(self, text: str, at: int, pieces: list[Piece]) -> int:
        """At the start of a pass, where models write a header or the tag of reasoning, perhaps after line breaks."""
        head = text[at : at + MAX_WHITESPACE_BEFORE_THINKING]
        start = at + len(head) - len(head.lstrip())
        opener = self._delimiters.beginning_at(text, start)
        if opener is not None and opener[0] in REASONING:
            self._start_thinking(REASONING[opener[0]])
            return opener.end()
        if opener is not None and opener[0] in ANSWER_HEADERS:
            return opener.end()
        if opener is not None and opener[0] in harmony.BEGINNINGS:
            self._delimiters = _find_delimiters(self._syntaxes, harmony.TEMPLATE, self._stops)
            self._assumed = None
            self._start_answer()
            return start
        if opener is not None or start == len(text):
            self._buffer = text[at:]
            return len(text)
        if self._assumed is not None:
            self._mode = Scanner._in_thinking
        else:
            self._start_answer()
        return at

    def _start_thinking(self, ending: str) -> None:
        self._mode, self._thinking_end, self._assumed = Scanner._in_thinking, ending, None
        self._beginnings = frozenset()

    def _in_thinking(self, text: str, at: int, pieces: list[Piece]) -> int:
        match = _FIND_THINKING_END[self._thinking_end](text, at)
        end, then = match.span() if match is not None else (len(text), len(text))
        if end > at:
            pieces.append(Thinking(text[at:end]))
            if self._assumed is not None:
                self._assumed.add(text[at:end])
        if match is not None and match[0] == self._thinking_end:
            self._start_answer()
        elif match is not None and match[0] in harmony.TOKENS:  # the message has no end of its own
            self._start_answer()
            return end
        else:
            self._buffer = text[end:]
        return then

    def _start_answer(self) -> None:
        """Start the answer after the thinking."""
        self._mode, self._beginnings, self._assumed = Scanner._in_text, self._delimiters.beginnings, None
        self._find = self._delimiters.find

    def _in_text(self, text: str, at: int, pieces: list[Piece]) -> int:
        """In the answer: search for calls and delimiters."""
        find, settled = self._find, at
        while (match := find(text, at)) is not None:
            start, delimiter = match.start(), match[0]
            at = start + 1
            if text[start - 1] == BACKTICK if start > settled else self._is_literal:
                continue
            if delimiter in self._beginnings:
                return self._hold(text, start, settled, pieces)
            if delimiter in self._delimiters.openers:
                after = self._start_marker(text, start, delimiter, settled, pieces)
                if after is not None:
                    return after
                continue
            meaning = self._delimiters.others.get(delimiter)
            self._has_subject = self._has_subject or meaning == "subject"
            if meaning in (None, "subject"):  # None: a backtick
                continue
            if meaning in ("end", "possible end", "reasoned") and self._has_subject:
                continue
            if meaning == "section end" and not self._has_section:
                continue
            if meaning == "possible end":
                following = self._delimiters.after_end_at(text, match.end())
                if following is None:  # within code or a sentence
                    continue
                if not following[1]:
                    return self._hold(text, start, settled, pieces)
            if meaning == "reasoned" and self._thinking_end:  # the reasoning came before
                continue
            _add_text(text[settled:start], pieces)
            if meaning == "forged":
                pieces.append(Call(UNNAMED, code="forged", reason=FORGED_REASON))
            if meaning in ("forged", "end", "possible end"):
                return self._end(text, pieces)
            if meaning == "reasoned":
                pieces.append(REASONING_END)
                self._thinking_end = delimiter
            settled = at = match.end()
            self._is_literal = False
        _add_text(text[settled:], pieces)
        self._is_literal = text[-1] == BACKTICK
        self._is_plain = not self._is_literal and not self._high_surrogate
        return len(text)

    def _ends_message(self) -> bool:
        """Whether the text that is held back is the end of the message, if nothing follows."""
        return self._delimiters.others.get(self._buffer.rstrip()) == "possible end"

    def _hold(self, text: str, start: int, settled: int, pieces: list[Piece]) -> int:
        """Hold back the text from `start`, until the next characters tell what it is."""
        _add_text(text[settled:start], pieces)
        self._buffer, self._is_literal = text[start:], False
        return len(text)

    def _after_call(self, text: str, at: int, pieces: list[Piece]) -> int:
        """After a call: only white space and further calls count."""
        character = _NOT_WHITE.search(text, at)
        self._whitespace += (character.start() if character else len(text)) - at
        if self._whitespace > MAX_WHITESPACE_AFTER_CALL:
            return self._end(text, pieces)
        if character is None:
            return len(text)
        match = self._delimiters.opener_at(text, character.start())
        if match is None:
            return self._end(text, pieces)
        if match[0] not in self._delimiters.openers:
            self._buffer = match[0]
            return len(text)
        after = self._start_marker(text, match.start(), match[0], match.start(), pieces)
        return self._end(text, pieces) if after is None else after

    def _at_end(self, text: str, at: int, pieces: list[Piece]) -> int:
        """After the end: nothing counts."""
        return len(text)

    def _start_marker(self, text: str, start: int, opener: str, settled: int, pieces: list[Piece]) -> int | None:
        """Start to read a marker at `start`. Return None if the text is not a marker."""
        cursor = Cursor(text, start, start + len(opener))
        reader = self._delimiters.openers[opener](cursor, opener)
        parsed, is_waiting = resume(reader, cursor)
        if not is_waiting and parsed is None:
            return None
        _add_text(text[settled:start], pieces)
        if parsed is not None:
            return self._add_parsed(parsed, cursor, pieces)
        self._marker = cursor, reader
        return len(text)

    def _add_parsed(self, parsed: ParsedMarker | Channel, cursor: Cursor, pieces: list[Piece]) -> int:
        """Add what a reader has read. Return where the text after it begins."""
        if isinstance(parsed, Channel):
            self._is_literal = False
            if self._has_called or parsed.kind == "other":
                return self._end(cursor.text, pieces)
            if parsed.kind == "thinking":
                self._start_thinking(harmony.MESSAGE_END)
            return cursor.at
        self._add_call(parsed, cursor, cursor.raw(), pieces)
        for other in parsed.more:
            self._add_call(other, cursor, "", pieces)
        self._has_called, self._has_section, self._is_literal, self._whitespace = self._stops, True, False, 0
        self._mode = Scanner._in_text
        if self._stops:
            self._mode, self._beginnings = Scanner._after_call, self._delimiters.opener_beginnings
        return cursor.at

    def _add_call(self, parsed: ParsedMarker, cursor: Cursor, marker: str, pieces: list[Piece]) -> None:
        call = Call(parsed.name, marker, parsed.params if parsed.is_complete else None)
        if not parsed.is_complete and cursor.is_full:
            call.code, call.reason = "oversized", TOO_LONG
        elif not parsed.is_complete:
            call.code, call.reason = "malformed", "the call has no closing bracket or tag"
        elif parsed.params is None:
            call.code, call.reason = "malformed", parsed.problem
        elif parsed.is_text and self._find_schema is not None and (schema := self._find_schema(call.name)) is not None:
            call.params = tags.convert_texts(parsed.params, schema)
        pieces.append(call)

    def _end(self, text: str, pieces: list[Piece]) -> int:
        pieces.append(PASS_END)
        self._mode = Scanner._at_end
        return len(text)


def _add_text(text: str, pieces: list[Piece]) -> None:
    if text:
        pieces.append(text)


@lru_cache(maxsize=64)
def _find_delimiters(syntaxes: tuple[MarkerSyntax, ...], template: str, stops: bool) -> _Delimiters:
    is_known = bool(template.strip())
    modules = [_SYNTAXES[name] for name in syntaxes]
    openers: dict[str, _Read] = {opener: module.read for module in modules for opener in module.OPENERS}
    if "function_call" in syntaxes:
        for module in _MODEL_FORMATS:
            if not is_known or any(word in template for word in module.TEMPLATE_WORDS):
                openers |= dict.fromkeys(module.OPENERS, module.read)
    ends, possible_ends, subjects = find_message_tokens(template)
    others: dict[str, _Meaning] = {**dict.fromkeys(ends, "end"), **dict.fromkeys(possible_ends, "possible end")}
    sections = {**tags.SECTION_ENDS, **call_tokens.SECTION_ENDS}
    others |= {end: "section end" for opener, end in sections.items() if opener in openers and not stops}
    others |= dict.fromkeys(subjects, "subject")
    others |= {closer: "reasoned" for opener, closer in REASONING.items() if not is_known or opener in template}
    others |= {**dict.fromkeys(FORGED_OPENERS, "forged"), BLOCK_CLOSER: "dropped"}
    is_harmony = harmony.CHANNEL in template
    if is_harmony:
        openers |= dict.fromkeys(harmony.OPENERS, harmony.read)
        others |= {**dict.fromkeys(harmony.ENDS, "end"), harmony.MESSAGE_END: "dropped"}
    headers = [opener for opener in REASONING if not is_known or opener in template or opener == "<think>"]
    headers += [header for header in ANSWER_HEADERS if not is_known or header.partition(">")[0] in template]
    headers += harmony.BEGINNINGS if is_harmony or not is_known else ()
    return _Delimiters(openers, others, headers, ends | possible_ends | subjects)


def _list_beginnings(delimiters: Iterable[str]) -> frozenset[str]:
    return frozenset(delimiter[:length] for delimiter in delimiters for length in range(1, len(delimiter)))


def _build_pattern(delimiters: Iterable[str]) -> str:
    """Return a pattern for any of the delimiters, or for the start of one at the end of the text."""
    tails: dict[str, list[str]] = {}
    for delimiter in delimiters:
        tails.setdefault(delimiter[0], []).append(delimiter[1:])
    return "|".join(
        re.escape(first) + ("" if "" in rest else rf"(?:{_build_pattern(rest)}|\Z)") for first, rest in tails.items()
    )


_FIND_THINKING_END = {
    **{closer: re.compile(_build_pattern([closer])).search for closer in REASONING.values()},
    harmony.MESSAGE_END: re.compile(_build_pattern([harmony.MESSAGE_END, *harmony.TOKENS])).search,
}
