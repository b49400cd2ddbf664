"""Call specialists as a turn does, with attachments and a fake model."""

import asyncio
import mimetypes
import resource
import time
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from limits import WAIT_SECONDS
from PIL import Image, ImageDraw, ImageFont

from brain import Attachment, Context, Progress, Specialist
from brain.messages import EmbeddingCheck
from brain.net.fetch import Fetch
from brain.plugins.context import Result
from brain.plugins.executor import Failure, Outcome, bind, execute
from specialists._knowledge.parts import Part, Source
from specialists._knowledge.readers import detect_kind, read_parts

INVOICE = "Invoice 4711\nTotal 129.50 EUR"


@dataclass
class FakeModel:
    """A fake model; it accepts images if `says` is given, and records images and questions in `shown`."""

    says: str | None = None
    shown: list[tuple[bytes, str]] = field(default_factory=list)

    @property
    def sees_images(self) -> bool:
        return self.says is not None

    async def describe(self, image: bytes, question: str) -> str:
        self.shown.append((image, question))
        return self.says or ""

    async def embed(self, texts: Sequence[str], purpose: str | None = None) -> list[list[float]]:
        raise AssertionError("no specialist here embeds")

    async def check_embeddings(self) -> EmbeddingCheck:
        raise NotImplementedError


def context(
    *files: tuple[str, bytes],
    model: FakeModel | None = None,
    seconds: float = 60,
    settings: Any = None,
    user: str | None = None,
    message: str = "",
    time_zone: str = "UTC",
    fetch: Fetch | None = None,
) -> Context:
    """Return the context of a call, with attachments given by name and content."""
    attachments = tuple(
        Attachment(number, name, mimetypes.guess_type(name)[0] or "application/octet-stream", data)
        for number, (name, data) in enumerate(files, 1)
    )
    return Context(
        user=user,
        conversation_id="c1",
        message=message,
        attachments=attachments,
        time_zone=time_zone,
        deadline=time.monotonic() + seconds,
        settings=settings,
        model=model or FakeModel(),
        fetch=fetch or Fetch(),
    )


def outcome(
    specialist: Specialist[..., Any], params: dict[str, Any], ctx: Context, progress: list[Progress] | None = None
) -> Outcome:
    keep = [] if progress is None else progress
    if specialist.sends:
        params = {**params, **specialist.sent_params(params, ctx.message)}
    arguments = bind(specialist, params)
    if isinstance(arguments, Failure):
        return arguments
    provided = {type(ctx.settings): ctx.settings, Context: ctx}
    return asyncio.run(execute(specialist, arguments, provided, keep.append, timeout=WAIT_SECONDS))


async def last(items: AsyncIterator[Any]) -> Any:
    """Return the last item that a specialist yields, which is its result."""
    return [item async for item in items][-1]


def answer(
    specialist: Specialist[..., Any], params: dict[str, Any], ctx: Context, progress: list[Progress] | None = None
) -> str:
    """Return the text of a call that succeeds."""
    found = outcome(specialist, params, ctx, progress)
    assert isinstance(found, Result), found
    return found.text


def refused(specialist: Specialist[..., Any], params: dict[str, Any], ctx: Context) -> Failure:
    """A call that the specialist refuses."""
    found = outcome(specialist, params, ctx)
    assert isinstance(found, Failure), found
    assert found.code == "refused"
    return found


def refusal(specialist: Specialist[..., Any], params: dict[str, Any], ctx: Context) -> str:
    """Return the reason of a refused call."""
    return refused(specialist, params, ctx).reason


@contextmanager
def full_disk(room: int = 100_000) -> Iterator[None]:
    """Limit the file size of this process and its children, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def written(text: str, size: tuple[int, int] = (420, 110), *, ink: str = "black", paper: str = "white") -> Image.Image:
    """Return an image of a text."""
    image = Image.new("RGB", size, paper)
    ImageDraw.Draw(image).multiline_text((20, 20), text, font=ImageFont.load_default(size=28), fill=ink)
    return image


def file(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """Return an image as the bytes of a file."""
    out = BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def text_pdf(*pages: str, encrypted: bool = False) -> bytes:
    """Return a PDF with one line of text per page; an encrypted one needs a password."""
    drawings = [f"BT /F1 24 Tf 20 50 Td ({text}) Tj ET" for text in pages]
    lock = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'11' * 32}> /U <{'22' * 32}> >> /ID [<33> <33>]"
    return pdf(drawings, "<< /Font << /F1 3 0 R >> >>", lock if encrypted else "")


def nested_pdf(levels: int, *texts: str) -> bytes:
    """Return a PDF with text pages and one endless page, whose nested forms draw the next one twelve times each."""
    drawings = [*(f"BT /F1 24 Tf 20 50 Td ({text}) Tj ET" for text in texts), "/X0 Do"]
    first = 4 + 2 * len(drawings)
    forms = []
    for level in range(levels):
        last = level == levels - 1
        drawing = "0 0 400 100 re f" if last else f"/X{level + 1} Do " * 12
        inner = "" if last else f"/Resources << /XObject << /X{level + 1} {first + level + 1} 0 R >> >>"
        forms.append(
            f"<< /Type /XObject /Subtype /Form /BBox [0 0 400 100] {inner} /Length {len(drawing)} >>\n"
            f"stream\n{drawing}\nendstream"
        )
    return pdf(drawings, f"<< /Font << /F1 3 0 R >> /XObject << /X0 {first} 0 R >> >>", "", forms)


def pdf(drawings: Sequence[str], resources: str, trailing: str, more: Sequence[str] = ()) -> bytes:
    """Return a PDF with one page per drawing; object 3 is a font, and `more` follows the pages."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(drawings)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(drawings)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, drawing in enumerate(drawings):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 100] /Contents {5 + 2 * n} 0 R /Resources {resources} >>"
        )
        objects.append(f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream")
    return pdf_of([*objects, *more], trailing)


def pdf_of(objects: Sequence[str], trailing: str = "") -> bytes:
    """Return a PDF with these objects, numbered from 1; the first one is its catalog."""
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"<< /Size {len(offsets) + 1} /Root 1 0 R {trailing} >>"
    end = f"trailer\n{trailer}\nstartxref\n{len(body)}\n%%EOF\n"
    return f"{body}xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n{table}{end}".encode("ascii")


def read_parts_of(name: str, data: bytes) -> list[tuple[str, str, str]]:
    """Heading path, place and text of each part that has text."""
    found = [item for item in read_parts(Source(name, data), detect_kind(name) or "") if isinstance(item, Part)]
    return [(" › ".join(part.heading), part.place, part.text.strip()) for part in found if part.text.strip()]


def saved(document: Any) -> bytes:
    """The bytes of an Office document."""
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    """A zip archive of these files."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()
