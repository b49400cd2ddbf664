"""The tables.

An exchange's key begins with that of its conversation, so that a conversation is contiguous on disk.
The functions of `counts.py` maintain the counts. Each user has separate terms in the full-text indexes (see
`full_text.py`).

The table of users is `account`, since PostgreSQL reserves the word `user`, and that of vectors is `embedding`.

A conversation or item without a user is deleted, or part of an import that has not ended; a user without a name is
erased. So no query for the data of a user finds them, and their rows are removed in small transactions.
"""

import secrets
from collections.abc import Iterator

APPLICATION = 0x42726E31
"""Marks a file as Brain's."""
EXCHANGES = 32
"""Bits of an exchange's key that number it within its conversation; those above are the conversation's."""
ANSWER_KEY = "key of answers"
"""Name of the secret in the table `server_value` with which answers are hashed."""
PROCESS_SECRET = "secret of processes"
"""Name of the secret in the table `server_value` with which processes sign the requests that they forward."""
VERSION = 18

TABLES = {
    # `claimed` is the packet about the last run of a task that began; `private_data`: whether a turn has read some
    "account": """CREATE TABLE account (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT UNIQUE,
        recalls INTEGER NOT NULL DEFAULT 1,
        bytes INTEGER NOT NULL DEFAULT 0,
        revision INTEGER NOT NULL DEFAULT 0,
        claimed INTEGER NOT NULL DEFAULT 0,
        private_data INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    # `until`: the lease of the process that imports; 0 when the import has ended
    "import": """CREATE TABLE import (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
        until INTEGER NOT NULL
    ) STRICT""",
    "answer": """CREATE TABLE answer (
        account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
        digest BLOB NOT NULL,
        marks INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (account, digest)
    ) STRICT, WITHOUT ROWID""",
    # `used` orders the list: the time of the last use, or later if a wrong clock dated others in the future
    "conversation": """CREATE TABLE conversation (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        account INTEGER REFERENCES account ON DELETE CASCADE,
        import INTEGER,
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
        UNIQUE (account, id)
    ) STRICT""",
    # `data` is a `messages.Exchange` as JSON; the other columns are for queries.
    # `unindexed` is set until the words of the exchange are in the index.
    # `process` runs the turn, or ran it; each claim raises `epoch`. `request` is the client's ID of the request, and
    # `resume` says how another process can continue the turn; `last` is the newest event that its checkpoint includes
    "exchange": """CREATE TABLE exchange (
        key INTEGER PRIMARY KEY,
        in_history INTEGER NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 1,
        bytes INTEGER NOT NULL DEFAULT 0,
        started INTEGER NOT NULL,
        ended INTEGER,
        process TEXT,
        epoch INTEGER NOT NULL DEFAULT 0,
        request TEXT,
        resume TEXT NOT NULL DEFAULT '',
        last INTEGER NOT NULL DEFAULT 0,
        replaces INTEGER,
        outcome TEXT NOT NULL DEFAULT '',
        source TEXT NOT NULL,
        question_id TEXT NOT NULL,
        answer_id TEXT NOT NULL DEFAULT '',
        recalled_ids TEXT NOT NULL DEFAULT '[]',
        data TEXT NOT NULL,
        unindexed INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    "item": """CREATE TABLE item (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        account INTEGER REFERENCES account ON DELETE CASCADE,
        import INTEGER,
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
        UNIQUE (account, id)
    ) STRICT""",
    "blocked": """CREATE TABLE blocked (
        specialist TEXT PRIMARY KEY,
        times INTEGER NOT NULL,
        last INTEGER NOT NULL,
        place TEXT NOT NULL
    ) STRICT""",
    # what a running exchange lacks: text and thinking since its last checkpoint
    "draft": """CREATE TABLE draft (
        key INTEGER PRIMARY KEY,
        exchange INTEGER NOT NULL REFERENCES exchange ON DELETE CASCADE,
        last INTEGER NOT NULL,
        data TEXT NOT NULL
    ) STRICT""",
    # a process lives while it has a row. `until` is on the monotonic clock of the machine, or the clock of the server;
    # `version` is that of the tables which it knows
    "process": """CREATE TABLE process (
        id TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        until INTEGER NOT NULL,
        is_stopping INTEGER NOT NULL DEFAULT 0,
        version INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    # the four tables of `tasks.py`; `data` is a `Task` or `Packet` as JSON, and the other columns are for queries
    "task": """CREATE TABLE task (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
        id TEXT NOT NULL UNIQUE,
        conversation TEXT NOT NULL,
        state TEXT NOT NULL,
        is_active INTEGER NOT NULL,
        due INTEGER,
        process TEXT,
        fingerprint TEXT NOT NULL,
        data TEXT NOT NULL
    ) STRICT""",
    "task_usage": """CREATE TABLE task_usage (
        account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
        day INTEGER NOT NULL,
        created INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (account, day)
    ) STRICT, WITHOUT ROWID""",
    # `is_told`: 0 to be reported, 1 nothing to report, 2 damaged
    "channel": """CREATE TABLE channel (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
        conversation TEXT NOT NULL,
        task TEXT NOT NULL,
        at INTEGER NOT NULL,
        is_told INTEGER NOT NULL,
        data TEXT NOT NULL
    ) STRICT""",
    "channel_cursor": """CREATE TABLE channel_cursor (
        account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
        conversation TEXT NOT NULL,
        cursor INTEGER NOT NULL DEFAULT 0,
        reported INTEGER NOT NULL DEFAULT 0,
        held_until INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (account, conversation)
    ) STRICT, WITHOUT ROWID""",
    "file": """CREATE TABLE file (
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
    "embedding": """CREATE TABLE embedding (
        key INTEGER PRIMARY KEY,
        account INTEGER NOT NULL,
        item INTEGER NOT NULL REFERENCES item ON DELETE CASCADE,
        kind TEXT NOT NULL,
        model TEXT NOT NULL,
        signs BLOB NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (item, model)
    ) STRICT""",
    "server_value": "CREATE TABLE server_value (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "leftover": "CREATE TABLE leftover (removed INTEGER NOT NULL, swept INTEGER NOT NULL) STRICT",
}

_TOKENS = "tokenize = 'porter unicode61 remove_diacritics 2'"
WORDS = (
    f"CREATE VIRTUAL TABLE exchange_words USING fts5 (words, columnsize = 0, {_TOKENS})",
    f"CREATE VIRTUAL TABLE item_words USING fts5 (words, columnsize = 0, {_TOKENS})",
)

INDEXES = (
    "CREATE INDEX answer_old ON answer (at)",
    "CREATE INDEX channel_old ON channel (at) WHERE is_told = 1",
    "CREATE INDEX channel_task ON channel (account, task)",
    "CREATE INDEX channel_untold ON channel (account, conversation, key) WHERE is_told = 0",
    "CREATE INDEX channel_account ON channel (account, key)",
    "CREATE INDEX conversation_newest ON conversation (account, used)",
    "CREATE INDEX conversation_memory ON conversation (memory) WHERE memory IS NOT NULL",
    "CREATE INDEX conversation_unsummarised ON conversation (key) WHERE unsummarised = 1 AND private = 0",
    "CREATE INDEX draft_exchange ON draft (exchange)",
    "CREATE INDEX exchange_recalled ON exchange (key) WHERE recalled_ids <> '[]'",
    "CREATE INDEX exchange_request ON exchange (request) WHERE request IS NOT NULL",
    "CREATE INDEX exchange_unindexed ON exchange (key) WHERE unindexed = 1",
    "CREATE INDEX file_exchange ON file (exchange)",
    "CREATE INDEX item_category ON item (account, category, created) WHERE category IS NOT NULL",
    "CREATE INDEX item_conversation ON item (conversation) WHERE conversation IS NOT NULL",
    "CREATE INDEX item_embedded ON item (embedded)",
    "CREATE INDEX item_exchange ON item (exchange) WHERE exchange IS NOT NULL",
    "CREATE INDEX item_newest ON item (account, created)",
    "CREATE INDEX task_active ON task (account, fingerprint) WHERE is_active = 1",
    "CREATE INDEX task_due ON task (account, due) WHERE due IS NOT NULL",
    "CREATE INDEX task_ended ON task (account) WHERE is_active = 0",
    "CREATE INDEX task_process ON task (process) WHERE process IS NOT NULL",
    "CREATE INDEX task_state ON task (state, account)",
    "CREATE INDEX task_account ON task (account)",
    "CREATE INDEX embedding_signs ON embedding (account, model, item, kind, signs)",
)
"""Few, so that a turn writes few pages: message IDs need no index, since a conversation is contiguous."""


def add_secrets() -> Iterator[str]:
    """Yield the statements that add new secrets."""
    for name in (ANSWER_KEY, PROCESS_SECRET):
        yield f"INSERT INTO server_value (name, value) VALUES ('{name}', '{secrets.token_hex(32)}')"


CREATE = (
    *TABLES.values(),
    *WORDS,
    "INSERT INTO leftover (removed, swept) VALUES (0, 0)",
    *INDEXES,
)
"""Creates everything but the secrets in an empty database."""
