"""Text in parts: the result equals that of the complete text, nothing flickers, and each step is small."""

import random

import pytest

from page.chat import Chat

pytestmark = pytest.mark.chromium

DOCUMENT = """\
Tea 😀 is a *drink*.
It is **old**

# How
1. Boil

   water
2. Pour

- a
  - b 😀

      code
- [x] c

| a | b |
|---|--:|
| 1 | 😀 |

```python
def tea() -> str:
    return "😀"
```
~~~
open ``` and <b>
~~~
> quoted
lazily

Old
---
***
foo
# bar
foo
#baz
|x|y|
|-|-|z
    not code

    code

    the same

[a](https://b.example) https://c.example `d`\r
\r
end"""
PROSE = """\
Some words with **bold**, *stress*, _more_ of it, `code(1)`, ~~gone~~ and [a link](https://example.org/a/path) in it.
The next line (1) is of the same paragraph, 2 * 3 is 6.

## A **heading** of words

- one `x[0]`
- [two](https://example.org/two)
  - deeper, **bold**
- [x] done

```python
const = "a1"  # it's `code`

for n in range(10):
    print(n, "**", [n], "|")
# the end
```

1. first
2. second

| name | much | more |
|------|-----:|:----:|
| tea | **7** | a b |
| milk | 3 | `c` |

> A quotation with *stress*
> and a formula \\(x + 1\\).

---

Last <https://example.org/b>, 3 < 4.
"""
PIECES = [
    "a", " ", "\n", "\n\n", "- ", "1. ", "2", ".", "# ", "#", "> ", "```", "```py\n", "|", "|-|-|", "|a|b|\n",
    "---", "+ ", "***", "**", "*", "=", "    ", "\t", "  ", "[x]", "(http://a.b)", "😀", "`", "~~", "\r\n", "\r",
    "<b>", ":", "-", "\\", "$$", "\\[", "\\]", "\n$$\n", "$", "<details>\n", "</details>\n", "<summary>", "[^1]",
    "[^1]: n\n", "[a]: http://b.c\n", "[a]",
]  # fmt: skip
HOSTILE = [
    "[", "![", "[a][", "*a_ ", "a**b", "`a", "<a", "&#1", "\\\n", "> a\n", "- ", "- a\n", "|a", "http://",
    "x a:// ", "mailto:a@", "[a](b", "[a](", "[a\n", "~~a", "a|b\n-|-\n", "|a|b|\n|-|-|\n", "```\n", "\\(a",
    "\\(a\\)", "$$a$$\n", "\\[\n", "$a$ ", "[^1]: a\n", "[a]: http://b\n", "<details>\n", "# a\n", "word ", "a",
    "😀", "> - ", "[1] ", "![a](http://b.c) ",
]  # fmt: skip
SIZE = 30_000
STREAMED = """(text) => {
    const each = writeParts([...text]);
    each.end();
    each.render(Infinity);
    each.node.remove();
    return [htmlOf(each.node), htmlOf(renderComplete(text))];
}"""
STATES = """(parts) => {
    const bare = (node) => node.innerText.replace(/\\s+/g, ""), states = [];
    const text = writeParts(parts, [], (node) => states.push(bare(node)));
    text.end();
    text.render(Infinity);
    return [...states, bare(text.node)];
}"""
CHANGED = """(parts) => {
    let before = [], changed = [];
    writeParts(parts, [], (node) => {
        const now = [...node.children].slice(0, -2).map((one) => [one, one.outerHTML]);
        const differ = before.filter(([one, html], n) => now[n]?.[0] !== one || now[n][1] !== html);
        changed.push(...differ.map(([, html]) => html));
        before = now;
    });
    return [before.length, changed];
}"""
STEPS = """([piece, size]) => {
    const text = writeParts([], [{ id: "1", url: "http://b.c" }]);
    text.append(piece.repeat(size / piece.length + 1).slice(0, size));
    text.end();
    let steps = 0, most = 0, all = 0;
    for (let over = false; !over && steps < 2000; steps += 1) {
        over = text.render(0);
        const now = text.node.querySelectorAll("*").length;
        most = Math.max(most, now - all);
        all = now;
    }
    text.node.remove();
    return [steps, most];
}"""


def split_randomly(text: str, seed: int) -> list[str]:
    chance, found, start = random.Random(seed), [], 0
    while start < len(text):
        end = start + chance.randint(1, 8)
        found.append(text[start:end])
        start = end
    return found


def test_single_characters_become_the_same_as_the_complete_text(renderer: Chat) -> None:
    chance = random.Random(7)
    texts = [DOCUMENT, PROSE, *("".join(chance.choices(PIECES, k=chance.randrange(1, 20))) for _ in range(150))]
    for text in texts:
        streamed, whole = renderer.page.evaluate(STREAMED, text)
        assert streamed == whole, repr(text)


def test_visible_text_is_always_the_beginning_of_the_complete_text(renderer: Chat) -> None:
    for seed in range(4):
        states: list[str] = renderer.page.evaluate(STATES, split_randomly(PROSE, seed))
        assert len(states) > 50
        assert 'print(n,"**",[n],"|")' in states[-1]
        assert [state for state in states if not states[-1].startswith(state)] == []


def test_finished_blocks_never_change(renderer: Chat) -> None:
    finished, changed = renderer.page.evaluate(CHANGED, split_randomly(DOCUMENT.partition("[a]")[0], 1))
    assert finished > 10
    assert changed == []


def test_a_long_text_is_rendered_in_small_steps(renderer: Chat) -> None:
    """Even for dense text, each step adds few elements, and there are few steps."""
    found = {piece: renderer.page.evaluate(STEPS, [piece, SIZE]) for piece in HOSTILE}
    assert {piece: steps for piece, (steps, most) in found.items() if steps > 500 or most > 2500} == {}


def test_a_long_block_is_cut_and_loses_nothing(renderer: Chat) -> None:
    words = " ".join(f"w{n}" for n in range(10_000))
    table = "|a|b|\n|-|-|\n" + "".join(f"|{n}|b|\n" for n in range(2000))
    code = "```py\n" + "".join(f"x = {n}\n" for n in range(5000)) + "```\n"
    items = "".join(f"{n}. item {n}\n" for n in range(1, 2001))
    texts = "(texts) => texts.map((text) => renderComplete(text).textContent)"
    shown: list[str] = renderer.page.evaluate(texts, [words, table, code, items])
    assert "".join(shown[0].split()) == words.replace(" ", "")
    assert "".join(shown[1].split()).replace("ab", "") == "".join(f"{n}b" for n in range(2000))
    assert shown[2].endswith(code.removeprefix("```py\n").removesuffix("```\n"))
    assert "".join(shown[3].split()) == "".join(f"item{n}" for n in range(1, 2001))
