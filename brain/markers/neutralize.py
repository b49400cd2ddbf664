"""Neutralizes untrusted text: no marker, delimiter or control token in it takes effect."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.text import replace_surrogates, strip_invisible

BLOCK_BYTES = 8192
"""Largest result block, in UTF-8 bytes. Texts up to this size are cached."""

_TOKEN = r"(?=(?P<token>(?<=<)[^\s<>]{1,64}>|(?<=\[)(?:[^\s\[\]]{1,64}\]|e~\[)|(?<=\])~!?b[\[\]]|(?<=>)>[A-Z]{1,16}<<))"

_TOKENS = re.compile(rf"[\[<\]>]{_TOKEN}", re.IGNORECASE)
"""Finds the first character of a possible control token; `token` is the rest."""

_NOTE = r"(?:Content|End)\s+of\s+attachment\b|Attached,\s+by\s+image_id\b|Now:|Recalled\s+(?:from|of)\b"

_OPENERS = re.compile(
    rf"""[\[<@(\]>](?:
        (?<=\[)(?=(?P<block>(?P<word>\s*+(?:/\s*+)?SPECIALIST\\?_(?:RESULT|ERROR))\b(?:[^\[\]\n]{{0,200}}\])?))
      | (?<=SPECIALIST_REQUEST\[)
      | (?<=<)(?=\s*+(?:/\s*+)?(?:function_calls?|tool_call)\s*+>)
      | (?<=<)(?=\s*+(?:function|(?:\|DSML\|\s*+)?invoke\s++name)\s*+=)
      | (?<=@)(?=[A-Za-z][A-Za-z0-9_-]*_specialist\()
      | (?<=\()(?=(?P<note>\s*+(?:{_NOTE})))
      | {_TOKEN}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Also finds markers, notes and delimiters: `block` ends with a delimiter, `word` with its name."""

_LINE_ENDS = "\n\r\v\f\x85\u2028\u2029"

_UNUSUAL = re.compile("[^\t-\r -~]+")

_ALIKE = {
    "АВСЕНІЈКМОРЅТХҮԌԚԜ": "ABCEHIJKMOPSTXYGQW",
    "авсԁеһіјкӏорԛѕтѵԝхуҮ": "abcdehijklopqstvwxyy",
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορτυχ": "ABEZHIKMNOPTYXaikvoptux",
    "ᎪᏴᏟᎠᎬᎻᎥᎫᏦᏞᎷΝᏢᎡᏚᎢᏙᎳᏃ": "ABCDEHiJKLMNPRSTVWZ",
    "ıɩɡɑʟ": "iigal",
    "▁‿": "__",
    "∣│┃❘ǀ￨": "||||||",
    "⁄∕╱": "///",
    "ꓽ∶։": ":::",
    "‹〈⟨❬❮❰◁": "<<<<<<<",
    "›〉⟩❭❯❱▷": ">>>>>>>",
    "【〔〖⟦⁅❲": "[[[[[[",
    "】〕〗⟧⁆❳": "]]]]]]",
}
"""Characters that look like ASCII and are not in Unicode's compatibility forms (NFKC)."""

_SEPARATOR = "\x1e"
"""Separates texts. It has no meaning in a text for a model."""

_MAX_FOLDED = 20_000
"""Largest number of cached foldings."""


class _Folding(dict[int, str]):
    """For `str.translate`: ASCII for characters that look like it, and NUL for invisible ones."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character < " " or character == "\x7f":
            return "\0"
        plain = unicodedata.normalize("NFKC", character)
        is_alike = len(plain) == 1 and plain.isascii()
        folded = plain if is_alike else character if character.isspace() or strip_invisible(character) else "\0"
        if len(self) < _MAX_FOLDED:
            self[code] = folded
        return folded


_FOLDING = _Folding(
    {ord(one): plain for alike, plains in _ALIKE.items() for one, plain in zip(alike, plains, strict=True)}
)


def neutralize(text: str, tokens: ControlTokens = ALL_TOKENS) -> str:
    """Return the text without effective markers, notes, delimiters and control tokens.

    The first character of each becomes its full-width form: people can still read it, but no scanner and no tokenizer
    recognises it. This includes text that is disguised with invisible or similar characters.
    """
    return _neutralize(text, _OPENERS, tokens)


def neutralize_json(value: Any, tokens: ControlTokens = ALL_TOKENS) -> Any:
    """Return a JSON value whose texts and keys are all neutralized. They are neutralized together, which is faster."""
    separator = f"{_SEPARATOR}\n"
    joined = separator.join(text.replace(_SEPARATOR, " ") for text in _texts(value))
    return _with_texts(value, iter(neutralize(joined, tokens).split(separator)))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts and keys of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _with_texts(value: Any, texts: Iterator[str]) -> Any:
    """Return a JSON value with other texts, in the order of `_texts`."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, Mapping):
        return {next(texts): _with_texts(one, texts) for one in value.values()}
    return [_with_texts(one, texts) for one in value] if isinstance(value, list) else value


def neutralize_control_tokens(text: str, tokens: ControlTokens) -> str:
    """Neutralize control tokens only. For texts of Brain: their delimiters stay, and their content is neutral."""
    return _neutralize_short(text, _TOKENS, tokens) if len(text) <= BLOCK_BYTES else _neutralize(text, _TOKENS, tokens)


def _neutralize(text: str, openers: re.Pattern[str], tokens: ControlTokens) -> str:
    text = replace_surrogates(text)
    folded, places = _fold(text)
    changes: list[tuple[int, str]] = []
    for match in openers.finditer(folded):
        token = match["token"]
        if token and not _is_control(f"{match[0]}{token}".casefold(), tokens.names):
            continue
        if match[0] != "(" or _is_line_start(folded, match.start()):
            changes += _find_replacements(match, text, places)
    for heading in _heading_pattern(tokens).finditer(folded) if tokens.headings else ():
        place = places[heading.start(1)] if places else heading.start(1)
        changes.append((place, _full_width(text[place]) if text[place].isascii() else f"\\{text[place]}"))
    if not changes:
        return text
    characters = list(text)
    for place, instead in changes:
        characters[place] = instead
    return "".join(characters)


_neutralize_short = lru_cache(maxsize=256)(_neutralize)  # each turn of a conversation reads the earlier turns again


def _fold(text: str) -> tuple[str, list[int] | None]:
    """Return the folded text, and the original index of each character (None if all stay in place)."""
    marked = _UNUSUAL.sub(lambda some: some[0].translate(_FOLDING), text)
    if "\0" not in marked:
        return marked, None
    return marked.replace("\0", ""), [place for place, one in enumerate(marked) if one != "\0"]


def _is_control(token: str, names: frozenset[str]) -> bool:
    inner = token[1:-1].strip("/")
    if inner[-1:].isdecimal():
        token = f"{token[0]}{inner.rstrip('0123456789')}#{token[-1]}"
    return token in names or ("|" in (inner[:1], inner[-1:]) and bool(inner.strip("|")))


def _find_replacements(match: re.Match[str], text: str, places: list[int] | None) -> list[tuple[int, str]]:
    """Return the replacements: indices and new texts.

    Disguised text would look the same with a full-width opener, so it also gets a space.
    """

    def at(place: int) -> int:
        return places[place] if places else place

    first, groups = at(match.start()), match.groupdict()
    opener = _full_width(match[0])
    if groups["token"]:
        is_alike = text[at(match.end("token") - 1)] not in "<>[]"
        return [(first, f"{opener} " if is_alike else opener)]
    if groups.get("block"):
        last = text[at(match.end("block") - 1)]
        word = text[first + 1 : at(match.end("word") - 1) + 1]
        closes = match["block"].endswith("]")
        if not word.isascii() or text[first] not in ("[", opener) or (closes and last != "]"):
            return [(first, opener), (at(match.start("word") + match["word"].index("_")), " ")]
    return [(first, opener)]


def _full_width(character: str) -> str:
    """Return the full-width form of an ASCII character."""
    return chr(ord(character) + 0xFEE0)


@lru_cache(maxsize=64)
def _heading_pattern(tokens: ControlTokens) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*({'|'.join(map(re.escape, tokens.headings))})", re.MULTILINE)


def _is_line_start(text: str, place: int) -> bool:
    while place and text[place - 1] in " \t":
        place -= 1
    return not place or text[place - 1] in _LINE_ENDS
