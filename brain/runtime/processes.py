"""This process among those that use the store: its lease, the checkpoints of its turns, and the turns of dead ones."""

import asyncio
import errno
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple

import msgspec

from brain.errors import BadRequest, OutcomeUnknown, RunsElsewhere, StoreError
from brain.messages import new_process_id, process_of
from brain.runtime.run import Run, RunOptions
from brain.runtime.stored_exchange import StoredExchange
from brain.store import processes, tasks, turns
from brain.store.processes import LEASE_SECONDS, Process
from brain.store.store import Store
from brain.store.turns import Claimed, Place
from brain.store.tx import Tx
from brain.turn_request import TurnRequest

LOOK_SECONDS = 1.0
"""Interval of renewing the lease, of checkpoints, and of the search for processes that died."""
RETURN_SECONDS = 30.0
"""Time for the client of a claimed turn to come back, unless the turn is detached."""
MAX_CLAIMS = 5
"""How often a turn continues after its process died. Then it is interrupted, because it may be the cause."""
UNIX = "unix:"
"""Begins an address that is the path of a socket."""

log = logging.getLogger("brain")


class ResumableTurn(msgspec.Struct):
    """How another process continues a turn.

    Attributes:
        request: Its request, without files.
        is_from_client: Whether the client sent the conversation.
    """

    request: TurnRequest
    protocol: str
    options: RunOptions
    is_from_client: bool


Continue = Callable[[Claimed, ResumableTurn], Awaitable[Run]]
"""Continues a claimed turn."""

decode = msgspec.json.Decoder(ResumableTurn).decode


class _Running(NamedTuple):
    run: Run
    stored: StoredExchange


class _Waiting(NamedTuple):
    """A claimed turn whose client must come back until a time of `time.monotonic`. Without `how`, it is interrupted."""

    claimed: Claimed
    how: ResumableTurn | None
    until: float


