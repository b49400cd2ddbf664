"""Read Word, Excel and PowerPoint files (ECMA-376). Excel needs the extra `office`.

Names are compared without their namespaces, since strict and transitional files differ only in these. A part of a
package names other parts by its relationships.
"""

import importlib.util
import io
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from specialists._kit.passages import Headings
from specialists._knowledge.parts import Part, Problem, Unreadable, make_table

MAX_ROWS = 20_000
MAX_COLUMNS = 60
MAX_UNPACKED = 200_000_000
MAX_TREE = 20_000_000
"""Maximum bytes of a member that is parsed to a tree, which takes about twenty times its size in memory."""
MAX_RATIO = 100
"""Maximum ratio of unpacked to packed size for members over `RATIO_FROM`; text has about 10, number sheets 30."""
RATIO_FROM = 1_000_000
MAX_MEMBERS = 20_000
MAX_EMPTY_ROWS = 5_000
MAX_REPEATED = 10_000_000
"""Maximum number of characters per file that merged cells repeat."""
MAX_LABEL = 255
MAX_EXTRAS = 10_000
"""Maximum number of merged ranges, comments and formulas without a value that are read per sheet."""
NO_EXCEL = "Excel files cannot be read on this server"
_STREAMED = ("xl/worksheets/", "xl/sharedStrings.xml")


def has_excel() -> bool:
    """Whether the extra `office` is installed."""
    return importlib.util.find_spec("openpyxl") is not None


def read_office(data: bytes, ending: str) -> Iterator[Part | Problem]:
    """Yield the parts of an Office file.

    Raises:
        Unreadable: if the file cannot be read. Damaged and hostile files raise other exceptions.
    """
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise Unreadable("is encrypted or in an old Office format: save it as docx, xlsx or pptx without a password")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_archive(archive, len(data))
        package = _Package(data, archive)
        yield from {".docx": _read_document, ".pptx": _read_presentation}.get(ending, _read_workbook)(package)
        if unread := package.describe_unread():
            yield Problem(unread)


def _check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Reject archives that unpack to too much data. The declared sizes of members are not trusted."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise Unreadable(f"has more than {MAX_MEMBERS:,} parts")
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("is damaged: its parts overlap")
    if sum(member.file_size for member in members) > MAX_UNPACKED:
        raise Unreadable(f"unpacks to more than {MAX_UNPACKED // 1_000_000} MB")
    for member in members:
        is_tree = member.filename.endswith((".xml", ".rels")) and not member.filename.startswith(_STREAMED)
        if is_tree and member.file_size > MAX_TREE:
            raise Unreadable(f"has a part that unpacks to more than {MAX_TREE // 1_000_000} MB")
        if member.file_size > max(RATIO_FROM, MAX_RATIO * member.compress_size):
            raise Unreadable(f"has a part that unpacks to more than {MAX_RATIO} times its size")
    if archive.testzip() is not None:  # reads in small pieces, because a member may unpack to more than it declares
        raise Unreadable("is damaged: the size or checksum of a part is wrong")


# Packages

_PICTURE_WORDS = {"image": "picture", "oleObject": "embedded file", "package": "embedded file", "aFChunk": "insert"}


