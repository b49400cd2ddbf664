"""Markdown as the page renders it: the HTML of each mark, and where links can lead."""

import re

import pytest

from page.chat import Chat
from page.markdown import render, render_open

pytestmark = pytest.mark.chromium

B, EVIL = "https://b.example", "https://evil.example"
X = "<math><mi>x</mi></math>"
DEEP = r"\(" + r"\sqrt{" * 80 + "x" + "}" * 80 + r"\)"
DISPLAY_X = '<math display="block" class="tml-display"><mi>x</mi></math>'

BLOCKS = {
    "Hello *you* and **me**.": "<p>Hello <em>you</em> and <strong>me</strong>.</p>",
    "one\ntwo": "<p>one<br>\ntwo</p>",
    "`SPECIALIST_REQUEST［menu:{}]` ［": "<p><code>SPECIALIST_REQUEST[menu:{}]</code> ［</p>",
    "~~no~~ `a<b`": "<p><s>no</s> <code>a&lt;b</code></p>",
    "# A\n## B\n### C\n###### F": "<h3>A</h3><h4>B</h4><h5>C</h5><h6>F</h6>",
    "A\n===": "<h3>A</h3>",
    "3. c\n4. d": '<ol start="3"><li>c</li><li>d</li></ol>',
    "- [ ] a\n- [x] b": '<ul><li class="task"><input type="checkbox" disabled=""> a</li>'
    '<li class="task"><input type="checkbox" disabled="" checked=""> b</li></ul>',
    "> a\n\n---": "<blockquote><p>a</p></blockquote><hr>",
    "|a|b|\n|--|-:|\n|1|2|": '<div class="table"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead>'
    '<tbody><tr><td>1</td><td class="right">2</td></tr></tbody></table></div>',
    "    a < b": "<pre><code>a &lt; b\n</code></pre>",
    "```py title\nx = 1\n```": '<pre><code class="language-py">x = 1\n</code></pre>',
    '```x"onclick="a\nb\n```': "<pre><code>b\n</code></pre>",
    "<b>x</b>\n\n<div>": "<p>&lt;b&gt;x&lt;/b&gt;</p><p>&lt;div&gt;</p>",
    "a\0b\r\nc": "<p>a\ufffdb<br>\nc</p>",
    " \n\n": "",
    "\u202eabc\u2066 `a\u202eb`": "<p>abc <code>a\ufffdb</code></p>",
    "**注意：**很长。**「引用」**": "<p><strong>注意：</strong>很长。<strong>「引用」</strong></p>",
    "あ*い。*う **「가」**나 가_나_": "<p>あ<em>い。</em>う <strong>「가」</strong>나 가_나_</p>",
    "a**b.**c 注 ** 意": "<p>a**b.**c 注 ** 意</p>",
    "H<sub>2</sub>O, x<SUP>*n* < 2</SUP>, <kbd>Ctrl</kbd>": "<p>H<sub>2</sub>O, x<sup><em>n</em> &lt; 2</sup>, "
    "<kbd>Ctrl</kbd></p>",
    "a<br>b<br/>c<BR />d": "<p>a<br>\nb<br>\nc<br>\nd</p>",
    "|a|\n|-|\n|1<br>2|": '<div class="table"><table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1<br>\n2</td>'
    "</tr></tbody></table></div>",
    "<sub>a <sup class=x>b</sup> <kbd": "<p>&lt;sub&gt;a &lt;sup class=x&gt;b&lt;/sup&gt; &lt;kbd</p>",
}
CONTAINERS = {
    "A[^n].\n\n[^n]: The *note*\nof it.\n[^2]: b": '<p>A<sup><button type="button" class="note" data-note="n">n'
    '</button></sup>.</p><div class="footnote" data-note="n"><sup>n</sup> The <em>note</em><br>\nof it.</div>'
    '<div class="footnote" data-note="2"><sup>2</sup> b</div>',
    "A[^n].": "<p>A[^n].</p>",
    "<details>\n<summary>S **b**</summary>\n\nT\n\n- a\n</details>\nU": "<details><summary>S <strong>b</strong>"
    "</summary><p>T</p><ul><li>a</li></ul></details><p>U</p>",
    "<details open><summary>S</summary>T</details>\nU": '<details open=""><summary>S</summary>'
    "<p>T</p></details><p>U</p>",
    "<details>\n<details>\na\n</details>\n</details>\n\nb": "<details><details><p>a</p></details></details><p>b</p>",
    "<details>\na\n\nb": "<details><p>a</p><p>b</p></details>",
    "> <details>\n> a\n\nb": "<blockquote><details><p>a</p></details></blockquote><p>b</p>",
    "</details><summary>a</summary>": "<p>&lt;/details&gt;&lt;summary&gt;a&lt;/summary&gt;</p>",
    "<details ontoggle=hacked=1>": "<p>&lt;details ontoggle=hacked=1&gt;</p>",
}
FORMULAS = {
    r"So \(x\), and $$x$$.": f"<p>So {X}, and {DISPLAY_X}.</p>",
    "\\[\nx\n\\]": f'<div class="formula">{DISPLAY_X}</div>',
    "a\n$$ x $$\nb": f'<p>a</p><div class="formula">{DISPLAY_X}</div><p>b</p>',
    "> $$\n> x\n> $$": f'<blockquote><div class="formula">{DISPLAY_X}</div></blockquote>',
    r"\(\frac{a}{2}\)": "<p><math><mfrac><mi>a</mi><mn>2</mn></mfrac></math></p>",
    "$x$ and $5$, $a=b$": f"<p>{X} and <math><mn>5</mn></math>, "
    "<math><mrow><mi>a</mi><mo>=</mo><mi>b</mi></mrow></math></p>",
    "It is $5 and $10, $$ – $$$, $$5 a month": "<p>It is $5 and $10, $$ – $$$, $$5 a month</p>",
    "US$5/US$6, $20 (or 15$), ($x and y$), $HOME/$USER": "<p>US$5/US$6, $20 (or 15$), ($x and y$), $HOME/$USER</p>",
    r"As \[1\] says, \[": "<p>As [1] says, [</p>",
    r"`\(x\)` and \\(x\\) \$x\$": r"<p><code>\(x\)</code> and \(x\) $x$</p>",
    "$$\n\nx\n$$": "<p>$$</p><p>x<br>\n$$</p>",
    r"\(\frac{\)": r"<p><code>\(\frac{\)</code></p>",
    r"\(\def\a{\a\a}\a\)": r"<p><code>\(\def\a{\a\a}\a\)</code></p>",
    r"\(\class{bar}{x}\)": r"<p><code>\(\class{bar}{x}\)</code></p>",
    r"\(\boxed{x}\)": '<p><math><mrow scriptlevel="0" displaystyle="true" class="tml-box"><mi>x</mi></mrow></math></p>',
    r"\(\begin{array}{c|c}1&2\end{array}\)": "<p><math><mtable><mtr>"
    '<mtd class="tml-right-solid tml-left-none tml-right-usual"><mn>1</mn></mtd>'
    '<mtd class="tml-left-usual tml-right-none"><mn>2</mn></mtd></mtr></mtable></math></p>',
    r"\(\text{<b>}\)": "<p><math><mtext>&lt;b&gt;</mtext></math></p>",
    DEEP: f"<p><code>{DEEP}</code></p>",
}


