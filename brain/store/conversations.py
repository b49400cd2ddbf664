"""Conversations as their user sees them: the list, one of them, what was said last in any."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from brain.errors import BadRequest
from brain.messages import Attachment, Conversation, ConversationPage, Exchange, File, Interaction, Source
from brain.store import answers, exchanges, hidden, rows, search_terms, turn_log, turns
from brain.store.schema import EXCHANGES

PAGE_BYTES = 4 * 1024 * 1024
"""About how much of a conversation is read at once; its exchanges are whole."""
FIRST_PAGE = (2**62, 0)
FREQUENT = 1000
"""Words that stand in so many places are looked for in the newest conversations first,"""
LOOKED_INTO = 200
"""which are so many."""
SOURCES: Sequence[Source] = ("chat", "voice", "api")

_SHOWN = (
    "AND NOT EXISTS (SELECT 1 FROM exchange r WHERE r.conversation = exchange.conversation AND r.outcome = '' "
    "AND r.until > ? AND exchange.key >= r.replaces AND exchange.key < r.key)"
)
"""Those that a turn is to replace are not, while it runs."""

_HEADING = "c.key, c.id, c.title, c.created, c.updated, c.messages"


def headings(
    db: sqlite3.Connection, user: str, text: str, before: str | None, limit: int, now: int
) -> list[Conversation]:
    """The conversations of a user, newest first; with a text, those in which its words stand.

    A text of signs alone has no words, and is looked for in the titles.

    Raises:
        BadRequest: when there is no conversation `before`.
    """
    number = known(db, user)
    if number is None:
        return []
    page = FIRST_PAGE
    if before is not None:
        page = _place(db, number, before)
    wanted = search_terms.searched(text)
    if not wanted:
        found = db.execute(
            f"SELECT {_HEADING}, 0 FROM conversation c WHERE c.user = ? AND instr(c.title, ?) "
            "AND (c.used, c.key) < (?, ?) ORDER BY c.used DESC, c.key DESC LIMIT ?",
            (number, text.strip(), *page, limit),
        ).fetchall()
    else:
        found = _with_words(db, number, wanted, page, limit)
    return [_heading(db, row, now, wanted) for row in found]


def _with_words(
    db: sqlite3.Connection, user: int, wanted: Sequence[str], page: tuple[int, int], limit: int
) -> list[Any]:
    """Conversations with all of these words in one message and its answer, or, where they nowhere meet, with any.

    The last word may be the beginning of others, unless it is frequent itself: FTS5 collects all places where any of
    them stands before it returns the first.
    """
    owner = exchanges.owner(user)
    whole = [search_terms.query((owner,), word) for word in wanted]
    begun = [*whole[:-1], search_terms.query((owner,), wanted[-1], begun=True)]
    for operator in (" AND ", " OR ")[: len(wanted)]:
        match = operator.join(begun)
        found = _newest_with(db, user, operator.join(whole), page, limit) or _all_with(db, user, match, page, limit)
        if found or (page != FIRST_PAGE and _all_with(db, user, match, FIRST_PAGE, 1)):
            return found
    return []


def _newest_with(db: sqlite3.Connection, user: int, match: str, page: tuple[int, int], limit: int) -> list[Any]:
    """Conversations found by looking into each, newest first: quick where words are frequent. None where they are not,
    or too few of the newest have them."""
    frequent = "SELECT count(*) FROM (SELECT 1 FROM said WHERE said MATCH ? LIMIT ?)"
    if db.execute(frequent, (match, FREQUENT)).fetchone()[0] < FREQUENT:
        return []
    newest = db.execute(
        f"SELECT {_HEADING} FROM conversation c WHERE c.user = ? AND (c.used, c.key) < (?, ?) "
        "ORDER BY c.used DESC, c.key DESC LIMIT ?",
        (user, *page, LOOKED_INTO),
    )
    newest_hit = "SELECT max(rowid) FROM said WHERE said MATCH ? AND rowid BETWEEN ? AND ?"
    found = list[Any]()
    for row in newest:
        ((at,),) = db.execute(newest_hit, (match, row[0] << EXCHANGES, exchanges.span(row[0])[1]))
        if at is not None:
            found.append((*row, at))
        if len(found) == limit:
            return found
    return []


def _all_with(db: sqlite3.Connection, user: int, match: str, page: tuple[int, int], limit: int) -> list[Any]:
    """Conversations found by walking all places where the words stand."""
    return db.execute(
        f"WITH hit AS (SELECT rowid >> {EXCHANGES} AS conversation, max(rowid) AS at FROM said WHERE said MATCH ? "
        f"GROUP BY 1) SELECT {_HEADING}, hit.at FROM hit JOIN conversation c ON c.key = hit.conversation "
        "WHERE c.user = ? AND (c.used, c.key) < (?, ?) ORDER BY c.used DESC, c.key DESC LIMIT ?",
        (match, user, *page, limit),
    ).fetchall()


def opened(
    db: sqlite3.Connection, user: str, conversation_id: str, before: str | None, limit: int, now: int
) -> ConversationPage | None:
    """One of them, with the newest of its exchanges that came before the one that begins with question `before`.

    Of very long exchanges fewer are read.

    Raises:
        BadRequest: when it has no such question.
    """
    row = _row(db, user, conversation_id)
    if row is None:
        return None
    first, end = exchanges.span(row[0])
    if before is not None:
        end = _question(db, row[0], before) - 1
    newest, size = _page(db, first, end, limit, now)
    seen = list(rows.readable(partial(_seen, db), reversed(newest)))
    oldest = newest[-1][0] if newest else first
    query = f"SELECT 1 FROM exchange WHERE key BETWEEN ? AND ? {_SHOWN} LIMIT 1"
    more = db.execute(query, (first, oldest - 1, now)).fetchone()
    files = db.execute(
        "SELECT exchange, id, name, type, size FROM file WHERE exchange BETWEEN ? AND ? ORDER BY id", (oldest, end)
    ).fetchall()
    keys = {key for key, *_ in newest}
    return ConversationPage(
        _heading(db, (*row, 0), now, ()),
        seen,
        [File(*file) for key, *file in files if key in keys],
        newest[-1][rows.QUESTION_ID] if more else None,
        size,
    )


def _page(db: sqlite3.Connection, first: int, end: int, limit: int, now: int) -> tuple[list[Any], int]:
    """The rows of the newest exchanges that fit into one answer, one at least, newest first; and what they take."""
    taken = " + ".join(f"length(CAST({column} AS BLOB))" for column in ("said", "question", "parts", "about"))
    found = db.execute(
        f"SELECT {taken}, {rows.EXCHANGE}, outcome = '' AND until <= ? FROM exchange WHERE key BETWEEN ? AND ? "
        f"{_SHOWN} ORDER BY key DESC LIMIT ?",
        (now, first, end, now, limit),
    )
    newest, size = list[Any](), 0
    for length, *row in found:
        if newest and size + length > PAGE_BYTES:
            break
        newest.append(row)
        size += length
    return newest, size


def file(db: sqlite3.Connection, user: str, conversation_id: str, number: int) -> Attachment | None:
    """A file of a conversation, by its id."""
    row = _row(db, user, conversation_id)
    query = "SELECT id, name, type, data FROM file WHERE conversation = ? AND id = ?"
    found = None if row is None else db.execute(query, (row[0], number)).fetchone()
    return None if found is None else Attachment(*found)


def rename(db: sqlite3.Connection, user: str, conversation_id: str, title: str, now: int) -> Conversation | None:
    """Gives a conversation a title of its user's."""
    row = _row(db, user, conversation_id)
    if row is None:
        return None
    db.execute("UPDATE conversation SET named = 1 WHERE key = ?", (row[0],))
    exchanges.name(db, row[0], title)
    row = _row(db, user, conversation_id)
    assert row is not None
    return _heading(db, (*row, 0), now, ())


