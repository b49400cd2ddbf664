"""Calls in the text of a step: literals only, never evaluated."""

from typing import Any

import pytest

from brain.strategies.step import AnswerLines, ParsedCall, find_call

NAMES = ("wiki", "add", "ready")
CASES: list[tuple[str, ParsedCall | None]] = [
    ('wiki(query="Rome")', ParsedCall("wiki", {"query": "Rome"})),
    ("I would use `wiki(query='It\\'s', limit=3)` here.", ParsedCall("wiki", {"query": "It's", "limit": 3})),
    ("add(a=1.5, b=-2, c=true, d=None, e=[1, {\"x\": 2}])",
     ParsedCall("add", {"a": 1.5, "b": -2, "c": True, "d": None, "e": [1, {"x": 2}]})),
    ("wiki(Eiffel Tower)", ParsedCall("wiki", {}, ("Eiffel Tower",))),
    ('wiki("a, b", 2)', ParsedCall("wiki", {}, ("a, b", 2))),
    ("wiki (query: Rome)", ParsedCall("wiki", {"query": "Rome"})),
    ("ready()", ParsedCall("ready", {})),
    ("add(a=1+1)", ParsedCall("add", {"a": "1+1"})),
    ("add(a=__import__('os').system('x'))", ParsedCall("add", None)),
    ("add(a=(1", ParsedCall("add", None)),
    ("add(a=[1)", ParsedCall("add", None)),
    ('add(a={"b": 1)', ParsedCall("add", None)),
    ("add(a='b)", ParsedCall("add", None)),
    ("add(a=b [1)", ParsedCall("add", None)),
    ('wiki(say "a, b")', ParsedCall("wiki", None)),
    ("add(a=1, a=2)", ParsedCall("add", None)),
    ("add(a=NaN)", ParsedCall("add", {"a": "NaN"})),
    ("nobody(x=1)", ParsedCall("nobody", {})),
    ("It is 24.7 kg/m² (rounded).", None),
    ("The function f(x) is known.", None),
    ("wiki.add_all(1)", None),
    ("", None),
    ("add(" + "[" * 3000, ParsedCall("add", None)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_calls_are_read_as_literals(text: str, expected: Any) -> None:
    found = find_call(text, NAMES, is_end=True)
    assert found == expected
    complete = expected is not None and expected.name in NAMES and expected.params is not None
    assert find_call(text, NAMES) == (expected if complete else None)
    if complete:  # the end of the call is not seen before it is there
        assert find_call(text[: text.rindex(")")], NAMES) is None


def test_a_line_of_signs_is_not_held_back_for_ever() -> None:
    assert AnswerLines(NAMES).feed("*" * 1_001) == [("answer", "*" * 1_001)]


@pytest.mark.parametrize("size", [1, 2, 99])
def test_a_line_that_is_a_call_is_dropped_with_its_whole_end(size: int) -> None:
    lines, text = AnswerLines(NAMES), "Rome\r\n\rready()\r\nis old."
    shown = [one for at in range(0, len(text), size) for one in lines.feed(text[at : at + size])] + lines.close()
    assert "".join(piece for _, piece in shown) == "Rome\r\nis old."
