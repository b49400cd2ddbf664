"""Open untrusted images and PDFs in a child process. PDFium runs in another process, which can be killed.

Functions return upright RGB images with a visible text background, or raise `Unreadable`.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from specialists._kit.child import Message
from specialists._kit.isolated import Ended, Limits, OutOfTime, messages
from specialists._pictures.layout import RULE, Piece, join_pieces, lay_out

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "AVIF")
MAX_DECODED_BYTES = 150_000_000
"""An A4 page at 600 dpi in colour takes 140 million bytes."""
MAX_SIDE = 4000
PDF_SECONDS = 15.0
"""CPU time limit for opening a PDF and extracting its text, or for rendering a page, in seconds."""
GARBLED = 0.1
"""Share of unmapped characters above which a text layer is ignored."""
_LIGHT = 170

Region = Sequence[float] | None
"""Left, top, right and bottom of a part of an image, from 0 to 1; None for the whole image."""


Reason = tuple[str, str]
"""The arguments of `Refused`: a reason for people, and advice for the model."""


class Unreadable(Exception):
    """A file or page cannot be read; the arguments are those of `Refused`."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason, advice)


@dataclass
class Document:
    """A file as pages, counted from 1. All methods raise `Unreadable` if the file cannot be read.

    Attributes:
        added: what forms and notes add to the page that `image` returned last.
    """

    data: bytes
    name: str
    pdf: bool
    seconds: float = PDF_SECONDS

    def __post_init__(self) -> None:
        self._problem: Reason | None = None
        self.added: list[str] = []

    def count(self) -> int:
        """Return the number of pages; an animation counts as one page."""
        if self.pdf:
            return self._of_pdf("text")[0]
        with self.open() as image:
            return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1

    def texts(self, pages: Sequence[int], *, stamps: bool) -> tuple[int, list[str | None], Reason | None]:
        """Extract the text layers of a PDF.

        Args:
            stamps: whether to accept a line of text on a scan, or garbled text, as a layer.

        Returns:
            The page count, the layers that were extracted in time (None for a damaged page), and why others are
            missing.
        """
        count, rest = self._of_pdf("text", *pages)
        texts = [build_text_layer(page, stamps=stamps) for page, _ in rest]
        missing = len(texts) < sum(1 <= page <= count for page in pages)
        return count, texts, (self._problem or unreadable_reason(self.name)) if missing else None

    def image(self, page: int, region: Region = None) -> "Image":
        """Return the page, or a region of it, as an upright RGB image."""
        from PIL import Image

        if not self.pdf:
            with self.open(page) as image:
                return to_upright(image, region)
        _, rest = self._of_pdf("image", page)
        if self._problem or not rest:
            raise Unreadable(*(self._problem or unreadable_reason(self.name)))
        size, pixels = rest[0]
        self.added = size["added"]
        drawn = Image.frombytes("RGB", (size["width"], size["height"]), bytes(pixels), "raw", "RGB", size["stride"])
        return crop_region(drawn, region)

    def check(self, page: int, count: int) -> None:
        """Raise `Unreadable` if the page does not exist."""
        if not 1 <= page <= count:
            raise Unreadable(*missing_page_reason(self.name, page, count))

    @contextmanager
    def open(self, page: int = 1) -> Iterator["Image"]:
        """Open an image and read only its header. Call `to_upright` inside the block to decode it."""
        from PIL import Image

        with _translate_errors(self.name), Image.open(BytesIO(self.data), formats=FORMATS) as image:
            if page > 1:
                image.seek(page - 1)
            yield image

    def _of_pdf(self, kind: str, *numbers: int) -> tuple[int, list[Message]]:
        """Return the page count and the messages about the pages `numbers`."""
        answers = list[Message]()
        try:
            for message in messages("_pictures.pdf", [kind, *numbers], self.data, Limits(self.seconds)):
                answers.append(message)
        except OutOfTime:
            self._problem = too_slow_reason(self.name)
        except Ended:
            self._problem = unreadable_reason(self.name)
        count = answers[0][0] if answers else None
        if count == "encrypted":
            raise Unreadable(f"'{self.name}' is encrypted", "ask the user for a copy without a password")
        if not isinstance(count, int):
            raise Unreadable(*(self._problem or unreadable_reason(self.name)))
        return count, [message for message in answers[1:] if message[0] != "end"]


def read_layers(
    data: bytes, *, name: str, pdf: bool, pages: Sequence[int], stamps: bool, pdf_seconds: float
) -> tuple[dict[str, Any], bytes]:
    """Return the page count of a file, the text layers of a PDF, and a digest."""
    document = Document(data, name, pdf, pdf_seconds)
    count, texts, late = document.texts(pages, stamps=stamps) if pdf else (document.count(), [], None)
    return {"count": count, "texts": texts, "late": late, "digest": hashlib.blake2b(data).hexdigest()}, b""


