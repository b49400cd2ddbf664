"""Converts exchanges and items of version 0.1.0 to the present form, and marks private data of 0.2.0. Pure."""

import json
from collections.abc import Mapping
from typing import Any, cast

from brain.store.rows import moment
from brain.task import MAX_USER_TEXT

_PUBLIC = frozenset({"web", "wiki", "pubmed", "docs", "medical", "list_specialists"})
"""Specialists of 0.2.0 that read no private data."""
_TAGS = {"said": "text", "called": "call", "steered": "steer"}
_NAMES = {
    "said": "message",
    "asked": "started",
    "answered": "ended",
    "recalled": "recalled_ids",
    "outside": "untrusted",
    "before": "messages_before",
    "behind": "messages_after",
}
_ITEM_NAMES = {"conversation": "conversation_id", "message": "message_id", "upto": "last"}
_ABOUT_NAMES = {"asides": "annotations", "failure": "error"}
_ASIDE_NAMES = {"place": "position", "at": "offset"}
_CALL_NAMES = {"kind": "type", "call_id": "id", "outcome": "code", "outside": "untrusted"}


def upgrade_row(
    said: str,
    question: str,
    source: str,
    question_id: str,
    answer_id: str,
    model: str,
    tokens: int,
    files: str,
    recalled: str,
    outside: int,
    asked: int,
    answered: int | None,
    outcome: str,
    *texts: str,
) -> str:
    """Return an exchange as JSON, from its columns in version 0.1.0. Damaged text stays as it is."""
    try:
        before, behind, parts, about = map(json.loads, texts)
        row = {
            "question": question,
            "parts": parts,
            "before": before,
            "behind": behind,
            "answer_id": answer_id,
            "question_id": question_id,
            "said": said,
            "files": json.loads(files),
            "source": source,
            "asked": moment(asked).isoformat(),
            "answered": None if answered is None else moment(answered).isoformat(),
            "outcome": outcome,
            "model": model,
            "tokens": tokens,
            "recalled": json.loads(recalled),
            "outside": bool(outside),
            "about": about,
        }
        return json.dumps(upgrade_exchange(row), ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return "".join(texts)


def upgrade_exchange(record: dict[str, Any]) -> dict[str, Any]:
    """Convert an exchange of an export of version 1. Unknown values stay, and the import rejects them."""
    renamed = _rename({name: value for name, value in record.items() if name != "about"}, _NAMES)
    if isinstance(parts := record.get("parts"), list):
        parts = [_upgrade_part(part) for part in parts]
        renamed["automatic_calls"] = [part for part in parts if _is_automatic(part)]
        renamed["parts"] = [part for part in parts if not _is_automatic(part)]
    if isinstance(about := record.get("about"), dict):
        renamed |= _rename(about, _ABOUT_NAMES)
        if isinstance(asides := about.get("asides"), list):
            renamed["annotations"] = [_rename(aside, _ASIDE_NAMES) for aside in asides]
    return cast("dict[str, Any]", renamed)


def upgrade_item(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a fact or memory of an export of version 1."""
    return cast("dict[str, Any]", _rename(record, _ITEM_NAMES))


def _upgrade_part(part: Any) -> Any:
    named = _rename(part, _CALL_NAMES)
    if isinstance(named, dict) and isinstance(kind := named.get("type"), str):
        named["type"] = _TAGS.get(kind, kind)
    return named


def _rename(value: Any, names: Mapping[Any, str]) -> Any:
    return {names.get(name, name): one for name, one in value.items()} if isinstance(value, dict) else value


def _is_automatic(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "call" and part.get("turn_pass") == 0


def has_private_data(data: str) -> bool:
    """Return whether the model read private data in an exchange of 0.2.0."""
    try:
        exchange = json.loads(data)
        calls = [*exchange.get("automatic_calls", ()), *(one for one in exchange["parts"] if one["type"] == "call")]
        has_read = any(call.get("code") in (None, "refused") and call["name"] not in _PUBLIC for call in calls)
        return has_read or any(exchange.get(name) for name in ("files", "recalled_ids", "told_tasks"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return True  # it is damaged


def mark_private(data: str) -> str:
    """Return an exchange as JSON with the mark. Damaged text stays as it is."""
    return _change(data, private_data=True)


def upgrade_task(data: str, messages: str | None, has_private_run: int) -> str:
    """Return a task of 0.2.0 as JSON, with the marks and the words of the user.

    A person wrote the prompt if the task has a conversation of its own. Otherwise a model may have written it.

    Args:
        messages: the user's messages in the conversation of the task.
    """
    try:
        task = json.loads(data)
        if task["conversation_id"] == f"conv{task['id'].removeprefix('task')}":
            return _change(data, user_text=task["prompt"], private_data=bool(has_private_run))
    except (ValueError, LookupError, TypeError, AttributeError):
        return data
    return _change(data, user_text=(messages or "")[-MAX_USER_TEXT:], private_data=True, untrusted=True)


def _change(data: str, **fields: Any) -> str:
    try:
        return json.dumps({**json.loads(data), **fields}, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError):
        return data
