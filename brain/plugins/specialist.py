"""What a specialist is: `specialist` makes one of a function, `from_schema` of a tool that brings a schema."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec
from jsonschema import Draft202012Validator

from brain.errors import RegistrationError
from brain.plugins.context import Context, Result
from brain.plugins.schema import (
    InjectedParameter,
    Schema,
    build_validator,
    find_injected,
    find_problems,
    read_signature,
)
from brain.settings.parsers import SPECIALIST_NAME

P = ParamSpec("P")
R = TypeVar("R")

Preview = Callable[..., "Awaitable[str | Result | None] | str | Result | None"]
Approval = Literal["never", "always"] | Callable[[Mapping[str, Any]], bool]


class Options(TypedDict, total=False):
    """The options of a specialist.

    timeout: seconds for a whole call (else CALL_SECONDS). idle_timeout: seconds without progress.
    requires_user: only for signed-in users. approval: `never`, `always`, or a function of the parameters.
    preview: a function of the parameters that returns in a few lines what the call would do, for the person who
    approves it: a text, or a `Result`, which the call then has as `Context.approved`. `Refused` ends the call.
    read_only: whether it changes nothing anywhere, or a function of the parameters that returns this.
    outside: whether its results may hold text of others (pages, files), which is assumed. After such a result, a call
    that changes something and has an approval function needs approval.
    sends: whether its parameters, or those with these names, go to other hosts. Once a turn holds private data and text
    from outside, a call that sends what neither the user wrote nor a result showed needs approval.
    private: whether its results hold the user's own data; by default, if it requires a user.
    cache_seconds: how long a result may be reused (read-only specialists).
    activates_on: kinds of attachment (`image`, `pdf`, `text`) for which it runs before the model.
    examples: questions that it answers, alone or as pairs with the parameters of a fitting call. The prompt shows the
    first pair's parameters, and the demo model finds specialists and parameters by them.
    tags, version: for people. settings: a dataclass.
    needs: the extra of its package that it needs, or a function that returns what is missing.
    health: a function that raises or returns what is wrong. lifespan: a context manager around the server's life.
    forget: a function of a user and a conversation's id or None, which deletes what the specialist stores of them.
    Keyword-only parameters of these four are injected by type, too: the settings, and for health a `Context`;
    those of preview like the specialist's own.
    """

    timeout: float
    idle_timeout: float
    requires_user: bool
    approval: Approval
    preview: Preview
    read_only: bool | Callable[[Mapping[str, Any]], bool]
    outside: bool
    sends: bool | Sequence[str]
    private: bool
    cache_seconds: float
    activates_on: Sequence[str]
    tags: Sequence[str]
    examples: Sequence[str | tuple[str, Mapping[str, Any]]]
    version: str
    settings: type
    needs: str | Callable[..., str | None]
    health: Callable[..., Awaitable[str | None] | str | None]
    lifespan: Callable[..., AbstractAsyncContextManager[Any]]
    forget: Callable[..., Awaitable[None] | None]


class FunctionOptions(Options, total=False):
    """The options of a function; `name` is the function's own by default."""

    name: str


@dataclass(frozen=True, eq=False)
class Specialist(Generic[P, R]):
    """One specialist, ready to be registered. Calling it calls its function, for tests and for programs."""

    function: Callable[P, R]
    name: str
    description: str
    parameters: Schema
    injected: Mapping[str, InjectedParameter]
    validator: Draft202012Validator = field(repr=False)
    struct: type[msgspec.Struct] | None = field(repr=False)
    timeout: float | None = None
    idle_timeout: float | None = None
    requires_user: bool = False
    approval: Approval = "never"
    preview: Preview | None = None
    read_only: bool | Callable[[Mapping[str, Any]], bool] = False
    outside: bool = True
    sends: bool | frozenset[str] = False
    private: bool | None = None
    cache_seconds: float = 0.0
    activates_on: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    example_params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    version: str = ""
    settings: type | None = None
    needs: str | Callable[..., str | None] | None = None
    health: Callable[..., Awaitable[str | None] | str | None] | None = None
    lifespan: Callable[..., AbstractAsyncContextManager[Any]] | None = None
    forget: Callable[..., Awaitable[None] | None] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def needs_approval(self, params: Mapping[str, Any]) -> bool:
        """Whether a person must approve a call with these parameters."""
        return bool(self.approval(params)) if callable(self.approval) else self.approval == "always"

    def reads_only(self, params: Mapping[str, Any]) -> bool:
        """Whether a call with these parameters changes nothing anywhere."""
        return self.read_only(params) is True if callable(self.read_only) else self.read_only

    def sent_params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return those of the parameters that go to other hosts."""
        if isinstance(self.sends, bool):
            return params if self.sends else {}
        return {name: value for name, value in params.items() if name in self.sends}

    @property
    def is_private(self) -> bool:
        """Whether its results hold the user's own data."""
        return self.requires_user if self.private is None else self.private


