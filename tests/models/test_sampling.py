"""How a client wants a model to write, in the words of each kind of server."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from brain.messages import Message
from brain.models.dialects import LLAMA_CPP, UNKNOWN, Dialect, of
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.turn_request import UNSAID, Sampling

ASKED = [Message("user", "Hi")]
STARTED = [*ASKED, Message("assistant", "I will")]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ALL = Sampling(
    max_tokens=100,
    temperature=0.0,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    seed=7,
    frequency_penalty=0.5,
    presence_penalty=-0.5,
)

OPENAI = of("https://api.openai.com/v1", "")
MISTRAL = of("https://api.mistral.ai/v1", "")
VLLM = of("http://127.0.0.1:1/v1", "vllm")


def to_openai(sampling: Sampling, dialect: Dialect = UNKNOWN, *, started: bool = False) -> dict[str, Any]:
    """What a server of this dialect is asked besides what it is always asked."""

    async def main() -> bytes:
        model = OpenAI("m", "http://127.0.0.1:1/v1")
        model._dialect = dialect
        try:
            return model._request(STARTED if started else ASKED, sampling)
        finally:
            await model.aclose()

    found: dict[str, Any] = json.loads(asyncio.run(main()))
    assert found.pop("model") == "m"
    assert found.pop("stream") is True
    assert found.pop("stream_options") == {"include_usage": True}
    assert found.pop("return_progress", None) == dialect.always.get("return_progress")
    assert found.pop("messages")[0] == {"role": "user", "content": "Hi"}
    return found


def to_ollama(sampling: Sampling, *, thinks: bool = True) -> dict[str, Any]:
    """What Ollama is asked besides what it is always asked."""

    async def main() -> bytes:
        model = Ollama("m", "http://127.0.0.1:1")
        model._thinks = thinks
        try:
            return model._request(ASKED, sampling)
        finally:
            await model.aclose()

    found: dict[str, Any] = json.loads(asyncio.run(main()))
    assert found.pop("model") == "m"
    assert found.pop("stream") is True
    assert found.pop("truncate") is False
    assert found.pop("messages") == [{"role": "user", "content": "Hi"}]
    return found


def test_what_is_not_said_is_left_to_the_server() -> None:
    assert to_openai(UNSAID) == {}
    assert to_ollama(UNSAID) == {"options": {"num_ctx": 4096}}


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (UNKNOWN, {"max_tokens": 100, "top_k": 40, "min_p": 0.05, "seed": 7}),
        (VLLM, {"max_tokens": 100, "top_k": 40, "min_p": 0.05, "seed": 7}),
        (OPENAI, {"max_completion_tokens": 100, "seed": 7}),
        (MISTRAL, {"max_tokens": 100, "random_seed": 7}),
    ],
)
def test_each_server_is_asked_in_its_own_words(dialect: Dialect, expected: Mapping[str, Any]) -> None:
    same = {"temperature": 0.0, "top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": -0.5}
    assert to_openai(ALL, dialect) == {**same, **expected}


def test_ollama_has_options() -> None:
    assert to_ollama(ALL) == {
        "options": {
            "num_predict": 100,
            "temperature": 0.0,
            "top_p": 0.9,
            "top_k": 40,
            "min_p": 0.05,
            "seed": 7,
            "frequency_penalty": 0.5,
            "presence_penalty": -0.5,
            "num_ctx": 4096,
        }
    }
    assert to_ollama(Sampling(keep_alive="10m"))["keep_alive"] == "10m"
    assert to_ollama(Sampling(keep_alive=0))["keep_alive"] == 0


@pytest.mark.parametrize(
    ("effort", "dialect", "expected"),
    [
        ("low", UNKNOWN, {"reasoning_effort": "low"}),
        ("none", OPENAI, {"reasoning_effort": "none"}),
        (True, UNKNOWN, {}),
        (False, OPENAI, {}),
        (False, VLLM, {"chat_template_kwargs": {"enable_thinking": False}}),
        (True, LLAMA_CPP, {"chat_template_kwargs": {"enable_thinking": True}}),
    ],
)
def test_how_hard_to_think(effort: bool | str, dialect: Dialect, expected: Mapping[str, Any]) -> None:
    assert to_openai(Sampling(effort=effort), dialect) == expected


@pytest.mark.parametrize(
    ("effort", "think"),
    [(True, True), (False, False), ("none", False), ("minimal", "low"), ("high", "high"), ("xhigh", "max")],
)
def test_how_hard_to_think_in_ollamas_words(effort: bool | str, think: bool | str) -> None:
    assert to_ollama(Sampling(effort=effort))["think"] == think
    assert "think" not in to_ollama(Sampling(effort=effort), thinks=False), "it would refuse the request"


def test_the_form_of_the_answer() -> None:
    assert to_openai(Sampling(format="json")) == {"response_format": {"type": "json_object"}}
    named = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert to_openai(Sampling(format=SCHEMA)) == {"response_format": named}
    assert to_ollama(Sampling(format="json"))["format"] == "json"
    assert to_ollama(Sampling(format=SCHEMA))["format"] == SCHEMA


def test_what_else_was_said_goes_to_servers_of_that_protocol_only() -> None:
    mine = {"type": "json_schema", "json_schema": {"name": "mine", "schema": SCHEMA, "strict": True}}
    more = {"logit_bias": {"7": -100}, "response_format": mine}
    openai = Sampling(format=SCHEMA, dialect="openai", more=more)
    assert to_openai(openai) == more
    assert to_ollama(openai) == {"format": SCHEMA, "options": {"num_ctx": 4096}}
    ollama = Sampling(seed=7, dialect="ollama", more={"num_batch": 8, "num_ctx": 9})
    assert to_openai(ollama) == {"seed": 7}
    assert to_ollama(ollama) == {"options": {"seed": 7, "num_batch": 8, "num_ctx": 4096}}


def test_nothing_that_is_said_changes_what_brain_asks() -> None:
    more = {"model": "x", "messages": [], "stream": False, "stream_options": {}}
    assert to_openai(Sampling(dialect="openai", more=more)) == {}


def test_an_answer_is_gone_on_with_as_the_server_wants_it() -> None:
    more = {"chat_template_kwargs": {"enable_thinking": True, "tone": "calm"}, "continue_final_message": False}
    sampling = Sampling(temperature=1.0, dialect="openai", more=more)
    assert to_openai(sampling, LLAMA_CPP, started=True) == {
        "temperature": 1.0,
        "chat_template_kwargs": {"enable_thinking": False, "tone": "calm"},
        "continue_final_message": False,
    }
    assert to_openai(sampling, VLLM, started=True) == {
        "temperature": 1.0,
        "chat_template_kwargs": {"enable_thinking": True, "tone": "calm"},
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    odd = Sampling(dialect="openai", more={"chat_template_kwargs": 7})
    assert to_openai(odd, LLAMA_CPP, started=True) == {"chat_template_kwargs": {"enable_thinking": False}}
