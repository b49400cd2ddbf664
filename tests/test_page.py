"""The chat page in a real browser, against a server that says exactly what each test tells it to."""

import asyncio
import base64
import hashlib
import json
import queue
import re
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, FilePayload, Page, expect, sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

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
PAGE = Path(__file__).parent.parent / "brain" / "page.html"
MIB = 1024 * 1024
HTML = "<img src=x onerror=hacked=1><b>bold</b>"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SPECIALISTS = [
    {
        "name": "weather",
        "description": "Current weather for a city.",
        "parameters": {"properties": {"city": {}, "units": {}}},
        "examples": ["weather in Paris", "is it raining in Oslo"],
        "available": True,
    },
    {
        "name": "ocr",
        "description": "Reads text.",
        "available": False,
        "unavailable_reason": "pip install brain-sse[ocr]",
    },
    {"name": "bare"},
]

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


class Server:
    """Serves the page under its content security policy, and hands every turn to the test."""

    def __init__(self) -> None:
        self.key = ""
        self.refusal: Response | None = None
        self.turns: queue.Queue[Turn] = queue.Queue()
        app = Starlette(
            routes=[
                Route("/", self.page),
                Route("/v1/specialists", self.specialists),
                Route("/v1/chat/stream", self.chat, methods=["POST"]),
            ]
        )
        config = uvicorn.Config(app, log_level="critical", ws="none", lifespan="off", timeout_graceful_shutdown=1)
        self._uvicorn = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._uvicorn.run, args=([self._socket],))

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()
        self._socket.close()

    def turn(self) -> Turn:
        return self.turns.get(timeout=5)

    def _locked(self, request: Request) -> Response | None:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"code": "unauthorized", "message": "A key is needed."}}, 401)
        return None

    async def page(self, request: Request) -> Response:
        html = PAGE.read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src '{digest(html, 'script')}'; style-src '{digest(html, 'style')}'; "
            "connect-src 'self'; img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    async def specialists(self, request: Request) -> Response:
        return self._locked(request) or JSONResponse({"specialists": SPECIALISTS})

    async def chat(self, request: Request) -> Response:
        if refused := self._locked(request) or self.refusal:
            self.refusal = None
            return refused
        turn = Turn(await request.json(), asyncio.get_running_loop())
        self.turns.put(turn)
        return StreamingResponse(turn.chunks(), media_type="text/event-stream")


