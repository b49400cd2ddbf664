"""A stored answer is shown again as events."""

from brain.cli.commands.replay import events_of
from brain.events import Done, Round, SpecialistResult, Token
from brain.messages import Call, Exchange, Part, PassReport, RoundRecord, Text


def test_rounds_come_before_what_happened_in_them() -> None:
    rounds = (
        RoundRecord(1, 9, "thinker", "big"),
        RoundRecord(2, 9, "actor", "small", "Add."),
        RoundRecord(3, 9, "thinker", "big"),
    )
    call = Call("add", id="c1", round=2, block="[SPECIALIST_RESULT: add]\n3\n[/SPECIALIST_RESULT]")
    file = Call("ocr", id="c0", by="auto", block="[SPECIALIST_RESULT: ocr]\nx\n[/SPECIALIST_RESULT]")
    passes = tuple(PassReport(n, 0, 0, 0, 0, 0, 0, False, None, round=r) for n, r in enumerate((1, 2, 3, 3), 1))
    parts: list[Part] = [Text("I add. ", 2), call, Text("It is 3.", 4)]
    exchange = Exchange("Q", parts, outcome="deliverable", automatic_calls=(file,), rounds=rounds, passes=passes)
    assert list(events_of(exchange)) == [
        SpecialistResult("c0", "ocr", {}, "x", (), cached=False, ms=0),
        Round(1, 9, "thinker", "big"),
        Round(2, 9, "actor", "small", "Add."),
        Token("I add. "),
        SpecialistResult("c1", "add", {}, "3", (), cached=False, ms=0),
        Round(3, 9, "thinker", "big"),
        Token("It is 3."),
        Done("deliverable", "", "I add. It is 3.", calls=2, passes=4, first_token_ms=None, total_ms=0),
    ]
