"""Requests that chat clients send for themselves, such as for the title of a conversation.

Nobody asked their text, although it quotes the conversation. So they get no specialists, no memory and no notes, and
nothing is learned from them.
"""

from dataclasses import replace

from brain.turn_request import TurnRequest

MAX_READ = 1_000
"""Characters at the start of a text that are compared."""
OPENINGS = (
    # Open WebUI: emoji, merged answers
    "Your task is to reflect the speaker's likely facial expression",
    "You have been provided with a set of responses from various models to the latest user query",
    # its earlier versions
    "Create a concise, 3-5 word phrase as a header",
    "Create a concise, 3-5 word title with an emoji as a title",
    "Generate a concise, 3-5 word title with an emoji summarizing the chat history",
    # LibreChat: titles
    "Provide a concise, 5-word-or-less title for the conversation",
    "Analyze this conversation and provide: 1. The detected language of the conversation 2. A concise title",
    "Please generate a concise title (max 40 characters) for a conversation that starts with",
    "Write a concise title for this conversation in the given language",
    "In this environment you have access to a set of tools you can use to generate the conversation title",
)
"""The first words of the message or of the client's instructions, with single spaces."""
PARTS = (
    ("### Task:", "<chat_history>"),  # Open WebUI's templates for titles, tags and others, also changed ones
    ("Available Tools:", "Your task is to choose and return the correct tool(s)"),  # its choice of tools
)
"""The first words, and others that follow somewhere."""
_OPENINGS = tuple(opening.casefold() for opening in OPENINGS)


def is_for_client(request: TurnRequest) -> bool:
    """Whether the client sent a request for itself."""
    for text in (request.message, request.system):
        start = " ".join(text[:MAX_READ].split()).casefold()
        if start.startswith(_OPENINGS):
            return True
        if any(start.startswith(first.casefold()) and other in text for first, other in PARTS):
            return True
    return False


def narrow_client_task(request: TurnRequest) -> TurnRequest:
    """Return the request without all that a person's message gets."""
    return replace(request, specialists=frozenset(), memory=False, assist="off", now=None, strategy="mono")
