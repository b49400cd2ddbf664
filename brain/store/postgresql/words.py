"""Full-text search with a column of lexemes. Its configuration stems as SQLite's FTS5 does, so both find the same."""

import re
from collections.abc import Sequence

from brain.store.tx import Index, Tx

CREATE = (
    "CREATE TEXT SEARCH DICTIONARY brain (TEMPLATE = snowball, Language = porter)",
    "CREATE TEXT SEARCH CONFIGURATION brain (COPY = simple)",
    "ALTER TEXT SEARCH CONFIGURATION brain ALTER MAPPING FOR numword, asciiword, word WITH brain",
    *(
        statement
        for index in ("exchange_words", "item_words")
        for statement in (
            f"CREATE TABLE {index} (key BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
            f"CREATE INDEX {index}_words ON {index} USING gin (words)",
        )
    ),
)


_ENDINGS = {"logies": "log", "logy": "log", "logi": "log", "blies": "ble", "bly": "ble", "bli": "ble"}
"""What SQLite's stemmer makes of these endings; that of PostgreSQL lacks the two rules which Porter added later."""
_MEASURED = re.compile("(?:[aeiou]|[^aeiou]y)[aeiouy]*[^aeiouy]").search
"""Porter's condition for a change: a vowel and then a consonant are before the ending."""


class TsVector:
    """The indexes of PostgreSQL; see `FullText`."""

    def put(self, tx: Tx, index: Index, key: int, terms: str) -> None:
        tx.execute(
            f"INSERT INTO {index} (key, words) VALUES (?, to_tsvector('brain', ?)) "
            "ON CONFLICT (key) DO UPDATE SET words = excluded.words",
            (key, " ".join(map(_replace_ending, terms.split()))),
        )

    def remove(self, tx: Tx, index: Index, key: int) -> None:
        tx.execute(f"DELETE FROM {index} WHERE key = ?", (key,))

    def matching(self, index: Index) -> str:
        return f"(SELECT key FROM {index} WHERE words @@ to_tsquery('brain', ?)) matching"

    def query(self, term: str, *, is_prefix: bool = False) -> str:
        return _replace_ending(term) + ":*" * is_prefix

    def all_of(self, queries: Sequence[str]) -> str:
        return f"({' & '.join(queries)})"

    def any_of(self, queries: Sequence[str]) -> str:
        return f"({' | '.join(queries)})"


def _replace_ending(term: str) -> str:
    for ending, replaced in _ENDINGS.items():
        if term.endswith(ending) and _MEASURED(term, 0, len(term) - len(ending)):
            return term[: -len(ending)] + replaced
    return term
