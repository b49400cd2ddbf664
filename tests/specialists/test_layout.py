"""Reading order of text pieces, detection of tables, and language detection."""

from collections.abc import Sequence

import pytest

from specialists._pictures.languages import guess_language, iso_code, tesseract_code
from specialists._pictures.layout import Piece, join_pieces, lay_out

WIDTH, HEIGHT, STEP = 12, 24, 40


def grid(rows: Sequence[Sequence[str]], lefts: Sequence[int], top: float = 0, step: float = STEP) -> list[Piece]:
    """Return rows of cells by column, without empty cells."""
    return [
        Piece(text, left, left + WIDTH * len(text), top + number * step, top + number * step + HEIGHT)
        for number, row in enumerate(rows)
        for left, text in zip(lefts, row, strict=True)
        if text
    ]


def column(text: str, left: int, top: float = 0) -> list[Piece]:
    return grid([[line] for line in text.splitlines()], [left], top)


LEFT = "The left column has long lines\nwhich fill it from end to end\nand are read one by one before\nthe other."
RIGHT = "The right column comes after it\nas in a newspaper, even though\nits lines stand beside the ones\nof the left."
PROGRAM = """\
def largest(values):
    best = values[0]
    for value in values:
        if value > best:
            best = value"""
PROGRAM_LINES = [(line.lstrip(), WIDTH * (len(line) - len(line.lstrip()))) for line in PROGRAM.splitlines()]
LETTER = ["Office World", "Manchester", "We received your order.", "It will be sent.", "Yours sincerely"]
FRUIT = "| Item | Price |\n| --- | --- |\n| Apples | 4.50 |"

