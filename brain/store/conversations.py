"""Lists, searches, reads, renames and deletes the conversations of a user, and claims idle ones for summaries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from brain.errors import BadRequest
from brain.messages import Attachment, Exchange, Interaction, Item, Source
from brain.store import counts, deletion, exchanges, full_text, items, rows, tasks, turns, users
from brain.store.rows import SECOND
from brain.store.schema import EXCHANGES
from brain.store.tx import Tx
from brain.store.users import Counts
from brain.text import one_line

PAGE_BYTES = 4 * 1024 * 1024
"""Approximate limit of one page; exchanges are never split."""
FIRST_PAGE = (2**62, 0)
FREQUENT = 1000
"""A search with more matches than this first looks into each of the newest conversations."""
NEWEST_SEARCHED = 200
MAX_SUMMARIZED = 40
"""A summary covers at most this many exchanges, the newest."""
IDLE_CLAIM = 300 * SECOND
"""How long a claim of idle conversations keeps other processes away, in microseconds."""

_IS_SHOWN = (
    f"AND NOT EXISTS (SELECT 1 FROM {exchanges.RUNNING} AND e.key > exchange.key AND e.key <= ? "
    f"AND {exchanges.IS_ALIVE} AND exchange.key >= e.replaces)"
)
"""Excludes exchanges that a running turn replaces."""

_IS_LAPSED = f"CASE WHEN e.outcome = '' AND NOT {exchanges.IS_ALIVE} THEN 1 ELSE 0 END"
"""Whether exchange `e` was running in a process that has ended."""
_CONVERSATION = "c.key, c.id, c.title, c.created, c.updated, c.messages, c.sources, c.private"


class Conversation(msgspec.Struct, frozen=True):
    """One conversation in a list.

    Attributes:
        messages: Number of questions and answers.
        sources: Sources of its messages.
        running: Whether a turn of it runs.
        private: Whether only local models may read it.
        excerpt: A passage with words of the search.
    """

    id: str
    title: str
    created: datetime
    updated: datetime
    messages: int
    sources: tuple[Source, ...] = ()
    running: bool = False
    private: bool = False
    excerpt: str = msgspec.field(name="found", default="")


@dataclass(frozen=True, slots=True)
class File:
    """An attachment without its content."""

    id: int
    name: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Some exchanges of a conversation, oldest first, with their files.

    Attributes:
        earlier: ID of the oldest question on this page, if there are earlier ones.
        size: Estimated size of the exchanges in bytes.
    """

    conversation: Conversation
    exchanges: Sequence[Exchange]
    files: Sequence[File]
    earlier: str | None
    size: int = 0


@dataclass(frozen=True, slots=True)
class IdleConversation:
    """A conversation that was idle for some time, and its exchanges that need a summary.

    Attributes:
        exchanges: The newest of these exchanges, oldest first.
        memory: Summary of the earlier exchanges.
        last_key: Key of the newest exchange in the store.
    """

    user: str
    conversation_id: str
    title: str
    exchanges: Sequence[Exchange]
    memory: Item | None
    last_key: int


def list_conversations(
    tx: Tx, user: str, text: str = "", before: str | None = None, limit: int = 50
) -> list[Conversation]:
    """List the conversations of a user, newest first; with a text, only those that contain its words.

    A text without words, such as punctuation, is searched for in the titles.

    Raises:
        BadRequest: the conversation `before` does not exist.
    """
    number = users.find(tx, user)
    if number is None:
        return []
    page = FIRST_PAGE
    if before is not None:
        row = tx.execute("SELECT used, key FROM conversation WHERE account = ? AND id = ?", (number, before)).fetchone()
        if row is None:
            message = "`before` must be the id of the last conversation that was listed."
            raise BadRequest(message, "before")
        page = row
    searched = full_text.search_words(text)
    if not searched:
        line = one_line(text)
        found = tx.execute(
            f"SELECT {_CONVERSATION}, 0 FROM conversation c WHERE c.account = ? "
            "AND (? = '' OR replace(c.title, ?, '') <> c.title) "
            f"AND {exchanges.IS_LISTED} AND (c.used, c.key) < (?, ?) ORDER BY c.used DESC, c.key DESC LIMIT ?",
            (number, line, line, *page, limit),
        ).fetchall()
    else:
        found = _search(tx, number, searched, page, limit)
    return [_conversation(tx, row, searched) for row in found]


