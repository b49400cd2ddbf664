"""`knowledge`: what it reads of each kind of file, and that nothing a file holds reaches further than itself."""

import io
import os
import shutil
import socket
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from specialist_calls import text_pdf, written

from specialists._kit.passages import LENGTH, pieces, sections
from specialists._knowledge.folders import Outside, SkippedFiles, read_content, walk
from specialists._knowledge.index import Index
from specialists._knowledge.parts import Part, Source, Trouble, Unreadable
from specialists._knowledge.readers import decode, kind_of, parts
from specialists._knowledge.worker import READER, Job, Step, Upload, Worker, find_changes


def read(name: str, data: bytes) -> list[tuple[str, str, str]]:
    """Heading path, place and text of each part of a file that says something."""
    found = [item for item in parts(Source(name, data), kind_of(name) or "") if isinstance(item, Part)]
    return [(" › ".join(part.heading), part.place, part.text) for part in found if part.text.strip()]


def work(index: Index, **job: Any) -> list[Step]:
    """What a worker tells of a job on this index, done in this process."""
    steps: list[Step] = []
    data = job.pop("data", b"")
    Worker(index, Job(str(index.path), "en", 3_000_000, 1000, **job), steps.append).work(io.BytesIO(data))
    return steps


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def test_markdown_has_the_path_of_its_headings() -> None:
    text = "Before.\n\n# Guide #\n\nHello.\n\n## C#\n\n```\n# no heading\n```\n\n# Other\n\nEnd.\n"
    assert read("a.md", text.encode()) == [
        ("", "", "Before.\n"),
        ("Guide", "", "\nHello.\n"),
        ("Guide › C#", "", "\n```\n# no heading\n```\n"),
        ("Other", "", "\nEnd."),
    ]