class Processes:
    """See the module. Each look at the store is one transaction that reads, and at most one that writes.

    Args:
        recent: Limit of earlier exchanges for a turn.
        continue_turn: Continues a claimed turn.
        hand_over: Stops a run that another process continues.

    Attributes:
        secret: What all processes of the store know.
        address: Where this process takes forwarded requests. Without one, it continues no turns of others.
        is_closing: Whether this process takes no more turns.
        is_away: Whether the last look at the store failed. Nothing can be handed over then.
    """

    def __init__(self, store: Store, recent: int, continue_turn: Continue, hand_over: Callable[[Run], None]) -> None:
        self.secret = token_bytes(32)  # unknown to all, until this process has joined
        self.address = ""
        self.is_closing = False
        self.is_away = False
        self._store = store
        self._recent = recent
        self._continue = continue_turn
        self._hand_over = hand_over
        self._read_at = -math.inf
        self._patient_until = -math.inf
        self._others: Mapping[str, Process] = {}
        self._lost: dict[str, asyncio.Event] = {}
        self._running: dict[str, _Running] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._beginning: set[int] = set()  # exchanges of claimed turns of which this process makes runs
        self._has_orphans = False
        self._has_unknown = False  # whether it may have claimed turns without learning of it
        self._loop: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Add this process to the store, and look for turns of dead ones from now on."""
        with suppress(StoreError):  # such as of a file that cannot be written
            await self._join()
            await self.look()
        self._loop = asyncio.create_task(self._look_forever(), name="processes")

    async def close(self) -> None:
        """Remove this process from the store."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        with suppress(StoreError):
            await self._store.write_unsynced(processes.remove)

    async def listen_at(self, address: str) -> None:
        """Take forwarded requests at an address from now on, and continue turns of dead processes.

        Clients may ask for these turns when this returns, and for new ones at other processes.
        """
        self.address = address
        try:
            await self._store.write_unsynced(processes.renew, address)
            await self._claim()
        except StoreError as error:  # such as of a file that cannot be written
            log.warning("other processes cannot reach this one yet: %s", error)

    # Other processes

    @property
    def process(self) -> str:
        """The ID of this process."""
        return self._store.database.process

    @property
    def _has_all(self) -> bool:
        """Whether this process has the runs of all turns."""
        return not (self._others or self._has_orphans or self._waiting or self._beginning)

    @property
    def _continues(self) -> bool:
        """Whether this process continues turns of dead ones."""
        return bool(self.address) and not self.is_closing

    @property
    def can_take_over(self) -> bool:
        """Whether another process can continue turns."""
        return any(one.address and not one.is_over and not one.is_stopping for one in self._others.values())

    def clock(self) -> float:
        """Return the time of the store, in seconds since 1970."""
        return self._store.database.clock()

    def lost(self, process: str) -> asyncio.Event:
        """Return an event that is set when the lease of a process is over."""
        return self._lost.setdefault(process, asyncio.Event())

    async def stop(self) -> None:
        """Record that this process takes no more turns."""
        self.is_closing = True
        with suppress(StoreError):
            await self.look()

    async def raise_if_elsewhere(self, process: str) -> None:
        """Check that a process that runs a turn takes no forwarded requests.

        Raises:
            RunsElsewhere: It does.
        """
        other = self._others.get(process)
        if process != self.process and (other is None or not other.address):  # it may have come since the last look
            await self._read()
            other = self._others.get(process)
        if other is not None and other.address:
            raise RunsElsewhere(process, other.address)

    async def raise_if_task_elsewhere(self, user: str, task_id: str) -> None:
        """Check that no other process runs a task, since it should notice at once that the task is canceled.

        Raises:
            RunsElsewhere: One does, which takes forwarded requests.
        """
        if self._others:
            process = await self._store.read(tasks.find_process, user, task_id)
            if process is not None:
                await self.raise_if_elsewhere(process)

    async def find(self, turn_id: str, user: str | None) -> Run | None:
        """Return the run of a claimed turn, which begins now; None if no process has a turn with this ID.

        Raises:
            RunsElsewhere: Another process has it, or can claim it soon.
        """
        if process_of(turn_id) == self.process and self._has_all:
            return None
        if (run := await self._take(turn_id, user)) is not None:
            return run
        first = process_of(turn_id)
        if (other := self._others.get(first)) is None or not other.is_stopping:  # else another one may continue it
            await self.raise_if_elsewhere(first)
        place = await self._store.search(turns.find_place, user or "", turn_id)
        if place is None:  # it is not stored
            await self.raise_if_elsewhere(first)
        return await self._go_to(place, user)

    async def find_requested(self, user: str, request_id: str) -> Run | None:
        """Return the run of the turn that a user began with this request ID, as `find` does.

        Raises:
            BadRequest: `interrupted`: the turn has no more events.
            RunsElsewhere: As for `find`.
        """
        place = await self._store.read(turns.find_request, user, request_id)
        run = await self._go_to(place, user)
        if run is None and place is not None and place.process != self.process:
            message = "The server process that ran this turn ended. Its answer so far is in the conversation."
            raise BadRequest(message, "request_id", code="interrupted", status=409)
        return run

    async def find_newest(self, conversation_id: str, user: str) -> Run | None:
        """Return the run of the newest turn of a conversation, as `find` does.

        Raises:
            RunsElsewhere: As for `find`.
        """
        if self._has_all:
            return None
        return await self._go_to(await self._store.read(turns.find_newest, user, conversation_id), user)

    async def _go_to(self, place: Place | None, user: str | None) -> Run | None:
        if place is None or place.has_expired:
            return None
        if (run := await self._take(place.turn_id, user)) is not None:
            return run
        await self.raise_if_elsewhere(place.process)
        if place.is_running and place.process not in self._others:  # it begins here now, or its process has died
            raise RunsElsewhere(place.process, "")
        return None

    async def _read(self) -> bool:
        """Read which processes live. Return whether this one is among them."""
        listed, self._has_orphans = await self._store.read(_look, self._continues)
        found = {one.id: one for one in listed}
        own = found.pop(self.process, None)
        # others need a moment to renew their leases: one that was alone has not seen this process yet, and the database
        # may have been away for all
        if (now := time.monotonic()) > self._read_at + LEASE_SECONDS:
            self._patient_until = now + LEASE_SECONDS
        self._read_at = now
        if now < self._patient_until:
            found = {key: one._replace(is_over=False) for key, one in found.items()}
        if self._others.keys() - found.keys():  # a process that died has not announced its last changes
            self._store.database.note_change()
        self._others = found
        for process in [one for one in self._lost if one not in found or found[one].is_over]:
            self._lost.pop(process).set()
        return own is not None

    # This process

    async def _join(self) -> None:
        self.secret = bytes.fromhex(await self._store.write_unsynced(processes.add, self.address))
        self._read_at = -math.inf

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            was_away = self.is_away
            try:
                await self.look()
            except StoreError as error:
                if not was_away:
                    log.warning("the lease of this process cannot be renewed: %s", error)
            except Exception:
                log.exception("the turns of other processes could not be continued")

    async def look(self) -> None:
        """Renew the lease, write checkpoints, and claim the turns of processes that died.

        Raises:
            StoreError: The store cannot be used now.
        """
        try:
            await self._look()
        except StoreError:
            self.is_away = True
            raise
        self.is_away = False

    async def _look(self) -> None:
        if not await self._read():
            await self._rejoin()
            await self._read()
        await self._write()
        dead = [one for one in self._others.values() if one.is_over]
        if dead:
            for address in await self._store.write(processes.remove_dead):
                _remove_socket(address)
            log.warning("the leases of %d processes are over", len(dead))
        if self._has_unknown:
            await self._give_back_unknown()
        if dead or self._has_orphans:
            await self._claim()
        await self._continue_waiting()

    async def _rejoin(self) -> None:
        """Join under a new ID. Another process found the lease of this one over, and may have claimed its turns."""
        log.warning("this process was considered dead; its %d turns continue elsewhere", len(self._running))
        for one in tuple(self._running.values()):
            self._hand_over(one.run)
        self._waiting.clear()
        self._store.database.process = new_process_id()
        await self._join()

    async def _write(self) -> None:
        """Renew the lease if there are others, and write what the store lacks of running turns."""
        writes = [
            (one, write)
            for one in self._running.values()
            if (write := one.stored.draft(one.run.snapshot())) is not None
        ]
        if not writes and not self._others and not self.is_closing:
            return

        def write_all(tx: Tx, process: str) -> list[_Running]:
            processes.renew(tx, self.address, is_stopping=self.is_closing)
            return [one for one, draft in writes if not draft(tx)]

        try:
            lost = await self._store.write_unsynced(write_all, self.process)
        except StoreError:
            for one, _ in writes:
                one.stored.forget_draft()
            raise
        for one in lost:
            if not one.stored.is_ending:  # else its end was written before the draft
                self._hand_over(one.run)

    def add(self, run: Run, stored: StoredExchange) -> None:
        """Write checkpoints of a run until it ends."""
        running = self._running[run.id] = _Running(run, stored)
        stored.on_taken = partial(self._hand_over, run)

        def remove(run: Run) -> None:
            if self._running.get(run.id) is running:  # else this process itself continues the turn
                del self._running[run.id]

        run.on_end.append(remove)

    def release_detached(self) -> None:
        """Hand over the turns that continue without a client."""
        for run, stored in tuple(self._running.values()):
            if run.options.is_detached:
                stored.is_released = True
                self._hand_over(run)

    # Claimed turns

    async def _claim(self) -> None:
        has_more = True
        while has_more:
            try:
                claimed, has_more = await self._store.write(turns.claim, self._recent, continues=self._continues)
            except OutcomeUnknown:
                self._has_unknown = True
                raise
            for one in claimed:  # without a pause, so that an error with one loses no other
                self._receive(one)

    async def _give_back_unknown(self) -> None:
        running = [one.stored.history.key for one in self._running.values()]
        waiting = [one.claimed.history.key for one in self._waiting.values()]
        await self._store.write(turns.give_back, [*running, *waiting, *self._beginning])
        self._has_unknown, self._has_orphans = False, True

    def _receive(self, claimed: Claimed) -> None:
        """Let a claimed turn wait to be continued or interrupted."""
        question, history = claimed.history.question, claimed.history
        assert question is not None
        how, left = None, 0.0
        with suppress(msgspec.MsgspecError):  # another version wrote it
            how = decode(claimed.resume)
        if how is not None and history.epoch <= MAX_CLAIMS:
            seconds = (self._store.now() - question.started).total_seconds() if question.started is not None else 0.0
            left = how.request.limits.turn_seconds - seconds
        log.info("turn %s is taken over, since its process has ended", question.turn_id)
        self._waiting[question.turn_id] = _Waiting(claimed, how, time.monotonic() + min(left, RETURN_SECONDS))

    async def _continue_waiting(self) -> None:
        """Continue the turns that need no client, and interrupt those whose time is over."""
        for turn_id, one in tuple(self._waiting.items()):
            if time.monotonic() >= one.until:
                await self._interrupt(turn_id)
            elif one.how is not None and one.how.options.is_detached:
                await self._take(turn_id, one.claimed.history.user)

    async def _take(self, turn_id: str, user: str | None) -> Run | None:
        """Continue a waiting turn of a user, if there is one with this ID."""
        waiting = self._waiting.get(turn_id)
        if waiting is None or waiting.how is None or waiting.claimed.history.user != (user or ""):
            return None
        del self._waiting[turn_id]
        self._beginning.add(waiting.claimed.history.key)
        try:
            run = await self._continue(waiting.claimed, waiting.how)
        except BadRequest as error:  # such as a model that this server no longer has
            log.warning("turn %s cannot be continued: %s", turn_id, error)
            self._waiting[turn_id] = waiting
            await self._interrupt(turn_id)
            return None
        except BaseException:  # such as an error of the store: it waits for the next look
            self._waiting[turn_id] = waiting
            raise
        finally:
            self._beginning.discard(waiting.claimed.history.key)
        run.start()
        return run

    async def interrupt(self, conversation_id: str, user: str) -> bool:
        """Interrupt the claimed turn of a conversation whose client has not come back. Return whether there was one."""
        for turn_id, one in tuple(self._waiting.items()):
            if (one.claimed.history.id, one.claimed.history.user) == (conversation_id, user):
                await self._interrupt(turn_id)
                return True
        return False

    async def _interrupt(self, turn_id: str) -> None:
        """Interrupt a waiting turn. If that fails, it waits for the next look."""
        if (waiting := self._waiting.pop(turn_id, None)) is None:
            return
        try:
            await self._store.write(turns.interrupt, waiting.claimed.history)
        except StoreError:
            self._waiting[turn_id] = waiting
            raise


def _look(tx: Tx, continues: bool) -> tuple[list[Process], bool]:
    """Return all processes, and whether turns of dead ones can be claimed."""
    return processes.read(tx), turns.has_orphans(tx, continues=continues)


def _remove_socket(address: str) -> None:
    """Remove the socket of a process that could not do it. A frozen one still listens, and needs it when it wakes."""
    if not address.startswith(UNIX):
        return
    path = Path(address.removeprefix(UNIX))
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.setblocking(False)
        if path.is_socket() and client.connect_ex(str(path)) == errno.ECONNREFUSED:  # as other files do, too
            path.unlink()
            path.parent.rmdir()  # unless it has those of other workers
