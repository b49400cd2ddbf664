"""The settings that a specialist declares: read from the operator's, and told to them."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from brain.errors import RegistrationError
from brain.plugins.specialist import Specialist
from brain.settings import PREFIX, Settings, environ_name

_WORDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`str`": "text",
    "`array`": "a list such as a,b",
    "`object`": "a table such as name=a,other=b",
}
"""What msgspec calls a type, and what an operator does."""

log = logging.getLogger("brain")


@dataclass(frozen=True, slots=True)
class OwnSetting:
    """A setting that a specialist declares: the key after `BRAIN_`, its default and its meaning, in words."""

    key: str
    default: str
    meaning: str


def declared(specialist: Specialist[..., Any]) -> list[OwnSetting]:
    """What the operator may set for it."""
    kind: Any = specialist.settings
    hints = get_type_hints(kind, include_extras=True) if kind else {}
    return [
        OwnSetting(environ_name(specialist.name, f.name).removeprefix(PREFIX), _default(f), _meaning(hints[f.name]))
        for f in (fields(kind) if kind else ())
    ]


def variables(specialist: Specialist[..., Any]) -> set[str]:
    """The environment variables that it reads."""
    kind = specialist.settings
    return {environ_name(specialist.name, f.name) for f in fields(kind)} if is_dataclass(kind) else set()


def read(specialist: Specialist[..., Any], settings: Settings) -> Any:
    """An instance of its settings class, None without one.

    Raises:
        RegistrationError: naming the setting, its value and what it must be.
    """
    kind, found = specialist.settings, settings.of_specialist(specialist.name)
    if kind is None:
        return None
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise RegistrationError(f"specialist {specialist.name}: its settings must be a dataclass")
    known = {f.name for f in fields(kind)}
    unknown = set(settings.specialist_settings.get(specialist.name, ())) - known
    if unknown:
        log.warning("specialist %s has no setting %s", specialist.name, ", ".join(sorted(unknown)))
    hints = get_type_hints(kind)
    try:
        values = {key: _spelt_out(value, hints[key]) for key, value in found.items() if key in known}
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        key, problem = _wrong(str(error), hints)
        said = _said(specialist.name, key, found, settings, problem) if key in found else str(error)
        raise RegistrationError(f"specialist {specialist.name}: its settings: {said}") from None


def _wrong(error: str, hints: Mapping[str, Any]) -> tuple[str, str]:
    """The setting that msgspec stumbled over, and what it must be."""
    problem, _, path = error.partition(" - at `$.")
    key = path.partition(".")[0].partition("[")[0].removesuffix("`")
    if problem.startswith("Invalid enum value"):
        return key, f"it must be one of {', '.join(map(str, get_args(hints.get(key))))}"
    if not problem.startswith("Expected "):
        return key, problem
    expected = problem.removeprefix("Expected ").partition(", got ")[0]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in expected.split(" | ") if kind != "`null`")
    return key, f"it must be {wanted}"


def _said(name: str, key: str, found: Mapping[str, Any], settings: Settings, problem: str) -> str:
    """Where it was set and to what; a text is not shown, for it may be a key."""
    variable = environ_name(name, key)
    where = variable if variable in settings.specialist_environ else f"{key} in [specialists.{name}]"
    value = "(not shown)" if problem == f"it must be {_WORDS['`str`']}" else repr(found[key])
    return f"{where}={value} is not allowed: {problem}"


def _spelt_out(value: Any, hint: Any) -> Any:
    """A list or table that an environment variable holds: in JSON, or as `a,b` and `name=a,other=b`."""
    wanted = get_origin(hint) or hint
    if not isinstance(value, str) or wanted not in (list, tuple, dict, frozenset, set, Mapping, Sequence):
        return value
    if value.lstrip().startswith(("[", "{")):
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(value)
        return value
    items = [item.strip() for item in value.split(",") if item.strip()]
    if wanted not in (dict, Mapping):
        return items
    return {name.strip(): said.strip() for name, _, said in (item.partition("=") for item in items)}


def _default(setting: Field[Any]) -> str:
    default = setting.default if setting.default_factory is MISSING else setting.default_factory()
    if default is MISSING or default is None or default in ("", (), [], {}):
        return "–"
    return f"`{default}`"


def _meaning(hint: Any) -> str:
    """The description in an annotation, which msgspec reads for parameters, too."""
    described = [meta.description for meta in get_args(hint)[1:] if isinstance(meta, msgspec.Meta)]
    return " ".join(str(text) for text in described if text)
