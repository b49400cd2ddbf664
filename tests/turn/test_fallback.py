"""A model that fails is replaced by the next one, which continues the answer. The order and the limits of that."""

import asyncio
from typing import Any

import pytest
from fast_clock import now, run_jumping
from turn_helpers import Item, Player, ask_for, read, short, turn_of

from brain.errors import ModelError
from brain.events import Event, Limits, Notice, TurnStart
from brain.models.circuit_breaker import FAILURES, FIRST_PAUSE, CircuitBreaker, is_server_failure
from brain.turn.turn import Turn

pytestmark = pytest.mark.anyio

UNREACHABLE = ModelError("model_unreachable", "Cannot be reached.")
CUT_OFF = ModelError("model_failed", "Cut off.")
BUSY = ModelError("model_failed", "Busy.", status=429, retry_after=2)
TOO_LONG = ModelError("model_context", "Too long.")


def chain(*players: Player, **options: Any) -> Turn:
    for number, player in enumerate(players):
        player.name = player.name.replace("player", f"player{number}")
    first, *rest = players
    return turn_of(first, fallbacks=rest, **options)


async def texts(turn: Turn) -> str:
    return "".join(piece for piece in short(await read(turn)) if isinstance(piece, str))


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ([UNREACHABLE], ""),
        (["The ans", CUT_OFF], "The ans"),
        (['Look: SPECIALIST_REQUEST[echo:{"te', CUT_OFF], "Look: "),
        (["Look: SPECIALIST_REQ", CUT_OFF], "Look: "),
        (["<think>Hm", CUT_OFF], ""),
    ],
)
async def test_the_next_model_continues_the_exact_text(failing: list[Item], expected: str) -> None:
    first, second = Player(failing, name="first"), Player("wer is 4.", name="second")
    turn = chain(first, second)
    assert await texts(turn) == f"{expected}wer is 4."
    (request,) = second.requests
    assert [message.content for message in request if message.role == "assistant"] == ([expected] if expected else [])
    assert turn.state.exchange.model == "second"
    assert [(one.model, one.error) for one in turn.snapshot().passes] == [
        ("first", failing[-1].code),  # type: ignore[union-attr]
        ("second", None),
    ]


@pytest.mark.parametrize(
    ("failing", "counts"),
    [
        ([UNREACHABLE], (0, 0, False)),
        ([ModelError("model_failed", "", status=503)], (0, 0, False)),
        ([CUT_OFF], (True, 0, True)),
        (["The ans", ModelError("model_failed", "", status=503)], (True, 2, True)),
    ],
)
async def test_a_refused_request_has_no_tokens(failing: list[Item], counts: tuple[int, int, bool]) -> None:
    turn = chain(Player(failing), Player("4."))
    await read(turn)
    refused = turn.snapshot().passes[0]
    assert (refused.prompt_tokens and True, refused.completion_tokens, refused.estimated) == counts


async def test_the_notice_names_both_models() -> None:
    turn = chain(Player([CUT_OFF], name="first"), Player("Yes.", name="second"))
    (notice,) = [event for event in await read(turn) if isinstance(event, Notice)]
    assert notice.code == "fallback"
    assert {"first", "second"} <= set(notice.text.replace(",", " ").split())
    assert [one.code for one in turn.state.exchange.annotations] == ["fallback"]


async def test_blocks_before_the_failure_are_continued_from() -> None:
    first = Player('SPECIALIST_REQUEST[echo:{"text":"hi"}]', ["It says ", CUT_OFF])
    second = Player("hi.")
    turn = chain(first, second)
    assert await texts(turn) == "It says hi."
    assert second.requests[0][-1].content.endswith("[/SPECIALIST_RESULT]\n\nIt says ")


async def test_a_server_that_does_not_prefill_is_asked_to_continue() -> None:
    second = Player("wer is 4.", resume="message")
    assert await texts(chain(Player(["The ans", CUT_OFF]), second)) == "The answer is 4."
    assert [message.role for message in second.requests[0][-2:]] == ["assistant", "user"]


@pytest.mark.parametrize(
    ("failures", "has_third", "expected"),
    [
        (0, True, [("skipped", True), ("fallback", False)]),
        (0, False, [("skipped", True)]),
        (FAILURES, True, [("fallback", False), ("skipped", True)]),
    ],
)
async def test_a_skipped_fallback_is_named(failures: int, has_third: bool, expected: list[tuple[str, bool]]) -> None:
    first, second, third = Player([CUT_OFF], name="a"), Player("Yes.", name="b"), Player("Yes.", name="c")
    for player in (*[first] * failures, *[second] * FAILURES):
        player.breaker.record_failure()
    events = await read(chain(first, second, *([third] if has_third else [])))
    found = [(event.code, "b" in event.text.split()) for event in events if isinstance(event, Notice)]
    assert (found, second.requests) == (expected, [])


async def test_each_model_is_tried_once() -> None:
    players = [Player([CUT_OFF], name=name) for name in ("a", "b", "c")]
    events = short(await read(chain(*players)))
    assert events[-1] == {"failed": "model_failed"}
    assert [len(player.requests) for player in players] == [1, 1, 1]


@pytest.mark.parametrize(
    ("error", "falls_back"),
    [
        (UNREACHABLE, True),
        (CUT_OFF, True),
        (ModelError("model_failed", "", status=500), True),
        (ModelError("model_failed", "", status=401), True),
        (ModelError("model_failed", "", status=400), False),
        (ModelError("model_failed", "", status=422), False),
        (ModelError("model_failed", "", status=429), True),
        (ModelError("model_failed", "", status=429, retry_after=30), True),
        (ModelError("model_failed", "", status=429, retry_after=2), True),
        (TOO_LONG, False),
    ],
)
def test_errors_that_another_model_may_not_have(error: ModelError, falls_back: bool) -> None:
    assert is_server_failure(error) is falls_back


