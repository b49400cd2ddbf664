"""Core: what a turn says of itself, in sentences: how it begins, what was left out, and why it ended early."""

from collections.abc import Iterator

from brain.errors import Interrupted
from brain.events import Error, Notice
from brain.kept import Conversation


def beginning(conversation: Conversation, *, stand_in: bool) -> Iterator[Notice]:
    """What can be told before anything is asked.

    Args:
        stand_in: whether no language model answers.
    """
    if stand_in:
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


def interrupted(interruption: Interrupted) -> Error:
    """Why a turn failed that was interrupted."""
    if interruption.reason == "shutdown":
        return Error("shutdown", "The server is shutting down; ask again in a moment.", recoverable=True)
    return Error("model_failed", "The model sent nothing for too long; ask again.", recoverable=True)
