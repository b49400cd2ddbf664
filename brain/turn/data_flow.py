"""Checks that a call sends no private data to other hosts.

Private data can be encoded in any way, so Brain does not search for it. Instead, each value must have a known source:
the user's own words, or a link or title in an earlier result of this conversation.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brain.messages import Call

MAX_PICKS = 3
"""Links and titles of results that a turn may send without approval. Each choice reveals some information."""
MIN_NUMBER = 1_000_000
"""Numbers below this are offsets and counts."""
CODE_LENGTH = 3
"""Letters of a single word that needs no source, such as a language code."""
MAX_URL_ENDS = 4
"""Trailing punctuation characters that may not belong to a URL."""

_URL = re.compile(r"https?://[^\s<>\"'`|]{1,2000}", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_PUNCTUATION = ".,;:!?()[]{}<>*_'\"“„”«»’"
_URL_ENDS = tuple(".,;:!?)]}*_'\"”’»")
_COMMON_WORDS = frozenset(
    _WORD.findall(
        "a about an and are as at between by can do does for from how in into is it near of on or than that the their "
        "to was were what when where which who why will with"
    )
)
_URL_PARAMETERS = frozenset({"address", "domain", "endpoint", "host", "href", "link", "uri", "url"})


class CheckedValues(NamedTuple):
    """The parameter values without a known source, and the number of values from results."""

    unknown: tuple[str, ...]
    picks: int


def check_data_flow(
    params: Mapping[str, Any], schema: Mapping[str, Any], user_texts: Sequence[str], sent_calls: Sequence[Call]
) -> CheckedValues:
    """Check the source of each value that a call sends to other hosts.

    Args:
        schema: JSON Schema of the parameters. Values that it lists are known.
        user_texts: The user's messages in this conversation.
        sent_calls: Earlier calls that sent something to other hosts, with their results.
    """
    listed = frozenset(_find_listed_values(schema))
    sources = _Sources(user_texts, sent_calls)
    unknown, picks = [], 0
    for name, value in _find_values(params):
        if value in listed or sources.has_user_sent(name, value):
            continue
        if sources.has_result_shown(name, value):
            picks += 1
        else:
            unknown.append(value)
    return CheckedValues(tuple(unknown), picks)


class _Sources:
    """The known sources of values."""

    def __init__(self, user_texts: Sequence[str], sent_calls: Sequence[Call]) -> None:
        text = "\n".join(user_texts)
        self._text = _fold(text)
        self._words = Counter(_split_words(text)) + Counter(_COMMON_WORDS)
        sent = [value for call in sent_calls if call.code is None for _, value in _find_values(call.params or {})]
        typed = [token.strip(_PUNCTUATION) for token in text.split()]
        self._urls = {_normalize(url) for url in (*_find_urls(text), *typed, *sent)}
        results = [
            "\n".join([call.block, *(f"{one.id}\n{one.title}\n{one.url or ''}" for one in call.citations)])
            for call in sent_calls
        ]
        self._shown_urls = {_normalize(url) for result in results for url in _find_urls(result)}
        self._shown_words = " ".join(f" {' '.join(_split_words(result))} " for result in results)

    def has_user_sent(self, name: str, value: str) -> bool:
        """Whether the user wrote this URL or an earlier call sent it, or the user wrote each word at least as often."""
        if _is_url(name, value):
            return _normalize(value) in self._urls
        if len(value) <= CODE_LENGTH and value.isalpha():
            return True
        words = Counter(_split_words(value))
        return all(
            self._words[word] >= count or (not word.isascii() and word in self._text) for word, count in words.items()
        )

    def has_result_shown(self, name: str, value: str) -> bool:
        """Whether a result contains this URL, or these words in a row."""
        if _is_url(name, value):
            return _normalize(value) in self._shown_urls
        return f" {' '.join(_split_words(value))} " in self._shown_words


def _find_values(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text that a call sends, with its parameter name. Nested names count as texts: the model chose them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if name:
                yield name, str(key)
            yield from _find_values(inner, str(key))
    elif isinstance(value, str):
        if value.strip():
            yield name, value.strip()
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _find_values(inner, name)
    elif value is not None and not isinstance(value, bool) and abs(value) >= MIN_NUMBER:
        yield name, str(value)


def _find_listed_values(schema: Any) -> Iterator[str]:
    """Yield the texts that a schema lists."""
    if isinstance(schema, Mapping):
        values = [*schema["enum"]] if isinstance(schema.get("enum"), list | tuple) else []
        yield from (value for value in [*values, schema.get("const")] if isinstance(value, str))
        for inner in schema.values():
            yield from _find_listed_values(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _find_listed_values(inner)


def _is_url(name: str, value: str) -> bool:
    if name.casefold() in _URL_PARAMETERS or "://" in value or value.casefold().startswith("www."):
        return True
    return not re.search(r"\s", value) and any(sign in value for sign in "./:%")


def _find_urls(text: str) -> Iterator[str]:
    """Yield the URLs in a text, with and without trailing punctuation, which may belong to the text."""
    for match in _URL.finditer(text):
        url = match[0]
        yield url
        yield url.partition(")")[0]
        for _ in range(MAX_URL_ENDS):
            if not url.endswith(_URL_ENDS):
                break
            url = url[:-1]
            yield url


def _normalize(url: str) -> str:
    """Return a URL for comparison, without the parts that do not change its target."""
    url = re.sub(r"^https?://", "", url.partition("#")[0], flags=re.IGNORECASE)
    host = re.split("[/?]", url, maxsplit=1)[0]
    return (host.casefold().removeprefix("www.") + url[len(host) :]).rstrip("/")


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without a plural ending."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in _WORD.findall(_fold(text))]