def to_upright(image: "Image", region: Region = None) -> "Image":
    """Return an upright RGB copy with up to `MAX_SIDE` pixels per side. This also shrinks the image itself.

    A region is cropped at full size if the decoded image fits into `MAX_DECODED_BYTES`.

    Raises:
        DecompressionBombError: if decoding takes too much memory.
    """
    from PIL import Image, ImageOps

    if region and _count_decoded_bytes(image) <= MAX_DECODED_BYTES:
        image = crop_region(ImageOps.exif_transpose(image), region)
        region = None
    shrink = min(1.0, MAX_SIDE / max(image.size))
    if not image.info.get("progressive"):  # a progressive JPEG is decoded at full size anyway
        image.draft("RGB", (max(1, int(image.width * shrink)), max(1, int(image.height * shrink))))
    if _count_decoded_bytes(image) > MAX_DECODED_BYTES:
        raise Image.DecompressionBombError
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return crop_region(_remove_transparency(_convert_to_8_bits(ImageOps.exif_transpose(image))), region)


def crop_region(image: "Image", region: Region) -> "Image":
    """Return a part of an image; it has at least one pixel."""
    if not region:
        return image
    left, top = int(region[0] * image.width), int(region[1] * image.height)
    right, bottom = round(region[2] * image.width), round(region[3] * image.height)
    left, top = min(left, image.width - 1), min(top, image.height - 1)
    return image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))


def encode(image: "Image") -> bytes:
    """Return the pixels as PNG, without camera metadata and location."""
    out = BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _count_decoded_bytes(image: "Image") -> int:
    """Return the size of a decoded image: four bytes per pixel for several or wide bands in Pillow, else two."""
    return image.width * image.height * (4 if len(image.getbands()) > 1 or image.mode in ("I", "F") else 2)


def _convert_to_8_bits(image: "Image") -> "Image":
    """Scale deep images to 8 bits per channel; Pillow's own conversion would clip them to white."""
    if not image.mode.startswith(("I", "F")):
        return image
    low, high = (0, 65535) if image.mode.startswith("I;16") else image.getextrema()
    wide = image.convert("F")
    scale = 255 / ((high - low) or 1)  # type: ignore[operator]
    return wide.point(lambda value: value * scale - low * scale).convert("L")  # type: ignore[operator]


def _remove_transparency(image: "Image") -> "Image":
    """Return an image without transparency: on black if its visible part is nearly white, else on white."""
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
def _translate_errors(name: str) -> Iterator[None]:
    """Turn decoder errors into `Unreadable`; hostile bytes can raise any exception."""
    from PIL import Image

    try:
        yield
    except Unreadable:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        megabytes = MAX_DECODED_BYTES // 1_000_000
        reason = f"opening '{name}' needs more than {megabytes} MB of memory"
        raise Unreadable(reason, "ask the user for a smaller copy") from error
    except Exception as error:
        raise Unreadable(*unreadable_reason(name)) from error


def build_text_layer(page: dict[str, Any] | None, *, stamps: bool) -> str | None:
    """Return the text of a page in file order, or laid out if it has a table, and what forms and notes add to it.

    Returns:
        None for a damaged page; an empty text for one that only OCR can read.
    """
    if page is None:
        return None
    if not stamps and (not page["text"].strip() or page["scanned"] or _is_garbled(page["text"])):
        return ""
    laid = lay_out(join_pieces([Piece(run[0].strip(), *run[1:]) for run in page["pieces"]]))
    text = laid if RULE in laid else "\n".join(line.rstrip() for line in page["text"].splitlines()).strip()
    return join_added(text, page["added"])


def join_added(text: str, added: Sequence[str]) -> str:
    """Return the text of a page, followed by what forms and notes add to it."""
    return "\n\n".join(filter(None, [text, "\n".join(added)]))


def _is_garbled(text: str) -> bool:
    """Return whether the text has character codes that only the fonts of the file can map to letters."""
    codes = sum(c == "\ufffd" or unicodedata.category(c) in ("Cn", "Co", "Cc") for c in text if not c.isspace())
    return codes > GARBLED * len(text)


def unreadable_reason(name: str) -> Reason:
    """Return the reason for a damaged file, and advice."""
    formats = ", ".join(FORMATS)
    return f"'{name}' cannot be read: it is damaged, or not one of {formats} or PDF", "ask the user for another copy"


def too_slow_reason(name: str) -> Reason:
    """Return the reason for a file that needs too much CPU time, and advice."""
    return f"reading '{name}' takes too long", "ask the user for a simpler or smaller copy, or read single pages"


def missing_page_reason(name: str, page: int | str, count: int) -> Reason:
    """Return the reason for a page that does not exist, and advice."""
    pages = "1 page" if count == 1 else f"{count} pages"
    return f"'{name}' has no page {page}, only {pages}", f"use a page from 1 to {count}"
