"""The page's Markdown renderer: text in, HTML out, complete or in parts, outside an answer."""

from collections.abc import Sequence
from typing import Any

from page.chat import Chat

LOAD = """async () => {
    const address = new URL("answer/text.js", document.querySelector("script[type=module]").src);
    const { AnswerText, loadMarkdown } = await import(address.href);
    const { loadFormulas } = await import(new URL("formulas.js", address).href);
    await Promise.all([loadMarkdown(), loadFormulas()]);
    const usual = ' target="_blank" rel="noopener noreferrer nofollow"';
    window.htmlOf = (node) => {
        const copy = node.cloneNode(true);
        for (const code of copy.querySelectorAll(".code")) code.replaceWith(code.querySelector("pre"));
        for (const pre of copy.querySelectorAll("pre")) pre.removeAttribute("tabindex");
        for (const one of copy.querySelectorAll("[dir=auto]")) one.removeAttribute("dir");
        for (const span of copy.querySelectorAll("code span")) span.replaceWith(...span.childNodes);
        for (const one of copy.querySelectorAll("[aria-label], [aria-level]")) {
            one.removeAttribute("aria-label");
            one.removeAttribute("aria-level");
        }
        return copy.innerHTML.replaceAll(usual, "").replace(/>\\n+(?=<)/g, ">").trim();
    };
    window.writeParts = (parts, sources = [], each = () => {}) => {
        const text = new AnswerText(sources);
        document.querySelector("#log").append(text.node);
        for (const part of parts) {
            text.append(part);
            for (let frames = 0; frames < 100 && !text.render(Infinity); frames += 1);
            each(text.node);
        }
        return text;
    };
    window.renderComplete = (source, sources) => {
        const text = writeParts([source], sources);
        text.end();
        text.render(Infinity);
        text.node.remove();
        return text.node;
    };
}"""
PARTS = (
    "## A heading\n\n",
    "Some words of a paragraph with **bold**, `code` and [a link](https://example.org) in it. It has *stress*, "
    "and enough other words to fill a few lines, so that what follows would move if it were drawn too early. Then "
    "comes `more code`, a second [link](https://example.org/two), and the end of it.",
    "\n\n- one\n- two\n  - deeper\n- three\n\n",
    "```python\nfor n in range(10):\n    print(n)  # again\n```\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n",
    "> A quotation.\n\n1. first\n2. second\n\n",
)
DOCUMENT = """\
|name|price|
|:-:|-:|
|tea|7|

- [x] boil
- [ ] drink

A fact[^1], see [the page][p], and the town [1], not [7].

<details>
<summary>More</summary>

Hidden words.
</details>

It costs $5 and $10, and $x^2$ is

$$
x_1
- y_1
$$

```py
def tea() -> str:
    return 'green'  # hot
```

[^1]: Its note.

[p]: https://example.org/tea
"""
SOURCES = [
    {"id": "1", "title": "Bern", "url": "https://example.org/bern"},
    {"id": "PMID:7", "title": "A study", "url": "https://example.org/7"},
    {"id": "x", "title": "No address"},
    {"id": "y", "title": "No web address", "url": "javascript:hacked=1"},
]


def load(chat: Chat) -> None:
    """Define `renderComplete(text, sources)`, `writeParts(parts, sources, each)` and `htmlOf(node)` in the page."""
    chat.page.evaluate(LOAD)


def render(chat: Chat, texts: Sequence[str], sources: Sequence[dict[str, Any]] = SOURCES) -> list[str]:
    """The HTML of complete texts, without what all links, code blocks and headings share."""
    found: list[str] = chat.page.evaluate(
        "([texts, sources]) => texts.map((text) => htmlOf(renderComplete(text, sources)))", [texts, sources]
    )
    return found


def render_open(chat: Chat, texts: Sequence[str]) -> list[str]:
    """The HTML of unfinished texts."""
    found: list[str] = chat.page.evaluate("(texts) => texts.map((text) => htmlOf(writeParts([text]).node))", texts)
    return found


def make_messages(n: int) -> list[dict[str, Any]]:
    """A message and its answer, as the server sends them."""
    time = "2026-11-21T13:30:58Z"
    question = {"id": f"q{n}", "role": "user", "time": time, "files": [], "recalled": []}
    answer = {"id": f"a{n}", "role": "assistant", "time": time, "state": "complete", "stop_reason": "complete"}
    return [
        {**question, "parts": [{"type": "text", "text": f"Question {n}?"}]},
        {**answer, "parts": [{"type": "text", "text": f"Answer {n}.\n\n" + "".join(PARTS)}], "model": "player"},
    ]
