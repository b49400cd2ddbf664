"""Random histories of turns, compared with a model of the store in lists and dictionaries.

BRAIN_TEST_HISTORIES says how many; 200 by default. Two users do all of it under the same IDs.
"""

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from store_helpers import Clock, answer, file, lose_turns, question, store_at

from brain.errors import BadRequest
from brain.messages import History
from brain.store import conversations
from brain.store.store import Store
from brain.store.turns import QuestionOptions

HISTORIES = int(os.environ.get("BRAIN_TEST_HISTORIES", "200"))
STEPS = 25
LEASE_SECONDS = 15
Place = tuple[str, str]

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + HISTORIES // 5)]


@dataclass
class Turn:
    """One exchange; `until` while it runs, `replaces` the number of the first exchange that it replaces."""

    number: int
    files: list[int]
    replaces: int | None
    until: float | None
    reply: str = ""
    outcome: str = ""

    @property
    def is_in_history(self) -> bool:
        return bool(self.reply) or self.outcome == "cancelled"

    def does_replace(self, other: "Turn") -> bool:
        return self.replaces is not None and self.replaces <= other.number < self.number


@dataclass
class Chat:
    """One conversation."""

    turns: list[Turn] = field(default_factory=list)
    title: str | None = None


@dataclass
class Model:
    """The same steps in a store and in lists and dictionaries."""

    store: Store
    clock: Clock
    rng: random.Random
    places: list[Place]
    chats: dict[Place, Chat] = field(default_factory=dict)
    running: list[tuple[History, Place, Turn]] = field(default_factory=list)
    count: int = 0

    def runs(self, turn: Turn) -> bool:
        return turn.until is not None and turn.until > self.clock.now

    def is_busy(self, chat: Chat) -> bool:
        return any(map(self.runs, chat.turns))

    def lapse(self, chat: Chat) -> None:
        for turn in chat.turns:
            if turn.until is not None and not self.runs(turn):
                turn.until, turn.outcome = None, "interrupted"

    def remove(self, place: Place, turn: Turn) -> None:
        self.chats[place].turns.remove(turn)
        if not self.chats[place].turns:
            del self.chats[place]

    async def begin(self, place: Place) -> None:
        self.count += 1
        number, chat = self.count, self.chats.get(place, Chat())
        named, first = None, None
        if chat.turns and self.rng.random() < 0.3:
            turn = self.rng.choice(chat.turns)
            named = f"a{turn.number}" if turn.reply and self.rng.random() < 0.5 else f"q{turn.number}"
            first = turn.replaces or turn.number
        elif self.rng.random() < 0.05:
            named = "nothing"
        files = [file(b"x")] * self.rng.randrange(3)
        asked = question(f"word{number}", number)
        if self.is_busy(chat) or named == "nothing":
            with pytest.raises(BadRequest) as caught:
                await self.store.write_question(*place, asked, files, QuestionOptions(replaces=named, recent=4))
            assert caught.value.code == ("busy" if self.is_busy(chat) else "not_found")
            return
        history = await self.store.write_question(*place, asked, files, QuestionOptions(replaces=named, recent=4))
        self.lapse(chat)
        self.chats[place] = chat
        before = [turn for turn in chat.turns if first is None or turn.number < first]
        read = [turn for turn in before if turn.is_in_history]
        assert [one.message for one in history.exchanges] == [f"word{turn.number}" for turn in read[-4:]]
        assert history.count == len(read)
        assert [one.id for one in history.attachments] == [n for turn in before for n in turn.files]
        last = max((n for turn in chat.turns for n in turn.files), default=0)
        assert [one.id for one in history.files] == [last + n for n in range(1, len(files) + 1)]
        new = Turn(number, [one.id for one in history.files], first, self.clock.now + LEASE_SECONDS)
        chat.turns.append(new)
        self.running.append((history, place, new))

    async def end(self) -> None:
        history, place, turn = self.running.pop(self.rng.randrange(len(self.running)))
        reply = self.rng.choice(["", f"answer{turn.number}x"])
        outcome = "complete" if reply else self.rng.choice(["cancelled", "model_failed"])
        await self.store.end(history, answer(reply or [], turn.number, outcome))
        chat = self.chats.get(place)
        if chat is None or turn not in chat.turns:
            return  # it was deleted, or replaced, when its lease was over
        if not reply and any(other.is_in_history for other in chat.turns if turn.does_replace(other)):
            self.remove(place, turn)
        else:
            chat.turns = [other for other in chat.turns if not turn.does_replace(other)]
            turn.reply, turn.outcome, turn.until, turn.replaces = reply, outcome, None, None

    async def drop(self) -> None:
        history, place, turn = self.running.pop(self.rng.randrange(len(self.running)))
        await self.store.drop(history)
        if turn in self.chats.get(place, Chat()).turns:
            self.remove(place, turn)

    async def delete(self, place: Place) -> None:
        chat = self.chats.get(place)
        if chat is not None and self.is_busy(chat):
            with pytest.raises(BadRequest):
                await self.store.delete(*place)
            return
        assert await self.store.delete(*place) == (chat is not None)
        self.chats.pop(place, None)

    async def rename(self, place: Place) -> None:
        self.count += 1
        renamed = await self.store.write(conversations.rename, *place, f"title {self.count}")
        assert (renamed is not None) == (place in self.chats)
        if renamed is not None:
            self.chats[place].title = f"title {self.count}"

    async def play(self) -> None:
        for _ in range(STEPS):
            place, step = self.rng.choice(self.places), self.rng.random()
            if step < 0.45:
                await self.begin(place)
            elif step < 0.75 and self.running:
                await self.end()
            elif step < 0.8 and self.running:
                await self.drop()
            elif step < 0.85:
                await self.delete(place)
            elif step < 0.9:
                await self.rename(place)
            else:
                lose_turns(self.store)
                self.clock.now += self.rng.choice([2, 20])
        await self.compare()

    async def compare(self) -> None:
        for place in self.places:
            page = await self.store.read(conversations.read_page, *place, limit=1000)
            found = [] if page is None else [(e.message, e.answer, e.outcome, list(e.files)) for e in page.exchanges]
            turns = self.chats.get(place, Chat()).turns
            shown = [
                turn for turn in turns if not any(self.runs(other) and other.does_replace(turn) for other in turns)
            ]
            lapsed = {turn.number for turn in turns if turn.until is not None and not self.runs(turn)}
            assert found == [
                (f"word{t.number}", t.reply, "interrupted" if t.number in lapsed else t.outcome, t.files) for t in shown
            ]
            if page is not None:
                assert page.conversation.title == (self.chats[place].title or f"word{turns[0].number}")
                assert page.conversation.messages == sum(1 + bool(turn.reply) for turn in turns)
                assert page.conversation.running == self.is_busy(self.chats[place])
                assert [one.id for one in page.files] == sorted(n for *_, files in found for n in files)
        for user in {place[0] for place in self.places}:
            names = sorted(name for owner, name in self.chats if owner == user)
            assert sorted(one.id for one in await self.store.list_conversations(user)) == names
            for number in range(max(1, self.count - 8), self.count + 1):
                reply = f"answer{number}x"
                have = [place for place, chat in self.chats.items() if any(t.reply == reply for t in chat.turns)]
                found_by = [(user, one.id) for one in await self.store.list_conversations(user, words=reply)]
                assert found_by == [place for place in have if place[0] == user]


def places(number: int) -> list[Place]:
    return [(f"{user}{number}", name) for user in ("ada", "eve") for name in ("c", "d")]


async def test_histories() -> None:
    clock = Clock(step=0)
    async with store_at(None, clock) as store:
        for number in range(HISTORIES):
            await Model(store, clock, random.Random(number), places(number)).play()
            for place in places(number):
                lose_turns(store)
                clock.advance(seconds=60)
                await store.delete(*place)


async def test_histories_with_restarts(tmp_path: Path) -> None:
    for number in range(max(3, HISTORIES // 60)):
        clock, chats, count = Clock(step=0), dict[Place, Chat](), 0
        rng = random.Random(f"restart {number}")
        for _ in range(4):
            async with store_at(tmp_path / "brain.db", clock) as store:
                for chat in chats.values():
                    for turn in chat.turns:
                        if turn.until is not None:
                            turn.until, turn.outcome = None, "interrupted"
                model = Model(store, clock, rng, places(number), chats, count=count)
                await model.play()
                count = model.count
