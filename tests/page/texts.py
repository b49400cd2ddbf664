"""The page's texts by their keys, so that no test depends on their wording."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "brain" / "page" / "texts"
LANGUAGES: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_bytes()) for path in FOLDER.glob("*.json")}


def page_text(key: str, language: str = "en", /, **values: object) -> str:
    """A text of the page, in its plural form."""
    found = LANGUAGES[language]["page"][key]
    filled: str = (found if isinstance(found, str) else found["other"]).format_map(values)
    return filled


def error_text(code: str) -> str:
    """What the page says about an error."""
    return _explain(LANGUAGES["en"]["errors"][code])


def failure(name: str, code: str, reason: str = "", language: str = "en") -> str:
    """What the page says about a failed call; `reason` as a sentence."""
    known = LANGUAGES[language]["calls"][code]
    explained = _explain({**known, "what": reason or known["what"]})
    key = "didFail" if code in ("refused", "timeout", "failed", "interrupted") else "notRun"
    return page_text(key, language, name=name, reason=explained)


def _explain(entry: dict[str, str]) -> str:
    return f"{entry['what']} {entry['remedy']}".strip()
