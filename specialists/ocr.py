"""Built in: `ocr`, the text in attached images, scans and PDFs, page by page."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from brain import Attachment, Context, Progress, Refused, Result, specialist
from specialists import _reading
from specialists._images import Document, picked, shown

if TYPE_CHECKING:
    from PIL.Image import Image

PAGES_MOST = 50
TEXT_LAYER = "the PDF's text layer"
_SMALL = 1000


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of one page and where it comes from; `confidence` is None for what was not recognised but given."""

    page: int
    text: str
    source: str
    confidence: float | None = None


@specialist(
    activates_on=("image", "pdf"),
    read_only=True,
    timeout=120,
    idle_timeout=60,
    health=_reading.missing,
    tags=("image", "pdf", "text", "documents"),
    examples=(
        "what does the scan say",
        "extract the text from this document",
        "read the receipt and tell me the total",
        "transcribe the letter in the photo",
        "what is written in the screenshot",
        "summarise the attached PDF",
        "which invoice number is on this page",
        "read page 3 of the contract",
        "I cannot make out the text in this picture, can you",
        "copy the table out of the image",
        "was steht auf dem Bild",
    ),
)
def ocr(
    enhance: Annotated[
        bool,
        Meta(
            description="Improve the picture first: for faint, noisy or small text. "
            "Reads a PDF page as a picture even if it has a text layer."
        ),
    ] = False,
    language: Annotated[
        str, Meta(description="Language of the text: two letters, such as en, or a Tesseract code.")
    ] = "en",
    image_id: Annotated[
        int | None,
        Meta(description="Which attachment to read, counted from 1 through the conversation; else the newest."),
    ] = None,
    page: Annotated[
        int | None, Meta(description="Only this page of a PDF or multi-page TIFF, from 1; else all of them.")
    ] = None,
    *,
    context: Context,
) -> Iterator[Progress | Result]:
    """Extracts the text of an attached image, scan or PDF, word for word.

    Reads the newest attached image or PDF unless `image_id` names another, and then says which others there are.
    """
    attachment = picked(context, image_id)
    document = Document(attachment, max(1, page or 1), 0 if enhance else 1 if page else PAGES_MOST)
    count = document.count()
    wanted = _wanted(document.name, count, page)
    pages: list[PageText] = []
    slowest = 0.0
    for number in wanted:
        if pages and context.seconds_left < 2 * slowest:
            break
        yield Progress(f"reading page {number} of {count}", (number - wanted[0]) / len(wanted))
        started = time.monotonic()
        pages.append(_page(document, number, language, enhance, context.seconds_left, alone=len(wanted) == 1))
        slowest = max(slowest, time.monotonic() - started)
    notes = [_source(pages), *_left_out(pages, count, page), *_others(context, attachment, image_id)]
    text = f"📄 OCR EXTRACTED TEXT from '{document.name}'\n\n{_body(pages, count)}\n\n{' '.join(notes)}"
    yield Result(text, data={"pages": pages, "page_count": count})


def _wanted(name: str, count: int, page: int | None) -> Sequence[int]:
    if page is None:
        return range(1, min(count, PAGES_MOST) + 1)
    if not 1 <= page <= count:
        raise Refused(f"'{name}' has no page {page}; it has {_pages(count)}")
    return (page,)


def _page(document: Document, number: int, language: str, enhance: bool, seconds: float, *, alone: bool) -> PageText:
    """One page; one that cannot be read is said to be so when there are others."""
    try:
        text = document.text(number)
        if text:
            return PageText(number, text, TEXT_LAYER)
        image = document.image(number)
        reading = _reading.read(enhanced(image) if enhance else image, language, seconds)
    except Refused as refusal:
        if alone:
            raise
        return PageText(number, f"(not read: {refusal.reason})", "")
    return PageText(number, reading.text, reading.engine, reading.confidence)


def enhanced(image: "Image") -> "Image":
    """Grey, of full contrast, without specks, sharper, and twice the size if small."""
    from PIL import ImageFilter, ImageOps
    from PIL.Image import Resampling

    grey = ImageOps.autocontrast(_without_specks(ImageOps.grayscale(image)), cutoff=1)
    if max(grey.size) < _SMALL:
        grey = grey.resize((grey.width * 2, grey.height * 2), Resampling.LANCZOS)
    return grey.filter(ImageFilter.UnsharpMask(radius=2, percent=120, threshold=3))


def _without_specks(grey: "Image") -> "Image":
    """No pixel darker or lighter than all around it; unlike a median, this spares strokes one pixel wide."""
    from PIL import ImageChops, ImageFilter

    second_darkest, second_lightest = (grey.filter(ImageFilter.RankFilter(3, rank)) for rank in (1, 7))
    return ImageChops.darker(ImageChops.lighter(grey, second_darkest), second_lightest)


def _body(pages: Sequence[PageText], count: int) -> str:
    if count == 1:
        return pages[0].text or "(no text was found)"
    return "\n\n".join(f"## Page {page.page} of {count}\n\n{page.text or '(no text was found)'}" for page in pages)


def _source(pages: Sequence[PageText]) -> str:
    sources = Counter(page.source for page in pages if page.source)
    single = len(pages) == 1
    named = ", ".join(source if single else f"{source} ({_pages(number)})" for source, number in sources.items())
    sure = [page.confidence for page in pages if page.confidence is not None and page.text]
    return f"Source: {named or 'none'}" + (f"; mean confidence {sum(sure) / len(sure):.0%}." if sure else ".")


def _left_out(pages: Sequence[PageText], count: int, page: int | None) -> list[str]:
    """What to ask for to get the pages that were not read."""
    last = pages[-1].page
    if page is not None or last == count:
        return []
    return [f"Only pages 1 to {last} of {count} were read; ask for page={last + 1} and so on for the others."]


def _others(context: Context, chosen: Attachment, image_id: int | None) -> list[str]:
    others = [a for a in context.attachments if a.kind in ("image", "pdf") and a.id != chosen.id]
    if image_id is not None or not others:
        return []
    return ["Also attached: " + ", ".join(f"image_id {a.id} '{shown(a.name)}'" for a in others) + "."]


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"
