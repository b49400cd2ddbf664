"""Names by which a model calls a client's own tools, beside the specialists."""

from collections.abc import Container, Sequence
from itertools import chain, count

from brain.settings.parsers import SPECIALIST_NAME
from brain.turn_request import Tool

_NAME_LENGTH = 64


def name_tools(tools: Sequence[Tool], reserved: Container[str]) -> dict[str, Tool]:
    """Return the tools by the names that the model uses, which are not `reserved` and differ from each other."""
    named: dict[str, Tool] = {}
    for tool in tools:
        name = callable_name(tool.name, reserved)
        endings = chain([""], map("_{}".format, count(2)))
        names = (name[: _NAME_LENGTH - len(ending)] + ending for ending in endings)
        named[next(name for name in names if name not in named and name not in reserved)] = tool
    return named


def callable_name(name: str, reserved: Container[str] = ()) -> str:
    """Return a tool's own name if a model can call it, else a similar one."""
    if SPECIALIST_NAME.fullmatch(name) and name not in reserved:
        return name
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in name)
    return f"client_{letters}"[:_NAME_LENGTH]
