"""Markdown as HTML: literal blocks, what strangers try, texts that grow, and texts that nobody would write."""

import random
import re
import time
from html.parser import HTMLParser

import pytest

from brain.rendering import TEXT_LENGTH, Block, blocks
from brain.rendering.code import CODE_LENGTH

TO = 'target="_blank" rel="noopener noreferrer nofollow"'
"""What every link has."""


def html(text: str) -> str:
    return "".join(block.html for block in blocks(text)).strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello *you* and **me**.", "<p>Hello <em>you</em> and <strong>me</strong>.</p>"),
        ("one\ntwo", "<p>one<br>\ntwo</p>"),
        ("`SPECIALIST_REQUEST［menu:{}]` ［", "<p><code>SPECIALIST_REQUEST[menu:{}]</code> ［</p>"),
        ("~~no~~ `a<b`", "<p><s>no</s> <code>a&lt;b</code></p>"),
        ("# A\n## B\n### C\n###### F", "<h3>A</h3>\n<h4>B</h4>\n<h5>C</h5>\n<h6>F</h6>"),
        ("A\n===", "<h3>A</h3>"),
        ("3. c\n4. d", '<ol start="3">\n<li>c</li>\n<li>d</li>\n</ol>'),
        (
            "- [ ] a\n- [x] b",
            '<ul class="contains-task-list">\n<li class="task-list-item"><input disabled="" type="checkbox"> a</li>\n'
            '<li class="task-list-item"><input disabled="" type="checkbox" checked=""> b</li>\n</ul>',
        ),
        ("> a\n\n---", "<blockquote>\n<p>a</p>\n</blockquote>\n<hr>"),
        (
            "|a|b|\n|--|-:|\n|1|2|",
            '<div class="table"><table>\n<thead>\n<tr>\n<th>a</th>\n<th class="right">b</th>\n</tr>\n</thead>\n'
            '<tbody>\n<tr>\n<td>1</td>\n<td class="right">2</td>\n</tr>\n</tbody>\n</table></div>',
        ),
        ("    a < b", "<pre><code>a &lt; b\n</code></pre>"),
        ("```\na < b\n```", "<pre><code>a &lt; b\n</code></pre>"),
        (
            "```py title\nx = 1\n```",
            '<pre><code class="language-py"><span class="n">x</span> <span class="o">=</span> '
            '<span class="mi">1</span>\n</code></pre>',
        ),
        ("```mermaid\na --> b\n```", '<pre><code class="language-mermaid">a --&gt; b\n</code></pre>'),
        ("<b>x</b>\n\n<div>", "<p>&lt;b&gt;x&lt;/b&gt;</p>\n<p>&lt;div&gt;</p>"),
        ("", ""),
        (" \n\n", ""),
        ("a\0b", "<p>a\ufffdb</p>"),
        ("a\ud800b", "<p>a\ufffdb</p>"),
    ],
)
def test_blocks_as_html(text: str, expected: str) -> None:
    assert html(text) == expected


def link(href: str, label: str, place: str = "") -> str:
    return f'<a href="{href}" {TO}>{label}</a>' + (f' <span class="place">({place})</span>' if place else "")