def _search(tx: Tx, user: int, words: Sequence[str], page: tuple[int, int], limit: int) -> list[Any]:
    """Find conversations with all words in one message and its answer; otherwise with any word.

    The last word may be a prefix, unless it is frequent: FTS5 collects all matches of a prefix before it returns the
    first one. So it does for a single character of a script without spaces.
    """
    prefixes = (exchanges.term_prefix(user),)
    has_character = any(len(word) == 1 and full_text.has_pairs(word) for word in words)
    whole = [full_text.query(tx, prefixes, word) for word in words]
    begun = [*whole[:-1], full_text.query(tx, prefixes, words[-1], is_prefix=True)]
    for join in (tx.words.all_of, tx.words.any_of)[: len(words)]:
        match = join(begun)
        newest = [] if has_character else _search_newest(tx, user, join(whole), page, limit)
        found = newest or _search_all(tx, user, match, page, limit)
        if found or (page != FIRST_PAGE and _search_all(tx, user, match, FIRST_PAGE, 1)):
            return found
    return []


def _search_newest(tx: Tx, user: int, match: str, page: tuple[int, int], limit: int) -> list[Any]:
    """Search the newest conversations one by one, which is fast for frequent words.

    Returns nothing if the words are rare, or if too few of the newest conversations have them.
    """
    frequent = f"SELECT count(*) FROM (SELECT 1 FROM {tx.words.matching('exchange_words')} LIMIT ?) found"
    if tx.execute(frequent, (match, FREQUENT)).fetchone()[0] < FREQUENT:
        return []
    newest = tx.execute(
        f"SELECT {_CONVERSATION} FROM conversation c WHERE c.account = ? AND {exchanges.IS_LISTED} "
        "AND (c.used, c.key) < (?, ?) ORDER BY c.used DESC, c.key DESC LIMIT ?",
        (user, *page, NEWEST_SEARCHED),
    )
    newest_hit = f"SELECT max(key) FROM {tx.words.matching('exchange_words')} WHERE key BETWEEN ? AND ?"
    found = list[Any]()
    for row in newest:
        ((at,),) = tx.execute(newest_hit, (match, row[0] << EXCHANGES, exchanges.span(row[0])[1]))
        if at is not None:
            found.append((*row, at))
        if len(found) == limit:
            return found
    return []


def _search_all(tx: Tx, user: int, match: str, page: tuple[int, int], limit: int) -> list[Any]:
    """Search all conversations through the index."""
    matching = tx.words.matching("exchange_words")
    return tx.execute(
        f"WITH hit AS (SELECT key >> {EXCHANGES} AS conversation, max(key) AS at FROM {matching} GROUP BY 1) "
        f"SELECT {_CONVERSATION}, hit.at FROM hit JOIN conversation c ON c.key = hit.conversation "
        f"WHERE c.account = ? AND {exchanges.IS_LISTED} AND (c.used, c.key) < (?, ?) "
        "ORDER BY c.used DESC, c.key DESC LIMIT ?",
        (match, user, *page, limit),
    ).fetchall()


def read_page(
    tx: Tx, user: str, conversation_id: str, before: str | None = None, limit: int = 50
) -> ConversationPage | None:
    """Return a conversation with a page of its newest exchanges.

    Args:
        before: the ID of a question; only earlier exchanges are returned.

    Raises:
        BadRequest: the conversation has no question `before`.
    """
    row = _find_row(tx, user, conversation_id)
    if row is None:
        return None
    first, last = exchanges.span(row[0])
    end = last
    if before is not None:
        query = "SELECT key FROM exchange WHERE key BETWEEN ? AND ? AND question_id = ? LIMIT 1"
        question = tx.execute(query, (first, last, before)).fetchone()
        if question is None:
            raise BadRequest("`before` must be the id of a question of this conversation.", "before")
        end = question[0] - 1
    newest = list[tuple[Any, ...]]()
    size = 0
    for found in tx.execute(
        f"SELECT {rows.EXCHANGE}, (SELECT {_IS_LAPSED} FROM exchange e WHERE e.key = exchange.key), question_id "
        f"FROM exchange WHERE key BETWEEN ? AND ? {_IS_SHOWN} ORDER BY key DESC LIMIT ?",
        (tx.process, first, end, last, tx.process, limit),
    ):
        length = len(found[1].encode())
        if newest and size + length > PAGE_BYTES:
            break
        newest.append(found)
        size += length
    oldest = newest[-1][0] if newest else first
    query = f"SELECT 1 FROM exchange WHERE key BETWEEN ? AND ? {_IS_SHOWN} LIMIT 1"
    more = tx.execute(query, (first, oldest - 1, last, tx.process)).fetchone()
    query = "SELECT exchange, id, name, type, size FROM file WHERE exchange BETWEEN ? AND ? ORDER BY id"
    files = tx.execute(query, (oldest, end)).fetchall()
    keys = {key for key, *_ in newest}
    return ConversationPage(
        _conversation(tx, (*row, 0), ()),
        list(rows.readable(partial(_show, tx), reversed(newest))),
        [File(*file) for key, *file in files if key in keys],
        newest[-1][-1] if more else None,
        size,
    )


