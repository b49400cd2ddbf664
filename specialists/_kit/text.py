"""Text of others made fit to be read: its encoding, no invisible characters, no endless empty lines; and its terms.

Imports nothing of Brain.
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
"""Controls, soft hyphens, marks of direction, and tags, which no reader sees."""
_PIECE = 65_536
_QUESTION_WORDS = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get",
    "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our", "own", "should",
    "so", "that", "the", "their", "them", "then", "there", "these", "this", "to", "was", "we", "what", "when", "where",
    "which", "who", "why", "will", "with", "work", "you", "your",
})  # fmt: skip
"""Documents hardly use them, so that they would outweigh the words of the subject."""


def strip_invisible(text: str) -> str:
    """The text without invisible characters; joiners stay, which some scripts need.

    Piece by piece, so that a long text does not hold the interpreter.
    """
    return "".join(text[at : at + _PIECE].translate(_INVISIBLE) for at in range(0, len(text), _PIECE))


def one_line(text: str, length: int) -> str:
    """The text as one line of at most so many characters, cut between words."""
    line = " ".join(strip_invisible(text).split())
    if len(line) <= length:
        return line
    cut = line[: length - 1]
    return (cut[: cut.rfind(" ")] if cut.rfind(" ") > length // 2 else cut).rstrip() + "…"


def tidy(text: str) -> str:
    """Lines without trailing space, at most one empty line between two others."""
    lines = "\n".join(line.rstrip() for line in strip_invisible(text).splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")


def content_words(query: str) -> list[str]:
    """The words of a query that name its subject; all of them when there are no others."""
    words = re.findall(r"\w+", query.lower())
    return [word for word in words if word not in _QUESTION_WORDS] or words


# encodings

_SAMPLE = 50_000
_OTHER_SCRIPTS = re.compile(rb"[\x80-\xff]{3,}")
"""Letters of other scripts stand side by side, accented Latin ones between plain ones."""
_ENCODINGS = (
    "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1251", "koi8_r", "iso8859_5", "cp1253", "cp1255", "cp1256",
    "cp874",
)  # fmt: skip
_CENTRAL = re.compile(r"(?<=\w)[¹³¿£¼¾œŸ¶](?=\w)|(?<=\w)[¹³¿](?=\W)|(?<!\w)[³¿](?=[a-zà-ÿ])|[šžŠŽ]")
"""What Polish and Czech letters look like when they are taken for Western ones."""


def guess_encoding(data: bytes) -> str:
    """The likeliest encoding of a text that is not UTF-8 and names none; that of Western Europe if in doubt."""
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
    """The text, whose last character may be cut; None when it is in another encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return None
