"""`brain copy-store`: copy a store between SQLite and PostgreSQL."""

import argparse
import asyncio
import shlex

from brain.cli.commands.store_access import print_status, show_progress
from brain.cli.process import DONE, CommandError
from brain.errors import StoreError
from brain.settings import SHARED_STORE, Settings, redact_passwords
from brain.store import copying, database_of
from brain.store.rows import MIB

_COMMAND = "brain copy-store FROM TO"
_UNFINISHED = "The copy is not complete. The same command continues it."


async def copy_store(arguments: argparse.Namespace, settings: Settings) -> int:
    """Copy all data of a store to an empty database, or continue an unfinished copy."""
    source = SHARED_STORE.read(arguments.source, "FROM", f"brain copy-store {_suggest(arguments.source)} TO")
    target = SHARED_STORE.read(arguments.target, "TO", f"brain copy-store FROM {_suggest(arguments.target)}")
    databases = database_of(source), database_of(target)
    if not await databases[0].exists():
        raise CommandError(f"No store at {databases[0].place}", _COMMAND)
    progress = copying.Progress()

    def describe() -> str:
        if not progress.total:
            return "Deleting an outdated copy …" if progress.starts_again else "Opening the databases …"
        return f"{progress.rows:,} of {progress.total:,} rows copied, {progress.size / MIB:,.1f} MiB …"

    try:
        async with show_progress(describe):
            counts = await copying.copy(*databases, progress)
    except asyncio.CancelledError:
        print_status(_UNFINISHED)
        raise
    except StoreError as error:
        raise CommandError(str(error), _UNFINISHED if progress.rows else _COMMAND) from error
    if progress.starts_again:
        print_status("The store was used since the last attempt, so all rows were copied again.")
    places = f"from {databases[0].place} to {databases[1].place}"
    print(f"Copied {sum(counts.values()):,} rows in {len(counts)} tables {places}. Both have the same number of rows.")
    print(f"To use the copy: export BRAIN_STORE={shlex.quote(redact_passwords(target))}")
    return DONE


def _suggest(typed: str) -> str:
    """Return what was probably meant: a path without its scheme, or any file."""
    is_path = typed.strip() and ":" not in typed and "=" not in typed  # `host=HOST` is libpq's form
    return shlex.quote(f"sqlite:{typed}") if is_path else "sqlite:PATH"
