"""Decoding and encoding of JSON bodies."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import httpx
import msgspec
import pytest
from brain_servers import brain_served
from limits import WAIT_SECONDS

from brain.errors import BadRequest
from brain.protocols.common import decode, decode_any
from brain.protocols.encoding import encode
from brain.validation import NAME_LENGTH


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a body."""

    name: str
    counts: list[int] = []


class Body(msgspec.Struct):
    """A body."""

    inner: Inner
    mode: Literal["fast", "slow"] | None = None
    others: list[Inner] = []
    by_name: dict[str, int] = {}


def rejection(body: bytes, kind: Any = Body, place: str = "") -> tuple[str | None, str]:
    with pytest.raises(BadRequest) as raised:
        decode(body, kind, place)
    assert raised.value.status == 400
    return raised.value.field, raised.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"inner":{"name":1}}', "inner.name"),
        (b'{"inner":{}}', "inner.name"),
        (b'{"inner":{"name":"a","x":1}}', "inner.x"),
        (b'{"inner":{"name":"a","counts":7}}', "inner.counts"),
        (b'{"inner":{"name":"a"},"others":[{"name":"b","counts":[1,null]}]}', "others[0].counts[1]"),
        (b'{"inner":{"name":"a"},"by_name":{"a":"b"}}', "by_name[]"),
        (b'{"x":' + b"[" * 100_000, None),
        (b'{"inner":nul}', None),
    ],
)
def test_what_is_wrong_is_named(body: bytes, field: str | None) -> None:
    found, message = rejection(body)
    assert found == field
    assert message.startswith(f"`{field}` " if field else "The body is not valid JSON: ")


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b'{"inner":{"name":1}}', ["a string", "an integer"]),
        (b'{"inner":{"name":"a"},"mode":"slo"}', ['"slo"', "fast", "slow"]),
        (b'{"inner":{"name":"a"},"others":[{"name":"b","nam":1}]}', ["`name`"]),
        (b'{"inner":{"name":"a","x":1}}', ["name, counts"]),
    ],
)
def test_the_error_names_what_is_allowed(body: bytes, parts: Sequence[str]) -> None:
    _, message = rejection(body)
    assert [part for part in parts if part not in message] == []


def test_a_long_unknown_name_is_cut_in_the_error() -> None:
    field, message = rejection(b'{"inner":{"name":"a","%s`":1}}' % (b"x" * 100_000))
    assert field == f"inner.{'x' * NAME_LENGTH}"
    assert len(message) < 200


def test_the_place_of_a_part_is_the_start_of_its_fields() -> None:
    assert [rejection(body, Inner, "a[2].b")[0] for body in (b'{"name":1}', b"7", b"{")] == [
        "a[2].b.name",
        "a[2].b",
        "a[2].b",
    ]
    assert decode(msgspec.Raw(b'{"name":"a"}'), Inner, "a") == Inner("a")


def test_what_may_be_anything_has_limits() -> None:
    assert decode_any(msgspec.Raw(b'{"a":[1,{"b":null}]}'), 20, "x") == {"a": [1, {"b": None}]}
    with pytest.raises(BadRequest) as raised:
        decode_any(msgspec.Raw(b'{"a":[1,{"b":null}]}'), 19, "x")
    assert (raised.value.field, raised.value.status, raised.value.code) == ("x", 413, "too_large")
    for opener, closer in ((b"[", b"]"), (b'{"a":', b"}")):
        decode_any(msgspec.Raw(opener * 64 + b"1" + closer * 64), 1000, "x")
        with pytest.raises(BadRequest):
            decode_any(msgspec.Raw(opener * 65 + b"1" + closer * 65), 1000, "x")


def test_json_on_one_line() -> None:
    assert encode({"a": ["ä\n", 1, None]}) == '{"a":["ä\\n",1,null]}'.encode()
    assert encode({"a": "\ud83d\ude00 \ud800"}) == '{"a":"😀 \ufffd"}'.encode()


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/turns", '{"message":"hi","limits":{"calls":1,"calls":2}}'),
        ("/v1/turns/t1/steer", '{"message":"hi","message":"bye"}'),
        ("/v1/session", '{"key":"a","key":"b"}'),
    ],
)
def test_no_route_takes_a_key_twice(client: httpx.Client, route: str, body: str) -> None:
    if "t1" in route:
        turn = client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        route = route.replace("t1", turn)
    answer = client.post(route, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with brain_served() as server, httpx.Client(base_url=server.url, timeout=WAIT_SECONDS) as client:
        yield client
