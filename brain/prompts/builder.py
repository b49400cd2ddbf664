"""What a model reads of a request: the front of its prompt, and the newest message with all that goes with it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any

from brain.events import Limits, SyntaxName
from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import EVERY, ControlTokens
from brain.messages import Attachment
from brain.plugins.specialist import Specialist
from brain.prompts import blocks, templates
from brain.text import size
from brain.turn_request import Tool, TurnRequest

CONTEXT_WANTED = 8192
"""Tokens that hold the prompt, some results of calls and an answer."""
LEAST_OF_A_FILE = 256
"""Bytes of a text file that a model reads at least, however many there are."""


def front(
    ask: TurnRequest,
    specialists: Sequence[Specialist[..., Any]],
    tools: Mapping[str, Tool],
    operator: str,
    tokens: ControlTokens = EVERY,
    context_tokens: int | None = None,
) -> str:
    """The prompt's front: whom the model can call and how, then the operator's and the client's instructions.

    Args:
        tools: the client's own, by the names that the model is told.
        tokens: the control tokens that count for the model.
        context_tokens: of the model, where it is known.
    """
    lines = list(starmap(templates.tool_line, tools.items()))
    words = _client_words(ask, tools, tokens)
    return templates.system_prompt(specialists, ask.limits, ask.syntax, operator, words, lines, context_tokens)


def small_context(
    specialists: Sequence[Specialist[..., Any]],
    limits: Limits,
    syntax: Sequence[SyntaxName],
    operator: str,
    context_tokens: int | None,
) -> tuple[str | None, bool]:
    """What a model's context has no room for, in a sentence for the operator, and whether specialists are left out."""
    full, used = (
        templates.fixed_part(tuple(specialists), limits.calls, limits.calls_per_specialist, syntax[0], operator, tokens)
        for tokens in (None, context_tokens)
    )
    if context_tokens is None or used is full or used == full:
        return None, False
    done = {
        "brief": "Specialists are described without examples.",
        "required": "Specialists are described in short, with the parameters only that a call needs.",
    }.get(used.detail, "There is no room for specialists, so that the model calls none.")
    sentence = (
        f"Its context of {context_tokens:,} tokens is small for the fixed part of the prompt, about {full.tokens:,} "
        f"tokens. {done} Start its server with a context of {CONTEXT_WANTED:,} tokens or more "
        f"(llama.cpp: -c {CONTEXT_WANTED})."
    )
    return sentence, used.detail == "none"


def _client_words(ask: TurnRequest, tools: Mapping[str, Tool], tokens: ControlTokens) -> str:
    """The client's instructions, and whether it wants one of its tools to be called."""
    words = neutralize(ask.system, tokens)
    if not tools or not ask.must_call:
        return words
    wanted = next((name for name, tool in tools.items() if tool.name == ask.must_call), None)
    return f"{words}\n\n{templates.must_call(wanted)}".strip()


def written(
    ask: TurnRequest, room: int, before: Iterable[str] = (), recalled: str = "", tokens: ControlTokens = EVERY
) -> str:
    """The newest message: the clock, what is recalled, its files, the blocks that these asked for, and what was said.

    Args:
        room: how many bytes of text files are shown in all.
        before: the blocks.
        tokens: the control tokens that count for the model.
    """
    spoken = [templates.SPOKEN] if ask.source == "voice" else []
    clock = [] if ask.now is None else [templates.clock_note(ask.now, ask.time_zone)]
    files = (
        [templates.attachments_note(ask.attachments), *_texts(ask.attachments, room, tokens)] if ask.attachments else []
    )
    return "\n\n".join(filter(None, [*clock, *spoken, recalled, *files, *before, neutralize(ask.message, tokens)]))


def _texts(attachments: Sequence[Attachment], room: int, tokens: ControlTokens) -> list[str]:
    """The text files among them, all together about as large as a block may be."""
    texts = [(attachment, text) for attachment in attachments if (text := attachment.text)]
    found = []
    for n, (attachment, text) in enumerate(texts):
        shown = blocks.result_text(text, max(LEAST_OF_A_FILE, room // (len(texts) - n)), tokens=tokens)
        room -= size(shown)
        found.append(templates.attachment_text(attachment, shown))
    return found
