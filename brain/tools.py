"""Core: a client's own tools, under names that a model can call beside the specialists."""

from collections.abc import Container, Sequence

from brain.ask import Tool
from brain.settings import SPECIALIST_NAME

_NAME_LENGTH = 64


def named(tools: Sequence[Tool], taken: Container[str]) -> dict[str, Tool]:
    """The tools by the names that the model is told: their own, unless a specialist has it, or it cannot be called."""
    found: dict[str, Tool] = {}
    for tool in tools:
        name = callable_name(tool.name, taken)
        while name in found:
            name = f"{name[: _NAME_LENGTH - 1]}_"
        found[name] = tool
    return found


def callable_name(name: str, taken: Container[str] = ()) -> str:
    """The name by which a model calls a client's tool."""
    if SPECIALIST_NAME.fullmatch(name) and name not in taken:
        return name
    letters = "".join(
        character if character.isascii() and (character.isalnum() or character in "_-") else "_" for character in name
    )
    return f"client_{letters}"[:_NAME_LENGTH]
