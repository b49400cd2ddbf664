"""What is told beside the text of an answer is gathered in its place, within bounds."""

from brain.events import Notice, Thinking
from brain.messages import Annotation
from brain.turn.annotations import ASIDES_MOST, CUT, THOUGHTS_LENGTH, Annotations

RECALLED = Notice("recalled", "Recalled 1 fact: tea")


def test_what_is_thought_in_one_place_is_one() -> None:
    asides = Annotations()
    asides.tell(RECALLED)
    asides.think("Let me ", 0)
    assert asides.snapshot() == (Annotation(RECALLED, 0), Annotation(Thinking("Let me "), 0))
    asides.think("see.", 0)
    asides.think("Well.", 7)
    asides.before = 3
    asides.think("Then…", 0)
    asides.tell(RECALLED)
    assert asides.snapshot() == (
        Annotation(RECALLED, 0),
        Annotation(Thinking("Let me see."), 0),
        Annotation(Thinking("Well."), 0, 7),
        Annotation(Thinking("Then…"), 3),
        Annotation(RECALLED, 3),
    )


def test_of_long_thoughts_the_beginning_is_kept() -> None:
    asides = Annotations()
    asides.think("x" * (THOUGHTS_LENGTH - 1), 0)
    asides.think("yz", 4)
    asides.think("more", 5)
    asides.tell(RECALLED)
    *_, cut, told = asides.snapshot()
    assert (cut, told) == (Annotation(Thinking("y" + CUT), 0, 4), Annotation(RECALLED, 0))


def test_thoughts_that_just_fit_are_whole() -> None:
    asides = Annotations()
    asides.think("x" * THOUGHTS_LENGTH, 0)
    assert asides.snapshot() == (Annotation(Thinking("x" * THOUGHTS_LENGTH), 0),)


def test_there_are_not_more_than_so_many() -> None:
    asides = Annotations()
    for said in range(2 * ASIDES_MOST):
        asides.think("x", said)
    assert len(asides.snapshot()) == ASIDES_MOST