def link(href: str, label: str, place: str = "") -> str:
    return f'<p><a href="{href}">{label}</a>' + (f' <span class="place">({place})</span>' if place else "") + "</p>"


LINKS = {
    f"{B}/b_c_d?e=1&f=2": link(f"{B}/b_c_d?e=1&amp;f=2", f"{B}/b_c_d?e=1&amp;f=2"),
    "main.py and a.example/b": "<p>main.py and a.example/b</p>",
    f"[a]({B} 'c')": link(B, "a", "b.example"),
    "[a][b]\n\n[b]: https://b.example": link(B, "a", "b.example"),
    "<mailto:a@b.example>": link("mailto:a@b.example", "mailto:a@b.example"),
    f"![a **b**]({B}/d.png)": link(f"{B}/d.png", "a b", "b.example"),
    f"![]({B}/d.png)": link(f"{B}/d.png", "b.example"),
    f"[![a](https://c.example/d)]({B})": link(B, "a", "b.example"),
    f"[\u200b\u2060]({B})": link(B, "b.example"),
    f"[Approve]({EVIL})": link(EVIL, "Approve", "evil.example"),
    f"[bank.example]({EVIL})": link(EVIL, "bank.example", "evil.example"),
    f"[To `https://bank.example/`]({EVIL})": link(EVIL, "To <code>https://bank.example/</code>", "evil.example"),
    f"[b.example.evil]({B})": link(B, "b.example.evil", "b.example"),
    "[me@bank.example](mailto:me@c.example)": link("mailto:me@c.example", "me@bank.example", "me@c.example"),
    "https://bаnk.example": link("https://xn--bnk-6cd.example", "https://bаnk.example", "xn--bnk-6cd.example"),
    f"[b.example]({B}/c.html)": link(f"{B}/c.html", "b.example"),
    f"[www.b.example/c.html]({B}/c.html)": link(f"{B}/c.html", "www.b.example/c.html"),
    f"[elpmaxe\u202e.b]({B})": link(B, "elpmaxe.b", "b.example"),
    rf"[\(\text{{b.example}}\)]({B})": link(B, "<math><mtext>b.example</mtext></math>", "b.example"),
    "[1]": '<p><a href="https://example.org/bern" title="Bern">[1]</a></p>',
    "[PMID:7]": '<p><a href="https://example.org/7" title="A study">[PMID:7]</a></p>',
    "[2]": '<p><a href="https://example.org/7" title="A study">[2]</a></p>',
    "[9] [x] [y]": "<p>[9] [x] [y]</p>",
    f"[1]({B})": link(B, "1", "b.example"),
    f"[a [1] b]({B})": link(B, "a [1] b", "b.example"),
}
OPEN = {
    "One **two th": "<p>One <strong>two th</strong></p>",
    "One **two*": "<p>One <strong>two</strong></p>",
    "One *two*": "<p>One <em>two</em></p>",
    "One ***two": "<p>One <em><strong>two</strong></em></p>",
    "**a *b* `c` d": "<p><strong>a <em>b</em> <code>c</code> d</strong></p>",
    "**a `b": "<p><strong>a <code>b</code></strong></p>",
    "- one\n- **two": "<ul><li>one</li><li><strong>two</strong></li></ul>",
    "H<sub>2": "<p>H<sub>2</sub></p>",
    "**a <kbd>b": "<p><strong>a <kbd>b</kbd></strong></p>",
    "x<sup>2</sup> <su": "<p>x<sup>2</sup></p>",
    "One **": "<p>One</p>",
    "One ** two": "<p>One ** two</p>",
    "2**3 is": "<p>2**3 is</p>",
    "**kwargs\n\n": "<p>**kwargs</p>",
    "```\n**kwargs": "<pre><code>**kwargs</code></pre>",
    "See [the page](https://exam": "<p>See the page</p>",
    "See ![the page](https://exam": "<p>See the page</p>",
    "See [the **pa": "<p>See the <strong>pa</strong></p>",
    "x[0": "<p>x</p>",
    "call f[0](https": "<p>call f[0](https</p>",
    "So [^n": "<p>So</p>",
    r"So \(x^": "<p>So</p>",
    "So $x^": "<p>So</p>",
    "It is $5 and": "<p>It is $5 and</p>",
    "a\n\n$$\n- x_1 *y*": '<p>a</p><div class="formula"><code>$$\n- x_1 *y*</code></div>',
    "a\n\n| b | c |\n|--": "<p>a</p>",
    "1. First\n2.": "<ol><li>First</li></ol>",
    "a\n==": "<p>a</p>",
    "a\n\n```py": "<p>a</p>",
    "```py\na\n``": '<pre><code class="language-py">a\n</code></pre>',
    "<details>\n<summary>S</su": "<details><summary>S</summary></details>",
    "<details>\n<summary>S</summary>\nT": "<details><summary>S</summary><p>T</p></details>",
}

