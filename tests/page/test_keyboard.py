"""All that a person does, without a mouse."""

import pytest
from playwright.sync_api import FilePayload, expect

from page.chat import Chat
from page.keyboard import Keyboard
from page.stage import Conductor, Stage, request
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

TWO_MODELS = {"MODEL": "builtin,openai:second", "MODEL_URL": "http://127.0.0.1:9"}
STOPS = [
    *("Skip to the message", "New conversation", "Search conversations", "tea?", "Options for tea?"),
    *("Show or hide the conversations", "Model", "Specialists", "Memory", "Settings"),
    *("Conversation", "Copy", "Edit", "Page", "Copy the code", "code", "wiki", "Copy", "Retry"),
    *("Message", "Attach", "Send"),
]


@pytest.fixture
def keys(chat: Chat) -> Keyboard:
    return Keyboard(chat.page)


def answered(chat: Chat, stage: Stage, keys: Keyboard, question: str = "tea?", answer: str = "Boil water.") -> None:
    """A question with its answer, asked by keys."""
    expect(chat.box).to_be_focused()
    keys.writes(question)
    keys.press("Enter")
    stage.model.says(answer)
    stage.model.ends()
    expect(chat.answer).to_contain_text(answer)
    chat.is_idle()
    expect(chat.conversation(question)).to_be_visible()


def test_each_stop_is_seen_and_none_is_a_trap(chat: Chat, stage: Stage, keys: Keyboard) -> None:
    stage.library.set()
    stage.model.says("[Page](https://example.org)\n\n```\ncode\n```\n\n", request("wiki", title="Bern"), " x")
    answered(chat, stage, keys)
    assert list(keys.stops()) == ["Attach", "Send"]  # behind the box
    seen = []
    for stop in keys.stops():
        seen.append(stop)
        assert keys.sees_the_focus(), stop
    assert seen == STOPS
    assert list(keys.stops("Shift+Tab")) == STOPS[::-1]


def test_the_first_stop_leads_to_the_message(chat: Chat, keys: Keyboard) -> None:
    chat.page.evaluate("document.activeElement.blur()")
    keys.press("Home")
    keys.chooses("Skip to the message")
    expect(chat.box).to_be_focused()


def test_a_message_is_sent_steered_and_stopped(chat: Chat, stage: Stage, keys: Keyboard) -> None:
    keys.writes("one")
    keys.press("Shift+Enter")
    keys.writes("line")
    keys.press("Enter")
    stage.model.says("So far.\n")
    expect(chat.answer).to_contain_text("So far.")
    expect(chat.box).to_be_focused()
    keys.writes("shorter, please")
    keys.chooses("Add to the answer")
    stage.model.says("\n")
    expect(chat.answer).to_contain_text("shorter, please")
    expect(chat.box).to_be_focused()
    stage.model.says("Less.")
    expect(chat.answer).to_contain_text("Less.")
    expect(chat.button("Stop")).to_be_enabled()
    keys.chooses("Stop")
    chat.is_idle()
    expect(chat.answer).to_contain_text("Stopped.")
    expect(chat.box).to_be_focused()


def test_retry_edit_and_copy(chat: Chat, stage: Stage, keys: Keyboard) -> None:
    answered(chat, stage, keys)
    keys.chooses("Retry", "Shift+Tab")
    stage.model.says("Boil it.")
    stage.model.ends()
    expect(chat.answer).to_contain_text("Boil it.")
    chat.is_idle()
    keys.goes_to("Retry", "Shift+Tab")
    keys.chooses("Copy", "Shift+Tab")
    assert chat.clipboard() == "Boil it."
    keys.chooses("Edit", "Shift+Tab")
    expect(chat.box).to_be_focused()
    expect(chat.box).to_have_value("tea?")
    keys.press("Escape")
    expect(chat.box).to_have_value("")
    keys.chooses("Edit", "Shift+Tab")
    keys.press("Control+a")
    keys.writes("coffee?")
    keys.press("Enter")
    stage.model.says("Grind.")
    stage.model.ends()
    expect(chat.answer).to_contain_text("Grind.")
    chat.is_idle()
    expect(chat.questions).to_have_count(1)


@pytest.mark.parametrize(("button", "burnt"), [("Approve", ["Emma"]), ("Decline", [])])
def test_a_call_is_decided_and_its_card_opened(
    chat: Chat, stage: Stage, keys: Keyboard, button: str, burnt: list[str]
) -> None:
    keys.writes("burn it")
    keys.press("Enter")
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    keys.chooses(button, "Shift+Tab")
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.says("Done.")
    stage.model.ends()
    expect(chat.answer).to_contain_text("Done.")
    chat.is_idle()
    assert stage.burnt == burnt
    assert keys.focus.startswith("burns")  # the summary of the card
    keys.press("Enter")
    expect(chat.call("burns").get_by_text('"title": "Emma"').last).to_be_visible()
    keys.press("Enter")
    expect(chat.call("burns").get_by_text('"title": "Emma"').last).to_be_hidden()


