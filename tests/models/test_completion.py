"""Completions of llama.cpp, as recorded from its server: plain text for base models, grammars for calls."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from model_answers import HELLO, STARTED, collect, cuts, decode, in_loop, merge, model_of
from model_servers import FALLBACK, TEMPLATE, LlamaCppServer, Pass

from brain.errors import ModelError
from brain.messages import Chunk, Finish, Message, PassUsage, PromptProgress
from brain.models.completion import build_reply
from brain.models.model import PassRequest
from brain.turn_request import Decoding, Sampling

PLAIN = Decoding(is_plain=True, stop=("\n\n",))
GRAMMAR = Decoding(call_grammar='root ::= "SPECIALIST_REQUEST" ("[a]" | [^[])', stop=("(Now:",))


def frames(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events)


def text(content: str, **more: Any) -> Any:
    return {
        "index": 0, "content": content, "tokens": [9], "stop": False, "id_slot": -1, "tokens_predicted": 1,
        "tokens_evaluated": 7, **more,
    }  # fmt: skip


def end(kind: str = "eos", **more: Any) -> Any:
    return {"content": "", "stop": True, "stop_type": kind, "tokens_evaluated": 7, "tokens_predicted": 2, **more}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (frames(text("", prompt_progress={"total": 7, "cache": 2, "processed": 2, "time_ms": 0}),
                text("", prompt_progress={"total": 7, "cache": 2, "processed": 7, "time_ms": 9}),
                text("Hel"), text("lo ä😀"), end("limit", **{"timings/cache_n": 2})),
         [PromptProgress(0, 5, 2), PromptProgress(5, 5, 2), "Hello ä😀", Finish("length"), PassUsage(7, 2, 2)]),
        # an older version sends all fields in the last event
        (frames(text("a"), end("word", prompt="Hello", stopping_word="\n", timings={"cache_n": 3})),
         ["a", Finish("stop"), PassUsage(7, 2, 3)]),
        (frames(end(tokens_evaluated=-1), text("after the end")), [Finish("stop")]),
        (frames(text("a"), {"error": {"code": 500, "message": "Unexpected empty grammar stack"}}),
         ["a", "<model_failed>"]),
        (frames(text("a"), {"content": 7}, text("b")), ["ab"]),
        (frames(text("a")) + b"data: ping\n\n" + frames(text("b"), end("limit"))[:-2],
         ["ab", Finish("length"), PassUsage(7, 2)]),
    ],
)  # fmt: skip
def test_a_body_is_decoded_the_same_however_it_is_cut(body: bytes, expected: list[Any]) -> None:
    for pieces in cuts(body):
        assert decode(build_reply, pieces) == expected


async def complete(model: Any, decoding: Decoding, messages: Sequence[Message] = HELLO, **sampling: Any) -> list[Chunk]:
    request = PassRequest(messages, sampling=Sampling(**sampling), decoding=decoding)
    async with aclosing(model.stream(request)) as stream:
        chunks: list[Chunk] = [chunk async for chunk in stream if not isinstance(chunk, PromptProgress)]
        return merge(chunks)


ALWAYS = {
    "model": "m", "stream": True, "cache_prompt": True, "return_progress": True,
    "response_fields": ["content", "stop", "stop_type", "tokens_evaluated", "tokens_predicted", "timings/cache_n"],
}  # fmt: skip
SCHEMA = {"type": "object"}


@in_loop
async def test_a_base_model_continues_plain_text() -> None:
    passes = [Pass(["Hi", " you"], finish="length", usage=(7, 2, 1)), *[Pass(["Hi"])] * 2]
    async with LlamaCppServer(*passes, template=FALLBACK) as server, model_of(server, identify=True) as model:
        chunks = await complete(model, PLAIN, max_tokens=9, temperature=0.0, seed=7, effort="low")
        assert chunks == ["Hi you", Finish("length"), PassUsage(7, 2, 1)]
        await complete(model, PLAIN, STARTED, format=SCHEMA)
        await collect(model)  # without the option
        first, second, third = server.generated
        limits = {"n_predict": 9, "temperature": 0.0, "seed": 7}
        assert first == {**ALWAYS, "prompt": "Be brief.\n\nHello?", "stop": ["\n\n"], **limits}
        started = "Be brief.\n\nHello?\n\nI will look"
        assert second == {**ALWAYS, "prompt": started, "stop": ["\n\n"], "json_schema": SCHEMA}
        assert third.keys() == {"model", "messages", "stream", "stream_options", "return_progress"}


@in_loop
async def test_a_grammar_waits_for_the_start_of_a_call() -> None:
    async with LlamaCppServer(Pass(["Hi"]), Pass(["Hi"])) as server, model_of(server, identify=True) as model:
        assert await complete(model, GRAMMAR) == ["Hi", Finish("stop"), PassUsage(10, 3)]
        first = server.generated[0]
        assert first == {
            **ALWAYS,
            "prompt": "<system>Be brief.\n<user>Hello?\n<assistant>",
            "grammar": GRAMMAR.call_grammar,
            "grammar_lazy": True,
            "grammar_triggers": [{"type": 1, "value": "SPECIALIST_REQUEST"}],
            "stop": ["(Now:"],
        }
        await complete(model, GRAMMAR, STARTED)
        (_, template) = [request.body for request in server.requests if request.path == "/apply-template"]
        assert server.generated[1]["prompt"] == "<system>Be brief.\n<user>Hello?\n<assistant>I will look"
        assert template["messages"][-1] == {"role": "assistant", "content": "I will look"}
        assert template["chat_template_kwargs"] == {"enable_thinking": False}


CHAT, COMPLETION, PROMPT = "/v1/chat/completions", "/completion", "/apply-template"
REFUSED = Pass(status=400, answer={"error": {"code": 400, "message": "failed to parse grammar"}})
MISSING = Pass(status=404, answer={"error": {"code": 404, "message": "File Not Found"}})


@pytest.mark.parametrize(
    ("template", "decoding", "refused", "answers", "first", "second"),
    [
        (TEMPLATE, GRAMMAR, REFUSED, {}, [PROMPT, COMPLETION, CHAT], [CHAT]),
        (TEMPLATE, GRAMMAR, MISSING, {}, [PROMPT, COMPLETION, CHAT], [CHAT]),
        (FALLBACK, PLAIN, MISSING, {}, [COMPLETION, CHAT], [CHAT]),
        (TEMPLATE, GRAMMAR, None, {"POST /apply-template": (404, {})}, [PROMPT, CHAT], [CHAT]),
        (TEMPLATE, GRAMMAR, None, {"POST /apply-template": (400, {})}, [PROMPT, CHAT], [PROMPT, CHAT]),
        (TEMPLATE, GRAMMAR, None, {"POST /apply-template": (200, {"prompt": 7})}, [PROMPT, CHAT], [PROMPT, CHAT]),
        # reasoning, which only chat completions separate from the answer
        (TEMPLATE + "<think>", GRAMMAR, None, {}, [CHAT], [CHAT]),
        (TEMPLATE, PLAIN, None, {}, [CHAT], [CHAT]),
    ],
)  # fmt: skip
@in_loop
async def test_without_a_completion_the_model_gets_a_chat(
    template: str, decoding: Decoding, refused: Pass | None, answers: Any, first: list[str], second: list[str]
) -> None:
    passes = [*([refused] if refused else []), Pass(["a"]), Pass(["b"])]
    server = LlamaCppServer(*passes, template=template, answers=answers)
    async with server, model_of(server, identify=True) as model:
        chunks = [await complete(model, decoding) for _ in range(2)]
    assert [one[0] for one in chunks] == ["a", "b"]
    assert [request.path for request in server.requests if request.method == "POST"] == [*first, *second]
    assert [body.get("stop") for body in server.generated] == [list(decoding.stop)] * len(server.generated)


@pytest.mark.parametrize(
    ("messages", "sampling"),
    [([Message("user", "See?", (b"\x89PNG\r\n\x1a\n",))], {}), (HELLO, {"format": SCHEMA})],
)
@in_loop
async def test_images_and_formats_need_a_chat(messages: list[Message], sampling: dict[str, Any]) -> None:
    async with LlamaCppServer(Pass(["a"])) as server, model_of(server, identify=True) as model:
        await complete(model, GRAMMAR, messages, **sampling)
        assert server.lines[-1] == f"POST {CHAT}"


@in_loop
async def test_a_prompt_that_is_too_long_fails() -> None:
    message = "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it"
    refused = Pass(status=400, answer={"error": {"code": 400, "message": message}})
    async with LlamaCppServer(refused, template=FALLBACK) as server, model_of(server, identify=True) as model:
        with pytest.raises(ModelError) as caught:
            await complete(model, PLAIN)
        assert caught.value.code == "model_context"
