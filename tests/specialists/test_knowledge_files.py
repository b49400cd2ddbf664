"""`knowledge`: the text of each kind of file, and files and folders that could do harm."""

import io
import os
import shutil
import socket
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import docx
import openpyxl
import pptx
import pytest
from specialist_calls import read_parts_of as read
from specialist_calls import saved, text_pdf, written, zip_of

from specialists._kit.passages import LENGTH, split_passages, split_sections
from specialists._knowledge.folders import Outside, read_content, walk
from specialists._knowledge.index import Index
from specialists._knowledge.office import NO_EXCEL
from specialists._knowledge.parts import Problem, Source, Unreadable
from specialists._knowledge.readers import decode, read_parts, suggest_packages
from specialists._knowledge.worker import CLOSED, READER, Job, Step, Upload, Worker, find_changes

# the kinds of files


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("Travel", 1)
    document.add_paragraph("By train.")
    document.add_heading("Hotels", 2)
    document.add_paragraph("quiet", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for row, texts in zip(table.rows, (("City", "Limit"), ("Oslo", "180")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    return saved(document)


def make_xlsx() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Prices"
    sheet.append([None])
    sheet.append(["Pump", "Price", "From"])
    sheet.append(["P-1", 1.50, datetime(2026, 3, 1)])
    sheet.append([None, None, None])
    sheet.append(["P-2", 2, date(2026, 4, 1)])
    book.create_sheet("Empty")
    return saved(book)


def make_pptx() -> bytes:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Roadmap"
    slide.placeholders[1].text = "Launch in April"
    slide.notes_slide.notes_text_frame.text = "smile"
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    frame = slide.shapes.add_table(1, 2, 0, 0, 900000, 900000)
    frame.table.cell(0, 0).text = "Q1"
    return saved(deck)


PAGE = """<html><head><title>Manual</title><style>p {}</style></head><body><nav>Home About</nav>
<h2>Reset &amp; start</h2><p># 1 of all</p><p>Press the <b>red</b> button<br>twice.</p>loose text
<div hidden>secret</div><script>alert(1)</script><table><tr><td rowspan=2>Pump</td><td>small</td></tr>
<tr><td>large</td></tr></table><pre>x = 1
# no heading</pre><footer>Imprint</footer></body></html>"""


MARKDOWN = b"Before.\n\n# Guide #\n\nHello.\n\n## C#\n\n```\n# no heading\n```\n\n# Other\n\nEnd.\n"
PDF = text_pdf("Chapter 2 Leave", "Thirty days a year.", "2.1 Sick leave")
FILES = {
    "a.md": (MARKDOWN, [
        ("", "", "Before."), ("Guide", "", "Hello."),
        ("Guide › C#", "", "```\n# no heading\n```"), ("Other", "", "End."),
    ]),
    "a.html": (PAGE.encode(), [
        ("Manual › Reset & start", "", "\\# 1 of all\n\nPress the **red** button\ntwice.\n\nloose text\n\n"
         "| Pump | small |\n|---|---|\n| Pump | large |\n\n```\nx = 1\n# no heading\n```"),
    ]),
    "a.pdf": (PDF, [
        ("Chapter 2 Leave", "page=1", "Chapter 2 Leave"), ("Chapter 2 Leave", "page=2", "Thirty days a year."),
        ("Chapter 2 Leave › 2.1 Sick leave", "page=3", "2.1 Sick leave"),
    ]),
    "a.docx": (make_docx(), [
        ("Travel", "", "By train."),
        ("Travel › Hotels", "", "- quiet\n\n| City | Limit |\n|---|---|\n| Oslo | 180 |"),
    ]),
    "a.xlsx": (make_xlsx(), [
        ("Prices", "sheet=Prices",
         "| Pump | Price | From |\n|---|---|---|\n| P-1 | 1.5 | 2026-03-01 |\n| P-2 | 2 | 2026-04-01 |"),
    ]),
    "a.pptx": (make_pptx(), [
        ("Roadmap", "slide=1", "Roadmap\n\nLaunch in April\n\nNotes: smile"), ("", "slide=2", "| Q1 |  |\n|---|---|"),
    ]),
    "a.csv": (b'Name;Town\r\n\r\n"Ada; Lovelace";London\r\n', [
        ("", "", "| Name | Town |\n|---|---|\n| Ada; Lovelace | London |"),
    ]),
    "README": (b"Text.", [("", "", "Text.")]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_each_kind_of_file_has_headings_places_and_text(name: str) -> None:
    data, found = FILES[name]
    assert read(name, data) == found
    assert read(name.upper(), data) == found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_text_is_read_in_its_encoding(encoding: str) -> None:
    assert decode("Grüße, Köln".encode(encoding)) == "Grüße, Köln"


@pytest.mark.parametrize(
    ("label", "body", "text"),
    [
        ("gb2312", b"\xe9\x46", "镕"),
        ("iso-8859-1", b"\x93\x80\x94", "“€”"),
        ("utf-16", b"\xc3\xa9", "é"),
        ("utf-8", b"Gr\xfc\xdfe", "Grüße"),
    ],
)
def test_pages_are_read_in_the_encoding_that_they_declare(label: str, body: bytes, text: str) -> None:
    assert read("a.html", f"<meta charset={label}><p>".encode() + body) == [("", "", text)]
    with pytest.raises(Unreadable, match="not read"):
        read("a.html", b"<meta charset=hz-gb-2312><p>x")


@pytest.mark.parametrize("data", [bytes(range(256)) * 20, b"\x01\x02\x03" * 100, b"PK\x03\x04" + b"\0" * 50])
def test_binary_data_is_not_text(data: bytes) -> None:
    with pytest.raises(Unreadable, match="not text"):
        read("a.md", data)


def scan() -> bytes:
    """A page of a PDF with a picture of a text."""
    out = io.BytesIO()
    written("Invoice 4711\nTotal 129.50 EUR", (900, 300)).save(out, "PDF")
    return out.getvalue()


@pytest.mark.tesseract
@pytest.mark.skipif(shutil.which("tesseract") is None, reason="the program tesseract is not installed")
def test_scanned_pages_are_read_by_ocr() -> None:
    ((heading, place, text),) = read("scan.pdf", scan())
    assert (heading, place) == ("", "page=1")
    assert "Invoice 4711" in text


def test_without_ocr_a_scan_has_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    (problem,) = [item for item in read_parts(Source("scan.pdf", scan()), "pdf") if isinstance(item, Problem)]
    assert problem.text.startswith("1 of 1 pages")
    assert "ocr" in "".join(suggest_packages(problem.text))


def test_without_the_package_a_workbook_has_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(Unreadable, match=NO_EXCEL):
        read("a.xlsx", make_xlsx())
    assert "office" in "".join(suggest_packages(NO_EXCEL))


# passages


def test_passages_have_bounded_length_and_lose_nothing() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 200 + "\n\n" + "x" * 3000 + "\n\nEnd."
    found = list(split_passages(text))
    assert max(map(len, found)) <= LENGTH
    assert "".join("".join(found).split()) == "".join(text.split())
    assert found[0].endswith("dog.")


def test_every_piece_of_a_table_has_its_header() -> None:
    rows = [f"| P-{n} | {n} euro, in stock |" for n in range(100)]
    found = list(split_passages("\n".join(["| Pump | Price |", "|---|---|", *rows])))
    assert len(found) == 3
    assert all(piece.startswith("| Pump | Price |\n|---|---|\n| P-") for piece in found)
    assert [row for piece in found for row in piece.splitlines()[2:]] == rows


@pytest.mark.parametrize("text", ["\n" * 300_000, "# " * 300_000, "| " * 300_000, " \n" * 300_000, "`" * 300_000])
def test_odd_text_takes_linear_time(text: str) -> None:
    """Quadratic code would take minutes."""
    for _, body in split_sections(text):
        for _ in split_passages(body):
            pass


# files in an index


class Library:
    """An index, and a folder that is read into it in this process."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.docs = folder / "docs"
        self.docs.mkdir()
        self.index = index
        self.root = index.add_root("folder", str(self.docs))

    def work(self, uploads: dict[str, bytes] | None = None, **job: Any) -> list[Step]:
        """The steps of a job on this index."""
        files = uploads or {}
        job |= {"uploads": [Upload(name, "text/plain", len(data)) for name, data in files.items()], "keep": [*files]}
        steps: list[Step] = []
        job = {"max_bytes": 3_000_000, "max_passages": 1000, **job}
        Worker(self.index, Job(str(self.index.path), "en", **job), steps.append).work(
            io.BytesIO(b"".join(files.values()))
        )
        return steps

    def read(self, **job: Any) -> dict[str, Step]:
        """The files that are read, by name."""
        return {step.name: step for step in self.work(**job) if step.what == "read"}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with closing(Index(tmp_path / "a.db")) as index:
        yield Library(tmp_path, index)


def docx_of(xml: bytes) -> bytes:
    """A docx whose main part is this."""
    with zipfile.ZipFile(io.BytesIO(saved(docx.Document()))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return zip_of({**members, "word/document.xml": xml})


def overlapping(archive: bytes) -> bytes:
    """The same, but its directory says that its one member is packed in a million bytes."""
    at = archive.index(b"PK\x01\x02") + 20
    return archive[:at] + (1_000_000).to_bytes(4, "little") + archive[at + 4 :]


def larger_than_it_says() -> bytes:
    """A docx with a part that unpacks to more than the file declares in both places."""
    data = bytearray(docx_of(b"A" * 3_000_000 + bytes(range(256)) * 400))
    real = (3_000_000 + 102_400).to_bytes(4, "little")
    assert data.count(real) == 2
    return bytes(data.replace(real, (50_000).to_bytes(4, "little")))


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("bomb.docx", zip_of({"word/document.xml": bytes(201_000_000)}), "200 MB"),
        ("many.xlsx", zip_of({f"{n:x}": b"" for n in range(20_001)}), "20,000 parts"),
        ("tree.docx", docx_of(b"<a/>" * 5_000_001), "20 MB"),
        ("ratio.docx", docx_of(b"<w:p/>" * 200_000), "100 times"),
        ("sheet.xlsx", zip_of({"xl/worksheets/a.xml": bytes(2_000_000)}), "100 times"),
        ("overlap.xlsx", overlapping(zip_of({"a": b"b"})), "overlap"),
        ("lying.docx", larger_than_it_says(), "damaged"),
        ("locked.xlsx", b"\xd0\xcf\x11\xe0" + b"x" * 600, "encrypted"),
        ("junk.docx", b"junk" * 100, "damaged"),
        ("empty.pptx", zip_of({"a": b"b"}), "damaged"),
        ("bad.docx", docx_of(b"<w:document"), "damaged"),
        ("old.doc", b"\xd0\xcf\x11\xe0", "old Office format"),
        ("locked.pdf", text_pdf("x", encrypted=True), "encrypted"),
        ("junk.pdf", b"%PDF-1.4 junk", "junk.pdf"),
        ("junk.txt", bytes(range(32)) * 9, "not text"),
        ("empty.md", b" \n", "no text"),
        ("large.txt", b"x" * 3_000_001, "3 MB"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[-5:] else "",
)
def test_a_bad_file_has_a_problem(library: Library, name: str, data: bytes, problem: str) -> None:
    (library.docs / name).write_bytes(data)
    (library.docs / "zzz.txt").write_text("fine")
    found = library.read()
    assert problem in found[name].problem
    assert (found[name].passages, found["zzz.txt"].passages) == (0, 1)
    assert library.read() == {}, "it is not tried again"


def test_entities_of_a_document_open_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    namespace = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    xml = b'<!DOCTYPE x [<!ENTITY e SYSTEM "file://%s">]><w:document %s><w:body><w:p><w:r><w:t>a &e;</w:t></w:r></w:p>'
    document = docx_of(xml % (str(secret).encode(), namespace) + b"</w:body></w:document>")
    with pytest.raises(ElementTree.ParseError):
        read("a.docx", document)


def test_a_heading_without_text_is_a_passage(library: Library) -> None:
    (library.docs / "notes.md").write_text("# Call Dr Meyer\n\n# Plan\n\n## Monday\n\nRest.\n\n## Tuesday\n")
    assert library.read()["notes.md"].passages == 3


def test_files_are_read_again_after_a_change_of_the_readers(library: Library) -> None:
    (library.docs / "good.txt").write_text("words")
    (library.docs / "bad.docx").write_text("no zip")
    library.work()
    library.index.set_abilities(READER, "other packages")
    assert [*library.read()] == ["bad.docx"]
    library.index.set_abilities(READER + 1, "new reader")
    assert sorted(library.read()) == ["bad.docx", "good.txt"]
    assert [step.what for step in library.work()] == ["begin", "unchanged", "over"]


def test_a_file_that_cannot_be_opened_is_not_retried_with_every_search(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    (library.docs / "a.md").write_text("zebra")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *args: (_ for _ in ()).throw(PermissionError()))
        found = library.read()["a.md"]
    assert (found.passages, found.problem) == (0, CLOSED)
    assert find_changes(library.index, library.root, Counter[str]()) == ([], [], 1)
    library.index.retry(CLOSED)
    assert library.read()["a.md"].passages == 1


def test_a_full_index_takes_no_more(library: Library) -> None:
    found = library.read(uploads={"a.txt": b"word " * 1800}, conversation="c1", max_passages=3)["a.txt"]
    assert (found.passages, "limit of 3" in found.problem) == (3, True)


def test_the_least_recently_used_conversations_expire(library: Library) -> None:
    for number in range(4):
        library.work({"a.txt": b"x" * 100}, conversation=f"c{number}")
    for seconds, places in ((1000, ["c0", "c2", "c3"]), (0, ["c0"])):
        library.index.expire_conversations("c0", max_characters=250, seconds=seconds)
        assert [root.place for root in library.index.roots("conversation")] == places


# folders


def list_folder(root: Path) -> tuple[list[str], dict[str, int]]:
    skipped = Counter[str]()
    return [found.name for found in walk(root, skipped)], dict(skipped)


def test_hidden_files_links_and_devices_are_skipped(tmp_path: Path) -> None:
    root, outside = tmp_path / "docs", tmp_path / "outside"
    paths = ["a.md", ".b.md", ".git/c.md", "node_modules/d/e.md", "sub/f.TXT", "h.png", "~$i.docx"]
    for path in [*(root / path for path in paths), outside / "g.md"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (root / "j").symlink_to(outside)
    (root / "k.md").symlink_to(outside / "g.md")
    (root / "sub" / "loop").symlink_to(root)
    os.mkfifo(root / "l.txt")
    (root / os.fsdecode(b"m\xff.txt")).write_text("x")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(root)  # the path of a socket must be short
        server.bind("s.txt")
    names, skipped = list_folder(root)
    assert names == ["a.md", "sub/f.TXT"]
    assert sorted(skipped.values()) == [1, 1, 2, 3]  # a type, a name, devices, links
    (tmp_path / "link").symlink_to(root)
    names, skipped = list_folder(tmp_path / "link")
    assert (names, [*skipped.values()]) == ([], [1])


def test_one_file_is_a_root_too(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(name)
    assert list_folder(tmp_path / "a.md") == (["a.md"], {})
    assert read_content(tmp_path / "a.md", "a.md", 100) == b"a.md"


@pytest.mark.parametrize("name", ["link.md", "folder/b.md", "../outside/a.md", "pipe.md"])
def test_content_is_never_that_of_another_place_or_a_pipe(tmp_path: Path, name: str) -> None:
    root, outside = tmp_path / "docs", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    for file in ("a.md", "b.md"):
        (outside / file).write_text("secret")
    (root / "link.md").symlink_to(outside / "a.md")
    (root / "folder").symlink_to(outside)
    os.mkfifo(root / "pipe.md")
    with pytest.raises((Outside, OSError)):
        read_content(root, name, 100)
