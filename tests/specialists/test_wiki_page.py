"""`wiki`: HTML of wikis as text, of the kinds that MediaWiki, Fandom and Kiwix write."""

import asyncio

import pytest

from brain import Refused
from specialists._wiki import article
from specialists._wiki import page as html


def blocks(source: str) -> list[str]:
    """The texts between headings as they are, headings with their level in front."""
    return [
        f"{block['level']} {block['text']}" if block["level"] else block["text"]
        for block in html.read(source)["blocks"]
    ]


def article_of(source: str) -> article.Article:
    return article.article_from_blocks(html.read(source))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('<p>Rome<sup class="reference">[1]</sup> is old<sup class="noprint">[why?]</sup>.</p>', "Rome is old."),
        ("<p>One <b>bold</b>\nand <i>slanted</i>&nbsp;word.</p>", "One bold and slanted word."),
        ("<p>One<br>two<br />\nthree</p>", "One\ntwo\nthree"),
        ("<p>A soft&shy;ly hyphen&#8203;ed word</p>", "A softly hyphened word"),
        ("<p>10<sup>6</sup>, x<sup>n</sup>, 2<sup>nd</sup>, H<sub>2</sub>O</p>", "10^6, x^n, 2nd, H2O"),
        ('<p>Seen<span style="display: none">hidden</span></p><style>p{}</style><script>x()</script>', "Seen"),
        ("<!-- NewPP limit report --><p>Text</p>", "Text"),
        ('<p>a</p><figure><img alt="x"><figcaption>A picture</figcaption></figure>', "a"),
        ('<div class="thumb"><div class="thumbcaption">A picture</div></div><p>a</p>', "a"),
        ('<div class="mw-parser-output">Loose text <b>here</b></div>', "Loose text here"),
        ("<p>(see below)</p>", "(see below)"),
        ("<p>Wait ... what</p>", "Wait ... what"),
        ("<p>متن فارسی</p>", "متن فارسی"),
        ("<p>東京は日本の首都。</p>", "東京は日本の首都。"),
        ("<blockquote><p>To be.</p><p>Or not.</p></blockquote>", "> To be.\n\n> Or not."),
        ("<pre>a = 1\n  b = 2\n</pre>", "```\na = 1\n  b = 2\n```"),
        ('<div class="mw-highlight"><pre><span class="k">if</span> x:\n    y</pre></div>', "```\nif x:\n    y\n```"),
    ],
)  # fmt: skip
def test_paragraphs(source: str, text: str) -> None:
    assert blocks(source) == [text]


@pytest.mark.parametrize(
    "source",
    [
        '<span class="mwe-math-element"><span style="display: none;"><math alttext="{\\displaystyle E=mc^{2}}">'
        '<mi>E</mi></math></span><img class="mwe-math-fallback-image-inline" alt="{\\displaystyle E=mc^{2}}"></span>',
        '<img class="mwe-math-fallback-image-inline" alt="E=mc^{2}">',
        '<math alttext="{\\displaystyle E=mc^{2}}"><mi>E</mi></math>',
    ],
)
def test_a_formula_is_its_tex(source: str) -> None:
    assert blocks(f"<p>So {source}.</p>") == ["So $E=mc^{2}$."]
    assert blocks(f"<div>{source}</div>") == ["$E=mc^{2}$"]


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
    read = html.read(f"<p>Intro</p>{heading}<p>Born.</p>")["blocks"]
    assert read[1] == {"level": 2, "text": "Early life", "anchor": "Early_life"}
    assert [block["text"] for block in read] == ["Intro", "Early life", "Born."]


def test_what_is_around_the_text_is_not_read() -> None:
    around = (
        '<div id="toc" class="toc"><h2>Contents</h2><ul><li>1 History</li></ul></div>'
        '<div class="navbox"><ul><li>Other cities</li></ul></div>'
        '<table class="box-More_citations ambox metadata"><tr><td>needs citations</td></tr></table>'
        '<div class="reflist"><ol class="references"><li>A note</li></ol></div>'
        '<div class="shortdescription nomobile noexcerpt noprint" style="display:none">City</div>'
        '<span id="coordinates">52°N 13°E</span>'
        '<table class="sidebar"><tr><td>Part of a series</td></tr></table>'
    )
    assert blocks(f"{around}<p>Text.</p>{around}") == ["Text."]


def test_notes_on_other_pages_stand_before_no_introduction_but_in_sections() -> None:
    note = '<div role="note" class="hatnote">Main article: History of Rome</div>'
    assert blocks(f"{note}<p>Rome.</p><h2>History</h2>{note}<p>Old.</p>") == [
        "Rome.", "2 History", "Main article: History of Rome\n\nOld.",
    ]  # fmt: skip


def test_an_infobox_is_facts_behind_the_introduction() -> None:
    source = """<table class="infobox vcard"><tbody><tr><th colspan="2" class="infobox-above">Berlin</th></tr>
    <tr><td colspan="2" class="infobox-image"><img src="x"><div>The skyline</div></td></tr>
    <tr><th>Country</th><td><a>Germany</a></td></tr>
    <tr><th colspan="2">Empty group</th></tr>
    <tr><th colspan="2">Population<div> (2022)</div></th></tr>
    <tr><th>&#160;•&#160;City</th><td>3,755,251<sup class="reference">[5]</sup></td></tr>
    <tr><th>Mayors</th><td><div class="plainlist"><ul><li>Ann</li>
    <li>Bob</li></ul></div></td></tr></tbody></table><p>Berlin is a city.</p>"""
    assert article_of(source).introduction == (
        "Berlin is a city.\n\n- Country: Germany\nPopulation (2022):\n- City: 3,755,251\n- Mayors: Ann; Bob"
    )


