"""HTML to Markdown, and text cleaning: each element, skipped content, and hostile pages."""

import asyncio
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser

from specialists._kit.html import MAX_TEXT, is_hostile, page_rules, read_markdown, strip_tags
from specialists._kit.isolated import Limits, run_isolated
from specialists._kit.text import guess_encoding, one_line, tidy

URL = "https://ferry.example/docs/page.html"
SENTENCE = "This sentence makes the page long enough to be taken for an article, which it is. "
SIZE = 1_000_000


def markdown(html: str, base: str = "") -> str:
    return read_markdown(LexborHTMLParser(html), page_rules(base))


_, *CONVERSIONS = (Path(__file__).parent / "pages" / "conversions.txt").read_text("utf-8").split("\n=====\n")


@pytest.mark.parametrize("case", CONVERSIONS)
def test_elements_and_tables_become_markdown(case: str) -> None:
    html, _, text = case.rstrip("\n").partition("\n-----\n")
    assert markdown(html) == text


def test_columns_of_text_are_no_row() -> None:
    assert markdown(f"<table><tr><td>{'a' * 1500}<td>{'b' * 1500}") == f"{'a' * 1500}\n{'b' * 1500}"


@pytest.mark.parametrize("span", ["999999999999", "65534", "-3", "x", "0", ""])
def test_the_span_of_a_cell_is_bounded(span: str) -> None:
    long = "<td>".join(["x"] * 5)
    html = f"<table><tr><td rowspan={span} colspan={span}>{SENTENCE * 5}<td>b{f'<tr><td>{long}' * 500}</table>"
    assert markdown(html).count(SENTENCE) < 60


@pytest.mark.parametrize(
    "hidden",
    [
        "<p style='display: none'>SECRET</p>", "<div style='color:red;visibility:hidden'><p>SECRET</p></div>",
        "<p style='font-size:0px'>SECRET</p>", "<p hidden>SECRET</p>", "<!-- SECRET -->", "<script>SECRET</script>",
        "<template><p>SECRET</p></template>", "<nav>SECRET</nav>", "<div role=dialog>SECRET</div>",
        "<div id='cookie-banner'>SECRET</div>", "<amp-ad>SECRET</amp-ad>", "<svg><text>SECRET</text></svg>",
    ],
)  # fmt: skip
def test_hidden_content_and_navigation_are_skipped(hidden: str) -> None:
    assert markdown(f"<p>a</p>{hidden}<form><p>b<input></form>") == "a\n\nb"


def test_links_are_kept_when_there_is_a_base() -> None:
    html = "<p>See <a href=a.html>the <b>docs</b></a>, <a href=#x>below</a> and <a href=javascript:x>this</a>."
    assert markdown(html, URL) == "See [the **docs**](https://ferry.example/docs/a.html), below and this."
    assert markdown(html) == "See the **docs**, below and this."


@pytest.mark.parametrize(
    "html",
    [
        "", "   ", "<", "<html", "</p></div>", "<p>unclosed <b>bold <i>both", "<table><tr><td>a<td>b<tr><td>c",
        "<html><body><p>a\x00b\x0bc</p>", "<frameset><frame src=x></frameset>", "<ul></ul></ul><li>x</li></table></td>",
        "<td>a</td><tr>b", "<svg><td>a</svg>", "<pre><table><tr><td>a<ul><li>b</pre>", "<h1><table><tr><td>a<td>b",
    ],
)  # fmt: skip
def test_broken_html_is_read_as_far_as_it_goes(html: str) -> None:
    assert len(markdown(html, URL)) < 60


