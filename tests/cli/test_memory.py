"""`brain memory`: facts and memories are listed, searched, written, changed and deleted by hand."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_helpers import add_turn, memory

from brain.messages import FormerText, Item
from brain.store import conversations, items, users
from brain.store.store import Store
from brain.store.tx import Tx
from cli.command import Brain

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TEA = Item("k7m2", "fact", "Likes tea.", NOON, NOON, "preferences", former=(FormerText("Likes coffee.", NOON),))
BLOOD = Item("f3a9", "fact", "My blood group is 0.", NOON, NOON, "personal", mutable=False)
TRIP = Item("mm22", "memory", "Planned a trip\x1b[2J to Bergen.", NOON + timedelta(days=1), NOON, untrusted=True)
LISTED = """\
mm22     2026-11-20 memory      Planned a trip\\u{1b}[2J to Bergen.
                    may contain untrusted content
f3a9     2026-11-20 personal    My blood group is 0.
                    protected: the model cannot change or delete it
k7m2     2026-11-20 preferences Likes tea.
                    was: Likes coffee. (until 2026-11-20)
"""


async def fill(store: Store) -> None:
    for item in (TEA, BLOOD, TRIP):
        await store.write(items.put, "local", item)
    await store.write(items.put, "ada", Item("k7m2", "fact", "Likes rain.", NOON, NOON, "general"))

    def put_many(tx: Tx) -> None:
        for n in range(450):
            items.put(tx, "cora", Item(f"n{n}", "fact", f"Number {n}.", NOON, NOON, "general"))

    await store.write(put_many)


@pytest.fixture(autouse=True)
def filled(brain: Brain) -> None:
    brain.use(fill)


def listed(brain: Brain, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(brain("memory", "list", "--json", *arguments)[1])["items"]
    return found


@pytest.mark.parametrize("arguments", [[], ["list"], ["--user", "local"], ["list", "--user", "local"]])
def test_all_items_are_listed_newest_first(arguments: list[str], brain: Brain) -> None:
    assert brain("memory", *arguments) == (0, LISTED, "")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--kind", "memory"], {"mm22"}),
        (["--kind", "fact"], {"f3a9", "k7m2"}),
        (["--category", "personal"], {"f3a9"}),
        (["--search", "trips to drink tea"], {"k7m2", "mm22"}),
        (["--search", "tea", "--kind", "memory"], set()),
        (["--search", 'AND "'], set()),
        (["--user", "ada"], {"k7m2"}),
        (["--user", "cora"], {f"n{n}" for n in range(450)}),
        (["--user", "ben"], set()),
    ],
)
def test_some_items_are_listed(arguments: list[str], found: set[str], brain: Brain) -> None:
    assert {one["id"] for one in listed(brain, *arguments)} == found
    code, out, err = brain("memory", "list", *arguments)
    assert (code, err) == (0, "")
    if not found:
        assert out in ("No matching facts or summaries for user local.\n", "No facts or summaries for user ben.\n")


def test_json_is_what_the_route_returns(brain: Brain) -> None:
    answer = json.loads(brain("memory", "list", "--json", "--search", "blood")[1])
    assert (answer["recall"], answer["next"], [one["id"] for one in answer["items"]]) == (True, None, ["f3a9"])
    assert answer["items"][0]["mutable"] is False


async def fill_twice(store: Store) -> None:
    for name in ("a", "b"):
        await add_turn(store, "local", name, "I like jazz")
        (idle,) = await store.write_unsynced(conversations.claim_idle, datetime.now(UTC) + timedelta(days=1), 1)
        await store.write(conversations.set_memory, idle, memory("m1", "They like jazz", conversation_id=name))


def test_a_memory_shows_the_number_of_its_conversations(brain: Brain) -> None:
    brain.use(fill_twice)
    assert brain("memory", "list", "--search", "jazz")[1].splitlines()[1:] == [f"{'':<19} in 2 conversations"]
    assert [one.get("count") for one in listed(brain)] == [None, None, None, 2]


def test_a_fact_is_added(brain: Brain) -> None:
    code, out, _ = brain("memory", "add", "I am allergic to penicillin.", "--immutable")
    assert (code, out.splitlines()[1:]) == (0, ["                    protected: the model cannot change or delete it"])
    (item,) = listed(brain, "--search", "penicillin")
    assert (item["id"], item["category"], item["mutable"]) == (out.split()[0], "general", False)
    brain("memory", "add", "Water boils at 100 °C.", "--category", "knowledge")
    assert [one["text"] for one in listed(brain, "--category", "knowledge")] == ["Water boils at 100 °C."]
    brain.store.unlink()
    assert [brain("memory", *arguments)[0] for arguments in (["list"], ["add", "I like tea."], ["list"])] == [1, 0, 0]


@pytest.mark.parametrize("typed", ["k7m2", "#k7m2", "K7M2"])
def test_a_fact_is_edited_and_its_former_text_shown(typed: str, brain: Brain) -> None:
    code, out, _ = brain("memory", "edit", typed, "Likes green tea.")
    first, second, *_ = out.splitlines()
    assert code == 0
    assert re.fullmatch(r"k7m2     \d{4}-\d\d-\d\d preferences Likes green tea\.", first)
    assert re.fullmatch(r" {20}was: Likes tea\. \(until \d{4}-\d\d-\d\d\)", second)
    assert brain("memory")[1].endswith(out)


def test_an_immutable_fact_changes_only_with_mutable(brain: Brain) -> None:
    edit = "memory", "edit", "f3a9"
    assert brain(*edit, "My blood group is A.")[0] == 1
    assert brain(*edit, "My blood group is A.", "--mutable")[0] == 0
    assert brain(*edit, "--immutable", "--category", "knowledge")[0] == 0
    (item,) = listed(brain, "--search", "blood")
    assert (item["text"], item["category"], item["mutable"]) == ("My blood group is A.", "knowledge", False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["add", " "], 1),
        (["edit", "k7m2"], 2),
        (["edit", "none", "x"], 1),
        (["edit", "k7m2", "x" * 501], 1),
        (["edit", "mm22", "--category", "general"], 1),
        (["delete", "no\x1bne"], 1),
    ],
)
def test_a_bad_edit_changes_nothing(arguments: list[str], code: int, brain: Brain) -> None:
    found, out, err = brain("memory", *arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert "\x1b" not in err
    assert brain("memory")[1] == LISTED


def test_items_are_deleted(brain: Brain) -> None:
    assert brain("memory", "delete", "k7m2", "none", "#F3A9")[0] == 1
    assert [one["id"] for one in listed(brain)] == ["mm22"]
    assert [one["id"] for one in listed(brain, "--user", "ada")] == ["k7m2"]


def test_recall_is_switched_off_and_on(brain: Brain) -> None:
    assert brain("memory", "recall", "off") == (0, "", "")
    assert brain("memory")[1] == f"{LISTED}Memory is off. Turn it on with: brain memory recall on\n"
    assert brain.use(lambda store: store.read(users.recalls, "ada")) is True
    brain("memory", "recall", "on")
    assert brain("memory")[1] == LISTED