@pytest.mark.parametrize("tag", ["aside", "div"])
def test_an_infobox_of_fandom(tag: str) -> None:
    source = f"""<{tag} class="portable-infobox pi-background"><h2 class="pi-item pi-title">Ada</h2>
    <figure class="pi-item pi-image"><img></figure><section class="pi-group"><h2 class="pi-item pi-header">Life</h2>
    <div class="pi-item pi-data"><h3 class="pi-data-label">Born</h3><div class="pi-data-value"><a>1815</a></div></div>
    <div class="pi-item pi-data"><div class="pi-data-value">alone</div></div></section></{tag}><p>Ada counted.</p>"""
    assert article_of(source).introduction == "Ada counted.\n\nLife:\n- Born: 1815\n- –: alone"
    assert len(article_of(source).sections) == 1


def test_sections_are_numbered_and_those_that_say_nothing_left_out() -> None:
    source = (
        "<h1>Rome</h1><p>Rome.</p><h2>History</h2><h3>Kings</h3><p>Seven.</p><h4>Numa</h4><p>Second.</p>"
        "<h3>Republic</h3><p>SPQR.</p><h2>Empty</h2><h3>Emptier</h3><h2>Today</h2><h4>Jumps</h4><p>A level.</p>"
        '<h2>References</h2><ol class="references"><li>x</li></ol>'
    )
    found = article_of(source)
    assert [f"{section.number} {section.title}" for section in found.sections] == [
        " ", "1 History", "1.1 Kings", "1.1.1 Numa", "1.2 Republic", "3 Today", "3.1 Jumps",
    ]  # fmt: skip
    assert found.below(found.sections[1]) == (
        "## History\n\n### Kings\n\nSeven.\n\n#### Numa\n\nSecond.\n\n### Republic\n\nSPQR."
    )


@pytest.mark.parametrize(
    ("wanted", "title"),
    [
        ("early life", "Early life"),
        ("Early_life", "Early life"),
        ("1", "Early life"),
        ("1.1", "School"),
        ("2.", "1990"),
        ("1990", "1990"),
        ("Leben", "Later"),
        ("lat", "Later"),
        ("intro", ""),
        ("0", ""),
    ],
)
def test_a_section_is_found_by_name_number_or_anchor(wanted: str, title: str) -> None:
    found = article_of(
        "<p>x</p><h2 id='Early_life'>Early life</h2><p>x</p><h3>School</h3><p>x</p><h2>1990</h2><p>x</p>"
        "<h2 id='Leben'>Later</h2><p>x</p>"
    ).find(wanted)
    assert found is not None
    assert found.title == title


def test_lists_that_the_wiki_makes_are_no_choices() -> None:
    made = '<li><a href="/p" title="Spezial:Präfixindex/X">Alle Seiten mit X</a></li>'
    source = f'<ul>{made}<li><a href="/x">X (Y)</a></li></ul>'
    assert html.read(source)["choices"] == [("X (Y)", "X (Y)")]


def test_choices_are_what_list_items_link_to() -> None:
    source = """<p><b>Mercury</b> most commonly refers to:</p><ul>
    <li><a href="/wiki/Mercury_(planet)" title="Mercury (planet)">Mercury (planet)</a>, the planet</li>
    <li>Hg, or <a href="/wiki/Mercury_(element)" title="Mercury (element)">mercury</a></li>
    <li><a href="https://example.org" class="external text">elsewhere</a></li><li>no link</li></ul>"""
    found = article_of(source)
    assert found.disambiguation
    assert found.choices == (
        ("Mercury (planet)", "Mercury (planet), the planet"),
        ("Mercury (element)", "Hg, or mercury"),
    )


@pytest.mark.parametrize(
    "source",
    [
        '<table id="disambigbox" class="metadata plainlinks dmbox dmbox-disambig"><tr><td>x</td></tr></table>',
        "<p>Die Abkürzung AB steht für:</p>",
        "<p>Paris peut désigner :</p>",
    ],
)
def test_pages_that_list_others_are_known_without_the_api(source: str) -> None:
    assert article_of(f"{source}<ul><li><a href='/x' title='X'>X</a></li></ul>").disambiguation


def test_an_ordinary_page_is_none() -> None:
    assert not article_of("<p>Word-sense disambiguation may refer to context. It is hard: very.</p>").disambiguation


def test_plain_text_of_a_wiki_has_sections_too() -> None:
    found = article.article_from_extract(
        "Rome is old.\n\n\n== History ==\nKings.\n\n\n=== Republic ===\n\nSPQR.\n\n\n== Notes ==\n"
    )
    assert [(section.number, section.title, section.text) for section in found.sections] == [
        ("", "", "Rome is old."), ("1", "History", "Kings."), ("1.1", "Republic", "SPQR."),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "", "   ", "<", "<p", "\x00\x01", "<div>" * 3000 + "deep", "<ul><li>" * 900 + "deep", "<b>" * 3000 + "x",
        "<table><tr><td>" * 900 + "deep", "<p>" + "[[" * 50_000, "x" * 2_000_000, "<br>" * 100_000,
        "</p>" * 100_000, "= " * 100_000,
    ],
    ids=range(14),
)  # fmt: skip
def test_odd_html_is_read_somehow(source: str) -> None:
    assert asyncio.run(article.read(source)).sections


def test_html_that_takes_all_memory_ends_its_process_only() -> None:
    bomb = "".join(f"<p><font size={n}></p>" for n in range(30_000))
    with pytest.raises(Refused, match="cannot be read"):
        asyncio.run(article.read(bomb))
