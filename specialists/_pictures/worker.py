"""Answer the requests of `reader` in a child process. This module imports nothing from Brain."""

from collections.abc import Callable
from typing import Any

from specialists._kit.child import Payload, Report
from specialists._pictures import describe, images, ocr

_FUNCTIONS: dict[str, Callable[..., tuple[Any, Payload]]] = {
    "pages": images.read_layers,
    "read": ocr.read,
    "inspect": describe.inspect,
}


def answer(words: Any, data: bytes, _: Report) -> tuple[Any, Payload]:
    """Return the result of the function that a request names, or the arguments of a refusal."""
    try:
        return _FUNCTIONS[words.pop("do")](data, **words)
    except images.Unreadable as error:
        return {"refused": error.args}, b""
    except MemoryError:
        return {"refused": ("reading the file needs too much memory", "ask the user for a smaller copy")}, b""
