"""`brain specialists` and `brain completion`: list the specialists, and print a shell completion script."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brain.cli.commands.names import check_specialist
from brain.cli.process import DONE
from brain.plugins import specialist_settings
from brain.plugins.registry import Entry, Registry
from brain.prompts.system_prompt import shape
from brain.settings import PREFIX, Settings

NOTHING = {"zsh": "{true}"}
"""For free text: without an action, zsh would complete flags there."""
IN_EVAL = "$zsh_eval_context[-1] == eval "
IN_EVAL_OR_SOURCE = "$zsh_eval_context[-1] == (eval|file) "
"""The script of shtab registers itself only in `eval`; this change makes `source` work, too."""


def completion(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the completion script of a shell."""
    import shtab  # only this command pays for it

    for action in _all_actions(arguments.root):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif not action.option_strings and action.choices is None:
            action.complete = NOTHING  # type: ignore[attr-defined]
    print(shtab.complete(arguments.root, arguments.shell).replace(IN_EVAL, IN_EVAL_OR_SOURCE))
    return DONE


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_actions(command)


def specialists(arguments: argparse.Namespace, settings: Settings) -> int:
    """List the specialists: available, unavailable and rejected ones."""
    registry = Registry(settings).discover()
    for name in arguments.name:
        check_specialist(name, [*registry, *(refusal.name for refusal in registry.refused)])
    entries = [entry for name, entry in registry.items() if not arguments.name or name in arguments.name]
    refused = [refusal for refusal in registry.refused if not arguments.name or refusal.name in arguments.name]
    if arguments.json:
        found = {
            "specialists": [_describe(entry) for entry in entries],
            "refused": [{"name": r.name, "origin": r.origin, "reason": r.reason} for r in refused],
        }
        print(json.dumps(found, indent=2))
        return DONE
    for entry in entries:
        one = entry.specialist
        print(f"{one.name} ({entry.origin}): {one.description}")
        print(f"  parameters: {shape(one.parameters)}")
        users = "signed-in users only" if one.requires_user else "all"
        trust = "may contain untrusted content" if one.outside else "trusted"
        print(f"  users: {users}; approval: {entry.approval}; results: {trust}")
        for setting in specialist_settings.list_settings(one):
            print(f"  setting {PREFIX}{setting.key} ({setting.default}): {setting.meaning}")
        if entry.unavailable_reason:
            print(f"  unavailable: {entry.unavailable_reason}")
    for refusal in refused:
        print(refusal.describe())
    return DONE


def _describe(entry: Entry) -> dict[str, Any]:
    """Return the description for clients, with the remedy for the operator."""
    remedy = {"unavailable_reason": entry.unavailable_reason} if entry.unavailable_reason is not None else {}
    return {**entry.describe(), **remedy}
