"""Code with a class for each kind of token; the only importer of pygments."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from markdown_it.common.utils import escapeHtml
from pygments import format
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import STANDARD_TYPES

CODE_LENGTH = 8_000
"""Characters of code that is highlighted."""
CODE_SECONDS = 0.1
"""Of the processor, that highlighting may take; what somebody wrote to be run takes a tenth of it."""
CLASSES = frozenset(name for name in STANDARD_TYPES.values() if name)

_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")
"""Characters that turn the order of others round; they are shown, for code must do what it looks like."""
_HIGHLIGHTED = (
    "bash c cpp csharp css diff dockerfile go graphql html java javascript json kotlin lua make nginx perl php "
    "powershell python r ruby rust scala sql swift toml typescript xml yaml"
)
"""The languages whose code is highlighted: those whose lexers read no one token for long, whatever they are given."""
_formatter = HtmlFormatter(nowrap=True)


class Read(Lexer):  # type: ignore[misc]  # pygments is not typed
    """Code in its tokens, for whatever takes a lexer."""

    def __init__(self, tokens: Sequence[tuple[Any, str]]) -> None:
        super().__init__()
        self.tokens = tokens

    def get_tokens(self, text: str, unfiltered: bool = False) -> Iterator[tuple[Any, str]]:
        """Those that were read before."""
        return iter(self.tokens)


def read(code: str, language: str) -> Read | None:
    """Code as it is highlighted; None where its language is not known, it is long, or reading it would take long."""
    name = _names().get(language) if len(code) <= CODE_LENGTH else None
    if name is None:
        return None
    try:
        return Read([*_soon(_lexer(name).get_tokens(code))])
    except _TooLong:
        return None


@cache
def _names() -> Mapping[str, str]:
    """The languages by all their names; looked up without loading any of the lexers."""
    wanted = set(_HIGHLIGHTED.split())
    known = (aliases for _, aliases, *_ in get_all_lexers(plugins=False) if wanted.intersection(aliases))
    return {"jsx": "javascript", "tsx": "typescript"} | {alias: names[0] for names in known for alias in names}


@cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


def coloured(code: str, language: str) -> str:
    """Code as HTML, with the classes of `CLASSES` where it is highlighted."""
    found = read(code.translate(_TURNS), language)
    if found is None:
        return plain(code)
    html = format(found.tokens, _formatter)
    assert isinstance(html, str)
    return html


class _TooLong(Exception):
    """It would take too long."""


def _soon(tokens: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    """The same, as far as they come in time. Lexers go back in a text for some that nobody would write."""
    end = time.thread_time() + CODE_SECONDS
    for token in tokens:
        if time.thread_time() > end:
            raise _TooLong
        yield token


def plain(code: str) -> str:
    """The same without classes."""
    return escapeHtml(code.translate(_TURNS))
