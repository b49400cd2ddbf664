"""The tables, version by version. A file of an older version is migrated, a newer one is refused.

An exchange's key begins with that of its conversation, so that a conversation lies in one piece and is read in one go.
Triggers maintain the counts and note that something was removed. The words of each user are terms of their own in the
indexes (see `search_terms.py`).
"""

import sqlite3
from collections.abc import Sequence

from brain.store.upgrade import upgrade_row

APPLICATION = 0x42726E31
"""By which a file is known as Brain's."""
EXCHANGES = 32
"""Bits of an exchange's key that number it within its conversation; those above are the conversation's."""

_TABLES = (
    """CREATE TABLE user (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        recalls INTEGER NOT NULL DEFAULT 1,
        bytes INTEGER NOT NULL DEFAULT 0,
        revision INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    """CREATE TABLE conversation (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        id TEXT NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        named INTEGER NOT NULL DEFAULT 0,
        last INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 0,
        memory INTEGER REFERENCES item ON DELETE SET NULL,
        summarised_to INTEGER NOT NULL DEFAULT 0,
        unsummarised INTEGER NOT NULL DEFAULT 0,
        claimed INTEGER NOT NULL DEFAULT 0,
        title TEXT NOT NULL DEFAULT '',
        UNIQUE (user, id)
    ) STRICT""",
    "CREATE INDEX conversation_newest ON conversation (user, updated)",
    "CREATE INDEX conversation_memory ON conversation (memory) WHERE memory IS NOT NULL",
    "CREATE INDEX conversation_resting ON conversation (updated) WHERE unsummarised = 1",
    """CREATE TABLE exchange (
        key INTEGER PRIMARY KEY,
        conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,
        told INTEGER NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 1,
        bytes INTEGER NOT NULL DEFAULT 0,
        asked INTEGER NOT NULL,
        answered INTEGER,
        until INTEGER,
        owner TEXT,
        replaces INTEGER,
        outcome TEXT NOT NULL DEFAULT '',
        source TEXT NOT NULL,
        question_id TEXT NOT NULL,
        answer_id TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '',
        tokens INTEGER NOT NULL DEFAULT 0,
        files TEXT NOT NULL DEFAULT '[]',
        recalled TEXT NOT NULL DEFAULT '[]',
        outside INTEGER NOT NULL DEFAULT 0,
        said TEXT NOT NULL,
        question TEXT NOT NULL,
        before TEXT NOT NULL DEFAULT '[]',
        behind TEXT NOT NULL DEFAULT '[]',
        parts TEXT NOT NULL DEFAULT '[]'
    ) STRICT""",
    "CREATE INDEX exchange_question ON exchange (conversation, question_id)",
    "CREATE INDEX exchange_answer ON exchange (conversation, answer_id)",
    "CREATE INDEX exchange_source ON exchange (conversation, source)",
    "CREATE INDEX exchange_recalled ON exchange (conversation) WHERE recalled <> '[]'",
    "CREATE INDEX exchange_told ON exchange (conversation, key) WHERE told = 1",
    "CREATE INDEX exchange_running ON exchange (conversation, until) WHERE outcome = ''",
    """CREATE TABLE file (
        key INTEGER PRIMARY KEY,
        conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,
        exchange INTEGER REFERENCES exchange ON DELETE CASCADE,
        id INTEGER NOT NULL,
        size INTEGER NOT NULL,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        data BLOB NOT NULL,
        UNIQUE (conversation, id)
    ) STRICT""",
    "CREATE INDEX file_exchange ON file (exchange)",
    """CREATE TABLE item (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        category TEXT,
        mutable INTEGER NOT NULL,
        outside INTEGER NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        conversation INTEGER REFERENCES conversation ON DELETE SET NULL,
        exchange INTEGER REFERENCES exchange ON DELETE SET NULL,
        bytes INTEGER NOT NULL,
        embedded TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL,
        was TEXT NOT NULL DEFAULT '[]',
        against TEXT NOT NULL DEFAULT '[]',
        UNIQUE (user, id)
    ) STRICT""",
    "CREATE INDEX item_newest ON item (user, created)",
    "CREATE INDEX item_conversation ON item (conversation) WHERE conversation IS NOT NULL",
    "CREATE INDEX item_exchange ON item (exchange) WHERE exchange IS NOT NULL",
    "CREATE INDEX item_embedded ON item (embedded)",
    """CREATE TABLE vector (
        key INTEGER PRIMARY KEY,
        user INTEGER NOT NULL,
        item INTEGER NOT NULL REFERENCES item ON DELETE CASCADE,
        kind TEXT NOT NULL,
        model TEXT NOT NULL,
        signs BLOB NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (item, model)
    ) STRICT""",
    "CREATE INDEX vector_signs ON vector (user, model, item, kind, signs)",
    "CREATE TABLE exam (name TEXT PRIMARY KEY, result TEXT NOT NULL) STRICT",
    "CREATE TABLE leftover (removed INTEGER NOT NULL, swept INTEGER NOT NULL) STRICT",
    "INSERT INTO leftover (removed, swept) VALUES (0, 0)",
)

_TOKENS = "tokenize = 'porter unicode61 remove_diacritics 2'"
_INDEXES = (
    f"CREATE VIRTUAL TABLE said USING fts5 (words, columnsize = 0, {_TOKENS})",
    f"CREATE VIRTUAL TABLE stated USING fts5 (words, columnsize = 0, {_TOKENS})",
)

_TRIGGERS = (
    """CREATE TRIGGER exchange_added AFTER INSERT ON exchange BEGIN
        UPDATE conversation SET bytes = bytes + new.bytes, messages = messages + new.messages
        WHERE key = new.conversation;
    END""",
    """CREATE TRIGGER exchange_changed AFTER UPDATE OF bytes, messages ON exchange BEGIN
        UPDATE conversation SET bytes = bytes + new.bytes - old.bytes, messages = messages + new.messages - old.messages
        WHERE key = new.conversation;
    END""",
    f"""CREATE TRIGGER exchange_removed AFTER DELETE ON exchange BEGIN
        UPDATE conversation SET bytes = bytes - old.bytes, messages = messages - old.messages
        WHERE key = old.key >> {EXCHANGES};
        DELETE FROM said WHERE rowid = old.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER conversation_grown AFTER UPDATE OF bytes ON conversation BEGIN
        UPDATE user SET bytes = bytes + new.bytes - old.bytes WHERE key = new.user;
    END""",
    f"""CREATE TRIGGER conversation_removed AFTER DELETE ON conversation BEGIN
        UPDATE user SET bytes = bytes - old.bytes WHERE key = old.user;
        DELETE FROM said WHERE rowid = old.key << {EXCHANGES};
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER conversation_renamed AFTER UPDATE OF title ON conversation WHEN old.title <> '' BEGIN
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER item_added AFTER INSERT ON item BEGIN
        UPDATE user SET bytes = bytes + new.bytes, revision = revision + 1 WHERE key = new.user;
    END""",
    """CREATE TRIGGER item_changed AFTER UPDATE ON item BEGIN
        UPDATE user SET bytes = bytes + new.bytes - old.bytes, revision = revision + 1 WHERE key = new.user;
    END""",
    """CREATE TRIGGER item_said_otherwise AFTER UPDATE OF text ON item WHEN new.text <> old.text BEGIN
        DELETE FROM vector WHERE item = new.key;
        UPDATE item SET embedded = '' WHERE key = new.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER item_removed AFTER DELETE ON item BEGIN
        UPDATE user SET bytes = bytes - old.bytes, revision = revision + 1 WHERE key = old.user;
        DELETE FROM stated WHERE rowid = old.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
)

