"""Roof: `brain completion`: what a shell needs to complete the command line by Tab."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from brain.process import DONE
from brain.settings import Settings

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
