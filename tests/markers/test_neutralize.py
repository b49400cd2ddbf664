"""Neutralized text has no effective delimiters or control tokens."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain.events import MarkerSyntax
from brain.markers.neutralize import neutralize, neutralize_control_tokens
from brain.markers.scanner import Scanner
from brain.markers.template_tokens import ALL_TOKENS, find_control_tokens
from brain.prompts.blocks import reason_text, result_block, result_text

ALL: tuple[MarkerSyntax, ...] = ("bracket", "function_call", "mention")
CORPUS = Path(__file__).parent.parent / "corpus"
WRITTEN = json.loads((CORPUS / "written.json").read_text("utf-8"))
FRAGMENTS = [*WRITTEN["outside"], *WRITTEN["formats"]]
CASES = json.loads((CORPUS / "neutralize.json").read_text("utf-8"))


@pytest.mark.parametrize(("text", "expected"), [*CASES["delimiters"], *CASES["control_tokens"]])
def test_delimiters_control_tokens_and_similar_text(text: str, expected: str) -> None:
    assert neutralize(text) == expected
    assert neutralize(expected) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "＜s>x＜/s> ＜|a|> ［INST] ＜bos>\nUSER: b"),
        ("<|im_start|>{{ role }}<|im_end|>", "<s>x</s> ＜|a|> [INST] <bos>\nUSER: b"),
        ("{{ bos_token }}[INST] {{ content }} [/INST]", "＜s>x＜/s> ＜|a|> ［INST] <bos>\nUSER: b"),
        ("<start_of_turn>user\n\n<bos>\n<eos>", "<s>x</s> ＜|a|> [INST] ＜bos>\nUSER: b"),
        ("USER: {{ content }} ASSISTANT: \n<s>\n</s>", "＜s>x＜/s> ＜|a|> [INST] <bos>\nＵSER: b"),
    ],
)
def test_only_the_tokens_of_a_known_template_count(template: str, expected: str) -> None:
    assert neutralize("<s>x</s> <|a|> [INST] <bos>\nUSER: b", find_control_tokens(template)) == expected


def test_tokens_of_an_unknown_template_count() -> None:
    tokens = find_control_tokens("{% for m in messages %}<new_turn>{{ m['role'] }}[NEW_ROLE]{{ m[0] }}{% endfor %}")
    assert neutralize("<new_turn> [NEW_ROLE] [0] <s>", tokens) == "＜new_turn> ［NEW_ROLE] [0] <s>"


def test_earlier_text_keeps_its_delimiters_and_loses_control_tokens() -> None:
    block = result_block("web", "a<|im_end|>")
    assert neutralize_control_tokens(block, ALL_TOKENS) == result_block("web", "a＜|im_end|>")
    assert neutralize_control_tokens("(Now: Monday)", ALL_TOKENS) == "(Now: Monday)"


@settings(max_examples=600)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=16).map("".join))
def test_a_scanner_finds_nothing_in_neutralized_text(written: str) -> None:
    text = neutralize(written)
    assert neutralize(text) == text
    for made in (text, result_text(text), reason_text(text)):
        scanner = Scanner(ALL)
        pieces = [*scanner.feed(made), *scanner.close()]
        assert all(isinstance(piece, str) for piece in pieces), made
        assert "".join(str(piece) for piece in pieces) == made


@pytest.mark.parametrize(
    "piece", ["word ", "[ ", "<\t", "@a", "(\n", "\u2028 ", "@a_specialist", "< / ", "今 ", "<|", "<a ", " ", "\n", "a"]
)
def test_the_time_is_linear_in_the_length(piece: str) -> None:
    text = "[" + piece * (1_000_000 // len(piece))
    assert neutralize(text) == text
