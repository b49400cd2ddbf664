"""Built in: opens attached images and PDFs. The bytes are a stranger's: every decoder here is fenced in, PDFium in a
process of its own.

What comes out is an upright RGB image on a ground its text can be seen on, or a `Refused` that names the file.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING

from brain import Attachment, Context, Refused
from specialists import _pdf_page

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP")
DECODED_BYTES_MOST = 150_000_000
"""A page of A4 at 600 dpi in colour takes 140 million."""
SIDE_MOST = 4000
PDF_SECONDS = 15.0
WAITING_SECONDS = 20.0
"""For a place to open a file at."""
_NAME_LENGTH = 80
_LIGHT = 170

_pdf_places = threading.BoundedSemaphore(2)
_image_places = threading.BoundedSemaphore(1)  # one takes up to three times DECODED_BYTES_MOST until it is small


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


class Document:
    """An attachment as pages, counted from 1. Everything raises `Refused` for a file that cannot be read.

    Args:
        first: the page from which text layers are read.
        most: how many of them.
    """

    def __init__(self, attachment: Attachment, first: int = 1, most: int = 0) -> None:
        self.attachment = attachment
        self.name = shown(attachment.name)
        self._first = first
        self._most = most
        self._given_up: str | None = None

    def count(self) -> int:
        """How many pages there are; an animation is one page."""
        if self.attachment.kind == "pdf":
            return self._layer[0]
        with opened(self.attachment) as image:
            return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1

    def text(self, page: int) -> str:
        """The text layer of a PDF page, empty when it has none."""
        if self.attachment.kind != "pdf" or not self._most:
            return ""
        texts = self._layer[1]
        if page - self._first >= len(texts):
            raise Refused(self._given_up or _unreadable(self.name))
        text = texts[page - self._first]
        if text is None:
            raise Refused(_unreadable(self.name))
        return "\n".join(line.rstrip() for line in text.splitlines()).strip()

    def image(self, page: int) -> "Image":
        """The page as an upright RGB image."""
        if self.attachment.kind == "pdf":
            return self._rendered(page)
        with opened(self.attachment, page) as image:
            return upright(image)

    @cached_property
    def _layer(self) -> tuple[int, list[str | None]]:
        """The number of pages, and the text of those that were read in time."""
        pages, rest = self._of_pdf("text", self._first, self._most)
        return pages, [json.loads(line) for line in rest.split(b"\n")[:-1]]

    def _rendered(self, page: int) -> "Image":
        from PIL import Image

        _, rest = self._of_pdf("image", page)
        if self._given_up:
            raise Refused(self._given_up)
        head, _, pixels = rest.partition(b"\n")
        if not pixels:
            raise Refused(_unreadable(self.name))
        width, height, stride = json.loads(head)
        return Image.frombytes("RGB", (width, height), pixels, "raw", "RGB", stride)

    def _of_pdf(self, wanted: str, *numbers: int) -> tuple[int, bytes]:
        """The number of pages, and what else the child process said until it was done or killed.

        A PDF that once took too long or broke it is not tried again.
        """
        if self._given_up:
            raise Refused(self._given_up)
        command = [sys.executable, "-P", _pdf_page.__file__, wanted, *map(str, numbers)]
        with _place(_pdf_places, self.name):
            try:
                done = subprocess.run(
                    command, input=self.attachment.data, capture_output=True, timeout=PDF_SECONDS, check=True
                )
                said = done.stdout
            except subprocess.TimeoutExpired as expired:
                said, self._given_up = expired.stdout or b"", _late(self.name)
            except subprocess.CalledProcessError as error:
                said, self._given_up = error.stdout, _unreadable(self.name)
        first, end, rest = said.partition(b"\n")
        if not end:
            raise Refused(self._given_up or _unreadable(self.name))
        pages = json.loads(first)
        if pages == "encrypted":
            raise Refused(f"'{self.name}' is encrypted; ask the user for a copy without a password")
        return pages, rest


@contextmanager
def opened(attachment: Attachment, page: int = 1) -> Iterator["Image"]:
    """An image of which only the header is read. `upright`, inside the block, decodes it."""
    from PIL import Image

    name = shown(attachment.name)
    with (
        _place(_image_places, name),
        _refusing(name),
        Image.open(BytesIO(attachment.data), formats=FORMATS) as image,
    ):
        if page > 1:
            image.seek(page - 1)
        yield image


def upright(image: "Image") -> "Image":
    """An RGB copy, turned as its camera was held, at most `SIDE_MOST` pixels a side; the image itself shrinks too.

    Raises:
        DecompressionBombError: when decoding it takes too much memory.
    """
    from PIL import Image, ImageOps

    shrink = min(1.0, SIDE_MOST / max(image.size))
    if not image.info.get("progressive"):  # of which the JPEG decoder must keep all, whatever it shrinks
        image.draft("RGB", (max(1, int(image.width * shrink)), max(1, int(image.height * shrink))))
    if image.width * image.height * _pixel_bytes(image) > DECODED_BYTES_MOST:
        raise Image.DecompressionBombError
    image.thumbnail((SIDE_MOST, SIDE_MOST))
    return _opaque(_eight_bit(ImageOps.exif_transpose(image)))


def encoded(image: "Image") -> bytes:
    """The pixels as PNG and nothing else: what the camera noted, its position above all, stays behind."""
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _pixel_bytes(image: "Image") -> int:
    """What Pillow keeps for a pixel: four bytes for several bands and for wide ones, at most two otherwise."""
    return 4 if len(image.getbands()) > 1 or image.mode in ("I", "F") else 2


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
def _place(places: threading.BoundedSemaphore, name: str) -> Iterator[None]:
    if not places.acquire(timeout=WAITING_SECONDS):
        raise Refused(f"'{name}' could not be read in time: other files are being opened; ask again in a minute")
    try:
        yield
    finally:
        places.release()


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
        raise Refused(_unreadable(name)) from error


def _unreadable(name: str) -> str:
    return f"'{name}' cannot be read: it is damaged, or none of {', '.join(FORMATS)} and PDF"


def _late(name: str) -> str:
    return f"'{name}' could not be read in time; ask the user for a simpler copy, such as a scan"


def _too_large(name: str) -> str:
    return (
        f"'{name}' takes more than {DECODED_BYTES_MOST // 1_000_000} MB to be opened; ask the user for a smaller copy"
    )