def delete(db: sqlite3.Connection, user: str, conversation_id: str, lease: turns.Lease) -> int | None:
    """Deletes a conversation, if there is one, as `hidden.hide_conversation` does.

    Raises:
        BadRequest: `busy`, while a turn of it runs.
    """
    row = _row(db, user, conversation_id)
    if row is None:
        return None
    if turns.running(db, row[0], lease):
        raise turns.busy()
    turn_log.forget(db, user, conversation_id)
    return hidden.hide_conversation(db, row[0])


def recent(db: sqlite3.Connection, user: str, limit: int) -> list[Interaction]:
    """What was said last, newest first. It stands in the conversations that were used last."""
    number = known(db, user)
    used = "SELECT key, id FROM conversation WHERE user = ? ORDER BY used DESC LIMIT ?"
    newest: list[tuple[int, int, str]] = []
    for key, conversation_id in db.execute(used, (number, limit)).fetchall():
        ended = "SELECT asked, key FROM exchange WHERE key BETWEEN ? AND ? AND outcome <> '' ORDER BY key DESC LIMIT ?"
        newest += [(*row, conversation_id) for row in db.execute(ended, (*exchanges.span(key), limit))]
    newest.sort(reverse=True)
    return [_interaction(db, key, conversation_id) for _, key, conversation_id in newest[:limit]]


