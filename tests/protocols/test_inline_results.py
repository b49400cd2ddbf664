"""Text for clients without events for specialists, and for calls that wait for a person."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from brain import events as ev
from brain.prompts.blocks import error_block, result_block
from brain.protocols.encoding import InlineText
from brain.settings import ShowResults

URL = "http://127.0.0.1:8000/v1/turns/t1"
FAILED = ev.SpecialistError("c1", "web", {}, "timeout", "it took longer than 5 s", ms=5000)
LATER = datetime(2026, 11, 21, 10, 5, tzinfo=UTC)


def found(text: str = "It is sunny.", *citations: ev.Citation) -> ev.SpecialistResult:
    return ev.SpecialistResult("c1", "web", {"query": "weather"}, text, citations, cached=False, ms=9)


def written(event: ev.Event, show: ShowResults = "details", *, keyed: bool = False) -> str:
    return InlineText(show, URL, has_keys=keyed)(event)


def approval_text(params: Any = None) -> str:
    return written(ev.ApprovalRequired("c2", "calendar", params or {}, LATER), "hidden")


def test_results_are_hidden_and_other_events_are_not_shown() -> None:
    assert [written(event, "hidden") for event in (found(), FAILED)] == ["", ""]
    for show in get_args(ShowResults):
        assert written(ev.Token("text"), show) == written(ev.SpecialistStart("c1", "web", {}, "model"), show) == ""


def test_results_as_the_model_reads_them() -> None:
    assert written(found(), "block") == "\n\n[SPECIALIST_RESULT: web]\nIt is sunny.\n[/SPECIALIST_RESULT]\n\n"
    assert written(FAILED, "block") == "\n\n[SPECIALIST_ERROR: web failed - it took longer than 5 s]\n\n"
    assert written(found(), "block").strip() == result_block("web", "It is sunny.")
    assert written(FAILED, "block").strip() == error_block("web", "it took longer than 5 s")


def test_results_that_unfold() -> None:
    citations = [
        ev.Citation("1", "Paris (city) & [co]", "https://example.org/a_(b)?q=x y&z=<i>#é"),
        ev.Citation("2", "A file\nof mine"),
        ev.Citation("3", "<b>*bold*</b>", "javascript:alert(1)"),
    ]
    assert written(found("It is sunny.", *citations)) == (
        "\n\n<details>\n<summary>web</summary>\n\n```text\nIt is sunny.\n```\n\n"
        "- [Paris &#40;city&#41; &#38; &#91;co&#93;](https://example.org/a_%28b%29?q=x%20y&z=%3Ci%3E#%C3%A9)\n"
        "- A file of mine\n"
        "- &#60;b&#62;&#42;bold&#42;&#60;/b&#62;\n\n</details>\n\n"
    )
    assert written(FAILED) == (
        "\n\n<details>\n<summary>web failed</summary>\n\n```text\nit took longer than 5 s\n```\n\n</details>\n\n"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a </details> b", "```text\na ＜/details> b\n```"),
        ("<script>alert(1)</script>", "```text\n＜script>alert(1)＜/script>\n```"),
        ("<!-- x --> <?php ?>", "```text\n＜!-- x --> ＜?php ?>\n```"),
        ("if a < b && c <= d", "```text\nif a < b && c <= d\n```"),
        ("```\n</details>\n```", "````text\n```\n＜/details>\n```\n````"),
        ("`````", "``````text\n`````\n``````"),
    ],
)
def test_no_result_closes_what_it_stands_in(text: str, shown: str) -> None:
    assert written(found(text)) == f"\n\n<details>\n<summary>web</summary>\n\n{shown}\n\n</details>\n\n"


COMMAND = (
    "curl -X POST http://127.0.0.1:8000/v1/turns/t1/approvals/c2 "
    """-H 'Content-Type: application/json' -d '{"approve": true}'"""
)


def test_the_command_that_approves_a_call() -> None:
    event = ev.ApprovalRequired("c2", "calendar", {"title": "Lunch", "tags": ["a"]}, LATER)
    (shown,) = {written(event, show) for show in ("hidden", "block", "details")}
    assert (shown[:2], shown[-2:], "10:05:00 UTC" in shown) == ("\n\n", "\n\n", True)
    assert shown.split("`")[1::2] == ['{"title":"Lunch","tags":["a"]}', COMMAND]
    key = "/approvals/c2 -H 'Authorization: Bearer YOUR_KEY' -H 'Content-Type"
    assert key in written(event, keyed=True)


def test_parameters_cannot_look_like_anything_else() -> None:
    assert """with `` {"a":"x` y\\n\\n# z"} `` needs""" in approval_text({"a": "x` y\n\n# z"})
    assert r"""with `{"a":"\u003cb> < 1"}` needs""" in approval_text({"a": "<b> < 1"})


def test_invisible_characters_are_shown() -> None:
    shown = approval_text({"a\u200b": "x\u202egpj.exe\u2066\u00a0é\u007f"})
    assert r"""with `{"a\u{200b}":"x\u{202e}gpj.exe\u{2066}\u{a0}é\u{7f}"}` needs""" in shown


def test_a_person_sees_all_parameters() -> None:
    params = {"body": "x" * 16_000, "to": ["eve@example.org"]}
    assert f"""`{{"body":"{"x" * 16_000}","to":["eve@example.org"]}}`""" in approval_text(params)


def test_a_preview_cannot_look_like_anything_else() -> None:
    event = ev.ApprovalRequired("c2", "mail", {}, LATER, "Send `x`\n\n# <b>Approved</b>")
    assert "`` Send `x` # ＜b>Approved＜/b> ``. The call of mail" in written(event, "hidden")
