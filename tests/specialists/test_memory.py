"""The specialist `memory` over a real memory and store, as a turn calls it, and as the demo model does."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from memory_helpers import BreakableStore, add_exchanges, open_memory, view
from specialist_calls import FakeModel
from store_helpers import NOON, TOMORROW, Clock

from brain import Context, Refused
from brain.assist.router import find_router
from brain.memory import Memory
from brain.messages import Item
from brain.net.fetch import Fetch
from brain.plugins.context import Result
from brain.plugins.executor import Failure, bind, execute
from brain.plugins.registry import Registry
from brain.store import conversations, items
from specialists.memory import choose_operation, is_read_only, memory, needs_approval, preview

pytestmark = pytest.mark.anyio
BEER = Item("f1", "fact", "I like beer", NOON, NOON, "preferences")
STUDY = Item("m1", "memory", "The study is painted green.", NOON, NOON)


def replace_text(item: Item, text: str, **more: Any) -> Item:
    return Item(item.id, item.kind, text, NOON, NOON, item.category, **more)


@dataclass
class Session:
    """Calls `memory` for a user who wrote some messages."""

    memory: Memory
    store: BreakableStore
    clock: Clock
    messages: tuple[str, ...] = ()
    user: str = "ada"

    def says(self, *messages: str, user: str = "ada") -> "Session":
        return replace(self, messages=messages, user=user)

    @property
    def context(self) -> Context:
        return Context(
            user=self.user,
            conversation_id="c1",
            message=self.messages[-1] if self.messages else "",
            attachments=(),
            time_zone="UTC",
            deadline=float("inf"),
            settings=None,
            model=FakeModel(),
            fetch=Fetch(),
            memory=view(self.memory, *self.messages, user=self.user),
        )

    async def call(self, *, approved: Result | None = None, **params: Any) -> Result | Failure:
        arguments = bind(memory, params)
        if isinstance(arguments, Failure):
            return arguments
        context = replace(self.context, approved=approved)
        return await execute(memory, arguments, {Context: context}, lambda progress: None, timeout=5)

    async def text(self, **params: Any) -> str:
        answer = await self.call(**params)
        assert isinstance(answer, Result), answer
        return answer.text

    async def refusal(self, **params: Any) -> str:
        """The reason of a refused call."""
        failure = await self.call(**params)
        assert isinstance(failure, Failure), failure
        assert failure.code == "refused"
        return failure.reason

    async def ids(self, user: str = "ada") -> list[str]:
        return sorted(item.id for item in await self.store.read(items.list_items, user))


@asynccontextmanager
async def session(*given: Item) -> AsyncIterator[Session]:
    async with open_memory() as (memory, store, clock):
        for item in given:
            await store.write(items.put, "ada", item)
        yield Session(memory, store, clock)


async def test_every_operation() -> None:
    async with session() as ada:
        for params in ({}, {"operation": "long_memory"}, {"operation": "short_memory"}):
            assert "\n" not in await ada.text(**params)
        assert "'x'" in await ada.text(operation="search", text="x")

        ada = ada.says("I am allergic to penicillin", "My favourite colour is blue", "the study is green", "Nora came.")
        save = {"operation": "save_fact", "text": "allergic to penicillin", "category": "personal", "immutable": True}
        saved = await ada.text(**save)
        allergy = re.sub("^Saved ", "", saved)
        assert re.fullmatch(r"#\w+ \(personal, 2026-03-01, protected\): I am allergic to penicillin", allergy)
        saved = await ada.text(operation="save_fact", text="favourite colour: blue", category="preferences")
        blue = re.sub("^Saved ", "", saved)
        known = await ada.text(operation="save_fact", text="My favourite colour is blue")
        assert known.endswith(f": {blue}")
        note = (await ada.text(operation="store", text="The study is green. Nora came.")).removeprefix("Saved memory ")
        assert note.endswith("(memory, 2026-03-01): In the user's own words: the study is green / Nora came.")

        ada.clock.advance(days=1)
        red = ada.says("My favourite colour is red")
        corrected = await red.text(operation="update_fact", id=blue.split()[0], text="My favourite colour is red")
        assert corrected.endswith('colour is red\nIt was "My favourite colour is blue" until 2026-03-02.')
        facts = (await ada.text(operation="facts")).splitlines()
        assert facts[1].endswith('(preferences, 2026-03-02): My favourite colour is red (was "My favourite colour is '
                                 'blue" until 2026-03-02)')  # fmt: skip
        assert facts[2:] == [f"- {allergy}"]
        for category, text in (("personal", ""), (None, "penicillin")):
            listed = await ada.text(operation="facts", category=category, text=text)
            assert listed.splitlines()[1:] == [f"- {allergy}"]
        assert (await ada.text(operation="search", text="study", n=3)).splitlines()[1:] == [f"- {note}"]
        assert note in await ada.text(operation="long_memory")

        await add_exchanges(ada.store, "ada", "c2", ("hello\nthere", "Hi!" * 500))
        ada.memory.invalidate("ada")
        assert (await ada.text(operation="short_memory", n=1)).splitlines()[1:] == [
            "- 2026-03-02 12:00 UTC, user: hello there",
            f"  answer: {('Hi!' * 500)[:599]}…",
        ]
        assert (await ada.text(operation="forget", id=note.split()[0], text="The study")).endswith(note)
        assert "protected" in await ada.refusal(operation="forget", id=allergy.split()[0], text="penicillin")
        assert "colour is red" in await ada.text(operation="forget", text="colour")


async def test_a_memory_names_the_number_of_its_conversations() -> None:
    async with session() as ada:
        for name in ("a", "b"):
            await add_exchanges(ada.store, "ada", name, ("I like jazz", "Good."))
            (idle,) = await ada.store.write_unsynced(conversations.claim_idle, TOMORROW, 1)
            await ada.store.write(
                conversations.set_memory, idle, Item("m1", "memory", "They like jazz", NOON, NOON, conversation_id=name)
            )
        assert (await ada.text(operation="long_memory")).splitlines()[1:] == [
            f"- #m1 (summary by a model, {NOON:%Y-%m-%d}, in 2 conversations): They like jazz"
        ]


async def test_a_summary_by_a_model_is_named_as_one() -> None:
    async with session(replace_text(STUDY, "The user likes tea.")) as ada:
        for operation in ("search", "long_memory"):
            text = await ada.text(operation=operation, text="tea")
            assert text.endswith("- #m1 (summary by a model, 2026-03-01): The user likes tea.")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"operation": "save_fact"}, "save_fact"),
        ({"operation": "update_fact", "text": "I like tea"}, "update_fact"),
        ({"operation": "forget", "id": "#zzzz", "text": "tea"}, "'#zzzz'"),
        # the person who approves reads the text, so it must be that of the id
        ({"operation": "forget", "id": "f1"}, "forget"),
        ({"operation": "forget", "id": "f1", "text": "tea"}, '#f1 (2026-03-01, "I like beer")'),
    ],
)
async def test_wrong_calls_are_refused(params: dict[str, Any], reason: str) -> None:
    async with session(BEER) as ada:
        assert reason in await ada.says("what is on this page?", "I like tea").refusal(**params)
        assert await ada.ids() == ["f1"]
        failure = await ada.call(operation="delete", n=0, id="x" * 300)
        assert isinstance(failure, Failure)
        assert failure.code == "invalid_params"


# Forgetting


@pytest.mark.parametrize(
    ("params", "preview_text"),
    [
        ({"operation": "forget", "id": "#F1", "text": "beer"}, "Delete this fact of 2026-03-01:\nI like beer"),
        ({"text": "please forget that I like beer"}, "Delete this fact of 2026-03-01:\nI like beer"),
        (
            {"operation": "forget", "text": "the study"},
            "Delete this conversation summary of 2026-03-01:\nThe study is painted green.",
        ),
    ],
)
async def test_the_preview_shows_the_item_that_is_deleted(params: dict[str, Any], preview_text: str) -> None:
    async with session(BEER, STUDY) as ada:
        shown = await preview(params, context=ada.context)
        assert shown is not None
        assert shown.text == preview_text
        assert await ada.ids() == ["f1", "m1"]
        assert (await ada.text(approved=shown, **params)).endswith(preview_text.partition("\n")[2])
        assert len(await ada.ids()) == 1


async def test_an_item_changed_after_the_preview_is_not_deleted() -> None:
    params = {"operation": "forget", "text": "beer"}
    async with session(BEER) as ada:
        shown = await preview(params, context=ada.context)
        await ada.store.write(items.put, "ada", replace_text(BEER, "I like ginger beer"))
        reason = await ada.refusal(approved=shown, **params)
        await ada.store.write(items.erase, "ada", "f1")
        await ada.store.write(items.put, "ada", Item("f2", "fact", "I like beer", NOON, NOON, "preferences"))
        assert await ada.refusal(approved=shown, **params) == reason
        assert await ada.ids() == ["f2"]


async def test_previews_that_are_refused_or_not_needed() -> None:
    async with session(replace_text(BEER, "I like beer", mutable=False)) as ada:
        for text, reason in (("wine", "wine"), ("beer", "protected")):
            with pytest.raises(Refused, match=reason):
                await preview({"operation": "forget", "text": text}, context=ada.context)
        for params in ({}, {"operation": "forget"}, {"operation": "save_fact", "text": "I like tea"}):
            assert await preview(params, context=ada.context) is None
        without = replace(ada.context, memory=None)
        assert await preview({"operation": "forget", "text": "tea"}, context=without) is None
        with pytest.raises(Refused):
            await memory(operation="facts", context=without)


# Whose words, and whose memory


async def test_items_with_untrusted_content_make_the_result_untrusted() -> None:
    async with session(replace_text(STUDY, "what a page says of tea", untrusted=True), BEER) as ada:
        calls: list[tuple[dict[str, Any], bool]] = [
            ({"operation": "search", "text": "tea"}, True),
            ({"operation": "long_memory"}, True),
            ({"operation": "facts"}, False),
            ({"operation": "search", "text": "beer"}, False),
        ]
        for params, untrusted in calls:
            answer = await ada.says("x").call(**params)
            assert isinstance(answer, Result)
            assert answer.outside is untrusted


async def test_users_have_only_their_own_memory() -> None:
    async with session(replace_text(BEER, "I live in Berlin")) as ada:
        await add_exchanges(ada.store, "ada", "c1", ("my secret", "ok"))
        bob = ada.says("I live in Berlin", "forget Berlin", user="bob")
        for operation in ("facts", "long_memory", "search", "short_memory"):
            text = await bob.text(operation=operation, text="Berlin secret")
            assert not any(word in text for word in ("#", "secret:", "f1"))
        for operation in ("forget", "update_fact"):
            await bob.refusal(operation=operation, id="f1", text="I live in Berlin")
        assert (await bob.text(operation="save_fact", text="I live in Berlin")).startswith("Saved #")
        assert await ada.ids() == ["f1"]


# Calls without an operation, as the demo model makes them


@pytest.mark.parametrize(
    ("params", "operation", "has_change", "has_approval"),
    [
        ({}, "facts", False, False),
        ({"operation": "facts"}, "facts", False, False),
        ({"operation": "search", "text": "forget"}, "search", False, False),
        ({"operation": "short_memory"}, "short_memory", False, False),
        ({"operation": "save_fact", "text": "x"}, "save_fact", True, False),
        ({"operation": "update_fact"}, "update_fact", True, False),
        ({"operation": "store"}, "store", True, False),
        ({"operation": "forget"}, "forget", True, False),
        ({"operation": "forget", "text": "tea"}, "forget", True, True),
        ({"text": "Remember that I am allergic to penicillin"}, "save_fact", True, False),
        ({"text": "Can you remember that I like tea?"}, "save_fact", True, False),
        ({"text": "Call me Ada"}, "save_fact", True, False),
        ({"text": "Merk dir, dass ich Tee mag"}, "save_fact", True, False),
        ({"text": "Vergiss nicht, dass ich Tee mag"}, "save_fact", True, False),
        ({"text": "please forget that I like tea"}, "forget", True, True),
        ({"text": "vergiss meinen Namen"}, "forget", True, True),
        ({"text": "Do you remember where I live?"}, "search", False, False),
        ({"text": "Remember what I said?"}, "short_memory", False, False),
        ({"text": "What did we talk about?"}, "short_memory", False, False),
        ({"text": "What do you know about me?"}, "facts", False, False),
        ({"text": "tea"}, "search", False, False),
        ({"text": 7}, "facts", False, False),
    ],
)
def test_operations(params: dict[str, Any], operation: str, has_change: bool, has_approval: bool) -> None:
    assert choose_operation(params) == operation
    assert (not is_read_only(params), needs_approval(params)) == (has_change, has_approval)


def test_questions_about_memory_are_recognized() -> None:
    specialists = [entry.specialist for entry in Registry().discover().values()]
    router = asyncio.run(find_router(tuple(specialists)))
    names = [specialist.name for specialist in specialists]
    questions = (
        "Remember that I am allergic to penicillin", "What do you know about me?", "what did we talk about",
        "Forget that I like tea", "Please remember: my wife is called Ida", "Note that I live in Ghent.",
        "What's my name?", "Do you remember where I live?", "Merk dir, dass ich Ada heiße", "Was weißt du über mich?",
    )  # fmt: skip
    choices = {question: router.choose(question, names) for question in questions}
    assert [one for one, choice in choices.items() if choice is None or choice.name != "memory"] == []


async def test_a_whole_message_as_text_is_understood() -> None:
    async with session() as ada:

        async def send(message: str, **params: Any) -> str:
            return await ada.says(message).text(text=message, **params)

        assert (await send("Remember that I am allergic to penicillin")).endswith("I am allergic to penicillin")
        assert "I am allergic to penicillin" in await send("What do you know about me?")
        assert (await send("store that I like tea", operation="store")).endswith("store that I like tea")
        await add_exchanges(ada.store, "ada", "c1", ("I like trains", "ok"))
        assert "user: I like trains" in await send("what did we talk about")
        assert (await send("Forget that I like tea", operation="forget")).startswith("Deleted #")
        assert "I am allergic to penicillin" in await send("What am I allergic to?")
