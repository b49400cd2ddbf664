"""The scanner: the same pieces for any split of a text, nothing lost, little held back."""

import json
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import splits

from brain.events import MarkerSyntax, Thinking
from brain.markers.scanner import PassEnd, Piece, ReasoningEnd, Scanner

CORPUS = Path(__file__).parent.parent / "corpus"
CASES = json.loads((CORPUS / "scanner.json").read_text("utf-8"))
WRITTEN = json.loads((CORPUS / "written.json").read_text("utf-8"))
DEFAULT: tuple[MarkerSyntax, ...] = ("bracket", "function_call")
ALL: tuple[MarkerSyntax, ...] = ("bracket", "function_call", "mention")
MAX_CUT_EVERYWHERE = 400
"""Characters; longer texts are cut near their ends and around the limit of a marker only."""


def expand(value: Any) -> Any:
    """Write out the long texts of the corpus: `{"repeat": [text, times]}`, alone or in a list of parts."""
    if isinstance(value, dict):
        if value.keys() == {"repeat"}:
            text, times = value["repeat"]
            return str(text) * int(times)
        return {key: expand(item) for key, item in value.items()}
    return value


def join_parts(parts: Any) -> str:
    return parts if isinstance(parts, str) else "".join(expand(part) for part in parts)


def expand_piece(written: Any) -> Any:
    if isinstance(written, str) or written in ({"stop": True}, {"reasoned": True}):
        return written
    if "text" in written:
        return join_parts(written["text"])
    if "thinking" in written:
        return {"thinking": join_parts(written["thinking"])}
    return expand({**written, "raw": join_parts(written["raw"])})


def as_written(pieces: Iterable[Piece]) -> list[Any]:
    """Return pieces as the corpus writes them, with neighbouring texts joined."""
    found: list[Any] = []
    last = ""  # the kind of the last one
    for piece in pieces:
        if isinstance(piece, str):
            assert piece
            found[-1:] = [found[-1] + piece] if last == "text" else [*found[-1:], piece]
            last = "text"
        elif isinstance(piece, Thinking):
            assert piece.text
            text = found.pop()["thinking"] + piece.text if last == "thinking" else piece.text
            found.append({"thinking": text})
            last = "thinking"
        elif isinstance(piece, PassEnd | ReasoningEnd):
            found.append({"stop" if isinstance(piece, PassEnd) else "reasoned": True})
            last = ""
        else:
            assert (piece.params is None, bool(piece.reason)) == (piece.code is not None,) * 2
            result = {"params": piece.params} if piece.code is None else {"problem": piece.code}
            found.append({"call": piece.name, **result, "raw": piece.marker})
            last = ""
    return found


def scan(
    chunks: Iterable[str], syntax: Sequence[MarkerSyntax] = DEFAULT, template: str = "", *, stops: bool = True
) -> list[Any]:
    scanner = Scanner(syntax, template, stops=stops)
    pieces = [piece for chunk in chunks for piece in scanner.feed(chunk)]
    return as_written([*pieces, *scanner.close()])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_pieces_of_a_text_however_it_is_cut(case: Any) -> None:
    text, expected = join_parts(case["text"]), [expand_piece(written) for written in case["pieces"]]
    places: Iterable[int] = range(len(text) + 1)
    if len(text) > MAX_CUT_EVERYWHERE:
        places = [*range(60), *range(16_350, min(16_400, len(text))), *range(len(text) - 60, len(text))]
    encoded = text.encode("utf-16-le", "surrogatepass")
    units = [chr(int.from_bytes(encoded[at : at + 2], "little")) for at in range(0, len(encoded), 2)]
    ways = [[text], [*text], units, *([text[:at], text[at:]] for at in places)]
    for chunks in ways:
        options = case.get("syntax", DEFAULT), case.get("template", "")
        assert scan(chunks, *options, stops=case.get("stops", True)) == expected, chunks


def texts(fragments: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(fragments), min_size=1, max_size=14).map("".join)


OTHER_TEMPLATE = "{{ messages }}"
TEMPLATES = (
    "",
    OTHER_TEMPLATE,
    "<|im_start|>{{ m }}<|im_end|><tool_call><function=",
    "[INST] {{ m }} [/INST]</s>[TOOL_CALLS]",
    "<|start|><|channel|><|message|><|end|>",
    "{% if add_generation_prompt %}<think>",
)