def filled(unit: str, before: str = "", after: str = "") -> str:
    return before + unit * ((SIZE - len(before) - len(after)) // len(unit)) + after


HOSTILE = {
    "deep": filled("<div>", "", SENTENCE),
    "almost too deep": filled(f"<p>{SENTENCE}</p>", "<span>" * 1900),
    "misnested": filled("<b><i><p>text</b></i>"),
    "open links": filled("<a href=/x>link text "),
    "nested tables": filled("<p>word", "<table><tr><td>x<td>" * 600),
    "one row": filled("<td>cell", "<table><tr>"),
    "rows": filled("<tr><td>a<td>b", "<table>"),
    "covering cells": filled(f"<tr><td rowspan=50 colspan=50>{'t' * 99}{'<tr>' * 49}", "<table>"),
    "nested lists": filled("<li>item text", "<ul><li>x" * 900),
    "headings in headings": filled("<p>word", "<h2><div>" * 900),
    "raised": filled("2<br>", "<sup>" * 1900),
    "lines": filled("w<br>"),
    "long tag": filled(" a=1", "<p", f">{SENTENCE}"),
    "comments": filled("<!--", SENTENCE),
    "entities": filled("&amp;&lt;"),
    "signs": filled("<", SENTENCE),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_megabyte_is_read_in_time(name: str) -> None:
    """The limit is CPU time, so a busy machine does not matter. Quadratic code would take minutes."""
    page = {"way": "plain", "url": URL, "links": True}
    data = HOSTILE[name].encode()
    found = asyncio.run(run_isolated("_web.extract", page, data, limits=Limits(cpu_seconds=5), seconds=500))
    assert 0 < len(found["text"]) <= MAX_TEXT


@pytest.mark.parametrize(
    ("html", "is_too_much"),
    [
        ("<div>" * 3000, True),
        ("<b><font>" * 1500, True),
        ("<div " + "a=1 " * 30_000 + ">", True),
        ("<p>old<p>style<li>lists<br><td>cells" * 5000, False),
        ("<!--" + "x" * 200_000 + "--><p>text</p>", False),
        ("<div><p>a</p></div>" * 5000, False),
    ],
)
def test_hostile_pages_are_detected(html: str, is_too_much: bool) -> None:
    assert is_hostile(html) is is_too_much


def test_stripped_text_has_lines_and_no_scripts() -> None:
    html = "<title>T</title><h1>Head</h1><p>a &lt; <b>b</b> 1 < 2</p><script>x < 3</script><!-- c --><p>end"
    assert tidy(strip_tags(html)) == "Head\n\na < b 1 < 2\n\nend"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  a\n b\t c ", "a b c"),
        ("one two three four", "one two…"),
        ("abcdefghijklmnop", "abcdefghi…"),
        ("a\u202eb\u200bc\ufeff\U000e0053", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\u061cb\ue000c\ud800d\u00a0e", "a b c d e"),
    ],
)
def test_one_line_has_no_invisible_characters(text: str, line: str) -> None:
    assert one_line(text, 10) == line


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Die Größe beträgt fünf Meter; Übergröße möglich.", "cp1252"),
        ("Café crème à l'hôtel où l'on dîne, ça coûte 5 €.", "cp1252"),
        ("El niño comió piñas en España mañana. ¿Verdad?", "cp1252"),
        ("São Paulo não é a capital do Brasil, mas lá há opções.", "cp1252"),
        ("“quoted” text – with dashes… and 5 m², ½ cup", "cp1252"),
        ("Zażółć gęślą jaźń, proszę bardzo państwa", "cp1250"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250"),
        ("Árvíztűrő tükörfúrógép", "cp1250"),
        ("Привет мир и все люди на земле, это тест", "cp1251"),
        ("Привет мир и все люди на земле, это тест", "koi8_r"),
        ("吾輩は猫である。名前はまだ無い。", "cp932"),
        ("吾輩は猫である。名前はまだ無い。", "euc_jp"),
        ("今天天气很好，我们去公园散步吧。", "gb18030"),
        ("今天天氣很好，我們去公園散步吧。", "big5"),
        ("안녕하세요 오늘은 날씨가 좋습니다", "cp949"),
        ("Καλημέρα κόσμε, αυτό είναι ένα κείμενο", "cp1253"),
        ("", "cp1252"),
    ],
)
def test_the_encoding_is_guessed_by_the_letters(text: str, encoding: str) -> None:
    data = f"<p>{text}</p>".encode(encoding)
    assert data.decode(guess_encoding(data)) == f"<p>{text}</p>"
