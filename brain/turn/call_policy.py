"""Decides which calls of a turn may run and which need approval. No I/O.

Every call of the model counts, even a malformed or unknown one. So a turn has at most `calls + 2` passes: one per
counted call, one whose call exceeds the limit, and a last one in which no call runs.
"""

import json
import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from brain.events import CallCode
from brain.messages import Attachment, Author, Call, Marks, Steer
from brain.plugins.executor import FAILED, Failure, Outcome, bind
from brain.plugins.specialist import Specialist
from brain.prompts import templates
from brain.task import MAX_USER_TEXT, Origin
from brain.turn.data_flow import MAX_PICKS, Finding, count_picks, normalize_values, texts_of
from brain.turn.setup import TurnSetup

MAX_IDENTICAL_CALLS = 2

log = logging.getLogger("brain")


def call_key(name: str, params: Mapping[str, Any] | None) -> Hashable:
    """Return a key that is equal for identical calls."""
    return name, json.dumps(params, sort_keys=True, ensure_ascii=True)


class Sending(NamedTuple):
    """What a call sends to other hosts.

    Attributes:
        params: All parameters of the call, also those that it takes from the user's message.
        message: The user's message, if it is sent; else empty.
        asks: What a person must approve before it is sent.
        picks: Number of values from results that need no approval.
    """

    params: Mapping[str, Any]
    message: str
    asks: Sequence[str] = ()
    picks: int = 0


