"""`wiki`: HTML of MediaWiki, Fandom and Kiwix as articles."""

import asyncio
from pathlib import Path

import pytest

from brain import Refused
from specialists._wiki.article import Article, article_from_blocks, article_from_extract, read
from specialists._wiki.page import read as read_blocks


def article(html: str) -> Article:
    return article_from_blocks(read_blocks(html))


_, *CONVERSIONS = (Path(__file__).parent / "pages" / "wiki_conversions.txt").read_text("utf-8").split("\n=====\n")


@pytest.mark.parametrize("case", CONVERSIONS)
def test_the_text_is_read_without_navigation_and_notes(case: str) -> None:
    html, _, text = case.rstrip("\n").partition("\n-----\n")
    assert article(html).text == text


@pytest.mark.parametrize(
    "heading",
    [
        '<h2><span class="mw-headline" id="Early_life">Early <i>life</i></span><span class="mw-editsection">'
        "[<a>edit</a>]</span></h2>",
        '<div class="mw-heading mw-heading2"><h2 id="Early_life">Early <i>life</i></h2><span class="mw-editsection">'
        "[<a>edit</a>]</span></div>",
        '<details><summary class="section-heading"><h2 id="Early_life">Early <i>life</i></h2></summary></details>',
        '<section><h2 id="Early_life">Early <i>life</i></h2></section>',
    ],
)
def test_headings_of_all_generations(heading: str) -> None:
    introduction, section = article(f"<p>Intro</p>{heading}<p>Born.</p>").sections
    assert introduction.text == "Intro"
    assert (section.level, section.title, section.anchor, section.text) == (2, "Early life", "Early_life", "Born.")


SECTIONS = (
    "<p>Rome.</p><h2 id='Geschichte'>History</h2><h3>Kings</h3><p>Seven.</p><h4>Numa</h4><p>Second.</p>"
    "<h3>Republic</h3><p>SPQR.</p><h2>Empty</h2><h3>Emptier</h3><h2>1990</h2><h4>Jumps</h4><p>A level.</p>"
    '<h2>References</h2><ol class="references"><li>x</li></ol>'
)


def test_sections_are_numbered_without_empty_ones() -> None:
    found = article(SECTIONS)
    assert [f"{section.number} {section.title}" for section in found.sections] == [
        " ", "1 History", "1.1 Kings", "1.1.1 Numa", "1.2 Republic", "3 1990", "3.1 Jumps",
    ]  # fmt: skip
    assert found.below(found.sections[1]) == (
        "## History\n\n### Kings\n\nSeven.\n\n#### Numa\n\nSecond.\n\n### Republic\n\nSPQR."
    )


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("kings", "Kings"), ("1", "History"), ("1.1", "Kings"), ("1.2.", "Republic"), ("1990", "1990"),
        ("Geschichte", "History"), ("rep", "Republic"), ("intro", ""), ("0", ""), ("Sport", None),
    ],
)  # fmt: skip
def test_a_section_is_found_by_name_number_or_anchor(name: str, title: str | None) -> None:
    found = article(SECTIONS).find(name)
    assert (found.title if found else None) == title


def test_choices_are_the_links_of_list_items() -> None:
    found = article("""<p><b>Mercury</b> most commonly refers to:</p><ul>
    <li><a href="/wiki/Mercury_(planet)" title="Mercury (planet)">Mercury (planet)</a>, the planet</li>
    <li>Hg, or <a href="/wiki/Mercury_(element)" title="Mercury (element)">mercury</a></li>
    <li><a href="/p" title="Spezial:Präfixindex/Mercury">Alle Seiten</a></li>
    <li><a href="https://example.org" class="external text">elsewhere</a></li><li>no link</li></ul>""")
    assert found.is_disambiguation
    assert found.choices == (
        ("Mercury (planet)", "Mercury (planet), the planet"),
        ("Mercury (element)", "Hg, or mercury"),
    )


@pytest.mark.parametrize(
    ("html", "is_disambiguation"),
    [
        ('<table id="disambigbox" class="metadata dmbox dmbox-disambig"><tr><td>x</td></tr></table>', True),
        ("<p>Die Abkürzung AB steht für:</p>", True),
        ("<p>Paris peut désigner :</p>", True),
        ("<p>Word-sense disambiguation may refer to context. It is hard: very.</p>", False),
    ],
)
def test_disambiguation_pages_are_recognized_by_their_text(html: str, is_disambiguation: bool) -> None:
    assert article(f"{html}<ul><li><a href='/x' title='X'>X</a></li></ul>").is_disambiguation is is_disambiguation


def test_plain_text_of_a_wiki_has_sections_too() -> None:
    extract = "Rome is old.\n\n\n== History ==\nKings.\n\n\n=== Republic ===\n\nSPQR.\n\n\n== Notes ==\n"
    assert [(section.number, section.title, section.text) for section in article_from_extract(extract).sections] == [
        ("", "", "Rome is old."), ("1", "History", "Kings."), ("1.1", "Republic", "SPQR."),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "html",
    ["", "<", "\x00\x01", "<div>" * 3000 + "deep", "<table><tr><td>" * 900, "<p>" + "[[" * 50_000, "= " * 100_000],
    ids=range(7),
)
def test_odd_html_is_an_article_too(html: str) -> None:
    assert asyncio.run(read(html)).sections


def test_html_that_takes_all_memory_ends_its_process_only() -> None:
    bomb = "".join(f"<p><font size={n}></p>" for n in range(30_000))
    with pytest.raises(Refused):
        asyncio.run(read(bomb))