def check_splits(data: st.DataObject, text: str, *options: Any, **more: Any) -> None:
    expected = scan([text], *options, **more)
    assert scan(text, *options, **more) == expected
    assert scan(data.draw(splits(text)), *options, **more) == expected


@pytest.mark.parametrize("template", TEMPLATES)
def test_any_split_of_a_text_in_the_formats_of_models_gives_the_same_pieces(template: str) -> None:
    @settings(max_examples=300)
    @given(st.data(), texts(WRITTEN["formats"]))
    def test(data: st.DataObject, text: str) -> None:
        check_splits(data, text, DEFAULT, template)

    test()


@settings(max_examples=600)
@given(st.data(), texts(WRITTEN["fragments"]), st.booleans())
def test_any_split_of_a_text_gives_the_same_pieces(data: st.DataObject, text: str, stops: bool) -> None:
    check_splits(data, text, ALL, stops=stops)


@settings(max_examples=600)
@given(texts(WRITTEN["fragments"]))
def test_no_character_is_lost_added_or_moved(text: str) -> None:
    for removed in ("<think>", "[/SPECIALIST_RESULT]", "[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:"):
        text = text.replace(removed, "")  # these delimiters are not shown
    pieces = scan([text], ALL, OTHER_TEMPLATE, stops=False)
    assert "".join(piece if isinstance(piece, str) else piece["raw"] for piece in pieces) == text


DELIMITERS = (
    *("SPECIALIST_REQUEST[", "<function_call>", "<tool_call>"),
    *("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:", "[/SPECIALIST_RESULT]"),
)


def test_only_a_possible_delimiter_is_held_back() -> None:
    text = (
        "Said: SPEC, SPECIALIST_REQUES, SPECIALIST_SPECIALIST_REQUEST(a) `SPECIALIST_REQUEST[a] <b>[1]</b> <tool_box> "
        "<function_call </function_call> [SPECIALIST_RESULTS: [SPECIALIST_ERROR - [/SPECIALIST_ERROR] [[[ <<< "
        "`[SPEC 漢字"
    )
    scanner, shown = Scanner(DEFAULT, OTHER_TEMPLATE), ""
    for end, character in enumerate(text, 1):
        shown += "".join(str(piece) for piece in scanner.feed(character))
        beginnings = [delimiter[:length] for delimiter in DELIMITERS for length in range(len(delimiter))]
        held = [one for one in beginnings if text[:end].endswith(one) and not text[:end].endswith("`" + one)]
        assert shown + max(["", *held], key=len) == text[:end]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (["Hello", " there"], [["Hello"], [" there"]]),
        (["a", "", "b"], [["a"], [], ["b"]]),
        (["a SPECIALIST_REQUEST[", "web", " se", "arch"], [["a "], [], ["SPECIALIST_REQUEST[web se"], ["arch"]]),
        (["a SPECIALIST_REQUEST[", ".", ".."], [["a "], ["SPECIALIST_REQUEST[."], [".."]]),
        (["a SPECIALIST_REQUEST[", "x" * 64, "x", "x"], [["a "], [], ["SPECIALIST_REQUEST[" + "x" * 65], ["x"]]),
        (["a SPECIALIST_REQUEST[ ", "\n", "!"], [["a "], [], ["SPECIALIST_REQUEST[ \n!"]]),
        (["a <function_call>", " \n", "x"], [["a "], [], ["<function_call> \nx"]]),
        (["`", "SPECIALIST_REQUEST[", "a]"], [["`"], ["SPECIALIST_REQUEST"], ["[a]"]]),
        (["a @web", "_spec", " b"], [["a "], [], ["@web_spec b"]]),
        (["a @" + "x" * 75, "x", "x"], [["a "], ["@" + "x" * 76], ["x"]]),
        (["\n", " <th", "ink>a"], [[], [], [{"thinking": "a"}]]),
        (["\n", "a"], [[], ["\na"]]),
        (["<think>a", "</", "b"], [[{"thinking": "a"}], [], [{"thinking": "</b"}]]),
        (["<", "tool", "_calls", "a"], [[], [], ["<tool_calls"], ["a"]]),
        (["a <", "", "tool_call", ">", "", "!"], [["a "], [], [], [], [], ["<tool_call>!"]]),
        (["a <tool_call>", "x", "\n", "<", "q"], [["a "], [], [], [], ["<tool_call>x\n<q"]]),
        (["a <|", "im_end", "|>", "b"], [["a "], [], [], ["<|im_end|>b"]]),
        (["a<|im_end|>", " ", "<|im_st", "op", "."], [["a"], [], [], ["<|im_end|> <|im_stop"], ["."]]),
        (["a<|im_end|>", " ", "\n", "b"], [["a"], [], [{"stop": True}], []]),
        (["a <|", "im_e", "|>", "b"], [["a "], [], ["<|im_e|>"], ["b"]]),
        (["a</", "think", ">", "b"], [["a"], [], [{"reasoned": True}], ["b"]]),
        (["<|chan", "nel|>final<|mess", "age|>", "Hi", "<|return|>"], [[], [], [], ["Hi"], [{"stop": True}]]),
        (["SPECIALIST_REQUEST[a:{}", "] b", "c"], [[], ["a", {"stop": True}], []]),
        (["SPECIALIST_REQUEST[a]", " \n", "SPEC", "S"], [["a"], [], [], [{"stop": True}]]),
        (["a [SPECIALIST_RESULT", ":", " x"], [["a "], ["?", {"stop": True}], []]),
        (["a\ud83d", "\ude00"], [["a"], ["\U0001f600"]]),
        (["a", "b\ud83d", "c", "d"], [["a"], ["b"], ["\ufffdc"], ["d"]]),
    ],
)
def test_the_pieces_of_each_feed(chunks: list[str], expected: list[Any]) -> None:
    scanner = Scanner(ALL)
    settled = [as_written(scanner.feed(chunk)) for chunk in chunks]
    names = [[one.get("call", one) if isinstance(one, dict) else one for one in pieces] for pieces in settled]
    assert names == expected


