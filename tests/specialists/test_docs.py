"""`docs`: finding passages in Markdown pages, and doing so in Brain's own."""

import shutil
from pathlib import Path

import pytest
from specialist_calls import answer, context

from brain import Citation
from specialists.docs import Handbook, answer_query, docs, find_pages, health, passages

GUIDE = """# Guide

Brain runs specialists while a model writes.

## Limits

A turn may make five calls. Set `CALLS` to change this.

```text
# not a heading
```

## Writing one

### Errors

Raise `Refused` to say no.
"""
SERVER = "# Running the server\n\nStart it with one command. Café au lait.\n"


@pytest.fixture
def handbook() -> Handbook:
    return Handbook({"guide": GUIDE, "server": SERVER})


def test_sections_have_the_path_of_their_headings() -> None:
    assert [(passage.id, passage.title) for passage in passages("guide", GUIDE)] == [
        ("guide#guide", "Guide"),
        ("guide#limits", "Guide › Limits"),
        ("guide#errors", "Guide › Writing one › Errors"),
    ]


def test_a_hash_in_a_code_block_is_no_heading() -> None:
    assert list(passages("guide", GUIDE))[1].text == (
        "A turn may make five calls. Set `CALLS` to change this.\n\n```text\n# not a heading\n```"
    )


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("how many calls can a turn make", "Guide › Limits"),
        ("refuse", "Guide › Writing one › Errors"),
        ("errors", "Guide › Writing one › Errors"),
        ("STARTING the SERVER", "Running the server"),
        ("cafe", "Running the server"),
    ],
)
def test_finds_by_any_form_of_the_words(handbook: Handbook, query: str, first: str) -> None:
    assert handbook.search(query)[0].title == first


def test_a_section_limits_the_search(handbook: Handbook) -> None:
    assert [passage.title for passage in handbook.search("a", "limits")] == ["Guide › Limits"]
    assert [passage.title for passage in handbook.search("it", "server.md")] == ["Running the server"]
    assert handbook.search("calls", "no such section") == []


@pytest.mark.parametrize("query", ["how do I write a guide", "how do I write my own guide", "writing guides"])
def test_the_introduction_of_a_page_about_it_comes_first(query: str) -> None:
    guide = (
        f"# Writing a guide\n\nLook: {'an example of it, ' * 40}\n\n"
        "## Testing\n\nTest a guide: write one.\n\n## Sharing\n\nA guide can be shared."
    )
    others = {f"page{n}": "# Something else\n\nIt is about other things." for n in range(9)}
    assert Handbook({"guide": guide} | others).search(query)[0].title == "Writing a guide"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("how do I write a specialist", "Writing a specialist"),
        ("how do I write my own specialist", "Writing a specialist"),
        ("how do I run Brain behind a proxy", "Operations › Behind a proxy"),
        ("what is Brain and how does it work", "Brain"),
    ],
)
def test_answers_about_brain_begin_with_what_was_asked(query: str, first: str) -> None:
    assert answer(docs, {"query": query}, context()).startswith(
        f"📖 BRAIN'S DOCUMENTATION on '{query}'\n\n[1] {first}\n"
    )


@pytest.mark.parametrize(
    "query", ['"', "title:calls", "calls NOT turn", "calls*", "NEAR(a b)", "(", "a AND", "-", "", "\0"]
)
def test_a_query_is_words_and_nothing_else(handbook: Handbook, query: str) -> None:
    assert len(handbook.search(query)) <= 3


def test_answers_with_numbered_passages_and_citations(handbook: Handbook) -> None:
    result = answer_query(handbook, "refuse errors specialists", None)
    assert result.text == (
        "📖 BRAIN'S DOCUMENTATION on 'refuse errors specialists'\n\n"
        "[1] Guide › Writing one › Errors\n\nRaise `Refused` to say no.\n\n"
        "[2] Guide\n\nBrain runs specialists while a model writes."
    )
    assert result.citations == (
        Citation("guide#errors", "Guide › Writing one › Errors"),
        Citation("guide#guide", "Guide"),
    )


