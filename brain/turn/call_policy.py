"""How many calls a turn may make, and for how long. Pure: no clock, no I/O.

Every call of the model is admitted here, also one that is malformed or unknown. So each pass but the last two uses up
one call at least, and a turn has at most `calls + 2` passes: one for each admitted call, the one whose call is refused
for being over the cap, and the last one, in which nothing is run.
"""

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from brain.events import CallCode, Limits
from brain.markers.template_tokens import EVERY, ControlTokens
from brain.messages import Attachment, Call, History
from brain.plugins.context import Context, MemoryView, ModelView, Result
from brain.plugins.executor import Answer, Arguments, Dependencies, Failure, Outcome
from brain.plugins.registry import AnswerKey, Entry, Registry
from brain.plugins.specialist import Specialist
from brain.prompts import blocks, templates
from brain.turn.annotations import Annotations
from brain.turn.approvals import SECONDS, Approvals, preview
from brain.turn.outgoing import PICKS_MOST, check
from brain.turn_request import Tool, TurnRequest

TRIES_OF_IDENTICAL = 2

ANSWER_SHARE = 0.25
ANSWER_SECONDS_MOST = 60.0
"""Share of a turn's time that is reserved for the answer after the last call, and the most seconds of it."""

Refusal = Literal["call_limit", "specialist_limit", "repeated"]


class Budget:
    """Counts the calls of one turn."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_name: Counter[str] = Counter()
        self._identical: Counter[Hashable] = Counter()
        self.calls = 0
        self.overdrawn = False

    def count(self) -> Refusal | None:
        """Counts one call of the model; the refusal is set when it is over the cap."""
        self.calls += 1
        if self.calls > self._limits.calls:
            self.overdrawn = True
            return "call_limit"
        return None

    def admit(self, name: str, call: Hashable) -> Refusal | None:
        """Counts a call that could be run, after `count`; `call` is the same for identical calls."""
        self._by_name[name] += 1
        self._identical[call] += 1
        if self._identical[call] > TRIES_OF_IDENTICAL:
            return "repeated"
        if self._by_name[name] > self._limits.calls_per_specialist:
            return "specialist_limit"
        return None


def seconds_for_calls(limits: Limits) -> float:
    """Returns how much of a turn may pass until its calls end; the rest is reserved for the answer."""
    return limits.turn_seconds - min(limits.turn_seconds * ANSWER_SHARE, ANSWER_SECONDS_MOST)


KEPT_WHOLE = 65_536
"""Characters of an answer that is kept as it is."""

log = logging.getLogger("brain")


class Asked(ModelView, Protocol):
    """What calls may ask of the model, and what they must know of it."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Work:
    """What a call is to do.

    Attributes:
        params: as they were asked with.
        arguments: the same, checked, as the specialist's function takes them.
        attachments: those that it may see.
    """

    entry: Entry
    params: Mapping[str, Any]
    arguments: Arguments
    attachments: Sequence[Attachment]


