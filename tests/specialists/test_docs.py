"""`docs`: search in Markdown pages and in Brain's documentation."""

import shutil
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from specialist_calls import answer, context

from brain import AssistContext, Citation
from brain.assist.params import build_params
from specialists.docs import Documentation, answer_query, docs, find_pages, health, split_page

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
PAGES = {
    "guide": GUIDE,
    "server": "# Running the server\n\nStart it with one command. Café au lait.\n",
    "two": "# Two\n\nA folder holds the calendar.",
    "reference/specialists/ocr": "# ocr\n\n## Limits\n\nA limit of calls to pages.\n\n## Folder\n\nOf pictures.",
}


@pytest.fixture(scope="module")
def documentation() -> Documentation:
    return Documentation(PAGES)


def test_sections_have_the_path_of_their_headings() -> None:
    found = list(split_page("guide", GUIDE))
    assert [(passage.id, passage.title) for passage in found] == [
        ("guide#guide", "Guide"),
        ("guide#limits", "Guide › Limits"),
        ("guide#errors", "Guide › Writing one › Errors"),
    ]
    assert found[1].text.endswith("Set `CALLS` to change this.\n\n```text\n# not a heading\n```")


@pytest.mark.parametrize(
    ("query", "section", "first"),
    [
        ("how many calls can a turn make", None, "Guide › Limits"),
        ("refuse", None, "Guide › Writing one › Errors"),
        ("errors", None, "Guide › Writing one › Errors"),
        ("STARTING the SERVER", None, "Running the server"),
        ("cafe", None, "Running the server"),
        ("calendar folder", None, "Two"),  # all the words go before some
        ("limit of calls", None, "Guide › Limits"),  # pages about specialists rank lower
        ("limit of ocr calls", None, "ocr › Limits"),  # unless it is named
        ("maximum of ocr invocations", None, "ocr › Limits"),  # synonyms match
        ("limit", "ocr", "ocr › Limits"),
        ("a", "limits", "Guide › Limits"),
        ("it", "server.md", "Running the server"),
        ("calls", "no such section", None),
    ],
)
def test_the_best_passage_comes_first(
    documentation: Documentation, query: str, section: str | None, first: str | None
) -> None:
    found = documentation.search(query, section)
    assert (found[0].title if found else None) == first


@pytest.mark.parametrize("query", ["how do I write a guide", "how do I write my own guide", "writing guides"])
def test_the_introduction_of_a_page_about_it_comes_first(query: str) -> None:
    guide = (
        f"# Writing a guide\n\nLook: {'an example of it, ' * 40}\n\n"
        "## Testing\n\nTest a guide: write one.\n\n## Sharing\n\nA guide can be shared."
    )
    others = {f"page{n}": "# Something else\n\nIt is about other things." for n in range(9)}
    assert Documentation({"guide": guide} | others).search(query)[0].title == "Writing a guide"


@pytest.mark.parametrize("query", ['"', "title:calls", "calls NOT turn", "calls*", "NEAR(a b)", "(", "-", "", "\0"])
def test_a_query_has_no_syntax(documentation: Documentation, query: str) -> None:
    assert len(documentation.search(query)) <= 4


def test_results_have_numbered_passages_and_citations(documentation: Documentation) -> None:
    result = answer_query(documentation, "refuse errors specialists", None)
    assert result.text == (
        "📖 BRAIN'S DOCUMENTATION on 'refuse errors specialists'\n\n"
        "[1] Guide › Writing one › Errors\n\nRaise `Refused` to say no.\n\n"
        "[2] Guide\n\nBrain runs specialists while a model writes."
    )
    assert result.citations == (
        Citation("guide#errors", "Guide › Writing one › Errors"),
        Citation("guide#guide", "Guide"),
    )
    nothing = answer_query(documentation, "calls", "xyzzy").text
    assert [name in nothing for name in ("'xyzzy'", "'calls'")] == [True, True]
    assert nothing.endswith(":\n- Guide\n- Running the server\n- Two\n- ocr")


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("how do I write a specialist", "Write your first specialist"),
        ("how do I write my own specialist", "Write your first specialist"),
        ("how do I run Brain behind a proxy", "nginx › Run Brain behind a proxy"),
        ("how do I back up the database", "Back up and restore › Back up a PostgreSQL database"),
        ("how do I connect Ollama or an OpenAI compatible server", "Connect Ollama"),
        ("how do I use it as a library without the server", "Wrap your own stream"),
        ("what does 409 busy mean", "Troubleshooting › 409 busy"),
        ("what is Brain and how does it work", "How Brain works"),
    ],
)
def test_answers_about_brain_start_with_the_right_page(query: str, first: str) -> None:
    text = answer(docs, {"query": query}, context())
    assert text.startswith(f"📖 BRAIN'S DOCUMENTATION on '{query}'\n\n[1] {first}\n")
    assert "\n- Architecture" in answer(docs, {"query": "xyzzy"}, context())