B, EVIL = "https://b.example", "https://evil.example"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{B}/b_c_d?e=1&f=2.", link(f"{B}/b_c_d?e=1&amp;f=2", f"{B}/b_c_d?e=1&amp;f=2") + "."),
        ("main.py and a.example/b", "main.py and a.example/b"),
        (f"[a]({B} 'c')", link(B, "a")),
        ("<mailto:a@b.example>", link("mailto:a@b.example", "mailto:a@b.example")),
        (f"![a **b**]({B}/d.png)", link(f"{B}/d.png", "a b")),
        (f"![]({B}/d.png)", link(f"{B}/d.png", "b.example")),
        (f"[![a](https://c.example/d)]({B})", link(B, "a")),
        (f"[]({B})", link(B, "b.example")),
        (f"[\u200b\u2060]({B})", link(B, "b.example")),
        (f"[bank.example]({EVIL})", link(EVIL, "bank.example", "evil.example")),
        (f"[To `https://bank.example/`]({EVIL})", link(EVIL, "To <code>https://bank.example/</code>", "evil.example")),
        ("[me@bank.example](mailto:me@c.example)", link("mailto:me@c.example", "me@bank.example", "me@c.example")),
        (f"[bank。example]({EVIL})", link(EVIL, "bank。example", "evil.example")),
        ("https://bаnk.example", link("https://xn--bnk-6cd.example", "https://bаnk.example", "xn--bnk-6cd.example")),
        (f"[www.b.example/c.html]({B}/c.html)", link(f"{B}/c.html", "www.b.example/c.html")),
        (f"[Python 3.11, e.g.]({B})", link(B, "Python 3.11, e.g.")),
        (f"[elpmaxe\u202e.knab]({B})", link(B, "elpmaxe.knab", "b.example")),
        ("https://a.example/%E2%80%AE", link("https://a.example/%E2%80%AE", "https://a.example/%E2%80%AE")),
        (f"[bank\u2024example]({EVIL})", link(EVIL, "bank\u2024example", "evil.example")),
        (f"[bank\u200a.example]({EVIL})", link(EVIL, "bank\u200a.example", "evil.example")),
        (f"[bank .example]({EVIL})", link(EVIL, "bank .example", "evil.example")),
        (f"[https://bank/login]({EVIL})", link(EVIL, "https://bank/login", "evil.example")),
        (f"[http:\u2044\u2215bank]({EVIL})", link(EVIL, "http:\u2044\u2215bank", "evil.example")),
        (f"[http:\\\\\\\\bank]({EVIL})", link(EVIL, "http:\\\\bank", "evil.example")),
        (f"[b.example\u2044c]({B})", link(B, "b.example\u2044c")),
        (f"[bank:8080]({EVIL})", link(EVIL, "bank:8080", "evil.example")),
        ("http://bank:8080/.", link("http://bank:8080/", "http://bank:8080/") + "."),
        ("<http://[::1]:80/a>", link("http://[::1]:80/a", "http://[::1]:80/a")),
        (f"[(https://b.example).]({B})", link(B, "(https://b.example).")),
        (f"[https://bank@b.example]({B})", link(B, "https://bank@b.example", "b.example")),
        (f"[John 3:16, at 12:30. Then: more]({B})", link(B, "John 3:16, at 12:30. Then: more")),
        (f"[{'a' * 301}]({B})", link(B, "a" * 301, "b.example")),
        ("\u202eabc\u2066", "abc"),
        (f"[bank·com]({EVIL})", link(EVIL, "bank·com", "evil.example")),
        (f"[bank,com]({EVIL})", link(EVIL, "bank,com", "evil.example")),
        (f"[bank. com]({EVIL})", link(EVIL, "bank. com", "evil.example")),
        (f"[bank\u0323com]({EVIL})", link(EVIL, "bank\u0323com", "evil.example")),
        (f"[bank.c\u0323om]({EVIL})", link(EVIL, "bank.c\u0323om", "evil.example")),
        (f"[//bank.example]({EVIL})", link(EVIL, "//bank.example", "evil.example")),
        (f"[Một trang. Now, one,two. // a]({B})", link(B, "Một trang. Now, one,two. // a")),
        (
            rf"[\(\text{{bank.example}}\)]({EVIL}) [a]({B})",
            link(EVIL, '<math display="inline"><mtext>bank.example</mtext></math>', "evil.example")
            + f" {link(B, 'a')}",
        ),
        (rf"![\(\text{{bank}}\)]({EVIL})", link(EVIL, r"\text{bank}", "evil.example")),
    ],
)
def test_a_link_says_where_it_leads(text: str, expected: str) -> None:
    assert html(text) == f"<p>{expected}</p>"


def test_code_shows_what_turns_its_characters_round() -> None:
    assert html("`a\u202eb`") == "<p><code>a\ufffdb</code></p>"
    assert html("```\na\u2067b\n```") == "<pre><code>a\ufffdb\n</code></pre>"
    assert html("```py\n'\u202e'\n```").count("\ufffd") == 1