ATTEMPTS = [
    "<script>hacked=1</script>", "<img src=x onerror=hacked=1>", "a <b onclick=hacked=1>b</b>",
    "<svg><script>hacked=1</script></svg>", "<svg/onload=hacked=1>",
    "<math><mi//xlink:href='data:x,<script>hacked=1</script>'>",
    "<style>*{}</style><link rel=stylesheet href=//evil.example>", "<iframe srcdoc='<script>hacked=1</script>'>",
    "<a href='javascript:hacked=1'>x</a>", "<!--><img src=x onerror=hacked=1>-->",
    "<![CDATA[<img src=x onerror=hacked=1>]]>", "</p></div></main><script>hacked=1</script>",
    "<noscript><p title='</noscript><img src=x onerror=hacked=1>'>", "[x](javascript:hacked=1)",
    "[x](JaVaScRiPt:hacked=1)", "[x](javascript&colon;hacked=1)", "[x](&#106;avascript:hacked=1)",
    "[x](&#x6A&#x61;vascript:hacked=1)", "[x](java&Tab;script:hacked=1)", "[x](java\tscript:hacked=1)",
    "[x](<java\nscript:hacked=1>)", "[x](\x01javascript:hacked=1)", "[x](%6Aavascript:hacked=1)", "[x](vbscript:x)",
    "[x](data:text/html,<script>hacked=1</script>)", "![x](data:image/svg+xml,<svg/onload=hacked=1>)",
    "[x](blob:http://a.example/1)", "[x](file:///etc/passwd)", "[x](ftp://a.example)", "[x](//evil.example)",
    "[x](/v1/conversations)", "[x](page/start)", "[x](#top)", "[x](?q)", "[x]()", "[x](https:evil.example)",
    "[x](https:/\\evil.example)", "[x](https://)", "[x](https://bank.example@evil.example)",
    "[x](https://bank.example%40evil.example)", "[x](https://bank.example\\@evil.example)",
    "[x](https://a.example:x)", "[x](mailto:)", "<javascript:hacked=1>", "<data:text/html,x>",
    "<https://bank.example@evil.example>", "[x]: javascript:hacked=1\n\n[x]", "[x]: <data:text/html,x> 'y'\n\n[x][x]",
    "javascript://x%0ahacked=1", "[x](https://a.example'onmouseover='hacked=1)",
    '[x](https://a.example "\\" onmouseover=hacked=1")', '[x](https://a.example/"onmouseover="hacked=1)',
    '!["onerror=hacked=1](https://a.example/b)', "![x](https://a.example/`onerror=hacked=1)",
    "[<img src=x onerror=hacked=1>](https://a.example)", "`<img src=x onerror=hacked=1>`",
    "```<script>hacked=1</script>\nx\n```", '```x"onclick="hacked=1\nx\n```',
    "```x onclick=hacked=1 class=bar id=box\nx\n```", "```&quot;&gt;&lt;script&gt;\nx\n```",
    "~~~ py <script>`\n</code></pre><script>hacked=1</script>\n~~~",
    "```html\n<script>hacked=1</script><style>@import '//evil.example'</style>\n```",
    "```py\n'</span></code><img src=x onerror=hacked=1>'\n```", "|<img src=x onerror=hacked=1>|\n|-|\n|`<script>`|",
    '|a|\n|:-:" onclick="hacked=1|\n|b|', "# <img src=x onerror=hacked=1> {#box .bar onclick=hacked=1}",
    "- [x] <input autofocus onfocus=hacked=1>", "> [!NOTE] <script>hacked=1</script>",
    "&lt;script&gt;hacked=1&lt;/script&gt;", "&#60;img src=x onerror=hacked=1&#62;",
    "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>hacked=1</x:script>", "\ufeff<scr\0ipt>hacked=1</scr\0ipt>",
    "[a](https://a.example)<base href=//evil.example>", "<form action=//evil.example><button>x",
    "<meta http-equiv=refresh content='0;url=//evil.example'>", "<template><script>hacked=1</script></template>",
    "<details open ontoggle=hacked=1>", "<sub onclick=hacked=1>x</sub>", "<sup><script>hacked=1</script></sup>",
    "<kbd><img src=x onerror=hacked=1></kbd>", "<br onclick=hacked=1>",
    "> " * 60 + "<script>hacked=1</script>", "<script>" * 20_000,
    r"\(\text{<img src=x onerror=hacked=1>}\)", r"$$\style{position:fixed}{x}\class{bar}{y}\id{z}$$",
    r"\[\text{</mtext></math><script>hacked=1</script>}=1\]",
    "\\(\\text{<annotation-xml encoding='text/html'><script>hacked=1</script>}\\)",
]  # fmt: skip
AROUND = [
    "{}", "a {} b", "- {}", "> {}", "**{}**", "|a|\n|-|\n|{}|", "# {}", "[{}](https://a.example)", "<details>\n{}",
]  # fmt: skip
KNOWN = (
    "p, br, h3, blockquote, ul, ol, li, hr, pre, code, span, div, strong, em, s, sub, sup, kbd, details, table, "
    "thead, tbody, tr, th, td, a[href^='http'], a[href^='mailto:'], input[type=checkbox][disabled], button.note, "
    "math, math *, .code-head *"
)
FIND_UNEXPECTED = """([texts, known]) => texts.map((text) => {
    const node = renderComplete(text), all = [...node.querySelectorAll("*")];
    const names = new Set(all.flatMap((one) => one.closest(".code-head") ? [] : one.getAttributeNames()));
    const places = [...node.querySelectorAll("a")].map((one) => one.getAttribute("href"));
    return [all.filter((one) => !one.matches(known)).map((one) => one.outerHTML), [...names], places];
})"""
ATTRIBUTES = {
    *("href", "target", "rel", "class", "type", "disabled", "checked", "start", "tabindex"),
    *("aria-label", "aria-level", "data-note", "dir"),
}
FORMULA_ATTRIBUTES = {"display", "fence", "form", "stretchy", "width"}


