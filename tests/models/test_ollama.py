import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import playing
import pytest
from answering import Cut, Item, Pass, Raw, ThinkerRun
from servers import OllamaServer, OpenAIServer, models

from brain import specialist
from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Done, Error, Event, Limits, Resume, SpecialistResult, Thinking, Token, Usage
from brain.messages import Chunk, Finish, History, Message, NativeCall, PassUsage
from brain.models import ModelEntry, check_model, ollama, open_models
from brain.models.builtin import Builtin
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.plugins.registry import Registry
from brain.settings import read
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

HELLO = [Message("system", "Be brief."), Message("user", "Hello?")]
STARTED = [*HELLO, Message("assistant", "I will look")]
UNREACHABLE = "The model server cannot be reached."
BROKE = "The connection to the model server broke in the middle of its answer."


def shown(*capabilities: str, **info: Any) -> tuple[int, Any]:
    """The answer to `POST /api/show`."""
    return 200, {"capabilities": list(capabilities), "model_info": {"general.architecture": "llama", **info}}


LLAMA = {"POST /api/show": shown("completion", "tools", "vision", **{"llama.context_length": 131072})}


@asynccontextmanager
async def model_of(
    server: OllamaServer, *, identified: bool = False, key: str | None = None, resume: Resume | None = None
) -> AsyncIterator[Ollama]:
    model = Ollama("m", server.url, key, resume)
    try:
        if identified:
            await model.identify()
        yield model
    finally:
        await model.aclose()


async def heard(model: Ollama, messages: Sequence[Message] = HELLO, into: list[Chunk] | None = None) -> list[Chunk]:
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


def decoded(pieces: Sequence[bytes]) -> list[Chunk]:
    """What the decoder makes of a body that comes in these pieces; an error as its code."""
    reply, found = ollama.reply(), list[Chunk]()
    for piece in pieces:
        found += reply.feed(piece)
    found += reply.close()
    return [*joined(found), f"<{reply.error.code}>"] if reply.error else joined(found)


def splits(data: bytes) -> Iterator[list[bytes]]:
    yield [data]
    for place in range(1, len(data)):
        yield [data[:place], data[place:]]
    yield [data[place : place + 1] for place in range(len(data))]


def lines(*items: Any) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


def text(content: str | None, **more: Any) -> Any:
    return {"model": "m", "created_at": "2026-11-21T00:00:00Z", "message": {"content": content, **more}, "done": False}


IMPOSSIBLE: list[Any] = [2**63, -5, 7.0, "7", True, [], None]
"""As numbers of tokens."""
END = {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 2}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lines(text("Hel"), text("lo"), END), ["Hello", Finish("stop"), PassUsage(0, 2)]),
        (lines(text("a"), {**END, "prompt_eval_count": 7, "total_duration": 10**18}),
         ["a", Finish("stop"), PassUsage(7, 2)]),
        (lines(text("a"), {"done": True}), ["a", Finish("stop"), PassUsage(0, 0)]),
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
        (lines(text("a"), b"<html>"), ["a", "<model_failed>"]),
        (lines(text("a"), b'{"message":{"content":"b'), ["a", "<model_failed>"]),
        (lines(text("a"), [1]), ["a", "<model_failed>"]),
    ],
)  # fmt: skip
def test_a_body_is_read_the_same_however_it_is_cut(body: bytes, expected: list[Any]) -> None:
    for pieces in splits(body):
        assert decoded(pieces) == expected, pieces


