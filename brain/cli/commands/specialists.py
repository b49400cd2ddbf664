"""`brain completion`: what a shell needs to complete the command line by Tab."""

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
"""For words of one's own: where zsh has no action for these, it only lists flags beside them, and types none."""

SOURCED = "$zsh_eval_context[-1] == eval ", "$zsh_eval_context[-1] == (eval|file) "
"""By `source` zsh reads a file, by `eval` a text; shtab's script registers itself only in the second case."""


def completion(given: argparse.Namespace, settings: Settings) -> int:
    """Prints the script for a shell."""
    import shtab  # only who asks for it pays for it

    for action in _actions(given.whole):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif not action.option_strings and action.choices is None:
            action.complete = NOTHING  # type: ignore[attr-defined]
    print(shtab.complete(given.whole, given.shell).replace(*SOURCED))
    return DONE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All that can be typed behind a command and the commands within it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _actions(one)


def specialists(given: argparse.Namespace, settings: Settings) -> int:
    """Lists what is registered, what is unavailable and why, and what was refused."""
    registry = Registry(settings).discover()
    if given.json:
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
        words = "may hold strangers' words" if one.outside else "none but its own or the user's words"
        print(f"  auth: {auth}; approval: {entry.approval}; results: {words}")
        for setting in specialist_settings.list_settings(one):
            print(f"  setting {PREFIX}{setting.key} ({setting.default}): {setting.meaning}")
        if entry.unavailable_reason:
            print(f"  unavailable: {entry.unavailable_reason}")
    for refusal in registry.refused:
        print(f"refused: {refusal.name} ({refusal.origin}): {refusal.reason}")
    return DONE
