"""`ocr`, the text in attached images, scans and PDFs, page by page."""

import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from brain import Attachment, Context, Progress, Refused, Result, specialist
from specialists._pictures import reader
from specialists._pictures.attachments import display_name, pick_attachment
from specialists._pictures.reader import cache_reading, cached_reading
from specialists._pictures.result import Reading

MAX_PAGES = 50
"""In one call."""
PAGES_NAMED = 2000
TEXT_ENOUGH = 60_000
"""Characters after which no further page is begun; a block shows 8,000 of them."""
SECONDS_ENOUGH = 90.0
"""Of reading, after which no further page is begun that nobody asked for by its number."""
TEXT_LAYER = "the PDF's text layer"
UNSURE = 0.8
ANSWERING_SECONDS = 0.5
"""Before the call is given up, for what was read to be given."""
TOLD_SECONDS = 5.0
"""Between two words about a wait."""
_RANGE = re.compile(r"(\d{1,6})(?:\s*(-)\s*(\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of one page and where it comes from; `confidence` is None for what was not recognised but given."""

    page: int
    text: str
    source: str
    confidence: float | None = None
    note: str = ""


@specialist(
    activates_on=("image", "pdf"),
    read_only=True,
    private=True,
    timeout=300,
    idle_timeout=60,
    health=reader.missing,
    lifespan=reader.lifespan,
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
async def ocr(
    enhance: Annotated[
        bool,
        Meta(description="For faint, noisy or small text; reads a PDF page as a picture even if it has a text layer."),
    ] = False,
    language: Annotated[
        str, Meta(description="Of the text: auto, two letters such as de, or a Tesseract code.", max_length=40)
    ] = "auto",
    image_id: Annotated[
        int | None,
        Meta(description="Which attachment, counted from 1 through the conversation; else the newest.", examples=[1]),
    ] = None,
    page: Annotated[int | str | None, Meta(description='Of a PDF or TIFF, such as 3 or "2-5,9"; else all.')] = None,
    offset: Annotated[int, Meta(description="Characters to skip, when a cut result says so.", ge=0)] = 0,
    *,
    context: Context,
) -> AsyncGenerator[Progress | Result, None]:
    """Extracts the text of an attached image, scan or PDF, word for word; tables as Markdown.

    Reads the newest attached image or PDF unless `image_id` names another, and then says which others there are.
    """
    attachment = pick_attachment(context, image_id)
    scan = _Scan(attachment.data, display_name(attachment.name), language, enhance, context)
    requested = parse_pages(page) or range(1, PAGES_NAMED + 1)
    seconds = context.seconds_left - ANSWERING_SECONDS
    layer_pages = () if enhance else requested[:MAX_PAGES]
    found = await reader.pages(scan.data, name=scan.name, wanted=layer_pages, seconds=seconds)
    existing = [number for number in requested if 1 <= number <= found.count]
    selected = existing[:MAX_PAGES]
    if not selected:
        raise Refused(f"'{scan.name}' has no page {page}; it has {_pages(found.count)}")
    pages: list[PageText] = []
    for done, number in enumerate(selected):
        if pages and (
            scan.is_too_slow(is_requested=page is not None) or sum(len(one.text) for one in pages) > TEXT_ENOUGH
        ):
            break
        yield Progress(f"reading page {number} of {found.count}", done / len(selected))
        async with aclosing(scan.page(number, found, is_only_page=len(selected) == 1)) as steps:
            async for step in steps:
                if isinstance(step, Progress):
                    yield Progress(step.text, done / len(selected))
                else:
                    pages.append(step)
    parameters = _same_parameters(image_id, language, enhance=enhance)
    unread = _unread_note(pages, existing[len(pages) :], found.count, parameters)
    notes = [_source(pages), *unread, *_other_attachments(context, attachment, image_id)]
    yield _result(scan.name, " ".join(notes), pages, found.count, offset, parameters)


@dataclass(slots=True)
class _Scan:
    """One file, and how its pages are to be read."""

    data: bytes
    name: str
    language: str
    enhance: bool
    context: Context
    slowest_seconds: float = 0.0
    total_seconds: float = 0.0

    def is_too_slow(self, *, is_requested: bool) -> bool:
        """Whether another page would take too long, or the ones before have."""
        return self.context.seconds_left < 2 * self.slowest_seconds or (
            self.total_seconds > SECONDS_ENOUGH and not is_requested
        )

    async def page(
        self, number: int, found: reader.Pages, *, is_only_page: bool
    ) -> AsyncGenerator[Progress | PageText, None]:
        """One page, after words about a wait; one that cannot be read is said to be so when there are others."""
        try:
            if layer := found.layer(number):
                yield PageText(number, layer, TEXT_LAYER)
                return
            key = (found.digest, number, self.language, self.enhance, reader.engines())
            if reading := cached_reading(key):
                yield _recognise(number, reading)
                return
            async with aclosing(self._recognise(number, key)) as steps:
                async for step in steps:
                    yield step
        except Refused as refusal:
            if is_only_page:
                raise
            yield PageText(number, f"(not read: {refusal.reason})", "")

    async def _recognise(self, number: int, key: Hashable) -> AsyncGenerator[Progress | PageText, None]:
        async with reader.reading(
            self.data, name=self.name, page=number, language=self.language, enhance=self.enhance, region=None
        ) as job:
            while not await job.has_started(min(TOLD_SECONDS, self.context.seconds_left)):
                if self.context.seconds_left < TOLD_SECONDS:
                    raise Refused(reader.BUSY)
                yield Progress(f"page {number} waits for the OCR engine, which reads other documents")
            started = time.monotonic()
            while not await job.has_ended(min(TOLD_SECONDS, self.context.seconds_left - ANSWERING_SECONDS)):
                if self.context.seconds_left < TOLD_SECONDS:
                    break
                yield Progress(f"page {number} is being read, for {time.monotonic() - started:.0f} s now")
            reading = await reader.read(job, self.name, self.context.seconds_left - ANSWERING_SECONDS)
        seconds = time.monotonic() - started
        self.slowest_seconds, self.total_seconds = max(self.slowest_seconds, seconds), self.total_seconds + seconds
        cache_reading(key, reading)
        yield _recognise(number, reading)


def _recognise(number: int, reading: Reading) -> PageText:
    return PageText(number, reading.text, reading.engine, reading.confidence, reading.note)


def parse_pages(page: int | str | None) -> list[int]:
    """The pages in `3` or `"2-5,9"`, in this order and each once, no more than `PAGES_NAMED`; none for None or `all`.

    Raises:
        Refused: for anything else.
    """
    if page is None or page == "all":
        return []
    requested: dict[int, None] = {}
    for part in str(page).replace("–", "-").split(",")[:PAGES_NAMED]:
        found = _RANGE.fullmatch(part.strip())
        if not found or (found[3] and int(found[3]) < int(found[1])):
            raise Refused(f'page must be a number from 1, or a list such as "2-5,9"; {str(page)[:40]!r} is neither')
        first, most = int(found[1]), PAGES_NAMED - len(requested)
        last = int(found[3]) if found[3] else first + most if found[2] else first
        requested.update(dict.fromkeys(range(first, min(last + 1, first + most))))
    return list(requested)


def format_pages(pages: Sequence[int]) -> str:
    """Pages as `pages_asked` reads them: `2-5,9`."""
    parts: list[list[int]] = []
    for page in pages:
        if parts and page == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], page]
        else:
            parts.append([page])
    return ",".join("-".join(map(str, part)) for part in parts)


