"""Models in the settings: rows of the table MODELS, and short forms such as `ollama:llama3.2`."""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from brain.errors import SettingsError
from brain.events import AssistMode, Resume
from brain.messages import PassRecord
from brain.settings import parsers
from brain.settings.parsers import Rule

OLLAMA_URL = "http://127.0.0.1:11434"
OPENAI_URL = "https://api.openai.com/v1"
STANDARD = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "OLLAMA_HOST")
"""Environment variables that other programs read, too. Brain's settings win over them."""
REMOTE_KINDS = ("ollama", "openai")
"""Kinds of models with a server."""
MAX_PREFIX = 200
_LOCAL_NETWORKS = [
    ip_network(block)
    for block in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
        "::1/128", "fc00::/7", "fe80::/10",
    )
]  # fmt: skip
"""Loopback (RFC 1122, RFC 4291), private (RFC 1918, RFC 4193) and link-local addresses."""


class Price(msgspec.Struct, frozen=True):
    """The price of a model per million tokens, in any currency.

    Attributes:
        reused: Price of prompt tokens from the server's cache; None for `input`.
    """

    input: float
    output: float
    reused: float | None = None

    def cost(self, one: PassRecord) -> float:
        """Return the cost of a pass."""
        reused = min(one.reused_tokens or 0, one.prompt_tokens)
        rate = self.input if self.reused is None else self.reused
        total = (one.prompt_tokens - reused) * self.input + reused * rate + one.completion_tokens * self.output
        return total / 1_000_000


class Prefixes(msgspec.Struct, frozen=True):
    """What an embedding model expects before a text: a query, a passage to be found, or a fact of the memory."""

    query: str = ""
    passage: str = ""
    fact: str = ""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model with its server and key. None leaves a decision to the server, its address or the setting.

    Attributes:
        name: Name in requests, lists and metrics.
        kind: `auto`, `builtin`, `ollama`, `openai` or `script`.
        model: Name at the server, or the script's file.
        key: API key, sent to this server only.
        embeddings: The server's embedding model; None for the model itself.
        local: Whether it may read private conversations; None to decide by address.
        notes: The standard environment variables that it uses, as phrases for people.
    """

    name: str
    kind: str
    model: str = ""
    url: str | None = None
    key: str | None = None
    resume: Resume | None = None
    sees_images: bool | None = None
    context: int | None = None
    embeddings: str | None = None
    embeddings_prefix: Prefixes | None = None
    fallback: tuple[str, ...] | None = None
    assist: AssistMode | None = None
    price: Price | None = None
    local: bool | None = None
    notes: tuple[str, ...] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return all fields except the key, and no password in the URL."""
        values = {name: getattr(self, name) for name in self.__struct_fields__ if name != "key"}
        return [
            (name, parsers.redact_url(value) if name == "url" and value else value) for name, value in values.items()
        ]

    def __repr__(self) -> str:
        return f"ModelRow({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @property
    def spec(self) -> str:
        """The short form, such as `ollama:llama3.2`."""
        return f"{self.kind}:{self.model}" if self.model else self.kind

    @property
    def is_local(self) -> bool:
        """Whether it may read private conversations: it has no server, or a loopback or private address.

        A host name other than `localhost` is not resolved: its address may change.
        """
        if self.local is not None or self.kind not in REMOTE_KINDS:
            return self.local is not False
        host = urlsplit(self.url or "").hostname or ""
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return host == "localhost"
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in _LOCAL_NETWORKS)

    @property
    def description(self) -> str:
        """Why Brain uses it, for the start's log; without the key."""
        place = f" at {parsers.redact_url(self.url)}" if self.url else ""
        origin = "as configured" if self.name == self.spec else f"{self.spec}{place}"
        return "; ".join((origin, *self.notes))


def _price(value: Any) -> Price:
    if not isinstance(value, dict) or not {"input", "output"} <= value.keys() <= {"input", "output", "reused"}:
        raise ValueError
    return Price(**{name: parsers.price(one) for name, one in value.items()})


def _prefixes(value: Any) -> Prefixes:
    names = Prefixes.__struct_fields__
    if not isinstance(value, dict) or not value.keys() <= set(names):
        raise ValueError
    if not all(isinstance(one, str) and len(one) <= MAX_PREFIX for one in value.values()):
        raise ValueError
    return Prefixes(**{"fact": value.get("passage", ""), **value})


_FIELDS: Mapping[str, Rule] = {
    "is": Rule(parsers.model, "`builtin`, `ollama:NAME`, `openai:NAME` or `script:FILE`"),
    "url": parsers.URL,
    "key": parsers.KEY,
    "key_env": Rule(parsers.variable, "the name of an environment variable", secret=True),  # it may be the key itself
    "resume": parsers.RESUME,
    "sees_images": Rule(parsers.yes_no_auto, "true, false or `auto`"),
    "context": parsers.count(1, 99_999_999, "a whole number of tokens"),
    "embeddings": parsers.NAME,
    "embeddings_prefix": Rule(
        _prefixes, f"a table with any of `query`, `passage` and `fact`: texts of up to {MAX_PREFIX} characters"
    ),
    "fallback": Rule(parsers.fallback_models, "a list of names from MODELS or short forms"),
    "assist": parsers.one_of(*get_args(AssistMode)),
    "price": Rule(_price, "a table with `input` and `output`, and `reused` if it differs: prices per million tokens"),
    "local": Rule(parsers.yes_no_auto, "true, false or `auto`"),
}
OPTIONAL_FIELDS = ", ".join(f"`{name}`" for name in _FIELDS if name != "is")
_OF_SERVERS = ("url", "key", "key_env", "sees_images", "context", "embeddings", "embeddings_prefix")


