"""`vision`: descriptions by a vision model, and measurements without one."""

import asyncio
import sys
from io import BytesIO
from typing import Any

import numpy
import pytest
import zxingcpp
from PIL import Image, ImageDraw, ImageFilter, ImageOps
from specialist_calls import INVOICE, FakeModel, answer, context, file, refusal, text_pdf, written

from brain import Progress, Refused
from specialists._kit.isolated import IsolatedProcess, Limits
from specialists.vision import ONLY_FACTS, build_question, health, parse_focus, vision

QR, EAN, CODE_128, MATRIX = (
    getattr(zxingcpp.BarcodeFormat, kind) for kind in ("QRCode", "EAN13", "Code128", "DataMatrix")
)
NUMBER = "4006381333931"


def flag() -> Image.Image:
    """Half red, 30 % white, 20 % dark blue."""
    image = Image.new("RGB", (200, 100), (220, 20, 20))
    ImageDraw.Draw(image).rectangle((100, 0, 199, 59), fill="white")
    ImageDraw.Draw(image).rectangle((100, 60, 199, 99), fill=(0, 0, 110))
    return image


def grain() -> Image.Image:
    """Return noise, which looks like a photo to the classifier."""
    return Image.effect_noise((300, 200), 60).convert("RGB")


def code(text: str, kind: zxingcpp.BarcodeFormat) -> Image.Image:
    image = Image.fromarray(numpy.asarray(zxingcpp.create_barcode(text, kind).to_image(scale=4)))
    ground = Image.new("L", (image.width + 60, image.height + 60), 255)
    ground.paste(image, (30, 30))
    return ground


def place(size: tuple[int, int], *pictures: tuple[Image.Image, tuple[int, int]]) -> Image.Image:
    """Paste images on a white background."""
    ground = Image.new("RGB", size, "white")
    for picture, corner in pictures:
        ground.paste(picture, corner)
    return ground


def photo_exif(orientation: int = 6) -> Image.Exif:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Canon", "EOS R6", orientation
    exif[0x8769] = {
        0x9003: "2024:05:17 10:30:00", 0xA434: "RF 35mm", 0x829A: 0.004, 0x829D: 2.8, 0x8827: 400, 0x920A: 35.0,
    }  # fmt: skip
    exif[0x8825] = {1: "N", 2: (48.0, 51.0, 24.0), 3: "E", 4: (2.0, 21.0, 3.0)}
    return exif


def look(image: Image.Image | bytes, name: str = "x.png", *, model: FakeModel | None = None, **params: Any) -> str:
    data = image if isinstance(image, bytes) else file(image)
    return answer(vision, params, context((name, data), model=model))


# Measurements without a model


def test_measures_when_no_model_sees() -> None:
    assert look(flag(), "diagram.png") == (
        "👁️ VISUAL ANALYSIS from 'diagram.png'\n\n"
        "File: PNG, 200 × 100 pixels, mode RGB\n"
        "Kind: drawing or diagram (a guess)\n"
        "Dominant colours: red #dc1414 50%, white #ffffff 30%, dark blue #00006e 20%\n"
        "Brightness: 47% (medium)\n"
        "Sharpness: 282, the variance of the Laplacian (sharp)\n"
        "Codes: none found\n"
        "Text: none found\n"
        f"\n{ONLY_FACTS}"
    )


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (grain(), "photo"),
        (flag(), "drawing or diagram"),
        (written(INVOICE), "screenshot or document"),
        (flag().resize((1, 100)), "drawing or diagram"),
        (Image.new("RGB", (1, 1)), "one plain colour"),
        (Image.new("L", (50, 50), 99), "one plain colour"),
    ],
)
def test_guesses_the_kind(image: Image.Image, kind: str) -> None:
    assert f"\nKind: {kind} (a guess)\n" in look(image)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("#808080", "grey"), ("#070307", "black"), ("#4e7c40", "green"), ("#00006e", "dark blue"),
        ("#add8e6", "light blue"), ("#ff8c00", "orange"), ("#8b4513", "brown"), ("#ffe0bd", "beige"),
        ("#ffc0cb", "pink"), ("#dc1440", "red"),
    ],
)  # fmt: skip
def test_names_colours(code: str, name: str) -> None:
    assert f"\nDominant colours: {name} {code} 100%\n" in look(Image.new("RGB", (9, 9), code))


