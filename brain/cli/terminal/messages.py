"""The words for people about failed calls and answers that ended early, by their codes.

The reason of a failed call is written for the model, so it is shown only where it says more than the words.
"""

from collections.abc import Mapping

from brain.events import CallCode, SpecialistError, SpecialistResult, StopReason

FAILURES: Mapping[CallCode, str] = {
    "unknown": "there is no specialist of this name",
    "malformed": "the model's request could not be read",
    "oversized": "the model's request was too long",
    "forged": "the model made up a result instead of asking",
    "invalid_params": "the model asked with wrong parameters",
    "unauthorized": "only somebody who has signed in may ask it",
    "denied": "it may not be asked here",
    "declined": "you did not approve it",
    "refused": "{reason}",
    "unavailable": "it cannot be asked now",
    "repeated": "the model asked the same again",
    "timeout": "it took longer than {seconds} s",
    "failed": "something went wrong in it",
    "call_limit": "no more specialists may be asked in one answer",
    "specialist_limit": "it may not be asked more often in one answer",
    "deadline": "the time for the answer was over",
    "cancelled": "the answer was stopped",
}
"""Shown after the name of a specialist; `seconds` is the duration of the call, `reason` is that of a refusal."""
CODES_WITH_DETAIL = frozenset[CallCode](["malformed", "oversized", "invalid_params", "unavailable"])
"""Failures whose reasons say more than these words."""

ENDINGS: Mapping[StopReason, str] = {
    "complete": "",
    "length": "It ends here because the answer reached its maximum length.",
    "call_limit": "It ends here because no more specialists may be asked in one answer.",
    "repetition": "It ends here because the model repeated itself.",
    "deadline": "It ends here because its time was over.",
    "cancelled": "Stopped.",
}

OUTCOMES: Mapping[str, str] = {
    "": "It is still being written.",
    "interrupted": "The server stopped while this was being written.",
    "model_unreachable": "The model could not be reached.",
    "model_failed": "The model failed.",
    "model_context": "This was too long for the model.",
    "shutdown": "The server stopped while this was being written.",
    "internal": "Something went wrong on the server.",
} | {str(reason): words for reason, words in ENDINGS.items()}
"""Of a stored answer."""


def explain_failure(event: SpecialistError) -> tuple[str, str]:
    """Why a call failed, in words for people, and its reason if that says more."""
    if event.code == "declined":
        return event.reason, ""
    seconds = f"{event.ms // 100 / 10:g}"
    words = FAILURES[event.code].format(seconds=seconds, reason=event.reason)
    return words, event.reason if event.code in CODES_WITH_DETAIL else ""


def format_duration(event: SpecialistResult) -> str:
    """The duration of a call, and whether it was cached or approved."""
    cached = ", from before" if event.cached else ""
    return f"{event.ms} ms{cached}{', approved' if event.approval == 'approved' else ''}"


def is_yes(typed: str) -> bool:
    """Whether the answer to a question is yes; everything else is no."""
    return typed.strip().lower() in ("y", "yes")