@pytest.mark.parametrize(("size", "answers"), [(4096, True), (1024, False), (2048, False), (None, False)])
async def test_a_context_that_is_too_small_needs_a_larger_one(size: int | None, answers: bool) -> None:
    first, second = Player([TOO_LONG], context_tokens=2048), Player("Yes.", context_tokens=size)
    last = short(await read(chain(first, second)))[-1]
    assert ("done" in last) is answers


async def test_a_silent_model_is_replaced() -> None:
    never = asyncio.Event()
    assert await texts(chain(Player(["It is ", never]), Player("4."), silence=0.01)) == "It is 4."


@pytest.mark.parametrize(
    ("passes", "fallbacks", "limit", "expected"),  # the answer, the requests to the first model, the seconds
    [
        ([[BUSY], ["One."]], 1, 60, ("One.", 2, 2)),
        ([[BUSY], [BUSY]], 1, 60, ("Two.", 2, 2)),
        ([[BUSY], ["One."]], 0, 60, ("One.", 2, 2)),
        ([[BUSY], [BUSY]], 0, 60, ("model_failed", 2, 2)),
        ([[BUSY], ["One."]], 1, 2, ("Two.", 1, 0)),
    ],
)
def test_a_busy_server_is_asked_once_more(
    passes: list[list[Item]], fallbacks: int, limit: float, expected: tuple[str, int, float]
) -> None:
    items = iter(passes)

    async def main() -> tuple[str, int, float]:
        first = Player(script=lambda turn_pass: next(items))
        turn = chain(first, *[Player("Two.")] * fallbacks, ask=ask_for(limits=Limits(turn_seconds=limit)))
        last = short(await read(turn))[-1]
        return last.get("failed") or last["text"], len(first.requests), now()

    assert run_jumping(main()) == expected


def test_a_wait_for_a_busy_server_can_be_stopped_and_steered() -> None:
    async def main() -> None:
        first = Player(script=lambda turn_pass: [BUSY] if len(first.requests) == 1 else ["One."])
        turn = chain(first)
        asyncio.get_running_loop().call_later(1, turn.steer, "Be short!")
        assert short(await read(turn))[-1]["done"] == "complete"
        assert (first.requests[1][-1].content, now()) == ("Hi\n\nBe short!", 1)
        turn = chain(Player([BUSY]), Player("Two."))
        asyncio.get_running_loop().call_later(1, turn.stop, "cancelled")
        assert (short(await read(turn))[-1]["done"], now()) == ("cancelled", 2)

    run_jumping(main())


async def test_a_stopped_turn_does_not_fall_back() -> None:
    never = asyncio.Event()
    first, second = Player(["It is ", never]), Player("4.")
    turn = chain(first, second)

    def stop(event: object) -> None:
        turn.stop("cancelled")

    assert short(await read(turn, stop))[-1]["done"] == "cancelled"
    assert (second.requests, first.breaker.state) == ([], "closed")


async def test_turns_skip_a_model_that_keeps_failing() -> None:
    first, second = Player(script=lambda turn_pass: [CUT_OFF]), Player(script=lambda turn_pass: ["Yes."])
    for _ in range(FAILURES + 2):
        assert await texts(chain(first, second)) == "Yes."
    assert (len(first.requests), len(second.requests)) == (FAILURES, FAILURES + 2)
    assert (first.breaker.state, second.breaker.state) == ("open", "closed")


async def test_a_model_without_alternative_is_always_tried() -> None:
    only = Player(script=lambda turn_pass: [CUT_OFF])
    for _ in range(FAILURES + 2):
        await read(chain(only))
    assert len(only.requests) == FAILURES + 2


async def test_a_pass_that_a_message_cut_before_its_first_token_proves_nothing() -> None:
    model = Player([asyncio.Event()], [CUT_OFF])
    for _ in range(FAILURES):
        model.breaker.record_failure()
    turn = turn_of(model)

    def steer(event: Event) -> None:
        if isinstance(event, TurnStart):
            asyncio.get_running_loop().call_soon(turn.steer, "In feet!")

    assert short(await read(turn, steer))[-1] == {"failed": "model_failed"}
    assert (len(model.requests), model.breaker.state) == (2, "open")


def test_a_breaker_opens_and_closes_by_outcomes_of_turns() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now)
    steps: list[tuple[str, float, str, list[bool]]] = [  # what happens, after how long, the state, who may ask
        ("fail", 0, "closed", [True]),
        ("fail", 0, "closed", [True]),
        ("fail", 0, "open", [False]),
        ("wait", FIRST_PAUSE, "half_open", [True, False]),  # one turn tries the model
        ("fail", FIRST_PAUSE, "open", [False]),
        ("wait", FIRST_PAUSE, "half_open", [True, False]),
        ("succeed", 0, "closed", [True, True]),
    ]
    assert FAILURES == 3
    for what, seconds, state, allowed in steps:
        if what == "fail":
            breaker.record_failure()
        elif what == "succeed":
            breaker.record_success()
        now += seconds
        assert (breaker.state, [breaker.allow() for _ in allowed]) == (state, allowed), what


async def test_if_all_models_are_skipped_the_chosen_one_is_asked_once() -> None:
    first, second = Player([UNREACHABLE], name="first"), Player("Yes.", name="second")
    for player in (first, second):
        for _ in range(FAILURES):
            player.breaker.record_failure()
    assert short(await read(chain(first, second)))[-1] == {"failed": "model_unreachable"}
    assert (len(first.requests), len(second.requests)) == (1, 0)
