"""Decides which calls of a turn may run and which need approval. No I/O.

Every call of the model counts, even a malformed or unknown one. So a turn has at most `calls + 2` passes: one per
counted call, one whose call exceeds the limit, and a last one in which no call runs.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from brain.events import CallCode
from brain.messages import Call, Exchange, History
from brain.plugins.executor import CallResult, Failure, Outcome, prepare
from brain.plugins.registry import Entry
from brain.plugins.specialist import Specialist
from brain.prompts import templates
from brain.turn.data_flow import MAX_PICKS, check_data_flow
from brain.turn_request import Tool, TurnRequest

MAX_IDENTICAL_CALLS = 2

log = logging.getLogger("brain")


def call_key(name: str, params: Mapping[str, Any] | None) -> Hashable:
    """Return a key that is equal for identical calls."""
    return name, json.dumps(params, sort_keys=True, ensure_ascii=True)


class CallPolicy:
    """Decides about the calls of one turn.

    Args:
        specialists: All registered specialists, by name.
        allowed: Returns whether the operator allows a specialist.
        usable: Names of the specialists in the prompt.
        tools: The client's tools, by the names in the prompt.
        operator: The operator's instructions.

    Attributes:
        calls: The calls of the turn so far, in order.
        counted: Number of calls that the model made.
        is_exhausted: Whether the model exceeded the limit of calls.
        offers: Whether calls of the current pass may run.
        steering: Messages that the user added during the turn.
    """

    def __init__(
        self,
        request: TurnRequest,
        history: History,
        specialists: Mapping[str, Entry],
        *,
        allowed: Callable[[str], bool] = lambda name: True,
        usable: Collection[str] = (),
        tools: Mapping[str, Tool] | None = None,
        operator: str = "",
    ) -> None:
        self.tools = tools or {}
        self.calls: list[Call] = []
        self.counted = 0
        self.is_exhausted = False
        self.offers = True
        self.steering: list[str] = []
        self._request = request
        self._history = history
        self._specialists = specialists
        self._is_allowed = allowed
        self._usable = usable
        self._operator = operator
        self._calls_by_name: Counter[str] = Counter()
        self._identical_calls: Counter[Hashable] = Counter()
        self._picks = 0  # links and titles of results that calls sent without approval
        has_context = any(name != "goal" for name, _ in request.context)  # nobody knows who wrote the other texts
        self._has_attachments = bool(history.attachments or request.attachments or has_context)
        self._was_untrusted = (
            self._has_attachments
            or history.untrusted
            or history.recalled.untrusted
            or history.task_news is not None
            or any(
                exchange.untrusted or any(isinstance(part, Call) and part.untrusted for part in exchange.parts)
                for exchange in self._earlier
            )
        )

    @property
    def _earlier(self) -> Sequence[Exchange]:
        return self._history.all_exchanges

    @property
    def is_untrusted(self) -> bool:
        """Whether the model has read untrusted content."""
        return self._was_untrusted or any(call.untrusted for call in self.calls)

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
        code = self.check_access(call.name)
        if code is not None:
            return self.failure(code)
        if self._specialists[call.name].unavailable_reason is not None:  # it may name settings and commands
            return self.failure("unavailable")
        key = call_key(call.name, call.params)
        self._calls_by_name[call.name] += 1
        self._identical_calls[key] += 1
        if self._identical_calls[key] > MAX_IDENTICAL_CALLS:
            return self.failure("repeated")
        if self._calls_by_name[call.name] > self._request.limits.calls_per_specialist:
            return self.failure("specialist_limit")
        return None

    def is_read_only(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a call changes nothing, as far as its specialist knows."""
        try:
            return self._specialists[name].specialist.reads_only(_copy(params))
        except BaseException:  # the function is a specialist's code
            log.warning("specialist %s: its read_only function failed", name, exc_info=True)
            return False

    def check_access(self, name: str) -> CallCode | None:
        """Return the error code if this turn must not call the specialist."""
        if name not in self._specialists:
            return "unknown"
        requested = self._request.specialists
        if not self._is_allowed(name) or (requested is not None and name not in requested):
            return "denied"
        requires_user = self._specialists[name].specialist.requires_user
        return "unauthorized" if requires_user and self._request.user is None else None

    def may_run_unasked(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a valid call may run that no model asked for: it changes nothing, and nobody needs to approve it."""
        if self.counted >= self._request.limits.calls or self.check_access(name) is not None:
            return False
        entry, picks = self._specialists[name], self._picks
        may_run = (
            entry.unavailable_reason is None
            and not isinstance(prepare(entry.specialist, params), Failure)
            and self.is_read_only(name, params)
            and not self.needs_approval(entry.specialist, params)
            and not self.find_unknown_values(entry.specialist, params)
        )
        self._picks = picks  # the call itself counts them
        return may_run

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
            if callable(specialist.approval) and self.is_untrusted and not specialist.reads_only(_copy(params)):
                return True
            return specialist.needs_approval(_copy(params))
        except BaseException:  # the function is a specialist's code
            log.warning("specialist %s: its approval function failed", specialist.name, exc_info=True)
            return True

    def find_unknown_values(self, specialist: Specialist[..., Any], params: Mapping[str, Any]) -> Sequence[str]:
        """Return the values of unknown source, which may be private, that a call would send to other hosts.

        The result is empty unless the model has read both private data and untrusted content. In a private
        conversation, it has everything that the call would send.
        """
        if specialist.sends and self._request.private:
            return [json.dumps(specialist.sent_params(params), ensure_ascii=False)]
        if not specialist.sends or not self.is_untrusted or not self._has_read_private_data():
            return ()
        goal = (text for name, text in self._request.context if name == "goal")
        own = [self._operator, self._request.message, *goal, *self.steering]
        own += [text for exchange in self._earlier for text in exchange.user_messages]
        earlier_calls = [
            call
            for call in self._completed_calls()
            if (entry := self._specialists.get(call.name)) and entry.specialist.sends
        ]
        checked = check_data_flow(specialist.sent_params(params), specialist.parameters, own, earlier_calls)
        if not checked.unknown and self._picks + checked.picks <= MAX_PICKS:
            self._picks += checked.picks
            return ()
        return checked.unknown or [json.dumps(specialist.sent_params(params), ensure_ascii=False)]

    def is_result_untrusted(self, name: str, outcome: Outcome) -> bool:
        """Whether the block of a call may hold untrusted content. Of all failures, only a refusal may."""
        if isinstance(outcome, Failure) and outcome.code != "refused":
            return False
        if isinstance(outcome, CallResult) and outcome.outside is not None:
            return outcome.outside
        return self._specialists[name].specialist.outside

    def _has_read_private_data(self) -> bool:
        """Whether the model has read files, memory, or private results of specialists."""
        recalled = self._history.recalled.note or any(exchange.recalled_ids for exchange in self._earlier)
        if self._has_attachments or recalled or any(exchange.told_tasks for exchange in self._earlier):
            return True
        return any(
            entry is None or entry.specialist.is_private  # a client tool may have read anything
            for call in self._completed_calls()
            if call.code in (None, "refused")
            for entry in [self._specialists.get(call.name)]
        )

    def _completed_calls(self) -> list[Call]:
        """Return the calls, of this turn and earlier ones, whose blocks the model has read."""
        earlier = [part for exchange in self._earlier for part in (*exchange.automatic_calls, *exchange.parts)]
        return [part for part in earlier if isinstance(part, Call)] + [call for call in self.calls if call.block]


def _copy(params: Mapping[str, Any]) -> dict[str, Any]:
    """Copy parameters for a function that may change them."""
    return deepcopy(dict(params))
