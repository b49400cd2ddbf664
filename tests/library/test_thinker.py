"""Conversations for programs: sessions, callbacks, states and responses."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, get_args

import pytest
from store_helpers import refuse_nul
from turn_helpers import breaks, echo, registry_of, sends, waits

from brain.errors import BadRequest, SettingsError
from brain.events import ApprovalRequired, ErrorCode, Rewind, SpecialistError, SpecialistResult
from brain.library.answer import SPOKEN_ERRORS, Metrics, Response
from brain.library.thinker import Session, Thinker
from brain.messages import Attachment
from brain.plugins.registry import Registry
from brain.runtime import run as runs

CALL = 'SPECIALIST_REQUEST[echo:{"text":"ping"}]'
ENDLESS = ["One, ", "SPECIALIST_REQUEST[waits]"]
Work = Callable[[Thinker], Coroutine[Any, Any, None]]
Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs work with a thinker whose model plays passes, and checks that nothing runs on."""

    def run(passes: list[Any], work: Work, **settings: Any) -> None:
        path = tmp_path / "script.jsonl"
        path.write_text("\n".join(map(json.dumps, passes)))

        async def main() -> None:
            registry = registry_of(echo, breaks, sends, waits)
            async with Thinker(registry, **{"model": f"script:{path}", "store": "memory:", **settings}) as thinker:
                await work(thinker)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    return run


async def outcomes(session: Session) -> list[str]:
    """Return the text or outcome of each message that the model would read."""
    return [message.outcome or message.text for message in await session.context()]


def test_an_answer_with_callbacks_and_states(run: Run) -> None:
    events: list[Any] = []

    async def work(thinker: Thinker) -> None:
        async def on_result(call: SpecialistResult | SpecialistError) -> None:
            assert isinstance(call, SpecialistResult)
            events.append((call.text, session.state))

        session: Session = thinker.create_session(
            "c",
            user="ada",
            on_token=lambda text: events.append((text, session.state, session.metrics.total_tokens)),
            on_call=lambda call: events.append((call.name, session.state)),
            on_result=on_result,
        )
        assert (session.state, session.metrics) == ("idle", Metrics())
        response = await session.think("Hi")
        assert (response.text, response.state, response.conversation_id) == ("Let me see. It is ping.", "complete", "c")
        assert (response.message_id[0], response.error, session.state) == ("m", None, "complete")
        assert [(call.name, call.call_id) for call in response.calls] == [("echo", "c1")]
        assert (response.calls_by_name, response.stop_reason) == ({"echo": 1}, "complete")
        assert [citation.title for citation in response.citations] == ["The text"]
        metrics = session.metrics
        assert (metrics.total_tokens, metrics.calls, metrics.cancelled) == (response.tokens, 1, False)
        assert 0 <= (metrics.first_token_ms or 0) <= metrics.total_ms == response.latency_ms
        _, answer = await session.context()
        assert (answer.call_ids, [citation.title for citation in answer.citations]) == (["c1"], ["The text"])

    run([["Let me see. ", CALL], ["It is", " ping."]], work)
    assert [event[:2] for event in events] == [
        ("Let me see. ", "generating"),
        ("echo", "tool_calling"),
        ("ping", "processing"),
        ("It is", "generating"),
        (" ping.", "generating"),
    ]
    assert (events[0][2], events[3][2] > 0) == (0, True)


def test_rounds_and_the_usage_of_each_model(run: Run, tmp_path: Path) -> None:
    thinks = ["<instruction>Ping.</instruction>"], ["TASK_DONE <instruction>Say it.</instruction>"]
    (tmp_path / "thinker.jsonl").write_text("\n".join(map(json.dumps, thinks)))
    director = f"script:{tmp_path / 'thinker.jsonl'}"
    tokens: list[str] = []

    async def work(thinker: Thinker) -> None:
        response = await thinker.create_session(strategy="dual", critic=True, on_token=tokens.append).think("Ping?")
        worker = response.rounds[1].model
        assert (response.text, "".join(tokens), response.state) == ("Pong.", "Pong.", "complete")
        assert [(one.n, one.role, one.model, one.text) for one in response.rounds] == [
            (1, "thinker", director, None),
            (2, "actor", worker, "Ping."),
            (3, "thinker", director, None),
            (4, "writer", worker, "Say it."),
            (5, "critic", director, None),
        ]
        assert response.usage.keys() == {director, worker}
        counts = [one.prompt_tokens + one.completion_tokens for one in response.usage.values()]
        assert (min(counts) > 0, sum(counts)) == (True, response.tokens)
        single = await thinker.create_session().think("Ping?")
        assert (single.rounds, [*single.usage]) == ([], [worker])

    run([[CALL], ["done"], ["<final_output>Pong.</final_output>"]], work, thinker=director)


