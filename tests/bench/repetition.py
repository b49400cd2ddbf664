"""Measure false positives and cost of the repetition guard: `python tests/bench/repetition.py [FOLDER ...]`.

Default: the standard library, the installed packages and `/usr/share/doc`. Each sample has 6,000 characters. Binary
files are read as base64.
"""

import base64
import os
import random
import re
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from brain.turn.text_filters import RepetitionGuard

LENGTH = 6000
MAX_SAMPLES = 20_000
SAMPLES_PER_FILE = 20
TOKEN = re.compile(r"\s*\S{1,4}\s*")
out = sys.stdout.write


def samples(folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of a file and a part of it, in a random order that is the same in every run."""
    files = sorted(Path(at) / name for folder in folders for at, _, names in os.walk(folder) for name in names)
    random.Random(1).shuffle(files)
    for file in files:
        try:
            with file.open("rb") as opened:
                data = opened.read(LENGTH * SAMPLES_PER_FILE)
        except OSError:
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = base64.encodebytes(data[:LENGTH]).decode()
        for start in range(0, len(text) - LENGTH + 1, LENGTH):
            yield str(file), text[start : start + LENGTH]


def main() -> None:
    paths = sysconfig.get_paths()
    folders = sys.argv[1:] or [paths["stdlib"], paths["purelib"], "/usr/share/doc"]
    count = flagged = tokens = 0
    seconds = 0.0
    for name, text in samples(folders):
        guard, parts = RepetitionGuard(), TOKEN.findall(text)
        began = time.process_time()
        for part in parts:
            guard.feed(part)
            if guard.is_found:
                break
        seconds += time.process_time() - began
        count += 1
        tokens += len(parts)
        if guard.is_found:
            flagged += 1
            out(f"{name}: … {''.join(parts)[-80:]!r}\n")
        if count == MAX_SAMPLES:
            break
    cost = seconds / tokens * 1e6
    out(f"{count:,} samples of {LENGTH:,} characters; {flagged} flagged as repetition. {cost:.2f} µs per token\n")


if __name__ == "__main__":
    main()
