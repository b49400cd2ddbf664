"""An answer as lines of a terminal: Markdown, however it was cut; what is settled, and what never gets out."""

import os
import re
from collections.abc import Iterator
from cProfile import Profile
from io import StringIO
from typing import TextIO

import pytest
from emulator import Screen, sized

from brain.cli.terminal import answer as module
from brain.cli.terminal.answer import Answer
from brain.cli.terminal.drawing import Drawing, Line
from brain.cli.terminal.region import Region

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
def terminal() -> Iterator[TextIO]:
    """A terminal of 96 columns and 24 lines."""
    master, slave = os.openpty()
    sized(slave, 96, 24)
    with os.fdopen(slave, "w") as file:
        yield file
    os.close(master)


def text(lines: list[Line]) -> str:
    """The lines without their colours."""
    return "\n".join(re.sub(r"\x1b\[[0-9;]*m", "", line.written) for line in lines)


def whole(answer: Answer, *pieces: str, room: int = 1000) -> str:
    """All that is settled of an answer that is drawn behind each of its pieces."""
    lines: list[Line] = []
    for piece in pieces:
        answer.add(piece)
        lines += answer.drawn(room)[0]
    return text(lines + answer.end())


def test_markdown_is_drawn(terminal: TextIO) -> None:
    assert whole(Answer(Drawing(terminal)), LONG) == DRAWN


@pytest.mark.parametrize(("lines", "coloured"), [(1, True), (7900, False)])
def test_code_has_colours_unless_reading_it_takes_too_long(terminal: TextIO, lines: int, coloured: bool) -> None:
    answer = Answer(Drawing(terminal))
    answer.add("```c\n" + "\n" * lines + "return 1;\n```\n")
    settled = [*answer.drawn(10_000)[0], *answer.end()]
    (line,) = [line.written for line in settled if "return" in line.written]
    assert ("\x1b[94;49mreturn" in line) == coloured


@pytest.mark.parametrize("room", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 2, 7, 31])
def test_however_it_is_cut_it_is_the_same(terminal: TextIO, size: int, room: int) -> None:
    """Where the window has room. Where it has not, what has left it stays as it was."""
    pieces = [LONG[n : n + size] for n in range(0, len(LONG), size)]
    found = whole(Answer(Drawing(terminal)), *pieces, room=room)
    if room == 1000:
        assert found == DRAWN
    else:
        assert set("".join(DRAWN.split())) <= set("".join(found.split()))
        assert found.endswith("<b>no HTML</b>")


def test_every_text_cut_in_two_is_the_same(terminal: TextIO) -> None:
    for place in range(0, len(LONG), 3):
        assert whole(Answer(Drawing(terminal)), LONG[:place], LONG[place:]) == DRAWN, place


def test_what_is_settled_is_given_out_once_and_what_is_open_each_time(terminal: TextIO) -> None:
    answer = Answer(Drawing(terminal))
    answer.add("One.\n\nTw")
    assert [text(lines) for lines in answer.drawn(10)] == ["", "One.\n\nTw"]
    answer.add("o.\n")
    assert [text(lines) for lines in answer.drawn(10)] == ["One.", "\nTwo."]
    answer.add("Still two.\n\n- a\n- b")
    assert [text(lines) for lines in answer.drawn(10)] == ["\nTwo.\nStill two.", "\n • a\n • b"]
    assert text(answer.end()) == "\n • a\n • b"
    assert answer.empty
    assert answer.end() == []


def test_of_a_block_higher_than_the_window_its_end_is_open(terminal: TextIO) -> None:
    answer = Answer(Drawing(terminal))
    answer.add("```\n" + "".join(f"line {n}\n" for n in range(50)))
    settled, still = answer.drawn(10)
    assert text(settled).split() == " ".join(f"line {n}" for n in range(40)).split()
    assert text(still).split() == " ".join(f"line {n}" for n in range(40, 50)).split()
    answer.add("line 50\n```\n")
    assert text(answer.drawn(10)[0]).strip() == "line 40"
    assert text(answer.end()).split() == " ".join(f"line {n}" for n in range(41, 51)).split()


