"""The engine with a real store: turns begin, are stored, and exclude each other."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_helpers import claim_due
from turn_helpers import PNG, Item, Player, ask_for, echo, registry_of

from brain import specialist
from brain.errors import BadRequest, ModelError, StoreError
from brain.events import Done, Error, Event, Notice, ToolCall
from brain.messages import Attachment, Call, Exchange, History, PassUsage, Text
from brain.messages import Item as StoredItem
from brain.models.model import PassRequest
from brain.prompts.client_history import ClientHistory
from brain.protocols.common import ClientMessage
from brain.runtime.engine import Engine, narrow_request
from brain.runtime.run import Run
from brain.settings import Rights, read
from brain.store import conversations, items, tasks
from brain.store.conversations import ConversationPage
from brain.task import NewTask
from brain.turn_request import Sampling, Tool
from specialists.memory import memory

CALL = 'SPECIALIST_REQUEST[echo:{"text":"ping"}]'
ALLERGIC = "I am allergic to penicillin"


class Chat:
    """An engine whose model plays."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.outcomes: list[str] = []

    def play(self, *passes: Sequence[Item], **options: Any) -> Player:
        player = Player(*passes, **options)
        self.engine.models = [player]
        return player

    async def begin(self, message: str = "Hi", conversation_id: str | None = "c", **options: Any) -> Run:
        history = options.pop("history", None)
        request = ask_for(message, conversation_id=conversation_id, **options)
        return await self.engine.begin(
            request, "native", lambda run: self.outcomes.append(run.snapshot().outcome), history=history
        )

    async def say(self, message: str = "Hi", conversation_id: str | None = "c", **options: Any) -> list[Any]:
        """The events of a whole turn."""
        return await read_events(await self.begin(message, conversation_id, **options))

    async def page(self, conversation_id: str = "c") -> ConversationPage:
        found = await self.engine.store.read(conversations.read_page, "ada", conversation_id)
        assert found is not None
        return found

    async def stored(self, conversation_id: str = "c") -> list[tuple[str, str, str]]:
        """Messages, answers and outcomes of a conversation."""
        found = await self.engine.store.read(conversations.read_page, "ada", conversation_id)
        return [] if found is None else [(one.message, one.answer, one.outcome) for one in found.exchanges]


async def read_events(run: Run) -> list[Event]:
    return [event async for batch in run.events() for event in batch]


def prompt(player: Player, number: int = -1) -> list[str]:
    """Return a request to the model without its instructions."""
    return [message.content for message in player.requests[number][1:]]


@asynccontextmanager
async def opened(**settings: str) -> AsyncIterator[Engine]:
    values = {"MODEL": "builtin", "STORE": "memory:", **settings}
    engine = Engine(read({f"BRAIN_{key}": value for key, value in values.items()}), registry_of(echo))
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


Test = Callable[..., Coroutine[Any, Any, None]]


def with_engine(**settings: str) -> Callable[[Test], Callable[..., None]]:
    """Run a test with an open engine."""

    def decorate(test: Test) -> Callable[..., None]:
        @wraps(test)
        def run(**arguments: Any) -> None:
            async def main() -> None:
                async with opened(**settings) as engine:
                    await test(Chat(engine), **arguments)

            asyncio.run(main())

        _, *parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


@with_engine()
async def test_a_turn_is_stored_before_done(chat: Chat) -> None:
    chat.play(["Hello."])
    run = await chat.begin()
    assert await chat.stored() == [("Hi", "", "")]
    async for batch in run.events():
        if isinstance(batch[-1], Done):
            assert await chat.stored() == [("Hi", "Hello.", "complete")]
    assert chat.outcomes == ["complete"]


@with_engine()
async def test_the_model_reads_earlier_turns_byte_for_byte(chat: Chat) -> None:
    player = chat.play([CALL], ["It is ping."])
    await chat.say("One?")
    await chat.say("Two?")
    first, second = player.requests[1], player.requests[2]
    assert second[: len(first) - 1] == first[:-1]
    assert second[len(first) - 1].content == first[-1].content + "It is ping."


@with_engine(WINDOW_MESSAGES="3")
async def test_the_window_is_a_setting(chat: Chat) -> None:
    player = chat.play(["Yes."])
    for n in range(5):
        events = await chat.say(str(n))
    assert prompt(player)[::2] == ["3", "4"]
    assert [event.code for event in events if isinstance(event, Notice)] == ["trimmed"]


