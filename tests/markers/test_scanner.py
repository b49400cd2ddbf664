import json
import random
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from brain.events import SyntaxName, Thinking
from brain.markers.scanner import Piece, Scanner, Stop
from brain.messages import Call

CASES = json.loads((Path(__file__).parent.parent / "corpus" / "scanner.json").read_text("utf-8"))
DEFAULT: tuple[SyntaxName, ...] = ("bracket", "function_call")
ALL: tuple[SyntaxName, ...] = ("bracket", "function_call", "mention")
LONG = 400
"""Texts above this length are not cut at every place, only near their ends and around the limit of a marker."""


def written_out(value: Any) -> Any:
    """The corpus writes long texts as `{"repeat": [text, times]}`, in a list of parts where there are several."""
    if isinstance(value, dict):
        if value.keys() == {"repeat"}:
            text, times = value["repeat"]
            return str(text) * int(times)
        return {key: written_out(item) for key, item in value.items()}
    return value


def text_of(parts: Any) -> str:
    return parts if isinstance(parts, str) else "".join(written_out(part) for part in parts)


def piece(written: Any) -> Any:
    """A piece of the corpus in the form that `shown` gives to pieces of the scanner."""
    if isinstance(written, str) or written == {"stop": True}:
        return written
    if "text" in written:
        return text_of(written["text"])
    if "thinking" in written:
        return {"thinking": text_of(written["thinking"])}
    return written_out({**written, "raw": text_of(written["raw"])})


def shown(pieces: Iterable[Piece]) -> list[Any]:
    """The pieces as the corpus writes them, neighbouring texts joined."""
    found: list[Any] = []
    for item in pieces:
        if isinstance(item, str | Thinking):
            text: Any = item if isinstance(item, str) else {"thinking": item.text}
            assert text not in ("", {"thinking": ""})
            if found and isinstance(text, str) and isinstance(found[-1], str):
                found[-1] += text
            elif found and isinstance(text, dict) and isinstance(found[-1], dict) and "thinking" in found[-1]:
                found[-1] = {"thinking": found[-1]["thinking"] + text["thinking"]}
            else:
                found.append(text)
        elif isinstance(item, Stop):
            found.append({"stop": True})
        elif item.code is None:
            found.append({"call": item.name, "params": item.params, "raw": item.marker})
        else:
            assert item.params is None
            assert item.text
            found.append({"call": item.name, "problem": item.code, "raw": item.marker})
    return found


def scan(chunks: Iterable[str], syntax: Sequence[SyntaxName] = DEFAULT, *, stops: bool = True) -> list[Any]:
    scanner = Scanner(syntax, stops=stops)
    pieces = [item for chunk in chunks for item in scanner.feed(chunk)]
    return shown([*pieces, *scanner.close()])


def utf16_units(text: str) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(int.from_bytes(units[n : n + 2], "little")) for n in range(0, len(units), 2))


def random_cuts(text: str, seed: int) -> list[str]:
    dice = random.Random(seed)
    most = dice.choice((2, 5, 40, 400))
    chunks, at = [], 0
    while at < len(text):
        step = dice.randint(0, most)
        chunks.append(text[at : at + step])
        at += step
    return chunks


def check(text: str, expected: list[Any], syntax: Sequence[SyntaxName] = DEFAULT, *, stops: bool = True) -> None:
    """However the text is cut, the same comes of it."""
    assert scan([text], syntax, stops=stops) == expected
    places: Iterable[int] = range(len(text) + 1)
    if len(text) > LONG:
        places = [*range(60), *range(16_350, min(16_400, len(text))), *range(len(text) - 60, len(text))]
    for place in places:
        assert scan([text[:place], text[place:]], syntax, stops=stops) == expected, place
    assert scan(text, syntax, stops=stops) == expected
    assert scan(utf16_units(text), syntax, stops=stops) == expected
    for seed in range(20):
        assert scan(random_cuts(text, seed), syntax, stops=stops) == expected, seed


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_corpus(case: Any) -> None:
    expected = [piece(written) for written in case["pieces"]]
    check(text_of(case["text"]), expected, case.get("syntax", DEFAULT), stops=case.get("stops", True))