@dataclass(slots=True)
class _Package:
    """The parts of a file, and what of them cannot be read."""

    data: bytes
    archive: zipfile.ZipFile
    unread: set[tuple[str, str]] = field(default_factory=set)
    _repeated: int = 0

    def parse(self, path: str) -> Element:
        return ElementTree.fromstring(self.archive.read(path))

    def related(self, path: str, *kinds: str) -> list[tuple[str, str, str]]:
        """Return ID, kind and path of the parts that a part refers to, all or those of some kinds."""
        folder, name = posixpath.split(path)
        try:
            relations = self.parse(posixpath.join(folder, "_rels", f"{name}.rels"))
        except KeyError:
            return []
        found = []
        for relation in relations:
            kind = relation.get("Type", "").rpartition("/")[2]
            if relation.get("TargetMode") != "External" and (not kinds or kind in kinds):
                target = posixpath.normpath(posixpath.join("/", folder, relation.get("Target", "")))[1:]
                found.append((relation.get("Id", ""), kind, target))
        return found

    def main_part(self) -> str:
        """Return the path of the document, workbook or presentation."""
        ((_, _, path), *_) = self.related("", "officeDocument")
        return path

    def parse_related(self, path: str, *kinds: str) -> Iterator[Element]:
        """Parse the parts that a part refers to, each once, in the order of their paths."""
        for target in sorted({target for _, _, target in self.related(path, *kinds)}):
            if target in self.archive.NameToInfo:
                yield self.parse(target)
            else:
                self.unread.add(("missing part", target))

    def repeat(self, text: str, times: int = 1) -> list[str]:
        """Return the text of a merged cell for further cells; empty ones after `MAX_REPEATED` characters."""
        times = max(times, 0)  # a file may give any number
        self._repeated += len(text) * times
        return [text if self._repeated <= MAX_REPEATED else ""] * times

    def read_drawings(self, path: str) -> Iterator[str]:
        """Yield the texts of charts and diagrams of a part; count what cannot be read."""
        for _, kind, target in self.related(path):
            if kind in ("chart", "chartEx", "diagramData"):
                if target not in self.archive.NameToInfo:
                    self.unread.add(("missing part", target))
                elif kind == "chart":
                    yield f"Chart: {_read_chart(self.parse(target))}"
                else:
                    words = [one.text for one in self.parse(target).iter() if _name(one) in ("t", "v") and one.text]
                    yield f"{'Diagram' if kind == 'diagramData' else 'Chart'}: {', '.join(dict.fromkeys(words))}"
            elif kind in _PICTURE_WORDS:
                self.unread.add((_PICTURE_WORDS[kind], target))

    def describe_unread(self) -> str:
        """Return what was not read and how much of it; empty if nothing."""
        counts = Counter(kind for kind, _ in self.unread)
        parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items())]
        return f"not read: {', '.join(parts)}" if parts else ""


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _get(element: Element | None, name: str) -> str | None:
    """Return an attribute, in whatever namespace."""
    if element is None:
        return None
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), None)


def _child(element: Element | None, *names: str) -> Element | None:
    """Return the descendant at this path of names."""
    for name in names:
        element = next((one for one in element if _name(one) == name), None) if element is not None else None
    return element


def _value(element: Element | None, *names: str) -> str | None:
    return _get(_child(element, *names), "val")


def _read_chart(chart: Element) -> str:
    """Return the titles of a chart, and each series as its name, categories and values in order."""
    series = [one for one in chart.iter() if _name(one) == "ser"]
    points = {point for one in series for point in one.iter() if _name(point) == "v"}
    parts = [one.text for one in chart.iter() if _name(one) in ("t", "v") and one not in points]
    for one in series:
        rows = [[point.text or "" for point in child.iter() if point in points] for child in one]
        parts.append(": ".join(", ".join(row) for row in rows if row))
    return "; ".join(filter(None, parts))


def _is_on(element: Element | None) -> bool:
    return element is not None and _get(element, "val") not in ("0", "false", "off")


def _chosen(element: Element) -> Iterable[Element]:
    """Return the children that are shown: of alternatives, only the first."""
    return [*element][:1] if _name(element) == "AlternateContent" else element


# Text of paragraphs, in Word and in drawings

_HIDDEN = frozenset({"del", "moveFrom", "delText", "delInstrText", "instrText", "rPr", "pPr", "sectPr", "rt"})
"""Elements without text that is shown: what was deleted, codes of fields, properties, and guides to pronunciation."""
_CHARACTERS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_WINGDINGS = {0xFE: "☒", 0xFD: "☒", 0xA8: "☐", 0x6F: "☐", 0xFC: "✓", 0xB7: "•", 0xE0: "→", 0x6C: "●", 0xA7: "▪"}
_SYMBOL = {
    **dict(enumerate("ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", 0x41)),
    **dict(enumerate("αβχδεφγηιϕκλμνοπθρστυϖωξψζ", 0x61)),
    **dict(zip(b"\xa3\xa5\xac\xae\xb0\xb1\xb3\xb4\xb7\xb8", "≤∞←→°±≥×•÷", strict=True)),
    **dict(zip(b"\xb9\xba\xbb\xc7\xc8\xce\xd1\xd6\xe5\xf2", "≠≡≈∩∪∈∇√∑∫", strict=True)),
}
"""What a font shows for a code, of those that texts use."""
_SIGNS = {"nary": ("chr", "∫", ""), "rad": ("", "√(", ")"), "d": ("begChr", "(", ")")}
"""Of a formula: the name of a sign that may differ, what stands before it, and what after."""
_SCRIPTS = {"num": "", "den": "/", "sup": "^", "sub": "_"}
_NOTE_MARKS = {"footnoteReference": "", "endnoteReference": "e", "commentReference": "c"}


