"""A small handbook with questions, and an embedding server whose toy model knows synonyms."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from web_site import Text, site

HANDBOOK = tomllib.loads((Path(__file__).parent / "pages" / "handbook.toml").read_text("utf-8"))
PARAGRAPHS: dict[str, str] = HANDBOOK["paragraphs"]
QUESTIONS: dict[str, str] = HANDBOOK["questions"]
SYNONYMS: list[str] = HANDBOOK["model"]["synonyms"]
PLACE = {word: place for place, group in enumerate(SYNONYMS) for word in group.split()}
OTHERS = 50


@dataclass
class Embedding:
    """The server's behaviour and its requests.

    Attributes:
        model: another model has different embeddings.
        is_random: return embeddings without meaning.
        longest: maximum characters of a text.
        is_broken: respond with an error.
    """

    url: str = ""
    model: str = "toy"
    is_random: bool = False
    longest: int = 100_000
    is_broken: bool = False
    requests: list[list[str]] = field(default_factory=list)

    def vector(self, text: str) -> list[float]:
        numbers = [0.0] * (len(SYNONYMS) + OTHERS)
        for word in [text] if self.is_random else re.findall(r"\w+", text.lower()):
            digest = hashlib.blake2b(f"{self.model} {word}".encode()).digest()
            if self.is_random:
                return [byte - 128.0 for byte in digest[: len(numbers)]]
            place = PLACE.get(word)
            numbers[len(SYNONYMS) + digest[0] % OTHERS if place is None else place] += 0.1 if place is None else 1.0
        return numbers if self.model == "toy" else numbers[::-1]


@contextmanager
def embedding() -> Iterator[Embedding]:
    """Serves until the block ends."""
    state = Embedding()

    def answer(_: str, body: bytes) -> Text:
        texts = json.loads(body)["input"]
        state.requests.append(texts)
        if state.is_broken or any(len(text) > state.longest for text in texts):
            return Text('{"error": {"message": "no"}}', "application/json", 500)
        return Text(json.dumps({"data": [{"embedding": state.vector(text)} for text in texts]}), "application/json")

    with site(answer) as server:
        state.url = f"{server.url}/v1"
        yield state
