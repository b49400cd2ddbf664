"""Whether what a call sends to other hosts is known to hold nothing private.

Private data can be encoded in any way, so nothing looks for it. Instead, what is sent must come from somewhere that is
known: the user's own words, or a link or a title that an earlier result of this conversation showed.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brain.messages import Call

MAX_PICKS = 3
"""Links and titles of results that a turn may use without approval. Each reveals which of those shown was chosen."""
MIN_NUMBER = 1_000_000
"""Numbers below this are offsets and counts."""
CODE_LENGTH = 3
"""Letters of a word that needs no source if it stands alone: the code of a language."""
MAX_URL_ENDS = 4
"""Characters of punctuation that are tried to be no part of a URL at its end."""

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
    """The values of a call's parameters that have no known source, and how many were picked from results."""

    unknown: tuple[str, ...]
    picks: int


def check_data_flow(
    params: Mapping[str, Any], schema: Mapping[str, Any], user_texts: Sequence[str], sent_calls: Sequence[Call]
) -> CheckedValues:
    """Find out where the values come from that a call sends to other hosts.

    Args:
        schema: the JSON Schema of the parameters; the values that it lists are known.
        user_texts: what the user wrote in this conversation.
        sent_calls: earlier calls that went to other hosts, with their results.
    """
    listed = frozenset(_find_listed_values(schema))
    sources = _Sources(user_texts, sent_calls)
    unknown, picks = [], 0
    for name, value in _find_values(params):
        if value in listed or sources.is_users(name, value):
            continue
        if sources.is_shown(name, value):
            picks += 1
        else:
            unknown.append(value)
    return CheckedValues(tuple(unknown), picks)


class _Sources:
    """Where values may come from."""

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

    def is_users(self, name: str, value: str) -> bool:
        """Whether the user wrote it, or it was sent before: this URL; or these words, none more often."""
        if _is_url(name, value):
            return _normalize(value) in self._urls
        if len(value) <= CODE_LENGTH and value.isalpha():
            return True
        words = Counter(_split_words(value))
        return all(
            self._words[word] >= count or (not word.isascii() and word in self._text) for word, count in words.items()
        )

    def is_shown(self, name: str, value: str) -> bool:
        """Whether a result showed it: this URL, or these words in a row."""
        if _is_url(name, value):
            return _normalize(value) in self._shown_urls
        return f" {' '.join(_split_words(value))} " in self._shown_words


def _find_values(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Each text that a call sends, with the name of its parameter; names that the model made up are texts, too."""
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
    """The texts that a schema itself lists."""
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
    """The URLs in a text; where one ends in punctuation, which may be the text's, with all and with less of it."""
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
    """A URL as it is compared: without what changes nothing in where it leads."""
    url = re.sub(r"^https?://", "", url.partition("#")[0], flags=re.IGNORECASE)
    host = re.split("[/?]", url, maxsplit=1)[0]
    return (host.casefold().removeprefix("www.") + url[len(host) :]).rstrip("/")


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _split_words(text: str) -> list[str]:
    """The words of a text in small letters, without the ending of a plural."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in _WORD.findall(_fold(text))]
