"""`ocr`: what it reads, from which files, by which engine, and what it refuses."""

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
from specialist_calls import INVOICE, answer, context, file, nested_pdf, outcome, refusal, text_pdf, written
from specialist_calls import pdf as make_pdf

from brain import Progress, Registry
from brain.plugins.executor import Answer, Failure
from specialists._pictures import images, pdf, rapidocr, reader, turning
from specialists._pictures.layout import Piece
from specialists._pictures.ocr import enhance_image
from specialists.ocr import ocr

UNREADABLE = "cannot be read: it is damaged, or none of PNG, JPEG, WEBP, TIFF, GIF, BMP, AVIF and PDF"


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def no_rapidocr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)


@pytest.fixture
def tesseract() -> None:
    if shutil.which("tesseract") is None:
        pytest.skip("the program tesseract is not installed")


def body(text: str) -> str:
    """What was read, without the heading and the line about the source."""
    return text.partition("\n\n")[2]


def source(text: str) -> str:
    return text.partition("\n\n")[0].partition("\nSource: ")[2]


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def test_reads_an_image_under_the_heading() -> None:
    text = answer(ocr, {}, context(("note.png", file(written(INVOICE)))))
    assert text.startswith("📄 OCR EXTRACTED TEXT from 'note.png'\nSource: ")
    assert text.endswith("%.\n\nInvoice 4711\nTotal 129.50 EUR")
    assert "mean confidence 9" in text or "mean confidence 100" in text


def test_tells_how_far_it_is() -> None:
    progress: list[Progress] = []
    answer(ocr, {}, context(("a.pdf", text_pdf("one", "two", "three", "four"))), progress)
    assert progress == [
        Progress("reading page 1 of 4", 0.0),
        Progress("reading page 2 of 4", 0.25),
        Progress("reading page 3 of 4", 0.5),
        Progress("reading page 4 of 4", 0.75),
    ]


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "TIFF", "GIF", "BMP", "AVIF"])
def test_reads_every_format(kind: str) -> None:
    assert body(answer(ocr, {}, context(("x", file(written(INVOICE), kind))))) == INVOICE


@pytest.mark.parametrize(
    ("kind", "image"),
    [
        ("JPEG", written(INVOICE).convert("CMYK")),
        ("PNG", written(INVOICE).convert("L").convert("I").point(lambda value: value * 100).convert("I;16")),
        ("TIFF", written(INVOICE).convert("L").convert("F")),
        ("PNG", written(INVOICE).convert("1")),
        ("PNG", written(INVOICE).convert("LA")),
        ("PNG", written(INVOICE, ink="#ddd", paper="#222")),
    ],
    ids=["CMYK", "16 bits", "floats", "1 bit", "grey with alpha", "dark"],
)
def test_reads_every_mode(kind: str, image: Image.Image) -> None:
    assert body(answer(ocr, {}, context(("x.png", file(image, kind))))) == INVOICE


def test_reads_a_palette_with_transparency() -> None:
    image = written(INVOICE).quantize(8)
    assert body(answer(ocr, {}, context(("x.png", file(image, transparency=image.getpixel((0, 0))))))) == INVOICE


@pytest.mark.parametrize("ink", ["black", "white"])
def test_reads_ink_on_nothing(ink: str) -> None:
    image = Image.new("RGBA", (420, 110), (0, 0, 0, 0))
    ImageDraw.Draw(image).multiline_text((20, 20), INVOICE, font=ImageFont.load_default(size=28), fill=ink)
    assert body(answer(ocr, {}, context(("x.png", file(image))))) == INVOICE


def test_reads_the_first_picture_of_an_animation() -> None:
    data = file(written(INVOICE), "GIF", save_all=True, append_images=[written("later")])
    assert body(answer(ocr, {}, context(("x.gif", data)))) == INVOICE


def test_turns_as_the_camera_was_held() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = file(written(INVOICE).rotate(90, expand=True), "JPEG", exif=exif)
    assert body(answer(ocr, {}, context(("x.jpg", data)))) == INVOICE


