"""What tests of answers that go on share: an answer that counts, and what a browser says of a line that is cut."""

import re

from page.chat import Chat
from page.stage import Stage

CUT = "Failed to load resource: net::"
"""What Chromium complains of when a connection is gone."""
RECONNECTS = 15_000  # ms: the browser waits for two seconds, then for twice as long


def says(stage: Stage, *words: str) -> None:
    for word in words:
        stage.model.says(f"{word} ")


def text_of(chat: Chat) -> str:
    """The words of the newest answer, without what stands below it."""
    return " ".join(re.findall(r"\b(?:one|two|three|four|five|six)\b", chat.answer.inner_text()))
