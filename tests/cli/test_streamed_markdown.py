"""An answer as lines of a terminal: Markdown, however it was cut; what is finished; what never gets out."""

import re
from collections.abc import Sequence
from cProfile import Profile
from io import StringIO

import pytest
from rich.console import Console, ConsoleDimensions
from rich.segment import Segment

from brain.cli.terminal import streamed_markdown
from brain.cli.terminal.streamed_markdown import Line, StreamedMarkdown, open_console

LONG = """\
# Tea

Some **bold**, *slanted* and ~~struck~~ text with `code` and a [link](https://example.org/tea).
A second line, which stays one.

1. boil water
2. wait
   - for three minutes
   - or four

> Quoted.
>
> Twice:
> - here

- loose

  and apart

```python
def tea(minutes):
    return "ready"
```

| leaf | minutes |
|:-----|--------:|
| green | 3 |

---

See https://example.org/bare and <https://example.org/auto>, ![a pot](https://example.org/pot.png).

[1]: https://example.org/definition
<b>no HTML</b>
"""
DRAWN = """\
Tea

Some bold, slanted and struck text with code and a link (https://example.org/tea).
A second line, which stays one.

 1 boil water
 2 wait
    • for three minutes
    • or four

▌ Quoted.
▌
▌ Twice:
▌  • here

 • loose

   and apart

    def tea(minutes):
        return "ready"

leaf    minutes
───────────────
green         3

-----------------------------------------------------------------------------------------------

See https://example.org/bare and https://example.org/auto, a pot (https://example.org/pot.png).

[1]: https://example.org/definition
<b>no HTML</b>"""


@pytest.fixture
def console() -> Console:
    """A console of 96 columns."""
    console = open_console(StringIO())
    console.size = ConsoleDimensions(96, 24)
    return console


def plain(lines: Sequence[Line]) -> str:
    """The lines without their colours."""
    return "\n".join("".join(segment.text for segment in line) for line in lines)


def draw(console: Console, *pieces: str, max_open_lines: int = 1000) -> str:
    """All finished lines of an answer that is drawn after each of its pieces."""
    answer = StreamedMarkdown(console)
    lines: list[Line] = []
    for piece in pieces:
        answer.add(piece)
        lines += answer.take_lines(max_open_lines)[0]
    return plain(lines + answer.end())


# However it is cut


def test_any_cut_gives_the_same_lines(console: Console) -> None:
    assert draw(console, LONG) == DRAWN
    for size in (1, 2, 7, 31):
        pieces = [LONG[n : n + size] for n in range(0, len(LONG), size)]
        assert draw(console, *pieces) == DRAWN
        for max_open_lines in (1, 3):  # what has left a small window stays as it was
            lines = draw(console, *pieces, max_open_lines=max_open_lines)
            assert set("".join(DRAWN.split())) <= set("".join(lines.split()))
            assert lines.endswith("<b>no HTML</b>")
    for place in range(0, len(LONG), 3):
        assert draw(console, LONG[:place], LONG[place:]) == DRAWN, place


def test_finished_lines_come_once_and_open_ones_each_time(console: Console) -> None:
    answer = StreamedMarkdown(console)
    for text, finished, still_open in (
        ("One.\n\nTw", "", "One.\n\nTw"),
        ("o.\n", "One.", "\nTwo."),
        ("Still two.\n\n- a\n- b", "\nTwo.\nStill two.", "\n • a\n • b"),
    ):
        answer.add(text)
        assert [plain(lines) for lines in answer.take_lines(10)] == [finished, still_open]
    assert plain(answer.end()) == "\n • a\n • b"
    assert answer.end() == []


def test_of_a_block_higher_than_the_window_the_end_stays_open(console: Console) -> None:
    answer = StreamedMarkdown(console)
    answer.add("```\n" + "".join(f"line{n}\n" for n in range(50)))
    finished, still_open = answer.take_lines(10)
    assert plain(finished).split() == [f"line{n}" for n in range(40)]
    assert plain(still_open).split() == [f"line{n}" for n in range(40, 50)]
    answer.add("line50\n```\n")
    assert plain(answer.take_lines(10)[0]).split() == ["line40"]
    assert plain(answer.end()).split() == [f"line{n}" for n in range(41, 51)]


