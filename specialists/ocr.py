"""`ocr`: extract the text of attached images, scans and PDFs, page by page."""

import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from brain import AssistContext, Context, Progress, Refused, Result, install_command, specialist
from specialists._kit.examples import read_examples
from specialists._pictures import reader
from specialists._pictures.attachments import display_name, find_attachment, find_page, pick_attachment
from specialists._pictures.images import missing_page_reason

MAX_PAGES = 50
"""Maximum number of pages per call."""
MAX_PAGE_NUMBERS = 2000
TEXT_ENOUGH = 60_000
"""Number of characters after which reading stops; a result block shows 8,000 of them."""
SECONDS_ENOUGH = 90.0
"""Reading time in seconds after which reading stops, unless the call names pages."""
UNSURE = 0.8
RESERVED_SECONDS = 0.5
"""Time reserved for returning the result, in seconds."""
PROGRESS_SECONDS = 5.0
"""Time between two progress messages."""
_ENHANCE = re.compile(r"\b(?:enhance|faint|blurry|verblasst|unscharf|flou|borroso)\b", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,6})(?:\s*(-)\s*(\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of one page and its source; `confidence` is None for a text layer."""

    page: int
    text: str
    source: str
    confidence: float | None = None
    note: str = ""


def health() -> str | None:
    """Return the install command if no OCR engine is installed, else None."""
    problem = reader.find_problem()
    return f"{problem}: {install_command('ocr')}, or install Tesseract" if problem else None


def make_params(message: str, context: AssistContext) -> Mapping[str, object]:
    """Return the parameters of an assisted call."""
    found = {"image_id": find_attachment(message, context.attachments), "page": find_page(message)}
    enhance = {"enhance": True} if _ENHANCE.search(message) else {}
    return enhance | {name: value for name, value in found.items() if value is not None}


@specialist(
    activates_on=("image", "pdf"),
    read_only=True,
    private=True,
    timeout=300,
    idle_timeout=60,
    health=health,
    lifespan=reader.lifespan,
    assist=make_params,
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
        *read_examples("ocr"),
    ),
)
async def ocr(
    enhance: Annotated[
        bool,
        Meta(description="For faint, noisy or small text; reads a PDF page as an image even if it has a text layer."),
    ] = False,
    language: Annotated[
        str, Meta(description="Language of the text: auto, two letters such as de, or a Tesseract code.", max_length=40)
    ] = "auto",
    image_id: Annotated[
        int | None,
        Meta(description="Number of the attachment in the conversation, from 1 (default: the newest).", examples=[1]),
    ] = None,
    page: Annotated[int | str | None, Meta(description='Pages of a PDF or TIFF, such as 3 or "2-5,9".')] = None,
    offset: Annotated[int, Meta(description="Number of characters to skip, to continue a truncated result.", ge=0)] = 0,
    *,
    context: Context,
) -> AsyncGenerator[Progress | Result, None]:
    """Extract the text of an attached image, scan or PDF, word for word; tables as Markdown.

    Without `image_id`, read the newest attached image or PDF, and list the others.
    """
    attachment = pick_attachment(context, image_id)
    document = _Document(attachment.data, display_name(attachment.name), language, enhance, context)
    requested = parse_pages(page) or range(1, MAX_PAGE_NUMBERS + 1)
    found = await reader.open_pages(
        document.data,
        name=document.name,
        numbers=() if enhance else requested[:MAX_PAGES],
        seconds=context.seconds_left - RESERVED_SECONDS,
    )
    existing = [number for number in requested if 1 <= number <= found.count]
    selected = existing[:MAX_PAGES]
    if not selected:
        raise Refused(*missing_page_reason(document.name, str(page), found.count))
    pages: list[PageText] = []
    for done, number in enumerate(selected):
        is_enough = sum(len(one.text) for one in pages) > TEXT_ENOUGH
        if pages and (is_enough or document.is_too_slow(is_requested=page is not None)):
            break
        yield Progress(f"reading page {number} of {found.count}", done / len(selected))
        try:
            async with aclosing(document.read_page(number, found)) as steps:
                async for step in steps:
                    if isinstance(step, str):
                        yield Progress(step, done / len(selected))
                    else:
                        pages.append(step)
        except Refused as refusal:
            if len(selected) == 1:
                raise
            pages.append(PageText(number, f"(not read: {refusal.reason})", ""))
    same = f"image_id={image_id}, " if image_id is not None else ""
    same += f'language="{language}", ' if language != "auto" else ""
    same += "enhance=true, " if enhance else ""
    notes = [_describe_source(pages)]
    if unread := existing[len(pages) :]:
        read = format_pages([one.page for one in pages])
        notes.append(f"Pages read: {read} of {found.count}. For the others, {_format_advice(same, unread)}.")
    others = [a for a in context.attachments if a.kind in ("image", "pdf") and a.id != attachment.id]
    if image_id is None and others:
        listed = ", ".join(f"image_id {a.id} '{display_name(a.name)}'" for a in others)
        notes.append(f"Also attached: {listed}.")
    yield _build_result(document.name, " ".join(notes), pages, found.count, offset, same)


@dataclass(slots=True)
class _Document:
    """One file, and how to read its pages."""

    data: bytes
    name: str
    language: str
    enhance: bool
    context: Context
    slowest_seconds: float = 0.0
    total_seconds: float = 0.0

    def is_too_slow(self, *, is_requested: bool) -> bool:
        """Return whether there is no time for another page."""
        return self.context.seconds_left < 2 * self.slowest_seconds or (
            self.total_seconds > SECONDS_ENOUGH and not is_requested
        )

    async def read_page(self, number: int, found: reader.Pages) -> AsyncGenerator[str | PageText, None]:
        """Yield progress messages while waiting, then the page.

        Raises:
            Refused: if the page cannot be read.
        """
        if layer := found.text_layer(number):
            yield PageText(number, layer, "the PDF's text layer")
            return
        key = (found.digest, number, self.language, self.enhance, reader.find_engines())
        reading = reader.cached_reading(key)
        if reading is None:
            async with reader.queue_page(
                self.data, name=self.name, page=number, language=self.language, enhance=self.enhance, region=None
            ) as job:
                while not await job.has_started(min(PROGRESS_SECONDS, self.context.seconds_left)):
                    if self.context.seconds_left < PROGRESS_SECONDS:
                        raise Refused(*reader.BUSY)
                    yield f"page {number} is waiting for the OCR engine"
                started = time.monotonic()
                while not await job.has_ended(min(PROGRESS_SECONDS, self.context.seconds_left - RESERVED_SECONDS)):
                    if self.context.seconds_left < PROGRESS_SECONDS:
                        break
                    yield f"reading page {number} for {time.monotonic() - started:.0f} s"
                reading = await reader.receive_reading(job, self.name, self.context.seconds_left - RESERVED_SECONDS)
            seconds = time.monotonic() - started
            self.slowest_seconds, self.total_seconds = max(self.slowest_seconds, seconds), self.total_seconds + seconds
            reader.cache_reading(key, reading)
        yield PageText(number, reading.text, reading.engine, reading.confidence, reading.note)


def parse_pages(page: int | str | None) -> list[int]:
    """Return the pages in `3` or `"2-5,9"`, in this order and without duplicates; none for None or `all`.

    Raises:
        Refused: if the text has another form.
    """
    if page is None or page == "all":
        return []
    requested: dict[int, None] = {}
    for part in str(page).replace("–", "-").split(",")[:MAX_PAGE_NUMBERS]:
        found = _RANGE.fullmatch(part.strip())
        if not found or (found[3] and int(found[3]) < int(found[1])):
            raise Refused(f"page {str(page)[:40]!r} is neither a number nor a list", 'write pages as 3 or "2-5,9"')
        first, most = int(found[1]), MAX_PAGE_NUMBERS - len(requested)
        last = int(found[3]) if found[3] else first + most if found[2] else first
        requested.update(dict.fromkeys(range(first, min(last + 1, first + most))))
    return list(requested)


def format_pages(pages: Sequence[int]) -> str:
    """Return pages in the form that `parse_pages` reads: `2-5,9`."""
    parts: list[list[int]] = []
    for page in pages:
        if parts and page == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], page]
        else:
            parts.append([page])
    return ",".join("-".join(map(str, part)) for part in parts)


def _build_result(name: str, notes: str, pages: Sequence[PageText], count: int, offset: int, same: str) -> Result:
    """Build the result. The source comes first, so truncation does not remove it.

    Args:
        same: parameters that a call for the rest must repeat.
    """
    text = f"📄 OCR EXTRACTED TEXT from '{name}'\n{notes}"
    places = []
    for page in pages:
        is_sure = page.confidence is None or page.confidence >= UNSURE or not page.text
        doubts = ["" if is_sure else f"low confidence, {page.confidence:.0%}: check names and numbers", page.note]
        caveat = "; ".join(doubt for doubt in doubts if doubt)
        text += "\n\n" + (f"## Page {page.page} of {count}\n\n" if count > 1 else "")
        text += f"({caveat})\n\n" if caveat else ""
        start, skipped = len(text), offset if page is pages[0] else 0
        if page.text and skipped >= len(page.text):
            text += f"(the text has {len(page.text)} characters, fewer than offset {skipped})"
        else:
            text += page.text[skipped:] or "(no text was found)"
        places.append((start, len(text)))

    def more(shown: int) -> str:
        cut = min(sum(end <= shown for _, end in places), len(places) - 1)
        skipped = max(0, shown - places[cut][0]) + (0 if cut else offset)
        return _format_advice(same, [page.page for page in pages[cut:]]) + (f", offset={skipped}" if skipped else "")

    return Result(text, data={"pages": list(pages), "page_count": count}, more=more)


def _format_advice(same: str, pages: Sequence[int]) -> str:
    return f'call again with {same}page="{format_pages(pages)}"'


def _describe_source(pages: Sequence[PageText]) -> str:
    sources = Counter(page.source for page in pages if page.source)
    single = len(pages) == 1
    named = ", ".join(source if single else f"{source} (pages: {count})" for source, count in sources.items())
    sure = [page.confidence for page in pages if page.confidence is not None and page.text]
    return f"Source: {named or 'none'}" + (f"; mean confidence {sum(sure) / len(sure):.0%}." if sure else ".")
