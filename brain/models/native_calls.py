"""Join the pieces of native calls as servers stream them, without I/O.

Indexes and IDs are only hints: servers leave them out, repeat them for several calls, or change them within one. What
does not fit together in exactly one way becomes a call with a problem, which never runs.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from brain.messages import NativeCall

MAX_CALLS = 64
MAX_ARGUMENTS = 65_536
"""Maximum length of a call's arguments, in characters; above the limit of a call."""
MAX_NAME = 1_000
"""Maximum length of a name or an ID, in characters."""
MAX_LABELS = 64
"""Indexes and IDs that are remembered of a call; some servers send a new ID with each piece."""

UNREADABLE = "the model server could not read the call"
NAMELESS = "the model server sent arguments without the name of the call"
LOST = "the model server did not say to which call some arguments belong"
SEVERAL = "the model server sent several objects as arguments of one call"
CUT = "the answer ended before the call was complete"

_FENCE = "```"
_SPACE = re.compile(r"[ \t\n\r]*")
_DECORATION = r"(?:[\w-]+[.:/])*{}(?:[.:#/]\d+)?(?:<\|.*)?"
"""What models and servers add to a name: a namespace, a number, and control tokens."""
_ENDS = ("}", "`", '"')
"""The last characters of an object, of a fence, and of an object that is encoded twice."""
_decode = json.JSONDecoder().raw_decode  # only where values end; who runs a call decodes it strictly


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call. `arguments` is a text, or a whole JSON value."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: Any = None


def find_offered(name: str, offered: Collection[str]) -> str | None:
    """Return the offered name that a model means, such as `weather` for `functions.weather:0`; None if unclear."""
    name = name.strip()
    if name in offered:
        return name
    fitting = [one for one in offered if one in name and re.fullmatch(_DECORATION.format(re.escape(one)), name)]
    return fitting[0] if len(fitting) == 1 else None


