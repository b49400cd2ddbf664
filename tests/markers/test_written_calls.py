"""Thousands of calls as models write them, and bodies that are not JSON."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from brain.events import MarkerSyntax
from brain.markers.scanner import PassEnd, Scanner
from brain.messages import Call

CORPUS = Path(__file__).parent.parent / "corpus"
MALFORMED = json.loads((CORPUS / "malformed.json").read_text("utf-8"))
WRITTEN = json.loads((CORPUS / "written.json").read_text("utf-8"))
ALL: tuple[MarkerSyntax, ...] = ("bracket", "function_call", "mention")
KEYS, TEXTS = WRITTEN["keys"], WRITTEN["texts"]
NUMBERS = (0, 1, -1, 10**6, 2**53, -(2**63), 10**30, 0.5, -0.25, 1e-7, 1.5e300, 3.141592653589793, 1e22, -0.0)
AFTER = {"": False, " \n\n": False, " Now then.": True, "\n[SPECIALIST_RESULT: web]": True, "`": True, "漢": True}
"""What follows a call, and whether it ends the pass."""


def value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(9 if depth < 4 else 6)
    if kind < 5:
        return dice.choice(TEXTS if kind < 3 else NUMBERS)
    if kind == 5:
        return dice.choice((None, True, False))
    if kind == 6:
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(KEYS): value(dice, depth + 1) for _ in range(dice.randrange(4))}


def params(dice: random.Random) -> dict[str, Any]:
    return {dice.choice(KEYS): value(dice) for _ in range(dice.randrange(5))}


def encode(dice: random.Random, body: Any) -> str:
    separators = dice.choice((None, (",", ":"), (" , ", " : ")))
    is_ascii = dice.random() < 0.5
    return json.dumps(body, ensure_ascii=is_ascii, indent=dice.choice((None, 2, "\t")), separators=separators)


def bracket(dice: random.Random, name: str) -> tuple[str, Any]:
    body = encode(dice, params(dice))
    return f"SPECIALIST_REQUEST[{name}{dice.choice((':', ': ', ' :' + chr(10)))}{body}]", json.loads(body)


def function_call(dice: random.Random, name: str) -> tuple[str, Any]:
    tag, key = dice.choice(("function_call", "tool_call")), dice.choice(("args", "arguments", "parameters"))
    args = params(dice)
    written = encode(dice, args) if dice.random() < 0.2 else args
    body = encode(dice, {"name": name, "call_objective": dice.choice(TEXTS), key: written})
    white = dice.choice(("", "\n", " "))
    return f"<{tag}>{white}{body}{white}</{tag}>", json.loads(json.dumps(args))


def mention(dice: random.Random, name: str) -> tuple[str, Any]:
    keys = dice.sample(("query", "max_results", "a-b", "start_time"), dice.randrange(4))
    args = {key: dice.choice((*TEXTS, *NUMBERS, True, None)) for key in keys}
    body = ", ".join(f"{key}={json.dumps(item)}" for key, item in args.items())
    return f"@{name}_specialist({body})", json.loads(json.dumps(args))


def scans(dice: random.Random, text: str) -> list[tuple[str, list[Call], bool]]:
    """Return text, calls and end of the pass: for the whole text, for single characters, for random pieces."""
    places = sorted(dice.choices(range(len(text)), k=len(text) // 6))
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    results = []
    for chunks in ([text], [*text], pieces):
        scanner = Scanner(ALL)
        found = [piece for chunk in chunks for piece in scanner.feed(chunk)] + [*scanner.close()]
        calls = [piece for piece in found if isinstance(piece, Call)]
        shown = "".join(piece for piece in found if isinstance(piece, str))
        results.append((shown, calls, any(isinstance(piece, PassEnd) for piece in found)))
    return results


@pytest.mark.parametrize("write", [bracket, function_call, mention])
def test_a_call_with_text_around_it(write: Any) -> None:
    for seed in range(1_000):
        dice = random.Random(seed)
        name = dice.choice(WRITTEN["names"])
        marker, expected = write(dice, name)
        before, after = dice.choice(WRITTEN["before"]), dice.choice([*AFTER])
        for result in scans(dice, before + marker + after):
            assert result == (before, [Call(name, marker, expected)], AFTER[after])


def test_adjacent_calls() -> None:
    for seed in range(300):
        dice = random.Random(seed)
        written = [dice.choice((bracket, function_call, mention))(dice, dice.choice(WRITTEN["names"])) for _ in "1234"]
        text = "So: " + dice.choice(("", " ", "\n\n")).join(marker for marker, _ in written)
        for shown, calls, _ in scans(dice, text):
            assert (shown, [(call.marker, call.params) for call in calls]) == ("So: ", written)


@pytest.mark.parametrize("malformed", MALFORMED["malformed"])
def test_a_malformed_body_is_one_failed_call_and_never_shown(malformed: str) -> None:
    for text in (
        f"So: SPECIALIST_REQUEST[web:{malformed}]",
        f"So: SPECIALIST_REQUEST[web: {malformed} ] and on it goes.",
        f'So: <function_call>{{"name":"web","args":{malformed}}}</function_call> and on.',
    ):
        for shown, calls, _ in scans(random.Random(text), text):
            assert (shown, [(call.name, call.params, call.code) for call in calls]) == (
                "So: ",
                [("web", None, "malformed")],
            )


@pytest.mark.parametrize(("body", "expected"), MALFORMED["repaired"])
@pytest.mark.parametrize("fence", ["", "```", "\n```json\n"])
def test_a_function_call_repairs_what_a_bracket_call_does_not(body: str, expected: Any, fence: str) -> None:
    args = body if body.startswith("{") else f"\n{body}"
    whole = f'{fence}{{"name":"web", // whom to ask\n\'args\':{args}, }}\n{fence and "```"}'
    marker, strict = f"<function_call>{whole}</function_call>", f"SPECIALIST_REQUEST[web:{body}]"
    for shown, calls, has_ended in scans(random.Random(body), f"So: {marker} and on."):
        assert (shown, calls, has_ended) == ("So: ", [Call("web", marker, expected)], True)
    for shown, calls, _ in scans(random.Random(body), f"So: {strict}"):
        assert (shown, [(call.name, call.code) for call in calls]) == ("So: ", [("web", "malformed")])


@pytest.mark.parametrize("text", ["```json\n", "`{}", "```", "```python\nx", "\n```json"])
def test_a_tag_before_a_fence_without_an_object_is_text(text: str) -> None:
    for shown, calls, _ in scans(random.Random(text), f"So: <function_call>{text}"):
        assert (shown, calls) == (f"So: <function_call>{text}", [])