@with_engine(CONTEXT_SECONDS="0.000001")
async def test_a_conversation_after_a_pause_begins_anew_with_its_summary(chat: Chat) -> None:
    player = chat.play(["Yes."])
    await chat.say("Let us plan a trip to Rome")
    (idle,) = await chat.engine.store.write_unsynced(
        conversations.claim_idle, datetime.now(UTC) + timedelta(hours=1), 1
    )
    now, summary = datetime.now(UTC), "They plan a trip to Rome."
    await chat.engine.store.write(
        conversations.set_memory, idle, StoredItem("m1", "memory", summary, now, now, conversation_id="c")
    )
    chat.engine.memory.invalidate("ada")
    events = await chat.say("Go on")
    assert len(prompt(player)) == 1
    assert summary in prompt(player)[0]
    assert [event.code for event in events if isinstance(event, Notice)] == ["trimmed", "recalled"]
    assert len(await chat.stored()) == 2
    await chat.say("Go on", "d")
    assert summary not in prompt(player)[0]


@with_engine()
async def test_the_token_count_of_the_models_server_weighs_an_exchange(chat: Chat) -> None:
    chat.play(["Hello.", PassUsage(prompt=2000, completion=7)], ["", PassUsage(prompt=1, completion=1)])
    await chat.say("x" * 4000)
    (exchange,) = (await chat.page()).exchanges
    assert 1500 < exchange.tokens < 2007  # without the instructions


@pytest.mark.parametrize(
    ("passes", "end", "stored", "read_next"),
    [
        (["Well."], "", ("One?", "Well.", "complete"), ["One?", "Well.", "Two?"]),
        ([ModelError("model_failed", "It broke.")], "", ("One?", "", "model_failed"), ["Two?"]),
        (["Well, ", asyncio.Event], "stop", ("One?", "Well, ", "cancelled"), ["One?", "Well, ", "Two?"]),
        (["Well, ", asyncio.Event], "abort", ("One?", "Well, ", "cancelled"), ["One?", "Well, ", "Two?"]),
        (["Well, ", asyncio.Event], "leave", ("One?", "Well, ", "cancelled"), ["One?", "Well, ", "Two?"]),
    ],
)
@with_engine()
async def test_every_end_is_stored_and_read(
    chat: Chat, passes: list[Any], end: str, stored: tuple[str, str, str], read_next: list[str]
) -> None:
    chat.play([item() if item is asyncio.Event else item for item in passes])
    run = await chat.begin("One?")
    batches = run.events()
    async for batch in batches:
        if end and getattr(batch[-1], "text", "") == "Well, ":
            if end == "leave":
                break
            if end == "abort":
                await run.abort()
            run.stop()
    await batches.aclose()
    player = chat.play(["Yes."])
    await chat.say("Two?")  # at once, without a wait for the aborted turn
    assert await chat.stored() == [stored, ("Two?", "Yes.", "complete")]
    assert prompt(player) == read_next


@with_engine()
async def test_the_newest_exchanges_of_a_user_are_those_that_are_stored(chat: Chat) -> None:
    async def recent() -> list[tuple[str, str]]:
        found = await chat.engine.memory.view("ada", "x", list).recent(50)
        return [(one.message, one.answer) for one in found]

    assert await recent() == []
    chat.play(["Yes."])
    await chat.say("One?")
    assert await recent() == [("One?", "Yes.")]
    chat.play(["No."])
    await chat.say("Two?", replaces=(await chat.page()).exchanges[0].question_id)
    assert await recent() == [("Two?", "No.")]
    chat.play(["Well, ", asyncio.Event()])
    run = await chat.begin("Three?", "d")
    run.start()
    await run.abort()
    await recent()  # which may be too early
    await chat.engine.persistence.wait_stored()
    assert [message for message, _ in await recent()] == ["Three?", "Two?"]
    await chat.engine.delete("ada", "d")
    assert await recent() == [("Two?", "No.")]


@with_engine()
async def test_tasks_stop_and_vanish_with_their_conversation(chat: Chat) -> None:
    service = chat.engine.tasks
    chat.play(["Yes."])
    await chat.say("One?")
    task = await service.create(service.check("ada", NewTask(prompt="Read", conversation_id="c")))
    (task,) = await claim_due(chat.engine.store)
    chat.play(["Well, ", asyncio.Event()])
    run = await chat.begin(task.prompt, task.work_id, source="task")
    run.start()
    assert await chat.engine.delete("ada", "c")
    await run.wait_ended()
    assert await service.store.read(tasks.list_tasks, "ada") == []
    assert (await chat.stored(), await chat.stored(task.work_id)) == ([], [])