def _result(name: str, notes: str, pages: Sequence[PageText], count: int, offset: int, parameters: str) -> Result:
    """The source stands first, so that a cut does not lose it."""
    text = f"📄 OCR EXTRACTED TEXT from '{name}'\n{notes}"
    places = []
    for page in pages:
        heading = f"## Page {page.page} of {count}\n\n" if count > 1 else ""
        text += f"\n\n{heading}{_caveat(page)}"
        start = len(text)
        text += _text_from(page.text, offset if page is pages[0] else 0)
        places.append((start, len(text)))
    numbers = [page.page for page in pages]
    return Result(
        text,
        data={"pages": list(pages), "page_count": count},
        more=lambda display_name: _advice_for_rest(display_name, numbers, places, offset, parameters),
    )


def _text_from(text: str, offset: int) -> str:
    if text and offset >= len(text):
        return f"(the text ends before offset {offset}; it has {len(text)} characters)"
    return text[offset:] or "(no text was found)"


def _advice_for_rest(
    display_name: int, numbers: Sequence[int], places: Sequence[tuple[int, int]], offset: int, parameters: str
) -> str:
    """What to ask for when so many characters were shown of pages that stand in these places."""
    cut = min(sum(end <= display_name for _, end in places), len(places) - 1)
    skipped = max(0, display_name - places[cut][0]) + (0 if cut else offset)
    return _repeat_advice(numbers[cut:], parameters) + (f", offset={skipped}" if skipped else "")


def _repeat_advice(pages: Sequence[int], parameters: str) -> str:
    return f'ask again with {parameters}page="{format_pages(pages)}"'


def _caveat(page: PageText) -> str:
    """What the reader should know before the text of a page."""
    sure = page.confidence is None or page.confidence >= UNSURE or not page.text
    doubts = ["" if sure else f"low confidence, {page.confidence:.0%}: check names and numbers", page.note]
    caveat = "; ".join(doubt for doubt in doubts if doubt)
    return f"({caveat})\n\n" if caveat else ""


def _source(pages: Sequence[PageText]) -> str:
    sources = Counter(page.source for page in pages if page.source)
    single = len(pages) == 1
    named = ", ".join(source if single else f"{source} ({_pages(number)})" for source, number in sources.items())
    sure = [page.confidence for page in pages if page.confidence is not None and page.text]
    return f"Source: {named or 'none'}" + (f"; mean confidence {sum(sure) / len(sure):.0%}." if sure else ".")


def _same_parameters(image_id: int | None, language: str, *, enhance: bool) -> str:
    """What must not change for the rest of a text to follow on its beginning."""
    named = f"image_id={image_id}, " if image_id is not None else ""
    spoken = f'language="{language}", ' if language != "auto" else ""
    return named + spoken + ("enhance=true, " if enhance else "")


def _unread_note(pages: Sequence[PageText], unread: Sequence[int], count: int, parameters: str) -> list[str]:
    """What to ask for to get the pages that were not read."""
    if not unread:
        return []
    read = format_pages([page.page for page in pages])
    which = f"page {read} of {count} was" if len(pages) == 1 else f"pages {read} of {count} were"
    return [f"Only {which} read; {_repeat_advice(unread, parameters)} for the others."]


def _other_attachments(context: Context, chosen: Attachment, image_id: int | None) -> list[str]:
    others = [a for a in context.attachments if a.kind in ("image", "pdf") and a.id != chosen.id]
    if image_id is not None or not others:
        return []
    return ["Also attached: " + ", ".join(f"image_id {a.id} '{display_name(a.name)}'" for a in others) + "."]


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"