@pytest.mark.parametrize("callback", ["on_token", "on_call"])
def test_cancelling(run: Run, callback: str) -> None:
    async def work(thinker: Thinker) -> None:
        callbacks: dict[str, Any] = {callback: lambda _: session.cancel()}
        session: Session = thinker.create_session(**callbacks)
        session.cancel()  # nothing runs
        response = await session.think("Hi")
        assert (response.text, response.state, session.state) == ("One, ", "cancelled", "cancelled")
        assert session.metrics.cancelled
        assert await outcomes(session) == ["Hi", "cancelled"]
        session.cancel()
        thinking = asyncio.create_task(session.think("And?"))
        await asyncio.sleep(0)
        session.cancel()  # before the turn has begun
        assert (await thinking).text == ""

    run([ENDLESS], work)


def test_a_task_that_is_cancelled(run: Run) -> None:
    async def work(thinker: Thinker) -> None:
        started = asyncio.Event()
        session = thinker.create_session("c", on_token=lambda text: started.set())
        thinking = asyncio.create_task(session.think("Hi"))
        await started.wait()
        thinking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await thinking
        assert session.state == "cancelled"
        assert await outcomes(thinker.create_session("c")) == ["Hi", "cancelled"]

    run([ENDLESS], work)


@pytest.mark.parametrize("callback", ["on_token", "on_approval"])
def test_an_exception_of_a_callback_stops_the_turn_and_is_raised(run: Run, callback: str) -> None:
    def fails(_: Any) -> bool:
        raise RuntimeError("the screen is gone")

    async def work(thinker: Thinker) -> None:
        session = thinker.create_session(**{callback: fails})  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="the screen is gone"):
            await session.think("Hi")
        assert await outcomes(session) == ["Hi", "cancelled"]

    run([["One. ", "SPECIALIST_REQUEST[sends]"], ["two"]], work)


def test_closing_stops_and_stores_running_turns(run: Run, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'brain.db'}"
    responses: list[Response] = []

    async def leave(thinker: Thinker) -> None:
        started = asyncio.Event()
        session = thinker.create_session("c", on_token=lambda text: started.set())
        thinking = asyncio.create_task(session.think("Hi"))
        thinking.add_done_callback(lambda task: responses.append(task.result()))
        await started.wait()

    async def read(thinker: Thinker) -> None:
        assert await outcomes(thinker.create_session("c")) == ["Hi", "shutdown"]

    run([ENDLESS], leave, store=store)
    assert [(one.state, one.error.code) for one in responses if one.error] == [("error", "shutdown")]
    run([ENDLESS], read, store=store)


def test_a_failed_model_and_a_failed_call(run: Run) -> None:
    async def work(thinker: Thinker) -> None:
        session = thinker.create_session()
        response = await session.think("Hi")
        said = "Well,\n\nThe language model failed. Please try again."
        assert (response.text, response.state, session.state) == (said, "error", "error")
        assert response.error is not None
        assert response.error.code == "model_failed"
        (call,) = response.calls
        assert isinstance(call, SpecialistError)
        assert (call.code, "swordfish" in call.reason) == ("failed", False)

    run([["SPECIALIST_REQUEST[breaks]"], {"chunks": ["Well, "], "error": "secret dsn"}], work)


def test_each_error_has_words_that_a_voice_can_say() -> None:
    assert SPOKEN_ERRORS.keys() == {*get_args(ErrorCode)}
    for sentences in SPOKEN_ERRORS.values():
        assert re.fullmatch(r"([A-Z][a-z]*( [a-z]+)+\.( |$)){2}", sentences)


def test_a_model_that_fails_at_once_leaves_a_text(run: Run) -> None:
    async def work(thinker: Thinker) -> None:
        tokens: list[str] = []
        response = await thinker.create_session(on_token=tokens.append).think("Hi", "voice")
        assert (response.text, tokens) == ("The language model failed. Please try again.", [])

    run([{"chunks": [], "error": "secret dsn"}], work)


def test_half_a_character_is_replaced(run: Run) -> None:
    async def work(thinker: Thinker) -> None:
        session = thinker.create_session("c", system="\ud800")
        files = [Attachment(1, "\ud800.txt", "text/plain", b"x")]
        assert (await session.think("a\ud800", attachments=files, context={"goal": "\ud800"})).state == "complete"
        assert [message.text for message in await session.context()] == ["a\ufffd", "Sail on."]

    run([["Sail on."]], work)


def test_context_is_read_and_checked(run: Run) -> None:
    async def work(thinker: Thinker) -> None:
        session = thinker.create_session()
        response = await session.think("What next?", context={"goal": "Sail.", "previous_output": "word " * 9_000})
        assert response.tokens > 10_000
        wrong: list[tuple[Any, str]] = [({"aim": "a"}, "context.aim"), ({"goal": 1}, "context.goal"), (1, "context")]
        for context, field in [*wrong, ({"goal": "a" * 50_001}, "context.goal")]:
            with pytest.raises(BadRequest) as raised:
                await session.think("Hi", context=context)
            assert raised.value.field == field

    run([["Sail on."]], work)