@pytest.mark.parametrize("angle", [90, 180, 270])
@pytest.mark.usefixtures("no_tesseract")
def test_rapidocr_reads_a_turned_page(angle: int) -> None:
    image = written(INVOICE + "\nplease pay soon", (420, 160)).rotate(angle, expand=True)
    text = answer(ocr, {}, context(("x.png", file(image))))
    assert body(text) == "Invoice 4711\nTotal 129.50 EUR\nplease pay soon"
    assert source(text).startswith("RapidOCR; mean confidence ")


def test_rapidocr_reads_what_tesseract_is_not_sure_of() -> None:
    image = written("The quick brown fox\njumps over the lazy dog\nand runs away", (420, 160))
    text = answer(ocr, {}, context(("x.png", file(image.rotate(10, expand=True, fillcolor="white")))))
    assert body(text) == "The quick brown fox\njumps over the lazy dog\nand runs away"
    assert source(text).startswith("RapidOCR; ")


@pytest.mark.usefixtures("no_tesseract")
def test_keeps_a_table_and_what_stands_below_it() -> None:
    image = Image.new("RGB", (500, 260), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=24)
    for top, cells in (
        (20, ("Item", "Price")),
        (60, ("Apples", "4.50")),
        (100, ("Pears", "9.99")),
        (200, ("Thanks", "")),
    ):
        for left, cell in zip((20, 300), cells, strict=True):
            draw.text((left, top), cell, font=font, fill="black")
    assert body(answer(ocr, {}, context(("x.png", file(image))))) == (
        "| Item | Price |\n| --- | --- |\n| Apples | 4.50 |\n| Pears | 9.99 |\n\nThanks"
    )


@pytest.mark.tesseract
@pytest.mark.usefixtures("tesseract", "no_rapidocr")
def test_tesseract_alone_will_do() -> None:
    text = answer(ocr, {}, context(("x.png", file(written("One line\n\n\nand another", (420, 180))))))
    assert body(text) == "One line\n\nand another"
    assert source(text).startswith("Tesseract; mean confidence 9")


def test_greek_is_not_taken_for_what_rapidocr_knows() -> None:
    formula, letter = ("2πr = 6.28, tan α = 1.5", "λλνι κεμενα γφνται ε")
    sure = [rapidocr.known([Piece(text, 0, 300, 0, 30)]) for text in (formula, letter)]
    assert sure == [1.0, 0.0]


def test_rapidocr_goes_first() -> None:
    assert source(answer(ocr, {}, context(("x.png", file(written(INVOICE)))))).startswith("RapidOCR; ")


@pytest.mark.usefixtures("no_rapidocr")
def test_a_tesseract_that_computes_for_ever_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tesseract"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --list-langs ] && printf "list\\neng\\n" && exit\n'
        f"echo $$ >{tmp_path}/pid\nwhile :; do :; done\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(reader, "TESSERACT_SECONDS", 1.0)
    text = answer(ocr, {}, context(("x.png", file(written(INVOICE)))))
    assert body(text) == "(no text was found)"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_rapidocr: None) -> Callable[[str, int], None]:
    """A Tesseract for English and German that reads on every page what it is told to, as surely as it is told to."""

    def program(text: str, confidence: int) -> None:
        lines = [line.split() for line in text.splitlines()]
        rows = [
            f"5\t1\t1\t1\t{y}\t{x}\t{x * 90}\t{y * 30}\t80\t20\t{confidence}\t{word}"
            for y, words in enumerate(lines, 1)
            for x, word in enumerate(words, 1)
        ]
        (tmp_path / "table").write_text("\n".join(["\t".join(["head"] * 12), *rows, ""]))
        (tmp_path / "tesseract").write_text(
            '#!/bin/sh\n[ "$1" = --list-langs ] && printf "list\\neng\\ndeu\\n" && exit\n'
            f'while read -r line; do echo "$line"; done <{tmp_path}/table\n'
        )
        (tmp_path / "tesseract").chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    return program


Says = Callable[[str, int], None]


