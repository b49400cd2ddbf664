"""Checks that a call sends no private data to other hosts.

Private data can be encoded in any way, so Brain does not search for it. Instead, each value must have a known source:
the user's own words, or a link or title in an earlier result of this conversation. Values are compared in a normal
form, which is also the form that is sent, so nothing that a comparison ignores can carry data.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from brain.messages import Call
from brain.text import one_line

MAX_PICKS = 3
"""Links and titles of results that a turn may send without approval. Each choice reveals some information."""
MAX_FREE = 6
"""Small numbers, codes, and values that the schema lists, per call. They need no source."""
FREE_NUMBERS = 1_000
"""Whole numbers below this are offsets and counts."""
MAX_URL_ENDS = 4
"""Trailing punctuation characters that may not belong to a URL."""

_URL = re.compile(r"https?://[^\s<>\"'`|]{1,2000}", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_SIGN = re.compile(r"[^\w\s]")
_CODE = re.compile(r"[a-z]{2,3}")
"""A single word that needs no source, such as a language code."""
_PUNCTUATION = ".,;:!?()[]{}<>*_'\"“”„”«»’"
_URL_ENDS = tuple(".,;:!?)]}*_'\"”’»")
_COMMON_WORDS = frozenset(
    _WORD.findall(
        "a about an and are as at between by can do does for from how in into is it near of on or than that the their "
        "to was were what when where which who why will with"
    )
)
_COMMON_SIGNS = Counter('""\'().,:;?-')
_URL_PARAMETERS = frozenset({"address", "domain", "endpoint", "host", "href", "link", "uri", "url"})


class Finding(NamedTuple):
    """A call with a result from other hosts, and those of its parameters that were not sent.

    The result may repeat the latter, so what they contain is not from another host.
    """

    call: Call
    unsent: Mapping[str, Any]


def normalize_values(value: Any, name: str = "") -> Any:
    """Return parameters in the form in which they are compared and sent: URLs as `normalize_url` does, and other texts
    without invisible characters and repeated white space, also as names inside of a parameter.
    """
    if isinstance(value, Mapping):
        named = [(_normalize(name, str(key)) if name else key, inner) for key, inner in value.items()]
        return {key: normalize_values(inner, str(key)) for key, inner in named}
    if isinstance(value, str):
        return _normalize(name, value)
    if isinstance(value, list | tuple):
        return [normalize_values(inner, name) for inner in value]
    return value


def texts_of(values: Any) -> list[str]:
    """Return the texts and numbers of parameters, as a person reads them."""
    return [value if isinstance(value, str) else json.dumps(value) for _, value in _find_values(values) if value != ""]


def count_picks(
    values: Mapping[str, Any],
    schema: Mapping[str, Any],
    user_texts: Sequence[str],
    sent_values: Sequence[Mapping[str, Any]] = (),
    results: Sequence[Finding] = (),
) -> int | None:
    """Return how many of the values that a call sends are from results; None if some must not be sent without approval.

    These have no known source, or more than `MAX_PICKS` are from results.

    Args:
        values: From `normalize_values`.
        schema: JSON Schema of the parameters. Values that it lists are known.
        user_texts: The user's messages in this conversation.
        sent_values: What earlier calls sent to other hosts.
        results: Earlier results from other hosts.
    """
    listed = frozenset(_find_listed_values(schema))
    sources = _Sources(user_texts, sent_values, results)
    picks = free = 0
    for parameter, all_of_it in values.items():
        sources.begin_parameter()
        for name, value in _find_values({parameter: all_of_it}):
            if isinstance(value, str):
                is_free = value == "" or value in listed or bool(_CODE.fullmatch(value))
            else:
                is_free = isinstance(value, int) and abs(value) < FREE_NUMBERS
            text = value if isinstance(value, str) else json.dumps(value)
            if is_free and free < MAX_FREE:
                free += 1
            elif sources.has_user_written(name, text):
                continue
            elif picks < MAX_PICKS and sources.has_result_shown(name, text):
                picks += 1
            else:
                return None
    return picks


class _Sources:
    """The known sources of values."""

    def __init__(
        self, user_texts: Sequence[str], sent_values: Sequence[Mapping[str, Any]], results: Sequence[Finding]
    ) -> None:
        text = "\n".join(user_texts)
        sent = [value for some in sent_values for _, value in _find_values(normalize_values(some)) if value != ""]
        self._user = _Text(text)
        self._words = Counter(_split_words(text)) + Counter(_COMMON_WORDS)
        self._signs = Counter(_SIGN.findall(_tidy(text))) + _COMMON_SIGNS
        typed = {token.strip(_PUNCTUATION) for token in text.split()}
        self._tokens: set[object] = {*typed, *sent}
        self._urls: set[object] = {*sent, *_normal_urls((*_find_urls(text), *filter(_is_reference, typed)))}
        self._results = [
            (
                _Text("\n".join([call.block, *(f"{one.id}\n{one.title}\n{one.url or ''}" for one in call.citations)])),
                _fold("\n".join(texts_of(unsent))),
            )
            for call, unsent in results
        ]
        self.begin_parameter()

    def begin_parameter(self) -> None:
        """Count anew how often a parameter, which may be a list, contains the user's words and URLs."""
        self._used_words: Counter[str] = Counter()
        self._used_letters: Counter[str] = Counter()
        self._used_signs: Counter[str] = Counter()
        self._used_references: set[str] = set()

    def has_user_written(self, name: str, value: str) -> bool:
        """Whether the user wrote this URL or an earlier call sent it, or the user wrote each word and sign of it.

        Words and signs may be in another order, but not more often in a parameter than the user wrote them.
        """
        if _is_url(name, value) or _is_reference(value):
            is_known = value in (self._urls if _is_url(name, value) else self._tokens)
            is_new = value not in self._used_references
            self._used_references.add(value)
            return is_known and is_new
        words, signs = Counter(_split_words(value)), Counter(_SIGN.findall(value))
        letters = Counter("".join(word for word in words.elements() if not word.isascii()))
        is_known = (
            value != ""
            and all(
                not word.isascii() and word in self._user.folded
                for word in _find_excess(words, self._used_words, self._words)
            )
            and not _find_excess(letters, self._used_letters, self._user.letters)
            and not _find_excess(signs, self._used_signs, self._signs)
            and self._user.has_forms(value)
        )
        if is_known:
            self._used_words.update(words)
            self._used_letters.update(letters)
            self._used_signs.update(signs)
        return is_known

    def has_result_shown(self, name: str, value: str) -> bool:
        """Whether a result contains this URL, or this text as whole words, and does not repeat any of it."""
        words = _split_words(value)
        results = [result for result, unsent in self._results if not any(word in unsent for word in words)]
        if _is_url(name, value):
            return any(value in result.urls(value) for result in results)
        return any(result.contains(value) for result in results)