class CallPolicy:
    """Decides about the calls of one turn.

    Attributes:
        offered: The names of all specialists and client tools in the prompt.
        calls: The calls of the turn so far, in order.
        counted: Number of calls that the model made.
        is_exhausted: Whether the model exceeded the limit of calls.
        offers: Whether calls of the current pass may run.
        steering: Messages that the user added during the turn.
    """

    def __init__(self, setup: TurnSetup) -> None:
        self.tools = setup.tools
        self._usable = [specialist.name for specialist in setup.usable]
        self.offered = frozenset((*self._usable, *self.tools))
        self.calls: list[Call] = []
        self.counted = 0
        self.is_exhausted = False
        self.offers = True
        self.steering: list[str] = []
        request, history = setup.request, setup.history
        self._request = request
        self._history = history
        self._specialists = setup.registry
        self._operator = setup.operator
        self._calls_by_name: Counter[str] = Counter()
        self._identical_calls: Counter[Hashable] = Counter()
        has_context = any(name != "goal" for name, _ in request.context)  # nobody knows who wrote the other texts
        has_attachments, news = bool(history.attachments or request.attachments or has_context), history.task_news
        self._marks = Marks(
            has_attachments or history.untrusted or history.recalled.untrusted or news is not None,
            has_attachments
            or history.private_data
            or bool(history.recalled.note)
            or (news is not None and news.private_data),
        )
        parts = [] if history.question is None else [*history.question.parts]  # of a turn that continues
        self._steered = [part.text for part in parts if isinstance(part, Steer)]
        self._earlier_calls = [
            (call, exchange.author)
            for exchange in history.all_exchanges
            for call in (*exchange.automatic_calls, *exchange.parts)
            if isinstance(call, Call)
        ]

    @property
    def marks(self) -> Marks:
        """What the model has read."""
        untrusted = self._marks.untrusted or any(call.untrusted for call in self.calls)
        return Marks(untrusted, self._marks.private_data or any(call.private_data for call in self.calls))

    @property
    def origin(self) -> Origin:
        """Where a prompt comes from that the model writes now."""
        return Origin(self.marks, "\n".join(self._user_texts())[-MAX_USER_TEXT:])

    @property
    def is_out_of_time(self) -> bool:
        """Whether the deadline of calls ended or rejected a call."""
        return any(call.code == "deadline" for call in self.calls)

    @property
    def is_last_pass(self) -> bool:
        """Whether a pass that starts now runs no calls."""
        return self.is_exhausted or self.is_out_of_time

    def resume(self, calls: Sequence[Call]) -> None:
        """Count calls that the turn made before it was interrupted."""
        for call in calls:
            self.calls.append(call)
            self.counted += 1
            self._calls_by_name[call.name] += 1
            self._identical_calls[call_key(call.name, call.params)] += 1

    def check(self, call: Call, seconds_left: float) -> Failure | None:
        """Count a call of the model. Return a failure if it must not run.

        Args:
            seconds_left: Seconds until the deadline of calls.
        """
        self.counted += 1
        if self.counted > self._request.limits.calls:
            self.is_exhausted = True
            return self.failure("call_limit")
        if call.code is not None:
            return Failure(call.code, call.reason, templates.ADVICE[call.code])
        if not self.offers:
            return Failure("denied", *templates.NO_CALLS_IN_ROUND)
        if call.name in self.tools:
            return None
        if seconds_left <= 0:
            return self.failure("deadline")
        failure = self.check_access(call.name)
        if failure is not None:
            return failure
        key = call_key(call.name, call.params)
        self._calls_by_name[call.name] += 1
        self._identical_calls[key] += 1
        if self._identical_calls[key] > MAX_IDENTICAL_CALLS:
            return self.failure("repeated")
        if self._calls_by_name[call.name] > self._request.limits.calls_per_specialist:
            return self.failure("specialist_limit")
        return None

    def find_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of a call's parameters."""
        tool, entry = self.tools.get(name), self._specialists.get(name)
        return tool.parameters if tool is not None else None if entry is None else entry.specialist.parameters

    def is_read_only(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a call changes nothing, as far as its specialist knows."""
        try:
            return self._specialists[name].specialist.reads_only(_copy(params))
        except BaseException:  # the function is a specialist's code
            log.warning("specialist %s: its read_only function failed", name, exc_info=True)
            return False

    def check_access(self, name: str) -> Failure | None:
        """Return a failure if this turn cannot call the specialist."""
        entry, requested = self._specialists.get(name), self._request.specialists
        if entry is None:
            return self.failure("unknown")
        if not entry.is_allowed or (requested is not None and name not in requested):
            return self.failure("denied")
        if entry.specialist.requires_user and self._request.user is None:
            return self.failure("unauthorized")
        return None if entry.unavailable_reason is None else self.failure("unavailable")

    def may_run_unasked(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a valid call may run that no model asked for: it changes nothing, and nobody needs to approve it."""
        if self.counted >= self._request.limits.calls or self.check_access(name) is not None:
            return False
        specialist = self._specialists[name].specialist
        if isinstance(bind(specialist, params), Failure):
            return False
        sending = self.plan_sending(specialist, params)
        return (
            not isinstance(sending, Failure)
            and not sending.asks
            and self.is_read_only(name, sending.params)
            and not self.needs_approval(specialist, sending.params)
        )

    def failure(self, code: CallCode) -> Failure:
        """Return the failure with this code."""
        limits, names = self._request.limits, ", ".join([*self._usable, *self.tools])
        reason = templates.REASONS[code].format(each=limits.calls_per_specialist, calls=limits.calls)
        return Failure(code, reason, templates.ADVICE[code].format(names=names or "none"))

    def needs_approval(self, specialist: Specialist[..., Any], params: Mapping[str, Any]) -> bool:
        """Whether a person must approve a call.

        After untrusted content, a call that changes something needs approval, whatever its approval function returns.
        In a private conversation, every call does that changes something, since it may change it on another host, or
        sends something.
        """
        try:
            if self._request.private and (specialist.sends or not specialist.reads_only(_copy(params))):
                return True
            if specialist.approval == "never":
                return False
            if callable(specialist.approval) and self.marks.untrusted and not specialist.reads_only(_copy(params)):
                return True
            return specialist.needs_approval(_copy(params))
        except BaseException:  # the function is a specialist's code
            log.warning("specialist %s: its approval function failed", specialist.name, exc_info=True)
            return True

    def plan_sending(
        self, specialist: Specialist[..., Any], params: Mapping[str, Any], files: Sequence[Attachment] = ()
    ) -> Sending | Failure:
        """Return what a call with valid parameters sends to other hosts, and what of it a person must approve.

        Without private data or untrusted content, nothing needs approval. With both, values of unknown source do. In a
        private conversation, everything does.

        Args:
            files: Files that the specialist sends because the model wants it to.
        """
        if not specialist.sends:
            return Sending(params, self._request.message)
        try:
            return self._plan_sending(specialist, params, files)
        except BaseException:  # the function is a specialist's code
            log.warning("specialist %s: its function for `sends` failed", specialist.name, exc_info=True)
            return FAILED

    def _plan_sending(
        self, specialist: Specialist[..., Any], params: Mapping[str, Any], files: Sequence[Attachment]
    ) -> Sending:
        message, private = self._request.message, self._request.private
        sent = specialist.sent_params(_copy(params), message)
        is_checked = private or all(self.marks)
        sent = normalize_values(sent) if is_checked else sent
        texts, line = texts_of(sent), " ".join(message.split())
        is_sent = any(line == " ".join(text.split()) for text in texts)
        plan = Sending({**params, **sent}, message if is_sent else "")
        names = [f"the file {file.name} ({len(file.data):,} bytes)" for file in files]
        if private:
            return plan._replace(asks=[json.dumps(sent, ensure_ascii=False), *names])
        if not is_checked:
            return plan
        senders = [
            (call, entry.specialist.sent_params(_copy(call.params or {}), ""), author)
            for call, author in self._completed_calls()
            if (entry := self._specialists.get(call.name)) is not None
            and entry.specialist.sends
            and call.by != "client"  # which also returns calls that were declined
        ]
        earlier = [values for call, values, author in senders if call.code is None and author != "unknown"]
        own = [self._operator, *self._user_texts()]
        found = [
            Finding(call, _without(call.params or {}, values))
            for call, values, _ in senders
            if call.code is None or (call.code == "refused" and call.has_started)  # other failures repeat what is wrong
        ]
        picks = count_picks(sent, specialist.parameters, own, earlier, found)
        if picks is None or names or sum(call.picks for call in self.calls) + picks > MAX_PICKS:
            return plan._replace(asks=[*texts, *names] or [json.dumps(sent, ensure_ascii=False)])
        return plan._replace(picks=picks)

    def mark(self, call: Call, outcome: Outcome) -> None:
        """Set what the block of a call may contain. Of all failures, only a refusal has a text of the specialist."""
        if isinstance(outcome, Failure) and outcome.code != "refused":
            return
        specialist = self._specialists[call.name].specialist
        call.untrusted, call.private_data = specialist.outside, specialist.private
        if not isinstance(outcome, Failure):
            call.untrusted = call.untrusted if outcome.outside is None else outcome.outside
            call.private_data = call.private_data if outcome.private is None else outcome.private

    def _user_texts(self) -> list[str]:
        """Return what the user wrote, as far as the model reads it: not a prompt that a model wrote."""
        task = self._request.task
        earlier = [text for exchange in self._history.exchanges for text in exchange.user_messages]
        newest = self._request.message if task is None else task.user_text
        goal = (text for name, text in self._request.context if name == "goal")
        return [*earlier, newest, *goal, *self._steered, *self.steering]

    def _completed_calls(self) -> list[tuple[Call, Author]]:
        """Return the calls, of this turn and earlier ones, whose blocks the model has read, with their authors."""
        return self._earlier_calls + [(call, "user") for call in self.calls if call.block]


def _without(params: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name not in sent and not isinstance(value, bool)}


def _copy(params: Mapping[str, Any]) -> dict[str, Any]:
    """Copy parameters for a function that may change them."""
    return deepcopy(dict(params))
