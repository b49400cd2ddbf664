"""Roof: `brain forget`: erases all that is kept of a user, when somebody says that it is meant."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from brain.commands.kept import chat_history, kept, listed, nothing_of
from brain.errors import BadRequest, BrainError, StoreError
from brain.forgetting import forgotten
from brain.kept import Counts
from brain.process import DONE, FAILED, completed
from brain.registry import Registry
from brain.settings import LOCAL_USER, Settings
from brain.store import path_of
from brain.store.sqlite import SQLite
from brain.unicode import escaped


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
    print(f"{escaped(what)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _found(user: str, settings: Settings) -> _Found:
    if not _is_there(settings):
        return _Found(Counts(), ())
    async with kept(settings) as store:
        return _Found(await store.counted(user), await store.users())


async def _forget(user: str, settings: Settings) -> int:
    """Rows first, then what specialists keep, then the traces of the rows in the file: each is done whatever became of
    those behind it."""
    registry = Registry(settings).discover()
    if user == LOCAL_USER:
        chat_history().unlink(missing_ok=True)
    if not _is_there(settings):
        print(escaped(nothing_of(user, ())), file=sys.stderr)
        await _forgotten(registry, user)
        return FAILED
    async with kept(settings) as store:
        is_known = await _erased(store, user)
        is_forgotten = await _forgotten(registry, user)
        is_scrubbed = await _scrubbed(store)
    return DONE if is_known and is_forgotten and is_scrubbed else FAILED


async def _erased(store: SQLite, user: str) -> bool:
    """Erases the rows of a user; whether there were any."""
    users = await store.users()
    try:
        counts = await store.forget(user)
    except BadRequest:
        sentence = f"A turn of {user} is running; wait for its end, or stop it. Nothing was erased."
        raise BrainError(sentence) from None
    if user in users:
        print(f"Erased of {escaped(user)}: {listed(counts)}.", flush=True)
    else:
        print(escaped(nothing_of(user, users)), file=sys.stderr)
    return user in users


async def _forgotten(registry: Registry, user: str) -> bool:
    """Has specialists forget what they keep of a user; whether all could."""
    failed = await forgotten(registry, user)
    for name in failed:
        print(f"brain: {name} could not forget what it keeps of {escaped(user)}; run it again", file=sys.stderr)
    return not failed


async def _scrubbed(store: SQLite) -> bool:
    """Removes the traces of what was erased, now or earlier; whether all could be."""
    try:
        await store.scrub()
    except StoreError as error:
        reason = error.message.rstrip(".").partition(";")[0]
        sentence = "what is erased has left traces in the free space of the file, which are still there"
        print(f"brain: {sentence}: {reason}; run it again", file=sys.stderr)
        return False
    return True


def _is_there(settings: Settings) -> bool:
    path = path_of(settings.store)
    return path is not None and path.exists()
