"""Recognizes requests to change something, in English, German, French and Spanish: assisted calls only read."""

import re

_START = (
    r"(?:^\W*|[,.;:!?]\s*|\b(?:then|so|now|ok|okay|and|also|just|actually|please|bitte|und|dann|et|puis|y|luego)\s+)"
)
_ASKING = (
    r"(?:(?:please|kindly|can you|could you|would you|will you|can we|could we|i want you to|i(?:['’]d| would) like "
    r"(?:you )?to|i (?:want|need|have) to|let['’]s|help me|bitte|kannst du|könntest du|peux-tu|pourrais-tu|pouvez-vous|"
    r"veuillez|il faut|je veux|je voudrais|puedes|podrías|puede|quiero|necesito|por favor|s['’]il (?:te|vous) plaît)"
    r"[\s,]+){0,3}"
)
_GERMAN = r"\b(?:kannst du|könntest du|würdest du|bitte|ich (?:möchte|will|muss))\b[^.?!]{0,200}"


def compile_requests(verbs: str, infinitives: str) -> re.Pattern[str]:
    """Return a pattern for messages that ask for an action.

    Args:
        verbs: Patterns of the verbs that begin such a request, separated by spaces; `_` is a space in a pattern.
        infinitives: German infinitives that end it, as in `kannst du das eintragen`.
    """
    begins = "|".join(verbs.replace("_", r"\s+") for verbs in verbs.split())
    ends = "|".join(infinitives.split())
    return re.compile(rf"{_START}{_ASKING}(?:{begins})(?!\w)|{_GERMAN}\b(?:{ends})\b", re.IGNORECASE)
