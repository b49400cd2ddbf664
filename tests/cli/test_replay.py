"""`brain replay`: a turn of `brain ask` is recorded, played again, and erased with its user."""

import json
from pathlib import Path

import pytest

from cli.command import Brain

TIMES = ("ms", "first_token_ms", "total_ms")


def events(printed: str) -> list[dict[str, object]]:
    """Events without times, and without the usage, which is estimated from the prompts."""
    found = [one for line in printed.splitlines() if (one := json.loads(line))["event"] != "usage"]
    return [{**one, "data": {k: v for k, v in one["data"].items() if k not in TIMES}} for one in found]


def test_a_recorded_turn_is_played_and_erased(brain: Brain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_ARCHIVE", str(tmp_path / "archive"))
    script = tmp_path / "script.jsonl"
    call = json.dumps({"calculator": "bmi", "inputs": {"weight": "80 kg", "height": "2 m"}})
    passes = ["Look: ", f"SPECIALIST_REQUEST[medical:{call}]"], ["Do", "ne."]
    script.write_text("\n".join(map(json.dumps, passes)))
    code, printed, _ = brain("ask", "Hi", "--json", "--model", f"script:{script}")
    assert code == 0
    (recording,) = (tmp_path / "archive").glob("2*/*.jsonl")
    assert str(recording) in brain("explain", "last")[1]
    for speed in ("instant", "recorded"):
        code, played, _ = brain("replay", str(recording), "--json", "--speed", speed)
        assert (code, events(played)) == (0, events(printed))
    assert brain("replay", str(recording))[1] == "Look: Done.\n"
    assert brain("forget", "local", "--yes")[0] == 0
    assert not list((tmp_path / "archive").glob("2*/*.jsonl"))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b'{"type":"end","ms":0,"outcome":"complete","text":"","usage":{}}']
)
def test_another_file_is_no_recording(brain: Brain, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    assert brain("replay", str(tmp_path / "x.jsonl"))[0] == 1