X = "<mi>x</mi></math>"
INLINE, OWN = f'<math display="inline">{X}', f'<div class="formula"><math display="block">{X}</div>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"So \(x\), and $$x$$.", f'<p>So {INLINE}, and <math display="block">{X}.</p>'),
        ("\\[\nx\n\\]", OWN),
        ("a\n$$ x $$\nb", f"<p>a</p>\n{OWN}\n<p>b</p>"),
        ("> $$\n> x\n> $$", f"<blockquote>\n{OWN}\n</blockquote>"),
        (
            r"\(\frac{a}{2}\)",
            '<p><math display="inline"><mfrac><mi>a</mi><mn>2</mn></mfrac></math></p>',
        ),
        ("It costs $5 and $6, $$ – $$$, $$5 a month", "<p>It costs $5 and $6, $$ – $$$, $$5 a month</p>"),
        (r"As \[1\] says, \[", "<p>As [1] says, [</p>"),
        (r"`\(x\)` and \\(x\\)", r"<p><code>\(x\)</code> and \(x\)</p>"),
        ("$$\n\nx\n$$", "<p>$$</p>\n<p>x<br>\n$$</p>"),
        (r"\(\frac{\)", r"<p><code>\(\frac{\)</code></p>"),
        ("\\(" + "{" * 900 + "\\)", "<p><code>\\(" + "{" * 900 + "\\)</code></p>"),
        (r"\(\newcommand{\a}{x}\a\)", r"<p><code>\(\newcommand{\a}{x}\a\)</code></p>"),
        (r"\(\href{javascript:alert(1)}{x}\)", f"<p>{INLINE}</p>"),
        (r"\(\text{<b>}\)", '<p><math display="inline"><mtext>&lt;b&gt;</mtext></math></p>'),
        (r"\(\hspace{-50em}\)", '<p><math display="inline"><mspace></mspace></math></p>'),
    ],
)
def test_formulas_are_drawn_by_the_browser(text: str, expected: str) -> None:
    assert html(text) == expected


ROOTS = (r"\sqrt{" * 27 + "x" + "}" * 27, r"\sqrt{" * 29 + "x" + "}" * 29)


def test_groups_in_one_another_are_one_and_what_is_deep_stays_as_it_was_written() -> None:
    assert html(rf"\({'{' * 100}x{'}' * 100}\)") == f"<p>{INLINE}</p>"
    fits, deep = ROOTS
    assert html(rf"\({fits}\)").count("<msqrt>") == 27
    assert html(rf"\({deep}\)") == rf"<p><code>\({deep}\)</code></p>"


@pytest.mark.parametrize(("formula", "drawn"), [("x", 2_500), ("x'", 1_250), (r"\begin{matrix}&\end{matrix}", 740)])
def test_of_very_many_formulas_the_first_are_drawn(formula: str, drawn: int) -> None:
    assert html(rf"\({formula}\)" * 2_600).count("<math") == drawn


def test_a_formula_that_is_still_written_is_code_and_no_markdown() -> None:
    (first, written) = blocks("a\n\n$$\n- x_1 *y*", still_open=True)
    assert written.html == '<div class="formula"><code>$$\n- x_1 *y*</code></div>\n'
    assert first.html == "<p>a</p>\n"