def test_in_another_width_a_block_continues_where_it_was(console: Console) -> None:
    words = [f"word{n}" for n in range(400)]
    answer = StreamedMarkdown(console)
    answer.add(" ".join(words[:300]))
    lines = answer.take_lines(5)[0]
    console.width = 40
    answer.add(" " + " ".join(words[300:]))
    found = plain([*lines, *answer.take_lines(5)[0], *answer.end()]).split()
    assert list(dict.fromkeys(found)) == words
    assert len(found) < len(words) + 6  # at most a line is there twice


def test_a_long_block_is_finished_in_parts(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_markdown, "MAX_OPEN_LENGTH", 200)
    code = "```python\n" + "".join(f"number = {n}\n" for n in range(100)) + "```\n\nBehind *it*."
    assert draw(console, code) == "".join(f"    number = {n}\n" for n in range(100)) + "\nBehind it."
    words = [f"w{n}" for n in range(300)]
    assert draw(console, " ".join(words)).split() == words
    assert "".join(draw(console, "x" * 1000).split()) == "x" * 1000
    many = "".join(f"Paragraph *{n}*.\n\n" for n in range(100))
    assert draw(console, many) == "\n\n".join(f"Paragraph {n}." for n in range(100))


# What it becomes

MATHS = "With \\(a_1 * b_1 * c\\) and $$x^*y^*$$:\n\n\\[\n\\frac{a_i}{b_i}\\\\[2pt] *c*\n\\]\n\n"
LANGUAGES = "می‌خواهم 👩‍🚀 عربي 日本語 é"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("[**Title**](https://e.example/a)", "Title (https://e.example/a)"),
        ("[**https://bank.example**](https://e.example)", "https://bank.example (https://e.example)"),
        ("[`code` *and* more](https://e.example)", "code and more (https://e.example)"),
        ("[![a pot](https://e.example/p)](https://e.example)", "a pot (https://e.example/p) (https://e.example)"),
        ("[](https://e.example)", " (https://e.example)"),
        ("[https://e.example](https://e.example)", "https://e.example"),
        (f"{MATHS}*So* \\(half and $5 and $6.", f"{MATHS}So (half and $5 and $6."),
        ("$$ 5 and **more** than $$ 6", "$$ 5 and more than $$ 6"),
        ("said so [\\[*1*\\]](https://e.example)", "said so [1] (https://e.example)"),
        ("a\n$$\n- x\n* y\n$$\nb", "a\n\n$$\n- x\n* y\n$$\n\nb"),
        ("a\n$$\n- x", "a\n$$\n\n \u2022 x"),
        (LANGUAGES, LANGUAGES),
    ],
)
def test_links_show_where_they_lead_and_formulas_their_source(console: Console, source: str, shown: str) -> None:
    assert draw(console, source) == shown
    assert draw(console, *source) == shown


def test_no_line_is_wider_than_the_terminal(console: Console) -> None:
    console.width = 40
    wide = "| a | b |\n|---|---|\n| " + "x" * 90 + " | 日本語の文章はとても長い日本語の文章はとても長い |\n"
    for source in (LONG, "W" * 100, "日" * 100, "`" + "c" * 100 + "`", "> " * 30 + "deep", "- " * 30 + "deep", wide):
        answer = StreamedMarkdown(console)
        answer.add(source)
        lines = answer.end()
        assert max(map(Segment.get_line_length, lines)) <= 39, source
    assert (plain(lines).count("x"), plain(lines).count("長")) == (90, 2)


