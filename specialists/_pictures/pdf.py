"""Read one PDF in a child process that can be killed; PDFium cannot be interrupted."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specialists._kit.child import Payload, Report
from specialists._pictures.layout import is_rtl

MAX_SIDE = 4000
MAX_PIXELS = 12_000_000
MAX_TEXT = 50_000
"""Characters per page."""
MAX_PICTURES = 2000
MAX_ANNOTATIONS = 2000
MAX_NOTE = 20_000
"""Maximum length of a note or of the value of a form field, in characters."""
MAX_WORDS = 10_000
MAX_STAMP = 200
"""Maximum length of the text that a scanner or a clerk adds to a scanned page, in characters."""
DPI = 150
_AROUND = 4
"""Number of characters around a gap that show whether letters are widely spaced."""
_MOST = 0.6
_SAME_LINE = 0.3
"""Minimum vertical overlap of two characters in one line, as a share of the smaller height."""
_APART = 1.0
"""Minimum gap between words, in line heights; a smaller one may be letter spacing."""
_HYPHEN = "\x02"
"""PDFium's character for a hyphen at a line end."""
_POINTS_PER_INCH = 72
_UNSEEN = 2 | 32
"""The flags Hidden and NoView of an annotation."""
_PASSWORD = 1 << 13
"""The flag of a text field that shows no characters."""
MAX_OPTIONS = 2000


def answer(words: Any, data: bytes, report: Report) -> tuple[Any, Payload]:
    """Answer a request about a PDF. The first report is the page count, or `encrypted`.

    Args:
        words: `text` and page numbers, or `image` and one page number. For `text`, report for each page the text, its
            pieces with positions, what forms and notes add, and whether the page is a scan with a stamp; None for a
            damaged page. For `image`, return width, height, stride and what forms and notes add, with RGB pixels.
    """
    import pypdfium2

    kind, *numbers = words
    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code != pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise
        report("encrypted")
        return "end", b""
    with contextlib.closing(pdf):
        pdf.init_forms()  # before pages are opened, or they are drawn without the values of forms
        report(len(pdf))
        if kind == "image":
            with contextlib.suppress(pypdfium2.PdfiumError):
                return _render(pdf, numbers[0] - 1)
        else:
            for page in numbers:
                if 1 <= page <= len(pdf):
                    report(_read_page(pdf, page - 1))
    return "end", b""


def _read_page(pdf: Any, number: int) -> dict[str, Any] | None:
    import pypdfium2

    try:
        page = pdf[number]
        layer = page.get_textpage()
        found = [] if page.get_rotation() or layer.count_chars() > MAX_TEXT else _group_words(_list_glyphs(layer))
        pieces = _build_pieces(found, page.get_height()) if len(found) <= MAX_WORDS else []
        text = _join_lines(found) if found else str(layer.get_text_bounded())[:MAX_TEXT].replace(_HYPHEN, "-\n")
        scanned = len(text) < MAX_STAMP and _is_picture(page)
        return {"text": text, "pieces": pieces, "added": _read_annotations(pdf, page, number), "scanned": scanned}
    except pypdfium2.PdfiumError:
        return None


