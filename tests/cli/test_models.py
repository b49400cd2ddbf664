"""`brain models`: the configured models, and what their servers offer."""

import json

import pytest
from model_servers import OllamaServer, OpenAIServer, in_thread, models

from cli.command import Brain

OLLAMA = {
    "POST /api/show": (200, {"capabilities": ["completion", "vision"]}),
    "GET /api/tags": (200, {"models": [{"model": "llama3.2:latest"}, {"model": "qwen3:4b"}]}),
}

UNKNOWN = "not known yet whether it calls specialists"


def test_models_are_listed(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["gpt", "a\x1b[2J", *(f"m{n}" for n in range(30))]
    with (
        in_thread(OpenAIServer(answers=models(*names, owned_by="test"))) as far,
        in_thread(OllamaServer(answers=OLLAMA)) as near,
    ):
        rows = {
            "far": {"is": "openai:gpt", "url": far.url, "local": False},
            "near": {"is": "ollama:llama3.2", "url": near.url},
            "vectors": {"is": "openai:e", "url": "http://127.0.0.1:1/v1"},
        }
        settings = {"MODELS": json.dumps(rows), "MODEL": "far,builtin", "FALLBACK_MODEL": "near"}
        for name, value in (settings | {"EMBEDDINGS": "vectors"}).items():
            monkeypatch.setenv(f"BRAIN_{name}", value)
        code, out, err = brain("models")
        found = json.loads(brain("models", "--json")[1])["models"]
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[1] == f"  default; remote; resume mode: message; falls back to: near; {UNKNOWN}"
    assert lines[2].startswith("  models of the server: gpt, a")
    assert lines[2].endswith(", m17 and 12 more")
    assert "\x1b" not in out
    assert f"  reserve; local; resume mode: prefill; context: 4,096 tokens; image input; {UNKNOWN}" in lines
    assert "  models of the server: llama3.2, qwen3:4b" in lines
    assert [(one["name"], one["use"], one["local"], one["fallbacks"]) for one in found] == [
        ("far", "default", False, ["near"]),
        ("builtin", "offered", True, ["near"]),
        ("near", "reserve", True, []),
        ("vectors", "embeddings", True, []),
    ]
    assert [bool(one["problem"]) for one in found] == [False, False, False, True]
