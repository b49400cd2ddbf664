"""The settings, as one frozen object. The table in the documentation is made from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from brain.events import Limits, Resume, SyntaxName
from brain.settings import models as model_rows
from brain.settings import parsers
from brain.settings.models import REMOTE_KINDS, ModelRow
from brain.settings.parsers import Parse

PREFIX = "BRAIN_"
"""Of the environment variables that are ours."""
SPECIALIST_PREFIX = "BRAIN_SPECIALIST_"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_USER = "local"
"""The user where no API key is needed."""
KEY_LENGTH = 16
"""A shorter API key can be guessed."""
ShowResults = Literal["hidden", "block", "details"]


def _setting(
    default: Any, parse: Parse, allowed: str, meaning: str, shown: str | None = None, *, secret: bool = False
) -> Any:
    metadata = {"parse": parse, "allowed": allowed, "meaning": meaning, "shown": shown, "secret": secret}
    return field(default=default, metadata=metadata, repr=not secret and parse is not parsers.url)


def environ_name(specialist: str, key: str) -> str:
    """The environment variable of a specialist's own setting."""
    return f"{SPECIALIST_PREFIX}{specialist}_{key}".upper().replace("-", "_")


_SECONDS = "a number of seconds above 0, at most 86400"
_TURNS = "a whole number from 0 to 100000"


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
        parsers.models,
        "`auto`, `builtin`, `ollama:NAME`, `openai:NAME`, `script:FILE` or a name from MODELS, or several of them, "
        "comma-separated",
        "models on offer, the default first. `auto`: Ollama on its usual port when it answers within 250 ms "
        "and has a model that can complete (the loaded one, else the newest), else the OpenAI API if OPENAI_API_KEY is "
        "set and a model for it is named, else `builtin`",
        "all of MODELS, else `auto`",
    )
    models: tuple[ModelRow, ...] = _setting(
        (),
        parsers.table,
        f"a table for each model with `is` and any of {model_rows.OPTIONAL_FIELDS}: in TOML `[models.small]`, in the "
        'environment as JSON: `{"small": {"is": "ollama:llama3.2"}}`',
        "models with a server and a key of their own. See [Several models](#several-models)",
        "–",
        secret=True,
    )
    model_url: str | None = _setting(
        None,
        parsers.url,
        "an http:// or https:// address",
        "base URL of the server of models that are not in MODELS",
        "per kind",
    )
    model_key: str | None = _setting(
        None, parsers.key, "printable ASCII characters without spaces", "key of that server", secret=True
    )
    model_resume: str | None = _setting(
        None,
        parsers.one_of("prefill", "message"),
        "`prefill` or `message`",
        "how a pass continues after a result block",
        "by server",
    )
    model_sees_images: bool | None = _setting(
        None,
        parsers.yes_no_auto,
        "`auto`, `yes` or `no`",
        "whether the model takes images, for `vision`. `auto`: if its server says so, as Ollama, llama.cpp, Mistral "
        "and OpenRouter do",
        "auto",
    )
    model_embeddings: str | None = _setting(
        None,
        parsers.text,
        "a name",
        "the embedding model at the same server, such as `nomic-embed-text`, for `knowledge` and `memory`",
        "the model itself",
    )
    model_first_token_seconds: float = _setting(
        300.0,
        parsers.seconds,
        _SECONDS,
        "time limit for a model's first token, from the request on; reading a long prompt takes minutes on a CPU",
    )
    embeddings: str | None = _setting(
        None,
        parsers.embeddings,
        "a name from MODELS, `ollama:NAME` or `openai:NAME`",
        "model for all embeddings, at its own server",
        "the server of the model that answers",
    )
    model_idle_seconds: float = _setting(
        60.0, parsers.seconds, _SECONDS, "time limit for silence after the first token"
    )
    system: str = _setting(
        "Answer in the user's language, briefly and to the point.",
        parsers.text,
        "text",
        "the operator's own instructions (persona); Brain's come first",
        "a short one",
    )
    time_zone: str = _setting(
        "",
        parsers.zone,
        "an IANA name such as Europe/Berlin",
        "the user's time zone, unless the request has one",
        "the machine's",
    )
    host: str = _setting(
        "127.0.0.1",
        parsers.host,
        "an address of this machine",
        "where to listen; an address other than loopback needs KEYS. 0.0.0.0 when plain `PORT` is used",
    )
    port: int = _setting(
        8000,
        parsers.count(0, 65535),
        "a port from 0 to 65535",
        "where to listen. Plain `PORT` (as process managers set it) is read when `BRAIN_PORT` is not",
    )
    workers: int = _setting(
        1,
        parsers.count(1, 256),
        "a whole number from 1 to 256",
        "processes that serve on this port, for more cores: see Several cores",
    )
    hosts: tuple[str, ...] = _setting(
        (),
        parsers.hosts,
        "host names or addresses without a port, comma-separated",
        "accepted Host names, besides loopback names and HOST",
    )
    origins: tuple[str, ...] = _setting(
        (),
        parsers.origins,
        "origins such as https://chat.example, comma-separated",
        "origins that may call from a browser (also the CORS list)",
    )
    keys: tuple[tuple[str, str], ...] = _setting(
        (),
        parsers.keys,
        "`key:user` pairs, comma-separated",
        "API keys and their users. Without any, all are one local user who counts as signed in, without authentication",
        secret=True,
    )
    users: Mapping[str, Mapping[str, Any]] | None = _setting(
        None,
        parsers.users,
        "a table for each user with any of `specialists`, `turns_a_minute`, `turns_at_once`: in TOML "
        '`[users.ada]`, in the environment as JSON: `{"ada": {"specialists": ["wiki"]}}`',
        "rights of single users, where they differ from those of all",
        secret=True,  # whoever takes it for KEYS does not find them on the screen
    )
    turns_a_minute: int | None = _setting(
        None, parsers.turns, _TURNS, "turns that a user may begin; 0: any number", "`120` with KEYS, else `0`"
    )
    turns_at_once: int | None = _setting(
        None, parsers.turns, _TURNS, "turns of a user that may run; 0: any number", "`32` with KEYS, else `0`"
    )
    connections_per_address: int = _setting(
        256,
        parsers.count(1, 100_000),
        "a whole number from 1 to 100000",
        "open connections of one client address per worker, of IPv6 per /64; further ones get 503. Behind a proxy: "
        "requests in progress of the address that it forwards. A proxy's own connections are not limited",
    )
    store: str | None = _setting(
        None,
        parsers.store,
        "`sqlite:PATH` or `memory:`",
        "where conversations, facts and memories are stored. `memory:` loses them when the process ends",
        "`sqlite:` file in the user's data folder",
    )
    window_messages: int = _setting(
        20,
        parsers.count(1, 1000),
        "a whole number from 1 to 1000",
        "messages of a conversation that a model reads, the newest ones and the question. A question and its answer "
        "are two messages, however many calls the answer has",
    )
    window_tokens: int = _setting(
        8000,
        parsers.count(1, 999_999),
        "a whole number from 1 to 999999",
        "tokens of these messages; room for the answer is left in the model's context in any case",
    )
    context_seconds: float = _setting(
        3600.0,
        parsers.seconds,
        _SECONDS,
        "idle time after which a conversation starts afresh for the model, in seconds; its messages stay stored",
    )
    rest_seconds: float = _setting(
        600.0,
        parsers.seconds,
        _SECONDS,
        "idle time after which a conversation is summarized for the memory, in the background, in seconds",
    )
    recall_tokens: int = _setting(
        400,
        parsers.count(0, 100_000),
        "a whole number from 0 to 100000",
        "tokens of facts and memories that are recalled for a question; 0: none",
    )
    calls: int = _setting(5, parsers.count(0, 100), "a whole number from 0 to 100", "specialist calls per turn")
    calls_per_specialist: int = _setting(
        3, parsers.count(0, 100), "a whole number from 0 to 100", "calls of one specialist per turn"
    )
    turn_seconds: float = _setting(
        600.0,
        parsers.seconds,
        _SECONDS,
        "time limit for one turn, in seconds; calls end when a quarter of it, at most 60, is left",
    )
    call_seconds: float = _setting(
        5.0,
        parsers.seconds,
        _SECONDS,
        "time limit for one call, in seconds, unless the specialist declares its own",
    )
    approval_seconds: float = _setting(
        600.0,
        parsers.seconds,
        _SECONDS,
        "time limit for a person to approve a call, in seconds; the turn's clock stops meanwhile",
    )
    heartbeat_seconds: float = _setting(
        15.0, parsers.seconds, _SECONDS, "seconds between SSE comments when nothing else is sent, from the start on"
    )
    syntax: tuple[SyntaxName, ...] = _setting(
        ("bracket", "function_call"),
        parsers.syntax,
        "`bracket`, `mention`, `function_call`, comma-separated",
        "call syntaxes that are read",
    )
    show_results: ShowResults = _setting(
        "hidden",
        parsers.one_of("hidden", "block", "details"),
        "`hidden`, `block` or `details`",
        "how results of specialists appear in answers of compatible APIs: `block`, as the model reads them, "
        "`details`, in a part of the page that unfolds",
    )
    allowed_specialists: tuple[str, ...] = _setting(
        (), parsers.specialists, "names, comma-separated", "the only specialists that may be called", "all"
    )
    specialists_folder: Path | None = _setting(
        None, parsers.folder, "a folder", "a folder of single files with specialists, besides the installed ones"
    )
    fetch_hosts: tuple[str, ...] = _setting(
        (),
        parsers.hosts_with_ports,
        "`name` or `name:port`, comma-separated",
        "hosts that specialists may fetch from although they are not public or use a port other than 80 and 443",
    )
    log: Literal["text", "json"] = _setting(
        "text", parsers.one_of("text", "json"), "`text` or `json`", "the form of the lines on standard error"
    )
    traces: Literal["off", "console", "otlp"] = _setting(
        "off",
        parsers.one_of("off", "console", "otlp"),
        "`off`, `otlp` or `console`",
        "where OpenTelemetry spans of turns go. `otlp`: over HTTP to the collector that the OTEL_ variables name, "
        "`console`: to standard output. Needs the extra `otel`",
    )
    specialist_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    specialist_environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    unprefixed: tuple[str, ...] = ()
    """Variables without the prefix, which are not read."""
    standard: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of models that other programs read, too."""

    @property
    def limits(self) -> Limits:
        """The limits of a turn whose request has no lower ones."""
        return Limits(self.calls, self.calls_per_specialist, self.turn_seconds, self.call_seconds)

    def row(self, name: str) -> ModelRow:
        """Return the model of a name from MODELS, or of a short form, with its server and key.

        MODEL_URL and MODEL_KEY belong to one server: that of the `openai:` models if MODEL has any, else Ollama's.

        Raises:
            SettingsError: naming a standard environment variable with a bad value.
        """
        row = next((row for row in self.models if row.name == name), None) or self._short(name)
        return model_rows.complete_row(row, self.standard)

    @property
    def hosted_row(self) -> ModelRow | None:
        """The model for `auto` without Ollama: the first one that OPENAI_API_KEY is for; None without one."""
        names = [row.name for row in self.models if row.kind == "openai"]
        if model := self.standard.get("OPENAI_MODEL"):
            names.append(f"openai:{model}")
        key = self.standard.get("OPENAI_API_KEY")
        return next((row for row in map(self.row, names) if key is not None and row.key == key), None)

    def _short(self, name: str) -> ModelRow:
        kind, _, model = name.partition(":")
        resume = cast(Resume | None, self.model_resume)
        if kind not in ("auto", *REMOTE_KINDS):
            return ModelRow(name=name, kind=kind, model=model, resume=resume)
        has_server = self._kind_of_server == (kind if kind in REMOTE_KINDS else "ollama")
        url = self.model_url if has_server else None
        is_its_key = has_server and not (kind == "auto" and url is None)  # anything may listen on Ollama's usual port
        return ModelRow(
            name=name,
            kind=kind,
            model=model,
            url=url,
            key=self.model_key if is_its_key else None,
            resume=resume,
            sees_images=self.model_sees_images,
            embeddings=self.model_embeddings if self.embeddings is None else None,
        )

    @property
    def _kind_of_server(self) -> str:
        """The kind of the models that MODEL_URL and MODEL_KEY belong to."""
        rows = {row.name for row in self.models}
        kinds = {name.partition(":")[0] for name in self.model if name not in rows}
        if "openai" in kinds:
            return "openai"
        return "ollama" if kinds & {"auto", "ollama"} else (self.embeddings or "").partition(":")[0]

    def rights(self, user: str | None) -> Rights:
        """Return the rights of a user: those in USERS, else those of all users."""
        own = (self.users or {}).get(user or "", {})
        specialists = own.get("specialists")
        return Rights(
            None if specialists is None else frozenset(specialists),
            own.get("turns_a_minute", self._for_all(self.turns_a_minute, 120)),
            own.get("turns_at_once", self._for_all(self.turns_at_once, 32)),
        )

    def _for_all(self, value: int | None, with_keys: int) -> int:
        if value is not None:
            return value
        return with_keys if self.keys else 0

    @property
    def warnings(self) -> list[str]:
        """What is allowed but hardly intended, in sentences that show no key."""
        known = {user for _, user in self.keys} if self.keys else {LOCAL_USER}
        short = dict.fromkeys(user for key, user in self.keys if len(key) < KEY_LENGTH)  # each once, in their order
        others = "model_url", "model_key", "model_resume", "model_sees_images", "model_embeddings"
        names_rows_only = {row.name for row in self.models}.issuperset((*self.model, self.embeddings or self.model[0]))
        unused = [name.upper() for name in others if names_rows_only and getattr(self, name) is not None]
        return [
            *(f"Not used: {name}, as all models are of MODELS" for name in unused),
            *(f"Not read: {name}, which is called {PREFIX}{name} here" for name in self.unprefixed),
            *(f"No key: {name}, whom USERS names" for name in self.users or () if name not in known),
            *(f"Short key: one of {user} has fewer than {KEY_LENGTH} characters and can be guessed" for user in short),
        ]

    def specialist_options(self, name: str) -> dict[str, Any]:
        """Return the settings of one specialist, keys in lower case; the environment wins over the file."""
        prefix = environ_name(name, "")
        options = dict(self.specialist_settings.get(name, {}))
        options |= {
            key.removeprefix(prefix).lower(): value
            for key, value in self.specialist_environ.items()
            if key.startswith(prefix)
        }
        return options


KEYS = {f.name.upper(): f for f in fields(Settings) if f.metadata}


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
