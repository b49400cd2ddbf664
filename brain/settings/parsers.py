"""Parsers of settings: what an operator wrote in, a value out.

A value that is not allowed raises `ValueError` or `TypeError`; the caller names the setting.
"""

import ipaddress
import json
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from brain.errors import SettingsError
from brain.events import SyntaxName

MODEL_KINDS = ("auto", "builtin", "ollama", "openai", "script")
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of a row in the table of models."""
RESERVED_MODEL_NAMES = frozenset((*MODEL_KINDS, "brain"))

SPECIALIST_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_HOST_NAME = re.compile(r"\w(?:[\w.-]{0,251}\w)?\.?", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/]+)(?::[0-9]{1,5})?/?", re.IGNORECASE)
_USER_INFO = re.compile(r"//[^/?#\s]*@")
_PASSWORD = re.compile(r"(//[^/?#\s:@]*):[^/?#\s]*@")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_COUNT = re.compile(r"\s*[0-9]{1,8}\s*")
_SECONDS_WRITTEN = re.compile(r"\s*[0-9]{1,6}(?:\.[0-9]{1,20})?\s*")

Parse = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table.

    Attributes:
        parse: reads its value.
        allowed: what it may be, in words.
        secret: whether an error hides a bad value.
    """

    parse: Parse
    allowed: str
    secret: bool = False


class TableError(ValueError):
    """What is wrong with a table, in a sentence."""


def show(value: Any, *, secret: bool = False) -> str:
    """Format a value for an error: no secret, and no password of a URL."""
    return "(not shown)" if secret else _PASSWORD.sub(r"\1:…@", repr(value))


def redact_url(value: str) -> str:
    """A URL without its password and query, which may hold keys."""
    return _USER_INFO.sub("//", value).partition("?")[0]


def text(value: Any) -> str:
    """A text, without white space around it."""
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def texts(value: Any) -> tuple[str, ...]:
    """A list, or texts separated by commas."""
    items = value if isinstance(value, list) else text(value).split(",")
    return tuple(item for item in (text(item) for item in items) if item)


def specialists(value: Any) -> tuple[str, ...]:
    """Names of specialists."""
    names = texts(value)
    if not all(map(SPECIALIST_NAME.fullmatch, names)):
        raise ValueError
    return names


def host(value: Any) -> str:
    """A host name or an address; one of IPv6 may stand in brackets."""
    name = text(value)
    if ":" in name:
        name = name.removeprefix("[").removesuffix("]")
        ipaddress.IPv6Address(name)
    elif not _HOST_NAME.fullmatch(name):
        raise ValueError
    return name


def hosts(value: Any) -> tuple[str, ...]:
    """Hosts, separated by commas."""
    return tuple(map(host, texts(value)))


def _host_with_port(value: str) -> str:
    """A host with or without a port, as it is compared: in lower case, IPv6 compressed, in brackets before a port."""
    before, colon, port = value.rpartition(":")
    with_port = bool(colon) and port.isdecimal() and (":" not in before or before.endswith("]"))
    name = host(before if with_port else value).lower().removesuffix(".")
    if ":" in name:
        name = str(ipaddress.IPv6Address(name))
    if not with_port:
        return name
    return f"[{name}]:{count(1, 65535)(port)}" if ":" in name else f"{name}:{count(1, 65535)(port)}"


def hosts_with_ports(value: Any) -> tuple[str, ...]:
    """Hosts with or without a port, separated by commas."""
    return tuple(map(_host_with_port, texts(value)))


def origins(value: Any) -> tuple[str, ...]:
    """Origins as browsers write them."""
    names = texts(value)
    for name in names:
        match = _ORIGIN.fullmatch(name)
        if match is None:
            raise ValueError
        host(match["host"])
    return tuple(name.removesuffix("/").lower() for name in names)