def digest(html: str, tag: str) -> str:
    (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return "sha256-" + base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def server(running_server: Server) -> Server:
    running_server.key = ""
    running_server.refusal = None
    running_server.turns = queue.Queue()
    return running_server


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(5000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Iterator[Page]:
    """The open page; at the end of the test its console holds no error but those of the network."""
    page = context.new_page()
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource:"):
            errors.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.url)
    yield page
    assert errors == []


def ask(page: Page, server: Server, message: str = "hello") -> Turn:
    page.get_by_label("Message").fill(message)
    page.keyboard.press("Enter")
    turn = server.turn()
    turn.start()
    return turn


def idle(page: Page) -> None:
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_text_appears_piece_by_piece(page: Page, server: Server) -> None:
    turn = ask(page, server, "Where is Zürich?")
    assert turn.body["message"] == "Where is Zürich?"
    answer = page.get_by_role("article", name="Brain")
    turn.write(sse("token", text="In the "))
    expect(answer).to_have_text("In the")
    turn.write(sse("token", text="north of"), sse("token", text=" Switzerland."))
    expect(answer).to_have_text("In the north of Switzerland.")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    turn.write(sse("usage", prompt_tokens=1204, completion_tokens=9, reused_tokens=1100, estimated=False))
    turn.done()
    idle(page)
    expect(page.locator(".foot")).to_have_text(
        "builtin · 1 call · 2 passes · 1,204 (1,100 reused) tokens in, 9 out · first token 80 ms"
    )
    expect(page.get_by_role("article", name="You")).to_have_text("Where is Zürich?")


def test_stream_cut_inside_a_character_and_a_line_end(page: Page, server: Server) -> None:
    turn = ask(page, server)
    token = 'id: t1.2\r\nevent: token\r\ndata: {"text":\r\ndata: "Grüße 🌍"}\r\n\r\n'.encode()
    inside_u, inside_globe, inside_crlf = token.index(b"\xc3\xbc") + 1, token.index(b"\xf0") + 2, len(token) - 1
    turn.write(
        b": a comment\n\n",
        token[:inside_u],
        token[inside_u:inside_globe],
        token[inside_globe:inside_crlf],
        token[inside_crlf:],
    )
    expect(page.get_by_role("article", name="Brain")).to_have_text("Grüße 🌍")
    turn.done()
    idle(page)


def test_parser_gives_the_same_events_for_every_split(page: Page) -> None:
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
    (events,) = page.evaluate(split_everywhere, stream)
    assert json.loads(events) == [
        {"name": "a", "data": "one\ntwo", "id": "1", "retry": 2000},
        {"name": "message", "data": "", "id": "2", "retry": 2000},
        {"name": "message", "data": " three", "id": "", "retry": 2000},
        {"name": "message", "data": "4", "id": "", "retry": 2000},
    ]


def test_call_shows_running_then_its_result_in_its_place(page: Page, server: Server) -> None:
    turn = ask(page, server)
    call = page.locator(".call")
    turn.write(
        sse("token", text="Before.\n\n"),
        sse("specialist_start", call_id="k1", name="wiki", params={"title": "Bern"}, by="model"),
    )
    expect(call).to_have_class("call running")
    expect(call.locator("summary")).to_contain_text('wiki{"title":"Bern"}running…')
    turn.write(sse("specialist_progress", call_id="k1", text="page 2 of 4", fraction=0.5))
    expect(call.locator(".reason")).to_have_text("page 2 of 4")
    expect(call.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    citations = [{"id": "1", "title": "Bern", "url": "https://example.org/bern"}, {"id": "2", "title": "A book"}]
    turn.write(
        sse("token", text="\n\nAfter."),
        sse(
            "specialist_result",
            call_id="k1",
            name="wiki",
            params={"title": "Bern"},
            text="two  spaces\n  kept",
            citations=citations,
            cached=True,
            ms=12,
        ),
    )
    expect(call).to_have_class("call ok")
    expect(call.locator(".state")).to_have_text("cached · 12 ms")
    expect(call.locator(".result")).to_be_hidden()
    call.locator("summary").press("Enter")
    expect(call.locator(".result")).to_be_visible()
    assert call.locator(".result").inner_text() == "two  spaces\n  kept"
    link = call.get_by_role("link", name="Bern")
    expect(link).to_have_attribute("href", "https://example.org/bern")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(link).to_have_attribute("target", "_blank")
    expect(call.locator("li").nth(1)).to_have_text("A book")
    turn.done()
    idle(page)
    pieces = page.locator(".answer > *").evaluate_all("nodes => nodes.map(node => node.className)")
    assert pieces == ["text", "call ok", "text", "foot small"]
    expect(page.locator(".answer > .text")).to_have_text(["Before.", "After."])


def test_failed_call_shows_code_and_reason_even_without_a_start(page: Page, server: Server) -> None:
    turn = ask(page, server)
    turn.write(
        sse("specialist_error", call_id="k1", name="?", code="malformed", reason="the JSON never ends", ms=0),
        sse("specialist_start", call_id="k2", name="web", params={}, by="model"),
        sse("specialist_error", call_id="k2", name="web", params={}, code="timeout", reason="took over 5 s", ms=5000),
        sse("specialist_start", call_id="k3", name="ocr", params={}, by="auto"),
    )
    turn.done()
    idle(page)
    calls = page.locator(".call")
    expect(calls.locator(".state")).to_have_text(["malformed · 0 ms", "timeout · 5000 ms", "not finished"])
    expect(calls.locator(".reason").first).to_have_text("the JSON never ends")
    expect(calls.locator(".reason").nth(1)).to_be_visible()


def test_thinking_is_folded_and_notices_stand_in_the_text(page: Page, server: Server) -> None:
    turn = ask(page, server)
    turn.write(
        sse("thinking", text="hm, "), sse("thinking", text="let me see"), sse("token", text="A"), sse("token", text="B")
    )
    turn.write(sse("notice", code="fallback", text="The second model goes on."), sse("token", text="C"))
    thinking = page.locator(".thinking")
    expect(thinking).to_have_count(1)
    expect(thinking.locator(".text")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".text")).to_have_text("hm, let me see")
    expect(page.locator(".answer > .text")).to_have_text(["AB", "C"])
    expect(page.locator(".answer > .notice")).to_have_text("The second model goes on.")
    turn.write(sse("later_event", text="ignored"))
    turn.done()
    idle(page)


def test_stop_leaves_the_request(page: Page, server: Server) -> None:
    turn = ask(page, server)
    turn.write(sse("token", text="so far"), sse("specialist_start", call_id="k1", name="web", params={}, by="model"))
    expect(page.locator(".call.running")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    assert turn.left.wait(5)
    idle(page)
    expect(page.locator(".answer > .text")).to_have_text("so far")
    expect(page.locator(".call .state")).to_have_text("not finished")
    expect(page.locator(".answer > .notice")).to_have_text("Stopped.")
    assert ask(page, server, "go on").body["conversation_id"] == "c1"


@pytest.mark.parametrize("how", ["end", "cut"])
def test_stream_without_an_end_says_so_and_can_be_tried_again(page: Page, server: Server, how: str) -> None:
    turn = ask(page, server)
    turn.write(sse("token", text="half an ans"), b'event: done\ndata: {"unfinished": 1}\n')
    expect(page.locator(".answer > .text")).to_have_text("half an ans")
    getattr(turn, how)()
    expect(page.get_by_role("alert").filter(has_text="The connection was cut.")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    again = server.turn()
    assert again.body == {"message": "hello", "conversation_id": "c1", "attachments": []}
    again.start()
    again.write(sse("token", text="a whole answer"))
    again.done()
    idle(page)
    expect(page.get_by_role("article", name="Brain").nth(1).locator(".text")).to_have_text("a whole answer")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    expect(page.get_by_role("article", name="You")).to_have_count(1)


@pytest.mark.parametrize("recoverable", [True, False])
def test_error_event_offers_retry_when_recoverable(page: Page, server: Server, recoverable: bool) -> None:
    turn = ask(page, server)
    turn.write(sse("error", code="model_unreachable", message="No model answers.", recoverable=recoverable))
    turn.end()
    expect(page.locator(".error span")).to_have_text("No model answers. (model_unreachable)")
    expect(page.get_by_role("button", name="Retry")).to_have_count(int(recoverable))
    idle(page)


def test_refusal_before_the_stream_is_shown(page: Page, server: Server) -> None:
    error = {"code": "bad_request", "message": f"No such model {HTML}", "field": "model"}
    server.refusal = JSONResponse({"error": error}, 400)
    page.get_by_label("Message").fill("hello")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".error span")).to_have_text(f"No such model {HTML} (bad_request, model)")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    server.refusal = Response("<html>proxy</html>", 502)
    page.get_by_label("Message").fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator(".error span").nth(1)).to_have_text("The server answered 502.")
    expect(page.get_by_role("button", name="Retry")).to_have_count(1)