def test_says_when_it_is_not_sure(says: Says) -> None:
    says("Total 129.50", 54)
    assert body(answer(ocr, {}, context(("x.png", file(written(INVOICE)))))) == (
        "(low confidence, 54%: check names and numbers)\n\nTotal 129.50"
    )


def test_a_page_on_which_nothing_is_found_may_lie_in_a_shadow(says: Says, tmp_path: Path) -> None:
    says("In the shadow", 95)
    program = tmp_path / "tesseract"
    lit = 'case "$*" in *--list-langs* | *thresholding_method=2*) ;; *) exit ;; esac\n'
    program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{lit}"))
    assert body(answer(ocr, {}, context(("x.png", file(written(INVOICE)))))) == "In the shadow"


FRENCH = (
    "Le comité s'est réuni le trois mars pour discuter du budget\n"
    "de l'année à venir et les membres ont décidé d'élever\n"
    "la somme à condition que les reçus soient gardés pour un an"
)


def test_says_when_a_language_is_not_installed(says: Says) -> None:
    says(FRENCH, 95)
    ctx = context(("x.png", file(written(INVOICE))))
    assert body(answer(ocr, {}, ctx)) == (
        f"(this seems to be 'fr', whose accents may be wrong: the operator can install tesseract-ocr-fra)\n\n{FRENCH}"
    )
    assert body(answer(ocr, {"language": "en"}, ctx)) == FRENCH


def test_names_the_languages_that_there_are(says: Says) -> None:
    says("", 0)
    assert refusal(ocr, {"language": "fr"}, context(("x.png", file(written(INVOICE))))) == (
        "no installed OCR engine reads the language 'fr'; installed: de, en"
    )


NO_ENGINE = "no OCR engine is installed; the operator can pip install 'brain-sse[ocr]' or install Tesseract"


@pytest.mark.usefixtures("no_tesseract", "no_rapidocr")
def test_a_text_layer_needs_no_engine() -> None:
    registry = Registry()
    registry.add(ocr)
    assert registry.usable() == [ocr]
    ctx = context(("a.pdf", text_pdf("from the layer")))
    assert body(answer(ocr, {}, ctx)) == "from the layer"
    assert body(answer(ocr, {"language": "ru"}, ctx)) == "from the layer"


@pytest.mark.usefixtures("no_tesseract", "no_rapidocr")
@pytest.mark.parametrize(
    ("name", "data", "params"),
    [
        ("a.png", file(written("a")), {}),
        ("dot.png", file(Image.new("RGB", (3, 3))), {}),
        ("scan.pdf", file(written("a"), "PDF"), {}),
        ("layer.pdf", text_pdf("a"), {"enhance": True}),
    ],
)
def test_what_needs_an_engine_is_refused_with_the_remedy(name: str, data: bytes, params: dict[str, Any]) -> None:
    assert refusal(ocr, params, context((name, data))) == NO_ENGINE


@pytest.mark.usefixtures("no_tesseract", "no_rapidocr")
def test_only_the_pages_that_need_an_engine_say_so() -> None:
    assert body(answer(ocr, {}, context(("a.pdf", text_pdf("one", "", "three"))))) == (
        f"## Page 1 of 3\n\none\n\n## Page 2 of 3\n\n(not read: {NO_ENGINE})\n\n## Page 3 of 3\n\nthree"
    )


@pytest.mark.usefixtures("no_tesseract", "no_rapidocr")
def test_the_operator_is_told_that_there_is_no_engine() -> None:
    assert ocr.health is not None
    assert ocr.health() == NO_ENGINE


def test_with_an_engine_the_operator_is_told_nothing() -> None:
    assert ocr.health is not None
    assert ocr.health() is None


def test_a_text_cut_short_is_not_given_again_from_a_cache() -> None:
    assert ocr.cache_seconds == 0


@pytest.mark.usefixtures("no_tesseract")
@pytest.mark.parametrize("language", ["de", "DE-at", "deu"])
def test_a_language_is_named_by_either_code(language: str) -> None:
    assert body(answer(ocr, {"language": language}, context(("x.png", file(written("Guten Tag")))))) == "Guten Tag"


