"""Wing: any server that speaks OpenAI's chat completions: vLLM, llama.cpp, SGLang, LM Studio, hosted ones."""

import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from brain import http
from brain.ask import sniff
from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Thinking
from brain.messages import Chunk, Finish, Message, PassUsage, Resume
from brain.models.lines import ServerSentEvents
from brain.models.replies import Over, Part, Reply, chunks, explained, failing, failure, read

DEFAULT_URL = "https://api.openai.com/v1"
IDENTIFY_SECONDS = 2.0


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
_BY_ADDRESS = {
    "api.mistral.ai/": Dialect("Mistral", "prefill", message={"prefix": True}),
    "api.deepseek.com/beta/": Dialect("DeepSeek", "prefill", message={"prefix": True}),
    "openrouter.ai/": Dialect("OpenRouter", "prefill"),
}
_LENGTHS = ("max_model_len", "context_length", "max_context_length")


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct, gc=False):
    cache_n: int | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


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
        self._missed = False
        self._dialect = UNKNOWN
        self._url = (url or DEFAULT_URL).rstrip("/")
        self._http = http.client(self._url, {"Authorization": f"Bearer {key}"} if key else None)

    async def identify(self) -> str:
        """Asks the server what it is, by free GETs; a sentence for people.

        Raises:
            ModelError: when it cannot be reached, or does not let us in.
        """
        self._missed = True
        found = await self._get(f"{self._url}/models")
        models = found.get("data") if isinstance(found, dict) else None
        self._recognise([model for model in models if isinstance(model, dict)] if isinstance(models, list) else [])
        if self._dialect.name == "llama.cpp":
            await self._read_props()
        self._missed = False
        return f"{self._dialect.name} server, resumes by {self.resume}"

    async def stream(self, messages: Sequence[Message], turn_pass: int = 0) -> AsyncGenerator[Chunk, None]:
        """One pass over `POST chat/completions`, as much as one read brings in one chunk."""
        if self._missed:  # it did not answer when it was asked what it is
            with suppress(ModelError):
                await self.identify()
        resumed = messages[-1].role == "assistant"
        reply = Reply(ServerSentEvents(), parts)
        try:
            body = self._request(messages)
            async with aclosing(chunks(self._http, "chat/completions", body, reply, resumed=resumed)) as found:
                async for chunk in found:
                    yield chunk
        except PrefillRefused:
            self.resume = self._wanted_resume = "message"
            raise

    async def describe(self, image: bytes, question: str) -> str:
        """What the model sees in an encoded image."""
        async with aclosing(self.stream([Message("user", question, (image,))])) as found:
            return "".join([chunk async for chunk in found if isinstance(chunk, str)])

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, from `POST embeddings`."""
        with failing():
            response = await self._http.post("embeddings", json={"model": self._model, "input": list(texts)})
        try:
            return [[float(number) for number in item["embedding"]] for item in response.json()["data"]]
        except (ValueError, TypeError, LookupError):
            raise Refused("the model server has no embeddings") from None

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _request(self, messages: Sequence[Message]) -> bytes:
        sent = [_message(message) for message in messages]
        request = {
            "model": self._model,
            "messages": sent,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if messages[-1].role == "assistant":
            sent[-1] |= self._dialect.message
            request |= self._dialect.request
        return msgspec.json.encode(request)

    def _recognise(self, models: Sequence[Mapping[str, Any]]) -> None:
        """Who the server is, and what it says of the model; the first one listed speaks for one that is not."""
        mine = next((model for model in models if model.get("id") == self._model), None)
        alike = mine or (models[0] if models else {})
        parts = urlsplit(self._url)
        address = f"{parts.hostname}{parts.path}/"
        hosted = next((dialect for start, dialect in _BY_ADDRESS.items() if address.startswith(start)), None)
        self._dialect = hosted or _BY_OWNER.get(str(alike.get("owned_by")), UNKNOWN)
        self.resume = self._wanted_resume or self._dialect.resume
        known = mine or (alike if len(models) == 1 else {})
        self.context_tokens = next(filter(None, (_positive(known.get(key)) for key in _LENGTHS)), None)
        self.sees_images = _sees(known)

    async def _get(self, url: str) -> Any:
        with failing():
            response = await self._http.get(url, timeout=IDENTIFY_SECONDS)
        if response.status_code in (401, 403) or response.status_code >= 500:
            raise explained(response.status_code, response.text[:2000])
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


def parts(data: bytes) -> Sequence[Part]:
    """What one event says.

    Raises:
        ModelError: when it says that the model failed, or nothing that can be read.
    """
    if not data.startswith(b"{"):
        return _unusual(data)
    chunk = read(data, _decoder)
    if chunk.error:
        raise failure(chunk.error)
    found: list[Part] = []
    for choice in chunk.choices or ():
        if choice.delta is not None:
            found += _delta(choice.delta)
        if choice.finish_reason:
            found.append(Finish("length" if choice.finish_reason == "length" else "stop"))
    if chunk.usage is not None:
        found.append(_usage(chunk.usage, chunk.timings))
    return found


def _unusual(data: bytes) -> Sequence[Part]:
    data = data.strip()
    if data[:1] == b"{":
        return parts(data)
    if data == b"[DONE]":
        return (Over(),)
    if data:
        raise ModelError("model_failed", "The model server sent something unreadable.", repr(data[:200]))
    return ()


def _delta(delta: _Delta) -> Sequence[Part]:
    thought = delta.reasoning_content or delta.reasoning or delta.thinking
    content = delta.content
    found: list[Part] = [Thinking(thought)] if thought else []
    if isinstance(content, str):
        if content:
            found.append(content)
    else:
        for item in content or ():
            found += _pieces(item)
    return found


def _pieces(item: Any) -> Sequence[Part]:
    """Mistral's models that reason send lists: texts, and thoughts that are lists of texts."""
    if isinstance(item, str):
        return (item,) if item else ()
    if not isinstance(item, Mapping):
        return ()
    if isinstance(text := item.get("text"), str) and text:
        return (text,)
    thoughts = item.get("thinking")
    texts = [text for thought in thoughts for text in _pieces(thought)] if isinstance(thoughts, list) else []
    return [Thinking(text) for text in texts if isinstance(text, str)]


def _usage(usage: _Usage, timings: _Timings | None) -> PassUsage:
    reused = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    if reused is None and timings is not None:
        reused = timings.cache_n
    return PassUsage(usage.prompt_tokens or 0, usage.completion_tokens or 0, reused)


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.content}
    content: list[dict[str, Any]] = [{"type": "text", "text": message.content}]
    for image in message.images:
        url = f"data:{sniff(image, 'image/png')};base64,{base64.b64encode(image).decode()}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": message.role, "content": content}


def _sees(model: Mapping[str, Any]) -> bool:
    """Whether a list of models says of one that it takes images, as Mistral and OpenRouter do."""
    capabilities, architecture = model.get("capabilities"), model.get("architecture")
    if isinstance(capabilities, Mapping) and capabilities.get("vision") is True:
        return True
    inputs = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    return isinstance(inputs, list) and "image" in inputs


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