def file(tx: Tx, user: str, conversation_id: str, number: int) -> Attachment | None:
    """Return a file of a conversation by its ID."""
    row = _find_row(tx, user, conversation_id)
    query = "SELECT id, name, type, data FROM file WHERE conversation = ? AND id = ?"
    found = None if row is None else tx.execute(query, (row[0], number)).fetchone()
    return None if found is None else Attachment(*found)


def find_answer(tx: Tx, user: str, answer_id: str | None) -> tuple[str, Exchange] | None:
    """Return an answer of a user, or the newest one, with the ID of its conversation."""
    which, values = ("answer_id = ?", [answer_id]) if answer_id is not None else ("answer_id <> ''", [])
    where = "" if answer_id is not None else f" AND {exchanges.IS_LISTED}"
    newest = f"SELECT key, id FROM conversation c WHERE account = ?{where} ORDER BY used DESC LIMIT ?"
    found = tx.execute(
        f"SELECT c.id, e.key, data, {_IS_LAPSED}, question_id FROM ({newest}) c "
        f"JOIN exchange e ON {exchanges.IN_CONVERSATION} WHERE {which} ORDER BY e.started DESC LIMIT 1",
        (tx.process, users.find(tx, user), NEWEST_SEARCHED if answer_id is None else 2**62, *values),
    ).fetchone()
    return None if found is None else (found[0], _show(tx, found[1:]))


def rename(tx: Tx, user: str, conversation_id: str, title: str) -> Conversation | None:
    """Set the title of a conversation; it is not generated again."""
    row = _find_row(tx, user, conversation_id)
    if row is None:
        return None
    tx.execute("UPDATE conversation SET named = 1 WHERE key = ?", (row[0],))
    exchanges.rename(tx, row[0], title, exchanges.user_of(tx, row[0]))
    row = _find_row(tx, user, conversation_id)
    assert row is not None
    return _conversation(tx, (*row, 0), ())


def delete(tx: Tx, user: str, conversation_id: str) -> int | None:
    """Delete a conversation and its tasks, as `deletion.delete_conversation` does.

    Returns:
        Its key; None if it did not exist.

    Raises:
        BadRequest: `busy`, a turn of it is running.
    """
    row = _find_row(tx, user, conversation_id)
    if row is None:
        return None
    if (running := turns.find_running(tx, row[0])) is not None:
        raise turns.ConversationBusy(running[0])
    tasks.remove_all(tx, user, conversation_id)
    deletion.delete_conversation(tx, row[0])
    return int(row[0])


def delete_user(tx: Tx, user: str) -> Counts:
    """Delete all data of a user, as `deletion.erase_user` does; return the counts.

    Raises:
        BadRequest: `busy`, a turn of the user is running.
    """
    number = users.find(tx, user)
    if number is None:
        return Counts()
    query = (
        "SELECT c.key FROM conversation c WHERE c.account = ? AND EXISTS "
        f"(SELECT 1 FROM {exchanges.RUNNING} AND {exchanges.IN_CONVERSATION})"
    )
    for (conversation,) in tx.execute(query, (number,)).fetchall():
        if (running := turns.find_running(tx, conversation)) is not None:
            raise turns.ConversationBusy(running[0])
    counts = users.count(tx, user)
    deletion.erase_user(tx, number)
    return counts


def recent(tx: Tx, user: str, limit: int) -> list[Interaction]:
    """Return the newest messages and answers of all conversations that are not private, newest first."""
    where = f"account = ? AND private = 0 AND {exchanges.IS_LISTED}"
    used = f"SELECT key, id FROM conversation c WHERE {where} ORDER BY used DESC LIMIT ?"
    newest: list[tuple[int, int, str]] = []
    for key, conversation_id in tx.execute(used, (users.find(tx, user), limit)).fetchall():
        query = (
            "SELECT started, key FROM exchange WHERE key BETWEEN ? AND ? AND outcome <> '' ORDER BY key DESC LIMIT ?"
        )
        newest += [(*row, conversation_id) for row in tx.execute(query, (*exchanges.span(key), limit))]
    newest.sort(reverse=True)
    found = list[Interaction]()
    for started, key, conversation_id in newest[:limit]:
        one = exchanges.read(tx, key)
        if one is not None:
            answer = Interaction(conversation_id, rows.moment(started), one.message, one.answer, one.untrusted)
            found.append(answer)
    return found