@pytest.mark.usefixtures("no_tesseract")
def test_refuses_a_language_that_no_engine_has() -> None:
    assert refusal(ocr, {"language": "ru"}, context(("x.png", file(written(INVOICE))))) == (
        "no installed OCR engine reads the language 'ru'; installed: ca, cs, da, de, en, es, et, fi, fr, hr, hu, id, "
        "is, it, ja, lt, lv, nl, no, pl, pt, ro, sk, sl, sv, tr, zh"
    )


def test_takes_the_text_layer_of_a_pdf() -> None:
    assert answer(ocr, {}, context(("document.pdf", text_pdf("Hello from the layer")))) == (
        "📄 OCR EXTRACTED TEXT from 'document.pdf'\nSource: the PDF's text layer.\n\nHello from the layer"
    )


def test_reads_the_picture_of_a_pdf_page_when_enhancing() -> None:
    text = answer(ocr, {"enhance": True}, context(("document.pdf", text_pdf("Hello from the picture"))))
    assert body(text) == "Hello from the picture"
    assert "text layer" not in text


def test_reads_scanned_pages_one_by_one() -> None:
    data = file(written(INVOICE), "PDF", save_all=True, append_images=[written("second")])
    text = answer(ocr, {}, context(("scan.pdf", data)))
    assert body(text) == f"## Page 1 of 2\n\n{INVOICE}\n\n## Page 2 of 2\n\nsecond"
    assert "(2 pages); mean confidence" in source(text)


def stamped(scan: Image.Image, text: str) -> bytes:
    """A PDF page with a scan on it, and a text over that."""
    pixels = scan.convert("L").tobytes().hex()
    picture = (
        f"<< /Type /XObject /Subtype /Image /Width {scan.width} /Height {scan.height} /ColorSpace /DeviceGray "
        f"/BitsPerComponent 8 /Filter /ASCIIHexDecode /Length {len(pixels) + 1} >>\nstream\n{pixels}>\nendstream"
    )
    drawing = f"q 400 0 0 100 0 0 cm /X0 Do Q BT /F1 6 Tf 5 5 Td ({text}) Tj ET"
    return make_pdf([drawing], "<< /Font << /F1 3 0 R >> /XObject << /X0 6 0 R >> >>", "", [picture])


def test_a_stamp_on_a_scan_is_not_all_its_text() -> None:
    text = body(answer(ocr, {}, context(("scan.pdf", stamped(written(INVOICE), "Filed by Ada")))))
    assert text.splitlines()[:2] == INVOICE.splitlines()


@pytest.mark.usefixtures("no_tesseract", "no_rapidocr")
def test_without_an_engine_a_stamp_is_better_than_nothing() -> None:
    ctx = context(("scan.pdf", stamped(written(INVOICE), "Filed by Ada")))
    assert body(answer(ocr, {}, ctx)) == "Filed by Ada"


def test_reads_one_page_of_several() -> None:
    text = answer(ocr, {"page": 2}, context(("a.pdf", text_pdf("one", "two", "three"))))
    assert text == "📄 OCR EXTRACTED TEXT from 'a.pdf'\nSource: the PDF's text layer.\n\n## Page 2 of 3\n\ntwo"


def test_reads_the_pages_of_a_tiff() -> None:
    data = file(written(INVOICE), "TIFF", save_all=True, append_images=[written("second")])
    assert (
        body(answer(ocr, {}, context(("a.tiff", data)))) == f"## Page 1 of 2\n\n{INVOICE}\n\n## Page 2 of 2\n\nsecond"
    )


@pytest.mark.parametrize(
    ("page", "read"),
    [
        ("2", "2"),
        ("2-3", "2 3"),
        ("1,3", "1 3"),
        (" 3 , 1 ", "3 1"),
        ("3-", "3 4"),
        ("2-9", "2 3 4"),
        ("1,1-2", "1 2"),
        ("2–3", "2 3"),
        ("all", "1 2 3 4"),
    ],
)
def test_reads_the_pages_that_are_named(page: str, read: str) -> None:
    text = answer(ocr, {"page": page}, context(("a.pdf", text_pdf("one", "two", "three", "four"))))
    assert " ".join(re.findall(r"^## Page (\d) of 4$", text, re.MULTILINE)) == read


