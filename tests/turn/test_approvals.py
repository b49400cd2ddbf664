"""Calls that a person must approve: they wait in the server, are decided once, and nothing runs without."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import Any

import httpx
import pytest
import virtual
from approving import Asked, Post, Say, no, sends, silent, yes
from playing import PNG, WAIT, ask_for, echo, registry_of, turn_of
from serving import Player as Served
from serving import brain_served

from brain import Context, Refused, Result, specialist, stream_with_specialists
from brain.errors import BadRequest, RegistrationError
from brain.events import ApprovalRequired, Event, Limits, SpecialistResult
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


def timed(one: Asked) -> list[Any]:
    """What is emitted, on a clock that jumps."""
    return virtual.run(one.lead())


def after(seconds: float, *, approve: bool = True) -> Say:
    def say(turn: Turn, asked: ApprovalRequired) -> None:
        asyncio.get_running_loop().call_later(seconds, turn.decide, asked.call_id, approve)

    return say


@pytest.mark.parametrize(("say", "approval"), [(no, "declined"), (silent, "expired"), (after(61), "expired")])
def test_a_call_that_nobody_approves_is_declined(say: Say, approval: str) -> None:
    def late(turn: Turn, asked: ApprovalRequired) -> None:
        with suppress(BadRequest):
            say(turn, asked)

    one = Asked(f"Look: {SEND % 'bob'}", "I did not.", say=late, approval_seconds=60.0)
    error = {"error": "c1", "name": "sends", "code": "declined"}
    assert timed(one) == ["Look: ", asks("c1", "bob"), error, "I did not.", done("Look: I did not.", 1, 2)]
    assert one.post.sent == []
    assert one.blocks == [DECLINED]
    assert [call.approval for call in one.turn.report("native").calls] == [approval]
    code = ("gone", 410) if approval == "expired" else ("decided", 409)
    assert code_of(lambda: one.turn.decide("c1", True)) == code


def test_a_decision_at_the_last_moment_is_one() -> None:
    async def main() -> bool:
        approvals, call = Approvals(60.0), Call("sends", id="c1")
        assert approvals.open(call).tzinfo is UTC
        asyncio.get_running_loop().call_later(60.0, approvals.decide, "c1", True)
        return await approvals.wait(call)

    assert virtual.run(main()) is True


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


# The clock stands still


@pytest.mark.parametrize(
    ("items", "last"),
    [
        (["Sent.", 1.0, " Bye."], done("Sent. Bye.", 1, 2)),
        (["Sent.", WAIT], done("Sent.", 1, 2, "deadline")),
    ],
)
def test_the_clock_of_the_turn_stands_still_while_a_person_thinks(items: list[Any], last: dict[str, Any]) -> None:
    one = Asked(SEND % "bob", items, say=after(500), ask=ask_for(limits=Limits(turn_seconds=3)))
    assert timed(one)[-1] == last


# Beside others


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


# Nobody to ask, files that call, kept answers


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


@pytest.mark.parametrize("approve_first", [True, False])
def test_a_stopped_turn_takes_no_decision(approve_first: bool) -> None:
    codes = []

    def say(turn: Turn, asked: ApprovalRequired) -> None:
        turn.stop("cancelled")
        codes.append(code_of(lambda: turn.decide("c1", approve_first)))

    one = Asked([SEND % "bob", WAIT], say=say)
    one.told()
    assert codes == [("cancelled", 409)]
    assert one.turn.report("native").calls[0].approval == "asked"


# Over the wire


def wait_until_asked(client: httpx.Client, turn_id: str, headers: dict[str, str]) -> None:
    """Read the events of a turn until it waits for a person."""
    with client.stream("GET", f"/v1/turns/{turn_id}/events", headers=headers) as events:
        assert any("approval_required" in line for line in events.iter_lines())


def test_a_person_approves_over_the_wire() -> None:
    post = Post()
    registry = registry_of(sends, sells, registry=Registry(provide=[post, Shelf()]))
    keys = "keykeykeykeykey-ada:ada,keykeykeykeykey-eve:eve"
    ada, eve = ({"authorization": f"Bearer keykeykeykeykey-{name}"} for name in ("ada", "eve"))
    with brain_served(registry, KEYS=keys) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        server.play(Served([f"{SEND % 'bob'}{SELL}"], ["Sent."]))
        turn = client.post("/v1/turns", json={"message": "Send it."}, headers=ada).json()["turn_id"]
        wait_until_asked(client, turn, ada)
        report = client.get(f"/v1/turns/{turn}", headers=ada).json()
        assert report["state"] == "waiting"
        assert [(call["approval"], call["preview"]) for call in report["calls"]] == [
            ("asked", None),
            ("asked", "Sell Emma."),
        ]
        place = f"/v1/turns/{turn}/approvals/c1"
        json_type = {**ada, "content-type": "application/json"}
        for status, options in [
            (401, {"json": {"approve": True}}),
            (404, {"json": {"approve": True}, "headers": eve}),
            (400, {"json": {"approve": "yes"}, "headers": ada}),
            (400, {"json": {}, "headers": ada}),
            (415, {"content": b"approve=true", "headers": ada}),
            (400, {"content": b'{"approve":false,"approve":true}', "headers": json_type}),
        ]:
            assert client.post(place, **options).status_code == status  # type: ignore[arg-type]
        assert post.sent == []
        assert client.post(place.replace("c1", "c9"), json={"approve": True}, headers=ada).status_code == 404
        assert client.post(place.replace("c1", "c2"), json={"approve": False}, headers=ada).status_code == 200
        assert client.post(place, json={"approve": True}, headers=ada).status_code == 200
        events = client.get(f"/v1/turns/{turn}/events", headers=ada).text
        asked = [json.loads(line[6:]) for line in events.splitlines() if '"expires_at"' in line]
        assert [one.get("text") for one in asked] == [None, "Sell Emma."]
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


async def hangs(params: Mapping[str, Any]) -> str:
    await asyncio.Event().wait()
    return "Never."


@pytest.mark.parametrize("preview", [lambda params: None, lambda params: "", lambda params: Result(" \n")])
def test_an_empty_preview_is_no_failure(preview: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = Asked(ACT, "Done.", say=no, more=[previewing(preview)])
    one.told()
    assert texts(one) == [None]
    assert caplog.text == ""


def test_a_preview_that_takes_too_long_lets_the_parameters_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    one = Asked(ACT, "Done.", say=yes, more=[previewing(hangs)])
    assert {"start": "c1", "name": "acts", "params": {}} in timed(one)
    assert texts(one) == [None]
    assert "its preview failed (timeout)" in caplog.text


def test_the_clock_of_the_turn_runs_during_a_preview() -> None:
    one = Asked([ACT, WAIT], say=yes, more=[previewing(hangs)], ask=ask_for(limits=Limits(turn_seconds=1)))
    assert timed(one)[0] == {"error": "c1", "name": "acts", "code": "deadline"}


@pytest.mark.parametrize(
    ("marker", "expected"), [(f"{SEND % 'bob'}{ACT}", [None, "Act."]), (f"{ACT}{SEND % 'bob'}", ["Act.", None])]
)
def test_a_person_is_asked_about_the_calls_of_a_pass_together(marker: str, expected: list[str | None]) -> None:
    async def acting(params: Mapping[str, Any]) -> str:
        await asyncio.sleep(0.2)
        return "Act."

    async def main() -> list[list[Event]]:
        one = Asked([marker, "Done."], more=[previewing(acting)], approval_seconds=0.1)
        batches: list[list[Event]] = []
        await turn_of(one.model, one.registry, one.ask, approval_seconds=0.1).run(
            lambda events: batches.append([event for event in events if isinstance(event, ApprovalRequired)])
        )
        return [batch for batch in batches if batch]

    ((first, second),) = virtual.run(main())
    assert isinstance(first, ApprovalRequired)
    assert isinstance(second, ApprovalRequired)
    assert (first.call_id, second.call_id) == ("c1", "c2")
    assert [first.text, second.text] == expected


async def later_decided(params: Mapping[str, Any]) -> bool:
    return False


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"preview": lambda: ""}, "preview must take the parameters as one mapping"),
        ({"preview": lambda n, m: ""}, "preview must take the parameters as one mapping"),
        ({"preview": "Act."}, "it is no function whose parameters can be read"),
        ({"preview": lambda params: "Act.", "approval": None}, "give approval too"),
        ({"approval": later_decided}, "must be a plain function, which is not waited for"),
        ({"approval": raises, "read_only": later_decided}, "must be a plain function, which is not waited for"),
    ],
)
def test_functions_that_cannot_be_called_are_rejected(options: dict[str, Any], reason: str) -> None:
    options = {name: value for name, value in ({"approval": "always"} | options).items() if value is not None}
    with pytest.raises(RegistrationError, match=reason):

        @specialist(**options)
        def acts() -> str:
            """Acts."""
            return ""


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
