"""Pages that were read a moment ago, for a call that asks for more of the same document."""

import importlib.util
import shutil
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from brain import Refused
from specialists._kit.child import MEMORY_MOST, Message
from specialists._kit.isolated import Ended, IsolatedProcess, Job, Limits, OutOfTime
from specialists._pictures.images import PDF_SECONDS, Region, too_slow_reason, unreadable_reason
from specialists._pictures.result import Engines, Reading

SECONDS = 600.0
MAX_PAGES = 200

_pages: OrderedDict[Hashable, tuple[float, Reading]] = OrderedDict()
"""By what was read and how, with the time until which it is kept; the oldest first."""


def cached_reading(key: Hashable) -> Reading | None:
    """What was read, if it is not long ago."""
    expires, reading = _pages.get(key, (0.0, None))
    return reading if time.monotonic() < expires else None


def cache_reading(key: Hashable, reading: Reading) -> None:
    """Keeps it for `SECONDS`, unless `PAGES_MOST` others follow."""
    _pages.pop(key, None)
    _pages[key] = (time.monotonic() + SECONDS, reading)
    _evict()


def _evict() -> None:
    now = time.monotonic()
    while _pages and (len(_pages) > MAX_PAGES or next(iter(_pages.values()))[0] < now):
        _pages.popitem(last=False)


MISSING = "no OCR engine is installed; the operator can pip install 'brain-sse[ocr]' or install Tesseract"
PAGE_SECONDS = 50
"""Of CPU time for one page, besides that of Tesseract."""
TESSERACT_SECONDS = 30.0
"""Of CPU time for one page."""
LOOKING_SECONDS = 30
"""Of CPU time for one file."""
NICE = 2
"""Streams go first, but a page must not starve beside eight busy programs on two cores."""

WAITING_SECONDS = 300.0
"""For a page or a file by someone who has no limit of their own: on a busy machine what takes 1 s may last 30."""

reader = IsolatedProcess("_pictures.worker", Limits(PAGE_SECONDS, MEMORY_MOST, nice=NICE))
"""Reads pages: slow, and up to 1 GB. RapidOCR has 1.2 GB of address space on a page of A4."""
looker = IsolatedProcess("_pictures.worker", Limits(LOOKING_SECONDS, MEMORY_MOST, nice=NICE))
"""Opens files, counts pages, takes text layers, measures: fast, so it does not wait behind pages that are read."""


@dataclass(frozen=True, slots=True)
class Pages:
    """A file as pages.

    Attributes:
        count: how many there are.
        texts: by page, the text layers that were asked for; None for a damaged one.
        late: why some of those are missing, if they are.
        name: how reasons call it.
        digest: what tells its content from others.
    """

    count: int
    texts: Mapping[int, str | None]
    problem: str | None
    name: str
    digest: str

    def layer(self, page: int) -> str:
        """The text layer of a page, empty when it has none.

        Raises:
            Refused: when it is damaged, or took too long.
        """
        text = self.texts.get(page, "")
        if text is None or (page not in self.texts and self.problem):
            raise Refused(self.problem or unreadable_reason(self.name))
        return text


async def page_text(
    data: bytes,
    *,
    name: str = "the file",
    page: int = 1,
    language: str = "auto",
    enhance: bool = False,
    region: Region = None,
    seconds: float = WAITING_SECONDS,
) -> Reading:
    """Reads one page of a scanned PDF, or an image, by OCR; for PDFs look for a text layer first, with `pages`.

    Waits for its turn: all pages of the server are read one after the other, by a process that is started when needed.
    Cancelling the call ends the process within 100 ms. From a thread without a loop: `asyncio.run(page_text(…))`.

    Args:
        data: the whole file.
        name: how reasons call it.
        page: of a PDF or TIFF, from 1.
        language: `auto`, two letters such as `de`, or a code of Tesseract's.
        region: the part of it to read; None for all.
        seconds: for the wait and the reading together.

    Raises:
        Refused: when there is no engine, the file is damaged or takes too much computing, or the time is over.
    """
    end = time.monotonic() + seconds
    async with reading(data, name=name, page=page, language=language, enhance=enhance, region=region) as job:
        if not await job.has_started(seconds):
            raise Refused(BUSY)
        return await read(job, name, end - time.monotonic())


