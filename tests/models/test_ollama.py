"""Models of Ollama: decoding answers, requests, and which model `auto` takes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from model_answers import HELLO, STARTED, collect, cuts, decode, in_loop, model_of
from model_servers import OllamaServer, Pass

from brain.events import Thinking
from brain.messages import Chunk, Finish, Message, NativeCall, PassUsage
from brain.models import connect_models
from brain.models.ollama import build_reply
from brain.settings import read


def shown(*capabilities: str, **info: Any) -> tuple[int, Any]:
    """The answer to `POST /api/show`."""
    return 200, {"capabilities": list(capabilities), "model_info": {"general.architecture": "llama", **info}}


def lines(*items: Any) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


def text(content: str | None, **more: Any) -> Any:
    return {"model": "m", "created_at": "2026-11-21T00:00:00Z", "message": {"content": content, **more}, "done": False}


IMPOSSIBLE: list[Any] = [2**63, -5, 7.5, "x", "-7", True, [], None]
"""As numbers of tokens."""
END = {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 2}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lines(text("Hel"), text("lo"), END), ["Hello", Finish("stop"), PassUsage(0, 2)]),
        (lines(text("a"), {**END, "prompt_eval_count": 7, "total_duration": 10**18}),
         ["a", Finish("stop"), PassUsage(7, 2)]),
        (lines(text("a"), {"done": True}), ["a", Finish("stop"), PassUsage(0, 0)]),
        (lines(text("a"), {"done": True, "done_reason": "none"}), ["a", Finish("stop"), PassUsage(0, 0)]),
        (lines({"message": {"content": "a"}, "done": True, "done_reason": "length"}),
         ["a", Finish("length"), PassUsage(0, 0)]),
        (lines({"done": True, "done_reason": "load"}), [Finish("stop"), PassUsage(0, 0)]),
        (lines(text("", thinking="h"), text("", thinking="mm"), text("a"), END),
         [Thinking("hmm"), "a", Finish("stop"), PassUsage(0, 2)]),
        (lines(text("a"), text("c", thinking="b"), text("d")), ["a", Thinking("b"), "cd"]),
        (lines(text("a", tool_calls=[{"function": {"index": 0, "name": "x", "arguments": {"b": [1]}}},
                                     {"function": {"name": "y"}}]), END),
         ["a", NativeCall("x", '{"b":[1]}'), NativeCall("y", ""), Finish("stop"), PassUsage(0, 2)]),
        (lines(text("a", tool_calls=[7, {"function": {"name": ["x"]}}]), text("b", tool_calls="x"), END),
         ["ab", Finish("stop"), PassUsage(0, 2)]),
        *[(lines(text("a"), {**END, **bad}), ["a", Finish("stop")])
          for value in IMPOSSIBLE for bad in ({"prompt_eval_count": value},
                                                                       {"eval_count": value})],
        (lines(text("a"), b'{"done":true,"prompt_eval_count":NaN}'), ["a", Finish("stop")]),
        (lines({**text("a"), "done": "no", "created_at": 7}, {**END, "done_reason": 7}),
         ["a", Finish("stop"), PassUsage(0, 2)]),
        (lines(text("a"), END).rstrip(b"\n"), ["a", Finish("stop"), PassUsage(0, 2)]),
        (b"\n\r\n  \n" + lines(text("a")).replace(b"\n", b"\r\n") + b"\r\n", ["a"]),
        (b'{"message":{"content":"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8\xc2\x85"}}\n',
         ["ä€😀\u2028\u0085"]),
        (b'{"message":{"content":"a\\ud83d"}}\n{"message":{"content":"\\ude00b"}}\n', ["a😀b"]),
        (b'{"message":{"content":"a\\ud83d"}}\n{"done":true}\n', ["a\ufffd", Finish("stop"), PassUsage(0, 0)]),
        (b'{"message":{"content":"a\xff"}}\n', ["a\ufffd"]),
        (lines(text("a"), {"error": "llama runner process has terminated"}, text("b")), ["a", "<model_failed>"]),
        (lines(text("a"), {"error": "the input length exceeds the context length"}), ["a", "<model_context>"]),
        (lines(text("a"), {"error": {"message": "boom"}}), ["a", "<model_failed>"]),
        (lines(text("a"), {"object": "error", "message": "boom"}), ["a", "<model_failed>"]),
        (lines(text("a"), b"upstream connect error"), ["a", "<model_failed>"]),
        (lines(b"{broken", text("a"), b'{"message":{"content":"b', END), ["a", Finish("stop"), PassUsage(0, 2)]),
        (lines(text("a"), b'{"message":{"content":"b'), ["a", "<model_failed>"]),
        (lines(b"{broken", END), [PassUsage(0, 2), "<model_failed>"]),
        (lines(text("a"), {**END, "done_reason": "error"}), ["a", PassUsage(0, 2), "<model_failed>"]),
        (lines(text("a"), {**END, "done_reason": "content_filter"}), ["a", Finish("content_filter"), PassUsage(0, 2)]),
        # what cannot be read is ignored
        (lines([1], b"null", b"[]", b"ping", 7, text("a"), b"<html>", {"message": 7}, {"message": {"content": 7}},
               {"message": {"content": "b", "thinking": [1]}}, {**END, "eval_count": "2", "prompt_eval_count": 7.0}),
         ["ab", Finish("stop"), PassUsage(7, 2)]),
    ],
)  # fmt: skip
def test_a_body_is_decoded_the_same_however_it_is_cut(body: bytes, expected: list[Chunk]) -> None:
    for pieces in cuts(body):
        assert decode(build_reply, pieces) == expected, pieces


def test_texts_of_one_read_are_one_chunk() -> None:
    body = lines(text("", thinking="a"), text("", thinking="b"), text("c"), text("d"), END)
    assert build_reply().feed(body) == [Thinking("ab"), "cd", Finish("stop"), PassUsage(0, 2)]


@pytest.mark.parametrize(
    ("show", "context", "sees"),
    [
        (shown("completion", **{"llama.context_length": 131072}), 16384, False),
        (shown("completion", "vision", **{"llama.context_length": 8192}), 8192, True),
        ((200, {"model_info": {"llama.context_length": None, "general.x": 9}}), 4096, False),
        ((200, {"model_info": None, "capabilities": None}), 4096, False),
    ],
)
@in_loop
async def test_requests(show: tuple[int, Any], context: int, sees: bool) -> None:
    answers = {"POST /api/show": show}
    async with OllamaServer(Pass(["a"]), answers=answers) as server, model_of(server, key="k") as model:
        await model.identify()
        assert (model.context_tokens, model.sees_images) == (context, sees)
        await collect(model, [*HELLO, Message("user", "See?", (b"??",)), STARTED[-1]])
        assert server.lines == ["POST /api/show", "POST /api/chat"]
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer k"}
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello?"},
            {"role": "user", "content": "See?", "images": ["Pz8="]},
            {"role": "assistant", "content": "I will look"},
        ]
        common = {"model": "m", "stream": True, "truncate": False, "options": {"num_ctx": context}}
        assert server.generated == [{**common, "messages": messages}]


TAGS = {
    "models": [
        {"model": "old:1b", "modified_at": "2026-01-01T10:00:00.123456789+02:00"},
        {"model": "new:1b", "modified_at": "2026-11-01T23:00:00-08:00"},
        {"model": "newer-by-letters:1b", "modified_at": "2026-11-02T01:00:00+02:00"},
        {"model": "ageless:1b"},
        {"model": "embed:1b", "modified_at": "2026-11-20T00:00:00Z"},
    ]
}


class Shop(OllamaServer):
    """Answers `show` by model."""

    def __init__(self, capabilities: Mapping[str, Sequence[str] | None], loaded: Sequence[str] = ()) -> None:
        super().__init__(
            answers={
                "GET /api/version": (200, {"version": "0.33.0"}),
                "GET /api/tags": (200, TAGS),
                "GET /api/ps": (200, {"models": [{"model": name} for name in loaded]}),
            }
        )
        self._capabilities = capabilities

    async def answer(self, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.path == "/api/show":
            capabilities = self._capabilities.get(asked.body["model"], ["missing"])
            known = {"capabilities": capabilities} if capabilities is not None else {}
            found = (404, {"error": "model not found"}) if capabilities == ["missing"] else (200, known)
            self.answers["POST /api/show"] = found
        await super().answer(asked, reader, writer)


COMPLETE, EMBED = ["completion"], ["embedding"]
ALL = {"old:1b": COMPLETE, "new:1b": COMPLETE, "newer-by-letters:1b": COMPLETE, "ageless:1b": COMPLETE}


@pytest.mark.parametrize(
    ("capabilities", "loaded", "name"),
    [
        (ALL | {"embed:1b": EMBED}, [], "ollama:new:1b"),
        (ALL | {"embed:1b": EMBED}, ["old:1b"], "ollama:old:1b"),
        (ALL | {"embed:1b": EMBED}, ["embed:1b", "old:1b"], "ollama:old:1b"),
        (ALL | {"embed:1b": EMBED}, ["embed:1b"], "ollama:new:1b"),
        (ALL, ["gone:1b"], "ollama:new:1b"),
        ({"old:1b": None, "embed:1b": EMBED}, [], "ollama:old:1b"),
        ({"ageless:1b": COMPLETE}, [], "ollama:ageless:1b"),
        ({"embed:1b": EMBED}, ["embed:1b"], "builtin"),
        ({}, [], "builtin"),
    ],
)
@in_loop
async def test_auto_takes_the_loaded_model_else_the_newest_that_can_complete(
    monkeypatch: pytest.MonkeyPatch,
    capabilities: Mapping[str, Sequence[str] | None],
    loaded: Sequence[str],
    name: str,
) -> None:
    monkeypatch.setattr("brain.models.AUTO_SECONDS", 30.0)
    async with Shop(capabilities, loaded) as server:
        async with connect_models(read({"BRAIN_MODEL": "auto", "BRAIN_MODEL_URL": server.url}), ()) as connected:
            (model,) = connected.offered
        assert (model.name, model.problem) == (name, None)
        assert "/api/chat" not in {request.path for request in server.requests}


@pytest.mark.parametrize(
    "answer", [None, (200, b"<html>hello</html>"), (404, b"nothing"), (200, {"models": 7}), (500, {})]
)
@in_loop
async def test_auto_without_ollama(monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any] | None) -> None:
    if answer is not None:
        monkeypatch.setattr("brain.models.AUTO_SECONDS", 30.0)
    paths = ("/api/version", "/api/ps", "/api/tags")
    answers = {} if answer is None else {f"GET {path}": answer for path in paths}
    async with OllamaServer(answers=answers, silent=answer is None) as server:
        async with connect_models(read({"BRAIN_MODEL": "auto", "BRAIN_MODEL_URL": server.url}), ()) as connected:
            (model,) = connected.offered
        assert model.name == "builtin"
        assert server.url in model.reason
