"""Check names of specialists and models; an error suggests the nearest one."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from brain.cli.process import UsageError
from brain.models.model import Model
from brain.plugins.registry import Registry
from brain.settings import PREFIX, Settings
from brain.text import escape_invisible, suggest


def discover(settings: Settings) -> Registry:
    """Find the specialists, and check the names in the settings."""
    registry = Registry(settings).discover()
    check_named_specialists(registry, settings)
    return registry


def print_rejected(registry: Registry) -> None:
    """Print a line on standard error for each specialist that could not be registered."""
    for line in describe_rejected(registry):
        print(line, file=sys.stderr, flush=True)


def describe_rejected(registry: Registry) -> list[str]:
    """Return a line for each specialist that could not be registered, with the command to type next."""
    lines = (escape_invisible(refusal.describe()) for refusal in registry.refused)
    return [f"{line}{'' if line.endswith(('.', '?')) else '.'} Try: brain check" for line in lines]


def check_named_specialists(registry: Registry, settings: Settings) -> None:
    """Check the names of specialists in ALLOWED_SPECIALISTS and USERS.

    Raises:
        UsageError: A setting names an unknown specialist.
    """
    names = dict.fromkeys(settings.allowed_specialists, "ALLOWED_SPECIALISTS")
    for user in settings.users or ():
        names |= dict.fromkeys(sorted(settings.rights(user).specialists or ()), f"USERS for {user}")
    refused = {refusal.name for refusal in registry.refused}  # reported with its reason
    for name, setting in names.items():
        if name not in refused:
            check_specialist(name, registry, f" in {PREFIX}{setting}")


def check_specialist(name: str, registry: Mapping[str, Any] | Iterable[str], place: str = "") -> None:
    """Check the name of a specialist.

    Raises:
        UsageError: No specialist has this name.
    """
    known = list(registry)
    if name not in known:
        raise UsageError(f"Unknown specialist '{name}'{place}.{suggest(name, known)}", "brain specialists")


def check_model_exists(model: Model) -> None:
    """Check that the server has a model.

    Raises:
        UsageError: The server has no model with this name.
    """
    if model.remedy:
        raise UsageError(model.problem or "", model.remedy)
