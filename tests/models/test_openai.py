"""Models with OpenAI's chat completions: decoding answers, and what is known of servers."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from model_answers import HELLO, STARTED, collect, cuts, decode, in_loop, merge, model_of
from model_servers import FALLBACK, OpenAIServer, Pass, models

from brain.events import Thinking
from brain.messages import Finish, Message, NativeCall, PassUsage, PromptProgress
from brain.models import connect_models
from brain.models.native_calls import CUT
from brain.models.openai import build_reply
from brain.settings import read

LLAMA_CPP = models("tiny.gguf", owned_by="llamacpp") | {
    "GET /props": (200, {"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": True}})
}
VLLM = models("m", owned_by="vllm", max_model_len=32768)


def frames(*chunks: Any) -> bytes:
    return b"".join(b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n" for c in chunks)


def delta(**fields: Any) -> Any:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}], "usage": None}


def tool(index: int = 0, id: str | None = None, **function: Any) -> Any:
    return delta(tool_calls=[{"index": index, **({"id": id} if id else {}), "function": function}])


def other(index: int, **fields: Any) -> Any:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": None}], "usage": None}


IMPOSSIBLE: list[Any] = [2**63, 2**200, -5, 7.5, "x", "-7", "7" * 30, True, [], None]
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
        (frames(delta(content="a"), finish("content_filter")), ["a", Finish("content_filter")]),
        (frames(delta(content="a"), finish("tool_calls")), ["a", Finish("stop")]),
        # tool calls: in pieces, whole, side by side, without an index that tells them apart, in the older form
        (frames(tool(id="c1", name="add", arguments=""), tool(arguments='{"a"'), tool(arguments=":1}"),
                finish("tool_calls"), DONE), [NativeCall("add", '{"a":1}'), Finish("stop")]),
        (frames(tool(id="c1", name="a", arguments="{}"), tool(1, id="c2", name="b", arguments='{"x":'),
                tool(1, id="c2", name="b", arguments="1}"), finish("tool_calls")),
         [NativeCall("a", "{}"), NativeCall("b", '{"x":1}'), Finish("stop")]),
        (frames(tool(id="c1", name="a", arguments="{}"), tool(id="c2", name="a", arguments={"x": 1}), DONE),
         [NativeCall("a", "{}", CUT), NativeCall("a", '{"x":1}')]),
        (frames(tool(0, "c1", name="a", arguments='{"x"'), tool(1, "c2", name="b", arguments="{}"),
                tool(0, "c1", arguments=":1}"), tool(2, "c3", name="c", arguments=""), delta(content="t"), STOP),
         [NativeCall("a", '{"x":1}'), "", NativeCall("b", "{}"), NativeCall("c", ""), Finish("stop")]),
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
        # llama.cpp reads the prompt; impossible numbers are ignored
        (frames({**delta(role="assistant", content=None), "prompt_progress": {"total": 9, "cache": 2, "processed": 2}},
                {**delta(role="assistant"), "prompt_progress": {"total": 9, "cache": 2, "processed": 9, "time_ms": 5}},
                delta(content="a"), STOP),
         [PromptProgress(0, 7, 2), PromptProgress(7, 7, 2), "a", Finish("stop")]),
        (frames(*({**delta(role="assistant"), "prompt_progress": progress} for progress in (
                    7, {}, {"total": 9}, {"total": 9, "cache": 0, "processed": 10},
                    {"total": 9, "cache": -1, "processed": 3}, {"total": 2**63, "cache": 0, "processed": 3},
                    {"total": "x", "cache": 0, "processed": 3}, {"total": 9, "cache": 4, "processed": 3},
                    {"total": 1e9, "cache": 0.5, "processed": True})),
                delta(content="a"), STOP),
         ["a", Finish("stop")]),
        # errors after some text
        (frames(delta(content="a"), {"error": {"message": "CUDA", "type": "x", "code": 500}}, delta(content="b")),
         ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"error": {"message": "maximum context length is 8 tokens"}}),
         ["a", "<model_context>"]),
        (frames(delta(content="a")) + b'event: error\ndata: {"error": "boom"}\n\n', ["a", "<model_failed>"]),
        # what is not JSON is ignored, unless nothing good follows, or a part of a call may be lost with it
        (frames(delta(content="a"), b"{broken", b'{"choices": [', delta(content="b"), STOP, DONE),
         ["ab", Finish("stop")]),
        (frames(b"{broken", delta(content="a"), b"{broken", DONE), ["a"]),
        (frames(delta(content="a"), STOP, b"{broken", DONE), ["a", Finish("stop")]),
        (frames(delta(content="a"), b"{broken"), ["a", "<model_failed>"]),
        (frames(b"{broken", STOP, DONE), ["<model_failed>"]),
        (frames(b"{broken", DONE), ["<model_failed>"]),
        (frames(tool(id="c1", name="add", arguments='{"a":1'), b"{broken", tool(arguments="}"), STOP),
         ["<model_failed>"]),
        (frames(tool(id="c1", name="add", arguments={"a": 1}), b"{broken", STOP),
         [NativeCall("add", '{"a":1}'), Finish("stop")]),
        (frames(delta(content="a"), b"Internal Server Error"), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"object": "error", "message": "boom", "type": "x", "code": 500}, STOP),
         ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"object": "error", "message": "The input (9 tokens) is longer than the model's "
                                                                   "context length (8 tokens).", "code": 400}),
         ["a", "<model_context>"]),
        (frames(delta(content="a"), {"type": "error", "message": "boom"}, DONE), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"choices": [], "error": {"message": "boom"}}, DONE), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"choices": [{"error": {"code": 502, "message": "boom"}, "delta": {}}]}, DONE),
         ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"detail": "boom"}, DONE), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"code": 1302, "message": "boom"}, DONE), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"error_code": 336003, "error_msg": "boom"}, DONE), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"base_resp": {"status_code": 1004, "status_msg": "x"}}), ["a", "<model_failed>"]),
        (frames(delta(content="a"), {"base_resp": {"status_code": 0}}, {"code": 0, "message": "ok"}, STOP),
         ["a", Finish("stop")]),
        (frames(delta(content="a")) + b"event: error\ndata: boom\n\n" + frames(DONE), ["a", "<model_failed>"]),
        (frames(delta(content="a")) + b'event: error\ndata: {"message": "boom"}\n\n', ["a", "<model_failed>"]),
        (frames(delta(content="a")) + b'error: {"code": 500}\n\n' + frames(DONE), ["a", "<model_failed>"]),
        (b'{"error": {"message": "boom"}}', ["<model_failed>"]),
        (b'{\n  "error": {"message": "maximum context length is 8 tokens"}\n}\n', ["<model_context>"]),
        (frames(delta(content="a"), {"error": {"message": "Rate limit: too many tokens per minute"}}),
         ["a", "<model_failed>"]),
        # filters
        (frames(delta(content="a"), {"error": {"code": "content_filter", "message": "x"}}, delta(content="b")),
         ["a", Finish("content_filter")]),
        (frames(delta(refusal="I will "), delta(refusal="not.", content=None), STOP), ["I will not.", Finish("stop")]),
        (frames(delta(content=[{"type": "refusal", "refusal": "No."}]), STOP), ["No.", Finish("stop")]),
        # what cannot be read is ignored; the last event may have no end
        (frames([1], b"ping", b"null", b"[]", b"7", b'"ping"', delta(content="a"), {"choices": 7},
                {"choices": [7, None]}, {"choices": [{"delta": "x"}]},
                delta(content=7), delta(content=["b", 7, {}], reasoning={"a": 1}),
                {"choices": {"delta": {"content": "c"}}}, delta(content={"type": "text", "text": "d"}), STOP,
                usage(prompt_tokens="7", completion_tokens=2.0, prompt_tokens_details=[]), DONE)[:-2],
         ["abcd", Finish("stop"), PassUsage(7, 2)]),
        (frames(delta(content="a"), STOP, usage())[:-2], ["a", Finish("stop"), PassUsage(7, 2)]),
        (frames(delta(content="a"), STOP)[:-1], ["a", Finish("stop")]),
        (frames(delta(content="a"))[:-2] + b"\r\n", ["a"]),
        # a server that does not stream
        (json.dumps({"object": "chat.completion", "usage": {"prompt_tokens": 7, "completion_tokens": 2}, "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}).encode(),
         ["a", Finish("stop"), PassUsage(7, 2)]),
        (frames({"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}]},
                {"choices": [{"delta": {}, "message": {"content": "a"}, "finish_reason": "stop"}]}),
         ["a", Finish("stop")]),
        (frames({"error": None}, {"error": {}}, delta(content="a")), ["a"]),
    ],
)  # fmt: skip
def test_a_body_is_decoded_the_same_however_it_is_cut(body: bytes, expected: list[Any] | None) -> None:
    for pieces in cuts(body):
        chunks = decode(build_reply, pieces)
        if expected is None:  # usage comes once per read, so only the last one is certain
            assert merge([chunk for chunk in chunks if not isinstance(chunk, PassUsage)]) == ["ab", Finish("stop")]
            assert [chunk for chunk in chunks if isinstance(chunk, PassUsage)][-1] == PassUsage(7, 2)
        else:
            assert chunks == expected, pieces


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Input is too long for requested model.", "model_context"),  # Bedrock
        ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 6000]", "model_context"),
        ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
         "model_context"),  # TGI
        ("inputs tokens + max_new_tokens must be <= 4096", "model_context"),
        ("`inputs` must have less than 4096 tokens. Given: 5000", "model_context"),
        ("This model's maximum prompt length is 131072 but it has 537812 tokens.", "model_context"),  # xAI
        ("Invalid request: Your request exceeded model token limit: 8192", "model_context"),  # Kimi
        ("Prompt exceeds max length", "model_context"),  # GLM
        ("输入内容超长", "model_context"),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "model_context"),
        ("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).", "model_context"),  # SGLang
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "model_context"),
        ("prompt token count of 130000 exceeds the limit of 128000", "model_context"),  # GitHub
        ("input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000", "model_context"),  # Anthropic
        ("Input prompt (5000 tokens) is too long and exceeds limit of 4096", "model_context"),  # vLLM
        ("The number of input tokens 5000 cannot exceed the total tokens limit 4096", "model_context"),  # watsonx
        ("length of prompt_tokens (9000) must be less than max_seq_len (8192).", "model_context"),  # SiliconFlow
        ("Prompt tokens too long", "model_context"),  # Baidu
        ("Total tokens of image and text exceed max message tokens", "model_context"),  # Volcengine
        ("Rate limit reached: too many tokens per minute (TPM)", "model_failed"),
        ("You exceeded your current quota: input is too long for the free tier", "model_failed"),
        ("max_tokens must be at least 1", "model_failed"),
        ("Range of max_tokens should be [1, 8192]", "model_failed"),
        ("Range of top_p should be (0.0, 1.0]", "model_failed"),
    ],
)  # fmt: skip
def test_how_servers_report_that_a_request_is_too_long(text: str, code: str) -> None:
    assert decode(build_reply, [frames({"error": {"message": text, "code": 400}})]) == [f"<{code}>"]


FINISH_REASONS = {
    "stop": ["stop", "eos", "end_turn", "STOP", "tool_calls", "function_call", "tool_use"],
    "length": ["length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded"],
    "content_filter": [
        "content_filter", "contentFilter", "sensitive", "SAFETY", "RECITATION", "content_filter: PROHIBITED_CONTENT",
        "FINISH_REASON_SPII", "guardrail_intervened", "refusal",
    ],
    "<model_failed>": [
        "error", "network_error", "insufficient_system_resource", "abort", "aborted", "cancelled", "timeout",
        "engine_overloaded", "engine_overloaded_error", "malformed_model_output",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "reason"), [(expected, reason) for expected, reasons in FINISH_REASONS.items() for reason in reasons]
)
def test_reasons_of_servers(expected: Any, reason: str) -> None:
    end = expected if expected.startswith("<") else Finish(expected)
    assert decode(build_reply, [frames(delta(content="a"), finish(reason), DONE)]) == ["a", end]
    assert decode(build_reply, [frames(finish(reason), DONE)]) == [end]


@pytest.mark.parametrize("reason", ["", "null", None])
def test_a_reason_that_says_nothing_is_no_end(reason: Any) -> None:
    reply = build_reply()
    assert reply.feed(frames({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]})) == ["a"]
    assert not reply.has_ended


def test_an_unknown_reason_is_logged_once_and_no_success_without_a_text(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        for reason in ("unheard of", 7_654):
            end: Any = {"choices": [{"delta": {}, "finish_reason": reason}]}
            assert decode(build_reply, [frames(delta(content="a"), end)]) == ["a", Finish("stop")]
            assert decode(build_reply, [frames(end)]) == ["<model_failed>"]
            assert decode(build_reply, [frames(delta(reasoning="a"), end)])[1:] == ["<model_failed>"]
            calls = decode(build_reply, [frames(tool(name="a", arguments='{"b":1}'), end)])
            assert calls == [NativeCall("a", '{"b":1}'), Finish("stop")]
    assert [record.message for record in caplog.records] == [
        f"unknown finish reason from the model server: {reason!r}" for reason in ("unheard of", "7654")
    ]


def test_one_bad_value_is_logged_per_answer(caplog: pytest.LogCaptureFixture) -> None:
    decode(build_reply, [frames(b"ping", b"[]", delta(content=7), usage(prompt_tokens=-1), STOP)])
    assert len(caplog.records) == 1
    decode(build_reply, [frames(b"{broken", delta(content="a"), b"{broken", b"data: x\n" * 20_000, STOP)])
    assert len(caplog.records) == 2


def test_json_without_end_of_depth() -> None:
    for key in (b"error", b"other"):
        assert decode(build_reply, [b'data: {"%b": ' % key + b"[" * 100_000 + b"\n\n"]) == ["<model_failed>"]


def test_texts_of_one_read_are_one_chunk() -> None:
    body = frames(delta(reasoning="a"), delta(reasoning="b"), delta(content="c"), delta(content="d"), STOP, usage())
    assert build_reply().feed(body) == [Thinking("ab"), "cd", Finish("stop"), PassUsage(7, 2)]


@in_loop
async def test_a_request() -> None:
    async with OpenAIServer(Pass(["Hi"])) as server, model_of(server, key="sk-1") as model:
        await collect(model, [*HELLO, Message("user", "See?", (b"\xff\xd8\xff", b"??"))])
        (request,) = server.requests
        content = [
            {"type": "text", "text": "See?"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,Pz8="}},
        ]
        assert request.body == {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello?"},
                {"role": "user", "content": content},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = [request.headers[name] for name in ("authorization", "content-type", "accept-encoding")]
        assert headers == ["Bearer sk-1", "application/json", "identity"]


@pytest.mark.parametrize(
    ("answers", "description", "resume", "request_fields", "context", "sees"),
    [
        (LLAMA_CPP, "llama.cpp server", "prefill",
         {"chat_template_kwargs": {"enable_thinking": False}}, 8192, True),
        (VLLM, "vLLM server", "prefill",
         {"continue_final_message": True, "add_generation_prompt": False}, 32768, False),
        (models("other", "m", owned_by="sglang"), "SGLang server", "prefill",
         {"continue_final_message": True, "add_generation_prompt": False}, None, False),
        ({}, "unknown server", "message", {}, None, False),
        ({"GET /v1/models": (200, b"<html>")}, "unknown server", "message", {}, None, False),
        (models("m", owned_by="x", max_context_length=131072, capabilities={"vision": True}),
         "unknown server", "message", {}, 131072, True),
        (models("m", owned_by="x", context_length=9, architecture={"input_modalities": ["text", "image"]}),
         "unknown server", "message", {}, 9, True),
        # what is said of other models is not said of this one
        (models("a", "b", owned_by="x", max_model_len=9, capabilities={"vision": True}),
         "unknown server", "message", {}, None, False),
        # a base model, for which llama.cpp reports a template that the model does not know
        *[(LLAMA_CPP | {"GET /props": (200, {"chat_template": template, "bos_token": "<bos>", **end})},
           f"llama.cpp server{phrase}", "prefill", {"chat_template_kwargs": {"enable_thinking": False}}, None, False)
          for template, end, phrase in ((FALLBACK, {"eos_token": "<eos>"}, ", a base model without a chat template"),
                                        (FALLBACK, {"eos_token": "<|im_end|>"}, ""), (FALLBACK, {}, ""),
                                        (FALLBACK + "x", {"eos_token": "<eos>"}, ""))],
        # as llama.cpp's router mode says it
        (models("a", owned_by="llamacpp") | {"GET /props": (200, {"default_generation_settings": {"n_ctx": 0}})},
         "llama.cpp server", "prefill", {"chat_template_kwargs": {"enable_thinking": False}}, None, False),
    ],
)  # fmt: skip
@in_loop
async def test_a_server_is_identified_by_free_requests(
    answers: Mapping[str, tuple[int, Any]],
    description: str,
    resume: str,
    request_fields: dict[str, Any],
    context: int | None,
    sees: bool,
) -> None:
    async with OpenAIServer(Pass(["a"]), Pass(["b"]), answers=answers) as server, model_of(server) as model:
        assert await model.identify() == description + (", image input" if sees else "")
        assert {request.method for request in server.requests} == {"GET"}
        assert (model.resume, model.context_tokens, model.sees_images) == (resume, context, sees)
        await collect(model)
        await collect(model, STARTED)
        first, second = server.generated
        always = {"return_progress": True} if description.startswith("llama.cpp server") else {}
        assert first.keys() == {"model", "messages", "stream", "stream_options", *always}
        assert second["messages"][2] == {"role": "assistant", "content": "I will look"}
        added = {key: value for key, value in second.items() if key not in first}
        assert added == request_fields


@pytest.mark.parametrize(
    ("answers", "is_unknown"),
    [
        (models("n", "b", owned_by="vllm"), True),
        (models("n", "b", owned_by="x"), False),
        (models("n", "b", owned_by="llamacpp"), False),
        (models("n", owned_by="vllm", aliases=["m"]), False),
        (models("*", owned_by="vllm"), False),
        (models(owned_by="vllm"), False),
        ({"GET /v1/models": (200, {"data": [{"id": 7, "owned_by": "vllm"}]})}, False),
    ],
)
@in_loop
async def test_a_model_that_is_not_listed(answers: Any, is_unknown: bool) -> None:
    async with OpenAIServer(answers=answers) as server:
        async with connect_models(read({"BRAIN_MODEL": "openai:m", "BRAIN_MODEL_URL": server.url}), ()) as connected:
            (model,) = connected.offered
        assert model.remedy == ("brain check --model openai:n" if is_unknown else "")
        assert (server.url in (model.problem or "")) == is_unknown
        assert ("'m'" in model.warning) == ("x" in str(answers))