@overload
def specialist(function: Callable[P, R], /) -> Specialist[P, R]: ...
@overload
def specialist(**options: Unpack[FunctionOptions]) -> Callable[[Callable[P, R]], Specialist[P, R]]: ...
def specialist(function: Callable[..., Any] | None = None, /, **options: Unpack[FunctionOptions]) -> Any:
    """Make a specialist of a function.

    Its name, the first paragraph of its docstring and its annotations become name, description and JSON Schema.
    Keyword-only parameters are injected by type: `Context`, and what the program provides. The function may be a
    coroutine function, an async generator of `Progress` and a last result, a plain function or a plain generator; the
    last two run in a thread.

    Raises:
        RegistrationError: naming the function and what is wrong with it.
    """

    def decorate(function: Callable[..., Any]) -> Specialist[..., Any]:
        name = options.get("name", getattr(function, "__name__", ""))
        description = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        others: Any = {key: value for key, value in options.items() if key != "name"}
        try:
            signature = read_signature(function, (Context,))
            if not description:
                raise RegistrationError("it has no docstring, so no model would know what it is for")  # noqa: TRY301
            return _build(
                function, name, description, signature.schema, signature.injected, others, struct=signature.struct
            )
        except RegistrationError as error:
            raise RegistrationError(f"specialist {name}: {error}") from error

    return decorate if function is None else decorate(function)


def from_schema(
    name: str, description: str, parameters: Schema, handler: Callable[..., Any], options: Options
) -> Specialist[..., Any]:
    """Make a specialist of a tool that brings its schema; `handler` takes the parameters as one mapping.

    Raises:
        RegistrationError: naming it and what is wrong with it.
    """
    try:
        if not description:
            raise RegistrationError("its description is empty")  # noqa: TRY301
        _check_accepts(handler, ({},), "its handler must take the parameters as one mapping")
        return _build(handler, name, description, parameters, find_injected(handler), options)
    except RegistrationError as error:
        raise RegistrationError(f"specialist {name}: {error}") from error


def _check_accepts(function: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    """Raise an error with the message unless the function takes these, besides what is injected."""
    injected = find_injected(function)
    try:
        inspect.signature(function).bind(*args, **dict.fromkeys(injected))
    except TypeError as error:
        raise RegistrationError(message) from error


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list_of_str(value: Any) -> bool:
    return not isinstance(value, str) and all(isinstance(item, str) for item in value)


def _is_list_of_examples(value: Any) -> bool:
    pairs = [item for item in value if not isinstance(item, str)]
    return not isinstance(value, str) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Mapping)
        for pair in pairs
    )


_SEQUENCES: Mapping[str, Callable[[Any], Any]] = {"activates_on": frozenset, "tags": tuple}
_RULES: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (
        ("timeout", "idle_timeout", "cache_seconds"),
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0,
        "a number of seconds above 0",
    ),
    (("requires_user", "outside", "private"), _is_bool, "True or False"),
    (("sends",), lambda value: _is_bool(value) or _is_list_of_str(value), "True, False, or the names of parameters"),
    (("read_only",), lambda value: _is_bool(value) or callable(value), "True, False, or a function of the parameters"),
    (
        ("approval",),
        lambda value: value in ("never", "always") or callable(value),
        "never, always, or a function of the parameters",
    ),
    (
        ("approval", "read_only"),
        lambda value: not inspect.iscoroutinefunction(value),
        "a plain function, which is not waited for",
    ),
    (tuple(_SEQUENCES), _is_list_of_str, "a list of texts"),
    (("examples",), _is_list_of_examples, "a list of questions, or of pairs of a question and its parameters"),
    (("health", "lifespan"), callable, "a function"),
)
"""Options, a check of their values, and what they must be."""


def _build(
    function: Callable[P, R],
    name: str,
    description: str,
    parameters: Schema,
    injected: Mapping[str, InjectedParameter],
    options: Options,
    struct: type[msgspec.Struct] | None = None,
) -> Specialist[P, R]:
    """Check name, options and schema, and make the specialist."""
    if not isinstance(name, str) or not SPECIALIST_NAME.fullmatch(name):
        raise RegistrationError("its name must be a letter, then letters, digits, _ or -, at most 64")
    values: dict[str, Any] = dict(options)
    if unknown := values.keys() - Options.__annotations__.keys():
        raise RegistrationError(f"unknown option {', '.join(sorted(unknown))}")
    for keys, is_valid, rule in _RULES:
        for key in keys:
            if key in values and not is_valid(values[key]):
                raise RegistrationError(f"{key} must be {rule}")
    if values.get("cache_seconds") and values.get("read_only") is not True:
        raise RegistrationError("only a read_only specialist may have cache_seconds")
    if "preview" in values:
        if values.get("approval", "never") == "never":
            raise RegistrationError("preview is for calls that a person approves; give approval too")
        _check_accepts(values["preview"], ({},), "preview must take the parameters as one mapping")
    if "forget" in values:
        _check_accepts(values["forget"], ("", None), "forget must take a user and the id of a conversation")
    values |= {key: convert(values[key]) for key, convert in _SEQUENCES.items() if key in values}
    if not isinstance(values.get("sends", False), bool):
        values["sends"] = frozenset(values["sends"])
    validator = build_validator(parameters)
    pairs = [(one, None) if isinstance(one, str) else one for one in values.get("examples", ())]
    values["examples"] = tuple(question for question, _ in pairs)
    values["example_params"] = {question: params for question, params in pairs if params is not None}
    for question, params in values["example_params"].items():
        if problems := find_problems(validator, params):
            raise RegistrationError(f"the parameters of its example {question!r} do not fit: {'; '.join(problems)}")
    return Specialist(function, name, " ".join(description.split()), parameters, injected, validator, struct, **values)
