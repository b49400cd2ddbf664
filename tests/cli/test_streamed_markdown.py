"""An answer as lines of a terminal: Markdown, however it was cut; what is settled, and what never gets out."""

import re
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
    made = open_console(StringIO())
    made.size = ConsoleDimensions(96, 24)
    return made


def text(lines: list[Line]) -> str:
    """The lines without their colours."""
    return "\n".join("".join(segment.text for segment in line) for line in lines)


def whole(answer: StreamedMarkdown, *pieces: str, room: int = 1000) -> str:
    """All that is settled of an answer that is drawn behind each of its pieces."""
    lines: list[Line] = []
    for piece in pieces:
        answer.add(piece)
        lines += answer.take_lines(room)[0]
    return text(lines + answer.end())


def test_markdown_is_drawn(console: Console) -> None:
    assert whole(StreamedMarkdown(console), LONG) == DRAWN


@pytest.mark.parametrize(("lines", "coloured"), [(1, True), (7900, False)])
def test_code_has_colours_unless_reading_it_takes_too_long(console: Console, lines: int, coloured: bool) -> None:
    answer = StreamedMarkdown(console)
    answer.add("```c\n" + "\n" * lines + "return 1;\n```\n")
    settled = [*answer.take_lines(10_000)[0], *answer.end()]
    (word,) = [segment for line in settled for segment in line if "return" in segment.text]
    assert (word.style is not None and word.style.color is not None) == coloured


@pytest.mark.parametrize("room", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 2, 7, 31])
def test_however_it_is_cut_it_is_the_same(console: Console, size: int, room: int) -> None:
    """Where the window has room. Where it has not, what has left it stays as it was."""
    pieces = [LONG[n : n + size] for n in range(0, len(LONG), size)]
    found = whole(StreamedMarkdown(console), *pieces, room=room)
    if room == 1000:
        assert found == DRAWN
    else:
        assert set("".join(DRAWN.split())) <= set("".join(found.split()))
        assert found.endswith("<b>no HTML</b>")


def test_every_text_cut_in_two_is_the_same(console: Console) -> None:
    for place in range(0, len(LONG), 3):
        assert whole(StreamedMarkdown(console), LONG[:place], LONG[place:]) == DRAWN, place


def test_what_is_settled_is_given_out_once_and_what_is_open_each_time(console: Console) -> None:
    answer = StreamedMarkdown(console)
    answer.add("One.\n\nTw")
    assert [text(lines) for lines in answer.take_lines(10)] == ["", "One.\n\nTw"]
    answer.add("o.\n")
    assert [text(lines) for lines in answer.take_lines(10)] == ["One.", "\nTwo."]
    answer.add("Still two.\n\n- a\n- b")
    assert [text(lines) for lines in answer.take_lines(10)] == ["\nTwo.\nStill two.", "\n • a\n • b"]
    assert text(answer.end()) == "\n • a\n • b"
    assert answer.end() == []


def test_of_a_block_higher_than_the_window_its_end_is_open(console: Console) -> None:
    answer = StreamedMarkdown(console)
    answer.add("```\n" + "".join(f"line {n}\n" for n in range(50)))
    settled, still = answer.take_lines(10)
    assert text(settled).split() == " ".join(f"line {n}" for n in range(40)).split()
    assert text(still).split() == " ".join(f"line {n}" for n in range(40, 50)).split()
    answer.add("line 50\n```\n")
    assert text(answer.take_lines(10)[0]).strip() == "line 40"
    assert text(answer.end()).split() == " ".join(f"line {n}" for n in range(41, 51)).split()


def test_when_the_width_changes_a_block_goes_on_where_it_was(console: Console) -> None:
    words = [f"word{n}" for n in range(400)]
    answer = StreamedMarkdown(console)
    answer.add(" ".join(words[:300]))
    settled = text(answer.take_lines(5)[0])
    console.width = 40
    answer.add(" " + " ".join(words[300:]))
    found = (settled + "\n" + text(answer.take_lines(5)[0]) + "\n" + text(answer.end())).split()
    assert [word for n, word in enumerate(found) if word not in found[:n]] == words
    assert len(found) < len(words) + 6, "at most a line is there twice"


