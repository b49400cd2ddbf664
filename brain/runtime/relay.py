"""Connects runs with other processes through the store.

A few times per second, each process writes the new events of all its runs together. Other processes that have readers
of a run follow these events, and store commands for the run. There is no work per token.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from brain.errors import BadRequest, StoreError
from brain.events import Error
from brain.messages import Exchange, to_answer_id
from brain.protocols.native import FrameEncoder, text_of_tokens
from brain.runtime import commands
from brain.runtime.commands import Command, Join, Leave, ShowTurn, StopTurn
from brain.runtime.event_log import LOST_EVENTS, Notify, StoredEventLog, Unsubscribe
from brain.runtime.run import REPLAY_SECONDS, Run, check_ended
from brain.store.rows import moment
from brain.store.turn_log import Frames, NewTurn, StoredTurn, TurnLog, TurnProgress

WRITE_SECONDS = 0.25
POLL_SECONDS = 0.02
"""Interval of the search for commands while other processes have the store open; else `WRITE_SECONDS`."""
CHECK_SECONDS = 2.0
"""Interval of renewing the leases of turns, and of the search for turns of dead processes."""
SNAPSHOT_SECONDS = 2.0
"""Interval of writing the whole answer of a run whose log stores no frames."""
ANSWER_SECONDS = 5.0
"""Time without a reply after which this process checks whether the other one still runs the turn."""
COMMAND_SECONDS = 20.0
CATCH_UP_SECONDS = 2.0
"""Time limit for events that the client has and this process lacks."""
OWNER_GONE = "The server process that wrote this answer ended. Send the message again."
DELETED = "The rest of this stream is no longer stored. The conversation has the answer if it was stored."

log = logging.getLogger("brain")


class _StoredProgress:
    """The stored part of a run of this process.

    Attributes:
        last: Number of the newest event in the store.
    """

    __slots__ = ("exchange", "last", "last_received", "run", "snapshot", "snapshot_at", "turn")

    def __init__(self, run: Run, turn: NewTurn, exchange: int | None, snapshot: Callable[[], Exchange] | None) -> None:
        self.run = run
        self.turn = turn
        self.exchange = exchange
        self.snapshot = snapshot
        self.last = 0
        self.last_received = 0
        self.snapshot_at = 0.0

    def progress(self) -> TurnProgress | None:
        """Return the progress to write now, or None."""
        run = self.run
        if run.log.last == self.last and run.last_received == self.last_received:
            return None
        has_ended = run.log.has_ended
        if not run.log.replayable and not has_ended:
            if time.monotonic() < self.snapshot_at + SNAPSHOT_SECONDS:
                return None
            self.snapshot_at = time.monotonic()
        frames = self._frames()
        text = None if frames is None else text_of_tokens(frames.data)
        is_snapshot = text is None and not has_ended and self.snapshot is not None
        report = commands.encode(run.snapshot()).decode() if text is None or has_ended else ""
        return TurnProgress(
            turn=self.turn,
            exchange=self.exchange,
            frames=frames,
            text="" if is_snapshot or has_ended else text or "",
            snapshot=self.snapshot() if is_snapshot and self.snapshot is not None else None,
            keep_from=run.log.first,
            has_ended=has_ended,
            last_received=run.last_received,
            report=report,
        )

    def _frames(self) -> Frames | None:
        log = self.run.log
        first = max(self.last + 1, log.first)
        return (
            Frames(first, log.last, b"".join(log.frames(first - 1))) if log.replayable and log.last >= first else None
        )

    def mark_written(self, progress: TurnProgress, last: int) -> None:
        """Record that this progress was written."""
        self.last, self.last_received = last, progress.last_received
        if progress.has_ended:
            self.snapshot = None

    @property
    def is_complete(self) -> bool:
        """Whether everything is written."""
        return self.run.log.has_ended and (self.last, self.last_received) == (self.run.log.last, self.run.last_received)


class RemoteRun:
    """A run of another process; see `AnyRun`.

    Attributes:
        log: A copy of the stored log. It grows while the run has readers here.
        is_stopping: Whether the turn was stopping when it last replied to a command.
    """

    def __init__(self, relay: "Relay", turn: StoredTurn) -> None:
        self.id = turn.id
        self.user = turn.user
        self.conversation_id = turn.conversation_id
        self.options = turn.options
        self.log = StoredEventLog(turn.id, replayable=turn.is_replayable)
        self.last_received = turn.last_received
        self.is_stopping = False
        self._reached = 0  # number of the newest known event
        self._relay = relay

    @property
    def has_ended(self) -> bool:
        return self.log.has_ended

    @property
    def readers(self) -> int:
        """Number of readers in this process."""
        return self.log.subscribers

    async def control(self, command: Command) -> Exchange:
        answer = await self._relay.send(self.id, command)
        self.is_stopping = answer.is_stopping
        self._reached = max(self._reached, answer.last)
        return answer.get_exchange()

    def is_waiting_for(self, call_ids: Collection[str]) -> bool:
        """Return True: the owner of the run knows better and checks the decision."""
        return True

    def stop(self) -> None:
        self._relay.post(self.id, StopTurn())

    def join(self, notify: Notify) -> Unsubscribe:
        self._relay.post(self.id, Join())
        return self._relay.follow(self, notify)

    def leave(self, *, will_reconnect: bool = False) -> None:
        self._relay.post(self.id, Leave(self.last_received, will_reconnect))

    async def wait_ended(self) -> None:
        await self._wait_until(lambda: self.log.has_ended)

    async def catch_up(self, number: int = 0) -> None:
        """See `AnyRun.catch_up`. If the owner is dead, this waits for the end of the turn."""
        if number > self.log.last and not self.has_ended:
            has_ended = True
            with suppress(BadRequest):  # no reply
                has_ended = bool((await self.control(ShowTurn())).outcome)
            if has_ended:
                await self.wait_ended()
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._wait_until(lambda: self.log.has_ended or self.log.last >= self._reached)

    async def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        if is_reached():
            return
        reached = asyncio.Event()
        unsubscribe = self._relay.follow(self, lambda events, frames: reached.set() if is_reached() else None)
        try:
            await reached.wait()
        finally:
            unsubscribe()


class Relay:
    """The connection of one process with the others.

    Args:
        runs: Runs of this process by ID.
    """

    def __init__(self, turn_log: TurnLog, runs: Mapping[str, Run]) -> None:
        self._turn_log = turn_log
        self._runs = runs
        self._unwritten: dict[str, _StoredProgress] = {}
        self._deleted: list[str] = []
        self._remote: WeakValueDictionary[str, RemoteRun] = WeakValueDictionary()
        self._followed: dict[str, RemoteRun] = {}
        self._answers: dict[int, asyncio.Future[commands.CommandReply]] = {}
        self._last_command = 0
        self._version = -1
        self._is_registered = False
        self._has_peers = True
        self._posts: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._has_changes = asyncio.Event()
        self._is_active = asyncio.Event()
        self._has_failed = False
        self._is_writing = asyncio.Lock()

    async def open(self) -> None:
        """Start writing and polling."""
        await self._register()
        loops = self._write_forever(), self._poll_forever(), self._check_forever()
        self._tasks = [asyncio.create_task(one, name="relay") for one in loops]

    async def close(self) -> None:
        """Write the remaining progress and stop."""
        async with self._is_writing:  # a cancelled write would be repeated
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._posts)
        self._tasks.clear()
        await self.write()
        with suppress(StoreError):
            await self._turn_log.unregister()

    async def _register(self) -> None:
        with suppress(StoreError):  # the next `check` tries again
            await self._turn_log.register()
            self._is_registered = True

    # Runs of this process

    def add(self, run: Run, turn: NewTurn, exchange: int | None, snapshot: Callable[[], Exchange]) -> None:
        """Make a run of this process visible to other processes.

        Args:
            exchange: Key of its exchange, if it is stored.
            snapshot: Returns the exchange so far.
        """
        stored = self._unwritten[run.id] = _StoredProgress(
            run, turn, exchange, snapshot if exchange is not None else None
        )

        def write_again() -> None:
            if not stored.is_complete:
                self._unwritten[run.id] = stored
                self._has_changes.set()

        run.on_left = write_again
        self._has_changes.set()
        self._is_active.set()

    def delete(self, turn_id: str) -> None:
        """Delete a turn of this process from the store."""
        self._unwritten.pop(turn_id, None)
        self._deleted.append(turn_id)
        self._has_changes.set()

    async def write(self) -> None:
        """Write the progress of all runs of this process in one transaction."""
        async with self._is_writing:
            new = [
                (one, one.run.log.last, progress) for one in self._unwritten.values() if (progress := one.progress())
            ]
            deleted, self._deleted = self._deleted, []
            if not new and not deleted:
                return
            try:
                await self._turn_log.write([progress for _, _, progress in new], deleted)
            except StoreError as error:
                self._deleted += deleted
                if not self._has_failed:
                    log.warning("the progress of turns cannot be stored: %s", error)
                self._has_failed = True
                return
            self._has_failed = False
            for one, last, progress in new:
                one.mark_written(progress, last)
                if one.is_complete:
                    self._unwritten.pop(one.run.id, None)

    async def _write_forever(self) -> None:
        while True:
            await self._has_changes.wait()
            await asyncio.sleep(WRITE_SECONDS)
            await self.write()
            if not self._unwritten and not self._deleted:
                self._has_changes.clear()

    # Runs of other processes

    async def find(self, turn_id: str, user: str | None) -> RemoteRun | None:
        """Return a run of another process, if it belongs to the user."""
        return await self._open_remote(await self._turn_log.find(turn_id), user)

    async def find_requested(self, user: str | None, request_id: str) -> RemoteRun | None:
        """Return the run that the user began in another process with this request ID."""
        return await self._open_remote(await self._turn_log.find_request(user, request_id), user)

    async def find_newest(self, user: str | None, conversation_id: str) -> Run | RemoteRun | None:
        """Return the newest run of a conversation in any process."""
        turn = await self._turn_log.find_newest(user, conversation_id)
        own = None if turn is None else self._runs.get(turn.id)
        return own or await self._open_remote(turn, user)

    async def _open_remote(self, turn: StoredTurn | None, user: str | None) -> RemoteRun | None:
        if turn is None or turn.user != user:
            return None
        run = self._remote.get(turn.id)
        if run is None:
            run = self._remote[turn.id] = RemoteRun(self, turn)
        run.last_received = max(run.last_received, turn.last_received)
        news = await self._turn_log.read_news(self._last_command, {run.id: run.log.last}, ())
        run.log.extend(news.frames.get(run.id, ()))
        return run

    def follow(self, run: RemoteRun, notify: Notify) -> Unsubscribe:
        """Follow the events of a run of another process from now on."""
        unsubscribe = run.log.subscribe(notify)
        self._followed[run.id] = run
        self._version = -1  # another process may have written something since the last read
        self._is_active.set()

        def leave() -> None:
            unsubscribe()
            if not run.log.subscribers:
                self._followed.pop(run.id, None)

        return leave

    async def send(self, turn_id: str, command: Command) -> commands.CommandReply:
        """Send a command to the process that runs a turn, and wait for the reply.

        Raises:
            BadRequest: The command was rejected. `not_found`: the turn is unknown. `unavailable`: there is no reply.
        """
        data, key = commands.encode(command), None
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                while True:
                    turn = await self._turn_log.find(turn_id)
                    if turn is None:
                        raise _not_found()
                    if turn.ended is not None:
                        exchange = commands.decode_exchange(turn.report)
                        check_ended(command, exchange)
                        return commands.CommandReply(exchange)
                    if key is None:
                        key = await self._turn_log.add_command(turn_id, data)
                    future = self._answers.setdefault(key, asyncio.get_running_loop().create_future())
                    self._version = -1
                    self._is_active.set()
                    await asyncio.wait({future}, timeout=ANSWER_SECONDS)
                    if future.done():
                        return future.result()
        except TimeoutError:
            message = f"The server process that runs this turn did not reply within {COMMAND_SECONDS:g} s. Try again."
            raise BadRequest(message, code="unavailable", status=503) from None
        finally:
            if key is not None:
                self._answers.pop(key, None)

    def post(self, turn_id: str, command: Command) -> None:
        """Send a command without waiting for a reply."""
        before = tuple(self._posts)
        task = asyncio.create_task(self._post(turn_id, command, before), name="relay")
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _post(self, turn_id: str, command: Command, before: Sequence[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        try:
            if isinstance(command, Leave):
                await self._turn_log.leave(turn_id, command.last_received)
            await self._turn_log.add_command(turn_id, commands.encode(command), is_answered=False)
        except StoreError as error:
            log.warning("turn %s of another process cannot be reached: %s", turn_id, error)

    async def _poll_forever(self) -> None:
        while True:
            if not self._runs and not self._followed and not self._answers:
                self._is_active.clear()
                await self._is_active.wait()
                self._has_peers = True  # a process may have opened the file in the meantime
            await asyncio.sleep(POLL_SECONDS if self._has_peers else WRITE_SECONDS)
            version = self._turn_log.version()
            if version == self._version:
                continue
            self._version = version
            try:
                await self._read_news()
            except StoreError as error:
                self._version = -1
                log.warning("the news of other processes cannot be read: %s", error)
                await asyncio.sleep(CHECK_SECONDS)

    async def _read_news(self) -> None:
        followed = {turn_id: run.log.last for turn_id, run in self._followed.items()}
        news = await self._turn_log.read_news(self._last_command, followed, tuple(self._answers))
        self._has_peers = news.has_peers
        for turn_id, frames in news.frames.items():
            if turn_id in self._followed:
                self._followed[turn_id].log.extend(frames)
        for turn_id in news.ended:
            run = self._followed.get(turn_id)
            if run is not None and not run.log.has_ended:
                run.log.extend([_end(turn_id, run.log.last, Error("shutdown", DELETED, recoverable=True))])
        for key, data in news.answers.items():
            future = self._answers.get(key)
            if future is not None and not future.done():
                future.set_result(commands.decode_reply(data))
        if news.commands:
            self._last_command = news.commands[-1].key
            answers = {one.key: self._carry_out(one.turn_id, one.data) for one in news.commands}
            await self.write()  # the client may want to read from here
            await self._turn_log.add_answers(answers)

    def _carry_out(self, turn_id: str, data: bytes) -> bytes:
        run = self._runs.get(turn_id)
        if run is None:
            return commands.encode(commands.reject(_not_found()))
        try:
            run.apply(commands.decode_command(data))
        except BadRequest as error:
            return commands.encode(commands.reject(error))
        return commands.encode(commands.CommandReply(run.snapshot(), run.is_stopping, run.log.last))

    # Dead processes

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except StoreError as error:
                log.warning("the leases of turns cannot be renewed: %s", error)

    async def check(self) -> None:
        """Renew the leases of this process, and end the turns of dead processes."""
        if not self._is_registered:
            await self._register()
        expired, is_too_long = await self._turn_log.find_expired()
        if is_too_long or any(not one.run.has_ended for one in self._unwritten.values()):
            await self._turn_log.renew_leases()
        for turn, last in expired:
            log.warning("turn %s is interrupted: the process that ran it ended", turn.id)
            error = Error("shutdown", OWNER_GONE, recoverable=True)
            exchange = commands.decode_exchange(turn.report) if turn.report else _begun(turn)
            exchange.outcome, exchange.error = error.code, error
            await self._turn_log.end_expired(turn, _end(turn.id, last, error), commands.encode(exchange).decode())
        await self._turn_log.sweep(REPLAY_SECONDS)


def _end(turn_id: str, last: int, error: Error) -> Frames:
    """Return the end of a turn whose owner may have sent more events than the last stored one."""
    number = last + LOST_EVENTS + 1
    return Frames(number, number, FrameEncoder(turn_id, number - 1).encode([error]))


def _begun(turn: StoredTurn) -> Exchange:
    """Return the exchange of a turn whose owner stored none."""
    return Exchange("", answer_id=to_answer_id(turn.id), started=moment(turn.started))


def _not_found() -> BadRequest:
    return BadRequest("This turn does not exist or is no longer available.", code="not_found", status=404)