class Found(HTMLParser):
    """Everything in HTML that could do something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


ATTEMPTS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a <b onclick=alert(1)>b</b>",
    "<svg><script>alert(1)</script></svg>",
    "<svg/onload=alert(1)>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>",
    "<style>*{}</style><link rel=stylesheet href=//evil.example>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href='javascript:alert(1)'>x</a>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<img src=x onerror=alert(1)>]]>",
    "</p></div></main><script>alert(1)</script>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x6A&#x61;vascript:alert(1))",
    "[x](java&Tab;script:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](<java\nscript:alert(1)>)",
    "[x](\x01javascript:alert(1))",
    "[x](%6Aavascript:alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html,<script>alert(1)</script>)",
    "![x](data:image/svg+xml,<svg/onload=alert(1)>)",
    "[x](blob:http://a.example/1)",
    "[x](file:///etc/passwd)",
    "[x](ftp://a.example)",
    "[x](//evil.example)",
    "[x](/v1/conversations)",
    "[x](page/start)",
    "[x](#top)",
    "[x](?q)",
    "[x]()",
    "[x](https:evil.example)",
    "[x](https:/\\evil.example)",
    "[x](https://)",
    "[x](https://bank.example@evil.example)",
    "[x](https://bank.example%40evil.example)",
    "[x](https://bank.example\\@evil.example)",
    "[x](https://a.example:x)",
    "[x](mailto:)",
    "<javascript:alert(1)>",
    "<data:text/html,x>",
    "<https://bank.example@evil.example>",
    "[x]: javascript:alert(1)\n\n[x]",
    "[x]: <data:text/html,x> 'y'\n\n[x][x]",
    "javascript://x%0aalert(1)",
    "[x](https://a.example'onmouseover='alert(1))",
    '[x](https://a.example "\\" onmouseover=alert(1)")',
    '[x](https://a.example/"onmouseover="alert(1))',
    "![\"onerror=alert(1)](https://a.example/b)",
    "![x](https://a.example/`onerror=alert(1))",
    "[<img src=x onerror=alert(1)>](https://a.example)",
    "`<img src=x onerror=alert(1)>`",
    "```<script>alert(1)</script>\nx\n```",
    '```x"onclick="alert(1)\nx\n```',
    "```x onclick=alert(1) class=bar id=box\nx\n```",
    "```&quot;&gt;&lt;script&gt;\nx\n```",
    "~~~ py <script>`\n</code></pre><script>alert(1)</script>\n~~~",
    "```html\n<script>alert(1)</script><style>@import '//evil.example'</style>\n```",
    "```py\n'</span></code><img src=x onerror=alert(1)>'\n```",
    "|<img src=x onerror=alert(1)>|\n|-|\n|`<script>`|",
    '|a|\n|:-:" onclick="alert(1)|\n|b|',
    "# <img src=x onerror=alert(1)> {#box .bar onclick=alert(1)}",
    "- [x] <input autofocus onfocus=alert(1)>",
    "> [!NOTE] <script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;img src=x onerror=alert(1)&#62;",
    "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script>",
    "\ufeff<scr\0ipt>alert(1)</scr\0ipt>",
    "[a](https://a.example)<base href=//evil.example>",
    "<form action=//evil.example><button>x",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<template><script>alert(1)</script></template>",
    "<details open ontoggle=alert(1)>",
    "> " * 60 + "<script>alert(1)</script>",
    "<script>" * 20_000,
    r"\(\text{<img src=x onerror=alert(1)>}\)",
    r"$$\style{position:fixed}{x}\class{bar}{y}\id{z}$$",
    r"\[\text{</mtext></math><script>alert(1)</script>}=1\]",
    "\\(\\text{<annotation-xml encoding='text/html'><script>alert(1)</script>}\\)",
]  # fmt: skip

TAGS = {*("p", "br", "h3", "blockquote", "ul", "ol", "li", "hr", "pre", "code", "span", "div", "a", "strong", "em")}
TAGS |= {*("s", "input", "table", "thead", "tbody", "tr", "th", "td")}
TAGS |= {"math", "mrow", "mi", "mn", "mo", "mtext"}
ATTRIBUTES = {
    ("math", "display"): re.compile("inline|block"),
    ("mo", "stretchy"): re.compile("true|false"),
    ("a", "href"): re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?([/?#][^\s<>\"']*)?|mailto:[^\s@]+@[A-Za-z0-9.-]+"),
    ("a", "target"): re.compile("_blank"),
    ("a", "rel"): re.compile("noopener noreferrer nofollow"),
    ("code", "class"): re.compile(r"language-[a-z0-9][a-z0-9+#._-]{0,31}"),
    ("span", "class"): re.compile("place|[a-z0-9]{1,3}"),
    ("div", "class"): re.compile("table|formula"),
    ("th", "class"): re.compile("left|center|right"),
    ("ul", "class"): re.compile("contains-task-list"),
    ("li", "class"): re.compile("task-list-item"),
    ("input", "type"): re.compile("checkbox"),
    ("input", "disabled"): re.compile(""),
    ("input", "checked"): re.compile(""),
}


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda text: ascii(text[:60]))
@pytest.mark.parametrize(
    "around", ["{}", "a {} b", "- {}", "> {}", "**{}**", "|a|\n|-|\n|{}|", "# {}", "[{}](https://a.example)"]
)
def test_nothing_that_does_anything_comes_through(attempt: str, around: str) -> None:
    found = Found(html(around.replace("{}", attempt)))
    assert found.tags <= TAGS
    wrong = [
        one for one in found.attributes if not (rule := ATTRIBUTES.get(one[:2])) or not rule.fullmatch(one[2] or "")
    ]
    assert wrong == []


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda text: ascii(text[:60]))
def test_nothing_leads_where_it_does_not_say(attempt: str) -> None:
    """What is no address of the web is no link; in what stays text, addresses that stand there are bare links."""
    places = [value or "" for _, name, value in Found(html(attempt)).attributes if name == "href"]
    assert [place for place in places if not re.match(r"https?://(a\.example|bank\.example|www\.w3\.org)", place)] == []
    assert [place for place in places if "evil" in place] == []


# texts that grow

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


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def check_growing(text: str) -> None:
    """Every prefix settles what the whole begins with, and the rest alone is the rest."""
    whole, written = blocks(text), text.encode("utf-16-le")
    for end in range(1, len(text) + 1):
        *settled, _ = blocks(text[:end], still_open=True) or [Block("", 0)]
        assert settled == whole[: len(settled)], repr(text[:end])
        behind = written[2 * settled[-1].end :].decode("utf-16-le") if settled else text
        assert [block.html for block in blocks(behind)] == [block.html for block in whole[len(settled) :]]


@pytest.mark.parametrize("marks", ["  -", "   - ", "  ==", "2", "2.", "2. ", "*", "> -"])
def test_marks_without_anything_behind_them_wait(marks: str) -> None:
    beginning = "<ol>\n<li>First</li>\n</ol>"
    (block,) = blocks(f"1. First\n{marks}", still_open=True)
    assert block.html.strip() == (beginning if marks != "2" else "<ol>\n<li>First<br>\n2</li>\n</ol>")
    assert block.end == len(f"1. First\n{marks}")


def test_marks_in_code_are_code_at_once() -> None:
    (block,) = blocks("```yaml\nlist:\n- ", still_open=True)
    assert block.html.strip() == '<pre><code class="language-yaml">list:\n- </code></pre>'


def test_what_is_settled_stays_whatever_comes_behind_it() -> None:
    check_growing(DOCUMENT)


PIECES = [
    "a",
    " ",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "2",
    ".",
    "# ",
    "#",
    "> ",
    "```",
    "```py\n",
    "|",
    "|-|-|",
    "|a|b|\n",
    "---",
]
PIECES += [
    "+ ",
    "***",
    "**",
    "*",
    "=",
    "    ",
    "\t",
    "  ",
    "[x]",
    "(http://a.b)",
    "😀",
    "`",
    "~~",
    "\r\n",
    "\r",
    "<b>",
    ":",
]
PIECES += ["-", "\\", "$$", "\\[", "\\]", "\n$$\n"]


def test_so_does_what_nobody_would_write() -> None:
    rng = random.Random(7)
    for _ in range(120):
        check_growing("".join(rng.choices(PIECES, k=rng.randrange(1, 20))))


def test_most_of_a_long_text_settles_while_it_grows() -> None:
    settled = blocks(DOCUMENT, still_open=True)[:-1]
    assert len(settled) == len(blocks(DOCUMENT)) - 1


def test_a_reference_that_is_defined_later_makes_a_link_of_what_was_settled() -> None:
    text = "See [tea].\n\nMore.\n\n[tea]: https://tea.example\n\nEnd.\n"
    assert blocks(text)[0].html == f'<p>See <a href="https://tea.example" {TO}>tea</a>.</p>\n'
    assert blocks(text[:19], still_open=True)[0].html == "<p>See [tea].</p>\n"


def test_blocks_end_where_javascript_counts() -> None:
    text = "😀\n\n- 😀\n- b\n\n\n𝄞 c"
    assert [block.end for block in blocks(text)] == [3, 15, 19]
    assert units(text) == 19
    assert [block.end for block in blocks("a\r\n\r\nb\rc\r\rd")] == [3, 9, 11]
    assert [block.end for block in blocks("a\ud800\n\nb")] == [3, 5]


def test_code_has_colours_once_it_is_settled() -> None:
    text = "```py\nx = 1\n```\n"
    assert blocks(text, still_open=True) == [Block('<pre><code class="language-py">x = 1\n</code></pre>\n', len(text))]
    assert '<span class="mi">1</span>' in blocks(f"{text}a\n", still_open=True)[0].html


# texts that nobody would write


def test_what_is_too_long_is_preformatted() -> None:
    text = "*a* <b>\n" * (TEXT_LENGTH // 8 + 1)
    (block,) = blocks(text)
    assert block.html.startswith("<pre>*a* &lt;b&gt;\n*a*")
    assert block.end == len(text)
    assert "<em>" in blocks(text[: TEXT_LENGTH - 1])[0].html


def test_what_is_nested_too_deep_is_preformatted_alone() -> None:
    first, deep, last = blocks("*a*\n\n" + "> " * 40 + "b\n\n*c*")
    assert (first.html, last.html) == ("<p><em>a</em></p>\n", "<p><em>c</em></p>\n")
    assert deep.html == "<pre>" + "&gt; " * 40 + "b\n</pre>\n"
    assert "<pre>" not in html("> " * 38 + "b")


def test_what_is_left_out_of_a_list_is_not_lost() -> None:
    text = "".join("  " * level + f"- item{level}\n" for level in range(30))
    shown = html(text)
    assert [level for level in range(30) if f"item{level}" not in shown] == []


def test_long_code_has_no_colours() -> None:
    lines = CODE_LENGTH // len("x = 1\n")
    assert "<span" in html("```py\n" + "x = 1\n" * lines + "```")
    assert "<span" not in html("```py\n" + "x = 1\n" * (lines + 1) + "```")


def test_code_that_takes_too_long_has_no_colours() -> None:
    assert "<span" not in html("```c\n" + "\n" * (CODE_LENGTH - 1) + "x\n```")


def test_a_table_does_not_grow_by_cells_that_nobody_wrote() -> None:
    text = "|a" * 300 + "|\n" + "|-" * 300 + "|\n" + "|\n" * 2000
    assert len(html(text)) < 20 * len(text)
    assert "<table>" not in html(text)
    assert html("|a|b|c|\n|-|-|-|\n" + "|1|\n" * 900).count("<td>") == 2700


def test_an_address_does_not_grow_by_being_named() -> None:
    text = f"[a]: https://b.example/{'c' * 1900}\n\n" + "[a] " * 3_900
    assert len(html(text)) < 30 * len(text)
    assert html(text).count("<a ") > 50


def test_behind_very_many_brackets_lines_are_plain() -> None:
    first, many, last = blocks("[a](https://b.example)\n\n" + "[" * 4_000 + "\n\n*c*")
    assert "<a " in first.html
    assert many.html == f"<p>{'[' * 4_000}</p>\n"
    assert last.html == "<p>*c*</p>\n"
    assert "<em>" in html("```\n" + "[" * 9_000 + "\n```\n\n*c*")


HOSTILE = [
    "[",
    "![",
    "[a][",
    "][",
    "*a_ ",
    "a**b",
    "`a",
    "<a",
    "<!--",
    "&#1",
    "\\\n",
    ">",
    "> a\n",
    "- ",
    "- a\n",
    "|a",
]
HOSTILE += [
    "http://",
    "a://",
    "x a:// ",
    "http://a.b/(",
    "mailto:a@",
    "[a](b",
    "[a](",
    "[a\n",
    "~~a",
    "a|b\n-|-\n",
    "```\n",
    "\\(a",
    "\\(a\\)",
    "\\[\n",
    "\\[\n\\] a\n",
    "$$a$$\n",
]


@pytest.mark.parametrize("piece", HOSTILE, ids=ascii)
def test_no_text_takes_the_square_of_its_length(piece: str) -> None:
    """What takes the square takes sixteen times as long for four times as much; what grows with it, four times."""

    def seconds(length: int) -> float:
        text = (piece * length)[:length]
        began = time.thread_time()
        blocks(text)
        return time.thread_time() - began

    assert seconds(16_000) < 10 * max(min(seconds(4_000) for _ in range(2)), 0.01)