def test_no_line_is_wider_than_the_terminal(console: Console) -> None:
    console.width = 40
    wide = "| a | b |\n|---|---|\n| " + "x" * 90 + " | 日本語の文章はとても長い日本語の文章はとても長い |\n"
    for source in (LONG, "W" * 100, "日" * 100, "`" + "c" * 100 + "`", "> " * 30 + "deep", "- " * 30 + "deep", wide):
        answer = StreamedMarkdown(console)
        answer.add(source)
        lines = answer.end()
        assert max(map(Segment.get_line_length, lines)) <= 39, source
    assert text(lines).count("x") == 90
    assert text(lines).count("長") == 2


def test_what_nests_too_deep_or_has_too_many_columns_is_shown_as_it_is_written(console: Console) -> None:
    deep = "> " * 60 + "deep"
    assert whole(StreamedMarkdown(console), deep).split() == deep.split()
    header = "|".join(f"c{n}" for n in range(40))
    shown = whole(StreamedMarkdown(console), f"{header}\n{'|'.join('-' * 40)}\n{header}\n")
    assert shown.replace("\n", " ").split() == [*" | ".join(f"c{n}" for n in range(40)).split()] * 2


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("[**Title**](https://e.example/a)", "Title (https://e.example/a)"),
        ("[**https://bank.example**](https://e.example)", "https://bank.example (https://e.example)"),
        ("[`code` *and* more](https://e.example)", "code and more (https://e.example)"),
        ("[![a pot](https://e.example/p)](https://e.example)", "a pot (https://e.example/p) (https://e.example)"),
        ("[](https://e.example)", " (https://e.example)"),
        ("[https://e.example](https://e.example)", "https://e.example"),
    ],
)
def test_a_link_says_where_it_leads(console: Console, source: str, shown: str) -> None:
    assert whole(StreamedMarkdown(console), source) == shown


def test_formulas_are_shown_as_they_are_written(console: Console) -> None:
    maths = "With \\(a_1 * b_1 * c\\) and $$x^*y^*$$:\n\n\\[\n\\frac{a_i}{b_i}\\\\[2pt] *c*\n\\]\n\n"
    source = maths + "*So* \\(half and $5 and $6."
    shown = source.replace("*So* \\(", "So (")
    assert whole(StreamedMarkdown(console), source) == shown
    assert whole(StreamedMarkdown(console), *source) == shown


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("$$ 5 and **more** than $$ 6", "$$ 5 and more than $$ 6"),
        ("said so [\\[*1*\\]](https://e.example)", "said so [1] (https://e.example)"),
        ("a\n$$\n- x\n* y\n$$\nb", "a\n\n$$\n- x\n* y\n$$\n\nb"),
        ("a\n$$\n- x", "a\n$$\n\n \u2022 x"),
    ],
    ids=["prices", "a source", "with lines of its own", "never closed"],
)
def test_what_is_no_formula_on_the_page_is_none_here(console: Console, source: str, shown: str) -> None:
    assert whole(StreamedMarkdown(console), source) == shown
    assert whole(StreamedMarkdown(console), *source) == shown


def test_a_formula_may_be_as_long_as_on_the_page(console: Console) -> None:
    assert "*" in whole(StreamedMarkdown(console), "\\(" + "*a* " * 240 + "\\)")
    assert "*" not in whole(StreamedMarkdown(console), "\\(" + "*a* " * 260 + "\\)")


