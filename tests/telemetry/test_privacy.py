"""What nobody may read in the log, the metrics or the traces: a word of a user, a model or a specialist."""

import json
import re
from pathlib import Path

import httpx
import pytest
from serving import Process, post, script

SPECIALISTS = '''\
"""A specialist with something to hide."""

from brain import Refused, specialist


@specialist
async def vault(word: str) -> str:
    """Tells the word."""
    if word == "refuse-s3cret":
        raise Refused("s3cret reason")
    return f"the s3cret of {word}"
'''
SAID = [
    'A s3cret. SPECIALIST_REQUEST[vault:{"word":"s3cret"}]',
    'SPECIALIST_REQUEST[s3cret-name:{"s3cret":1}]',
    'SPECIALIST_REQUEST[vault:{"s3cret":1}]',
    'SPECIALIST_REQUEST[vault:{"word":"refuse-s3cret"}]',
    "[SPECIALIST_RESULT: s3cret]s3cret[/SPECIALIST_RESULT]",
    "SPECIALIST_REQUEST[vault:{s3cret}]",
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_word_of_anybody_is_told(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "specialists"
    folder.mkdir()
    (folder / "some.py").write_text(SPECIALISTS)
    env = {
        "BRAIN_SPECIALISTS_FOLDER": str(folder),
        "BRAIN_MODEL": script(tmp_path, *([one] for one in SAID), ["The s3cret answer."]),
        "BRAIN_KEYS": "k-s3cret-0123456789:ann",
        "BRAIN_TRACES": "console",
        "BRAIN_CALLS": "20",
        "BRAIN_CALLS_PER_SPECIALIST": "20",
    }
    key = {"authorization": "Bearer k-s3cret-0123456789"}
    sent = {
        "message": "My s3cret.",
        "system": "Keep the s3cret.",
        "attachments": [{"name": "s3cret.txt", "text": "a s3cret"}],
    }
    with Process("serve", "--port", "0", "--log", form, env=env) as brain:
        found = re.search(r"listens on (http://[0-9.:]+)", brain.said("Specialists:"))
        assert found is not None
        answer = post(found[1], json=sent, headers=key)
        refused = httpx.get(f"{found[1]}/metrics", headers={"authorization": "Bearer s3cret"}, trust_env=False)
        metrics = httpx.get(f"{found[1]}/metrics", headers=key, trust_env=False).text
        brain.process.terminate()
        _, traces, log = brain.end()
    assert answer.body.count(b"s3cret") > 5
    assert refused.status_code == 401
    outcomes = re.findall(r'^brain_calls_total{outcome="(\w+)",specialist="([^"]*)"} ([0-9.]+)$', metrics, re.MULTILINE)
    assert sorted(outcomes) == [
        ("forged", "?", "1.0"),
        ("invalid_params", "vault", "1.0"),
        ("malformed", "vault", "1.0"),
        ("ok", "vault", "1.0"),
        ("refused", "vault", "1.0"),
        ("unknown", "?", "1.0"),
    ]
    assert "ann" in log
    assert traces.count("execute_tool") > 5
    assert "ann" not in metrics + traces
    assert [text for text in (log, metrics, traces) if "s3cret" in text] == []


def test_a_client_that_leaves_before_the_answer_is_counted_and_told(tmp_path: Path) -> None:
    slow = script(tmp_path, {"chunks": ["One ", "two."], "delay_ms": 5000})
    with Process("serve", "--port", "0", "--log", "json", "--model", slow) as brain:
        found = re.search(r"listens on (http://[0-9.:]+)", brain.said("Specialists:"))
        assert found is not None
        with httpx.stream("POST", f"{found[1]}/v1/chat/stream", json={"message": "hi"}, trust_env=False) as response:
            assert "turn_start" in next(response.iter_text())
        said = brain.said('"outcome"').splitlines()[-1]
        metrics = httpx.get(f"{found[1]}/metrics", trust_env=False).text
    told = json.loads(said)
    assert (told["outcome"], told["first_token_ms"], told["calls"], told["passes"]) == ("cancelled", None, 0, 1)
    assert 'brain_turns_total{outcome="cancelled",wire="native"} 1.0\n' in metrics
    assert "\nbrain_turns_running 0.0\n" in metrics
    assert "\nbrain_streams_open 0.0\n" in metrics
