"""Check names of specialists; an error suggests the nearest one."""

from collections.abc import Iterable, Mapping
from typing import Any

from brain.cli.process import UsageError
from brain.plugins.registry import Registry
from brain.settings import PREFIX, Settings
from brain.text import escape_invisible, suggest


def discover(settings: Settings) -> Registry:
    """Find the specialists.

    Raises:
        UsageError: ALLOWED_SPECIALISTS or USERS names an unknown one.
    """
    registry = Registry(settings).discover()
    names = dict.fromkeys(settings.allowed_specialists, "ALLOWED_SPECIALISTS")
    for user in settings.users or ():
        names |= dict.fromkeys(sorted(settings.rights(user).specialists or ()), f"USERS for {user}")
    refused = {refusal.name for refusal in registry.refused}  # reported with its reason
    for name, setting in names.items():
        if name not in refused:
            check_specialist(name, registry, f" in {PREFIX}{setting}")
    return registry


def describe_rejected(registry: Registry) -> list[str]:
    """Return a line for each specialist that could not be registered, with the command to type next."""
    lines = (escape_invisible(refusal.describe()) for refusal in registry.refused)
    return [f"{line}{'' if line.endswith(('.', '?')) else '.'} Try: brain check" for line in lines]


def check_specialist(name: str, registry: Mapping[str, Any] | Iterable[str], place: str = "") -> None:
    """Check that a specialist has this name."""
    known = list(registry)
    if name not in known:
        raise UsageError(f"Unknown specialist '{name}'{place}.{suggest(name, known)}", "brain specialists")
