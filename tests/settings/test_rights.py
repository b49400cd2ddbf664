"""Rights of users: as they are set, and what stops the start."""

import json
from pathlib import Path
from typing import Any

import pytest
from brain_servers import brain_served, post
from turn_helpers import Player

from brain import Registry, specialist
from brain.errors import SettingsError
from brain.settings import Rights, read

TABLE = """
keys = ["anns-key-is-very-long:ann", "bobs-key:bob"]
turns_at_once = 5

[users.ann]
specialists = ["web", "wiki"]
turns_a_minute = 10
tasks_per_day = 7
task_tokens_per_day = 1000

[users."bob b."]
turns_at_once = 0
"""


def test_a_users_table_wins_over_settings_for_all(tmp_path: Path) -> None:
    config = tmp_path / "brain.toml"
    config.write_text(TABLE, "utf-8")
    settings = read({}, config)
    assert [settings.rights(user) for user in ("ann", "bob b.", "bob")] == [
        Rights(frozenset({"web", "wiki"}), 10, 5, 7, 1000),
        Rights(None, 120, 0, 50),
        Rights(None, 120, 5, 50),
    ]
    without_key, short_key = settings.warnings
    assert "bob b." in without_key
    assert "16" in short_key
    assert "bobs-key" not in short_key


USERS = '{"ada": {"specialists": [], "turns_a_minute": 0}, "bob": {"specialists": "web, wiki", "turns_at_once": "3"}}'


@pytest.mark.parametrize(
    ("environ", "user", "rights"),
    [
        ({"USERS": USERS, "KEYS": "k:ada"}, "ada", Rights(frozenset(), 0, 32, 50)),
        ({"USERS": USERS, "KEYS": "k:ada"}, "bob", Rights(frozenset({"web", "wiki"}), 120, 3, 50)),
        ({}, "local", Rights(None, 0, 0, 50)),
        ({}, None, Rights(None, 0, 0, 50)),
        ({"KEYS": "k:u"}, "u", Rights(None, 120, 32, 50)),
        ({"TURNS_A_MINUTE": "7"}, "local", Rights(None, 7, 0, 50)),
        ({"KEYS": "k:u", "TURNS_AT_ONCE": "0"}, "u", Rights(None, 120, 0, 50)),
        ({"USERS": '{"local": {"specialists": "wiki"}}'}, "local", Rights(frozenset({"wiki"}), 0, 0, 50)),
    ],
)
def test_rights(environ: dict[str, str], user: str | None, rights: Rights) -> None:
    assert read({f"BRAIN_{key}": value for key, value in environ.items()}).rights(user) == rights


@pytest.mark.parametrize(
    ("users", "error"),
    [
        ({"ada": 1}, "users.ada "),
        ({"ada": {"key": "sk-1"}}, "users.ada.key."),
        ({"ada": {"turns_a_minute": -1}}, "users.ada.turns_a_minute: -1."),
        *[({"ada": {"turns_at_once": value}}, "users.ada.turns_at_once: ")
          for value in (True, 1e300, None)],
        *[({"ada": {"specialists": value}}, f"users.ada.specialists: {json.dumps(value)}.")
          for value in (["a b"], ["9"])],
        ([], "BRAIN_USERS: (not shown)."),
        ({"": {}}, "BRAIN_USERS: (not shown)."),
        ({"a\nb": {}}, "BRAIN_USERS: (not shown)."),
    ],
)  # fmt: skip
def test_a_bad_table_is_named(users: Any, error: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({"BRAIN_USERS": json.dumps(users)})
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("USERS", value) for value in ("", "anns-key:ann", "{", "[" * 100_000)],
        *[("KEYS", value) for value in ("k\u00adey:ann", "key\n2:ann", "key:an\tn", "k\udce9y:ann", "key:\u202eann")],
        *[("KEYS", value) for value in ("key-without-user", "k:", ":u", "k:a,k:b")],
    ],
)
def test_a_bad_value_that_may_hold_keys_is_not_shown(key: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({f"BRAIN_{key}": value})
    assert f"BRAIN_{key}: (not shown)." in str(caught.value)


@specialist
async def wiki() -> str:
    """An encyclopedia."""
    return "It is so."


def test_a_user_calls_only_allowed_specialists() -> None:
    registry = Registry()
    registry.add(wiki)
    users = json.dumps({"bob": {"specialists": []}})
    with brain_served(registry, KEYS="anns-key:ann,bobs-key:bob", USERS=users) as server:
        server.play(Player(["SPECIALIST_REQUEST[wiki]"], ["Done."]))
        events = {}
        for user in ("ann", "bob"):
            headers = {"authorization": f"Bearer {user}s-key"}
            body = {"message": "hi", "specialists": ["wiki"]}
            events[user] = post(server.url, json=body, headers=headers).names
    assert "specialist_result" in events["ann"]
    assert "specialist_result" not in events["bob"]
    assert "specialist_error" in events["bob"]
