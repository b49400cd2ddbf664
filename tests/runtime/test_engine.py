"""How turns begin, are kept, and make way for each other: the engine with a real store."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playing import PNG, WAIT, Item, Player, ask_for, echo, registry_of

from brain.errors import BadRequest
from brain.events import Done, Error, Event, Notice, ToolCall
from brain.messages import Attachment, Call, ClientMessage, Exchange, History, Text, TurnReport
from brain.messages import Item as Kept
from brain.models import ModelEntry
from brain.prompts.client_history import ClientHistory
from brain.runtime.engine import Engine, narrow_request
from brain.runtime.run import Run
from brain.settings import Rights, read
from brain.turn_request import Sampling, Tool, TurnRequest
from specialists.memory import memory

CALL = 'SPECIALIST_REQUEST[echo:{"text":"ping"}]'


class ServerState:
    """An engine whose model plays; what its turns reported."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reports: list[TurnReport] = []

    def play(self, *passes: list[Item] | str, **more: Any) -> Player:
        player = Player(*passes, **more)
        self.engine.models = [ModelEntry(player, "the test plays it")]  # type: ignore[arg-type]
        return player

    async def begin(self, message: str = "Hi", conversation_id: str | None = "c", **more: Any) -> Run:
        held = more.pop("history", None)
        ask = ask_for(message, conversation_id=conversation_id, **more)
        return await self.engine.begin(ask, "native", self.reports.append, history=held)

    async def said(self, message: str = "Hi", conversation_id: str | None = "c", **more: Any) -> list[Event]:
        return await told(await self.begin(message, conversation_id, **more))

    async def kept(self, conversation_id: str = "c", user: str = "ada") -> list[tuple[str, str, str]]:
        """Questions, answers and outcomes of a conversation, as its user reads them."""
        found = await self.engine.store.conversation(user, conversation_id)
        return [] if found is None else [(one.message, one.answer, one.outcome) for one in found.exchanges]


async def told(run: Run) -> list[Event]:
    return [event async for batch in run.events() for event in batch]


