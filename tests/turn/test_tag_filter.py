"""Tags in the text of a model, however the text is cut."""

import pytest

from brain.turn.tag_filter import Part, TagFilter

TAGS = {"": ("think", "answer"), "answer": ("objective", "final")}

CASES: list[tuple[str, list[tuple[str, str]]]] = [
    ("plain", [("", "plain")]),
    ("<think>Hm.</think>Yes.", [("think", "Hm."), ("", "Yes.")]),
    ("<answer><objective>A</objective><final>B</final></answer>", [("objective", "A"), ("final", "B")]),
    ("<final>not here</final>", [("", "<final>not here</final>")]),
    ("<think>then <answer> comes</think>", [("think", "then <answer> comes")]),
    ("<think>never closed", [("think", "never closed")]),
    ("<answer><final>cut", [("final", "cut")]),
    ("a < b and c > d", [("", "a < b and c > d")]),
    ("1 <2, <thin", [("", "1 <2, <thin")]),
    ("`<think>` is a tag", [("", "`<think>` is a tag")]),
    ("``a ` <think>`` b", [("", "``a ` <think>`` b")]),
    ("one ` tick\n<think>x</think>", [("", "one ` tick\n"), ("think", "x")]),
    ("<answer><final>```\n</final>\n```\nend</final></answer>", [("final", "```\n</final>\n```\nend")]),
    ("<answer><final>```` \n```\n</final>\n````\nend</final></answer>", [("final", "```` \n```\n</final>\n````\nend")]),
    ('<think>I write "</think>" soon</think>ok', [("think", 'I write "</think>" soon'), ("", "ok")]),
    ('<think>He said "no"</think>ok', [("think", 'He said "no"'), ("", "ok")]),
    ("</think>stray", [("", "stray")]),
    ("</div>stray", [("", "</div>stray")]),
    ("<answer><final>B</answer>C", [("final", "B"), ("", "C")]),
    ("<think>a</answer>b", [("think", "a</answer>b")]),
    ("`" * 40 + "<think>a</think>", [("", "`" * 40 + "<think>a</think>")]),
    ("<div>html</div>", [("", "<div>html</div>")]),
    ("<" + "x" * 100 + ">", [("", "<" + "x" * 100 + ">")]),
    ("<<think>a</think>", [("", "<"), ("think", "a")]),
    ("< think >a</ think >", [("think", "a")]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_text_by_tag_however_it_is_cut(text: str, expected: list[tuple[str, str]]) -> None:
    for size in range(1, len(text) + 2):
        reader = TagFilter(TAGS)
        found: list[Part] = []
        for part in [p for at in range(0, len(text), size) for p in reader.feed(text[at : at + size])] + reader.close():
            if found and found[-1].tag == part.tag:
                found[-1] = Part(part.tag, found[-1].text + part.text)
            else:
                found.append(part)
        assert found == [Part(*one) for one in expected], size
