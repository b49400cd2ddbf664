"""Tells users what their background tasks did: collects news of a conversation, then lets a turn of it report them."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

from brain.errors import BadRequest, RunsElsewhere, StoreError
from brain.messages import Exchange, History, TaskNews
from brain.prompts.task_news import write_news
from brain.runtime.run import Run
from brain.settings import Settings
from brain.store import conversations, tasks
from brain.store.conversations import ConversationPage
from brain.store.rows import SECOND, micros
from brain.store.store import Store
from brain.store.tasks import NothingToReport, ReportEnd, Unreported
from brain.store.turns import ConversationBusy
from brain.store.tx import Tx
from brain.task import Packet, Task
from brain.tasks import Tasks
from brain.turn_request import TurnRequest

TYPING_SECONDS = 10.0
"""How long a report waits after a person typed."""
APPROVAL_SECONDS = 60.0
"""Time for an approval in a report. It needs a person who reads along."""
BUSY_SECONDS = 1.0
"""Pause after another process was faster, or has a turn of the conversation."""
FAILED_SECONDS = 60.0
"""Pause after a report could not begin."""
MAX_AT_ONCE = 4
"""Reports at the same time in one process."""

Key = tuple[str, str]

log = logging.getLogger("brain")


class TaskReports:
    """Reports the news of background tasks.

    Any process may begin the report of a conversation; since one turn of it runs at a time, one of them does it.

    Args:
        begin: Begins a turn; the model of its request is used if it still exists.
        find_run: Returns the running turn of a conversation in this process.
        now: Returns the time with a time zone.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        settings: Settings,
        begin: Callable[[TurnRequest], Awaitable[Run]],
        find_run: Callable[[str, str], Run | None],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._begin = begin
        self._find_run = find_run
        self._now = now
        self._reporting: dict[Key, asyncio.Task[None]] = {}
        self._not_before: dict[Key, float] = {}  # on the clock of the event loop
        self._blocked: set[Key] = set()  # wait for the end of a turn

    def on_turn_end(self, user: str, conversation_id: str) -> None:
        """Look for news again if a report waited for the end of this turn."""
        if (user, conversation_id) in self._blocked:
            self._tasks.notify()

    async def close(self) -> None:
        """Begin no more reports. Turns that have begun are ended like all others."""
        running = list(self._reporting.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def delay(self, user: str, conversation_id: str) -> None:
        """Let reports in a conversation wait, because the user is typing there."""
        await self._store.write_unsynced(tasks.delay_reports, user, conversation_id, TYPING_SECONDS)

    # the note

    async def take_news(self, request: TurnRequest, history: History, context_tokens: int | None) -> TaskNews | None:
        """Return the news for a turn that has begun; None if there is none for it.

        Args:
            history: The stored history, with the question.
            context_tokens: Context size of the model.

        Raises:
            NothingToReport: The turn is a report.
        """
        is_report = request.source == "report"
        note = None
        if is_report or (history.has_news and _may_report(request, history)):
            try:
                note = await self._read_news(request, history, context_tokens, is_report=is_report)
            except StoreError as error:  # a message is answered, and its turn tells nothing
                log.warning("news of tasks cannot be read: %s", error)
        if note is None and is_report:
            raise NothingToReport
        return note

    async def _read_news(
        self, request: TurnRequest, history: History, context_tokens: int | None, *, is_report: bool
    ) -> TaskNews | None:
        user = request.user or ""
        packets, named = await self._store.read(tasks.read_news, user, history.id)
        if not packets:
            return None
        if not request.private and any(task.private for task in named.values()):
            return None  # a private report tells it
        note = write_news(packets, named, context_tokens, is_report=is_report)
        if note is None:
            await self._store.write(tasks.end_report, ReportEnd(user, history.id, packets[-1].key))
        return note

    # reporting

    def begin_due(self, unreported: Sequence[Unreported]) -> float:
        """Begin the reports that are due. Return the seconds until the next one.

        Args:
            unreported: All conversations with packets to report.
        """
        now = micros(self._store.now())
        time = asyncio.get_running_loop().time()
        self._blocked.clear()
        self._not_before = {key: until for key, until in self._not_before.items() if until > time}
        next_one = math.inf
        for one in unreported:
            key = one.user, one.conversation_id
            if key in self._reporting:
                continue
            if (run := self._find_run(one.conversation_id, one.user)) is not None and not run.has_ended:
                self._blocked.add(key)
                continue
            seconds = max(seconds_until_due(one, now, self._settings), self._not_before.get(key, time) - time)
            if seconds > 0:
                next_one = min(seconds, next_one)
            elif len(self._reporting) < MAX_AT_ONCE:  # the end of a report begins the next one
                self._reporting[key] = asyncio.create_task(self._report(key), name="task report")
        return next_one

    async def _report(self, key: Key) -> None:
        """Report the news of one conversation."""
        pause = self._settings.task_pause_seconds  # even if the end cannot be stored
        try:
            run = await self._begin(await self._make_request(*key))
            run.start()
            with suppress(StoreError):  # only clients that wait for reports miss its begin
                await self._store.write(tasks.append_report, *key, run.id)
            self._tasks.notify()
            await run.wait_ended()
            if run.snapshot().error is not None:
                pause = FAILED_SECONDS
        except (ConversationBusy, NothingToReport, RunsElsewhere):
            pause = BUSY_SECONDS
        except (BadRequest, StoreError) as error:
            log.warning("conversation %s: a report could not begin: %s", key[1], error)
            pause = FAILED_SECONDS
        except Exception:
            log.exception("conversation %s: a report failed", key[1])
            pause = FAILED_SECONDS
        finally:
            del self._reporting[key]
            self._not_before[key] = asyncio.get_running_loop().time() + pause
            self._tasks.notify()

    async def _make_request(self, user: str, conversation_id: str) -> TurnRequest:
        """Return the request for the turn that reports.

        Raises:
            NothingToReport: Nothing is left to tell.
        """

        def read(tx: Tx) -> tuple[list[Packet], dict[str, Task], ConversationPage | None]:
            page = conversations.read_page(tx, user, conversation_id, limit=1)
            return *tasks.read_news(tx, user, conversation_id), page

        packets, named, page = await self._store.read(read)
        if not packets:  # they are damaged, or another process has reported them
            await self._store.write(tasks.set_aside_damaged)
            raise NothingToReport
        task = named.get(packets[-1].task_id)
        zone = self._settings.time_zone if task is None else task.time_zone
        return TurnRequest(
            message="",
            user=user,
            limits=self._settings.limits(),
            syntax=self._settings.syntax,
            time_zone=zone,
            conversation_id=conversation_id,
            model=page.exchanges[-1].model or None if page is not None and page.exchanges else None,
            specialists=frozenset({"tasks"}),
            now=self._now().astimezone(ZoneInfo(zone)),
            asks_person=True,
            source="report",
            private=any(one.private for one in named.values()) or (page is not None and page.conversation.private),
            memory=False,
        )


def seconds_until_due(one: Unreported, now: int, settings: Settings) -> float:
    """Return the seconds until the report of a conversation; zero or less if it is due.

    Times in the future come from a wrong clock and do not count.

    Args:
        now: Microseconds since 1970.
    """
    first, last, reported = (at if at <= now else 0 for at in (one.first_at, one.last_at, one.reported_at))
    due = min(last / SECOND + settings.task_quiet_seconds, first / SECOND + settings.task_wait_seconds)
    due = max(due, reported / SECOND + settings.task_pause_seconds)
    if one.held_until <= now + TYPING_SECONDS * SECOND:
        due = max(due, one.held_until / SECOND)
    return due - now / SECOND


def _may_report(request: TurnRequest, history: History) -> bool:
    """Whether the answer to a message of a person can contain news: it is free text, and stored as new."""
    return (
        request.source in ("chat", "voice", "api")
        and request.user is not None
        and request.replaces is None
        and request.sampling.format is None
        and not request.tools
        and not (history.question is not None and history.question.parts)
    )


def end_report(
    history: History, cursor: int, actions: Sequence[Callable[[Tx], object]] | None, exchange: Exchange
) -> ReportEnd | None:
    """Return the end of a turn that had news; None if it has not told them.

    Args:
        actions: Changes of a report; None for the answer to a message.
    """
    if actions is None:
        is_told = exchange.error is None and exchange.outcome != "cancelled" and bool(exchange.answer.strip())
    else:
        is_told = exchange.outcome != "shutdown"
    return ReportEnd(history.user, history.id, cursor, tuple(actions or ())) if is_told else None
