"""Parsers of settings: they turn the text of an operator into a value.

A bad value raises `ValueError` or `TypeError`, and the caller names the setting. A bad field of a table raises
`SettingsError` with its path.
"""

import ipaddress
import json
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote, urlsplit

from brain.errors import SettingsError
from brain.events import StrategyName
from brain.strict_json import InvalidJSON, decode
from brain.task import ProfileName
from brain.text import SPECIALIST_NAME, escape_invisible, shorten, suggest

MODEL_KINDS = ("auto", "builtin", "ollama", "openai", "script")
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A name in the table of models."""
RESERVED_MODEL_NAMES = frozenset((*MODEL_KINDS, "brain"))

_HOST_NAME = re.compile(r"\w(?:[\w.-]{0,251}\w)?\.?", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/]+)(?::[0-9]{1,5})?/?", re.IGNORECASE)
_USER_INFO = re.compile(r"//[^/?#\s]*@")
_PASSWORD = re.compile(
    r"(?P<user>//[^/?#\s:@]*:)[^\s\"]*(?=@)"
    r"|(?:(?<=postgres:)|(?<=postgresql:))(?P<place>//[^/?#\s:@]*:)(?!\d+(?![^/?#,'\"]))[^/?#\s,'\"]+"
    r"|(?P<name>(?:^|[?&\s'\"])\w*password=)(?:'[^']*'|[^&#\s\"']*)",
    re.IGNORECASE,
)
"""A password before a host, in place of a port, or as a parameter, also of libpq's other form, `host=HOST`."""
_HOST_AND_PORT = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
ALL_ADDRESSES = ("0.0.0.0", "::")
MAX_SHOWN = 100
"""Characters of a bad value in an error."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_COUNT = re.compile(r"\s*[0-9]{1,12}\s*")
_SECONDS_WRITTEN = re.compile(r"\s*[0-9]{1,6}(?:\.[0-9]{1,20})?\s*")

Parse = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """The values of a setting, or of a field of a table; `allowed` says in words what `parse` accepts."""

    parse: Parse
    allowed: str
    secret: bool = False
    """Whether an error hides the value."""

    def read(self, value: Any, place: str, advice: str = "Correct it.") -> Any:
        """Return the parsed value that was set at a place. A bad one raises `SettingsError`."""
        try:
            return self.parse(value)
        except (TypeError, ValueError):
            raise SettingsError(describe_invalid(place, value, self.allowed, secret=self.secret), advice) from None


class TableError(ValueError):
    """A bad table; the text is a sentence."""


def show(value: Any) -> str:
    """Format a value for an error, without passwords in URLs."""
    written = f"'{value}'" if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(escape_invisible(redact_passwords(written)), MAX_SHOWN)


def describe_invalid(place: str, value: Any, allowed: str, *, secret: bool = False) -> str:
    """Return the sentences about a bad value: where it is set, the value and what is expected."""
    shown = "(not shown)" if secret else show(value)
    return f"Invalid {place}: {shown}. Expected {allowed.replace('`', '')}."


def redact_passwords(value: str) -> str:
    """Return a text with `…` in place of the passwords in its URLs."""
    return _PASSWORD.sub(lambda found: f"{_before(found)}…", value)


def passwords(value: str) -> Iterator[str]:
    """Yield the passwords in the URLs of a text, as they are written there and decoded."""
    for found in _PASSWORD.finditer(value):
        written = found[0].removeprefix(_before(found))
        yield from {written, unquote(written)}


def _before(found: re.Match[str]) -> str:
    before: str = next(filter(None, found.groups()))
    return before


def redact_url(value: str) -> str:
    """Return a URL without its user, password and query, which may hold keys."""
    return _USER_INFO.sub("//", value).partition("?")[0]


def text(value: Any) -> str:
    """Parse a text without NUL characters; strip surrounding white space."""
    if not isinstance(value, str):
        raise TypeError
    if "\0" in value:
        raise ValueError
    return value.strip()


def texts(value: Any) -> tuple[str, ...]:
    """Parse a list, or texts separated by commas."""
    items = value if isinstance(value, list) else text(value).split(",")
    return tuple(item for item in (text(item) for item in items) if item)


def specialists(value: Any) -> tuple[str, ...]:
    """Parse names of specialists."""
    names = texts(value)
    if not all(map(SPECIALIST_NAME.fullmatch, names)):
        raise ValueError
    return names


def host(value: Any) -> str:
    """Parse a host name or an IP address; IPv6 may have brackets."""
    name = text(value)
    if ":" in name:
        name = name.removeprefix("[").removesuffix("]")
        ipaddress.IPv6Address(name)
    elif not _HOST_NAME.fullmatch(name):
        raise ValueError
    return name


def advertise(value: Any) -> str:
    """Parse a host and a port, with or without `http://`; return them without it. IPv6 needs brackets."""
    place = text(value).removeprefix("http://").removesuffix("/")
    before, _, port = place.rpartition(":")
    name = host(before)
    if name in ALL_ADDRESSES or (":" in name) != before.startswith("["):
        raise ValueError
    return f"{before}:{_FREE_PORT.parse(port)}"


def hosts(value: Any) -> tuple[str, ...]:
    """Parse hosts, separated by commas."""
    return tuple(map(host, texts(value)))


def _host_with_port(value: str) -> str:
    """Normalize a host with or without a port: lower case, IPv6 compressed, in brackets before a port."""
    before, colon, port = value.rpartition(":")
    with_port = bool(colon) and port.isdecimal() and (":" not in before or before.endswith("]"))
    name = host(before if with_port else value).lower().removesuffix(".")
    if ":" in name:
        name = str(ipaddress.IPv6Address(name))
    if not with_port:
        return name
    number = _PORT.parse(port)
    return f"[{name}]:{number}" if ":" in name else f"{name}:{number}"


def hosts_with_ports(value: Any) -> tuple[str, ...]:
    """Parse hosts with or without a port, separated by commas."""
    return tuple(map(_host_with_port, texts(value)))


def origins(value: Any) -> tuple[str, ...]:
    """Parse origins as browsers send them."""
    names = texts(value)
    for name in names:
        match = _ORIGIN.fullmatch(name)
        if match is None:
            raise ValueError
        host(match["host"])
    return tuple(name.removesuffix("/").lower() for name in names)


def count(least: int, most: int, noun: str = "a whole number") -> Rule:
    """Return the rule of whole numbers within bounds."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not _COUNT.fullmatch(str(value)) or not least <= int(value) <= most:
            raise ValueError
        return int(value)

    return Rule(parse, f"{noun} from {least} to {most}")


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not _SECONDS_WRITTEN.fullmatch(str(value)) or not 0 < float(value) <= 86_400:
        raise ValueError
    return float(value)


