"""`brain explain`: how a stored answer was made, as a timeline."""

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence

from brain.cli.commands.store_access import describe_no_data, open_existing_store
from brain.cli.process import DONE, CommandError, print_json
from brain.cli.terminal.messages import explain_call, explain_outcome, format_ms, name_role, text
from brain.messages import Call, Exchange, PassRecord, to_answer_id
from brain.prompts.blocks import block_content
from brain.protocols.native.resources import turn_report
from brain.runtime.archive import find_recording
from brain.settings import Settings
from brain.store import conversations, users
from brain.text import escape_invisible, one_line, shorten

LAST = "last"
INDENT = " " * 10
"""The width of a time."""
MAX_LENGTH = 200
"""Characters of the parameters and of the result of a call."""

Line = tuple[int | None, str]
"""Milliseconds since the start of the turn, if known, and what happened."""


async def explain(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show the rounds, requests, calls and decisions of a turn, with its tokens and costs."""
    user, name = arguments.user, arguments.turn
    async with open_existing_store(settings) as store:
        found = await store.search(conversations.find_answer, user, None if name == LAST else to_answer_id(name))
        if found is None and user not in (names := await store.search(users.names)):
            raise CommandError(describe_no_data(user, names), "brain explain last --user NAME")
    if found is None:
        what = "No answers" if name == LAST else f"No answer of turn '{name}'"
        raise CommandError(f"{what} of user {user}", "brain explain last")
    conversation_id, exchange = found
    if arguments.json:
        report = turn_report(conversation_id, exchange, user, settings.cost, block_content)
        print_json(report)
        return DONE
    began = "" if exchange.started is None else f"{exchange.started.astimezone():%Y-%m-%d %H:%M} · "
    print(f"{exchange.turn_id} · {conversation_id} · {began}{exchange.strategy}")
    for ms, line in _timeline(exchange, settings):
        print(escape_invisible(f"{'' if ms is None else format_ms(ms):>{len(INDENT) - 2}}  {line}"))
    recording = None if settings.archive is None else find_recording(settings.archive, exchange.turn_id)
    if recording is not None:
        print(f"Play it with: brain replay {shlex.quote(str(recording))}")
    return DONE


def _timeline(exchange: Exchange, settings: Settings) -> Iterator[Line]:
    rounds = {one.n: one for one in exchange.rounds}
    if not exchange.passes:
        yield None, text("explainOld")
        yield from _decisions(exchange, None)
    else:
        yield from _decisions(exchange, 0)
    for one in exchange.passes:
        if (opened := rounds.pop(one.round, None)) is not None:
            yield opened.began_ms, text("explainRound", count=opened.n, role=name_role(opened.role), model=opened.model)
            if opened.text:
                yield None, one_line(opened.text)
        title = text("explainRequest", count=one.number, model=one.model)
        yield one.began_ms, f"{title}: {', '.join(_facts(one, settings.cost(one)))}"
        yield from _decisions(exchange, one.number)
    status = exchange.passes[-1].status if exchange.error_code is not None and exchange.passes else None
    ending = explain_outcome(exchange.outcome) or text("explainComplete")
    yield exchange.duration_ms, f"{ending} ({exchange.outcome}){_status(status)}"
    usage = exchange.total_usage
    costs = [cost for one in exchange.passes if (cost := settings.cost(one)) is not None]
    read = [one for one in exchange.passes if one.prompt_tokens + one.completion_tokens]
    unpriced = dict.fromkeys(one.model for one in read if settings.cost(one) is None)
    missing = [text("explainUnpriced", models=", ".join(unpriced))] if costs and unpriced else []
    amounts = _amounts(usage.prompt_tokens, usage.reused_tokens, usage.completion_tokens, is_estimated=usage.estimated)
    yield None, f"{text('explainTotal')}: {', '.join([*amounts, *_cost(sum(costs) if costs else None), *missing])}"
    if exchange.calls:
        yield None, ", ".join(f"{name} × {count}" for name, count in exchange.calls_by_name.items())


def _facts(one: PassRecord, cost: float | None) -> Iterator[str]:
    yield from _amounts(one.prompt_tokens, one.reused_tokens, one.completion_tokens, is_estimated=one.estimated)
    if one.ended_ms is not None:
        yield format_ms(one.ended_ms - one.began_ms)
    if one.first_token_ms is not None:
        yield text("explainFirst", time=format_ms(one.first_token_ms - one.began_ms))
    yield from _cost(cost)


def _amounts(read: int, reused: int | None, written: int, *, is_estimated: bool) -> Sequence[str]:
    counts = [text("tokens", count=count) for count in (read, written)]
    if is_estimated:
        counts = [text("about", amount=count) for count in counts]
    cached = [text("explainReused", count=reused)] if reused else []
    return [text("explainRead", amount=counts[0]), *cached, text("explainWritten", amount=counts[1])]


def _cost(cost: float | None) -> Sequence[str]:
    return [] if cost is None else [text("explainCost", cost=f"{cost:.4f}")]


def _decisions(exchange: Exchange, number: int | None) -> Iterator[Line]:
    """Yield the calls of a pass and what Brain decided during it; 0 means before the first one, None all."""
    one = exchange.passes[number - 1] if number else None
    if one is not None and one.is_prefill_refused:
        yield None, f"  {text('explainPrefill')}"
    if one is not None and one.are_tools_refused:
        yield None, f"  {text('explainTools')}"
    for call in exchange.calls:
        if number in (None, call.turn_pass):
            yield call.began_ms, f"  {_describe_call(call)}"
            if call.outcome == "ok":
                yield None, f"    {shorten(one_line(block_content(call.name, call.block, failed=False)), MAX_LENGTH)}"
    is_ending = number == len(exchange.passes) and exchange.error_code is not None
    if one is not None and one.error is not None and not is_ending:
        yield one.ended_ms, f"  {explain_outcome(one.error)}{_status(one.status)}"
    for notice in exchange.notices:
        if number in (None, notice.turn_pass):
            label = f"{text('added')}: " if notice.code == "steered" else ""
            yield None, f"  {label}{one_line(notice.text)}"


def _status(status: int | None) -> str:
    return "" if status is None else f" ({text('explainStatus', status=status)})"


def _describe_call(call: Call) -> str:
    params = shorten(one_line(json.dumps(call.params, ensure_ascii=False)), MAX_LENGTH)
    facts = [format_ms(call.ms)] if call.ms is not None else []
    facts += [text("chosenByBrain")] if call.by == "assist" else []
    facts += [text("cached")] if call.cached else []
    facts += [text(call.approval)] if call.approval not in (None, "asked") else []
    if call.code is not None:
        facts.append(explain_call(call.code, call.reason))
    return f"{call.name} {params}: {', '.join(facts)}"
