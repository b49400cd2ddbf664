"""JSON Schema of a specialist's parameters, validation of given parameters, and injection by type.

msgspec derives the schema from a function's annotations and converts checked values to the annotated types. jsonschema
checks the values: it reports every problem and not only the first, and it also supports schemas of other tools.
"""

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from brain.errors import RegistrationError
from brain.text import shorten

if TYPE_CHECKING:  # functions import jsonschema: commands without specialist calls do not need it
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

Schema = Mapping[str, Any]
MAX_PROBLEMS = 12
_MAX_PROBLEM = 240
_MAX_VALUE = 40


class InjectedParameter(msgspec.Struct, frozen=True):
    """A keyword-only parameter, which Brain injects by type. `optional` means that it has a default."""

    types: tuple[type, ...]
    optional: bool


class Signature(msgspec.Struct, frozen=True):
    """The signature of a function: `schema` and perhaps `struct` for the model's parameters, and the injected ones."""

    schema: Schema
    injected: Mapping[str, InjectedParameter]
    struct: type[msgspec.Struct] | None = None


def read_signature(function: Callable[..., Any], injected_types: tuple[type, ...] = ()) -> Signature:
    """Read a function's parameters.

    Args:
        injected_types: Types that only Brain can provide. Their parameters must be keyword-only.
    """
    hints = _read_hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in _read_parameters(function):
        name = parameter.name
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(f"parameter {name} is positional-only; remove the / after it")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(f"parameter {parameter} has no fixed name; name each parameter")
        if parameter.kind is parameter.KEYWORD_ONLY:
            continue
        if name not in hints:
            raise RegistrationError(f"parameter {name} has no type annotation")
        for option in get_args(hints[name]) or (hints[name],):
            if option in injected_types:
                raise RegistrationError(
                    f"parameter {name} is injected by Brain; make it keyword-only (*, {name}: {option.__name__})"
                )
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((name, hints[name], *default))
    try:
        struct = msgspec.defstruct("Parameters", fields, kw_only=True, forbid_unknown_fields=True)
        (top,), components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise RegistrationError(f"JSON Schema cannot express its parameters: {reason}") from error
    schema = dict(components.pop(top["$ref"].rpartition("/")[2]))
    schema.pop("title", None)
    for name, described in schema["properties"].items():
        _restore_order(described, _literal_values(hints.get(name)))
    if components:
        schema["$defs"] = components
    return Signature(schema, find_injected(function), struct)


def _literal_values(hint: Any) -> list[Any]:
    """Return the values of the Literals in an annotation in their order, because msgspec sorts them."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for inner in get_args(hint) for value in _literal_values(inner)]


def _restore_order(described: Any, order: list[Any]) -> None:
    if isinstance(described, list):
        for item in described:
            _restore_order(item, order)
    elif isinstance(described, dict):
        if order and isinstance(described.get("enum"), list):
            described["enum"].sort(key=lambda value: order.index(value) if value in order else len(order))
        for key in ("items", "anyOf", "additionalProperties", "prefixItems"):
            _restore_order(described.get(key), order)


def find_injected(function: Callable[..., Any]) -> Mapping[str, InjectedParameter]:
    """Return the keyword-only parameters of a function with their types."""
    hints = _read_hints(function, include_extras=False)
    injected = {}
    for parameter in _read_parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY:
            hint = hints.get(parameter.name, object)
            options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            types = tuple(get_origin(option) or option for option in options if option is not type(None))
            optional = parameter.default is not parameter.empty
            injected[parameter.name] = InjectedParameter(tuple(t for t in types if isinstance(t, type)), optional)
    return injected


def inject(injected: Mapping[str, InjectedParameter], dependencies: Mapping[type, Any]) -> dict[str, Any]:
    """Return the values of keyword-only parameters. A parameter without a matching dependency keeps its default."""
    values = {}
    for name, parameter in injected.items():
        kind = next((kind for kind in parameter.types if kind in dependencies), None)
        if kind is not None:
            values[name] = dependencies[kind]
    return values


def find_uninjectable(injected: Mapping[str, InjectedParameter], kinds: Collection[type]) -> str | None:
    """Return the first required parameter without a dependency, with its types, or None."""
    for name, parameter in injected.items():
        if not parameter.optional and not any(kind in kinds for kind in parameter.types):
            return f"{name} ({' or '.join(kind.__name__ for kind in parameter.types) or 'no type'})"
    return None


def build_validator(schema: Schema) -> "Draft202012Validator":
    """Return a validator for a valid schema. It never fetches another document."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return Draft202012Validator(schema, registry=Registry())


