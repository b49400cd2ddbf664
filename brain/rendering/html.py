"""Tokens as HTML, and the sanitiser behind it; the only importer of nh3."""

import re
from collections.abc import Sequence

import nh3
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from brain.rendering.code import CLASSES, coloured, plain
from brain.rendering.formulas import mathml, written

_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}(?!\S)")
_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
"""Characters that turn the order of others round. Right-to-left text does without: each block is its own."""
FORMULAS_LENGTH = 20_000
"""Characters of the formulas of a text that are read."""
FORMULAS_TAGS = 10_000
"""Of the formulas of a text that are drawn: a browser takes its time for each."""
_ALIGNED = {"left", "center", "right"}


class Html(RendererHTML):
    """How tokens are written. Each method is a rule for the tokens of its name."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """What was said; raw HTML is that, too."""
        return escapeHtml(tokens[idx].content.translate(_TURNS))

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Code within a line."""
        return f"<code>{plain(tokens[idx].content)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Code that is indented."""
        return f"<pre><code>{plain(tokens[idx].content)}</code></pre>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Code of a language; in colours unless it is still written."""
        code, named = tokens[idx].content, _LANGUAGE.match(tokens[idx].info.strip())
        if named is None:
            return f"<pre><code>{plain(code)}</code></pre>\n"
        language = named[0].lower()
        html = coloured(code, language) if env["colours"] else plain(code)
        return f'<pre><code class="language-{language}">{html}</code></pre>\n'

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A table in something that can scroll."""
        return '<div class="table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Its end."""
        return "</table></div>\n"

    def formula(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Maths; as it was written while it is not whole, where it is not understood, and behind very much of it."""
        token = tokens[idx]
        html = (None if token.hidden else _drawn(token, env)) or f"<code>{plain(written(token))}</code>"
        return f'<div class="formula">{html}</div>\n' if token.block or token.hidden else html

    def place(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Where a link leads whose own words do not tell it."""
        return f' <span class="place">({escapeHtml(tokens[idx].content)})</span>'


def _drawn(formula: Token, env: EnvType) -> str | None:
    """A formula as MathML; None where it is not understood, and behind very much of it."""
    env["formulas"] = env.get("formulas", 0) + len(formula.content)
    if env["formulas"] > FORMULAS_LENGTH or env.get("tags", 0) > FORMULAS_TAGS:
        return None
    html = mathml(formula.content.translate(_TURNS), block=formula.markup != "\\(") or ""
    env["tags"] = env.get("tags", 0) + html.count("<")
    return html if env["tags"] <= FORMULAS_TAGS else None


def preformatted(text: str) -> str:
    """A text as it is."""
    return f"<pre>{plain(text)}</pre>\n"


_MATHML = {
    *("math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle", "mphantom"),
    *("msub", "msup", "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd"),
}
_SIZES = {"1.2em", "1.623em", "2.047em", "2.470em"}
_TRUE_OR_NOT = {"true", "false"}
_IN_MATHML: dict[str, dict[str, set[str]]] = {
    "math": {"display": {"block", "inline"}},
    "mi": {"mathvariant": {"normal"}},
    "mo": {
        "stretchy": _TRUE_OR_NOT,
        "fence": _TRUE_OR_NOT,
        "form": {"prefix", "infix", "postfix"},
        "minsize": _SIZES,
        "maxsize": _SIZES,
    },
    "mspace": {"width": {"0.167em", "0.222em", "0.278em", "0.5em", "1em", "2em"}},
    "mfrac": {"linethickness": {"0"}},
    "mover": {"accent": _TRUE_OR_NOT},
    "munder": {"accentunder": _TRUE_OR_NOT},
    "mstyle": {"displaystyle": _TRUE_OR_NOT, "scriptlevel": {"0", "1", "2"}},
    "mtable": {"displaystyle": _TRUE_OR_NOT},
    "mtd": {"columnalign": _ALIGNED},
}
"""What a formula may say of itself: nothing by which it could stand where other things are."""

clean = nh3.Cleaner(
    tags={
        *("p", "h3", "h4", "h5", "h6", "blockquote", "hr", "ul", "ol", "li", "input", "pre", "code", "span", "div"),
        *("table", "thead", "tbody", "tr", "th", "td", "a", "strong", "em", "s", "br"),
        *_MATHML,
    },
    attributes={"a": {"href"}, "ol": {"start"}, "code": {"class"}, "input": {"disabled", "checked"}},
    tag_attribute_values={"input": {"type": {"checkbox"}}, **_IN_MATHML},
    allowed_classes={
        "span": {"place", *CLASSES},
        "div": {"table", "formula"},
        "th": _ALIGNED,
        "td": _ALIGNED,
        "ul": {"contains-task-list"},
        "ol": {"contains-task-list"},
        "li": {"task-list-item"},
    },
    set_tag_attribute_values={"a": {"target": "_blank"}},
    link_rel="noopener noreferrer nofollow",
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
).clean
"""The last step, always: whatever stands before it may be wrong."""
