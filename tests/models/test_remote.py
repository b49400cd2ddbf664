"""What models of both kinds of servers share: passes over a socket, errors, probes, embeddings, closing."""

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from answering import Cut, Item, Pass, Raw, Server, ThinkerRun, Wait
from model_answers import STARTED, collect, merge, model_of, row
from servers import OllamaServer, OpenAIServer, models

from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Thinking
from brain.messages import Chunk, Finish, PassUsage
from brain.models import check_model, remote
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI

UNREACHABLE = "The model server cannot be reached."
BROKE = "The connection to the model server broke in the middle of its answer."
TOO_LONG = "The conversation is too long for the model; begin a new one, or ask for less."
NO_ANSWER = "The model server could not answer."
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


def error_frame(kind: Kind, error: Any) -> bytes:
    encoded = json.dumps({"error": error}).encode()
    return b"data: " + encoded + b"\n\n" if kind is OpenAIServer else encoded + b"\n"


@both
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Pass(["Hel", "lo ", "wörld 😀"]), ["Hello wörld 😀", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hel", "lo ä€😀"], piece=1), ["Hello ä€😀", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hel", "lo"], piece=-1), ["Hello", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hel", "lo"], newline=b"\r\n", piece=1), ["Hello", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hello"], finish="length"), ["Hello", Finish("length"), PassUsage(10, 3)]),
        (Pass(["Hello"], done=False), ["Hello", Finish("stop"), PassUsage(10, 3)]),
        (Pass([ThinkerRun("hm"), "Hello"]), [Thinking("hm"), "Hello", Finish("stop"), PassUsage(10, 3)]),
    ],
)
def test_a_pass(kind: Kind, answer: Pass, expected: list[Chunk]) -> None:
    async def main() -> None:
        async with kind(answer) as server, model_of(server) as model:
            assert await collect(model) == expected
            assert len(server.asked) == 1

    asyncio.run(main())


@both
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_breaks_after_the_end_does_no_harm(kind: Any, reset: bool) -> None:
    async def main() -> None:
        answer = Pass(["Hello", Raw(END_OF[kind]), Cut(reset)], finish=None)
        async with kind(answer) as server, model_of(server) as model:
            assert (await collect(model))[:2] == ["Hello", Finish("stop")]

    asyncio.run(main())


BROKEN: list[tuple[Callable[[Kind], list[Item]], str]] = [
    (lambda kind: [Cut()], BROKE),
    (lambda kind: [Cut(reset=True)], BROKE),
    (lambda kind: [], "The model server broke off in the middle of its answer."),
    (lambda kind: [Raw(error_frame(kind, "secret at 10.0.0.1"))], "The model failed in the middle of its answer."),
    (lambda kind: [Raw(b"data: secret\n\n")], "The model server sent something unreadable."),
]


@both
@pytest.mark.parametrize(("items", "message"), BROKEN)
def test_what_came_before_a_failure_is_kept(kind: Kind, items: Callable[[Kind], list[Item]], message: str) -> None:
    async def main() -> None:
        answer = Pass(["Hel", "lo", *items(kind)], finish=None, usage=None, done=False)
        async with kind(answer) as server, model_of(server) as model:
            chunks: list[Chunk] = []
            with pytest.raises(ModelError) as caught:
                await collect(model, into=chunks)
            assert merge(chunks) == ["Hello"]
            assert (caught.value.code, caught.value.message) == ("model_failed", message)

    asyncio.run(main())


