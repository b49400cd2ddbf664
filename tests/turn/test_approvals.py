"""Calls that a person must approve: they wait in the server, are decided once, and nothing runs without."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import pytest
from approving import Asked, Post, Say, no, sends, yes
from playing import PNG, WAIT, Player, ask_for, echo, read, registry_of, turn_of
from serving import Player as Served
from serving import brain_served, settings

from brain import Context, Refused, Result, specialist, stream_with_specialists
from brain.errors import BadRequest, Interruption, RegistrationError
from brain.events import ApprovalRequired, Event, Limits, SpecialistError, SpecialistResult
from brain.messages import Attachment, Call
from brain.plugins.registry import Registry
from brain.turn.approvals import Approvals
from brain.turn.turn import Turn

DECLINED = (
    "[SPECIALIST_ERROR: sends failed - a person was asked to approve it and did not; "
    "do not ask for it again, tell the user so and go on]"
)
SEND = 'SPECIALIST_REQUEST[sends:{"to":"%s"}]'


def code_of(decide: Callable[[], None]) -> tuple[str, int]:
    with pytest.raises(BadRequest) as refused:
        decide()
    return refused.value.code, refused.value.status


def asks(call_id: str, to: str = "ada") -> dict[str, Any]:
    return {"approve": call_id, "name": "sends", "params": {"to": to}}


def ran(call_id: str, to: str = "ada", **more: Any) -> list[dict[str, Any]]:
    start = {"start": call_id, "name": "sends", "params": {"to": to}, **more}
    return [start, {"result": call_id, "text": f"sent to {to}"}]


def done(text: str, calls: int, passes: int, reason: str = "complete") -> dict[str, Any]:
    return {"done": reason, "text": text, "calls": calls, "passes": passes}


# One call


def test_a_call_runs_when_a_person_says_so() -> None:
    one = Asked(f"Look: {SEND % 'bob'}", "Sent.", say=yes)
    assert one.told() == ["Look: ", asks("c1", "bob"), *ran("c1", "bob"), "Sent.", done("Look: Sent.", 1, 2)]
    assert one.post.sent == ["bob"]
    assert [call.approval for call in one.turn.report("native").calls] == ["approved"]


def test_a_call_is_declined_when_a_person_says_so() -> None:
    one = Asked(f"Look: {SEND % 'bob'}", "I did not.", say=no)
    error = {"error": "c1", "name": "sends", "code": "declined"}
    assert one.told() == ["Look: ", asks("c1", "bob"), error, "I did not.", done("Look: I did not.", 1, 2)]
    assert one.post.sent == []
    assert one.blocks == [DECLINED]
    assert [call.approval for call in one.turn.report("native").calls] == ["declined"]


def test_a_call_is_declined_when_nobody_says_anything_in_time() -> None:
    one = Asked(SEND % "bob", "I did not.", approval_seconds=0.05)
    assert one.told()[:2] == [asks("c1", "bob"), {"error": "c1", "name": "sends", "code": "declined"}]
    assert one.post.sent == []
    assert one.blocks == [DECLINED]
    assert [call.approval for call in one.turn.report("native").calls] == ["expired"]


def test_until_when_it_can_be_approved_is_told() -> None:
    one = Asked(SEND % "bob", say=yes, approval_seconds=90)
    one.told()
    (expires_at,) = [event.expires_at for event in one.events if isinstance(event, ApprovalRequired)]
    assert expires_at.tzinfo is UTC
    assert 85 < (expires_at - datetime.now(UTC)).total_seconds() <= 90


def test_a_turn_says_that_it_waits() -> None:
    states = []

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        states.append((turn.is_waiting, turn.report("native").state, turn.report("native").calls[0].approval))
        turn.decide(asked.call_id, True)
        states.append((turn.is_waiting, turn.report("native").state, turn.report("native").calls[0].approval))

    one = Asked(SEND % "bob", "Sent.", say=say)
    one.told()
    assert states == [(True, "waiting", "asked"), (False, "running", "approved")]
    assert one.turn.report("native").state == "done"


@pytest.mark.alone
def test_the_time_of_a_call_is_without_the_wait() -> None:
    def later(turn: Turn, asked: ApprovalRequired) -> None:
        asyncio.get_running_loop().call_later(0.15, turn.decide, asked.call_id, True)

    one = Asked(SEND % "bob", say=later)
    one.told()
    (result,) = [event for event in one.events if isinstance(event, SpecialistResult)]
    assert result.ms < 100
    assert one.turn.report("native").calls[0].ms == result.ms


# Decided once, by nobody else, and nothing that was not asked


def test_a_decision_stands() -> None:
    codes = []

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        turn.decide("c1", True)
        turn.decide("c1", True)
        codes.append(code_of(lambda: turn.decide("c1", False)))

    def behind(turn: Turn, event: Event) -> None:
        if isinstance(event, SpecialistResult):
            turn.decide("c1", True)
            codes.append(code_of(lambda: turn.decide("c1", False)))

    one = Asked(SEND % "bob", "Sent.", say=say)
    assert asyncio.run(one.lead(behind))[1:3] == ran("c1", "bob")
    assert codes == [("decided", 409), ("decided", 409)]


def test_a_no_stands_too() -> None:
    codes = []

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        turn.decide("c1", False)
        turn.decide("c1", False)
        codes.append(code_of(lambda: turn.decide("c1", True)))

    one = Asked(SEND % "bob", say=say)
    one.told()
    assert codes == [("decided", 409)]
    assert one.post.sent == []


def test_what_expired_cannot_be_approved() -> None:
    codes = []

    def behind(turn: Turn, event: Event) -> None:
        if isinstance(event, SpecialistError):
            codes.append(code_of(lambda: turn.decide("c1", True)))

    one = Asked(SEND % "bob", approval_seconds=0.02)
    asyncio.run(one.lead(behind))
    assert codes == [("gone", 410)]
    assert one.post.sent == []


def test_a_decision_at_the_last_moment_is_one() -> None:
    async def main() -> bool:
        approvals = Approvals(0.01)
        call = Call("pay", id="c1")
        approvals.open(call)
        waiting = asyncio.create_task(approvals.wait(call))
        await asyncio.sleep(0)
        time.sleep(0.03)  # noqa: ASYNC251 - the time is over, but nobody noticed yet
        approvals.decide("c1", True)
        return await waiting

    assert asyncio.run(main()) is True


def test_nothing_can_be_approved_that_was_not_asked() -> None:
    codes: list[tuple[str, int]] = []

    def before(turn: Turn, event: Event) -> None:
        if not isinstance(event, ApprovalRequired):
            codes.extend(code_of(partial(turn.decide, name, True)) for name in ("c1", "c2", "", "sends"))

    one = Asked(["Look: ", 'SPECIALIST_REQUEST[echo:{"text":"x"}]'], SEND % "bob", approval_seconds=0.05)
    told = asyncio.run(one.lead(before))
    assert asks("c2", "bob") in told
    assert set(codes[:8]) == {("not_found", 404)}  # also of c1, which ran without
    assert one.post.sent == []


def test_a_decision_about_one_call_is_none_about_another() -> None:
    def say(turn: Turn, asked: ApprovalRequired) -> None:
        if asked.params == {"to": "bob"}:
            turn.decide(asked.call_id, True)

    one = Asked(SEND % "bob", SEND % "eve", say=say, approval_seconds=0.05)
    told = one.told()
    assert [event for event in told if "approve" in event] == [asks("c1", "bob"), asks("c2", "eve")]
    assert one.post.sent == ["bob"]


def test_another_turn_knows_nothing_of_it() -> None:
    async def main() -> list[tuple[str, int]]:
        other = Asked([WAIT])
        codes: list[tuple[str, int]] = []
        turn = turn_of(other.model, other.registry, other.ask)

        def say(mine: Turn, asked: ApprovalRequired) -> None:
            codes.append(code_of(lambda: turn.decide(asked.call_id, True)))
            mine.decide(asked.call_id, False)

        await Asked(SEND % "bob", say=say).lead()
        return codes

    assert asyncio.run(main()) == [("not_found", 404)]


# The clock stands still


def later(seconds: float) -> Say:
    def say(turn: Turn, asked: ApprovalRequired) -> None:
        asyncio.get_running_loop().call_later(seconds, turn.decide, asked.call_id, True)

    return say


def test_the_turns_clock_stands_still_while_a_person_thinks() -> None:
    one = Asked(SEND % "bob", ["Sent.", 0.05, " Bye."], say=later(0.4), ask=ask_for(limits=Limits(turn_seconds=0.3)))
    assert one.told()[-1] == done("Sent. Bye.", 1, 2)


def test_the_turns_clock_goes_on_behind_it() -> None:
    one = Asked(SEND % "bob", ["Sent.", WAIT], say=later(0.2), ask=ask_for(limits=Limits(turn_seconds=0.3)))
    began = time.monotonic()
    assert one.told()[-1] == done("Sent.", 1, 2, "deadline")
    assert 0.45 < time.monotonic() - began < 2


@pytest.mark.alone
def test_specialists_are_told_the_time_that_is_left_then() -> None:
    left: list[float] = []

    @specialist(approval="always", timeout=WAIT)
    async def looks(n: int, *, context: Context) -> str:
        """Looks at the clock."""
        left.append(context.seconds_left)
        return "seen"

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        loop, seconds = asyncio.get_running_loop(), {1: 0.3, 2: 0.5}[asked.params["n"]]
        loop.call_later(seconds, turn.decide, asked.call_id, True)

    both = 'SPECIALIST_REQUEST[looks:{"n":1}]SPECIALIST_REQUEST[looks:{"n":2}]'
    one = Asked(both, say=say, more=[looks], ask=ask_for(limits=Limits(turn_seconds=0.2)))
    told = one.told()
    assert [event["result"] for event in told if "result" in event] == ["c1", "c2"]
    assert all(0.1 < seconds <= 0.2 for seconds in left)  # the first ran while the second was still open


# Beside others


def test_other_calls_run_meanwhile() -> None:
    both = f"{SEND % 'bob'}SPECIALIST_REQUEST[echo]"
    one = Asked(both, "Done.", say=later(0.1))
    assert one.told()[:-2] == [
        {"start": "c2", "name": "echo", "params": {}},
        asks("c1", "bob"),
        {"result": "c2", "text": "nothing"},
        *ran("c1", "bob"),
    ]
    assert [block.partition("]")[0] for block in one.blocks] == [
        "[SPECIALIST_RESULT: sends",
        "[SPECIALIST_RESULT: echo",
    ]


def test_two_are_decided_each_for_itself() -> None:
    open_ones: list[str] = []

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        open_ones.append(asked.call_id)
        if len(open_ones) == 2:
            turn.decide("c2", True)
            turn.decide("c1", False)

    one = Asked(f"{SEND % 'bob'} {SEND % 'eve'}", "Done.", say=say)
    told = one.told()
    assert told[:2] == [asks("c1", "bob"), asks("c2", "eve")]
    assert {"error": "c1", "name": "sends", "code": "declined"} in told
    assert one.post.sent == ["eve"]


def test_the_same_twice_is_asked_once() -> None:
    one = Asked(f"{SEND % 'bob'}{SEND % 'bob'}", SEND % "bob", say=yes)
    told = one.told()
    assert told[:5] == [
        asks("c1", "bob"),
        *ran("c1", "bob"),
        {"notice": "repeated_call"},
        {"result": "c2", "text": "sent to bob", "cached": True},
    ]
    assert {"error": "c3", "name": "sends", "code": "repeated"} in told
    assert one.post.sent == ["bob"]


@pytest.mark.parametrize("passes", [[f"{SEND % 'bob'}{SEND % 'bob'}"], [SEND % "bob", SEND % "bob"]])
def test_what_was_declined_is_not_asked_again(passes: list[str]) -> None:
    one = Asked(*passes, "I did not.", say=no)
    told = one.told()
    assert [event["approve"] for event in told if "approve" in event] == ["c1"]
    assert [event["code"] for event in told if "error" in event] == ["declined", "declined"]
    assert one.blocks == [DECLINED, DECLINED]
    assert one.post.sent == []


def test_what_failed_is_asked_again_before_it_is_tried_again() -> None:
    @specialist(approval="always")
    async def tries() -> str:
        """Fails."""
        raise Refused("not today")

    one = Asked("SPECIALIST_REQUEST[tries]", "SPECIALIST_REQUEST[tries]", say=yes, more=[tries])
    assert [event["approve"] for event in one.told() if "approve" in event] == ["c1", "c2"]


def test_calls_over_the_cap_are_not_asked() -> None:
    one = Asked(f"{SEND % 'bob'}{SEND % 'eve'}", say=yes, ask=ask_for(limits=Limits(calls=1)))
    told = one.told()
    assert [event["approve"] for event in told if "approve" in event] == ["c1"]
    assert {"error": "c2", "name": "sends", "code": "call_limit"} in told
    assert one.post.sent == ["bob"]


def test_wrong_parameters_and_denied_calls_are_not_asked() -> None:
    for ask, marker, code in [
        (ask_for(), 'SPECIALIST_REQUEST[sends:{"to":1}]', "invalid_params"),
        (ask_for(wanted=["echo"]), "SPECIALIST_REQUEST[sends]", "denied"),
    ]:
        told = Asked(marker, say=yes, ask=ask).told()
        assert told[0] == {"error": "c1", "name": "sends", "code": code}


def test_a_person_decides_what_was_shown_whatever_the_approval_function_does_to_it() -> None:
    @specialist(approval=lambda params: bool(params.clear()) or True)  # type: ignore[attr-defined]
    async def pays(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    one = Asked('SPECIALIST_REQUEST[pays:{"amount":5}]', say=yes, more=[pays])
    assert one.told()[:3] == [
        {"approve": "c1", "name": "pays", "params": {"amount": 5}},
        {"start": "c1", "name": "pays", "params": {"amount": 5}},
        {"result": "c1", "text": "paid 5"},
    ]


def raises(params: Mapping[str, Any]) -> bool:
    raise KeyError("amount")


def exits(params: Mapping[str, Any]) -> bool:
    raise SystemExit


@pytest.mark.parametrize("approval", [raises, exits])
def test_an_approval_function_that_fails_lets_a_person_be_asked(approval: Callable[[Mapping[str, Any]], bool]) -> None:
    @specialist(approval=approval)
    async def pays(amount: int = 1) -> str:
        """Pays."""
        return "paid"

    one = Asked("SPECIALIST_REQUEST[pays]", say=no, more=[pays])
    assert [event["code"] for event in one.told() if "error" in event] == ["declined"]


async def later_said(params: Mapping[str, Any]) -> bool:
    return False


@pytest.mark.parametrize("options", [{"approval": later_said}, {"approval": raises, "read_only": later_said}])
def test_functions_that_would_have_to_be_waited_for_are_refused(options: Any) -> None:
    with pytest.raises(RegistrationError, match="must be a plain function, which is not waited for"):

        @specialist(**options)
        def pays() -> str:
            """Pays."""
            return ""


# Nobody to ask, files that call, kept answers


def test_without_anybody_to_ask_it_is_declined_at_once() -> None:
    one = Asked(SEND % "bob", "By hand.")
    one.ask = ask_for()
    assert one.told()[0] == {"error": "c1", "name": "sends", "code": "declined"}
    assert one.blocks == [
        "[SPECIALIST_ERROR: sends failed - it needs a person's approval, and nobody can be asked here; "
        "tell the user what to do by hand]"
    ]


@pytest.mark.parametrize("resume", [None, lambda transcript: ["never"]])
def test_a_program_without_a_server_has_nobody_to_ask(resume: Any) -> None:
    post = Post()

    async def main() -> list[dict[str, Any]]:
        registry = registry_of(sends, registry=Registry(provide=[post]))
        stream = stream_with_specialists([SEND % "bob"], {"user": "ada"}, resume=resume, specialists=registry)
        return [chunk async for chunk in stream]

    first, *_ = asyncio.run(main())
    assert (first["type"], first["code"], first["params"]) == ("specialist_error", "declined", {"to": "bob"})
    assert post.sent == []


IMAGE = Attachment(1, "a.png", "image/png", PNG)


@pytest.mark.parametrize("say", [yes, no])
def test_what_an_attachment_calls_is_asked_as_well(say: Say) -> None:
    seen = []

    @specialist(approval="always", activates_on=["image"])
    async def publishes() -> str:
        """Publishes pictures."""
        seen.append(1)
        return "published"

    one = Asked("Nice.", say=say, more=[publishes], ask=ask_for(attachments=(IMAGE,)))
    told = one.told()
    assert told[0] == {"approve": "c1", "name": "publishes", "params": {}}
    assert bool(seen) is (say is yes)
    assert ("[SPECIALIST_RESULT: publishes]" in one.turn.exchange.question) is (say is yes)


def test_a_kept_answer_is_not_given_without() -> None:
    ran = []

    @specialist(approval="always", read_only=True, cache_seconds=60)
    async def reveals() -> str:
        """Reads a secret."""
        ran.append(1)
        return "swordfish"

    registry = registry_of(reveals)
    first = Asked("SPECIALIST_REQUEST[reveals]", say=yes, registry=registry)
    first.told()
    declined = Asked("SPECIALIST_REQUEST[reveals]", say=no, registry=registry)
    assert [event["code"] for event in declined.told() if "error" in event] == ["declined"]
    kept = Asked("SPECIALIST_REQUEST[reveals]", say=yes, registry=registry)
    assert kept.told()[:2] == [
        {"approve": "c1", "name": "reveals", "params": {}},
        {"result": "c1", "text": "swordfish", "cached": True},
    ]
    assert ran == [1]


# The turn ends while a person is asked


@pytest.mark.parametrize(
    ("reason", "code", "last"),
    [
        ("cancelled", "cancelled", done("", 1, 1, "cancelled")),
        ("shutdown", "cancelled", {"failed": "shutdown"}),
        ("deadline", "deadline", done("", 1, 1, "deadline")),
    ],
)
def test_a_turn_that_ends_meanwhile(reason: Interruption, code: str, last: dict[str, Any]) -> None:
    one = Asked([SEND % "bob", WAIT], say=lambda turn, asked: turn.stop(reason))
    began = time.monotonic()
    assert one.told() == [asks("c1", "bob"), {"error": "c1", "name": "sends", "code": code}, last]
    assert time.monotonic() - began < 2
    assert one.post.sent == []
    assert one.turn.report("native").calls[0].approval == "asked"
    assert code_of(lambda: one.turn.decide("c1", True)) == ("cancelled", 409)


def test_an_approval_after_a_stop_is_refused() -> None:
    codes = []

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        turn.stop("cancelled")
        codes.append(code_of(lambda: turn.decide("c1", True)))

    one = Asked([SEND % "bob", WAIT], say=say)
    one.told()
    assert codes == [("cancelled", 409)]
    assert one.post.sent == []


def test_the_first_of_an_approval_and_a_cancel_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.turn.approvals.RACE_SECONDS", 60.0)
    post = Post()
    with (
        brain_served(registry_of(sends, registry=Registry(provide=[post]))) as server,
        httpx.Client(base_url=server.url, timeout=10) as client,
    ):
        for first, second, codes in (("approve", "cancel", [200, 409]), ("cancel", "approve", [202, 409])):
            server.play(Served([SEND % first], ["Sent."]))
            turn = client.post("/v1/turns", json={"message": "Send it."}).json()["turn_id"]
            end = time.monotonic() + 5
            while client.get(f"/v1/turns/{turn}").json()["state"] != "waiting":
                assert time.monotonic() < end
            steps = {
                "approve": partial(client.post, f"/v1/turns/{turn}/approvals/c1", json={"approve": True}),
                "cancel": partial(client.post, f"/v1/turns/{turn}/cancel"),
            }
            steps_taken = [steps[first](), steps[second]()]
            assert [answer.status_code for answer in steps_taken] == codes
            client.get(f"/v1/turns/{turn}/events")
        assert post.sent == ["approve"]


def test_an_approval_in_the_moment_of_a_stop_lets_nothing_run() -> None:
    for approve_first in (True, False):

        def say(turn: Turn, asked: ApprovalRequired, *, approve_first: bool = approve_first) -> None:
            steps: list[Callable[[], None]] = [lambda: turn.decide("c1", True), lambda: turn.stop("cancelled")]
            for step in steps if approve_first else reversed(steps):
                with suppress(BadRequest):
                    step()

        one = Asked([SEND % "bob", WAIT], say=say)
        assert one.told()[-2:] == [
            {"error": "c1", "name": "sends", "code": "cancelled"},
            done("", 1, 1, "cancelled"),
        ]
        assert one.post.sent == []


def test_a_reader_that_leaves_meanwhile_leaves_nothing() -> None:
    async def main() -> None:
        one = Asked([SEND % "bob", WAIT])
        turn = turn_of(one.model, one.registry, one.ask)
        await read(turn, lambda event: turn.stop("cancelled") if isinstance(event, ApprovalRequired) else None)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not turn.is_waiting
        assert [part.code for part in turn.exchange.parts if isinstance(part, Call)] == ["cancelled"]
        assert one.post.sent == []

    asyncio.run(main())


# Over the wire


def test_a_person_approves_over_the_wire() -> None:
    post = Post()
    registry = registry_of(sends, registry=Registry(provide=[post]))
    keys = "keykeykeykeykey-ada:ada,keykeykeykeykey-eve:eve"
    ada, eve = ({"authorization": f"Bearer keykeykeykeykey-{name}"} for name in ("ada", "eve"))
    with brain_served(registry, KEYS=keys) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        server.play(Served([SEND % "bob"], ["Sent."]))
        turn = client.post("/v1/turns", json={"message": "Send it."}, headers=ada).json()["turn_id"]
        place = f"/v1/turns/{turn}/approvals/c1"
        end = time.monotonic() + 5
        while client.get(f"/v1/turns/{turn}", headers=ada).json()["state"] != "waiting":
            assert time.monotonic() < end
        assert client.post(place, json={"approve": True}).status_code == 401
        assert client.post(place, json={"approve": True}, headers=eve).status_code == 404
        assert client.post(place, json={"approve": "yes"}, headers=ada).status_code == 400
        assert client.post(place, json={}, headers=ada).status_code == 400
        assert client.post(place, content=b"approve=true", headers=ada).status_code == 415
        json_type = {**ada, "content-type": "application/json"}
        twice = client.post(place, content=b'{"approve":false,"approve":true}', headers=json_type)
        assert (twice.status_code, twice.json()["error"]["field"]) == (400, "approve")
        assert client.post(place.replace("c1", "c2"), json={"approve": True}, headers=ada).status_code == 404
        assert post.sent == []
        assert client.post(place, json={"approve": True}, headers=ada).status_code == 200
        events = client.get(f"/v1/turns/{turn}/events", headers=ada).text
        assert [line[7:] for line in events.splitlines() if line.startswith("event: ")][-6:] == [
            "approval_required",
            "specialist_start",
            "specialist_result",
            "token",
            "usage",
            "done",
        ]
        assert post.sent == ["bob"]
        assert client.post(place, json={"approve": True}, headers=ada).status_code == 410


# What a person is told that a call would do


@dataclass
class Shelf:
    """What is on it, and what was asked about it."""

    books: list[str] = field(default_factory=lambda: ["Emma"])
    previewed: list[Any] = field(default_factory=list)
    approved: list[Any] = field(default_factory=list)


async def sold(params: Mapping[str, Any], *, shelf: Shelf, context: Context) -> Result | None:
    shelf.previewed.append((params, context.user, context.message, context.approved, 1.5 < context.seconds_left <= 2))
    if not shelf.books:
        raise Refused("there is no book left; tell the user")
    return Result(f"Sell {shelf.books[-1]}.", data=shelf.books[-1])


@specialist(approval="always", preview=sold, timeout=WAIT)
async def sells(copies: int = 1, *, shelf: Shelf, context: Context) -> str:
    """Sells the last book."""
    shelf.approved.append(context.approved)
    assert context.approved is not None
    if context.approved.data != shelf.books[-1]:
        raise Refused("the shelf has changed; look at it again")
    return f"sold {shelf.books.pop()}"


SELL = 'SPECIALIST_REQUEST[sells:{"copies":2}]'


def texts(one: Asked) -> list[str | None]:
    return [event.text for event in one.events if isinstance(event, ApprovalRequired)]


def selling(shelf: Shelf, *passes: Any, say: Say = yes, **options: Any) -> Asked:
    registry = registry_of(sells, echo, registry=Registry(provide=[shelf]))
    return Asked(*passes, say=say, registry=registry, **options)


def previewing(preview: Any, **options: Any) -> Any:
    """A specialist whose calls are told of like this."""

    @specialist(approval="always", preview=preview, timeout=WAIT, **options)
    async def acts(n: int = 0) -> str:
        """Acts."""
        return "acted"

    return acts


ACT = "SPECIALIST_REQUEST[acts]"


def test_a_person_is_told_what_a_call_would_do() -> None:
    shelf = Shelf()
    one = selling(shelf, SELL, "Sold.", ask=ask_for("Sell it.", user="ada"))
    assert one.told()[1:3] == [
        {"start": "c1", "name": "sells", "params": {"copies": 2}},
        {"result": "c1", "text": "sold Emma"},
    ]
    assert texts(one) == ["Sell Emma."]
    assert shelf.previewed == [({"copies": 2}, "ada", "Sell it.", None, True)]
    assert shelf.approved == [Result("Sell Emma.", data="Emma")]
    assert [call.preview for call in one.turn.report("native").calls] == ["Sell Emma."]


def test_what_is_refused_is_asked_of_nobody() -> None:
    one = selling(Shelf([]), SELL, "There is none.", say=yes)
    assert one.told()[0] == {"error": "c1", "name": "sells", "code": "refused"}
    assert texts(one) == []
    assert one.blocks == ["[SPECIALIST_ERROR: sells failed - there is no book left; tell the user]"]
    assert [(call.approval, call.preview) for call in one.turn.report("native").calls] == [(None, None)]


def test_what_was_approved_comes_back_to_the_call() -> None:
    shelf = Shelf()

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        shelf.books.append("Persuasion")
        turn.decide(asked.call_id, True)

    one = selling(shelf, SELL, "No.", say=say)
    assert one.told()[-3] == {"error": "c1", "name": "sells", "code": "refused"}
    assert shelf.books == ["Emma", "Persuasion"]


def test_nothing_is_told_before_somebody_is_to_be_asked() -> None:
    shelf = Shelf()
    one = selling(shelf, SELL, "By hand.")
    one.ask = ask_for()
    assert one.told()[0] == {"error": "c1", "name": "sells", "code": "declined"}
    assert shelf.previewed == []


def test_a_specialist_that_blocks_tells_it_in_a_thread() -> None:
    def slow(params: Mapping[str, Any]) -> str:
        time.sleep(0.2)
        return "Act."

    one = Asked(ACT, "Done.", say=yes, more=[previewing(slow)])
    assert "acted" in [event.get("text") for event in one.told() if isinstance(event, dict)]
    assert texts(one) == ["Act."]


def test_a_tool_that_brings_its_schema_tells_it_too() -> None:
    registry = Registry()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    registry.register(
        *("acts", "Acts.", schema, lambda params: "acted"),
        approval="always",
        preview=lambda params: f"Act {params['n']} times.",
    )
    one = Asked('SPECIALIST_REQUEST[acts:{"n":3}]', "Done.", say=yes, registry=registry)
    one.told()
    assert texts(one) == ["Act 3 times."]


def fails(params: Mapping[str, Any]) -> str:
    raise KeyError("/secret/path")


def leaves(params: Mapping[str, Any]) -> str:
    raise SystemExit


@pytest.mark.parametrize("preview", [fails, leaves, lambda params: 7, lambda params: Result(b"x")])  # type: ignore[arg-type]
def test_one_that_cannot_tell_lets_the_parameters_be_shown(preview: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = Asked(ACT, "Done.", say=yes, more=[previewing(preview)])
    assert {"result": "c1", "text": "acted"} in one.told()
    assert texts(one) == [None]
    assert "specialist acts: its preview failed (failed)" in caplog.text


@pytest.mark.parametrize("preview", [lambda params: None, lambda params: "", lambda params: Result(" \n")])
def test_one_that_tells_nothing_is_no_failure(preview: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = Asked(ACT, "Done.", say=no, more=[previewing(preview)])
    one.told()
    assert texts(one) == [None]
    assert caplog.text == ""


async def hangs(params: Mapping[str, Any]) -> str:
    await asyncio.sleep(WAIT)
    return "Never."


def blocks_for_long(params: Mapping[str, Any]) -> str:
    time.sleep(0.6)
    return "Late."


@pytest.mark.parametrize("preview", [hangs, blocks_for_long])
def test_one_that_takes_too_long_lets_the_parameters_be_shown(preview: Any, caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_of(previewing(preview), registry=Registry(settings(CALL_SECONDS="0.1")))
    began = time.monotonic()
    one = Asked(ACT, "Done.", say=yes, registry=registry)
    assert {"result": "c1", "text": "acted"} in one.told()
    assert texts(one) == [None]
    assert time.monotonic() - began < 0.5
    assert "its preview failed (timeout)" in caplog.text


async def ignores(params: Mapping[str, Any]) -> str:
    for _ in range(3):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.3)
    return "Late."


@pytest.mark.parametrize("preview", [hangs, blocks_for_long, ignores])
@pytest.mark.parametrize(
    ("reason", "code", "ended"),
    [("cancelled", "cancelled", "cancelled"), ("deadline", "deadline", "deadline")],
)
def test_a_turn_that_ends_while_it_is_told(preview: Any, reason: Interruption, code: str, ended: str) -> None:
    async def main() -> None:
        model = Player([ACT, WAIT])
        turn = turn_of(model, registry_of(previewing(preview)), replace(ask_for(), asks_person=True))
        loop, stopped = asyncio.get_running_loop(), 0.0

        def stop() -> None:
            nonlocal stopped
            stopped = loop.time()
            turn.stop(reason)

        loop.call_later(0.1, stop)
        found = await read(turn)
        assert loop.time() - stopped < 0.2  # what ignores it would take 0.3
        assert [event.code for event in found if isinstance(event, SpecialistError)] == [code]
        assert not any(isinstance(event, ApprovalRequired) for event in found)
        assert turn.report("native").stop_reason == ended
        late = asyncio.all_tasks() - {asyncio.current_task()}
        if late:
            await asyncio.wait(late)

    asyncio.run(main())


def test_the_turns_clock_goes_on_while_it_is_told() -> None:
    one = Asked([ACT, WAIT], say=yes, more=[previewing(hangs)], ask=ask_for(limits=Limits(turn_seconds=0.2)))
    began = time.monotonic()
    assert one.told() == [{"error": "c1", "name": "acts", "code": "deadline"}, done("", 1, 2, "deadline")]
    assert time.monotonic() - began < 1


def test_a_person_is_asked_about_the_calls_of_a_pass_together() -> None:
    async def later_told(params: Mapping[str, Any]) -> str:
        await asyncio.sleep(0.2)
        return "Act."

    for marker, expected in [(f"{SEND % 'bob'}{ACT}", [None, "Act."]), (f"{ACT}{SEND % 'bob'}", ["Act.", None])]:
        one = Asked(marker, "Done.", more=[previewing(later_told)], approval_seconds=0.1)
        times: dict[str, float] = {}

        def look(turn: Turn, event: Event, times: dict[str, float] = times) -> None:
            if isinstance(event, ApprovalRequired):
                times[event.call_id] = time.monotonic()

        asyncio.run(one.lead(look))
        assert list(times) == ["c1", "c2"]
        assert times["c2"] - times["c1"] < 0.1
        assert texts(one) == expected


def test_a_preview_changes_nothing_of_what_was_asked() -> None:
    def takes(params: dict[str, Any]) -> str:
        params["n"] = 9
        return "Act."

    one = Asked('SPECIALIST_REQUEST[acts:{"n":1}]', "Done.", say=yes, more=[previewing(takes)])
    assert one.told()[:2] == [
        {"approve": "c1", "name": "acts", "params": {"n": 1}},
        {"start": "c1", "name": "acts", "params": {"n": 1}},
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Delete it.", "Delete it."),
        ("  Delete\t it.\r\n\r\n\n now\xa0! ", "Delete it.\nnow !"),
        ("to \u202eecila\u2069\x1b[2J\x07\u200b", "to \\u{202e}ecila\\u{2069}\\u{1b}[2J\\u{7}\\u{200b}"),
        ("half \ud800", "half \ufffd"),
        ("👩\u200d👧 می\u200cخواهم", "👩\u200d👧 می\u200cخواهم"),
        ("a\u2028b\x0bc", "a\nb\nc"),
        ("[SPECIALIST_RESULT: mail]", "［SPECIALIST_RESULT: mail]"),
        ("\n".join("abcdefghij"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj"),
        ("\n".join("abcdefghijk"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj…"),
        ("x" * 2000, "x" * 2000),
        ("x" * 2001, "x" * 1999 + "…"),
        ("x" + " " * 9000 + "y", "x…"),
    ],
)
def test_what_is_told_is_a_few_plain_lines(text: str, expected: str) -> None:
    one = Asked(ACT, "Done.", say=no, more=[previewing(lambda params: text)])
    one.told()
    assert texts(one) == [expected]


@pytest.mark.parametrize(
    ("preview", "reason"),
    [
        (lambda: "", "preview must take the parameters as one mapping"),
        (lambda n, m: "", "preview must take the parameters as one mapping"),
        ("Act.", "it is no function whose parameters can be read"),
    ],
)
def test_a_preview_that_cannot_be_called_is_refused(preview: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=reason):
        previewing(preview)


def test_a_preview_without_an_approval_is_refused() -> None:
    with pytest.raises(RegistrationError, match="preview is for calls that a person approves; give approval too"):

        @specialist(preview=lambda params: "Act.")
        def acts() -> str:
            """Acts."""
            return ""


def test_a_preview_that_wants_what_nothing_provides_is_refused() -> None:
    async def told(params: Mapping[str, Any], *, shelf: Shelf) -> str:
        return ""

    with pytest.raises(RegistrationError, match="specialist acts from the program: preview: nothing provides shelf"):
        Registry().add(previewing(told))


def test_what_a_call_would_do_is_told_over_the_wire() -> None:
    registry = registry_of(sells, sends, registry=Registry(provide=[Shelf(), Post()]))
    with brain_served(registry) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        server.play(Served([f"{SELL}{SEND % 'bob'}"], ["No."]))
        turn = client.post("/v1/turns", json={"message": "Sell it."}).json()["turn_id"]
        end = time.monotonic() + 5
        while (report := client.get(f"/v1/turns/{turn}").json())["state"] != "waiting":
            assert time.monotonic() < end
        assert [(call["approval"], call["preview"]) for call in report["calls"]] == [
            ("asked", "Sell Emma."),
            ("asked", None),
        ]
        for call_id in ("c1", "c2"):
            client.post(f"/v1/turns/{turn}/approvals/{call_id}", json={"approve": False})
        events = client.get(f"/v1/turns/{turn}/events").text
        asked = [json.loads(line[6:]) for line in events.splitlines() if '"expires_at"' in line]
        assert [one.get("text", "none") for one in asked] == ["Sell Emma.", "none"]