def _show_symbol(symbol: Element) -> str:
    """Return a character of a symbol font; U+FFFD if it is not known."""
    code = int(_get(symbol, "char") or "20", 16)
    if 0xF000 <= code < 0xF100:  # the place of fonts without Unicode
        font = _SYMBOL if _get(symbol, "font") == "Symbol" else _WINGDINGS
        return font.get(code - 0xF000, "\ufffd")
    return "\ufffd" if 0xD800 <= code < 0xF900 else chr(code)


@dataclass(slots=True)
class _TextReader:
    """Collects the text of paragraphs. Fields may span several: their result is text, their code is not.

    Attributes:
        hidden: IDs of styles whose text is not shown.
        boxes: text boxes, which have paragraphs of their own.
    """

    hidden: frozenset[str] = frozenset()
    boxes: list[Element] = field(default_factory=list)
    _codes: list[bool] = field(default_factory=list)

    def read(self, element: Element) -> str:
        """Return the text of an element, without that of text boxes in it."""
        return "".join(self._walk(element)).strip()

    def start(self) -> None:
        """Forget fields that were not closed, or they would hide another part."""
        self._codes.clear()

    def _walk(self, element: Element) -> Iterator[str]:
        for one in _chosen(element):
            name = _name(one)
            if name == "fldChar":
                yield self._enter_field(one)
            elif name in _HIDDEN:
                continue
            elif name == "txbxContent":
                self.boxes.append(one)
            elif name == "r":
                yield self._read_run(one)
            elif any(self._codes[:-1]):  # a field in the code of another one; text in a code itself is a damaged field
                yield from () if name == "t" else self._walk(one)
            elif name == "t":
                yield one.text or ""
            elif name in _CHARACTERS:
                yield _CHARACTERS[name]
            elif name == "sym":
                yield _show_symbol(one)
            elif name in _NOTE_MARKS:
                yield f"[^{_NOTE_MARKS[name]}{_get(one, 'id')}]"
            elif name in _SIGNS:
                sign, before, after = _SIGNS[name]
                properties = _child(one, f"{name}Pr")
                before = _value(properties, sign) or before
                yield f"{before}{''.join(self._walk(one))}{_value(properties, 'endChr') or after}"
            elif name in _SCRIPTS:
                inner = "".join(self._walk(one))
                inner = inner if inner.isalnum() or not inner else f"({inner})"
                yield _SCRIPTS[name] + inner if inner else ""
            elif name in ("docPr", "cNvPr"):
                yield f"[{described}]" if (described := " ".join((_get(one, "descr") or "").split())) else ""
            else:
                yield from self._walk(one)

    def _read_run(self, run: Element) -> str:
        """Return the text of a run; of a hidden one only fields are followed. Numbers in superscript get a `^`."""
        text, properties = "".join(self._walk(run)), _child(run, "rPr")
        hidden = _child(properties, "vanish")
        if _is_on(hidden) or (hidden is None and _value(properties, "rStyle") in self.hidden):
            return ""
        raises = (_value(properties, "position"), _get(properties, "baseline"))
        is_raised = _value(properties, "vertAlign") == "superscript" or any(
            (one or "0")[0] in "123456789" for one in raises
        )
        return f"^{text}" if is_raised and text.strip("+-−").isdigit() else text

    def _enter_field(self, mark: Element) -> str:
        """Follow begin, separator and end of a field; return the state of a check box or list."""
        kind = _get(mark, "fldCharType")
        if kind == "begin":
            self._codes.append(True)
            data = _child(mark, "ffData")
            if (box := _child(data, "checkBox")) is not None:
                checked = _child(box, "checked")
                return "☒" if _is_on(checked if checked is not None else _child(box, "default")) else "☐"
            if (choices := _child(data, "ddList")) is not None:
                entries = [_get(one, "val") or "" for one in choices if _name(one) == "listEntry"]
                chosen = int(_value(choices, "result") or _value(choices, "default") or 0)
                return entries[chosen] if 0 <= chosen < len(entries) else ""
        elif self._codes and kind == "separate":
            self._codes[-1] = False
        elif self._codes and kind == "end":
            self._codes.pop()
        return ""


