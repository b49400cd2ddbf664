"""Encodes stored data as JSON: conversations, facts and summaries, reports of turns, and background tasks."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from brain.messages import Annotation, Call, Exchange, Item, Part, PassRecord, RoundRecord, Steer, Text
from brain.protocols.encoding import citation_data, encode
from brain.protocols.native.encoder import event_data
from brain.store.conversations import Conversation, ConversationPage
from brain.task import Packet, Task

_TASK_FIELDS = (
    "id", "title", "prompt", "profile", "state", "conversation_id", "work_id", "created", "changed", "time_zone", "run",
    "tell", "depth",
)  # fmt: skip
_OPTIONAL_TASK_FIELDS = (
    "next_run", "every", "start", "paused", "parent", "turn_id", "activity", "result", "summary", "reason", "failures",
    "private",
)  # fmt: skip
"""Fields of a task that are left out if they are empty."""
_STATES: Mapping[str, str] = {"": "running", "cancelled": "cancelled", "interrupted": "interrupted"}

CountTokens = Callable[[Exchange], int]
"""Returns the token count of an exchange."""
BlockContent = Callable[[str, str, bool], str]
"""Returns the text of a block. Arguments: the specialist's name, the block, whether the call failed."""


def list_data(name: str, entries: Sequence[Mapping[str, Any]], limit: int, **more: Any) -> dict[str, Any]:
    """Return one page of a list as JSON values, with the ID after which the next page begins.

    Args:
        entries: one more than `limit` if there is a next page.
    """
    shown = entries[:limit]
    return {**more, name: shown, "next": shown[-1]["id"] if len(entries) > limit else None}


def encode_page(
    page: ConversationPage, count_tokens: CountTokens, block_content: BlockContent, turn_id: str | None
) -> bytes:
    """Encode a conversation with some of its messages, oldest first.

    Args:
        turn_id: the running turn, if clients can subscribe to it.
    """
    conversation = conversation_data(page.conversation)
    del conversation["messages"]
    messages = [entry for exchange in page.exchanges for entry in _messages(exchange, count_tokens, block_content)]
    return encode(
        {
            **conversation,
            **({} if turn_id is None else {"turn_id": turn_id}),
            "messages": messages,
            "files": msgspec.to_builtins(page.files),
            "earlier": page.earlier,
        }
    )


def item_data(item: Item) -> dict[str, Any]:
    """Return a fact or summary as JSON values."""
    data: dict[str, Any] = msgspec.to_builtins(item)
    if item.count <= 1:
        del data["count"]
    return data


def turn_report(
    conversation_id: str,
    exchange: Exchange,
    user: str | None,
    cost: Callable[[PassRecord], float | None],
    block_content: BlockContent,
) -> dict[str, Any]:
    """Return the report of a turn as JSON values.

    Args:
        cost: returns the cost of a pass, if it is known.
    """
    costs = [cost(one) for one in exchange.passes]
    data: dict[str, Any] = {
        "turn_id": exchange.turn_id,
        "conversation_id": conversation_id,
        "message_id": exchange.answer_id,
        "user": user,
        "wire": exchange.wire,
        "model": exchange.model,
        "state": exchange.state,
        "began": exchange.started,
        "total_ms": exchange.duration_ms,
        "first_token_ms": exchange.first_token_ms,
        "stop_reason": exchange.stop_reason,
        "error": exchange.error_code,
        "usage": exchange.total_usage,
        "passes": [{**msgspec.to_builtins(one), "cost": its} for one, its in zip(exchange.passes, costs, strict=True)],
        "strategy": exchange.strategy,
    }
    data["cost"] = sum(known) if (known := [one for one in costs if one is not None]) else None
    data["rounds"] = [_round(one) for one in exchange.rounds]
    data["notices"] = [{"code": one.code, "text": one.text, "turn_pass": one.turn_pass} for one in exchange.notices]
    data["calls"] = [
        {
            "call_id": call.id,
            "name": call.name,
            "params": call.params,
            "by": call.by,
            "turn_pass": call.turn_pass,
            "round": call.round,
            "began_ms": call.began_ms,
            "ms": call.ms,
            "outcome": call.outcome,
            **({"result": block_content(call.name, call.block, False)} if call.outcome == "ok" else {}),
            **({"reason": call.reason} if call.reason else {}),
            "cached": call.cached,
            "approval": call.approval,
            "preview": call.preview,
        }
        for call in exchange.calls
    ]
    data["calls_by_name"] = exchange.calls_by_name
    return data


def conversation_data(conversation: Conversation) -> dict[str, Any]:
    """Return a conversation as JSON values, without its messages."""
    data: dict[str, Any] = msgspec.to_builtins(conversation)
    if not conversation.excerpt:
        del data["found"]
    if not conversation.private:
        del data["private"]
    return data


def _messages(exchange: Exchange, count_tokens: CountTokens, block_content: BlockContent) -> Iterator[dict[str, Any]]:
    rounds = {one.number: one.round for one in exchange.passes}
    yield {
        **_message(exchange.question_id, "user", exchange.started),
        "source": exchange.source,
        "parts": [{"type": "text", "text": exchange.message}] if exchange.message else [],
        "files": list(exchange.files),
        "recalled": list(exchange.recalled_ids),
    }
    yield {
        **_message(exchange.answer_id, "assistant", exchange.ended),
        **({"source": exchange.source} if exchange.source == "report" else {}),
        "parts": [
            _part(part, block_content, rounds)
            for part in _annotate((*exchange.automatic_calls, *exchange.parts), exchange.annotations)
            if exchange.outcome or not isinstance(part, Call) or part.block  # running calls are events
        ],
        **_outcome(exchange),
        **_details(exchange),
        "model": exchange.model,
        "strategy": exchange.strategy,
        **({"rounds": [_round(one) for one in exchange.rounds]} if exchange.rounds else {}),
        "tokens": {"count": count_tokens(exchange), "counted": "server" if exchange.tokens else "bytes/4"},
        "citations": [citation_data(citation) for call in exchange.calls for citation in call.citations],
    }