def test_texts_of_one_read_are_one_chunk() -> None:
    body = lines(text("", thinking="a"), text("", thinking="b"), text("c"), text("d"), END)
    assert list(ollama.reply().feed(body)) == [Thinking("ab"), "cd", Finish("stop"), PassUsage(0, 2)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (Pass(["Hel", "lo ", "wörld 😀"]), ["Hello wörld 😀", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hel", "lo ä€😀"], piece=1), ["Hello ä€😀", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hel", "lo"], piece=-1), ["Hello", Finish("stop"), PassUsage(10, 3)]),
        (Pass(["Hello"], finish="length"), ["Hello", Finish("length"), PassUsage(10, 3)]),
        (Pass(["Hello"], usage=None), ["Hello", Finish("stop"), PassUsage(0, 0)]),
        (Pass([Raw(lines(text("Hello"), END).rstrip())], finish=None), ["Hello", Finish("stop"), PassUsage(0, 2)]),
        (Pass([ThinkerRun("hm"), "Hello"]), [Thinking("hm"), "Hello", Finish("stop"), PassUsage(10, 3)]),
        (Pass([Raw(lines(text("Hello"), END)), Cut()]), ["Hello", Finish("stop"), PassUsage(0, 2)]),
        (Pass([Raw(lines(text("Hello"), END)), Cut(reset=True)]), ["Hello", Finish("stop"), PassUsage(0, 2)]),
    ],
)
def test_a_pass_over_the_wire(told: Pass, expected: list[Chunk]) -> None:
    async def main() -> None:
        async with OllamaServer(told) as server, model_of(server) as model:
            assert await heard(model) == expected
            assert server.lines == ["POST /api/chat"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("show", "context", "sees"),
    [
        (shown("completion", **{"llama.context_length": 131072}), 16384, False),
        (shown("completion", "vision", **{"llama.context_length": 8192}), 8192, True),
        (shown("completion"), 4096, False),
        ((200, {"model_info": {"llama.context_length": 2048}}), 2048, False),
        ((200, {"model_info": {"llama.context_length": None, "general.x": 9}}), 4096, False),
        ((200, {}), 4096, False),
        ((200, {"model_info": None, "capabilities": None}), 4096, False),
    ],
)
def test_requests_literally(show: tuple[int, Any], context: int, sees: bool) -> None:
    async def main() -> None:
        async with (
            OllamaServer(Pass(["a"]), Pass(["b"]), answers={"POST /api/show": show}) as server,
            model_of(server, key="k") as model,
        ):
            told = f"Ollama server, context of {context} tokens"
            assert await model.identify() == told + ("; it sees images" if sees else "")
            assert (model.context_tokens, model.sees_images) == (context, sees)
            await heard(model, [*HELLO, Message("user", "See?", (b"??",))])
            await heard(model, STARTED)
            assert server.lines == ["POST /api/show", "POST /api/chat", "POST /api/chat"]
            assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer k"}
            first, second = server.generated
            assert first == {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hello?"},
                    {"role": "user", "content": "See?", "images": ["Pz8="]},
                ],
                "stream": True,
                "truncate": False,
                "options": {"num_ctx": context},
            }
            assert second == {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hello?"},
                    {"role": "assistant", "content": "I will look"},
                ],
                "stream": True,
                "truncate": False,
                "options": {"num_ctx": context},
            }

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "answer", "code", "message"),
    [
        (404, {"error": "model 'm' not found"}, "model_failed", "The model server does not have this model."),
        (400, {"error": "\"m\" does not support chat"}, "model_failed", "The model server could not answer."),
        (400, {"error": "the input length exceeds the context length"}, "model_context",
         "The conversation is too long for the model; begin a new one, or ask for less."),
        (500, {"error": "exceed_context_size_error: request exceeds the available context size"}, "model_context",
         "The conversation is too long for the model; begin a new one, or ask for less."),
        (401, {"error": "unauthorized"}, "model_failed", "The model server refused Brain's key."),
        (429, {"error": "too many requests"}, "model_failed",
         "The model server takes no more requests at the moment."),
        (502, b"<html>", "model_failed", "The model server could not answer."),
    ],
)  # fmt: skip
def test_a_refusal_in_a_sentence_of_our_own(status: int, answer: Any, code: str, message: str) -> None:
    async def main() -> None:
        async with OllamaServer(Pass(status=status, answer=answer)) as server, model_of(server) as model:
            with pytest.raises(ModelError) as raised:
                await heard(model)
            assert not isinstance(raised.value, PrefillRefused)
            assert (raised.value.code, raised.value.message) == (code, message)

    asyncio.run(main())


def test_a_400_on_a_prefill_switches_for_good() -> None:
    async def main() -> None:
        async with (
            OllamaServer(answers=LLAMA, refuses_prefill="last message must be from user") as server,
            model_of(server) as model,
        ):
            with pytest.raises(PrefillRefused):
                await heard(model, STARTED)
            await model.identify()
            assert model.resume == "message"

    asyncio.run(main())


