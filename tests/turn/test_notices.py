"""What is told beside the text of an answer is gathered in its place, within bounds."""

from brain.events import Notice
from brain.messages import Annotation
from brain.turn.notices import CUT, MAX_ANNOTATIONS, MAX_THINKING_LENGTH, Annotations

RECALLED = Notice("recalled", "Recalled 1 fact: tea")


def test_what_is_thought_in_one_place_is_one() -> None:
    annotations = Annotations()
    annotations.add_notice(RECALLED)
    annotations.add_thinking("Let me ", 0)
    assert annotations.snapshot() == (Annotation(RECALLED.text, 0, code="recalled"), Annotation("Let me ", 0))
    annotations.add_thinking("see.", 0)
    annotations.add_thinking("Well.", 7)
    annotations.parts_before = 3
    annotations.add_thinking("Then…", 0)
    annotations.add_notice(RECALLED)
    assert annotations.snapshot() == (
        Annotation(RECALLED.text, 0, code="recalled"),
        Annotation("Let me see.", 0),
        Annotation("Well.", 0, 7),
        Annotation("Then…", 3),
        Annotation(RECALLED.text, 3, code="recalled"),
    )


def test_of_long_thoughts_the_beginning_is_kept() -> None:
    annotations = Annotations()
    annotations.add_thinking("x" * (MAX_THINKING_LENGTH - 1), 0)
    annotations.add_thinking("yz", 4)
    annotations.add_thinking("more", 5)
    annotations.add_notice(RECALLED)
    *_, cut, told = annotations.snapshot()
    assert (cut, told) == (Annotation("y" + CUT, 0, 4), Annotation(RECALLED.text, 0, code="recalled"))


def test_thoughts_that_just_fit_are_whole() -> None:
    annotations = Annotations()
    annotations.add_thinking("x" * MAX_THINKING_LENGTH, 0)
    assert annotations.snapshot() == (Annotation("x" * MAX_THINKING_LENGTH, 0),)


def test_there_are_not_more_than_so_many() -> None:
    annotations = Annotations()
    for said in range(2 * MAX_ANNOTATIONS):
        annotations.add_thinking("x", said)
    assert len(annotations.snapshot()) == MAX_ANNOTATIONS
