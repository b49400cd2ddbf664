"""How long a model may take, and what is told while its server reads a long prompt."""

from typing import Any

import pytest
import virtual
from playing import Item, Player, read, registry_of, short, turn_of

from brain.events import Notice, Thinking
from brain.messages import PromptProgress

ECHO = "SPECIALIST_REQUEST[echo]"


def ended(*passes: list[Item]) -> Any:
    """How a turn ends with 300 s for the first token of a pass and 60 s for each later read."""

    async def main() -> Any:
        return short(await read(turn_of(Player(*passes), registry_of(), silence=60, first_token=300)))[-1]

    return virtual.run(main())


@pytest.mark.parametrize(
    "passes",
    [
        [[299.0, "Hi"]],
        [[299.0, "Hi", 59.0, "!", 59.0, "!"]],
        [[299.0, Thinking("Hm"), 59.0, "Hi"]],
        [[PromptProgress(0, 1000), 100.0, PromptProgress(500, 1000), 199.0, "Hi"]],
        [[ECHO], [299.0, "Hi"]],
        [["Look. ", ECHO], [PromptProgress(0, 9), 299.0, "Hi"]],
    ],
)
def test_a_first_token_may_take_longer_than_a_later_one(passes: list[list[Item]]) -> None:
    assert ended(*passes)["done"] == "complete"


@pytest.mark.parametrize(
    "passes",
    [
        [[301.0, "Hi"]],
        [["Hi", 61.0, "!"]],
        [[1.0, Thinking("Hm"), 61.0, "Hi"]],
        [[PromptProgress(0, 1000), 100.0, PromptProgress(500, 1000), 201.0, "Hi"]],
        [[ECHO], [301.0, "Hi"]],
        [[ECHO], ["Hi", 61.0, "!"]],
    ],
)
def test_a_model_that_takes_longer_has_failed(passes: list[list[Item]]) -> None:
    assert ended(*passes) == {"failed": "model_failed"}


def test_either_limit_may_be_the_shorter_one() -> None:
    async def main(*items: Item) -> Any:
        turn = turn_of(Player(items), registry_of(), silence=60, first_token=10)
        return short(await read(turn))[-1]

    assert virtual.run(main(9.0, "Hi", 59.0, "!"))["done"] == "complete"
    assert virtual.run(main(11.0, "Hi")) == {"failed": "model_failed"}
    assert virtual.run(main("Hi", 61.0, "!")) == {"failed": "model_failed"}


def progress(*told: tuple[int, int]) -> list[float | None]:
    """The fractions of the notices for what a server told of a prompt."""

    async def main() -> list[float | None]:
        turn = turn_of(Player([*(PromptProgress(*one) for one in told), "Hi"]))
        events = await read(turn)
        assert turn.exchange.annotations == (), "it does not stay"
        return [event.fraction for event in events if isinstance(event, Notice) and event.code == "prompt_progress"]

    return virtual.run(main())


@pytest.mark.parametrize(
    ("told", "fractions"),
    [
        ([(0, 4000), (1000, 4000), (2000, 4000), (4000, 4000)], [0.0, 0.25, 0.5]),
        ([(0, 4000), (40, 4000), (80, 4000), (240, 4000), (300, 4000)], [0.0, 0.06]),
        ([(0, 255), (128, 255)], []),
        ([(0, 0)], []),
    ],
)
def test_the_reading_of_a_long_prompt_is_told_in_steps(told: list[tuple[int, int]], fractions: list[float]) -> None:
    assert progress(*told) == fractions


def test_no_server_floods_the_reader() -> None:
    assert len(progress(*((n, 100_000) for n in range(100_000)))) <= 20