# Word

_LEVELS = {"title": 0, **{f"heading {level}": level for level in range(1, 10)}}
_CONTAINERS = frozenset(
    {"sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo", "AlternateContent", "Choice", "Fallback"}
)
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip


def _read_document(package: _Package) -> Iterator[Part]:
    path = package.main_part()
    document = _Document(package, path)
    body = _child(package.parse(path), "body")
    if body is None:
        raise ValueError("no body")
    headings, lines = Headings(), document.read_others("header", "Header")
    for level, text in document.read_blocks(body):
        if level is None:
            lines.append(text)
        else:
            yield Part("\n\n".join(lines), headings.path)
            headings.enter(level, text)
            lines = []
    lines += package.read_drawings(path)
    lines += document.read_notes()
    lines += document.read_others("footer", "Footer")
    yield Part("\n\n".join(lines), headings.path)


@dataclass(slots=True)
class _Style:
    level: int | None
    numbering: tuple[str | None, str | None]
    base: str | None
    is_hidden: bool


class _Document:
    """The styles, lists and texts of a Word file."""

    def __init__(self, package: _Package, path: str) -> None:
        self._package = package
        self._path = path
        self._styles = dict(self._read_styles())
        self._lists = _Lists(package.parse_related(path, "numbering"), self._styles)
        self._text = _TextReader(frozenset(key for key, style in self._styles.items() if style.is_hidden))

    def _read_styles(self) -> Iterator[tuple[str, _Style]]:
        for styles in self._package.parse_related(self._path, "styles"):
            for style in styles:
                if _name(style) == "style":
                    name = (_value(style, "name") or "").lower()
                    level = _LEVELS.get(name, _outline_level(_child(style, "pPr")))
                    numbering = _numbering_of(_child(style, "pPr"))
                    is_hidden = _is_on(_child(style, "rPr", "vanish"))
                    yield _get(style, "styleId") or "", _Style(level, numbering, _value(style, "basedOn"), is_hidden)

    def read_blocks(self, parent: Element) -> Iterator[tuple[int | None, str]]:
        """Yield the paragraphs and tables of an element in order, with the level of headings."""
        for block in _chosen(parent):
            name = _name(block)
            if name == "p":
                yield from self._read_paragraph(block)
            elif name == "tbl":
                if table := make_table([*self._read_rows(block)]):
                    yield None, table
            elif name == "altChunk":
                self._package.unread.add(("insert", _get(block, "id") or ""))
            elif name in _CONTAINERS:
                yield from self.read_blocks(block)

    def _read_paragraph(self, paragraph: Element) -> Iterator[tuple[int | None, str]]:
        style, properties = None, _child(paragraph, "pPr")
        text = self._text.read(paragraph)
        boxes, self._text.boxes = self._text.boxes, []
        level, numbering = _outline_level(properties), _numbering_of(properties)
        seen: set[str] = set()
        name = _value(properties, "pStyle") or ""
        while name not in seen and (style := self._styles.get(name)):
            seen.add(name)
            level = style.level if level is None else level
            numbering = (numbering[0] or style.numbering[0], numbering[1] or style.numbering[1])
            name = style.base or ""
        own = _value(properties, "pStyle")
        if own in self._text.hidden:
            text = ""
        if text or not any(_child(properties, "rPr", name) is not None for name in ("del", "moveFrom", "vanish")):
            label = self._lists.next_label(*numbering, own)  # an empty paragraph of a list counts, too
            text = f"{label} {text}" if label and text else text
        if text:
            yield level, " ".join(text.split()) if level is not None else text
        for box in boxes:
            yield from ((None, inner) for _, inner in self.read_blocks(box))

    def _read_rows(self, table: Element) -> Iterator[list[str]]:
        """Yield the rows of a table; a merged cell repeats its text."""
        above: list[str] = []
        for row in _find(table, "tr", within=_CONTAINERS):
            if _child(row, "trPr", "del") is not None:
                continue
            cells: list[str] = []
            for cell in _find(row, "tc", within=_CONTAINERS):
                properties = _child(cell, "tcPr")
                merge = _child(properties, "vMerge")
                if merge is not None and _get(merge, "val") != "restart" and len(cells) < len(above):
                    (text,) = self._package.repeat(above[len(cells)])
                else:
                    text = "\n".join(inner for _, inner in self.read_blocks(cell))
                span = min(int(_value(properties, "gridSpan") or 1), MAX_COLUMNS)
                cells += [text, *self._package.repeat(text, span - 1)]
            yield cells
            above = cells

    def read_others(self, kind: str, label: str) -> list[str]:
        """Return the texts of headers or footers, each once."""
        texts = []
        for part in self._package.parse_related(self._path, kind):
            self._text.start()
            texts.append(" ".join(text for _, text in self.read_blocks(part)))
        self._text.start()
        return [f"{label}: {text}" for text in dict.fromkeys(texts) if text]

    def read_notes(self) -> Iterator[str]:
        """Yield footnotes, endnotes and comments by their marks in the text."""
        for kind, mark in (("footnotes", ""), ("endnotes", "e"), ("comments", "c")):
            for notes in self._package.parse_related(self._path, kind):
                for note in notes:
                    self._text.start()
                    text = " ".join(inner for _, inner in self.read_blocks(note))
                    author = f"{_get(note, 'author')}: " if mark == "c" else ""
                    if text:  # lines between text and notes have none
                        yield f"[^{mark}{_get(note, 'id')}]: {author}{text}"


