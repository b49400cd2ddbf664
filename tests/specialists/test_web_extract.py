"""What `web` makes of pages: articles, documentation, lists, code, tables, feeds, and pages made to do harm."""

import sys
import time
from pathlib import Path

import pytest

from specialists._kit.html import is_hostile, link_target, strip_tags
from specialists._kit.text import one_line, strip_invisible, tidy
from specialists._web.extract import Article, read

PAGES = Path(__file__).parent / "pages"
URL = "https://ferry.example/docs/page.html"
LONG = "This sentence makes the page long enough to be taken for an article, which it is. " * 5


def page(name: str, *, links: bool = False) -> Article:
    return read("html", (PAGES / f"{name}.html").read_text("utf-8"), URL, links=links)


def body(content: str, *, head: str = "", links: bool = False) -> Article:
    html = f"<!doctype html><html><head>{head}</head><body><article><p>{LONG}</p>{content}</article></body></html>"
    return read("html", html, URL, links=links)


@pytest.fixture(params=["trafilatura", "selectolax"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With trafilatura, and as in an installation without the extra."""
    if request.param == "selectolax":
        for name in ("trafilatura", "htmldate"):
            monkeypatch.setitem(sys.modules, name, None)
    return str(request.param)


# real layouts


def test_a_news_article_without_what_is_around_it(parser: str) -> None:
    found = page("news")
    assert (found.title, found.author, found.site, found.date) == (
        "Harbour bridge reopens after four years",
        "Marta Lindqvist",
        "The Tidewater Courier",
        "2026-03-01",
    )
    assert "struck its southern pier in thick fog." in found.text
    assert "\n## What it cost\n" in found.text
    table = "| Part | Planned | Final |\n|---|---|---|\n| Foundations | 12 | 41 |\n| Steel and deck | 19 | 27 |\n"
    assert table in found.text
    assert "Cost of the repair in million crowns\n" in found.text
    for noise in ("cookies", "812 partners", "pageview", "display: block", "win a cruise", "Privacy", "Sport"):
        assert noise not in found.text


def test_trafilatura_leaves_out_what_is_only_near_the_article() -> None:
    text = page("news").text
    assert "Ten cafés" not in text
    assert "Share on social media" not in text


def test_a_blog_post_with_code_lists_and_comments(parser: str) -> None:
    found = page("blog")
    assert (found.title.partition(" — ")[0], found.date) == ("Counting words without a map", "2025-11-18")
    assert "```\ndef distinct(words):\n    seen = set()\n    for word in words:\n" in found.text
    assert "1. its size does not depend on the stream,\n2. two sketches can be merged,\n3. the answer" in found.text
    assert "**9 GB**" in found.text
    assert '`{"distinct": 48211}`' in found.text


def test_trafilatura_leaves_out_comments() -> None:
    assert "cheap watches" not in page("blog").text


def test_documentation_with_code_and_a_table(parser: str) -> None:
    found = page("docs")
    assert found.date == ""
    assert (
        '```\nimport ferry\n\nwith ferry.connect("ferry://localhost:7000") as link:\n    link.send(b"ahoy")\n```'
        in found.text
    )
    assert "| E101 | Fog | the harbour answered too late \\| or not at all |" in found.text
    assert "Quick search" not in found.text
    assert found.title == "connect() — Ferry 4.2 documentation"
    assert parser == "selectolax" or "¶" not in found.text


def test_where_the_comments_are_the_matter_they_are_kept() -> None:
    row = "<tr><td class=by>user{n}</td><td><div class=comment><p>Knot {n} holds best, since it does not slip under a "
    row += "load, and sailors have used it for centuries on all seas.</p></div></td></tr>"
    talk = "".join(row.format(n=n) for n in range(20))
    html = f"<html><body><table><tr><td>Ask: which knot?</td></tr></table><table>{talk}</table></body></html>"
    assert "Knot 7 holds best" in read("html", html, URL, links=False).text


def test_a_page_without_an_article_is_given_whole() -> None:
    html = """<html><head><title>Reversing</title></head><body><h1>How to reverse a list?</h1>
    <div class="question"><div class="s-prose js-post-body"><p>How do I reverse a list, without changing it?</p>
    <pre><code>a = [1, 2, 3]</code></pre></div><div class="user-info">asked by bob on the first of January</div></div>
    <div id="answers"><h2>1 Answer</h2><div class="answer"><div class="s-prose js-post-body"><p>Use slicing, which makes
    a new list:</p><pre><code>b = a[::-1]</code></pre><p>It takes linear time.</p></div>
    <div class="user-info">answered by alice</div></div></div></body></html>"""
    text = read("html", html, URL, links=False).text
    assert "# How to reverse a list?\n" in text
    assert "How do I reverse a list, without changing it?\n\n```\na = [1, 2, 3]\n```" in text
    assert "It takes linear time." in text


def test_a_table_that_only_puts_things_in_their_places_is_none(parser: str) -> None:
    html = f"""<HTML><TITLE>Verein</TITLE><BODY><TABLE WIDTH=100%><TR><TD><A HREF=i.htm>Start</A><BR><A HREF=t.htm>Dates
    </A></TD><TD><FONT SIZE=5><B>Summer feast 2003</B></FONT><P>It takes place on 14 June. {LONG}<P>There is music.<BR>
    It begins at six.<TABLE BORDER=1><TR><TD>14 h<TD>Opening<TR><TD>18 h<TD>Music</TABLE></TD></TR></TABLE>"""
    text = read("html", html, URL, links=False).text
    assert "**Summer feast 2003**\n" in text
    assert "\n\nThere is music.\n" in text
    assert text.endswith("\n\n| 14 h | Opening |\n|---|---|\n| 18 h | Music |")


def test_every_row_of_a_table_has_all_its_columns(parser: str) -> None:
    found = body(
        "<table><thead><tr><th rowspan=2>Team</th><th colspan=2>Goals</th><th rowspan=2>Points</th></tr>"
        "<tr><th>for</th><th>against</th></tr></thead><tbody><tr><td>Reds</td><td>10</td><td>3</td><td rowspan=2>9</td>"
        "</tr><tr><td>Blues</td><td></td><td>7</td></tr></tbody></table><p>The end.</p>"
    )
    assert (
        "| Team | Goals | Goals | Points |\n|---|---|---|---|\n| Team | for | against | Points |\n"
        "| Reds | 10 | 3 | 9 |\n| Blues |  | 7 | 9 |\n"
    ) in found.text


def test_a_cell_that_covers_too_much_covers_less(parser: str) -> None:
    started = time.monotonic()
    found = body(f"<table><tr><td rowspan=65534 colspan=9999>{LONG}</td><td>b</td></tr>{'<tr><td>x' * 2000}</table>")
    assert LONG[:300] in found.text
    assert found.text.count(LONG[:100]) < 60
    assert time.monotonic() - started < 3


def test_the_mobile_form_of_a_page_is_read_without_its_boxes(parser: str) -> None:
    boxes = "<amp-sidebar><ul><li>Menu</ul></amp-sidebar><amp-ad>Buy</amp-ad><amp-consent>Cookies</amp-consent>"
    html = f"<html amp><body>{boxes}<article><h1>Storm</h1><p>Two harbours are closed.</p></article></body></html>"
    assert read("html", html, URL, links=False).text == "# Storm\n\nTwo harbours are closed."


def test_numbers_above_the_line_and_formulas_keep_their_meaning() -> None:
    html = """<p>10<sup>-3</sup> m<sup>2</sup> of H<sub>2</sub>O, the 1<sup>st</sup> time.<sup><a>1</a></sup></p>
    <p>So <math><semantics><mi>E</mi><annotation encoding="application/x-tex">E=mc^2</annotation></semantics></math>
    and <math><mi>a</mi><mo>+</mo><mi>b</mi></math>.</p>"""
    assert read("html", html, URL, links=False).text == "10^-3 m^2 of H2O, the 1st time.[1]\n\nSo $E=mc^2$ and a+b."


def test_lines_that_look_like_marks_are_none() -> None:
    html = "<p># 1 in the charts</p><p>``` is a fence</p><li># one</li><pre># a comment</pre>"
    assert read("html", html, URL, links=False).text == (
        "\\# 1 in the charts\n\n\\``` is a fence\n\n- # one\n\n```\n# a comment\n```"
    )


def test_signs_of_wikis_are_left_out() -> None:
    html = "<div id=toc><h2>Contents</h2></div><h2>History<span class=mw-editsection>[edit]</span></h2>"
    found = body(f"<p>Known.<sup class=reference>[1]</sup> {LONG}</p>{html}<p>The end. {LONG}</p>")
    assert "Known. This" in found.text
    assert "## History\n\nThe end." in found.text
    assert "Contents" not in found.text


def test_a_list_of_downloads_keeps_its_table(parser: str) -> None:
    found = page("listing")
    assert found.date == "", "dates in a table are not that of the page"
    assert "# Downloads\n\n| Version | Released | Files |\n|---|---|---|\n| 4.2.1 | 2026-02-11 | source, wheel |" in (
        found.text
    )


def test_a_page_that_is_one_form_is_read(parser: str) -> None:
    html = "<html><body><form action=x><h1>Opening hours</h1><p>Monday to Friday</p><input><button>Go</button></form>"
    assert read("html", html, URL, links=False).text == "# Opening hours\n\nMonday to Friday"


def test_links_are_kept_when_wanted(parser: str) -> None:
    found = page("listing", links=True)
    assert "[source](https://ferry.example/dl/ferry-4.2.1.tar.gz)" in found.text
    assert "](https://ferry.example/docs/listen.html)" in page("docs", links=True).text
    assert "https://ferry.example" not in page("listing").text


def test_a_page_of_scripts_says_so(parser: str) -> None:
    found = page("app")
    assert (found.scripted, found.text) == (True, "")
    told = "<html><body><div id=app>Please enable JavaScript.</div><script src=a.js></script></body></html>"
    assert read("html", told, URL, links=False).scripted


@pytest.mark.parametrize(
    "box",
    [
        "<pre>{}</pre>",
        "<pre><code>{}</code></pre>",
        '<div class="wrap"><button>Copy</button><div class="inner"><pre>{}</pre></div></div>',
        "<figure><pre>{}</pre><figcaption>How it is done, in a caption longer than the code.</figcaption></figure>",
        "<table><tr><td><pre>1\n2</pre></td><td><pre>{}</pre></td></tr></table>",
        "<ul><li>So: <pre>{}</pre></li></ul>",
    ],
)
def test_code_is_kept_whatever_it_stands_in(box: str, parser: str) -> None:
    found = body(box.format("a = 1\n\nb = [a]*2") + f"<p>{LONG}</p>")
    assert "```\na = 1\n\nb = [a]*2\n```" in found.text


def test_code_has_no_buttons_and_its_variants_do_not_touch() -> None:
    found = body("<pre><button>Copy</button><code>require('a');</code><code>import 'a';</code></pre>")
    assert "```\nrequire('a');\nimport 'a';\n```" in found.text


def test_code_with_fences_gets_other_ones() -> None:
    assert "~~~~\n```sh\nls\n```\n~~~~" in body("<pre>```sh\nls\n```</pre>").text


def test_blank_lines_of_code_stay() -> None:
    found = body("<pre><code>import a\n\n\ndef f():\n    return 1 &lt; 2<br>\n</code></pre>")
    assert "```\nimport a\n\ndef f():\n    return 1 < 2\n" in found.text


# when it was published


@pytest.mark.parametrize(
    ("head", "content", "date"),
    [
        ('<meta name="date" content="2026-02-03">', "", "2026-02-03"),
        ('<meta itemprop="datePublished" content="20260203T10:00">', "", "2026-02-03"),
        ('<meta name="citation_publication_date" content="2026/02/03">', "", "2026-02-03"),
        ('<script type="application/ld+json">{"@graph":[{"datePublished": "2026-02-03"}]}</script>', "", "2026-02-03"),
        ("", '<time datetime="2026-02-03T23:30:00-08:00">today</time>', "2026-02-03"),
        ("", '<span class="post-date">3 February 2026</span>', "2026-02-03"),
        ("", "<p>It happened on 3 February 2026, © 2019.</p>", ""),
        ('<meta name="date" content="2026-13-45">', "", ""),
        ('<meta name="date" content="soon">', "", ""),
    ],
)
def test_the_date_is_that_of_publication(head: str, content: str, date: str) -> None:
    assert body(content, head=head).date == date


def test_the_date_may_stand_in_the_address() -> None:
    html = f"<html><body><p>{LONG}</p></body></html>"
    assert read("html", html, "https://news.example/2026/02/03/bridge", links=False).date == "2026-02-03"


# what a reader does not see


@pytest.mark.parametrize(
    "hidden",
    [
        '<p style="display: none">SECRET orders</p>',
        '<div style="color:red;visibility:hidden"><p>SECRET orders</p></div>',
        '<p style="font-size:0px">SECRET orders</p>',
        "<p hidden>SECRET orders</p>",
        "<!-- SECRET orders -->",
        "<template><p>SECRET orders</p></template>",
        "<script>SECRET orders</script>",
        "<p>\U000e0053\U000e0045\U000e0043</p>",
    ],
)
def test_what_a_reader_does_not_see_is_left_out(hidden: str, parser: str) -> None:
    found = body(f"{hidden}<p>The visible end of the text.</p>")
    assert found.text.endswith("The visible end of the text.")
    assert "SECRET" not in strip_invisible(found.text)
    assert not any(0xE0000 <= ord(char) <= 0xE007F for char in found.text)


def test_a_meta_refresh_is_told() -> None:
    html = '<html><head><meta http-equiv="Refresh" content="0; URL=\'/new/place\'"></head><body>moved</body></html>'
    assert read("html", html, URL, links=False).refresh == "https://ferry.example/new/place"
    slow = html.replace('content="0;', 'content="600;')
    assert read("html", slow, URL, links=False).refresh == ""
    assert read("html", html.replace("/new/place", "http://[bad"), URL, links=False).refresh == ""


# broken and hostile pages


@pytest.mark.parametrize(
    "html",
    [
        "",
        "   ",
        "<",
        "<html",
        "</p></div>",
        "<p>unclosed <b>bold <i>both",
        "<table><tr><td>a<td>b<tr><td>c",
        "<html><body><p>a\x00b\x0bc</p>",
        "<frameset><frame src=x></frameset>",
        "<?xml version='1.0' encoding='utf-16'?><html><body><p>x</p></body></html>",
        "<ul></ul></ul><li>x</li></table></td>",
    ],
)
def test_broken_html_is_read_as_far_as_it_goes(html: str, parser: str) -> None:
    assert len(read("html", html, URL, links=True).text) < 60


@pytest.mark.parametrize(
    "html",
    [
        "<html><body>" + "<div>" * 100_000 + "the deep text" + "</div>" * 100_000,
        "<html><body>" + "<b><font>" * 50_000 + "the deep text",
        "<html><body>" + "<table><tr><td>" * 30_000 + "the deep text",
        "<html><body>" + "<ul><li>item" * 50_000 + " the deep text",
        "<html><body><div " + " ".join(f"a{n}=1" for n in range(100_000)) + ">the deep text</div>",
    ],
    ids=["divs", "inline", "tables", "lists", "attributes"],
)
def test_what_would_keep_a_parser_for_long_is_stripped(html: str) -> None:
    started = time.monotonic()
    assert is_hostile(html)
    assert read("html", html, URL, links=False).text.endswith("the deep text")
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "html",
    ["<!--" * 200_000, "<p class='" * 100_000, "<script>" * 200_000, "<" * 500_000, "<p>" + "&amp;" * 200_000],
)
def test_stripping_takes_linear_time(html: str) -> None:
    started = time.monotonic()
    is_hostile(html)
    strip_tags(html)
    assert time.monotonic() - started < 3


def test_ordinary_pages_are_not_strange() -> None:
    assert not any(is_hostile(file.read_text("utf-8")) for file in PAGES.glob("*.html"))
    assert not is_hostile("<p>old<p>style<li>lists<br><td>cells" * 5000)
    assert not is_hostile("<!--" + "x" * 200_000 + "--><p>text</p>")


def test_stripped_text_has_lines_and_no_scripts() -> None:
    html = "<title>T</title><h1>Head</h1><p>a &lt; <b>b</b> 1 < 2</p><script>x < 3</script><!-- c --><p>end"
    assert tidy(strip_tags(html)) == "Head\n\na < b 1 < 2\n\nend"


# feeds


def test_an_rss_feed_becomes_a_list() -> None:
    feed = """<?xml version="1.0"?><rss version="2.0"><channel><title>Harbour news</title><link>https://h.example</link>
    <item><title>Bridge &amp; ferry</title><link>https://h.example/1</link>
      <pubDate>Sun, 01 Mar 2026 07:45:00 +0100</pubDate><description>&lt;p&gt;It &lt;b&gt;opens&lt;/b&gt;.&lt;/p&gt;
      </description></item><item><title>Older</title></item></channel></rss>"""
    found = read("feed", feed, URL, links=False)
    assert found.title == "Harbour news"
    assert found.text == "- Bridge & ferry (2026-03-01)\n  https://h.example/1\n  It opens .\n\n- Older"


def test_an_atom_feed_becomes_a_list() -> None:
    feed = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title><entry><title>First</title>
    <link href="https://n.example/1"/><updated>2026-03-02T10:00:00Z</updated>
    <published>2026-03-01T10:00:00Z</published><summary>About it</summary></entry></feed>"""
    found = read("feed", feed, URL, links=False)
    assert (found.title, found.text) == ("Notes", "- First (2026-03-01)\n  https://n.example/1\n  About it")


def test_a_feed_is_read_as_far_as_it_goes() -> None:
    items = "".join(f"<item><title>Item {n}</title></item>" for n in range(3))
    assert read("feed", f"<rss><channel><title>News</title>{items}<item><title>cut", URL, links=False) == Article(
        title="News", text="- Item 0\n\n- Item 1\n\n- Item 2"
    )
    endless = f"<rss><channel><title>News</title>{items * 500}"
    assert read("feed", endless, URL, links=False).text.count("- Item") == 200


def test_a_feed_that_is_no_xml_is_text() -> None:
    assert read("feed", "<rss><channel><title>a</title>text &nbsp; <b>x", URL, links=False).text == "text \xa0 x"


def test_a_bomb_of_entities_ends() -> None:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE rss [<!ENTITY e0 "ha">{levels}]><rss><channel><title>&e9;</title></channel></rss>'
    assert len(read("feed", bomb, URL, links=False).text) < 1000


# cleaning


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  a\n b\t c ", "a b c"),
        ("one two three four", "one two…"),
        ("abcdefghijklmnop", "abcdefghi…"),
        ("a\u202eb\u200bc\ufeff", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert one_line(text, 10) == line


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("a.html", "https://ferry.example/docs/a.html"),
        ("//other.example/x", "https://other.example/x"),
        ("#here", ""),
        ("javascript:alert(1)", ""),
        ("data:text/html,x", ""),
        ("http://[bad", ""),
        ("x" * 600, ""),
    ],
)
def test_links_lead_to_pages(target: str, found: str) -> None:
    assert link_target(target, URL) == found