def read_rows(value: Any, variables: Mapping[str, str]) -> tuple[ModelRow, ...]:
    """Read the table MODELS; `variables` are the environment for `key_env`."""
    return tuple(_row(name, fields, variables) for name, fields in parsers.table(value).items())


def _row(name: str, fields: Any, variables: Mapping[str, str]) -> ModelRow:
    place = f"models.{name}"
    if not parsers.MODEL_NAME.fullmatch(name) or name in parsers.RESERVED_MODEL_NAMES:
        reserved = ", ".join(sorted(parsers.RESERVED_MODEL_NAMES))
        allowed = f"1 to 64 ASCII letters, digits, ., _ and -, a letter or digit first, and none of {reserved}"
        raise SettingsError(parsers.describe_invalid("name in models", name, allowed), "Rename the model.")
    values = parsers.fields(place, fields, _FIELDS)
    if "is" not in values:
        expected = _FIELDS["is"].allowed.replace("`", "")
        raise SettingsError(f"{place}.is is missing. Expected {expected}.", "Add it.")
    kind, _, model = values.pop("is").partition(":")
    if kind not in REMOTE_KINDS and (useless := [field for field in _OF_SERVERS if field in values]):
        raise SettingsError(f"{place}.{useless[0]} has no effect: {kind} has no server.", "Remove it.")
    if "key_env" in values:
        if "key" in values:
            raise SettingsError(f"{place} has both key and key_env.", "Remove one of them.")
        variable = values.pop("key_env")
        if not variables.get(variable, "").strip():
            message = f"{place}.key_env names the environment variable {variable}, which is not set."
            raise SettingsError(message, f"export {variable}=KEY")
        values["key"] = parsers.KEY.read(variables[variable], f"{variable}, which {place}.key_env names")
    return ModelRow(name=name, kind=kind, model=model, **values)


def complete_row(row: ModelRow, standard: Mapping[str, str]) -> ModelRow:
    """Fill in the server and key of a row from standard variables and defaults.

    OPENAI_API_KEY goes to the server of OPENAI_BASE_URL or to api.openai.com only.
    """
    if row.kind == "openai":
        return _with_key(_with_url(row, "OPENAI_BASE_URL", standard, _parse_url, OPENAI_URL), standard)
    if row.kind in ("auto", "ollama"):
        return _with_url(row, "OLLAMA_HOST", standard, _parse_ollama_host, OLLAMA_URL)
    return row


def _with_url(
    row: ModelRow, variable: str, standard: Mapping[str, str], parse: Callable[[str, str], str], default: str
) -> ModelRow:
    if row.url is not None:
        return row
    if variable not in standard:
        return replace(row, url=default)
    url = parse(variable, standard[variable])
    return replace(row, url=url, notes=(*row.notes, f"{variable} is {parsers.redact_url(url)}"))


def _with_key(row: ModelRow, standard: Mapping[str, str]) -> ModelRow:
    url, key = row.url or OPENAI_URL, standard.get("OPENAI_API_KEY")
    if row.key is not None or key is None or _origin(url) != _origin(standard.get("OPENAI_BASE_URL", OPENAI_URL)):
        return row
    note = f"OPENAI_API_KEY is sent to {urlsplit(url).hostname} only"
    return replace(row, key=parsers.KEY.read(key, "OPENAI_API_KEY"), notes=(*row.notes, note))


def _parse_url(variable: str, value: str) -> str:
    url: str = parsers.URL.read(value, variable, f"export {variable}=URL")
    return url


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None


_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Addresses for an Ollama that listens on all interfaces of this machine."""


def _parse_ollama_host(variable: str, host: str) -> str:
    """Return the URL that OLLAMA_HOST names: a host, a port, both, or a URL."""
    scheme, separator, rest = host.strip().rpartition("://")
    scheme = scheme or "http"
    place, slash, path = rest.partition("/")
    match = re.fullmatch(r"(?P<name>\[[^\]]*\]|[^:]*)(?::(?P<port>\d+))?", place)
    if match is None and place.count(":") > 1:  # an address of IPv6 without brackets
        match = re.fullmatch(r"(?P<name>.*)(?P<port>)", f"[{place}]")
    if match is None:
        message = parsers.describe_invalid("OLLAMA_HOST", host, "a host, host:port or a URL")
        raise SettingsError(message, "export OLLAMA_HOST=127.0.0.1:11434")
    name = _ANY_ADDRESS.get(match["name"], match["name"])
    port = match["port"] or ("11434" if not separator else "")
    return _parse_url(variable, f"{scheme}://{name}{':' if port else ''}{port}{slash}{path}")