@with_engine()
async def test_a_turn_that_cannot_begin_leaves_no_trace(chat: Chat) -> None:
    chat.play(["Yes."])
    with pytest.raises(BadRequest) as refused:
        await chat.begin("One?", replaces="m0123456789abcdef")
    assert (refused.value.field, refused.value.status) == ("replace_from", 404)
    assert await chat.stored() == []

    async def fail(user: str) -> bool:
        raise OSError("the memory is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat.engine.memory, "can_recall", fail)
        with pytest.raises(OSError, match="gone"):
            await chat.begin("One?")
    await chat.engine.persistence.wait_stored()
    assert await chat.stored() == []
    for steps in range(8):
        beginning = asyncio.create_task(chat.begin("One?", f"c{steps}"))
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait({beginning})
        if not beginning.cancelled():
            await read_events(beginning.result())
            continue
        if late := {task for task in asyncio.all_tasks() if task.get_name() in ("drop", "store")}:
            await asyncio.wait(late)
        await chat.say("Two?", f"c{steps}")
        assert await chat.stored(f"c{steps}") == [("Two?", "Yes.", "complete")]


@with_engine()
async def test_an_answer_that_cannot_be_stored_is_shown_with_a_notice(chat: Chat, monkeypatch: Any) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("The disk is full.", "ENOSPC")

    monkeypatch.setattr(chat.engine.store, "end", fail)
    monkeypatch.setattr(chat.engine.store, "drop", fail)
    chat.play(["Well."])
    notice, _, done = (await chat.say())[-3:]
    assert (notice, done.text) == (Notice("unkept", "The disk is full."), "Well.")
    with pytest.raises(BadRequest):  # its question cannot be taken back, which is logged
        await chat.begin("Two?", "d", replaces="m0123456789abcdef")


# One turn of a conversation at a time


@with_engine()
async def test_a_second_turn_is_busy_or_stops_the_first(chat: Chat) -> None:
    chat.play(["Well, ", asyncio.Event()])
    first = await chat.begin("One?")
    reading = asyncio.create_task(read_events(first))
    with pytest.raises(BadRequest) as refused:
        await chat.begin("Two?")
    assert (refused.value.code, refused.value.status, refused.value.field) == ("busy", 409, "conversation_id")
    other = await chat.begin("Mine?", user="bob")
    other.stop()
    await read_events(other)
    chat.play(["Yes."])
    await chat.say("Three?", barge_in=True)
    last = (await reading)[-1]
    assert isinstance(last, Done)
    assert last.stop_reason == "cancelled"
    assert [outcome for *_, outcome in await chat.stored()] == ["cancelled", "complete"]
    chat.play([asyncio.Event()])
    run = await chat.begin("Four?")
    reading = asyncio.create_task(read_events(run))
    await asyncio.sleep(0)
    run.stop()
    chat.play(["Yes."])
    await chat.say("Five?")  # waits for a turn that is stopping
    await reading
    assert [message for message, *_ in await chat.stored()][2:] == ["Four?", "Five?"]


@with_engine()
async def test_twenty_turns_at_once_are_never_mixed(chat: Chat) -> None:
    chat.play(["a", 0.0, "b"])

    async def say(n: int) -> bool:
        try:
            await chat.say(str(n), barge_in=n % 2 == 0)
        except BadRequest as refused:
            assert refused.code == "busy"  # noqa: PT017
            return False
        return True

    answered = await asyncio.gather(*map(say, range(20)))
    stored = await chat.stored()
    assert len(stored) == len({message for message, *_ in stored}) == sum(answered)
    allowed = {("ab", "complete"), ("a", "cancelled"), ("", "cancelled")}
    assert {(answer, outcome) for _, answer, outcome in stored} <= allowed


@pytest.mark.parametrize("closes", [True, False])
def test_a_turn_that_ignores_its_cancellation_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, closes: bool
) -> None:
    monkeypatch.setattr("brain.runtime.run.ABORT_SECONDS", 0.01)
    monkeypatch.setattr("brain.runtime.engine.ENDING_SECONDS", 0.01)
    let_go = asyncio.Event()

    class Stubborn(Player):
        async def stream(self, request: PassRequest) -> AsyncGenerator[Any, None]:
            yield "Well, "
            while not let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await let_go.wait()
            yield "too late"

    async def main() -> None:
        async with opened() as engine:
            engine.models = [Stubborn()]
            run = await engine.begin(ask_for("Hi", conversation_id="c"), "native")
            run.start()
            arrived = asyncio.Event()
            run.join(lambda events, frames: arrived.set() if getattr(events[-1], "text", "") == "Well, " else None)
            await arrived.wait()
            (task,) = (one for one in asyncio.all_tasks() if one.get_name() == f"run {run.id}")
            await (engine.close() if closes else run.abort())
            events = run.log.events()
            assert isinstance(events[-1], Done | Error)
            let_go.set()
            await asyncio.wait({task})
            assert run.log.events() == events
        assert [record.levelname for record in caplog.records if run.id in record.getMessage()][:1] == ["ERROR"]

    asyncio.run(main())