def known(db: sqlite3.Connection, user: str) -> int | None:
    """The number of a user of whom something is kept."""
    row = db.execute("SELECT key FROM user WHERE name = ?", (user,)).fetchone()
    return None if row is None else int(row[0])


def _row(db: sqlite3.Connection, user: str, conversation_id: str) -> tuple[Any, ...] | None:
    found = db.execute(
        f"SELECT {_HEADING} FROM conversation c JOIN user u ON u.key = c.user WHERE u.name = ? AND c.id = ?",
        (user, conversation_id),
    ).fetchone()
    return None if found is None else tuple(found)


def _place(db: sqlite3.Connection, user: int, conversation_id: str) -> tuple[int, int]:
    query = "SELECT used, key FROM conversation WHERE user = ? AND id = ?"
    row = db.execute(query, (user, conversation_id)).fetchone()
    if row is None:
        raise BadRequest("before must be the id of a conversation: that of the last one that was listed.", "before")
    return row[0], row[1]


def _question(db: sqlite3.Connection, conversation: int, question_id: str) -> int:
    query = "SELECT key FROM exchange WHERE conversation = ? AND question_id = ?"
    row = db.execute(query, (conversation, question_id)).fetchone()
    if row is None:
        raise BadRequest("before must be the id of a question of this conversation.", "before")
    return int(row[0])


def _heading(db: sqlite3.Connection, row: Sequence[Any], now: int, wanted: Sequence[str]) -> Conversation:
    key, conversation_id, title, created, updated, messages, at = row
    used = "SELECT 1 FROM exchange WHERE conversation = ? AND source = ? LIMIT 1"
    runs = "SELECT 1 FROM exchange WHERE conversation = ? AND outcome = '' AND until > ?"
    return Conversation(
        conversation_id,
        title,
        rows.moment(created),
        rows.moment(updated),
        messages,
        tuple(source for source in SOURCES if db.execute(used, (key, source)).fetchone()),
        db.execute(runs, (key, now)).fetchone() is not None,
        _found(db, at, title, wanted) if wanted else "",
    )


def _found(db: sqlite3.Connection, at: int, title: str, wanted: Sequence[str]) -> str:
    row = db.execute("SELECT said, parts FROM exchange WHERE key = ?", (at,)).fetchone()
    return search_terms.found(title if row is None else f"{row[0]}\n{answers.visible(row[1])}", wanted)


def _seen(db: sqlite3.Connection, row: Sequence[Any]) -> Exchange:
    """An exchange as its user sees it; what runs without a process was interrupted."""
    *columns, lapsed = row
    exchange = rows.exchange_of(columns)
    if not exchange.outcome:
        turn_log.add_text(exchange, turn_log.text_after_snapshot(db, columns[0]))
    return replace(exchange, outcome="interrupted") if lapsed else exchange


def _interaction(db: sqlite3.Connection, key: int, conversation_id: str) -> Interaction:
    query = "SELECT asked, said, parts, outside FROM exchange WHERE key = ?"
    ((asked, said, parts, outside),) = db.execute(query, (key,))
    return Interaction(conversation_id, rows.moment(asked), said, answers.visible(parts), bool(outside))