@pytest.mark.parametrize("page", ["two", "", "1;2", "-2", "2-1-3", "1,,2", "5-2"])
def test_refuses_what_names_no_pages(page: str) -> None:
    assert refusal(ocr, {"page": page}, context(("a.pdf", text_pdf("a")))) == (
        f'page must be a number from 1, or a list such as "2-5,9"; {page!r} is neither'
    )


@pytest.mark.parametrize(
    ("params", "shown", "says"),
    [
        ({}, 94, 'ask again with page="1-4", offset=3'),
        ({}, 105, 'ask again with page="2-4"'),
        ({}, 120, 'ask again with page="2-4", offset=3'),
        ({"page": "2"}, 84, 'ask again with page="2", offset=3'),
        ({"page": "2", "offset": 3}, 84, 'ask again with page="2", offset=6'),
        ({"page": "1,3-4"}, 105, 'ask again with page="3-4"'),
        ({"image_id": 1, "language": "en"}, 94, 'ask again with image_id=1, language="en", page="1-4", offset=3'),
    ],
)
def test_says_how_to_get_what_was_cut_off(params: dict[str, Any], shown: int, says: str) -> None:
    found = outcome(ocr, params, context(("a.pdf", text_pdf("page one", "page two", "page three", "page four"))))
    assert isinstance(found, Answer)
    assert found.more is not None
    assert found.more(shown) == says


def test_goes_on_from_an_offset() -> None:
    ctx = context(("a.pdf", text_pdf("from the start", "next")))
    assert body(answer(ocr, {"offset": 9}, ctx)) == "## Page 1 of 2\n\nstart\n\n## Page 2 of 2\n\nnext"


def test_what_is_cut_off_goes_on_where_it_was_cut() -> None:
    ctx, params, told = context(("a.pdf", text_pdf("one two three", "four five six"))), dict[str, Any](), ""
    for _ in range(9):
        found = outcome(ocr, params, ctx)
        assert isinstance(found, Answer)
        assert found.more is not None
        shown = found.text.index("## Page") + 22
        told += re.sub(r"## Page . of 2\n\n", "", body(found.text[:shown])).replace("\n\n## ", " ")
        if shown >= len(found.text):
            break
        asked = re.fullmatch(r'ask again with page="([\d-]+)"(?:, offset=(\d+))?', found.more(shown))
        assert asked
        params = {"page": asked[1], "offset": int(asked[2] or 0)}
    assert told == "one two three four five six"


def test_a_layer_of_codes_without_letters_is_no_text() -> None:
    data = text_pdf("\\001\\003\\004 \\005\\006abc", "Plain text")
    assert images.Document(data, "a.pdf", True).texts([1, 2], stamps=False) == (2, ["", "Plain text"], None)


def test_a_hyphen_at_the_end_of_a_line_of_a_layer_stays() -> None:
    drawing = "BT /F1 12 Tf 14 TL 20 80 Td (some infor-) Tj T* (mation) Tj ET"
    data = make_pdf([drawing], "<< /Font << /F1 3 0 R >> >>", "")
    assert body(answer(ocr, {}, context(("a.pdf", data)))) == "some infor-\nmation"


def test_says_where_a_text_ends_that_is_asked_for_beyond_its_end() -> None:
    ctx = context(("a.pdf", text_pdf("short")))
    assert body(answer(ocr, {"offset": 9}, ctx)) == "(the text ends before offset 9; it has 5 characters)"


def test_a_page_that_was_just_read_is_not_read_again(says: Says) -> None:
    ctx = context(("scan.pdf", file(written(INVOICE), "PDF")))
    says("one", 95)
    assert body(answer(ocr, {}, ctx)) == "one"
    says("two", 95)
    assert body(answer(ocr, {"page": 1}, ctx)) == "one"
    assert body(answer(ocr, {"enhance": True}, ctx)) == "two"
    assert body(answer(ocr, {}, context(("scan.pdf", file(written("other"), "PDF"))))) == "two"