@with_engine()
async def test_a_specialist_that_cannot_delete_its_part_is_named(chat: Chat) -> None:
    def forget(user: str, conversation_id: str | None) -> None:
        raise OSError("the disk is full")

    @specialist(forget=forget)
    async def keeper() -> str:
        """Stores something."""
        return ""

    chat.engine.registry.add(keeper)
    chat.play(["Yes."])
    await chat.say()
    with pytest.raises(BadRequest, match="keeper") as refused:
        await chat.engine.delete("ada", "c")
    assert (refused.value.code, refused.value.status, await chat.stored()) == ("unavailable", 503, [])


# Histories that the client keeps


@with_engine()
async def test_a_client_decides_whether_its_conversation_is_stored(chat: Chat) -> None:
    player = chat.play(["Yes."])
    for conversation_id, stored in ((None, []), ("c", [("Now?", "Yes.", "complete")])):
        earlier = [Exchange("Before?", [Text("So.", 1)])]
        await chat.say("Now?", conversation_id, history=History("c", earlier, question=Exchange("", message="Now?")))
        assert prompt(player, 0) == ["Before?", "So.", "Now?"]
        assert await chat.stored() == stored
    messages = [ClientMessage("user", "Hi"), ClientMessage("assistant", "Well")]
    request, history = ClientHistory(ask_for(), []).build(messages, "d")  # which only asks to continue
    await chat.say(request.message, "d", history=history)
    assert await chat.stored("d") == [("", "Yes.", "complete")]


@with_engine()
async def test_an_answer_that_continues_a_stored_one_replaces_it(chat: Chat) -> None:
    chat.play(["Let me see. SPECIALIST_REQUEST[pay]"])
    options: Any = {"tools": (Tool("pay"),)}
    events = await chat.say("Pay!", history=History("c", question=Exchange("", message="Pay!")), **options)
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    assert await chat.stored() == [("Pay!", "Let me see. ", "complete")]
    chat.play(["Done."])
    answered = Call("pay", "SPECIALIST_REQUEST[pay]", {}, id=call.call_id, turn_pass=-8)
    other = msgspec.structs.replace(answered, id="call_of_another_turn")  # which answers nothing that is stored
    for part, messages in ((answered, ["Pay!"]), (other, ["Pay!", "Pay!"])):
        beginning_of_answer = Exchange("", [Text("Let me see. ", -9), part], message="Pay!")
        await chat.say("Pay!", history=History("c", question=beginning_of_answer), **options)
        assert [message for message, *_ in await chat.stored()] == messages
    assert (await chat.stored())[0] == ("Pay!", "Let me see. Done.", "complete")


@with_engine()
async def test_files_are_numbered_through_the_conversation(chat: Chat) -> None:
    player = chat.play(["Yes."])
    for name in ("a.png", "b.png"):
        await chat.say("Look", attachments=(Attachment(1, name, "image/png", PNG),))
    assert '(Attached, by image_id: 2: "b.png" (image/png))' in prompt(player)[-1]
    page = await chat.page()
    assert [(file.id, file.name) for file in page.files] == [(1, "a.png"), (2, "b.png")]
    assert [exchange.files for exchange in page.exchanges] == [(1,), (2,)]


# Memory


@with_engine()
async def test_facts_are_recalled_once_stored_with_the_question_and_deleted(chat: Chat) -> None:
    item = await chat.engine.memory.edits.write("ada", ALLERGIC, "personal")
    player = chat.play(["Yes."])
    events = await chat.say("Which antibiotics can I take with my allergic history of penicillin?")
    assert [event.code for event in events if isinstance(event, Notice)] == ["recalled"]
    question = prompt(player)[-1]
    assert ALLERGIC in question
    await chat.say("And with penicillin allergic people?")
    assert (prompt(player)[0], ALLERGIC in prompt(player)[-1]) == (question, False)
    assert [exchange.recalled_ids for exchange in (await chat.page()).exchanges] == [(item.id,), ()]
    assert await chat.engine.memory.edits.delete("ada", item.id)
    await chat.say("And now?")
    assert "Which antibiotics" in prompt(player)[0]
    assert [text for text in prompt(player) if ALLERGIC in text or "Recalled" in text] == []


