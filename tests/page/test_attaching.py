"""Files that go with a message: by button, drop and paste."""

import base64
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, expect

from page.chat import Chat
from page.stage import Stage
from page.test_beginning import held
from page.visitor import Visitor

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

LOADS = """(address) => new Promise((resolve) => {
    const image = new Image();
    image.onload = () => resolve(true);
    image.onerror = () => resolve(false);
    image.src = address;
})"""


def payload(name: str, kind: str, data: bytes) -> FilePayload:
    return FilePayload(name=name, mimeType=kind, buffer=data)


def test_files_are_shown_sent_as_they_are_and_cleared(chat: Chat, stage: Stage) -> None:
    chat.attach(
        payload("dot.png", "image/png", PNG),
        payload("naïve notes.txt", "text/plain", "naïve".encode()),
        payload("gone.txt", "text/plain", b"-"),
        payload("empty", "", b""),
    )
    items = chat.files.get_by_role("listitem")
    expect(items).to_have_count(3)
    expect(chat.alert).to_have_text("empty was not attached: it is empty.")
    expect(items.first.locator("img")).to_have_js_property("naturalWidth", 1)
    chat.button("Remove gone.txt").click()
    chat.box.press("Enter")
    expect(chat.alert).to_have_text("Write a message to go with the files.")
    chat.ask("read\nthem")
    question = stage.model.question()
    assert question.endswith("read\nthem")
    assert '1: "dot.png" (image/png), 2: "naïve notes.txt" (text/plain)' in question
    expect(items).to_have_count(0)
    expect(chat.question).to_contain_text("naïve notes.txt")
    expect(chat.question.get_by_role("img", name="dot.png")).to_have_js_property("naturalWidth", 1)
    chat.call("reader").nth(1).get_by_text("reader", exact=True).click()
    expect(chat.call("reader").nth(1)).to_contain_text("2 naïve notes.txt text/plain 6")
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(chat.call("reader")).to_have_count(2)
    expect(chat.question).to_contain_text("naïve notes.txt")
    expect(chat.question.get_by_role("img", name="dot.png")).to_have_js_property("naturalWidth", 1)


def test_a_file_that_is_gone_is_said_and_nothing_is_sent(chat: Chat, stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "gone.txt"
    path.write_text("here")
    chat.attach(path)
    expect(chat.files.get_by_role("listitem")).to_have_count(1)
    path.unlink()
    chat.box.fill("read it")
    chat.box.press("Enter")
    expect(chat.alert).to_contain_text("gone.txt cannot be read: it was moved or changed. Attach it again.")
    expect(chat.box).to_have_value("read it")
    assert stage.model.asked == []


def test_files_come_by_drop_and_paste(chat: Chat) -> None:
    chat.drop(("dropped.png", "image/png", "x"))
    chat.paste(("pasted.png", "image/png", "x"))
    expect(chat.files).to_contain_text("dropped.png")
    expect(chat.files).to_contain_text("pasted.png")


def test_large_files_fit_into_a_message(chat: Chat, stage: Stage) -> None:
    chat.page.evaluate(DROP, [16 * MIB, 3 * MIB])
    expect(chat.files.get_by_role("listitem")).to_have_count(2)
    answer = chat.ask("read them")
    stage.model.says("read")
    expect(answer).to_contain_text("read")
    stage.model.ends()
    chat.is_idle()


def test_too_many_or_too_large_ones_are_refused(chat: Chat) -> None:
    chat.page.evaluate(DROP, [16 * MIB + 1])
    expect(chat.alert).to_have_text("f0 was not attached: it is larger than 16 MiB.")
    chat.page.evaluate(DROP, [16 * MIB, 3 * MIB, 1])
    expect(chat.alert).to_have_text("f2 was not attached: all files together may have 19 MiB.")
    expect(chat.files.get_by_role("listitem")).to_have_count(2)
    chat.button("Remove f0").click()
    expect(chat.alert.filter(has_text="f2")).to_have_count(0)
    chat.page.evaluate(DROP, [1] * 10)
    expect(chat.alert).to_have_text("Not attached: f9. A message can have 10 files.")
    expect(chat.files.get_by_role("listitem")).to_have_count(10)


def test_the_name_of_a_file_is_text(chat: Chat, stage: Stage) -> None:
    name = "<img src=x onerror=hacked=1><b>bold"
    chat.attach(payload(name, "text/plain", b"x"))
    expect(chat.files.get_by_text(name)).to_be_visible()
    chat.ask("read it")
    stage.model.ends()
    chat.is_idle()
    for reloaded in (False, True):
        if reloaded:
            chat.reload()
        expect(chat.question.get_by_text(name)).to_be_visible()
        expect(chat.question.locator("img, b")).to_have_count(0)
    assert chat.page.evaluate("window.hacked") is None


def test_a_dropped_folder_stands_for_its_files(chat: Chat, tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    (folder / "old").mkdir(parents=True)
    (folder / "b.txt").write_text("b")
    (folder / ".hidden").write_text("-")
    (folder / "old" / "c.txt").write_text("c")
    (tmp_path / "a.txt").write_text("a")
    drop_paths(chat, tmp_path / "a.txt", folder)
    expect(chat.files.locator(".file-name")).to_have_text(["a.txt", "b.txt", "c.txt"])
    expect(chat.alert).to_have_text([])


def test_a_folder_with_nothing_or_too_much_is_refused(chat: Chat, tmp_path: Path) -> None:
    for name, count in (("none", 0), ("many", 11)):
        (tmp_path / name).mkdir()
        for n in range(count):
            (tmp_path / name / f"{n}.txt").write_text("-")
    drop_paths(chat, tmp_path / "none", tmp_path / "many")
    expect(chat.alert).to_contain_text("none was not attached: the folder is empty.")
    expect(chat.alert).to_contain_text("many was not attached: the folder has more than 10 files.")
    expect(chat.files.get_by_role("listitem")).to_have_count(0)


def drop_paths(chat: Chat, *paths: Path) -> None:
    """Drops what is on the disk, as a file manager would."""
    drag(chat, 600, 300, {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1})


def drag(chat: Chat, x: float, y: float, data: object) -> None:
    devtools = chat.page.context.new_cdp_session(chat.page)
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, "x": x, "y": y, "data": data})