OPENERS = ("SPECIALIST_REQUEST[", "<function_call>", "<tool_call>", "@")
BLOCK_DELIMITERS = ("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:", "[/SPECIALIST_RESULT]")


def test_held_back_is_only_what_could_still_become_a_marker() -> None:
    text = (
        "Said: SPEC, SPECIALIST_REQUES, SPECIALIST_SPECIALIST_REQUEST(a) `SPECIALIST_REQUEST[a] <b>[1]</b> <tool_box> "
        "<function_call </function_call> [SPECIALIST_RESULTS: [SPECIALIST_ERROR - [/SPECIALIST_ERROR] [[[ <<< "
        "`[SPEC 漢字"
    )
    scanner = Scanner(DEFAULT)
    given = ""
    for end, character in enumerate(text, 1):
        given += "".join(str(item) for item in scanner.feed(character))
        held = max(
            (
                opener[:length]
                for opener in (*OPENERS[:3], *BLOCK_DELIMITERS)
                for length in range(len(opener))
                if text[:end].endswith(opener[:length]) and not (length and text[: end - length].endswith("`"))
            ),
            key=len,
        )
        assert given + held == text[:end]


@pytest.mark.parametrize(
    ("chunks", "at_once"),
    [
        (["Hello", " there"], [["Hello"], [" there"]]),
        (["a", "", "b"], [["a"], [], ["b"]]),
        (["a SPECIALIST_REQUEST[", "web", " se", "arch"], [["a "], [], ["SPECIALIST_REQUEST[web se"], ["arch"]]),
        (["a SPECIALIST_REQUEST[", ".", ".."], [["a "], ["SPECIALIST_REQUEST[."], [".."]]),
        (["a SPECIALIST_REQUEST[", "9", "x"], [["a "], ["SPECIALIST_REQUEST[9"], ["x"]]),
        (["a SPECIALIST_REQUEST[", "x" * 64, "x", "x"], [["a "], [], ["SPECIALIST_REQUEST[" + "x" * 65], ["x"]]),
        (["a SPECIALIST_REQUEST[ ", "\n", "!"], [["a "], [], ["SPECIALIST_REQUEST[ \n!"]]),
        (["a <function_call>", " \n", "x"], [["a "], [], ["<function_call> \nx"]]),
        (["`", "SPECIALIST_REQUEST[", "a]"], [["`"], ["SPECIALIST_REQUEST"], ["[a]"]]),
        (["a @web", "_spec", " b"], [["a "], [], ["@web_spec b"]]),
        (["a @" + "x" * 75, "x", "x"], [["a "], ["@" + "x" * 76], ["x"]]),
        (["a @web_specialist", "!"], [["a "], ["@web_specialist!"]]),
        (["\n", " <th", "ink>a"], [[], [], [{"thinking": "a"}]]),
        (["\n", "a"], [[], ["\na"]]),
        (["<th", "in", "g"], [[], [], ["<thing"]]),
        (["<think>a", "</", "b"], [[{"thinking": "a"}], [], [{"thinking": "</b"}]]),
        (["<think>a<", "tool", "_call>"], [[{"thinking": "a"}], [{"thinking": "<tool"}], [{"thinking": "_call>"}]]),
        (["<", "tool", "_calls", "a"], [[], [], ["<tool_calls"], ["a"]]),
        (["a <", "", "tool_call", ">", "", "x"], [["a "], [], [], [], [], ["<tool_call>x"]]),
        (["SPECIALIST_REQUEST[a:{}", "] b", "c"], [[], [{"call": "a"}, {"stop": True}], []]),
        (["SPECIALIST_REQUEST[a]", " \n", "SPEC", "S"], [[{"call": "a"}], [], [], [{"stop": True}]]),
        (["a [SPECIALIST_RESULT", ":", " x"], [["a "], [{"call": "?"}, {"stop": True}], []]),
        (["a\ud83d", "\ude00"], [["a"], ["\U0001f600"]]),
        (["a", "b\ud83d", "c", "d"], [["a"], ["b"], ["\ufffdc"], ["d"]]),
    ],
)
def test_what_each_feed_gives_at_once(chunks: list[str], at_once: list[Any]) -> None:
    scanner = Scanner(ALL)
    given = [shown(scanner.feed(chunk)) for chunk in chunks]
    assert [
        [{"call": i["call"]} if isinstance(i, dict) and "call" in i else i for i in pieces] for pieces in given
    ] == at_once


