"""What the store has of a running turn: checkpoints and what came after them restore the answer so far exactly."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from store_helpers import NOON, Clock, lose_turns, only_exchange, question, read_turns, store_at

from brain.errors import StoreError
from brain.events import Notice
from brain.messages import Call, Exchange, Part, Steer, Text
from brain.runtime.stored_exchange import StoredExchange
from brain.store import turns
from brain.store.store import Store
from brain.turn.notices import Annotations

pytestmark = pytest.mark.anyio

STEPS = ("text", "text", "think", "notice", "call", "result", "steer", "separate", "take back", "write", "write")


class Answer:
    """An answer as a turn writes it: the text of a pass comes before its calls, although a model may write on."""

    def __init__(self) -> None:
        self.exchange = question("One", started=NOON)
        self._notes = Annotations()
        self._done: list[Part] = []
        self._text, self._calls = "", list[Call]()
        self._pass, self._count = 1, 0

    def snapshot(self) -> Exchange:
        self.exchange = replace(self.exchange, parts=self._parts(), annotations=self._notes.snapshot())
        return self.exchange

    def _parts(self) -> list[Part]:
        return [*self._done, *([Text(self._text, self._pass)] if self._text else []), *self._calls]

    def step(self, step: str) -> None:
        self._count += 1
        word = f"{step} {self._count} 😀"
        match step:
            case "text":
                self._text += word
            case "think":
                self._notes.add_thinking(word, len(self._text))
            case "notice":
                self._notes.add_notice(Notice("fallback", word))
            case "call":
                self._calls.append(Call("web", id=f"c{self._count}", turn_pass=self._pass))
            case "result" if self._calls:
                for call in self._calls:
                    call.block = word
                self._end_pass()
            case "steer" | "separate" if self._text:
                self._end_pass(Text("\n\n", self._pass), *([Steer(word, self._pass)] if step == "steer" else []))
            case "take back" if self._text:  # it was reasoning
                self._notes.add_thinking(self._text, 0)
                self._text = ""

    def _end_pass(self, *then: Part) -> None:
        self._done, self._text, self._calls = [*self._parts(), *then], "", []
        self._pass += 1
        self._notes.parts_before = len(self._done)


async def begin(store: Store, answer: Answer) -> StoredExchange:
    return StoredExchange(store, await store.write_question("ada", "c", answer.exchange, ()))


async def write(store: Store, stored: StoredExchange, exchange: Exchange) -> bool | None:
    """Write what the store lacks; return whether the process still has the turn, or None if it lacks nothing."""
    draft = stored.draft(exchange)
    return None if draft is None else await store.write(draft)


@given(st.lists(st.sampled_from(STEPS), max_size=40))
async def test_any_split_of_an_answer_restores_the_same(steps: Sequence[str]) -> None:
    answer = Answer()
    async with store_at(None, Clock()) as store:
        stored = await begin(store, answer)
        for number, step in enumerate((*steps, "write"), 1):
            answer.step(step)
            stored.last = lambda number=number: number  # type: ignore[misc]
            if step == "write":
                assert await write(store, stored, answer.snapshot()) in (True, None)
                found = await only_exchange(store, "ada", "c")
                assert (found.parts, found.annotations) == (answer.exchange.parts, answer.exchange.annotations)
        assert await write(store, stored, answer.snapshot()) is None


async def test_text_and_thinking_are_appended_and_written_once() -> None:
    answer = Answer()
    async with store_at(None, Clock()) as store:
        stored = await begin(store, answer)
        for number, step in enumerate(["text", "text", "think", "think", "text"], 1):
            answer.step(step)
            stored.last = lambda number=number: number  # type: ignore[misc]
            assert await write(store, stored, answer.snapshot())
        query = "SELECT last, data FROM draft ORDER BY key"
        drafts = await store.read(lambda tx: tx.execute(query).fetchall())
        found = [(last, msgspec.json.decode(data)["text"]) for last, data in drafts]
        assert found == [(2, "text 2 😀"), (3, ""), (4, ""), (5, "text 5 😀")]  # after the checkpoint


async def test_after_a_write_that_failed_the_whole_answer_is_written() -> None:
    answer = Answer()
    async with store_at(None, Clock()) as store:
        stored = await begin(store, answer)
        for _ in range(2):
            answer.step("text")
            assert stored.draft(answer.snapshot()) is not None  # and is lost
        stored.forget_draft()
        assert await write(store, stored, answer.snapshot())
        assert await read_turns(store, "ada", "c") == [("One", "text 1 😀text 2 😀", "")]


async def test_a_turn_that_another_process_continues_is_not_written() -> None:
    answer = Answer()
    async with store_at(None, Clock()) as store:
        stored = await begin(store, answer)
        answer.step("text")
        lose_turns(store)
        assert await write(store, stored, answer.snapshot()) is False
        with pytest.raises(StoreError, match="Another process continues this turn"):
            await stored.checkpoint(answer.exchange)
        assert await stored.store(answer.exchange) is None
        assert await read_turns(store, "ada", "c") == [("One", "", "interrupted")]


async def test_a_released_turn_is_stored_as_one_that_runs() -> None:
    answer = Answer()
    async with store_at(None, Clock()) as store:
        stored = await begin(store, answer)
        answer.step("text")
        stored.is_released, stored.last = True, lambda: 7
        assert await stored.store(replace(answer.snapshot(), outcome="shutdown", ended=NOON)) is None
        assert stored.is_stored
        await store.write(lambda tx: tx.execute("UPDATE exchange SET resume = '{}'").rowcount)
        (claimed,), _ = await store.write(turns.claim, 9, continues=True)
        assert claimed.history.question is not None
        found = claimed.history.question
        assert (found.answer, found.outcome, found.ended, claimed.last) == ("text 1 😀", "", None, 7)