BUSY = "the OCR engine is busy with other documents; ask again in a minute"
LOADED = "'{}' could not be read in time, because the server is busy; ask again in a minute, or for fewer pages at once"


@asynccontextmanager
async def reading(
    data: bytes, *, name: str, page: int, language: str, enhance: bool, region: Region
) -> AsyncIterator[Job]:
    """Queues one page; `read` gives what it says.

    Raises:
        Refused: when there is no engine.
    """
    missing_engine = missing()
    if missing_engine:
        raise Refused(missing_engine)
    words = {
        "do": "read",
        "name": name,
        "pdf": is_pdf(data),
        "page": page,
        "region": region,
        "language": language,
        "enhance": enhance,
        "engines": asdict(engines()),
        "pdf_seconds": PDF_SECONDS,
    }
    with reader.job(words, data) as job:
        yield job


async def read(job: Job, name: str, seconds: float) -> Reading:
    """The text of a page whose turn has come."""
    words, _ = await receive(job, name, seconds)
    return Reading(**words)


async def pages(data: bytes, *, name: str, wanted: Sequence[int] = (), seconds: float = WAITING_SECONDS) -> Pages:
    """How many pages a file has, and of a PDF the text layers of the pages that are wanted; others are left out.

    Raises:
        Refused: for a file that cannot be read.
    """
    request = {"do": "pages", "name": name, "pages": list(wanted), "stamps": bool(missing())}
    words, _ = await request_look(data, request, seconds)
    existing = [page for page in wanted if 1 <= page <= words["count"]]
    return Pages(
        words["count"], dict(zip(existing, words["texts"], strict=False)), words["late"], name, words["digest"]
    )


async def request_look(data: bytes, words: Mapping[str, Any], seconds: float = WAITING_SECONDS) -> Message:
    """Asks the process that looks at files, and waits for so many seconds."""
    name, end = words["name"], time.monotonic() + seconds
    with looker.job({**words, "pdf": is_pdf(data), "pdf_seconds": PDF_SECONDS}, data) as job:
        if not await job.has_started(seconds):
            raise Refused(LOADED.format(name))
        return await receive(job, name, end - time.monotonic())


async def receive(job: Job, name: str, seconds: float) -> Message:
    """What the process says.

    Raises:
        Refused: what it refuses; or when it takes too long or ended twice.
    """
    try:
        answer = await job.answer(seconds)
    except OutOfTime as error:
        raise Refused(too_slow_reason(name)) from error
    except Ended as error:
        raise Refused(f"'{name}' broke the process that reads files; ask the user for another copy of it") from error
    if answer is None:
        raise Refused(LOADED.format(name))
    words, data = answer
    if "refused" in words:
        raise Refused(words["refused"])
    if "broken" in words:
        raise RuntimeError(words["broken"])
    return words, data


def is_pdf(data: bytes) -> bool:
    """Whether a file begins as PDFs do; some have a few lines of their mail before that."""
    return b"%PDF-" in data[:1024]


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Ends the processes with the server; they start when something is to be read."""
    try:
        yield
    finally:
        reader.end()
        looker.end()


def missing() -> str | None:
    """What to do when there is no engine at all."""
    return None if shutil.which("tesseract") or has_rapidocr() else MISSING


def engines() -> Engines:
    """What is installed."""
    return Engines(shutil.which("tesseract"), has_rapidocr(), TESSERACT_SECONDS)


def has_rapidocr() -> bool:
    return all(importlib.util.find_spec(module) for module in ("rapidocr", "onnxruntime"))
