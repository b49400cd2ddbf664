"""Reads further examples of a specialist, from which Brain learns to recognize its questions."""

from collections.abc import Sequence
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "examples"


def read_examples(name: str) -> Sequence[str]:
    """Return the lines of the file of a specialist."""
    return (_FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
