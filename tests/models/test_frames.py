"""Items that differ in their text only: read the same as when each is decoded as a whole."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from brain.events import Thinking
from brain.messages import Chunk, Finish
from brain.models.frames import LESSONS, Frame
from brain.models.lines import ServerSentEvents
from brain.models.openai import parts
from brain.models.reply import Checks, Part, Reply


def item(text: Any, **more: Any) -> bytes:
    said = {"id": "c1", "created": 1, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return json.dumps(said | more).encode()


class Counted:
    """Reads items as a whole, and counts them."""

    def __init__(self) -> None:
        self.read = 0
        self._checks = Checks()

    def __call__(self, data: bytes) -> Sequence[Part]:
        self.read += 1
        return parts(self._checks, data)


def told(reads: Sequence[Sequence[bytes]], *, framed: bool = True) -> tuple[list[Any], int]:
    """What each read says, and how many items were read as a whole."""
    whole = Counted()
    reply = Reply(ServerSentEvents(), whole, Frame("content") if framed else None)
    said: list[Any] = []
    for read in reads:
        found: list[Chunk | str] = list(reply.feed(b"".join(b"data: %b\n\n" % one for one in read)))
        if reply.error is not None and not said.count(["failed"]):
            found.append("failed")
        said.append(found)
    return said, whole.read


def alone(items: Sequence[bytes]) -> list[list[bytes]]:
    return [[one] for one in items]


def test_only_the_first_of_a_kind_is_read_as_a_whole() -> None:
    texts = ["Hel", "lo", " wörld", "😀", '"quoted"', "a\\b", "line\n", "\u2028", "x" * 10_000, "[1,", '",\n"', "  "]
    assert told(alone([item(text) for text in texts])) == ([[text] for text in texts], 1)
    assert told([[item("Oh ")], [item(text) for text in texts]]) == ([["Oh "], ["".join(texts)]], 1)
    assert told([[item(text) for text in texts], [item("!")]]) == ([["".join(texts)], ["!"]], 1)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (item(None), []),
        (item(""), []),
        (item("b", created=2), ["b"]),
        (item("b").replace(b'"b"', b'"b", "content": "c"'), ["c"]),
        (item("b").replace(b'"b"', b'"b", "reasoning": "c"'), [Thinking("c"), "b"]),
        (item("b").replace(b"null", b'"stop"'), ["b", Finish("stop")]),
        (item("b").replace(b'"b"', b' "b"\t'), ["b"]),
        (item("b").replace(b'"b"', b'"\xff"'), ["\ufffd"]),
        (b'{"other": 1}', []),
        (b"", []),
    ],
)
def test_what_differs_in_more_than_the_text_is_read_as_a_whole(odd: bytes, said: list[Any]) -> None:
    assert told(alone([item("a"), odd, item("d")]))[0] == [["a"], said, ["d"]]


@pytest.mark.parametrize(
    "odd",
    [
        item("b").replace(b'"b"', b'"b'),
        item("b").replace(b'"b"', b'b"'),
        item("b").replace(b'"b"', b'"b""'),
        item("b").replace(b'"b"', b'"b","c"'),
        item("b").replace(b'"b"', b'"b" "c"'),
        item("b").replace(b'"b"', b'"b]"]'),
        item("b").replace(b'"b"', b'"a\tb"'),
        item("b").replace(b'"b"', b'\n"b"'),
        item("b").replace(b'"b"', b'"b"\r'),
        item("b").replace(b'"b"', b""),
        item("b")[:-1],
        b'{"error": "out of memory"}',
    ],
)
def test_what_is_broken_is_an_error_wherever_it_stands(odd: bytes) -> None:
    assert told(alone([item("a"), odd, item("d")]))[0] == [["a"], ["failed"], []]
    assert told([[item("a")], [item("b"), odd, item("d")]])[0] == [["a"], ["b", "failed"]]


def test_half_a_character_waits_for_the_other_half() -> None:
    halves = [item("a"), item("b").replace(b"b", b"\\ud83d"), item("b").replace(b"b", b"\\ude00"), item("c")]
    assert told(alone(halves))[0] == [["a"], [], ["😀"], ["c"]]
    assert told(alone([*halves[:2], item("c")]))[0] == [["a"], [], ["\ufffdc"]]


def test_the_text_may_stand_in_other_places_too() -> None:
    items = [item("c1", model="c1"), item("c2", model="c1"), item("c1", model="c1")]
    assert told(alone(items)) == ([["c1"], ["c2"], ["c1"]], 1)


def test_a_key_that_stands_twice_is_no_frame() -> None:
    items = [item(text, echo={"content": "x"}) for text in "abc"]
    assert told(alone(items)) == ([["a"], ["b"], ["c"]], 3)


def test_a_server_that_changes_every_item_is_not_learnt_for_ever() -> None:
    items = [item("a", created=n) for n in range(LESSONS + 5)]
    same = [item("b", created=LESSONS)] * 2
    assert told(alone([*items, *same])) == ([["a"]] * len(items) + [["b"]] * 2, len(items) + 2)


def test_a_new_frame_is_learnt_as_often_as_it_helps() -> None:
    items = [item("a", created=n // 2) for n in range(LESSONS * 4)]
    assert told(alone(items)) == ([["a"]] * len(items), len(items) // 2)


def test_any_mix_says_the_same_as_when_each_is_read_as_a_whole() -> None:
    seeded = random.Random(3)
    alphabet = ['"', "\\", "{", "}", "a", "é", "\n", "content", '"content": "', "😀", ":", ",", "[", '","', "data: "]
    for _ in range(500):
        reads: list[list[bytes]] = []
        for _ in range(seeded.randrange(1, 8)):
            read = []
            for _ in range(seeded.randrange(1, 4)):
                one = item("".join(seeded.choices(alphabet, k=seeded.randrange(5))), created=seeded.randrange(5) // 4)
                at = seeded.randrange(len(one))
                read.append(one if seeded.random() < 0.9 else one[:at] + b'"' + one[at + seeded.randrange(3) :])
            reads.append(read)
        framed, whole = told(reads)[0], told(reads, framed=False)[0]
        assert framed == whole
