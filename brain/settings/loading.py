"""Read the settings once: the environment wins over the file, the command line over both."""

import re
import shlex
import tomllib
import zoneinfo
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from brain.errors import SettingsError
from brain.settings import models, parsers
from brain.settings.fields import KEYS, PREFIX, SPECIALIST_PREFIX, Settings
from brain.text import suggest

COMMON_NAMES = frozenset(
    ["CALLS", "HOST", "HOSTS", "LOG", "PORT", "STORE", "SYSTEM", "TIME_ZONE", "TRACES", "USERS", "WORKERS"]
)
"""Names that other programs may use without the prefix; any other was probably meant for Brain."""


def read(
    environ: Mapping[str, str],
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    label: str = "--",
) -> Settings:
    """Read the settings.

    Args:
        overrides: Settings of the command line, or of a program.
        variables: The environment for `key_env` of models; `environ` by default.
        label: What errors write before the name of such a setting.
    """
    entries: dict[str, tuple[str, Any]] = {}  # by key: where it was set, and its value
    specialist_settings: Mapping[str, Any] = {}
    if config is not None:
        table = _read_toml(config)
        specialist_settings = table.pop("specialists", {})
        if not isinstance(specialist_settings, dict) or not all(
            isinstance(t, dict) for t in specialist_settings.values()
        ):
            message = f"specialists in {config} must be tables, such as [specialists.web]."
            raise SettingsError(message, "Correct the file.")
        entries |= {key.upper(): (f"{key} in {config}{_find_line(config, key)}", value) for key, value in table.items()}
    specialist_environ = {key: value for key, value in environ.items() if key.startswith(SPECIALIST_PREFIX)}
    entries |= {
        key.removeprefix(PREFIX): (key, value)
        for key, value in environ.items()
        if key.startswith(PREFIX) and key not in specialist_environ
    }
    command_line = {key: (f"{label}{key.lower()}", value) for key, value in (overrides or {}).items()}
    if environ.get("PORT") and PREFIX + "PORT" not in environ and "PORT" not in command_line:
        entries = {"HOST": ("HOST", "0.0.0.0"), **entries, "PORT": ("PORT", environ["PORT"])}
    entries |= command_line
    values = {}
    for key, (source, value) in entries.items():
        if key not in KEYS:
            in_environ = source == PREFIX + key
            if in_environ:
                near, advice = suggest(key, KEYS).replace("'", f"'{PREFIX}", 1), f"unset {source}"
            else:
                near, advice = suggest(key, [*map(str.lower, KEYS), "specialists"]), "Correct or remove it."
            raise SettingsError(f"Unknown setting {source}.{near}", advice)
        values[KEYS[key].name] = _parse(key, source, value)
    values |= _resolve_models(values, entries, environ if variables is None else variables)
    values.setdefault("time_zone", machine_time_zone())
    return Settings(
        **values,
        specialist_settings=specialist_settings,
        specialist_environ=specialist_environ,
        unprefixed=tuple(key for key in KEYS if key in environ and key not in COMMON_NAMES and key not in entries),
        standard={key: environ[key].strip() for key in models.STANDARD if environ.get(key, "").strip()},
    )


def machine_time_zone() -> str:
    """Return the IANA name of the machine's time zone; `UTC` when it is unknown."""
    target = Path("/etc/localtime")
    _, _, name = str(target.resolve()).partition("zoneinfo/")
    try:
        return zoneinfo.ZoneInfo(name).key if name else "UTC"
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        return "UTC"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        message = f"Cannot read the settings file {path}: {(error.strerror or 'input/output error').lower()}."
        raise SettingsError(message, "brain check --config FILE") from None
    except UnicodeDecodeError:
        raise SettingsError(f"The settings file {path} is not UTF-8.", "Correct the file.") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+, column \d+", str(error))
        where = f", {place[0]}" if place else ", at the end"
        raise SettingsError(f"{path}{where}: not valid TOML.", "Correct the file.") from None


