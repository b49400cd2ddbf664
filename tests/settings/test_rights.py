"""What users may do, as it is set: from a file, from the environment, and what stops the start."""

import json
from pathlib import Path
from typing import Any

import pytest
from serving import Player, brain_served, post, streaming

from brain import Registry, specialist
from brain.errors import SettingsError
from brain.settings import Rights, read

TABLE = """
keys = ["anns-key-is-very-long:ann", "bobs-key:bob"]
turns_at_once = 5

[users.ann]
specialists = ["web", "wiki"]
turns_a_minute = 10

[users."bob b."]
turns_at_once = 0
"""


def test_a_users_table_over_what_all_may(tmp_path: Path) -> None:
    config = tmp_path / "brain.toml"
    config.write_text(TABLE, "utf-8")
    settings = read({}, config)
    assert settings.rights("ann") == Rights(frozenset({"web", "wiki"}), 10, 5)
    assert settings.rights("bob b.") == Rights(None, 120, 0)
    assert settings.rights("bob") == Rights(None, 120, 5)
    assert settings.warnings == [
        "No key: bob b., whom USERS names",
        "Short key: one of bob has fewer than 16 characters and can be guessed",
    ]


def test_the_environment_gives_the_same_table_in_json() -> None:
    users = (
        '{"ada": {"specialists": [], "turns_a_minute": 0}, "bob": {"specialists": "web, wiki", "turns_at_once": "3"}}'
    )
    settings = read({"BRAIN_USERS": users, "BRAIN_KEYS": "k:ada"})
    assert settings.rights("ada") == Rights(frozenset(), 0, 32)
    assert settings.rights("bob") == Rights(frozenset({"web", "wiki"}), 120, 3)


def test_limits_are_for_those_who_come_with_keys() -> None:
    assert read({}).rights("local") == Rights(None, 0, 0)
    assert read({}).rights(None) == Rights(None, 0, 0)
    assert read({"BRAIN_KEYS": "k:u"}).rights("u") == Rights(None, 120, 32)
    assert read({"BRAIN_TURNS_A_MINUTE": "7"}).rights("local") == Rights(None, 7, 0)
    assert read({"BRAIN_KEYS": "k:u", "BRAIN_TURNS_AT_ONCE": "0"}).rights("u") == Rights(None, 120, 0)
    local = read({"BRAIN_USERS": '{"local": {"specialists": "wiki"}}'})
    assert (local.rights("local").specialists, local.warnings) == (frozenset({"wiki"}), [])


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ({"ada": 1}, "users.ada: must be a table with any of: specialists, turns_a_minute, turns_at_once."),
        (
            {"ada": {"key": "sk-1"}},
            "users.ada.key is not a setting. Known: specialists, turns_a_minute, turns_at_once.",
        ),
        ({"ada": {"turns_a_minute": -1}}, "users.ada.turns_a_minute=-1 is not allowed. Allowed: a whole number from 0"),
        ({"ada": {"turns_at_once": True}}, "users.ada.turns_at_once=True is not allowed. Allowed: a whole number from"),
        ({"ada": {"turns_at_once": 1e300}}, "users.ada.turns_at_once=1e+300 is not allowed. Allowed: a whole number"),
        ({"ada": {"turns_at_once": None}}, "users.ada.turns_at_once=None is not allowed. Allowed: a whole number from"),
        ({"ada": {"specialists": ["a b"]}}, "users.ada.specialists=['a b'] is not allowed. Allowed: names, as a list"),
        ({"ada": {"specialists": 1}}, "users.ada.specialists=1 is not allowed. Allowed: names, as a list"),
        ([], "BRAIN_USERS=(not shown) is not allowed. Allowed: a table for each user with any of"),
        ({"": {}}, "BRAIN_USERS=(not shown) is not allowed. Allowed: a table for each user with any of"),
        ({"a\nb": {}}, "BRAIN_USERS=(not shown) is not allowed. Allowed: a table for each user with any of"),
    ],
)
def test_what_is_wrong_with_a_users_table_is_named(users: Any, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({"BRAIN_USERS": json.dumps(users)})
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("users", ["", "anns-key:ann", "{", "[" * 100_000])
def test_what_is_taken_for_keys_is_not_shown(users: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({"BRAIN_USERS": users})
    assert str(caught.value).startswith("BRAIN_USERS=(not shown) is not allowed. Allowed: ")


@pytest.mark.parametrize("keys", ["k\u00adey:ann", "key\n2:ann", "key:an\tn", "k\udce9y:ann", "key:\u202eann"])
def test_keys_that_no_header_can_carry_and_names_that_no_log_can(keys: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({"BRAIN_KEYS": keys})
    assert str(caught.value).startswith("BRAIN_KEYS=(not shown) is not allowed. ")


# On a port


@specialist
async def wiki() -> str:
    """An encyclopedia."""
    return "It is so."


def test_a_user_calls_only_whom_he_may() -> None:
    made = Registry()
    made.add(wiki)
    users = json.dumps({"bob": {"specialists": []}})
    with brain_served(made, KEYS="anns-key:ann,bobs-key:bob", USERS=users) as server:
        server.play(Player(["SPECIALIST_REQUEST[wiki]"], ["Done."]))
        heard = {}
        for user in ("ann", "bob"):
            headers = {"authorization": f"Bearer {user}s-key"}
            sent = {"message": "hi", "specialists": ["wiki"]}
            heard[user] = post(server.url, json=sent, headers=headers).names
    assert "specialist_result" in heard["ann"]
    assert "specialist_result" not in heard["bob"]
    assert "specialist_error" in heard["bob"]


def test_a_user_begins_as_many_turns_as_he_may_and_is_told_when_to_come_again() -> None:
    with brain_served(KEYS="anns-key:ann,bobs-key:bob", TURNS_A_MINUTE=2) as server:
        server.play(Player(["Hello."]))
        anns = [
            post(server.url, json={"message": "hi"}, headers={"authorization": "Bearer anns-key"}) for _ in range(3)
        ]
        bobs = post(server.url, json={"message": "hi"}, headers={"authorization": "Bearer bobs-key"})
    assert [answer.status for answer in anns] == [200, 200, 429]
    assert anns[-1].error["code"] == "rate_limited"
    assert 28 <= int(anns[-1].headers["retry-after"]) <= 30
    assert bobs.status == 200


def test_a_turn_that_ended_makes_room_for_another_however_it_ended() -> None:
    with brain_served(KEYS="anns-key:ann", TURNS_AT_ONCE=1) as server:
        headers = {"authorization": "Bearer anns-key"}
        server.play(Player(["Hello.", 20.0]))
        for _ in range(3):
            with streaming(server.url, until="token", json={"message": "hi"}, headers=headers) as answer:
                assert answer.status == 200
                refused = post(server.url, json={"message": "hi"}, headers=headers)
                assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            assert server.left() == []
        server.play(Player([RuntimeError("broken")]))
        assert post(server.url, json={"message": "hi"}, headers=headers).names[-1] == "error"
        assert post(server.url, json={"message": "hi", "model": "none"}, headers=headers).status == 400
        server.play(Player(["Hello."]))
        assert post(server.url, json={"message": "hi"}, headers=headers).names[-1] == "done"
