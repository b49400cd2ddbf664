import asyncio

import pytest
from playing import PNG, WAIT, Player, ask_for, read, registry_of, short, turn_of

from brain.ask import Attachment, Limits
from brain.conversation import keep, new_id, recall, windowed
from brain.messages import Exchange, Message, Said
from brain.specialist import Context, specialist
from brain.store.memory import Record
from brain.turn import Conversation


def said(question: str, answer: str) -> Exchange:
    return Exchange(question, [Said(answer, 1)])


def picture(name: str, number: int = 1) -> Attachment:
    return Attachment(number, name, "image/png", PNG)


def test_a_new_conversation() -> None:
    record = Record("ada", "c")
    ask = ask_for("Hi")
    asked, recalled = recall(record, ask, 8192)
    assert asked == ask
    assert (recalled.id, recalled.exchanges, recalled.attachments, recalled.trimmed) == ("c", (), (), 0)


def test_ids_are_not_guessed() -> None:
    assert new_id() != new_id()
    assert new_id().startswith("conv")
    assert len(new_id()) == 20


def test_what_was_said_is_recalled() -> None:
    record = Record("ada", "c", [said("One?", "1."), said("Two?", "2.")])
    _, recalled = recall(record, ask_for("Three?"), None)
    assert list(recalled.exchanges) == [said("One?", "1."), said("Two?", "2.")]


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [(None, 3), (60, 3), (45, 3), (44, 2), (30, 2), (29, 1), (15, 1), (14, 0)],
)
def test_the_oldest_make_room(tokens: int | None, kept: int) -> None:
    exchanges = [said(f"Question {n}?", "An answer of 19 chs") for n in range(3)]  # 30 characters each
    record = Record("ada", "c", exchanges)
    _, recalled = recall(record, ask_for(), tokens)
    assert list(recalled.exchanges) == exchanges[3 - kept :]
    assert recalled.trimmed == 3 - kept
    assert len(record.exchanges) == 3


def test_a_language_of_longer_characters_needs_more_room() -> None:
    record = Record("ada", "c", [said("你好吗", "我很好") for _ in range(3)])  # 18 bytes each
    assert recall(record, ask_for(), 27)[1].trimmed == 0
    assert recall(record, ask_for(), 26)[1].trimmed == 1


def test_attachments_count_through_the_conversation() -> None:
    record = Record("ada", "c", [], [picture("a.png"), picture("b.png", 2)])
    ask = ask_for(attachments=(picture("c.png"), picture("d.png", 2)))
    asked, recalled = recall(record, ask, None)
    assert [(a.id, a.name) for a in recalled.attachments] == [(1, "a.png"), (2, "b.png")]
    assert [(a.id, a.name) for a in asked.attachments] == [(3, "c.png"), (4, "d.png")]
    assert [a.id for a in ask.attachments] == [1, 2]


def test_what_was_said_and_attached_is_kept() -> None:
    record = Record("ada", "c")
    keep(record, ask_for(attachments=(picture("a.png"),)), said("Hi", "Hello"))
    keep(record, ask_for(), said("And?", "Yes"))
    assert record.exchanges == [said("Hi", "Hello"), said("And?", "Yes")]
    assert record.attachments == [picture("a.png")]


def test_a_turn_in_which_nothing_was_said_leaves_no_trace() -> None:
    record = Record("ada", "c")
    keep(record, ask_for(attachments=(picture("a.png"),)), Exchange("Hi"))
    assert (record.exchanges, record.attachments) == ([], [])


def test_three_turns_of_one_conversation() -> None:
    seen: list[list[tuple[int, str]]] = []

    @specialist
    async def looks(image_id: int, *, context: Context) -> str:
        """Looks at an image."""
        seen.append([(a.id, a.name) for a in context.attachments])
        return next(a.name for a in context.attachments if a.id == image_id)

    async def main() -> None:
        record = Record("ada", "c")
        for number, name in enumerate(("a.png", "b.png", "c.png"), 1):
            ask, recalled = recall(record, ask_for(f"Turn {number}", attachments=(picture(name),)), None)
            marker = f'SPECIALIST_REQUEST[looks:{{"image_id":{number}}}]'
            model = Player(marker, "I see.")
            turn = turn_of(model, registry_of(looks), ask, recalled)
            events = await read(turn)
            assert short(events)[1] == {"result": "c1", "text": name}
            assert f'(Attached, by image_id: {number}: "{name}" (image/png))' in turn.exchange.question
            keep(record, ask, turn.exchange)
        assert [exchange.visible for exchange in record.exchanges] == ["I see."] * 3
        assert [message.role for message in model.requests[0]] == ["system", *["user", "assistant"] * 2, "user"]

    asyncio.run(main())
    assert seen[-1] == [(1, "a.png"), (2, "b.png"), (3, "c.png")]


def test_a_turn_that_was_cut_is_kept_with_what_it_said() -> None:
    async def main() -> None:
        record = Record("ada", "c")
        ask, recalled = recall(record, ask_for(limits=Limits(turn_seconds=0.05)), None)
        turn = turn_of(Player(["Well, ", WAIT]), registry_of(), ask, recalled)
        await read(turn)
        keep(record, ask, turn.exchange)
        assert record.exchanges == [said("Hi", "Well, ")]

    asyncio.run(main())


def test_what_clients_put_around_a_question_takes_its_room() -> None:
    around = (Message("system", "x" * 4000),)
    exchanges = [Exchange("old", before=around), Exchange("new")]
    held = Conversation("c", exchanges)
    assert [one.question for one in windowed(held, 4096).exchanges] == ["old", "new"]
    assert [one.question for one in windowed(held, 1024).exchanges] == ["new"]