QUESTIONS = tomllib.loads(Path(__file__).with_name("docs_questions.toml").read_text("utf-8"))


def test_most_questions_find_their_answer() -> None:
    """As a whole question, and as the words that an assisted call looks for."""
    moment = AssistContext(datetime(2026, 11, 23, tzinfo=UTC))
    assisted = {one: (filled := build_params(docs, one, moment)) and filled.params for one in QUESTIONS}
    for queries, least in ({one: {"query": one} for one in QUESTIONS}, 62), (assisted, 58):
        texts = {one: answer(docs, query, context()) for one, query in queries.items() if query}
        missed = [one for one, fact in QUESTIONS.items() if fact not in texts[one].partition("\n\n")[2]]
        assert len(QUESTIONS) - len(missed) >= least, missed


def test_the_pages_are_next_to_the_package_or_in_it(tmp_path: Path) -> None:
    package = tmp_path / "specialists"
    built = package / "documentation"
    for page in ("README.md", "docs/a.md", "docs/b/c.md", "docs/a.png", "specialists/documentation/built/d.md"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).touch()
    assert find_pages(package) == {"built/d": built / "built" / "d.md"}
    shutil.rmtree(built)
    assert find_pages(package) == {
        "README": tmp_path / "README.md",
        "a": tmp_path / "docs" / "a.md",
        "b/c": tmp_path / "docs" / "b" / "c.md",
    }
    assert health() is None


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("A paragraph\nof two lines.\n\nAnother\none.", "A paragraph of two lines.\n\nAnother one."),
        ("- an item\n  of two lines\n- and\nanother", "- an item of two lines\n- and another"),
        ("1. one\n\n   behind\n   it", "1. one\n\n   behind it"),
        ("> it was\n> said", "> it was said"),
        ("Before:\n```text\nas it\nis\n```\nbehind\nit", "Before:\n```text\nas it\nis\n```\nbehind it"),
        ("| a |\n|---|\n| b |\n| c |", "| a |\n|---|\n| b |\n| c |"),
        ("<!-- start -->\n| a |\n|---|\n| b |\n<!-- end -->", "| a |\n|---|\n| b |"),
        ("    as it\n    is", "    as it\n    is"),
        ("a line\\\nand the next", "a line\\\nand the next"),
        ("a line  \nand the next", "a line\nand the next"),
        ("It is `a\nb`.", "It is `a b`."),
        (
            "See [the\nserver](server.md#start), [it](#it) and [RFC](https://example.org/a).",
            "See the server, it and [RFC](https://example.org/a).",
        ),
    ],
)
def test_the_lines_of_a_paragraph_are_one(source: str, shown: str) -> None:
    assert [passage.text for passage in split_page("guide", f"# Guide\n\n{source}\n")] == [shown]


def test_a_long_passage_is_shortened_to_its_matching_parts() -> None:
    row = f"| OTHER | {'something ' * 25}|\n"
    table = f"| key | meaning |\n|---|---|\n{row * 2}| PORT | the port to listen on |\n{row}"
    found = Documentation({"settings": f"# Settings\n\n{table}"}).search("port")
    assert [passage.text for passage in found] == [
        f"| key | meaning |\n|---|---|\n| PORT | the port to listen on |\n{row.strip()}"
    ]
