"""Roof: how a question is made of what was typed, for `brain ask` and `brain chat`."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from brain.ask import Ask, Attachment
from brain.errors import BadRequest
from brain.settings import LOCAL_USER, Settings
from brain.wire.attaching import ATTACHMENTS_MOST, too_many
from brain.wire.native.request import ID, MESSAGE_LENGTH


def question(settings: Settings, message: str, files: Sequence[Attachment] = ()) -> Ask:
    """What is asked, as whoever sits at this machine asks it.

    Raises:
        BadRequest: when it is empty or too much.
    """
    if not message.strip():
        raise BadRequest("The message is empty.", "message")
    if len(message) > MESSAGE_LENGTH:
        sentence = f"The message has {len(message):,} characters; {MESSAGE_LENGTH:,} are the most. Attach it as a file."
        raise BadRequest(sentence, "message", code="too_large", status=413)
    if len(files) > ATTACHMENTS_MOST:
        raise too_many()
    return Ask(
        message=message,
        user=LOCAL_USER,
        limits=settings.limits,
        syntax=settings.syntax,
        time_zone=settings.time_zone,
        now=datetime.now(ZoneInfo(settings.time_zone)),
        attachments=tuple(Attachment(n, file.name, file.type, file.data) for n, file in enumerate(files, 1)),
    )


def conversation_id(typed: str | None) -> str | None:
    """What was typed, when it can be the id of a conversation.

    Raises:
        BadRequest: when it cannot.
    """
    if typed is not None and not ID.fullmatch(typed):
        raise BadRequest("--conversation must be 1 to 64 letters, digits, _ or -.", "conversation")
    return typed
