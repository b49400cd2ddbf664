"""Words of the page for what failed: one for each code, and the same as in the terminal."""

import re
from typing import get_args

from brain.cli.terminal.messages import FAILURES, OUTCOMES
from brain.events import CallCode, ErrorCode
from page.test_sources import ENGLISH, PAGE, TEXTS

SAID_BY_THEMSELVES = {"refused"}
"""Their reasons are for people."""
NO_FAILURE = {"declined", "cancelled"}
"""The card says them in a word."""
WORD = re.compile(r'^  (\w+): "(.*)",$', re.MULTILINE)
ENTRY = re.compile(r'\b(\w+): "(\w+)"')
ENGLISH_WORDS = dict(WORD.findall(TEXTS[ENGLISH]))


def entries(name: str, constant: str) -> dict[str, str]:
    """The codes that a script has words for, and the words."""
    body = TEXTS[PAGE / "scripts" / name].partition(f"const {constant} = {{")[2].partition("}")[0]
    return {code: ENGLISH_WORDS[text] for code, text in ENTRY.findall(body)}


def test_every_failure_of_a_call_has_words() -> None:
    words = entries("answer/failures.js", "WORDS")
    assert set(words) == set(get_args(CallCode)) - SAID_BY_THEMSELVES - NO_FAILURE
    assert words | {"timeout": ""} == {code: told for code, told in FAILURES.items() if code in words} | {"timeout": ""}
    assert set(ENGLISH_WORDS) >= NO_FAILURE


def test_every_end_of_an_answer_that_failed_has_words() -> None:
    words = entries("base/stored_conversation.js", "FAILURES") | {"internal": ENGLISH_WORDS["internal"]}
    assert words == {code: OUTCOMES[code] for code in (*get_args(ErrorCode), "interrupted")}
