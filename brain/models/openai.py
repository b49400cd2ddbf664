"""Models of servers with the OpenAI chat completions API: vLLM, llama.cpp, SGLang, LM Studio, hosted ones."""

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from brain.errors import ModelError, Refused
from brain.events import Thinking
from brain.messages import CallMessage, Chunk, Message, PassUsage, sniff
from brain.models import completion, failures
from brain.models.dialects import LLAMA_CPP, UNKNOWN, find_dialect, resume_fields, sampling_fields
from brain.models.event_template import EventTemplate
from brain.models.lines import ServerSentEvents
from brain.models.model import PassRequest
from brain.models.remote import Remote
from brain.models.reply import (
    Answer,
    EndOfReply,
    Reply,
    ReplyPart,
    ReportedValues,
    decode_item,
    decode_progress,
    find_failure,
    open_answer,
    read_calls,
    report_error,
    stream_chunks,
)
from brain.net.client import stream_body
from brain.settings import ModelRow
from brain.text import escape_invisible, suggest
from brain.turn_request import TOOL_CHOICES, Decoding

log = logging.getLogger("brain")

IDENTIFY_SECONDS = 2.0
PROMPT_SECONDS = 5.0
"""Time limit for the prompt that llama.cpp makes of messages."""
MAX_PROMPT_BYTES = 8 * 1024 * 1024
MAX_NAMES = 5
MAX_NAME = 100

FALLBACK_TEMPLATE = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}"""
"""What llama.cpp reports as the chat template of a model that has none."""
CHATML_END = "<|im_end|>"
REASONING_WORDS = ("think", "reasoning", "<|channel")
"""Words in the chat templates of models whose reasoning only the server's own parser separates from the answer."""