class CallAssembler:
    """Joins the deltas of one answer.

    Args:
        offered: The names of the tools in the request.

    Attributes:
        calls: All calls so far.
    """

    __slots__ = ("_has_text_after", "_lost", "_offered", "calls")

    def __init__(self, offered: Collection[str] = ()) -> None:
        self._offered = offered
        self.calls: list[_Call] = []
        self._has_text_after = False  # since the last delta
        self._lost = ""  # why some arguments belong to no call

    def add(self, delta: CallDelta) -> Sequence[NativeCall]:
        """Add a delta. Return the earlier calls if they are complete, and this one if nothing can change it."""
        text = _to_text(delta.arguments)
        self._has_text_after = False
        candidates = self._find(delta)
        call = candidates[0] if candidates else None
        is_new = bool(delta.name) and (call is None or self._begins_call(call, delta, text))
        if is_new and len(self.calls) < MAX_CALLS:
            call = _Call(delta.name, is_doubtful=call is not None and call.name == delta.name)
            self.calls.append(call)
        elif is_new or call is None:  # a delta without a name never opens a call
            self.lose(NAMELESS if text.strip() else "")
            return ()
        elif delta.name:
            call.name = _join_names(call.name, delta.name)[:MAX_NAME]
        if len(call.labels) < MAX_LABELS:
            call.labels |= {label for label in (delta.index, delta.id) if label not in (None, "")}
        if call.is_taken:
            self.lose(LOST if text.strip() and _read_arguments(text) != call.arguments() else "")
            return ()
        if text:
            call.add(text)
            for other in () if delta.name else candidates:
                other.is_doubtful |= not other.pieces
        is_whole = isinstance(delta.arguments, dict) and bool(delta.arguments)  # {} may be a placeholder
        return self._take(None if is_whole else -1) if is_new or is_whole else ()

    @property
    def has_started(self) -> bool:
        """Whether a call was returned before the end of the answer."""
        return any(call.is_taken for call in self.calls)

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be returned."""
        return bool(self._lost) or not all(call.is_taken for call in self.calls)

    def end_by_text(self) -> Sequence[NativeCall]:
        """Return the calls that are complete, because text follows them."""
        has_text_after, self._has_text_after = self._has_text_after, True
        return () if has_text_after else self._take(None)

    def lose(self, reason: str) -> None:
        """Note that a part of a call is lost; an empty reason changes nothing."""
        self._lost = self._lost or reason

    def finish(self, *, is_cut: bool) -> Sequence[NativeCall]:
        """Return the remaining calls at the end of the answer, or before, if it `is_cut`."""
        waiting = [call for call in self.calls if not call.is_taken]
        is_unclear = bool(self._lost) or any(call.has_several() for call in waiting)
        calls = []
        for call in waiting:
            call.is_taken, arguments, problem = True, call.arguments(), ""
            if call.has_several():
                problem = SEVERAL
            elif is_cut and not call.object():
                problem = CUT
            elif arguments in ("", "{}") and (is_unclear or call.is_doubtful):
                problem = LOST
            calls.append(NativeCall(call.name, arguments, problem))
        if self._lost:
            calls.append(NativeCall("", "", self._lost))
            self._lost = ""
        return calls

    def _find(self, delta: CallDelta) -> "list[_Call]":
        """Return the calls that a delta may continue, the likeliest first."""
        newest = self.calls[::-1]
        by_id = [call for call in newest if delta.id and delta.id in call.labels]
        by_index = [call for call in newest if delta.index is not None and delta.index in call.labels]
        if both := [call for call in by_id if call in by_index]:
            return both
        if delta.name and delta.index is not None:
            return by_index
        if by_id or by_index:
            return by_id or by_index
        has_label = delta.index is not None or bool(delta.id)
        return [] if has_label and not delta.name and newest and newest[0].object() else newest

    def _begins_call(self, call: "_Call", delta: CallDelta, text: str) -> bool:
        """Return whether a delta with a name begins another call than `call`, although its labels may be the same."""
        is_new_id = bool(delta.id) and delta.id not in call.labels
        if delta.name == call.name:
            found = call.object()
            if found is None or (not found and not is_new_id):
                return False
            return _read_arguments(text) != call.arguments() if text.strip() else is_new_id
        if call.pieces:
            return True
        is_one = find_offered(_join_names(call.name, delta.name), self._offered) is not None
        is_two = all(find_offered(name, self._offered) for name in (call.name, delta.name))
        call.is_doubtful |= is_one and is_two
        return is_two or (is_new_id and not is_one)

    def _take(self, end: int | None) -> Sequence[NativeCall]:
        """Return the first calls up to `end` whose arguments are whole."""
        taken = []
        for call in self.calls[:end]:
            if not call.is_taken:
                if not call.object():  # {} may be a placeholder
                    break
                call.is_taken = True
                taken.append(NativeCall(call.name, call.arguments()))
        return taken


class _Call:
    """One call so far.

    Attributes:
        labels: Its indexes and IDs.
        is_doubtful: Whether it may have arguments that did not reach it.
        is_taken: Whether it runs already.
    """

    def __init__(self, name: str, *, is_doubtful: bool) -> None:
        self.name = name
        self.labels: set[int | str | None] = set()
        self.pieces: list[str] = []
        self.is_doubtful = is_doubtful
        self.is_taken = False
        self._length = 0

    def add(self, text: str) -> None:
        """Add a piece of the arguments, or replace them by a text that repeats and continues them.

        No JSON text is an object that begins with the beginning of another one, so a repetition is never a piece.
        """
        if self._length <= len(text):
            whole = "".join(self.pieces)
            if whole.lstrip().startswith("{") and text.startswith(whole):
                self.pieces, self._length = [], 0
        text = text[: MAX_ARGUMENTS - self._length]
        self.pieces.append(text)
        self._length += len(text)

    def arguments(self) -> str:
        """The arguments as JSON, if they mean one object; "" without any; otherwise as they came."""
        return _read_arguments("".join(self.pieces))

    def object(self) -> dict[str, Any] | None:
        """The arguments, once they are a whole object."""
        last = next((piece for piece in reversed(self.pieces) if not piece.isspace()), "")
        values = _decode_all(self.arguments()) if last.rstrip().endswith(_ENDS) else []
        return values[0][1] if len(values) == 1 and isinstance(values[0][1], dict) else None

    def has_several(self) -> bool:
        """Whether the arguments are several objects in a row."""
        return len(_decode_all(self.arguments())) > 1


def _join_names(first: str, second: str) -> str:
    """Join two pieces of a name; the second one may repeat the first."""
    return second if second.startswith(first) else first + second


def _to_text(arguments: Any) -> str:
    """Return arguments as text: servers send a text, an object, or nothing."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


def _read_arguments(text: str) -> str:
    """Return the one object that a text means: fenced, encoded twice, repeated, or after an empty one."""
    for _ in range(3):
        bare = text.strip()
        if bare.startswith(_FENCE) and bare.endswith(_FENCE) and len(bare) >= 2 * len(_FENCE):
            bare = bare.strip("`").removeprefix("json").strip()
        if bare in ("", "null"):
            return ""
        values = _decode_all(bare)
        if len(values) == 1 and isinstance(values[0][1], str):
            text = values[0][1]
            continue
        values = [one for one in values if one[1] != {}] or values[:1]
        if len({repr(value) for _, value in values}) == 1:
            return values[0][0] if values[0][1] != {} else "{}"
        break
    return text


def _decode_all(text: str) -> list[tuple[str, Any]]:
    """Return the JSON values in a row that are the text, each with its text; an empty list if it is anything else."""
    values, at = [], _space(text, 0)
    try:
        while at < len(text):
            value, end = _decode(text, at)
            values.append((text[at:end], value))
            at = _space(text, end)
    except (ValueError, RecursionError):
        return []
    return values


def _space(text: str, at: int) -> int:
    """Return where the white space at this position ends."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
