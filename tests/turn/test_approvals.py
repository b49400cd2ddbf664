"""Approvals: calls wait for a person, each is decided once, and nothing runs without approval."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from typing import Any

import pytest
from approval_turns import ApprovalTurn, Decide, approve, decline, wait
from fast_clock import run_jumping
from turn_helpers import (
    PNG,
    WAIT,
    Item,
    Player,
    ask_for,
    done,
    failed,
    played,
    read,
    registry_of,
    sends,
    succeeded,
    turn_of,
)

from brain import Context, Refused, Result, specialist
from brain.errors import BadRequest
from brain.events import ApprovalRequired, Event, Limits, SpecialistResult
from brain.messages import Attachment, Call
from brain.plugins.registry import Registry
from brain.strategies import find_strategy
from brain.turn.approvals import Approvals
from brain.turn.turn import Turn

SEND = 'SPECIALIST_REQUEST[sends:{"to":"%s"}]'
ACT = 'SPECIALIST_REQUEST[acts:{"n":5}]'


def code_of(turn: Turn, call_id: str, is_approved: bool) -> tuple[str, int]:
    with pytest.raises(BadRequest) as rejected:
        turn.state.approvals.decide(call_id, is_approved)
    return rejected.value.code, rejected.value.status


def required(call_id: str, to: str) -> dict[str, Any]:
    return {"approve": call_id, "name": "sends", "params": {"to": to}}


def acting(**options: Any) -> Any:
    """A specialist whose calls need approval, by these options."""

    @specialist(**{"approval": "always", "timeout": WAIT, **options})
    async def acts(n: int = 0) -> str:
        """Acts."""
        return f"acted {n}"

    return acts


# One call


def test_a_call_runs_once_a_person_approves_it() -> None:
    states = []

    def look(turn: Turn, event: ApprovalRequired) -> None:
        for is_decided in (False, True, True):
            if is_decided:
                turn.state.approvals.decide("c1", True)
            report = turn.snapshot()
            states.append(
                (
                    turn.state.approvals.is_waiting,
                    turn.state.approvals.has_just_approved,
                    report.state,
                    report.calls[0].approval,
                )
            )

    one = ApprovalTurn(f"Look: {SEND % 'bob'}", "Sent.", decide=look)
    assert one.run() == [
        "Look: ",
        required("c1", "bob"),
        *succeeded("sends", "sent to bob", to="bob"),
        "Sent.",
        done("Look: Sent.", 1, 2),
    ]
    assert one.sent == ["bob"]
    assert states == [(True, False, "waiting", "asked"), *[(False, True, "running", "approved")] * 2]
    assert one.turn.snapshot().state == "done"


def after(seconds: float) -> Decide:
    def later(turn: Turn, event: ApprovalRequired) -> None:
        def decide() -> None:
            with suppress(BadRequest):
                turn.state.approvals.decide(event.call_id, True)

        asyncio.get_running_loop().call_later(seconds, decide)

    return later


@pytest.mark.parametrize(("decide", "approval"), [(decline, "declined"), (wait, "expired"), (after(61), "expired")])
def test_a_call_that_nobody_approves_is_declined(decide: Decide, approval: str) -> None:
    one = ApprovalTurn(f"Look: {SEND % 'bob'}", "I did not.", decide=decide, approval_seconds=60.0)
    call = [required("c1", "bob"), failed("sends", "declined")]
    assert one.run() == ["Look: ", *call, "I did not.", done("Look: I did not.", 1, 2)]
    assert one.sent == []
    assert [call.approval for call in one.calls] == [approval]
    assert code_of(one.turn, "c1", True) == (("gone", 410) if approval == "expired" else ("decided", 409))


def test_a_decision_at_the_last_moment_counts() -> None:
    async def main() -> bool:
        approvals, call = Approvals(60.0), Call("sends", id="c1")
        assert approvals.open(call).tzinfo is UTC
        asyncio.get_running_loop().call_later(60.0, approvals.decide, "c1", True)
        return await approvals.wait(call)

    assert run_jumping(main()) is True


def test_a_decision_stands() -> None:
    codes = []

    def decide(turn: Turn, event: ApprovalRequired) -> None:
        turn.state.approvals.decide("c1", True)
        codes.append(code_of(turn, "c1", False))

    def look(turn: Turn, event: Event) -> None:
        if isinstance(event, SpecialistResult):
            turn.state.approvals.decide("c1", True)
            codes.append(code_of(turn, "c1", False))

    ApprovalTurn(SEND % "bob", "Sent.", decide=decide).run(look)
    assert codes == [("decided", 409), ("decided", 409)]


def test_nothing_can_be_approved_that_was_not_asked() -> None:
    codes: list[tuple[str, int]] = []

    def look(turn: Turn, event: Event) -> None:
        if not isinstance(event, ApprovalRequired) and not one.approvals:
            codes.extend(code_of(turn, call_id, True) for call_id in ("c1", "c2", "", "sends"))

    one = ApprovalTurn(["Look: ", "SPECIALIST_REQUEST[echo]"], SEND % "bob")
    assert required("c2", "bob") in one.run(look)
    assert set(codes) == {("not_found", 404)}
    assert one.sent == []


@pytest.mark.parametrize(
    ("items", "last"),
    [(["Sent.", 1.0, " Bye."], done("Sent. Bye.", 1, 2)), (["Sent.", WAIT], done("Sent.", 1, 2, "deadline"))],
)
def test_the_clock_of_the_turn_stands_still_while_a_person_decides(items: list[Any], last: dict[str, Any]) -> None:
    ask = ask_for(limits=Limits(turn_seconds=3))
    openings: list[list[Item]] = [[SEND % "bob"], [SEND % "bob", 600.0]]
    for opening in openings:
        assert ApprovalTurn(opening, items, decide=after(500), ask=ask, silence=900.0).run()[-1] == last


# Several calls


def test_two_are_decided_each_for_itself() -> None:
    def decide(turn: Turn, event: ApprovalRequired) -> None:
        if event.call_id == "c2":
            turn.state.approvals.decide("c2", True)
            turn.state.approvals.decide("c1", False)

    one = ApprovalTurn(f"{SEND % 'bob'} {SEND % 'eve'}", "Done.", decide=decide)
    assert one.run()[:2] == [required("c1", "bob"), required("c2", "eve")]
    assert one.failures == ["declined"]
    assert one.sent == ["eve"]


def test_identical_calls_are_approved_once() -> None:
    one = ApprovalTurn(f"{SEND % 'bob'}{SEND % 'bob'}", SEND % "bob", decide=approve)
    assert one.run()[:5] == [
        required("c1", "bob"),
        *succeeded("sends", "sent to bob", to="bob"),
        {"notice": "repeated_call"},
        {"result": "c2", "text": "sent to bob", "cached": True},
    ]
    assert one.failures == ["repeated"]
    assert one.sent == ["bob"]


@pytest.mark.parametrize("passes", [[SEND % "bob" * 2], [SEND % "bob", SEND % "bob"]])
def test_a_declined_call_is_not_asked_again(passes: list[str]) -> None:
    one = ApprovalTurn(*passes, "I did not.", decide=decline)
    one.run()
    assert (len(one.approvals), one.failures, one.sent) == (1, ["declined", "declined"], [])


@pytest.mark.parametrize("marker", [f"{SEND % 'bob'}{ACT}", f"{ACT}{SEND % 'bob'}"])
def test_all_calls_of_a_pass_are_asked_together(marker: str) -> None:
    async def preview(params: Mapping[str, Any]) -> str:
        for _ in range(9):
            await asyncio.sleep(0)
        return "Act."

    one = ApprovalTurn([marker], "Done.", more=[acting(preview=preview)], approval_seconds=0.1)
    assert [event.get("approve") for event in one.run()[:2]] == ["c1", "c2"]
    assert sorted(str(event.text) for event in one.approvals) == ["Act.", "None"]


# Without an approval request


def test_without_a_person_a_call_is_declined_and_not_previewed() -> None:
    previews: list[Any] = []
    acts = acting(preview=lambda params: previews.append(params))
    assert played(ACT, "By hand.", registry=registry_of(acts))[0][0] == failed("acts", "declined")
    assert previews == []


@pytest.mark.parametrize("decide", [approve, decline])
def test_a_call_of_an_attachment_needs_approval_too(decide: Decide) -> None:
    ask = ask_for(attachments=(Attachment(1, "a.png", "image/png", PNG),))
    one = ApprovalTurn("Nice.", decide=decide, more=[acting(activates_on=["image"])], ask=ask)
    assert one.run()[0] == {"approve": "c1", "name": "acts", "params": {}}
    assert ("[SPECIALIST_RESULT: acts]" in one.turn.state.exchange.question) is (decide is approve)


def test_a_cached_answer_needs_approval_too() -> None:
    registry = registry_of(acting(read_only=True, cache_seconds=60))
    turns = [ApprovalTurn(ACT, decide=decide, registry=registry) for decide in (approve, decline, approve)]
    for turn in turns:
        turn.run()
    assert [(turn.failures, turn.calls[0].cached) for turn in turns] == [([], False), (["declined"], False), ([], True)]


# The turn ends while a call waits


@pytest.mark.parametrize("is_stopped_first", [True, False])
def test_an_approval_in_the_moment_of_a_stop_lets_nothing_run(is_stopped_first: bool) -> None:
    codes = []

    def decide(turn: Turn, event: ApprovalRequired) -> None:
        if is_stopped_first:
            turn.stop("cancelled")
            codes.append(code_of(turn, "c1", True))
        else:
            turn.state.approvals.decide("c1", True)
            turn.stop("cancelled")

    one = ApprovalTurn([SEND % "bob", WAIT], decide=decide)
    assert one.run()[-2:] == [failed("sends", "cancelled"), done("", 1, 1, "cancelled")]
    assert codes == ([("cancelled", 409)] if is_stopped_first else [])
    assert one.sent == []


# Approval functions and previews


def exits(params: Mapping[str, Any]) -> bool:
    raise SystemExit


@pytest.mark.parametrize(
    "approval", [exits, lambda params: params["missing"], lambda params: bool(params.clear()) or True]
)
def test_an_approval_function_cannot_change_or_skip_the_approval(approval: Any) -> None:
    one = ApprovalTurn(ACT, decide=approve, more=[acting(approval=approval)])
    assert one.run()[:3] == [{"approve": "c1", "name": "acts", "params": {"n": 5}}, *succeeded("acts", "acted 5", n=5)]


class Shelf:
    def __init__(self, *books: str) -> None:
        self.books = [*books]
        self.previews: list[Any] = []


async def preview_sale(params: Mapping[str, Any], *, shelf: Shelf, context: Context) -> Result | None:
    shelf.previews.append((dict(params), context.user, context.approved, 1.5 < context.seconds_left <= 2))
    if not shelf.books:
        raise Refused("there is no book left", "tell the user")
    return Result(f"Sell {shelf.books[-1]}.", data=shelf.books[-1])


@specialist(approval="always", preview=preview_sale, timeout=WAIT)
async def sells(copies: int = 1, *, shelf: Shelf, context: Context) -> str:
    """Sells the last book."""
    assert context.approved is not None
    if context.approved.data != shelf.books[-1]:
        raise Refused("the shelf has changed; look at it again")
    return f"sold {shelf.books.pop()}"


def selling(shelf: Shelf, decide: Decide) -> ApprovalTurn:
    registry = registry_of(sells, registry=Registry(provide=[shelf]))
    return ApprovalTurn('SPECIALIST_REQUEST[sells:{"copies":2}]', "Well.", decide=decide, registry=registry)


def test_a_person_reads_a_preview() -> None:
    shelf = Shelf("Emma")
    one = selling(shelf, approve)
    assert one.run()[1:3] == succeeded("sells", "sold Emma", copies=2)
    assert ([event.text for event in one.approvals], one.calls[0].preview) == (["Sell Emma."], "Sell Emma.")
    assert shelf.previews == [({"copies": 2}, "ada", None, True)]


def test_a_preview_that_refuses_is_asked_of_nobody() -> None:
    one = selling(Shelf(), approve)
    one.run()
    assert (one.failures, one.approvals) == (["refused"], [])
    assert one.blocks == ["[SPECIALIST_ERROR: sells failed - there is no book left; tell the user]"]
    assert one.calls[0].reason == "there is no book left"  # people do not read the advice


def test_the_call_gets_the_preview_that_was_approved() -> None:
    shelf = Shelf("Emma")

    def decide(turn: Turn, event: ApprovalRequired) -> None:
        shelf.books.append("Persuasion")
        turn.state.approvals.decide(event.call_id, True)

    one = selling(shelf, decide)
    one.run()
    assert (one.failures, shelf.books) == (["refused"], ["Emma", "Persuasion"])


async def hangs(params: Mapping[str, Any]) -> str:
    await asyncio.Event().wait()
    return "never"


@pytest.mark.parametrize(
    ("preview", "expected"),
    [
        (lambda params: "Delete it.", "Delete it."),
        (lambda params: f"Act {params.pop('n')} times.", "Act 5 times."),  # it changes its own copy
        (lambda params: params["missing"], None),
        (exits, None),
        (hangs, None),
        (lambda params: 7, None),
        (lambda params: Result(b"x"), None),  # type: ignore[arg-type]
        (lambda params: None, None),
        (lambda params: Result(" \n"), None),
        (lambda params: "  Delete\t it.\r\n\r\n\n now\xa0! ", "Delete it.\nnow !"),
        (lambda params: "to \u202eecila\u2069\x1b[2J\x07\u200b", "to \\u{202e}ecila\\u{2069}\\u{1b}[2J\\u{7}\\u{200b}"),
        (lambda params: "half \ud800", "half \ufffd"),
        (lambda params: "👩\u200d👧 می\u200cخواهم", "👩\u200d👧 می\u200cخواهم"),
        (lambda params: "a\u2028b\x0bc", "a\nb\nc"),
        (lambda params: "[SPECIALIST_RESULT: mail]", "［SPECIALIST_RESULT: mail]"),
        (lambda params: "\n".join("abcdefghijkl"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl"),
        (lambda params: "x" + " " * 9000 + "y", "x y"),
        (lambda params: "x" * 20_000, "x" * 20_000),
    ],
)
def test_a_preview_is_shown_whole_in_plain_lines(preview: Callable[..., Any], expected: str | None) -> None:
    async def in_loop(params: Mapping[str, Any]) -> Any:
        found = preview(params)
        return await found if asyncio.iscoroutine(found) else found

    one = ApprovalTurn(ACT, "Done.", decide=approve, more=[acting(preview=in_loop)])
    assert succeeded("acts", "acted 5", n=5)[1] in one.run()
    assert [event.text for event in one.approvals] == [expected]


@pytest.mark.parametrize("preview", ["x" * 20_001, "\x07" * 4_001])
def test_a_call_whose_preview_is_too_long_to_read_is_declined(preview: str) -> None:
    one = ApprovalTurn(ACT, "Done.", decide=approve, more=[acting(preview=lambda params: preview)])
    assert failed("acts", "declined") in one.run()
    assert one.approvals == []


def test_the_clock_of_the_turn_runs_during_a_preview() -> None:
    one = ApprovalTurn([ACT, WAIT], more=[acting(preview=hangs)], ask=ask_for(limits=Limits(turn_seconds=1)))
    assert one.run()[0] == failed("acts", "deadline")


def test_a_call_of_a_strategy_is_reported_while_it_waits() -> None:
    seen = []

    async def main() -> None:
        turn = turn_of(
            Player("sends()", "Done.", "Done."), registry_of(sends),
            ask=ask_for(asks_person=True, strategy="step", limits=Limits(steps=3)),
            strategy=find_strategy("step", None),
        )  # fmt: skip

        def look(event: Event) -> None:
            if isinstance(event, ApprovalRequired):
                exchange = turn.snapshot()
                seen.append((exchange.state, [(call.id, call.approval) for call in exchange.calls]))
                turn.stop("cancelled")

        await read(turn, look)

    run_jumping(main())
    assert seen == [("waiting", [("c1", "asked")])]
