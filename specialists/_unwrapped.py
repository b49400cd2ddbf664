"""Built in: Markdown whose paragraphs are one line each, as a page that keeps its line breaks needs it."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt

_MARGIN = " \t>"
"""What may stand before a line of a paragraph that is in a list or a quotation."""


def unwrapped(text: str) -> str:
    """The same, with the lines of each paragraph joined but where it breaks them on purpose."""
    lines = text.split("\n")
    for first, behind in reversed([*_paragraphs(text)]):
        begin, *rest = lines[first:behind]
        lines[first:behind] = [" ".join([begin.rstrip(), *(line.strip(_MARGIN) for line in rest)])]
    return "\n".join(lines)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Where each of several lines begins and ends."""
    tokens = _parser().parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "paragraph_open" and opening.map is not None:
            first, behind = opening.map
            breaks = any(one.type == "hardbreak" for one in inline.children or ())
            if behind - first > 1 and not breaks:
                yield first, behind


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")
