"""Assisted calls with real small models: `pytest -n 0 tests/bench/small_models.py`; see docs/contributing.md.

pytest runs it only by its name. `LLAMA_PYTHON` is an interpreter that has the packages of `llama.py`. `SMOLLM2_URL` and
`GEMMA3_URL` are the URLs of servers that run already.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from brain_servers import Server, brain_served, post

from brain import Registry, specialist

MAX_PROMPT_TOKENS = 400
"""Tokens of a prompt without the instructions for calls, which have about 1,500."""
TIDES = ("when is high water in Hull", "tide times for Leith", "low tide at Dover today")


@specialist(read_only=True, examples=TIDES)
async def tides(harbour: str) -> str:
    """Times of high and low water in a harbour."""
    return f"High water in {harbour} is at 14:32."


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def brain(request: pytest.FixtureRequest) -> Iterator[Server]:
    url = os.environ.get(f"{request.param.upper()}_URL")
    process = None
    if url is None:
        command = [
            os.environ.get("LLAMA_PYTHON", sys.executable),
            str(Path(__file__).parent / "llama.py"),
            request.param,
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, "llama.cpp did not start"
    registry = Registry().discover()
    registry.add(tides)
    try:
        with brain_served(registry, MODEL=f"openai:{request.param}", MODEL_URL=url, STORE="memory:") as server:
            post(server.url, json={"message": TIDES[0]})  # from which Brain learns that the model calls nothing
            yield server
    finally:
        if process is not None:
            process.communicate()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("message", "name", "fact"),
    [
        ("When is high water in Whitby today?", "tides", "14:32"),
        ("tide times for Dover please", "tides", "Dover"),
        ("What is the BMI of someone with 80 kg and 1.80 m?", "medical", "24.7"),
        ("Berechne den BMI bei 70 kg und 175 cm", "medical", "22.9"),
        ("Hello!", None, ""),
        ("Write a short poem about autumn", None, ""),
    ],
)
def test_a_small_model_gets_the_result(brain: Server, message: str, name: str | None, fact: str) -> None:
    events = post(brain.url, json={"message": message}).events
    assert events[-1].name == "done"
    calls = [(event.data["name"], event.data.get("by")) for event in events if event.name == "specialist_start"]
    assert calls == ([] if name is None else [(name, "assist")])
    assert fact in "".join(event.data["text"] for event in events if event.name in ("specialist_result", "token"))
    (usage,) = [event.data for event in events if event.name == "usage"]
    assert 0 < usage["prompt_tokens"] < MAX_PROMPT_TOKENS