def test_unreachable_server_is_said(page: Page, context: BrowserContext) -> None:
    context.set_offline(True)
    page.get_by_label("Message").fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator(".error span")).to_have_text("The server could not be reached.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_key_is_asked_for_kept_in_memory_and_sent(page: Page, server: Server) -> None:
    server.key = "s3cret"
    page.get_by_label("Message").fill("hello")
    page.keyboard.press("Enter")
    field = page.get_by_label("This server asks for a key.")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("type", "password")
    field.fill("wrong")
    field.press("Enter")
    expect(page.get_by_text("That key was not accepted.")).to_be_visible()
    field.fill("s3cret")
    field.press("Enter")
    turn = server.turn()
    expect(field).to_be_hidden()
    turn.start()
    turn.write(sse("token", text="welcome"))
    turn.done()
    idle(page)
    assert ask(page, server, "once more").body["message"] == "once more"
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_key_is_asked_for_at_once_where_the_list_needs_it(page: Page, server: Server) -> None:
    server.key = "s3cret"
    page.reload()
    page.get_by_label("This server asks for a key.").fill("s3cret")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="weather in Paris")).to_be_visible()


def test_stop_while_the_key_is_asked_for(page: Page, server: Server) -> None:
    server.key = "s3cret"
    page.get_by_label("Message").fill("hello")
    page.keyboard.press("Enter")
    expect(page.get_by_label("This server asks for a key.")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_label("This server asks for a key.")).to_be_hidden()
    expect(page.locator(".answer > .notice")).to_have_text("Stopped.")


