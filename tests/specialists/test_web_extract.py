"""What `web` makes of pages: the article without what is around it, its facts and its date; and feeds."""

import sys
from pathlib import Path

import pytest

from specialists._web.extract import Article, read

PAGES = Path(__file__).parent / "pages"
URL = "https://ferry.example/docs/page.html"
LONG = "This sentence makes the page long enough to be taken for an article, which it is. " * 5


def page(name: str, *, links: bool = False) -> Article:
    return read("html", (PAGES / f"{name}.html").read_text("utf-8"), URL, links=links)


def body(content: str, *, head: str = "") -> Article:
    html = f"<!doctype html><html><head>{head}</head><body><article><p>{LONG}</p>{content}</article></body></html>"
    return read("html", html, URL, links=False)


@pytest.fixture(params=["trafilatura", "selectolax"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With trafilatura, and as in an installation without the extra."""
    if request.param == "selectolax":
        for name in ("trafilatura", "htmldate"):
            monkeypatch.setitem(sys.modules, name, None)
    return str(request.param)


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
    assert "Cost of the repair in million crowns\n\n| Part | Planned | Final |\n|---|---|---|\n| Found" in found.text
    noise = ["cookies", "812 partners", "pageview", "display: block", "win a cruise", "Privacy", "Sport"]
    noise += ["Ten cafés", "Share on social media"] if parser == "trafilatura" else []
    assert [one for one in noise if one in found.text] == []


def test_a_blog_post_with_code_and_lists(parser: str) -> None:
    found = page("blog")
    assert (found.title.partition(" — ")[0], found.date) == ("Counting words without a map", "2025-11-18")
    assert "```\ndef distinct(words):\n    seen = set()\n    for word in words:\n" in found.text
    assert "1. its size does not depend on the stream,\n2. two sketches can be merged,\n3. the answer" in found.text
    assert "**9 GB** on my machine" in found.text
    assert '`{"distinct": 48211}`' in found.text
    assert "> An approximate answer" in found.text
    assert ("cheap watches" in found.text) is (parser == "selectolax"), "comments"


def test_documentation_with_code_and_a_table(parser: str) -> None:
    found = page("docs", links=True)
    assert (found.title, found.date) == ("connect() — Ferry 4.2 documentation", "")
    assert '```\nimport ferry\n\nwith ferry.connect("ferry://localhost:7000") as link:\n    link.send' in found.text
    assert "| E101 | Fog | the harbour answered too late \\| or not at all |" in found.text
    assert "](https://ferry.example/docs/listen.html)" in found.text
    assert "Quick search" not in found.text


def test_a_list_of_downloads_keeps_its_table(parser: str) -> None:
    found = page("listing")
    assert found.date == "", "dates in a table are not that of the page"
    assert "# Downloads\n\n| Version | Released | Files |\n|---|---|---|\n| 4.2.1 | 2026-02-11 | source, wheel |" in (
        found.text
    )
    assert "[source](https://ferry.example/dl/ferry-4.2.1.tar.gz)" in page("listing", links=True).text


@pytest.mark.parametrize("name", ["news", "blog", "docs", "listing"])
def test_what_is_picked_stands_on_the_page_in_its_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picked = page(name).text.split("\n\n")
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    rest = iter(page(name).text.split("\n\n"))
    assert all(block in rest for block in picked)


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
    assert text.startswith("# How to reverse a list?\n\nHow do I reverse a list, without changing it?\n\n```\na = [1,")
    assert "It takes linear time." in text


def test_a_page_that_is_laid_out_by_a_table_is_read(parser: str) -> None:
    html = f"""<HTML><TITLE>Verein</TITLE><BODY><TABLE WIDTH=100%><TR><TD><A HREF=i.htm>Start</A><BR><A HREF=t.htm>Dates
    </A></TD><TD><FONT SIZE=5><B>Summer feast 2003</B></FONT><P>It takes place on 14 June. {LONG}<P>There is music.<BR>
    It begins at six.<TABLE BORDER=1><TR><TD>14 h<TD>Opening<TR><TD>18 h<TD>Music</TABLE></TD></TR></TABLE>"""
    text = read("html", html, URL, links=False).text
    assert "**Summer feast 2003**\n\nIt takes place" in text
    end = "\n\nThere is music.\nIt begins at six.\n\n| 14 h | Opening |\n|---|---|\n| 18 h | Music |"
    assert text.endswith(end)


@pytest.mark.parametrize(
    "box",
    [
        "<pre><code>{}</code></pre>",
        '<div class="wrap"><button>Copy</button><div class="inner"><pre>{}</pre></div></div>',
        "<figure><pre>{}</pre><figcaption>How it is done, in a caption longer than the code.</figcaption></figure>",
        "<table><tr><td><pre>1\n2</pre></td><td><pre>{}</pre></td></tr></table>",
        "<ul><li>So: <pre>{}</pre></li></ul>",
    ],
)
@pytest.mark.parametrize("after", ["", f"<p>{LONG}</p>"])
def test_code_is_kept_whatever_it_stands_in(box: str, after: str, parser: str) -> None:
    found = body(box.format("a = 1\n\nb = [a]*2") + after)
    assert "```\na = 1\n\nb = [a]*2\n```" in found.text


def test_formulas_and_footnotes_of_an_article_are_kept(parser: str) -> None:
    found = body(f"<p>So <math alttext='E=mc^2'><mi>E</mi></math> holds.<sup><a href=#n>1</a></sup> {LONG}</p>")
    assert "So $E=mc^2$ holds.[1] This" in found.text


def test_a_page_of_scripts_says_so(parser: str) -> None:
    found = page("app")
    assert (found.scripted, found.text) == (True, "")
    html = "<html><body><div id=app>Please enable JavaScript.</div><script src=a.js></script></body></html>"
    assert read("html", html, URL, links=False).scripted


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


def test_the_date_may_stand_in_the_url() -> None:
    html = f"<html><body><p>{LONG}</p></body></html>"
    assert read("html", html, "https://news.example/2026/02/03/bridge", links=False).date == "2026-02-03"


@pytest.mark.parametrize(
    ("content", "refresh"),
    [
        ("0; URL='/new/place'", "https://ferry.example/new/place"),
        ("600; URL='/new/place'", ""),
        ("0; URL='http://[bad'", ""),
    ],
)
def test_a_page_may_send_its_reader_on(content: str, refresh: str) -> None:
    html = f'<html><head><meta http-equiv="Refresh" content="{content}"></head><body>moved</body></html>'
    assert read("html", html, URL, links=False).refresh == refresh


BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("feed", "title", "text"),
    [
        (
            '<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><item>'
            "<title>Bridge &amp; ferry</title><link>https://h.example/1</link>"
            "<pubDate>Sun, 01 Mar 2026 07:45:00 +0100</pubDate><description>"
            "&lt;p&gt;It &lt;b&gt;opens&lt;/b&gt;&lt;/p&gt;</description></item><item><title>Older</title></item>"
            "</channel></rss>",
            "News",
            "- Bridge & ferry (2026-03-01)\n  https://h.example/1\n  It opens\n\n- Older",
        ),
        (
            '<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title><entry><title>First</title>'
            '<link href="https://n.example/1"/><published>2026-03-01T10:00:00Z</published><summary>About it</summary>'
            "</entry></feed>",
            "Notes",
            "- First (2026-03-01)\n  https://n.example/1\n  About it",
        ),
        ("<rss><channel><title>News</title><item><title>One</title></item><item><title>cut", "News", "- One"),
        ("<rss><channel><title>a</title>text &nbsp; <b>x", "", "text \xa0 x"),
        (
            f'<!DOCTYPE rss [<!ENTITY e0 "ha">{BOMB}]><rss><channel><title>&e9;</title></channel></rss>',
            "",
            "]>",
        ),
    ],
    ids=["rss", "atom", "cut off", "no xml", "bomb"],
)
def test_a_feed_becomes_a_list(feed: str, title: str, text: str) -> None:
    found = read("feed", feed, URL, links=False)
    assert (found.title, found.text) == (title, text)


def test_a_feed_has_a_bounded_number_of_items() -> None:
    feed = f"<rss><channel><title>News</title>{'<item><title>Item</title></item>' * 1500}"
    assert read("feed", feed, URL, links=False).text.count("- Item") == 200
