"""Ollama, over its own API."""

import asyncio
import base64
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from brain.errors import ModelError, Refused
from brain.events import Thinking
from brain.messages import Finish, Message, NativeCall, PassUsage
from brain.models.lines import Lines
from brain.models.remote import Remote
from brain.models.reply import Checks, Part, Reply, arguments_text, explained, failing, failure, read
from brain.net import client
from brain.settings import LOOPBACK, OLLAMA_URL
from brain.turn_request import Sampling

if TYPE_CHECKING:
    import ollama

T = TypeVar("T")

DEFAULT_URL = OLLAMA_URL
CONTEXT_MOST = 16_384
CONTEXT_UNKNOWN = 4096
ASK_SECONDS = 10.0


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: Any = None


class _Line(msgspec.Struct, gc=False):
    """One line; `Any` where a bad value is ignored."""

    message: _Message | None = None
    done: Any = None
    done_reason: Any = None
    prompt_eval_count: Any = 0
    eval_count: Any = 0
    error: Any = None


class _Shown(msgspec.Struct):
    capabilities: Any = None
    model_info: Any = None
    template: Any = None
    parameters: Any = None

    @property
    def can(self) -> Sequence[Any] | None:
        """What the model can; None where the server, an old one, does not say."""
        return self.capabilities if isinstance(self.capabilities, list) else None

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the model's file says of it."""
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
_LEVELS: Mapping[str, bool | str] = {"none": False, "minimal": "low", "xhigh": "max"}
"""How hard OpenAI's clients let models think, in the words of Ollama where those differ."""

_decoder = msgspec.json.Decoder(_Line)
_show_decoder = msgspec.json.Decoder(_Shown)


class Ollama(Remote):
    """One model of an Ollama server; its renderers continue a started answer."""

    context_tokens = CONTEXT_UNKNOWN
    _kind = "ollama"
    _path = "/api/chat"
    _default_url = DEFAULT_URL
    _usual_resume = "prefill"
    _thinks = True

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        try:
            async with ollama_client(self._url, self._headers) as server:
                made = await _ask(server.embed(self._embeddings, list(texts)))
        except ModelError:
            raise Refused("the model server has no embeddings for this model") from None
        return [list(vector) for vector in made.embeddings]

    async def _learn(self) -> str:
        shown = await _shown(self._http, self._model)
        checks = Checks()
        known = [checks.count(key, size) or 0 for key, size in shown.facts.items() if key.endswith(".context_length")]
        self.context_tokens = self._wanted_context or min(max(known, default=0) or CONTEXT_UNKNOWN, CONTEXT_MOST)
        self.template = _template(shown)
        self.sees_images = "vision" in (shown.can or ())
        self._thinks = shown.can is None or "thinking" in shown.can
        return f"Ollama server, context of {self.context_tokens} tokens"

    async def _probe(self) -> None:
        await _shown(self._http, self._model)

    def _reply(self) -> Reply:
        return reply()

    def _request(self, messages: Sequence[Message], sampling: Sampling) -> bytes:
        said = _said(sampling)
        if not self._thinks:
            said.pop("think", None)  # it would refuse the request
        return msgspec.json.encode(
            {
                **said,
                "model": self._model,
                "messages": [_message(message) for message in messages],
                "stream": True,
                "truncate": False,
                "options": {**_options(sampling), "num_ctx": self.context_tokens},
            }
        )


def ollama_client(url: str, headers: Mapping[str, str] | None = None) -> "ollama.AsyncClient":
    """The ollama package's ollama_client, for everything but the token stream.

    By itself it would follow redirects, and send `OLLAMA_API_KEY` to any server.
    """
    import ollama  # takes half a second, which only those with an Ollama server pay

    async def use_own_key(request: httpx.Request) -> None:
        request.headers.pop("Authorization", None)
        request.headers.update(headers or {})

    return ollama.AsyncClient(
        url,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        timeout=ASK_SECONDS,
        trust_env=urlsplit(url).hostname not in LOOPBACK,  # a proxy of the machine is not on the way to itself
        event_hooks={"request": [use_own_key], "response": [client.require_plain]},
    )


async def _ask(answer: Awaitable[T]) -> T:
    """What the ollama package's ollama_client answers.

    Raises:
        ModelError: when it does not, or the server answers something else.
    """
    import ollama
    import pydantic

    try:
        with failing():
            return await answer
    except ollama.ResponseError as error:
        raise explained(error.status_code, error.error[:2000]) from None
    except ConnectionError as error:
        raise ModelError("model_unreachable", "The model server cannot be reached.", repr(error)) from None
    except (pydantic.ValidationError, ValueError) as error:
        raise ModelError("model_failed", "The model server sent something unreadable.", str(error)[:200]) from None