def test_conversations_are_searched_opened_renamed_and_deleted(chat: Chat, stage: Stage, keys: Keyboard) -> None:
    answered(chat, stage, keys)
    keys.press("Control+Shift+O")
    expect(chat.questions).to_have_count(0)
    answered(chat, stage, keys, "coffee?", "Grind.")
    keys.press("Control+k")
    keys.writes("tea")
    expect(chat.conversation("coffee?")).to_be_hidden()
    keys.chooses("tea?")
    expect(chat.answer).to_contain_text("Boil water.")
    keys.goes_to("Search conversations", "Shift+Tab")
    keys.press("Escape")
    expect(chat.conversation("coffee?")).to_be_visible()
    options = chat.history.get_by_role("button", name="Options for tea?", exact=True)
    keys.chooses("Options for tea?")
    assert keys.focus == "Rename"
    keys.press("ArrowDown")
    assert keys.focus == "Delete"
    keys.press("ArrowDown", "Escape")
    expect(options).to_be_focused()
    keys.press("Enter", "Enter")
    keys.writes("Tea")
    keys.press("Enter")
    expect(chat.conversation("Tea")).to_be_visible()
    expect(chat.history.get_by_role("button", name="Options for Tea", exact=True)).to_be_focused()
    keys.press("Enter", "End", "Enter")
    assert keys.focus == "Cancel"
    keys.press("Enter")
    expect(chat.history.get_by_role("button", name="Options for Tea", exact=True)).to_be_focused()
    keys.press("Enter", "End", "Enter")
    keys.chooses("Delete")
    expect(chat.conversation("Tea")).to_have_count(0)
    expect(chat.box).to_be_focused()  # in a new conversation, since the open one was deleted


@pytest.mark.parametrize("name", ["Specialists", "Memory", "Settings"])
def test_a_dialog_keeps_the_focus_and_gives_it_back(chat: Chat, keys: Keyboard, name: str) -> None:
    keys.chooses(name, "Shift+Tab")
    dialog = chat.page.get_by_role("dialog", name=name, exact=True)
    expect(dialog).to_be_visible()
    expect(dialog.get_by_text("Loading…")).to_have_count(0)
    inside = "document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))"
    for key in ("Tab", "Shift+Tab"):
        for _ in range(15):
            keys.press(key)
            assert chat.page.evaluate(inside), keys.focus
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    expect(chat.button(name)).to_be_focused()
    keys.press("Enter")
    keys.chooses("Close", "Shift+Tab")
    expect(dialog).to_be_hidden()
    expect(chat.button(name)).to_be_focused()


def test_a_fact_is_added_changed_and_deleted(chat: Chat, keys: Keyboard) -> None:
    keys.chooses("Memory", "Shift+Tab")
    facts = chat.page.get_by_role("dialog", name="Memory", exact=True).get_by_role("listitem")
    keys.chooses("Add a fact")
    keys.writes("I drink no coffee")
    keys.press("Enter")
    expect(facts).to_contain_text("I drink no coffee")
    assert keys.focus == "Edit"
    keys.press("Enter", "Control+a")
    keys.writes("I drink no tea")
    keys.press("Enter")
    expect(facts).to_contain_text("I drink no tea")
    keys.press("Enter", "Escape")  # leaves the form, and not the dialog
    assert keys.focus == "Edit"
    keys.chooses("Delete")
    keys.chooses("Delete")
    expect(facts).to_have_count(0)
    assert keys.focus == "Search facts and memories"


def test_specialists_and_settings_are_chosen(chat: Chat, keys: Keyboard) -> None:
    keys.chooses("Specialists", "Shift+Tab")
    switch = chat.page.get_by_role("switch", name="clock", exact=True)
    expect(switch).to_be_checked()
    keys.goes_to("clock")
    keys.press("Space")
    expect(switch).not_to_be_checked()
    keys.press("Escape", "Control+/")
    keys.goes_to("As the system")
    keys.press("ArrowDown", "ArrowDown")
    assert chat.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    keys.press("Escape")
    expect(chat.button("Specialists")).to_be_focused()


@pytest.mark.parametrize("stage", [TWO_MODELS], indirect=True)
def test_a_model_is_chosen(stage: Stage, visitor: Visitor) -> None:
    second = Conductor(stage.brain.loop, "second")
    stage.brain.play(stage.model, second)
    chat = visitor.opens(stage.url)
    keys = Keyboard(chat.page)
    keys.goes_to("Model", "Shift+Tab")
    keys.press("ArrowDown")
    keys.goes_to("Message")
    keys.writes("hello")
    keys.press("Enter")
    assert second.question() == "hello"
    second.ends()
    chat.is_idle()


def test_files_are_attached_and_taken_off(chat: Chat, keys: Keyboard) -> None:
    with chat.page.expect_file_chooser() as chooser:
        keys.chooses("Attach")
    chooser.value.set_files(
        [FilePayload(name=name, mimeType="text/plain", buffer=b"tea") for name in ("1.txt", "2.txt")]
    )
    expect(chat.files.get_by_role("listitem")).to_have_count(2)
    expect(chat.box).to_be_focused()
    keys.chooses("Remove 1.txt", "Shift+Tab")
    assert keys.focus == "Remove 2.txt"
    keys.press("Enter")
    expect(chat.box).to_be_focused()


def test_a_new_conversation_is_ready_to_be_written_in(chat: Chat, keys: Keyboard) -> None:
    search = chat.history.get_by_role("searchbox", name="Search conversations", exact=True)
    search.focus()
    keys.press("Control+Shift+O")
    expect(chat.box).to_be_focused()
    chat.button("Memory").focus()
    chat.begin_anew()
    expect(chat.box).to_be_focused()


def test_what_is_typed_anywhere_is_a_message(chat: Chat, stage: Stage, keys: Keyboard) -> None:
    answered(chat, stage, keys)
    chat.log.focus()
    keys.press("t", "e")
    chat.page.evaluate("document.activeElement.blur()")
    keys.press("Shift+A")
    expect(chat.box).to_have_value("teA")
    chat.log.focus()
    keys.press("Control+a", "Space", "PageUp")
    expect(chat.log).to_be_focused()
    chat.button("Memory").focus()
    keys.press("x")
    expect(chat.box).to_have_value("teA")
