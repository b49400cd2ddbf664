"""Core: the JSON Schema of a specialist's parameters, and what is wrong with parameters measured against it.

msgspec derives the schema from a function's annotations and converts checked values into the annotated types: it is
the library of the hot path anyway and weighs nothing more. jsonschema does the checking, because it names every problem
and not just the first, and because tools that bring a schema of their own (MCP) are then checked by the same code.
"""

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry

from brain.errors import RegistrationError

Schema = Mapping[str, Any]
PROBLEMS_NAMED = 12
_PROBLEM_LENGTH = 160


class Injected(msgspec.Struct, frozen=True):
    """A keyword-only parameter, filled by type and never by the model; `optional` when it has a default."""

    types: tuple[type, ...]
    optional: bool


class Signature(msgspec.Struct, frozen=True):
    """What a function takes: `struct` holds its parameters for the model, `injected` the rest."""

    struct: type[msgspec.Struct]
    schema: Schema
    injected: Mapping[str, Injected]


def signature_of(function: Callable[..., Any]) -> Signature:
    """Reads a function's parameters.

    Raises:
        RegistrationError: for a parameter without annotation, of a type that JSON has no word for, or `*args`.
    """
    hints = _hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in _parameters(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RegistrationError(f"parameter {parameter} cannot be described to a model; name each parameter")
        if parameter.kind is parameter.KEYWORD_ONLY:
            continue
        if parameter.name not in hints:
            raise RegistrationError(f"parameter {parameter.name} has no annotation")
        kind = hints[parameter.name]
        fields.append(
            (parameter.name, kind)
            if parameter.default is parameter.empty
            else (parameter.name, kind, parameter.default)
        )
    try:
        struct = msgspec.defstruct("Parameters", fields, kw_only=True, forbid_unknown_fields=True)
        (top,), components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"its parameters cannot be described in JSON Schema: {error}") from error
    schema = dict(components.pop(top["$ref"].rpartition("/")[2]))
    schema.pop("title", None)
    if components:
        schema["$defs"] = components
    return Signature(struct, schema, injected_of(function))


def injected_of(function: Callable[..., Any]) -> Mapping[str, Injected]:
    """The keyword-only parameters of a function, with the types that may fill them."""
    hints = _hints(function)
    found = {}
    for parameter in _parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY:
            hint = hints.get(parameter.name, object)
            options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            types = tuple(get_origin(option) or option for option in options if option is not type(None))
            optional = parameter.default is not parameter.empty
            found[parameter.name] = Injected(tuple(t for t in types if isinstance(t, type)), optional)
    return found


def validator_of(schema: Schema) -> Draft202012Validator:
    """A checker for one schema that never looks anything up elsewhere.

    Raises:
        RegistrationError: when the schema is not valid, not of an object, or refers to another document.
    """
    if schema.get("type") != "object":
        raise RegistrationError('its parameters must be a JSON Schema of type "object"')
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RegistrationError(f"its parameters are no valid JSON Schema: {error.message}") from error
    if any(not reference.startswith("#") for reference in _references(schema)):
        raise RegistrationError("its parameters refer to another document")
    return Draft202012Validator(schema, registry=Registry())


def problems(validator: Draft202012Validator, params: Mapping[str, Any]) -> list[str]:
    """Every problem of `params`, each in a few words that name the parameter; empty when there is none."""
    errors = sorted(validator.iter_errors(params), key=lambda error: error.json_path)
    named = [_sentence(error) for error in errors[:PROBLEMS_NAMED]]
    return named if len(errors) <= PROBLEMS_NAMED else [*named, f"and {len(errors) - PROBLEMS_NAMED} more"]


def _sentence(error: ValidationError) -> str:
    error = best_match([error]) or error  # of alternatives, the one that was nearly met
    path = error.json_path.removeprefix("$").removeprefix(".")
    sentence = f"{path}: {error.message}" if path else error.message
    return sentence if len(sentence) <= _PROBLEM_LENGTH else sentence[: _PROBLEM_LENGTH - 1] + "…"


def _references(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return here + [found for value in schema.values() for found in _references(value)]
    return [found for item in schema for found in _references(item)] if isinstance(schema, list) else []


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise RegistrationError(f"an annotation cannot be read: {error}") from error