def _message(message_id: str, role: str, time: datetime | None) -> dict[str, Any]:
    return {"id": message_id or None, "role": role, "time": msgspec.to_builtins(time)}


def _outcome(exchange: Exchange) -> dict[str, str]:
    """The state of an answer. One that reached a limit is complete."""
    if exchange.outcome in _STATES:
        return {"state": _STATES[exchange.outcome]}
    if exchange.stop_reason is not None:
        return {"state": "complete", "stop_reason": exchange.stop_reason}
    return {"state": "error", "error": exchange.outcome}


def _details(exchange: Exchange) -> dict[str, Any]:
    """Error, usage and times of an answer, in the fields of the events. The code of an error is in the outcome."""
    data = {} if exchange.error is None else event_data(exchange.error)
    data.pop("code", None)
    if exchange.usage is not None:
        data["usage"] = event_data(exchange.usage)
    times = {"first_token_ms": exchange.first_token_ms, "total_ms": exchange.total_ms}
    return {**data, **{name: value for name, value in times.items() if value is not None}}


def _annotate(parts: Sequence[Part], annotations: Sequence[Annotation]) -> Iterator[Part | Annotation]:
    """The parts of an answer with the annotations at their positions; an annotation within a text splits it."""
    remaining = deque(sorted(annotations, key=lambda annotation: (annotation.position, annotation.offset)))
    for n, part in enumerate(parts):
        end = 0
        while remaining and remaining[0].position <= n:
            annotation = remaining.popleft()
            if isinstance(part, Text) and part.text[end : annotation.offset]:
                yield Text(part.text[end : annotation.offset], part.turn_pass)
                end = annotation.offset
            yield annotation
        if not isinstance(part, Text):
            yield part
        elif part.text[end:]:
            yield Text(part.text[end:], part.turn_pass)
    yield from remaining


def _round(one: RoundRecord) -> dict[str, Any]:
    """A round in the fields of its event, with its start and its duration."""
    data: dict[str, Any] = event_data(one.event)
    return {**data, "began_ms": one.began_ms, **({} if one.ms is None else {"ms": one.ms})}


def _part(part: Part | Annotation, block_content: BlockContent, rounds: Mapping[int, int]) -> dict[str, Any]:
    """A part with its round; `rounds` has the rounds of the passes."""
    number = rounds.get(part.turn_pass, 0) if isinstance(part, Text | Steer) else part.round
    in_round = {"round": number} if number else {}
    match part:
        case Text(text):
            return {"type": "text", "text": text, **in_round}
        case Steer(text):
            return {"type": "steered", "text": text, **in_round}
        case Annotation(text, code=None):
            return {"type": "thinking", "text": text, **in_round}
        case Annotation(text, code=code):
            return {"type": "notice", "code": code, "text": text, **in_round}
    content = part.reason or block_content(part.name, part.block, part.code is not None)
    return {
        "type": "call",
        "call_id": part.id,
        "name": part.name,
        "params": part.params,
        "outcome": part.code,
        "block": part.block,
        "text" if part.code is None else "reason": content,
        "citations": [*map(citation_data, part.citations)],
        "cached": part.cached,
        **({"by": part.by} if part.by == "assist" else {}),
        **in_round,
        **({} if part.ms is None else {"ms": part.ms}),
        **({} if part.approval is None else {"approval": part.approval}),
    }


def task_data(task: Task, schedule: str = "") -> dict[str, Any]:
    """Return a task as JSON values, without fields that are empty."""
    data = {field: getattr(task, field) for field in _TASK_FIELDS}
    data |= {"schedule": schedule} if schedule else {}
    data |= {field: value for field in _OPTIONAL_TASK_FIELDS if (value := getattr(task, field))}
    if task.approval is not None:
        data["approval"] = msgspec.structs.asdict(task.approval)
    values: dict[str, Any] = msgspec.to_builtins(data)
    return values


def encode_cursor(cursor: int) -> bytes:
    """Return the first frame of a channel, which has no event: a client that reconnects sends this cursor."""
    return b"retry: 2000\nid: %d\n\n" % cursor


def encode_packets(packets: Sequence[Packet]) -> bytes:
    """Return packets as events: `report` for the begin of a report, `task` for all others."""
    return b"".join(map(_encode_packet, packets))


def _encode_packet(packet: Packet) -> bytes:
    name = b"report" if packet.kind == "report" else b"task"
    return b"event: %b\ndata: %b\nid: %d\n\n" % (name, encode(packet_data(packet)), packet.key)


def packet_data(packet: Packet) -> dict[str, Any]:
    """Return the data of the event about a packet."""
    if packet.kind == "report":
        return {"conversation_id": packet.conversation_id, "turn_id": packet.turn_id}
    return {
        "task_id": packet.task_id,
        "title": packet.title,
        "state": packet.state,
        **({"text": packet.text} if packet.text else {}),
        "conversation_id": packet.conversation_id,
        **({"run": packet.run} if packet.run else {}),
        "kind": packet.kind,
    }
