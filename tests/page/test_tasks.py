"""Background tasks: created from the message box or the list, followed on their cards, approved, and deleted."""

import re

import pytest
from playwright.sync_api import Locator, expect

from page.chat import SET_HIDDEN, Chat
from page.server import PageServer, request
from page.texts import page_text
from page.visitor import PHONE, Visitor
from specialists.tasks import tasks as tasks_specialist

pytestmark = pytest.mark.chromium

SOON = {"TASK_QUIET_SECONDS": 0.01, "TASK_WAIT_SECONDS": 0.01, "TASK_PAUSE_SECONDS": 0.01}
LATE = {"TASK_QUIET_SECONDS": 3600, "TASK_WAIT_SECONDS": 3600}
WITHOUT_REPORTS = pytest.mark.parametrize("server", [LATE], indirect=True, ids=[""])

RECORD_NOTIFICATIONS = """() => {
    window.notifications = [];
    window.Notification = class {
        static permission = "granted";
        static requestPermission() {}
        constructor(title) { notifications.push(title); }
    };
}"""
"""A browser without windows has no notifications."""


class Tasks:
    """The tasks on one page."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.view = chat.page.get_by_role("tabpanel", name=page_text("tasks"))
        self.dialog = chat.dialog(page_text("newTask"))

    def show(self) -> None:
        self.chat.page.get_by_role("tab", name=page_text("tasks")).click()

    def group(self, name: str) -> Locator:
        return self.view.get_by_role("listitem").filter(has=self.chat.page.get_by_role("heading", name=page_text(name)))

    def write(self, prompt: str) -> None:
        """Open the dialog for a new task."""
        self.chat.box.fill(f"/task {prompt}")
        self.chat.button("Send").click()
        expect(self.dialog.get_by_label(page_text("taskPrompt"))).to_have_value(prompt)

    def press(self, name: str) -> None:
        self.dialog.get_by_role("button", name=page_text(name), exact=True).click()

    def card(self, title: str) -> Locator:
        """The card in the conversation."""
        return self.chat.log.get_by_role("group", name=page_text("taskNamed", title=title), exact=True)

    def choose(self, title: str, option: str) -> None:
        """Choose from the menu of a task in the list."""
        self.view.get_by_role("button", name=page_text("options", title=title), exact=True).click()
        self.chat.page.get_by_role("menuitem", name=page_text(option), exact=True).click()


@pytest.fixture
def tasks(chat: Chat) -> Tasks:
    return Tasks(chat)


@WITHOUT_REPORTS
def test_a_task_runs_beside_its_conversation(chat: Chat, server: PageServer, visitor: Visitor, tasks: Tasks) -> None:
    server.answer(chat, "hello", "Good day.")
    conversation = chat.page.url
    tasks.write("Read the news")
    tasks.press("createTask")
    expect(chat.box).to_have_value("")
    card = tasks.card("Read the news")
    expect(card).to_contain_text(page_text("running"))
    tasks.show()
    expect(tasks.group("tasksRunning")).to_contain_text("Read the news")
    card.get_by_role("link", name=page_text("open"), exact=True).click()
    expect(chat.question).to_contain_text("Read the news")
    server.model.write("Nothing **new**.")
    expect(chat.answer.get_by_role("strong")).to_have_text("new")
    expect(chat.box).to_be_hidden()
    other = visitor.open(conversation)
    server.model.end()
    other_card = Tasks(other).card("Read the news")
    expect(other_card).to_contain_text(page_text("taskSucceeded"))
    other_card.get_by_text(page_text("result"), exact=True).click()
    expect(other_card.get_by_role("strong").last).to_have_text("new")
    chat.bring_to_front()
    expect(tasks.group("tasksFinished")).to_contain_text("Read the news")
    chat.reload()
    expect(chat.answer).to_contain_text("Nothing new.")
    expect(chat.button("Retry")).to_be_hidden()
    tasks.show()
    tasks.choose("Read the news", "delete")
    chat.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(tasks.view).to_contain_text(page_text("noTasks"))
    expect(other_card).to_be_hidden()


def test_a_schedule_is_shown_before_it_is_used(chat: Chat, visitor: Visitor, tasks: Tasks) -> None:
    visitor.allow("400", "409")
    tasks.write("Read the news")
    when = tasks.dialog.get_by_role("combobox", name=page_text("taskWhen"))
    when.select_option("words")
    tasks.press("showTimes")
    words = tasks.dialog.get_by_role("textbox", name=page_text("taskWords"))
    expect(words).to_be_focused()
    words.fill("sometimes")
    tasks.press("showTimes")
    expect(words).to_have_attribute("aria-invalid", "true")
    when.select_option("daily")
    tasks.dialog.get_by_role("textbox", name=page_text("timeOfDay"), exact=True).fill("07:30")
    tasks.press("showTimes")
    expect(tasks.dialog.get_by_role("status")).to_contain_text(page_text("dailyAt", time="07:30"))
    expect(tasks.dialog.get_by_role("status").get_by_role("listitem")).to_have_count(3)
    tasks.press("createTask")
    expect(tasks.card("Read the news")).to_contain_text(page_text("dailyAt", time="07:30"))  # a new conversation
    tasks.show()
    scheduled = tasks.group("tasksScheduled")
    expect(scheduled).to_contain_text(page_text("dailyAt", time="07:30"))
    tasks.choose("Read the news", "pause")
    expect(scheduled).to_contain_text(page_text("paused"))
    tasks.choose("Read the news", "changeTime")
    dialog = chat.dialog(page_text("changeTime"))
    expect(dialog.get_by_role("textbox", name=page_text("timeOfDay"), exact=True)).to_have_value("07:30")
    dialog.get_by_role("textbox", name=page_text("timeOfDay"), exact=True).fill("09:00")
    dialog.get_by_role("button", name=page_text("showTimes")).click()
    dialog.get_by_role("button", name=page_text("save")).click()
    expect(scheduled).to_contain_text(page_text("dailyAt", time="09:00"))
    tasks.choose("Read the news", "resume")
    expect(scheduled).not_to_contain_text(page_text("paused"))
    tasks.write("Read the news")
    when.select_option("daily")
    tasks.dialog.get_by_role("textbox", name=page_text("timeOfDay"), exact=True).fill("09:00")
    tasks.dialog.get_by_label(page_text("taskTitle")).fill("Another title")
    chat.page.keyboard.press("Escape")
    expect(chat.box).to_have_value("/task Read the news")


@WITHOUT_REPORTS
def test_a_task_waits_for_a_person(chat: Chat, server: PageServer, visitor: Visitor, tasks: Tasks) -> None:
    tasks.write("Burn Faust")
    tasks.press("createTask")
    expect(tasks.card("Burn Faust")).to_be_visible()
    chat.start_conversation()
    server.model.write("Let me burn it. ", request("burns", title="Faust"))
    server.model.end()
    expect(chat.page).to_have_title(re.compile(r"^\(1\) "))
    tasks.show()
    asking = tasks.group("tasksAsking")
    expect(asking).to_contain_text('"Faust"')
    other = visitor.open(server.url)
    expect(other.page).to_have_title(re.compile(r"^\(1\) "))
    chat.bring_to_front()
    asking.get_by_role("link", name=page_text("open"), exact=True).click()
    expect(chat.card("burns")).to_contain_text(page_text("needsApproval"))
    asking.get_by_role("button", name="Approve", exact=True).click()
    expect(tasks.group("tasksRunning")).to_contain_text("Burn Faust")
    server.model.write("It is ashes.")
    server.model.end()
    expect(tasks.group("tasksFinished")).to_contain_text("Burn Faust")
    expect(chat.answer).to_contain_text("Let me burn it.")
    expect(chat.answer).to_contain_text("It is ashes.")
    assert server.burned == ["Faust"]
    expect(other.page).not_to_have_title(re.compile(r"^\("))


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_tasks_fit_a_phone(chat: Chat, tasks: Tasks) -> None:
    tasks.write("Read the news")
    assert tasks.dialog.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    tasks.dialog.get_by_role("combobox", name=page_text("taskWhen")).select_option("weekly")
    tasks.press("showTimes")
    tasks.press("createTask")
    expect(tasks.card("Read the news")).to_be_visible()
    chat.button("Show or hide conversations").click()
    tasks.show()
    expect(tasks.group("tasksScheduled")).to_contain_text("Read the news")
    assert chat.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("server", [SOON], indirect=True, ids=[""])
def test_results_are_reported_in_the_conversation(
    chat: Chat, server: PageServer, visitor: Visitor, tasks: Tasks
) -> None:
    server.answer(chat, "hello", "Good day.")
    conversation = chat.page.url
    other = visitor.open(conversation)
    chat.bring_to_front()
    tasks.write("Read the news")
    tasks.press("createTask")
    server.model.write("Nothing new.")
    server.model.end()
    expect(tasks.card("Read the news")).to_contain_text(page_text("taskSucceeded"))
    server.model.write("There is nothing ")
    for one in (chat, other):
        expect(one.log.get_by_role("heading", name=page_text("report"))).to_be_visible()
        expect(one.answer).to_contain_text("There is nothing")
        expect(one.questions).to_have_count(1)
    server.model.write("new.")
    server.model.end()
    for one in (chat, other):
        one.wait_until_idle()
        expect(one.answer).to_contain_text("There is nothing new.")
    chat.reload()
    expect(chat.log.get_by_role("heading", name=page_text("report"))).to_be_visible()
    expect(chat.questions).to_have_count(1)
    expect(chat.answer.get_by_role("button", name="Retry", exact=True)).to_be_hidden()
    other.page.close()
    tasks.write("Read more news")
    tasks.press("createTask")
    chat.start_conversation()
    server.model.write("Nothing at all.")
    server.model.end()
    entry = chat.history.get_by_role("listitem").filter(has_text="hello").last
    expect(entry).to_contain_text(page_text("unread"))
    server.model.write("Still nothing.")
    chat.conversation("hello").click()
    expect(chat.answer).to_contain_text("Still nothing.")
    expect(entry).not_to_contain_text(page_text("unread"))
    server.model.end()
    chat.wait_until_idle()


@WITHOUT_REPORTS
def test_a_hidden_page_notifies_a_person_who_wants_it(chat: Chat, server: PageServer, tasks: Tasks) -> None:
    chat.page.evaluate(RECORD_NOTIFICATIONS)
    for title, is_on in (("Burn Faust", False), ("Burn Werther", True)):
        chat.button("Settings").click()
        chat.page.get_by_role("switch", name=page_text("notify")).set_checked(is_on)
        chat.page.keyboard.press("Escape")
        tasks.write(title)
        tasks.press("createTask")
        chat.page.evaluate(SET_HIDDEN, True)
        server.model.write(request("burns", title=title))
        server.model.end()
        expect(tasks.card(title)).to_contain_text(page_text("needsApproval"))
        chat.show()
    assert chat.page.evaluate("notifications") == [page_text("notifyApproval", title="Burn Werther")]


@WITHOUT_REPORTS
def test_a_task_of_a_model_has_its_card_in_the_answer(chat: Chat, server: PageServer, tasks: Tasks) -> None:
    server.add(tasks_specialist)
    chat.ask("hello")
    server.model.write(request("tasks", operation="create", prompt="Read the news", title="News"))
    card = tasks.card("News")
    expect(card).to_be_visible()
    server.model.write("I will tell you.")
    server.model.end()
    chat.wait_until_idle()
    expect(chat.answer.locator("[data-task]")).to_have_count(1)
    chat.reload()
    expect(chat.answer.locator("[data-task]")).to_have_count(1)
    expect(card).to_contain_text(page_text("running"))
    card.get_by_role("button", name="Cancel", exact=True).click()
    expect(card).to_contain_text(page_text("taskCanceled"))
