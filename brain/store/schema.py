"""The tables, and the migration of files of versions 0.1.0 and 0.2.0.

An exchange's key begins with that of its conversation, so that a conversation is contiguous on disk.
Triggers maintain the counts and record deletions. Each user has separate terms in the full-text indexes (see
`search_terms.py`).
"""

import sqlite3

from brain.store.upgrade import has_private_data, mark_private, upgrade_row, upgrade_task

APPLICATION = 0x42726E31
"""Marks a file as Brain's."""
EXCHANGES = 32
"""Bits of an exchange's key that number it within its conversation; those above are the conversation's."""
ANSWER_KEY = "key of answers"
"""Name of the secret in the table `exam` with which answers are hashed."""
VERSION = 15
FIRST_VERSIONS = (1, 2)
"""Written by 0.1.0. Those in between were never released."""
SECOND_VERSION = 14
"""Written by 0.2.0."""

_ANSWER = """CREATE TABLE answer (
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        digest BLOB NOT NULL,
        marks INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (user, digest)
    ) STRICT, WITHOUT ROWID"""
_TABLES = (
    # `claimed` is the packet about the last run of a task that began; `private_data`: whether a turn has read some
    """CREATE TABLE user (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        recalls INTEGER NOT NULL DEFAULT 1,
        bytes INTEGER NOT NULL DEFAULT 0,
        revision INTEGER NOT NULL DEFAULT 0,
        hidden INTEGER NOT NULL DEFAULT 0,
        target INTEGER,
        claimed INTEGER NOT NULL DEFAULT 0,
        private_data INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    _ANSWER,
    # `used` orders the list: the time of the last use, or later if a wrong clock dated others in the future
    """CREATE TABLE conversation (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        id TEXT NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        used INTEGER NOT NULL DEFAULT 0,
        named INTEGER NOT NULL DEFAULT 0,
        last INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 0,
        sources INTEGER NOT NULL DEFAULT 0,
        history INTEGER NOT NULL DEFAULT 0,
        memory INTEGER REFERENCES item ON DELETE SET NULL,
        summarised_to INTEGER NOT NULL DEFAULT 0,
        unsummarised INTEGER NOT NULL DEFAULT 0,
        claimed INTEGER NOT NULL DEFAULT 0,
        private INTEGER NOT NULL DEFAULT 0,
        title TEXT NOT NULL DEFAULT '',
        UNIQUE (user, id)
    ) STRICT""",
    # `data` is a `messages.Exchange` as JSON; the other columns are for queries.
    # `unindexed` is set until the words of the exchange are in the index
    """CREATE TABLE exchange (
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
        data TEXT NOT NULL,
        turn INTEGER,
        unindexed INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    """CREATE TABLE item (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        category TEXT,
        mutable INTEGER NOT NULL,
        untrusted INTEGER NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        conversation INTEGER REFERENCES conversation ON DELETE SET NULL,
        exchange INTEGER REFERENCES exchange ON DELETE SET NULL,
        bytes INTEGER NOT NULL,
        embedded TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL,
        former TEXT NOT NULL DEFAULT '[]',
        UNIQUE (user, id)
    ) STRICT""",
    """CREATE TABLE blocked (
        specialist TEXT PRIMARY KEY,
        times INTEGER NOT NULL,
        last INTEGER NOT NULL,
        place TEXT NOT NULL
    ) STRICT""",
    # the four tables of `turn_log.py`
    """CREATE TABLE turn (
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
    """CREATE TABLE turn_log (
        key INTEGER PRIMARY KEY,
        turn INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        frames BLOB NOT NULL,
        text TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE turn_command (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        turn TEXT NOT NULL,
        asker TEXT NOT NULL,
        at INTEGER NOT NULL,
        command BLOB NOT NULL,
        answer BLOB
    ) STRICT""",
    "CREATE TABLE process (owner TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    # the four tables of `tasks.py`; `data` is a `Task` or `Packet` as JSON, and the other columns are for queries
    """CREATE TABLE task (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        id TEXT NOT NULL UNIQUE,
        conversation TEXT NOT NULL,
        state TEXT NOT NULL,
        is_active INTEGER NOT NULL,
        due INTEGER,
        owner TEXT,
        until INTEGER,
        fingerprint TEXT NOT NULL,
        data TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE task_usage (
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        day INTEGER NOT NULL,
        created INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (user, day)
    ) STRICT, WITHOUT ROWID""",
    # `is_told`: 0 to be reported, 1 nothing to report, 2 damaged
    """CREATE TABLE channel (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        conversation TEXT NOT NULL,
        task TEXT NOT NULL,
        at INTEGER NOT NULL,
        is_told INTEGER NOT NULL,
        data TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE channel_cursor (
        user INTEGER NOT NULL REFERENCES user ON DELETE CASCADE,
        conversation TEXT NOT NULL,
        cursor INTEGER NOT NULL DEFAULT 0,
        reported INTEGER NOT NULL DEFAULT 0,
        held_until INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (user, conversation)
    ) STRICT, WITHOUT ROWID""",
)

_UNCHANGED_TABLES = (
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
    "CREATE TABLE exam (name TEXT PRIMARY KEY, result TEXT NOT NULL) STRICT",
    "CREATE TABLE leftover (removed INTEGER NOT NULL, swept INTEGER NOT NULL) STRICT",
)
"""The same since 0.1.0."""

_TOKENS = "tokenize = 'porter unicode61 remove_diacritics 2'"
_WORDS = (
    f"CREATE VIRTUAL TABLE exchange_words USING fts5 (words, columnsize = 0, {_TOKENS})",
    f"CREATE VIRTUAL TABLE item_words USING fts5 (words, columnsize = 0, {_TOKENS})",
)

_ANSWER_INDEX = "CREATE INDEX answer_old ON answer (at)"
_INDEXES = (
    _ANSWER_INDEX,
    "CREATE INDEX channel_old ON channel (at) WHERE is_told = 1",
    "CREATE INDEX channel_task ON channel (user, task)",
    "CREATE INDEX channel_untold ON channel (user, conversation, key) WHERE is_told = 0",
    "CREATE INDEX channel_user ON channel (user, key)",
    "CREATE INDEX conversation_newest ON conversation (user, used)",
    "CREATE INDEX conversation_memory ON conversation (memory) WHERE memory IS NOT NULL",
    "CREATE INDEX conversation_unsummarised ON conversation (key) WHERE unsummarised = 1 AND private = 0",
    "CREATE INDEX exchange_recalled ON exchange (key) WHERE recalled_ids <> '[]'",
    "CREATE INDEX exchange_unindexed ON exchange (key) WHERE unindexed = 1",
    "CREATE INDEX file_exchange ON file (exchange)",
    "CREATE INDEX item_category ON item (user, category, created) WHERE category IS NOT NULL",
    "CREATE INDEX item_conversation ON item (conversation) WHERE conversation IS NOT NULL",
    "CREATE INDEX item_embedded ON item (embedded)",
    "CREATE INDEX item_exchange ON item (exchange) WHERE exchange IS NOT NULL",
    "CREATE INDEX item_newest ON item (user, created)",
    "CREATE INDEX task_active ON task (user, fingerprint) WHERE is_active = 1",
    "CREATE INDEX task_due ON task (user, due) WHERE due IS NOT NULL",
    "CREATE INDEX task_ended ON task (user) WHERE is_active = 0",
    "CREATE INDEX task_owner ON task (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX task_state ON task (state, user)",
    "CREATE INDEX task_user ON task (user)",
    "CREATE INDEX turn_log_turn ON turn_log (turn, first)",
    "CREATE UNIQUE INDEX turn_request ON turn (user, request) WHERE request IS NOT NULL",
    "CREATE INDEX turn_running ON turn (key) WHERE ended IS NULL",
    "CREATE INDEX user_hidden ON user (hidden) WHERE hidden > 0",
    "CREATE INDEX vector_signs ON vector (user, model, item, kind, signs)",
)
"""Few, so that a turn writes few pages: message IDs need no index, since a conversation is contiguous."""

_TRIGGERS = (
    """CREATE TRIGGER conversation_grown AFTER UPDATE OF bytes ON conversation WHEN new.bytes <> old.bytes BEGIN
        UPDATE user SET bytes = bytes + new.bytes - old.bytes WHERE key = new.user;
    END""",
    f"""CREATE TRIGGER conversation_removed AFTER DELETE ON conversation BEGIN
        DELETE FROM exchange WHERE key > old.key << {EXCHANGES} AND key < (old.key + 1) << {EXCHANGES};
        UPDATE user SET bytes = bytes - old.bytes WHERE key = old.user;
        DELETE FROM exchange_words WHERE rowid = old.key << {EXCHANGES};
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER conversation_renamed AFTER UPDATE OF title ON conversation WHEN old.title <> '' BEGIN
        UPDATE leftover SET removed = removed + 1;
    END""",
    f"""CREATE TRIGGER exchange_added AFTER INSERT ON exchange BEGIN
        UPDATE conversation SET bytes = bytes + new.bytes, messages = messages + new.messages,
            history = history + new.in_history
        WHERE key = new.key >> {EXCHANGES};
    END""",
    f"""CREATE TRIGGER exchange_changed AFTER UPDATE OF bytes, messages, in_history ON exchange BEGIN
        UPDATE conversation SET bytes = bytes + new.bytes - old.bytes,
            messages = messages + new.messages - old.messages, history = history + new.in_history - old.in_history
        WHERE key = new.key >> {EXCHANGES};
    END""",
    f"""CREATE TRIGGER exchange_removed AFTER DELETE ON exchange BEGIN
        UPDATE conversation SET bytes = bytes - old.bytes, messages = messages - old.messages,
            history = history - old.in_history
        WHERE key = old.key >> {EXCHANGES};
        DELETE FROM exchange_words WHERE rowid = old.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER item_added AFTER INSERT ON item BEGIN
        UPDATE user SET bytes = bytes + new.bytes, revision = revision + 1 WHERE key = new.user;
    END""",
    """CREATE TRIGGER item_changed AFTER UPDATE ON item BEGIN
        UPDATE user SET bytes = bytes + new.bytes - old.bytes, revision = revision + 1 WHERE key = new.user;
    END""",
    """CREATE TRIGGER item_removed AFTER DELETE ON item BEGIN
        UPDATE user SET bytes = bytes - old.bytes, revision = revision + 1 WHERE key = old.user;
        DELETE FROM item_words WHERE rowid = old.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
    """CREATE TRIGGER item_reworded AFTER UPDATE OF text ON item WHEN new.text <> old.text BEGIN
        DELETE FROM vector WHERE item = new.key;
        UPDATE item SET embedded = '' WHERE key = new.key;
        UPDATE leftover SET removed = removed + 1;
    END""",
    "CREATE TRIGGER turn_removed AFTER DELETE ON turn BEGIN DELETE FROM turn_log WHERE turn = old.key; END",
)

_CHANGED_TABLES = ("user", "conversation", "exchange", "item")
"""Those of 0.1.0 that `_COPY` copies into the present ones."""
_COPY = (
    "INSERT INTO user (key, name, recalls, bytes, revision) SELECT key, name, recalls, bytes, revision FROM old_user",
    f"""INSERT INTO conversation (key, user, id, created, updated, used, named, last, bytes, messages, sources, history,
            memory, summarised_to, unsummarised, claimed, title)
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
    """INSERT INTO exchange (key, in_history, messages, bytes, started, ended, until, owner, replaces, outcome, source,
            question_id, answer_id, recalled_ids, data, unindexed)
        SELECT key, told, messages, bytes, asked, answered, until, owner, replaces, outcome, source, question_id,
            answer_id, recalled, upgrade(said, question, source, question_id, answer_id, model, tokens, files, recalled,
            outside, asked, answered, outcome, before, behind, parts, about), outcome = ''
        FROM old_exchange""",
    """INSERT INTO item (key, user, id, kind, category, mutable, untrusted, created, updated, conversation, exchange,
            bytes, embedded, text, former)
        SELECT key, user, id, kind, category, mutable, outside, created, updated, conversation, exchange,
            bytes, embedded, text, was
        FROM old_item""",
    "ALTER TABLE said RENAME TO exchange_words",
    "ALTER TABLE stated RENAME TO item_words",
    "DELETE FROM sqlite_sequence WHERE substr(name, 1, 4) <> 'old_'",
    "UPDATE sqlite_sequence SET name = substr(name, 5)",
)


_MARK = (
    "UPDATE user SET private_data = 1",
    "CREATE TEMP TABLE first_private (conversation INTEGER PRIMARY KEY, exchange INTEGER NOT NULL)",
    f"""INSERT INTO first_private SELECT key >> {EXCHANGES}, min(key) FROM exchange WHERE has_private_data(data)
        GROUP BY key >> {EXCHANGES}""",
    f"""UPDATE exchange SET data = mark_private(data)
        WHERE key >= (SELECT exchange FROM first_private WHERE conversation = exchange.key >> {EXCHANGES})""",
    f"""UPDATE task SET data = upgrade_task(data, (
            SELECT group_concat(json_extract(e.data, '$.message'), char(10)) FROM conversation c
            JOIN exchange e ON e.key BETWEEN c.key << {EXCHANGES} AND (c.key + 1) << {EXCHANGES}
            WHERE c.user = task.user AND c.id = task.conversation AND e.source NOT IN ('task', 'report')
                AND json_valid(e.data)
        ), EXISTS (
            SELECT 1 FROM first_private JOIN conversation c ON c.key = conversation
            WHERE c.user = task.user AND c.id = 'work' || substr(task.id, 5)
        ))""",
    "DROP TABLE first_private",
)
"""Marks what older versions did not: private data that conversations and tasks may contain."""

_JOIN_MEMORIES = (
    "CREATE TEMP TABLE same (key INTEGER PRIMARY KEY, kept INTEGER NOT NULL)",
    """INSERT INTO same SELECT key, kept FROM (
            SELECT key, first_value(key) OVER (PARTITION BY user, text ORDER BY updated DESC, key DESC) AS kept
            FROM item WHERE kind = 'memory'
        ) WHERE key <> kept""",
    f"""UPDATE exchange SET recalled_ids = (
            SELECT json_group_array(coalesce((
                SELECT k.id FROM conversation c JOIN item i ON i.user = c.user AND i.id = r.value
                JOIN same ON same.key = i.key JOIN item k ON k.key = same.kept WHERE c.key = exchange.key >> {EXCHANGES}
            ), r.value)) FROM json_each(recalled_ids) r
        ) WHERE recalled_ids <> '[]' AND json_valid(recalled_ids) AND EXISTS (SELECT 1 FROM same)""",
    "UPDATE conversation SET memory = same.kept FROM same WHERE memory = same.key",
    """UPDATE item SET untrusted = 1
        WHERE key IN (SELECT kept FROM same JOIN item i ON i.key = same.key WHERE i.untrusted = 1)""",
    "DELETE FROM item WHERE key IN (SELECT key FROM same)",
    "DROP TABLE same",
)
"""Leaves one of the memories with the same text; erasing it still finds the questions that recalled the others."""

_FROM_SECOND = (
    "ALTER TABLE user ADD COLUMN private_data INTEGER NOT NULL DEFAULT 0",
    _ANSWER,
    _ANSWER_INDEX,
    *_MARK,
    *_JOIN_MEMORIES,
)
_KEY = f"INSERT OR IGNORE INTO exam (name, result) VALUES ('{ANSWER_KEY}', hex(randomblob(32)))"


class IncompatibleFile(Exception):
    """The file cannot be used by this version; the message has the reason and the remedy."""


def check(db: sqlite3.Connection) -> None:
    """Check that this version can use the file.

    Raises:
        IncompatibleFile: when it is another program's, newer, or of a version that was never released.
    """
    ((version,),) = db.execute("PRAGMA user_version")
    ((application,),) = db.execute("PRAGMA application_id")
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_schema")
    if application != APPLICATION and (version, tables) != (0, 0):
        raise IncompatibleFile("is a database of another program; use another file")
    if version > VERSION:
        raise IncompatibleFile("was written by a newer version of Brain; use that version, or another file")
    if version not in (0, *FIRST_VERSIONS, SECOND_VERSION, VERSION):
        raise IncompatibleFile(
            "was written by an unreleased version of Brain; export its data with that version, then import it"
        )


def migrate(db: sqlite3.Connection) -> None:
    """Create the tables, or bring those of an older version up to date.

    It runs in the caller's transaction, without foreign keys. Another process may have migrated the file already.
    """
    ((version,),) = db.execute("PRAGMA user_version")
    if version == VERSION:
        return
    db.create_function("upgrade", -1, upgrade_row, deterministic=True)
    db.create_function("has_private_data", 1, has_private_data, deterministic=True)
    db.create_function("mark_private", 1, mark_private, deterministic=True)
    db.create_function("upgrade_task", 3, upgrade_task, deterministic=True)
    if version == 0:
        statements = [*_TABLES, *_UNCHANGED_TABLES, *_WORDS, "INSERT INTO leftover (removed, swept) VALUES (0, 0)"]
        statements += [*_INDEXES, *_TRIGGERS]
    elif version == SECOND_VERSION:
        statements = [*_FROM_SECOND]
    else:
        db.execute("PRAGMA legacy_alter_table = ON")  # references stay with the names
        former = db.execute("SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql <> ''")
        statements = [f"DROP {kind} {name}" for kind, name in former]
        statements += ["ALTER TABLE exchange ADD COLUMN about TEXT NOT NULL DEFAULT '{}'"] if version == 1 else []
        statements += [f"ALTER TABLE {name} RENAME TO old_{name}" for name in _CHANGED_TABLES]
        statements += [*_TABLES, *_COPY, *(f"DROP TABLE old_{name}" for name in reversed(_CHANGED_TABLES))]
        statements += [*_MARK, *_INDEXES, *_TRIGGERS, *_JOIN_MEMORIES]
    for statement in (*statements, _KEY):
        db.execute(statement)
    db.execute("PRAGMA legacy_alter_table = OFF")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
