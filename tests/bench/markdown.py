"""What the page's Markdown takes, in ms of CPU: texts as models write them, and the worst that somebody could write.

`python tests/bench/markdown.py`
"""

import sys
import time
from collections.abc import Mapping

from brain.rendering import TEXT_LENGTH, blocks

ROUNDS = 20
PARAGRAPH = (
    "Tea is *made* of **leaves** that stand in hot water, see [how](https://tea.example/how), for `3` minutes. " * 5
)
CODE = "```python\ndef tea(cups: int) -> str:\n    return f'{cups} cups'  # of 0.2 l\n```"
LIST = "- Boil **water**\n- Pour it on\n  - wait\n"
TABLE = "| tea | minutes |\n|---|--:|\n| green | 2 |\n| black | 4 |"
ANSWER = f"## Tea\n\n{PARAGRAPH}\n\n{CODE}\n\n{LIST}\n{TABLE}\n\n"

USUAL: Mapping[str, tuple[str, bool]] = {
    "the end of an answer that is written, 500 characters": (PARAGRAPH[:500], True),
    "an answer of 4,000 characters": (ANSWER * (4_000 // len(ANSWER)), False),
    "an answer of 40,000 characters (about 10,000 tokens)": (ANSWER * (40_000 // len(ANSWER)), False),
}
HOSTILE = [
    "[",
    "![",
    "[a][",
    "][",
    "[a\n",
    "[a](b",
    "[a](",
    "*a_ ",
    "a**b",
    "*",
    "~~a",
    "`a",
    "<",
    "<a",
    "<http:",
    "&#1",
]
HOSTILE += [
    "\\\n",
    ">",
    "> a\n",
    "> - ",
    "- ",
    "- a\n",
    "1. a\n",
    "# a\n",
    "a\n\n",
    "|a",
    "a|b\n-|-\n",
    "|a|b|\n|-|-|\n",
]
HOSTILE += [
    "```\n",
    "http://",
    "a://",
    "x a:// ",
    "http://a.b/(",
    "http://a.b/[",
    "http://a.b ",
    "mailto:a@",
    "\t",
    "😀",
]
HOSTILE += ["[a]: http://b\n", "-\n", "---\n", "a  \n", "&amp;", "```py\nx = 1\n```\n"]
HOSTILE += ["\\(", "\\(a\\)", "$$a$$\n", "\\[\n", "\\[\n\\] a\n"]


def milliseconds(text: str, *, still_open: bool = False) -> float:
    began = time.thread_time()
    blocks(text, still_open=still_open)
    return (time.thread_time() - began) * 1000


def main() -> None:
    blocks(ANSWER)
    for name, (text, still_open) in USUAL.items():
        taken = sorted(milliseconds(text, still_open=still_open) for _ in range(ROUNDS))
        sys.stdout.write(f"| {name} | {taken[ROUNDS // 2]:.1f} | {taken[-1]:.1f} |\n")
    worst = max((milliseconds((piece * TEXT_LENGTH)[:TEXT_LENGTH]), piece) for piece in HOSTILE)
    sys.stdout.write(f"| {TEXT_LENGTH:,} characters, the worst of {len(HOSTILE)}: {worst[1]!r} | | {worst[0]:,.0f} |\n")


if __name__ == "__main__":
    main()