@dataclass(slots=True)
class CallPolicy:
    """The desk of one turn.

    Attributes:
        attachments: all of its conversation's.
        tools: the client's own, by the names that the model was told.
        inbox: what the user wants to be put in.
        outside: whether the model has read anything that strangers wrote.
        room: how many characters the answer may still have.
        memory: what specialists may know of the user.
        tokens: the control tokens that count for the model.
        operator: the operator's instructions.
        steered: what the user has put in so far.
        picks: how many links and titles of results were used unasked.
        asides: what is told beside the answer.
        timed_out: whether a call was ended or refused because the time for calls was over.
    """

    ask: TurnRequest
    registry: Registry
    model: Asked
    conversation: History
    block_bytes: int
    approvals: Approvals = field(default_factory=lambda: Approvals(0.0))
    turn_id: str = ""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    attachments: Sequence[Attachment] = field(init=False)
    outside: bool = field(init=False)
    room: int = sys.maxsize
    memory: MemoryView | None = None
    tokens: ControlTokens = EVERY
    operator: str = ""
    steered: list[str] = field(default_factory=list)
    picks: int = 0
    inbox: list[str] = field(default_factory=list)
    asides: Annotations = field(default_factory=Annotations)
    calls: list[Call] = field(default_factory=list)
    budget: Budget = field(init=False)
    began: float = field(init=False)
    timed_out: bool = False
    answered: dict[Hashable, "asyncio.Future[Outcome]"] = field(default_factory=dict)
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.ask.limits)
        self.began = time.monotonic()
        self._until = self.began + seconds_for_calls(self.ask.limits)
        self.attachments = (*self.conversation.attachments, *self.ask.attachments)
        self.outside = bool(self.attachments) or _from_strangers(self.conversation)

    @property
    def deadline(self) -> float:
        """When calls end, on the clock of `time.monotonic`; what is left of the turn then is for the answer."""
        return self._until + self.approvals.held

    @property
    def is_last_pass(self) -> bool:
        """Whether a pass that begins now runs no calls."""
        return self.budget.overdrawn or self.timed_out

    def next_id(self) -> str:
        """A call id, unique in the turn."""
        return f"c{len(self.calls) + 1}"

    def names(self) -> list[str]:
        """Whom the model can call in this turn."""
        return [*(specialist.name for specialist in self.registry.usable(self.ask.specialists)), *self.tools]

    def from_outside(self, name: str, outcome: Outcome) -> bool:
        """Whether the block of a call may hold strangers' words. Of failures, only a refusal is in a specialist's."""
        if isinstance(outcome, Failure) and outcome.code != "refused":
            return False
        if isinstance(outcome, Answer) and outcome.outside is not None:
            return outcome.outside
        return self.registry[name].specialist.outside

    def must_ask(self, specialist: Specialist[..., Any], params: Mapping[str, Any]) -> bool:
        """Whether a person must agree to a call. Behind strangers' words, no function says that it need not be."""
        if specialist.approval == "never":
            return False
        try:
            if callable(specialist.approval) and self.outside and not specialist.reads_only(deepcopy(dict(params))):
                return True
            return specialist.needs_approval(deepcopy(dict(params)))  # what it changes is its own
        except BaseException:  # a stranger's function, like the one that is to be approved
            log.warning("specialist %s: its approval function failed", specialist.name, exc_info=True)
            return True

    def unknown_values(self, specialist: Specialist[..., Any], params: Mapping[str, Any]) -> Sequence[str]:
        """What a call would send to other hosts that may hold private data, because nobody knows where it comes from.

        Nothing where the model has read no private data, or nothing of strangers' that could ask it to send them.
        """
        if not specialist.sends or not self.outside or not self._holds_private():
            return ()
        earlier = (*self.conversation.exchanges, *([self.conversation.begun] if self.conversation.begun else []))
        own = [self.operator, self.ask.message, *self.steered, *(text for one in earlier for text in one.own_words)]
        sent = [part for part in self._parts() if (entry := self.registry.get(part.name)) and entry.specialist.sends]
        checked = check(specialist.sent_params(params), specialist.parameters, own, sent)
        if not checked.unknown and self.picks + checked.picks <= PICKS_MOST:
            self.picks += checked.picks
            return ()
        return checked.unknown or [json.dumps(specialist.sent_params(params), ensure_ascii=False)]

    def _holds_private(self) -> bool:
        """Whether the model has read data of the user's own: files, memory, results of specialists that hold such."""
        earlier = [*self.conversation.exchanges, *([self.conversation.begun] if self.conversation.begun else [])]
        if self.attachments or self.conversation.recalled.note or any(one.recalled for one in earlier):
            return True
        return any(self._is_private(part) for part in self._parts() if part.code in (None, "refused"))

    def _is_private(self, part: Call) -> bool:
        """Also of one that is no specialist: a client's own tool may have read anything."""
        entry = self.registry.get(part.name)
        return entry is None or entry.specialist.is_private

    def _parts(self) -> list[Call]:
        """The calls that the model has read of, of this turn and of earlier ones."""
        earlier = (*self.conversation.exchanges, *([self.conversation.begun] if self.conversation.begun else []))
        before = [part for one in earlier for part in (*one.one_way, *one.parts) if isinstance(part, Call)]
        return [*before, *(call for call in self.calls if call.block)]

    def refusal(self, call: Call) -> Failure | None:
        """Why a call of the model is not run, if so."""
        code: CallCode | None = self.budget.count()
        if code is None and call.code is not None:
            return Failure(call.code, call.text)
        if code is None and call.name in self.tools:
            return None
        if code is None and time.monotonic() >= self.deadline:
            code = "deadline"
        entry = self.registry.get(call.name)
        if code is None:
            code = self.check_access(call.name, entry)
        if code is None and entry is not None and entry.unavailable_reason is not None:
            return Failure("unavailable", f"{entry.unavailable_reason.partition(':')[0]}; go on without it")
        code = code or self.budget.admit(call.name, identity(call.name, call.params))
        return self.failure(code) if code else None

    def failure(self, code: CallCode) -> Failure:
        """The failure of this code, in the words a model reads."""
        return Failure(code, templates.reason(code, self.ask.limits, self.names()))

    def check_access(self, name: str, entry: Entry | None) -> CallCode | None:
        """Why nobody may call it in this turn, if so."""
        if entry is None:
            return "unknown"
        wanted = self.ask.specialists
        if not self.registry.is_allowed(name) or (wanted is not None and name not in wanted):
            return "denied"
        return "unauthorized" if entry.specialist.requires_user and self.ask.user is None else None

    def seconds_for(self, specialist: Specialist[..., Any]) -> float:
        """How long a call of it may take: its own word or the operator's, but never longer than the request wants."""
        seconds = self.registry.call_seconds if specialist.timeout is None else specialist.timeout
        return seconds if self.ask.call_seconds is None else min(seconds, self.ask.call_seconds)

    def kept(self, work: Work) -> Answer | None:
        """An answer of an earlier turn that may be given again."""
        return self.registry.find_cached(self._key(work)) if work.entry.specialist.cache_seconds else None

    def keep(self, work: Work, answer: Answer) -> None:
        """Keeps an answer for later turns, if its specialist allows; of a long one what a block can hold."""
        seconds = work.entry.specialist.cache_seconds
        if seconds:
            if len(answer.text) > KEPT_WHOLE:
                answer = replace(answer, text=blocks.result_text(answer.text, more=answer.more))
            self.registry.cache(self._key(work), answer, seconds)

    def _key(self, work: Work) -> AnswerKey:
        files = tuple((a.id, a.name, len(a.data), hash(a.data)) for a in work.attachments)
        same = identity(work.entry.specialist.name, work.params)
        return self.ask.user, (same, files, self.model.name, self.model.sees_images)

    async def preview(self, work: Work) -> Result | Failure | None:
        """What a call would do, for the person who is to approve it; a failure when it is refused unasked."""
        specialist = work.entry.specialist
        seconds = min(SECONDS, self.registry.call_seconds, self.seconds_for(specialist))
        return await preview(specialist, work.params, self.provided(work, seconds), timeout=seconds)

    def provided(self, work: Work, seconds: float, approved: Result | None = None) -> Dependencies:
        """What keyword-only parameters of a specialist are filled with in one call."""
        context = self._context(work, seconds, approved)
        return {**self.registry.dependencies, **work.entry.dependencies, Context: context}

    def _context(self, work: Work, seconds: float, approved: Result | None) -> Context:
        """What surrounds one call."""
        return Context(
            user=self.ask.user,
            conversation_id=self.conversation.id,
            message=self.ask.message,
            attachments=work.attachments,
            time_zone=self.ask.time_zone,
            deadline=min(time.monotonic() + seconds, self.deadline),
            settings=work.entry.settings,
            model=self.model,
            fetch=self.registry.fetch,
            memory=self.memory,
            approved=approved,
        )


def _from_strangers(conversation: History) -> bool:
    """Whether any of what was said before, or is recalled, came from strangers."""
    if conversation.outside or conversation.recalled.outside:
        return True
    exchanges = (*conversation.exchanges, *([conversation.begun] if conversation.begun else []))
    parts = (part for exchange in exchanges for part in exchange.parts)
    return any(one.outside for one in exchanges) or any(part.untrusted for part in parts if isinstance(part, Call))


def identity(name: str, params: Mapping[str, Any] | None) -> Hashable:
    """The same for identical calls."""
    return name, json.dumps(params, sort_keys=True, ensure_ascii=True)
