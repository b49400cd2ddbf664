"""Reads pages and looks at pictures in child processes; keeps pages that were just read.

Two processes serve all event loops. `reader` reads pages by OCR, one after the other. `looker` opens files, counts
pages, takes text layers and measures, so that quick requests do not wait for pages.
"""

import importlib.util
import shutil
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from brain import Refused
from specialists._kit.child import MAX_MEMORY, Message
from specialists._kit.isolated import Ended, IsolatedProcess, Job, Limits, OutOfTime
from specialists._pictures.images import PDF_SECONDS, Region, too_slow_reason, unreadable_reason
from specialists._pictures.result import Engines, Reading

SECONDS = 600.0
"""How long a page that was read is kept."""
MAX_PAGES = 200
PAGE_SECONDS = 50
"""CPU time for one page, besides that of Tesseract."""
TESSERACT_SECONDS = 30.0
"""CPU time for one page."""
LOOKING_SECONDS = 30
"""CPU time for one file."""
NICE = 2
"""Streams go first, but a page must not starve beside eight busy programs on two cores."""
WAITING_SECONDS = 300.0
"""Default time limit of a request: on a busy machine one second of work may take 30."""
MISSING = "no OCR engine is installed"
BUSY = "the OCR engine is busy with other documents; ask again in a minute"
_LATE = "'{}' could not be read in time, because the server is busy; ask again in a minute, or for fewer pages at once"

page_process = IsolatedProcess("_pictures.worker", Limits(PAGE_SECONDS, MAX_MEMORY, nice=NICE))
"""Takes up to 1 GB; RapidOCR has 1.2 GB of address space on a page of A4."""
file_process = IsolatedProcess("_pictures.worker", Limits(LOOKING_SECONDS, MAX_MEMORY, nice=NICE))


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """End the processes with the server; they start with the first request."""
    try:
        yield
    finally:
        page_process.end()
        file_process.end()


def find_problem() -> str | None:
    """Return that there is no OCR engine, or None."""
    installed = find_engines()
    return None if installed.tesseract or installed.rapidocr else MISSING


def find_engines() -> Engines:
    """Return what is installed."""
    has_rapidocr = all(importlib.util.find_spec(module) for module in ("rapidocr", "onnxruntime"))
    return Engines(shutil.which("tesseract"), has_rapidocr, TESSERACT_SECONDS)


def is_pdf(data: bytes) -> bool:
    """Return whether a file begins as a PDF, perhaps after a few lines of a mail."""
    return b"%PDF-" in data[:1024]


# Pages


@dataclass(frozen=True, slots=True)
class Pages:
    """A file as pages.

    Attributes:
        count: number of pages.
        texts: requested text layers by page; None for a damaged page.
        problem: why some of them are missing, if they are.
        name: name of the file in reasons.
        digest: digest of its content.
    """

    count: int
    texts: Mapping[int, str | None]
    problem: str | None
    name: str
    digest: str

    def text_layer(self, page: int) -> str:
        """Return the text layer of a page; empty if it has none.

        Raises:
            Refused: if the page is damaged, or took too long.
        """
        text = self.texts.get(page, "")
        if text is None or (page not in self.texts and self.problem):
            raise Refused(self.problem or unreadable_reason(self.name))
        return text


async def open_pages(data: bytes, *, name: str, numbers: Sequence[int] = (), seconds: float = WAITING_SECONDS) -> Pages:
    """Count the pages of a file, and take the text layers of those `numbers` that a PDF has.

    Raises:
        Refused: if the file cannot be read.
    """
    request = {"do": "pages", "name": name, "pages": list(numbers), "stamps": bool(find_problem())}
    words, _ = await inspect_file(data, request, seconds)
    existing = [page for page in numbers if 1 <= page <= words["count"]]
    texts = dict(zip(existing, words["texts"], strict=False))
    return Pages(words["count"], texts, words["late"], name, words["digest"])