def test_a_heading_with_nothing_below_it_is_a_passage(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    notes = "# Call Dr Meyer 555-1234\n\n# Plan\n\n## Monday\n\nRest.\n\n## Tuesday\n"
    (docs / "notes.md").write_text(notes, "utf-8")
    index = Index(tmp_path / "a.db")
    index.add_root("folder", str(docs))
    read_in = [(step.name, step.passages, step.trouble) for step in work(index) if step.what == "read"]
    assert read_in == [("notes.md", 3, "")]
    index.close()


def test_html_is_read_without_scripts_and_navigation() -> None:
    page = """<html><head><title>Manual</title><style>p {}</style></head><body><nav>Home About</nav>
    <h2>Reset &amp; start</h2><p>Press the <b>red</b> button<br>twice.</p>loose text<div hidden>secret</div>
    <ul><li>one</li><li>two</li></ul><script>alert(1)</script>
    <table><tr><th>Code</th><th>Meaning</th></tr><tr><td>E1</td><td>a | b</td></tr></table>
    <pre>x = 1
y = 2</pre><footer>Imprint</footer></body></html>"""
    assert read("a.html", page.encode()) == [
        (
            "Manual › Reset & start",
            "",
            "Press the **red** button\ntwice.\n\nloose text\n\n- one\n- two\n\n"
            "| Code | Meaning |\n|---|---|\n| E1 | a \\| b |\n\n```\nx = 1\ny = 2\n```",
        )
    ]


def test_html_keeps_columns_and_code_and_what_only_looks_like_a_heading() -> None:
    page = """<h1>Prices</h1><p># 1 of all</p><table><tr><td rowspan=2>Pump</td><td>small</td><td>10</td></tr>
    <tr><td>large</td><td>20</td></tr></table><pre>```\n# no heading</pre><p>The end.</p>"""
    assert read("a.html", page.encode()) == [
        (
            "Prices",
            "",
            "\\# 1 of all\n\n| Pump | small | 10 |\n|---|---|---|\n| Pump | large | 20 |\n\n"
            "~~~~\n```\n# no heading\n~~~~\n\nThe end.",
        )
    ]


def test_pdf_pages_stand_under_what_looks_like_a_heading() -> None:
    document = text_pdf("Chapter 2 Leave", "Thirty days a year.", "2.1 Sick leave")
    assert read("handbook.pdf", document) == [
        ("Chapter 2 Leave", "page=1", "Chapter 2 Leave"),
        ("Chapter 2 Leave", "page=2", "Thirty days a year."),
        ("Chapter 2 Leave › 2.1 Sick leave", "page=3", "2.1 Sick leave"),
    ]


def test_docx_has_headings_lists_and_tables_in_their_order() -> None:
    document = docx.Document()
    document.add_heading("Travel", 1)
    document.add_paragraph("By train.")
    document.add_heading("Hotels", 2)
    document.add_paragraph("quiet", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for row, texts in zip(table.rows, (("City", "Limit"), ("Oslo", "180")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    assert read("a.docx", saved(document)) == [
        ("Travel", "", "By train."),
        ("Travel › Hotels", "", "- quiet\n\n| City | Limit |\n|---|---|\n| Oslo | 180 |"),
    ]


def test_xlsx_sheets_are_tables() -> None:
    from datetime import date, datetime

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
    assert read("a.xlsx", saved(book)) == [
        (
            "Prices",
            "sheet=Prices",
            "| Pump | Price | From |\n|---|---|---|\n| P-1 | 1.5 | 2026-03-01 |\n| P-2 | 2 | 2026-04-01 |",
        )
    ]


def test_pptx_slides_have_numbers_titles_and_notes() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Roadmap"
    slide.placeholders[1].text = "Launch in April"
    slide.notes_slide.notes_text_frame.text = "smile"
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    frame = slide.shapes.add_table(1, 2, 0, 0, 900000, 900000)
    frame.table.cell(0, 0).text = "Q1"
    assert read("a.pptx", saved(deck)) == [
        ("Roadmap", "slide=1", "Roadmap\n\nLaunch in April\n\nNotes: smile"),
        ("", "slide=2", "| Q1 |  |\n|---|---|"),
    ]


def test_csv_is_a_table() -> None:
    assert read("a.csv", b'Name;Town\r\n\r\n"Ada; Lovelace";London\r\n') == [
        ("", "", "| Name | Town |\n|---|---|\n| Ada; Lovelace | London |")
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße".encode(), "Grüße"),
        ("Grüße".encode("utf-8-sig"), "Grüße"),
        ("Grüße".encode("utf-16"), "Grüße"),
        ("Hello".encode("utf-16-le"), "Hello"),
        ("Hello".encode("utf-16-be"), "Hello"),
        ("Grüße".encode("utf-32"), "Grüße"),
        (b"", ""),
    ],
)
def test_text_is_read_in_its_encoding(data: bytes, text: str) -> None:
    assert decode(data) == text


@pytest.mark.parametrize("data", [bytes(range(256)) * 20, b"\x01\x02\x03" * 100, b"PK\x03\x04" + b"\0" * 50])
def test_what_is_no_text_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(Unreadable, match="not text"):
        read("a.md", data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.MD", "markdown"),
        ("README", "text"),
        ("a.b/c.PDF", "pdf"),
        ("x.png", None),
        (".env", "text"),
        ("a.doc", "old"),
    ],
)
def test_the_kind_goes_by_the_name(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


# passages


def test_passages_are_of_bounded_length_and_lose_nothing() -> None:
    sentence = "The quick brown fox jumps over the lazy dog. "
    text = sentence * 200 + "\n\n" + "x" * 3000 + "\n\nEnd."
    found = list(pieces(text))
    assert max(map(len, found)) <= LENGTH
    assert "".join("".join(found).split()) == "".join(text.split())
    assert found[0].endswith("dog.")


def test_every_piece_of_a_table_has_its_header() -> None:
    rows = [f"| P-{n} | {n} euro, in stock |" for n in range(100)]
    found = list(pieces("\n".join(["| Pump | Price |", "|---|---|", *rows])))
    assert len(found) == 3
    assert all(piece.startswith("| Pump | Price |\n|---|---|\n| P-") for piece in found)
    assert [row for piece in found for row in piece.splitlines()[2:]] == rows


@pytest.mark.parametrize("text", ["\n" * 300_000, "# " * 300_000, "| " * 300_000, " \n" * 300_000, "`" * 300_000])
def test_odd_text_takes_no_longer_than_other_text(text: str) -> None:
    for _, body in sections(text):
        for _ in pieces(body):
            pass
    # what is not linear takes minutes


# bad files


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def with_document(xml: bytes) -> bytes:
    """A docx whose main part is this."""
    with zipfile.ZipFile(io.BytesIO(saved(docx.Document()))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return zip_of({**members, "word/document.xml": xml})


def lying_about_sizes(archive: bytes) -> bytes:
    """The same, but its one member is packed in a million bytes, as its list of contents says."""
    at = archive.index(b"PK\x01\x02") + 20
    return archive[:at] + (1_000_000).to_bytes(4, "little") + archive[at + 4 :]


def larger_than_it_says(size: int) -> bytes:
    """A docx of which one part unpacks to more than the file says in both places."""
    data = bytearray(with_document(b"A" * 3_000_000 + bytes(range(256)) * 400))
    real = (3_000_000 + 102_400).to_bytes(4, "little")
    assert data.count(real) == 2
    return bytes(data.replace(real, size.to_bytes(4, "little")))


NAMESPACE = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("bomb.docx", zip_of({"word/document.xml": bytes(201_000_000)}), "it unpacks to more than 200 MB"),
        ("many.xlsx", zip_of({f"{n:x}": b"" for n in range(20_001)}), "it has more than 20,000 parts"),
        ("tree.docx", with_document(b"<a/>" * 5_000_001), "a part of it unpacks to more than 20 MB"),
        ("ratio.docx", with_document(b"<w:p/>" * 200_000), "a part of it unpacks to more than 100 times its size"),
        ("sheet.xlsx", zip_of({"xl/worksheets/a.xml": bytes(2_000_000)}), "more than 100 times its size"),
        ("overlap.xlsx", lying_about_sizes(zip_of({"a": b"b"})), "damaged: its parts overlap"),
        ("lying.docx", larger_than_it_says(50_000), "damaged: "),
        ("locked.xlsx", b"\xd0\xcf\x11\xe0" + b"x" * 600, "encrypted, or in an old Office format"),
        ("junk.docx", b"junk" * 100, "damaged: not what its name says"),
        ("empty.pptx", zip_of({"a": b"b"}), "damaged: not what its name says"),
        ("bad.docx", with_document(b"<w:document"), "damaged: not what its name says"),
        ("old.doc", b"\xd0\xcf\x11\xe0", "an old Office format; save it as docx"),
        ("locked.pdf", text_pdf("x", encrypted=True), "encrypted"),
        ("junk.pdf", b"%PDF-1.4 junk", "cannot be read"),
        ("junk.txt", bytes(range(32)) * 9, "not text, though its name says so"),
        ("empty.md", b" \n", "no text is in it"),
        ("large.txt", b"x" * 3_000_001, "larger than 3 MB"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[-5:] else "",
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / name).write_bytes(data)
    (folder / "zzz.txt").write_text("fine")
    index = Index(tmp_path / "a.db")
    index.add_root("folder", str(folder))
    done = {step.name: step for step in work(index) if step.what == "read"}
    assert why in done[name].trouble
    assert done[name].passages == 0
    assert done["zzz.txt"].passages == 1
    assert "unchanged" in {step.what for step in work(index)}, "it is not tried again"
    index.close()


def test_entities_of_a_document_open_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    xml = b'<!DOCTYPE x [<!ENTITY e SYSTEM "file://%s">]><w:document %s><w:body><w:p><w:r><w:t>a &e;</w:t></w:r></w:p>'
    document = with_document(xml % (str(secret).encode(), NAMESPACE) + b"</w:body></w:document>")
    assert "secret" not in str(read("a.docx", document))


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(Unreadable, match=r"Office files need an extra: pip install 'brain-sse\[office\]'"):
        read("a.docx", b"PK")


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


def test_without_ocr_scanned_pages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    (trouble,) = [item for item in parts(Source("scan.pdf", scan()), "pdf") if isinstance(item, Trouble)]
    assert trouble.text.startswith("no page could be read: page 1: it is scanned, and no OCR engine is installed")


# folders


def names(root: Path) -> tuple[list[str], dict[str, int]]:
    passed = SkippedFiles()
    return [seen.name for seen in walk(root, passed)], dict(passed.reasons)


def test_hidden_files_links_and_devices_are_passed_over(tmp_path: Path) -> None:
    root, outside = tmp_path / "docs", tmp_path / "outside"
    for path in (
        "docs/a.md",
        "docs/.b.md",
        "docs/.git/c.md",
        "docs/node_modules/d/e.md",
        "docs/sub/f.TXT",
        "outside/g.md",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (root / "h.png").write_text("x")
    (root / "~$i.docx").write_text("x")
    (root / "j").symlink_to(outside)
    (root / "k.md").symlink_to(outside / "g.md")
    (root / "sub" / "loop").symlink_to(root)
    os.mkfifo(root / "l.txt")
    assert names(root) == (
        ["a.md", "sub/f.TXT"],
        {"a link, which is not followed": 3, "not a kind that is read: .png": 1, "not a plain file": 1},
    )


def test_a_socket_is_not_opened(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tmp_path)  # the path of a socket must be short
        server.bind("s.txt")
        assert names(tmp_path)[0] == []


@pytest.mark.skipif(sys.platform == "darwin", reason="there, all file names are UTF-8")
def test_a_name_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.txt")).write_text("x")
    assert names(tmp_path) == ([], {"a name that is not UTF-8": 1})


def test_one_file_is_a_root_too(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(name)
    assert names(tmp_path / "a.md") == (["a.md"], {})
    assert read_content(tmp_path / "a.md", "a.md", 100) == b"a.md"


@pytest.mark.parametrize("name", ["link.md", "folder/b.md", "../outside/a.md"])
def test_content_is_never_that_of_another_place(tmp_path: Path, name: str) -> None:
    root, outside = tmp_path / "docs", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    for file in ("a.md", "b.md"):
        (outside / file).write_text("secret")
    (root / "link.md").symlink_to(outside / "a.md")
    (root / "folder").symlink_to(outside)
    with pytest.raises((Outside, OSError)):
        read_content(root, name, 100)


def test_a_link_in_the_place_of_the_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_text("secret")
    (tmp_path / "docs").symlink_to(tmp_path / "outside")
    assert names(tmp_path / "docs") == ([], {"a folder in whose place there is a link now": 1})


def test_a_file_that_cannot_be_opened_is_not_tried_at_every_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("zebra")
    index = Index(tmp_path / "a.db")
    root = index.add_root("folder", str(docs))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *args: (_ for _ in ()).throw(PermissionError()))
        read = next(step for step in work(index) if step.what == "read")
    assert (read.passages, read.trouble) == (0, "it cannot be opened")
    assert find_changes(index, root, SkippedFiles()) == ([], [], 1)
    index.retry("it cannot be opened")
    assert next(step for step in work(index) if step.what == "read").passages == 1
    index.close()


def test_a_pipe_in_the_place_of_a_file_does_not_hold_it_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises((Outside, OSError)):
        read_content(tmp_path, "a.md", 100)


# uploads


def upload(files: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    uploads = [Upload(name, "text/plain", len(data)) for name, data in files]
    return {"uploads": uploads, "keep": [name for name, _ in files], "data": b"".join(data for _, data in files)}


def test_uploads_are_those_that_the_conversation_has(tmp_path: Path) -> None:
    index = Index(tmp_path / "a.db")
    work(index, conversation="c1", **upload([("a.txt", b"one"), ("b.txt", b"two")]))
    work(index, conversation="c2", **upload([("a.txt", b"other")]))
    work(index, conversation="c1", **upload([("b.txt", b"three")]))
    rows = index.db.execute(
        "SELECT r.place, c.name, c.text FROM chunk c JOIN file f ON f.id = c.file JOIN root r ON r.id = f.root"
    )
    assert sorted(rows) == [("c1", "b.txt", "three"), ("c2", "a.txt", "other")]
    index.close()


def test_conversations_used_longest_ago_make_room(tmp_path: Path) -> None:
    index = Index(tmp_path / "a.db")
    for number in range(4):
        work(index, conversation=f"c{number}", **upload([("a.txt", b"x" * 100)]))
    index.expire_conversations("c0", most=250, seconds=1000)
    assert [root.place for root in index.roots()] == ["c0", "c2", "c3"]
    index.expire_conversations("c0", most=250, seconds=0)
    assert [root.place for root in index.roots()] == ["c0"]
    index.close()


def test_files_are_read_again_when_they_are_read_in_another_way(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.txt").write_text("words")
    (docs / "bad.docx").write_text("no zip")
    index = Index(tmp_path / "a.db")
    index.add_root("folder", str(docs))
    work(index)
    index.set_abilities(READER, "with other packages")
    assert sorted(step.name for step in work(index) if step.what == "read") == ["bad.docx"]
    index.set_abilities(READER + 1, "with a new reader")
    assert sorted(step.name for step in work(index) if step.what == "read") == ["bad.docx", "good.txt"]
    assert [step.what for step in work(index)] == ["begin", "unchanged", "over"]
    index.close()


def test_a_full_index_takes_no_more(tmp_path: Path) -> None:
    index = Index(tmp_path / "a.db")
    steps: list[Step] = []
    job = Job(str(index.path), "en", 1_000_000, 3, "c", ["a.txt"], [Upload("a.txt", "", 9000)])
    Worker(index, job, steps.append).work(io.BytesIO(b"word " * 1800))
    read = next(step for step in steps if step.what == "read")
    assert (read.passages, read.trouble) == (3, "the index is full: it holds at most 3 passages")
    index.close()
