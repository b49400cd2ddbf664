"""Read pages and inspect images in child processes; cache recent pages.

Two processes serve all event loops. `page_process` reads pages with OCR, one after the other. `file_process` opens
files, counts pages, extracts text layers and measures images. Quick requests therefore never wait for OCR.
"""

import importlib.util
import logging
import shutil
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from brain import Refused
from specialists._kit.child import MAX_MEMORY, Message
from specialists._kit.isolated import Ended, IsolatedProcess, Job, Limits, OutOfTime
from specialists._pictures.images import PDF_SECONDS, Reason, Region, too_slow_reason, unreadable_reason
from specialists._pictures.result import Engines, Reading

log = logging.getLogger("brain")

CACHE_SECONDS = 600.0
"""Cache lifetime of a page, in seconds."""
MAX_PAGES = 200
"""Maximum number of cached pages."""
PAGE_SECONDS = 50
"""CPU time limit for one page without Tesseract, in seconds."""
TESSERACT_SECONDS = 30.0
"""CPU time limit of Tesseract for one page, in seconds."""
FILE_SECONDS = 30
"""CPU time limit for inspecting one file, in seconds."""
NICE = 2
"""Streams have priority, but a page must not starve beside eight busy programs on two cores."""
WAITING_SECONDS = 300.0
"""Default time limit of a request, in seconds: on a busy machine one second of work may take 30."""
MISSING = "text recognition is not installed on this server"
BUSY = ("the OCR engine is busy with other documents", "try again in a minute")

page_process = IsolatedProcess("_pictures.worker", Limits(PAGE_SECONDS, MAX_MEMORY, nice=NICE))
"""Uses up to 1 GB; RapidOCR takes 1.2 GB of address space for an A4 page."""
file_process = IsolatedProcess("_pictures.worker", Limits(FILE_SECONDS, MAX_MEMORY, nice=NICE))


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """End the processes with the server. They start with the first request."""
    try:
        yield
    finally:
        page_process.end()
        file_process.end()


def find_problem() -> str | None:
    """Return the reason if no OCR engine is installed, else None."""
    installed = find_engines()
    return None if installed.tesseract or installed.rapidocr else MISSING


def find_engines() -> Engines:
    """Return the installed engines."""
    has_rapidocr = all(importlib.util.find_spec(module) for module in ("rapidocr", "onnxruntime"))
    return Engines(shutil.which("tesseract"), has_rapidocr, TESSERACT_SECONDS)


def is_pdf(data: bytes) -> bool:
    """Return whether the data is a PDF; mail headers may precede it."""
    return b"%PDF-" in data[:1024]


# Pages


@dataclass(frozen=True, slots=True)
class Pages:
    """A file as pages.

    Attributes:
        count: number of pages.
        texts: requested text layers by page; None for a damaged page.
        problem: why some of them are missing, or None.
        name: file name for error messages.
        digest: digest of the content.
    """

    count: int
    texts: Mapping[int, str | None]
    problem: Reason | None
    name: str
    digest: str

    def text_layer(self, page: int) -> str:
        """Return the text layer of a page; empty if the page has none.

        Raises:
            Refused: if the page is damaged or took too long.
        """
        text = self.texts.get(page, "")
        if text is None or (page not in self.texts and self.problem):
            raise Refused(*(self.problem or unreadable_reason(self.name)))
        return text