def test_reasons_tell_the_model_what_to_do() -> None:
    def reason(text: str) -> str:
        scanner = Scanner(ALL)
        calls = [item for item in (*scanner.feed(text), *scanner.close()) if isinstance(item, Call)]
        return calls[0].text

    assert reason('SPECIALIST_REQUEST[a:{"q":x}]') == (
        "the body is not valid JSON at character 6; write the request again"
    )
    assert reason('SPECIALIST_REQUEST[a:{"q":1,"q":2}]') == (
        "the body has a key twice in one object; write the request again"
    )
    assert reason('SPECIALIST_REQUEST[a:{"q":NaN}]') == "NaN is not JSON; write the request again"
    assert reason("SPECIALIST_REQUEST[a:[1]]") == (
        "the body must be one JSON object in braces; write the request again"
    )
    assert reason("SPECIALIST_REQUEST[a:" + '{"k":' * 65 + "1" + "}" * 65 + "]") == (
        "the body nests deeper than 64 levels; write the request again"
    )
    assert reason('SPECIALIST_REQUEST[a {"q":1}]') == (
        "write a colon between the name and the body, as in name:{}; write the request again"
    )
    assert reason("SPECIALIST_REQUEST[a") == "the request never ends; write its closing bracket or tag"
    assert reason("SPECIALIST_REQUEST[a:{") == "the request never ends; write its closing bracket or tag"
    assert reason("SPECIALIST_REQUEST[a:" + " " * 17_000) == ("a request may be 16384 characters long; make it shorter")
    assert reason('<tool_call>{"name":""}</tool_call>') == (
        '"name" must be the name of a specialist; write the request again'
    )
    assert reason('<tool_call>{"name":"a","q":1}</tool_call>') == (
        'put the parameters into "args"; q stands outside; write the request again'
    )
    assert reason('<tool_call>{"name":"a","parameters":{},"args":{}}</tool_call>') == (
        'give either "args" or "parameters"; write the request again'
    )
    assert reason("@a_specialist(q)") == (
        "between the parentheses must stand key=value pairs with commas between them; write the request again"
    )
    assert reason("[SPECIALIST_ERROR: a") == (
        "result and error blocks are written by the system only; ask a specialist"
    )


def test_nothing_comes_after_the_end() -> None:
    scanner = Scanner(DEFAULT)
    assert shown(scanner.feed("a SPEC")) == ["a "]
    assert shown(scanner.close()) == ["SPEC"]
    assert shown(scanner.close()) == []
    assert shown(scanner.feed("more")) == []


def test_nothing_comes_after_a_stop() -> None:
    scanner = Scanner(DEFAULT)
    assert shown(scanner.feed("SPECIALIST_REQUEST[a] b"))[-1] == {"stop": True}
    assert shown(scanner.feed(" SPECIALIST_REQUEST[a:{}] [SPECIALIST_RESULT: a]")) == []
    assert shown(scanner.close()) == []