@both
@pytest.mark.parametrize(
    ("status", "answer", "code", "message"),
    [
        (400, {"error": {"message": "bad sampler"}}, "model_failed", NO_ANSWER),
        (401, {"error": {"message": "Incorrect API key provided: sk-1"}}, "model_failed",
         "The model server refused Brain's key."),
        (403, b"no", "model_failed", "The model server refused Brain's key."),
        (404, {"error": "no model with this context length"}, "model_failed",
         "The model server does not have this model."),
        (429, {"error": "too many tokens a minute"}, "model_failed",
         "The model server takes no more requests at the moment."),
        (500, b"\xff\xfe" * 1_000_000, "model_failed", NO_ANSWER),
        (307, b"", "model_failed", NO_ANSWER),
        # as OpenAI, llama.cpp, vLLM, Anthropic, OpenRouter and Ollama say it
        (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages "
                                    "resulted in 9000 tokens.", "code": "context_length_exceeded"}},
         "model_context", TOO_LONG),
        (400, {"error": {"code": 400, "message": "request (5000 tokens) exceeds the available context size "
                                                 "(4096 tokens), try increasing it",
                         "type": "exceed_context_size_error"}}, "model_context", TOO_LONG),
        (400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model "
                                             "length of 4096."}, "model_context", TOO_LONG),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, "model_context", TOO_LONG),
        (413, {"error": {"message": "Please reduce the length of the messages or completion."}}, "model_context",
         TOO_LONG),
        (400, {"error": "the input length exceeds the context length"}, "model_context", TOO_LONG),
        (500, {"error": "exceed_context_size_error: request exceeds the available context size"}, "model_context",
         TOO_LONG),
    ],
)  # fmt: skip
def test_a_refused_request(kind: Kind, status: int, answer: Any, code: str, message: str) -> None:
    async def main() -> None:
        async with kind(Pass(status=status, answer=answer)) as server, model_of(server, key="sk-1") as model:
            with pytest.raises(ModelError) as caught:
                await collect(model)
            error = caught.value
            assert (type(error), error.code, error.message, error.status) == (ModelError, code, message, status)
            assert len(str(error)) < 5000

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "answer", "kind", "code"),
    [
        (400, "exceeds the available context size", ModelError, "model_context"),
        (400, "Assistant response prefill is incompatible with enable_thinking", PrefillRefused, "model_failed"),
        (422, "last message must be of the user", PrefillRefused, "model_failed"),
        (500, "boom", ModelError, "model_failed"),
    ],
)
def test_a_refused_request_to_continue(status: int, answer: str, kind: type[ModelError], code: str) -> None:
    async def main() -> None:
        refusal = Pass(status=status, answer={"error": answer})
        async with (
            OpenAIServer(refusal, answers=IDENTITY[OpenAIServer]) as server,
            model_of(server, identify=True) as model,
        ):
            with pytest.raises(ModelError) as caught:
                await collect(model, STARTED)
            assert (type(caught.value), caught.value.code) == (kind, code)
            assert model.resume == ("message" if kind is PrefillRefused else "prefill")

    asyncio.run(main())


@both
@pytest.mark.parametrize("setting", ["prefill", None])
def test_a_server_that_refuses_to_continue_is_never_asked_again(kind: Any, setting: Any) -> None:
    async def main() -> None:
        refusal = "conversation must end with a user message"
        async with (
            kind(answers=IDENTITY[kind], refuses_prefill=refusal) as server,
            model_of(server, identify=True, resume=setting) as model,
        ):
            resumes = [model.resume]
            with pytest.raises(PrefillRefused):
                await collect(model, STARTED)
            resumes.append(model.resume)
            await model.identify()
            assert [*resumes, model.resume] == ["prefill", "message", "message"]

    asyncio.run(main())


@both
@pytest.mark.parametrize("setting", ["prefill", "message"])
def test_the_operator_says_how_to_resume(kind: Any, setting: Any) -> None:
    async def main() -> None:
        async with (
            kind(answers=IDENTITY[kind]) as server,
            model_of(server, identify=True, resume=setting) as model,
        ):
            assert model.resume == setting

    asyncio.run(main())


@pytest.mark.parametrize(
    ("header", "suffix"), [("20", " It asks to wait 20 s."), ("soon", ""), ("-1", ""), ("9" * 99, "")]
)
def test_retry_after(header: str, suffix: str) -> None:
    async def main() -> None:
        refusal = Pass(status=429, answer={}, kind=f"application/json\r\nretry-after: {header}")
        async with OpenAIServer(refusal) as server, model_of(server) as model:
            with pytest.raises(ModelError) as caught:
                await collect(model)
            assert caught.value.message == f"The model server takes no more requests at the moment.{suffix}"

    asyncio.run(main())