def _find(parent: Element, name: str, within: frozenset[str]) -> Iterator[Element]:
    """Yield the children with this name, and those in containers."""
    for one in _chosen(parent):
        if _name(one) == name:
            yield one
        elif _name(one) in within:
            yield from _find(one, name, within)


def _outline_level(properties: Element | None) -> int | None:
    level = _value(properties, "outlineLvl")
    return int(level) + 1 if level in set("012345678") else None


def _numbering_of(properties: Element | None) -> tuple[str | None, str | None]:
    """Return the list of a paragraph or style, and the level in it."""
    return _value(properties, "numPr", "numId"), _value(properties, "numPr", "ilvl")


@dataclass(slots=True)
class _Level:
    """How a level of a list is numbered.

    Attributes:
        template: such as `%1.%2)`.
        is_legal: whether numbers of other levels are shown as decimals.
        restarts: whether it starts again after a paragraph of a level above.
    """

    start: int
    kind: str
    template: str
    is_legal: bool
    restarts: bool


def _read_level(element: Element) -> _Level:
    return _Level(
        int(_value(element, "start") or 0),
        _value(element, "numFmt") or "decimal",
        (_value(element, "lvlText") or "")[:MAX_LABEL],
        _is_on(_child(element, "isLgl")),
        _value(element, "lvlRestart") != "0",
    )


class _Lists:
    """Numbers the paragraphs of lists, as Word does when it shows them."""

    def __init__(self, parts: Iterable[Element], styles: dict[str, _Style]) -> None:
        self._levels: dict[str, dict[int, _Level]] = {}
        self._styles: dict[tuple[str, str], int] = {}
        self._abstract: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._overrides: dict[tuple[str, int], _Level] = {}
        self._starts: dict[tuple[str, int], int] = {}
        self._counts: dict[str, dict[int, int]] = {}
        for part in parts:
            for one in part:
                if _name(one) == "abstractNum":
                    self._add_levels(_get(one, "abstractNumId") or "", one)
                elif _name(one) == "num":
                    self._add_list(_get(one, "numId") or "", one)
        for number, key in self._abstract.items():
            if (linked := styles.get(self._links.get(key, ""))) and linked.numbering[0]:
                self._abstract[number] = self._abstract.get(linked.numbering[0], key)

    def _add_levels(self, key: str, definition: Element) -> None:
        levels = self._levels.setdefault(key, {})
        if link := _value(definition, "numStyleLink"):
            self._links[key] = link
        for one in definition:
            if _name(one) == "lvl":
                at = int(_get(one, "ilvl") or 0)
                levels[at] = _read_level(one)
                if style := _value(one, "pStyle"):
                    self._styles[key, style] = at

    def _add_list(self, number: str, definition: Element) -> None:
        self._abstract[number] = _value(definition, "abstractNumId") or ""
        for one in definition:
            if _name(one) == "lvlOverride":
                at = int(_get(one, "ilvl") or 0)
                if (start := _value(one, "startOverride")) is not None:
                    self._starts[number, at] = int(start)
                if (level := _child(one, "lvl")) is not None:
                    self._overrides[number, at] = _read_level(level)

    def next_label(self, number: str | None, level: str | None, style: str | None) -> str:
        """Return the label of the next paragraph of a list, such as `3.1` or `-`; empty for others."""
        if number is None or number == "0" or (key := self._abstract.get(number)) not in self._levels:
            return ""
        levels = self._levels[key] | {at: level for (one, at), level in self._overrides.items() if one == number}
        at = int(level) if level is not None else self._styles.get((key, style or ""), 0)
        if at not in levels or levels[at].kind == "none":
            return ""
        counts = self._counts.setdefault(key, {})
        restart = self._starts.pop((number, at), None)
        counts[at] = restart if restart is not None else counts.get(at, levels[at].start - 1) + 1
        for deeper in [one for one in counts if one > at and (one not in levels or levels[one].restarts)]:
            del counts[deeper]
        if levels[at].kind == "bullet":
            return "-"

        def show(found: re.Match[str]) -> str:
            one = int(found[1]) - 1
            other = levels.get(one, levels[at])
            kind = "decimal" if levels[at].is_legal and one != at else other.kind
            return _format_count(counts.get(one, other.start), kind)

        return re.sub(r"%([1-9])", show, levels[at].template)


