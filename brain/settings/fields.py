"""The settings, as one frozen object. The table in the documentation is generated from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from brain.events import AssistMode, Limits, Resume, StrategyName, SyntaxName
from brain.messages import PassRecord
from brain.settings import models as model_rows
from brain.settings import parsers
from brain.settings.models import REMOTE_KINDS, ModelRow
from brain.settings.parsers import Rule
from brain.task import ProfileName

PREFIX = "BRAIN_"
"""Prefix of Brain's environment variables."""
SPECIALIST_PREFIX = "BRAIN_SPECIALIST_"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_USER = "local"
"""The user of a server without API keys."""
KEY_LENGTH = 16
"""Characters of an API key that is hard to guess."""
ShowResults = Literal["hidden", "block", "details"]


def _setting(default: Any, rule: Rule, meaning: str, shown: str | None = None, example: str = "") -> Any:
    """Declare a setting.

    Args:
        meaning: What it sets, beginning with a noun.
        shown: The default in the documentation, if it is not the value itself.
        example: A good value for errors; the default without it.
    """
    metadata = {"rule": rule, "meaning": meaning, "shown": shown, "example": example or _format(default)}
    return field(default=default, metadata=metadata, repr=not rule.secret and rule not in (parsers.URL, parsers.STORE))


def _format(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def environ_name(specialist: str, key: str) -> str:
    """Return the environment variable of a specialist's setting."""
    return f"{SPECIALIST_PREFIX}{specialist}_{key}".upper().replace("-", "_")


DEFAULT_CALLS: Mapping[StrategyName, int] = {"mono": 5, "reason": 5, "dual": 10, "step": 10}
"""Calls per turn, if CALLS is not set."""


_ROLE_MODEL = Rule(parsers.role_model, "`builtin`, `ollama:NAME`, `openai:NAME`, `script:FILE` or a name from MODELS")


@dataclass(frozen=True, slots=True)
class Rights:
    """The specialists and rate limits of one user; None allows all specialists, and 0 is no limit."""

    specialists: frozenset[str] | None = None
    turns_a_minute: int = 0
    turns_at_once: int = 0
    tasks_per_day: int = 0
    task_tokens_per_day: int = 0


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """How tasks of one profile run; None is the default of a turn."""

    model: str | None = None
    strategy: StrategyName | None = None
    seconds: float = 300.0
    calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings; the key of a field is its name in capitals."""

    model: tuple[str, ...] = _setting(
        ("auto",),
        Rule(
            parsers.models,
            "`auto`, `builtin`, `ollama:NAME`, `openai:NAME`, `script:FILE` or a name from MODELS, comma-separated",
        ),
        "models that clients can choose, the default first. `auto` uses Ollama at its default URL if it answers within "
        "250 ms and has a chat model (the loaded one, else the newest). Otherwise it uses the OpenAI API if "
        "OPENAI_API_KEY and a model are set, else `builtin`, the demo model",
        "all of MODELS, else `auto`",
    )
    models: tuple[ModelRow, ...] = _setting(
        (),
        Rule(
            parsers.table,
            f"a table for each model with `is` and any of {model_rows.OPTIONAL_FIELDS}: in TOML `[models.small]`, in "
            'the environment as JSON: `{"small": {"is": "ollama:llama3.2"}}`',
            secret=True,
        ),
        "models with their own server and API key. See [Several models](#several-models)",
        "–",
        '{"small": {"is": "ollama:llama3.2"}}',
    )
    fallback_model: tuple[str, ...] = _setting(
        (),
        Rule(
            parsers.fallback_models,
            "`builtin`, `ollama:NAME`, `openai:NAME`, `script:FILE` or a name from MODELS, comma-separated",
        ),
        "models that continue the answer, in this order, when a model fails",
        example="ollama:llama3.2",
    )
    model_url: str | None = _setting(
        None,
        parsers.URL,
        "base URL of the model server, for models that are not in MODELS",
        "per kind",
        "http://127.0.0.1:8080/v1",
    )
    model_key: str | None = _setting(None, parsers.KEY, "API key of that server", example="KEY")
    model_resume: str | None = _setting(
        None, parsers.RESUME, "resume mode: how Brain asks the model to continue after a result", "by server", "message"
    )
    model_sees_images: bool | None = _setting(
        None,
        Rule(parsers.yes_no_auto, "`auto`, `yes` or `no`"),
        "image input of the model, for `vision`. `auto` asks the server; Ollama, llama.cpp, Mistral and OpenRouter "
        "report it",
        "auto",
        "yes",
    )
    model_embeddings: str | None = _setting(
        None,
        Rule(parsers.text, "a name"),
        "embedding model at the same server, such as `nomic-embed-text`, for `knowledge` and `memory`",
        "the model itself",
        "nomic-embed-text",
    )
    model_first_token_seconds: float = _setting(
        300.0,
        parsers.SECONDS,
        "time limit for the first token of a model request, in seconds; a long prompt takes minutes on a CPU",
    )
    embeddings: str | None = _setting(
        None,
        Rule(parsers.embeddings, "a name from MODELS, `ollama:NAME` or `openai:NAME`"),
        "embedding model for all models, at its own server",
        "the server of the answering model",
        "ollama:nomic-embed-text",
    )
    model_idle_seconds: float = _setting(
        60.0, parsers.SECONDS, "time limit between two tokens of a model request, in seconds"
    )
    system: str = _setting(
        "Answer in the user's language, briefly and to the point.",
        Rule(parsers.text, "text"),
        "system prompt, added after Brain's own instructions",
        "a short one",
        "Answer in one sentence.",
    )
    time_zone: str = _setting(
        "",
        Rule(parsers.zone, "an IANA name such as Europe/Berlin"),
        "default time zone of users; a request can override it",
        "the machine's",
        "Europe/Berlin",
    )
    host: str = _setting(
        "127.0.0.1",
        Rule(parsers.host, "an IP address or host name of this machine"),
        "address to listen on; one other than loopback needs KEYS. The default is 0.0.0.0 if plain `PORT` is set",
    )
    port: int = _setting(
        8000,
        parsers.count(0, 65535, "a port"),
        "port to listen on. Brain reads plain `PORT`, as process managers set it, if `BRAIN_PORT` is not set",
    )
    workers: int = _setting(1, parsers.count(1, 256), "number of worker processes; each can use one CPU core")
    advertise: str | None = _setting(
        None,
        Rule(parsers.advertise, "`HOST:PORT` or `http://HOST:PORT`, with the name or an IP address of this machine"),
        "address at which other processes with the same database reach this one, for requests about its turns. Brain "
        "listens on the first free port from PORT on; 0 = any. See [Several machines](../how-to/several-machines.md)",
        "a Unix socket; with PostgreSQL HOST, or the host name if HOST is 0.0.0.0, and any port",
        "10.0.0.2:8700",
    )
    hosts: tuple[str, ...] = _setting(
        (),
        Rule(parsers.hosts, "host names or IP addresses without a port, comma-separated"),
        "public host names: accepted Host headers besides loopback names and HOST",
        example="chat.example",
    )
    origins: tuple[str, ...] = _setting(
        (),
        Rule(parsers.origins, "origins such as https://chat.example, comma-separated"),
        "web origins whose pages may call Brain from a browser (CORS)",
        example="https://chat.example",
    )
    keys: tuple[tuple[str, str], ...] = _setting(
        (),
        Rule(parsers.keys, "`key:user` pairs, comma-separated", secret=True),
        "API keys and their users. Without keys there is no authentication and one user, `local`",
        example="KEY:USER",
    )
    users: Mapping[str, Mapping[str, Any]] | None = _setting(
        None,
        Rule(
            parsers.users,
            "a table for each user with any of `specialists`, `turns_a_minute`, `turns_at_once`, `tasks_per_day`, "
            "`task_tokens_per_day`: in TOML `[users.ada]`, in the environment as JSON: "
            '`{"ada": {"specialists": ["wiki"]}}`',
            secret=True,  # it may be the value of KEYS
        ),
        "per-user overrides of specialists and rate limits",
        example='{"ada": {"specialists": ["wiki"]}}',
    )
    turns_a_minute: int | None = _setting(
        None,
        parsers.TURNS,
        "maximum number of turns per user and minute; 0 = unlimited",
        "`120` with KEYS, else `0`",
        "120",
    )
    turns_at_once: int | None = _setting(
        None, parsers.TURNS, "maximum number of running turns per user; 0 = unlimited", "`32` with KEYS, else `0`", "32"
    )
    connections_per_address: int = _setting(
        256,
        parsers.count(1, 100_000),
        "maximum number of open connections per client address (IPv6: per /64) and worker; further ones get 503. "
        "Behind a proxy, running requests per forwarded address; connections of the proxy are not limited",
    )
    store: str | None = _setting(
        None,
        parsers.STORE,
        "database for conversations and memory: a file, a database on a PostgreSQL server that several machines share, "
        "or `memory:`, which stores nothing on disk",
        "`sqlite:` file in the user's data folder",
        "sqlite:brain.db",
    )
    window_messages: int = _setting(
        20,
        parsers.count(1, 1000),
        "maximum number of recent messages sent to the model, including the new one. A message and its answer are two, "
        "whatever the number of calls",
    )
    window_tokens: int = _setting(
        8000,
        parsers.count(1, 999_999),
        "maximum size of these messages, in tokens; Brain always leaves room for the answer in the context window",
    )
    context_seconds: float = _setting(
        3600.0,
        parsers.SECONDS,
        "idle time after which the model starts with an empty context, in seconds; the conversation stays stored",
    )
    rest_seconds: float = _setting(
        600.0, parsers.SECONDS, "idle time after which a conversation is summarized in the background, in seconds"
    )
    recall_tokens: int = _setting(
        400,
        parsers.count(0, 100_000),
        "maximum size of facts and summaries recalled for a message, in tokens; 0 = none",
    )
    assist: AssistMode = _setting(
        "auto",
        parsers.one_of(*get_args(AssistMode)),
        "whether Brain calls read-only specialists for models that do not call any by themselves. `auto` learns from "
        "the answers of each model whether it does. See [Small models](../how-to/small-models.md)",
    )
    strategy: StrategyName = _setting("mono", parsers.STRATEGY, "default strategy of a turn")
    strategies: tuple[StrategyName, ...] = _setting(
        get_args(StrategyName),
        parsers.some_of(*get_args(StrategyName)),
        "strategies that requests may use, besides STRATEGY",
    )
    thinker: str | None = _setting(
        None,
        _ROLE_MODEL,
        "model that directs the other one in the strategy `dual`",
        "the model of the turn",
        "ollama:llama3.2",
    )
    actor: str | None = _setting(
        None,
        _ROLE_MODEL,
        "model that calls specialists and writes the answer in the strategy `dual`",
        "the model of the turn",
        "ollama:llama3.2",
    )
    rounds: int = _setting(20, parsers.count(2, 100), "rounds per turn of the strategies `reason` and `dual`")
    steps: int = _setting(10, parsers.count(1, 100), "steps per turn of the strategy `step`")
    step_seconds: float = _setting(
        120.0,
        parsers.SECONDS,
        "time limit for all steps of the strategy `step`, in seconds; the answer comes after them",
    )
    calls: int | None = _setting(
        None, parsers.CALLS, "specialist calls per turn", "`5`; `10` for the strategies `dual` and `step`", "5"
    )
    calls_per_specialist: int = _setting(3, parsers.CALLS, "calls of one specialist per turn")
    turn_seconds: float = _setting(
        600.0,
        parsers.SECONDS,
        "time limit for one turn, in seconds. Brain reserves a quarter of it, up to 60 s, for the end of the answer",
    )
    call_seconds: float = _setting(
        5.0, parsers.SECONDS, "time limit for one call, in seconds; a specialist can set its own"
    )
    approval_seconds: float = _setting(
        600.0,
        parsers.SECONDS,
        "time limit for the approval of a call, in seconds; it does not count towards TURN_SECONDS",
    )
    tasks_at_once: int = _setting(
        3,
        parsers.count(0, 1000),
        "background tasks that run at the same time, in all processes together; 0 = none runs",
    )
    tasks_per_day: int = _setting(50, parsers.TASKS, "runs of background tasks per user and day (UTC); 0 = unlimited")
    task_tokens_per_day: int = _setting(
        0, parsers.TASK_TOKENS, "tokens of background tasks per user and day (UTC); 0 = unlimited"
    )
    task_profiles: Mapping[str, Mapping[str, Any]] | None = _setting(
        None,
        Rule(
            parsers.task_profiles,
            "a table for `standard` and `expert` with any of `model`, `strategy`, `seconds`, `calls`: in TOML "
            '`[task_profiles.expert]`, in the environment as JSON: `{"expert": {"strategy": "reason"}}`',
        ),
        "model, strategy, time limit in seconds and calls of the two profiles of tasks",
        "300 s for `standard`, 600 s for `expert`",
        '{"expert": {"strategy": "reason"}}',
    )
    task_quiet_seconds: float = _setting(
        10.0,
        parsers.SECONDS,
        "time without further results after which Brain reports results of tasks in a conversation, in seconds",
    )
    task_wait_seconds: float = _setting(20.0, parsers.SECONDS, "longest wait of a result for further ones, in seconds")
    task_pause_seconds: float = _setting(
        15.0, parsers.SECONDS, "shortest time between two reports in a conversation, in seconds"
    )
    drain_seconds: float = _setting(
        30.0,
        parsers.SECONDS,
        "time that running turns have to end after SIGTERM while another process uses the same store, in seconds",
    )
    heartbeat_seconds: float = _setting(
        15.0, parsers.SECONDS, "interval between SSE comments while a stream sends nothing else, in seconds"
    )
    syntax: tuple[SyntaxName, ...] = _setting(
        ("bracket", "function_call"),
        parsers.some_of("bracket", "mention", "function_call", "native"),
        "[call syntaxes](call-syntax.md) that Brain recognizes",
    )
    show_results: ShowResults = _setting(
        "hidden",
        parsers.one_of("hidden", "block", "details"),
        "display of specialist results in compatible APIs: `hidden`, `block` (the raw block) or `details` (a "
        "collapsible HTML section)",
    )
    allowed_specialists: tuple[str, ...] = _setting(
        (), Rule(parsers.specialists, "names, comma-separated"), "specialists that models may call", "all", "wiki,docs"
    )
    specialists_folder: Path | None = _setting(
        None,
        Rule(parsers.folder, "an existing directory"),
        "directory with specialists in single files, besides the installed ones",
        example="my_specialists",
    )
    fetch_hosts: tuple[str, ...] = _setting(
        (),
        Rule(parsers.hosts_with_ports, "`name` or `name:port`, comma-separated"),
        "private hosts that specialists may fetch from, and hosts with ports other than 80 and 443",
        example="wiki.example:8080",
    )
    archive: Path | None = _setting(
        None,
        Rule(parsers.new_folder, "a directory, which Brain creates"),
        "directory for recordings of all turns, with messages, answers and results. See "
        "[Find out how an answer was made](../how-to/explain-and-record.md#record-turns)",
        example="archive",
    )
    archive_megabytes: int = _setting(
        1024, parsers.count(1, 99_999_999), "size limit of the archive in MiB; the oldest recordings are deleted"
    )
    archive_days: int = _setting(30, parsers.count(1, 36_500), "age limit of recordings in days")
    log: Literal["text", "json"] = _setting("text", parsers.one_of("text", "json"), "log format on standard error")
    traces: Literal["off", "console", "otlp"] = _setting(
        "off",
        parsers.one_of("off", "otlp", "console"),
        "target of OpenTelemetry spans: `otlp` sends them over HTTP to the collector in the OTEL_ variables, `console` "
        "writes them to standard output. Needs the extra `otel`",
    )
    specialist_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    specialist_environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    unprefixed: tuple[str, ...] = ()
    """Variables without the prefix, which Brain ignores."""
    standard: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of models that other programs read, too."""

    def limits(self, strategy: StrategyName = "mono") -> Limits:
        """Return the limits of a turn with a strategy; a request can only lower them."""
        calls = DEFAULT_CALLS[strategy] if self.calls is None else self.calls
        has_rounds, has_steps = strategy in ("reason", "dual"), strategy == "step"
        return Limits(
            calls,
            self.calls_per_specialist,
            self.turn_seconds,
            self.call_seconds,
            rounds=self.rounds if has_rounds else None,
            steps=self.steps if has_steps else None,
            step_seconds=self.step_seconds if has_steps else None,
        )

    @property
    def allowed_strategies(self) -> tuple[StrategyName, ...]:
        """The strategies that requests may use: STRATEGY and STRATEGIES."""
        return tuple(name for name in get_args(StrategyName) if name in (self.strategy, *self.strategies))

    def cost(self, one: PassRecord) -> float | None:
        """Return the cost of a pass at the prices in MODELS; None without a price."""
        price = next((row.price for row in self.models if row.name == one.model), None)
        return None if price is None else price.cost(one)

    def row(self, name: str) -> ModelRow:
        """Return the model for a name from MODELS or a short form, with its server and key.

        MODEL_URL and MODEL_KEY belong to one server: that of the `openai:` models if MODEL has any, else Ollama's.
        """
        row = next((row for row in self.models if row.name == name), None) or self._short(name)
        return model_rows.complete_row(row, self.standard)

    def fallbacks(self, row: ModelRow) -> tuple[str, ...]:
        """Return the models that take over from this one: those of its row, else FALLBACK_MODEL."""
        names = self.fallback_model if row.fallback is None else row.fallback
        return tuple(name for name in names if name != row.name)

    @property
    def hosted_row(self) -> ModelRow | None:
        """The model for `auto` without Ollama: the first one with OPENAI_API_KEY as its key; None without one."""
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
        is_its_key = has_server and not (kind == "auto" and url is None)  # Ollama's port may be another's
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
        """The kind of model that MODEL_URL and MODEL_KEY belong to."""
        rows = {row.name for row in self.models}
        kinds = {name.partition(":")[0] for name in self.model if name not in rows}
        if "openai" in kinds:
            return "openai"
        return "ollama" if kinds & {"auto", "ollama"} else (self.embeddings or "").partition(":")[0]

    def rights(self, user: str | None) -> Rights:
        """Return the rights of a user: those in USERS, else the rights of all users."""
        own = (self.users or {}).get(user or "", {})
        specialists = own.get("specialists")
        a_minute, at_once = (120, 32) if self.keys else (0, 0)
        return Rights(
            None if specialists is None else frozenset(specialists),
            own.get("turns_a_minute", a_minute if self.turns_a_minute is None else self.turns_a_minute),
            own.get("turns_at_once", at_once if self.turns_at_once is None else self.turns_at_once),
            own.get("tasks_per_day", self.tasks_per_day),
            own.get("task_tokens_per_day", self.task_tokens_per_day),
        )

    def profile(self, name: ProfileName) -> TaskProfile:
        """Return a profile of tasks: its row in TASK_PROFILES, else the default."""
        default = TaskProfile(seconds=600.0 if name == "expert" else 300.0)
        return replace(default, **(self.task_profiles or {}).get(name, {}))

    @property
    def warnings(self) -> list[str]:
        """Warnings about allowed but probably unintended values; they show no key."""
        known = {user for _, user in self.keys} if self.keys else {LOCAL_USER}
        short = {user: len(key) for key, user in self.keys if len(key) < KEY_LENGTH}
        others = "model_url", "model_key", "model_resume", "model_sees_images", "model_embeddings"
        names_rows_only = {row.name for row in self.models}.issuperset((*self.model, self.embeddings or self.model[0]))
        unused = [name.upper() for name in others if names_rows_only and getattr(self, name) is not None]
        return [
            *(f"Warning: {PREFIX}{name} has no effect: all models are in MODELS" for name in unused),
            *(f"Warning: {name} is ignored. Use {PREFIX}{name}." for name in self.unprefixed),
            *(f"Warning: {PREFIX}KEYS has no key for user {name}" for name in self.users or () if name not in known),
            *(
                f"Warning: The API key of {user} has {length} character{'' if length == 1 else 's'}; "
                f"use {KEY_LENGTH} or more."
                for user, length in short.items()
            ),
        ]

    def specialist_options(self, name: str) -> dict[str, Any]:
        """Return the settings of one specialist with lower-case keys; the environment wins over the file."""
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
    """Return the settings as a Markdown table: key, default, meaning."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, setting in KEYS.items():
        shown = setting.metadata["shown"] or _shown(setting.default)
        rows.append(f"| {key} | {shown} | {setting.metadata['meaning']}. Allowed: {setting.metadata['rule'].allowed} |")
    return "\n".join(rows)


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "–"
    return f"`{_format(default)}`"
