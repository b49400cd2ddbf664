"""Brain: streaming middleware that lets any text model call specialists in the middle of its answer.

This module has the public names. Importing it has no side effects and reads no environment variables.
"""

import importlib
from typing import TYPE_CHECKING, Any

from brain import dates
from brain.errors import Refused, RegistrationError
from brain.events import Citation
from brain.installation import install_command
from brain.messages import Attachment
from brain.net.page import Page
from brain.plugins.context import AssistContext, Context, Progress, Result
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist, specialist

if TYPE_CHECKING:
    from brain.library.stream import list_specialists, register, stream_with_specialists
    from brain.library.thinker import Thinker
    from brain.server.app import mount

__all__ = [
    "AssistContext",
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
    "dates",
    "install_command",
    "list_specialists",
    "mount",
    "register",
    "specialist",
    "stream_with_specialists",
]


_LAZY = {
    "Thinker": "brain.library.thinker",
    "list_specialists": "brain.library.stream",
    "mount": "brain.server.app",
    "register": "brain.library.stream",
    "stream_with_specialists": "brain.library.stream",
}
"""Names that need the rest of Brain. Specialists do not need them, so the import stays fast."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