def test_nothing_comes_after_the_end_or_a_stop() -> None:
    scanner = Scanner(DEFAULT)
    assert [*scanner.feed("a SPEC"), *scanner.close()] == ["a ", "SPEC"]
    assert [*scanner.close(), *scanner.feed("more")] == []
    scanner = Scanner(DEFAULT)
    assert isinstance(scanner.feed("SPECIALIST_REQUEST[a] b")[-1], PassEnd)
    assert [*scanner.feed(" SPECIALIST_REQUEST[a:{}] [SPECIALIST_RESULT: a]"), *scanner.close()] == []


@pytest.mark.parametrize(
    ("beginning", "chunk", "times", "max_bytes"),
    [
        ('SPECIALIST_REQUEST[a:{"s":"', "word " * 200, 500, 250_000),
        ("SPECIALIST_REQUEST[", " " * 1_000, 500, 250_000),
        ("SPECIALIST_REQUEST[a:{}]", " " * 1_000, 500, 250_000),
        ("<function_call>", "\n" * 1_000, 500, 250_000),
        ('<tool_call>{"s":[', "[" * 1_000, 500, 250_000),
        ("@a_specialist(", "k=" * 500, 500, 250_000),
        ("<function_call>{'a':__PAYLOAD_START__", "__PAYLOAD_END_ " * 60, 500, 250_000),
        ("<function_call>{// ", "/* ' " * 200, 500, 250_000),
        ("<function=a>", "<parameter=k>v</parameter>\n" * 30, 500, 300_000),
        ("<tool_call>a<arg_key>", "</arg_ke" * 100, 500, 250_000),
        ("[TOOL_CALLS][", '{"name":"a"},' * 60, 500, 250_000),
        ("", "<|channel|>final<|message|>Hi<|end|><|start|>assistant" * 20, 500, 250_000),
        ("<|channel|>", "<|messag" * 100, 500, 250_000),
        ("", "SPECIALIST_REQUEST[" * 50, 300, 250_000),
        ("<think>", "thought " * 125, 500, 250_000),
        ("", "[/SPECIALIST_RESULT]" * 50, 300, 250_000),
        ('SPECIALIST_REQUEST[a:{"s":"', "words", 3_000, 60_000),  # little more than its characters, in tiny pieces
    ],
)
def test_memory_is_bounded(beginning: str, chunk: str, times: int, max_bytes: int) -> None:
    scanner = Scanner(ALL)
    scanner.feed(beginning)
    tracemalloc.start()
    try:
        for _ in range(times):
            scanner.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < max_bytes
