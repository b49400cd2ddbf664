"""The JSON Schema of a specialist's parameters, and what is wrong with parameters measured against it.

msgspec derives the schema from a function's annotations and converts checked values into the annotated types: it is
the library of the hot path anyway and weighs nothing more. jsonschema does the checking, because it names every problem
and not just the first, and because tools that bring a schema of their own (MCP) are then checked by the same code.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from brain.errors import RegistrationError

Schema = Mapping[str, Any]
PROBLEMS_NAMED = 12
_PROBLEM_LENGTH = 240
_VALUE_LENGTH = 40


class Injected(msgspec.Struct, frozen=True):
    """A keyword-only parameter, filled by type and never by the model; `optional` when it has a default."""

    types: tuple[type, ...]
    optional: bool


class Signature(msgspec.Struct, frozen=True):
    """What a function takes: `struct` holds its parameters for the model, `injected` the rest."""

    struct: type[msgspec.Struct]
    schema: Schema
    injected: Mapping[str, Injected]


def signature_of(function: Callable[..., Any], given: tuple[type, ...] = ()) -> Signature:
    """Reads a function's parameters.

    Args:
        given: types that no model can give, so that their parameters must be keyword-only.

    Raises:
        RegistrationError: for a parameter without annotation, of a type that JSON has no word for, or without a name.
    """
    hints = _hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in _parameters(function):
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(f"parameter {parameter.name} cannot be given by name; drop the / behind it")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(f"parameter {parameter} cannot be described to a model; name each parameter")
        if parameter.kind is parameter.KEYWORD_ONLY:
            continue
        if parameter.name not in hints:
            raise RegistrationError(f"parameter {parameter.name} has no annotation")
        kind = hints[parameter.name]
        for option in get_args(kind) or (kind,):
            if option in given:
                raise RegistrationError(
                    f"parameter {parameter.name} is none of the model's; "
                    f"make it keyword-only (*, {parameter.name}: {option.__name__})"
                )
        fields.append(
            (parameter.name, kind)
            if parameter.default is parameter.empty
            else (parameter.name, kind, parameter.default)
        )
    try:
        struct = msgspec.defstruct("Parameters", fields, kw_only=True, forbid_unknown_fields=True)
        (top,), components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise RegistrationError(f"its parameters cannot be described in JSON Schema: {reason}") from error
    schema = dict(components.pop(top["$ref"].rpartition("/")[2]))
    schema.pop("title", None)
    for name, described in schema["properties"].items():
        _restore_order(described, _literals(hints.get(name)))
    if components:
        schema["$defs"] = components
    return Signature(struct, schema, find_injected(function))


def _literals(hint: Any) -> list[Any]:
    """The values of the Literals in an annotation, as they stand there; msgspec sorts them."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for inner in get_args(hint) for value in _literals(inner)]


def _restore_order(described: Any, order: list[Any]) -> None:
    if isinstance(described, list):
        for item in described:
            _restore_order(item, order)
    elif isinstance(described, dict):
        if order and isinstance(described.get("enum"), list):
            described["enum"].sort(key=lambda value: order.index(value) if value in order else len(order))
        for key in ("items", "anyOf", "additionalProperties", "prefixItems"):
            _restore_order(described.get(key), order)


def find_injected(function: Callable[..., Any]) -> Mapping[str, Injected]:
    """The keyword-only parameters of a function, with the types that may fill them."""
    hints = _hints(function, include_extras=False)
    found = {}
    for parameter in _parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY:
            hint = hints.get(parameter.name, object)
            options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            types = tuple(get_origin(option) or option for option in options if option is not type(None))
            optional = parameter.default is not parameter.empty
            found[parameter.name] = Injected(tuple(t for t in types if isinstance(t, type)), optional)
    return found


def inject(injected: Mapping[str, Injected], provided: Mapping[type, Any]) -> dict[str, Any]:
    """Keyword-only parameters with their values; one that nothing provides keeps its default."""
    found = {}
    for name, wanted in injected.items():
        kind = next((kind for kind in wanted.types if kind in provided), None)
        if kind is not None:
            found[name] = provided[kind]
    return found


def find_uninjectable(injected: Mapping[str, Injected], kinds: Collection[type]) -> str | None:
    """The first parameter that nothing provides, with what it wants."""
    for name, wanted in injected.items():
        if not wanted.optional and not any(kind in kinds for kind in wanted.types):
            return f"{name} ({' or '.join(kind.__name__ for kind in wanted.types) or 'no type'})"
    return None


def validator_of(schema: Schema) -> Draft202012Validator:
    """A checker for one schema that never looks anything up elsewhere.

    Raises:
        RegistrationError: when the schema is not valid, not of an object, or refers to another document.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise RegistrationError('its parameters must be a JSON Schema of type "object"')
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RegistrationError(f"its parameters are no valid JSON Schema: {error.message}") from error
    _check_references(schema)
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        list(validator.iter_errors({}))
    except RecursionError:
        raise RegistrationError("its parameters are described by themselves") from None
    return validator


def _check_references(schema: Schema) -> None:
    resolver = Registry().resolver_with_root(Resource.from_contents(schema, default_specification=DRAFT202012))
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise RegistrationError("its parameters refer to another document")
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError):  # a step into an array that is no number
            raise RegistrationError(f"its parameters refer to {reference}, which is not there") from None


def problems(validator: Draft202012Validator, params: Mapping[str, Any]) -> list[str]:
    """Every problem of `params`, each in a few words that name the parameter; empty when there is none."""
    try:
        errors = sorted(validator.iter_errors(params), key=lambda error: error.json_path)
    except OverflowError:
        return ["a number is too large to be checked"]
    named = [_sentence(error) for error in errors[:PROBLEMS_NAMED]]
    return named if len(errors) <= PROBLEMS_NAMED else [*named, f"and {len(errors) - PROBLEMS_NAMED} more"]


def _sentence(error: ValidationError) -> str:
    error = best_match([error]) or error  # of alternatives, the one that was nearly met
    path = error.json_path.removeprefix("$").removeprefix(".")
    message = _shortened(error)
    sentence = f"{path}: {message}" if path else message
    return sentence if len(sentence) <= _PROBLEM_LENGTH else sentence[: _PROBLEM_LENGTH - 1] + "…"


def _shortened(error: ValidationError) -> str:
    """What is wrong, with no more of a long value than tells which it is."""
    value = repr(error.instance)
    short = value if len(value) <= _VALUE_LENGTH else value[: _VALUE_LENGTH - 1] + "…"
    context = error.context or ()
    kinds = [str(one.validator_value) for one in context if one.validator == "type"]
    if kinds and len(kinds) == len(context):
        return f"{short} is not of type {' or '.join(kinds)}"
    choices = [choice for one in context if one.validator == "enum" for choice in one.validator_value]
    if choices and {one.validator for one in context} <= {"enum", "type"}:
        others = [f" or of type {kind}" for kind in kinds if kind != "null"]
        return f"{short} is not one of {choices}{''.join(others)}"
    if error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
        known = ", ".join(error.schema.get("properties", ()))
        return f"{error.message}, only {known}" if known else str(error.message)
    return str(error.message).replace(value, short, 1)


def _references(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return here + [found for value in schema.values() for found in _references(value)]
    return [found for item in schema for found in _references(item)] if isinstance(schema, list) else []


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"it is no function whose parameters can be read: {error}") from error


def _hints(function: Callable[..., Any], *, include_extras: bool = True) -> Mapping[str, Any]:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=include_extras)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise RegistrationError(f"an annotation cannot be read: {error}") from error
