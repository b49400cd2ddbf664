"""Makes foreign text fit to be read: no invisible characters, no endless lines of nothing."""

import re

_INVISIBLE = {
    code: None
    for first, last in (
        (0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x200B, 0x200B), (0x200E, 0x200F), (0x202A, 0x202E),
        (0x2060, 0x2064), (0x2066, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F),
    )
    for code in range(first, last + 1)
}  # fmt: skip
"""Controls, soft hyphens, marks of direction, and tags: what a reader does not see, a model should not either."""
_PIECE = 65536


def visible(text: str) -> str:
    """The text without invisible characters; joiners stay, which some scripts need.

    Piece by piece, so that a long text does not hold the interpreter.
    """
    return "".join(text[at : at + _PIECE].translate(_INVISIBLE) for at in range(0, len(text), _PIECE))


def one_line(text: str, most: int) -> str:
    """The text as one line of at most so many characters, cut between words."""
    line = " ".join(visible(text).split())
    if len(line) <= most:
        return line
    cut = line[: most - 1]
    return (cut[: cut.rfind(" ")] if cut.rfind(" ") > most // 2 else cut).rstrip() + "…"


def tidy(text: str) -> str:
    """Lines without trailing space, at most one empty line between two others."""
    lines = "\n".join(line.rstrip() for line in visible(text).splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")