async def open_pages(data: bytes, *, name: str, numbers: Sequence[int] = (), seconds: float = WAITING_SECONDS) -> Pages:
    """Count the pages of a file, and extract the text layers of the pages `numbers` of a PDF.

    Raises:
        Refused: if the file cannot be read.
    """
    request = {"do": "pages", "name": name, "pages": list(numbers), "stamps": bool(find_problem())}
    words, _ = await inspect_file(data, request, seconds)
    existing = [page for page in numbers if 1 <= page <= words["count"]]
    texts = dict(zip(existing, words["texts"], strict=False))
    late = words["late"]
    return Pages(words["count"], texts, late and (late[0], late[1]), name, words["digest"])


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
    """Read one page of a scanned PDF, or an image, by OCR. Call `open_pages` first to look for a text layer.

    Pages are read one after the other. Cancelling the call kills the process within 100 ms.

    Args:
        data: the whole file.
        name: file name for error messages.
        page: page of a PDF or TIFF, from 1.
        language: `auto`, two letters such as `de`, or a Tesseract code.
        region: part of the page to read; None for the whole page.
        seconds: time limit for waiting and reading together.

    Raises:
        Refused: if no engine is installed, the file is damaged or too complex, or the time is over.
    """
    end = time.monotonic() + seconds
    async with queue_page(data, name=name, page=page, language=language, enhance=enhance, region=region) as job:
        if not await job.has_started(seconds):
            raise Refused(*BUSY)
        return await receive_reading(job, name, end - time.monotonic())


@asynccontextmanager
async def queue_page(
    data: bytes, *, name: str, page: int, language: str, enhance: bool, region: Region
) -> AsyncIterator[Job]:
    """Queue one page; `receive_reading` returns its text.

    Raises:
        Refused: if no engine is installed.
    """
    if problem := find_problem():
        raise Refused(problem, "continue without it")
    words = {"do": "read", "name": name, "page": page, "region": region, "language": language, "enhance": enhance}
    words |= {"pdf": is_pdf(data), "engines": asdict(find_engines()), "pdf_seconds": PDF_SECONDS}
    with page_process.job(words, data) as job:
        yield job


async def receive_reading(job: Job, name: str, seconds: float) -> Reading:
    """Return the text of a page that the process has started to read."""
    words, _ = await receive(job, name, seconds)
    reading = Reading(**words)
    if reading.missing_code:
        _log_missing_language(reading.missing_code)
    return reading


@cache
def _log_missing_language(code: str) -> None:
    """Log once which package the operator can install."""
    package = f"tesseract-ocr-{code.replace('_', '-')}"
    log.warning("ocr: a page seems to need the Tesseract language %s. Try: apt install %s", code, package)


async def inspect_file(data: bytes, words: Mapping[str, Any], seconds: float = WAITING_SECONDS) -> Message:
    """Send a request to `file_process` and return its answer."""
    name, end = words["name"], time.monotonic() + seconds
    with file_process.job({**words, "pdf": is_pdf(data), "pdf_seconds": PDF_SECONDS}, data) as job:
        if not await job.has_started(seconds):
            raise Refused(*_late_reason(name))
        return await receive(job, name, end - time.monotonic())


async def receive(job: Job, name: str, seconds: float) -> Message:
    """Return the answer of a process.

    Raises:
        Refused: if the process refuses, takes too long, or crashes twice.
    """
    try:
        answer = await job.answer(seconds)
    except OutOfTime as error:
        raise Refused(*too_slow_reason(name)) from error
    except Ended as error:
        raise Refused(f"'{name}' crashed the process that reads files", "ask the user for another copy") from error
    if answer is None:
        raise Refused(*_late_reason(name))
    words, data = answer
    if "refused" in words:
        raise Refused(*words["refused"])
    if "broken" in words:
        raise RuntimeError(words["broken"])
    return words, data


def _late_reason(name: str) -> Reason:
    return f"'{name}' was not read in time because the server is busy", "try again in a minute, or read fewer pages"


# Cache of recent pages, for calls that need more of the same document

_cache: OrderedDict[Hashable, tuple[float, Reading]] = OrderedDict()
"""Readings with their expiry time, oldest first."""


def cached_reading(key: Hashable) -> Reading | None:
    """Return the cached reading, or None."""
    expires, reading = _cache.get(key, (0.0, None))
    return reading if time.monotonic() < expires else None


def cache_reading(key: Hashable, reading: Reading) -> None:
    """Cache a reading for `CACHE_SECONDS`, unless `MAX_PAGES` others follow."""
    now = time.monotonic()
    _cache.pop(key, None)
    _cache[key] = (now + CACHE_SECONDS, reading)
    while len(_cache) > MAX_PAGES or next(iter(_cache.values()))[0] < now:
        _cache.popitem(last=False)
        if not _cache:
            break
