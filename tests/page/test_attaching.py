"""Files that go with a message: by button, drop and paste."""

import base64
import re
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, expect

from page.chat import Chat
from page.stage import Stage

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
    expect(chat.alert).to_contain_text("empty: it is empty")
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
    expect(chat.alert).to_contain_text("gone.txt: it was moved or changed; attach it again.")
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
    expect(chat.alert).to_have_text(re.compile(r"^f0: larger than 16(\.0)? MiB\.$"))
    chat.page.evaluate(DROP, [16 * MIB, 3 * MIB, 1])
    expect(chat.alert).to_have_text(re.compile(r"^f2: more than 19(\.0)? MiB together\.$"))
    expect(chat.files.get_by_role("listitem")).to_have_count(2)
    chat.button("Remove f0").click()
    expect(chat.alert.filter(has_text="f2")).to_have_count(0)
    chat.page.evaluate(DROP, [1] * 10)
    expect(chat.alert).to_have_text("f9: at most 10 files.")
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
