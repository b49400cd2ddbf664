"""Brain: streaming middleware that lets any text model call specialists in the middle of its answer.

This module has the public names. Importing it has no side effects and reads no environment variables.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brain import dates
    from brain.errors import Refused, RegistrationError
    from brain.events import Citation
    from brain.installation import install_command
    from brain.library.stream import list_specialists, register, stream_with_specialists
    from brain.library.thinker import Thinker
    from brain.messages import Attachment
    from brain.net.page import Page
    from brain.plugins.context import AssistContext, Context, Progress, Result
    from brain.plugins.registry import Registry
    from brain.plugins.specialist import Specialist, specialist
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


_MODULES = {
    "AssistContext": "brain.plugins.context",
    "Attachment": "brain.messages",
    "Citation": "brain.events",
    "Context": "brain.plugins.context",
    "Page": "brain.net.page",
    "Progress": "brain.plugins.context",
    "Refused": "brain.errors",
    "RegistrationError": "brain.errors",
    "Registry": "brain.plugins.registry",
    "Result": "brain.plugins.context",
    "Specialist": "brain.plugins.specialist",
    "Thinker": "brain.library.thinker",
    "install_command": "brain.installation",
    "list_specialists": "brain.library.stream",
    "mount": "brain.server.app",
    "register": "brain.library.stream",
    "specialist": "brain.plugins.specialist",
    "stream_with_specialists": "brain.library.stream",
}
"""Where each name is. A name is imported when it is first used: commands and specialists need few of them."""


def __getattr__(name: str) -> Any:
    if name == "dates":
        return importlib.import_module("brain.dates")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
