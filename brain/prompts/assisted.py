"""The messages for a model that calls no specialists: Brain makes the call, and the model reads the result.

They have no instructions for calls. A small model reads at most as much as it can use.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import ControlTokens
from brain.messages import Exchange, History, RecallResult, Text
from brain.prompts.blocks import cut_text
from brain.prompts.system_prompt import shape
from brain.prompts.templates import clock_note
from brain.turn_request import TurnRequest

INSTRUCTION = "Answer the question in one or two sentences, only with what the information says."
INFORMATION = "Information:\n"
"""What a message with results begins with."""
MAX_INFORMATION = 600
"""Bytes of results that a small model reads; with more, it states fewer of the facts."""
MAX_EARLIER_BYTES = 300
"""Bytes of each earlier message and answer."""
MAX_RECALLED = 3
"""Recalled facts that an assisted model reads."""
PLAIN_STOPS = ("\n\n",)
"""Where the answer of a base model is over."""
_ASKS_TIME = re.compile(
    r"\b(?:time|date|day|today|tomorrow|yesterday|now|week|month|year|clock|hours?"
    r"|uhr|uhrzeit|datum|tag|heute|morgen|gestern|jetzt|woche|monat|jahr"
    r"|heure|jour|aujourd|demain|hier|maintenant|semaine|mois|année"
    r"|hora|fecha|día|hoy|mañana|ayer|ahora|semana|mes|año)\b",
    re.IGNORECASE,
)


def information(texts: Sequence[str], max_bytes: int) -> str:
    """Return the beginning of each result, together at most as long as this."""
    parts, room = [], max_bytes
    for n, text in enumerate(texts):
        part = cut_text(text.strip(), room // (len(texts) - n))
        room -= len(part)
        parts.append(part)
    return "\n\n".join(filter(None, parts))


def question(message: str, information: str, notes: Sequence[str], *, is_plain: bool) -> str:
    """Return the newest message.

    Args:
        is_plain: Whether a base model continues it.
    """
    known = "\n\n".join(filter(None, (*notes, information)))
    if is_plain:
        return f"{INFORMATION}{known}\n\nQuestion: {message}\nAnswer:" if known else f"Question: {message}\nAnswer:"
    return f"{INFORMATION}{known}\n\nQuestion: {message}" if known else message


def notes(request: TurnRequest, recalled: RecallResult, tokens: ControlTokens) -> list[str]:
    """Return what else the model needs: the time, if the message may be about it, and recalled facts."""
    facts = [item for item in recalled.relevant if item.kind == "fact"][:MAX_RECALLED]
    found = [neutralize(" ".join(item.text.split()), tokens) for item in facts]
    if request.now is not None and _ASKS_TIME.search(request.message):
        found.insert(0, clock_note(request.now, request.time_zone))
    return found


def shorten_history(history: History, most: int, *, is_plain: bool) -> History:
    """Return the history with the beginnings of the newest messages and answers, without results and notes."""
    shown = []
    for one in history.exchanges[-most:] if most else ():
        message, answer = (cut_text(text, MAX_EARLIER_BYTES) for text in (one.message, one.answer))
        if message and answer and is_plain:
            shown.append(Exchange(f"Question: {message}\nAnswer: {answer}"))
        elif message and answer:
            shown.append(Exchange(message, [Text(answer, 1)]))
    return replace(history, exchanges=shown)


def parameter_instruction(name: str, schema: Mapping[str, Any]) -> str:
    """Return the system message for a model that writes the parameters of a call."""
    return f"Write the parameters of {name} for the message as JSON: {shape(schema)}"
