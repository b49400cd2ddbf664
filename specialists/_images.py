"""Built in: opens attached images and PDFs. The bytes are a stranger's: every decoder here is fenced in.

What comes out is an upright RGB image on a ground its text can be seen on, or a `Refused` that names the file.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from brain import Attachment, Context, Refused

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP")
PIXELS_MOST = 50_000_000
SIDE_MOST = 4000
PDF_DPI = 150
_POINTS_PER_INCH = 72
_RENDERED_PIXELS_MOST = 12_000_000
_NAME_LENGTH = 80
_LIGHT = 170

_pdfium = threading.Lock()  # PDFium is not safe in threads, not even with one document each


def picked(context: Context, image_id: int | None) -> Attachment:
    """The image or PDF with this id, or the newest one.

    Raises:
        Refused: when there is none, naming those that there are.
    """
    pictures = {attachment.id: attachment for attachment in context.attachments if attachment.kind in ("image", "pdf")}
    if not pictures:
        raise Refused("no image is attached to this conversation; ask the user to attach an image or a PDF")
    chosen = max(pictures) if image_id is None else image_id
    if chosen not in pictures:
        there = ", ".join(f"{number} '{shown(attachment.name)}'" for number, attachment in sorted(pictures.items()))
        raise Refused(f"no image or PDF has the image_id {chosen}; there are: {there}")
    return pictures[chosen]


def shown(name: str) -> str:
    """A file's name as it may stand in a text: no folders, one line, cut to size."""
    last = re.split(r"[\\/]", name)[-1]
    line = " ".join("".join(c if c.isprintable() else " " for c in last).split())
    return (line if len(line) <= _NAME_LENGTH else line[: _NAME_LENGTH - 1] + "…") or "unnamed"


@dataclass(frozen=True, slots=True)
class Document:
    """An attachment as pages, counted from 1. Everything raises `Refused` for a file that cannot be read."""

    attachment: Attachment

    @property
    def name(self) -> str:
        return shown(self.attachment.name)

    def count(self) -> int:
        """How many pages there are; an animation is one page."""
        if self.attachment.kind == "pdf":
            with _pdf(self.attachment) as pdf:
                return len(pdf)
        with opened(self.attachment) as image:
            return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1

    def text(self, page: int) -> str:
        """The text layer of a PDF page, empty when it has none."""
        if self.attachment.kind != "pdf":
            return ""
        with _pdf(self.attachment) as pdf:
            text = str(pdf[page - 1].get_textpage().get_text_bounded())
        return "\n".join(line.rstrip() for line in text.splitlines()).strip()

    def image(self, page: int) -> "Image":
        """The page as an upright RGB image."""
        if self.attachment.kind == "pdf":
            with _pdf(self.attachment) as pdf:
                return _rendered(pdf[page - 1])
        with opened(self.attachment, page) as image:
            return upright(image)


@contextmanager
def opened(attachment: Attachment, page: int = 1) -> Iterator["Image"]:
    """An image whose header is read and found fit for decoding, which happens inside the block."""
    from PIL import Image

    name = shown(attachment.name)
    with _refusing(name), Image.open(BytesIO(attachment.data), formats=FORMATS) as image:
        if page > 1:
            image.seek(page - 1)
        if image.width * image.height > PIXELS_MOST:
            raise Refused(_too_large(name))
        yield image


def upright(image: "Image") -> "Image":
    """An RGB copy, turned as its camera was held, at most `SIDE_MOST` pixels a side."""
    from PIL import ImageOps

    image.draft("RGB", (SIDE_MOST, SIDE_MOST))  # lets the JPEG decoder shrink while it reads
    turned = ImageOps.exif_transpose(image)
    turned.thumbnail((SIDE_MOST, SIDE_MOST))
    return _opaque(_eight_bit(turned))


def encoded(image: "Image") -> bytes:
    """The pixels as PNG and nothing else: what the camera noted, its position above all, stays behind."""
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _eight_bit(image: "Image") -> "Image":
    """Deep images scaled to 8 bits a channel, which Pillow's own conversion would clip to white."""
    if not image.mode.startswith(("I", "F")):
        return image
    low, high = (0, 65535) if image.mode.startswith("I;16") else image.getextrema()
    wide = image.convert("F")
    scale = 255 / ((high - low) or 1)  # type: ignore[operator]
    return wide.point(lambda value: value * scale - low * scale).convert("L")  # type: ignore[operator]


def _opaque(image: "Image") -> "Image":
    """On white; on black when what can be seen is itself nearly white."""
    from PIL import Image, ImageStat

    if not image.has_transparency_data:
        return image.convert("RGB")
    layers = image.convert("RGBA")
    alpha = layers.getchannel("A")
    seen = ImageStat.Stat(layers.convert("L"), mask=alpha)
    light = bool(seen.count[0]) and seen.mean[0] > _LIGHT
    ground = Image.new("RGB", layers.size, "black" if light else "white")
    ground.paste(layers, mask=alpha)
    return ground


@contextmanager
def _pdf(attachment: Attachment) -> Iterator[Any]:
    import pypdfium2

    name = shown(attachment.name)
    with _pdfium, _refusing(name):
        try:
            pdf = pypdfium2.PdfDocument(attachment.data)
        except pypdfium2.PdfiumError as error:
            if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
                raise Refused(f"'{name}' is encrypted; ask the user for a copy without a password") from error
            raise
        try:
            yield pdf
        finally:
            pdf.close()


def _rendered(page: Any) -> "Image":
    width, height = page.get_size()
    fitting = (_RENDERED_PIXELS_MOST / max(width * height, 1)) ** 0.5
    bitmap = page.render(scale=min(PDF_DPI / _POINTS_PER_INCH, fitting, SIDE_MOST / max(width, height, 1)))
    image: Image = bitmap.to_pil().convert("RGB").copy()  # its own memory: the bitmap's goes now
    bitmap.close()
    return image


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turns whatever a decoder stumbles over into a refusal; hostile bytes make them raise nearly anything."""
    from PIL import Image

    try:
        yield
    except Refused:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Refused(_too_large(name)) from error
    except Exception as error:
        formats = ", ".join(FORMATS)
        raise Refused(f"'{name}' cannot be read: it is damaged, or none of {formats} and PDF") from error


def _too_large(name: str) -> str:
    return f"'{name}' has more than {PIXELS_MOST // 1_000_000} million pixels; ask the user for a smaller copy"
