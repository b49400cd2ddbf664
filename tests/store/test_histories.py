"""Random histories of turns, compared with a model of the store in lists and dictionaries.

BRAIN_TEST_HISTORIES says how many; 200 by default. Two users do all of it under the same IDs, and two processes share
the store. Each dies now and then, and is only frozen: it goes on with turns that others may have taken over.
"""

import os
import random
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from store_helpers import Clock, DatabasePlace, answer, file, lose_turns, question, store_at

from brain.errors import BadRequest
from brain.messages import History, Text, new_process_id
from brain.store import conversations, processes, turns
from brain.store.store import Store
from brain.store.turns import Appended, QuestionOptions

HISTORIES = int(os.environ.get("BRAIN_TEST_HISTORIES", "200"))
STEPS = 25
Place = tuple[str, str]

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + HISTORIES // 5)]


@dataclass
class Turn:
    """One exchange.

    Attributes:
        replaces: The number of the first exchange that it replaces.
        process: The process that runs it, while it runs.
        epoch: How often it was claimed.
        draft: Its text so far, while it runs.
    """

    number: int
    files: list[int]
    replaces: int | None
    process: str
    can_continue: bool
    key: int
    epoch: int = 0
    draft: str = ""
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
    rng: random.Random
    places: list[Place]
    chats: dict[Place, Chat] = field(default_factory=dict)
    running: list[tuple[str, History, Place, Turn]] = field(default_factory=list)
    living: list[str] = field(default_factory=list)
    count: int = 0

    def runs(self, turn: Turn) -> bool:
        return not turn.outcome and turn.process in self.living

    def is_busy(self, chat: Chat) -> bool:
        return any(map(self.runs, chat.turns))

    def interrupt(self, chat: Chat) -> None:
        for turn in chat.turns:
            if not turn.outcome and not self.runs(turn):
                turn.outcome, turn.reply = "interrupted", turn.draft

    def find(self, process: str, history: History, place: Place, turn: Turn) -> bool:
        """Whether a process still has a turn."""
        is_own = (turn.process, turn.epoch) == (process, history.epoch)
        return is_own and turn.outcome != "interrupted" and turn in self.chats.get(place, Chat()).turns

    def pick(self) -> tuple[str, History, Place, Turn]:
        """Choose a turn, and be the process that runs it, or that was frozen when another one took it over."""
        picked = self.rng.choice(self.running)
        self.store.database.process = picked[0]
        return picked

    async def start_process(self) -> None:
        """Be a new process."""
        self.store.database.process = new_process_id()
        await self.store.write(processes.add, "")
        self.living.append(self.store.database.process)

    async def die(self) -> None:
        """End the lease of a process, and let a new one begin."""
        self.store.database.process = self.living.pop(self.rng.randrange(len(self.living)))
        await self.store.write(processes.remove)
        await self.start_process()

    async def claim(self) -> None:
        """Take over the turns of the processes that died."""
        found, has_more = await self.store.write(turns.claim, 4, continues=True)
        assert not has_more
        claimed = {one.history.key: one.history for one in found}
        for place, chat in self.chats.items():
            for turn in chat.turns:
                if turn.outcome or self.runs(turn) or not turn.can_continue:
                    continue
                history = claimed.pop(turn.key)
                assert history.question is not None
                turn.process, turn.epoch = self.store.database.process, turn.epoch + 1
                assert (history.user, history.id, history.epoch) == (*place, turn.epoch)
                assert (history.question.message, history.question.answer) == (f"word{turn.number}", turn.draft)
                before = [one for one in chat.turns if one.number < (turn.replaces or turn.number)]
                assert history.count == sum(one.is_in_history for one in before)
                assert [one.id for one in history.files] == turn.files
                self.running.append((self.store.database.process, history, place, turn))
            self.interrupt(chat)
        assert not claimed

    async def write_draft(self) -> None:
        process, history, place, turn = self.pick()
        has_it = self.find(process, history, place, turn) and not turn.outcome
        word = f"draft{turn.number}x "
        text = turn.draft + word
        if self.rng.random() < 0.5:
            assert history.question is not None
            asked = history.question
            so_far = replace(asked, question_id=f"q{turn.number}", parts=[Text(text, 1)])
            done = await self.store.write(turns.checkpoint, history, len(text), so_far)
        else:
            done = await self.store.write(turns.append, history, len(text), Appended(word, 1))
        assert done is has_it
        turn.draft += word * done

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
        asked, can_continue = question(f"word{number}", number, answer_id=f"a{number}"), self.rng.random() < 0.5
        options = QuestionOptions(replaces=named, recent=4, resume="{}" if can_continue else "")
        if self.is_busy(chat) or named == "nothing":
            with pytest.raises(BadRequest) as caught:
                await self.store.write_question(*place, asked, files, options)
            assert caught.value.code == ("busy" if self.is_busy(chat) else "not_found")
            return
        history = await self.store.write_question(*place, asked, files, options)
        self.interrupt(chat)
        self.chats[place] = chat
        before = [turn for turn in chat.turns if first is None or turn.number < first]
        read = [turn for turn in before if turn.is_in_history]
        assert [one.message for one in history.exchanges] == [f"word{turn.number}" for turn in read[-4:]]
        assert history.count == len(read)
        assert [one.id for one in history.attachments] == [n for turn in before for n in turn.files]
        last = max((n for turn in chat.turns for n in turn.files), default=0)
        assert [one.id for one in history.files] == [last + n for n in range(1, len(files) + 1)]
        ids = [one.id for one in history.files]
        new = Turn(number, ids, first, self.store.database.process, can_continue, key=history.key)
        chat.turns.append(new)
        self.running.append((self.store.database.process, history, place, new))

    async def end(self) -> None:
        picked = process, history, place, turn = self.pick()
        self.running.remove(picked)
        reply = self.rng.choice(["", f"answer{turn.number}x"])
        outcome = "complete" if reply else self.rng.choice(["cancelled", "model_failed"])
        await self.store.end(history, answer(reply or [], turn.number, outcome))
        if not self.find(process, history, place, turn):
            return  # it was interrupted, claimed, deleted or replaced
        chat = self.chats[place]
        if not reply and any(other.is_in_history for other in chat.turns if turn.does_replace(other)):
            self.remove(place, turn)
        else:
            chat.turns = [other for other in chat.turns if not turn.does_replace(other)]
            turn.reply, turn.outcome, turn.replaces = reply, outcome, None

    async def drop(self) -> None:
        picked = process, history, place, turn = self.pick()
        self.running.remove(picked)
        await self.store.drop(history)
        if self.find(process, history, place, turn):
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
        for _ in range(2):
            await self.start_process()
        for _ in range(STEPS):
            place, step = self.rng.choice(self.places), self.rng.random()
            self.store.database.process = self.rng.choice(self.living)
            if step < 0.4:
                await self.begin(place)
            elif step < 0.55 and self.running:
                await self.end()
            elif step < 0.7 and self.running:
                await self.write_draft()
            elif step < 0.75 and self.running:
                await self.drop()
            elif step < 0.8:
                await self.delete(place)
            elif step < 0.85:
                await self.rename(place)
            elif step < 0.93:
                await self.die()
            else:
                await self.claim()
        self.store.database.process = self.living[0]
        await self.compare()

    async def delete_all(self) -> None:
        for process in self.living:
            self.store.database.process = process
            await self.store.write(processes.remove)
        lose_turns(self.store)
        for place in self.places:
            await self.store.delete(*place)

    async def compare(self) -> None:
        for place in self.places:
            page = await self.store.read(conversations.read_page, *place, limit=1000)
            found = [] if page is None else [(e.message, e.answer, e.outcome, list(e.files)) for e in page.exchanges]
            own = self.chats.get(place, Chat()).turns
            shown = [turn for turn in own if not any(self.runs(other) and other.does_replace(turn) for other in own)]
            lapsed = {turn.number for turn in own if not turn.outcome and not self.runs(turn)}
            assert found == [
                (
                    f"word{t.number}",
                    t.reply if t.outcome else t.draft,
                    "interrupted" if t.number in lapsed else t.outcome,
                    t.files,
                )
                for t in shown
            ]
            if page is not None:
                assert page.conversation.title == (self.chats[place].title or f"word{own[0].number}")
                assert page.conversation.messages == sum(1 + bool(turn.reply) for turn in own)
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


async def test_histories(store_place: DatabasePlace) -> None:
    async with store_at(store_place, Clock(step=0)) as store:
        for number in range(HISTORIES // 8 if store.database.is_shared else HISTORIES):
            model = Model(store, random.Random(number), places(number))
            await model.play()
            await model.delete_all()


async def test_histories_with_restarts(shared_place: DatabasePlace) -> None:
    for number in range(max(3, HISTORIES // 60)):
        chats, count = dict[Place, Chat](), 0
        rng = random.Random(f"restart {number}")
        for is_last in (False, False, False, True):
            async with store_at(shared_place, Clock(step=0)) as store:
                await store.write(processes.remove_all)  # whose leases are over
                model = Model(store, rng, places(number), chats, count=count)
                for chat in chats.values():  # those that can be continued wait for a process that does so
                    for turn in chat.turns:
                        if not turn.outcome and not turn.can_continue:
                            turn.outcome, turn.reply = "interrupted", turn.draft
                await model.play()
                count = model.count
                if is_last:
                    await model.delete_all()