def test_a_table_breaks_no_word_that_has_room(console: Console) -> None:
    source = "| name | about it |\n|---|--:|\n| specialist | calculates interactions of substances |\n| x | yes |\n"
    console.width = 26
    assert draw(console, source).split("\n") == [
        "name             about it",
        "─────────────────────────",
        "specialist     calculates",
        *("             interactions", "                       of"),
        "               substances",
        "x                     yes",
    ]
    console.width = 25
    assert draw(console, source).split("\n") == [
        *("name: specialist", "about it: calculates", "interactions of", "substances", "", "name: x", "about it: yes"),
    ]


# What is too much for it


@pytest.mark.parametrize(
    "source",
    [
        "> " * 60 + "deep",
        "|a" * 40 + "|\n" + "|-" * 40 + "|\n" + "|b" * 40 + "|\n",
        "![" * 1_001 + "*a*",
        "|a" * 10 + "|\n" + "|-" * 10 + "|\n" + "|x|\n" * 300,
        "|a|b|\n|-|-|\n" + "|x|y|\n" * 1_001,
        "\\(" + "*a* " * 240 + "\\)",
    ],
    ids=["depth", "columns", "brackets", "missing cells", "cells", "formula"],
)
def test_what_would_take_long_is_shown_as_it_is_written(console: Console, source: str) -> None:
    shown = draw(console, source)
    assert "\u2500" not in shown
    assert re.sub(r"[\s|-]", "", shown) == re.sub(r"[\s|-]", "", source)


def test_limits_of_formulas_and_colours(console: Console) -> None:
    assert "*" not in draw(console, "\\(" + "*a* " * 260 + "\\)")
    for lines, is_coloured in ((1, True), (7900, False)):
        answer = StreamedMarkdown(console)
        answer.add("```c\n" + "\n" * lines + "return 1;\n```\n")
        found = [segment for line in [*answer.take_lines(10_000)[0], *answer.end()] for segment in line]
        (word,) = [segment for segment in found if "return" in segment.text]
        assert (word.style is not None and word.style.color is not None) == is_coloured


def test_the_work_grows_with_the_length_of_the_text(console: Console) -> None:
    n = 3_000
    hard = ["[" * n, "*a " * n, "`" * n, "> " * n, "- " * n, "a_" * n, "<" * n, "![" * n, "|" * n + "\n" + "-|" * n]
    hard += ["\\(" * n, "\\[" * n, "$$$" * n]
    hard += ["```html\n" + "<" * n, "```python\n" + '"""' * n, "\n".join("- a" for _ in range(n))]
    for source in hard:
        answer = StreamedMarkdown(console)
        answer.add(source)
        with Profile() as profile:
            answer.take_lines(20)
            answer.end()
        calls = sum(entry.callcount for entry in profile.getstats())
        assert calls < 1_000 * len(source), source[:10]  # of functions; their square would be far above


# What never gets out

HOSTILE = (
    "a\x1b[2Jb", "a\x1b]0;title\x07b", "a\x1b]8;;https://evil.example\x1b\\b\x1b]8;;\x1b\\", "a\x9b2Jb\x9dtitle\x9c",
    "a&#27;[2Jb&#x9b;2J&#x202e;c", "[a](https://x.example/%1b[2J%c2%9b2J)", "<https://x.example/%1b%5b2J%e2%80%ae>",
    '[a](https://x.example "\x1b[2J")', "```py\x1b[2Jthon\ncode \x1b[2J\n```", "`a\x1b[2J`",
    "| a\x1b[2J |\n|---|\n| b\x9b2J |", "![a\x1b[2J](https://x.example/\x1b[2J)", "a\u202egpj.exe\u2066b\u200ec",
    "safe\rEVIL\x08\x08\x0b\x0cx", "a\x00b", "a\U000e0041\U000e0042b", "a\u2028b\u2029c\x85d",
)  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_steers_the_terminal(console: Console, source: str) -> None:
    for place in range(len(source) + 1):
        answer = StreamedMarkdown(console)
        lines: list[Line] = []
        for piece in (source[:place], source[place:]):
            answer.add(piece)
            finished, still_open = answer.take_lines(5)
            lines += finished + still_open
        lines += answer.end()
        assert plain(lines).replace("\n", "").isprintable(), plain(lines)
