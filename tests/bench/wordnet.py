"""A server of embeddings made of a dictionary, WordNet: `python tests/bench/wordnet.py [PORT]`, 8100 without a number.

It takes Debian's package `wordnet-base`, and numpy. Every sense has a random direction of its own, and leans towards
the senses that the dictionary relates to it and those of the words that define it (random indexing). A word is its
senses, the usual ones more; a text is its words, the rare ones more. The order of words tells it nothing, names are
only themselves, and of the world it knows what definitions say: less than embedding models do.
"""

import json
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

FOLDER = Path("/usr/share/wordnet")
NAME = "wordnet"
DIMENSIONS = 1024
DIRECTIONS = 1 << 15
DEPTH = 3
"""Steps from a sense to those that it leans towards."""
DEFINED = 2.0
"""How much of a sense the words are that define it, where its own direction is 1."""
RELATED = 1.0
"""The same for each related sense."""
RELATIONS = ["@", "@i", "+", "&", "\\", "<", "$", "*", ">", "^", "=", "#m", "#s", "#p", "%m", "%s", "%p", ";c"]
"""WordNet's symbols for kinds, derivations, likenesses, causes, wholes, parts and subjects."""
SPELT = 0.2
"""The same for how a word is spelt, which parts it from words of the same meaning."""
LEAST = 0.05
"""Senses that are less of a word's use are left out."""
COMMON = 50
"""Of so many of the dictionary's sentences, what they have in common is taken out of all texts."""
KINDS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
ENDINGS = {
    "n": ["s:", "ses:s", "xes:x", "zes:z", "ches:ch", "shes:sh", "men:man", "ies:y"],
    "v": ["s:", "ies:y", "es:e", "es:", "ed:e", "ed:", "ing:e", "ing:"],
    "a": ["er:", "est:", "er:e", "est:e"],
    "r": [],
}
CLOSED = """
a about after all am an and any are as at be been but by can could did do does for from get had has have he her him his
how i if in into is it its me may might more must my no not of off on or other our out shall she should so some such
than that the their them then there these they this those to up us very was we were what when where which while who
whom whose why will with would you your s t
""".split()  # noqa: SIM905
"""Words without a meaning of their own; some look like others that have one: `he` is helium."""
_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_POINTER = re.compile(r"(\S{1,2}) (\d{8}) ([nvar]) [0-9a-f]{4}")
_TEXT = re.compile(r" \| (.+)")
_EXAMPLE = re.compile(r'"([^"]{20,100})"')


class Sense(NamedTuple):
    """Where a sense stands in the dictionary."""

    kind: str
    offset: int


class Dictionary:
    """The files of WordNet."""

    def __init__(self, folder: Path) -> None:
        self._data = {kind: (folder / f"data.{name}").read_bytes() for kind, name in KINDS.items()}
        self._index = {kind: dict(_lines(folder / f"index.{name}")) for kind, name in KINDS.items()}
        self._irregular = {kind: dict(_lines(folder / f"{name}.exc")) for kind, name in KINDS.items()}
        self._counts = dict(_counts(folder / "cntlist.rev"))
        self.texts = _TEXT.findall(b"".join(self._data.values()).decode())
        self._seen = Counter(word for text in self.texts for word in set(_TOKEN.findall(text.lower())))

    def entry(self, sense: Sense) -> tuple[list[tuple[str, Sense]], str]:
        """What is related to a sense and how, and its definition."""
        data = self._data[sense.kind]
        head, _, text = data[sense.offset : data.index(b"\n", sense.offset)].decode().partition(" | ")
        related = [(how, Sense(kind, int(offset))) for how, offset, kind in _POINTER.findall(head)]
        return related, text.partition('; "')[0]

    def senses(self, word: str) -> dict[Sense, float]:
        """The senses of a word in any of its forms, with their shares in its use."""
        found: dict[Sense, float] = {}
        for kind, base in self.bases(word):
            count, *others = self._index[kind][base][1:]
            for rank, offset in enumerate(others[-int(count) :], 1):
                found[Sense(kind, int(offset))] = self._counts.get((base, kind, rank), 0) + 1 / rank
        whole = sum(found.values())
        return {sense: share / whole for sense, share in found.items() if share >= LEAST * whole}

    def bases(self, word: str) -> list[tuple[str, str]]:
        """What a word may be a form of, by its endings and the exceptions to them."""
        found = []
        for kind, endings in ENDINGS.items():
            cut = (ending.split(":") for ending in endings)
            forms = [word.removesuffix(old) + new for old, new in cut if word.endswith(old)]
            forms = [word, *self._irregular[kind].get(word, forms)]
            found += [(kind, form) for form in dict.fromkeys(forms) if form in self._index[kind]]
        return found

    def words(self, text: str) -> list[str]:
        """The words that mean something."""
        tokens = _TOKEN.findall(text.lower().replace("n't", " not"))
        return [word for word in (token.removesuffix("'s") for token in tokens) if word not in CLOSED]

    def weight(self, word: str) -> float:
        """The rarer in the dictionary's own texts, the more."""
        return math.log(len(self.texts) / (1 + self._seen[word]))