@pytest.mark.parametrize(
    "source",
    [
        "![" * 1_001 + "*a*",
        "|a" * 10 + "|\n" + "|-" * 10 + "|\n" + "|x|\n" * 300,
        "|a|b|\n|-|-|\n" + "|x|y|\n" * 1_001,
    ],
    ids=["brackets", "cells that a table lacks", "cells"],
)
def test_what_would_take_long_is_shown_as_it_is_written(console: Console, source: str) -> None:
    shown = whole(StreamedMarkdown(console), source)
    assert "\u2500" not in shown
    assert re.sub(r"[\s|-]", "", shown) == re.sub(r"[\s|-]", "", source)


def test_a_table_breaks_no_word_that_has_room(console: Console) -> None:
    source = "| name | about it |\n|---|--:|\n| specialist | calculates interactions of substances |\n| x | yes |\n"
    console.width = 26
    assert whole(StreamedMarkdown(console), source).split("\n") == [
        "name             about it",
        "─────────────────────────",
        "specialist     calculates",
        *("             interactions", "                       of"),
        "               substances",
        "x                     yes",
    ]
    console.width = 25
    assert whole(StreamedMarkdown(console), source).split("\n") == [
        *("name: specialist", "about it: calculates", "interactions of", "substances", "", "name: x", "about it: yes"),
    ]


def test_what_is_too_long_is_settled_in_parts(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_markdown, "MAX_OPEN_LENGTH", 200)
    code = "```python\n" + "".join(f"number = {n}\n" for n in range(100)) + "```\n\nBehind *it*."
    found = whole(StreamedMarkdown(console), code)
    assert found == "".join(f"    number = {n}\n" for n in range(100)) + "\nBehind it."
    line = " ".join(f"w{n}" for n in range(300))
    assert whole(StreamedMarkdown(console), line).split() == line.split()
    assert "".join(whole(StreamedMarkdown(console), "x" * 1000).split()) == "x" * 1000
    many = "".join(f"Paragraph *{n}*.\n\n" for n in range(100))
    assert whole(StreamedMarkdown(console), many) == "\n\n".join(f"Paragraph {n}." for n in range(100))


HOSTILE = {
    "cursor": "a\x1b[2Jb",
    "title": "a\x1b]0;title\x07b",
    "link": "a\x1b]8;;https://evil.example\x1b\\b\x1b]8;;\x1b\\",
    "c1": "a\x9b2Jb\x9dtitle\x9c",
    "entity": "a&#27;[2Jb&#x9b;2J&#x202e;c",
    "destination": "[a](https://x.example/%1b[2J%c2%9b2J)",
    "autolink": "<https://x.example/%1b%5b2J%e2%80%ae>",
    "title of a link": '[a](https://x.example "\x1b[2J")',
    "language": "```py\x1b[2Jthon\ncode \x1b[2J\n```",
    "code": "`a\x1b[2J`",
    "table": "| a\x1b[2J |\n|---|\n| b\x9b2J |",
    "image": "![a\x1b[2J](https://x.example/\x1b[2J)",
    "right to left": "a\u202egpj.exe\u2066b\u200ec",
    "return": "safe\rEVIL\x08\x08\x0b\x0cx",
    "null": "a\x00b",
    "tags": "a\U000e0041\U000e0042b",
    "lines": "a\u2028b\u2029c\x85d",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_steers_the_terminal(console: Console, name: str) -> None:
    source = HOSTILE[name]
    for place in range(len(source) + 1):
        answer = StreamedMarkdown(console)
        lines: list[Line] = []
        for piece in (source[:place], source[place:]):
            answer.add(piece)
            settled, still = answer.take_lines(5)
            lines += settled + still
        lines += answer.end()
        assert text(lines).replace("\n", "").isprintable(), text(lines)


def test_what_belongs_to_a_language_stays(console: Console) -> None:
    kept = "می‌خواهم 👩‍🚀 عربي 日本語 é"
    assert whole(StreamedMarkdown(console), kept) == kept


def test_hard_texts_do_not_take_long(console: Console) -> None:
    n = 10_000
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
        assert calls < 1_000 * len(source), source[:10]  # of Python's functions; their square would be far above