def _find_line(path: Path, *names: str) -> str:
    """Return `, line N` for a key or table of a TOML file that sets it in the usual way."""
    table, key = re.escape(".".join(names)), re.escape(names[-1])
    pattern = re.compile(rf"\s*(?:\[\s*{table}\s*[\].]|{key if len(names) == 1 else table}\s*=)")
    lines = path.read_text("utf-8").splitlines()
    return next((f", line {number}" for number, line in enumerate(lines, 1) if pattern.match(line)), "")


def _parse(key: str, source: str, value: Any) -> Any:
    try:
        return KEYS[key].metadata["rule"].parse(value)
    except parsers.TableError as error:
        raise _invalid(key, source, value, f" {error}") from None
    except (TypeError, ValueError, zoneinfo.ZoneInfoNotFoundError, OSError, RuntimeError):
        raise _invalid(key, source, value) from None


def _invalid(key: str, source: str, value: Any, detail: str = "") -> SettingsError:
    metadata = KEYS[key].metadata
    example = shlex.quote(metadata["example"])
    if key == "MODEL" and not detail:
        detail = _suggest_model(str(value))
    if source.startswith("--"):
        advice = f"brain {'check' if key == 'MODEL' else 'serve'} {source} {example}"
    else:
        is_variable = " " not in source  # not a line of a file, or an argument of a program
        advice = f"export {source}={example}" if is_variable else "Correct it."
    rule = metadata["rule"]
    message = parsers.describe_invalid(source, value, rule.allowed, secret=rule.secret)
    return SettingsError(message + detail, advice)


def _suggest_model(value: str, rows: Iterable[str] = ()) -> str:
    """Return what a wrong model was probably meant to be."""
    for name in value.split(","):
        kind, colon, model = name.strip().partition(":")
        if colon and kind not in parsers.MODEL_KINDS:
            return suggest(kind, parsers.MODEL_KINDS).replace("'?", f":{model}'?")
        if not colon and kind and kind not in ("auto", "builtin"):
            near = suggest(kind, (*rows, "auto", "builtin"))
            return near or f" Did you mean 'ollama:{kind}' or 'openai:{kind}'?"
    return ""


def _is_model(name: str, rows: Container[str]) -> bool:
    """Return whether a model has a short form or a row in MODELS."""
    return ":" in name or name in rows or name in ("auto", "builtin")


def _resolve_models(
    values: Mapping[str, Any], entries: Mapping[str, tuple[str, Any]], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Read the table of models and choose the offered ones; check names that refer to the table."""
    source = entries["MODELS"][0] if "MODELS" in entries else ""
    try:
        rows = models.read_rows(values.get("models", {}), variables)
    except SettingsError as error:
        if " in " not in source:
            raise
        raise SettingsError(f"{source.partition(' in ')[2].partition(', line')[0]}: {error}", error.advice) from None
    kinds = {row.name: row.kind for row in rows}
    embeddings: str | None = values.get("embeddings")
    names: tuple[str, ...] = values.get("model", ())
    known = f" MODELS has: {', '.join(kinds)}." if kinds else ""
    chosen = {"MODEL": names, "FALLBACK_MODEL": values.get("fallback_model", ())}
    chosen |= {key: (values[key.lower()],) for key in ("THINKER", "ACTOR") if key.lower() in values}
    for key, models_of_key in chosen.items():
        for name in models_of_key:
            if not _is_model(name, kinds):
                raise _invalid(key, *entries[key], f"{_suggest_model(name, kinds)}{known}")
    for row in rows:
        for name in row.fallback or ():
            if not _is_model(name, kinds):
                place = f"models.{row.name}.fallback"
                message = f"{place} has the unknown model '{name}'.{_suggest_model(name, kinds)}{known}"
                raise SettingsError(message, f"correct {place}")
    if embeddings is not None and ":" not in embeddings and kinds.get(embeddings) not in models.REMOTE_KINDS:
        raise _invalid("EMBEDDINGS", *entries["EMBEDDINGS"], f"{suggest(embeddings, kinds)}{known}")
    names = names or tuple(name for name in kinds if name != embeddings) or ("auto",)
    return {"models": rows, "model": names}
