"""Read the HTML of one wiki page in a child process, because some HTML takes too much time or memory.

`_kit.html` writes the text. This module has the rules for wikis and reads the infobox. Imports nothing from `brain`.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from specialists._kit.child import Report
from specialists._kit.html import Rules, convert, flatten
from specialists._kit.text import strip_invisible, tidy

MAX_HEADINGS = 5000
"""The caller reads the whole result in one step, which blocks other threads."""
MAX_CHOICES = 60
MAX_ROWS = 400
MAX_FACTS = 60
FACT_LENGTH = 300
SKIPPED_TAGS = frozenset(("figure", "form"))
SKIPPED_CLASSES = frozenset({
    "ambox", "catlinks", "gallery", "geo-multi-punct", "geo-nondefault", "metadata", "mw-cite-backlink",
    "mw-collapsible-toggle", "mw-editsection", "mw-empty-elt", "mw-indicators", "mw-jump-link", "mw-references-wrap",
    "navbar", "navbox", "navigation-box", "noexcerpt", "noprint", "nv-view", "pi-image", "portal-bar", "portalbox",
    "printfooter", "reference", "references", "reflist", "shortdescription", "sidebar", "sistersitebox", "thumb", "toc",
    "vertical-navbox", "wikia-gallery",
})  # fmt: skip
"""Classes of Wikipedia's templates, MediaWiki, Fandom and Kiwix."""
SKIPPED_IDS = frozenset({"coordinates", "toc", "mw-navigation", "footer", "siteSub", "contentSub"})
NOTE_CLASSES = frozenset({"hatnote", "dablink", "rellink", "homonymie", "bandeau-niveau-detail"})
"""Classes of notes about other pages, which are skipped before the first heading."""
_INFOBOXES = ("infobox", "sinottico", "taxobox")
"""Parts of the class or id of an infobox in several languages."""
_SPECIAL_PAGE = re.compile(
    r"(?:Special|Spezial|Spécial|Especial|Speciale|Speciaal|Служебная|Спеціальна|特別|特殊|특수|خاص):"
)
"""Pages that the wiki generates; they have no text."""
_CHOICE_BOXES = (
    "#disambigbox, #setindexbox, .dmbox, .disambig, .dmbox-disambig, #disambig, .is_disambiguation, .homonymie"
)

Attributes = Mapping[str, str | None]


def answer(_: Any, data: bytes, __: Report) -> tuple[dict[str, Any], bytes]:
    """Return the content of HTML in UTF-8, see `read`."""
    return read(data.decode("utf-8", "replace")), b""


def read(html: str) -> dict[str, Any]:
    """Return the content of a page, ready for JSON.

    Returns:
        `blocks`: headings (`level`, `text`, `anchor`) and texts (`level` 0); `facts`: lines of the infobox;
        `choices`: the first link of each list item, with its line; `disambiguation`.
    """
    from selectolax.lexbor import LexborHTMLParser

    boxes: list[Any] = []
    has_heading = False

    def is_skipped(node: Any, attributes: Attributes) -> bool:
        nonlocal has_heading
        has_heading = has_heading or node.tag in ("h1", "h2", "h3", "h4", "h5", "h6")
        if not attributes:
            return False
        if _is_infobox(node, attributes):
            boxes.append(node)
            return True
        return _is_no_text(node, attributes) or (not has_heading and bool(NOTE_CLASSES & _classes(attributes)))

    tree = LexborHTMLParser(html)
    found = convert(tree.body, Rules(SKIPPED_TAGS, is_skipped, has_emphasis=False)) if tree.body is not None else []
    blocks: list[dict[str, Any]] = []
    choices: list[tuple[str, str]] = []
    group = headings = 0
    for block in found:
        text = tidy(block.markdown[len(block.prefix) :] if block.level else block.markdown)
        headings += bool(block.level)
        if not text or headings > MAX_HEADINGS:
            continue
        if block.level or not blocks or blocks[-1]["level"]:
            blocks.append({"level": block.level, "text": [text], "anchor": block.anchor})
        else:
            blocks[-1]["text"] += ["\n" if group and block.group == group else "\n\n", text]
        group = block.group
        if block.kind == "item" and block.link is not None and len(choices) < MAX_CHOICES:
            attributes = block.link.attributes
            title = attributes.get("title") or " ".join(block.link.text().split())
            if "href" in attributes and not {"external", "extiw", "new"} & _classes(attributes):
                choices += [] if _SPECIAL_PAGE.match(title) else [(title, strip_invisible(block.text))]
    return {
        "blocks": [{**block, "text": "".join(block["text"])} for block in blocks],
        "facts": next(filter(None, map(_read_facts, boxes)), []),
        "choices": choices,
        "disambiguation": tree.css_first(_CHOICE_BOXES) is not None,
    }


def _classes(attributes: Attributes) -> frozenset[str]:
    return frozenset((attributes.get("class") or "").lower().split())


def _is_no_text(node: Any, attributes: Attributes) -> bool:
    """Whether an element is navigation, a picture or a reference."""
    return (attributes.get("id") or "") in SKIPPED_IDS or bool(SKIPPED_CLASSES & _classes(attributes))


def _is_infobox(node: Any, attributes: Attributes) -> bool:
    if "portable-infobox" in _classes(attributes):
        return True
    names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}".lower()
    return node.tag in ("table", "div") and any(box in names for box in _INFOBOXES)


def _read_facts(box: Any) -> list[str]:
    """Return the lines of an infobox, with the headings of its groups that are not empty."""
    lines = [*(_read_portable(box) if "portable-infobox" in _classes(box.attributes) else _read_rows(box)), ("", "")]
    return [
        f"- {label}: {value}" if value else f"{label}:"
        for (label, value), following in pairwise(line for line in lines if line[0] or line == lines[-1])
        if label and (value or following[1])
    ][:MAX_FACTS]


def _read_rows(table: Any) -> Iterator[tuple[str, str]]:
    """Yield label and value of each row of a table; a heading has no value."""
    rows = [
        row for part in table.iter() for row in (part.iter() if part.tag in ("tbody", "thead", "tfoot") else [part])
    ]
    for number, row in enumerate(rows[:MAX_ROWS]):
        if row.tag != "tr" or _is_no_text(row, row.attributes) or "none" in (row.attributes.get("style") or ""):
            continue
        cells = [cell for cell in row.iter() if cell.tag in ("td", "th")]
        texts = [_text_of(cell) for cell in cells]
        if len(texts) >= 2 and texts[1]:
            yield texts[0].removeprefix("•").strip().rstrip(":"), " | ".join(filter(None, texts[1:]))
        elif len(texts) == 1 and cells[0].tag == "th" and number:  # the first row is the page's title
            yield texts[0], ""


def _read_portable(box: Any) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line of a Fandom infobox."""
    for node in box.css(".pi-header, .pi-data")[:MAX_ROWS]:
        label, value = node.css_first(".pi-data-label"), node.css_first(".pi-data-value")
        if "pi-data" not in _classes(node.attributes):
            yield _text_of(node), ""
        elif value is not None:
            yield _text_of(label) if label is not None else "–", _text_of(value)


def _text_of(node: Any) -> str:
    rules = Rules(SKIPPED_TAGS, _is_no_text, has_emphasis=False)
    line = " ".join(strip_invisible(flatten(convert(node, rules))).split())
    return line if len(line) <= FACT_LENGTH else line[: FACT_LENGTH - 1] + "…"
