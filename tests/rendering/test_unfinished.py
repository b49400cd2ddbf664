"""The end of a text that is still written: what is about to be bold or a link, and code that is open."""

import pytest

from brain.rendering import blocks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One **two th", "<p>One <strong>two th</strong></p>"),
        ("One **two*", "<p>One <strong>two</strong></p>"),
        ("One *two*", "<p>One <em>two</em></p>"),
        ("One **two** *three*", "<p>One <strong>two</strong> <em>three</em></p>"),
        ("One **two**", "<p>One <strong>two</strong></p>"),
        ("**a *b* `c` d", "<p><strong>a <em>b</em> <code>c</code> d</strong></p>"),
        ("- one\n- **two", "<ul>\n<li>one</li>\n<li><strong>two</strong></li>\n</ul>"),
        ("~~a **b~~ c", "<p><s>a **b</s> c</p>"),
        ("One **", "<p>One </p>"),
        ("One ** two", "<p>One ** two</p>"),
        ("2**3 is", "<p>2**3 is</p>"),
        ("**kwargs\n\n", "<p>**kwargs</p>"),
        ("`**kwargs", "<p>`**kwargs</p>"),
        ("```\n**kwargs", "<pre><code>**kwargs</code></pre>"),
        ("See [the page](https://exam", "<p>See the page</p>"),
        ("See ![the page](https://exam", "<p>See the page</p>"),
        ("See [the page](", "<p>See the page</p>"),
        ("`x[0](https", "<p>`x[0](https</p>"),
        ("call f[0](https", "<p>call f[0](https</p>"),
    ],
)
def test_marks_at_the_end_are_what_they_are_about_to_be(text: str, expected: str) -> None:
    (block,) = blocks(text, still_open=True)
    assert block.html.strip() == expected
    assert block.end == len(text)


@pytest.mark.parametrize("text", ["**a", "See [the page](exam", "a **"])
def test_a_text_that_has_ended_is_what_was_written(text: str) -> None:
    (block,) = blocks(text)
    assert block.html == f"<p>{text}</p>\n"


@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("```", ""),
        ("```py", ""),
        ("```py\n", "```"),
        ("```py\r\na", "```"),
        ("```\na\n\n", "```"),
        ("words\n\n````\n```\n", "````"),
        ("~~~~\n```\na\n~~~\n", "~~~~"),
        ("```\na\n```", ""),
        ("```\n```\n", ""),
        ("```\na\n```\n\nwords", ""),
        ("> ```\n> a", ""),
        ("    a", ""),
    ],
)
def test_code_says_what_closes_it_as_long_as_it_is_open(text: str, fence: str) -> None:
    assert blocks(text, still_open=True)[-1].fence == fence
    assert blocks(text)[-1].fence == ""


@pytest.mark.parametrize("piece", ["**a ", "**a *", "*a **", "[a](b", "**"])
def test_the_end_takes_no_square_of_its_length(piece: str) -> None:
    (block,) = blocks(piece * 2_000, still_open=True)
    assert block.html.count("<strong>") < 3
