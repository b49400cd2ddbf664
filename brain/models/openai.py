"""Any server that speaks OpenAI's chat completions: vLLM, llama.cpp, SGLang, LM Studio, hosted ones."""

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from brain.errors import ModelError, Refused
from brain.events import Thinking
from brain.messages import Finish, Message, PassUsage, PromptProgress, sniff
from brain.models import dialects
from brain.models.dialects import LLAMA_CPP, UNKNOWN
from brain.models.frames import Frame
from brain.models.lines import ServerSentEvents
from brain.models.remote import Remote
from brain.models.reply import Checks, Over, Part, Reply, ToolDelta, arguments_text, explained, failing, failure, read
from brain.settings import OPENAI_URL
from brain.text import escape_invisible
from brain.turn_request import Sampling

DEFAULT_URL = OPENAI_URL
IDENTIFY_SECONDS = 2.0
NAMES_SHOWN = 5
NAME_LENGTH = 100

_LENGTHS = ("max_model_len", "context_length", "max_context_length")


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    """One event; `Any` where a bad value is ignored."""

    choices: list[_Choice] | None = None
    prompt_progress: Any = None
    usage: Any = None
    timings: Any = None
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
    return Reply(ServerSentEvents(), partial(parts, Checks()), Frame("content"))


def parts(checks: Checks, data: bytes) -> Sequence[Part]:
    """What one event says. Of several choices, the first one is the answer.

    Raises:
        ModelError: when it says that the model failed, or nothing that can be read.
    """
    if not data.startswith(b"{"):
        return _unusual(checks, data)
    chunk = read(data, _decoder)
    if chunk.error:
        raise failure(chunk.error)
    found: list[Part] = [] if chunk.prompt_progress is None else _progress(checks, chunk.prompt_progress)
    for choice in chunk.choices or ():
        if checks.count("choices[].index", choice.index):
            continue
        if choice.delta is not None:
            _read_delta(choice.delta, found, checks)
        if choice.finish_reason:
            reason = checks.word("finish_reason", choice.finish_reason)
            found.append(Finish("length" if reason == "length" else "stop"))
    if chunk.usage is not None and (usage := _usage(checks, chunk.usage, chunk.timings)) is not None:
        found.append(usage)
    return found


def _unusual(checks: Checks, data: bytes) -> Sequence[Part]:
    data = data.strip()
    if data[:1] == b"{":
        return parts(checks, data)
    if data == b"[DONE]":
        return (Over(),)
    if data:
        raise ModelError("model_failed", "The model server sent something unreadable.", repr(data[:200]))
    return ()


def _read_delta(delta: _Delta, found: list[Part], checks: Checks) -> None:
    if thought := delta.reasoning_content or delta.reasoning or delta.thinking:
        found.append(Thinking(thought))
    content = delta.content
    if isinstance(content, str):
        if content:
            found.append(content)
    else:
        for item in content or ():
            found += _pieces(item)
    if delta.tool_calls:
        for call in delta.tool_calls if isinstance(delta.tool_calls, list) else ():
            _read_tool_call(call, found, checks)
    if isinstance(delta.function_call, dict):  # the form before `tool_calls`, in which there is one call at most
        _read_tool_call({"function": delta.function_call}, found, checks)


def _read_tool_call(call: Any, found: list[Part], checks: Checks) -> None:
    """A piece of a call: the first one has the name, as some servers send it with all arguments."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return
    index = checks.count("tool_calls[].index", call.get("index")) or 0
    id_ = checks.word("tool_calls[].id", call.get("id")) or ""
    name = checks.word("tool_calls[].function.name", function.get("name")) or ""
    arguments = arguments_text(function.get("arguments"))
    if name or arguments:
        found.append(ToolDelta(index, id_, name, arguments))


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


def _usage(checks: Checks, usage: Any, timings: Any) -> PassUsage | None:
    """What the pass took; None when the server does not say it, or something impossible."""
    if not isinstance(usage, dict):
        checks.reject("usage", usage)
        return None
    prompt = checks.count("prompt_tokens", usage.get("prompt_tokens"))
    completion = checks.count("completion_tokens", usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    reused = checks.count("cached_tokens", details.get("cached_tokens")) if isinstance(details, dict) else None
    if reused is None and isinstance(timings, dict):
        reused = checks.count("cache_n", timings.get("cache_n"))
    return None if prompt is None or completion is None else PassUsage(prompt, completion, reused)


def _progress(checks: Checks, said: Any) -> list[Part]:
    """What llama.cpp says of a prompt that it reads; nothing where the numbers make no sense."""
    fields = said if isinstance(said, dict) else {}
    cache, processed, total = (checks.count(name, fields.get(name)) for name in ("cache", "processed", "total"))
    if cache is None or processed is None or total is None or not cache <= processed <= total:
        return []
    return [PromptProgress(processed - cache, total - cache, cache)]


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
    shown = ", ".join(escape_invisible(one)[:NAME_LENGTH] for one in names[:NAMES_SHOWN])
    return f"does not list {name}, but {shown}{more}"


def _length(model: Mapping[str, Any]) -> int | None:
    checks = Checks()
    return next(filter(None, (checks.count(key, model.get(key)) for key in _LENGTHS)), None)


def _of_props(props: Any) -> tuple[int | None, bool]:
    """The context of llama.cpp, and whether it takes images."""
    found = props if isinstance(props, dict) else {}
    generation, modalities = found.get("default_generation_settings"), found.get("modalities")
    context = Checks().count("n_ctx", generation.get("n_ctx")) if isinstance(generation, dict) else None
    return context or None, isinstance(modalities, dict) and modalities.get("vision") is True


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