PAGES = {
    "nothing": ([], ""),
    "empty piece": ([Piece("", 0, 10, 0, 10)], ""),
    "from the top and from the left": (
        [*grid([["second line"]], [0], STEP), *grid([["first", "line"]], [0, 70])],
        "first line\nsecond line",
    ),
    "a gap parts paragraphs": ([*column("one\ntwo", 0), *column("three", 0, 3 * STEP)], "one\ntwo\n\nthree"),
    "one row is no table": (grid([["Name", "Date"]], [0, 400]), "Name   Date"),
    "a table between lines": (
        [*column("Fruit", 0), *grid([["Item", "Price"], ["Apples", "4.50"]], [0, 300], STEP), *column("End", 0, 120)],
        f"Fruit\n\n{FRUIT}\n\nEnd",
    ),
    "a table between paragraphs": (
        [*column("Order", 0), *grid([["Item", "Price"], ["Apples", "4.50"]], [0, 300], 80), *column("End", 0, 200)],
        f"Order\n\n{FRUIT}\n\nEnd",
    ),
    "empty cells": (
        grid(
            [["Item", "Number", "Price"], ["Apples", "", "4.50"], ["Total", "", ""], ["Pears", "2", "9.99"]],
            [0, 200, 400],
        ),
        "| Item | Number | Price |\n| --- | --- | --- |\n| Apples |  | 4.50 |\n| Total |  |  |\n| Pears | 2 | 9.99 |",
    ),
    "a cell of two lines": (
        [
            *grid([["Item", "Remark"], ["Apples", "red and"]], [0, 300]),
            *grid([["", "sweet"]], [0, 300], STEP + HEIGHT + 2),
            *grid([["Pears", "green"]], [0, 300], 3 * STEP),
        ],
        "| Item | Remark |\n| --- | --- |\n| Apples | red and sweet |\n| Pears | green |",
    ),
    "numbers right of their heading": (
        [*grid([["Item", "Qty", "Price"]], [0, 200, 400]), *grid([["Apples", "12", "4.50"]] * 2, [0, 260, 480], STEP)],
        "| Item | Qty | Price |\n| --- | --- | --- |\n| Apples | 12 | 4.50 |\n| Apples | 12 | 4.50 |",
    ),
    "numbers that reach up to the next heading": (
        [
            *grid([["Station", "Jan", "Feb"]], [0, 200, 330]),
            *grid([["Bergen", "917.0", "799.7"], ["Oslo", "235.8", "103.1"]], [0, 264, 394], STEP),
        ],
        "| Station | Jan | Feb |\n| --- | --- | --- |\n| Bergen | 917.0 | 799.7 |\n| Oslo | 235.8 | 103.1 |",
    ),
    "words of a cell a little apart": (
        grid([["Unit", "price", "Total"], ["four", "euros", "4.00"]], [0, 54, 300]),
        "| Unit price | Total |\n| --- | --- |\n| four euros | 4.00 |",
    ),
    "what would end a cell": (
        grid([["a|b", "c\\d"], ["e", "f"]], [0, 300]), "| a\\|b | c\\\\d |\n| --- | --- |\n| e | f |",
    ),
    "a program keeps its indents": (
        [piece for n, (line, left) in enumerate(PROGRAM_LINES) for piece in column(line, 50 + left, n * STEP)], PROGRAM,
    ),
    "a letter is not indented": (
        [
            Piece(line, 90.0 * n, 90 * n + (11 + n) * len(line), n * STEP, n * STEP + HEIGHT)
            for n, line in enumerate(LETTER)
        ],
        "\n".join(LETTER),
    ),
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_layout(page: str) -> None:
    pieces, text = PAGES[page]
    assert lay_out(pieces) == text


@pytest.mark.parametrize("offset", [0, 8, 20, 32])
def test_columns_of_prose_are_read_one_after_the_other(offset: int) -> None:
    title = Piece("A title that stands over both of the columns of the page", 0, 700, 0, HEIGHT)
    pieces = [title, *column(LEFT, 0, 2 * STEP), *column(RIGHT, 450, 2 * STEP + offset)]
    assert lay_out(pieces) == f"{title.text}\n\n{LEFT}\n\n{RIGHT}"


def test_words_of_a_line_are_joined_up_to_a_gutter() -> None:
    words = [Piece("Unit", 0, 40, 0, 20), Piece("price", 50, 100, 2, 20), Piece("4.50", 200, 240, 0, 20)]
    assert [piece.text for piece in join_pieces(words)] == ["Unit price", "4.50"]
    assert join_pieces([]) == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Der Ausschuss traf sich am dritten März, um über den Haushalt für das kommende Jahr zu sprechen. Nach "
         "längerer Aussprache beschlossen die Mitglieder, die Zuschüsse zu erhöhen.", "de"),
        ("The committee met on the third of March to discuss the budget for the coming year, and the members agreed "
         "to raise the allowance for travel by four percent.", "en"),
        ("Le comité s'est réuni le trois mars pour discuter du budget de l'année à venir. Après un long débat, les "
         "membres ont décidé d'élever l'allocation de voyage.", "fr"),
        ("El comité se reunió el tres de marzo para hablar del presupuesto del próximo año, y los miembros decidieron "
         "aumentar la asignación para los viajes en un cuatro por ciento.", "es"),
        ("Invoice 4711 Total 129.50 EUR", None),
        ("4711 " * 100, None),
        ("Lorem ipsum dolor sit amet consectetur adipiscing elit sed eiusmod tempor incididunt labore dolore magna "
         "aliqua enim minim veniam quis nostrud exercitation ullamco", None),
    ],
)  # fmt: skip
def test_detects_a_language_by_common_words(text: str, language: str | None) -> None:
    assert guess_language(text) == language


@pytest.mark.parametrize(
    ("named", "letters", "code"),
    [("de", "de", "deu"), ("DE-at", "de", "deu"), ("deu", "de", "deu"), ("xx", "xx", "xx")],
)
def test_a_language_has_two_codes(named: str, letters: str, code: str) -> None:
    assert (iso_code(named), tesseract_code(named)) == (letters, code)