def _find_excess(new: Counter[str], used: Counter[str], known: Counter[str]) -> list[str]:
    """Return what, with its earlier use, is used more often than it is known."""
    return [one for one, count in new.items() if used[one] + count > known[one]]


class _Text:
    """A text in which values are looked up."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _line(self) -> str:
        return _tidy(self._text)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self._line))

    @cached_property
    def folded(self) -> str:
        """The text in compatibility form and lower case."""
        return _fold(self._text)

    @cached_property
    def letters(self) -> Counter[str]:
        """How often the text has each character."""
        return Counter(self.folded)

    def urls(self, like: str) -> set[str]:
        """Return the normal forms of URLs in the text that may be this one."""
        host = like.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]
        return _normal_urls(url for url in _find_urls(self._text) if host in url.casefold() or not url.isascii())

    def contains(self, value: str) -> bool:
        """Whether the text, or all of it in lower case, contains a value as whole words.

        If each word could have its own case, a long value could carry a bit of data per word.
        """
        begin = r"(?<!\w)" if _WORD.match(value) else ""
        end = r"(?!\w)" if _WORD.match(value[-1:]) else ""
        whole = re.compile(f"{begin}{re.escape(value)}{end}")
        return value != "" and any(whole.search(line) for line in (self._line, self._line.lower()))

    def has_forms(self, value: str) -> bool:
        """Whether each word of a value is written as in the text, in lower or upper case, or capitalized."""
        return all(
            word in self._words
            or (word == unicodedata.normalize("NFKC", word) and word in (word.lower(), word.upper(), word.capitalize()))
            for word in _WORD.findall(value)
        )


def _find_values(value: Any, name: str = "", is_inner: bool = False) -> Iterator[tuple[str, str | int | float]]:
    """Yield each value that a call sends, with its parameter name.

    Names, lists and empty values inside of a parameter count, since the model chose them: the latter as empty texts.
    """
    is_text = isinstance(value, str | int | float)
    if is_inner and not is_text:
        yield name, ""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if name:
                yield name, str(key)
            yield from _find_values(inner, str(key), bool(name))
    elif isinstance(value, str | int | float):
        if is_inner or value != "":
            yield name, value
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _find_values(inner, name, True)


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


def _normalize(name: str, value: str) -> str:
    if _is_url(name, value):
        for url in _normal_urls((value,)):
            return url
    return _tidy(value)


def _tidy(text: str) -> str:
    return unicodedata.normalize("NFC", one_line(text))


def _is_url(name: str, value: str) -> bool:
    is_url = "://" in value or value.casefold().startswith("www.")
    return name.casefold() in _URL_PARAMETERS or (is_url and not re.search(r"\s", value.strip()))


def _is_reference(value: str) -> bool:
    """Whether a value without white space may name a host or a file."""
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


def _normal_urls(urls: Iterable[str]) -> set[str]:
    """Return the normal forms of all URLs among these texts, with `https` if they have no scheme."""
    from brain.net.fetch import normalize_url  # imports httpx, which turns without URLs do not need

    found = set()
    for url in urls:
        try:
            found.add(normalize_url(url if _SCHEME.match(url) else f"https://{url}"))
        except ValueError:
            continue
    return found


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without a plural ending."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in _WORD.findall(_fold(text))]