def count(least: int, most: int) -> Parse:
    """A parser of whole numbers within bounds."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not _COUNT.fullmatch(str(value)) or not least <= int(value) <= most:
            raise ValueError
        return int(value)

    return parse


def seconds(value: Any) -> float:
    """A number of seconds, up to a day."""
    if isinstance(value, bool) or not _SECONDS_WRITTEN.fullmatch(str(value)) or not 0 < float(value) <= 86_400:
        raise ValueError
    return float(value)


def store(value: Any) -> str:
    """Where conversations are stored: `memory:`, or `sqlite:` with the path of a file."""
    place = text(value)
    kind, colon, path = place.partition(":")
    if not colon or (kind, bool(path.strip())) not in (("memory", False), ("sqlite", True)):
        raise ValueError
    return place


def models(value: Any) -> tuple[str, ...]:
    """Models by their short forms, or by names of the table of models, each once."""
    names = texts(value)
    for one in names:
        if one != "auto" and (not MODEL_NAME.fullmatch(one) or one in RESERVED_MODEL_NAMES):
            model(one)
    if not names or len(set(names)) < len(names):
        raise ValueError
    return names


def model(value: Any) -> str:
    """The short form of a model: its kind, and its name."""
    form = text(value)
    kind, _, rest = form.partition(":")
    if kind not in MODEL_KINDS or kind == "auto" or (kind == "builtin") == bool(rest.strip()):
        raise ValueError
    return form


def embeddings(value: Any) -> str:
    """A model with a server, by its short form or by a name of the table of models."""
    parsed = text(value)
    is_name = MODEL_NAME.fullmatch(parsed) and parsed not in RESERVED_MODEL_NAMES
    if not is_name and model(parsed).partition(":")[0] not in ("ollama", "openai"):
        raise ValueError
    return parsed


def name(value: Any) -> str:
    """A text that is not empty."""
    parsed = text(value)
    if not parsed:
        raise ValueError
    return parsed


def key(value: Any) -> str:
    """A key that a header can carry."""
    parsed = text(value)
    if not (parsed.isascii() and parsed.isprintable()) or " " in parsed or not parsed:
        raise ValueError
    return parsed


def variable(value: Any) -> str:
    """The name of an environment variable."""
    parsed = text(value)
    if not _VARIABLE.fullmatch(parsed):
        raise ValueError
    return parsed


def url(value: Any) -> str:
    """The address of a server, without a slash at its end."""
    address = text(value)
    if not address.startswith(("http://", "https://")) or not address.isprintable() or " " in address:
        raise ValueError
    parts = urlsplit(address)
    if not parts.hostname or parts.port == 0:
        raise ValueError
    return address.rstrip("/")


def yes_no_auto(value: Any) -> bool | None:
    """`yes`, `no`, or `auto`, which is None; in a table of the file also true and false."""
    if value is True or value is False:
        return bool(value)
    if value not in ("auto", "yes", "no"):
        raise ValueError
    return None if value == "auto" else bool(value == "yes")


def one_of(*words: str) -> Parse:
    """A parser of one of a few words."""

    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return parse


def zone(value: Any) -> str:
    """The IANA name of a time zone."""
    return zoneinfo.ZoneInfo(text(value)).key


def syntax(value: Any) -> tuple[str, ...]:
    """Syntaxes in which calls are written."""
    names = texts(value)
    if not names or set(names) - set(get_args(SyntaxName)):
        raise ValueError
    return names


def keys(value: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of key and user; a header must be able to carry them."""
    pairs = [(key.strip(), user.strip()) for key, _, user in (item.partition(":") for item in texts(value))]
    if not all(part and part.isprintable() for pair in pairs for part in pair) or len(dict(pairs)) < len(pairs):
        raise ValueError
    return tuple(pairs)


def users(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """The table of users; `SettingsError` names the place of a bad value in it."""
    rights_by_user = table(value)
    if not all(name and name.isprintable() for name in rights_by_user):
        raise ValueError
    return {name: fields(f"users.{name}", rights, _RIGHTS) for name, rights in rights_by_user.items()}


def table(value: Any) -> Mapping[str, Any]:
    """A table of TOML, or JSON in the environment.

    Raises:
        json.JSONDecodeError: naming line and column.
        TableError: when a key stands twice, or it is no table.
    """
    try:
        parsed = json.loads(value, object_pairs_hook=_reject_duplicates) if isinstance(value, str) else value
    except RecursionError:
        raise TableError("It is nested too deeply.") from None
    if not isinstance(parsed, dict):
        raise TableError("It is no table.")
    return parsed


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"`{name}` stands twice in the same table.")
    return dict(pairs)


def fields(place: str, values: Any, known: Mapping[str, Field]) -> dict[str, Any]:
    """The values of a table's fields.

    Args:
        place: where the table stands, for errors.

    Raises:
        SettingsError: naming the field, its value and what is allowed.
    """
    names = ", ".join(known)
    if not isinstance(values, dict):
        raise SettingsError(f"{place}: must be a table with any of: {names}.")
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise SettingsError(f"{place}.{name} is not a setting.{hint} Known: {names}.")
    return {name: _field(f"{place}.{name}", value, known[name]) for name, value in values.items()}


def _field(place: str, value: Any, known: Field) -> Any:
    try:
        return known.parse(value)
    except (TypeError, ValueError):
        value_text = show(value, secret=known.secret)
        raise SettingsError(f"{place}={value_text} is not allowed. Allowed: {known.allowed}.") from None


def folder(value: Any) -> Path:
    """A folder that exists."""
    path = Path(text(value)).expanduser()
    if not path.is_dir():
        raise ValueError
    return path


_TURNS = "a whole number from 0 to 100000"
turns = count(0, 100_000)
_RIGHTS: Mapping[str, Field] = {
    "specialists": Field(specialists, "names, as a list or comma-separated"),
    "turns_a_minute": Field(turns, _TURNS),
    "turns_at_once": Field(turns, _TURNS),
}
