"""Names that the model uses for client tools."""

from collections.abc import Container, Sequence
from itertools import chain, count

from brain.text import NAME_LENGTH, SPECIALIST_NAME
from brain.turn_request import TOOL_CHOICES, Tool


def name_tools(tools: Sequence[Tool], reserved: Container[str]) -> dict[str, Tool]:
    """Return the tools by unique names for the model, none of which is `reserved`."""
    named: dict[str, Tool] = {}
    for tool in tools:
        name = callable_name(tool.name, reserved)
        endings = chain([""], map("_{}".format, count(2)))
        names = (name[: NAME_LENGTH - len(ending)] + ending for ending in endings)
        named[next(name for name in names if name not in named and name not in reserved)] = tool
    return named


def callable_name(name: str, reserved: Container[str] = ()) -> str:
    """Return a tool's name if the model can use it, else a similar name."""
    if SPECIALIST_NAME.fullmatch(name) and name not in reserved and name not in TOOL_CHOICES:
        return name
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in name)
    return f"client_{letters}"[:NAME_LENGTH]
