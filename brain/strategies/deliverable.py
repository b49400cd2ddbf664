"""The deliverable: how a model that works in rounds hands over its answer."""

from collections.abc import Mapping, Sequence

from brain.turn.tag_filter import Output, Shown

PARTS = """\
<deliverable>
<task_objective>what the user wants</task_objective>
<context>what you know, and from where</context>
<key_points>the points that lead to the answer</key_points>
<final_output>the complete answer for the user</final_output>
</deliverable>"""
DELIVERABLE: Mapping[str, Sequence[str]] = {
    "deliverable": ("task_objective", "context", "key_points", "final_output"),
}
NOTES: Mapping[str, Shown] = {"task_objective": "thinking", "context": "thinking", "key_points": "thinking"}
WRAP_UP_SHARE = 0.8
"""Share of the rounds after which Brain asks the model to finish."""
TASK_DONE = "TASK_DONE"


def make_output(tags: Sequence[str], shown: Mapping[str, Shown], *, shows_answer: bool) -> Output:
    """Return the output of a round in which the model may deliver.

    Args:
        tags: Further tags of the round.
        shown: How the reader sees their text.
        shows_answer: Whether the final output is shown while the model writes it.
    """
    answer: Mapping[str, Shown] = {"final_output": "answer"} if shows_answer else {}
    top = (*tags, "deliverable", "final_output")
    return Output({"": top, **DELIVERABLE}, {**NOTES, **shown, **answer}, last="final_output")


def find_answer(output: Output) -> str:
    """Return the delivered answer: the final output, else what stands in the deliverable without its parts."""
    return output.text("final_output") or output.text("deliverable")


def find_text(output: Output) -> str:
    """Return the best text for the user: the delivered answer, else the text outside of all tags."""
    return find_answer(output) or output.text("").replace(TASK_DONE, "").strip()


def find_best(outputs: Sequence[Output]) -> str:
    """Return the newest text for the user; without one, the newest work of an actor."""
    texts = (find_text(output) or output.text("action") for output in reversed(outputs))
    return next(filter(None, texts), "")


def find_any(outputs: Sequence[Output]) -> str:
    """Return the best text; without one, the newest notes or thoughts, which a model may have forgotten to close."""
    tags = ("key_points", "context", "task_objective", "deep_thinking", "shallow_thinking")
    texts = (output.text(tag) for output in reversed(outputs) for tag in tags)
    return find_best(outputs) or next(filter(None, texts), "")
