"""Brings files of 0.1.0 and 0.2.0, and exports of 0.1.0, up to date. No other module knows their forms."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from brain.store import full_text
from brain.store.rows import moment
from brain.store.schema import EXCHANGES, INDEXES, TABLES, add_secrets
from brain.task import MAX_USER_TEXT

FIRST_VERSIONS = (1, 2)
"""Written by 0.1.0. Those in between were never released."""
SECOND_VERSION = 14
"""Written by 0.2.0."""
VERSIONS = (*FIRST_VERSIONS, SECOND_VERSION)

_RENAMED = {"user": "account", "vector": "embedding", "exam": "server_value"}
"""Tables that have another name now."""
_CHANGED_FIRST = ("user", "conversation", "exchange", "item", "vector", "exam")
"""Tables of 0.1.0 that `_COPY_FIRST` copies into the present ones."""
_UNCHANGED_FIRST = ("file", "leftover")
_JSON_COLUMNS = ("before", "behind", "parts", "about")
_COLUMNS = (
    *("said", "question", "source", "question_id", "answer_id", "model", "tokens", "files", "recalled", "outside"),
    *("asked", "answered", "outcome", *_JSON_COLUMNS),
)
"""Columns of an exchange of 0.1.0 that are one JSON text now."""
_COPY_VALUES = "INSERT INTO server_value (name, value) SELECT name, result FROM old_exam"
_COPY_FIRST = (
    _COPY_VALUES,
    """INSERT INTO account (key, name, recalls, bytes, revision)
        SELECT key, name, recalls, bytes, revision FROM old_user""",
    f"""INSERT INTO conversation (key, account, id, created, updated, used, named, last, bytes, messages, sources,
            history, memory, summarised_to, unsummarised, claimed, title)
        SELECT key, user, id, created, updated, updated, named, last, bytes, messages, (
                SELECT coalesce(sum(DISTINCT CASE source WHEN 'chat' THEN 1 WHEN 'voice' THEN 2 ELSE 4 END), 0)
                FROM old_exchange e
                WHERE e.key BETWEEN c.key << {EXCHANGES} AND (c.key + 1) << {EXCHANGES}
            ), (
                SELECT coalesce(sum(told), 0) FROM old_exchange e
                WHERE e.key BETWEEN c.key << {EXCHANGES} AND (c.key + 1) << {EXCHANGES}
            ),
            memory, summarised_to, unsummarised, claimed, title
        FROM old_conversation c""",
    f"""INSERT INTO exchange (key, in_history, messages, bytes, started, ended, process, replaces, outcome, source,
            question_id, answer_id, recalled_ids, data, unindexed)
        SELECT key, told, messages, bytes, asked, answered, '', replaces, outcome, source, question_id,
            answer_id, recalled, upgrade({", ".join(_COLUMNS)}), outcome = ''
        FROM old_exchange""",
    """INSERT INTO item (key, account, id, kind, category, mutable, untrusted, created, updated, conversation, exchange,
            bytes, embedded, text, former)
        SELECT key, user, id, kind, category, mutable, outside, created, updated, conversation, exchange,
            bytes, embedded, text, was
        FROM old_item""",
    "INSERT INTO embedding SELECT * FROM old_vector",
    "ALTER TABLE said RENAME TO exchange_words",
    "ALTER TABLE stated RENAME TO item_words",
)

_CHANGED_SECOND = (
    *("user", "conversation", "exchange", "item", "task", "task_usage", "channel", "channel_cursor", "vector", "exam"),
)
"""Tables of 0.2.0 that `_COPY_SECOND` copies into the present ones."""
_NEW_SECOND = ("answer", "import", "draft", "process")
_COPY_SECOND = (
    _COPY_VALUES,
    """INSERT INTO account (key, name, recalls, bytes, revision, claimed)
        SELECT key, CASE hidden WHEN 0 THEN name END, recalls, bytes, revision, claimed FROM old_user""",
    """INSERT INTO conversation (key, account, id, created, updated, used, named, last, bytes, messages, sources,
            history, memory, summarised_to, unsummarised, claimed, private, title)
        SELECT key, user, id, created, updated, used, named, last, bytes, messages, sources, history, memory,
            summarised_to, unsummarised, claimed, private, title
        FROM old_conversation""",
    """INSERT INTO item (key, account, id, kind, category, mutable, untrusted, created, updated, conversation, exchange,
            bytes, embedded, text, former)
        SELECT key, user, id, kind, category, mutable, untrusted, created, updated, conversation, exchange,
            bytes, embedded, text, former
        FROM old_item""",
    """INSERT INTO exchange (key, in_history, messages, bytes, started, ended, process, replaces, outcome, source,
            question_id, answer_id, recalled_ids, data, unindexed)
        SELECT key, in_history, messages, bytes, started, ended, '', replaces, outcome, source, question_id, answer_id,
            recalled_ids, data, unindexed
        FROM old_exchange""",
    """INSERT INTO task (key, account, id, conversation, state, is_active, due, process, fingerprint, data)
        SELECT key, user, id, conversation, state, is_active, due, CASE state WHEN 'running' THEN '' END, fingerprint,
            data
        FROM old_task""",
    "INSERT INTO task_usage SELECT * FROM old_task_usage",
    "INSERT INTO channel SELECT * FROM old_channel",
    "INSERT INTO channel_cursor SELECT * FROM old_channel_cursor",
    "INSERT INTO embedding SELECT * FROM old_vector",
    """INSERT INTO draft (exchange, last, data)
        SELECT e.key, l.last, json_object('text', l.text, 'turn_pass',
            1 + coalesce(json_extract(e.data, '$.parts[#-1].turn_pass'), 0))
        FROM exchange e JOIN turn t ON t.exchange = e.key JOIN turn_log l ON l.turn = t.key
        WHERE e.unindexed = 1 AND e.outcome = '' AND json_valid(e.data) AND l.first > t.snapshot_last AND l.text <> ''
        ORDER BY e.key, l.first""",
    "DROP TABLE turn_log",
    "DROP TABLE turn_command",
    "DROP TABLE turn",
)
"""Users that 0.2.0 hid because of a deletion or an unfinished import have no name now.