def test_when_the_width_changes_a_block_goes_on_where_it_was(terminal: TextIO) -> None:
    words = [f"word{n}" for n in range(400)]
    answer = Answer(Drawing(terminal))
    answer.add(" ".join(words[:300]))
    settled = text(answer.drawn(5)[0])
    sized(terminal.fileno(), 40, 24)
    answer.add(" " + " ".join(words[300:]))
    found = (settled + "\n" + text(answer.drawn(5)[0]) + "\n" + text(answer.end())).split()
    assert [word for n, word in enumerate(found) if word not in found[:n]] == words
    assert len(found) < len(words) + 6, "at most a line is there twice"


def test_no_line_is_wider_than_the_terminal(terminal: TextIO) -> None:
    sized(terminal.fileno(), 40, 24)
    wide = "| a | b |\n|---|---|\n| " + "x" * 90 + " | 日本語の文章はとても長い日本語の文章はとても長い |\n"
    for source in (LONG, "W" * 100, "日" * 100, "`" + "c" * 100 + "`", "> " * 30 + "deep", "- " * 30 + "deep", wide):
        answer = Answer(Drawing(terminal))
        answer.add(source)
        lines = answer.end()
        assert max(line.cells for line in lines) <= 39, source
    assert text(lines).count("x") == 90
    assert text(lines).count("長") == 2


def test_what_nests_too_deep_or_has_too_many_columns_is_shown_as_it_is_written(terminal: TextIO) -> None:
    deep = "> " * 60 + "deep"
    assert whole(Answer(Drawing(terminal)), deep).split() == deep.split()
    header = "|".join(f"c{n}" for n in range(40))
    shown = whole(Answer(Drawing(terminal)), f"{header}\n{'|'.join('-' * 40)}\n{header}\n")
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
def test_a_link_says_where_it_leads(terminal: TextIO, source: str, shown: str) -> None:
    assert whole(Answer(Drawing(terminal)), source) == shown


def test_formulas_are_shown_as_they_are_written(terminal: TextIO) -> None:
    maths = "With \\(a_1 * b_1 * c\\) and $$x^*y^*$$:\n\n\\[\n\\frac{a_i}{b_i}\\\\[2pt] *c*\n\\]\n\n"
    source = maths + "*So* \\(half and $5 and $6."
    shown = source.replace("*So* \\(", "So (")
    assert whole(Answer(Drawing(terminal)), source) == shown
    assert whole(Answer(Drawing(terminal)), *source) == shown


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
def test_what_is_no_formula_on_the_page_is_none_here(terminal: TextIO, source: str, shown: str) -> None:
    assert whole(Answer(Drawing(terminal)), source) == shown
    assert whole(Answer(Drawing(terminal)), *source) == shown


def test_a_formula_may_be_as_long_as_on_the_page(terminal: TextIO) -> None:
    assert "*" in whole(Answer(Drawing(terminal)), "\\(" + "*a* " * 240 + "\\)")
    assert "*" not in whole(Answer(Drawing(terminal)), "\\(" + "*a* " * 260 + "\\)")


@pytest.mark.parametrize(
    "source",
    [
        "![" * 1_001 + "*a*",
        "|a" * 10 + "|\n" + "|-" * 10 + "|\n" + "|x|\n" * 300,
        "|a|b|\n|-|-|\n" + "|x|y|\n" * 1_001,
    ],
    ids=["brackets", "cells that a table lacks", "cells"],
)
def test_what_would_take_long_is_shown_as_it_is_written(terminal: TextIO, source: str) -> None:
    shown = whole(Answer(Drawing(terminal)), source)
    assert "\u2500" not in shown
    assert re.sub(r"[\s|-]", "", shown) == re.sub(r"[\s|-]", "", source)


def test_a_table_breaks_no_word_that_has_room(terminal: TextIO) -> None:
    source = "| name | about it |\n|---|--:|\n| specialist | calculates interactions of substances |\n| x | yes |\n"
    sized(terminal.fileno(), 26, 24)
    assert whole(Answer(Drawing(terminal)), source).split("\n") == [
        "name             about it",
        "─────────────────────────",
        "specialist     calculates",
        *("             interactions", "                       of"),
        "               substances",
        "x                     yes",
    ]
    sized(terminal.fileno(), 25, 24)
    assert whole(Answer(Drawing(terminal)), source).split("\n") == [
        *("name: specialist", "about it: calculates", "interactions of", "substances", "", "name: x", "about it: yes"),
    ]


