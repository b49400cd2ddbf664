"""Chunks that differ in their text only: read the same as when each is decoded as a whole."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from brain.errors import ModelError
from brain.events import Thinking
from brain.messages import Finish
from brain.models.frames import LESSONS, Frame
from brain.models.openai import parts
from brain.models.replies import Part


def chunk(text: Any, **more: Any) -> bytes:
    said = {"id": "c1", "created": 1, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return json.dumps(said | more).encode()


class Counted:
    """Reads chunks as a whole, and counts them."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, data: bytes) -> Sequence[Part]:
        self.read += 1
        return parts(data)


def told(chunks: Sequence[bytes]) -> tuple[list[Any], int]:
    """What each chunk says, and how many were read as a whole."""
    whole = Counted()
    frame = Frame("content", whole)
    said: list[Any] = []
    for one in chunks:
        try:
            found = frame.parts(one)
            said.append([found] if isinstance(found, str) else list(found))
        except ModelError as error:
            said.append(error.code)
    return said, whole.read


def test_only_the_first_of_a_kind_is_read_as_a_whole() -> None:
    texts = ["Hel", "lo", " wörld", "😀", '"quoted"', "a\\b", "line\n", "\u2028", "", "x" * 10_000]
    assert told([chunk(text) for text in texts]) == ([[text] for text in texts], 1)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (chunk(None), []),
        (chunk("b", created=2), ["b"]),
        (chunk("b").replace(b'"b"', b'"b", "content": "c"'), ["c"]),
        (chunk("b").replace(b'"b"', b'"b", "reasoning": "c"'), [Thinking("c"), "b"]),
        (chunk("b").replace(b"null", b'"stop"'), ["b", Finish("stop")]),
        (chunk("b").replace(b'"b"', b' "b"\t'), ["b"]),
        (chunk("b").replace(b'"b"', b'"\xff"'), ["\ufffd"]),
        (chunk("b").replace(b'"b"', b'"\\ud83d"'), ["\ud83d"]),
        (chunk("b").replace(b'"b"', b'"a\nb"'), "model_failed"),
        (chunk("b").replace(b'"b"', b'"b'), "model_failed"),
        (chunk("b").replace(b'"b"', b'"b""'), "model_failed"),
        (chunk("b").replace(b'"b"', b""), "model_failed"),
        (chunk("b")[:-1], "model_failed"),
        (b'{"error": "out of memory"}', "model_failed"),
        (b"", []),
    ],
)
def test_what_differs_in_more_than_the_text_is_read_as_a_whole(odd: bytes, said: Any) -> None:
    assert told([chunk("a"), odd, chunk("d")])[0] == [["a"], said, ["d"]]
    assert told([odd])[0] == [said]


def test_the_text_may_stand_in_other_places_too() -> None:
    chunks = [chunk("c1", model="c1"), chunk("c2", model="c1"), chunk("c1", model="c1")]
    assert told(chunks) == ([["c1"], ["c2"], ["c1"]], 1)


def test_a_key_that_stands_twice_is_no_frame() -> None:
    chunks = [chunk(text, echo={"content": "x"}) for text in "abc"]
    assert told(chunks) == ([["a"], ["b"], ["c"]], 3)


def test_a_server_that_changes_every_chunk_is_not_learnt_for_ever() -> None:
    chunks = [chunk("a", created=n) for n in range(LESSONS + 5)]
    same = [chunk("b", created=LESSONS)] * 2
    assert told([*chunks, *same]) == ([["a"]] * len(chunks) + [["b"]] * 2, len(chunks) + 2)


def test_a_new_frame_is_learnt_as_often_as_it_helps() -> None:
    chunks = [chunk("a", created=n // 2) for n in range(LESSONS * 4)]
    assert told(chunks) == ([["a"]] * len(chunks), len(chunks) // 2)


def test_any_mix_says_the_same_as_when_each_is_read_as_a_whole() -> None:
    seeded = random.Random(3)
    alphabet = ['"', "\\", "{", "}", "a", "é", "\n", "content", '"content": "', "😀", ":", ","]
    for _ in range(300):
        chunks = []
        for _ in range(seeded.randrange(1, 8)):
            one = chunk("".join(seeded.choices(alphabet, k=seeded.randrange(5))), created=seeded.randrange(2))
            at = seeded.randrange(len(one))
            chunks.append(one if seeded.random() < 0.7 else one[:at] + b'"' + one[at + seeded.randrange(3) :])
        alone: list[Any] = []
        for one in chunks:
            try:
                alone.append(list(parts(one)))
            except ModelError as error:
                alone.append(error.code)
        assert [[] if said == [""] else said for said in told(chunks)[0]] == alone
