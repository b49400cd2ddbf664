"""A client's own tools, under names that a model can call beside the specialists."""

from collections.abc import Container, Sequence
from itertools import chain, count

from brain.settings.parsers import SPECIALIST_NAME
from brain.turn_request import Tool

_NAME_LENGTH = 64


def name_tools(tools: Sequence[Tool], taken: Container[str]) -> dict[str, Tool]:
    """The tools by the names that the model is told: their own, unless it has another owner, or cannot be called."""
    found: dict[str, Tool] = {}
    for tool in tools:
        name = callable_name(tool.name, taken)
        endings = chain([""], map("_{}".format, count(2)))
        names = (name[: _NAME_LENGTH - len(ending)] + ending for ending in endings)
        found[next(name for name in names if name not in found and name not in taken)] = tool
    return found


def callable_name(name: str, taken: Container[str] = ()) -> str:
    """The name by which a model calls a client's tool."""
    if SPECIALIST_NAME.fullmatch(name) and name not in taken:
        return name
    letters = "".join(
        character if character.isascii() and (character.isalnum() or character in "_-") else "_" for character in name
    )
    return f"client_{letters}"[:_NAME_LENGTH]
