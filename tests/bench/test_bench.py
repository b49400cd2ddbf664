"""The benchmarks for `docs/explanation/performance.md` run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measured on Linux only")

BENCH = Path(__file__).parent.parent / "bench"


def test_a_quick_run_measures_and_keeps_its_figures(tmp_path: Path) -> None:
    kept = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH), "--quick", "--only", "encode", "--json", str(kept)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.split(":")[0]) == (0, "encode")
    assert "### Encoding, ns per token" in run.stdout
    assert json.loads(kept.read_text("utf-8"))["encode"]["rows"]["brain"]["1 token per read"][0] > 0


def test_whole_servers_can_be_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--only", "length", "--targets", "brain"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "| 10,000 |" in run.stdout


def test_the_choice_of_specialists_is_measured_without_a_model() -> None:
    command = [sys.executable, str(BENCH / "assist.py"), "--every", "9"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(r"\| router \| \d+/10 \| \d+ \| \d+ \| \d+ \| \d+ \| \d/4 \| \d/4 \| ", run.stdout)
