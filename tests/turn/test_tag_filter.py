"""Tags in the text of a model, however the text is cut."""

import pytest

from brain.turn.tag_filter import TagFilter, TaggedText

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
    ("<think>a</answer>b", [("think", "ab")]),
    ("<think>never closed\n<answer>B</answer>", [("think", "never closed\n"), ("answer", "B")]),
    ("<think>not closed. <answer>B</answer>C", [("think", "not closed. "), ("answer", "B"), ("", "C")]),
    ("<think>not closed. <answer>B", [("think", "not closed. "), ("answer", "B")]),
    ("<think>then <answer> comes</think><answer>B", [("think", "then <answer> comes"), ("answer", "B")]),
    ("<think><answer>B</think>C</answer>D", [("answer", "BC"), ("", "D")]),
    ("<answer><objective>A <final>B</final></answer>C", [("objective", "A "), ("final", "B"), ("", "C")]),
    ("<answer><objective>A\n<think>B", [("objective", "A\n"), ("think", "B")]),
    ("<think>a <answer> " + "b" * 2000, [("think", "a <answer> " + "b" * 2000)]),
    ("4 m. OVER", [("", "4 m. ")]),
    ("OVER! 4 m <OVER/>", [("", " 4 m ")]),
    ("OVER_4, LOVER, `OVER` and 'OVER'", [("", "OVER_4, LOVER, `OVER` and 'OVER'")]),
    ("<answer><final>4 m OVER.</final></answer>OVER", [("final", "4 m ")]),
    ("OVE", [("", "OVE")]),
    ("`" * 40 + "<think>a</think>", [("", "`" * 40 + "<think>a</think>")]),
    ("<div>html</div>", [("", "<div>html</div>")]),
    ("<" + "x" * 100 + ">", [("", "<" + "x" * 100 + ">")]),
    ("<<think>a</think>", [("", "<"), ("think", "a")]),
    ("< think >a</ think >", [("think", "a")]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_text_by_tag_however_it_is_cut(text: str, expected: list[tuple[str, str]]) -> None:
    for size in (*range(1, 80), 1000, 3000):
        reader = TagFilter(TAGS, signal="OVER")
        found: list[TaggedText] = []
        for part in [p for at in range(0, len(text), size) for p in reader.feed(text[at : at + size])] + reader.close():
            if found and found[-1].n == part.n:
                found[-1] = part._replace(text=found[-1].text + part.text)
            else:
                found.append(part)
        assert [(part.tag, part.text) for part in found] == expected, size


@pytest.mark.parametrize(
    ("text", "is_done"),
    [("</final>", False), ("</final></answer>" + "\n" * 291, False), ("</final></answer>" + "\n" * 292, True)],
)
def test_a_call_may_still_follow_the_last_tag(text: str, is_done: bool) -> None:
    for size in (1, 7, 1000):
        reader = TagFilter(TAGS, "final")
        whole = "<answer><final>4 m" + text
        parts = [part for at in range(0, len(whole), size) for part in reader.feed(whole[at : at + size])]
        assert ("".join(part.text for part in parts), reader.is_done) == ("4 m", is_done)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" and more</final>", ["4 m and more"]),
        ("\n<answer><final>5 m", ["4 m\n", "5 m"]),
        ("so <answer>", ["4 mso <answer>"]),
    ],
)
def test_after_a_call_the_text_continues_or_begins_again(text: str, expected: list[str]) -> None:
    for size in (1, 7, 1000):
        reader = TagFilter(TAGS, "final")
        found: dict[int, str] = {}
        parts = [*reader.feed("<answer><final>4 m"), *reader.close()]
        reader.resume()
        parts += [part for at in range(0, len(text), size) for part in reader.feed(text[at : at + size])]
        for part in [*parts, *reader.close()]:
            found[part.n] = found.get(part.n, "") + part.text
        assert list(found.values()) == expected, size
