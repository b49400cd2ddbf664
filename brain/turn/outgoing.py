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

PICKS_MOST = 3
"""Links and titles of results that a turn may use unasked. Each tells a little: which of those shown was chosen."""
NUMBER_MOST = 1_000_000
"""Numbers below this are offsets and counts."""
CODE_LENGTH = 3
"""Letters of a word that needs no source if it stands alone: the code of a language."""

_URL = re.compile(r"https?://[^\s<>\"'`|]{1,2000}", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_AROUND = ".,;:!?()[]{}<>*_'\"“„”«»’"
_ENDS = tuple(".,;:!?)]}*_'\"”’»")
_ENDS_MOST = 4
_COMMON = frozenset(
    _WORD.findall(
        "a about an and are as at between by can do does for from how in into is it near of on or than that the their "
        "to was were what when where which who why will with"
    )
)
_ADDRESS_NAMES = frozenset({"address", "domain", "endpoint", "host", "href", "link", "uri", "url"})


class Checked(NamedTuple):
    """What became of a call's parameters: values without a known source, and how many were picked from results."""

    unknown: tuple[str, ...]
    picks: int


def check(params: Mapping[str, Any], schema: Mapping[str, Any], own: Sequence[str], found: Sequence[Call]) -> Checked:
    """Looks where the values come from that a call sends to other hosts.

    Args:
        own: what the user wrote in this conversation.
        found: earlier calls that went to other hosts, with their results.
    """
    listed = frozenset(_listed(schema))
    sources = _Sources(own, found)
    unknown, picks = [], 0
    for name, value in _values(params):
        if value in listed or sources.is_own(name, value):
            continue
        if sources.is_shown(name, value):
            picks += 1
        else:
            unknown.append(value)
    return Checked(tuple(unknown), picks)


class _Sources:
    """Where values may come from."""

    def __init__(self, own: Sequence[str], found: Sequence[Call]) -> None:
        text = "\n".join(own)
        self._text = _folded(text)
        self._own = Counter(_words(text)) + Counter(_COMMON)
        self._typed = {_bare(url) for url in (*_urls(text), *(token.strip(_AROUND) for token in text.split()))}
        again = (value for call in found if call.code is None for _, value in _values(call.params or {}))
        self._typed |= {_bare(value) for value in again}
        results = [
            "\n".join([call.block, *(f"{one.id}\n{one.title}\n{one.url or ''}" for one in call.citations)])
            for call in found
        ]
        self._links = {_bare(url) for result in results for url in _urls(result)}
        self._shown = " ".join(f" {' '.join(_words(result))} " for result in results)

    def is_own(self, name: str, value: str) -> bool:
        """Whether the user wrote it, or it was sent before: this address; or these words, none more often."""
        if _is_address(name, value):
            return _bare(value) in self._typed
        if len(value) <= CODE_LENGTH and value.isalpha():
            return True
        words = Counter(_words(value))
        return all(
            self._own[word] >= count or (not word.isascii() and word in self._text) for word, count in words.items()
        )

    def is_shown(self, name: str, value: str) -> bool:
        """Whether a result showed it: this link, or these words one behind the other."""
        if _is_address(name, value):
            return _bare(value) in self._links
        return f" {' '.join(_words(value))} " in self._shown


def _values(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text that a call sends, with the name of its parameter; names that the model made up are texts, too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if name:
                yield name, str(key)
            yield from _values(inner, str(key))
    elif isinstance(value, str):
        if value.strip():
            yield name, value.strip()
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _values(inner, name)
    elif value is not None and not isinstance(value, bool) and abs(value) >= NUMBER_MOST:
        yield name, str(value)


def _listed(schema: Any) -> Iterator[str]:
    """The texts that a schema itself lists."""
    if isinstance(schema, Mapping):
        listed = [*schema["enum"]] if isinstance(schema.get("enum"), list | tuple) else []
        yield from (one for one in [*listed, schema.get("const")] if isinstance(one, str))
        for inner in schema.values():
            yield from _listed(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _listed(inner)


def _is_address(name: str, value: str) -> bool:
    if name.casefold() in _ADDRESS_NAMES or "://" in value or value.casefold().startswith("www."):
        return True
    return not re.search(r"\s", value) and any(sign in value for sign in "./:%")


def _urls(text: str) -> Iterator[str]:
    """The addresses in a text; where one ends in punctuation, which may be the text's, with all and with less of it."""
    for match in _URL.finditer(text):
        url = match[0]
        yield url
        yield url.partition(")")[0]
        for _ in range(_ENDS_MOST):
            if not url.endswith(_ENDS):
                break
            url = url[:-1]
            yield url


def _bare(address: str) -> str:
    """An address as it is compared: without what changes nothing in where it leads."""
    address = re.sub(r"^https?://", "", address.partition("#")[0], flags=re.IGNORECASE)
    host = re.match(r"[^/?]*", address)
    assert host is not None
    return (host[0].casefold().removeprefix("www.") + address[host.end() :]).rstrip("/")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _words(text: str) -> list[str]:
    """The words of a text in small letters, without the ending of a plural."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in _WORD.findall(_folded(text))]
