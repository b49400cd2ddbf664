"""Reads the settings, once: a file, the environment over it, the command line over both."""

import json
import tomllib
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brain.errors import SettingsError
from brain.settings import models, parsers
from brain.settings.fields import KEYS, PREFIX, SPECIALIST_PREFIX, Settings

COMMON_NAMES = frozenset(
    ["CALLS", "HOST", "HOSTS", "LOG", "PORT", "STORE", "SYSTEM", "TIME_ZONE", "TRACES", "USERS", "WORKERS"]
)
"""Names that variables of other programs may have; any other name without the prefix was meant for Brain."""


def read(
    environ: Mapping[str, str],
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings.

    Args:
        config: a TOML file.
        overrides: settings of the command line.
        variables: the environment for `key_env` of models; `environ` when left out.

    Raises:
        SettingsError: naming the setting, its value and what is allowed.
    """
    entries: dict[str, tuple[str, Any]] = {}  # by key: where it was set, and its value
    specialist_settings: Mapping[str, Any] = {}
    if config is not None:
        table = _read_toml(config)
        specialist_settings = table.pop("specialists", {})
        if not isinstance(specialist_settings, dict) or not all(
            isinstance(t, dict) for t in specialist_settings.values()
        ):
            raise SettingsError(f"specialists in {config.name}: must hold tables, such as [specialists.web].")
        entries |= {key.upper(): (f"{key} in {config.name}", value) for key, value in table.items()}
    specialist_environ = {key: value for key, value in environ.items() if key.startswith(SPECIALIST_PREFIX)}
    entries |= {
        key.removeprefix(PREFIX): (key, value)
        for key, value in environ.items()
        if key.startswith(PREFIX) and key not in specialist_environ
    }
    command_line = {key: (f"--{key.lower()}", value) for key, value in (overrides or {}).items()}
    if environ.get("PORT") and PREFIX + "PORT" not in environ and "PORT" not in command_line:
        entries = {"HOST": ("HOST", "0.0.0.0"), **entries, "PORT": ("PORT", environ["PORT"])}
    entries |= command_line
    values = {}
    for key, (source, value) in entries.items():
        if key not in KEYS:
            known = f"{', '.join(KEYS)} (in the environment with {PREFIX})"
            raise SettingsError(f"{source} is not a setting. Known: {known}.")
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
        raise SettingsError(f"--config {path}: cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {path}: is not valid TOML: {error}.") from None


def _parse(key: str, source: str, value: Any) -> Any:
    try:
        return KEYS[key].metadata["parse"](value)
    except json.JSONDecodeError as error:
        detail = f" It is no valid JSON in line {error.lineno}, column {error.colno}: {error.msg}."
        raise _not_allowed(key, source, value, detail) from None
    except parsers.TableError as error:
        raise _not_allowed(key, source, value, f" {error}") from None
    except (TypeError, ValueError, zoneinfo.ZoneInfoNotFoundError, OSError, RuntimeError):
        raise _not_allowed(key, source, value) from None


def _not_allowed(key: str, source: str, value: Any, detail: str = "") -> SettingsError:
    metadata = KEYS[key].metadata
    shown = parsers.show(value, secret=metadata["secret"])
    return SettingsError(f"{source}={shown} is not allowed. Allowed: {metadata['allowed']}.{detail}")


def _resolve_models(
    values: Mapping[str, Any], entries: Mapping[str, tuple[str, Any]], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Read the table of models and choose the offered ones; MODEL and EMBEDDINGS must name known models."""
    rows = models.read_rows(values.get("models", {}), variables)
    kinds = {row.name: row.kind for row in rows}
    embeddings: str | None = values.get("embeddings")
    names: tuple[str, ...] = values.get("model", ())
    known = f" MODELS has: {', '.join(kinds)}." if kinds else ""
    for name in names:
        if ":" not in name and name not in (*kinds, "auto", "builtin"):
            raise _not_allowed("MODEL", *entries["MODEL"], known)
    if embeddings is not None and ":" not in embeddings and kinds.get(embeddings) not in models.REMOTE_KINDS:
        raise _not_allowed("EMBEDDINGS", *entries["EMBEDDINGS"], known)
    names = names or tuple(name for name in kinds if name != embeddings) or ("auto",)
    return {"models": rows, "model": names}