def test_what_was_read_long_ago_is_forgotten(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SECONDS", -1)
    ctx = context(("scan.pdf", file(written(INVOICE), "PDF")))
    for word in ("one", "two"):
        says(word, 95)
        assert body(answer(ocr, {}, ctx)) == word


@pytest.mark.parametrize(
    ("page", "data", "has"),
    [(3, text_pdf("a", "b"), "2 pages"), (0, text_pdf("a"), "1 page"), ("3-4,9", text_pdf("a"), "1 page")],
)
def test_refuses_a_page_that_is_not_there(page: int | str, data: bytes, has: str) -> None:
    assert refusal(ocr, {"page": page}, context(("a.pdf", data))) == f"'a.pdf' has no page {page}; it has {has}"


def test_reads_fifty_pages_and_says_so() -> None:
    text = answer(ocr, {}, context(("long.pdf", text_pdf(*(f"page number {n}" for n in range(1, 53))))))
    assert "page number 50" in text
    assert "page number 51" not in text
    assert source(text) == (
        'the PDF\'s text layer (50 pages). Only pages 1-50 of 52 were read; ask again with page="51-52" for the others.'
    )


def test_of_many_pages_that_are_named_the_rest_is_told() -> None:
    ctx = context(("long.pdf", text_pdf(*(f"page number {n}" for n in range(1, 61)))))
    assert source(answer(ocr, {"page": "1-3,5-60"}, ctx)) == (
        "the PDF's text layer (50 pages). "
        'Only pages 1-3,5-51 of 60 were read; ask again with page="52-60" for the others.'
    )


def test_gives_what_it_has_when_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specialists.ocr.SECONDS_ENOUGH", -1.0)
    text = answer(ocr, {}, context(("a.pdf", text_pdf("one", "two"))))
    assert source(text).endswith('Only page 1 of 2 was read; ask again with page="2" for the others.')


def test_a_bad_page_does_not_take_the_others_with_it() -> None:
    pages = [Image.new("RGB", (9, 9)), Image.new("RGB", (9, 9), "white")]
    data = bytearray(file(pages[0], "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw"))
    data[8:16] = b"\xff" * 8
    text = answer(ocr, {}, context(("a.tiff", bytes(data))))
    assert f"## Page 1 of 2\n\n(not read: 'a.tiff' {UNREADABLE})\n\n## Page 2 of 2\n\n(no text was found)" in text


@pytest.mark.parametrize("enhance", [False, True])
def test_a_bad_page_of_a_pdf_does_not_take_the_others_with_it(enhance: bool) -> None:
    data = text_pdf("one", "two").replace(b"[4 0 R 6 0 R]", b"[9 0 R 6 0 R]")
    assert body(answer(ocr, {"enhance": enhance}, context(("a.pdf", data)))) == (
        f"## Page 1 of 2\n\n(not read: 'a.pdf' {UNREADABLE})\n\n## Page 2 of 2\n\ntwo"
    )


@pytest.mark.parametrize("angle", [-11, -3, 2, 8])
def test_levels_a_leaning_page(angle: int) -> None:
    image = written("The quick brown fox\njumps over the lazy dog\nand runs away", (420, 160))
    leaning = image.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert turning.pose(leaning).lean == pytest.approx(-angle, abs=0.5)
    assert body(answer(ocr, {}, context(("x.png", file(leaning))))) == (
        "The quick brown fox\njumps over the lazy dog\nand runs away"
    )


@pytest.mark.tesseract
@pytest.mark.usefixtures("tesseract", "no_rapidocr")
@pytest.mark.parametrize("angle", [5, 90, 180])
def test_tesseract_reads_a_page_that_lies_wrong(angle: int) -> None:
    text = "\n".join(["The quick brown fox jumps over the lazy dog"] * 4)
    image = written(text, (700, 170)).rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert body(answer(ocr, {}, context(("x.png", file(image))))) == text


def test_enhancing_reads_through_specks() -> None:
    image = Image.new("L", (220, 44), 235)
    ImageDraw.Draw(image).text((10, 10), "Order 2024 paid", font=ImageFont.load_default(size=20), fill=150)
    dice = random.Random(3)
    for _ in range(900):
        image.putpixel((dice.randrange(220), dice.randrange(44)), dice.choice((0, 255)))
    files = ("x.png", file(image))
    assert "Order" not in body(answer(ocr, {}, context(files)))
    assert body(answer(ocr, {"enhance": True}, context(files))).replace(" ", "") == "Order2024paid"


def test_enhancing_leaves_large_pages_at_their_size() -> None:
    assert enhance_image(Image.new("RGB", (1200, 30))).size == (1200, 30)
    assert enhance_image(Image.new("RGB", (800, 30))).size == (1600, 60)


@pytest.mark.parametrize("size", [(1, 1), (3000, 2), (5, 3000), (3000, 12), (40, 40)])
def test_finds_nothing_where_nothing_is(size: tuple[int, int]) -> None:
    assert body(answer(ocr, {}, context(("x.png", file(Image.new("RGB", size, "white")))))) == "(no text was found)"


def test_reads_the_newest_and_names_the_others() -> None:
    files = (("old.pdf", text_pdf("old")), ("new.pdf", text_pdf("new")), ("notes.txt", b"no image"))
    assert answer(ocr, {}, context(*files)) == (
        "📄 OCR EXTRACTED TEXT from 'new.pdf'\n"
        "Source: the PDF's text layer. Also attached: image_id 1 'old.pdf'.\n\nnew"
    )
    assert answer(ocr, {"image_id": 1}, context(*files)) == (
        "📄 OCR EXTRACTED TEXT from 'old.pdf'\nSource: the PDF's text layer.\n\nold"
    )


def test_refuses_an_id_that_is_not_there() -> None:
    files = (("notes.txt", b"no image"), ("a.pdf", text_pdf("a")), ("b.png", file(written("b"))))
    assert refusal(ocr, {"image_id": 1}, context(*files)) == (
        "no image or PDF has the image_id 1; there are: 2 'a.pdf', 3 'b.png'"
    )


def test_refuses_when_nothing_is_attached() -> None:
    reason = "no image is attached to this conversation; ask the user to attach an image or a PDF"
    assert refusal(ocr, {}, context()) == reason
    assert refusal(ocr, {}, context(("notes.txt", b"no image"))) == reason


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.png", file(written(INVOICE))[:600]),
        ("text.png", b"just some text"),
        ("empty.png", b""),
        ("garbage.pdf", b"%PDF-1.7 and nothing more"),
        ("cut.pdf", text_pdf("a")[:150]),
        ("drawing.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("script.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        ("zero.png", png_header(0, 0)),
    ],
)
def test_refuses_what_cannot_be_read(name: str, data: bytes) -> None:
    assert refusal(ocr, {}, context((name, data))) == f"'{name}' {UNREADABLE}"


