import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import playing
import pytest
from answering import Cut, Item, Pass, Raw, ThinkerRun, Wait
from servers import OpenAIServer, models

from brain import specialist
from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Done, Error, Event, Limits, Resume, SpecialistResult, Thinking, Token, Usage
from brain.messages import Chunk, Exchange, Finish, History, Message, NativeCall, PassUsage, PromptProgress, Text
from brain.models import open_models, openai
from brain.models.openai import OpenAI
from brain.plugins.registry import Registry
from brain.settings import read
from brain.turn.turn import Turn
from brain.turn_request import UNSAID, TurnRequest

HELLO = [Message("system", "Be brief."), Message("user", "Hello?")]
STARTED = [*HELLO, Message("assistant", "I will look")]
LLAMA_CPP = models("tiny.gguf", owned_by="llamacpp") | {
    "GET /props": (200, {"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": True}})
}
VLLM = models("m", owned_by="vllm", max_model_len=32768)


@asynccontextmanager
async def model_of(
    server: OpenAIServer, *, identified: bool = True, key: str | None = None, resume: Resume | None = None
) -> AsyncIterator[OpenAI]:
    model = OpenAI("m", server.url, key, resume)
    try:
        if identified:
            await model.identify()
        yield model
    finally:
        await model.aclose()


async def heard(model: OpenAI, messages: Sequence[Message] = HELLO, into: list[Chunk] | None = None) -> list[Chunk]:
    """All chunks of one pass; `into` has them also when it fails."""
    found = [] if into is None else into
    async with aclosing(model.stream(messages)) as chunks:
        async for chunk in chunks:
            found.append(chunk)
    return joined(found)


def joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Neighbouring texts, and neighbouring thoughts, as one."""
    found: list[Chunk] = []
    for chunk in chunks:
        last = found[-1] if found else None
        if isinstance(chunk, str) and isinstance(last, str):
            found[-1] = last + chunk
        elif isinstance(chunk, Thinking) and isinstance(last, Thinking):
            found[-1] = Thinking(last.text + chunk.text)
        else:
            found.append(chunk)
    return found


def decoded(pieces: Sequence[bytes]) -> list[Chunk | str]:
    """What the decoder makes of a body that comes in these pieces; an error as its code."""
    reply, found = openai.reply(), list[Chunk]()
    for piece in pieces:
        found += reply.feed(piece)
    found += reply.close()
    return [*joined(found), f"<{reply.error.code}>"] if reply.error else list(joined(found))


def splits(data: bytes) -> Iterator[list[bytes]]:
    yield [data]
    for place in range(1, len(data)):
        yield [data[:place], data[place:]]
    yield [data[place : place + 1] for place in range(len(data))]


def frames(*chunks: Any) -> bytes:
    return b"".join(b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n" for c in chunks)


def delta(**fields: Any) -> Any:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}], "usage": None}


def tool(index: int = 0, id: str | None = None, **function: Any) -> Any:
    return delta(tool_calls=[{"index": index, **({"id": id} if id else {}), "function": function}])


def other(index: int, **fields: Any) -> Any:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": None}], "usage": None}


IMPOSSIBLE: list[Any] = [2**63, 2**200, -5, 7.0, "7", True, [], None]
"""As numbers of tokens."""


def finish(reason: str) -> Any:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def usage(**fields: Any) -> Any:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, **fields}}


STOP = finish("stop")
DONE = b"[DONE]"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (frames(delta(content="Hel"), delta(content="lo"), STOP, DONE), ["Hello", Finish("stop")]),
        (frames(delta(role="assistant", content=""), delta(role="assistant", content=None), delta(content="a"), STOP),
         ["a", Finish("stop")]),
        (frames(delta(content="a"), finish("length"), usage(), DONE), ["a", Finish("length"), PassUsage(7, 2)]),
        (frames(delta(content="a"), STOP, usage(prompt_tokens_details={"cached_tokens": 5}), DONE),
         ["a", Finish("stop"), PassUsage(7, 2, 5)]),
        (frames(delta(content="a"), STOP, usage(prompt_tokens_details=None), DONE),
         ["a", Finish("stop"), PassUsage(7, 2)]),
        (frames(STOP, usage(prompt_tokens_details={"cached_tokens": None, "audio_tokens": 0}), DONE),
         [Finish("stop"), PassUsage(7, 2)]),
        # llama.cpp says in its timings what it had in its cache
        (frames(STOP, {**usage(), "timings": {"cache_n": 6, "prompt_n": 1, "predicted_ms": 3.5}}, DONE),
         [Finish("stop"), PassUsage(7, 2, 6)]),
        # counts that run along: the last one counts
        (frames({**delta(content="a"), "usage": {"prompt_tokens": 7, "completion_tokens": 1}},
                {**delta(content="b"), "usage": {"prompt_tokens": 7, "completion_tokens": 2}}, STOP),
         None),
        # the three names of reasoning
        (frames(delta(reasoning_content="h"), delta(reasoning="m"), delta(thinking="m"), delta(content="a"), STOP),
         [Thinking("hmm"), "a", Finish("stop")]),
        (frames(delta(content="a"), delta(reasoning_content="b", content="c"), delta(content="d"), STOP),
         ["a", Thinking("b"), "cd", Finish("stop")]),
        (frames(delta(reasoning_content="", content="a"), delta(reasoning=None, content="b"), STOP),
         ["ab", Finish("stop")]),
        # Mistral's models that reason
        (frames(delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
                delta(content=[{"type": "text", "text": "a"}, {"type": "reference"}]), delta(content="b"), STOP),
         [Thinking("hm"), "ab", Finish("stop")]),
        (frames(delta(content=["a", "", 7, {"thinking": "b"}]), STOP), ["a", Finish("stop")]),
        # text and reason in one chunk
        (frames({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}, DONE), ["a", Finish("stop")]),
        (frames(delta(content="a"), finish("content_filter")), ["a", Finish("stop")]),
        (frames(delta(content="a"), finish("tool_calls")), ["a", Finish("stop")]),
        # tool calls: in pieces, whole, side by side, without an index that tells them apart, in the older form
        (frames(tool(id="c1", name="add", arguments=""), tool(arguments='{"a"'), tool(arguments=":1}"),
                finish("tool_calls"), DONE), [NativeCall("add", '{"a":1}'), Finish("stop")]),
        (frames(tool(id="c1", name="a", arguments="{}"), tool(1, id="c2", name="b", arguments='{"x":'),
                tool(1, id="c2", name="b", arguments="1}"), finish("tool_calls")),
         [NativeCall("a", "{}"), NativeCall("b", '{"x":1}'), Finish("stop")]),
        (frames(tool(id="c1", name="a", arguments="{}"), tool(id="c2", name="a", arguments={"x": 1}), DONE),
         [NativeCall("a", "{}"), NativeCall("a", '{"x":1}')]),
        (frames(delta(content="Hm"), delta(function_call={"name": "a", "arguments": ""}),
                delta(function_call={"arguments": "{}"}), finish("function_call")),
         ["Hm", NativeCall("a", "{}"), Finish("stop")]),
        (frames(delta(tool_calls="x"), delta(tool_calls=[7, {}, {"function": 7}, {"function": {"name": 7}}]),
                delta(content="a"), STOP), ["a", Finish("stop")]),
        # other choices than the first
        (frames(other(1, content="no"), delta(content="a"), other(1, content="no"), other(2, content="no"),
                {"choices": [*other(1, content="no")["choices"], *delta(content="b")["choices"]]},
                {"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}, delta(content="c"), STOP, DONE),
         ["abc", Finish("stop")]),
        # impossible values beside the text
        *[(frames({**delta(content="a"), "id": [], "created": "now"}, STOP, usage(**bad), DONE), ["a", Finish("stop")])
          for value in IMPOSSIBLE for bad in ({"prompt_tokens": value},
                                                                              {"completion_tokens": value})],
        (frames(delta(content="a"), STOP, b'{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":1}}', DONE),
         ["a", Finish("stop")]),
        (frames(delta(content="a"), STOP, b'{"usage":{"prompt_tokens":%b,"completion_tokens":1}}' % (b"9" * 5000)),
         ["a", Finish("stop")]),
        (frames(delta(content="a"), STOP, {"usage": 7}, {"usage": {}}), ["a", Finish("stop")]),
        (frames(delta(content="a"), STOP, {**usage(prompt_tokens_details={"cached_tokens": -1}),
                                           "timings": {"cache_n": "x"}}), ["a", Finish("stop"), PassUsage(7, 2)]),
        (frames({"choices": [{"index": "0", "delta": {"content": "a"}, "finish_reason": 7}]}, DONE),
         ["a", Finish("stop")]),
        # after the end nothing counts
        (frames(delta(content="a"), STOP, DONE, delta(content="b")), ["a", Finish("stop")]),
        (frames(delta(content="a"), DONE), ["a"]),
        (frames(delta(content="a"), b" [DONE] "), ["a"]),
        # what is no text
        (b": keep-alive\n\n" + frames(delta(content="a")) + b": x\n\nevent: ping\n\ndata\n\ndata:\n\n" + frames(STOP),
         ["a", Finish("stop")]),
        (frames({"type": "ping"}, {"choices": None}, {"choices": []}, {"choices": [{}]}, {"choices": [{"delta": None}]},
                {"id": 1, "object": [], "model": {"a": None}}, delta(content="a", tool_calls=[{"index": 0}]), STOP),
         ["a", Finish("stop")]),
        (b'id: 1\nretry: 5\nevent: message\ndata: {"choices":\r\ndata: [{"delta":\rdata: {"content":"a"}}]}\n\n',
         ["a"]),
        (b"data:" + json.dumps(delta(content="a")).encode() + b"\r\n\r\n", ["a"]),
        (b"data:  " + json.dumps(delta(content="a")).encode() + b"\n\n", ["a"]),
        (b"\xef\xbb\xbf" + frames(delta(content="a"), STOP), ["a", Finish("stop")]),
        # characters
        (b'data: {"choices":[{"delta":{"content":"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8\xc2\x85"}}]}\n\n',
         ["ä€😀\u2028\u0085"]),
        (b'data: {"choices":[{"delta":{"content":"\\ud83d\\ude00"}}]}\n\n', ["😀"]),
        (b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
         b'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n', ["a😀b"]),
        (b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
         b'data: {"choices":[{"delta":{"content":"b\\ude00c"}}]}\n\n', ["a\ufffdb\ufffdc"]),
        (b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n' + frames(STOP), ["a\ufffd", Finish("stop")]),
        (b'data: {"choices":[{"delta":{"reasoning":"\\ud83d"}}]}\n\n'
         b'data: {"choices":[{"delta":{"reasoning":"\\ude00"}}]}\n\n', [Thinking("😀")]),
        (b'data: {"choices":[{"delta":{"content":"a\xffb\xc3"}}]}\n\n' + frames(STOP),
         ["a\ufffdb\ufffd", Finish("stop")]),
        # llama.cpp reads the prompt; numbers that make no sense are passed over
        (frames({**delta(role="assistant", content=None), "prompt_progress": {"total": 9, "cache": 2, "processed": 2}},
                {**delta(role="assistant"), "prompt_progress": {"total": 9, "cache": 2, "processed": 9, "time_ms": 5}},
                delta(content="a"), STOP),
         [PromptProgress(0, 7, 2), PromptProgress(7, 7, 2), "a", Finish("stop")]),
        (frames(*({**delta(role="assistant"), "prompt_progress": said} for said in (
                    7, {}, {"total": 9}, {"total": 9, "cache": 0, "processed": 10},
                    {"total": 9, "cache": -1, "processed": 3}, {"total": 2**63, "cache": 0, "processed": 3},
                    {"total": "9", "cache": 0, "processed": 3}, {"total": 9, "cache": 4, "processed": 3},
                    {"total": 1e9, "cache": 0.5, "processed": True})),
                delta(content="a"), STOP),
         ["a", Finish("stop")]),
        # errors, behind what was said before them
        (frames(delta(content="a"), {"error": {"message": "CUDA", "type": "x", "code": 500}}, delta(content="b")),
         ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"error": {"message": "maximum context length is 8 tokens"}}),
         ["a", "<model_context>"]),
        (frames(delta(content="a")) + b'event: error\ndata: {"error": "boom"}\n\n', ["a", "<model_failed>"]),
        (frames(delta(content="a"), b"{"), ["a", "<model_failed>"]),
        (frames(delta(content="a"), b"Internal Server Error"), ["a", "<model_failed>"]),
        (frames(delta(content="a"), [1]), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"choices": 7}), ["a", "<model_failed>"]),
        (frames({"error": None}, {"error": {}}, delta(content="a")), ["a"]),
    ],
)  # fmt: skip
def test_a_body_is_read_the_same_however_it_is_cut(body: bytes, expected: list[Any] | None) -> None:
    for pieces in splits(body):
        found = decoded(pieces)
        if expected is None:  # counts come once a read, so only the whole has a literal expectation
            assert joined([c for c in found if not isinstance(c, PassUsage)]) == ["ab", Finish("stop")]
            assert [c for c in found if isinstance(c, PassUsage)][-1] == PassUsage(7, 2)
        else:
            assert found == expected, pieces


def test_a_body_whose_json_has_no_end_of_depth_fails_in_a_sentence() -> None:
    body = b'data: {"error": ' + b"[" * 100_000 + b"\n\n"
    assert decoded([body]) == ["<model_failed>"]
    assert decoded([b'data: {"other": ' + b"[" * 100_000 + b"\n\n"]) == ["<model_failed>"]


def test_texts_of_one_read_are_one_chunk() -> None:
    reply = openai.reply()
    body = frames(delta(reasoning="a"), delta(reasoning="b"), delta(content="c"), delta(content="d"), STOP, usage())
    assert list(reply.feed(body)) == [Thinking("ab"), "cd", Finish("stop"), PassUsage(7, 2)]


WHOLE: Sequence[tuple[Pass, list[Chunk]]] = [
    (Pass(["Hel", "lo ", "wörld 😀"]), ["Hello wörld 😀", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hel", "lo"], piece=1), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["ä€", "😀"], piece=7), ["ä€😀", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hel", "lo"], piece=-1), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hel", "lo"], newline=b"\r\n"), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hel", "lo"], newline=b"\r\n", piece=1), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hel", "lo"], newline=b"\r", piece=5), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hello"], done=False), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass(["Hello"], usage=None), ["Hello", Finish("stop")]),
    (Pass(["Hello"], usage=None, finish=None), ["Hello"]),
    (Pass(["Hello"], usage=(10, 3, 8), finish="length"), ["Hello", Finish("length"), PassUsage(10, 3, 8)]),
    (Pass([Raw(b": keep-alive\n\n"), "Hello", Raw(b":\n\n")]), ["Hello", Finish("stop"), PassUsage(10, 3)]),
    (Pass([ThinkerRun("h"), ThinkerRun("m", "reasoning"), ThinkerRun("m", "thinking"), "Hello"]),
     [Thinking("hmm"), "Hello", Finish("stop"), PassUsage(10, 3)]),
    # what breaks behind the end of the answer does no harm
    (Pass(["Hello", Raw(frames(STOP)), Cut()], finish=None), ["Hello", Finish("stop")]),
    (Pass(["Hello", Raw(frames(STOP)), Cut(reset=True)], finish=None), ["Hello", Finish("stop")]),
]  # fmt: skip


@pytest.mark.parametrize(("told", "expected"), WHOLE)
def test_a_pass_over_the_wire(told: Pass, expected: list[Chunk]) -> None:
    async def main() -> None:
        async with OpenAIServer(told) as server, model_of(server, identified=False) as model:
            assert await heard(model) == expected
            assert server.lines == ["POST /v1/chat/completions"]

    asyncio.run(main())


def test_the_first_request_literally() -> None:
    async def main() -> None:
        async with OpenAIServer(Pass(["Hi"])) as server, model_of(server, identified=False, key="sk-1") as model:
            await heard(model, [*HELLO, Message("user", "See?", (b"\xff\xd8\xff", b"??"))])
            (asked,) = server.asked
            assert asked.body == {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hello?"},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "See?"},
                            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/"}},
                            {"type": "image_url", "image_url": {"url": "data:image/png;base64,Pz8="}},
                        ],
                    },
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            assert asked.headers["authorization"] == "Bearer sk-1"
            assert asked.headers["content-type"] == "application/json"
            assert asked.headers["accept-encoding"] == "identity"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answers", "said", "resume", "request_fields", "message_fields", "context", "sees"),
    [
        (LLAMA_CPP, "llama.cpp server", "prefill",
         {"chat_template_kwargs": {"enable_thinking": False}}, {}, 8192, True),
        (VLLM, "vLLM server", "prefill",
         {"continue_final_message": True, "add_generation_prompt": False}, {}, 32768, False),
        (models("other", "m", owned_by="sglang"), "SGLang server", "prefill",
         {"continue_final_message": True, "add_generation_prompt": False}, {}, None, False),
        (models("m", owned_by="organization_owner"), "unknown server", "message",
         {}, {}, None, False),
        ({}, "unknown server", "message", {}, {}, None, False),
        ({"GET /v1/models": (200, b"<html>")}, "unknown server", "message", {}, {}, None, False),
        ({"GET /v1/models": (200, [1])}, "unknown server", "message", {}, {}, None, False),
        ({"GET /v1/models": (200, {"data": [1, {}]})}, "unknown server", "message",
         {}, {}, None, False),
        ({"GET /v1/models": (200, {"data": 7})}, "unknown server", "message", {}, {}, None, False),
        (models("m", owned_by="x", max_context_length=131072, capabilities={"vision": True}),
         "unknown server", "message", {}, {}, 131072, True),
        (models("m", owned_by="x", context_length=9, architecture={"input_modalities": ["text", "image"]}),
         "unknown server", "message", {}, {}, 9, True),
        # what is said of other models is not said of this one
        (models("a", "b", owned_by="x", max_model_len=9, capabilities={"vision": True}),
         "unknown server, which does not list m, but a, b", "message", {}, {}, None, False),
        # as llama.cpp's router mode says it
        (models("a", owned_by="llamacpp") | {"GET /props": (200, {"default_generation_settings": {"n_ctx": 0}})},
         "llama.cpp server", "prefill", {"chat_template_kwargs": {"enable_thinking": False}}, {}, None, False),
        (models("a", owned_by="llamacpp") | {"GET /props": (404, {})}, "llama.cpp server",
         "prefill", {"chat_template_kwargs": {"enable_thinking": False}}, {}, None, False),
    ],
)  # fmt: skip
def test_a_server_is_known_by_free_gets_and_gets_its_dialect(
    answers: Mapping[str, tuple[int, Any]],
    said: str,
    resume: str,
    request_fields: dict[str, Any],
    message_fields: dict[str, Any],
    context: int | None,
    sees: bool,
) -> None:
    async def main() -> None:
        async with (
            OpenAIServer(Pass(["a"]), Pass(["b"]), answers=answers) as server,
            model_of(server, identified=False) as model,
        ):
            assert await model.identify() == said + ("; it sees images" if sees else "")
            assert {asked.method for asked in server.asked} == {"GET"}
            assert (model.resume, model.context_tokens, model.sees_images) == (resume, context, sees)
            await heard(model)
            await heard(model, STARTED)
            first, second = server.generated
            always = {"return_progress": True} if said == "llama.cpp server" else {}
            assert first.keys() == {"model", "messages", "stream", "stream_options", *always}
            assert second == {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hello?"},
                    {"role": "assistant", "content": "I will look", **message_fields},
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
                **always,
                **request_fields,
            }

    asyncio.run(main())


@pytest.mark.parametrize(("wanted", "said"), [("yes", True), ("no", False), ("auto", False)])
def test_the_operator_may_say_whether_the_model_sees(wanted: str, said: bool) -> None:
    async def main() -> None:
        async with OpenAIServer(answers=models("m", owned_by="vllm")) as server:
            environ = {"BRAIN_MODEL": "openai:m", "BRAIN_MODEL_URL": server.url, "BRAIN_MODEL_SEES_IMAGES": wanted}
            (found,) = await open_models(read(environ), ())
            assert (found.model.sees_images, found.reason.endswith("; it sees images")) == (said, said)
            await found.model.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "dialect", "message_fields"),
    [
        ("https://api.mistral.ai/v1", "Mistral", {"prefix": True}),
        ("https://api.deepseek.com/beta", "DeepSeek", {"prefix": True}),
        ("https://api.deepseek.com/beta/v1", "DeepSeek", {"prefix": True}),
        ("https://api.deepseek.com/v1", "unknown", {}),
        ("https://openrouter.ai/api/v1", "OpenRouter", {}),
        ("https://api.openai.com/v1", "OpenAI", {}),
        ("https://api.mistral.ai.example/v1", "unknown", {}),
        ("http://127.0.0.1:1/api.mistral.ai/v1", "unknown", {}),
    ],
)
def test_hosted_servers_are_known_by_their_address(
    url: str, dialect: str, message_fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.net.client._proxied", lambda url: False)
    monkeypatch.setattr("brain.net.client.Transport", lambda: httpx.MockTransport(lambda request: httpx.Response(404)))

    async def main() -> None:
        model = OpenAI("m", url)
        assert await model.identify() == f"{dialect} server"
        body = json.loads(model._request(STARTED, UNSAID))
        await model.aclose()
        assert model.resume == ("message" if dialect in ("unknown", "OpenAI") else "prefill")
        assert body["messages"][-1] == {"role": "assistant", "content": "I will look", **message_fields}

    asyncio.run(main())


@pytest.mark.parametrize("asked_for", ["prefill", None])
def test_a_400_on_a_prefill_switches_for_good(asked_for: Resume | None) -> None:
    async def main() -> None:
        async with (
            OpenAIServer(answers=VLLM, refuses_prefill="conversation must end with a user message") as server,
            model_of(server, resume=asked_for) as model,
        ):
            resumed = [model.resume]
            with pytest.raises(PrefillRefused):
                await heard(model, STARTED)
            resumed.append(model.resume)
            await model.identify()  # as readiness checks do again and again
            assert [*resumed, model.resume] == ["prefill", "message", "message"]

    asyncio.run(main())


@pytest.mark.parametrize("wanted", ["prefill", "message"])
def test_the_operator_says_how_to_resume(wanted: Resume) -> None:
    async def main() -> None:
        for answers in (VLLM, {}):
            async with OpenAIServer(answers=answers) as server, model_of(server, resume=wanted) as model:
                assert model.resume == wanted

    asyncio.run(main())


UNREACHABLE = "The model server cannot be reached."
BROKE = "The connection to the model server broke in the middle of its answer."
TOO_LONG = "The conversation is too long for the model; begin a new one, or ask for less."


@pytest.mark.parametrize(
    ("status", "answer", "code", "message"),
    [
        (400, {"error": {"message": "bad sampler"}}, "model_failed", "The model server could not answer."),
        (401, {"error": {"message": "Incorrect API key provided: sk-1"}}, "model_failed",
         "The model server refused Brain's key."),
        (403, b"no", "model_failed", "The model server refused Brain's key."),
        (404, {"error": {"message": "The model `m` does not exist"}}, "model_failed",
         "The model server does not have this model."),
        (429, {"error": {"message": "too many tokens a minute"}}, "model_failed",
         "The model server takes no more requests at the moment."),
        (500, b"\xff\xfe" * 1_000_000, "model_failed", "The model server could not answer."),
        (503, {"error": {"message": "Loading model"}}, "model_failed", "The model server could not answer."),
        (307, b"", "model_failed", "The model server could not answer."),
        (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages "
                                    "resulted in 9000 tokens.", "code": "context_length_exceeded"}},
         "model_context", TOO_LONG),
        (400, {"error": {"message": "Input tokens exceed the configured limit", "code": "context_length_exceeded"}},
         "model_context", TOO_LONG),
        (400, {"error": {"code": 400, "message": "request (5000 tokens) exceeds the available context size "
                                                 "(4096 tokens), try increasing it",
                         "type": "exceed_context_size_error"}}, "model_context", TOO_LONG),
        (400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model "
                                             "length of 4096."}, "model_context", TOO_LONG),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, "model_context", TOO_LONG),
        (413, {"error": {"message": "Please reduce the length of the messages or completion."}}, "model_context",
         TOO_LONG),
        (404, {"error": {"message": "no model with this context length"}}, "model_failed",
         "The model server does not have this model."),
    ],
)  # fmt: skip
def test_a_refusal_in_a_sentence_of_our_own(status: int, answer: Any, code: str, message: str) -> None:
    async def main() -> None:
        async with (
            OpenAIServer(Pass(status=status, answer=answer)) as server,
            model_of(server, identified=False, key="sk-1") as model,
        ):
            with pytest.raises(ModelError) as raised:
                await heard(model)
            assert not isinstance(raised.value, PrefillRefused)
            assert (raised.value.code, raised.value.message, raised.value.status) == (code, message, status)
            assert len(str(raised.value)) < 5000

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "answer", "kind", "code"),
    [
        (400, {"error": {"message": "exceeds the available context size"}}, ModelError, "model_context"),
        (400, {"error": {"message": "Assistant response prefill is incompatible with enable_thinking"}},
         PrefillRefused, "model_failed"),
        (422, {"detail": "last message must be of the user"}, PrefillRefused, "model_failed"),
        (500, {"error": "boom"}, ModelError, "model_failed"),
    ],
)  # fmt: skip
def test_a_refusal_of_a_started_answer(status: int, answer: Any, kind: type[ModelError], code: str) -> None:
    async def main() -> None:
        async with OpenAIServer(Pass(status=status, answer=answer), answers=VLLM) as server, model_of(server) as model:
            with pytest.raises(ModelError) as raised:
                await heard(model, STARTED)
            assert type(raised.value) is kind
            assert raised.value.code == code
            assert model.resume == ("message" if kind is PrefillRefused else "prefill")

    asyncio.run(main())


@pytest.mark.parametrize(("wait", "told"), [("20", " It asks to wait 20 s."), ("soon", ""), ("-1", ""), ("9" * 99, "")])
def test_how_long_a_server_asks_to_wait(wait: str, told: str) -> None:
    async def main() -> None:
        refused = Pass(status=429, answer={}, kind=f"application/json\r\nretry-after: {wait}")
        async with OpenAIServer(refused) as server, model_of(server) as model:
            with pytest.raises(ModelError) as raised:
                await heard(model)
            assert raised.value.message == f"The model server takes no more requests at the moment.{told}"

    asyncio.run(main())


BROKEN: list[tuple[list[Item], str]] = [
    (["Hel", "lo", Cut()], BROKE),
    (["Hel", "lo", Cut(reset=True)], BROKE),
    (["Hello"], "The model server broke off in the middle of its answer."),
    (["Hello", Raw(frames({"error": {"message": "secret sk-1 at 10.0.0.1"}}))],
     "The model failed in the middle of its answer."),
    (["Hello", Raw(b"data: secret\n\n")], "The model server sent something unreadable."),
]  # fmt: skip


@pytest.mark.parametrize(("told", "message"), BROKEN)
def test_an_answer_that_breaks_off_is_told_so_far(told: list[Item], message: str) -> None:
    async def main() -> None:
        broken = Pass(told, finish=None, usage=None, done=False)
        async with OpenAIServer(broken) as server, model_of(server, identified=False) as model:
            said: list[Chunk] = []
            with pytest.raises(ModelError) as raised:
                await heard(model, into=said)
            assert joined(said) == ["Hello"]
            assert (raised.value.code, raised.value.message) == ("model_failed", message)

    asyncio.run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with OpenAIServer() as server:
            url = server.url
        model = OpenAI("m", url, "sk-1")
        for asked in (heard(model), model.identify(), heard(model), model.embed(["a"])):
            with pytest.raises(ModelError) as raised:
                await asked
            assert (raised.value.code, raised.value.message) == ("model_unreachable", UNREACHABLE)
        await model.aclose()

    asyncio.run(main())


def test_a_server_that_comes_late_is_asked_then_what_it_is() -> None:
    async def main() -> None:
        answers: dict[str, tuple[int, Any]] = {"GET /v1/models": (503, {"error": {"message": "Loading model"}})}
        async with OpenAIServer(Pass(["a"]), Pass(["b"]), answers=answers) as server:
            model = OpenAI("m", server.url)
            with pytest.raises(ModelError, match="could not answer"):
                await model.identify()
            server._answers |= VLLM
            await heard(model)
            assert model.resume == "prefill"
            await heard(model)
            await model.aclose()
            assert server.lines == [
                "GET /v1/models",
                "GET /v1/models",
                "POST /v1/chat/completions",
                "POST /v1/chat/completions",
            ]

    asyncio.run(main())


def test_what_is_known_stays_when_the_server_stumbles() -> None:
    async def main() -> None:
        answers = dict(LLAMA_CPP)
        async with OpenAIServer(Pass(["a"]), answers=answers) as server, model_of(server) as model:
            for status in (404, 503):
                server._answers |= {"GET /v1/models": (status, {})}
                model._probed = None
                await model.find_problem()
                assert (model.resume, model.context_tokens, model.sees_images) == ("prefill", 8192, True)
            await heard(model)  # asks nothing first
            assert server.lines[-2:] == ["GET /v1/models", "POST /v1/chat/completions"]
            server._answers |= {**LLAMA_CPP, "GET /props": (503, {})}
            with pytest.raises(ModelError):
                await model.identify()
            assert (model.resume, model.context_tokens, model.sees_images) == ("prefill", 8192, True)

    asyncio.run(main())


class Busy(OpenAIServer):
    """Answers a GET when it is told to."""

    free: asyncio.Event

    async def _answer(self, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            await self.free.wait()
        await super()._answer(asked, reader, writer)


def test_a_pass_does_not_wait_for_a_probe() -> None:
    async def main() -> None:
        async with Busy(Pass(["a"]), answers=VLLM) as server, model_of(server, identified=False) as model:
            server.free = asyncio.Event()
            probe = asyncio.create_task(model.find_problem())
            await asyncio.sleep(0.02)
            assert await heard(model) == ["a", Finish("stop"), PassUsage(10, 3)]
            assert not probe.done()
            server.free.set()
            assert await probe is None

    asyncio.run(main())


def test_probes_ask_the_server_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with OpenAIServer(answers=VLLM) as server, model_of(server, identified=False) as model:
            given_up = asyncio.create_task(model.find_problem())
            await asyncio.sleep(0)
            given_up.cancel()
            assert await asyncio.gather(*(model.find_problem() for _ in range(20))) == [None] * 20
            asked = len(server.lines)
            assert asked <= 2
            server._answers |= {"GET /v1/models": (503, {})}
            assert await model.find_problem() is None
            monkeypatch.setattr("brain.models.remote.PROBE_SECONDS", 0.0)
            assert await model.find_problem() == "The model server could not answer."
            assert len(server.lines) == asked + 1

    asyncio.run(main())


OTHERS = "does not list m, but a, b"


@pytest.mark.parametrize(
    ("answers", "said", "warning"),
    [
        (models("a", "b", owned_by="vllm"), f"vLLM server, which {OTHERS}", f"The model server {OTHERS}."),
        (models("a", "b", owned_by="sglang"), f"SGLang server, which {OTHERS}", None),
        (models("a", "b", owned_by="x"), f"unknown server, which {OTHERS}", None),
        (models(*"abcdefg", owned_by="x"), "unknown server, which does not list m, but a, b, c, d, e and 2 more", None),
        (models("a", "b", owned_by="llamacpp"), "llama.cpp server", None),
        (models("a", "m", owned_by="vllm"), "vLLM server", None),
        (models("a", owned_by="vllm", aliases=["m"]), "vLLM server", None),
        (models("openai/*", owned_by="x"), "unknown server", None),
        (models("*", owned_by="vllm"), "vLLM server", None),
        (models(owned_by="vllm"), "unknown server", None),
        ({"GET /v1/models": (200, {"data": [{"id": 7, "owned_by": "vllm"}]})}, "vLLM server", None),
    ],
)
def test_a_model_that_is_not_listed(answers: Mapping[str, tuple[int, Any]], said: str, warning: str | None) -> None:
    async def main() -> None:
        async with OpenAIServer(answers=answers) as server:
            settings = read({"BRAIN_MODEL": "openai:m", "BRAIN_MODEL_URL": server.url})
            (one,) = await open_models(settings, ())
            await one.model.aclose()
            assert (one.reason, one.problem) == (f"it was asked for; {said}", warning)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("text/html; charset=utf-8", b"<html>Welcome to nginx!</html>"),
        ("application/json", {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}),
        ("application/json", b""),
        ("text/plain", b"It works!"),
    ],
)
def test_an_answer_that_is_no_stream_says_where_to_look(kind: str, answer: Any) -> None:
    async def main() -> None:
        async with (
            OpenAIServer(Pass(answer=answer, kind=kind)) as server,
            model_of(server, identified=False) as model,
        ):
            with pytest.raises(ModelError) as raised:
                await heard(model)
            assert (raised.value.code, raised.value.message) == (
                "model_failed",
                "The model server did not answer with a stream; check its URL in the settings.",
            )

    asyncio.run(main())


def test_a_stream_that_ends_before_it_begins_broke_off() -> None:
    async def main() -> None:
        told = Pass(answer=b": hold on\n\n", kind="text/event-stream")
        async with OpenAIServer(told) as server, model_of(server, identified=False) as model:
            with pytest.raises(ModelError, match="broke off"):
                await heard(model)

    asyncio.run(main())


def test_a_server_that_takes_no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with OpenAIServer(silent=True) as server, model_of(server, identified=False) as model:
            monkeypatch.setattr("brain.models.openai.IDENTIFY_SECONDS", 0.05)
            with pytest.raises(ModelError) as raised:
                await model.identify()
            assert (raised.value.code, raised.value.message) == (
                "model_unreachable",
                "The model server does not answer.",
            )

    asyncio.run(main())


def test_a_key_that_is_refused_is_said_at_the_start() -> None:
    async def main() -> None:
        async with OpenAIServer(answers={"GET /v1/models": (401, {"error": "sk-1?"})}) as server:
            model = OpenAI("m", server.url, "sk-1")
            with pytest.raises(ModelError) as raised:
                await model.identify()
            await model.aclose()
            assert raised.value.message == "The model server refused Brain's key."

    asyncio.run(main())


def test_describe_shows_the_image_and_gives_the_text() -> None:
    async def main() -> None:
        told = Pass([ThinkerRun("look"), "A ", "cat."])
        async with OpenAIServer(told) as server, model_of(server, identified=False) as model:
            assert await model.describe(b"\x89PNG\r\n\x1a\n", "What is it?") == "A cat."
            (body,) = server.generated
            assert body["messages"] == [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                    ],
                }
            ]

    asyncio.run(main())


def test_embed() -> None:
    async def main() -> None:
        answer = {"data": [{"index": 0, "embedding": [0, 1.5]}, {"index": 1, "embedding": [2, 3]}]}
        async with (
            OpenAIServer(answers={"POST /v1/embeddings": (200, answer)}) as server,
            model_of(server, identified=False) as model,
        ):
            assert await model.embed(["a", "b"]) == [[0.0, 1.5], [2.0, 3.0]]
            assert server.asked[0].body == {"model": "m", "input": ["a", "b"]}

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [(404, {}), (200, b"<html>"), (200, {"data": [{}]}), (200, {"error": "x"}), (501, b"")]
)
def test_a_server_without_embeddings_says_so(answer: tuple[int, Any]) -> None:
    async def main() -> None:
        async with (
            OpenAIServer(answers={"POST /v1/embeddings": answer}) as server,
            model_of(server, identified=False) as model,
        ):
            with pytest.raises(Refused, match="the model server has no embeddings"):
                await model.embed(["a"])

    asyncio.run(main())


@pytest.mark.alone
def test_closing_the_stream_closes_the_connection() -> None:
    async def main() -> None:
        told = Pass(itertools.chain(["[a]"], itertools.repeat("x")), every=0.002)
        async with OpenAIServer(told) as server, model_of(server, identified=False) as model:
            async with aclosing(model.stream(HELLO)) as chunks:
                text = ""
                while "]" not in text:
                    text += str(await anext(chunks))
            await asyncio.wait_for(server.served[0].closed.wait(), 1)
            assert server.served[0].seconds_until_closed < 0.1

    asyncio.run(main())


def test_cancelling_a_wait_closes_the_connection() -> None:
    async def main() -> None:
        async with OpenAIServer(Pass(["[a]", Wait(60)])) as server, model_of(server, identified=False) as model:
            task = asyncio.create_task(heard(model))
            await server.marked.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            await asyncio.wait_for(server.served[0].closed.wait(), 1)

    asyncio.run(main())


# Whole turns


@specialist(read_only=True)
def weather(city: str) -> str:
    """Weather in a city."""
    return f"Sunny in {city}."


MARKER = 'SPECIALIST_REQUEST[weather:{"city":"Oslo"}]'
BLOCK = "[SPECIALIST_RESULT: weather]\nSunny in Oslo.\n[/SPECIALIST_RESULT]"


def turn(model: OpenAI) -> Turn:
    registry = Registry()
    registry.add(weather)
    ask = TurnRequest(message="Weather?", user="me", limits=Limits(), syntax=("bracket",), time_zone="UTC")
    return Turn(ask, History("c"), model, registry, silence=5.0)


async def events(of: Turn) -> list[Event]:
    return await playing.read(of)


@pytest.mark.alone
def test_a_turn_closes_the_stream_at_the_marker_and_goes_on_from_there() -> None:
    async def main() -> None:
        pieces = ["Let me ", "look. ", "SPECIALIST_", 'REQUEST[weather:{"city":', '"Oslo"}]']
        first = Pass(itertools.chain(pieces, itertools.repeat(" and on")), every=0.002)
        second = Pass(["It is ", "sunny."], usage=(40, 4, 30), echo=True)
        async with (
            OpenAIServer(first, second, answers=LLAMA_CPP, marker=MARKER) as server,
            model_of(server) as model,
        ):
            of = turn(model)
            found = await events(of)
            served = server.served[0]
            assert served.seconds_until_closed < 0.1
            assert served.tokens_after_marker < 40
            system, question = server.generated[0]["messages"]
            assert question == {"role": "user", "content": "Weather?"}
            assert server.generated[1]["messages"] == [
                system,
                question,
                {"role": "assistant", "content": f"Let me look. {MARKER}\n\n{BLOCK}\n\n"},
            ]
            assert "".join(e.text for e in found if isinstance(e, Token)) == "Let me look. It is sunny."
            assert [e.text for e in found if isinstance(e, SpecialistResult)] == ["Sunny in Oslo."]
            *_, counted, done = found
            assert isinstance(done, Done)
            assert (done.stop_reason, done.calls, done.passes) == ("complete", 1, 2)
            assert isinstance(counted, Usage)
            assert counted.estimated  # the first pass was closed before the server could count
            assert counted.completion_tokens >= 4
            assert counted.reused_tokens == 30
            assert server.lines.count("POST /v1/chat/completions") == 2

    asyncio.run(main())


def test_a_turn_sums_up_what_the_server_counted() -> None:
    async def main() -> None:
        passes = (
            Pass(["Look. ", MARKER], usage=(100, 7, None), piece=-1),
            Pass([MARKER], usage=(120, 5, 90), piece=-1),
            Pass(["Sunny."], usage=(130, 3, 110)),
        )
        async with OpenAIServer(*passes, answers=VLLM) as server, model_of(server) as model:
            found = await events(turn(model))
            assert found[-2] == Usage(350, 15, 200, estimated=False)
            assert server.generated[1]["continue_final_message"] is True
            assert server.generated[1]["add_generation_prompt"] is False
            assert "continue_final_message" not in server.generated[0]

    asyncio.run(main())


def test_a_turn_goes_on_by_message_where_prefill_is_unknown_or_refused() -> None:
    async def main(server: OpenAIServer, refused: int) -> None:
        async with server, model_of(server) as model:
            found = await events(turn(model))
            assert isinstance(found[-1], Done)
            assert found[-1].text == "Look. Sunny."
            assert server.generated[-1]["messages"][2:] == [
                {"role": "assistant", "content": f"Look. {MARKER}"},
                {"role": "user", "content": f"{BLOCK}\n\nContinue."},
            ]
            assert len(server.generated) == 2 + refused

    passes = (Pass(["Look. ", MARKER]), Pass(["Sunny."]))
    asyncio.run(main(OpenAIServer(*passes), 0))
    asyncio.run(main(OpenAIServer(*passes, answers=VLLM, refuses_prefill="no prefill"), 1))


def test_a_turn_that_breaks_off_keeps_its_text() -> None:
    async def main() -> None:
        told = Pass(["Let me ", "think", Cut(reset=True)])
        async with OpenAIServer(told) as server, model_of(server, identified=False) as model:
            of = turn(model)
            found = await events(of)
            assert found[-1] == Error("model_failed", BROKE, recoverable=True)
            assert of.exchange == Exchange("Weather?", [Text("Let me think", 1)])

    asyncio.run(main())
