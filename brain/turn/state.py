"""What changes while a turn runs."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import UTC, datetime

from brain.events import Event, Notice
from brain.messages import Call, Exchange, Part, RoundRecord, to_answer_id
from brain.plugins.executor import Outcome
from brain.turn.accounting import Accounting
from brain.turn.approvals import Approvals
from brain.turn.call_policy import CallPolicy
from brain.turn.deadline import Deadline
from brain.turn.notices import Annotations
from brain.turn.setup import TurnSetup

MAX_ANSWER_LENGTH = 8 * 1024 * 1024
"""Characters of visible text. A model that writes more would never end."""

Emit = Callable[[Sequence[Event]], None]
"""Takes events that happen together."""


class TurnState:
    """What changes while a turn runs.

    Attributes:
        exchange: Question and answer so far.
        accounting: Times and tokens.
        annotations: Notices and reasoning.
        rounds: The rounds of the strategy so far.
        policy: Decides about calls, and has them.
        approvals: Approval requests and decisions.
        inbox: Messages of the user to inject.
        model: The model of the current pass.
        checkpoint: Stores the answer so far, from which another process can continue the turn.
        shows_all: Whether the user sees all text of the model.
        characters_left: Characters of visible text that the turn may still have.
        max_block_bytes: Size limit of one result block.
        outcomes: Outcomes of calls that run or have ended, by `call_key`.
        emit: Receives the events of the turn.
        deadline: Time limits of the running turn.
    """

    emit: Emit
    deadline: Deadline

    def __init__(self, setup: TurnSetup) -> None:
        history = setup.history
        self.exchange = history.question or Exchange(question="")
        self.exchange.answer_id = to_answer_id(setup.turn_id)
        self.exchange.started = self.exchange.started or datetime.now(UTC)
        if setup.resumes_after is None:
            self.exchange.recalled_ids = tuple(item.id for item in history.recalled.items)
            self.exchange.told_tasks = () if history.task_news is None else history.task_news.task_ids
        self.exchange.strategy = setup.request.strategy
        self.rounds: list[RoundRecord] = []
        self.accounting = Accounting(self.rounds)
        self.annotations = Annotations()
        self.policy = CallPolicy(setup)
        self.approvals = Approvals(setup.timeouts.approval)
        self.inbox: list[str] = []
        self.model = setup.models[0]
        self.shows_all = True
        self.characters_left = MAX_ANSWER_LENGTH
        self.max_block_bytes = sys.maxsize
        self.checkpoint: Callable[[], Awaitable[None]] | None = None
        is_taken_over = setup.resumes_after is not None and setup.request.task is None
        self._parts_before = 0 if is_taken_over else len(self.exchange.parts)
        self.outcomes: dict[Hashable, asyncio.Future[Outcome]] = {}
        if setup.resumes_after is not None:
            self._resume()

    def _resume(self) -> None:
        """Take over what the turn did before it was interrupted."""
        exchange = self.exchange
        self.policy.resume([part for part in exchange.parts if isinstance(part, Call)])
        self.accounting.resume(exchange.passes, max((part.turn_pass for part in exchange.parts), default=0))
        self.annotations.resume(exchange.annotations)
        self.rounds += exchange.rounds

    @property
    def is_new(self) -> bool:
        """Whether the turn did not begin with parts, as one that continues does."""
        return not self._parts_before

    @property
    def own_parts(self) -> Sequence[Part]:
        """The parts that this process added."""
        return self.exchange.parts[self._parts_before :]

    def tokens_left(self, limit: int | None) -> int | None:
        """Return the tokens that a pass may write, or None if the client set no limit.

        The passes of one model share the limit. With a strategy, each pass has it for itself, because most of them
        write nothing that the client reads.
        """
        if limit is None or not self.shows_all:
            return limit
        return max(0, limit - self.accounting.usage.completion_tokens)

    def show_notice(self, *notices: Notice) -> None:
        """Emit notices, and record them for the stored answer."""
        if notices:
            self.emit([*map(self.annotations.add_notice, notices)])
