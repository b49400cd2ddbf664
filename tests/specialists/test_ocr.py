"""`ocr`: files, pages, engines and refusals."""

import random
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from specialist_calls import (
    INVOICE,
    FakeModel,
    answer,
    context,
    file,
    nested_pdf,
    outcome,
    pdf_of,
    refusal,
    text_pdf,
    written,
)
from specialist_calls import pdf as make_pdf

from brain import Progress, Registry, install_command
from brain.plugins.context import Result
from brain.plugins.executor import Failure
from specialists._knowledge.parts import Part, Source
from specialists._knowledge.readers import read_parts
from specialists._pictures import images, pdf, rapidocr, reader
from specialists._pictures.layout import Piece
from specialists.ocr import ocr
from specialists.vision import vision

UNREADABLE, TOO_LARGE, TOO_SLOW, ENCRYPTED = "damaged", "150 MB", "too long", "encrypted"
FOX = "The quick brown fox\njumps over the lazy dog\nand runs away"
PAGE = file(written(INVOICE))


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def no_rapidocr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)


def extract(name: str, data: bytes, **params: Any) -> str:
    """Return the text without the heading and the source line."""
    return answer(ocr, params, context((name, data))).partition("\n\n")[2]


def source(name: str, data: bytes, **params: Any) -> str:
    return answer(ocr, params, context((name, data))).partition("\n\n")[0].partition("\nSource: ")[2]


def refuse(name: str, data: bytes, **params: Any) -> str:
    return refusal(ocr, params, context((name, data)))


# Images


def transparent(ink: str) -> Image.Image:
    image = Image.new("RGBA", (420, 110), (0, 0, 0, 0))
    ImageDraw.Draw(image).multiline_text((20, 20), INVOICE, font=ImageFont.load_default(size=28), fill=ink)
    return image


def rotated_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def palette() -> bytes:
    image = written(INVOICE).quantize(8)
    return file(image, transparency=image.getpixel((0, 0)))


