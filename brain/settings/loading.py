"""Reads what the operator set, once: a file, the environment over it, the command line over both."""

import json
import tomllib
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brain.errors import SettingsError
from brain.settings import models, parsers
from brain.settings.fields import KEYS, PREFIX, SPECIALIST_PREFIX, Settings

OTHERS = frozenset(
    ["CALLS", "HOST", "HOSTS", "LOG", "PORT", "STORE", "SYSTEM", "TIME_ZONE", "TRACES", "USERS", "WORKERS"]
)
"""Names that variables of other programs may have, too; the rest is meant for us, with or without the prefix."""


def read(
    environ: Mapping[str, str],
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
) -> Settings:
    """Reads the settings.

    Args:
        overrides: those of the command line.
        variables: the environment in which `key_env` of a model is looked up; `environ` when left out.

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
    values |= _models(values, found, environ if variables is None else variables)
    values.setdefault("time_zone", machine_time_zone())
    overlooked = tuple(key for key in KEYS if key in environ and key not in OTHERS and key not in found)
    return Settings(
        **values,
        specialist_settings=specialist_settings,
        specialist_environ=specialist_environ,
        overlooked=overlooked,
        standard={key: environ[key].strip() for key in models.STANDARD if environ.get(key, "").strip()},
    )


def machine_time_zone() -> str:
    """The IANA name of the machine's time zone, `UTC` when it does not tell."""
    target = Path("/etc/localtime")
    _, _, name = str(target.resolve()).partition("zoneinfo/")
    try:
        return zoneinfo.ZoneInfo(name).key if name else "UTC"
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        return "UTC"


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
    try:
        return KEYS[key].metadata["parse"](value)
    except json.JSONDecodeError as error:
        place = f" It is no valid JSON in line {error.lineno}, column {error.colno}: {error.msg}."
        raise _not_allowed(key, said_as, value, place) from None
    except (TypeError, ValueError, zoneinfo.ZoneInfoNotFoundError, OSError, RuntimeError):
        raise _not_allowed(key, said_as, value) from None


def _not_allowed(key: str, said_as: str, value: Any, more: str = "") -> SettingsError:
    metadata = KEYS[key].metadata
    shown = parsers.shown(value, secret=metadata["secret"])
    return SettingsError(f"{said_as}={shown} is not allowed. Allowed: {metadata['allowed']}.{more}")


def _models(
    values: Mapping[str, Any], found: Mapping[str, tuple[str, Any]], variables: Mapping[str, str]
) -> dict[str, Any]:
    """The table of models, and which of them are on offer; MODEL and EMBEDDINGS name none that is not there."""
    rows = models.rows(values.get("models", {}), variables)
    kinds = {row.name: row.kind for row in rows}
    embeddings: str | None = values.get("embeddings")
    names: tuple[str, ...] = values.get("model", ())
    known = f" MODELS has: {', '.join(kinds)}." if kinds else ""
    for name in names:
        if ":" not in name and name not in (*kinds, "auto", "builtin"):
            raise _not_allowed("MODEL", *found["MODEL"], known)
    if embeddings is not None and ":" not in embeddings and kinds.get(embeddings) not in models.SERVED:
        raise _not_allowed("EMBEDDINGS", *found["EMBEDDINGS"], known)
    names = names or tuple(name for name in kinds if name != embeddings) or ("auto",)
    return {"models": rows, "model": names}