def test_a_blurred_image_is_less_sharp() -> None:
    text = look(flag().filter(ImageFilter.GaussianBlur(6)))
    assert "the variance of the Laplacian (blurred or without detail)" in text


def test_lists_camera_metadata_without_location() -> None:
    text = look(file(grain(), "JPEG", exif=photo_exif()))
    assert (
        "Taken: 2024:05:17 10:30:00\nCamera: Canon EOS R6\nLens: RF 35mm\nExposure: 1/250 s, f/2.8, ISO 400, 35 mm\n"
        "Position: removed\n"
    ) in text
    assert "48" not in text.partition("Position")[2]
    text = look(file(Image.new("RGB", (4200, 30)), exif=photo_exif()))
    assert "\nFile: PNG, 30 × 4200 pixels, mode RGB\n" in text
    assert "\nCamera: Canon EOS R6\n" in text


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_ignores_invalid_camera_metadata() -> None:
    exif = Image.Exif()
    exif[0x010F] = "a\nb" + "c" * 200
    exif[0x8769] = {0x829A: float("nan"), 0x829D: -1.0, 0x920A: 0.0, 0x8827: 0}
    text = look(file(flag(), "JPEG", exif=exif))
    assert f"\nCamera: a b{'c' * 76}…\n" in text
    assert "Exposure" not in text
    text = look(file(flag(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff"))
    assert "\nFile: JPEG, 200 × 100 pixels, mode RGB\n" in text


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (file(flag().convert("CMYK"), "JPEG"), "JPEG, 200 × 100 pixels, mode CMYK"),
        (file(Image.new("I;16", (20, 10), 65535)), "PNG, 20 × 10 pixels, mode I;16"),
        (file(flag().convert("RGBA").quantize(4)), "PNG, 200 × 100 pixels, mode P"),
        (file(Image.new("RGBA", (20, 20), (0, 0, 0, 0))), "PNG, 20 × 20 pixels, mode RGBA"),
        (
            file(flag(), "GIF", save_all=True, append_images=[grain(), flag()]),
            "GIF, 200 × 100 pixels, mode P, the first of 3 frames",
        ),
        *(
            (file(flag(), "JPEG", exif=photo_exif(orientation)), f"JPEG, {size} pixels, mode RGB")
            for orientation, size in ((1, "200 × 100"), (3, "200 × 100"), (5, "100 × 200"), (8, "100 × 200"))
        ),
    ],
)
def test_the_line_about_the_file(data: bytes, line: str) -> None:
    assert f"\nFile: {line}\n" in look(data)


def test_reads_text_if_there_is_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"%):\n{INVOICE}\n\n{ONLY_FACTS}" in look(written(INVOICE))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    assert "\nText: not read (" in look(flag())


# Codes


BLURRED = place((500, 500), (code(NUMBER, EAN), (20, 50))).convert("L").rotate(7, fillcolor=255)
SEVERAL = place(
    (1200, 1200),
    (code("one", QR).rotate(30, expand=True, fillcolor=255), (0, 0)),
    (code(NUMBER, EAN).rotate(90, expand=True), (900, 500)),
    (code("three", MATRIX).filter(ImageFilter.GaussianBlur(1.5)), (500, 1000)),
)


@pytest.mark.parametrize(
    ("image", "lines"),
    [
        (code("https://example.org/a?b=c", QR), ["QR Code at the center: https://example.org/a?b=c"]),
        (code(NUMBER, EAN), [f"EAN-13 at the center: {NUMBER}"]),
        (code("two\nlines", QR), ["QR Code at the center: two lines"]),
        (code("x" * 400, QR), [f"QR Code at the center: {'x' * 299}…"]),
        (ImageOps.invert(code("SHIP-000123", CODE_128)), ["Code 128 at the center: SHIP-000123"]),
        (BLURRED.filter(ImageFilter.GaussianBlur(2.5)), [f"EAN-13 at the center: {NUMBER}"]),
        (
            SEVERAL,
            ["QR Code at the top left: one", f"EAN-13 at the right: {NUMBER}", "Data Matrix at the bottom: three"],
        ),
        *(
            (
                place((1300, 1000), (code(NUMBER, EAN).rotate(angle, expand=True, fillcolor=255), (800, 0))),
                [f"EAN-13 at the top right: {NUMBER}"],
            )
            for angle in (45, 120)
        ),
    ],
    ids=["QR", "EAN", "lines", "long", "white on black", "blurred", "several", "leaning", "leaning more"],
)
def test_reads_codes_with_positions(image: Image.Image, lines: list[str]) -> None:
    text = look(image, model=FakeModel(says="Codes."))
    assert text.startswith("👁️ VISUAL ANALYSIS from 'x.png'\n\nCodes.\n\nFile: PNG, ")
    assert text.splitlines()[5:] == lines


def test_counts_further_codes() -> None:
    codes = [code(f"code {n}", QR).resize((100, 100)) for n in range(12)]
    image = place((600, 400), *((one, (n % 5 * 110, n // 5 * 120)) for n, one in enumerate(codes)))
    text = look(image)
    assert text.count("QR Code at the ") == 10
    assert "\nCodes: 2 more " in text


# With a vision model


@pytest.mark.parametrize(
    ("focus", "subject"),
    [
        ("technical_diagrams", "technical_diagrams"),
        (" : ", "content_description"),
        ("Text", "text"),
        (" the dog's collar ", "the dog's collar"),
    ],
)
def test_the_model_describes_the_image(focus: str, subject: str) -> None:
    model, progress = FakeModel(says="Two services and a queue."), list[Progress]()
    text = answer(vision, {"focus": focus}, context(("diagram.png", file(flag())), model=model), progress)
    assert text == (
        "👁️ VISUAL ANALYSIS from 'diagram.png'\n\nTwo services and a queue.\n\nFile: PNG, 200 × 100 pixels, mode RGB"
    )
    assert model.shown[0][1] == build_question(subject)
    assert len(progress) == 1


@pytest.mark.parametrize("focus", ["content_description", "0,0,100,99"])
def test_the_model_gets_a_small_upright_copy_without_metadata(focus: str) -> None:
    model = FakeModel(says=" ")
    data = file(Image.new("RGB", (3136, 1000), "green"), "JPEG", exif=photo_exif())
    assert "\n\nThe model gave no description.\n\n" in look(data, model=model, focus=focus)
    shown = model.shown[0][0]
    with Image.open(BytesIO(shown)) as image:
        assert image.format == "PNG"
        assert max(image.size) <= 1568
        assert image.height > image.width
        assert not image.getexif()
    assert not any(word in shown for word in (b"Canon", b"GPS", b"Exif"))


def test_a_part_is_sent_at_full_size() -> None:
    model = FakeModel(says="A label.")
    image = place((4800, 3600), (Image.new("RGB", (2400, 1800), "red"), (2400, 1800)))
    text = look(file(image, "JPEG"), model=model, focus="60,60,80,90: the label")
    assert "\nFile: JPEG, 4800 × 3600 pixels, mode RGB; inspected: 60% to 80% across, 60% to 90% down" in text
    ((shown, question),) = model.shown
    assert "the label" in question
    with Image.open(BytesIO(shown)) as part:
        assert part.size == (960, 1080)
        assert part.convert("RGB").resize((1, 1)).getpixel((0, 0)) == (254, 0, 0)


# Parts, pages and several images


@pytest.mark.parametrize(
    ("focus", "subject", "region"),
    [
        ("top left", "content_description", (0.0, 0.0, 0.5, 0.5)),
        ("Bottom-right: the signature", "the signature", (0.5, 0.5, 1.0, 1.0)),
        ("text, upper right corner", "text", (0.5, 0.0, 1.0, 0.5)),
        ("the left half", "content_description", (0.0, 0.0, 0.5, 1.0)),
        ("bottom: data", "data", (0.0, 0.5, 1.0, 1.0)),
        ("center", "content_description", (0.25, 0.25, 0.75, 0.75)),
        ("10,20,50,60", "content_description", (0.1, 0.2, 0.5, 0.6)),
        ("10%, 20%, 50%, 60%: text", "text", (0.1, 0.2, 0.5, 0.6)),
        ("0 0 12.5 100", "content_description", (0.0, 0.0, 0.125, 1.0)),
        ("the man on the left", "the man on the left", None),
        ("dogs, cats", "dogs, cats", None),
        ("half", "half", None),
        ("", "content_description", None),
        (", left", ", left", None),
    ],
)
def test_the_focus_may_name_a_part(focus: str, subject: str, region: tuple[float, ...] | None) -> None:
    assert parse_focus(focus) == (subject, region)


@pytest.mark.parametrize("part", ["150,20,10,5", "0,0,0,0", "50 50 40 60", "0,0,100,101"])
def test_refuses_impossible_parts(part: str) -> None:
    assert repr(part) in refusal(vision, {"focus": f"{part}: text"}, context(("a.png", file(flag()))))


def test_without_a_model_a_part_is_measured_and_read() -> None:
    image = place((800, 400), (written("upper"), (0, 0)), (written("lower"), (0, 250)))
    text = look(image, focus="bottom")
    assert "inspected: 0% to 100% across, 50% to 100% down\n" in text
    assert "%):\nlower\n\nThese" in text


def test_pages() -> None:
    data = text_pdf("one", "two")
    text = look(data, "a.pdf")
    assert text.startswith("👁️ VISUAL ANALYSIS from 'a.pdf'\n\nFile: PDF, page 1 of 2\nKind: screenshot or document ")
    assert "\nText of the file:\none\n" in text  # recognising it would take seconds
    text = look(data, "a.pdf", page=2, focus="left")
    assert "\nFile: PDF, page 2 of 2; inspected: 0% to 50% across, 0% to 100% down\n" in text
    assert "%):\ntwo\n" in text


def test_looks_at_several_images() -> None:
    files = (("a.png", file(flag())), ("b.txt", b"text"), ("c.png", file(grain())[:600]), ("d.png", file(grain())))
    text = answer(vision, {"image_id": [1, 3, 4, 1]}, context(*files, model=FakeModel(says="Seen.")))
    first, broken, last = text.split("\n\n👁️ ")
    assert first.startswith("👁️ VISUAL ANALYSIS from 'a.png', image_id 1\n\nSeen.\n\n")
    assert broken.startswith("VISUAL ANALYSIS from 'c.png', image_id 3\n\n(not inspected: 'c.png' cannot be read: ")
    assert last.startswith("VISUAL ANALYSIS from 'd.png', image_id 4\n\nSeen.\n\n")
    assert answer(vision, {}, context(*files)).startswith("👁️ VISUAL ANALYSIS from 'd.png'\n")
    assert "image_id 2" in refusal(vision, {"image_id": [1, 2]}, context(*files))


@pytest.mark.parametrize(
    ("data", "page", "reason"),
    [
        (file(grain())[:600], 1, "damaged"),
        (text_pdf("a", encrypted=True), 1, "encrypted"),
        (text_pdf("one", "two"), 3, "no page 3, only 2 pages"),
        (file(flag()), 2, "no page 2, only 1 page"),
    ],
)
@pytest.mark.parametrize("says", [None, "Something."])
def test_refuses_unreadable_files(data: bytes, page: int, reason: str, says: str | None) -> None:
    model = FakeModel(says=says)
    assert reason in refusal(vision, {"page": page}, context(("a", data), model=model))
    assert not model.shown


def test_health_checks_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(health())
    broken = IsolatedProcess("_pictures.no_such_program", Limits())
    monkeypatch.setattr("specialists._pictures.reader.file_process", broken)
    with pytest.raises(Refused):
        asyncio.run(health())
