"""Clean untrusted text: encoding, invisible characters, empty lines; and find its content words.

Imports nothing from `brain`.
"""

import codecs
import re

_INVISIBLE = {
    code: None
    for first, last in (
        (0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x200B, 0x200B), (0x200E, 0x200F), (0x202A, 0x202E),
        (0x2060, 0x2064), (0x2066, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F),
    )
    for code in range(first, last + 1)
}  # fmt: skip
"""Control characters, soft hyphens, direction marks, and tags, which are invisible."""
_JOINERS = "\u200c\u200d"
_PIECE = 65_536
_QUESTION_WORDS = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get",
    "happen", "happens", "has", "have", "how", "i", "if", "in", "is", "it", "its", "make", "makes", "many", "me",
    "mean", "means", "much", "my", "need", "needs", "of", "on", "or", "our", "own", "s", "should", "so", "that", "the",
    "their", "them", "then", "there", "these", "this", "to", "use", "used", "using", "want", "was", "we", "what",
    "when", "where", "which", "who", "why", "will", "with", "you", "your",
})  # fmt: skip
"""Documents rarely use these words, so they would outweigh the content words."""


def strip_invisible(text: str) -> str:
    """Remove invisible characters, except joiners, which some scripts need.

    Works in pieces, so that a long text does not block other threads.
    """
    return "".join(text[at : at + _PIECE].translate(_INVISIBLE) for at in range(0, len(text), _PIECE))


def one_line(text: str, length: int) -> str:
    """Return a text as one line of printable characters and joiners, up to `length`, cut between words."""
    line = "".join(c if c.isprintable() or c in _JOINERS else " " for c in strip_invisible(text))
    line = " ".join(line.split())
    if len(line) <= length:
        return line
    cut = line[: length - 1]
    return (cut[: cut.rfind(" ")] if cut.rfind(" ") > length // 2 else cut).rstrip() + "…"


def tidy(text: str) -> str:
    """Remove trailing spaces and repeated empty lines."""
    lines = "\n".join(line.rstrip() for line in strip_invisible(text).splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for lists of words in code."""
    return frozenset(text.split())


def content_words(query: str) -> list[str]:
    """Return the words of a query without question words, or all words if nothing else is left."""
    words = re.findall(r"\w+", query.lower())
    return [word for word in words if word not in _QUESTION_WORDS] or words


# encodings

_SAMPLE = 50_000
_AROUND = 20_000
"""Characters around the first decoding error that decide whether to guess the encoding."""
_OTHER_SCRIPTS = re.compile(rb"[\x80-\xff]{3,}")
"""Non-Latin letters follow each other; accented Latin letters are between plain ones."""
_ENCODINGS = (
    "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1251", "koi8_r", "iso8859_5", "cp1253", "cp1255", "cp1256",
    "cp874",
)  # fmt: skip
_CENTRAL = re.compile(r"(?<=\w)[¹³¿£¼¾œŸ¶](?=\w)|(?<=\w)[¹³¿](?=\W)|(?<!\w)[³¿](?=[a-zà-ÿ])|[šžŠŽ]")
"""Polish and Czech letters that were decoded with a Western encoding."""


def repair(text: str, data: bytes) -> str:
    """Return a text, or its bytes in a guessed encoding if the declared one is wrong or missing."""
    broken_at = text.find("\ufffd")
    sample = text[max(0, broken_at - _AROUND) : broken_at + _AROUND]
    if broken_at < 0 or sample.count("\ufffd") * 2 <= sum(not char.isascii() for char in sample):
        return text
    return data.decode(guess_encoding(data), "replace")


def guess_encoding(data: bytes) -> str:
    """Guess the encoding of a text that is not UTF-8 and declares none; Western European in case of doubt."""
    first = re.search(rb"[\x80-\xff]", data)
    sample = data[first.start() if first else 0 :][:_SAMPLE]
    others = sum(map(len, _OTHER_SCRIPTS.findall(sample)))
    if others * 2 <= len(re.findall(rb"[\x80-\xff]", sample)):
        return _guess_latin(sample)
    for japanese in ("cp932", "euc_jp"):
        if re.search("[ぁ-ん]", _decode(sample, japanese) or ""):
            return japanese
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    best = from_bytes(sample, cp_isolation=list(_ENCODINGS)).best()
    return best.encoding if best else "cp1252"


def _guess_latin(sample: bytes) -> str:
    western, is_central = _decode(sample, "cp1252"), _decode(sample, "cp1250") is not None
    if western is None:
        return "cp1250" if is_central else "cp1252"
    hungarian = re.search("[õûÕÛ]", western) and re.search("[áÁ]", western) and not re.search("[ãçàèêñ]", western)
    return "cp1250" if (hungarian or _CENTRAL.search(western)) and is_central else "cp1252"


def _decode(sample: bytes, encoding: str) -> str | None:
    """Decode a sample, which may end within a character; None if it has another encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return None