def _format_count(count: int, kind: str) -> str:
    if kind in ("lowerLetter", "upperLetter") and 0 < count <= 780:
        letters = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letters if kind == "lowerLetter" else letters.upper()
    if kind in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        found = ""
        for value, letters in _ROMAN:
            found += letters * (count // value)
            count %= value
        return found if kind == "lowerRoman" else found.upper()
    return f"{count:02}" if kind == "decimalZero" else str(count)


# PowerPoint


def _read_presentation(package: _Package) -> Iterator[Part]:
    path = package.main_part()
    slides = {key: target for key, _, target in package.related(path, "slide")}
    order = _child(package.parse(path), "sldIdLst")
    for number, one in enumerate(order if order is not None else (), 1):
        slide = slides[next(value for key, value in one.items() if key.startswith("{") and key.endswith("}id"))]
        yield _read_slide(package, slide, number)


def _read_slide(package: _Package, path: str, number: int) -> Part:
    slide = package.parse(path)
    heading, texts = "", []
    for is_title, text in _read_shapes(package, slide):
        if is_title and not heading:
            heading = " ".join(text.split())
        elif text:
            texts.append(text)
    texts += package.read_drawings(path)
    for kind, label in (("notesSlide", "Notes"), ("comments", "Comment")):
        for part in package.parse_related(path, kind):
            notes = [text for _, text in _read_shapes(package, part, skips=("sldNum", "dt", "hdr", "ftr"))]
            notes += [one.text for one in part.iter() if _name(one) == "text" and one.text]  # of older comments
            texts += [f"{label}: {note}" for note in notes if note]
    shown = f"{heading} (hidden slide)".strip() if slide.get("show") in ("0", "false") else heading
    return Part("\n\n".join(filter(None, [shown, *texts])), (heading,) if heading else (), f"slide={number}")


def _read_shapes(package: _Package, element: Element, skips: Sequence[str] = ()) -> Iterator[tuple[bool, str]]:
    """Yield whether it is the title, and the text, of each shape and table."""
    for one in _chosen(element):
        name = _name(one)
        if name == "tbl":
            yield False, make_table([*_read_grid(package, one)])
        elif name in ("sp", "cxnSp", "pic", "cm"):
            kind = _get(_child(one, f"nv{name[0].upper()}{name[1:]}Pr", "nvPr", "ph"), "type")
            if kind not in skips or kind is None:
                yield kind in ("title", "ctrTitle"), _read_frame(one)
        else:
            yield from _read_shapes(package, one, skips)


def _read_frame(shape: Element) -> str:
    """Return the paragraphs of a shape; for a picture, what describes it."""
    text = _TextReader()
    paragraphs = [text.read(one) for one in shape.iter() if _name(one) == "p"]
    if _name(shape) == "pic":
        paragraphs.append(text.read(shape))
    return "\n".join(filter(None, paragraphs))


def _read_grid(package: _Package, table: Element) -> Iterator[list[str]]:
    """Yield the rows of a table; a merged cell repeats its text."""
    above: list[str] = []
    for row in _find(table, "tr", frozenset()):
        cells: list[str] = []
        for cell in _find(row, "tc", frozenset()):
            if cell.get("hMerge") in ("1", "true") and cells:
                cells += package.repeat(cells[-1])
            elif cell.get("vMerge") in ("1", "true") and len(cells) < len(above):
                cells += package.repeat(above[len(cells)])
            else:
                cells.append(_read_frame(cell))
        yield cells
        above = cells


# Excel

_RANGE = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})(?::\$?([A-Z]{1,3})\$?(\d{1,7}))?")
_MARGINS = {f"{which}{what}": what for which in ("odd", "even", "first") for what in ("Header", "Footer")}
_MARGIN_CODE = re.compile(r'&(?:"[^"]*"|K[0-9A-Fa-f]{6}|\d{1,3}|.)')
_FORMAT = re.compile(r'"([^"]*)"|\[\$([^\]-]*)[^\]]*\]|\\(.)|([€$£¥% ])|(General|[0#?][0#?.,/]*)|\[[^\]]*\]|[_*]?.')
"""A piece of a number format: texts, a currency, an escaped character, a sign, digits, and what shows nothing."""


