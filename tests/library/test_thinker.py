"""Conversations for programs: a session, its callbacks, its states, what it gives."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from playing import WAIT, breaks, echo, sends, waits

from brain.errors import BadRequest, SettingsError
from brain.events import ApprovalRequired, SpecialistError, SpecialistResult, SpecialistStart
from brain.library.answer import Metrics, Response
from brain.library.thinker import Thinker
from brain.messages import Attachment
from brain.plugins.registry import Registry

CALL = 'SPECIALIST_REQUEST[echo:{"text":"ping"}]'
Play = Callable[..., str]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """A model that plays these passes; each is a list of chunks, or of chunks with how long each takes."""

    def played(*passes: list[str] | dict[str, Any]) -> str:
        path = tmp_path / "script.jsonl"
        path.write_text("\n".join(map(json.dumps, passes)))
        return f"script:{path}"

    return played


def thinker(model: str, **settings: Any) -> Thinker:
    registry = Registry()
    for one in (echo, breaks, sends, waits):
        registry.add(one)
    return Thinker(registry, **{"model": model, "store": "memory:", **settings})


def thought(model: str, work: Callable[[Thinker], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Does something with a thinker, behind which nothing is left running."""

    async def main() -> None:
        async with thinker(model, **settings) as one:
            await work(one)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_an_answer(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session("c", user="ada")
        assert (session.state, session.metrics) == ("idle", Metrics())
        response = await session.think("Hi")
        assert (response.text, response.state, response.conversation_id) == ("Hello!", "complete", "c")
        assert (response.citations, response.calls, response.error) == ([], [], None)
        assert response.message_id.startswith("m")
        assert response.tokens > 0
        assert session.state == "complete"
        metrics = session.metrics
        assert (metrics.total_tokens, metrics.calls, metrics.cancelled) == (response.tokens, 0, False)
        assert metrics.first_token_ms is not None
        assert metrics.first_token_ms <= metrics.total_ms == response.latency_ms

    thought(play(["Hel", "lo!"]), work)


def test_what_happens_is_told_as_it_happens_with_the_state_it_is_in(play: Play) -> None:
    told: list[Any] = []

    async def work(one: Thinker) -> None:
        def note(what: Any) -> None:
            told.append((what, session.state))

        async def found(call: SpecialistResult | SpecialistError) -> None:
            await asyncio.sleep(0)
            assert isinstance(call, SpecialistResult)
            note(call.text)

        session = one.create_session(on_token=note, on_call=lambda call: note(call.name), on_result=found)
        response = await session.think("Hi")
        assert response.text == "Let me see. It is ping."
        assert [(call.name, call.call_id) for call in response.calls] == [("echo", "c1")]
        assert [citation.title for citation in response.citations] == ["The text"]
        assert session.metrics.calls == 1

    thought(play(["Let me see. ", CALL], ["It is", " ping."]), work)
    assert told == [
        ("Let me see. ", "generating"),
        ("echo", "tool_calling"),
        ("ping", "processing"),
        ("It is", "generating"),
        (" ping.", "generating"),
    ]


def test_each_token_comes_when_it_arrives(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session(on_token=lambda text: session.cancel())
        response = await session.think("Hi")
        assert (response.text, response.state) == ("One, ", "cancelled")
        assert (session.state, session.metrics.cancelled) == ("cancelled", True)

    thought(play({"chunks": ["One, ", "two, "], "delay_ms": 50}), work)


def test_cancelling_ends_what_waits_at_once(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session(on_call=lambda call: session.cancel())
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await session.think("Hi")
        assert loop.time() - began < WAIT / 10
        assert response.state == "cancelled"
        assert [(call.name, call.code) for call in response.calls if isinstance(call, SpecialistError)] == [
            ("waits", "cancelled")
        ]
        assert [(entry.role, entry.outcome) for entry in await session.context()][-1] == ("assistant", "cancelled")

    thought(play(["SPECIALIST_REQUEST[waits]"]), work)


def test_cancelling_nothing_does_nothing(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session()
        session.cancel()
        assert (await session.think("Hi")).state == "complete"
        session.cancel()
        assert (await session.think("Hi")).state == "complete"

    thought(play(["Hello!"]), work)


def test_whose_task_is_cancelled_is_gone_and_kept(play: Play) -> None:
    async def work(one: Thinker) -> None:
        heard = asyncio.Event()
        session = one.create_session("c", on_token=lambda text: heard.set())
        thinking = asyncio.create_task(session.think("Hi"))
        await heard.wait()
        thinking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await thinking
        assert session.state == "cancelled"
        again = one.create_session("c")
        await asyncio.sleep(0.05)
        assert [(entry.role, entry.text, entry.outcome) for entry in await again.context()] == [
            ("user", "Hi", ""),
            ("assistant", "One, ", "cancelled"),
        ]

    thought(play({"chunks": ["One, ", "two"], "delay_ms": 50}), work)


def test_a_callback_that_raises_ends_the_turn_and_is_heard(play: Play) -> None:
    async def work(one: Thinker) -> None:
        def fails(text: str) -> None:
            raise RuntimeError("the screen is gone")

        session = one.create_session(on_token=fails)
        with pytest.raises(RuntimeError, match="the screen is gone"):
            await session.think("Hi")
        assert session.state == "cancelled"
        session = one.create_session(session.conversation_id)
        assert (await session.think("Again")).state == "complete"
        assert [entry.outcome for entry in await session.context()] == ["", "cancelled", "", "complete"]

    thought(play(["One, ", "two"]), work)


def test_so_does_one_that_was_to_approve(play: Play) -> None:
    async def work(one: Thinker) -> None:
        async def fails(event: ApprovalRequired) -> bool:
            raise RuntimeError("nobody is there")

        session = one.create_session(on_approval=fails)
        with pytest.raises(RuntimeError, match="nobody is there"):
            await session.think("Hi")
        assert [entry.outcome for entry in await session.context()] == ["", "cancelled"]

    thought(play(["SPECIALIST_REQUEST[sends]"], ["Done."]), work)


def test_what_still_runs_when_it_closes_is_ended_and_kept(play: Play, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'brain.db'}"
    model = play({"chunks": ["One, ", *["two, "] * 50], "delay_ms": 50})
    left: list[asyncio.Task[Response]] = []

    async def leaves(one: Thinker) -> None:
        heard = asyncio.Event()
        session = one.create_session("c", on_token=lambda text: heard.set())
        left.append(asyncio.create_task(session.think("Hi")))
        await heard.wait()

    async def main() -> None:
        async with thinker(model, store=store) as one:
            await leaves(one)
        response = await left[0]
        assert (response.state, response.error and response.error.code) == ("error", "shutdown")

    asyncio.run(main())

    async def reads(one: Thinker) -> None:
        entries = await one.create_session("c").context()
        assert [(entry.outcome, entry.text[:5]) for entry in entries] == [("", "Hi"), ("shutdown", "One, ")]

    thought(model, reads, store=store)


def test_the_context_is_what_the_model_reads(play: Play) -> None:
    async def work(one: Thinker) -> None:
        await one.create_session("c").think("Hi")
        assert await one.create_session("c").context() == []

    thought(play({"chunks": [], "error": "it broke"}), work)


def test_an_error_is_a_response(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session()
        response = await session.think("Hi")
        assert (response.text, response.state, session.state) == ("Well, ", "error", "error")
        assert response.error is not None
        assert (response.error.code, response.error.message) == (
            "model_failed",
            "The model failed in the middle of its answer.",
        )

    thought(play({"chunks": ["Well, "], "error": "secret dsn"}), work)


def test_what_failed_says_why(play: Play) -> None:
    async def work(one: Thinker) -> None:
        response = await one.create_session().think("Hi")
        (call,) = response.calls
        assert isinstance(call, SpecialistError)
        assert call.code == "failed"
        assert "swordfish" not in call.reason

    thought(play(["SPECIALIST_REQUEST[breaks]"], ["Sorry."]), work)


@pytest.mark.parametrize(("approves", "outcome"), [(True, "sent"), (False, "declined"), (None, "declined")])
def test_a_person_may_approve(play: Play, approves: bool | None, outcome: str) -> None:
    asked: list[str] = []

    async def decide(event: ApprovalRequired) -> bool:
        asked.append(event.name)
        await asyncio.sleep(0)
        return approves is True

    async def work(one: Thinker) -> None:
        session = one.create_session(on_approval=decide if approves is not None else None)
        (call,) = (await session.think("Hi")).calls
        assert (call.text if isinstance(call, SpecialistResult) else call.code) == outcome

    thought(play(["SPECIALIST_REQUEST[sends]"], ["Done."]), work)
    assert asked == ([] if approves is None else ["sends"])


def test_a_conversation_goes_on_whoever_opens_it(play: Play, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'brain.db'}"
    model = play(["Hello!"])

    async def first(one: Thinker) -> None:
        session = one.create_session("c", user="ada")
        await session.think("Hi", attachments=[Attachment(0, "a.txt", "text/plain", b"words")])
        await session.think("And?", "voice")

    async def second(one: Thinker) -> None:
        context = await one.create_session("c", user="ada").context()
        assert [(entry.role, entry.text, entry.source) for entry in context] == [
            ("user", "Hi", "chat"),
            ("assistant", "Hello!", "chat"),
            ("user", "And?", "voice"),
            ("assistant", "Hello!", "voice"),
        ]
        assert all(entry.time is not None and entry.time.tzinfo is not None for entry in context)
        assert len({entry.id for entry in context}) == 4
        assert await one.create_session("c", user="bob").context() == []
        assert await one.create_session(user="ada").context() == []

    thought(model, first, store=store)
    thought(model, second, store=store)


def test_calls_and_citations_are_in_the_context(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session()
        await session.think("Hi")
        _, answer = await session.context()
        assert answer.call_ids == ["c1"]
        assert [citation.title for citation in answer.citations] == ["The text"]

    thought(play([CALL], ["Done."]), work)


def test_two_at_once_are_never_mixed(play: Play) -> None:
    async def work(one: Thinker) -> None:
        heard = asyncio.Event()
        session = one.create_session("c", on_token=lambda text: heard.set())
        first = asyncio.create_task(session.think("One?"))
        await heard.wait()
        with pytest.raises(BadRequest) as refused:
            await one.create_session("c").think("Two?")
        assert (refused.value.code, refused.value.status) == ("busy", 409)
        heard.clear()
        second = asyncio.create_task(session.think("Three?", barge_in=True))
        assert (await first).state == "cancelled"
        await heard.wait()
        assert session.state == "generating"
        assert (await second).text == "One, two, three."
        assert [(entry.text, entry.outcome) for entry in await session.context()] == [
            ("One?", ""),
            ("One, ", "cancelled"),
            ("Three?", ""),
            ("One, two, three.", "complete"),
        ]

    thought(play({"chunks": ["One, ", "two, ", "three."], "delay_ms": 20}), work)


def test_a_refused_think_leaves_the_session_as_it_was(play: Play) -> None:
    async def work(one: Thinker) -> None:
        session = one.create_session()
        for text in ("", " \n", 5):
            with pytest.raises(BadRequest, match="text must say something"):
                await session.think(text)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="source must be one of: chat, voice, api"):
            await session.think("Hi", "fax")  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="user must be a name"):
            one.create_session(user="")
        assert session.state == "idle"

    thought(play(["Hello!"]), work)


def test_what_is_closed_thinks_no_more(play: Play) -> None:
    async def main() -> None:
        one = thinker(play(["Hello!"]))
        async with one:
            session = one.create_session()
        with pytest.raises(BadRequest, match="It is not open"):
            await session.think("Hi")

    asyncio.run(main())


def test_what_it_took_so_far_is_known(play: Play) -> None:
    told: list[Metrics] = []

    async def work(one: Thinker) -> None:
        session = one.create_session(on_token=lambda text: told.append(session.metrics))
        response = await session.think("Hi")
        assert told[0].calls <= told[1].calls == 1  # the turn does not wait for the callback
        assert told[0].total_tokens <= told[1].total_tokens <= response.tokens
        assert told[1].total_tokens > 0

    thought(play(["One. ", CALL], ["Two."]), work)


def test_tools_that_bring_a_schema(play: Play) -> None:
    async def work(one: Thinker) -> None:
        one.register("double", "Doubles.", {"type": "object", "properties": {"n": {"type": "integer"}}}, doubled)
        calls: list[SpecialistStart] = []
        response = await one.create_session(on_call=calls.append).think("Hi")
        assert [call.params for call in calls] == [{"n": 21}]
        assert [call.text for call in response.calls if isinstance(call, SpecialistResult)] == ["42"]

    async def doubled(params: dict[str, Any]) -> str:
        return str(2 * params["n"])

    thought(play(['SPECIALIST_REQUEST[double:{"n":21}]'], ["Done."]), work)


def test_settings_are_checked() -> None:
    with pytest.raises(SettingsError, match="--wind is not a setting"):
        Thinker(Registry(), wind="strong")
    with pytest.raises(SettingsError, match="--store='nowhere' is not allowed"):
        Thinker(Registry(), store="nowhere")


def test_it_is_a_public_name() -> None:
    import brain

    assert brain.Thinker is Thinker
