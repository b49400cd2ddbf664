"""The chat page in a real browser: against Brain itself, and against a server that breaks its streams on purpose."""

import asyncio
import base64
import json
import queue
import shutil
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    FilePayload,
    Locator,
    Page,
    expect,
    sync_playwright,
)
from serving import Player, Server, brain_served, served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.responses import Response as Answer
from starlette.routing import Route

from brain import Citation, Context, Progress, Registry, Result, specialist
from brain.events import Thinking
from brain.messages import Chunk, Exchange, Finish, Message
from brain.routes.about import page as brain_page
from brain.sampling import UNSAID, Sampling

CHROMIUM = shutil.which("chromium")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MIB = 1024 * 1024
HTML = "<img src=x onerror=hacked=1><b>bold</b>"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

ADD_FILES = """(sizes) => {
    const data = new DataTransfer();
    sizes.forEach((size, i) => data.items.add(new File([new Uint8Array(size)], `f${i}`)));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
}"""

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

START = {"turn_id": "t1", "conversation_id": "c1", "model": "builtin", "strategy": "plain", "limits": {}}
DONE = {
    "stop_reason": "complete",
    "message_id": "m1",
    "text": "",
    "calls": 1,
    "passes": 2,
    "first_token_ms": 80,
    "total_ms": 900,
}


# Brain itself: the model says what the test tells it to, when it does


class Conductor(Player):
    """A model that says what a test lets it, chunk by chunk; `ends` ends its pass."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="builtin")
        self._loop = loop
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue()

    def says(self, *chunks: Chunk) -> None:
        for chunk in chunks:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)

    def ends(self) -> None:
        self.says(Finish("stop"))

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        self.asked.append(list(messages))
        self.open.set()
        try:
            while not isinstance(chunk := await self._chunks.get(), Finish):
                yield chunk
            yield chunk
        finally:
            self.closed.append(time.monotonic())

    def question(self, number: int = -1) -> str:
        """What the model was asked, by the newest message, behind the note of the time."""
        assert self.open.wait(5)
        return _behind_clock(self.asked[number][-1].content)

    def questions(self) -> list[str]:
        """All that the user said, in the newest request."""
        return [_behind_clock(message.content) for message in self.asked[-1] if message.role == "user"]


def _behind_clock(content: str) -> str:
    clock, _, question = content.partition("\n\n")
    assert clock.startswith("(Now: ")
    return question


library_opens = threading.Event()
"""What the specialist `wiki` waits for."""


@specialist(examples=["where is Bern"], timeout=10)
def wiki(title: str) -> Iterator[Progress | Result]:
    """Looks a title up."""
    yield Progress("page 2 of 4", 0.5)
    library_opens.wait(10)
    yield Result("two  spaces\n  kept", [Citation("1", "Bern", "https://example.org/bern"), Citation("2", "A book")])


@specialist(examples=["list the files", "never shown"], approval="always", requires_user=True)
def files(*, context: Context) -> list[str]:
    """Lists the files."""
    return [f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments]


burnt: list[str] = []


@specialist(approval="always")
def burns(title: str) -> str:
    """Burns a book."""
    burnt.append(title)
    return f"{title} is ashes."


@specialist(activates_on=["text"])
def reader(*, context: Context) -> list[str]:
    """Reads texts."""
    return [f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments]


@specialist(needs=lambda: "it needs a moon: buy one", examples=["how is the moon"])
def moon() -> str:
    """Looks at the moon."""
    return ""


def some_specialists() -> Registry:
    registry = Registry()
    for one in (wiki, files, reader, moon, burns):
        registry.add(one)
    return registry


@pytest.fixture(scope="module")
def running_brain() -> Iterator[Server]:
    with brain_served(some_specialists()) as server:
        yield server


@pytest.fixture
def model(running_brain: Server) -> Iterator[Conductor]:
    """The model of the running Brain; no turn of a test outlives it."""
    library_opens.clear()
    burnt.clear()
    conductor = Conductor(running_brain.loop)
    running_brain.play(conductor)
    yield conductor
    library_opens.set()
    conductor.ends()


@pytest.fixture
def page(context: BrowserContext, running_brain: Server, model: Conductor) -> Iterator[Page]:
    """Brain's page, open."""
    yield from opened(context, running_brain.url)


def ask(page: Page, message: str = "hello") -> Locator:
    page.get_by_label("Message").fill(message)
    page.keyboard.press("Enter")
    return page.get_by_role("article", name="Brain").last


# A server that breaks its streams: the test writes them byte by byte


