"""What a turn says of itself, in sentences: how it begins, what was left out, and why it ended early."""

import json
from collections.abc import Iterator

from brain.errors import Interrupted, ModelError
from brain.events import Error, Notice
from brain.messages import History
from brain.text import replace_surrogates, strip_invisible


def beginning(conversation: History, *, is_demo: bool) -> Iterator[Notice]:
    """What can be told before anything is asked.

    Args:
        is_demo: whether no language model answers.
    """
    if is_demo:
        yield Notice("stand_in", "No language model is connected: a rule-based stand-in answers.")
    if conversation.rested:
        yield Notice("trimmed", "The conversation rested for long: the model begins anew. What was said is kept.")
    elif conversation.trimmed:
        yield left_out(conversation.trimmed)
    if conversation.recalled.said:
        yield Notice("recalled", conversation.recalled.said)


def left_out(exchanges: int) -> Notice:
    """That so many of the oldest are not read by the model."""
    what = "question and answer" if exchanges == 1 else f"{exchanges} questions and answers"
    return Notice("trimmed", f"The oldest {what} no longer fit and were left out.")


def prompt_progress(read: int, of: int) -> Notice:
    """How much of the prompt the model's server has read."""
    return Notice("prompt_progress", f"The model reads the conversation: {read:,} of {of:,} tokens.", read / of)


def unknown_tool(name: str) -> Notice:
    """That the model server sent a call of a tool that does not exist."""
    return Notice("unknown_tool", f"The model called the unknown tool {_shown_name(name)}; the call was left out.")


def empty(tool: str | None) -> ModelError:
    """That the answer is empty; `tool` is the unknown one that the model called instead of answering."""
    if tool is None:
        message = "The model returned an empty answer. Send the message again, or choose another model."
    else:
        message = (
            f"The model called the unknown tool {_shown_name(tool)} instead of answering. "
            "Send the message again, turn off tool calling on the model server, or choose another model."
        )
    return ModelError("model_failed", message)


def _shown_name(name: str) -> str:
    """A name from a model, short and visible."""
    return json.dumps(" ".join(strip_invisible(replace_surrogates(name)).split())[:64], ensure_ascii=False)


def repetition() -> Notice:
    """That the model repeated itself, so that its stream was closed."""
    return Notice("repetition", "The model repeated itself without end and was stopped.")


def interrupted(interruption: Interrupted) -> Error:
    """Why a turn failed that was interrupted."""
    if interruption.reason == "shutdown":
        return Error("shutdown", "The server is shutting down; ask again in a moment.", recoverable=True)
    return Error("model_failed", "The model sent nothing for too long; ask again.", recoverable=True)
