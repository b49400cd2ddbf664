"""Changes a page's tree so that trafilatura keeps what it would lose: code, captions, columns, links.

Imports nothing of Brain.
"""

import re
import secrets
from itertools import accumulate, islice
from typing import Any

from specialists._markdown import HIDDEN, INLINE, linked
from specialists._tables import Reaching, span

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
_FIRST_ROW = re.compile(r"(?:(?<=\n\n)|\A)\| .*\n(?!\|-)")
_CELL_ENDS = re.compile(r"(?<!\\)\|")


def prepared(tree: Any, links_from: str | None) -> dict[str, str]:
    """Changes the tree, and gives what `with_code` needs.

    Args:
        links_from: the page's address when links are to be kept.
    """
    for caption in list(tree.iter("caption")):
        _before_its_table(caption)
    if links_from:
        _make_absolute(tree, links_from)
    codes = _set_code_aside(tree)
    _set_tables_right(tree)
    return codes


def _before_its_table(caption: Any) -> None:
    """Inside, it is taken for a row."""
    table = caption.getparent()
    if table is not None and table.tag == "table" and table.getparent() is not None:
        caption.tag = "p"
        table.addprevious(caption)


def _set_tables_right(tree: Any) -> None:
    """Makes blocks of tables that only put things in their places, and has the others' rows say all their columns."""
    placed = tree.xpath("//table//table | //td//h1 | //td//h2")
    layouts = {next(one.iterancestors("table"), None) for one in placed} - {None}
    for part in list(tree.iter("tbody", "thead", "tfoot", "tr", "td", "th")) if layouts else ():
        if next(part.iterancestors("table"), None) in layouts:
            part.tag = "div"
            _set_in_paragraphs(part)
    for table in list(tree.iter("table")):
        if table in layouts:
            table.tag = "div"
        elif table.xpath("boolean(.//*[@colspan or @rowspan])"):
            _spread(table)


def _set_in_paragraphs(box: Any) -> None:
    """Text that stands in a box beside paragraphs would be lost."""
    content, held = list(box), _paragraph(box, box.text)
    box.text = None
    box.append(held)
    for child in content:
        if child.tag in INLINE or child.tag == "br":
            held.append(child)
            continue
        held, child.tail = _paragraph(box, child.tail), None
        box.extend([child, held])


def _spread(table: Any) -> None:
    """Puts empty cells where one covers several columns, and the same text where it covers several rows."""
    reaching = Reaching()
    for row in table.iter("tr"):
        column = 0
        for cell in list(row.iterchildren("td", "th")):
            column = _carried(cell, column, reaching)
            columns, rows = span(cell.attrib.pop("colspan", "")), span(cell.attrib.pop("rowspan", ""))
            reaching.put(column, rows, " ".join(cell.text_content().split()))
            for covered in range(column + 1, column + columns):
                reaching.put(covered, rows, "")
                cell.addnext(cell.makeelement(cell.tag))
            column += columns
        if len(row):
            end = row.makeelement("td")
            row.append(end)
            _carried(end, column, reaching)
            row.remove(end)


def _carried(cell: Any, column: int, reaching: Reaching) -> int:
    """Puts what reaches down from above before a cell; the column in which that then stands."""
    while (text := reaching.take(column)) is not None:
        above = cell.makeelement(cell.tag)
        above.text = text
        cell.addprevious(above)
        column += 1
    return column


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


def _paragraph(near: Any, text: str | None) -> Any:
    made = near.makeelement("p")
    made.text = text
    return made


def with_rules(text: str) -> str:
    """The text with a rule below the first row of each table, also of those without a heading."""
    return _FIRST_ROW.sub(lambda row: f"{row[0]}|{'---|' * (len(_CELL_ENDS.findall(row[0])) - 1)}\n", text)


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