def _read_annotations(pdf: Any, page: Any, index: int) -> list[str]:
    """Return the values of form fields and the notes of a page, which its text layer lacks; and what cannot be read."""
    import pypdfium2.raw as pdfium

    found = []
    for number in range(min(pdfium.FPDFPage_GetAnnotCount(page), MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        if pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
            pass
        elif kind == pdfium.FPDF_ANNOT_WIDGET and pdf.formenv:
            found.append(_read_field(pdf.formenv, annotation))
        elif kind not in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_WIDGET):
            text, author = (_get_text(pdfium.FPDFAnnot_GetStringValue, annotation, key) for key in (b"Contents", b"T"))
            label = "Text" if kind == pdfium.FPDF_ANNOT_FREETEXT else f"Note by {author}" if author else "Note"
            found.append(f"{label}: {text}" if text else "")
        pdfium.FPDFPage_CloseAnnot(annotation)
    if index == 0:
        if pdf.get_formtype() in (pdfium.FORMTYPE_XFA_FULL, pdfium.FORMTYPE_XFA_FOREGROUND):
            found.append("(not read: a form in the format XFA)")
        if files := pdf.count_attachments():
            found.append(f"(not read: {files} attached {'file' if files == 1 else 'files'})")
    return [*dict.fromkeys(filter(None, found))]


def _read_field(form: Any, annotation: Any) -> str:
    """Return name and value of a form field; empty for one that holds nothing."""
    import pypdfium2.raw as pdfium

    name = _get_text(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or _get_text(pdfium.FPDFAnnot_GetFormFieldName, form, annotation)
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind == pdfium.FPDF_FORMFIELD_CHECKBOX:
        return f"{name}: {'☒' if pdfium.FPDFAnnot_IsChecked(form, annotation) else '☐'}"
    if kind == pdfium.FPDF_FORMFIELD_RADIOBUTTON:
        is_chosen = pdfium.FPDFAnnot_IsChecked(form, annotation)
        return f"{name}: {_get_text(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation)}" if is_chosen else ""
    if kind == pdfium.FPDF_FORMFIELD_TEXTFIELD and pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD:
        return f"{name}: (not read: a password)"
    options = range(min(max(pdfium.FPDFAnnot_GetOptionCount(form, annotation), 0), MAX_OPTIONS))
    chosen = [
        _get_text(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, option)
        for option in options
        if pdfium.FPDFAnnot_IsOptionSelected(form, annotation, option)
    ]
    value = ", ".join(chosen) or _get_text(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
    return f"{name}: {value}" if value and kind != pdfium.FPDF_FORMFIELD_PUSHBUTTON else ""


def _get_text(function: Any, *arguments: Any) -> str:
    """Call a function of PDFium that fills a buffer with UTF-16; return one line."""
    import pypdfium2.raw as pdfium

    size = function(*arguments, None, 0)
    if size > 2 * MAX_NOTE:
        return f"(not read: {size // 2} characters)"
    buffer = (pdfium.FPDF_WCHAR * (size // 2))()
    function(*arguments, buffer, size)
    return " ".join(bytes(buffer).decode("utf-16-le", "replace").replace("\0", "").split())


class Glyph(NamedTuple):
    """A character and its bounding box, in points from the left and the bottom.

    Attributes:
        space: `own` if a space in the file precedes it, `guessed` if PDFium inserted one, else empty.
    """

    char: str
    left: float
    right: float
    bottom: float
    top: float
    space: str

    @property
    def height(self) -> float:
        return self.top - self.bottom


def _list_glyphs(layer: Any) -> list[Glyph]:
    """Return the visible characters of a page in file order."""
    import pypdfium2.raw as pdfium

    found, space, box = list[Glyph](), "", pdfium.FS_RECTF()
    for number in range(layer.count_chars()):
        char = chr(pdfium.FPDFText_GetUnicode(layer, number))
        char = "-" if char == _HYPHEN else char
        pdfium.FPDFText_GetLooseCharBox(layer, number, box)
        if char.isspace() or char == "\0":
            own = box.right > box.left and not pdfium.FPDFText_IsGenerated(layer, number)
            space = "own" if own or space == "own" else "guessed"
        else:
            found.append(Glyph(char, box.left, box.right, box.bottom, box.top, space))
            space = ""
    return found


def _group_words(glyphs: Sequence[Glyph]) -> list[list[Glyph]]:
    """Group adjacent characters into words.

    Some programs position every character separately. PDFium then guesses spaces between widely spaced letters, and
    text objects start and end within words. A guessed space is therefore ignored if most gaps around it are as wide.
    """
    words = list[list[Glyph]]()
    for number, glyph in enumerate(glyphs):
        word = words[-1] if words else []
        beside = bool(word) and glyph.space != "own" and _continues(word, glyph)
        if beside and glyph.space == "guessed":
            around = glyphs[max(0, number - _AROUND) : number + _AROUND]
            gaps = [_measure_gap(*pair) for pair in itertools.pairwise(around)]
            wide = sum(gap > _measure_gap(glyphs[number - 1], glyph) / 2 for gap in gaps)
            beside = wide > _MOST * len(gaps) > 2 and sum(one.char.isalpha() for one in around) > 1
        if beside:
            word.append(glyph)
        else:
            words.append([glyph])
    return words


def _continues(word: Sequence[Glyph], glyph: Glyph) -> bool:
    """Return whether a character continues a word, to the right or, in right-to-left scripts, to the left."""
    before = word[-1]
    height = max(before.height, glyph.height)
    if min(before.top, glyph.top) - max(before.bottom, glyph.bottom) <= _SAME_LINE * min(before.height, glyph.height):
        return False
    if (before.left, before.right) == (glyph.left, glyph.right):  # the letters of a ligature
        return True
    after = glyph.left - max(one.right for one in word[-2:])
    ahead = min(one.left for one in word[-2:]) - glyph.right
    rtl = is_rtl(before.char) or is_rtl(glyph.char)
    return -height / 2 < after < _APART * height or (rtl and -height / 2 < ahead < _APART * height)


def _measure_gap(one: Glyph, other: Glyph) -> float:
    """Return the horizontal gap between two characters."""
    return max(other.left - one.right, one.left - other.right)


def _order_letters(word: Sequence[Glyph]) -> str:
    """Return a word in reading order.

    Files store right-to-left words in either order, but numbers always from left to right.
    """
    if not any(is_rtl(glyph.char) for glyph in word):
        return "".join(glyph.char for glyph in word)
    leftward = sorted(word, key=lambda glyph: -glyph.left)
    runs = itertools.groupby(leftward, key=lambda glyph: glyph.char.isdigit())
    return "".join(
        "".join(glyph.char for glyph in (reversed(list(run)) if is_number else run)) for is_number, run in runs
    )


def _build_pieces(words: Sequence[Sequence[Glyph]], height: float) -> list[tuple[str, float, float, float, float]]:
    """Return each word with left, right, top and bottom, measured from the top of the page."""
    return [
        (
            _order_letters(word),
            min(glyph.left for glyph in word),
            max(glyph.right for glyph in word),
            height - max(glyph.top for glyph in word),
            height - min(glyph.bottom for glyph in word),
        )
        for word in words
    ]


def _join_lines(words: Sequence[Sequence[Glyph]]) -> str:
    """Return the words in file order, line by line."""
    return "\n".join(" ".join(_order_letters(word) for word in line) for line in _split_lines(words))[:MAX_TEXT]


def _may_be_rtl(word: Sequence[Glyph]) -> bool:
    return any(is_rtl(glyph.char) for glyph in word) or not any(glyph.char.isalnum() for glyph in word)


def _split_lines(words: Sequence[Sequence[Glyph]]) -> Iterator[list[Sequence[Glyph]]]:
    line = list[Sequence[Glyph]]()
    bottom = top = 0.0
    for word in words:
        low, high = min(glyph.bottom for glyph in word), max(glyph.top for glyph in word)
        leftward = line and all(map(_may_be_rtl, (word, line[-1])))
        if line and (
            min(top, high) - max(bottom, low) <= _SAME_LINE * min(top - bottom, high - low)
            or (not leftward and word[0].left < line[-1][0].left)
        ):
            yield line
            line = []
        if leftward and line and word[0].left > line[-1][0].left:
            at = next((n for n in range(len(line), 0, -1) if not _may_be_rtl(line[n - 1])), 0)
            line.insert(at, word)  # the rightmost of several right-to-left words goes first
        else:
            line.append(word)
        if len(line) == 1:
            bottom, top = low, high
    if line:
        yield line


def _is_picture(page: Any) -> bool:
    """Return whether an image covers most of the page."""
    import pypdfium2

    pictures = page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=2)
    bounds = (picture.get_bounds() for picture in itertools.islice(pictures, MAX_PICTURES))
    largest = max(((right - left) * (top - bottom) for left, bottom, right, top in bounds), default=0.0)
    return bool(largest > page.get_width() * page.get_height() / 2)


def _render(pdf: Any, number: int) -> tuple[dict[str, Any], bytes]:
    page = pdf[number]
    width, height = page.get_size()
    fitting = (MAX_PIXELS / max(width * height, 1)) ** 0.5
    scale = min(DPI / _POINTS_PER_INCH, fitting, MAX_SIDE / max(width, height, 1))
    bitmap = page.render(scale=scale, rev_byteorder=True)
    size = {"width": bitmap.width, "height": bitmap.height, "stride": bitmap.stride}
    return {**size, "added": _read_annotations(pdf, page, number)}, bytes(bitmap.buffer)