@both
@pytest.mark.parametrize(
    ("kind_of_answer", "answer", "message"),
    [
        ("text/html; charset=utf-8", b"<html>Welcome to nginx!</html>", "did not answer with a stream"),
        ("application/json", b"", "did not answer with a stream"),
        ("text/event-stream", b"", "broke off"),
    ],
)
def test_an_answer_that_is_no_stream(kind: Kind, kind_of_answer: str, answer: Any, message: str) -> None:
    async def main() -> None:
        async with kind(Pass(answer=answer, kind=kind_of_answer)) as server, model_of(server) as model:
            with pytest.raises(ModelError, match=message) as caught:
                await collect(model)
            assert caught.value.code == "model_failed"

    asyncio.run(main())


# a server that is away, comes late, or stumbles


@both
def test_nobody_there(kind: Any) -> None:
    async def main() -> None:
        async with kind() as server:
            url = server.url
        model = OpenAI(row("openai", url)) if kind is OpenAIServer else Ollama(row("ollama", url))
        for request in (collect(model), model.identify(), collect(model)):
            with pytest.raises(ModelError) as caught:
                await request
            assert (caught.value.code, caught.value.message) == ("model_unreachable", UNREACHABLE)
        with pytest.raises((ModelError, Refused)):
            await model.embed(["a"])
        assert await check_model(model) == UNREACHABLE
        await model.aclose()

    asyncio.run(main())


@both
def test_a_server_that_comes_late_is_identified_then(kind: Any) -> None:
    async def main() -> None:
        away = {next(iter(IDENTITY[kind])): (503, {"error": "Loading model"})}
        async with kind(Pass(["a"]), Pass(["b"]), answers=away) as server, model_of(server) as model:
            with pytest.raises(ModelError, match="could not answer"):
                await model.identify()
            server._answers |= IDENTITY[kind]
            await collect(model)
            assert (model.resume, model.context_tokens) == ("prefill", 32768 if kind is OpenAIServer else 16384)
            await collect(model)
            (identify,) = IDENTITY[kind]
            generate = f"POST {server.generating}"
            assert server.lines == [identify, identify, generate, generate]

    asyncio.run(main())