def sse(event: str, /, **data: object) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class Turn:
    """One request the server got; the test writes its response body as it goes."""

    def __init__(self, body: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.body = body
        self.left = threading.Event()
        self._loop = loop
        self._chunks: asyncio.Queue[bytes | ConnectionError | None] = asyncio.Queue()

    def write(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            time.sleep(0.02 if len(chunks) > 1 else 0)

    def start(self) -> None:
        self.write(sse("turn_start", **START))

    def done(self) -> None:
        self.write(sse("done", **DONE))
        self.end()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, None)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, ConnectionError())

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self._chunks.get()) is not None:
                if isinstance(chunk, ConnectionError):
                    raise chunk
                yield chunk
        except asyncio.CancelledError:
            self.left.set()
            raise


class Double:
    """Serves the page as Brain does, and hands every turn to the test."""

    def __init__(self) -> None:
        self.refusal: Answer | None = None
        self.turns: queue.Queue[Turn] = queue.Queue()
        self.decided: list[tuple[str, str, Any]] = []
        self.app = Starlette(
            routes=[
                Route("/", brain_page),
                Route("/v1/specialists", self.specialists),
                Route("/v1/chat/stream", self.chat, methods=["POST"]),
                Route("/v1/turns/{turn}/approvals/{call}", self.approval, methods=["POST"]),
            ]
        )

    def turn(self) -> Turn:
        return self.turns.get(timeout=5)

    async def specialists(self, request: Request) -> Answer:
        return JSONResponse({"specialists": [{"name": "bare"}, {"name": HTML, "description": HTML}]})

    async def approval(self, request: Request) -> Answer:
        self.decided.append((request.path_params["turn"], request.path_params["call"], await request.json()))
        refused, self.refusal = self.refusal, None
        return refused or JSONResponse({})

    async def chat(self, request: Request) -> Answer:
        if self.refusal is not None:
            refused, self.refusal = self.refusal, None
            return refused
        if request.headers["content-type"] == "application/json":
            turn = Turn(await request.json(), asyncio.get_running_loop())
        else:
            async with request.form() as form:
                turn = Turn({"message": form["message"]}, asyncio.get_running_loop())
        self.turns.put(turn)
        return StreamingResponse(turn.chunks(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def running_double() -> Iterator[tuple[Double, str]]:
    double = Double()
    with served(double.app) as server:
        yield double, server.url


@pytest.fixture
def double(running_double: tuple[Double, str]) -> Double:
    double, _ = running_double
    double.refusal = None
    double.decided = []
    double.turns = queue.Queue()
    return double


@pytest.fixture
def broken(context: BrowserContext, double: Double, running_double: tuple[Double, str]) -> Iterator[Page]:
    """The page of the double, open."""
    yield from opened(context, running_double[1])


def begin(page: Page, double: Double, message: str = "hello") -> Turn:
    ask(page, message)
    turn = double.turn()
    turn.start()
    return turn


# Both


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(5000)
    yield context
    context.close()


def opened(context: BrowserContext, url: str) -> Iterator[Page]:
    """The open page; at the end of the test its console holds no error but those of the network."""
    page = context.new_page()
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource:"):
            errors.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    yield page
    page.close()
    assert errors == []


def idle(page: Page) -> None:
    expect(page.get_by_role("button", name="Send")).to_be_visible()


# A turn as it happens


def test_text_appears_piece_by_piece(page: Page, model: Conductor) -> None:
    answer = ask(page, "Where is Zürich?\nRoughly.")
    assert model.question() == "Where is Zürich?\nRoughly."
    model.says("In the ")
    expect(answer).to_have_text("In the")
    model.says("north of", " Switzerland.")
    expect(answer).to_have_text("In the north of Switzerland.")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    model.ends()
    idle(page)
    foot = page.locator(".foot").inner_text().split(" · ")
    assert (foot[0], foot[1], foot[2], len(foot)) == ("builtin", "0 calls", "1 pass", 5)
    assert foot[3].startswith("about ")
    assert foot[3].endswith(" tokens in, 7 out")
    expect(page.get_by_role("article", name="You")).to_have_text("Where is Zürich?\nRoughly.")


def test_call_shows_running_then_its_result_in_its_place(page: Page, model: Conductor) -> None:
    ask(page)
    call = page.locator(".call")
    model.says("Before.\n\n", 'SPECIALIST_REQUEST[wiki:{"title":"Bern"}]', " dropped")
    expect(call).to_have_class("call running")
    expect(call.locator("summary")).to_contain_text('wiki{"title":"Bern"}running…')
    expect(call.locator(".reason")).to_have_text("page 2 of 4")
    expect(call.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    library_opens.set()
    model.says("\n\nAfter.")
    model.ends()
    expect(call).to_have_class("call ok")
    expect(call.locator(".result")).to_be_hidden()
    call.locator("summary").press("Enter")
    expect(call.locator(".result")).to_be_visible()
    assert call.locator(".result").inner_text() == "two  spaces\n  kept"
    link = call.get_by_role("link", name="Bern")
    expect(link).to_have_attribute("href", "https://example.org/bern")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(link).to_have_attribute("target", "_blank")
    expect(call.locator("li").nth(1)).to_have_text("A book")
    idle(page)
    pieces = page.locator(".answer > *").evaluate_all("nodes => nodes.map(node => node.className)")
    assert pieces == ["text", "call ok", "text", "foot small"]
    expect(page.locator(".answer > .text")).to_have_text(["Before.", "After."])


def test_a_repeated_call_says_that_it_was_answered_before(page: Page, model: Conductor) -> None:
    library_opens.set()
    ask(page)
    for _ in range(2):
        model.says('SPECIALIST_REQUEST[wiki:{"title":"Bern"}]', " dropped")
        expect(page.locator(".call.ok").nth(_)).to_be_visible()
    model.ends()
    idle(page)
    expect(page.locator(".call .state").nth(1)).to_contain_text("cached · ")
    expect(page.locator(".answer > .notice")).to_have_text("wiki was asked the same again: its first answer counts.")


def test_failed_calls_show_code_and_reason_even_without_a_start(page: Page, model: Conductor) -> None:
    ask(page)
    model.says("SPECIALIST_REQUEST[nobody]", 'SPECIALIST_REQUEST[wiki:{"name":1}]', " x")
    calls = page.locator(".call.failed")
    expect(calls).to_have_count(2)
    model.ends()
    idle(page)
    states = [text.partition(" · ")[0] for text in calls.locator(".state").all_inner_texts()]
    assert states == ["unknown", "invalid_params"]
    expect(calls.locator(".reason").first).to_contain_text("there is no specialist of that name")


def test_thinking_is_folded(page: Page, model: Conductor) -> None:
    ask(page)
    model.says(Thinking("hm, "), Thinking("let me see"), "A", "B")
    expect(page.locator(".answer > .text")).to_have_text("AB")
    thinking = page.locator(".thinking")
    expect(thinking).to_have_count(1)
    expect(thinking.locator(".text")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".text")).to_have_text("hm, let me see")


def test_stop_ends_the_turn_and_the_conversation_goes_on(page: Page, model: Conductor, running_brain: Server) -> None:
    ask(page)
    model.says("so far ", 'SPECIALIST_REQUEST[wiki:{"title":"Bern"}]')
    expect(page.locator(".call.running")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    idle(page)
    expect(page.locator(".answer > .text")).to_have_text("so far")
    expect(page.locator(".call .state")).to_have_text("not finished")
    expect(page.locator(".answer > .notice")).to_have_text("Stopped.")
    assert running_brain.left(1) == []
    assert len(model.closed) == 1
    answer = ask(page, "go on")
    model.says("and on")
    expect(answer).to_have_text("and on")
    assert model.questions() == ["hello", "go on"]


# A person is asked


def burning(title: str) -> str:
    return f"SPECIALIST_REQUEST[burns:{json.dumps({'title': title})}]"


def test_a_call_waits_for_approve(page: Page, model: Conductor) -> None:
    ask(page)
    model.says("I will. ", burning("Emma"), " x")
    call = page.locator(".call")
    expect(call).to_have_class("call waiting")
    expect(call.locator(".state")).to_have_text("needs your approval")
    question = call.get_by_role("group", name="Approval of burns")
    expect(question).to_contain_text("Nothing is done unless you approve, until ")
    expect(call.locator("pre")).to_have_text('{ "title": "Emma" }')
    expect(call.locator("pre")).to_be_visible()
    expect(page.get_by_label("Message")).to_be_focused()  # so that nobody approves while typing
    assert burnt == []
    question.get_by_role("button", name="Approve").click()
    expect(call).to_have_class("call ok")
    expect(question).to_have_count(0)
    expect(call.locator(".result")).to_have_text("Emma is ashes.")
    expect(page.get_by_label("Message")).to_be_focused()
    assert burnt == ["Emma"]
    model.says("It burnt.")
    model.ends()
    idle(page)
    expect(page.locator(".answer > .text")).to_have_text(["I will.", "It burnt."])


def test_a_call_waits_for_decline(page: Page, model: Conductor) -> None:
    ask(page)
    model.says(burning("Emma"), " x")
    page.get_by_role("button", name="Decline").press("Enter")
    call = page.locator(".call")
    expect(call).to_have_class("call failed")
    expect(call.locator(".state")).to_contain_text("declined · ")
    expect(call.locator(".reason")).to_contain_text("a person was asked to approve it and did not")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    model.says("I did not.")
    model.ends()
    idle(page)
    assert burnt == []


def test_each_of_two_calls_has_its_own_buttons(page: Page, model: Conductor) -> None:
    ask(page)
    model.says(burning("Emma"), burning("Ulysses"), " x")
    calls = page.locator(".call")
    expect(page.locator(".call.waiting")).to_have_count(2)
    calls.nth(1).get_by_role("button", name="Approve").click()
    expect(calls.nth(1)).to_have_class("call ok")
    expect(calls.nth(0)).to_have_class("call waiting")
    calls.nth(0).get_by_role("button", name="Decline").click()
    expect(calls.nth(0)).to_have_class("call failed")
    model.ends()
    idle(page)
    assert burnt == ["Ulysses"]


def test_an_approval_that_nobody_gives_in_time_expires(context: BrowserContext) -> None:
    burnt.clear()
    with brain_served(some_specialists(), APPROVAL_SECONDS=1) as server:
        server.play(Player([burning("Emma")], ["I did not."]))
        for page in opened(context, server.url):
            ask(page)
            expect(page.get_by_role("button", name="Approve")).to_be_visible()
            expect(page.locator(".call")).to_have_class("call failed")
            expect(page.get_by_role("button", name="Approve")).to_have_count(0)
            expect(page.locator(".answer > .text")).to_have_text("I did not.")
    assert burnt == []


def test_stop_ends_the_wait_for_an_approval(page: Page, model: Conductor, running_brain: Server) -> None:
    ask(page)
    model.says(burning("Emma"), " x")
    expect(page.locator(".call.waiting")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    idle(page)
    expect(page.locator(".call .state")).to_have_text("not finished")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert running_brain.left(1) == []
    assert burnt == []


def test_nothing_in_the_parameters_is_hidden(page: Page, model: Conductor) -> None:
    ask(page)
    model.says(burning("a\u202egpj.exe\u200b\u00a0<b>é</b>\n" + "long " * 2000), " x")
    shown = page.locator(".call pre")
    expect(shown).to_contain_text('{ "title": "a\\u{202e}gpj.exe\\u{200b}\\u{a0}<b>é</b>\\nlong long ')
    assert shown.inner_text().count("long") == 2000
    page.get_by_role("button", name="Decline").click()
    expect(page.locator(".call")).to_have_class("call failed")


def test_numbers_are_shown_as_they_are_run(broken: Page, double: Double) -> None:
    turn = begin(broken, double)
    params = '{"params":{"a":[],"b":{}},"n":9007199254740993,"f":1.0,"s":"\\"{[,:]} \\\\","l":[-1e400,true,null,[1]]}'
    told = f'{{"call_id":"c1","name":"burns","params":{params},"expires_at":"2100-01-01T00:00:00Z"}}'
    turn.write(f"event: approval_required\ndata: {told}\n\n".encode())
    expect(broken.locator(".call code")).to_have_text(params)
    assert broken.locator(".call pre").inner_text() == (
        '{\n  "params": {\n    "a": [],\n    "b": {}\n  },\n  "n": 9007199254740993,\n  "f": 1.0,\n'
        '  "s": "\\"{[,:]} \\\\",\n  "l": [\n    -1e400,\n    true,\n    null,\n    [\n      1\n    ]\n  ]\n}'
    )
    turn.done()
    idle(broken)


@pytest.mark.parametrize("status", [410, 409])
def test_an_answer_that_is_refused_says_why(broken: Page, double: Double, status: int) -> None:
    turn = begin(broken, double)
    turn.write(sse("approval_required", call_id="c1", name="burns", params={}, expires_at="2100-01-01T00:00:00Z"))
    double.refusal = JSONResponse({"error": {"code": "gone", "message": "It is too late."}}, status)
    broken.get_by_role("button", name="Approve").click()
    expect(broken.get_by_role("status")).to_have_text("It is too late. (gone)")
    broken.get_by_role("button", name="Decline").click()
    expect(broken.get_by_role("button", name="Decline")).to_have_count(0)
    assert double.decided == [("t1", "c1", {"approve": True}), ("t1", "c1", {"approve": False})]
    turn.write(sse("specialist_error", call_id="c1", name="burns", params={}, code="declined", reason="no", ms=1))
    turn.done()
    idle(broken)


def test_an_answer_that_does_not_reach_the_server_can_be_given_again(broken: Page, double: Double) -> None:
    turn = begin(broken, double)
    turn.write(sse("approval_required", call_id="c1", name="burns", params={}, expires_at="2100-01-01T00:00:00Z"))
    broken.route("**/approvals/*", lambda route: route.abort())
    approve = broken.get_by_role("button", name="Approve")
    approve.click()
    expect(broken.get_by_role("status")).to_have_text("The server could not be reached; try again.")
    broken.unroute("**/approvals/*")
    approve.click()
    expect(approve).to_have_count(0)
    assert double.decided == [("t1", "c1", {"approve": True})]
    turn.done()
    idle(broken)


def test_new_conversation_forgets_the_old_one(page: Page, model: Conductor, running_brain: Server) -> None:
    ask(page)
    model.says("unfinished")
    expect(page.locator(".answer > .text")).to_be_visible()
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("article")).to_have_count(0)
    assert running_brain.left(1) == []
    page.get_by_role("button", name="where is Bern").click()
    model.says("In Switzerland.")
    model.ends()
    idle(page)
    assert model.questions() == ["where is Bern"]
    expect(page.get_by_role("article")).to_have_count(2)


def test_a_failing_model_offers_retry(page: Page, model: Conductor, running_brain: Server) -> None:
    running_brain.play(Player(["half an ", RuntimeError("secret")]))
    ask(page)
    expect(page.locator(".error span")).to_have_text("Something went wrong on the server; it was logged. (internal)")
    running_brain.play(Player(["all of it"]))
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("article", name="Brain").nth(1).locator(".text")).to_have_text("all of it")


def test_box_stays_usable_while_streaming(page: Page, model: Conductor) -> None:
    ask(page)
    box = page.get_by_label("Message")
    expect(box).to_have_value("")
    box.press_sequentially("next")
    box.press("Shift+Enter")
    box.press_sequentially("line")
    box.press("Enter")
    expect(box).to_have_value("next\nline")
    model.ends()
    idle(page)
    model.open.clear()
    box.press("Enter")
    assert model.question() == "next\nline"


# Who may ask, and whom


def test_specialists_are_listed(page: Page) -> None:
    entries = page.locator("#specialists li")
    expect(entries).to_have_text(
        [
            "burns titleBurns a book.asks before it acts",
            "filesLists the files.needs a signed-in user · asks before it acts",
            "moonLooks at the moon.it needs a moon: buy one",
            "readerReads texts.",
            "wiki titleLooks a title up.",
        ]
    )
    expect(page.locator("#examples li")).to_have_text(["list the files", "where is Bern"])
    toggle = page.get_by_role("button", name="Specialists")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    toggle.press("Enter")
    expect(entries.first).to_be_hidden()
    expect(toggle).to_have_attribute("aria-expanded", "false")


def test_without_specialists_there_are_questions_all_the_same(context: BrowserContext) -> None:
    with brain_served() as server:
        for page in opened(context, server.url):
            expect(page.locator("#specialists li")).to_have_text("None.")
            page.get_by_role("button", name="What can you do?").click()
            expect(page.locator(".answer > .notice")).to_contain_text("a rule-based stand-in answers")
            expect(page.locator(".answer > .text")).to_contain_text("I am Brain's built-in stand-in")


def test_a_key_is_asked_for_once_and_kept_by_no_script(context: BrowserContext) -> None:
    with brain_served(some_specialists(), KEYS="s3cret:ann") as server:
        server.play(player := Player(["welcome"]))
        for page in opened(context, server.url):
            field = page.get_by_label("This server asks for a key.")
            expect(field).to_be_focused()
            expect(field).to_have_attribute("type", "password")
            field.fill("wrong")
            field.press("Enter")
            expect(page.get_by_text("That key was not accepted.")).to_be_visible()
            field.fill("s3cret")
            field.press("Enter")
            expect(field).to_be_hidden()
            expect(page.get_by_role("button", name="where is Bern")).to_be_visible()
            expect(ask(page)).to_contain_text("welcome")
            assert len(player.asked) == 1
            assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
            page.reload()
            expect(page.get_by_role("button", name="where is Bern")).to_be_visible()
            expect(field).to_be_hidden()


def test_stop_while_the_key_is_asked_for(context: BrowserContext) -> None:
    with brain_served(KEYS="s3cret:ann") as server:
        for page in opened(context, server.url):
            ask(page)
            page.get_by_role("button", name="Stop").click()
            expect(page.get_by_label("This server asks for a key.")).to_be_hidden()
            expect(page.locator(".answer > .notice")).to_have_text("Stopped.")


def test_a_busy_conversation_may_be_tried_again(page: Page, model: Conductor, running_brain: Server) -> None:
    answer = ask(page)
    model.says("once")
    expect(answer).to_have_text("once")
    model.ends()
    idle(page)
    store = running_brain.house.store
    (heading,) = running_brain.on_loop(store.conversations("local", words="once"))
    record = running_brain.on_loop(store.begin("local", heading.id, Exchange(""), ()))
    ask(page, "again")
    expect(page.locator(".error span")).to_have_text(
        "A turn of this conversation is running; wait for its end, stop it, or send barge_in. (busy, conversation_id)"
    )
    running_brain.on_loop(store.drop(record))
    page.get_by_role("button", name="Retry").click()
    model.says("twice")
    expect(page.locator(".answer > .text").last).to_have_text("twice")


# Files


def test_attachments_are_shown_sent_as_they_are_and_cleared(page: Page, model: Conductor) -> None:
    page.get_by_label("Files to attach").set_input_files(
        [
            FilePayload(name="dot.png", mimeType="image/png", buffer=PNG),
            FilePayload(name="naïve notes.txt", mimeType="text/plain", buffer="naïve".encode()),
            FilePayload(name="gone.txt", mimeType="text/plain", buffer=b"-"),
            FilePayload(name="empty", mimeType="", buffer=b""),
        ]
    )
    chips = page.locator("#chips li")
    expect(chips).to_have_count(3)
    expect(page.locator("#problem")).to_have_text("empty: it is empty.")
    expect(chips.first.locator("img")).to_have_js_property("naturalWidth", 1)
    page.get_by_role("button", name="Remove gone.txt").click()
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_have_text("Write a message to go with the files.")
    ask(page, "read\nthem")
    question = model.question()
    assert question.endswith("read\nthem")
    assert '1: "dot.png" (image/png), 2: "naïve notes.txt" (text/plain)' in question
    expect(chips).to_have_count(0)
    expect(page.get_by_role("article", name="You").locator(".chip")).to_have_count(2)
    result = page.locator(".call.ok .result")
    page.locator(".call summary").click()
    expect(result).to_have_text('["2 naïve notes.txt text/plain 6"]')
    model.ends()
    idle(page)
    model.open.clear()
    ask(page, "and now")
    assert model.question() == "and now"


def test_a_file_that_is_gone_is_said(page: Page, model: Conductor, tmp_path: Path) -> None:
    path = tmp_path / "gone.txt"
    path.write_text("here")
    page.get_by_label("Files to attach").set_input_files(path)
    path.unlink()
    ask(page, "read it")
    expect(page.locator(".error span")).to_have_text("An attached file could not be read.")
    assert model.asked == []


def test_large_files_fit_into_a_message(page: Page, model: Conductor) -> None:
    page.evaluate(ADD_FILES, [16 * MIB, 3 * MIB])
    expect(page.locator("#chips li")).to_have_count(2)
    answer = ask(page, "read them")
    model.says("read")
    expect(answer.locator(".text")).to_have_text("read")


def test_attachments_come_by_drop_and_paste(page: Page) -> None:
    hand_over = """([event, where]) => {
        const data = new DataTransfer();
        data.items.add(new File(["x"], event + ".png", { type: "image/png" }));
        const options = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
        const made = event === "paste" ? new ClipboardEvent(event, options) : new DragEvent(event, options);
        return !document.querySelector(where).dispatchEvent(made);
    }"""
    assert page.evaluate(hand_over, ["dragover", "#log"])
    assert page.evaluate(hand_over, ["drop", "#log"])
    assert page.evaluate(hand_over, ["paste", "#box"])
    expect(page.locator("#chips span")).to_have_text(["drop.png", "paste.png"])


def test_too_many_or_too_large_attachments_are_refused(page: Page) -> None:
    problem = page.locator("#problem")
    page.evaluate(ADD_FILES, [16 * MIB + 1])
    expect(problem).to_have_text("f0: larger than 16 MiB.")
    page.evaluate(ADD_FILES, [16 * MIB, 3 * MIB, 1])
    expect(problem).to_have_text("f2: more than 19 MiB together.")
    expect(page.locator("#chips li")).to_have_count(2)
    page.get_by_role("button", name="Remove f0").click()
    expect(problem).to_have_text("")
    page.evaluate(ADD_FILES, [1] * 10)
    expect(problem).to_have_text("f9: at most 10 files.")
    expect(page.locator("#chips li")).to_have_count(10)


# Streams that break


def test_stream_cut_inside_a_character_and_a_line_end(broken: Page, double: Double) -> None:
    turn = begin(broken, double)
    token = 'id: t1.2\r\nevent: token\r\ndata: {"text":\r\ndata: "Grüße 🌍"}\r\n\r\n'.encode()
    inside_u, inside_globe, inside_crlf = token.index(b"\xc3\xbc") + 1, token.index(b"\xf0") + 2, len(token) - 1
    turn.write(
        b": a comment\n\n",
        token[:inside_u],
        token[inside_u:inside_globe],
        token[inside_globe:inside_crlf],
        token[inside_crlf:],
    )
    expect(broken.get_by_role("article", name="Brain")).to_have_text("Grüße 🌍")
    turn.done()
    idle(broken)


def test_parser_gives_the_same_events_for_every_split(broken: Page) -> None:
    stream = (
        "\ufeff: comment\rretry: 2000\rid: 1\revent: a\rdata: one\rdata:two\r\r\n"
        "data\nunknown: x\nid: 2\n\nevent: nothing\n\r\nid\ndata:  three\r\n\r\nid: a\0b\ndata: 4\n\ndata: unfinished\n"
    ).removeprefix("\ufeff")
    split_everywhere = """(stream) => {
        const run = (pieces) => { const feed = eventParser(); return JSON.stringify(pieces.flatMap(feed_of(feed))); };
        const feed_of = (feed) => (piece) => feed(piece);
        const seen = new Set([run([stream]), run([...stream])]);
        for (let i = 0; i <= stream.length; i++) seen.add(run([stream.slice(0, i), stream.slice(i)]));
        return [...seen];
    }"""
    (events,) = broken.evaluate(split_everywhere, stream)
    assert json.loads(events) == [
        {"name": "a", "data": "one\ntwo", "id": "1", "retry": 2000},
        {"name": "message", "data": "", "id": "2", "retry": 2000},
        {"name": "message", "data": " three", "id": "", "retry": 2000},
        {"name": "message", "data": "4", "id": "", "retry": 2000},
    ]


def test_thinking_and_notices_stand_in_the_text(broken: Page, double: Double) -> None:
    turn = begin(broken, double)
    turn.write(
        sse("thinking", text="hm, "), sse("thinking", text="let me see"), sse("token", text="A"), sse("token", text="B")
    )
    turn.write(sse("notice", code="fallback", text="The second model goes on."), sse("token", text="C"))
    thinking = broken.locator(".thinking")
    expect(thinking).to_have_count(1)
    expect(thinking.locator(".text")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".text")).to_have_text("hm, let me see")
    expect(broken.locator(".answer > .text")).to_have_text(["AB", "C"])
    expect(broken.locator(".answer > .notice")).to_have_text("The second model goes on.")
    turn.write(sse("later_event", text="ignored"))
    turn.done()
    idle(broken)


@pytest.mark.parametrize("how", ["end", "cut"])
def test_stream_without_an_end_says_so_and_can_be_tried_again(broken: Page, double: Double, how: str) -> None:
    turn = begin(broken, double)
    turn.write(sse("token", text="half an ans"), b'event: done\ndata: {"unfinished": 1}\n')
    expect(broken.locator(".answer > .text")).to_have_text("half an ans")
    getattr(turn, how)()
    expect(broken.get_by_role("alert").filter(has_text="The connection was cut.")).to_be_visible()
    broken.get_by_role("button", name="Retry").click()
    again = double.turn()
    assert again.body == {"message": "hello", "conversation_id": "c1"}
    again.start()
    again.write(sse("token", text="a whole answer"))
    again.done()
    idle(broken)
    expect(broken.get_by_role("article", name="Brain").nth(1).locator(".text")).to_have_text("a whole answer")
    expect(broken.get_by_role("button", name="Retry")).to_have_count(0)
    expect(broken.get_by_role("article", name="You")).to_have_count(1)


@pytest.mark.parametrize("recoverable", [True, False])
def test_error_event_offers_retry_when_recoverable(broken: Page, double: Double, recoverable: bool) -> None:
    turn = begin(broken, double)
    turn.write(sse("error", code="model_unreachable", message="No model answers.", recoverable=recoverable))
    turn.end()
    expect(broken.locator(".error span")).to_have_text("No model answers. (model_unreachable)")
    expect(broken.get_by_role("button", name="Retry")).to_have_count(int(recoverable))
    idle(broken)


def test_refusal_before_the_stream_is_shown(broken: Page, double: Double) -> None:
    error = {"code": "bad_request", "message": f"No such model {HTML}", "field": "model"}
    double.refusal = JSONResponse({"error": error}, 400)
    broken.get_by_label("Message").fill("hello")
    broken.get_by_role("button", name="Send").click()
    expect(broken.locator(".error span")).to_have_text(f"No such model {HTML} (bad_request, model)")
    expect(broken.get_by_role("button", name="Retry")).to_have_count(0)
    double.refusal = Answer("<html>proxy</html>", 502)
    broken.get_by_label("Message").fill("hello")
    broken.keyboard.press("Enter")
    expect(broken.locator(".error span").nth(1)).to_have_text("The server answered 502.")
    expect(broken.get_by_role("button", name="Retry")).to_have_count(1)


def test_unreachable_server_is_said(broken: Page, context: BrowserContext) -> None:
    context.set_offline(True)
    broken.get_by_label("Message").fill("hello")
    broken.keyboard.press("Enter")
    expect(broken.locator(".error span")).to_have_text("The server could not be reached.")
    expect(broken.get_by_role("button", name="Retry")).to_be_visible()


def test_html_stays_text_in_every_field(broken: Page, double: Double) -> None:
    call = {"call_id": HTML, "name": HTML, "params": {HTML: HTML}}
    citations = [
        {"id": "1", "title": HTML, "url": "javascript:hacked=1"},
        {"id": "2", "title": HTML, "url": "https://example.org/" + HTML},
        {"id": "3", "title": "data", "url": "data:text/html,x"},
        {"id": HTML},
    ]
    broken.get_by_label("Message").fill(HTML)
    broken.get_by_label("Files to attach").set_input_files({"name": HTML, "mimeType": "text/plain", "buffer": b"x"})
    broken.get_by_role("button", name="Send").click()
    turn = double.turn()
    turn.write(sse("turn_start", **START | {"model": HTML}), sse("token", text=HTML), sse("thinking", text=HTML))
    turn.write(
        sse("specialist_start", **call, by=HTML),
        sse("specialist_progress", call_id=HTML, text=HTML, fraction=0.1),
        sse("specialist_result", **call, text=HTML, citations=citations, cached=False, ms=HTML),
        sse("specialist_error", call_id="k2", name=HTML, params=HTML, code=HTML, reason=HTML, ms=1),
        sse("notice", code=HTML, text=HTML),
        sse("done", **DONE | {"stop_reason": HTML}),
    )
    turn.end()
    idle(broken)
    for details in broken.locator("#log details").all():
        details.evaluate("node => { node.open = true; }")
    for where in [".said", ".answer > .text", ".thinking .text", ".result", ".answer > .notice", ".user .chip span"]:
        expect(broken.locator(where)).to_have_text(HTML)
    for where in [".call strong", ".call .params", ".call .inside"]:
        expect(broken.locator(where).first).to_contain_text(HTML)
    expect(broken.locator(".reason").nth(1)).to_have_text(HTML)
    expect(broken.locator(".foot")).to_contain_text(HTML)
    expect(broken.get_by_role("link")).to_have_count(1)
    assert broken.locator("img, b").count() == 0
    assert broken.evaluate("window.hacked") is None


def test_log_follows_only_from_its_end(broken: Page, double: Double) -> None:
    turn = begin(broken, double)
    log = broken.get_by_role("log")
    from_end = "node => node.scrollHeight - node.scrollTop - node.clientHeight"
    turn.write(sse("token", text="line\n" * 200), sse("token", text="end"))
    expect(broken.locator(".answer > .text")).to_contain_text("end")
    assert log.evaluate(from_end) < 4
    log.evaluate("node => new Promise(seen => { node.onscrollend = seen; node.scrollBy(0, -500); })")
    turn.write(sse("token", text="\nmore" * 50), sse("token", text=" last"))
    expect(broken.locator(".answer > .text")).to_contain_text("last")
    assert log.evaluate(from_end) > 500
    turn.done()
    idle(broken)


def test_long_answer_stays_smooth(broken: Page, double: Double) -> None:
    broken.evaluate(
        """() => {
            window.longest = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
            }).observe({ type: "longtask" });
        }"""
    )
    turn = begin(broken, double)
    tokens = [f"word {n} " if n % 40 else f"word {n}.\n\n" for n in range(50_000)]
    for at in range(0, len(tokens), 1000):
        turn.write(b"".join(sse("token", text=token) for token in tokens[at : at + 1000]))
    turn.done()
    expect(broken.locator(".foot")).to_be_visible(timeout=15_000)
    shown = broken.locator(".answer > .text").evaluate("node => node.textContent")
    assert shown == "".join(tokens).strip()
    assert broken.locator(".answer *").count() < 400
    assert broken.evaluate("window.longest") < 1000


def test_narrow_window_shows_everything_without_sideways_scroll(broken: Page, double: Double) -> None:
    broken.set_viewport_size({"width": 360, "height": 640})
    broken.reload()
    turn = begin(broken, double, "a" * 200)
    turn.write(
        sse("token", text="b" * 3000),
        sse("specialist_error", call_id="1", name="n" * 64, params={"x": "y" * 400}, code="failed", reason="z", ms=1),
    )
    turn.done()
    idle(broken)
    assert broken.evaluate("document.documentElement.scrollWidth") == 360
    assert broken.get_by_role("log").evaluate("node => node.scrollWidth <= node.clientWidth")
    broken.get_by_role("button", name="Specialists").click()
    expect(broken.locator("#specialists li").first).to_be_in_viewport()
    expect(broken.get_by_label("Message")).to_be_in_viewport(ratio=1)