What it logged of turns that were cut off is the text since their last checkpoint.
"""

_MARK = (
    "UPDATE account SET private_data = 1",
    "CREATE TEMP TABLE first_private (conversation INTEGER PRIMARY KEY, exchange INTEGER NOT NULL)",
    f"""INSERT INTO first_private SELECT key >> {EXCHANGES}, min(key) FROM exchange WHERE has_private_data(data)
        GROUP BY key >> {EXCHANGES}""",
    f"""UPDATE exchange SET data = mark_private(data)
        WHERE key >= (SELECT exchange FROM first_private WHERE conversation = exchange.key >> {EXCHANGES})""",
    f"""UPDATE task SET data = upgrade_task(data, (
            SELECT group_concat(json_extract(e.data, '$.message'), char(10)) FROM conversation c
            JOIN exchange e ON e.key BETWEEN c.key << {EXCHANGES} AND (c.key + 1) << {EXCHANGES}
            WHERE c.account = task.account AND c.id = task.conversation AND e.source NOT IN ('task', 'report')
                AND json_valid(e.data)
        ), EXISTS (
            SELECT 1 FROM first_private JOIN conversation c ON c.key = conversation
            WHERE c.account = task.account AND c.id = 'work' || substr(task.id, 5)
        ))""",
    "DROP TABLE first_private",
)
"""Marks what older versions did not: private data that conversations and tasks may contain."""

_JOIN_MEMORIES = (
    "CREATE TEMP TABLE same (key INTEGER PRIMARY KEY, kept INTEGER NOT NULL)",
    """INSERT INTO same SELECT key, kept FROM (
            SELECT key, first_value(key) OVER (PARTITION BY account, text ORDER BY updated DESC, key DESC) AS kept
            FROM item WHERE kind = 'memory'
        ) WHERE key <> kept""",
    f"""UPDATE exchange SET recalled_ids = (
            SELECT json_group_array(coalesce((
                SELECT k.id FROM conversation c JOIN item i ON i.account = c.account AND i.id = r.value
                JOIN same ON same.key = i.key JOIN item k ON k.key = same.kept WHERE c.key = exchange.key >> {EXCHANGES}
            ), r.value)) FROM json_each(recalled_ids) r
        ) WHERE recalled_ids <> '[]' AND json_valid(recalled_ids) AND EXISTS (SELECT 1 FROM same)""",
    "UPDATE conversation SET memory = same.kept FROM same WHERE memory = same.key",
    """UPDATE item SET untrusted = 1
        WHERE key IN (SELECT kept FROM same JOIN item i ON i.key = same.key WHERE i.untrusted = 1)""",
    "UPDATE leftover SET removed = removed + 1 WHERE EXISTS (SELECT 1 FROM same)",
    "DELETE FROM item_words WHERE rowid IN (SELECT key FROM same)",
    "DELETE FROM embedding WHERE item IN (SELECT key FROM same)",
    "DELETE FROM item WHERE key IN (SELECT key FROM same)",
    """UPDATE account SET bytes = (SELECT coalesce(sum(bytes), 0) FROM conversation WHERE account = account.key)
        + (SELECT coalesce(sum(bytes), 0) FROM item WHERE account = account.key)""",
    "DROP TABLE same",
)
"""Leaves one of the memories with the same text; erasing it still finds the questions that recalled the others."""


_INDEX_PAIRS = (
    "UPDATE exchange SET unindexed = 1 WHERE outcome <> '' AND has_pairs(data)",
    f"""INSERT OR REPLACE INTO exchange_words (rowid, words)
        SELECT key << {EXCHANGES}, index_terms(account || 'q', title) FROM conversation
        WHERE account IS NOT NULL AND has_pairs(title) AND key << {EXCHANGES} IN (SELECT rowid FROM exchange_words)""",
    """INSERT OR REPLACE INTO item_words (rowid, words) SELECT key, index_terms(account || substr(kind, 1, 1), text)
        FROM item WHERE account IS NOT NULL AND has_pairs(text)""",
)
"""Indexes texts in scripts without spaces again: their terms were single characters. Exchanges follow later."""


def upgrade(db: sqlite3.Connection, version: int) -> None:
    """Bring the tables of an older version up to date, in the caller's transaction, without foreign keys."""
    db.create_function("upgrade", -1, _upgrade_row, deterministic=True)
    db.create_function("has_private_data", 1, _has_private_data, deterministic=True)
    db.create_function("mark_private", 1, partial(_change, private_data=True), deterministic=True)
    db.create_function("upgrade_task", 3, _upgrade_task, deterministic=True)
    db.create_function("has_pairs", 1, full_text.has_pairs, deterministic=True)
    db.create_function("index_terms", 2, full_text.index_terms, deterministic=True)
    db.execute("PRAGMA legacy_alter_table = ON")  # references stay with the names
    changed: Sequence[str]
    copy: Sequence[str]
    if version == SECOND_VERSION:
        changed, copy = _CHANGED_SECOND, _COPY_SECOND
        new = [TABLES[_RENAMED.get(name, name)] for name in (*_CHANGED_SECOND, *_NEW_SECOND)]
        statements = ["DROP TABLE process"]
    else:
        changed, copy = _CHANGED_FIRST, _COPY_FIRST
        new = [table for name, table in TABLES.items() if name not in _UNCHANGED_FIRST]
        former = db.execute("SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql <> ''")
        statements = [f"DROP {kind} {name}" for kind, name in former]
        statements += ["ALTER TABLE exchange ADD COLUMN about TEXT NOT NULL DEFAULT '{}'"] if version == 1 else []
    names = {f"old_{name}": _RENAMED.get(name, name) for name in changed}
    for statement in (
        *statements,
        *(f"ALTER TABLE {old.removeprefix('old_')} RENAME TO {old}" for old in names),
        *new,
        *copy,
        *(f"DELETE FROM sqlite_sequence WHERE name = '{name}'" for name in names.values()),
        *(f"UPDATE sqlite_sequence SET name = '{name}' WHERE name = '{old}'" for old, name in names.items()),
        *(f"DROP TABLE {old}" for old in reversed(names)),
        *_MARK,
        *(statement.replace("INDEX ", "INDEX IF NOT EXISTS ", 1) for statement in INDEXES),
        *_JOIN_MEMORIES,
        *_INDEX_PAIRS,
        *add_secrets(),
    ):
        db.execute(statement)
    db.execute("PRAGMA legacy_alter_table = OFF")