PICTURES = {kind: file(written(INVOICE), kind) for kind in ("JPEG", "WEBP", "TIFF", "GIF", "BMP", "AVIF")} | {
    "CMYK": file(written(INVOICE).convert("CMYK"), "JPEG"),
    "16 bits": file(written(INVOICE).convert("L").convert("I").point(lambda value: value * 100).convert("I;16")),
    "floats": file(written(INVOICE).convert("L").convert("F"), "TIFF"),
    "1 bit": file(written(INVOICE).convert("1")),
    "grey with alpha": file(written(INVOICE).convert("LA")),
    "dark": file(written(INVOICE, ink="#ddd", paper="#222")),
    "palette with transparency": palette(),
    "black on nothing": file(transparent("black")),
    "white on nothing": file(transparent("white")),
    "animation": file(written(INVOICE), "GIF", save_all=True, append_images=[written("later")]),
    "camera on its side": file(written(INVOICE).rotate(90, expand=True), "JPEG", exif=rotated_exif()),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_reads_every_image_format(kind: str) -> None:
    assert extract("x", PICTURES[kind]) == INVOICE


def test_a_result_has_its_heading_source_and_confidence() -> None:
    heading = r"📄 OCR EXTRACTED TEXT from 'note.png'\nSource: RapidOCR; mean confidence (9\d|100)%\."
    assert re.fullmatch(rf"{heading}\n\n{INVOICE}", answer(ocr, {}, context(("note.png", PAGE))))


@pytest.mark.parametrize("angle", [90, 180, 270])
@pytest.mark.usefixtures("no_tesseract")
def test_rapidocr_reads_a_turned_page(angle: int) -> None:
    assert extract("x.png", file(written(FOX, (420, 160)).rotate(angle, expand=True))) == FOX


@pytest.mark.parametrize("angle", [-11, -3, 2, 8])
def test_levels_a_skewed_page(angle: int) -> None:
    image = written(FOX, (420, 160)).rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert extract("x.png", file(image)) == FOX


@pytest.mark.tesseract
@pytest.mark.usefixtures("no_rapidocr")
@pytest.mark.parametrize("angle", [0, 5, 90, 180])
def test_tesseract_alone_reads_any_orientation(angle: int) -> None:
    if shutil.which("tesseract") is None:
        pytest.skip("the program tesseract is not installed")
    text = "\n".join(["The quick brown fox jumps over the lazy dog"] * 4)
    image = written(text, (700, 170)).rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert extract("x.png", file(image)) == text
    assert source("x.png", file(image)).startswith("Tesseract; mean confidence 9")


@pytest.mark.usefixtures("no_tesseract")
def test_a_table_becomes_markdown() -> None:
    image = Image.new("RGB", (500, 260), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=24)
    rows = {20: ("Item", "Price"), 60: ("Apples", "4.50"), 100: ("Pears", "9.99"), 200: ("Thanks", "")}
    for top, cells in rows.items():
        for left, cell in zip((20, 300), cells, strict=True):
            draw.text((left, top), cell, font=font, fill="black")
    table = "| Item | Price |\n| --- | --- |\n| Apples | 4.50 |\n| Pears | 9.99 |\n\nThanks"
    assert extract("x.png", file(image)) == table


def test_enhancing_reads_through_specks() -> None:
    image = Image.new("L", (220, 44), 235)
    ImageDraw.Draw(image).text((10, 10), "Order 2024 paid", font=ImageFont.load_default(size=20), fill=150)
    dice = random.Random(3)
    for _ in range(900):
        image.putpixel((dice.randrange(220), dice.randrange(44)), dice.choice((0, 255)))
    assert "Order" not in extract("x.png", file(image))
    assert extract("x.png", file(image), enhance=True).replace(" ", "") == "Order2024paid"


@pytest.mark.parametrize("size", [(1, 1), (3000, 2), (5, 3000), (3000, 12), (40, 40)])
def test_an_empty_page_has_no_text(size: tuple[int, int]) -> None:
    assert extract("x.png", file(Image.new("RGB", size, "white"))) == "(no text was found)"


# Engines and languages


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_rapidocr: None) -> Callable[[str, int], Path]:
    """Replace Tesseract with a program for English and German that returns a given text and confidence."""

    def write(text: str, confidence: int) -> Path:
        rows = [
            f"5\t1\t1\t1\t{y}\t{x}\t{x * 90}\t{y * 30}\t80\t20\t{confidence}\t{word}"
            for y, line in enumerate(text.splitlines(), 1)
            for x, word in enumerate(line.split(), 1)
        ]
        (tmp_path / "table").write_text("\n".join(["\t".join(["head"] * 12), *rows, ""]))
        program = tmp_path / "tesseract"
        program.write_text(
            '#!/bin/sh\n[ "$1" = --list-langs ] && printf "list\\neng\\ndeu\\n" && exit\n'
            f'while read -r line; do echo "$line"; done <{tmp_path}/table\n'
        )
        program.chmod(0o755)
        return program

    monkeypatch.setenv("PATH", str(tmp_path))
    return write


Says = Callable[[str, int], Path]
FRENCH = (
    "Le comité s'est réuni le trois mars pour discuter du budget\n"
    "de l'année à venir et les membres ont décidé d'élever\n"
    "la somme à condition que les reçus soient gardés pour un an"
)


def test_warnings_precede_the_text(says: Says, caplog: pytest.LogCaptureFixture) -> None:
    says("Total 129.50", 54)
    assert extract("a.png", file(written("a"))) == ("(low confidence, 54%: check names and numbers)\n\nTotal 129.50")
    says(FRENCH, 95)
    note, _, text = extract("b.png", file(written("b"))).partition("\n\n")
    assert text == FRENCH
    assert "'fr'" in note
    assert "tesseract-ocr-fra" not in note
    assert "apt install tesseract-ocr-fra" in caplog.text
    assert extract("b.png", file(written("b")), language="en") == FRENCH
    assert "'fr'" in refuse("b.png", file(written("b")), language="fr")


