"""Wing: any server that speaks OpenAI's chat completions: vLLM, llama.cpp, SGLang, LM Studio, hosted ones."""

import base64
import json
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import msgspec

from brain import http
from brain.ask import sniff
from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Thinking
from brain.messages import Chunk, Finish, Message, PassUsage, Resume
from brain.models.lines import ServerSentEvents
from brain.models.replies import explained, failing

DEFAULT_URL = "https://api.openai.com/v1"
IDENTIFY_SECONDS = 2.0

log = logging.getLogger("brain")


class Dialect(msgspec.Struct, frozen=True):
    """How a server goes on with the assistant's own message: fields of the request, and of that message."""

    name: str
    resume: Resume
    request: Mapping[str, Any] = {}
    message: Mapping[str, Any] = {}


UNKNOWN = Dialect("unknown", "message")
_VLLM_FIELDS = {"continue_final_message": True, "add_generation_prompt": False}
_BY_OWNER = {
    "llamacpp": Dialect("llama.cpp", "prefill", {"chat_template_kwargs": {"enable_thinking": False}}),
    "vllm": Dialect("vLLM", "prefill", _VLLM_FIELDS),
    "sglang": Dialect("SGLang", "prefill", _VLLM_FIELDS),
}
_BY_HOST = {
    "api.mistral.ai": Dialect("Mistral", "prefill", message={"prefix": True}),
    "openrouter.ai": Dialect("OpenRouter", "prefill"),
}


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_NO_DELTA = _Delta()
_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAI:
    """One model of one server.

    Args:
        name: as the server knows it.
        url: the base URL, up to and with `/v1`.
        key: for the Authorization header.
        resume: overrides what the server's dialect would choose.
    """

    stand_in = False

    def __init__(self, name: str, url: str | None = None, key: str | None = None, resume: Resume | None = None) -> None:
        self.name = f"openai:{name}"
        self.resume: Resume = resume or "message"
        self.context_tokens: int | None = None
        self.sees_images = False
        self._model = name
        self._wanted_resume = resume
        self._dialect = UNKNOWN
        self._url = (url or DEFAULT_URL).rstrip("/")
        self._http = http.client(self._url, {"Authorization": f"Bearer {key}"} if key else None)

    async def identify(self) -> str:
        """Asks the server what it is, by free GETs; a sentence for people.

        Raises:
            ModelError: when it cannot be reached.
        """
        found = await self._get(f"{self._url}/models")
        models = [m for m in found.get("data") or () if isinstance(m, dict)] if isinstance(found, dict) else []
        mine = next((m for m in models if m.get("id") == self._model), models[0] if models else {})
        host = urlsplit(self._url).hostname or ""
        self._dialect = _BY_HOST.get(host) or _BY_OWNER.get(str(mine.get("owned_by")), UNKNOWN)
        self.resume = self._wanted_resume or self._dialect.resume
        self.context_tokens = _positive(mine.get("max_model_len"))
        if self._dialect.name == "llama.cpp":
            await self._read_props()
        return f"{self._dialect.name} server, resumes by {self.resume}"

    async def stream(self, messages: Sequence[Message], turn_pass: int = 0) -> AsyncGenerator[Chunk, None]:
        """One pass over `POST chat/completions`, as much as one read brings in one chunk."""
        events = ServerSentEvents()
        ended = False
        with failing():
            async with self._http.stream("POST", "chat/completions", content=self._request(messages)) as response:
                if response.status_code != 200:
                    await self._fail(response, resumed=messages[-1].role == "assistant")
                async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_bytes())) as reads:
                    async for data in reads:
                        for chunk in _chunks(events.feed(data)):
                            ended = ended or isinstance(chunk, Finish)
                            if chunk is _DONE:
                                return
                            yield chunk
        if not ended:
            raise ModelError("model_failed", "The model server broke off in the middle of its answer.", "no finish")

    async def describe(self, image: bytes, question: str) -> str:
        """What the model sees in an encoded image."""
        parts = []
        async with aclosing(self.stream([Message("user", question, (image,))])) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, str):
                    parts.append(chunk)
        return "".join(parts)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, from `POST embeddings`."""
        with failing():
            response = await self._http.post("embeddings", json={"model": self._model, "input": list(texts)})
        if response.status_code != 200:
            raise Refused("the model server has no embeddings")
        return [item["embedding"] for item in response.json()["data"]]

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _request(self, messages: Sequence[Message]) -> bytes:
        resumed = messages[-1].role == "assistant"
        sent = [_message(message) for message in messages]
        request = {
            "model": self._model,
            "messages": sent,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if resumed:
            sent[-1] |= self._dialect.message
            request |= self._dialect.request
        return msgspec.json.encode(request)

    async def _fail(self, response: httpx.Response, *, resumed: bool) -> None:
        text = (await response.aread())[:2000].decode(errors="replace")
        error = explained(response.status_code, text)
        if resumed and response.status_code == 400 and error.code != "model_context":
            self.resume = "message"
            raise PrefillRefused(text)
        raise error

    async def _get(self, url: str) -> Any:
        with failing():
            response = await self._http.get(url, timeout=IDENTIFY_SECONDS)
        try:
            return response.json() if response.status_code == 200 else {}
        except ValueError:
            return {}

    async def _read_props(self) -> None:
        props = await self._get(self._url.removesuffix("/v1") + "/props")
        if isinstance(props, dict):
            generation = props.get("default_generation_settings")
            self.context_tokens = _positive(generation.get("n_ctx")) if isinstance(generation, dict) else None
            modalities = props.get("modalities")
            self.sees_images = isinstance(modalities, dict) and modalities.get("vision") is True


_DONE = Finish("stop")  # its identity says that `[DONE]` came


def _chunks(events: Iterable[bytes]) -> Iterator[Chunk]:
    """What the events of one read say, neighbouring texts joined."""
    texts: list[str] = []
    for data in events:
        others = []
        for part in _parts(data):
            if isinstance(part, str):
                texts.append(part)
            else:
                others.append(part)
        if others and texts:
            yield "".join(texts)
            texts = []
        for other in others:
            if isinstance(other, ModelError):
                raise other
            yield other
    if texts:
        yield "".join(texts)


def _parts(data: bytes) -> Iterator[Chunk | ModelError]:
    """What one event says; an error comes as a value, so that what was said before it is told first."""
    if data.strip() == b"[DONE]":
        yield _DONE
        return
    try:
        chunk = _decoded(data)
    except ModelError as error:
        yield error
        return
    if chunk.error:
        yield ModelError("model_failed", "The model failed in the middle of its answer.", str(chunk.error)[:500])
    for choice in chunk.choices or ():
        delta = choice.delta or _NO_DELTA
        if thought := delta.reasoning_content or delta.reasoning or delta.thinking:
            yield Thinking(thought)
        if delta.content:
            yield delta.content
        if choice.finish_reason:
            yield Finish("length" if choice.finish_reason == "length" else "stop")
    if chunk.usage is not None:
        yield _usage(chunk.usage)


def _decoded(data: bytes) -> _Chunk:
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        try:  # lone surrogates, which some servers escape when they cut a pair in two
            return msgspec.convert(json.loads(data), _Chunk)
        except (ValueError, RecursionError, msgspec.ValidationError):
            detail = f"{error}: {data[:200]!r}"
            raise ModelError("model_failed", "The model server sent something unreadable.", detail) from None


def _usage(usage: _Usage) -> PassUsage:
    details = usage.prompt_tokens_details
    return PassUsage(usage.prompt_tokens, usage.completion_tokens, details.cached_tokens if details else None)


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.content}
    content: list[dict[str, Any]] = [{"type": "text", "text": message.content}]
    for image in message.images:
        url = f"data:{sniff(image, 'image/png')};base64,{base64.b64encode(image).decode()}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": message.role, "content": content}


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
