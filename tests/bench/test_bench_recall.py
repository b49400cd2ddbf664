"""The benchmark of recall runs."""

import re
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent


def measure(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "recall.py"), "--only", "german", "--others", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_recall_by_words_is_measured() -> None:
    run = measure()
    assert run.returncode == 0, run.stderr
    first, _, told, announced, times = run.stdout.split("### ")[1:]
    assert re.search(r"\| German: search, words +\| 100 +\|", first)
    assert "| nothing |" in told
    assert "| German: words |" in announced
    assert "| German: recall, words |" in times


def test_a_server_without_embeddings_is_not_measured() -> None:
    run = measure("--model", "openai:none", "--model-url", "http://127.0.0.1:9/v1")
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("openai:none has no embeddings")
