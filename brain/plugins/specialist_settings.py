"""Settings that a specialist declares as a dataclass: read from the operator's settings, and listed for people."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from brain.errors import RegistrationError
from brain.plugins.specialist import Specialist
from brain.settings import PREFIX, Settings, environ_name
from brain.strict_json import InvalidJSON, decode
from brain.text import suggest

_TYPE_NAMES = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`str`": "text",
    "`array`": "a list such as a,b",
    "`object`": "a table such as name=a,other=b",
}
"""Type names for operators, by the names in msgspec's errors."""

log = logging.getLogger("brain")


@dataclass(frozen=True, slots=True)
class SpecialistSetting:
    """A setting of a specialist: key without `BRAIN_`, default and meaning, as Markdown."""

    key: str
    default: str
    meaning: str


def list_settings(specialist: Specialist[..., Any]) -> list[SpecialistSetting]:
    kind: Any = specialist.settings
    if not kind:
        return []
    hints = get_type_hints(kind, include_extras=True)
    settings = []
    for field in fields(kind):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        is_unset = default is MISSING or default is None or default in ("", (), [], {})
        descriptions = [meta.description for meta in get_args(hints[field.name])[1:] if isinstance(meta, msgspec.Meta)]
        key = environ_name(specialist.name, field.name).removeprefix(PREFIX)
        meaning = " ".join(text for text in descriptions if text)
        settings.append(SpecialistSetting(key, "–" if is_unset else f"`{default}`", meaning))
    return settings


def environment_variables(specialist: Specialist[..., Any]) -> set[str]:
    """Return the names of the environment variables that a specialist reads."""
    kind = specialist.settings
    return {environ_name(specialist.name, field.name) for field in fields(kind)} if is_dataclass(kind) else set()


def read_settings(specialist: Specialist[..., Any], settings: Settings) -> Any:
    """Return an instance of a specialist's settings class, or None without one.

    Raises:
        RegistrationError: The message has the setting, its value and the rule.
    """
    kind, name = specialist.settings, specialist.name
    if kind is None:
        return None
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise RegistrationError(f"specialist {name}: its settings must be a dataclass")
    options = settings.specialist_options(name)
    known = {field.name for field in fields(kind)}
    for unknown in sorted(set(settings.specialist_settings.get(name, ())) - known):
        log.warning("specialist %s has no setting %s.%s", name, unknown, suggest(unknown, known))
    hints = get_type_hints(kind)
    try:
        values = {key: _parse(value, hints[key]) for key, value in options.items() if key in known}
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        problem, _, path = str(error).partition(" - at `$.")
        key = path.partition(".")[0].partition("[")[0].removesuffix("`")
        if key not in options:
            raise RegistrationError(f"specialist {name}: settings: {error}") from None
        if problem.startswith("Invalid enum value"):
            rule = f"it must be one of {', '.join(map(str, get_args(hints.get(key))))}"
        elif problem.startswith("Expected "):
            types = problem.removeprefix("Expected ").partition(", got ")[0].split(" | ")
            rule = f"it must be {' or '.join(_TYPE_NAMES.get(kind, kind) for kind in types if kind != '`null`')}"
        else:
            rule = problem
        variable = environ_name(name, key)
        where = variable if variable in settings.specialist_environ else f"{key} in [specialists.{name}]"
        value = "(not shown)" if rule == "it must be text" else repr(options[key])  # a text may be an API key
        message = f"specialist {name}: {where}={value} is not allowed: {rule}"
        raise RegistrationError(message) from None


def _parse(value: Any, hint: Any) -> Any:
    """Parse a list or table of an environment variable: JSON, or `a,b` and `name=a,other=b`."""
    kind = get_origin(hint) or hint
    if not isinstance(value, str) or kind not in (list, tuple, dict, frozenset, set, Mapping, Sequence):
        return value
    if value.lstrip().startswith(("[", "{")):
        with suppress(InvalidJSON):
            return decode(value)
        return value
    items = [item.strip() for item in value.split(",") if item.strip()]
    if kind not in (dict, Mapping):
        return items
    return {name.strip(): text.strip() for name, _, text in (item.partition("=") for item in items)}