@pytest.mark.parametrize("off", ["turn", "user", "operator", "another user"])
def test_recall_can_be_switched_off(off: str) -> None:
    async def main() -> None:
        async with opened(**({"RECALL_TOKENS": "0"} if off == "operator" else {})) as engine:
            chat = Chat(engine)
            await engine.memory.edits.write("ada", ALLERGIC, "personal")
            if off == "user":
                await engine.memory.edits.set_recall("ada", False)
            player = chat.play(["Yes."])
            await chat.say(
                "Am I allergic to penicillin?", memory=off != "turn", user="bob" if off == "another user" else "ada"
            )
            assert ALLERGIC not in prompt(player)[-1]

    asyncio.run(main())


@with_engine()
async def test_a_fact_names_its_message_and_is_not_recalled_beside_it(chat: Chat) -> None:
    chat.engine.registry.add(memory)
    chat.play(['SPECIALIST_REQUEST[memory:{"operation":"save_fact","text":"I like tea"}]'], ["Saved."])
    await chat.say("Please remember that I like tea")
    (item,) = await chat.engine.store.read(items.list_items, "ada")
    question_id = (await chat.page()).exchanges[0].question_id
    assert (item.conversation_id, item.message_id) == ("c", question_id)
    player = chat.play(["Yes."])
    await chat.say("What do I like, tea?")
    await chat.say("What do I like, tea?", "d")
    assert ["I like tea" in prompt(player, n)[-1] for n in (0, 1)] == [False, True]


@with_engine()
async def test_an_answer_after_untrusted_content_stays_untrusted(chat: Chat) -> None:
    chat.engine.registry.add(memory)
    recall = 'SPECIALIST_REQUEST[memory:{"operation":"short_memory"}]'
    untrusted = []
    for conversation_id, passes in {"c": [[CALL], ["Ping."]], "d": [[recall], ["Done."]], "e": [["Yes."]]}.items():
        chat.play(*passes)
        await chat.say("What did we talk about?", conversation_id)
        untrusted.append((await chat.page(conversation_id)).exchanges[0].untrusted)
    assert untrusted == [True, True, False]


# Others


@pytest.mark.parametrize(
    ("requested", "allowed", "narrowed"),
    [(["echo", "add"], None, {"echo", "add"}), (["echo", "add"], {"add", "web"}, {"add"}), (None, {"add"}, {"add"})],
)
def test_a_request_is_narrowed_to_the_rights_of_its_user(
    requested: list[str] | None, allowed: set[str] | None, narrowed: set[str]
) -> None:
    rights = Rights() if allowed is None else Rights(frozenset(allowed))
    assert narrow_request(ask_for(specialists=requested), rights).specialists == frozenset(narrowed)
    json = ask_for(specialists=requested, sampling=Sampling(format="json"), tools=(Tool("mine"),))
    assert narrow_request(json, rights).specialists == frozenset()
    assert narrow_request(json, rights).tools == (Tool("mine"),)


@with_engine()
async def test_models_are_found_by_name_while_the_engine_is_open(chat: Chat) -> None:
    engine = chat.engine
    await engine.open()  # changes nothing
    player = chat.play(["Yes."])
    for name in (None, "builtin", "player"):
        assert engine.find_model(name) is player
    assert engine.model_names() == {"builtin", "player"}
    with pytest.raises(BadRequest) as refused:
        engine.find_model("gpt")
    assert (refused.value.field, refused.value.status) == ("model", 400)
    await engine.drain()
    await chat.say()
    assert chat.outcomes == ["shutdown"]
    await engine.close()
    await engine.close()
    with pytest.raises(BadRequest) as refused:
        engine.find_model(None)
    assert (refused.value.code, refused.value.status) == ("unavailable", 503)


def test_a_file_that_cannot_be_a_store_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "brain.db"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)

    async def main() -> None:
        with pytest.raises(StoreError, match=r"brain\.db"):
            async with opened(STORE=f"sqlite:{path}"):
                pass

    asyncio.run(main())