def check_schema(schema: Schema) -> None:
    """Check the schema of parameters. It takes up to 20 ms."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise RegistrationError('its parameters must be a JSON Schema of type "object"')
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RegistrationError(f"its parameters are not a valid JSON Schema: {error.message}") from error
    resolver = Registry().resolver_with_root(Resource.from_contents(schema, default_specification=DRAFT202012))
    for reference in _find_references(schema):
        if not reference.startswith("#"):
            raise RegistrationError("its parameters refer to another document")
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError):  # ValueError: a step into an array that is not a number
            raise RegistrationError(f"its parameters refer to {reference}, which does not exist") from None
    try:
        list(build_validator(schema).iter_errors({}))
    except RecursionError:
        raise RegistrationError("its parameters refer to themselves without end") from None


def resolve(schema: Any, root: Schema) -> Schema:
    """Return a schema with what its local reference points to; empty for anything that is not a schema.

    What stands beside the reference wins. A reference in the target stays.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
        return schema if isinstance(schema, Mapping) else {}
    target: Any = root
    for step in schema["$ref"].removeprefix("#").split("/")[1:]:
        target = target.get(step) if isinstance(target, Mapping) else None
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**target, **beside} if isinstance(target, Mapping) else beside


def _find_references(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return here + [reference for value in schema.values() for reference in _find_references(value)]
    if isinstance(schema, list):
        return [reference for item in schema for reference in _find_references(item)]
    return []


def find_problems(validator: "Draft202012Validator", params: Mapping[str, Any]) -> list[str]:
    """Return every problem of `params`, each in a few words with the name of the parameter."""
    from jsonschema.exceptions import best_match

    try:
        errors = sorted(validator.iter_errors(params), key=lambda error: error.json_path)
    except OverflowError:
        return ["a number is too large to check"]
    problems = []
    for error in errors[:MAX_PROBLEMS]:
        closest = best_match([error]) or error  # among alternatives, the one that nearly matches
        problem = _describe(closest, closest.json_path.removeprefix("$").removeprefix("."))
        problems.append(shorten(problem, _MAX_PROBLEM))
    return problems if len(errors) <= MAX_PROBLEMS else [*problems, f"and {len(errors) - MAX_PROBLEMS} more"]


def _describe(error: "ValidationError", path: str) -> str:
    """Describe a problem of the value at a path, with only the start of a long value."""
    value, name, rule = _show(error.instance), path or "the value", error.validator_value
    context = error.context or ()
    kinds = [str(one.validator_value) for one in context if one.validator == "type"]
    choices = [choice for one in context if one.validator == "enum" for choice in one.validator_value]
    if error.validator == "enum":
        choices = list(rule)
    elif error.validator == "type":
        kinds = [rule] if isinstance(rule, str) else list(rule)
    elif error.validator == "required":
        missing = next((one for one in rule if error.message.startswith(f"{one!r} ")), "a parameter")
        return f"{path}.{missing} is missing" if path else f"{missing} is missing"
    elif error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
        known = error.schema.get("properties", {})
        unknown = ", ".join(_show(one) for one in error.instance if one not in known)
        return f"unknown parameter {unknown} (allowed: {', '.join(known) or 'none'})"
    elif error.validator in _LIMITS:
        return f"{name} {_LIMITS[error.validator].format(value=value, limit=rule)}"
    if choices and {one.validator for one in context} <= {"enum", "type"}:
        others = [f"any {kind}" for kind in kinds if kind != "null"]
        return f"{name} cannot be {value} (allowed: {', '.join([*map(_write, choices), *others])})"
    if kinds and len(kinds) >= len(context):
        return f"{name} cannot be {value} (expected {' or '.join(kinds)})"
    return f"{name}: {str(error.message).replace(repr(error.instance), value, 1)}"


_LIMITS = {
    "minimum": "cannot be {value} (the minimum is {limit})",
    "maximum": "cannot be {value} (the maximum is {limit})",
    "exclusiveMinimum": "cannot be {value} (it must be greater than {limit})",
    "exclusiveMaximum": "cannot be {value} (it must be less than {limit})",
    "minLength": "cannot be {value} (the minimum length is {limit})",
    "maxLength": "cannot be {value} (the maximum length is {limit})",
    "minItems": "has too few items (the minimum is {limit})",
    "maxItems": "has too many items (the maximum is {limit})",
    "pattern": "cannot be {value} (it must match {limit})",
}
"""Problems by the keyword of JSON Schema."""


def _show(value: Any) -> str:
    """Return the start of a value, with quotes around a text."""
    return shorten(f"'{value}'" if isinstance(value, str) else _write(value), _MAX_VALUE)


def _write(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _read_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"its parameters cannot be read: {error}") from error


def _read_hints(function: Callable[..., Any], *, include_extras: bool = True) -> Mapping[str, Any]:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=include_extras)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise RegistrationError(f"an annotation cannot be read: {error}") from error
