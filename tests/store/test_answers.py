"""Answers that Brain gave are recognized in the histories of clients, with the marks of their turns."""

from collections.abc import Sequence

import pytest
from store_helpers import Clock, DatabasePlace, fact, store_at

from brain.messages import Call, Exchange, Marks, Part, Steer, Text
from brain.store import answers, items
from brain.store.answers import normalize, pieces
from brain.store.store import Store

pytestmark = pytest.mark.anyio

NONE, UNTRUSTED, BOTH = Marks(), Marks(untrusted=True), Marks(untrusted=True, private_data=True)
DAY = 86_400
ANSWER = "The **third** release, 0.3, is out!"


async def remember(store: Store, marks: Marks, answer: str | Sequence[Part], user: str = "ada") -> None:
    parts = [Text(answer, 1)] if isinstance(answer, str) else answer
    exchange = Exchange("", untrusted=marks.untrusted, private_data=marks.private_data)
    await store.write_unsynced(answers.remember, user, exchange, pieces(parts))


async def marks_of(store: Store, *given: str, user: str = "ada") -> Marks:
    return await store.read(answers.find_marks, user, [normalize(answer) for answer in given])


@pytest.mark.parametrize(
    "sent_back",
    [
        ANSWER,
        f"\n {ANSWER} \n\n",
        ANSWER.replace("**", "").replace(" ", "\u00a0").upper(),
        f"<think>Which one?</think>{ANSWER}",
        f'<details type="reasoning" done="true">\n<summary>Thought</summary>\n> Hm.\n</details>\n{ANSWER}',
        f"<details>\n<summary>web</summary>\n\n```text\nsecret\n```\n\n</details>\n\n{ANSWER}",
        f"[SPECIALIST_RESULT: web]\nsecret\n[/SPECIALIST_RESULT]\n{ANSWER}\n[SPECIALIST_ERROR: web failed - no]",
        f"{ANSWER} Preview of web: `Go`. The call of web with `{{}}` needs your approval before 10:00:00 UTC. "
        "To approve it: `curl`; to decline it, send false.",
    ],
)
async def test_an_answer_is_recognized_however_a_client_shows_it(store: Store, sent_back: str) -> None:
    await remember(store, BOTH, "Another one.")
    await remember(store, NONE, ANSWER)
    assert await marks_of(store, sent_back) == NONE
    assert await marks_of(store, sent_back, "Another one.") == BOTH


@pytest.mark.parametrize("other", [ANSWER + "1", ANSWER[:-8], "", "<details>0.3</details>", "👍", "The third release"])
async def test_another_answer_is_unknown(store: Store, other: str) -> None:
    await remember(store, NONE, ANSWER)
    assert await marks_of(store, other) == UNTRUSTED
    assert await marks_of(store, ANSWER, user="eve") == UNTRUSTED
    await store.write(items.put, "ada", fact("f1", "I like jazz"))
    assert await marks_of(store, ANSWER) == NONE
    assert await marks_of(store, ANSWER, other) == BOTH
    assert await marks_of(store, other, user="eve") == UNTRUSTED


async def test_the_pieces_of_an_answer_are_recognized_alone_and_together(store: Store) -> None:
    parts: list[Part] = [Text("Let me ", 1), Text("look. ", 1), Call("web"), Steer("Faster!", 1), Text("It rains.", 2)]
    await remember(store, NONE, parts)
    assert await marks_of(store, "Let me look. ", "It rains.") == NONE
    assert await marks_of(store, "Let me look.\n\nIt rains.") == NONE
    assert await marks_of(store, "Let me") == UNTRUSTED
    await remember(store, NONE, [Call("web"), Text("👍", 1)])
    assert await marks_of(store, "👍 ") == NONE


async def test_equal_answers_have_the_marks_of_all_their_turns(store: Store) -> None:
    for marks in (NONE, Marks(private_data=True), UNTRUSTED, NONE):
        await remember(store, marks, ANSWER)
    assert await marks_of(store, ANSWER) == BOTH


async def test_an_answer_is_recognized_for_thirty_days(store_place: DatabasePlace) -> None:
    clock = Clock(step=0)
    async with store_at(store_place, clock) as store:
        await remember(store, NONE, ANSWER)
        clock.now += 30 * DAY
        assert await marks_of(store, ANSWER) == NONE
        clock.now += 1
        assert await marks_of(store, ANSWER) == UNTRUSTED
        await remember(store, NONE, "Another one.")
        count = await store.read(lambda tx: tx.execute("SELECT count(*) FROM answer").fetchone()[0])
        assert count == 1


async def test_no_text_is_stored_and_nothing_is_left_of_a_user(store: Store) -> None:
    await remember(store, BOTH, ANSWER)
    await store.forget("ada")
    assert await marks_of(store, ANSWER) == UNTRUSTED


def test_long_texts_take_linear_time() -> None:
    for piece in ("<details>", "<think>", "[SPECIALIST_RESULT: a", "The call of web with ", "Preview of web: "):
        assert normalize(piece * 20_000)