def housed(work: Callable[[ServerState], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Does something with an open engine, behind which nothing is left running."""

    async def main() -> None:
        values = {"MODEL": "builtin", "STORE": "memory:", **settings}
        async with AsyncExitStack() as stack:
            engine = Engine(read({f"BRAIN_{key}": value for key, value in values.items()}), registry_of(echo))
            await engine.open()
            stack.push_async_callback(engine.close)
            await work(ServerState(engine))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_is_said_is_kept_before_its_end_is_told() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Hello."])
        run = await house.begin()
        assert await house.kept() == [("Hi", "", "")]
        async for batch in run.events():
            if isinstance(batch[-1], Done):
                assert await house.kept() == [("Hi", "Hello.", "complete")]
        assert [report.outcome for report in house.reports] == ["complete"]

    housed(work)


def test_the_model_reads_what_was_said_before_byte_for_byte() -> None:
    async def work(house: ServerState) -> None:
        player = house.play([CALL], ["It is ping."])
        await house.said("One?")
        await house.said("Two?")
        first, second = player.requests[1], player.requests[2]
        assert second[: len(first) - 1] == first[:-1]
        assert second[len(first) - 1].content == first[-1].content + "It is ping."

    housed(work)


@pytest.mark.parametrize(("messages", "asked"), [(5, ["2", "3", "4"]), (3, ["3", "4"]), (1, ["4"])])
def test_the_window_is_a_setting(messages: int, asked: list[str]) -> None:
    async def work(house: ServerState) -> None:
        player = house.play(["Yes."])
        for n in range(5):
            events = await house.said(str(n))
        assert [message.content for message in player.requests[-1] if message.role == "user"] == asked
        left_out = 5 - len(asked)
        assert (
            Notice("trimmed", f"The oldest {left_out} questions and answers no longer fit and were left out.") in events
        )

    housed(work, WINDOW_MESSAGES=str(messages))


def test_a_conversation_that_rested_begins_anew_and_is_kept() -> None:
    async def work(house: ServerState) -> None:
        player = house.play(["Yes."])
        await house.said("One?")
        events = await house.said("Two?")
        assert [message.content for message in player.requests[-1][1:]] == ["Two?"]
        assert events[1] == Notice(
            "trimmed", "The conversation rested for long: the model begins anew. What was said is kept."
        )
        assert await house.kept() == [("One?", "Yes.", "complete"), ("Two?", "Yes.", "complete")]

    housed(work, CONTEXT_SECONDS="0.000001")


def test_the_servers_own_count_weighs_an_exchange() -> None:
    from brain.messages import PassUsage

    async def work(house: ServerState) -> None:
        house.play(["Hello.", PassUsage(prompt=2000, completion=7)], ["", PassUsage(prompt=1, completion=1)])
        await house.said("x" * 4000)
        found = await house.engine.store.conversation("ada", "c")
        assert found is not None
        (exchange,) = found.exchanges
        assert 1500 < exchange.tokens < 2007  # the rest is the prompt's front

    housed(work)


def test_a_turn_that_said_nothing_is_kept_for_the_user_only() -> None:
    from brain.errors import ModelError

    async def work(house: ServerState) -> None:
        house.play([ModelError("model_failed", "It broke.")])
        events = await house.said("One?")
        assert isinstance(events[-1], Error)
        assert await house.kept() == [("One?", "", "model_failed")]
        player = house.play(["Yes."])
        await house.said("Two?")
        assert [message.content for message in player.requests[0][1:]] == ["Two?"]

    housed(work)


def test_what_was_cancelled_is_kept_marked_and_read() -> None:
    async def work(house: ServerState) -> None:
        player = house.play(["Well, ", WAIT])
        run = await house.begin("One?")
        async for batch in run.events():
            if getattr(batch[-1], "text", "") == "Well, ":
                run.stop()
        assert await house.kept() == [("One?", "Well, ", "cancelled")]
        player = house.play(["Yes."])
        await house.said("Two?")
        assert [message.content for message in player.requests[0][1:]] == ["One?", "Well, ", "Two?"]

    housed(work)


def test_what_was_cut_is_kept_too() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Well, ", WAIT])
        run = await house.begin("One?")
        batches = run.events()
        async for batch in batches:
            if getattr(batch[-1], "text", "") == "Well, ":
                break
        await batches.aclose()
        player = house.play(["Yes."])
        await house.said("Two?")  # at once: nobody waited for what was cut
        assert [message.content for message in player.requests[0][1:]] == ["One?", "Well, ", "Two?"]
        assert [outcome for *_, outcome in await house.kept()] == ["cancelled", "complete"]

    housed(work)


def test_what_was_said_last_is_known_as_it_is_kept() -> None:
    async def work(house: ServerState) -> None:
        async def last() -> list[tuple[str, str]]:
            found = await house.engine.memory.view("ada", "x", list).recent(50)
            return [(one.message, one.answer) for one in found]

        assert await last() == []
        house.play(["Yes."])
        await house.said("One?")
        assert await last() == [("One?", "Yes.")]
        history = await house.engine.store.conversation("ada", "c")
        assert history is not None
        house.play(["No."])
        await house.said("Two?", replaces=history.exchanges[0].question_id)
        assert await last() == [("Two?", "No.")]
        house.play(["Well, ", WAIT])
        batches = (await house.begin("Three?", "d")).events()
        async for batch in batches:
            if getattr(batch[-1], "text", "") == "Well, ":
                break
        await batches.aclose()
        await last()  # which may be too early
        await house.engine.persistence.wait_stored()
        assert await last() == [("Three?", "Well, "), ("Two?", "No.")]
        await house.engine.delete("ada", "d")
        assert await last() == [("Two?", "No.")]

    housed(work)


def test_a_turn_that_cannot_begin_leaves_no_trace() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Yes."], context_tokens=None)
        with pytest.raises(BadRequest, match="no message of this id") as refused:
            await house.begin("One?", replaces="m0123456789abcdef")
        assert (refused.value.field, refused.value.status) == ("replace_from", 404)
        assert await house.kept() == []
        await house.said("Two?")
        assert await house.kept() == [("Two?", "Yes.", "complete")]

    housed(work)


def test_who_leaves_while_it_begins_leaves_no_trace() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Yes."])
        for delay in range(8):
            beginning = asyncio.create_task(house.begin("One?", f"c{delay}"))
            for _ in range(delay):
                await asyncio.sleep(0)
            beginning.cancel()
            await asyncio.wait({beginning})
            if beginning.cancelled():
                if late := {task for task in asyncio.all_tasks() if task.get_name() in ("drop", "store")}:
                    await asyncio.wait(late)  # what began for nobody is dropped
                await house.said("Two?", f"c{delay}")
                assert await house.kept(f"c{delay}") == [("Two?", "Yes.", "complete")]
            else:
                await told(beginning.result())

    housed(work)


# One at a time


def test_two_at_once() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Well, ", WAIT])
        first = await house.begin("One?")
        reading = asyncio.create_task(told(first))
        with pytest.raises(BadRequest) as refused:
            await house.begin("Two?")
        assert (refused.value.code, refused.value.status, refused.value.field) == ("busy", 409, "conversation_id")
        run = await house.begin("Mine?", user="bob")
        run.stop()
        await told(run)
        house.play(["Yes."])
        assert (await house.said("Three?", barge_in=True))[-1].stop_reason == "complete"  # type: ignore[union-attr]
        assert [outcome for *_, outcome in await house.kept()] == ["cancelled", "complete"]
        assert (await reading)[-1].stop_reason == "cancelled"  # type: ignore[union-attr]

    housed(work)


def test_a_turn_that_was_told_to_end_is_waited_for() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Well, ", WAIT])
        first = await house.begin("One?")
        reading = asyncio.create_task(told(first))
        await asyncio.sleep(0)
        first.stop()
        house.play(["Yes."])
        await house.said("Two?")
        await reading
        assert [said for said, *_ in await house.kept()] == ["One?", "Two?"]

    housed(work)


def test_twenty_at_once_are_never_mixed() -> None:
    async def work(house: ServerState) -> None:
        house.play(["a", 0.001, "b"])

        async def one(n: int) -> bool:
            try:
                await house.said(str(n), barge_in=n % 2 == 0)
            except BadRequest as refused:
                assert refused.code == "busy"  # noqa: PT017
                return False
            return True

        answered = await asyncio.gather(*map(one, range(20)))
        kept = await house.kept()
        assert len(kept) == sum(answered)
        assert len({said for said, *_ in kept}) == len(kept)
        assert all(
            (answer, outcome) in [("ab", "complete"), ("a", "cancelled"), ("", "cancelled")]
            for _, answer, outcome in kept
        )

    housed(work)


def test_what_was_forgotten_is_read_in_no_earlier_question_either() -> None:
    async def work(house: ServerState) -> None:
        item = await house.engine.memory.edits.write("ada", "I am allergic to penicillin", "personal")
        player = house.play(["Yes."])
        await house.said("Am I allergic to penicillin?")
        assert "I am allergic to penicillin" in player.requests[0][-1].content
        assert await house.engine.memory.edits.delete("ada", item.id)
        await house.said("And now?")
        read = "".join(message.content for message in player.requests[1])
        assert "Am I allergic to penicillin?" in read
        assert "I am allergic to penicillin" not in read
        assert "Recalled" not in read

    housed(work)


def test_a_conversation_that_rested_goes_on_with_its_memory() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Yes."])
        await house.said("Let us plan a trip to Rome")
        (resting,) = await house.engine.store.claim_idle(datetime.now(UTC) + timedelta(hours=1), 1)
        now = datetime.now(UTC)
        memory = Kept("m1", "memory", "They plan a trip to Rome.", now, now, conversation_id="c")
        await house.engine.store.set_memory(resting, memory)
        house.engine.memory.invalidate("ada")  # what was known to be there
        player = house.play(["Yes."])
        await house.said("Go on")
        assert "They plan a trip to Rome." in player.requests[0][-1].content
        await house.said("Go on", "d")
        assert "They plan a trip to Rome." not in player.requests[1][-1].content

    housed(work, CONTEXT_SECONDS="0.000001")


# Who holds the history


def test_a_history_that_the_client_holds_is_filed_only_where_it_says() -> None:
    async def work(house: ServerState) -> None:
        player = house.play(["Yes."])
        held = History("x", [Exchange("Before?", [Text("So.", 1)])], question=Exchange("", message="Now?"))
        await house.said("Now?", None, history=held)
        assert [message.content for message in player.requests[0][1:]] == ["Before?", "So.", "Now?"]
        assert await house.engine.store.conversations("ada") == []
        held = History("c", [Exchange("Before?", [Text("So.", 1)])], question=Exchange("", message="Now?"))
        await house.said("Now?", "c", history=held)
        assert await house.kept() == [("Now?", "Yes.", "complete")]

    housed(work)


def test_an_answer_that_the_client_has_begun_takes_the_place_of_its_beginning() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Let me see. SPECIALIST_REQUEST[pay]"])
        tools = (Tool("pay"),)
        events = await house.said("Pay!", "c", history=History("c", question=Exchange("", message="Pay!")), tools=tools)
        (call,) = [event for event in events if isinstance(event, ToolCall)]
        assert await house.kept() == [("Pay!", "Let me see. ", "complete")]
        house.play(["Done."])
        answered = Call("pay", "SPECIALIST_REQUEST[pay]", {}, id=call.call_id, turn_pass=-8)
        begun = Exchange("", [Text("Let me see. ", -9), answered], message="Pay!")
        await house.said("Pay!", "c", history=History("c", question=begun), tools=tools)
        assert await house.kept() == [("Pay!", "Let me see. Done.", "complete")]
        other = msgspec.structs.replace(answered, id="call_of_another_turn")
        begun = Exchange("", [Text("Let me see. ", -9), other], message="Pay!")
        await house.said("Pay!", "c", history=History("c", question=begun), tools=tools)
        assert [said for said, *_ in await house.kept()] == ["Pay!", "Pay!"], "what nobody called is no answer to it"

    housed(work)


def test_what_only_asks_to_go_on_is_no_word_of_the_users() -> None:
    async def work(house: ServerState) -> None:
        house.play(["Yes."])
        ask, held = ClientHistory(ask_for(), []).build(
            [ClientMessage("user", "Hi"), ClientMessage("assistant", "Well")], "c"
        )
        await house.said(ask.message, "c", history=held)
        assert await house.kept() == [("", "Yes.", "complete")]

    housed(work)


def test_files_are_numbered_through_the_conversation() -> None:
    async def work(house: ServerState) -> None:
        player = house.play(["Yes."])
        await house.said("One?", attachments=(Attachment(1, "a.png", "image/png", PNG),))
        await house.said("Two?", attachments=(Attachment(1, "b.png", "image/png", PNG),))
        assert '(Attached, by image_id: 2: "b.png" (image/png))' in player.requests[-1][-1].content
        found = await house.engine.store.conversation("ada", "c")
        assert found is not None
        assert [(file.id, file.name) for file in found.files] == [(1, "a.png"), (2, "b.png")]
        assert [exchange.files for exchange in found.exchanges] == [(1,), (2,)]

    housed(work)


# Memory


def test_what_is_known_is_recalled_said_and_kept_with_the_question() -> None:
    async def work(house: ServerState) -> None:
        item = await house.engine.memory.edits.write("ada", "I am allergic to penicillin", "personal")
        player = house.play(["Yes."])
        events = await house.said("Which antibiotics can I take with my allergic history of penicillin?")
        assert [event.code for event in events if isinstance(event, Notice)] == ["recalled"]
        question = player.requests[0][-1].content
        assert "I am allergic to penicillin" in question
        await house.said("And with penicillin allergic people?")
        assert player.requests[1][1].content == question, "the same in every later request"
        assert "I am allergic" not in player.requests[1][-1].content, "the model reads it once"
        found = await house.engine.store.conversation("ada", "c")
        assert found is not None
        assert [exchange.recalled_ids for exchange in found.exchanges] == [(item.id,), ()]

    housed(work)


def test_a_fact_knows_where_it_was_said() -> None:
    async def work(house: ServerState) -> None:
        house.engine.registry.add(memory)
        house.play(['SPECIALIST_REQUEST[memory:{"operation":"save_fact","text":"I like tea"}]'], ["Saved."])
        await house.said("Please remember that I like tea")
        (item,) = await house.engine.store.items("ada")
        found = await house.engine.store.conversation("ada", "c")
        assert found is not None
        assert (item.conversation_id, item.message_id) == ("c", found.exchanges[0].question_id)
        player = house.play(["Yes."])
        await house.said("What do I like, tea?")
        assert "Recalled" not in player.requests[0][-1].content, "the model reads the message itself"
        await house.said("What do I like, tea?", "d")
        assert "I like tea" in player.requests[1][-1].content

    housed(work)


def test_what_was_answered_behind_strangers_words_stays_from_outside() -> None:
    async def work(house: ServerState) -> None:
        house.engine.registry.add(memory)
        house.play([CALL], ["It is ping."])  # echo does not say that its words are its own
        await house.said("One?")
        recall = 'SPECIALIST_REQUEST[memory:{"operation":"short_memory"}]'
        house.play([recall], ["Done."])
        await house.said("What did we talk about?", "d")
        house.play(["Yes."])
        await house.said("Two?", "e")
        outside = []
        for conversation_id in "cde":
            found = await house.engine.store.conversation("ada", conversation_id)
            assert found is not None
            outside.append(found.exchanges[0].untrusted)
        assert outside == [True, True, False]

    housed(work)


@pytest.mark.parametrize("off", ["turn", "user", "operator", "another user"])
def test_recall_can_be_switched_off(off: str) -> None:
    async def work(house: ServerState) -> None:
        await house.engine.memory.edits.write("ada", "I am allergic to penicillin", "personal")
        if off == "user":
            await house.engine.memory.edits.set_recall("ada", False)
        player = house.play(["Yes."])
        user = "bob" if off == "another user" else "ada"
        await house.said("Am I allergic to penicillin?", memory=off != "turn", user=user)
        assert "I am allergic to penicillin" not in player.requests[0][-1].content

    housed(work, **({"RECALL_TOKENS": "0"} if off == "operator" else {}))


# Others


def test_who_may_not_call_a_specialist_is_not_told_of_it() -> None:
    ask = ask_for(specialists=["echo", "add"])
    assert narrow_request(ask, Rights()) == ask
    assert narrow_request(ask, Rights(frozenset({"add", "web"}))).specialists == frozenset({"add"})
    assert narrow_request(ask_for(), Rights(frozenset({"add"}))).specialists == frozenset({"add"})
    json = TurnRequest("Hi", "ada", ask.limits, ask.syntax, "UTC", sampling=Sampling(format="json"))
    assert narrow_request(json, Rights()).specialists == frozenset()


def test_a_file_that_cannot_be_a_store_stops_the_start(tmp_path: Path) -> None:
    from brain.errors import StoreError

    path = tmp_path / "brain.db"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)

    async def main() -> None:
        engine = Engine(read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": f"sqlite:{path}"}), registry_of(echo))
        with pytest.raises(StoreError, match="name another file"):
            await engine.open()
        await engine.close()

    asyncio.run(main())