def claim_idle(tx: Tx, before: datetime, limit: int, *, alone: bool = False) -> list[IdleConversation]:
    """Claim conversations that were not used since `before` and whose summary lacks an exchange, none private.

    The newest come first: after an import, hundreds of old ones wait. Times in the future come from a wrong clock and
    do not count.

    Args:
        alone: claim nothing while any process runs a turn.
    """
    where = "" if alone else f"AND {exchanges.IN_CONVERSATION} "
    found = tx.execute(
        "SELECT c.key, c.account, a.name, c.id, c.title, c.summarised_to, c.memory "
        "FROM conversation c JOIN account a ON a.key = c.account "
        "WHERE c.unsummarised = 1 AND c.private = 0 AND a.name IS NOT NULL AND c.updated NOT BETWEEN ? AND ? "
        "AND c.claimed NOT BETWEEN ? AND ? "
        f"AND NOT EXISTS (SELECT 1 FROM {exchanges.RUNNING} {where}AND {exchanges.IS_ALIVE}) "
        "ORDER BY c.updated DESC, c.key DESC LIMIT ?",
        (rows.micros(before), tx.now, tx.now + 1, tx.now + IDLE_CLAIM, tx.process, limit),
    ).fetchall()
    tx.executemany(
        "UPDATE conversation SET claimed = ? WHERE key = ?", [(tx.now + IDLE_CLAIM, row[0]) for row in found]
    )
    claimed = list[IdleConversation]()
    for key, number, user, conversation_id, title, summarised_to, memory in found:
        newest = exchanges.history_rows(tx, key, summarised_to, exchanges.span(key)[1] + 1, MAX_SUMMARIZED)
        earlier = next((item for _, item in items.of_keys(tx, number, [] if memory is None else [memory])), None)
        read = list(rows.readable(rows.read_exchange, newest))
        claimed.append(IdleConversation(user, conversation_id, title, read, earlier, newest[-1][0]))
    return claimed


def set_memory(tx: Tx, idle: IdleConversation, item: Item | None) -> None:
    """Store the summary of a conversation, replacing the former one, unless the conversation was deleted.

    An item that exists already then stands for this conversation, too. A former one that stands for others stays.
    """
    conversation = idle.last_key >> EXCHANGES
    query = "SELECT c.memory FROM conversation c JOIN account a ON a.key = c.account WHERE c.key = ? AND a.name = ?"
    row = tx.execute(query, (conversation, idle.user)).fetchone()
    if row is None:
        return
    if item is not None:
        memory = items.put(tx, idle.user, item)
        tx.execute("UPDATE conversation SET memory = ? WHERE key = ?", (memory, conversation))
        others = "SELECT 1 FROM conversation c WHERE c.memory = item.key"
        counts.delete_items(tx, f"key = ? AND NOT EXISTS ({others})", row)
    tx.execute("UPDATE conversation SET summarised_to = ?, claimed = 0 WHERE key = ?", (idle.last_key, conversation))
    exchanges.update_unsummarised(tx, conversation)


def _find_row(tx: Tx, user: str, conversation_id: str) -> tuple[Any, ...] | None:
    found = tx.execute(
        f"SELECT {_CONVERSATION} FROM conversation c JOIN account a ON a.key = c.account WHERE a.name = ? AND c.id = ?",
        (user, conversation_id),
    ).fetchone()
    return None if found is None else tuple(found)


def _conversation(tx: Tx, row: Sequence[Any], words: Sequence[str]) -> Conversation:
    key, conversation_id, title, created, updated, messages, sources, private, hit = row
    query = f"SELECT max(e.started) FROM {exchanges.RUNNING} AND e.key BETWEEN ? AND ? AND {exchanges.IS_ALIVE}"
    ((started,),) = tx.execute(query, (*exchanges.span(key), tx.process))
    excerpt = ""
    if words:  # which are in an exchange, or in the title where no exchange has the key
        exchange = exchanges.read(tx, hit)
        excerpt = full_text.excerpt(title if exchange is None else f"{exchange.message}\n{exchange.answer}", words)
    return Conversation(
        conversation_id,
        title,
        rows.moment(created),
        rows.moment(max(updated, started or 0)),
        messages,
        tuple(source for source, bit in exchanges.SOURCES.items() if sources & bit),
        started is not None,
        bool(private),
        excerpt,
    )


def _show(tx: Tx, row: Sequence[Any]) -> Exchange:
    """An exchange as its user sees it; one that runs without a process was interrupted."""
    *columns, is_lapsed, _ = row
    exchange = rows.read_exchange(columns)
    if not exchange.outcome:
        turns.add_drafts(tx, columns[0], exchange)
    return msgspec.structs.replace(exchange, outcome="interrupted") if is_lapsed else exchange
