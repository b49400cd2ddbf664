"""Built in: changes a page's tree so that trafilatura keeps what it would lose: code, captions, where links lead.

Imports nothing of Brain.
"""

import re
import secrets
from itertools import accumulate, islice
from typing import Any

from specialists._web.plain import HIDDEN, linked

NOISE = (
    "//body//*[@hidden]",
    "//template",
    *(f"//body//*[contains(translate(@style, ' ', ''), '{style}')]" for style in HIDDEN),
    "//a[normalize-space(.)='¶' or normalize-space(.)='§' or normalize-space(.)='#']",
    "//*[contains(@class, 'mw-editsection') or @id='toc']",
    "//sup[contains(@class, 'reference')]",
)
"""What a reader does not see, the signs beside headings, and what a wiki's page has besides its text."""
_WRAPPING_MOST = 100
"""Characters around code in a box of its own."""
_WRAPPINGS_MOST = 4


def prepared(tree: Any, links_from: str | None) -> dict[str, str]:
    """Changes the tree, and gives what `with_code` needs.

    Args:
        links_from: the page's address when links are to be kept.
    """
    for caption in list(tree.iter("caption")):
        _before_its_table(caption)
    if links_from:
        _make_absolute(tree, links_from)
    return _set_code_aside(tree)


def _before_its_table(caption: Any) -> None:
    """Inside, it is taken for a row."""
    table = caption.getparent()
    if table is not None and table.tag == "table" and table.getparent() is not None:
        caption.tag = "p"
        table.addprevious(caption)


def _set_code_aside(tree: Any) -> dict[str, str]:
    """The code of a page by the words that now stand for it: trafilatura loses some of it, and all its empty lines."""
    for figure in [one for one in tree.iter("figure") if one.find(".//pre") is not None]:
        for caption in figure.iter("figcaption"):
            caption.tag = "p"
        figure.drop_tag()
    mark, codes = f"code{secrets.token_hex(6)}x", dict[str, str]()
    for code in [one for one in tree.iter("pre") if one.getparent() is not None]:
        text = _text_of(code)
        place = _place_of(code, text)
        if place is None or place.getparent() is None:
            continue
        word = f"{mark}{len(codes)}."
        codes[word] = text
        place.addprevious(_paragraph(code, word))
        place.drop_tree()
    return codes


def _text_of(code: Any) -> str:
    """Its lines, without buttons; two variants of it that touch stand below each other."""
    for button in list(code.iter("button")):
        button.drop_tree()
    for line_break in code.iter("br"):
        line_break.tail = "\n" + (line_break.tail or "")
    for variant in code.iter("code"):
        following = variant.getnext()
        if following is not None and following.tag == "code" and not variant.tail:
            variant.tail = "\n"
    return str(code.text_content()).strip("\n")


def _place_of(code: Any, text: str) -> Any:
    """What is to be replaced by some code: itself with the boxes that hold little else, such as a button or a name.

    It may also be the table of one row in which the code stands beside its line numbers.
    """
    table = next(code.iterancestors("table"), None)
    if table is not None:
        columns = list(table.iter("pre"))
        return table if len(list(table.iter("tr"))) == 1 and columns[-1] is code else None
    place = code
    for around in islice(code.iterancestors(), _WRAPPINGS_MOST):
        if around.tag not in ("div", "span") or _longer(around, len(text) + _WRAPPING_MOST):
            break
        place = around
    return place


def _longer(element: Any, most: int) -> bool:
    """Whether its text has more characters, without reading all of a long one."""
    return any(size > most for size in accumulate(map(len, element.itertext())))


def _paragraph(near: Any, text: str) -> Any:
    made = near.makeelement("p")
    made.text = text
    return made


def with_code(text: str, codes: dict[str, str]) -> str:
    """The text with the code back in its places, in one pass."""
    if not codes:
        return text
    mark = re.escape(next(iter(codes))[:-2])
    return re.sub(rf"{mark}\d+\.", lambda found: _fenced(codes.get(found[0], "")), text)


def _fenced(code: str) -> str:
    fence = "```" if "```" not in code else "~~~~"
    return f"\n\n{fence}\n{code}\n{fence}\n\n"


def _make_absolute(tree: Any, url: str) -> None:
    for link in tree.iter("a"):
        target = linked(link.attrib.pop("href", ""), url)
        if target:
            link.set("href", target)
