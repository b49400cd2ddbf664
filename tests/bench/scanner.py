"""Measure the scanner per token, next to two common ways to find markers.

    python tests/bench/scanner.py

A token has 5 characters. `baseline` searches the full text with one regex at every token. `partial` uses partial
matching on the held text and releases what cannot be part of a match. `x` is the ratio to the scanner's time. After
16,384 characters, the scanner rejects an unclosed marker and has nothing left to do.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator

import regex

from brain.markers.scanner import Scanner

BASELINE = re.compile(r"SPECIALIST_REQUEST\[(\w+):(.*?)\]", re.DOTALL)
PARTIAL = regex.compile(r"SPECIALIST_REQUEST\[\s*[A-Za-z][\w-]{0,63}\s*:(.*?)\]", regex.DOTALL)
TOKEN = 5
TOKENS = 3_000
SIZES = (1_000, 100_000, 1_000_000)

say = sys.stdout.write

Feed = Callable[[str], object]

TEXTS = {
    "plain text": ("", "The quick brown fox jumps over the lazy dog, and so on it went. She said no. "),
    "near misses": ("", "SPECIALIST_REQUES[ <function_callx> [SPECIALIST_RESULTS] SPECIALIST_ "),
    "unclosed marker": ('SPECIALIST_REQUEST[a:{"q":"', "some words in a long string without end, "),
}


def ours(before: str) -> Feed:
    scanner = Scanner(("bracket", "function_call"))
    for at in range(0, len(before), 1_000):
        scanner.feed(before[at : at + 1_000])
    return scanner.feed


def baseline(before: str) -> Feed:
    text = before

    def feed(token: str) -> object:
        nonlocal text
        text += token
        return BASELINE.search(text)

    return feed


def partial(before: str) -> Feed:
    held = before if before.startswith("SPECIALIST") else ""

    def feed(token: str) -> object:
        nonlocal held
        held += token
        match = PARTIAL.search(held, partial=True)
        start = len(held) if match is None else match.start()
        shown, held = held[:start], held[start:]
        return shown

    return feed


def tokens(text: str, length: int, times: int) -> Iterator[str]:
    whole = text * (length * times // len(text) + 1)
    return (whole[at : at + length] for at in range(0, length * times, length))


def nanoseconds(make: Callable[[str], Feed], before: str, chunks: list[str], seconds: float = 1.0) -> float:
    """Return the best of three runs; each stops early after `seconds`."""
    best = float("inf")
    for _ in range(3):
        feed = make(before)
        began = time.perf_counter()
        done = 0
        while done < len(chunks) and time.perf_counter() - began < seconds:
            for chunk in chunks[done : done + 100]:
                feed(chunk)
            done = min(done + 100, len(chunks))
        best = min(best, (time.perf_counter() - began) / done * 1e9)
    return best


def main() -> None:
    say(f"{'text':<17}{'after':>10}{'brain ns':>10}{'baseline ns':>14}{'x':>9}{'partial ns':>14}{'x':>9}\n")
    for name, (opener, text) in TEXTS.items():
        for size in SIZES:
            before = opener + text * (size // len(text))
            chunks = list(tokens(text, TOKEN, TOKENS))
            own = nanoseconds(ours, before, chunks)
            theirs = [nanoseconds(make, before, chunks, 0.5) for make in (baseline, partial)]
            row = "".join(f"{ns:>14,.0f}{ns / own:>9,.1f}" for ns in theirs)
            say(f"{name:<17}{size:>10,}{own:>10,.0f}{row}\n")
    say("\nreads of 1,000 characters, ns per character\n")
    for name, (opener, text) in TEXTS.items():
        chunks = list(tokens(text, 1_000, 300))
        say(f"{name:<17}{nanoseconds(ours, opener, chunks) / 1_000:>10.1f}\n")


if __name__ == "__main__":
    main()