@dataclass(slots=True)
class _Extras:
    """What openpyxl does not read while it streams.

    Attributes:
        formulas: those without a value.
        margins: headers and footers of printed pages.
        last: number of the last row with content.
    """

    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    formulas: dict[tuple[int, int], str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    margins: list[str] = field(default_factory=list)
    last: int = 0


def _read_workbook(package: _Package) -> Iterator[Part | Problem]:
    if not has_excel():
        raise Unreadable(NO_EXCEL)
    import openpyxl

    main = package.main_part()
    paths = {key: target for key, _, target in package.related(main)}
    sheets = _child(package.parse(main), "sheets")
    ids = {one.get("name"): paths.get(_get(one, "id") or "", "") for one in (sheets if sheets is not None else ())}
    book = openpyxl.load_workbook(io.BytesIO(package.data), read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets:
        path = ids.get(sheet.title, "")
        extras = _read_extras(package, path)
        sheet.reset_dimensions()  # a file may declare wrong ones
        rows, columns, last = _read_cells(package, sheet.iter_rows(max_col=MAX_COLUMNS + 1), extras)
        if len(rows) > MAX_ROWS:
            yield Problem(f"only the first {MAX_ROWS:,} rows of the sheet {sheet.title} were read")
        elif last < extras.last:
            yield Problem(f"after {MAX_EMPTY_ROWS:,} empty rows the sheet {sheet.title} was not read")
        if columns > MAX_COLUMNS:
            yield Problem(f"only the first {MAX_COLUMNS} columns of the sheet {sheet.title} were read")
        name = sheet.title if sheet.sheet_state == "visible" else f"{sheet.title} (hidden sheet)"
        texts = [make_table(rows[:MAX_ROWS]), *extras.margins, *extras.comments, *_read_sheet_drawings(package, path)]
        yield Part("\n\n".join(filter(None, texts)), (name,), f"sheet={name}")
    for sheet in book.chartsheets:
        texts = [*_read_sheet_drawings(package, ids.get(sheet.title, ""))]
        yield Part("\n\n".join(texts), (sheet.title,), f"sheet={sheet.title}")


def _read_sheet_drawings(package: _Package, path: str) -> Iterator[str]:
    """Yield the texts of shapes, charts and diagrams of a sheet."""
    yield from package.read_drawings(path)
    for _, _, drawing in package.related(path, "drawing"):
        yield from (text for _, text in _read_shapes(package, package.parse(drawing)) if text)
        yield from package.read_drawings(drawing)


def _read_extras(package: _Package, path: str) -> _Extras:
    found = _Extras()
    if path:
        with package.archive.open(path) as stream:
            for _, one in ElementTree.iterparse(stream):
                name = _name(one)
                if name == "c":
                    formula, value = _child(one, "f"), _child(one, "v")
                    if (
                        formula is not None
                        and one.get("r")
                        and (value is None or not value.text)
                        and len(found.formulas) < MAX_EXTRAS
                    ):
                        row, column, _, _ = _parse_range(one.get("r") or "")
                        found.formulas[row, column] = f"={formula.text or ''} (not calculated)"
                elif name == "row" and any(len(cell) for cell in one):
                    number = one.get("r") or ""
                    found.last = int(number) if number.isdecimal() else found.last + 1
                elif name in _MARGINS and one.text:
                    text = " ".join(_MARGIN_CODE.sub(lambda code: "&" if code[0] == "&&" else " ", one.text).split())
                    found.margins += [f"{_MARGINS[name]}: {text}"] if text else []
                elif name == "mergeCell" and len(found.merged) < MAX_EXTRAS:
                    found.merged.append(_parse_range(one.get("ref") or ""))
                if name in ("row", "mergeCell", "dataValidation", "conditionalFormatting"):
                    one.clear()
    for part in package.parse_related(path, "comments"):
        for comment in part.iter():
            if _name(comment) == "comment" and len(found.comments) < MAX_EXTRAS:
                text = " ".join(_TextReader().read(comment).split())
                found.comments.append(f"Comment on {comment.get('ref')}: {text}")
    return found


def _parse_range(text: str) -> tuple[int, int, int, int]:
    """Return first row, first column, last row and last column, from 1."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    first, top, last, bottom = match[1], match[2], match[3] or match[1], match[4] or match[2]

    def column(letters: str) -> int:
        number = 0
        for letter in letters:
            number = number * 26 + ord(letter) - ord("A") + 1
        return number

    return int(top), column(first), int(bottom), column(last)


def _read_cells(package: _Package, rows: Iterable[Iterable[Any]], extras: _Extras) -> tuple[list[list[str]], int, int]:
    """Return up to `MAX_ROWS` + 1 rows that are not empty, the number of columns, and that of the last row.

    It stops after `MAX_EMPTY_ROWS` empty ones in a row.
    """
    starts = sorted(extras.merged)
    open_ranges: list[tuple[int, int, int, int, str]] = []
    found: list[list[str]] = []
    empty = columns = number = 0
    for number, row in enumerate(rows, 1):
        cells = [extras.formulas.get((number, at)) or _show_cell(cell) for at, cell in enumerate(row, 1)]
        open_ranges = [one for one in open_ranges if one[0] >= number]
        while starts and starts[0][0] <= number:
            top, left, bottom, right = starts.pop(0)
            right = min(right, MAX_COLUMNS)
            if top == number and left <= min(len(cells), right) and cells[left - 1] and len(open_ranges) < MAX_COLUMNS:
                open_ranges.append((bottom, top, left, right, cells[left - 1]))
        for _, top, left, right, text in open_ranges:
            cells += [""] * (right - len(cells))
            first = [text] if number == top else package.repeat(text)
            cells[left - 1 : right] = [*first, *package.repeat(text, right - left)]
        while cells and not cells[-1]:
            cells.pop()
        columns = max(columns, len(cells))
        if cells:
            found.append(cells[:MAX_COLUMNS])
        empty = 0 if cells else empty + 1
        if empty > MAX_EMPTY_ROWS or len(found) > MAX_ROWS:
            break
    return found, columns, number


def _show_cell(cell: Any) -> str:
    """Return a value with all its digits, and the texts of its format: `7.5%`, `1200 €`, `3 kg`."""
    value = cell.value
    if isinstance(value, datetime):
        return value.isoformat(" ", "minutes") if value.time().isoformat() != "00:00:00" else value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    pieces = [*_FORMAT.finditer((cell.number_format or "").partition(";")[0])]
    groups = [at for at, piece in enumerate(pieces) if piece[5]]
    if len(groups) != 1:  # such as of fractions and telephone numbers
        return _show_number(value)
    (digits,) = groups
    factor = 100 if any(piece[4] == "%" for piece in pieces) else 1
    shape = pieces[digits][5]
    thousands = len(shape) - len(shape.rstrip(","))  # each comma after the digits divides by 1,000
    number = _show_number(value * factor / 1000**thousands if thousands else value * factor)
    number = number.zfill(len(shape)) if set(shape) == {"0"} else number
    texts = ["".join(filter(None, piece.groups()[:4])) for piece in pieces]
    return "".join([*texts[:digits], number, *texts[digits + 1 :]]).strip()


def _show_number(value: float) -> str:
    """Return a number with up to 15 digits, as Excel has them, and without an exponent."""
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    exponent = text.partition("e")[2]
    return format(Decimal(text), "f") if exponent and abs(int(exponent)) < 20 else text
