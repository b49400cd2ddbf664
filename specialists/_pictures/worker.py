"""What a child process does with files of images and pages. It imports nothing of Brain."""

from collections.abc import Callable
from typing import Any

from specialists._kit.child import Payload, Report
from specialists._pictures import images, looking, ocr

_FUNCTIONS: dict[str, Callable[..., tuple[Any, Payload]]] = {
    "pages": images.pages,
    "read": ocr.read,
    "look": looking.look,
}


def answer(words: Any, data: bytes, _: Report) -> tuple[Any, Payload]:
    """What the function returns that a request names, or what was wrong with the file."""
    try:
        return _FUNCTIONS[words.pop("do")](data, **words)
    except images.Unreadable as error:
        return {"refused": str(error)}, b""
    except MemoryError:
        return {"refused": "it takes too much memory to be read; ask the user for a smaller copy"}, b""