FRAGMENTS = (
    *OPENERS,
    *BLOCK_DELIMITERS,
    *("SPECIALIST_", "REQUEST[", "SPEC", "<", "function_call>", "<function_call", "</tool_call>", "[SPECIALIST_", "[/"),
    *(
        "SPECIALIST_REQUEST[a:{}]",
        '<tool_call>{"name":"b"}</tool_call>',
        "@c_specialist(k=1)",
        "_specialist(",
        "=",
        ")",
    ),
    *(
        "a",
        "web",
        ":",
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
        "`",
        ",",
        "1",
        " ",
        "\n",
        "\r\n",
        "é",
        "👩‍🚀",
        "\u2028",
        "\x00",
    ),
    *("<think>", "</think>", '{"q":"', '"}', "name", "args", "word "),
)


def random_text(seed: int) -> str:
    dice = random.Random(seed)
    return "".join(dice.choice(FRAGMENTS) for _ in range(dice.randint(1, 14)))


def unaccounted(text: str, pieces: list[Any], *, stops: bool) -> str:
    """What is left of a text when shown text, markers, and what the contract drops are taken from its front."""
    at = 0

    def drop_closers() -> None:
        nonlocal at
        while text.startswith("[/SPECIALIST_RESULT]", at) and text[at - 1 : at] != "`":
            at += len("[/SPECIALIST_RESULT]")

    def take(expected: str) -> None:
        nonlocal at
        assert text.startswith(expected, at), (text, pieces)
        at += len(expected)

    called = False
    for item in pieces:
        if item == {"stop": True}:
            return ""
        if isinstance(item, str):
            for character in item:
                drop_closers()
                take(character)
            continue
        if "thinking" in item:
            take("<think>" if at == 0 else "")
            take(item["thinking"])
            at += len("</think>") if text.startswith("</think>", at) else 0
            continue
        if called and stops:
            at += len(text) - at - len(text[at:].lstrip())
        if at == 0 and text.startswith("<think></think>"):
            take("<think></think>")
        drop_closers()
        called = item.get("problem") != "forged"
        assert called or text.startswith(("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:"), at)
        take(item["raw"])
    drop_closers()
    return "" if called and stops else text[at:]


@pytest.mark.parametrize("stops", [True, False])
def test_no_character_is_lost_added_or_moved(stops: bool) -> None:
    for seed in range(3_000):
        text = random_text(seed)
        if text.lstrip().startswith("<think>"):
            text = "a" + text
        pieces = scan([text], ALL, stops=stops)
        assert unaccounted(text, pieces, stops=stops) == "", (text, pieces)


@pytest.mark.parametrize("stops", [True, False])
def test_random_texts_are_read_alike_however_they_are_cut(stops: bool) -> None:
    for seed in range(2_000):
        text = random_text(seed)
        expected = scan([text], ALL, stops=stops)
        assert scan(text, ALL, stops=stops) == expected, text
        assert scan(random_cuts(text, seed), ALL, stops=stops) == expected, text


@pytest.mark.parametrize(
    ("beginning", "chunk"),
    [
        ('SPECIALIST_REQUEST[a:{"s":"', "word " * 200),
        ("SPECIALIST_REQUEST[", " " * 1_000),
        ("SPECIALIST_REQUEST[a:{}]", " " * 1_000),
        ("<function_call>", "\n" * 1_000),
        ('<tool_call>{"s":[', "[" * 1_000),
        ("@a_specialist(", "k=" * 500),
        ("", "SPECIALIST_REQUEST[" * 50),
        ("<think>", "thought " * 125),
        ("", "[/SPECIALIST_RESULT]" * 50),
    ],
)
def test_memory_stays_bounded(beginning: str, chunk: str) -> None:
    scanner = Scanner(ALL)
    scanner.feed(beginning)
    tracemalloc.start()
    try:
        for _ in range(1_000):
            scanner.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 250_000


def test_a_marker_that_waits_keeps_little_more_than_its_characters() -> None:
    scanner = Scanner(ALL)
    tracemalloc.start()
    try:
        scanner.feed('SPECIALIST_REQUEST[a:{"s":"')
        for number in range(3_000):
            scanner.feed(f"w{number:04}")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60_000