def test_what_was_said_of_files_is_not_said_of_another_message(chat: Chat, stage: Stage) -> None:
    chat.ask("one")
    stage.model.says("Yes.")
    stage.model.ends()
    chat.is_idle()
    chat.page.evaluate(DROP, [0])
    expect(chat.alert).to_have_text("f0 was not attached: it is empty.")
    chat.question.get_by_role("button", name="Edit", exact=True).click()
    expect(chat.alert).to_have_text([])


def test_many_that_are_left_out_are_said_in_short(chat: Chat) -> None:
    chat.page.evaluate(DROP, [1] * 15)
    expect(chat.alert).to_have_text("Not attached: f10, f11, f12, and 2 others. A message can have 10 files.")


def test_what_comes_before_the_server_has_answered_is_attached_then(stage: Stage, visitor: Visitor) -> None:
    page = visitor.context.new_page()
    start = held(page, "**/page/start", lambda: page.goto(stage.url))
    chat = Chat(page)
    chat.paste(("pasted.txt", "text/plain", "x"))
    page.evaluate(DROP, [3])
    chat.box.fill("read them")
    chat.box.press("Enter")
    start.continue_()
    expect(chat.question).to_contain_text("pasted.txt")
    expect(chat.question).to_contain_text("f0")
    stage.model.ends()
    chat.is_idle()


@pytest.mark.parametrize("how", ["paste", "drop"])
def test_text_that_is_too_long_is_attached_instead(chat: Chat, how: str) -> None:
    """Six million characters in the box would make the browser stand still."""
    insert = paste_text if how == "paste" else drop_text
    chat.box.fill("look: ")
    insert(chat, "word " * 1_200_000)
    expect(chat.files.get_by_role("listitem")).to_contain_text("pasted.txt")
    expect(chat.files.get_by_role("listitem")).to_contain_text("5.7 MiB")
    expect(chat.alert).to_have_text("What you pasted is too long for a message, so it was attached as a file.")
    expect(chat.box).to_have_value("look: ")
    insert(chat, "this")
    expect(chat.box).to_have_value("look: this")


def paste_text(chat: Chat, text: str) -> None:
    chat.page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    chat.box.press("Control+v")


def drop_text(chat: Chat, text: str) -> None:
    chat.box.scroll_into_view_if_needed()
    box = chat.box.bounding_box()
    assert box
    data = {"items": [{"mimeType": "text/plain", "data": text}], "dragOperationsMask": 1}
    drag(chat, box["x"] + box["width"] - 20, box["y"] + 15, data)


def test_what_is_lost_by_a_reload_is_said(chat: Chat) -> None:
    chat.attach(payload("a.txt", "text/plain", b"-"), payload("b.txt", "text/plain", b"-"))
    chat.box.fill("read them")
    chat.reload()
    expect(chat.box).to_have_value("read them")
    expect(chat.alert).to_have_text("a.txt and b.txt have to be attached again: the page was reloaded.")
    chat.attach(payload("a.txt", "text/plain", b"-"))
    expect(chat.alert).to_have_text([])
    chat.button("Remove a.txt").click()
    chat.reload()
    expect(chat.alert).to_have_text([])


def test_the_browser_lets_go_of_a_picture_that_is_taken_off(chat: Chat, visitor: Visitor) -> None:
    visitor.expects("blob:")  # which cannot be loaded then
    chat.attach(payload("dot.png", "image/png", PNG))
    address = chat.files.locator("img").get_attribute("src")
    chat.button("Remove dot.png").click()
    devtools = chat.page.context.new_cdp_session(chat.page)
    for _ in range(50):
        devtools.send("HeapProfiler.collectGarbage")
        if not chat.page.evaluate(LOADS, address):
            return
    raise AssertionError("it is still there")