def upgrade_record(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a record of an export of version 1. Unknown values stay, and the import rejects them."""
    match record.get("kind"):
        case "exchange":
            return _upgrade_exchange(record)
        case "item":
            return cast("dict[str, Any]", _rename(record, _ITEM_NAMES))
    return record


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


def _upgrade_row(*values: Any) -> str:
    """Return an exchange as JSON, from its columns in version 0.1.0. Damaged text stays as it is."""
    row = dict(zip(_COLUMNS, values, strict=True))
    times = {name: row[name] for name in ("asked", "answered")}
    try:
        json_values = {name: json.loads(row[name]) for name in (*_JSON_COLUMNS, "files", "recalled")}
        iso = {name: None if time is None else moment(time).isoformat() for name, time in times.items()}
        exchange = _upgrade_exchange({**row, **json_values, **iso, "outside": bool(row["outside"])})
        return json.dumps(exchange, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return "".join(row[name] for name in _JSON_COLUMNS)


def _upgrade_exchange(record: dict[str, Any]) -> dict[str, Any]:
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


def _upgrade_part(part: Any) -> Any:
    named = _rename(part, _CALL_NAMES)
    if isinstance(named, dict) and isinstance(kind := named.get("type"), str):
        named["type"] = _TAGS.get(kind, kind)
    return named


def _rename(value: Any, names: Mapping[Any, str]) -> Any:
    return {names.get(name, name): one for name, one in value.items()} if isinstance(value, dict) else value


def _is_automatic(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "call" and part.get("turn_pass") == 0


def _has_private_data(data: str) -> bool:
    """Return whether the model read private data in an exchange of 0.2.0."""
    try:
        exchange = json.loads(data)
        calls = [*exchange.get("automatic_calls", ()), *(one for one in exchange["parts"] if one["type"] == "call")]
        has_read = any(call.get("code") in (None, "refused") and call["name"] not in _PUBLIC for call in calls)
        return has_read or any(exchange.get(name) for name in ("files", "recalled_ids", "told_tasks"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return True  # it is damaged


def _upgrade_task(data: str, messages: str | None, has_private_run: int) -> str:
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
    """Return an object as JSON with other fields. Damaged text stays as it is."""
    try:
        return json.dumps({**json.loads(data), **fields}, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError):
        return data
