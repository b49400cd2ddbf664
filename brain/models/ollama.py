"""Wing: Ollama. The ollama package lists, shows and embeds; the stream of tokens is read here, a read at a time."""

import base64
import json
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import httpx
import msgspec

from brain import http
from brain.errors import ModelError, PrefillRefused, Refused
from brain.events import Thinking
from brain.messages import Chunk, Finish, Message, PassUsage, Resume
from brain.models.lines import Lines
from brain.models.replies import explained, failing

if TYPE_CHECKING:
    from ollama import AsyncClient

DEFAULT_URL = "http://127.0.0.1:11434"
CONTEXT_MOST = 16_384
CONTEXT_UNKNOWN = 4096

log = logging.getLogger("brain")


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None


class _Line(msgspec.Struct):
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int = 0
    eval_count: int = 0
    error: Any = None


_decode = msgspec.json.Decoder(_Line).decode


class Ollama:
    """One model of an Ollama server.

    Args:
        name: as Ollama lists it, such as `llama3.2:3b`.
        url: the server's base URL.
        resume: overrides `prefill`, which Ollama's renderers do.
    """

    stand_in = False

    def __init__(self, name: str, url: str | None = None, key: str | None = None, resume: Resume | None = None) -> None:
        self.name = f"ollama:{name}"
        self.resume: Resume = resume or "prefill"
        self.context_tokens: int | None = CONTEXT_UNKNOWN
        self.sees_images = False
        self._model = name
        self._url = (url or DEFAULT_URL).rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else None
        self._http = http.client(self._url, self._headers)

    async def identify(self) -> str:
        """Asks the server about the model; a sentence for people.

        Raises:
            ModelError: when it cannot be reached, or does not have the model.
        """
        shown = await _ask(client(self._url, self._headers).show(self._model))
        info = shown.modelinfo or {}
        lengths = [value for key, value in info.items() if key.endswith(".context_length") and isinstance(value, int)]
        self.context_tokens = min(max(lengths, default=CONTEXT_UNKNOWN), CONTEXT_MOST)
        self.sees_images = "vision" in (shown.capabilities or ())
        return f"Ollama server, context of {self.context_tokens} tokens, resumes by {self.resume}"

    async def stream(self, messages: Sequence[Message], turn_pass: int = 0) -> AsyncGenerator[Chunk, None]:
        """One pass over `POST /api/chat`, as much as one read brings in one chunk."""
        lines = Lines()
        ended = False
        with failing():
            async with self._http.stream("POST", "/api/chat", content=self._request(messages)) as response:
                if response.status_code != 200:
                    await self._fail(response, resumed=messages[-1].role == "assistant")
                async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_bytes())) as reads:
                    async for data in reads:
                        for chunk in _chunks(lines.feed(data)):
                            ended = ended or isinstance(chunk, Finish)
                            yield chunk
                for chunk in _chunks(lines.close()):
                    ended = ended or isinstance(chunk, Finish)
                    yield chunk
        if not ended:
            raise ModelError("model_failed", "The model server broke off in the middle of its answer.", "no done line")

    async def describe(self, image: bytes, question: str) -> str:
        """What the model sees in an encoded image."""
        parts = []
        async with aclosing(self.stream([Message("user", question, (image,))])) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, str):
                    parts.append(chunk)
        return "".join(parts)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text."""
        try:
            found = await _ask(client(self._url, self._headers).embed(self._model, list(texts)))
        except ModelError:
            raise Refused("the model server has no embeddings for this model") from None
        return [list(vector) for vector in found.embeddings]

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _request(self, messages: Sequence[Message]) -> bytes:
        return msgspec.json.encode(
            {
                "model": self._model,
                "messages": [_message(message) for message in messages],
                "stream": True,
                "truncate": False,
                "options": {"num_ctx": self.context_tokens},
            }
        )

    async def _fail(self, response: httpx.Response, *, resumed: bool) -> None:
        text = (await response.aread())[:2000].decode(errors="replace")
        error = explained(response.status_code, text)
        if resumed and response.status_code == 400 and error.code != "model_context":
            self.resume = "message"
            raise PrefillRefused(text)
        raise error


def client(url: str, headers: dict[str, str] | None = None) -> "AsyncClient":
    """The ollama package's own client, for all that is no stream."""
    from ollama import AsyncClient  # half a second to import: only who has an Ollama server pays for it

    return AsyncClient(host=url, headers=headers, timeout=10.0)


async def installed(url: str, seconds: float) -> str | None:
    """The model that `auto` takes: one that can complete, the loaded one before the newest; None when there is none.

    Raises:
        ModelError: when no server answers within `seconds`.
    """
    with failing():
        async with http.client(url) as quick:
            await quick.get("/api/version", timeout=seconds)
    ollama = client(url)
    loaded = [str(model.model) for model in (await _ask(ollama.ps())).models]
    by_age = sorted((await _ask(ollama.list())).models, key=lambda model: str(model.modified_at or ""), reverse=True)
    for name in (*loaded, *(str(model.model) for model in by_age)):
        if "completion" in ((await _ask(ollama.show(name))).capabilities or ("completion",)):
            return name
    return None


async def _ask(answer: Any) -> Any:
    from ollama import ResponseError

    try:
        return await answer
    except ResponseError as error:
        raise explained(error.status_code, error.error) from error
    except (ConnectionError, httpx.HTTPError) as error:
        raise ModelError("model_unreachable", "The model server cannot be reached.", repr(error)) from error


def _chunks(lines: Iterable[bytes]) -> Iterator[Chunk]:
    """What the lines of one read say, neighbouring texts joined."""
    texts: list[str] = []
    for data in lines:
        if not data.strip():
            continue
        line = _decoded(data)
        message = line.message or _NO_MESSAGE
        thought = Thinking(message.thinking) if message.thinking else None
        if (thought or line.done or line.error) and texts:
            yield "".join(texts)
            texts = []
        if thought:
            yield thought
        if line.error:
            raise ModelError("model_failed", "The model failed in the middle of its answer.", str(line.error)[:500])
        if message.content:
            texts.append(message.content)
        if line.done:
            if texts:
                yield "".join(texts)
                texts = []
            yield PassUsage(line.prompt_eval_count, line.eval_count)
            yield Finish("length" if line.done_reason == "length" else "stop")
    if texts:
        yield "".join(texts)


_NO_MESSAGE = _Message()


def _decoded(data: bytes) -> _Line:
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        try:  # lone surrogates, where a pair was cut in two
            return msgspec.convert(json.loads(data), _Line)
        except (ValueError, RecursionError, msgspec.ValidationError):
            return _Line(error=f"unreadable: {error}: {data[:200]!r}")


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        found["images"] = [base64.b64encode(image).decode() for image in message.images]
    return found