@pytest.mark.parametrize("side", [8_000, 10_000, 60_000])
def test_refuses_a_bomb_by_its_header(side: int) -> None:
    assert refusal(ocr, {}, context(("bomb.png", png_header(side, side)))) == (
        "'bomb.png' takes more than 150 MB to be opened; ask the user for a smaller copy"
    )


def test_opens_a_large_photo_whose_decoder_can_shrink_it() -> None:
    photo = Image.new("RGB", (8064, 6048), "white")
    ctx = context(("a.jpg", file(photo, "JPEG")), ("b.jpg", file(photo, "JPEG", progressive=True)))
    assert images.Document(ctx.attachments[0].data, "x", pdf=False).image(1).size == (4000, 3000)
    assert refusal(ocr, {}, ctx) == "'b.jpg' takes more than 150 MB to be opened; ask the user for a smaller copy"


def test_refuses_by_what_decoding_takes_and_not_by_pixels() -> None:
    grey, colour = (Image.new(mode, (6300, 6300)) for mode in ("1", "RGB"))
    ctx = context(("grey.png", file(grey)), ("colour.png", file(colour)))
    assert images.Document(ctx.attachments[0].data, "x", pdf=False).image(1).size == (4000, 4000)
    assert refusal(ocr, {}, ctx) == "'colour.png' takes more than 150 MB to be opened; ask the user for a smaller copy"


