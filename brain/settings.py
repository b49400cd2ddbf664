"""Ground: what the operator sets, read once into one frozen object. The table in the docs is made from it."""

import ipaddress
import json
import re
import tomllib
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from brain.ask import Limits, SyntaxName
from brain.errors import SettingsError

PREFIX = "BRAIN_"
SPECIALIST_PREFIX = "BRAIN_SPECIALIST_"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_USER = "local"
"""Who everybody is where nobody needs a key."""
KEY_LENGTH = 16
"""A key of fewer characters is doubtful."""
MODEL_KINDS = ("auto", "builtin", "ollama", "openai", "script")

SPECIALIST_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_HOST_NAME = re.compile(r"\w(?:[\w.-]{0,251}\w)?\.?", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/]+)(?::[0-9]{1,5})?/?", re.IGNORECASE)
_COUNT = re.compile(r"\s*[0-9]{1,6}\s*")
_SECONDS_WRITTEN = re.compile(r"\s*[0-9]{1,6}(?:\.[0-9]{1,20})?\s*")

Parse = Callable[[Any], Any]
ShowResults = Literal["hidden", "block", "details"]


def _setting(
    default: Any, parse: Parse, allowed: str, meaning: str, shown: str | None = None, *, secret: bool = False
) -> Any:
    metadata = {"parse": parse, "allowed": allowed, "meaning": meaning, "shown": shown, "secret": secret}
    return field(default=default, metadata=metadata, repr=not secret)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def _names(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else _text(value).split(",")
    return tuple(item for item in (_text(item) for item in items) if item)


def _specialists(value: Any) -> tuple[str, ...]:
    names = _names(value)
    if not all(map(SPECIALIST_NAME.fullmatch, names)):
        raise ValueError
    return names


def _host(value: Any) -> str:
    """A host name or an address; one of IPv6 may stand in brackets."""
    host = _text(value)
    if ":" in host:
        host = host.removeprefix("[").removesuffix("]")
        ipaddress.IPv6Address(host)
    elif not _HOST_NAME.fullmatch(host):
        raise ValueError
    return host


def _hosts(value: Any) -> tuple[str, ...]:
    return tuple(map(_host, _names(value)))


def _host_with_port(value: str) -> str:
    """A host, with or without a port, as it is compared: in lower case, IPv6 short, in brackets before a port."""
    host, colon, port = value.rpartition(":")
    with_port = bool(colon) and port.isdecimal() and (":" not in host or host.endswith("]"))
    name = _host(host if with_port else value).lower().removesuffix(".")
    if ":" in name:
        name = str(ipaddress.IPv6Address(name))
    if not with_port:
        return name
    return f"[{name}]:{_count(1, 65535)(port)}" if ":" in name else f"{name}:{_count(1, 65535)(port)}"


def _hosts_with_ports(value: Any) -> tuple[str, ...]:
    return tuple(map(_host_with_port, _names(value)))


def _origins(value: Any) -> tuple[str, ...]:
    """Origins as browsers write them."""
    names = _names(value)
    for name in names:
        found = _ORIGIN.fullmatch(name)
        if found is None:
            raise ValueError
        _host(found["host"])
    return tuple(name.removesuffix("/").lower() for name in names)


def _count(least: int, most: int) -> Parse:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not _COUNT.fullmatch(str(value)) or not least <= int(value) <= most:
            raise ValueError
        return int(value)

    return parse


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not _SECONDS_WRITTEN.fullmatch(str(value)) or not 0 < float(value) <= 86_400:
        raise ValueError
    return float(value)


def _models(value: Any) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        kind, _, rest = name.partition(":")
        if kind not in MODEL_KINDS or (kind in ("auto", "builtin")) == bool(rest):
            raise ValueError
    if not names or len(set(names)) < len(names):
        raise ValueError
    return names


def _url(value: Any) -> str:
    url = _text(value)
    if not url.startswith(("http://", "https://")):
        raise ValueError
    return url.rstrip("/")


def _sees(value: Any) -> bool | None:
    if value not in ("auto", "yes", "no"):
        raise ValueError
    return None if value == "auto" else bool(value == "yes")


def _one_of(*words: str) -> Parse:
    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return parse


def _zone(value: Any) -> str:
    return zoneinfo.ZoneInfo(_text(value)).key


def _syntax(value: Any) -> tuple[str, ...]:
    names = _names(value)
    if not names or set(names) - set(get_args(SyntaxName)):
        raise ValueError
    return names


def _keys(value: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of key and user; what no header could carry is refused, and so is what is no Unicode."""
    pairs = [(key.strip(), user.strip()) for key, _, user in (item.partition(":") for item in _names(value))]
    if not all(part and part.isprintable() for pair in pairs for part in pair) or len(dict(pairs)) < len(pairs):
        raise ValueError
    return tuple(pairs)


def _users(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """The table of users, from TOML, or from JSON in the environment; what is wrong is named by its place in it."""
    try:
        table = json.loads(value) if isinstance(value, str) else value
    except RecursionError:
        raise ValueError from None
    if not isinstance(table, dict) or not all(name and name.isprintable() for name in table):
        raise ValueError
    return {name: _user(f"users.{name}", rights) for name, rights in table.items()}


def _user(place: str, rights: Any) -> Mapping[str, Any]:
    if not isinstance(rights, dict):
        raise SettingsError(f"{place}: must be a table with any of: {', '.join(_RIGHTS)}.")
    for name in rights:
        if name not in _RIGHTS:
            raise SettingsError(f"{place}.{name} is not a setting. Known: {', '.join(_RIGHTS)}.")
    return {name: _right(f"{place}.{name}", value, *_RIGHTS[name]) for name, value in rights.items()}


def _right(place: str, value: Any, parse: Parse, allowed: str) -> Any:
    try:
        return parse(value)
    except (TypeError, ValueError):
        raise SettingsError(f"{place}={value!r} is not allowed. Allowed: {allowed}.") from None


def _folder(value: Any) -> Path:
    path = Path(_text(value)).expanduser()
    if not path.is_dir():
        raise ValueError
    return path


def machine_time_zone() -> str:
    """The IANA name of the machine's time zone, `UTC` when it does not tell."""
    target = Path("/etc/localtime")
    _, _, name = str(target.resolve()).partition("zoneinfo/")
    try:
        return zoneinfo.ZoneInfo(name).key if name else "UTC"
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        return "UTC"


def environ_name(specialist: str, key: str) -> str:
    """The environment variable of a specialist's own setting."""
    return f"{SPECIALIST_PREFIX}{specialist}_{key}".upper().replace("-", "_")


_SECONDS = "a number of seconds above 0, at most 86400"
_TURNS = "a whole number from 0 to 100000"
_turns = _count(0, 100_000)
_RIGHTS: Mapping[str, tuple[Parse, str]] = {
    "specialists": (_specialists, "names, as a list or comma-separated"),
    "turns_a_minute": (_turns, _TURNS),
    "turns_at_once": (_turns, _TURNS),
}


@dataclass(frozen=True, slots=True)
class Rights:
    """What one user may do.

    Attributes:
        specialists: the only ones that may be called, of those that the operator allows; None for all of them.
        turns_a_minute: how many turns may begin; 0 for any number.
        turns_at_once: how many turns may run; 0 for any number.
    """

    specialists: frozenset[str] | None = None
    turns_a_minute: int = 0
    turns_at_once: int = 0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings; the key of a field is its name in capitals."""

    model: tuple[str, ...] = _setting(
        ("auto",),
        _models,
        "`auto`, `builtin`, `ollama:NAME`, `openai:NAME` or `script:FILE`, or several of them, comma-separated",
        "the models on offer, the first is the default. `auto`: Ollama on its usual port when it answers within 250 ms "
        "and has a model that can complete (the loaded one, else the newest), else `builtin`",
        "auto",
    )
    model_url: str | None = _setting(
        None, _url, "an http:// or https:// address", "base URL of the model server", "per kind"
    )
    model_key: str | None = _setting(None, _text, "text", "key of the model server", secret=True)
    model_resume: str | None = _setting(
        None, _one_of("prefill", "message"), "`prefill` or `message`", "how a pass goes on after a block", "by server"
    )
    model_sees_images: bool | None = _setting(
        None,
        _sees,
        "`auto`, `yes` or `no`",
        "whether the model takes images, for `vision`. `auto`: if its server says so, as Ollama, llama.cpp, Mistral "
        "and OpenRouter do",
        "auto",
    )
    model_idle_seconds: float = _setting(60.0, _seconds, _SECONDS, "a model that sends nothing for so long has failed")
    system: str = _setting(
        "Answer in the user's language, briefly and to the point.",
        _text,
        "text",
        "the operator's own instructions (persona); Brain's come first",
        "a short one",
    )
    time_zone: str = _setting(
        "", _zone, "an IANA name such as Europe/Berlin", "the user's, unless the request says", "the machine's"
    )
    host: str = _setting(
        "127.0.0.1",
        _host,
        "an address of this machine",
        "where to listen; an address other than loopback needs KEYS. 0.0.0.0 when plain `PORT` is used",
    )
    port: int = _setting(
        8000,
        _count(0, 65535),
        "a port from 0 to 65535",
        "where to listen. Plain `PORT` (as process managers set it) is read when `BRAIN_PORT` is not",
    )
    workers: int = _setting(
        1,
        _count(1, 256),
        "a whole number from 1 to 256",
        "processes that serve on this port, for more cores. They share nothing else: see Several cores",
    )
    hosts: tuple[str, ...] = _setting(
        (),
        _hosts,
        "host names or addresses without a port, comma-separated",
        "accepted Host names, besides loopback names and HOST",
    )
    origins: tuple[str, ...] = _setting(
        (),
        _origins,
        "origins such as https://chat.example, comma-separated",
        "origins that may call from a browser (also the CORS list)",
    )
    keys: tuple[tuple[str, str], ...] = _setting(
        (),
        _keys,
        "`key:user` pairs, comma-separated",
        "who may call. With none, one local user (who counts as signed in) and no authentication",
        secret=True,
    )
    users: Mapping[str, Mapping[str, Any]] | None = _setting(
        None,
        _users,
        "a table for each user with any of `specialists`, `turns_a_minute`, `turns_at_once`: in TOML "
        '`[users.ada]`, in the environment as JSON: `{"ada": {"specialists": ["wiki"]}}`',
        "what single users may do, where it is not what all may",
        secret=True,  # whoever takes it for KEYS does not find them on the screen
    )
    turns_a_minute: int | None = _setting(
        None, _turns, _TURNS, "turns that a user may begin; 0: any number", "`120` with KEYS, else `0`"
    )
    turns_at_once: int | None = _setting(
        None, _turns, _TURNS, "turns of a user that may run; 0: any number", "`32` with KEYS, else `0`"
    )
    calls: int = _setting(5, _count(0, 100), "a whole number from 0 to 100", "calls of specialists a turn")
    calls_per_specialist: int = _setting(
        3, _count(0, 100), "a whole number from 0 to 100", "calls of one specialist a turn"
    )
    turn_seconds: float = _setting(600.0, _seconds, _SECONDS, "the whole turn")
    call_seconds: float = _setting(5.0, _seconds, _SECONDS, "one call, unless the specialist declares its own")
    approval_seconds: float = _setting(
        600.0,
        _seconds,
        _SECONDS,
        "how long a person may take to approve a call; the turn's clock stands still meanwhile",
    )
    heartbeat_seconds: float = _setting(
        15.0, _seconds, _SECONDS, "an SSE comment when nothing else was sent, from the first moment"
    )
    syntax: tuple[SyntaxName, ...] = _setting(
        ("bracket", "function_call"),
        _syntax,
        "`bracket`, `mention`, `function_call`, comma-separated",
        "which request syntaxes are read",
    )
    show_results: ShowResults = _setting(
        "hidden",
        _one_of("hidden", "block", "details"),
        "`hidden`, `block` or `details`",
        "how results of specialists appear in the answers of foreign protocols: `block`, as the model reads them, "
        "`details`, in a part of the page that unfolds",
    )
    allowed_specialists: tuple[str, ...] = _setting(
        (), _specialists, "names, comma-separated", "the only specialists that may be called", "all"
    )
    specialists_folder: Path | None = _setting(
        None, _folder, "a folder", "a folder of single files with specialists, besides the installed ones"
    )
    fetch_hosts: tuple[str, ...] = _setting(
        (),
        _hosts_with_ports,
        "`name` or `name:port`, comma-separated",
        "hosts that specialists may fetch from although they are not public, or at another port than 80 and 443",
    )
    log: Literal["text", "json"] = _setting(
        "text", _one_of("text", "json"), "`text` or `json`", "the form of the lines on standard error"
    )
    traces: Literal["off", "console", "otlp"] = _setting(
        "off",
        _one_of("off", "console", "otlp"),
        "`off`, `otlp` or `console`",
        "where OpenTelemetry spans of turns go. `otlp`: over HTTP to the collector that the OTEL_ variables name, "
        "`console`: to standard output. Needs the extra `otel`",
    )
    specialist_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    specialist_environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def limits(self) -> Limits:
        """The limits of a turn that asks for no lower ones."""
        return Limits(self.calls, self.calls_per_specialist, self.turn_seconds, self.call_seconds)

    def rights(self, user: str | None) -> Rights:
        """What a user may do: what USERS says, else what all may."""
        own = (self.users or {}).get(user or "", {})
        specialists = own.get("specialists")
        return Rights(
            None if specialists is None else frozenset(specialists),
            own.get("turns_a_minute", self._for_all(self.turns_a_minute, 120)),
            own.get("turns_at_once", self._for_all(self.turns_at_once, 32)),
        )

    def _for_all(self, said: int | None, with_keys: int) -> int:
        if said is not None:
            return said
        return with_keys if self.keys else 0

    @property
    def doubts(self) -> list[str]:
        """What is allowed, but hardly meant; in sentences that show no key."""
        known = {user for _, user in self.keys} if self.keys else {LOCAL_USER}
        short = dict.fromkeys(user for key, user in self.keys if len(key) < KEY_LENGTH)  # each once, in their order
        return [
            *(f"No key: {name}, whom USERS names" for name in self.users or () if name not in known),
            *(f"Short key: one of {user} has fewer than {KEY_LENGTH} characters and can be guessed" for user in short),
        ]

    def of_specialist(self, name: str) -> dict[str, Any]:
        """What is set for one specialist, keys in lower case; the environment wins over the file."""
        prefix = environ_name(name, "")
        found = dict(self.specialist_settings.get(name, {}))
        found |= {
            key.removeprefix(prefix).lower(): value
            for key, value in self.specialist_environ.items()
            if key.startswith(prefix)
        }
        return found


KEYS = {f.name.upper(): f for f in fields(Settings) if f.metadata}


def read(
    environ: Mapping[str, str], config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Reads the settings: the file first, the environment over it, `overrides` (the command line) over both.

    Raises:
        SettingsError: naming the setting, its value and what is allowed.
    """
    found: dict[str, tuple[str, Any]] = {}
    specialist_settings: Mapping[str, Any] = {}
    if config is not None:
        table = _toml(config)
        specialist_settings = _specialist_tables(table.pop("specialists", {}), config)
        found |= {key.upper(): (f"{key} in {config.name}", value) for key, value in table.items()}
    specialist_environ = {key: value for key, value in environ.items() if key.startswith(SPECIALIST_PREFIX)}
    found |= {
        key.removeprefix(PREFIX): (key, value)
        for key, value in environ.items()
        if key.startswith(PREFIX) and key not in specialist_environ
    }
    said = {key: (f"--{key.lower()}", value) for key, value in (overrides or {}).items()}
    if environ.get("PORT") and PREFIX + "PORT" not in environ and "PORT" not in said:
        found = {"HOST": ("HOST", "0.0.0.0"), **found, "PORT": ("PORT", environ["PORT"])}
    found |= said
    values = {KEYS[key].name: _parsed(key, *found[key]) for key in found if _known(key, found[key][0])}
    values.setdefault("time_zone", machine_time_zone())
    return Settings(**values, specialist_settings=specialist_settings, specialist_environ=specialist_environ)


def table() -> str:
    """The settings as a Markdown table: key, default, meaning."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, setting in KEYS.items():
        shown = setting.metadata["shown"] or _shown(setting.default)
        rows.append(f"| {key} | {shown} | {setting.metadata['meaning']}. Allowed: {setting.metadata['allowed']} |")
    return "\n".join(rows)


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "–"
    if isinstance(default, tuple):
        default = ",".join(default)
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"--config {path}: cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {path}: is not valid TOML: {error}.") from None


def _specialist_tables(value: Any, config: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
        raise SettingsError(f"specialists in {config.name}: must hold tables, such as [specialists.web].")
    return value


def _known(key: str, said_as: str) -> bool:
    if key not in KEYS:
        raise SettingsError(f"{said_as} is not a setting. Known: {', '.join(KEYS)} (in the environment with {PREFIX}).")
    return True


def _parsed(key: str, said_as: str, value: Any) -> Any:
    metadata = KEYS[key].metadata
    try:
        return metadata["parse"](value)
    except (TypeError, ValueError, zoneinfo.ZoneInfoNotFoundError, OSError, RuntimeError):
        shown = "(not shown)" if metadata["secret"] else repr(value)
        raise SettingsError(f"{said_as}={shown} is not allowed. Allowed: {metadata['allowed']}.") from None
