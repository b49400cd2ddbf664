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
WORK = ("deep_thinking", "shallow_thinking", "instruction", "action", "deliverable", "final_output")
"""Tags of all models: one may write those of another."""
DELIVERABLE: Mapping[str, Sequence[str]] = {
    "deliverable": ("task_objective", "context", "key_points", "final_output"),
}
SHOWN: Mapping[str, Shown] = {
    "deep_thinking": "thinking",
    "shallow_thinking": "thinking",
    "task_objective": "thinking",
    "context": "thinking",
    "key_points": "thinking",
}
FINAL: Mapping[str, Shown] = {"final_output": "answer"}
FINAL_OR_PLAIN: Mapping[str, Shown] = {**FINAL, "": "answer", "deliverable": "answer"}
"""What of an answer the reader sees as it is written, with and without tags."""
WRAP_UP_SHARE = 0.8
"""Share of the rounds after which Brain asks the model to finish."""
TASK_DONE = "TASK_DONE"


def make_output(answer: Mapping[str, Shown] | None = None, *, holds_thinking: bool = False) -> Output:
    """Return the output of a round in which the model may deliver. The reader sees its thoughts, and this answer."""
    tags, shown = {"": WORK, **DELIVERABLE}, {**SHOWN, **(answer or {})}
    return Output(tags, shown, "final_output", signal=TASK_DONE, holds_thinking=holds_thinking)


def find_answer(output: Output) -> str:
    """Return the delivered answer: the final output, else what stands in the deliverable without its parts."""
    return output.text("final_output") or output.text("deliverable")


def find_best(outputs: Sequence[Output], results: str = "") -> str:
    """Return the best text for the user: of the last round, a delivered answer, or these results; else any work."""
    last = outputs[-1:]
    texts = [
        *(find_answer(output) or output.text("") for output in last),
        *(find_answer(output) for output in reversed(outputs)),
        results,
        *(output.text("") or output.text("action") for output in reversed(outputs)),
    ]
    return next(filter(None, texts), "")


def find_any(outputs: Sequence[Output]) -> str:
    """Return the best text; without one, the newest notes or thoughts, which a model may have forgotten to close."""
    tags = ("key_points", "context", "task_objective", "deep_thinking", "shallow_thinking")
    texts = (output.text(tag) for output in reversed(outputs) for tag in tags)
    return find_best(outputs) or next(filter(None, texts), "")
