"""Random histories of turns, against a model of the store in lists and dictionaries.

BRAIN_TEST_HISTORIES says how many; 300 without. Two users do all of it under the same ids.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from stores import Clock, answered, asked, file, kept

from brain.errors import BadRequest
from brain.messages import History
from brain.store.sqlite import SQLite

HISTORIES = int(os.environ.get("BRAIN_TEST_HISTORIES", "300"))
STEPS = 25
LEASE_SECONDS = 15

pytestmark = pytest.mark.timeout(60 + HISTORIES // 5)


@dataclass
class One:
    """One exchange in the model; `until` as long as it runs, `replaces` those from this number on."""

    number: int
    files: list[int]
    replaces: int | None
    until: float | None
    answer: str = ""
    outcome: str = ""

    @property
    def told(self) -> bool:
        return bool(self.answer) or self.outcome == "cancelled"


@dataclass
class ChatSession:
    """One conversation in the model."""

    ones: list[One] = field(default_factory=list)
    title: str | None = None


@dataclass
class Model:
    """All conversations by user and id, and the turns that somebody may still end."""

    clock: Clock
    talks: dict[tuple[str, str], ChatSession] = field(default_factory=dict)
    open: list[tuple[History, tuple[str, str], One]] = field(default_factory=list)
    count: int = 0

    def lapse(self, talk: ChatSession) -> None:
        for one in talk.ones:
            if one.until is not None and one.until <= self.clock.now:
                one.until, one.outcome = None, "interrupted"

    def busy(self, talk: ChatSession) -> bool:
        return any(one.until is not None and one.until > self.clock.now for one in talk.ones)

    def remove(self, key: tuple[str, str], one: One) -> None:
        self.talks[key].ones.remove(one)
        if not self.talks[key].ones:
            del self.talks[key]

    def seen(self, key: tuple[str, str]) -> list[tuple[str, str, str, list[int]]]:
        ones = self.talks.get(key, ChatSession()).ones
        lapsed = [one.until is not None and one.until <= self.clock.now for one in ones]
        running = [one for one in ones if one.until is not None and one.until > self.clock.now]
        hidden = [
            other for one in running for other in ones if (one.replaces or one.number) <= other.number < one.number
        ]
        return [
            (f"word{one.number}", one.answer, "interrupted" if late else one.outcome, one.files)
            for one, late in zip(ones, lapsed, strict=True)
            if one not in hidden
        ]


async def begin(store: SQLite, model: Model, rng: random.Random, key: tuple[str, str]) -> None:
    model.count += 1
    number, talk = model.count, model.talks.get(key, ChatSession())
    named, place = None, len(talk.ones)
    if talk.ones and rng.random() < 0.3:
        place = rng.randrange(len(talk.ones))
        one = talk.ones[place]
        named = f"a{one.number}" if one.answer and rng.random() < 0.5 else f"q{one.number}"
    elif rng.random() < 0.05:
        named, place = "nothing", -1
    files = [file(b"x")] * rng.randrange(3)
    question = asked(f"word{number}", number)
    if model.busy(talk) or place < 0:
        with pytest.raises(BadRequest) as caught:
            await store.begin(*key, question, files, replaces=named, recent=4)
        assert caught.value.code == ("busy" if model.busy(talk) else "not_found")
        return
    record = await store.begin(*key, question, files, replaces=named, recent=4)
    model.lapse(talk)
    model.talks[key] = talk
    first = (talk.ones[place].replaces or talk.ones[place].number) if named else None
    place = len([one for one in talk.ones if first is None or one.number < first])
    told = [one for one in talk.ones[:place] if one.told]
    assert [exchange.message for exchange in record.exchanges] == [f"word{one.number}" for one in told[-4:]]
    assert record.count == len(told)
    assert [one.id for one in record.attachments] == [n for one in talk.ones[:place] for n in one.files]
    last = max((n for one in talk.ones for n in one.files), default=0)
    assert [one.id for one in record.files] == [last + n for n in range(1, len(files) + 1)]
    new = One(
        number,
        [one.id for one in record.files],
        first,
        model.clock.now + LEASE_SECONDS,
    )
    talk.ones.append(new)
    model.open.append((record, key, new))


async def end(store: SQLite, model: Model, rng: random.Random) -> None:
    record, key, one = model.open.pop(rng.randrange(len(model.open)))
    answer = rng.choice(["", f"answer{one.number}x"])
    outcome = "complete" if answer else rng.choice(["cancelled", "model_failed"])
    await store.end(record, answered(answer or [], one.number, outcome))
    talk = model.talks.get(key)
    if talk is None or one not in talk.ones:
        return  # it was deleted, or replaced, after its time
    gone = [other for other in talk.ones if one.replaces and one.replaces <= other.number < one.number]
    if any(other.told for other in gone) and not answer:
        model.remove(key, one)
    else:
        talk.ones = [other for other in talk.ones if other not in gone]
        one.answer, one.outcome, one.until, one.replaces = answer, outcome, None, None


async def drop(store: SQLite, model: Model, rng: random.Random) -> None:
    record, key, one = model.open.pop(rng.randrange(len(model.open)))
    await store.drop(record)
    if one in model.talks.get(key, ChatSession()).ones:
        model.remove(key, one)


async def delete(store: SQLite, model: Model, key: tuple[str, str]) -> None:
    talk = model.talks.get(key)
    if talk is not None and model.busy(talk):
        with pytest.raises(BadRequest):
            await store.delete(*key)
        return
    assert await store.delete(*key) == (talk is not None)
    model.talks.pop(key, None)


async def rename(store: SQLite, model: Model, key: tuple[str, str]) -> None:
    model.count += 1
    heading = await store.rename(*key, f"title {model.count}")
    assert (heading is not None) == (key in model.talks)
    if heading is not None:
        model.talks[key].title = f"title {model.count}"


async def compare(store: SQLite, model: Model, keys: Sequence[tuple[str, str]]) -> None:
    for key in keys:
        opened = await store.conversation(*key, limit=1000)
        found = [] if opened is None else [(e.message, e.answer, e.outcome, list(e.files)) for e in opened.exchanges]
        assert found == model.seen(key)
        if opened is not None:
            talk = model.talks[key]
            assert opened.conversation.title == (talk.title or f"word{talk.ones[0].number}")
            assert opened.conversation.messages == sum(1 + bool(one.answer) for one in talk.ones)
            assert opened.conversation.running == any(one.until and one.until > model.clock.now for one in talk.ones)
            assert [one.id for one in opened.files] == sorted(n for *_, files in found for n in files)
    for user in {key[0] for key in keys}:
        there = sorted(name for owner, name in model.talks if owner == user)
        assert sorted(heading.id for heading in await store.conversations(user)) == there
        for number in range(max(1, model.count - 8), model.count + 1):
            answer = f"answer{number}x"
            having = [key for key, talk in model.talks.items() if any(one.answer == answer for one in talk.ones)]
            found_by = [(user, heading.id) for heading in await store.conversations(user, words=answer)]
            assert found_by == [key for key in having if key[0] == user]


async def history(store: SQLite, model: Model, rng: random.Random, keys: Sequence[tuple[str, str]]) -> None:
    for _ in range(STEPS):
        key = rng.choice(keys)
        step = rng.random()
        if step < 0.45:
            await begin(store, model, rng, key)
        elif step < 0.75 and model.open:
            await end(store, model, rng)
        elif step < 0.8 and model.open:
            await drop(store, model, rng)
        elif step < 0.85:
            await delete(store, model, key)
        elif step < 0.9:
            await rename(store, model, key)
        else:
            store._leases.keys.clear()  # the turns that run are another process's, which is gone
            model.clock.now += rng.choice([2, 20])
    await compare(store, model, keys)


def keys_of(number: int) -> list[tuple[str, str]]:
    return [(f"{user}{number}", name) for user in ("ada", "eve") for name in ("c", "d")]


def test_histories() -> None:
    async def main() -> None:
        clock = Clock(look=0)
        async with kept(None, clock) as store:
            for number in range(HISTORIES):
                await history(store, Model(clock), random.Random(number), keys_of(number))
                for user, name in keys_of(number):
                    store._leases.keys.clear()
                    clock.now += 60
                    await store.delete(user, name)

    asyncio.run(main())


def test_histories_with_restarts(tmp_path: Path) -> None:
    async def main() -> None:
        for number in range(max(3, HISTORIES // 60)):
            clock, rng = Clock(look=0), random.Random(f"restart {number}")
            model, keys = Model(clock), keys_of(number)
            for _ in range(4):
                async with kept(tmp_path / "brain.db", clock) as store:
                    for talk in model.talks.values():
                        for one in talk.ones:
                            if one.until is not None:
                                one.until, one.outcome = None, "interrupted"
                    model.open.clear()
                    await history(store, model, rng, keys)

    asyncio.run(main())
