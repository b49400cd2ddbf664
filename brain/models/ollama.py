"""Models of Ollama, through its native API."""

import asyncio
import base64
from collections.abc import Awaitable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from brain.errors import ModelError, UnreadableData
from brain.events import Thinking
from brain.messages import CallMessage, Finish, Message, PassUsage
from brain.models import failures
from brain.models.lines import Lines
from brain.models.model import PassRequest
from brain.models.remote import Remote
from brain.models.reply import Reply, ReplyPart, ReportedValues, decode_item, find_failure, read_calls
from brain.net import client
from brain.settings import LOOPBACK, ModelRow, redact_url

if TYPE_CHECKING:
    import ollama

T = TypeVar("T")

MAX_CONTEXT = 16_384
DEFAULT_CONTEXT = 4096
REQUEST_SECONDS = 10.0


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: Any = None


class _Line(msgspec.Struct, gc=False):
    message: _Message | None = None
    done: Any = None
    done_reason: Any = None
    prompt_eval_count: Any = 0
    eval_count: Any = 0
    error: Any = None


class _ModelDetails(msgspec.Struct):
    """The answer of `/api/show`."""

    capabilities: Any = None
    model_info: Any = None
    template: Any = None
    parameters: Any = None
    remote_host: Any = None

    def has(self, capability: str, default: bool) -> bool:
        """Return whether the model has a capability; `default` for an old server that lists none."""
        return capability in self.capabilities if isinstance(self.capabilities, list) else default

    @property
    def info(self) -> Mapping[str, Any]:
        """The metadata of the model's file."""
        return self.model_info if isinstance(self.model_info, dict) else {}


_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
_EFFORTS: Mapping[str, bool | str] = {"none": False, "minimal": "low", "xhigh": "max"}
"""Reasoning efforts of OpenAI clients with another name in Ollama."""

_decoder = msgspec.json.Decoder(_Line)
_details_decoder = msgspec.json.Decoder(_ModelDetails)


class Ollama(Remote):
    """One model of an Ollama server, which can continue a started answer."""

    context_tokens = DEFAULT_CONTEXT
    _path = "/api/chat"
    _default_resume = "prefill"
    _can_think = True

    def __init__(self, row: ModelRow) -> None:
        super().__init__(row)
        # Ollama passes these on to its own servers, which the address does not show
        self.is_local = row.local or (row.is_local and not row.model.endswith((":cloud", "-cloud")))

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        async with ollama_client(self._url, self._headers) as server:
            response = await _translate(server.embed(self._embedding_model, list(texts)), self._url)
        return [list(vector) for vector in response.embeddings]

    async def _identify(self) -> str:
        details = await _show(self._http, self._model)
        checks, info = ReportedValues(), details.info
        lengths = [checks.count(key, value) or 0 for key, value in info.items() if key.endswith(".context_length")]
        length = min(max(lengths, default=0) or DEFAULT_CONTEXT, MAX_CONTEXT)
        self.context_tokens = self.row.context or length
        self.sees_images = details.has("vision", default=False)
        self._can_think = details.has("thinking", default=True)
        self.parameters = checks.parameters("general.parameter_count", info.get("general.parameter_count"))
        if details.remote_host and not self.row.local:
            self.is_local = False
        self.accepts_tools = details.has("tools", default=True)
        self.template = ""
        if isinstance(details.template, str) and details.template:
            parameters = details.parameters if isinstance(details.parameters, str) else ""
            is_sentencepiece = info.get("tokenizer.ggml.model") == "llama"
            self.template = "\n".join([details.template, parameters, "<s></s>" if is_sentencepiece else ""])
        return f"Ollama server, context of {self.context_tokens} tokens"

    async def _probe(self) -> None:
        await _show(self._http, self._model)

    async def list_names(self) -> list[str]:
        async with ollama_client(self._url, self._headers) as server:
            return [
                str(one.model).removesuffix(":latest") for one in (await _translate(server.list(), self._url)).models
            ]

    def _build_reply(self, offered: Collection[str]) -> Reply:
        return build_reply(offered)

    def _build_body(self, request: PassRequest) -> bytes:
        """Encode the request.

        Ollama has no `tool_choice`: a model with tools may call them. An answer in JSON could pass for a call, so a
        request for JSON has no tools.
        """
        sampling, tools, stop = request.sampling, request.tools, request.decoding.stop
        effort = _EFFORTS.get(sampling.effort, sampling.effort) if isinstance(sampling.effort, str) else sampling.effort
        think = effort if self._can_think else None  # a model without reasoning rejects the field
        fields = {"think": think, "format": sampling.format, "keep_alive": sampling.keep_alive}
        options = {option: getattr(sampling, name) for name, option in _OPTIONS.items()}
        return msgspec.json.encode(
            {
                **_without_none(fields),
                "model": self._model,
                "messages": [one for message in request.messages for one in _encode_message(message)],
                **({"tools": tools} if tools and sampling.format is None else {}),
                "stream": True,
                "truncate": False,
                "options": {
                    **(sampling.more if sampling.dialect == "ollama" else {}),
                    **_without_none(options),
                    **({"stop": stop} if stop else {}),
                    "num_ctx": self.context_tokens,
                },
            }
        )


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _encode_message(message: Message) -> list[dict[str, Any]]:
    """Encode a message. Tool calls and their results become several."""
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if isinstance(message, CallMessage):
        encoded["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": msgspec.Raw(call.arguments.encode())}}
            for call in message.calls
        ]
        results = [
            {"role": "tool", "tool_name": call.name, "tool_call_id": call.id, "content": call.result}
            for call in message.calls
        ]
        return [encoded, *results]
    if message.images:
        encoded["images"] = [base64.b64encode(image).decode() for image in message.images]
    return [encoded]