BROKEN: list[tuple[list[Item], str]] = [
    (["Hel", "lo", Cut()], BROKE),
    (["Hel", "lo", Cut(reset=True)], BROKE),
    (["Hello"], "The model server broke off in the middle of its answer."),
    (["Hello", Raw(lines({"error": "secret at 10.0.0.1"}))], "The model failed in the middle of its answer."),
    (["Hello", Raw(b"secret\n")], "The model server sent something unreadable."),
]


@pytest.mark.parametrize(("told", "message"), BROKEN)
def test_an_answer_that_breaks_off_is_told_so_far(told: list[Item], message: str) -> None:
    async def main() -> None:
        async with OllamaServer(Pass(told, finish=None)) as server, model_of(server) as model:
            said: list[Chunk] = []
            with pytest.raises(ModelError) as raised:
                await heard(model, into=said)
            assert joined(said) == ["Hello"]
            assert (raised.value.code, raised.value.message) == ("model_failed", message)

    asyncio.run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with OllamaServer() as server:
            url = server.url
        model = Ollama("m", url)
        for asked in (heard(model), model.identify(), heard(model)):
            with pytest.raises(ModelError) as raised:
                await asked
            assert (raised.value.code, raised.value.message) == ("model_unreachable", UNREACHABLE)
        with pytest.raises(Refused):
            await model.embed(["a"])
        await model.aclose()

    asyncio.run(main())


def test_a_server_that_comes_late_is_asked_then_what_it_is() -> None:
    async def main() -> None:
        async with OllamaServer(Pass(["a"])) as server, model_of(server) as model:
            with pytest.raises(ModelError, match="does not have this model"):
                await model.identify()
            server._answers |= LLAMA
            await heard(model)
            assert server.lines == ["POST /api/show", "POST /api/show", "POST /api/chat"]
            assert server.generated[0]["options"] == {"num_ctx": 16384}

    asyncio.run(main())


def test_describe_shows_the_image_and_gives_the_text() -> None:
    async def main() -> None:
        async with OllamaServer(Pass([ThinkerRun("look"), "A ", "cat."])) as server, model_of(server) as model:
            assert await model.describe(b"??", "What is it?") == "A cat."
            assert server.generated[0]["messages"] == [{"role": "user", "content": "What is it?", "images": ["Pz8="]}]

    asyncio.run(main())


def test_embed() -> None:
    async def main() -> None:
        answers = {"POST /api/embed": (200, {"embeddings": [[0.5, 1], [2, 3]]})}
        async with OllamaServer(answers=answers) as server, model_of(server) as model:
            assert await model.embed(["a", "b"]) == [[0.5, 1.0], [2.0, 3.0]]
            assert server.asked[0].body == {"model": "m", "input": ["a", "b"]}

    asyncio.run(main())


@pytest.mark.parametrize("answer", [(404, {"error": "x"}), (501, b""), (200, b"<html>"), (200, {"no": 1})])
def test_a_model_without_embeddings_says_so(answer: tuple[int, Any]) -> None:
    async def main() -> None:
        async with OllamaServer(answers={"POST /api/embed": answer}) as server, model_of(server) as model:
            with pytest.raises(Refused, match="the model server has no embeddings for this model"):
                await model.embed(["a"])

    asyncio.run(main())


def test_a_page_is_no_stream() -> None:
    async def main() -> None:
        told = Pass(answer=b"<html>", kind="text/html")
        async with OllamaServer(told) as server, model_of(server) as model:
            with pytest.raises(ModelError, match="did not answer with a stream"):
                await heard(model)

    asyncio.run(main())


def test_a_model_that_was_removed_is_trouble_and_changes_nothing() -> None:
    async def main() -> None:
        async with OllamaServer(answers=LLAMA) as server, model_of(server, identified=True) as model:
            server._answers.clear()
            assert await check_model(model) == "The model server does not have this model."
            assert (model.context_tokens, model.sees_images) == (16384, True)

    asyncio.run(main())


