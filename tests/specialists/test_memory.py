"""The specialist `memory`, as a turn calls it and as the stand-in does, over a real memory and store."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from remembering import add_exchanges, open_memory, view
from specialist_calls import Eyes
from stores import NOON

from brain import Context, Refused, Result
from brain.events import Limits
from brain.memory import Memory
from brain.messages import Item
from brain.models.builtin import Builtin
from brain.net.fetch import Fetch
from brain.plugins.executor import Answer, Failure, execute, prepare
from brain.plugins.registry import Registry
from brain.prompts.system_prompt import example_marker, system_prompt
from specialists.calendar import calendar
from specialists.docs import docs
from specialists.knowledge import knowledge
from specialists.medical import medical
from specialists.memory import memory, needs_approval, operation_of, preview, reads
from specialists.ocr import ocr
from specialists.pubmed import pubmed
from specialists.vision import vision
from specialists.web import web
from specialists.wiki import wiki

ALL = (calendar, docs, knowledge, medical, memory, ocr, pubmed, vision, web, wiki)


def context(held: Memory | None, said: Sequence[str] = (), user: str = "ada") -> Context:
    """What surrounds a call in a conversation in which this was said."""
    return Context(
        user=user,
        conversation_id="c1",
        message=said[-1] if said else "",
        attachments=(),
        time_zone="UTC",
        deadline=float("inf"),
        settings=None,
        model=Eyes(),
        fetch=Fetch(),
        memory=view(held, *said, user=user) if held is not None else None,
    )


async def called(ctx: Context, **params: Any) -> Answer | Failure:
    arguments = prepare(memory, params)
    if isinstance(arguments, Failure):
        return arguments
    return await execute(memory, arguments, {Context: ctx}, lambda progress: None, timeout=5)


async def told(ctx: Context, **params: Any) -> str:
    answer = await called(ctx, **params)
    assert isinstance(answer, Answer), answer
    return answer.text


async def refused(ctx: Context, **params: Any) -> str:
    failure = await called(ctx, **params)
    assert isinstance(failure, Failure), failure
    assert failure.code == "refused"
    return failure.reason


def test_every_operation() -> None:
    async def test() -> None:
        async with open_memory() as (held, store, clock):
            said = [
                "I am allergic to penicillin",
                "My favourite colour is blue",
                "the study is painted green",
                "Nora came.",
            ]
            ctx = context(held, said)
            assert await told(ctx) == "No fact is known."
            assert await told(ctx, operation="long_memory") == "No memory of a conversation is kept yet."
            assert await told(ctx, operation="short_memory") == "Nothing was said before."
            assert await told(ctx, operation="search", text="x") == "Nothing that is kept fits for 'x'."

            text = await told(
                ctx, operation="save_fact", text="allergic to penicillin", category="personal", immutable=True
            )
            (fact,) = await store.items("ada")
            assert text == f"Saved #{fact.id} (personal, 2026-03-01, immutable): I am allergic to penicillin"
            text = await told(ctx, operation="save_fact", text="favourite colour: blue", category="preferences")
            (blue,) = [item for item in await store.items("ada") if item.id != fact.id]
            assert text == f"Saved #{blue.id} (preferences, 2026-03-01): My favourite colour is blue"
            assert await told(ctx, operation="save_fact", text="My favourite colour is blue") == (
                f"Known already: #{blue.id} (preferences, 2026-03-01): My favourite colour is blue"
            )

            text = await told(ctx, operation="store", text="The study is painted green. Nora came.")
            (note,) = await store.items("ada", kind="memory")
            quotes = (
                f"#{note.id} (memory, 2026-03-01): In the user's own words: the study is painted green / Nora came."
            )
            assert text == f"Stored memory {quotes}"

            clock.advance(days=1)
            red = context(held, ["My favourite colour is red"])
            assert await told(red, operation="update_fact", id=f"#{blue.id}", text="My favourite colour is red") == (
                f"Corrected: #{blue.id} (preferences, 2026-03-02): My favourite colour is red\n"
                'It was "My favourite colour is blue" until 2026-03-02.'
            )
            assert await told(ctx, operation="facts") == (
                "Facts that the user stated:\n"
                f"- #{blue.id} (preferences, 2026-03-02): My favourite colour is red "
                '(was "My favourite colour is blue" until 2026-03-02)\n'
                f"- #{fact.id} (personal, 2026-03-01, immutable): I am allergic to penicillin"
            )
            assert await told(ctx, operation="facts", category="personal") == (
                f"Facts that the user stated:\n"
                f"- #{fact.id} (personal, 2026-03-01, immutable): I am allergic to penicillin"
            )
            assert await told(ctx, operation="facts", text="penicillin") == (
                f"Facts that the user stated with 'penicillin':\n"
                f"- #{fact.id} (personal, 2026-03-01, immutable): I am allergic to penicillin"
            )
            found = await told(ctx, operation="search", text="study", n=3)
            assert found == f"Facts and memories found:\n- {quotes}"
            assert f"#{note.id}" in await told(ctx, operation="long_memory")

            await add_exchanges(store, "ada", "c2", ("hello\nthere", "Hi!" * 500))
            held.invalidate("ada")
            lines = (await told(ctx, operation="short_memory", n=1)).splitlines()
            assert lines[:2] == ["What was said last, newest first:", "- 2026-03-02 12:00 UTC, user: hello there"]
            assert lines[2] == f"  answer: {('Hi!' * 500)[:599]}…"

            assert await told(ctx, operation="forget", id=note.id, text="The study") == f"Forgotten: {quotes}"
            assert "is immutable; only the user can remove it" in await refused(
                ctx, operation="forget", id=fact.id, text="penicillin"
            )
            assert await told(ctx, operation="forget", text="colour") == (
                f"Forgotten: #{blue.id} (preferences, 2026-03-02): My favourite colour is red"
            )

    asyncio.run(test())


def test_a_summary_is_named_as_what_a_model_wrote() -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            await store.put("ada", Item("m1", "memory", "The user likes tea.", NOON, NOON))
            for operation in ("search", "long_memory"):
                text = await told(context(held), operation=operation, text="tea")
                assert text.endswith("- #m1 (summary by a model, 2026-03-01): The user likes tea.")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"operation": "save_fact", "text": "The user's bank is evil.example"},
         "the user did not write that in this conversation; give a sentence of theirs, word for word, or ask them to "
         "write it"),
        ({"operation": "update_fact", "text": "I like tea"},
         "update_fact needs id (of the fact, or words that it alone has) and text (its new wording)"),
        ({"operation": "forget", "id": "#zzzz", "text": "tea"},
         "nothing is kept with the words '#zzzz'; look for it with search or facts first"),
        ({"operation": "update_fact", "id": "horse", "text": "I like tea"},
         "nothing is kept with the words 'horse'; look for it with search or facts first"),
    ],
)  # fmt: skip
def test_wrong_calls_are_refused_with_what_would_be_right(params: dict[str, Any], problem: str) -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            reason = await refused(context(held, ["what is on this page?", "I like tea"]), **params)
            assert reason == problem
            assert await store.items("ada") == []

    asyncio.run(test())


async def previewed(ctx: Context, **params: Any) -> Result:
    found = await preview(params, context=ctx)
    assert isinstance(found, Result)
    return found


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"operation": "forget", "id": "#F1", "text": "beer"}, "Forget this fact, of 2026-03-01:\nI like beer"),
        ({"text": "please forget that I like beer"}, "Forget this fact, of 2026-03-01:\nI like beer"),
        (
            {"operation": "forget", "text": "the study"},
            "Forget this memory of a conversation, of 2026-03-01:\nThe study is painted green.",
        ),
    ],
)
def test_what_would_be_forgotten_is_told_and_that_is_forgotten(params: dict[str, Any], expected: str) -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            await store.put("ada", Item("f1", "fact", "I like beer", NOON, NOON, "preferences"))
            await store.put("ada", Item("m1", "memory", "The study is painted green.", NOON, NOON))
            ctx = context(held)
            shown = await previewed(ctx, **params)
            assert shown.text == expected
            assert len(await store.items("ada")) == 2
            assert (await told(replace(ctx, approved=shown), **params)).endswith(expected.partition("\n")[2])
            assert len(await store.items("ada")) == 1

    asyncio.run(test())


def test_what_says_something_else_by_now_is_not_forgotten() -> None:
    changed = (
        "what is kept was changed after the user approved this: look at it again, then ask again if it is still right"
    )

    async def test() -> None:
        async with open_memory() as (held, store, _):
            await store.put("ada", Item("f1", "fact", "I like beer", NOON, NOON, "preferences"))
            ctx = context(held)
            wanted = {"operation": "forget", "text": "beer"}
            approved = replace(ctx, approved=await previewed(ctx, **wanted))
            await store.put("ada", Item("f1", "fact", "I like ginger beer", NOON, NOON, "preferences"))
            assert await refused(approved, **wanted) == changed
            await store.erase("ada", "f1")
            await store.put("ada", Item("f2", "fact", "I like beer", NOON, NOON, "preferences"))
            assert await refused(approved, **wanted) == changed
            assert [item.id for item in await store.items("ada")] == ["f2"]

    asyncio.run(test())


def test_what_cannot_be_forgotten_is_refused_before_anybody_is_asked() -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            await store.put("ada", Item("f1", "fact", "I like beer", NOON, NOON, "preferences", mutable=False))
            for params, reason in [
                ({"operation": "forget", "text": "wine"}, "nothing is kept with the words 'wine'"),
                ({"operation": "forget", "text": "beer"}, "is immutable; only the user can remove it"),
            ]:
                with pytest.raises(Refused, match=reason):
                    await preview(params, context=context(held))

    asyncio.run(test())


@pytest.mark.parametrize("params", [{}, {"operation": "forget"}, {"operation": "save_fact", "text": "I like tea"}])
def test_nothing_is_told_of_other_operations(params: dict[str, Any]) -> None:
    async def test() -> None:
        async with open_memory() as (held, _, _):
            assert await preview(params, context=context(held)) is None
            assert await preview({"operation": "forget", "text": "tea"}, context=context(None)) is None

    asyncio.run(test())


def test_only_what_was_read_aloud_is_forgotten() -> None:
    """Who approves reads the text, which an id beside it must not belie."""

    async def test() -> None:
        async with open_memory() as (held, store, _):
            await store.put("ada", Item("f1", "fact", "I like beer", NOON, NOON, "preferences"))
            ctx = context(held, ["forget the tea"])
            assert await refused(ctx, operation="forget", id="f1") == "forget needs text: the user's words of it"
            assert await refused(ctx, operation="forget", id="f1", text="I like tea") == (
                '#f1 of 2026-03-01, "I like beer", does not say that; give its own words, or the id of what says it'
            )
            assert (await told(ctx, operation="forget", id="f1", text="beer")).startswith("Forgotten: #f1")

    asyncio.run(test())


def test_wrong_parameters_are_named() -> None:
    async def test() -> None:
        async with open_memory() as (held, _, _):
            failure = await called(context(held), operation="delete", n=0, id="x" * 300)
            assert isinstance(failure, Failure)
            assert failure.code == "invalid_params"
            assert all(name in failure.reason for name in ("operation", "n", "id"))

    asyncio.run(test())


def test_where_nothing_is_kept_it_says_so() -> None:
    async def test() -> None:
        assert await refused(context(None), operation="facts") == "nothing is kept of this user here; go on without it"

    asyncio.run(test())


def test_what_strangers_wrote_is_marked() -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            ctx = context(held, ["x"])
            await store.put("ada", Item("m1", "memory", "what a page says of tea", NOON, NOON, untrusted=True))
            await store.put("ada", Item("f1", "fact", "I like beer", NOON, NOON, "preferences"))
            for params, outside in (
                ({"operation": "search", "text": "tea"}, True),
                ({"operation": "long_memory"}, True),
                ({"operation": "facts"}, False),
                ({"operation": "search", "text": "beer"}, False),
            ):
                answer = await called(ctx, **params)
                assert isinstance(answer, Answer)
                assert answer.outside is outside

    asyncio.run(test())


def test_two_users_see_only_their_own() -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            item = await held.edits.write("ada", "I live in Berlin")
            await add_exchanges(store, "ada", "c1", ("my secret", "ok"))
            bob = context(held, ["I live in Berlin", "forget Berlin"], user="bob")
            for operation in ("facts", "long_memory", "search", "short_memory"):
                answer = await told(bob, operation=operation, text="Berlin secret")
                assert "#" not in answer
                assert "secret:" not in answer
                assert item.id not in answer
            assert "nothing is kept" in await refused(bob, operation="forget", id=item.id, text="Berlin")
            assert "nothing is kept" in await refused(bob, operation="update_fact", id=item.id, text="I live in Berlin")
            assert (await told(bob, operation="save_fact", text="I live in Berlin")).startswith("Saved #")
            assert [one.id for one in await store.items("ada")] == [item.id]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("params", "operation", "changes", "asked"),
    [
        ({}, "facts", False, False),
        ({"operation": "facts"}, "facts", False, False),
        ({"operation": "search", "text": "forget"}, "search", False, False),
        ({"operation": "short_memory"}, "short_memory", False, False),
        ({"operation": "long_memory"}, "long_memory", False, False),
        ({"operation": "save_fact", "text": "x"}, "save_fact", True, False),
        ({"operation": "update_fact"}, "update_fact", True, False),
        ({"operation": "store"}, "store", True, False),
        ({"operation": "forget"}, "forget", True, False),
        ({"operation": "forget", "text": "tea"}, "forget", True, True),
        # from who gives no operation
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
def test_what_is_meant_and_who_is_asked(params: dict[str, Any], operation: str, changes: bool, asked: bool) -> None:
    assert operation_of(params) == operation
    assert reads(params) is not changes
    assert needs_approval(params) is asked


# with the stand-in


@pytest.mark.parametrize(
    "question",
    [
        "Remember that I am allergic to penicillin",
        "What do you know about me?",
        "what do you know about me",
        "what did we talk about",
        "What did we talk about?",
        "Forget that I like tea",
        "Please remember: my wife is called Ida",
        "Note that I live in Ghent.",
        "Call me Bob",
        "What's my name?",
        "Do you remember where I live?",
        "Merk dir, dass ich Ada heiße",
        "Was weißt du über mich?",
    ],
)
def test_the_stand_in_asks_it(question: str) -> None:
    model = Builtin(ALL)
    try:
        assert model._route(question, [one.name for one in ALL], with_files=False) == "memory"
    finally:
        asyncio.run(model.aclose())


def test_what_the_stand_in_passes_on_is_understood() -> None:
    async def test() -> None:
        async with open_memory() as (held, store, _):
            question = "Remember that I am allergic to penicillin"
            assert (await told(context(held, [question]), text=question)).endswith("I am allergic to penicillin")
            question = "What do you know about me?"
            assert "I am allergic to penicillin" in await told(context(held, [question]), text=question)
            question = "store that I like tea"
            assert (await told(context(held, [question]), operation="store", text=question)).endswith(question)
            await add_exchanges(store, "ada", "c1", ("I like trains", "ok"))
            question = "what did we talk about"
            assert "user: I like trains" in await told(context(held, [question]), text=question)
            question = "Forget that I like tea"
            assert (await told(context(held, [question]), operation="forget", text=question)).startswith("Forgotten: #")
            question = "What am I allergic to?"
            assert "I am allergic to penicillin" in await told(context(held, [question]), text=question)

    asyncio.run(test())


def test_its_line_in_the_prompt_is_short_and_shows_a_whole_call() -> None:
    line = next(line for line in system_prompt([memory], Limits(), ("bracket",)).splitlines() if "- memory:" in line)
    assert len(line) < 600
    assert example_marker(memory, "bracket") == (
        'SPECIALIST_REQUEST[memory:{"operation":"save_fact","text":"I am allergic to penicillin"}]'
    )


def test_it_is_installed() -> None:
    entry = Registry().discover()["memory"].describe()
    assert (entry["auth"], entry["approval"], entry["outside"], entry["available"]) == (True, "depends", False, True)
