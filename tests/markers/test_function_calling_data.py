"""Calls as models write them, by the thousand, and bodies that are no JSON."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from brain.events import SyntaxName
from brain.markers.scanner import Piece, Scanner, Stop
from brain.messages import Call

MALFORMED = json.loads((Path(__file__).parent.parent / "corpus" / "malformed.json").read_text("utf-8"))
ALL: tuple[SyntaxName, ...] = ("bracket", "function_call", "mention")

NAMES = ("web", "web-search", "get_weather", "Wiki2", "calendar_create_event", "a", "sql-query_v2", "x" * 64)
KEYS = ("query", "q", "max_results", "start time", "日付", "", "key.with.dots", "$ref", "a-b", "naïve", '"', "\\", "]")
TEXTS = (
    *(
        "",
        "weather in Paris",
        "it's 5 o'clock",
        'she said "hi"',
        "C:\\Users\\me\\",
        "\\\\server\\share",
        "\\",
        '"',
        '\\"',
    ),
    *(
        "def f(x: list[int]) -> dict[str, int]:\n    return {x[0]: 1}  # ]",
        'print("}]")',
        "SELECT * FROM t WHERE a = ']'",
    ),
    *("https://example.org/?a[]=1&b={2}#c", "mailto:a@b.example?subject=[x]", "//cdn.example/x;y=(1)"),
    *('<div class="a">[x] &amp; {y}</div>', "<!-- </function_call> -->", "<think>no</think>", "</tool_call>"),
    *(r"^\[(?:[^\]\\]|\\.)*\]$", r"(?<=\{)[^}]*(?=\})", r"\d{1,3}(?:,\d{3})*", "[[:alpha:]]+"),
    *('{"a": [1, {"b": "]"}]}', '[["x", "]"], {"y": "}"}]', '"{\\"deep\\": \\"]\\"}"'),
    *(
        "# Title\n\n- [ ] todo\n- [x] done\n\n| a | b |\n|---|---|\n",
        "```json\n{}\n```",
        "**bold** [link](url)",
        "`code`",
    ),
    *(
        "東京の天気は？",
        "Füße, señor, čaj",
        "مرحبا",
        "👩‍👩‍👧‍👦🏳️‍🌈",
        "e\u0301\u0302",
        "a\u2028b\u2029c\u0085d",
        "\u200b\ufeff",
    ),
    *("tab\there", "line\nbreak\r\n", "\x00\x01\x1f\x7f", "\b\f", "SPECIALIST_REQUEST[b:{}]", "[SPECIALIST_RESULT: b]"),
    *(
        "[/SPECIALIST_RESULT]",
        "@b_specialist(x=1)",
        "SPECIALIST_REQUEST[",
        "word " * 200,
        "]" * 50,
        "}" * 50,
        "\\n" * 20,
    ),
)
NUMBERS = (
    *(0, -0, 1, -1, 7, 10**6, 2**31, 2**53, -(2**63), 10**30, 0.5, -0.25, 1e-7, 1.5e300, 3.141592653589793, 1e22, -0.0),
)
SENTENCES = (
    *(
        "",
        "Let me look that up.\n\n",
        "Sure! ",
        "1. First, [as said], I ask: ",
        "Ich schaue nach … ",
        "調べます。",
        "> quote\n",
    ),
    *(
        "Use f(x) = {x | x > 0} <b>now</b>: ",
        "S",
        "SPECIALIST_",
        "mail@example.org said ",
        "`SPECIALIST_REQUEST[...]` it is: ",
    ),
    *("👩‍🚀 ", "| a | b |\n|---|---|\n", 'She said "it\'s [1]" ', "<function> ", "[1] [SPEC] "),
)
BEHIND = (
    ("", False),
    (" \n\n", False),
    (" Now then.", True),
    ("\n[SPECIALIST_RESULT: web]", True),
    ("`", True),
    ("漢", True),
)


def value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return dice.choice(TEXTS)
    if kind < 5:
        return dice.choice(NUMBERS)
    if kind == 5:
        return dice.choice((None, True, False))
    if kind == 6:
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(KEYS): value(dice, depth + 1) for _ in range(dice.randrange(4))}


def body(dice: random.Random, params: Any) -> str:
    return json.dumps(
        params,
        ensure_ascii=dice.random() < 0.5,
        indent=dice.choice((None, None, 2, "\t")),
        separators=dice.choice((None, (",", ":"), (" , ", " : "))),
    )


def bracket(dice: random.Random, name: str) -> tuple[str, Any]:
    written = body(dice, {dice.choice(KEYS): value(dice) for _ in range(dice.randrange(5))})
    colon = dice.choice((":", ": ", " :\n"))
    return f"SPECIALIST_REQUEST[{name}{colon}{written}]", json.loads(written)


def function_call(dice: random.Random, name: str) -> tuple[str, Any]:
    tag, key = dice.choice(("function_call", "tool_call")), dice.choice(("args", "arguments", "parameters"))
    params = {dice.choice(KEYS): value(dice) for _ in range(dice.randrange(5))}
    args: Any = body(dice, params) if dice.random() < 0.2 else params
    written = body(dice, {"name": name, "call_objective": dice.choice(TEXTS), key: args})
    white = dice.choice(("", "\n", " "))
    return f"<{tag}>{white}{written}{white}</{tag}>", json.loads(json.dumps(params))


def mention(dice: random.Random, name: str) -> tuple[str, Any]:
    chosen = dice.sample(("query", "max_results", "a-b", "start_time"), dice.randrange(4))
    params = {key: dice.choice((*TEXTS, *NUMBERS, True, None)) for key in chosen}
    written = ", ".join(f"{key}={json.dumps(item)}" for key, item in params.items())
    return f"@{name}_specialist({written})", json.loads(json.dumps(params))


def scan(chunks: Any) -> tuple[str, list[Call], bool]:
    scanner = Scanner(ALL)
    pieces: list[Piece] = [piece for chunk in chunks for piece in scanner.feed(chunk)]
    pieces += scanner.close()
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    return text, [piece for piece in pieces if isinstance(piece, Call)], any(isinstance(p, Stop) for p in pieces)


def random_chunks(dice: random.Random, text: str) -> list[str]:
    chunks, at = [], 0
    while at < len(text):
        step = dice.randint(1, 12)
        chunks.append(text[at : at + step])
        at += step
    return chunks


@pytest.mark.parametrize("write", [bracket, function_call, mention])
def test_calls_as_models_write_them(write: Any) -> None:
    for seed in range(1_500):
        dice = random.Random(seed)
        name = dice.choice(NAMES)
        marker, params = write(dice, name)
        before, (behind, stopped) = dice.choice(SENTENCES), dice.choice(BEHIND)
        text = before + marker + behind
        expected = (before, [Call(name, marker, params)], stopped)
        assert scan([text]) == expected, text
        assert scan(text) == expected, text
        assert scan(random_chunks(dice, text)) == expected, text


def test_calls_side_by_side() -> None:
    for seed in range(500):
        dice = random.Random(seed)
        written = [dice.choice((bracket, function_call, mention))(dice, dice.choice(NAMES)) for _ in range(4)]
        text = "So: " + dice.choice(("", " ", "\n\n")).join(marker for marker, _ in written)
        for chunks in ([text], text, random_chunks(dice, text)):
            shown, calls, _ = scan(chunks)
            assert shown == "So: "
            assert [(call.marker, call.params) for call in calls] == written


@pytest.mark.parametrize("malformed", MALFORMED)
def test_a_malformed_body_is_one_failed_call_and_never_shown(malformed: str) -> None:
    for text in (
        f"So: SPECIALIST_REQUEST[web:{malformed}]",
        f"So: SPECIALIST_REQUEST[web: {malformed} ] and on it goes.",
        f'So: <function_call>{{"name":"web","args":{malformed}}}</function_call> and on.',
    ):
        for chunks in ([text], text, random_chunks(random.Random(text), text)):
            shown, calls, _ = scan(chunks)
            assert shown == "So: "
            assert [(call.name, call.params, call.code) for call in calls] == [("web", None, "malformed")], text
