"""The processes that use a store. A process lives while it has a row here.

Each renews its lease once a second as long as there are others. Any process that finds a lease that is over deletes the
row; the turns and tasks of the dead process can then be claimed. A process that was only frozen finds that its row is
gone.
"""

from typing import NamedTuple

from brain.store.rows import SECOND
from brain.store.schema import PROCESS_SECRET, VERSION
from brain.store.tx import Tx

LEASE_SECONDS = 3.0
MAX_STEP_SECONDS = 60.0
"""A clock of a server that is set back by less ends no lease."""


class Process(NamedTuple):
    """A process that uses the store.

    Attributes:
        address: where it takes forwarded requests; empty if it takes none.
        is_over: whether its lease is over.
        is_stopping: whether it takes no new turns.
    """

    id: str
    address: str
    is_over: bool
    is_stopping: bool


def read(tx: Tx) -> list[Process]:
    """Return all processes."""
    found = tx.execute("SELECT id, address, until, is_stopping FROM process ORDER BY id")
    # a lease that is too long is from before a restart of the machine, which set the clock to 0
    return [
        Process(name, address, not tx.uptime <= until <= _latest(tx), bool(stops))
        for name, address, until, stops in found
    ]


def add(tx: Tx, address: str) -> str:
    """Add this process, and return the secret that all processes share."""
    query = "INSERT INTO process (id, address, until, version) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    tx.execute(query, (tx.process, address, _until(tx), VERSION))
    return str(tx.execute("SELECT value FROM server_value WHERE name = ?", (PROCESS_SECRET,)).fetchone()[0])


def renew(tx: Tx, address: str, *, is_stopping: bool = False) -> None:
    """Renew the lease of this process, unless another process found that the lease was over.

    Args:
        is_stopping: whether this process takes no new turns.
    """
    query = "UPDATE process SET until = ?, address = ?, is_stopping = ? WHERE id = ?"
    tx.execute(query, (_until(tx), address, is_stopping, tx.process))


def remove(tx: Tx) -> None:
    """Remove this process."""
    tx.execute("DELETE FROM process WHERE id = ?", (tx.process,))


def remove_dead(tx: Tx) -> list[str]:
    """Remove the processes whose lease is over, except this one; return their addresses."""
    query = "DELETE FROM process WHERE until NOT BETWEEN ? AND ? AND id <> ? RETURNING address"
    return [str(address) for (address,) in tx.execute(query, (tx.uptime, _latest(tx), tx.process)).fetchall()]


def remove_all(tx: Tx) -> None:
    """Remove all processes. Requires that no other process has the file open."""
    tx.execute("DELETE FROM process")


def _until(tx: Tx) -> int:
    return tx.uptime + round(LEASE_SECONDS * SECOND)


def _latest(tx: Tx) -> int:
    """Return the latest end of a lease that is not from before a restart of the machine."""
    return _until(tx) + round(MAX_STEP_SECONDS * SECOND)