def test_html_stays_text_in_every_field(page: Page, server: Server) -> None:
    call = {"call_id": HTML, "name": HTML, "params": {HTML: HTML}}
    citations = [
        {"id": "1", "title": HTML, "url": "javascript:hacked=1"},
        {"id": "2", "title": HTML, "url": "https://example.org/" + HTML},
        {"id": "3", "title": "data", "url": "data:text/html,x"},
        {"id": HTML},
    ]
    page.get_by_label("Message").fill(HTML)
    page.get_by_label("Files to attach").set_input_files({"name": HTML, "mimeType": "text/plain", "buffer": b"x"})
    page.get_by_role("button", name="Send").click()
    turn = server.turn()
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
    idle(page)
    for details in page.locator("#log details").all():
        details.evaluate("node => { node.open = true; }")
    for where in [".said", ".answer > .text", ".thinking .text", ".result", ".answer > .notice", ".user .chip span"]:
        expect(page.locator(where)).to_have_text(HTML)
    for where in [".call strong", ".call .params", ".call .inside"]:
        expect(page.locator(where).first).to_contain_text(HTML)
    expect(page.locator(".reason").nth(1)).to_have_text(HTML)
    expect(page.locator(".foot")).to_contain_text(HTML)
    expect(page.get_by_role("link")).to_have_count(1)
    assert page.locator("img, b").count() == 0
    assert page.evaluate("window.hacked") is None


def test_attachments_are_shown_sent_as_base64_and_cleared(page: Page, server: Server) -> None:
    page.get_by_label("Files to attach").set_input_files(
        [
            FilePayload(name="dot.png", mimeType="image/png", buffer=PNG),
            FilePayload(name="notes.txt", mimeType="text/plain", buffer="naïve".encode()),
            FilePayload(name="gone.txt", mimeType="text/plain", buffer=b"-"),
            FilePayload(name="empty", mimeType="", buffer=b""),
        ]
    )
    chips = page.locator("#chips li")
    expect(chips).to_have_count(4)
    expect(chips.first.locator("img")).to_have_js_property("naturalWidth", 1)
    page.get_by_role("button", name="Remove gone.txt").click()
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_have_text("Write a message to go with the files.")
    turn = ask(page, server, "read them")
    assert turn.body["attachments"] == [
        {"name": "dot.png", "type": "image/png", "data": base64.b64encode(PNG).decode()},
        {"name": "notes.txt", "type": "text/plain", "data": "bmHDr3Zl"},
        {"name": "empty", "type": "application/octet-stream", "data": ""},
    ]
    expect(chips).to_have_count(0)
    expect(page.get_by_role("article", name="You").locator(".chip")).to_have_count(3)
    turn.done()
    idle(page)
    assert ask(page, server, "and now").body["attachments"] == []


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
    add = """(sizes) => {
        const data = new DataTransfer();
        sizes.forEach((size, i) => data.items.add(new File([new Uint8Array(size)], `f${i}`)));
        document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
    }"""
    problem = page.locator("#problem")
    page.evaluate(add, [16 * MIB + 1])
    expect(problem).to_have_text("f0: larger than 16 MiB.")
    page.evaluate(add, [16 * MIB, 4 * MIB, 1])
    expect(problem).to_have_text("f2: more than 20 MiB together.")
    expect(page.locator("#chips li")).to_have_count(2)
    page.get_by_role("button", name="Remove f0").click()
    expect(problem).to_have_text("")
    page.evaluate(add, [1] * 10)
    expect(problem).to_have_text("f9: at most 10 files.")
    expect(page.locator("#chips li")).to_have_count(10)