@both
def test_a_server_that_stumbles_changes_nothing(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PROBE_SECONDS", -1.0)

    async def main() -> None:
        (identify,) = IDENTITY[kind]
        async with (
            kind(Pass(["a"]), answers=IDENTITY[kind]) as server,
            model_of(server, identify=True) as model,
        ):
            known = (model.resume, model.context_tokens, model.sees_images)
            assert await check_model(model) is None
            server._answers[identify] = (503, {})
            assert await check_model(model) == NO_ANSWER
            with pytest.raises(ModelError):
                await model.identify()
            assert (model.resume, model.context_tokens, model.sees_images) == known

    asyncio.run(main())


class Waiting(OpenAIServer):
    """Answers a GET when it is released."""

    def __init__(self, *passes: Pass, **options: Any) -> None:
        super().__init__(*passes, **options)
        self.arrived, self.released = asyncio.Event(), asyncio.Event()

    async def _answer(self, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            self.arrived.set()
            await self.released.wait()
        await super()._answer(asked, reader, writer)


def test_probes_are_shared_and_delay_no_pass() -> None:
    async def main() -> None:
        async with Waiting(Pass(["a"]), answers=IDENTITY[OpenAIServer]) as server, model_of(server) as model:
            cancelled = asyncio.create_task(model.find_problem())
            probes = [asyncio.create_task(model.find_problem()) for _ in range(20)]
            await server.arrived.wait()
            cancelled.cancel()
            assert await collect(model) == ["a", Finish("stop"), PassUsage(10, 3)]
            server.released.set()
            assert await asyncio.gather(*probes) == [None] * 20
            assert server.lines.count("GET /v1/models") <= 2

    asyncio.run(main())


def test_a_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.models.openai.IDENTIFY_SECONDS", 0.05)

    async def main() -> None:
        async with OpenAIServer(silent=True) as server, model_of(server) as model:
            with pytest.raises(ModelError) as caught:
                await model.identify()
            assert (caught.value.code, caught.value.message) == (
                "model_unreachable",
                "The model server does not answer.",
            )

    asyncio.run(main())


# images and embeddings


@both
def test_describe(kind: Kind) -> None:
    async def main() -> None:
        async with kind(Pass([ThinkerRun("look"), "A ", "cat."])) as server, model_of(server) as model:
            assert await model.describe(b"\x89PNG\r\n\x1a\n", "What is it?") == "A cat."
            (message,) = server.generated[0]["messages"]
            assert "iVBORw0KGgo=" in json.dumps(message)

    asyncio.run(main())


EMBEDDING_PATH = {OpenAIServer: "POST /v1/embeddings", OllamaServer: "POST /api/embed"}


def embeddings(*vectors: list[float]) -> tuple[int, Any]:
    return 200, {"embeddings": vectors, "data": [{"embedding": vector} for vector in vectors]}


@both
def test_embeddings(kind: Any) -> None:
    async def main() -> None:
        async with (
            kind(answers={EMBEDDING_PATH[kind]: embeddings([0, 1.5], [2, 3])}) as server,
            model_of(server, embeddings="e") as model,
        ):
            assert await model.embed(["a", "b"]) == [[0.0, 1.5], [2.0, 3.0]]
            assert server.asked[0].body == {"model": "e", "input": ["a", "b"]}

    asyncio.run(main())


@both
@pytest.mark.parametrize("answer", [(404, {}), (501, b""), (200, b"<html>"), (200, {"no": 1}), (200, {"data": [{}]})])
def test_a_server_without_embeddings(kind: Any, answer: tuple[int, Any]) -> None:
    async def main() -> None:
        async with kind(answers={EMBEDDING_PATH[kind]: answer}) as server, model_of(server) as model:
            with pytest.raises(Refused, match="the model server has no embeddings"):
                await model.embed(["a"])
            with pytest.raises(Refused, match="the model server has no embeddings"):
                await model.check_embeddings()

    asyncio.run(main())


def test_embeddings_are_checked_once_with_the_model_that_makes_them() -> None:
    async def main() -> None:
        """Eight questions with their answers: each pair has a direction of its own, but for the last."""
        vectors = [[float(n // 2 == d) for d in range(8)] for n in range(16)]
        vectors[15] = vectors[0]
        answers = {"POST /v1/embeddings": embeddings(*vectors)}
        async with OpenAIServer(answers=answers) as server, model_of(server) as maker, model_of(server) as user:
            user.embedder = maker
            check = await user.check_embeddings()
            assert check is await maker.check_embeddings()
            assert (check.size, check.right, check.is_meaningful) == (8, 7, True)
            assert (check.own, check.other) == (0.875, 1 / 56)
            assert check.key.startswith("openai:m#")
            assert len(server.asked) == 1

    asyncio.run(main())


# closing


@both
def test_closing_the_stream_closes_the_connection(kind: Kind) -> None:
    async def main() -> None:
        answer = Pass(itertools.chain(["[a]"], itertools.repeat("x")))
        async with kind(answer) as server, model_of(server) as model:
            async with aclosing(model.stream(STARTED)) as chunks:
                text = ""
                while "]" not in text:
                    text += str(await anext(chunks))
            await server.served[0].closed.wait()

    asyncio.run(main())


@both
def test_cancelling_a_read_closes_the_connection(kind: Kind) -> None:
    async def main() -> None:
        async with kind(Pass(["[a]", Wait(60)])) as server, model_of(server) as model:
            task = asyncio.create_task(collect(model))
            await server.marked.wait()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            await server.served[0].closed.wait()

    asyncio.run(main())