async def installed(url: str, seconds: float, key: str | None = None) -> str | None:
    """The model that `auto` takes: one that can complete, the loaded one before the newest; None when there is none.

    Raises:
        ModelError: when no server answers within `seconds`, or it is no Ollama server.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else None
    async with client.Client(url, headers) as server:
        try:
            with failing():
                async with asyncio.timeout(seconds):
                    await server.get("/api/version")
        except TimeoutError:
            raise ModelError("model_unreachable", "The model server does not answer.", "the time is up") from None
        async with ollama_client(url, headers) as known:
            loaded = (await _ask(known.ps())).models
            listed = sorted((await _ask(known.list())).models, key=_modified, reverse=True)
        for name in dict.fromkeys(str(one.model) for one in (*loaded, *listed)):
            if await _can_complete(server, name):
                return name
    return None


async def _can_complete(server: httpx.AsyncClient, name: str) -> bool:
    try:
        shown = await _shown(server, name)
    except ModelError:  # gone since it was listed, or broken: another one may do
        return False
    return shown.can is None or "completion" in shown.can


async def _shown(server: httpx.AsyncClient, name: str) -> _Shown:
    """What the server says of a model."""
    return await _answer(server, "POST", "/api/show", _show_decoder, {"model": name})


async def _answer(
    server: httpx.AsyncClient, method: str, path: str, decoder: "msgspec.json.Decoder[T]", body: Any = None
) -> T:
    with failing():
        response = await server.request(method, path, json=body, timeout=ASK_SECONDS)
    if response.status_code != 200:
        raise explained(response.status_code, response.text[:2000])
    return read(response.content, decoder)


def _template(shown: _Shown) -> str:
    """What an answer tells of the chat template: itself, the texts that stop the model, and its vocabulary's tokens."""
    if not isinstance(shown.template, str) or not shown.template:
        return ""
    is_sentencepiece = shown.facts.get("tokenizer.ggml.model") == "llama"
    parameters = shown.parameters if isinstance(shown.parameters, str) else ""
    return "\n".join([shown.template, parameters, "<s></s>" if is_sentencepiece else ""])


def _modified(model: "ollama.ListResponse.Model") -> float:
    try:
        return 0.0 if model.modified_at is None else model.modified_at.timestamp()
    except (OverflowError, ValueError):  # a year that no clock of this machine has
        return 0.0


def reply() -> Reply:
    """A reader for one answer."""
    return Reply(Lines(), partial(parts, Checks()))


def parts(checks: Checks, data: bytes) -> Sequence[Part]:
    """What one line says.

    Raises:
        ModelError: when it says that the model failed, or nothing that can be read.
    """
    if not data.strip():
        return ()
    line = read(data, _decoder)
    if line.error:
        raise failure(line.error)
    found: list[Part] = []
    if line.message is not None:
        if line.message.thinking:
            found.append(Thinking(line.message.thinking))
        if line.message.content:
            found.append(line.message.content)
        if line.message.tool_calls:
            found += _tool_calls(checks, line.message.tool_calls)
    if line.done is True:
        prompt = checks.count("prompt_eval_count", line.prompt_eval_count)
        completion = checks.count("eval_count", line.eval_count)
        if prompt is not None and completion is not None:
            found.append(PassUsage(prompt, completion))
        found.append(Finish("length" if checks.word("done_reason", line.done_reason) == "length" else "stop"))
    elif line.done is not None and line.done is not False:
        checks.reject("done", line.done)
    return found


def _tool_calls(checks: Checks, calls: Any) -> Sequence[Part]:
    """Tool calls of one line, each of which is whole."""
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and (name := checks.word("tool_calls[].function.name", function.get("name"))):
            found.append(NativeCall(name, arguments_text(function.get("arguments"))))
    return found


def _said(sampling: Sampling) -> dict[str, Any]:
    """The fields of a request that say how the model is to write."""
    effort = sampling.effort
    think = _LEVELS.get(effort, effort) if isinstance(effort, str) else effort
    said = {"think": think, "format": sampling.format, "keep_alive": sampling.keep_alive}
    return {name: value for name, value in said.items() if value is not None}


def _options(sampling: Sampling) -> dict[str, Any]:
    """The same of its options, among them those that only Ollama knows."""
    values = {option: getattr(sampling, name) for name, option in _OPTIONS.items()}
    more = sampling.more if sampling.dialect == "ollama" else {}
    return {**more, **{option: value for option, value in values.items() if value is not None}}


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        found["images"] = [base64.b64encode(image).decode() for image in message.images]
    return found