def test_box_stays_usable_while_streaming(page: Page, server: Server) -> None:
    turn = ask(page, server)
    box = page.get_by_label("Message")
    expect(box).to_have_value("")
    box.press_sequentially("next")
    box.press("Shift+Enter")
    box.press_sequentially("line")
    box.press("Enter")
    expect(box).to_have_value("next\nline")
    turn.done()
    idle(page)
    box.press("Enter")
    assert server.turn().body["message"] == "next\nline"


def test_new_conversation_forgets_the_old_one(page: Page, server: Server) -> None:
    turn = ask(page, server)
    turn.write(sse("token", text="unfinished"))
    expect(page.locator(".answer > .text")).to_be_visible()
    page.get_by_role("button", name="New conversation").click()
    assert turn.left.wait(5)
    expect(page.get_by_role("article")).to_have_count(0)
    page.get_by_role("button", name="weather in Paris").click()
    again = server.turn()
    assert again.body == {"message": "weather in Paris", "attachments": []}
    again.start()
    again.done()
    idle(page)
    expect(page.get_by_role("article")).to_have_count(2)


def test_specialists_are_listed(page: Page) -> None:
    entries = page.locator("#specialists li")
    expect(entries).to_have_count(3)
    expect(entries.first).to_have_text("weather city, unitsCurrent weather for a city.")
    expect(entries.nth(1)).to_contain_text("pip install brain-sse[ocr]")
    toggle = page.get_by_role("button", name="Specialists")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    toggle.press("Enter")
    expect(entries.first).to_be_hidden()
    expect(toggle).to_have_attribute("aria-expanded", "false")


def test_log_follows_only_from_its_end(page: Page, server: Server) -> None:
    turn = ask(page, server)
    log = page.get_by_role("log")
    from_end = "node => node.scrollHeight - node.scrollTop - node.clientHeight"
    turn.write(sse("token", text="line\n" * 200), sse("token", text="end"))
    expect(page.locator(".answer > .text")).to_contain_text("end")
    assert log.evaluate(from_end) < 4
    log.evaluate("node => new Promise(seen => { node.onscrollend = seen; node.scrollBy(0, -500); })")
    turn.write(sse("token", text="\nmore" * 50), sse("token", text=" last"))
    expect(page.locator(".answer > .text")).to_contain_text("last")
    assert log.evaluate(from_end) > 500
    turn.done()
    idle(page)


def test_long_answer_stays_smooth(page: Page, server: Server) -> None:
    page.evaluate(
        """() => {
            window.longest = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
            }).observe({ type: "longtask" });
        }"""
    )
    turn = ask(page, server)
    tokens = [f"word {n} " if n % 40 else f"word {n}.\n\n" for n in range(50_000)]
    for at in range(0, len(tokens), 1000):
        turn.write(b"".join(sse("token", text=token) for token in tokens[at : at + 1000]))
    turn.done()
    expect(page.locator(".foot")).to_be_visible(timeout=15_000)
    shown = page.locator(".answer > .text").evaluate("node => node.textContent")
    assert shown == "".join(tokens).strip()
    assert page.locator(".answer *").count() < 400
    assert page.evaluate("window.longest") < 1000


def test_narrow_window_shows_everything_without_sideways_scroll(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    page.reload()
    turn = ask(page, server, "a" * 200)
    turn.write(
        sse("token", text="b" * 3000),
        sse("specialist_error", call_id="1", name="n" * 64, params={"x": "y" * 400}, code="failed", reason="z", ms=1),
    )
    turn.done()
    idle(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.get_by_role("log").evaluate("node => node.scrollWidth <= node.clientWidth")
    page.get_by_role("button", name="Specialists").click()
    expect(page.locator("#specialists li").first).to_be_in_viewport()
    expect(page.get_by_label("Message")).to_be_in_viewport(ratio=1)
