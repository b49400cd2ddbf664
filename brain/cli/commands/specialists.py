"""`brain specialists` and `brain completion`: what is registered, and what a shell needs to complete commands."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from brain.cli.process import DONE
from brain.plugins import specialist_settings
from brain.plugins.registry import Registry
from brain.prompts.system_prompt import shape
from brain.settings import PREFIX, Settings

SHELLS = "bash", "zsh", "fish"
NOTHING = {"zsh": "{true}"}
"""For free text: without an action, zsh would only list the flags beside it."""
IN_EVAL = "$zsh_eval_context[-1] == eval "
IN_EVAL_OR_SOURCE = "$zsh_eval_context[-1] == (eval|file) "
"""shtab's script registers itself only in `eval`, but `source` reads a file."""


def completion(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the completion script of a shell."""
    import shtab  # only this command pays for it

    for action in _all_actions(arguments.parser):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif not action.option_strings and action.choices is None:
            action.complete = NOTHING  # type: ignore[attr-defined]
    print(shtab.complete(arguments.parser, arguments.shell).replace(IN_EVAL, IN_EVAL_OR_SOURCE))
    return DONE


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_actions(command)


def specialists(arguments: argparse.Namespace, settings: Settings) -> int:
    """List the registered, the unavailable and the refused specialists."""
    registry = Registry(settings).discover()
    if arguments.json:
        found = {
            "specialists": [entry.describe() for entry in registry.values()],
            "refused": [{"name": r.name, "origin": r.origin, "reason": r.reason} for r in registry.refused],
        }
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return DONE
    for entry in registry.values():
        one = entry.specialist
        print(f"{one.name} ({entry.origin}): {one.description}")
        print(f"  parameters: {shape(one.parameters)}")
        auth = "signed-in users" if one.requires_user else "everybody"
        trust = "may hold strangers' words" if one.outside else "none but its own or the user's words"
        print(f"  auth: {auth}; approval: {entry.approval}; results: {trust}")
        for setting in specialist_settings.list_settings(one):
            print(f"  setting {PREFIX}{setting.key} ({setting.default}): {setting.meaning}")
        if entry.unavailable_reason:
            print(f"  unavailable: {entry.unavailable_reason}")
    for refusal in registry.refused:
        print(f"refused: {refusal.name} ({refusal.origin}): {refusal.reason}")
    return DONE
