"""A turn's response at the ASGI `send`: whoever leaves, stalls or cancels, it settles once and all that ran is over."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest
from playing import WAIT, Player, ask_for, registry_of, turn_of
from starlette.types import Message as Sent

from brain.errors import ModelError
from brain.events import Done, Error, Event, SpecialistError, SpecialistStart, Token, TurnStart, Usage
from brain.messages import Chunk, Message, TurnReport
from brain.plugins.specialist import specialist
from brain.protocols import native
from brain.runtime.run import Run
from brain.runtime.runs import Turns
from brain.server.event_stream import Refusal, TurnResponse
from brain.turn_request import UNSAID, Sampling

SCOPE = {"type": "http", "method": "POST", "path": "/", "headers": []}
SOON = 0.25
"""100 ms are promised; the rest is for a machine that is busy with other tests."""


class ClosesSlowly(Player):
    """A model that waits for ever, and whose stream takes its time to close."""

    def __init__(self, seconds: float = 0.05) -> None:
        super().__init__()
        self.seconds = seconds

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        try:
            yield "Hi"
            await asyncio.sleep(WAIT)
        finally:
            await asyncio.sleep(self.seconds)


@specialist(timeout=WAIT)
async def deaf() -> str:
    """Does not listen to a cancellation."""
    end = time.monotonic() + 0.6
    while (left := end - time.monotonic()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
    return "late"


class Reader:
    """The other side: keeps what is sent, takes it or not, hangs up when told to."""

    def __init__(self, takes: bool = True) -> None:
        self.sent: list[Sent] = []
        self.gone = asyncio.Event()
        self.takes = asyncio.Event()
        if takes:
            self.takes.set()

    async def receive(self) -> Sent:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Sent) -> None:
        await self.takes.wait()
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    @property
    def names(self) -> list[str]:
        """The events that it got."""
        lines = b"".join(self.bodies).decode().split("\n")
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]

    @property
    def numbers(self) -> list[int]:
        lines = b"".join(self.bodies).decode().split("\n")
        return [int(line.rpartition(".")[2]) for line in lines if line.startswith("id: ")]

    @property
    def complete(self) -> bool:
        """Whether the response is whole."""
        return [message.get("more_body") for message in self.sent][-1:] == [False]


class Stage:
    """One turn and what is open for it."""

    def __init__(self, model: Any, *, journal: bool = True, survives: float | None = None, **options: Any) -> None:
        self.settled: list[TurnReport] = []
        self.open_ones: set[TurnResponse] = set()
        self.turns = Turns()
        ask = ask_for()
        turn = turn_of(model, ask=ask, **options)
        self.run: Run = self.turns.begin(turn, ask, "native", self.settled.append, joinable=journal, survives=survives)

    def response(
        self,
        heartbeat: float = 15.0,
        after: int | None = None,
        refusal: Refusal | None = None,
        encoder: Any = None,
    ) -> TurnResponse:
        encoder = encoder or native.Encoder(self.run.id, after or 0)
        return TurnResponse(
            self.run, encoder, open_ones=self.open_ones, heartbeat=heartbeat, after=after, refusal=refusal
        )

    def over(self, outcome: str = "complete") -> bool:
        """Whether it was settled once, as this, and nothing is open."""
        assert [report.stop_reason or report.error for report in self.settled] == [outcome]
        assert self.open_ones == set()
        self.turns.close()
        return self.run.over

    async def told(self) -> list[Event]:
        assert self.run.journal is not None
        async with aclosing(self.run.journal.follow()) as pieces:
            return [event async for piece in pieces for event in piece]


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a test; no task may be left behind it."""

    async def alone() -> None:
        await main
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    asyncio.run(alone())