_ABOUT = ("ALTER TABLE exchange ADD COLUMN about TEXT NOT NULL DEFAULT '{}'",)

_CATEGORIES = ("CREATE INDEX item_category ON item (user, category, created) WHERE category IS NOT NULL",)

_HIDDEN = (
    "ALTER TABLE user ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE user ADD COLUMN target INTEGER",
    "CREATE INDEX user_hidden ON user (hidden) WHERE hidden > 0",
)

_BLOCKED = (
    """CREATE TABLE blocked (
        specialist TEXT PRIMARY KEY,
        times INTEGER NOT NULL,
        last INTEGER NOT NULL,
        place TEXT NOT NULL
    ) STRICT""",
)

_USED = (
    "ALTER TABLE conversation ADD COLUMN used INTEGER NOT NULL DEFAULT 0",
    "UPDATE conversation SET used = updated",
    "DROP INDEX conversation_newest",
    "CREATE INDEX conversation_newest ON conversation (user, used)",
)
"""By which conversations are listed: when each was last used, or later where a clock that was ahead has used others."""

_TURNS = (
    """CREATE TABLE turn (
        id TEXT PRIMARY KEY,
        user TEXT NOT NULL,
        conversation TEXT NOT NULL,
        request TEXT,
        owner TEXT NOT NULL,
        until INTEGER NOT NULL,
        began INTEGER NOT NULL,
        ended INTEGER,
        exchange INTEGER,
        noted INTEGER NOT NULL DEFAULT 0,
        seen INTEGER NOT NULL DEFAULT 0,
        options TEXT NOT NULL,
        replayable INTEGER NOT NULL,
        report TEXT NOT NULL DEFAULT ''
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX turn_conversation ON turn (conversation)",
    "CREATE INDEX turn_ended ON turn (ended)",
    "CREATE UNIQUE INDEX turn_request ON turn (user, request) WHERE request IS NOT NULL",
    """CREATE TABLE turn_log (
        turn TEXT NOT NULL REFERENCES turn ON DELETE CASCADE,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        frames BLOB NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (turn, first)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE turn_command (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        turn TEXT NOT NULL,
        asker TEXT NOT NULL,
        at INTEGER NOT NULL,
        command BLOB NOT NULL,
        answer BLOB
    ) STRICT""",
)
"""Turns with their events, for other processes; see `turn_log.py`."""

_EXCHANGE = (
    """CREATE TABLE new_exchange (
        key INTEGER PRIMARY KEY,
        in_history INTEGER NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 1,
        bytes INTEGER NOT NULL DEFAULT 0,
        started INTEGER NOT NULL,
        ended INTEGER,
        until INTEGER,
        owner TEXT,
        replaces INTEGER,
        outcome TEXT NOT NULL DEFAULT '',
        source TEXT NOT NULL,
        question_id TEXT NOT NULL,
        answer_id TEXT NOT NULL DEFAULT '',
        recalled_ids TEXT NOT NULL DEFAULT '[]',
        data TEXT NOT NULL
    ) STRICT""",
    """INSERT INTO new_exchange SELECT key, told, messages, bytes, asked, answered, until, owner, replaces, outcome,
        source, question_id, answer_id, recalled, upgrade(said, question, source, question_id, answer_id, model,
            tokens, files, recalled, outside, asked, answered, outcome, before, behind, parts, about)
        FROM exchange""",
    "DROP TABLE exchange",
    "ALTER TABLE new_exchange RENAME TO exchange",
    "CREATE INDEX exchange_running ON exchange (key) WHERE outcome = ''",
    "CREATE INDEX exchange_recalled ON exchange (key) WHERE recalled_ids <> '[]'",
    "ALTER TABLE conversation ADD COLUMN sources INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversation ADD COLUMN history INTEGER NOT NULL DEFAULT 0",
    f"""UPDATE conversation SET (sources, history) = (
        SELECT coalesce(sum(DISTINCT CASE source WHEN 'chat' THEN 1 WHEN 'voice' THEN 2 ELSE 4 END), 0),
            coalesce(sum(in_history), 0)
        FROM exchange e
        WHERE e.key BETWEEN conversation.key << {EXCHANGES} AND (conversation.key + 1) << {EXCHANGES}
    )""",
    "DROP INDEX conversation_resting",
    "CREATE INDEX conversation_unsummarised ON conversation (key) WHERE unsummarised = 1",
    "ALTER TABLE said RENAME TO exchange_words",
    "ALTER TABLE stated RENAME TO item_words",
    "ALTER TABLE item RENAME COLUMN outside TO untrusted",
    "ALTER TABLE item RENAME COLUMN was TO former",
    "ALTER TABLE item DROP COLUMN against",
    "DROP TRIGGER conversation_removed",
    "DROP TRIGGER item_removed",
    "DROP TRIGGER conversation_grown",
    """CREATE TRIGGER conversation_grown AFTER UPDATE OF bytes ON conversation WHEN new.bytes <> old.bytes BEGIN
        UPDATE user SET bytes = bytes + new.bytes - old.bytes WHERE key = new.user;
    END""",
    """CREATE TRIGGER exchange_added AFTER INSERT ON exchange BEGIN
        UPDATE conversation SET bytes = bytes + new.bytes, messages = messages + new.messages,
            history = history + new.in_history
        WHERE key = new.key >> 32;
    END""",
    """CREATE TRIGGER exchange_changed AFTER UPDATE OF bytes, messages, in_history ON exchange BEGIN
        UPDATE conversation SET bytes = bytes + new.bytes - old.bytes,
            messages = messages + new.messages - old.messages, history = history + new.in_history - old.in_history
        WHERE key = new.key >> 32;
    END""",
    """CREATE TRIGGER exchange_removed AFTER DELETE ON exchange BEGIN
        UPDATE conversation SET bytes = bytes - old.bytes, messages = messages - old.messages,
            history = history - old.in_history
        WHERE key = old.key >> 32;
        DELETE FROM exchange_words WHERE rowid = old.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER conversation_removed AFTER DELETE ON conversation BEGIN
        DELETE FROM exchange WHERE key > old.key << 32 AND key < (old.key + 1) << 32;
        UPDATE user SET bytes = bytes - old.bytes WHERE key = old.user;
        DELETE FROM exchange_words WHERE rowid = old.key << 32;
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER item_removed AFTER DELETE ON item BEGIN
        UPDATE user SET bytes = bytes - old.bytes, revision = revision + 1 WHERE key = old.user;
        DELETE FROM item_words WHERE rowid = old.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
)
"""An exchange is one JSON text with the fields of `messages.Exchange`; the columns are what is searched and counted.

A turn changes few pages: no index has a message id, since the exchanges of a conversation lie side by side.
"""

_FEWER_PAGES = (
    """CREATE TABLE new_turn (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        conversation TEXT NOT NULL,
        request TEXT,
        owner TEXT NOT NULL,
        until INTEGER NOT NULL,
        started INTEGER NOT NULL,
        ended INTEGER,
        exchange INTEGER,
        snapshot_last INTEGER NOT NULL DEFAULT 0,
        last_received INTEGER NOT NULL DEFAULT 0,
        options TEXT NOT NULL,
        is_replayable INTEGER NOT NULL,
        report TEXT NOT NULL DEFAULT ''
    ) STRICT""",
    """INSERT INTO new_turn (id, user, conversation, request, owner, until, started, ended, exchange, snapshot_last,
        last_received, options, is_replayable, report)
        SELECT id, user, conversation, request, owner, until, began, ended, exchange, noted, seen, options, replayable,
            report FROM turn ORDER BY began""",
    """CREATE TABLE new_turn_log (
        key INTEGER PRIMARY KEY,
        last INTEGER NOT NULL,
        frames BLOB NOT NULL,
        text TEXT NOT NULL
    ) STRICT""",
    """INSERT INTO new_turn_log SELECT t.key << 32 | l.first, l.last, l.frames, l.text
        FROM turn_log l JOIN new_turn t ON t.id = l.turn""",
    "DROP TABLE turn_log",
    "DROP TABLE turn",
    "ALTER TABLE new_turn RENAME TO turn",
    "ALTER TABLE new_turn_log RENAME TO turn_log",
    "CREATE INDEX turn_running ON turn (key) WHERE ended IS NULL",
    "CREATE UNIQUE INDEX turn_request ON turn (user, request) WHERE request IS NOT NULL",
    """CREATE TRIGGER turn_removed AFTER DELETE ON turn BEGIN
        DELETE FROM turn_log WHERE key > old.key << 32 AND key < (old.key + 1) << 32;
    END""",
    "ALTER TABLE exchange ADD COLUMN turn INTEGER",
    "UPDATE exchange SET turn = t.key FROM turn t WHERE t.exchange = exchange.key",
    "ALTER TABLE exchange ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 0",
    "UPDATE exchange SET unindexed = 1 WHERE outcome = ''",
    "DROP INDEX exchange_running",
    "CREATE INDEX exchange_unindexed ON exchange (key) WHERE unindexed = 1",
)
"""A turn writes each page seldom: its rows go to the ends of tables, and its words to the index with those of others.

`unindexed` is set while an exchange runs, and until its words are in the index.
"""

MIGRATIONS: Sequence[Sequence[str]] = (
    (*_TABLES, *_INDEXES, *_TRIGGERS),
    _ABOUT,
    _CATEGORIES,
    _HIDDEN,
    _BLOCKED,
    _USED,
    _TURNS,
    _EXCHANGE,
    _FEWER_PAGES,
)
"""The statements that make the next version of each version; an empty file has version 0."""


class IncompatibleFile(Exception):
    """The file cannot be used by this version; the text says why and what to do."""


def check(db: sqlite3.Connection) -> None:
    """Look whether the file is Brain's, and of no later version.

    Raises:
        IncompatibleFile: when it is another program's, or newer.
    """
    ((version,),) = db.execute("PRAGMA user_version")
    ((application,),) = db.execute("PRAGMA application_id")
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_schema")
    if application != APPLICATION and (version, tables) != (0, 0):
        raise IncompatibleFile("is a database of another program; name another file")
    if version > len(MIGRATIONS):
        raise IncompatibleFile("was written by a newer version of Brain; use that version, or another file")


def migrate(db: sqlite3.Connection) -> None:
    """Bring the tables up to date, inside the caller's transaction and without foreign keys.

    Another process may have done it before.
    """
    db.create_function("upgrade", -1, upgrade_row, deterministic=True)
    ((version,),) = db.execute("PRAGMA user_version")
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
