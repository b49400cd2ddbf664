"""Brain: streaming middleware that lets any text model call specialists in the middle of its answer.

These are its public names. Importing them opens nothing, reads no environment and patches nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from brain.errors import Refused, RegistrationError
from brain.events import Citation
from brain.library.stream import list_specialists, register, stream_with_specialists
from brain.messages import Attachment
from brain.net.page import Page
from brain.plugins.context import Context, Progress, Result
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist, specialist

if TYPE_CHECKING:
    from brain.library.thinker import Thinker
    from brain.server.app import mount

__all__ = [
    "Attachment",
    "Citation",
    "Context",
    "Page",
    "Progress",
    "Refused",
    "RegistrationError",
    "Registry",
    "Result",
    "Specialist",
    "Thinker",
    "list_specialists",
    "mount",
    "register",
    "specialist",
    "stream_with_specialists",
]


_LAZY = {"mount": "brain.server.app", "Thinker": "brain.library.thinker"}
"""They come with all that a turn needs, and the app with sse_starlette, which patches uvicorn: only who asks pays."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
