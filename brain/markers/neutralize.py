"""Makes text from outside harmless: no marker, delimiter or control token in it takes effect."""

import re
import unicodedata
from functools import lru_cache

from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.text import replace_surrogates, strip_invisible

BLOCK_BYTES = 8192
"""Size of a result block in UTF-8 at most, and of a text that is cached."""

_TOKEN = r"(?=(?P<token>(?<=<)[^\s<>]{1,64}>|(?<=\[)(?:[^\s\[\]]{1,64}\]|e~\[)|(?<=\])~!?b[\[\]]|(?<=>)>[A-Z]{1,16}<<))"

_TOKENS = re.compile(rf"[\[<\]>]{_TOKEN}", re.IGNORECASE)
"""Finds the first character of what may be a control token; `token` is the rest of it."""

_NOTE = r"(?:Content|End)\s+of\s+attachment\b|Attached,\s+by\s+image_id\b|Now:|Recalled\s+(?:from|of)\b"

_OPENERS = re.compile(
    rf"""[\[<@(\]>](?:
        (?<=\[)(?=(?P<block>(?P<word>\s*+(?:/\s*+)?SPECIALIST\\?_(?:RESULT|ERROR))\b(?:[^\[\]\n]{{0,200}}\])?))
      | (?<=SPECIALIST_REQUEST\[)
      | (?<=<)(?=\s*+(?:/\s*+)?(?:function_call|tool_call)\s*+>)
      | (?<=@)(?=[A-Za-z][A-Za-z0-9_-]*_specialist\()
      | (?<=\()(?=(?P<note>\s*+(?:{_NOTE})))
      | {_TOKEN}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""The same, and of markers, notes and delimiters: `block` goes to the end of a delimiter, `word` of its name."""

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
"""Characters that look like those of ASCII, without those that Unicode's compatibility forms (NFKC) know."""

_MAX_FOLDED = 20_000
"""Characters whose folded form is cached."""


class _Folding(dict[int, str]):
    """For `str.translate`: characters as ASCII where they look so, and NUL for those that nobody sees."""

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
    """The same text, with nothing in it that could be taken for a marker, a note, a delimiter or a control token.

    The first character of each becomes its full-width form: people still read it, no scanner and no tokenizer takes it
    for the original. What is hidden by characters that nobody sees, or written with similar ones, counts as well.

    Args:
        tokens: the control tokens that count for the model that reads it.
    """
    return _neutralize(text, _OPENERS, tokens)


def neutralize_control_tokens(text: str, tokens: ControlTokens) -> str:
    """The same for a text of Brain's own around harmless ones: its delimiters stay, control tokens do not."""
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


_neutralize_short = lru_cache(maxsize=256)(_neutralize)  # each turn of a conversation reads its earlier ones again


def _fold(text: str) -> tuple[str, list[int] | None]:
    """The text as ASCII where it looks so, and where each of its characters stands in it; None where each stays."""
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
    """Which characters of the text become which.

    What is written with similar characters is no different with a full-width opener: its words are parted, too.
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
    """The full-width form of a character of ASCII."""
    return chr(ord(character) + 0xFEE0)


@lru_cache(maxsize=64)
def _heading_pattern(tokens: ControlTokens) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*({'|'.join(map(re.escape, tokens.headings))})", re.MULTILINE)


def _is_line_start(text: str, place: int) -> bool:
    while place and text[place - 1] in " \t":
        place -= 1
    return not place or text[place - 1] in _LINE_ENDS