async def until(condition: Any, seconds: float = 2.0) -> float:
    """Waits until something is so; when that was."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.001)
    return time.monotonic()


# A reader that stays, or leaves


def test_it_ends_with_its_turn_though_the_reader_stays() -> None:
    async def main() -> None:
        stage, reader = Stage(Player("Hi")), Reader()
        await stage.response()(SCOPE, reader.receive, reader.send)
        assert stage.over()
        assert [message.get("more_body") for message in reader.sent] == [None, True, True, False]
        assert reader.names == ["turn_start", "token", "usage", "done"]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


def test_it_ends_when_the_reader_hangs_up() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["Hi", WAIT])), Reader()
        asyncio.get_running_loop().call_later(0.05, reader.gone.set)
        await stage.response()(SCOPE, reader.receive, reader.send)
        assert stage.over("cancelled")
        assert len(asyncio.all_tasks()) == 1

    run(main())


def test_a_turn_whose_reader_left_goes_to_its_end_for_the_others() -> None:
    async def main() -> None:
        stage, reader, other = Stage(Player(["Hi", "SPECIALIST_REQUEST[waits]", WAIT])), Reader(), Reader()
        response = asyncio.create_task(stage.response()(SCOPE, reader.receive, reader.send))
        following = asyncio.create_task(stage.response(after=0)(SCOPE, other.receive, other.send))
        await until(lambda: "specialist_start" in other.names)
        reader.gone.set()
        await asyncio.gather(response, following)
        assert stage.over("cancelled")
        assert reader.names == ["turn_start", "token", "specialist_start"]
        assert other.names == ["turn_start", "token", "specialist_start", "specialist_error", "usage", "done"]
        assert other.complete
        start, token, call, ended, usage, done = await stage.told()
        assert isinstance(start, TurnStart)
        assert (token, isinstance(call, SpecialistStart)) == (Token("Hi"), True)
        assert isinstance(ended, SpecialistError)
        assert (ended.call_id, ended.code, isinstance(usage, Usage)) == ("c1", "cancelled", True)
        assert isinstance(done, Done)
        assert (done.stop_reason, done.text) == ("cancelled", "Hi")

    run(main())


def test_a_turn_that_does_not_come_to_its_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.event_stream.ENDING_SECONDS", 0.05)
    monkeypatch.setattr("brain.turn.model_pass.CLOSING_SECONDS", WAIT)

    async def main() -> None:
        stage, reader = Stage(ClosesSlowly(0.5)), Reader()
        response = asyncio.create_task(stage.response()(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        reader.gone.set()
        await response
        assert stage.over("cancelled")
        assert [type(event) for event in await stage.told()][-2:] == [Usage, Done]

    run(main())


def test_a_second_cancellation_while_it_ends_leaves_nothing_open() -> None:
    async def main() -> None:
        stage, reader = Stage(ClosesSlowly()), Reader()
        answering = asyncio.create_task(stage.response()(SCOPE, reader.receive, reader.send))
        await asyncio.sleep(0.02)
        reader.gone.set()
        await asyncio.sleep(0.01)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert stage.over("cancelled")

    run(main())


def test_a_cancellation_from_outside_at_the_very_end_is_not_taken_for_its_own() -> None:
    async def main() -> None:
        stage, reader = Stage(Player("Hi")), Reader()

        async def send(message: Sent) -> None:
            if message.get("more_body") is False:
                answering.cancel()

        answering = asyncio.create_task(stage.response()(SCOPE, reader.receive, send))
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert stage.over()

    run(main())


@pytest.mark.parametrize("after", [None, 0])
def test_what_the_server_raises_is_raised_when_all_is_over(after: int | None) -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["Hi", WAIT])), Reader()
        if after is not None:
            stage.run.alone()

        async def send(message: Sent) -> None:
            if message.get("body"):
                raise OSError("the connection is lost")

        with pytest.raises(OSError, match="is lost"):
            await stage.response(after=after)(SCOPE, reader.receive, send)
        assert stage.open_ones == set()
        if after is not None:
            assert not stage.run.over
            stage.run.stop()
            await stage.told()
        assert stage.over("cancelled")

    run(main())


def test_an_answer_that_is_told_to_leave_leaves() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["Hi", WAIT])), Reader()
        response = stage.response()
        answering = asyncio.create_task(response(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        response.leave()
        await answering
        assert not reader.complete
        assert stage.over("cancelled")

    run(main())


# Followers


def test_followers_come_and_go_and_the_turn_runs_on() -> None:
    async def main() -> None:
        stage = Stage(Player(["a", 0.05, "b", 0.05, "c"]))
        stage.run.alone()
        readers = [Reader() for _ in range(3)]
        answering = [
            asyncio.create_task(stage.response(after=after)(SCOPE, reader.receive, reader.send))
            for reader, after in zip(readers, (0, 0, 1), strict=True)
        ]
        await until(lambda: readers[0].names.count("token") == 2)
        readers[0].gone.set()
        await asyncio.gather(*answering)
        assert stage.over()
        whole = ["turn_start", "token", "token", "token", "usage", "done"]
        assert [reader.names for reader in readers] == [whole[:3], whole, whole[1:]]
        assert [reader.numbers for reader in readers] == [[1, 2, 3], [1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6]]
        assert [reader.complete for reader in readers] == [False, True, True]
        late = Reader()
        await stage.response(after=3)(SCOPE, late.receive, late.send)
        assert (late.names, late.complete) == (["token", "usage", "done"], True)

    run(main())


@pytest.mark.alone
def test_a_turn_ends_when_the_last_of_its_readers_was_gone_for_long_enough() -> None:
    async def main() -> None:
        stage = Stage(Player(["a", WAIT]), survives=0.5)
        stage.run.alone()
        for gone in (0.3, 0.3, 0.0):  # together longer than it survives
            reader = Reader()
            answering = asyncio.create_task(stage.response(after=0)(SCOPE, reader.receive, reader.send))
            await until(lambda: len(reader.names) == 2)  # noqa: B023
            reader.gone.set()
            await answering
            left = time.monotonic()
            await asyncio.sleep(gone)
            assert (reader.names, stage.run.over) == (["turn_start", "token"], False)
        assert 0.4 < await until(lambda: stage.run.over) - left < 1.5
        assert stage.over("cancelled")

    run(main())


@pytest.mark.parametrize("leaves_after", [1, 2, 3])
def test_where_a_reader_left_is_known(leaves_after: int) -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", 0.01, "b", 0.01, "c", WAIT])), Reader()
        stage.run.alone()
        answering = asyncio.create_task(stage.response(after=1)(SCOPE, reader.receive, reader.send))
        await until(lambda: len(reader.names) == leaves_after)
        reader.gone.set()
        await answering
        assert stage.run.left_at == 1 + leaves_after
        stage.run.stop()
        await stage.told()
        assert stage.over("cancelled")

    run(main())


def test_what_a_reader_did_not_take_it_has_not_got() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", 0.05, "b", WAIT])), Reader()
        stage.run.alone()
        answering = asyncio.create_task(stage.response(after=0)(SCOPE, reader.receive, reader.send))
        await until(lambda: len(reader.names) == 2)
        reader.takes.clear()
        await until(lambda: stage.run.journal is not None and stage.run.journal.count == 3)
        await asyncio.sleep(0.01)
        reader.gone.set()
        await answering
        assert stage.run.left_at == 2
        stage.run.stop()
        await stage.told()
        assert stage.over("cancelled")

    run(main())


def test_a_follower_too_slow_for_what_is_kept_is_told_that_there_is_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.JOURNAL_BYTES", 2_000)

    async def main() -> None:
        stage, reader = Stage(Player(["a" * 100, 0.02, *["b" * 100] * 50])), Reader(takes=False)
        stage.run.alone()
        answering = asyncio.create_task(stage.response(after=0)(SCOPE, reader.receive, reader.send))
        await until(lambda: stage.run.over)
        reader.takes.set()
        await answering
        assert reader.complete
        assert "done" not in reader.names
        assert stage.over()

    run(main())


# Heartbeats, and readers that take nothing


def test_heartbeats_are_sent_in_silence_and_never_behind_the_end() -> None:
    async def main() -> None:
        goes_on = asyncio.Event()
        stage, reader = Stage(Player(["Hi", goes_on, " again"])), Reader()
        answering = asyncio.create_task(stage.response(heartbeat=0.05)(SCOPE, reader.receive, reader.send))
        await until(lambda: len(reader.bodies) == 4)
        goes_on.set()
        await answering
        await asyncio.sleep(0.1)
        beats = [number for number, body in enumerate(reader.bodies) if body.startswith(b":")]
        assert beats[:2] == [2, 3]
        assert beats == [*range(2, 2 + len(beats))]
        assert b"event: done" in reader.bodies[-1]
        assert stage.over()

    run(main())


@pytest.mark.alone
@pytest.mark.parametrize("after", [None, 0])
@pytest.mark.parametrize("texts", [["Hi", 0.1, " again", WAIT], ["Hi", WAIT]], ids=["of tokens", "of heartbeats"])
def test_a_reader_that_takes_nothing_for_long_is_dropped(after: int | None, texts: list[Any]) -> None:
    async def main() -> None:
        stage, reader = Stage(Player(texts), survives=0.0), Reader()
        if after is not None:
            stage.run.alone()
        began = time.monotonic()
        answering = asyncio.create_task(stage.response(heartbeat=0.05, after=after)(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        reader.takes.clear()
        await asyncio.wait_for(answering, 2)
        assert 0.2 < time.monotonic() - began < 0.7
        told = await stage.told()
        assert isinstance(told[-1], Done)
        assert (told[-1].stop_reason, reader.complete) == ("cancelled", False)
        assert stage.over("cancelled")

    run(main())


@pytest.mark.parametrize("after", [None, 0])
def test_a_reader_that_does_not_take_the_end_is_dropped_too(after: int | None) -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["Hi", 0.02, " again"])), Reader()
        if after is not None:
            stage.run.alone()
        answering = asyncio.create_task(stage.response(heartbeat=0.05, after=after)(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        reader.takes.clear()
        await asyncio.wait_for(answering, 2)
        await until(lambda: stage.run.over)
        assert stage.over("cancelled" if after is None else "complete")

    run(main())


def test_a_slow_reader_gets_all_and_no_heartbeats_in_between() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", "b", "c"])), Reader()

        async def send(message: Sent) -> None:
            await asyncio.sleep(0.08 if "body" in message else 0.0)
            await reader.send(message)

        await stage.response(heartbeat=0.05)(SCOPE, reader.receive, send)
        assert reader.numbers == [1, 2, 3, 4, 5, 6]
        assert [body for body in reader.bodies if body.startswith(b":")] == []
        assert stage.over()

    run(main())


# A turn that is told to stop though its reader takes nothing


@pytest.mark.alone
@pytest.mark.parametrize("texts", [["a", 0.02, "b", WAIT], ["a", 0.02, "bSPECIALIST_REQUEST[waits]", WAIT]])
def test_stopping_does_not_wait_for_the_reader(texts: list[Any]) -> None:
    async def main() -> None:
        model = Player(texts)
        stage, reader = Stage(model), Reader()
        answering = asyncio.create_task(stage.response()(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        reader.takes.clear()
        await asyncio.sleep(0.05)
        assert model.open == 1
        stopped = time.monotonic()
        stage.run.stop()
        assert await until(lambda: not model.open) - stopped < SOON
        assert await until(lambda: stage.run.over) - stopped < SOON
        assert not answering.done()
        reader.takes.set()
        await answering
        assert (reader.complete, reader.names[-1]) == (True, "done")
        assert reader.numbers == list(range(1, len(reader.names) + 1))  # nothing is lost, nothing comes twice
        assert stage.over("cancelled")

    run(main())


def test_stopping_twice_and_hanging_up_end_it_once() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", 0.02, "b", WAIT])), Reader()
        answering = asyncio.create_task(stage.response()(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        reader.takes.clear()
        await asyncio.sleep(0.05)
        stage.run.stop()
        stage.run.stop()
        reader.gone.set()
        await asyncio.wait_for(answering, 1)
        assert stage.over("cancelled")

    run(main())


def test_a_stopped_turn_whose_reader_never_takes_the_end_is_dropped() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", 0.02, "b", WAIT])), Reader()
        answering = asyncio.create_task(stage.response(heartbeat=0.05)(SCOPE, reader.receive, reader.send))
        await until(lambda: "token" in reader.names)
        reader.takes.clear()
        await asyncio.sleep(0.05)
        stage.run.stop()
        await asyncio.wait_for(answering, 1)
        assert stage.over("cancelled")

    run(main())


# Turns that are refused before the model was heard


def refuse(error: Error) -> tuple[int, bytes]:
    return error.status or 500, error.code.encode()


UNKNOWN = ModelError("model_failed", "The model server has no such model.", status=404)


def test_a_turn_that_fails_before_the_model_was_heard_is_refused_with_a_status() -> None:
    async def main() -> None:
        stage, reader = Stage(Player([0.02, UNKNOWN])), Reader()
        await stage.response(refusal=refuse)(SCOPE, reader.receive, reader.send)
        start, body = reader.sent
        assert (start["status"], dict(start["headers"])[b"content-type"]) == (404, b"application/json")
        assert body == {"type": "http.response.body", "body": b"model_failed", "more_body": False}
        assert stage.over("model_failed")

    run(main())


def test_the_head_waits_for_the_model_and_then_all_comes() -> None:
    async def main() -> None:
        stage, reader = Stage(Player([0.1, "Hi"])), Reader()
        answering = asyncio.create_task(stage.response(refusal=refuse)(SCOPE, reader.receive, reader.send))
        await asyncio.sleep(0.05)
        assert reader.sent == []
        await answering
        assert reader.sent[0]["status"] == 200
        assert reader.numbers == [1, 2, 3, 4]
        assert stage.over()

    run(main())


def test_the_head_waits_no_longer_than_for_the_first_word() -> None:
    async def main() -> None:
        stage, reader = Stage(Player([0.02, "Hi", WAIT])), Reader()
        answering = asyncio.create_task(stage.response(refusal=refuse)(SCOPE, reader.receive, reader.send))
        await until(lambda: reader.numbers == [1, 2])
        assert len(stage.open_ones) == 1
        reader.gone.set()
        await answering
        assert stage.over("cancelled")

    run(main())


def test_the_head_waits_no_longer_than_a_heartbeat() -> None:
    async def main() -> None:
        stage, reader = Stage(Player([0.12, UNKNOWN])), Reader()
        await stage.response(refusal=refuse, heartbeat=0.05)(SCOPE, reader.receive, reader.send)
        assert reader.sent[0]["status"] == 200
        assert reader.bodies[0] == b": heartbeat\n\n"
        assert (reader.names, reader.complete) == (["turn_start", "usage", "error"], True)
        assert stage.over("model_failed")

    run(main())


# Streams that end before their turn


class UpToToken(native.Encoder):
    """Ends its stream behind the first token, like one that waits for an answer in another request."""

    closed = False

    def encode(self, events: Sequence[Event]) -> bytes:
        self.closed = self.closed or any(isinstance(event, Token) for event in events)
        return super().encode(events)


def test_a_stream_may_end_before_its_turn() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", 0.05, "b"]), survives=None), Reader()
        stage.run.alone()
        await stage.response(after=0, encoder=UpToToken(stage.run.id))(SCOPE, reader.receive, reader.send)
        assert (reader.names, reader.complete, stage.run.over) == (["turn_start", "token"], True, False)
        assert stage.run.left_at == 2
        rest = Reader()
        await stage.response(after=2)(SCOPE, rest.receive, rest.send)
        assert rest.names == ["token", "usage", "done"]
        assert stage.over()

    run(main())


def test_an_encoder_that_skipped_what_the_reader_knows_counts_from_there() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["a", 0.02, "b", WAIT])), Reader()
        stage.run.alone()
        encoder = native.Encoder(stage.run.id)
        await until(lambda: stage.run.journal is not None and stage.run.journal.count == 2)
        encoder.encode((await anext(aiter(stage.run.journal.follow())))[:2] if stage.run.journal else ())
        answering = asyncio.create_task(stage.response(after=2, encoder=encoder)(SCOPE, reader.receive, reader.send))
        await until(lambda: len(reader.names) == 1)
        reader.gone.set()
        await answering
        assert (reader.names, stage.run.left_at) == (["token"], 3)
        stage.run.stop()
        await stage.told()
        assert stage.over("cancelled")

    run(main())


@pytest.mark.alone
def test_a_deaf_call_holds_up_neither_the_reader_nor_its_end() -> None:
    async def main() -> None:
        stage, reader = Stage(Player(["SPECIALIST_REQUEST[deaf]"]), registry=registry_of(deaf)), Reader()
        answering = asyncio.create_task(stage.response()(SCOPE, reader.receive, reader.send))
        await until(lambda: "specialist_start" in reader.names)
        left = time.monotonic()
        reader.gone.set()
        await answering
        assert time.monotonic() - left < SOON
        assert stage.over("cancelled")

    run(main())
