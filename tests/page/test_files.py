"""Attachments: by button, drop and paste."""

import base64
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, expect

from page.chat import Chat
from page.server import PageServer
from page.texts import page_text

pytestmark = pytest.mark.chromium

MIB = 1024 * 1024
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DROP = """(sizes) => {
    const data = new DataTransfer();
    sizes.forEach((size, i) => data.items.add(new File([new Uint8Array(size)], `f${i}`)));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
}"""
HOSTILE = "<img src=x onerror=hacked=1><b>bold"


def make_file(name: str, kind: str = "text/plain", data: bytes = b"x") -> FilePayload:
    return FilePayload(name=name, mimeType=kind, buffer=data)


def test_files_are_shown_and_sent_unchanged(chat: Chat, server: PageServer, tmp_path: Path) -> None:
    files = ("dot.png", "image/png", PNG), ("naïve notes.txt", "text/plain", "naïve".encode()), ("gone", "", b"-")
    chat.attach(*(make_file(*one) for one in files), make_file("empty", "", b""))
    items = chat.files.get_by_role("listitem")
    expect(items).to_have_count(3)
    expect(chat.alert).to_have_text(page_text("emptyFile", name="empty"))
    expect(items.first.locator("img")).to_have_js_property("naturalWidth", 1)
    chat.button("Remove gone").click()
    chat.box.press("Enter")
    expect(chat.alert).to_have_text(page_text("needsMessage"))
    chat.ask("read\nthem")
    expect(items).to_have_count(0)
    (question,) = server.model.questions()
    assert question.endswith("read\nthem")
    assert '1: "dot.png" (image/png), 2: "naïve notes.txt" (text/plain)' in question
    chat.card("reader").nth(1).get_by_text("reader", exact=True).click()
    expect(chat.card("reader").nth(1)).to_contain_text("2 naïve notes.txt text/plain 6")
    server.finish(chat, "Read.")
    for _ in range(2):
        expect(chat.card("reader")).to_have_count(2)
        expect(chat.question).to_contain_text("naïve notes.txt")
        expect(chat.question.get_by_role("img", name="dot.png")).to_have_js_property("naturalWidth", 1)
        chat.reload()
    path = tmp_path / "gone.txt"
    path.write_text("here")
    chat.attach(path)
    expect(items).to_have_count(1)
    path.unlink()
    chat.box.fill("read it")
    chat.box.press("Enter")
    expect(chat.alert).to_contain_text(page_text("goneFile", name="gone.txt"))
    expect(chat.box).to_have_value("read it")
    assert len(server.model.requests) == 1
    chat.reload()
    expect(chat.box).to_have_value("read it")
    expect(chat.alert).to_have_text(page_text("lostFiles", names="gone.txt"))
    chat.attach(make_file("a.txt"))
    expect(chat.alert).to_have_text([])


def test_names_of_files_are_text_and_stay_the_same(chat: Chat, server: PageServer) -> None:
    names = ["a/b.txt", "c:\\d.txt", "e\tf\u202e  g.txt", f"{'h' * 250}.txt", "i/", HOSTILE]
    chat.drop(*((name, "text/plain", "x") for name in names[:5]))
    chat.paste((HOSTILE, "image/png", "x"))
    expect(chat.files.get_by_text(HOSTILE)).to_be_visible()
    server.answer(chat, "read them", "Read.")
    for _ in range(2):
        shown = chat.question.get_by_role("listitem").locator(".name")
        expect(shown.filter(has_not_text="bold")).to_have_text(["b.txt", "d.txt", "e f g.txt", "h" * 200, "file"])
        expect(chat.question.get_by_role("img", name=HOSTILE, exact=True)).to_be_attached()
        expect(chat.question.locator("b")).to_have_count(0)
        chat.reload()
    assert chat.page.evaluate("window.hacked") is None


def test_limits_of_files(chat: Chat, server: PageServer) -> None:
    chat.page.evaluate(DROP, [16 * MIB + 1])
    expect(chat.alert).to_have_text(page_text("largeFile", name="f0", size="16 MiB"))
    chat.page.evaluate(DROP, [16 * MIB, 3 * MIB, 1])
    expect(chat.alert).to_have_text(page_text("largeFiles", name="f2", size="19 MiB"))
    expect(chat.files.get_by_role("listitem")).to_have_count(2)
    server.answer(chat, "read them", "read")  # they fit into a request
    chat.page.evaluate(DROP, [1] * 15)
    expect(chat.alert).to_have_text(page_text("tooMany", names="f10, f11, f12, and 2 others", count=10))
    expect(chat.files.get_by_role("listitem")).to_have_count(10)
    chat.edit_question()
    expect(chat.alert).to_have_text([])


def test_a_dropped_folder_stands_for_its_files(chat: Chat, tmp_path: Path) -> None:
    for path in ("papers/b.txt", "papers/.hidden", "papers/old/c.txt", "a.txt", *(f"many/{n}" for n in range(11))):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("-")
    (tmp_path / "none").mkdir()
    drag_paths(chat, tmp_path / "a.txt", tmp_path / "papers")
    expect(chat.files.locator(".file-name")).to_have_text(["a.txt", "b.txt", "c.txt"])
    expect(chat.alert).to_have_text([])
    drag_paths(chat, tmp_path / "none", tmp_path / "many")
    expect(chat.alert).to_contain_text(page_text("emptyFolder", name="none"))
    expect(chat.alert).to_contain_text(page_text("largeFolder", name="many", count=10))


def drag_paths(chat: Chat, *paths: Path) -> None:
    """Drop paths, as a file manager does."""
    drag(chat, 600, 300, {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1})


def drag(chat: Chat, x: float, y: float, data: object) -> None:
    devtools = chat.page.context.new_cdp_session(chat.page)
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, "x": x, "y": y, "data": data})


def test_text_that_is_too_long_is_attached_instead(chat: Chat) -> None:
    """Six million characters in the box would freeze the browser."""
    chat.box.fill("look: ")
    items = chat.files.get_by_role("listitem")
    for text, value in (("word " * 1_200_000, "look: "), ("this", "look: this")):
        chat.page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
        chat.box.press("Control+v")
        expect(items).to_contain_text("pasted.txt")
        expect(items).to_contain_text("5.7 MiB")
        expect(chat.box).to_have_value(value)
    box = chat.box.bounding_box()
    assert box
    data = {"items": [{"mimeType": "text/plain", "data": "word " * 1_200_000}], "dragOperationsMask": 1}
    drag(chat, box["x"] + box["width"] - 20, box["y"] + 15, data)
    expect(items).to_have_count(2)
    expect(chat.box).to_have_value("look: this")
