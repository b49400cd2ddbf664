"""Real processes on one store are killed under clients that come back: a sample of `process_crashes.py`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent.parent / "process_crashes.py"


def play(*arguments: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=300, check=True
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["wrong"] == []
    return found


def test_nothing_is_lost_or_repeated_when_workers_are_killed() -> None:
    found = play("kill", "2", "--kinds", "detached", "get", "post", "approval")
    assert found["kills"] == 2
    assert found["counts"]["rewinds"] > 0
    assert found["counts"]["task succeeded"] == found["tasks"]


def test_the_turns_of_a_server_end_when_it_stops() -> None:
    found = play("stop", "1")
    assert found["counts"]["post ends with shutdown"] == 6
