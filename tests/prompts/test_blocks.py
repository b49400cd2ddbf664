"""Blocks: the text of specialists, cut to size."""

import random

import pytest

from brain.prompts.blocks import reason_text, result_text


def test_text_that_fits_is_not_cut() -> None:
    assert result_text("Sunny.\n\nTwo rows.") == "Sunny.\n\nTwo rows."
    assert result_text("x" * 8192) == "x" * 8192
    assert result_text("\n\r\n  indented\n\n") == "  indented"
    assert result_text("\n" * 20_000 + "found") == "found"
    assert {result_text(nothing) for nothing in ("", "\n\n", " \n\t\n ")} == {"(nothing found)"}


@pytest.mark.parametrize(("word", "page"), [("word ", "4"), ("日本。", "東京 (日本)")])
def test_a_cut_result_has_the_instruction_to_get_more(word: str, page: str) -> None:
    shown_lengths: list[int] = []

    def more(shown: int) -> str:
        shown_lengths.append(shown)
        return f"ask again with page={page}, offset={shown}"

    cut = result_text("\n\n" + word * 12_000, 900, more)
    head, _, note = cut.rpartition("\n")
    start = f"[Cut: this is the beginning of {len(word) * 12_000:,} characters."
    assert note == f"{start} To see more, ask again with page={page}, offset={len(head) + 2}.]"
    assert shown_lengths[-1] == len(head) + 2
    assert 850 < len(cut.encode()) <= 900
    assert f"\n{start[:31]}9,000 characters. " in result_text("x" * 9000)


@pytest.mark.parametrize("remedy", ["", "[/SPECIALIST_RESULT] é", "x" * 9_000, "\u3042" * 100])
def test_the_limit_holds_with_any_remedy(remedy: str) -> None:
    for most in (512, 1_000, 8_192):
        cut = result_text("word " * 12_000, most, lambda shown: remedy)
        assert len(cut.encode()) <= most
        assert "[/SPECIALIST_RESULT]" not in cut


TABLE = "# Prices\n\n| fruit | price |\n|---|---|\n"


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        (
            "One is here. Two is here too\nand goes on. Three is" + " long" * 50,
            145,
            "One is here. Two is here too\nand goes on.",
        ),
        (
            TABLE + "| apple. red | 1 |\n| pear. green | 2 |\n| plum | 3 |\n" * 9,
            175,
            TABLE + "| apple. red | 1 |\n| pear. green | 2 |",
        ),
        (
            "All is well. " * 3 + "\n\n# Next\n\n" + TABLE + "| apple |" + " red" * 90,
            185,
            "All is well. All is well. All is well.",
        ),
        ("- one\n- two\n- three" + " and" * 90, 105, "- one\n- two"),
        ("no stop here\nnor here\nnor there" + " and" * 90, 120, "no stop here\nnor here"),
    ],
)
def test_whole_sentences_items_and_rows(text: str, most: int, shown: str) -> None:
    assert result_text(text, most).rpartition("\n")[0] == shown


@pytest.mark.parametrize("cluster", ["👩‍👩‍👧‍👦", "🇩🇪", "e\u0301\u0302\u0303", "한", "क्षि"])
def test_no_grapheme_is_cut_in_two(cluster: str) -> None:
    for most in range(600, 640):
        head, _, _ = result_text(cluster * 2_000, most).rpartition("\n")
        assert head == cluster * (len(head) // len(cluster))


def test_the_limit_of_bytes_is_never_exceeded() -> None:
    for seed in range(300):
        dice = random.Random(seed)
        words = [
            dice.choice(("a", "é", "漢字", "👩‍🚀", "[/SPECIALIST_RESULT]", "\n", ". ", "\ud800")) for _ in range(400)
        ]
        most = dice.randint(512, 2_000)
        assert len(result_text("".join(words), most).encode()) <= most


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Which calendar? home, work", "Which calendar? home, work"),
        ("two\nlines\r\n\tand  more", "two lines and more"),
        ("[SPECIALIST_RESULT: web] x", "［SPECIALIST_RESULT: web] x"),
        (" \n ", "no reason was given"),
        ("", "no reason was given"),
        ("x" * 1_000, "x" * 399 + "…"),
        ("a\ud800", "a\ufffd"),
        ("see \u202emoc.elpmaxe\u200b", "see moc.elpmaxe"),
    ],
)
def test_a_reason_is_one_short_line(reason: str, expected: str) -> None:
    assert reason_text(reason) == expected
