"""Models as the operator names them: rows of the table MODELS, and short forms such as `ollama:llama3.2`."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from brain.errors import SettingsError
from brain.events import Resume
from brain.settings import parsers
from brain.settings.parsers import Field

OLLAMA_URL = "http://127.0.0.1:11434"
OPENAI_URL = "https://api.openai.com/v1"
STANDARD = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "OLLAMA_HOST")
"""Environment variables that other programs read, too. Brain's own settings win over them."""
REMOTE_KINDS = ("ollama", "openai")
"""Kinds of models that have a server."""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model, with a server and a key of its own.

    Attributes:
        name: what requests, lists and metrics call it.
        kind: `auto`, `builtin`, `ollama`, `openai` or `script`.
        model: its name at the server, or the script's file.
        url: base URL of its server.
        key: sent to this server, and to no other.
        resume: how a pass continues after a block; None to decide by server.
        sees_images: whether it takes images; None to believe the server.
        context: size of its context window in tokens; None to believe the server.
        embeddings: the server's model for embeddings; None for the model itself.
        notes: which standard environment variables it uses, in words for people.
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
    notes: tuple[str, ...] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """All fields but the key, and without a password in the URL."""
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
    def description(self) -> str:
        """Where it comes from, for the start's log; without the key."""
        place = f" at {parsers.redact_url(self.url)}" if self.url else ""
        origin = "it was asked for" if self.name == self.spec else f"{self.spec}{place}"
        return "; ".join((origin, *self.notes))


_FIELDS: Mapping[str, Field] = {
    "is": Field(parsers.model, "`builtin`, `ollama:NAME`, `openai:NAME` or `script:FILE`"),
    "url": Field(parsers.url, "an http:// or https:// address"),
    "key": Field(parsers.key, "printable ASCII characters without spaces", secret=True),
    "key_env": Field(parsers.variable, "the name of an environment variable", secret=True),  # it may hold the key
    "resume": Field(parsers.one_of("prefill", "message"), "`prefill` or `message`"),
    "sees_images": Field(parsers.yes_no_auto, "true, false or `auto`"),
    "context": Field(parsers.count(1, 99_999_999), "a whole number of tokens from 1 to 99999999"),
    "embeddings": Field(parsers.name, "a name"),
}
OPTIONAL_FIELDS = ", ".join(f"`{name}`" for name in _FIELDS if name != "is")
_OF_SERVERS = ("url", "key", "key_env", "sees_images", "context", "embeddings")


def read_rows(value: Any, variables: Mapping[str, str]) -> tuple[ModelRow, ...]:
    """Read the table MODELS.

    Args:
        value: a table of TOML, or JSON.
        variables: where `key_env` is looked up.

    Raises:
        SettingsError: naming the row, the field, the value and what is allowed.
        ValueError, TypeError: when it is no table of tables.
    """
    return tuple(_row(name, fields, variables) for name, fields in parsers.table(value).items())


def _row(name: str, fields: Any, variables: Mapping[str, str]) -> ModelRow:
    place = f"models.{name}"
    if not parsers.MODEL_NAME.fullmatch(name) or name in parsers.RESERVED_MODEL_NAMES:
        reserved = ", ".join(sorted(parsers.RESERVED_MODEL_NAMES))
        message = f"1 to 64 ASCII letters, digits, `.`, `_` and `-`, a letter or digit first, and none of: {reserved}"
        raise SettingsError(f"models: the name {name!r} is not allowed. Allowed: {message}.")
    values = parsers.fields(place, fields, _FIELDS)
    if "is" not in values:
        raise SettingsError(f"{place}.is is missing. Allowed: {_FIELDS['is'].allowed}.")
    kind, _, model = values.pop("is").partition(":")
    if kind not in REMOTE_KINDS and (useless := [field for field in _OF_SERVERS if field in values]):
        raise SettingsError(f"{place}.{useless[0]} is not allowed: `{kind}` has no server.")
    if "key_env" in values:
        if "key" in values:
            raise SettingsError(f"{place}: set `key` or `key_env`, not both.")
        variable = values.pop("key_env")
        if not variables.get(variable, "").strip():
            raise SettingsError(f"{place}.key_env: the environment variable {variable} is not set.")
        values["key"] = _parse_key(f"{place}.key_env: the value of {variable}", variables[variable])
    return ModelRow(name=name, kind=kind, model=model, **values)


def complete_row(row: ModelRow, standard: Mapping[str, str]) -> ModelRow:
    """Fill in the server and key of a row from standard variables and defaults.

    OPENAI_API_KEY goes to the server of OPENAI_BASE_URL, or to api.openai.com, and to no other.

    Args:
        standard: the environment variables of `STANDARD` that are set.

    Raises:
        SettingsError: naming a variable with a bad value.
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
    return replace(row, url=url, notes=(*row.notes, f"{variable} names its server, {parsers.redact_url(url)}"))


def _with_key(row: ModelRow, standard: Mapping[str, str]) -> ModelRow:
    url, key = row.url or OPENAI_URL, standard.get("OPENAI_API_KEY")
    if row.key is not None or key is None or _origin(url) != _origin(standard.get("OPENAI_BASE_URL", OPENAI_URL)):
        return row
    note = f"OPENAI_API_KEY is its key, sent to {urlsplit(url).hostname} only"
    return replace(row, key=_parse_key("OPENAI_API_KEY", key), notes=(*row.notes, note))


def _parse_key(place: str, value: str) -> str:
    try:
        return parsers.key(value)
    except ValueError:
        raise SettingsError(f"{place}=(not shown) is not allowed. Allowed: {_FIELDS['key'].allowed}.") from None


def _parse_url(variable: str, value: str) -> str:
    try:
        return parsers.url(value)
    except ValueError:
        allowed = _FIELDS["url"].allowed
        raise SettingsError(f"{variable}={parsers.show(value)} is not allowed. Allowed: {allowed}.") from None


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None


_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Ollama that listens everywhere is reached on this machine."""


def _parse_ollama_host(variable: str, host: str) -> str:
    """Return the URL that OLLAMA_HOST names: a host, a port, both, or a URL."""
    scheme, separator, rest = host.strip().rpartition("://")
    scheme = scheme or "http"
    place, slash, path = rest.partition("/")
    match = re.fullmatch(r"(?P<name>\[[^\]]*\]|[^:]*)(?::(?P<port>\d+))?", place)
    if match is None and place.count(":") > 1:  # an address of IPv6 without brackets
        match = re.fullmatch(r"(?P<name>.*)(?P<port>)", f"[{place}]")
    if match is None:
        raise SettingsError(f"OLLAMA_HOST={parsers.show(host)} is not allowed. Allowed: a host, `host:port` or a URL.")
    name = _ANY_ADDRESS.get(match["name"], match["name"])
    port = match["port"] or ("11434" if not separator else "")
    return _parse_url(variable, f"{scheme}://{name}{':' if port else ''}{port}{slash}{path}")
