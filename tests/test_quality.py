"""The gates: types, lint, format. They stand in the suite so that the one test command is all there is to run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GATES = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("gate", GATES)
def test_gate(gate: str) -> None:
    run = subprocess.run([sys.executable, "-m", *GATES[gate]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
