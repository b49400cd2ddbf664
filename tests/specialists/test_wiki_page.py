"""`wiki`: HTML of wikis as articles, of the kinds that MediaWiki, Fandom and Kiwix write."""

import asyncio

import pytest

from brain import Refused
from specialists._wiki.article import Article, article_from_blocks, article_from_extract, read
from specialists._wiki.page import read as read_blocks

NAVBOX = '<div class="navbox"><ul><li>Other cities</li></ul></div>'
NOTE = '<div role="note" class="hatnote">Main article: History of Rome</div>'


def article(html: str) -> Article:
    return article_from_blocks(read_blocks(html))


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<p>Rome<sup class="reference">[1]</sup> is old<sup class="noprint">[why?]</sup>.</p>', "Rome is old."),
        ("<p>One <b>bold</b>\nand <i>slanted</i>&nbsp;word.</p>", "One bold and slanted word."),
        ("<p>A soft&shy;ly hyphen&#8203;ed word</p>", "A softly hyphened word"),
        ("<!-- NewPP limit report --><p>Text</p>", "Text"),
        ('<p>a</p><figure><img alt="x"><figcaption>A picture</figcaption></figure>', "a"),
        ('<div class="thumb"><div class="thumbcaption">A picture</div></div><p>a</p>', "a"),
        ('<div class="mw-parser-output">Loose text <b>here</b></div>', "Loose text here"),
        ('<div class="mw-highlight"><pre><span class="k">if</span> x:\n    y</pre></div>', "```\nif x:\n    y\n```"),
        (
            '<p>So <span class="mwe-math-element"><span style="display: none;"><math alttext="{\\displaystyle E}"><mi>E'
            '</mi></math></span><img class="mwe-math-fallback-image-inline" alt="{\\displaystyle E}"></span>.</p>',
            "So $E$.",
        ),
        ('<div id="toc" class="toc"><h2>Contents</h2><ul><li>1 History</li></ul></div><p>a</p>', "a"),
        (f"{NAVBOX}<p>a</p>{NAVBOX}", "a"),
        ('<table class="box-More_citations ambox metadata"><tr><td>needs citations</td></tr></table><p>a</p>', "a"),
        ('<p>a</p><div class="reflist"><ol class="references"><li>A note</li></ol></div>', "a"),
        ('<div class="shortdescription noprint" style="display:none">City</div><p>a</p>', "a"),
        ('<span id="coordinates">52°N 13°E</span><p>a</p>', "a"),
        ('<table class="sidebar"><tr><td>Part of a series</td></tr></table><p>a</p>', "a"),
        (
            f"{NOTE}<p>a</p><h2>History</h2>{NOTE}<p>Old.</p>",
            "a\n\n## History\n\nMain article: History of Rome\n\nOld.",
        ),
        ("<h1>Rome</h1><p>a</p>", "a"),
    ],
)
def test_the_text_is_read_without_what_is_around_it(html: str, text: str) -> None:
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


INFOBOX = """<table class="infobox vcard"><tbody><tr><th colspan="2" class="infobox-above">Berlin</th></tr>
<tr><td colspan="2" class="infobox-image"><img src="x"><div>The skyline</div></td></tr>
<tr><th>Country</th><td><a>Germany</a></td></tr>
<tr><th colspan="2">Empty group</th></tr>
<tr><th colspan="2">Population<div> (2022)</div></th></tr>
<tr><th>&#160;•&#160;City</th><td>3,755,251<sup class="reference">[5]</sup></td></tr>
<tr><th>Mayors</th><td><div class="plainlist"><ul><li>Ann</li>
<li>Bob</li></ul></div></td></tr></tbody></table>"""
FANDOM = """<aside class="portable-infobox pi-background"><h2 class="pi-item pi-title">Ada</h2>
<figure class="pi-item pi-image"><img></figure><section class="pi-group"><h2 class="pi-item pi-header">Life</h2>
<div class="pi-item pi-data"><h3 class="pi-data-label">Born</h3><div class="pi-data-value"><a>1815</a></div></div>
<div class="pi-item pi-data"><div class="pi-data-value">alone</div></div></section></aside>"""


@pytest.mark.parametrize(
    ("box", "facts"),
    [
        (INFOBOX, "- Country: Germany\nPopulation (2022):\n- City: 3,755,251\n- Mayors: Ann; Bob"),
        (FANDOM, "Life:\n- Born: 1815\n- –: alone"),
        (FANDOM.replace("aside", "div"), "Life:\n- Born: 1815\n- –: alone"),
    ],
)
def test_an_infobox_is_facts_after_the_introduction(box: str, facts: str) -> None:
    assert article(f"{box}<p>The text.</p>").text == f"The text.\n\n{facts}"


SECTIONS = (
    "<p>Rome.</p><h2 id='Geschichte'>History</h2><h3>Kings</h3><p>Seven.</p><h4>Numa</h4><p>Second.</p>"
    "<h3>Republic</h3><p>SPQR.</p><h2>Empty</h2><h3>Emptier</h3><h2>1990</h2><h4>Jumps</h4><p>A level.</p>"
    '<h2>References</h2><ol class="references"><li>x</li></ol>'
)


def test_sections_are_numbered_and_those_that_say_nothing_left_out() -> None:
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


def test_choices_are_what_list_items_link_to() -> None:
    found = article("""<p><b>Mercury</b> most commonly refers to:</p><ul>
    <li><a href="/wiki/Mercury_(planet)" title="Mercury (planet)">Mercury (planet)</a>, the planet</li>
    <li>Hg, or <a href="/wiki/Mercury_(element)" title="Mercury (element)">mercury</a></li>
    <li><a href="/p" title="Spezial:Präfixindex/Mercury">Alle Seiten</a></li>
    <li><a href="https://example.org" class="external text">elsewhere</a></li><li>no link</li></ul>""")
    assert found.disambiguation
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
def test_pages_that_list_others_are_recognized_without_the_api(html: str, is_disambiguation: bool) -> None:
    assert article(f"{html}<ul><li><a href='/x' title='X'>X</a></li></ul>").disambiguation is is_disambiguation


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
    with pytest.raises(Refused, match="cannot be read"):
        asyncio.run(read(bomb))
