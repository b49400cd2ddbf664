"""What models of both kinds of servers share: passes over a socket, errors, probes, embeddings, closing."""

import asyncio
import itertools
import json
import math
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from model_answers import STARTED, collect, in_loop, merge, model_of, row
from model_servers import Cut, OllamaServer, OpenAIServer, Pass, Raw, Reasoning, Server, Wait, models

from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Thinking
from brain.messages import Chunk, Finish, NativeCall, PassUsage
from brain.models import remote
from brain.models.failures import describe_failure, from_response, from_status
from brain.models.model import PassRequest
from brain.models.native_calls import CUT
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.settings.models import Prefixes

DETAILS = {"capabilities": ["completion", "vision"], "model_info": {"llama.context_length": 131072}}
IDENTITY: dict[type[Server], dict[str, tuple[int, Any]]] = {
    OpenAIServer: models("m", owned_by="vllm", max_model_len=32768),
    OllamaServer: {"POST /api/show": (200, DETAILS)},
}
END_OF = {
    OpenAIServer: b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    OllamaServer: b'{"message":{"content":""},"done":true,"prompt_eval_count":10,"eval_count":3}\n',
}
both = pytest.mark.parametrize("kind", [OpenAIServer, OllamaServer])
Kind = Callable[..., Any]


@both
@pytest.mark.parametrize("piece", [1, -1])
@in_loop
async def test_a_pass_in_pieces_of_any_size(kind: Kind, piece: int) -> None:
    answer = Pass([Reasoning("hm"), "Hel", "lo ä€😀"], finish="length", piece=piece, newline=b"\r\n", done=False)
    async with kind(answer) as server, model_of(server) as model:
        assert await collect(model) == [Thinking("hm"), "Hello ä€😀", Finish("length"), PassUsage(10, 3)]
        assert len(server.requests) == 1


@both
@pytest.mark.parametrize("reset", [False, True])
@in_loop
async def test_a_connection_that_breaks_after_the_end_does_no_harm(kind: Any, reset: bool) -> None:
    answer = Pass(["Hello", Raw(END_OF[kind]), Cut(reset)], finish=None)
    async with kind(answer) as server, model_of(server) as model:
        assert (await collect(model))[:2] == ["Hello", Finish("stop")]


@both
@pytest.mark.parametrize("items", [[Cut()], [Cut(reset=True)], [], [Raw(b'data: {"error": "secret"}\n\n')]])
@in_loop
async def test_text_before_a_failure_is_yielded(kind: Kind, items: list[Any]) -> None:
    answer = Pass(["Hel", "lo", *items], finish=None, usage=None, done=False)
    async with kind(answer) as server, model_of(server) as model:
        chunks: list[Chunk] = []
        with pytest.raises(ModelError) as caught:
            await collect(model, into=chunks)
        assert (merge(chunks), caught.value.code) == (["Hello"], "model_failed")
        assert "secret" not in caught.value.message


@pytest.mark.parametrize("items", [[Cut()], [Cut(reset=True)], [], [Raw(b'data: {"error": "boom"}\n\n')]])
@pytest.mark.parametrize("arguments", ['{"n"', "{}"])
@in_loop
async def test_a_failure_cuts_a_call_after_one_that_runs(items: list[Any], arguments: str) -> None:
    calls = [("a", {"n": 1}), ("b", arguments)]
    frames = [{"choices": [{"delta": {"tool_calls": [{"name": name, "arguments": text}]}}]} for name, text in calls]
    body = b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    async with OpenAIServer(Pass([Raw(body), *items], finish=None, usage=None, done=False)) as server:
        chunks: list[Chunk] = []
        async with model_of(server) as model:
            with pytest.raises(ModelError):
                await collect(model, into=chunks)
    assert chunks == [NativeCall("a", '{"n":1}'), NativeCall("b", arguments, CUT)]