class Vectors:
    """Texts as vectors of length 1."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        rng = np.random.default_rng(1)
        self._directions = rng.standard_normal((DIRECTIONS, DIMENSIONS), np.float32) / math.sqrt(DIMENSIONS)
        self._sense, self._word = cache(self._sense_at), cache(self._word_at)
        self._common = np.zeros(DIMENSIONS, np.float32)
        examples = [example for text in dictionary.texts for example in _EXAMPLE.findall(text)]
        some = [self.of(examples[n]) for n in rng.choice(len(examples), COMMON, replace=False)]
        self._common = np.linalg.svd(np.stack(some), full_matrices=False)[2][0]

    def of(self, text: str) -> Vector:
        found = self._text(text, DEPTH)
        return _mixed([(1, found), (-float(found @ self._common), self._common)])

    def _text(self, text: str, depth: int) -> Vector:
        words = self._dictionary.words(text)
        return _mixed((self._dictionary.weight(word), self._word(word, depth)) for word in words)

    def _word_at(self, word: str, depth: int) -> Vector:
        """A word that the dictionary does not have, such as a name, is alike only to itself."""
        bases = self._dictionary.bases(word)
        spelt = self._direction(bases[0][1] if bases else word)
        meant = _mixed((share, self._sense(sense, depth)) for sense, share in self._dictionary.senses(word).items())
        return _mixed([(SPELT, spelt), (1, meant)])

    def _sense_at(self, sense: Sense, depth: int) -> Vector:
        own = self._direction(sense)
        if depth == 0:
            return own
        related, definition = self._dictionary.entry(sense)
        leaning = [(RELATED, self._sense(other, depth - 1)) for how, other in related if how in RELATIONS]
        return _mixed([(1, own), (DEFINED, self._text(definition, depth - 1)), *leaning])

    def _direction(self, name: Sense | str) -> Vector:
        direction: Vector = self._directions[zlib.crc32(repr(name).encode()) % DIRECTIONS]
        return direction


def _mixed(parts: Iterable[tuple[float, Vector]]) -> Vector:
    """The sum, with length 1; one that points nowhere as it is."""
    found = np.zeros(DIMENSIONS, np.float32)
    for weight, vector in parts:
        found += np.float32(weight) * vector
    return found / np.float32(np.linalg.norm(found) or 1)


def _lines(path: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """The first word of each line and the others, without the license, which is set in."""
    lines = (line.split() for line in path.read_text().splitlines() if not line.startswith(" "))
    yield from ((first, others) for first, *others in lines)


def _counts(path: Path) -> Iterator[tuple[tuple[str, str, int], int]]:
    """How often people met each sense of a word in texts that they read for it."""
    for key, rank, count in (line.split() for line in path.read_text().splitlines()):
        base, _, place = key.partition("%")
        yield (base, "nvara"[int(place[0]) - 1], int(rank)), int(count)


class Answers(BaseHTTPRequestHandler):
    """`POST /v1/embeddings`; anything that is got is the list of models."""

    protocol_version = "HTTP/1.1"
    vectors: Vectors

    def do_GET(self) -> None:
        self._answer([{"object": "model", "id": NAME}])

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        vectors = [self.vectors.of(text) for text in ([texts] if isinstance(texts, str) else texts)]
        self._answer([{"object": "embedding", "index": n, "embedding": v.tolist()} for n, v in enumerate(vectors)])

    def _answer(self, data: object) -> None:
        body = json.dumps({"object": "list", "model": NAME, "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def main(port: int = 8100) -> None:
    if not FOLDER.is_dir():
        raise SystemExit(f"There is no {FOLDER}; Debian's package wordnet-base has it.")
    Answers.vectors = Vectors(Dictionary(FOLDER))
    with ThreadingHTTPServer(("127.0.0.1", port), Answers) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/v1\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