def test_a_page_without_text_is_read_with_a_local_threshold(says: Says) -> None:
    program = says("In the shadow", 95)
    lit = 'case "$*" in *--list-langs* | *thresholding_method=2*) ;; *) exit ;; esac\n'
    program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{lit}"))
    assert extract("x.png", PAGE) == "In the shadow"


def test_tesseract_is_killed_at_its_cpu_limit(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    program = says("", 0)
    program.write_text(program.read_text().replace("while", "while :; do :; done\nwhile"))
    monkeypatch.setattr(reader, "TESSERACT_SECONDS", 1.0)
    assert extract("x.png", PAGE) == "(no text was found)"


def test_recent_pages_are_cached(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = file(written(INVOICE), "PDF")
    says("one", 95)
    assert extract("scan.pdf", scan) == "one"
    says("two", 95)
    assert extract("scan.pdf", scan, page=1) == "one"
    assert extract("scan.pdf", scan, enhance=True) == "two"
    assert extract("scan.pdf", file(written("other"), "PDF")) == "two"
    monkeypatch.setattr(reader, "CACHE_SECONDS", -1)
    for word in ("three", "four"):
        says(word, 95)
        assert extract("new.pdf", file(written("new"), "PDF")) == word


def test_rapidocr_does_not_know_greek() -> None:
    formula, letter = ("2πr = 6.28, tan α = 1.5", "λλνι κεμενα γφνται ε")
    assert [rapidocr.known_share([Piece(text, 0, 300, 0, 30)]) for text in (formula, letter)] == [1.0, 0.0]


@pytest.mark.usefixtures("no_tesseract")
def test_languages_of_rapidocr() -> None:
    for language in ("de", "DE-at", "deu"):
        assert extract("x.png", file(written("Guten Tag")), language=language) == "Guten Tag"
    found = outcome(ocr, {"language": "ru"}, context(("x.png", PAGE)))
    assert isinstance(found, Failure)
    assert "'ru'" in found.reason
    assert "ca, cs, da, de, en, es" in found.advice


@pytest.mark.usefixtures("no_tesseract", "no_rapidocr")
def test_without_an_engine_only_text_layers_are_read() -> None:
    registry = Registry()
    registry.add(ocr)
    assert registry.usable() == (ocr,)
    assert ocr.health is not None
    assert install_command("ocr") in str(ocr.health())
    assert extract("a.pdf", text_pdf("from the layer"), language="ru") == "from the layer"
    assert extract("a.pdf", text_pdf("one", "", "three")) == (
        f"## Page 1 of 3\n\none\n\n## Page 2 of 3\n\n(not read: {reader.MISSING})\n\n## Page 3 of 3\n\nthree"
    )
    assert extract("scan.pdf", stamped(written(INVOICE), "Filed by Ada")) == "Filed by Ada"
    for name, data, enhance in (
        ("a.png", PAGE, False),
        ("dot.png", file(Image.new("RGB", (3, 3))), False),
        ("scan.pdf", file(written("a"), "PDF"), False),
        ("layer.pdf", text_pdf("a"), True),
    ):
        assert refuse(name, data, enhance=enhance) == reader.MISSING


# Documents


def stamped(scan: Image.Image, text: str) -> bytes:
    """Return a PDF page with a scan and a text on top."""
    pixels = scan.convert("L").tobytes().hex()
    picture = (
        f"<< /Type /XObject /Subtype /Image /Width {scan.width} /Height {scan.height} /ColorSpace /DeviceGray "
        f"/BitsPerComponent 8 /Filter /ASCIIHexDecode /Length {len(pixels) + 1} >>\nstream\n{pixels}>\nendstream"
    )
    drawing = f"q 400 0 0 100 0 0 cm /X0 Do Q BT /F1 6 Tf 5 5 Td ({text}) Tj ET"
    return make_pdf([drawing], "<< /Font << /F1 3 0 R >> /XObject << /X0 6 0 R >> >>", "", [picture])


def test_uses_the_text_layer_without_enhance() -> None:
    assert answer(ocr, {}, context(("document.pdf", text_pdf("Hello from the layer")))) == (
        "📄 OCR EXTRACTED TEXT from 'document.pdf'\nSource: the PDF's text layer.\n\nHello from the layer"
    )
    assert source("document.pdf", text_pdf("Hello"), enhance=True).startswith("RapidOCR")


def filled_form(*, has_text: bool) -> bytes:
    """A PDF of one page with the values of a form, notes, and a link."""
    look, place = "/DA (/F1 14 Tf 0 g)", "/Type /Annot /P 4 0 R /F 4 /Rect [20 {} 300 {}]".format
    annotations = [
        f"/Subtype /Widget /FT /Tx /T (name) /TU (Full name) /V (Ada Lovelace) {look} {place(40, 65)}",
        f"/Subtype /Widget /FT /Tx /T (empty) {look} {place(20, 30)}",
        f"/Subtype /Widget /FT /Btn /T (agree) /V /Yes /AS /Yes /AP << /N << /Yes 5 0 R >> >> {place(2, 4)}",
        f"/Subtype /Widget /FT /Ch /Ff 131072 /T (town) /V (Bern) /Opt [(Bern) (Basel)] {look} {place(4, 18)}",
        "/Subtype /Widget /FT /Ch /Ff 2097152 /T (tongues) /V [(de) (en)] /I [0 1] "
        f"/Opt [[(de) (German)] [(en) (English)] [(fr) (French)]] {look} {place(4, 18)}",
        f"/Subtype /Widget /FT /Tx /Ff 8192 /T (code) /V (hunter2) {look} {place(20, 30)}",
        f"/Subtype /Widget /FT /Tx /T (hidden) /V (x) {look} {place(20, 30).replace('/F 4', '/F 2')}",
        f"/Subtype /Text /Contents (not shown) {place(90, 95).replace('/F 4', '/F 32')}",
        f"/Subtype /Text /T (Bo) /Contents (Is this\nright?) {place(90, 95)}",
        f"/Subtype /FreeText /Contents (Approved) {look} {place(70, 90)}",
        f"/Subtype /Highlight /QuadPoints [20 40 300 40 20 65 300 65] {place(40, 65)}",
        f"/Subtype /Link /Contents (a link) {place(1, 2)}",
    ]
    numbers = " ".join(f"{6 + n} 0 R" for n in range(len(annotations)))
    drawing = "BT /F1 14 Tf 20 70 Td (Contract) Tj ET" if has_text else ""
    form = f"/Fields [{numbers}] {look} /DR << /Font << /F1 3 0 R >> >> /NeedAppearances true"
    return pdf_of(
        [
            f"<< /Type /Catalog /Pages 2 0 R /AcroForm << {form} >> >>",
            "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 100] /Contents 5 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> /Annots [{numbers}] >>",
            f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream",
            *(f"<< {one} >>" for one in annotations),
        ]
    )


def test_values_of_forms_and_notes_are_in_the_text_and_in_the_picture() -> None:
    added = (
        "Full name: Ada Lovelace\nagree: ☒\ntown: Bern\ntongues: German, English\ncode: (not read: a password)"
        "\nNote by Bo: Is this right?\nText: Approved"
    )
    assert extract("a.pdf", filled_form(has_text=True)) == f"Contract\n\n{added}"
    scan = filled_form(has_text=False)
    recognized, _, rest = extract("a.pdf", scan).partition("\n\n")
    assert (("Ada Lovelace" in recognized), rest) == (True, added)
    assert extract("a.pdf", filled_form(has_text=True), enhance=True).endswith(f"\n\n{added}")
    assert f"\n\n{added}\n" in answer(vision, {}, context(("a.pdf", scan)))
    assert added not in answer(vision, {"focus": "top left: text"}, context(("a.pdf", scan)))
    assert added in answer(vision, {}, context(("a.pdf", scan), model=FakeModel(says="A form.")))
    (part,) = [part for part in read_parts(Source("a.pdf", scan), "pdf") if isinstance(part, Part)]
    assert part.text.endswith(f"\n\n{added}")


def test_ignores_stamps_and_garbled_text_layers() -> None:
    assert extract("scan.pdf", stamped(written(INVOICE), "Filed by Ada")).startswith(INVOICE)
    codes = images.Document(text_pdf("\\001\\003\\004 \\005\\006abc", "Plain text"), "a.pdf", True)
    assert codes.texts([1, 2], stamps=False) == (2, ["", "Plain text"], None)
    hyphen = make_pdf(
        ["BT /F1 12 Tf 14 TL 20 80 Td (some infor-) Tj T* (mation) Tj ET"], "<< /Font << /F1 3 0 R >> >>", ""
    )
    assert extract("a.pdf", hyphen) == "some infor-\nmation"
    wide = "BT /F1 12 Tf 150 Tz 20 80 Td (con\\256dential) Tj ET"
    assert extract("a.pdf", make_pdf([wide], "<< /Font << /F1 3 0 R >> >>", "")) == "confidential"  # with a ligature


@pytest.mark.parametrize("kind", ["PDF", "TIFF"])
def test_reads_scanned_pages_one_by_one(kind: str) -> None:
    data = file(written(INVOICE), kind, save_all=True, append_images=[written("second")])
    progress: list[Progress] = []
    text = answer(ocr, {}, context(("scan", data)), progress)
    assert text.endswith(f"## Page 1 of 2\n\n{INVOICE}\n\n## Page 2 of 2\n\nsecond")
    assert progress == [Progress("reading page 1 of 2", 0.0), Progress("reading page 2 of 2", 0.5)]


@pytest.mark.parametrize(
    ("page", "read"),
    [
        (2, "2"), ("2", "2"), ("2-3", "2 3"), ("1,3", "1 3"), (" 3 , 1 ", "3 1"), ("3-", "3 4"), ("2-9", "2 3 4"),
        ("1,1-2", "1 2"), ("2–3", "2 3"), ("all", "1 2 3 4"),
    ],
)  # fmt: skip
def test_selects_pages(page: int | str, read: str) -> None:
    text = extract("a.pdf", text_pdf("one", "two", "three", "four"), page=page)
    assert " ".join(re.findall(r"^## Page (\d) of 4$", text, re.MULTILINE)) == read


@pytest.mark.parametrize("page", ["two", "", "1;2", "-2", "2-1-3", "1,,2", "5-2"])
def test_refuses_invalid_pages(page: str) -> None:
    assert repr(page) in refuse("a.pdf", text_pdf("a"), page=page)


@pytest.mark.parametrize("page", [3, 0, "3-4,9"])
def test_refuses_missing_pages(page: int | str) -> None:
    assert f"no page {page}, only 2 pages" in refuse("a.pdf", text_pdf("a", "b"), page=page)


@pytest.mark.parametrize(
    ("params", "shown", "advice"),
    [
        ({}, 95, 'page="1-4", offset=3'),
        ({}, 106, 'page="2-4"'),
        ({}, 121, 'page="2-4", offset=3'),
        ({"page": "2"}, 84, 'page="2", offset=3'),
        ({"page": "2", "offset": 3}, 84, 'page="2", offset=6'),
        ({"page": "1,3-4"}, 106, 'page="3-4"'),
        ({"image_id": 1, "language": "en"}, 95, 'image_id=1, language="en", page="1-4", offset=3'),
    ],
)
def test_a_truncated_result_names_the_rest(params: dict[str, Any], shown: int, advice: str) -> None:
    found = outcome(ocr, params, context(("a.pdf", text_pdf("page one", "page two", "page three", "page four"))))
    assert isinstance(found, Result)
    assert found.more is not None
    assert found.more(shown).endswith(f" {advice}")


def test_offsets() -> None:
    data = text_pdf("from the start", "next")
    assert extract("a.pdf", data, offset=9) == "## Page 1 of 2\n\nstart\n\n## Page 2 of 2\n\nnext"
    assert extract("a.pdf", text_pdf("short"), offset=9) == "(the text has 5 characters, fewer than offset 9)"


@pytest.mark.parametrize(
    ("count", "page", "read", "rest"), [(52, None, "1-50 of 52", "51-52"), (60, "1-3,5-60", "1-3,5-51 of 60", "52-60")]
)
def test_reads_fifty_pages_and_names_the_rest(count: int, page: str | None, read: str, rest: str) -> None:
    data = text_pdf(*(f"page number {n}" for n in range(1, count + 1)))
    found = source("long.pdf", data, page=page)
    assert found.startswith(f"the PDF's text layer (pages: 50). Pages read: {read}.")
    assert found.endswith(f' page="{rest}".')


def test_returns_a_part_when_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specialists.ocr.SECONDS_ENOUGH", -1.0)
    found = source("a.pdf", text_pdf("one", "two"))
    assert found.endswith(' page="2".')


def test_a_damaged_page_does_not_affect_the_others() -> None:
    pages = [Image.new("RGB", (9, 9)), Image.new("RGB", (9, 9), "white")]
    tiff = bytearray(file(pages[0], "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw"))
    tiff[8:16] = b"\xff" * 8
    unreadable = f"## Page 1 of 2\n\n(not read: {images.unreadable_reason('a')[0]})\n\n## Page 2 of 2"
    assert extract("a", bytes(tiff)) == f"{unreadable}\n\n(no text was found)"
    cut = text_pdf("one", "two").replace(b"[4 0 R 6 0 R]", b"[9 0 R 6 0 R]")
    for enhance in (False, True):
        assert extract("a", cut, enhance=enhance) == f"{unreadable}\n\ntwo"


# Attachments


def test_reads_the_newest_and_lists_the_others() -> None:
    files = (("old.pdf", text_pdf("old")), ("notes.txt", b"no image"), ("new.pdf", text_pdf("new")))
    assert answer(ocr, {}, context(*files)) == (
        "📄 OCR EXTRACTED TEXT from 'new.pdf'\n"
        "Source: the PDF's text layer. Also attached: image_id 1 'old.pdf'.\n\nnew"
    )
    assert answer(ocr, {"image_id": 1}, context(*files)).endswith("Source: the PDF's text layer.\n\nold")
    missing = Failure("refused", "no image or PDF has the image_id 2", "use one of: 1 'old.pdf', 3 'new.pdf'")
    assert outcome(ocr, {"image_id": 2}, context(*files)) == missing
    assert refusal(ocr, {}, context(files[1])) == refusal(ocr, {}, context())


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/scan.pdf", "scan.pdf"),
        ("C:\\Users\\me\\scan.pdf", "scan.pdf"),
        ("a\nb\t.pdf", "a b .pdf"),
        ("", "unnamed"),
        ("x" * 200, "x" * 79 + "…"),
    ],
)
def test_shows_file_names_in_one_line(name: str, shown: str) -> None:
    assert answer(ocr, {}, context((name, text_pdf("a")))).startswith(f"📄 OCR EXTRACTED TEXT from '{shown}'\n")


