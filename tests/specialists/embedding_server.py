"""A server of OpenAI's embeddings for tests: a toy model, for which words of one meaning are the same."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from handbook_questions import SYNONYMS

PLACE = {word: place for place, group in enumerate(SYNONYMS) for word in group.split()}
OTHERS = 50


@dataclass
class Embedding:
    """What the server does, and its requests.

    Attributes:
        model: vectors of another one mean something else.
        is_random: vectors without meaning.
        longest: characters of a text from which it is refused.
        is_broken: answers with an error.
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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            state.requests.append(texts)
            bad = state.is_broken or any(len(text) > state.longest for text in texts)
            vectors = [] if bad else [{"embedding": state.vector(text)} for text in texts]
            body = json.dumps({"error": {"message": "no"}} if bad else {"data": vectors}).encode()
            self.send_response(500 if bad else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