def price(value: Any) -> float:
    """Parse a price, up to a million."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1_000_000:
        raise ValueError
    return float(value)


def store(value: Any) -> str:
    """Parse `memory:`, `sqlite:` with the path of a file, or the URL of a PostgreSQL database."""
    place = text(value)
    kind, colon, path = place.partition(":")
    if kind in ("postgresql", "postgres"):
        url = urlsplit(place)
        user, _, hosts = url.netloc.rpartition("@")
        name = url.path.strip("/")
        # neither name nor hosts may contain a part of the password, since both are shown; libpq's begin at the first @
        if not path.startswith("//") or not name or "@" in user + name:
            raise ValueError
        if not all(map(_HOST_AND_PORT.fullmatch, hosts.split(","))):
            raise ValueError
    elif not colon or (kind, bool(path.strip())) not in (("memory", False), ("sqlite", True)):
        raise ValueError
    return place


STORE = Rule(store, "`sqlite:PATH`, `postgresql://USER@HOST/NAME` or `memory:`")


def shared_store(value: Any) -> str:
    """Parse a store that several processes can use."""
    place = store(value)
    if place == "memory:":
        raise ValueError
    return place


SHARED_STORE = Rule(shared_store, "`sqlite:PATH` or `postgresql://USER@HOST/NAME`")


def models(value: Any) -> tuple[str, ...]:
    """Parse short forms of models and names from the table of models, each once."""
    names = texts(value)
    for one in names:
        if one != "auto" and (not MODEL_NAME.fullmatch(one) or one in RESERVED_MODEL_NAMES):
            model(one)
    if not names or len(set(names)) < len(names):
        raise ValueError
    return names


def fallback_models(value: Any) -> tuple[str, ...]:
    """Parse models as `models` does, but not `auto`. An empty list means none."""
    names = models(value) if texts(value) else ()
    if "auto" in names:
        raise ValueError
    return names


def role_model(value: Any) -> str:
    """Parse one model as `fallback_models` does."""
    (name,) = fallback_models(value)
    return name


def model(value: Any) -> str:
    """Parse the short form of a model: kind and name."""
    form = text(value)
    kind, _, rest = form.partition(":")
    if kind not in MODEL_KINDS or kind == "auto" or (kind == "builtin") == bool(rest.strip()):
        raise ValueError
    return form


def embeddings(value: Any) -> str:
    """Parse a model with a server: a short form, or a name from the table of models."""
    parsed = text(value)
    is_name = MODEL_NAME.fullmatch(parsed) and parsed not in RESERVED_MODEL_NAMES
    if not is_name and model(parsed).partition(":")[0] not in ("ollama", "openai"):
        raise ValueError
    return parsed


def name(value: Any) -> str:
    """Parse a text that is not empty."""
    parsed = text(value)
    if not parsed:
        raise ValueError
    return parsed


def key(value: Any) -> str:
    """Parse a key that an HTTP header can hold."""
    parsed = text(value)
    if not (parsed.isascii() and parsed.isprintable()) or " " in parsed or not parsed:
        raise ValueError
    return parsed


def variable(value: Any) -> str:
    """Parse the name of an environment variable."""
    parsed = text(value)
    if not _VARIABLE.fullmatch(parsed):
        raise ValueError
    return parsed


def url(value: Any) -> str:
    """Parse the URL of a server; strip slashes at its end."""
    address = text(value)
    if not address.startswith(("http://", "https://")) or not address.isprintable() or " " in address:
        raise ValueError
    parts = urlsplit(address)
    if not parts.hostname or parts.port == 0:
        raise ValueError
    return address.rstrip("/")


def yes_no_auto(value: Any) -> bool | None:
    """Parse `yes`, `no`, or `auto`, which is None; TOML also has true and false."""
    if value is True or value is False:
        return bool(value)
    if value not in ("auto", "yes", "no"):
        raise ValueError
    return None if value == "auto" else bool(value == "yes")


def one_of(*words: str) -> Rule:
    """Return the rule of a few fixed words."""

    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    *first, last = (f"`{word}`" for word in words)
    return Rule(parse, f"{', '.join(first)} or {last}")


def some_of(*words: str) -> Rule:
    """Return the rule of lists of a few fixed words."""

    def parse(value: Any) -> tuple[str, ...]:
        names = texts(value)
        if not names or not set(names).issubset(words):
            raise ValueError
        return names

    return Rule(parse, f"{', '.join(f'`{word}`' for word in words)}, comma-separated")


def zone(value: Any) -> str:
    """Parse the IANA name of a time zone."""
    return zoneinfo.ZoneInfo(text(value)).key


def keys(value: Any) -> tuple[tuple[str, str], ...]:
    """Parse pairs of key and user in characters that an HTTP header can hold."""
    pairs = [(key.strip(), user.strip()) for key, _, user in (item.partition(":") for item in texts(value))]
    if not all(part and part.isprintable() for pair in pairs for part in pair) or len(dict(pairs)) < len(pairs):
        raise ValueError
    return tuple(pairs)


def users(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """Parse the table of users."""
    rights_by_user = table(value)
    if not all(name and name.isprintable() for name in rights_by_user):
        raise ValueError
    return {name: fields(f"users.{name}", rights, _RIGHTS) for name, rights in rights_by_user.items()}


def task_profiles(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """Parse the table of the profiles of tasks."""
    profiles = table(value)
    if not set(profiles).issubset(get_args(ProfileName)):
        raise ValueError
    return {name: fields(f"task_profiles.{name}", profile, _PROFILE) for name, profile in profiles.items()}


def table(value: Any) -> Mapping[str, Any]:
    """Parse a table: from TOML, or JSON in the environment."""
    try:
        parsed = decode(value) if isinstance(value, str) else value
    except InvalidJSON as error:
        problem = f"table has the key {error.key} twice" if error.key else str(error).removeprefix("the ")
        raise TableError(f"The {problem}.") from None
    if not isinstance(parsed, dict):
        raise TableError("The value is not a table.")
    return parsed


def fields(place: str, values: Any, known: Mapping[str, Rule]) -> dict[str, Any]:
    """Parse the fields of a table; `place` is its path for errors."""
    names = ", ".join(known)
    if not isinstance(values, dict):
        raise SettingsError(f"{place} must be a table with any of {names}.", "Correct it.")
    for name in values:
        if name not in known:
            near = suggest(name, known)
            raise SettingsError(f"Unknown setting {place}.{name}.{near} Known: {names}.", "Correct or remove it.")
    return {name: known[name].read(value, f"{place}.{name}") for name, value in values.items()}


def folder(value: Any) -> Path:
    """Parse the path of an existing directory."""
    path = Path(text(value)).expanduser()
    if not path.is_dir():
        raise ValueError
    return path


def new_folder(value: Any) -> Path:
    """Parse the path of a directory that may not exist."""
    path = Path(text(value)).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError
    return path


_PORT, _FREE_PORT = count(1, 65535), count(0, 65535)
SECONDS = Rule(_seconds, "a number of seconds above 0, up to 86400")
TURNS, TASKS, TASK_TOKENS = count(0, 100_000), count(0, 1_000_000), count(0, 999_999_999_999)
CALLS = count(0, 100)
STRATEGY = one_of(*get_args(StrategyName))
RESUME = one_of("prefill", "message")
URL = Rule(url, "an http:// or https:// URL")
KEY = Rule(key, "printable ASCII characters without spaces", secret=True)
NAME = Rule(name, "a name")
_RIGHTS: Mapping[str, Rule] = {
    "specialists": Rule(specialists, "names, as a list or comma-separated"),
    "turns_a_minute": TURNS,
    "turns_at_once": TURNS,
    "tasks_per_day": TASKS,
    "task_tokens_per_day": TASK_TOKENS,
}
_PROFILE: Mapping[str, Rule] = {
    "model": Rule(text, "the name of a model in MODEL"),
    "strategy": STRATEGY,
    "seconds": SECONDS,
    "calls": CALLS,
}