@pytest.mark.parametrize(
    "cases", [BLOCKS, CONTAINERS, FORMULAS, LINKS], ids=["blocks", "containers", "formulas", "links"]
)
def test_a_complete_text(renderer: Chat, cases: dict[str, str]) -> None:
    assert dict(zip(cases, render(renderer, list(cases)), strict=True)) == cases


def test_a_text_that_is_still_being_written(renderer: Chat) -> None:
    assert dict(zip(OPEN, render_open(renderer, list(OPEN)), strict=True)) == OPEN


def test_nothing_active_comes_through(renderer: Chat) -> None:
    urls: list[str] = []
    renderer.page.on("request", lambda request: urls.append(request.url))
    texts = [around.replace("{}", attempt) for around in AROUND for attempt in ATTEMPTS]
    found = renderer.page.evaluate(FIND_UNEXPECTED, [texts, KNOWN])
    for text, (unexpected, names, places) in zip(texts, found, strict=True):
        assert unexpected == [], text[:200]
        assert set(names) <= ATTRIBUTES | FORMULA_ATTRIBUTES, text[:200]
        wrong = [
            one for one in places if not re.match(r"https?://(a\.example|bank\.example|www\.w3\.org)([/?#:]|$)", one)
        ]
        assert wrong == [], text[:200]
    assert renderer.page.evaluate("window.hacked") is None
    assert [url for url in urls if not url.startswith(renderer.page.url.partition("#")[0])] == []