@both
@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (400, {"error": {"message": "bad sampler"}}, "model_failed"),
        (401, {"error": {"message": "Incorrect API key provided: sk-1"}}, "model_failed"),
        (404, {"error": "no model with this context length"}, "model_failed"),
        (429, {"error": "too many tokens a minute"}, "model_failed"),
        (500, b"\xff\xfe" * 1_000_000, "model_failed"),
        (307, b"", "model_failed"),
        # as OpenAI, llama.cpp, vLLM, Anthropic, OpenRouter and Ollama say it
        (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages "
                                    "resulted in 9000 tokens.", "code": "context_length_exceeded"}}, "model_context"),
        (400, {"error": {"code": 400, "message": "request (5000 tokens) exceeds the available context size "
                                                 "(4096 tokens), try increasing it",
                         "type": "exceed_context_size_error"}}, "model_context"),
        (400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model "
                                             "length of 4096."}, "model_context"),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, "model_context"),
        (413, {"error": {"message": "Please reduce the length of the messages or completion."}}, "model_context"),
        (400, {"error": "the input length exceeds the context length"}, "model_context"),
        (500, {"error": "exceed_context_size_error: request exceeds the available context size"}, "model_context"),
    ],
)  # fmt: skip
@in_loop
async def test_a_refused_request(kind: Kind, status: int, answer: Any, code: str) -> None:
    async with kind(Pass(status=status, answer=answer)) as server, model_of(server, key="sk-1") as model:
        with pytest.raises(ModelError) as caught:
            await collect(model)
        error = caught.value
        assert (type(error), error.code, error.status) == (ModelError, code, status)
        assert "sk-1" not in error.message
        assert len(str(error)) < 5000


@pytest.mark.parametrize(
    ("status", "answer", "kind", "code"),
    [
        (400, "exceeds the available context size", ModelError, "model_context"),
        (400, "Assistant response prefill is incompatible with enable_thinking", PrefillRefused, "model_failed"),
        (422, "last message must be of the user", PrefillRefused, "model_failed"),
        (500, "boom", ModelError, "model_failed"),
    ],
)
@in_loop
async def test_a_refused_request_to_continue(status: int, answer: str, kind: type[ModelError], code: str) -> None:
    refusal, answers = Pass(status=status, answer={"error": answer}), IDENTITY[OpenAIServer]
    async with OpenAIServer(refusal, answers=answers) as server, model_of(server, identify=True) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model, STARTED)
        assert (type(caught.value), caught.value.code) == (kind, code)
        assert model.resume == ("message" if kind is PrefillRefused else "prefill")


@both
@pytest.mark.parametrize("setting", ["prefill", "message", None])
@in_loop
async def test_how_to_resume(kind: Any, setting: Any) -> None:
    refusal, identity = "conversation must end with a user message", IDENTITY[kind]
    async with (
        kind(answers=identity, refuses_prefill=refusal) as server,
        model_of(server, identify=True, resume=setting) as model,
    ):
        assert model.resume == (setting or "prefill")
        if setting != "message":  # a server that refuses is never asked again
            with pytest.raises(PrefillRefused):
                await collect(model, STARTED)
            await model.identify()
            assert model.resume == "message"


@pytest.mark.parametrize(("header", "expected"), [("20", "20 s"), ("soon", ""), ("-1", ""), ("9" * 99, "")])
@in_loop
async def test_retry_after(header: str, expected: str) -> None:
    refusal = Pass(status=429, answer={}, kind=f"application/json\r\nretry-after: {header}")
    async with OpenAIServer(refusal) as server, model_of(server) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model)
        assert expected in caught.value.message
        assert expected or "wait" not in caught.value.message


@both
@pytest.mark.parametrize(
    ("content_type", "answer"),
    [("text/html; charset=utf-8", b"<html>Welcome to nginx!</html>"), ("application/json", b""),
     ("text/event-stream", b"")],
)  # fmt: skip
@in_loop
async def test_an_answer_that_is_no_stream(kind: Kind, content_type: str, answer: Any) -> None:
    async with kind(Pass(answer=answer, kind=content_type)) as server, model_of(server) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model)
        assert caught.value.code == "model_failed"


# Servers that are away, come late, or stumble


@both
@in_loop
async def test_an_unreachable_server(kind: Any) -> None:
    async with kind() as server:
        url = server.url
    model = OpenAI(row("openai", url)) if kind is OpenAIServer else Ollama(row("ollama", url))
    for request in (collect(model), model.identify(), collect(model)):
        with pytest.raises(ModelError) as caught:
            await request
        assert caught.value.code == "model_unreachable"
    with pytest.raises(Refused):
        await model.embed(["a"])
    assert await model.find_problem() == caught.value.message
    await model.aclose()


@both
@in_loop
async def test_a_server_that_comes_late_is_identified_then(kind: Any) -> None:
    (identify,) = IDENTITY[kind]
    away = {identify: (503, {"error": "Loading model"})}
    async with kind(Pass(["a"]), Pass(["b"]), answers=away) as server, model_of(server) as model:
        with pytest.raises(ModelError):
            await model.identify()
        server.answers |= IDENTITY[kind]
        await collect(model)
        assert (model.resume, model.context_tokens) == ("prefill", 32768 if kind is OpenAIServer else 16384)
        await collect(model)
        generate = f"POST {server.generating[0]}"
        assert server.lines == [identify, identify, generate, generate]