async def read_page(
    data: bytes,
    *,
    name: str = "the file",
    page: int = 1,
    language: str = "auto",
    enhance: bool = False,
    region: Region = None,
    seconds: float = WAITING_SECONDS,
) -> Reading:
    """Read one page of a scanned PDF, or an image, by OCR. Look for a text layer first, with `open_pages`.

    Pages are read one after the other. Cancelling the call ends the process within 100 ms.

    Args:
        data: the whole file.
        name: name of the file in reasons.
        page: page of a PDF or TIFF, from 1.
        language: `auto`, two letters such as `de`, or a code of Tesseract.
        region: part of the page to read; None for all.
        seconds: time limit for waiting and reading together.

    Raises:
        Refused: if there is no engine, the file is damaged or takes too much computing, or the time is over.
    """
    end = time.monotonic() + seconds
    async with queue_page(data, name=name, page=page, language=language, enhance=enhance, region=region) as job:
        if not await job.has_started(seconds):
            raise Refused(BUSY)
        return await receive_reading(job, name, end - time.monotonic())


@asynccontextmanager
async def queue_page(
    data: bytes, *, name: str, page: int, language: str, enhance: bool, region: Region
) -> AsyncIterator[Job]:
    """Queue one page; `receive_reading` returns its text.

    Raises:
        Refused: if there is no engine.
    """
    if problem := find_problem():
        raise Refused(problem)
    words = {"do": "read", "name": name, "page": page, "region": region, "language": language, "enhance": enhance}
    words |= {"pdf": is_pdf(data), "engines": asdict(find_engines()), "pdf_seconds": PDF_SECONDS}
    with page_process.job(words, data) as job:
        yield job


async def receive_reading(job: Job, name: str, seconds: float) -> Reading:
    """Return the text of a page that the process has begun."""
    words, _ = await receive(job, name, seconds)
    return Reading(**words)


async def inspect_file(data: bytes, words: Mapping[str, Any], seconds: float = WAITING_SECONDS) -> Message:
    """Send a request to the process that looks at files."""
    name, end = words["name"], time.monotonic() + seconds
    with file_process.job({**words, "pdf": is_pdf(data), "pdf_seconds": PDF_SECONDS}, data) as job:
        if not await job.has_started(seconds):
            raise Refused(_LATE.format(name))
        return await receive(job, name, end - time.monotonic())


async def receive(job: Job, name: str, seconds: float) -> Message:
    """Return the answer of a process.

    Raises:
        Refused: if it refuses, takes too long, or ended twice.
    """
    try:
        answer = await job.answer(seconds)
    except OutOfTime as error:
        raise Refused(too_slow_reason(name)) from error
    except Ended as error:
        raise Refused(f"'{name}' broke the process that reads files; ask the user for another copy of it") from error
    if answer is None:
        raise Refused(_LATE.format(name))
    words, data = answer
    if "refused" in words:
        raise Refused(words["refused"])
    if "broken" in words:
        raise RuntimeError(words["broken"])
    return words, data


# Pages that were just read, for calls that ask for more of the same document

_cache: OrderedDict[Hashable, tuple[float, Reading]] = OrderedDict()
"""Readings with the time at which they expire; the oldest first."""


def cached_reading(key: Hashable) -> Reading | None:
    """Return what was read under this key in the last `SECONDS`."""
    expires, reading = _cache.get(key, (0.0, None))
    return reading if time.monotonic() < expires else None


def cache_reading(key: Hashable, reading: Reading) -> None:
    """Keep a reading for `SECONDS`, unless `MAX_PAGES` others follow."""
    now = time.monotonic()
    _cache.pop(key, None)
    _cache[key] = (now + SECONDS, reading)
    while len(_cache) > MAX_PAGES or next(iter(_cache.values()))[0] < now:
        _cache.popitem(last=False)
        if not _cache:
            break