_CONTEXT_KEYS = ("max_model_len", "context_length", "max_context_length")


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | dict[str, Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct, gc=False):
    """One choice. A server that does not stream sends a whole `message`."""

    index: Any = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    prompt_progress: Any = None
    usage: Any = None
    timings: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class OpenAI(Remote):
    """One model of a server with this API; its URL ends in `/v1`."""

    _path = "chat/completions"
    _default_resume = "message"
    _dialect = UNKNOWN
    _has_completions = True
    _has_lazy_grammars = True

    def __init__(self, row: ModelRow) -> None:
        super().__init__(row)
        self._root = self._url.removesuffix("/v1")
        self._completion = self._http.prepare_post(f"{self._root}/completion")
        self._apply_template = self._http.prepare_post(f"{self._root}/apply-template")

    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        can_complete = self._has_completions and not request.tools and not any(one.images for one in request.messages)
        if can_complete and (self._is_plain(request) or self._has_call_grammar(request)):
            return self._complete(request)
        return super().stream(request)

    def _is_plain(self, request: PassRequest) -> bool:
        return request.decoding.is_plain and self.is_base

    def _has_call_grammar(self, request: PassRequest) -> bool:
        """Whether calls follow the grammar. Chat completions apply a grammar to all text, so they have none."""
        wants_grammar = request.decoding.call_grammar and request.sampling.format is None
        if not wants_grammar or self._dialect is not LLAMA_CPP:
            return False
        is_readable = bool(self.template) and not any(word in self.template for word in REASONING_WORDS)
        return self._has_lazy_grammars and is_readable

    async def _complete(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Stream a completion, or an ordinary answer if the server rejects the completion."""
        ask = partial(self._ask_completion, request)
        try:
            async with aclosing(stream_chunks(ask, completion.build_reply(), self._url, request.take)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except completion.CompletionRefused as refused:
            may_lack_grammars = refused.may_lack_grammars
        else:
            return
        stream = super().stream(replace(request, decoding=Decoding(stop=request.decoding.stop)))
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                if may_lack_grammars:  # the same request without a grammar is accepted
                    self._has_lazy_grammars = may_lack_grammars = False
                yield chunk

    async def _ask_completion(self, request: PassRequest) -> Answer:
        await self._identify_again()
        is_plain = self._is_plain(request)
        prompt = completion.join_texts(request.messages) if is_plain else await self._build_prompt(request)
        body = completion.build_body(self._model, prompt, request.sampling, request.decoding)
        response = await self._http.send_prepared(self._completion, body)
        try:
            return await open_answer(response, is_resumed=False)
        except ModelError as error:
            if error.code == "model_context" or error.status not in (400, 404, 405, 422, 501):
                raise
            if error.status not in (400, 422):
                self._has_completions = False
            elif is_plain:
                raise
            log.info("model server rejects a completion; Brain sends a chat request: %s", error)
            raise completion.CompletionRefused(may_lack_grammars=error.status in (400, 422)) from None

    async def _build_prompt(self, request: PassRequest) -> str:
        """Return the prompt that llama.cpp makes of the messages.

        Raises:
            CompletionRefused: It makes none, or not in time. The ordinary request then reports why.
        """
        arguments = sampling_fields(request.sampling, self._dialect).get("chat_template_kwargs")
        body: dict[str, Any] = {
            "model": self._model,
            "messages": _encode_messages(request.messages),
            **({"chat_template_kwargs": arguments} if arguments else {}),
        }
        if request.messages[-1].is_unfinished:
            body = resume_fields(body, self._dialect)
        data = bytearray()
        try:
            async with asyncio.timeout(PROMPT_SECONDS):
                response = await self._http.send_prepared(self._apply_template, msgspec.json.encode(body))
                async with aclosing(response), aclosing(stream_body(response)) as parts:
                    async for part in parts:
                        data += part
                        if len(data) > MAX_PROMPT_BYTES:
                            raise completion.CompletionRefused
            if response.status_code in (404, 405, 501):
                self._has_lazy_grammars = False
            if response.status_code == 200:
                return msgspec.json.decode(data, type=completion.Prompt).prompt
        except (TimeoutError, msgspec.DecodeError, UnicodeDecodeError):
            pass
        raise completion.CompletionRefused

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        with failures.translate_errors(self._url):
            response = await self._http.post("embeddings", json={"model": self._embedding_model, "input": list(texts)})
        try:
            return [[float(number) for number in item["embedding"]] for item in response.json()["data"]]
        except (ValueError, TypeError, LookupError, OverflowError):
            raise Refused("the model server returns no embeddings") from None

    async def list_names(self) -> list[str]:
        return [name for model in await self._list_models() if isinstance(name := model.get("id"), str)]

    async def _list_models(self) -> list[dict[str, Any]]:
        listed = await self._get(f"{self._url}/models")
        data = listed.get("data") if isinstance(listed, dict) else None
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []

    async def _identify(self) -> str:
        models = await self._list_models()
        own = next((model for model in models if model.get("id") == self._model), None)
        similar = own or (models[0] if models else {})  # the first model represents an unlisted one
        dialect = find_dialect(self._url, str(similar.get("owned_by")))
        props = await self._get(f"{self._root}/props") if dialect is LLAMA_CPP else None
        self._dialect, self.is_base = dialect, False
        meta = own.get("meta") if own is not None else None
        parameters = meta.get("n_params") if isinstance(meta, dict) else None
        self.parameters = ReportedValues().parameters("n_params", parameters)
        self.resume = self._fixed_resume or dialect.resume
        if props is None:
            known = own or (similar if len(models) == 1 else {})
            checks = ReportedValues()
            self.context_tokens = next(filter(None, (checks.count(k, known.get(k)) for k in _CONTEXT_KEYS)), None)
            self.sees_images = _lists_images(known)
            self.accepts_tools = _lists_tools(known)
        else:
            self._read_props(props if isinstance(props, dict) else {})
        others = _list_others(self._model, models)
        self.offers = others if dialect.is_strict else []
        self.warning = ""
        if others and not dialect.is_strict and dialect is not LLAMA_CPP:
            more = f" and {len(others) - MAX_NAMES} more" if len(others) > MAX_NAMES else ""
            near = suggest(self._model, others) or f" It lists {', '.join(others[:MAX_NAMES])}{more}."
            self.warning = f"The server does not list '{self._model}'.{near}"
        return f"{dialect.name} server"

    def _read_props(self, props: Mapping[str, Any]) -> None:
        """Read the properties that llama.cpp reports."""
        generation, modalities = props.get("default_generation_settings"), props.get("modalities")
        context = ReportedValues().count("n_ctx", generation.get("n_ctx")) if isinstance(generation, dict) else None
        self.context_tokens = context or None
        self.sees_images = isinstance(modalities, dict) and modalities.get("vision") is True
        keys = ("chat_template", "chat_template_tool_use", "bos_token", "eos_token")
        texts = [text for key in keys if isinstance(text := props.get(key), str)]
        template = props.get("chat_template")
        self.template = "\n".join(texts) if isinstance(template, str) else ""
        self.is_base = template == FALLBACK_TEMPLATE and props.get("eos_token", CHATML_END) != CHATML_END
        capabilities = props.get("chat_template_caps")
        if isinstance(capabilities, dict):
            features = ("supports_tools", "supports_tool_calls")
            self.accepts_tools = not any(capabilities.get(feature) is False for feature in features)
        else:  # an older version
            self.accepts_tools = not self.template or "tools" in self.template

    async def _probe(self) -> None:
        await self._get(f"{self._url}/models")

    def _build_reply(self, offered: Collection[str]) -> Reply:
        return build_reply(offered)

    def _build_body(self, request: PassRequest) -> bytes:
        tools, tool_choice = request.tools, request.tool_choice
        encoded = _encode_messages(request.messages)
        body = {
            **sampling_fields(request.sampling, self._dialect),
            **self._dialect.always,
            "model": self._model,
            "messages": encoded,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.decoding.stop:
            body["stop"] = request.decoding.stop
        if self._dialect is LLAMA_CPP and tool_choice not in TOOL_CHOICES:  # it takes a name for `auto`
            tools = [tool for tool in tools if tool["function"]["name"] == tool_choice]
            tool_choice = "required"
        if tools:
            body["tools"] = tools
        if tools and tool_choice != "auto":  # without tools, the server would read the whole prompt anew
            is_word = tool_choice in TOOL_CHOICES
            body["tool_choice"] = tool_choice if is_word else {"type": "function", "function": {"name": tool_choice}}
        if request.messages[-1].is_unfinished:
            encoded[-1] |= self._dialect.resume_message
            body = resume_fields(body, self._dialect)
        return msgspec.json.encode(body)

    async def _get(self, url: str) -> Any:
        """Return the JSON of a free request; {} without one."""
        with failures.translate_errors(self._url):
            response = await self._http.get(url, timeout=IDENTIFY_SECONDS)
        if response.status_code in (401, 403) or response.status_code >= 500:
            raise failures.from_status(response.status_code, response.text[:2000])
        try:
            return response.json() if response.status_code == 200 else {}
        except ValueError:
            return {}


def build_reply(offered: Collection[str] = ()) -> Reply:
    """Return the decoder of one answer to a request with tools of these names."""
    decode = partial(decode_event, ReportedValues())
    return Reply(ServerSentEvents(), decode, EventTemplate("content"), offered)


def decode_event(checks: ReportedValues, data: bytes) -> Sequence[ReplyPart]:
    """Decode one event. Of several choices, the first one is the answer. Fields with bad values are ignored.

    Raises:
        ModelError: The event cannot be read.
    """
    if not data.startswith(b"{") and data.strip() == b"[DONE]":
        return (EndOfReply(),)
    event = decode_item(data, _decoder, checks)
    if event is None:
        return ()
    if (event.error or not event.choices) and (failure := find_failure(data, event.error, checks)):
        return failure
    parts: list[ReplyPart] = []
    if (progress := decode_progress(event.prompt_progress, checks)) is not None:
        parts.append(progress)
    for choice in event.choices or ():
        if checks.count("choices[].index", choice.index):
            continue
        if (delta := choice.delta or choice.message) is not None:
            _decode_delta(delta, parts, checks)
        if choice.error:
            parts += report_error(choice.error)
        if choice.finish_reason:
            parts += checks.end(choice.finish_reason)
    if event.usage is not None and (usage := _decode_usage(event.usage, event.timings, checks)) is not None:
        parts.append(usage)
    return parts


def _decode_delta(delta: _Delta, parts: list[ReplyPart], checks: ReportedValues) -> None:
    if thought := delta.reasoning_content or delta.reasoning or delta.thinking:
        parts.append(Thinking(thought))
    if isinstance(delta.content, str):
        if delta.content:
            parts.append(delta.content)
    elif delta.content is not None:
        for item in delta.content if isinstance(delta.content, list) else [delta.content]:
            parts += _decode_content_item(item)
    if delta.refusal:
        parts.append(delta.refusal)
    if delta.tool_calls is not None:
        parts += read_calls(delta.tool_calls, checks)
    if delta.function_call is not None:  # the older form, with up to one call
        parts += read_calls({"function": delta.function_call}, checks)


def _decode_content_item(item: Any) -> Sequence[ReplyPart]:
    """Decode an item of a list, as Mistral's reasoning models send: text, or reasoning as a list of texts."""
    if isinstance(item, str):
        return (item,) if item else ()
    if not isinstance(item, Mapping):
        return ()
    text = item.get("text") or item.get("refusal")
    if isinstance(text, str) and text:
        return (text,)
    thoughts = item.get("thinking")
    texts = [text for one in thoughts for text in _decode_content_item(one)] if isinstance(thoughts, list) else []
    return [Thinking(text) for text in texts if isinstance(text, str)]


def _decode_usage(usage: Any, timings: Any, checks: ReportedValues) -> PassUsage | None:
    """Return the tokens of a pass; None if the server reports none or impossible ones."""
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


def _encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [one for message in messages for one in _encode_message(message)]


def _encode_message(message: Message) -> list[dict[str, Any]]:
    """Encode a message. Tool calls and their results become several."""
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if isinstance(message, CallMessage):
        encoded["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
        results = [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in message.calls]
        return [encoded, *results]
    if not message.images:
        return [encoded]
    content: list[dict[str, Any]] = [{"type": "text", "text": message.content}]
    for image in message.images:
        url = f"data:{sniff(image, 'image/png')};base64,{base64.b64encode(image).decode()}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    return [{"role": message.role, "content": content}]


def _list_others(name: str, models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the listed names if this one is missing; an empty list if there is no list, or it contains a pattern."""
    names: list[str] = []
    for model in models:
        aliases = model.get("aliases")
        ids = [model.get("id"), *(aliases if isinstance(aliases, list) else ())]
        names += [one for one in ids if isinstance(one, str)]
    if name in names or any("*" in one for one in names):
        return []
    return [escape_invisible(one)[:MAX_NAME] for one in names]


def _lists_tools(model: Mapping[str, Any]) -> bool:
    """Return False if an entry of the model list reports no tool calls, in the form of Mistral or OpenRouter."""
    capabilities, parameters = model.get("capabilities"), model.get("supported_parameters")
    if isinstance(capabilities, Mapping) and capabilities.get("function_calling") is False:
        return False
    return "tools" in parameters if isinstance(parameters, list) else True


def _lists_images(model: Mapping[str, Any]) -> bool:
    """Return whether an entry of the model list reports image input, as Mistral and OpenRouter do."""
    capabilities, architecture = model.get("capabilities"), model.get("architecture")
    if isinstance(capabilities, Mapping) and capabilities.get("vision") is True:
        return True
    inputs = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    return isinstance(inputs, list) and "image" in inputs