def test_refuses_an_encrypted_pdf() -> None:
    assert refusal(ocr, {}, context(("secret.pdf", text_pdf("a", encrypted=True)))) == (
        "'secret.pdf' is encrypted; ask the user for a copy without a password"
    )


def test_a_pdf_that_takes_for_ever_is_given_up_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    files = (("next.pdf", text_pdf("next")), ("hostile.pdf", nested_pdf(12)))
    late = "'hostile.pdf' takes too long to be read; ask the user for a simpler or smaller copy, or for single pages"
    with monkeypatch.context() as hurried:
        hurried.setattr(reader, "PDF_SECONDS", 0.5)
        assert refusal(ocr, {}, context(*files)) == late
        assert refusal(ocr, {"enhance": True}, context(*files)) == late
    assert body(answer(ocr, {"image_id": 1}, context(*files))) == "next"


@pytest.mark.alone
def test_what_comes_before_the_page_that_takes_for_ever_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PDF_SECONDS", 1.0)  # enough for two pages, and too little to take all memory
    text = answer(ocr, {}, context(("hostile.pdf", nested_pdf(12, "one", "two"))))
    assert body(text) == (
        "## Page 1 of 3\n\none\n\n## Page 2 of 3\n\ntwo\n\n## Page 3 of 3\n\n"
        "(not read: 'hostile.pdf' takes too long to be read; "
        "ask the user for a simpler or smaller copy, or for single pages)"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is not limited")
def test_what_comes_before_the_page_that_takes_all_memory_is_read() -> None:
    text = answer(ocr, {}, context(("hostile.pdf", nested_pdf(9, "one", "two"))))
    assert body(text) == (
        f"## Page 1 of 3\n\none\n\n## Page 2 of 3\n\ntwo\n\n## Page 3 of 3\n\n(not read: 'hostile.pdf' {UNREADABLE})"
    )


def test_the_text_of_a_pdf_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_TEXT", 5)
    told: list[Any] = []
    pdf.answer(["text", 1, 2, 3], text_pdf("one page", "another"), told.append)
    assert told == [
        2,
        {"text": "one p", "pieces": [], "scanned": False},
        {"text": "anoth", "pieces": [], "scanned": False},
    ]


def test_a_page_of_any_size_becomes_a_picture_of_bounded_size() -> None:
    data = text_pdf("a").replace(b"[0 0 400 100]", b"[0 0 9999 999]")
    size, pixels = pdf.answer(["image", 1], data, lambda step: None)
    assert (size["width"], size["height"]) == (4000, 400)
    assert len(pixels) == size["height"] * size["stride"]


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
def test_shows_names_without_folders_in_one_line(name: str, shown: str) -> None:
    assert answer(ocr, {}, context((name, text_pdf("a")))).startswith(f"📄 OCR EXTRACTED TEXT from '{shown}'\n")


@pytest.mark.parametrize("params", [{"page": 1.5}, {"image_id": 1.5}, {"enhance": 1}, {"scale": 2}])
def test_wrong_parameters_are_not_run(params: dict[str, Any]) -> None:
    found = outcome(ocr, params, context(("a.pdf", text_pdf("a"))))
    assert isinstance(found, Failure)
    assert found.code == "invalid_params"


def test_says_of_itself_what_routing_and_people_need() -> None:
    assert ocr.activates_on == {"image", "pdf"}
    assert ocr.read_only
    assert len(ocr.examples) == 11
    assert all(parameter["description"] for parameter in ocr.parameters["properties"].values())


def test_importing_the_specialists_loads_nothing_heavy() -> None:
    code = "import sys, specialists.ocr, specialists.vision, specialists.docs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"PIL", "numpy", "zxingcpp", "pypdfium2", "rapidocr", "onnxruntime", "cv2", "sqlite3"}
    assert heavy.isdisjoint(done.stdout.split())
