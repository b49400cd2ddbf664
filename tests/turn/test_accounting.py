"""What a turn took, told while it runs and when it ended; and that it ends, however long its model would go on."""

import asyncio

import pytest
from playing import WAIT, Player, read, turn_of

from brain.errors import Interruption
from brain.events import Done, Event, Token
from brain.messages import TurnReport


def test_a_pass_that_runs_is_told_of() -> None:
    async def main() -> None:
        turn = turn_of(Player(["Hello there.", WAIT]))
        reports: list[TurnReport] = []

        def look(event: Event) -> None:
            if isinstance(event, Token):
                reports.append(turn.report("native"))
                turn.stop("cancelled")

        await read(turn, look)
        (report,) = reports
        (one,) = report.passes
        assert (one.number, one.ended_ms, one.finish, one.error) == (1, None, None, None)
        assert (one.completion_tokens, one.estimated) == (3, True)
        assert report.first_token_ms == one.first_token_ms is not None

    asyncio.run(main())


@pytest.mark.parametrize(("reason", "finish"), [("cancelled", "cancelled"), ("deadline", "deadline")])
def test_a_pass_that_was_stopped_is_not_told_to_be_complete(reason: Interruption, finish: str) -> None:
    async def main() -> None:
        turn = turn_of(Player(["Hello there.", WAIT]))
        asyncio.get_running_loop().call_later(0.05, turn.stop, reason)
        last = (await read(turn))[-1]
        assert isinstance(last, Done)
        assert last.stop_reason == finish
        assert [one.finish for one in turn.report("native").passes] == [finish]

    asyncio.run(main())


def test_an_answer_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.turn.turn.MAX_ANSWER_LENGTH", 1000)

    async def main() -> None:
        turn = turn_of(Player(["a" * 100] * 50))
        last = (await read(turn))[-1]
        assert isinstance(last, Done)
        assert (last.stop_reason, len(last.text)) == ("length", 1000)

    asyncio.run(main())