@in_loop
async def test_a_late_ollama_that_passes_the_model_on_gets_no_prompt_that_may_be_private() -> None:
    show = "POST /api/show"
    async with OllamaServer(Pass(["a"]), answers={show: (503, {})}) as server, model_of(server) as model:
        with pytest.raises(ModelError):
            await model.identify()
        assert model.is_local
        server.answers[show] = (200, {"remote_host": "https://ollama.com"})
        with pytest.raises(ModelError):
            await collect(model)
        assert (model.is_local, server.generated) == (False, [])
        assert await collect(model) != []


@both
@in_loop
async def test_a_server_that_stumbles_changes_nothing(kind: Any) -> None:
    (identify,) = IDENTITY[kind]
    async with kind(Pass(["a"]), answers=IDENTITY[kind]) as server, model_of(server, identify=True) as model:
        known = (model.resume, model.context_tokens, model.sees_images)
        server.answers[identify] = (503, {})
        assert await model.find_problem() is not None
        with pytest.raises(ModelError):
            await model.identify()
        assert (model.resume, model.context_tokens, model.sees_images) == known


class Waiting(OpenAIServer):
    """Answers a GET when it is released."""

    def __init__(self, *passes: Pass, **options: Any) -> None:
        super().__init__(*passes, **options)
        self.arrived, self.released = asyncio.Event(), asyncio.Event()

    async def answer(self, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            self.arrived.set()
            await self.released.wait()
        await super().answer(asked, reader, writer)


@in_loop
async def test_probes_are_shared_and_delay_no_pass() -> None:
    async with Waiting(Pass(["a"]), answers=IDENTITY[OpenAIServer]) as server, model_of(server) as model:
        cancelled = asyncio.create_task(model.find_problem())
        probes = [asyncio.create_task(model.find_problem()) for _ in range(20)]
        await server.arrived.wait()
        cancelled.cancel()
        assert await collect(model) == ["a", Finish("stop"), PassUsage(10, 3)]
        server.released.set()
        assert await asyncio.gather(*probes) == [None] * 20
        assert server.lines.count("GET /v1/models") <= 2


@in_loop
async def test_a_silent_server_is_unreachable() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brain.models.openai.IDENTIFY_SECONDS", 0.05)
        patch.setattr(remote, "READY_SECONDS", 0.05)
        async with OpenAIServer(silent=True) as server, model_of(server) as model:
            with pytest.raises(ModelError) as caught:
                await model.identify()
            assert caught.value.code == "model_unreachable"
            assert await model.find_problem() == caught.value.message


# Images and embeddings


@both
@in_loop
async def test_describe(kind: Kind) -> None:
    async with kind(Pass([Reasoning("look"), "A ", "cat."])) as server, model_of(server) as model:
        assert await model.describe(b"\x89PNG\r\n\x1a\n", "What is it?") == "A cat."
        (message,) = server.generated[0]["messages"]
        assert "iVBORw0KGgo=" in json.dumps(message)


EMBEDDING_PATH = {OpenAIServer: "POST /v1/embeddings", OllamaServer: "POST /api/embed"}


def embeddings(*vectors: list[float]) -> tuple[int, Any]:
    return 200, {"embeddings": vectors, "data": [{"embedding": vector} for vector in vectors]}


@both
@in_loop
async def test_embeddings(kind: Any) -> None:
    answers = {EMBEDDING_PATH[kind]: embeddings([0, 1.5], [2, 3])}
    async with kind(answers=answers) as server, model_of(server, embeddings="e") as model:
        assert await model.embed(["a", "b"]) == [[0.0, 1.5], [2.0, 3.0]]
        assert server.requests[0].body == {"model": "e", "input": ["a", "b"]}


@pytest.mark.parametrize(
    ("name", "override", "expected"),
    [
        ("multilingual-e5-small-q4", None, ("query: a", "passage: a", "query: a")),
        ("intfloat/e5-base-v2", None, ("query: a", "passage: a", "query: a")),
        ("nomic-embed-text:v1.5", None, ("search_query: a", "search_document: a", "search_document: a")),
        ("BAAI/bge-small-en-v1.5", None, ("Represent this sentence for searching relevant passages: a", "a", "a")),
        ("e5-query", None, ("a", "a", "a")),
        ("multilingual-e5-large-instruct", None, ("a", "a", "a")),
        ("all-minilm", None, ("a", "a", "a")),
        ("multilingual-e5-small", Prefixes(), ("a", "a", "a")),
        ("own", Prefixes("q ", "p ", "f "), ("q a", "p a", "f a")),
    ],
)
@in_loop
async def test_prefixes_of_embeddings(name: str, override: Prefixes | None, expected: tuple[str, ...]) -> None:
    answers = {EMBEDDING_PATH[OpenAIServer]: embeddings([1.0])}
    async with OpenAIServer(answers=answers) as server, model_of(server) as user:
        async with model_of(server, embeddings=name, embeddings_prefix=override) as user.embedder:
            for purpose in ("query", "passage", "fact", None):
                await user.embed(["a"], purpose)
        assert [request.body["input"] for request in server.requests] == [[text] for text in (*expected, "a")]


@both
@pytest.mark.parametrize("answer", [(404, {}), (501, b""), (200, b"<html>"), (200, {"no": 1}), (200, {"data": [{}]})])
@in_loop
async def test_a_server_without_embeddings(kind: Any, answer: tuple[int, Any]) -> None:
    async with kind(answers={EMBEDDING_PATH[kind]: answer}) as server, model_of(server) as model:
        for request in (model.embed(["a"]), model.check_embeddings()):
            with pytest.raises(Refused):
                await request


@both
@pytest.mark.parametrize(
    "vectors", [[[1.0]], [[1.0], [1.0, 2.0]], [[], []], [[1.0], [2.0], [3.0]], [], [[math.nan], [1.0]]]
)
@in_loop
async def test_embeddings_that_cannot_be_used(kind: Any, vectors: list[list[float]]) -> None:
    async with kind(answers={EMBEDDING_PATH[kind]: embeddings(*vectors)}) as server, model_of(server) as model:
        with pytest.raises(Refused):
            await model.embed(["a", "b"])


@in_loop
async def test_embeddings_are_checked_once_with_the_model_that_makes_them() -> None:
    vectors = [[float(n == d) for d in range(8)] for n in range(8)]  # questions and answers have the same directions,
    vectors[7] = vectors[0]  # the last pair that of the first
    answers = {"POST /v1/embeddings": embeddings(*vectors)}
    async with OpenAIServer(answers=answers) as server, model_of(server) as maker, model_of(server) as user:
        user.embedder = maker
        check = await user.check_embeddings()
        assert check is await maker.check_embeddings()
        assert (check.size, check.right, check.is_meaningful) == (8, 7, True)
        assert (check.own, check.other) == (1.0, 2 / 56)
        assert check.key.startswith("openai:m#")
        assert len(server.requests) == 2


# Closing


@both
@in_loop
async def test_closing_the_stream_closes_the_connection(kind: Kind) -> None:
    answer = Pass(itertools.chain(["[a]"], itertools.repeat("x")))
    async with kind(answer) as server, model_of(server) as model:
        async with aclosing(model.stream(PassRequest(STARTED))) as chunks:
            text = ""
            while "]" not in text:
                text += str(await anext(chunks))
        await server.generations[0].closed.wait()


@both
@in_loop
async def test_cancelling_a_read_closes_the_connection(kind: Kind) -> None:
    async with kind(Pass(["[a]", Wait(60)])) as server, model_of(server) as model:
        task = asyncio.create_task(collect(model))
        await server.marked.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await server.generations[0].closed.wait()


@in_loop
async def test_a_server_that_shows_no_model_is_an_error() -> None:
    answers = {"POST /api/show": (200, b"<html>hello</html>")}
    async with OllamaServer(answers=answers) as server, model_of(server) as model:
        with pytest.raises(ModelError):
            await model.identify()


def test_an_untrusted_certificate_is_named() -> None:
    error, cause = httpx.ConnectError("failed"), ssl.SSLCertVerificationError(1, "failed")
    cause.verify_message = "self-signed certificate"
    error.__cause__ = cause
    assert describe_failure(error, "") == "TLS certificate: self-signed certificate"


@in_loop
async def test_only_the_beginning_of_an_error_is_read() -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * 1024

    error = await from_response(httpx.Response(500), endless(), is_resumed=False)
    assert len(error.detail) < 5000


@in_loop
async def test_the_operator_knows_which_model_is_local() -> None:
    answers = {"POST /api/show": (200, {"remote_host": "https://ollama.example"})}
    async with OllamaServer(answers=answers) as server:
        for local in (None, True):
            async with model_of(server, identify=True, local=local) as model:
                assert model.is_local is bool(local)


@pytest.mark.parametrize(
    "given", ["100000", "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 2027 23:59:59 +99999999999999999", "soon", ""]
)
def test_a_time_that_no_client_would_wait_is_ignored(given: str) -> None:
    assert from_status(429, "", given).retry_after is None
