"""Measure the lag of the event loop during OCR and image analysis, and the memory of their two processes.

`python tests/bench/reading.py`, with the extra `ocr`.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "specialists"))

from specialist_calls import FakeModel, context, file, written

from brain import Context, Specialist
from brain.plugins.executor import Failure, bind, execute
from specialists._pictures import reader
from specialists.ocr import ocr
from specialists.vision import vision

PAGES = 12
A4 = (1240, 1754)
MEGAPIXELS_24 = (6000, 4000)


def scan() -> bytes:
    """Return a scanned PDF: pages of 40 lines, slightly rotated and grainy."""
    line = "The members agreed to raise the allowance for travel by four percent"
    page = written("\n".join(f"{n} {line}" for n in range(40)), A4).rotate(0.7, fillcolor="white")
    grained = Image.blend(page, Image.effect_noise(A4, 40).convert("RGB"), 0.12)
    out = BytesIO()
    grained.save(out, "PDF", save_all=True, append_images=[grained] * (PAGES - 1))
    return out.getvalue()


def photo() -> bytes:
    ground = Image.linear_gradient("L").resize(MEGAPIXELS_24).convert("RGB")
    return file(Image.blend(ground, Image.effect_noise(MEGAPIXELS_24, 60).convert("RGB"), 0.3), "JPEG")


async def lateness(work: Awaitable[Any]) -> tuple[float, list[float]]:
    """Return the seconds of the work, and the sorted delays of sleeps of 1 ms during it, in milliseconds."""
    late: list[float] = []
    started = time.perf_counter()
    task = asyncio.ensure_future(work)
    while not task.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append((time.perf_counter() - before) * 1000 - 1)
    outcome = task.result()
    assert not isinstance(outcome, Failure), outcome
    return time.perf_counter() - started, sorted(late)


def call(specialist: Specialist[..., Any], name: str, data: bytes, model: FakeModel | None) -> Awaitable[Any]:
    arguments = bind(specialist, {})
    assert not isinstance(arguments, Failure)
    surroundings: dict[type, Any] = {Context: context((name, data), model=model, seconds=300)}
    return execute(specialist, arguments, surroundings, lambda _: None, timeout=300)


def memory(pid: int | None) -> str:
    """Return peak and current resident memory of a process."""
    status = Path(f"/proc/{pid}/status")
    told = dict(line.split(":", 1) for line in status.read_text().splitlines()) if status.exists() else {}
    peak, now = (int(told.get(key, "0").split()[0]) // 1024 for key in ("VmHWM", "VmRSS"))
    return f"{peak} MB peak, {now} MB afterwards"


async def main() -> None:
    show: Callable[[str], object] = sys.stdout.write
    pages, picture = scan(), photo()
    works = {
        f"ocr, {PAGES} pages": call(ocr, "scan.pdf", pages, None),
        "vision, 24 MP, measurements and codes": call(vision, "photo.jpg", picture, None),
        "vision, 24 MP, for a model that sees images": call(vision, "photo.jpg", picture, FakeModel(says="A wall.")),
    }
    for name, work in works.items():
        seconds, late = await lateness(work)
        p99, most = late[len(late) * 99 // 100], late[-1]
        show(f"{name}: {seconds:.1f} s; loop lag {p99:.1f} ms (p99), {most:.1f} ms (max)\n")
    show(f"OCR process: {memory(reader.page_process.pid)}\n")
    show(f"image process: {memory(reader.file_process.pid)}\n")


if __name__ == "__main__":
    asyncio.run(main())