HEIGHTS = {
    r"$$\int_0^1 x$$": 35,
    r"$$\left\{\begin{array}{l}a\\b\\c\end{array}\right.$$": 80,  # a brace around three rows
    r"$$f=\begin{cases}1&x>0\\0&x=0\\-1&x<0\end{cases}$$": 80,
}
"""Pixels of the tallest sign in a formula."""
MEASURE_SIGNS = """async (source) => {
    const node = renderComplete(source), signs = [...node.querySelectorAll("mo")];
    document.querySelector("#log").append(node);
    const heights = () => signs.map((sign) => sign.getBoundingClientRect().height);
    heights(); // now the browser fetches the font
    await document.fonts.ready;
    const height = Math.max(...heights());
    node.remove();
    return [[...document.fonts].map((font) => font.status), height];
}"""
MEASURE_SIDES = """(source) => {
    const node = renderComplete(source);
    document.querySelector("#log").append(node);
    const left = (element) => element.getBoundingClientRect().left;
    const item = node.querySelector("li"), [first, second] = node.querySelectorAll("td");
    const found = [getComputedStyle(item).direction, Math.sign(left(first) - left(second))];
    node.remove();
    return found;
}"""


def test_signs_grow_without_a_mathematics_font_of_the_system(renderer: Chat) -> None:
    for formula, height in HEIGHTS.items():
        fonts, found = renderer.page.evaluate(MEASURE_SIGNS, formula)
        assert fonts == ["loaded"]
        assert found >= height, formula


@pytest.mark.parametrize(
    ("words", "direction", "side"), [("one", "ltr", -1), ("אחת", "rtl", 1), ("واحد", "rtl", 1), ("1 واحد", "rtl", 1)]
)
def test_bullets_and_columns_begin_where_the_text_begins(renderer: Chat, words: str, direction: str, side: int) -> None:
    assert renderer.page.evaluate(MEASURE_SIDES, f"- {words}\n\n|{words}|a|\n|-|-|\n|{words}|b|") == [direction, side]