# Which model is opened

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

    async def _answer(self, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.path == "/api/show":
            capabilities = self._capabilities.get(asked.body["model"], ["missing"])
            known = {"capabilities": capabilities} if capabilities is not None else {}
            found = (404, {"error": "model not found"}) if capabilities == ["missing"] else (200, known)
            self._answers["POST /api/show"] = found
        await super()._answer(asked, reader, writer)


def open_auto(url: str) -> ModelEntry:
    async def main() -> ModelEntry:
        (one,) = await open_models(read({"BRAIN_MODEL": "auto", "BRAIN_MODEL_URL": url}), ())
        await one.model.aclose()
        return one

    return asyncio.run(main())


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
def test_auto_takes_the_loaded_model_else_the_newest_that_can_complete(
    capabilities: Mapping[str, Sequence[str] | None], loaded: Sequence[str], name: str
) -> None:
    async def main() -> None:
        async with Shop(capabilities, loaded) as server:
            (one,) = await open_models(read({"BRAIN_MODEL": "auto", "BRAIN_MODEL_URL": server.url}), ())
            await one.model.aclose()
            assert one.model.name == name
            said = "has no model that can complete" if name == "builtin" else f"found on Ollama at {server.url}; Ollama"
            assert said in one.reason
            assert one.problem is None
            assert "/api/chat" not in {asked.path for asked in server.asked}

    asyncio.run(main())


@pytest.mark.alone
def test_auto_waits_250_ms_and_no_longer() -> None:
    async def main() -> None:
        async with OllamaServer(silent=True) as server:
            settings = read({"BRAIN_MODEL": "auto", "BRAIN_MODEL_URL": server.url})
            began = time.monotonic()
            (one,) = await open_models(settings, ())
            seconds = time.monotonic() - began
            await one.model.aclose()
            assert isinstance(one.model, Builtin)
            assert one.reason == f"no Ollama answered at {server.url} within 250 ms"
            assert 0.24 < seconds < 0.6

    asyncio.run(main())


def test_auto_without_a_server() -> None:
    async def main() -> str:
        async with OllamaServer() as server:
            return server.url

    url = asyncio.run(main())
    one = open_auto(url)
    assert (one.model.name, one.reason) == ("builtin", f"no Ollama answered at {url} within 250 ms")


@pytest.mark.parametrize("answer", [(200, b"<html>hello</html>"), (404, b"nothing"), (200, {"models": 7}), (500, {})])
def test_auto_finds_something_else_there(answer: tuple[int, Any]) -> None:
    async def main() -> None:
        answers = {"GET /api/version": answer, "GET /api/ps": answer, "GET /api/tags": answer}
        async with OllamaServer(answers=answers) as server:
            (one,) = await open_models(read({"BRAIN_MODEL": "auto", "BRAIN_MODEL_URL": server.url}), ())
            await one.model.aclose()
            assert one.model.name == "builtin"
            assert one.reason.startswith(f"what answers at {server.url} is no Ollama that can be used: ")

    asyncio.run(main())


def test_several_models_on_offer(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text('["Hi"]\n', "utf-8")

    async def main() -> None:
        async with OllamaServer(answers=LLAMA) as server:
            names = f"ollama:m,builtin,script:{tmp_path / 'a.jsonl'}"
            found = await open_models(read({"BRAIN_MODEL": names, "BRAIN_MODEL_URL": server.url}), ())
            assert [one.model.name for one in found] == ["ollama:m", "builtin", f"script:{tmp_path / 'a.jsonl'}"]
            assert [one.reason for one in found] == [
                "it was asked for; Ollama server, context of 16384 tokens; it sees images",
                "it was asked for",
                "it was asked for",
            ]
            assert [await check_model(one.model) for one in found] == [None, None, None]
            for one in found:
                await one.model.aclose()

    asyncio.run(main())


def test_a_model_whose_server_is_away_is_opened_all_the_same() -> None:
    async def main() -> None:
        async with OllamaServer() as server:
            url = server.url
        for name, kind in (("ollama:m", Ollama), ("openai:m", OpenAI)):
            (one,) = await open_models(read({"BRAIN_MODEL": name, "BRAIN_MODEL_URL": url}), ())
            assert isinstance(one.model, kind)
            assert (one.reason, one.problem) == ("it was asked for", UNREACHABLE)
            assert await check_model(one.model) == UNREACHABLE
            await one.model.aclose()

    asyncio.run(main())


def test_an_openai_server_is_opened_with_its_dialect_and_the_operators_wish() -> None:
    async def main() -> None:
        async with OpenAIServer(answers=models("m", owned_by="vllm")) as server:
            environ = {"BRAIN_MODEL": "openai:m", "BRAIN_MODEL_URL": server.url, "BRAIN_MODEL_KEY": "k"}
            for more, said in (({}, "prefill"), ({"BRAIN_MODEL_RESUME": "message"}, "message")):
                (one,) = await open_models(read(environ | more), ())
                assert one.reason == "it was asked for; vLLM server"
                assert one.model.resume == said
                assert server.asked[-1].headers["authorization"] == "Bearer k"
                await one.model.aclose()

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with OllamaServer(silent=True) as server, model_of(server) as model:
            monkeypatch.setattr("brain.models.remote.READY_SECONDS", 0.05)
            assert await check_model(model) == "The model server does not answer."

    asyncio.run(main())


# Whole turns


@specialist(read_only=True)
def weather(city: str) -> str:
    """Weather in a city."""
    return f"Sunny in {city}."


MARKER = 'SPECIALIST_REQUEST[weather:{"city":"Oslo"}]'
BLOCK = "[SPECIALIST_RESULT: weather]\nSunny in Oslo.\n[/SPECIALIST_RESULT]"


async def turn(model: Ollama) -> list[Event]:
    registry = Registry()
    registry.add(weather)
    ask = TurnRequest(message="Weather?", user="me", limits=Limits(), syntax=("bracket",), time_zone="UTC")
    return await playing.read(Turn(ask, History("c"), model, registry, silence=5.0))


@pytest.mark.alone
@pytest.mark.parametrize("echo", [False, True])
def test_a_turn_closes_the_stream_at_the_marker_and_goes_on_from_there(echo: bool) -> None:
    async def main() -> None:
        pieces = ["Let me ", "look. ", "SPECIALIST_", 'REQUEST[weather:{"city":', '"Oslo"}]']
        first = Pass(itertools.chain(pieces, itertools.repeat(" and on")), every=0.002)
        second = Pass(["It is ", "sunny."], usage=(40, 4, None), echo=echo)
        async with (
            OllamaServer(first, second, answers=LLAMA, marker=MARKER) as server,
            model_of(server, identified=True) as model,
        ):
            found = await turn(model)
            served = server.served[0]
            assert served.seconds_until_closed < 0.1
            assert served.tokens_after_marker < 40
            assert server.generated[1]["messages"] == [
                *server.generated[0]["messages"],
                {"role": "assistant", "content": f"Let me look. {MARKER}\n\n{BLOCK}\n\n"},
            ]
            assert "".join(e.text for e in found if isinstance(e, Token)) == "Let me look. It is sunny."
            assert [e.text for e in found if isinstance(e, SpecialistResult)] == ["Sunny in Oslo."]
            assert isinstance(found[-1], Done)
            assert server.lines == ["POST /api/show", "POST /api/chat", "POST /api/chat"]

    asyncio.run(main())


def test_a_turn_sums_up_what_the_server_counted() -> None:
    async def main() -> None:
        passes = Pass(["Look. ", MARKER], usage=(100, 7, None), piece=-1), Pass(["Sunny."], usage=(130, 3, None))
        async with OllamaServer(*passes) as server, model_of(server) as model:
            found = await turn(model)
            assert found[-2] == Usage(230, 10, None, estimated=False)

    asyncio.run(main())


def test_a_turn_goes_on_by_message_where_prefill_is_refused() -> None:
    async def main() -> None:
        passes = Pass(["Look. ", MARKER]), Pass(["Sunny."])
        async with OllamaServer(*passes, refuses_prefill="no") as server, model_of(server) as model:
            found = await turn(model)
            assert isinstance(found[-1], Done)
            assert found[-1].text == "Look. Sunny."
            assert server.generated[-1]["messages"][2:] == [
                {"role": "assistant", "content": f"Look. {MARKER}"},
                {"role": "user", "content": f"{BLOCK}\n\nContinue."},
            ]

    asyncio.run(main())


def test_a_turn_too_long_for_the_model_says_so() -> None:
    async def main() -> None:
        told = Pass(status=400, answer={"error": "the input length exceeds the context length"})
        async with OllamaServer(told) as server, model_of(server) as model:
            found = await turn(model)
            message = "The conversation is too long for the model; begin a new one, or ask for less."
            assert found[-1] == Error("model_context", message, recoverable=False, status=400)

    asyncio.run(main())
