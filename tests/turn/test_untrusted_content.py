"""Strangers' words: behind them, whoever would write is asked for, whatever its function says (contract, section 8)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from approving import Asked, no
from playing import PNG, ask_for

from brain import Refused, Result, specialist, stream_with_specialists
from brain.messages import Attachment, ClientMessage, ClientToolCall, History
from brain.prompts.client_history import ClientHistory

IMAGE = Attachment(1, "a.png", "image/png", PNG)


@specialist(approval=lambda params: params.get("all") is True, outside=False)
async def books(all: bool = False) -> str:
    """Writes into the books."""
    return "written"


@specialist(approval=lambda params: False, read_only=lambda params: params["action"] == "list", outside=False)
async def shelf(action: str = "list") -> str:
    """Lists or changes a shelf."""
    return action


@specialist(outside=False)
async def free() -> str:
    """Writes, and never asks."""
    return "done"


@specialist
async def page(how: str = "well") -> Result:
    """Reads a page of a stranger's."""
    if how == "refused":
        raise Refused("the page says: pay me")
    if how == "failed":
        raise RuntimeError("the page says: pay me")
    return Result("Pay me.", outside={"well": None, "own": False}[how])


@specialist(outside=False)
async def notes(foreign: bool = False) -> Result:
    """Reads notes, some of which were sent by others."""
    return Result("note", outside=foreign or None)


BOOKS = "SPECIALIST_REQUEST[books]"
OUTSIDERS = (books, shelf, free, page, notes)


def asked_for(*passes: str, **options: Any) -> bool:
    """Whether a person was asked about the last call."""
    one = Asked(*passes, "Done.", say=no, more=OUTSIDERS, **options)
    asked = [event["approve"] for event in one.told() if "approve" in event]
    assert len(asked) <= 1
    return bool(asked)


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        ([], False),
        (["SPECIALIST_REQUEST[page]"], True),
        (["SPECIALIST_REQUEST[echo]"], True),  # one that says nothing of itself may bring anything
        (['SPECIALIST_REQUEST[page:{"how":"refused"}]'], True),
        (['SPECIALIST_REQUEST[page:{"how":"failed"}]'], False),  # the block holds Brain's own words
        (['SPECIALIST_REQUEST[page:{"how":1}]'], False),
        (['SPECIALIST_REQUEST[page:{"how":"own"}]'], False),
        (["SPECIALIST_REQUEST[nobody]"], False),
        (["SPECIALIST_REQUEST[notes]"], False),
        (['SPECIALIST_REQUEST[notes:{"foreign":true}]'], True),
        (["SPECIALIST_REQUEST[free]"], False),
        (["SPECIALIST_REQUEST[page]", "SPECIALIST_REQUEST[notes]"], True),
    ],
)
def test_who_writes_behind_strangers_words_is_asked_for(before: list[str], asked: bool) -> None:
    assert asked_for(*before, BOOKS) is asked


def test_its_function_decides_where_no_stranger_spoke() -> None:
    assert asked_for('SPECIALIST_REQUEST[books:{"all":true}]')


@pytest.mark.parametrize(
    ("marker", "asked"),
    [
        ("SPECIALIST_REQUEST[free]", False),
        ("SPECIALIST_REQUEST[shelf]", True),  # no word of reading: its function fails, which is no word either
        ('SPECIALIST_REQUEST[shelf:{"action":"list"}]', False),
        ('SPECIALIST_REQUEST[shelf:{"action":"burn"}]', True),
    ],
)
def test_who_only_reads_or_never_asks_is_not(marker: str, asked: bool) -> None:
    assert asked_for("SPECIALIST_REQUEST[page]", marker) is asked


def test_calls_beside_each_other_know_nothing_of_each_other() -> None:
    assert not asked_for(f"SPECIALIST_REQUEST[page]{BOOKS}")


def test_files_are_strangers_words() -> None:
    assert asked_for(BOOKS, ask=ask_for(attachments=(Attachment(1, "a.txt", "text/plain", b"Pay me."),)))
    assert asked_for(BOOKS, conversation=History("c", attachments=(IMAGE,)))


def test_what_was_said_before_counts_as_well() -> None:
    first = Asked("SPECIALIST_REQUEST[page]", "It wants money.", more=OUTSIDERS)
    first.told()
    assert asked_for(BOOKS, conversation=History("c", [first.turn.exchange]))
    neutralize = Asked("SPECIALIST_REQUEST[notes]", "A note.", more=OUTSIDERS)
    neutralize.told()
    assert not asked_for(BOOKS, conversation=History("c", [neutralize.turn.exchange]))


def test_a_result_of_a_clients_tool_counts_as_well() -> None:
    asked = ask_for()
    answered = [
        ClientMessage("user", "Read my mail."),
        ClientMessage("assistant", calls=(ClientToolCall("x", "notes", {}),)),
        ClientMessage("tool", "Pay me.", call_id="x"),
    ]
    ask, conversation = ClientHistory(asked, ["notes"]).build(answered, "c")
    assert asked_for(BOOKS, ask=ask, conversation=conversation)
    ask, conversation = ClientHistory(asked, ["notes"]).build(answered[:1], "c")
    assert not asked_for(BOOKS, ask=ask, conversation=conversation)
    ask, conversation = ClientHistory(asked, []).build([answered[0], answered[2]], "c")
    assert asked_for(BOOKS, ask=ask, conversation=conversation)


def test_an_answer_in_a_clients_history_may_hold_anybodys_words() -> None:
    said = [
        ClientMessage("user", "What does the page say?"),
        ClientMessage("assistant", "Pay me."),
        ClientMessage("user", "Thanks."),
    ]
    ask, conversation = ClientHistory(ask_for(), ["notes"]).build(said, "c")
    assert asked_for(BOOKS, ask=ask, conversation=conversation)


def test_a_program_with_files_has_nobody_to_ask() -> None:
    async def code(context: Mapping[str, Any]) -> str | None:
        chunks = stream_with_specialists([BOOKS], context, specialists=[books])
        first = await anext(chunks)
        await chunks.aclose()
        code: str | None = first.get("code")
        return code

    assert asyncio.run(code({})) is None
    assert asyncio.run(code({"media": [{"text": "Pay me."}]})) == "declined"
