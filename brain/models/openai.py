"""Wing: any server that speaks OpenAI's chat completions: vLLM, llama.cpp, SGLang, LM Studio, hosted ones."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from brain.ask import sniff
from brain.errors import ModelError, Refused
from brain.events import Thinking
from brain.messages import Finish, Message, PassUsage, PromptProgress
from brain.models import dialects
from brain.models.dialects import LLAMA_CPP, UNKNOWN
from brain.models.frames import Frame
from brain.models.lines import ServerSentEvents
from brain.models.remote import Remote
from brain.models.replies import Over, Part, Reply, explained, failing, failure, read
from brain.sampling import Sampling
from brain.settings import OPENAI_URL

DEFAULT_URL = OPENAI_URL
IDENTIFY_SECONDS = 2.0
NAMES_SHOWN = 5
PROMPT_MOST = 2**31
"""Tokens; a server that says that a prompt has as many is wrong."""

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


class _Progress(msgspec.Struct, gc=False):
    cache: int
    processed: int
    total: int


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    prompt_progress: Any = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class OpenAI(Remote):
    """One model of a server of this API; `url` goes up to and with `/v1`."""

    _kind = "openai"
    _path = "chat/completions"
    _default_url = DEFAULT_URL
    _usual_resume = "message"
    _dialect = UNKNOWN

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        with failing():
            response = await self._http.post("embeddings", json={"model": self._embeddings, "input": list(texts)})
        try:
            return [[float(number) for number in item["embedding"]] for item in response.json()["data"]]
        except (ValueError, TypeError, LookupError):
            raise Refused("the model server has no embeddings") from None

    async def _learn(self) -> str:
        models = _listed(await self._get(f"{self._url}/models"))
        mine = next((model for model in models if model.get("id") == self._model), None)
        alike = mine or (models[0] if models else {})  # the first one speaks for one that is not listed
        dialect = dialects.of(self._url, str(alike.get("owned_by")))
        props = await self._get(self._url.removesuffix("/v1") + "/props") if dialect is LLAMA_CPP else None
        unlisted = _unlisted(self._model, models)
        known = mine or (alike if len(models) == 1 else {})
        self._dialect = dialect
        self.resume = self._wanted_resume or dialect.resume
        if props is None:
            self.context_tokens, self.sees_images = _length(known), _sees(known)
        else:
            self.context_tokens, self.sees_images = _of_props(props)
            self.template = _template(props)
        if self._wanted_context is not None:
            self.context_tokens = self._wanted_context
        self.warning = f"The model server {unlisted}." if unlisted and dialect.strict else None
        return f"{dialect.name} server" + (f", which {unlisted}" if unlisted and dialect is not LLAMA_CPP else "")

    async def _probe(self) -> None:
        await self._get(f"{self._url}/models")

    def _reply(self) -> Reply:
        return reply()

    def _request(self, messages: Sequence[Message], sampling: Sampling) -> bytes:
        sent = [_message(message) for message in messages]
        request = {
            **dialects.said(sampling, self._dialect),
            **self._dialect.always,
            "model": self._model,
            "messages": sent,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if messages[-1].role == "assistant":
            sent[-1] |= self._dialect.message
            request = dialects.gone_on(request, self._dialect)
        return msgspec.json.encode(request)

    async def _get(self, url: str) -> Any:
        with failing():
            response = await self._http.get(url, timeout=IDENTIFY_SECONDS)
        if response.status_code in (401, 403) or response.status_code >= 500:
            raise explained(response.status_code, response.text[:2000])
        try:
            return response.json() if response.status_code == 200 else {}
        except ValueError:
            return {}


def reply() -> Reply:
    """A reader for one answer."""
    return Reply(ServerSentEvents(), parts, Frame("content"))


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
    found: list[Part] = [] if chunk.prompt_progress is None else _progress(chunk.prompt_progress)
    for choice in chunk.choices or ():
        if choice.delta is not None:
            _read_delta(choice.delta, found)
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


def _read_delta(delta: _Delta, found: list[Part]) -> None:
    if thought := delta.reasoning_content or delta.reasoning or delta.thinking:
        found.append(Thinking(thought))
    content = delta.content
    if isinstance(content, str):
        if content:
            found.append(content)
    else:
        for item in content or ():
            found += _pieces(item)


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


def _progress(said: Any) -> list[Part]:
    """What llama.cpp says of a prompt that it reads; nothing where the numbers make no sense."""
    try:
        counts = msgspec.convert(said, _Progress)
    except msgspec.ValidationError:
        return []
    if not 0 <= counts.cache <= counts.processed <= counts.total < PROMPT_MOST:
        return []
    return [PromptProgress(counts.processed - counts.cache, counts.total - counts.cache)]


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.content}
    content: list[dict[str, Any]] = [{"type": "text", "text": message.content}]
    for image in message.images:
        url = f"data:{sniff(image, 'image/png')};base64,{base64.b64encode(image).decode()}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": message.role, "content": content}


def _listed(answer: Any) -> Sequence[Mapping[str, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []


def _unlisted(name: str, models: Sequence[Mapping[str, Any]]) -> str | None:
    """Says that a model is not among those listed; None when it is, or when no list or a pattern tells nothing."""
    names: list[str] = []
    for model in models:
        aliases = model.get("aliases")
        names += [
            one for one in (model.get("id"), *(aliases if isinstance(aliases, list) else ())) if isinstance(one, str)
        ]
    if not names or name in names or any("*" in one for one in names):
        return None
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"does not list {name}, but {', '.join(names[:NAMES_SHOWN])}{more}"


def _length(model: Mapping[str, Any]) -> int | None:
    return next(filter(None, (_positive(model.get(key)) for key in _LENGTHS)), None)


def _of_props(props: Any) -> tuple[int | None, bool]:
    """The context of llama.cpp, and whether it takes images."""
    found = props if isinstance(props, dict) else {}
    generation, modalities = found.get("default_generation_settings"), found.get("modalities")
    context = _positive(generation.get("n_ctx")) if isinstance(generation, dict) else None
    return context, isinstance(modalities, dict) and modalities.get("vision") is True


def _template(props: Any) -> str:
    """What llama.cpp tells of the chat template, with the tokens that begin and end a text."""
    found = props if isinstance(props, dict) else {}
    if not isinstance(found.get("chat_template"), str):
        return ""
    fields = ("chat_template", "chat_template_tool_use", "bos_token", "eos_token")
    return "\n".join(value for field in fields if isinstance(value := found.get(field), str))


def _sees(model: Mapping[str, Any]) -> bool:
    """Whether a list of models says of one that it takes images, as Mistral and OpenRouter do."""
    capabilities, architecture = model.get("capabilities"), model.get("architecture")
    if isinstance(capabilities, Mapping) and capabilities.get("vision") is True:
        return True
    inputs = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    return isinstance(inputs, list) and "image" in inputs


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
