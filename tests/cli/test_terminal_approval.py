"""What a person reads before approving a call: no text is so odd that it cannot be laid out."""

from datetime import UTC, datetime

import pytest

from brain.cli.terminal.approval import format_request
from brain.events import ApprovalRequired

LONG = "x" * 36


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u11a8" * 5, ["  \u11a8\u11a8\u11a8\\u{11a8}\\u{11a8}"]),
        (LONG + "e\u0301", [f"  {LONG}e\u0301"]),
        (LONG + "xe\u0301", [f"  {LONG}x", "        e\u0301"]),
        (LONG + "❤\ufe0f", [f"  {LONG}", "        ❤\ufe0f"]),
        ("漢" * 19, [f"  {'漢' * 18}", "        漢"]),
    ],
)
def test_no_mark_is_parted_from_what_it_stands_on(text: str, shown: list[str]) -> None:
    request = ApprovalRequired("c1", "sends", {"to": "eve"}, datetime(2026, 1, 1, tzinfo=UTC), text)
    assert format_request(request, 40, 24).split("\n")[2:] == [*shown, '    to: "eve"']


def test_a_text_of_many_lines_leaves_room_for_the_parameters() -> None:
    request = ApprovalRequired("c1", "sends", {"to": "eve"}, datetime(2026, 1, 1, tzinfo=UTC), "a\n" * 99)
    short = format_request(request, 40, 24).split("\n")[-3:]
    assert short == ["  In short:", f"  {'a ' * 8}a … a{' a' * 8}", '    to: "eve"']