def test_says_when_nothing_fits_and_what_there_is(handbook: Handbook) -> None:
    assert answer_query(handbook, "xyzzy", None).text == (
        "Nothing in Brain's documentation matches 'xyzzy'. Its pages are:\n- Guide\n- Running the server"
    )
    assert answer_query(handbook, "calls", "xyzzy").text.startswith(
        "Nothing in Brain's documentation in the section 'xyzzy' matches 'calls'. Its pages are:\n- Guide\n"
    )


def test_knows_brains_own_pages() -> None:
    text = answer(docs, {"query": "xyzzy"}, context())
    assert text.startswith("Nothing in Brain's documentation matches 'xyzzy'. Its pages are:\n- Brain\n")
    assert "\n- Architecture" in text


def test_its_pages_lie_beside_the_package_or_were_built_into_it(tmp_path: Path) -> None:
    package = tmp_path / "specialists"
    built = package / "handbook"
    pages = ("README.md", "docs/b.md", "docs/a.md", "docs/a.png", "docs/specialists/web.md")
    for page in (*pages, "specialists/handbook/built.md", "specialists/handbook/specialists/web.md"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).touch()
    assert find_pages(package) == [built / "built.md", built / "specialists" / "web.md"]
    shutil.rmtree(built)
    assert [page.relative_to(tmp_path).as_posix() for page in find_pages(package)] == [
        "README.md",
        "docs/a.md",
        "docs/b.md",
        "docs/specialists/web.md",
    ]


def test_a_specialists_page_gives_way_unless_it_is_named() -> None:
    handbook = Handbook(
        {
            "guide": "# Guide\n\nThe limit of calls is five.",
            "specialists/ocr": "# ocr\n\n## Limits\n\nA limit of calls.",
        }
    )
    assert [one.id for one in handbook.search("limit of calls")] == ["guide#guide", "specialists/ocr#limits"]
    assert handbook.search("limit of ocr calls")[0].id == "specialists/ocr#limits"
    assert [one.id for one in handbook.search("limit", "ocr")] == ["specialists/ocr#limits"]


def test_all_the_words_go_before_some() -> None:
    pages = {"one": "# One\n\n## Folder\n\nOf pictures.", "two": "# Two\n\nA folder holds the calendar."}
    assert [one.id for one in Handbook(pages).search("calendar folder")] == ["two#two", "one#folder"]


def test_its_health_is_that_of_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health() is None
    monkeypatch.setattr("specialists.docs._handbook", lambda: Handbook({}))
    assert health() == "its pages are missing; install Brain anew"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("A paragraph\nof two lines.\n\nAnother\none.", "A paragraph of two lines.\n\nAnother one."),
        ("- an item\n  of two lines\n- and\nanother", "- an item of two lines\n- and another"),
        ("1. one\n\n   behind\n   it", "1. one\n\n   behind it"),
        ("> it was\n> said", "> it was said"),
        ("Before:\n```text\nas it\nis\n```\nbehind\nit", "Before:\n```text\nas it\nis\n```\nbehind it"),
        ("| a |\n|---|\n| b |\n| c |", "| a |\n|---|\n| b |\n| c |"),
        ("    as it\n    is", "    as it\n    is"),
        ("a line\\\nand the next", "a line\\\nand the next"),
        ("a line  \nand the next", "a line\nand the next"),
        ("It is `a\nb`.", "It is `a b`."),
    ],
)
def test_the_lines_of_a_paragraph_are_one(source: str, shown: str) -> None:
    assert [passage.text for passage in passages("guide", f"# Guide\n\n{source}\n")] == [shown]


def test_an_answer_about_brain_has_whole_paragraphs() -> None:
    said = answer(docs, {"query": "how do I write a specialist"}, context())
    assert "tell the model what it does; Brain checks the parameters, runs it under two clocks, and puts" in said
