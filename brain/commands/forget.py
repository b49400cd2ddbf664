"""Roof: `brain forget`: erases all that is kept of a user, when somebody says that it is meant."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from brain.commands.kept import kept, listed, nothing_of
from brain.errors import BadRequest, BrainError
from brain.forgetting import forgotten
from brain.kept import Counts
from brain.process import DONE, FAILED, completed
from brain.registry import Registry
from brain.settings import Settings
from brain.store import path_of
from brain.terminal import visible


@dataclass(frozen=True, slots=True)
class _Found:
    """What is kept of a user in the store, and of whom there is anything."""

    counts: Counts
    users: Sequence[str]


def forget(given: argparse.Namespace, settings: Settings) -> int:
    """Erases it; asks before, where somebody can be asked."""
    if not given.yes and not _agreed(given.user, settings):
        print("Nothing was erased.", file=sys.stderr)
        return FAILED
    return completed(_forget(given.user, settings))


def _agreed(user: str, settings: Settings) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BrainError(f"Nobody can be asked here whether to erase all that is kept of {user}: say so with --yes.")
    found = asyncio.run(_found(user, settings))
    what = f"Erase all that is kept of {user}: {listed(found.counts)}, and what specialists keep?"
    if user not in found.users:
        what = f"{nothing_of(user, found.users)} Erase what specialists may keep of {user}?"
    print(f"{visible(what)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _found(user: str, settings: Settings) -> _Found:
    if not _is_there(settings):
        return _Found(Counts(), ())
    async with kept(settings) as store:
        return _Found(await store.counted(user), await store.users())


async def _forget(user: str, settings: Settings) -> int:
    registry = Registry(settings).discover()
    found = await _erased(user, settings)
    failed = await forgotten(registry, user)
    if user in found.users:
        print(f"Erased of {visible(user)}: {listed(found.counts)}, and what specialists keep.")
    else:
        print(visible(nothing_of(user, found.users)), file=sys.stderr)
    for name in failed:
        print(f"brain: {name} could not forget what it keeps of {visible(user)}; try again", file=sys.stderr)
    return FAILED if failed or user not in found.users else DONE


async def _erased(user: str, settings: Settings) -> _Found:
    if not _is_there(settings):
        return _Found(Counts(), ())
    async with kept(settings) as store:
        users = await store.users()
        try:
            return _Found(await store.forget(user), users)
        except BadRequest:
            sentence = f"A turn of {user} is running; wait for its end, or stop it. Nothing was erased."
            raise BrainError(sentence) from None


def _is_there(settings: Settings) -> bool:
    path = path_of(settings.store)
    return path is not None and path.exists()