def test_what_is_too_long_is_settled_in_parts(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_MOST", 200)
    code = "```python\n" + "".join(f"number = {n}\n" for n in range(100)) + "```\n\nBehind *it*."
    found = whole(Answer(Drawing(terminal)), code)
    assert found == "".join(f"    number = {n}\n" for n in range(100)) + "\nBehind it."
    line = " ".join(f"w{n}" for n in range(300))
    assert whole(Answer(Drawing(terminal)), line).split() == line.split()
    assert "".join(whole(Answer(Drawing(terminal)), "x" * 1000).split()) == "x" * 1000
    many = "".join(f"Paragraph *{n}*.\n\n" for n in range(100))
    assert whole(Answer(Drawing(terminal)), many) == "\n\n".join(f"Paragraph {n}." for n in range(100))


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
def test_nothing_steers_the_terminal(terminal: TextIO, name: str) -> None:
    source = HOSTILE[name]
    for place in range(len(source) + 1):
        answer = Answer(Drawing(terminal))
        lines: list[Line] = []
        for piece in (source[:place], source[place:]):
            answer.add(piece)
            settled, still = answer.drawn(5)
            lines += settled + still
        lines += answer.end()
        for line in lines:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", line.written)
            assert plain.isprintable(), plain


def test_what_belongs_to_a_language_stays(terminal: TextIO) -> None:
    kept = "می‌خواهم 👩‍🚀 عربي 日本語 é"
    assert whole(Answer(Drawing(terminal)), kept) == kept


def test_hard_texts_do_not_take_long(terminal: TextIO) -> None:
    n = 10_000
    hard = ["[" * n, "*a " * n, "`" * n, "> " * n, "- " * n, "a_" * n, "<" * n, "![" * n, "|" * n + "\n" + "-|" * n]
    hard += ["\\(" * n, "\\[" * n, "$$$" * n]
    hard += ["```html\n" + "<" * n, "```python\n" + '"""' * n, "\n".join("- a" for _ in range(n))]
    for source in hard:
        answer = Answer(Drawing(terminal))
        answer.add(source)
        with Profile() as profile:
            answer.drawn(20)
            answer.end()
        calls = sum(entry.callcount for entry in profile.getstats())
        assert calls < 1_000 * len(source), source[:10]  # of Python's functions; their square would be far above


# The lines that change


def test_lines_are_written_anew_in_their_place(terminal: TextIO) -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w", newline="") as out:
        screen = Screen(20, 6)
        region = Region(out)
        for settled, changing in (
            ([], ["one", "two"]),
            ([], ["one", "two", "three"]),
            (["one"], ["2"]),
            (["two", "three", "four", "five", "six"], ["7", "8"]),
            ([], []),
        ):
            region.write([Line(t, len(t), len(t)) for t in settled], [Line(t, len(t), len(t)) for t in changing], 20)
            screen.feed(os.read(master, 65536).decode())
    os.close(master)
    assert screen.text == "one\ntwo\nthree\nfour\nfive\nsix"


class Stopping(StringIO):
    """A terminal whose program is stopped in the middle of a write, and goes on below what others wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.region = Region(self)

    def flush(self) -> None:
        self.write("$ fg\n")
        self.region.leave()


def test_who_is_stopped_while_it_writes_goes_on_below() -> None:
    out = Stopping()
    for number in "12":
        out.region.write([], [Line("one", 3, 3), Line(number, 1, 1)], 20)
    assert out.getvalue() == "\rone\033[K\n1\033[J$ fg\n\rone\033[K\n2\033[J$ fg\n"


@pytest.mark.parametrize(("columns", "wide"), [(20, 39), (13, 39), (7, 30), (60, 39)])
def test_lines_that_a_narrower_terminal_broke_are_written_anew(columns: int, wide: int) -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w", newline="") as out:
        screen = Screen(40, 30)
        region = Region(out)
        for settled, changing, now in (("above", "a" * wide, 40), ("settled", "b" * 5, columns)):
            screen.resize(now, 30)
            region.write([Line(settled, 7, 7)], [Line(changing, len(changing), len(changing))] * 3, now)
            screen.feed(os.read(master, 65536).decode())
    os.close(master)
    assert screen.text == "above\nsettled\nbbbbb\nbbbbb\nbbbbb"
