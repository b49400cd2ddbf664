"""How a request is written. A syntax is one module with its `OPENERS` and a `read` that reads on after them."""

from collections.abc import Callable, Mapping, Sequence

from brain.events import SyntaxName
from brain.markers import bracket, function_call, mention
from brain.markers.cursor import Cursor, Reader

Read = Callable[[Cursor, str], Reader]

_MODULES = {"bracket": bracket, "function_call": function_call, "mention": mention}


def openers(names: Sequence[SyntaxName]) -> Mapping[str, Read]:
    """The openers of the named syntaxes, each with the function that reads on after it."""
    return {opener: _MODULES[name].read for name in names for opener in _MODULES[name].OPENERS}