def ollama_client(url: str, headers: Mapping[str, str] | None = None) -> "ollama.AsyncClient":
    """Return a client of the ollama package, for everything except the token stream.

    By default, the package follows redirects and sends `OLLAMA_API_KEY` to any server.
    """
    import ollama  # takes half a second, which only users of an Ollama server pay

    async def use_own_key(request: httpx.Request) -> None:
        request.headers.pop("Authorization", None)
        request.headers.update(headers or {})

    return ollama.AsyncClient(
        url,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        timeout=REQUEST_SECONDS,
        trust_env=urlsplit(url).hostname not in LOOPBACK,  # the machine needs no proxy to reach itself
        event_hooks={"request": [use_own_key], "response": [client.reject_compressed]},
    )


async def _translate(answer: Awaitable[T], url: str) -> T:
    """Await a call of the ollama package and translate its errors.

    Raises:
        ModelError: The server does not answer, or answers something else.
    """
    import ollama
    import pydantic

    try:
        with failures.translate_errors(url):
            return await answer
    except ollama.ResponseError as error:
        raise failures.from_status(error.status_code, error.error[:2000]) from None
    except ConnectionError as error:
        raise ModelError("model_unreachable", failures.UNREACHABLE, failures.describe_failure(error, url)) from None
    except (pydantic.ValidationError, ValueError) as error:
        raise UnreadableData(str(error)[:200]) from None


async def find_model(url: str, seconds: float, key: str | None = None) -> str | None:
    """Return the model for `auto`: a loaded chat model, else the newest one; None without one.

    Raises:
        ModelError: No server answers within `seconds`, or it is not an Ollama server.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else None
    async with client.HTTPClient(url, headers) as server:
        try:
            with failures.translate_errors(url):
                async with asyncio.timeout(seconds):
                    await server.get("/api/version")
        except TimeoutError:
            raise ModelError(
                "model_unreachable", failures.NO_ANSWER, f"{redact_url(url)}: no answer within {seconds:g} s"
            ) from None
        async with ollama_client(url, headers) as ollama_api:
            loaded = (await _translate(ollama_api.ps(), url)).models
            listed = sorted((await _translate(ollama_api.list(), url)).models, key=_modified_at, reverse=True)
        for name in dict.fromkeys(str(one.model) for one in (*loaded, *listed)):
            try:
                details = await _show(server, name)
            except ModelError:  # removed since it was listed, or broken
                continue
            if details.has("completion", default=True):
                return name
    return None


def _modified_at(model: "ollama.ListResponse.Model") -> float:
    return 0.0 if model.modified_at is None else model.modified_at.timestamp()


async def _show(server: httpx.AsyncClient, name: str) -> _ModelDetails:
    with failures.translate_errors(str(server.base_url).rstrip("/")):
        response = await server.post("/api/show", json={"model": name}, timeout=REQUEST_SECONDS)
    if response.status_code != 200:
        raise failures.from_status(response.status_code, response.text[:2000])
    try:
        return _details_decoder.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableData(f"{error}: {response.content[:200]!r}") from None


def build_reply(offered: Collection[str] = ()) -> Reply:
    """Return the decoder of one answer to a request with tools of these names."""
    return Reply(Lines(), partial(decode_line, ReportedValues()), offered=offered)


def decode_line(checks: ReportedValues, data: bytes) -> Sequence[ReplyPart]:
    """Decode one line. Fields with bad values are ignored.

    Raises:
        ModelError: The line cannot be read.
    """
    line = decode_item(data, _decoder, checks)
    if line is None:
        return ()
    if (line.error or line.message is None) and (failure := find_failure(data, line.error, checks)):
        return failure
    parts: list[ReplyPart] = []
    if line.message is not None:
        if line.message.thinking:
            parts.append(Thinking(line.message.thinking))
        if line.message.content:
            parts.append(line.message.content)
        if line.message.tool_calls is not None:
            parts += read_calls(line.message.tool_calls, checks)
    if line.done is True:
        prompt = checks.count("prompt_eval_count", line.prompt_eval_count)
        completion = checks.count("eval_count", line.eval_count)
        if prompt is not None and completion is not None:
            parts.append(PassUsage(prompt, completion))
        parts += checks.end(line.done_reason) or (Finish("stop"),)
    elif line.done:
        checks.reject("done", line.done)
    return parts