@pytest.mark.parametrize(("approves", "outcome"), [(True, "sent"), (False, "declined"), (None, "declined")])
def test_approvals(run: Run, approves: bool | None, outcome: str) -> None:
    names: list[str] = []

    async def on_approval(event: ApprovalRequired) -> bool:
        names.append(event.name)
        return approves is True

    async def work(thinker: Thinker) -> None:
        session = thinker.create_session(on_approval=on_approval if approves is not None else None)
        (call,) = (await session.think("Hi")).calls
        assert (call.text if isinstance(call, SpecialistResult) else call.code) == outcome

    run([["SPECIALIST_REQUEST[sends]"], ["Done."]], work)
    assert names == ([] if approves is None else ["sends"])


def test_the_end_of_a_turn_cancels_a_question_for_approval(run: Run) -> None:
    ends: list[str] = []

    async def work(thinker: Thinker) -> None:
        async def on_approval(event: ApprovalRequired) -> bool:
            session.cancel()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")
            return True

        session = thinker.create_session(on_approval=on_approval)
        assert (await session.think("Hi")).state == "cancelled"

    run([["SPECIALIST_REQUEST[sends]"]], work)
    assert ends == ["cancelled"]


def test_a_conversation_continues_in_another_process(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_nul(monkeypatch)
    store = f"sqlite:{tmp_path / 'brain.db'}"

    async def begin(thinker: Thinker) -> None:
        session = thinker.create_session("c", user="ada")
        await session.think("Hi\0", attachments=[Attachment(0, "a\0.txt", "text/plain\0", b"words")])
        await session.think("And?", "voice")

    async def read(thinker: Thinker) -> None:
        context = await thinker.create_session("c", user="ada").context()
        assert [(message.role, message.text, message.source) for message in context] == [
            ("user", "Hi\0", "chat"),
            ("assistant", "Hello!", "chat"),
            ("user", "And?", "voice"),
            ("assistant", "Hello!", "voice"),
        ]
        assert len({message.id for message in context}) == 4
        assert await thinker.create_session("c", user="bob").context() == []
        assert await thinker.create_session(user="ada").context() == []

    run([["Hello!"]], begin, store=store)
    run([["Hello!"]], read, store=store)


def test_two_turns_of_one_conversation(run: Run) -> None:
    async def work(thinker: Thinker) -> None:
        gate, started = asyncio.Event(), asyncio.Event()

        async def wait(params: Any) -> str:
            await gate.wait()
            return "open"

        thinker.register("gate", "Waits.", {"type": "object"}, wait, timeout=60)
        session = thinker.create_session("c", on_token=lambda text: started.set())
        first = asyncio.create_task(session.think("One?"))
        await started.wait()
        with pytest.raises(BadRequest) as rejected:
            await thinker.create_session("c").think("Two?")
        assert (rejected.value.code, rejected.value.status) == ("busy", 409)
        second = asyncio.create_task(session.think("Three?", barge_in=True))
        assert (await first).state == "cancelled"
        gate.set()
        assert ((await second).state, (await second).text) == ("complete", "One, two.")

    run([["One, ", "SPECIALIST_REQUEST[gate]"], ["two."]], work)


def test_rejected_arguments_leave_the_session_as_it_was(run: Run) -> None:
    sessions: list[Session] = []

    async def work(thinker: Thinker) -> None:
        session = thinker.create_session()
        sessions.append(session)
        arguments: list[tuple[Any, ...]] = [("",), (" \n",), (5,), ("Hi", "fax")]
        fields = []
        for one in arguments:
            with pytest.raises(BadRequest) as rejected:
                await session.think(*one)
            fields.append(rejected.value.field)
        assert (fields, session.state) == (["text", "text", "text", "source"], "idle")
        refused: list[dict[str, Any]] = [{"user": ""}, {"user": "a\0"}, {"user": "a\nb"}, {"conversation_id": "c\0"}]
        for names in refused:
            with pytest.raises(BadRequest) as rejected:
                thinker.create_session(**names)
            assert rejected.value.field in names
        with pytest.raises(BadRequest) as rejected:
            thinker.create_session(strategy="reason", critic=True)
        assert rejected.value.field == "critic"
        with pytest.raises(BadRequest) as rejected:
            thinker.create_session(strategy="fast")  # type: ignore[arg-type]
        assert rejected.value.field == "strategy"

    run([["Hello!"]], work)
    with pytest.raises(BadRequest):
        asyncio.run(sessions[0].think("Hi"))  # it is closed


@pytest.mark.parametrize(
    ("settings", "match"), [({"wind": "strong"}, "argument 'wind'"), ({"store": "nowhere"}, "argument store")]
)
def test_settings_are_checked(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        Thinker(Registry(), **settings)


def test_a_run_that_another_process_began_calls_back_with_its_text_so_far(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = runs.Run.start

    def continue_run(self: runs.Run) -> None:
        self.log.append([Rewind(4, "One ")])
        start(self)

    async def work(thinker: Thinker) -> None:
        pieces: list[str] = []
        await thinker.create_session(on_token=pieces.append).think("Hi")
        assert pieces == ["One ", "two."]

    monkeypatch.setattr(runs.Run, "start", continue_run)
    run([["two."]], work)