# Hostile files


def png_header(width: int, height: int) -> bytes:
    """Return a PNG with a size in its header and almost no data."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


LARGE_PHOTO = Image.new("RGB", (8064, 6048), "white")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (PAGE[:600], UNREADABLE),
        (b"just some text", UNREADABLE),
        (b"", UNREADABLE),
        (b"%PDF-1.7 and nothing more", UNREADABLE),
        (text_pdf("a")[:150], UNREADABLE),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", UNREADABLE),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", UNREADABLE),
        (png_header(0, 0), UNREADABLE),
        (text_pdf("a", encrypted=True), ENCRYPTED),
        # decompression bombs, by what decoding takes and not by pixels
        (png_header(8_000, 8_000), TOO_LARGE),
        (png_header(60_000, 60_000), TOO_LARGE),
        (file(LARGE_PHOTO, "JPEG", progressive=True), TOO_LARGE),
        (file(Image.new("RGB", (6300, 6300))), TOO_LARGE),
    ],
    ids=[
        "cut PNG", "text", "empty", "no PDF", "cut PDF", "SVG", "PostScript", "no pixels", "encrypted", "bomb",
        "large bomb", "progressive", "colour",
    ],
)  # fmt: skip
def test_refuses_unreadable_files(data: bytes, reason: str) -> None:
    found = refuse("a.png", data)
    assert "'a.png'" in found
    assert reason in found


@pytest.mark.parametrize(
    ("data", "size"),
    [(file(LARGE_PHOTO, "JPEG"), (4000, 3000)), (file(Image.new("1", (6300, 6300))), (4000, 4000))],
    ids=["JPEG", "1 bit"],
)
def test_shrinks_a_large_picture_while_decoding(data: bytes, size: tuple[int, int]) -> None:
    assert images.Document(data, "x", pdf=False).image(1).size == size


def test_an_endless_pdf_is_abandoned_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    files = (("next.pdf", text_pdf("next")), ("hostile.pdf", nested_pdf(12)))
    with monkeypatch.context() as hurried:
        hurried.setattr(reader, "PDF_SECONDS", 0.5)
        for enhance in (False, True):
            assert TOO_SLOW in refusal(ocr, {"enhance": enhance}, context(*files))
    assert answer(ocr, {"image_id": 1}, context(*files)).endswith("\n\nnext")


@pytest.mark.parametrize(
    ("levels", "reason"),
    [
        pytest.param(12, TOO_SLOW, marks=pytest.mark.alone),
        pytest.param(9, UNREADABLE, marks=pytest.mark.skipif(sys.platform != "linux", reason="no limit of memory")),
    ],
    ids=["time", "memory"],
)
def test_pages_before_a_hostile_one_are_read(levels: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == TOO_SLOW:
        monkeypatch.setattr(reader, "PDF_SECONDS", 1.0)  # enough for two pages, and too little to take all memory
    text = extract("hostile.pdf", nested_pdf(levels, "one", "two"))
    assert text.startswith("## Page 1 of 3\n\none\n\n## Page 2 of 3\n\ntwo\n\n## Page 3 of 3\n\n(not read: ")
    assert reason in text


def test_text_and_pixels_of_a_pdf_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_TEXT", 5)
    steps: list[Any] = []
    pdf.answer(["text", 1, 2, 3], text_pdf("one page", "another"), steps.append)
    assert steps[0] == 2
    assert [step["text"] for step in steps[1:]] == ["one p", "anoth"]
    size, pixels = pdf.answer(["image", 1], text_pdf("a").replace(b"[0 0 400 100]", b"[0 0 9999 999]"), steps.append)
    assert (size["width"], size["height"], len(pixels)) == (4000, 400, size["height"] * size["stride"])


def test_importing_the_specialists_loads_nothing_heavy() -> None:
    code = "import sys, specialists.ocr, specialists.vision, specialists.docs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"PIL", "numpy", "zxingcpp", "pypdfium2", "rapidocr", "onnxruntime", "cv2", "sqlite3"}
    assert heavy.isdisjoint(done.stdout.split())
