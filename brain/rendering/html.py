"""Wing: tokens as HTML, and the sanitiser behind it; the only importer of nh3."""

import re
from collections.abc import Sequence

import nh3
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from brain.rendering.code import CLASSES, coloured, plain

_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}(?!\S)")
_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
"""Characters that turn the order of others round. Right-to-left text does without: each block is its own."""
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

    def place(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Where a link leads whose own words do not tell it."""
        return f' <span class="place">({escapeHtml(tokens[idx].content)})</span>'


def preformatted(text: str) -> str:
    """A text as it is."""
    return f"<pre>{plain(text)}</pre>\n"


clean = nh3.Cleaner(
    tags={
        *("p", "h3", "h4", "h5", "h6", "blockquote", "hr", "ul", "ol", "li", "input", "pre", "code", "span", "div"),
        *("table", "thead", "tbody", "tr", "th", "td", "a", "strong", "em", "s", "br"),
    },
    attributes={"a": {"href"}, "ol": {"start"}, "code": {"class"}, "input": {"disabled", "checked"}},
    tag_attribute_values={"input": {"type": {"checkbox"}}},
    allowed_classes={
        "span": {"place", *CLASSES},
        "div": {"table"},
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
