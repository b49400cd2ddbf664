"""What a specialist is. The decorator makes one of a function, `from_schema` of a tool that brings a schema."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec
from jsonschema import Draft202012Validator

from brain.errors import RegistrationError
from brain.plugins.context import Context, Result
from brain.plugins.schema import Injected, Schema, find_injected, signature_of, validator_of
from brain.settings.parsers import SPECIALIST_NAME

P = ParamSpec("P")
R = TypeVar("R")

Preview = Callable[..., "Awaitable[str | Result | None] | str | Result | None"]
Approval = Literal["never", "always"] | Callable[[Mapping[str, Any]], bool]


class Options(TypedDict, total=False):
    """What can be said of a specialist besides its function.

    timeout: seconds for a whole call (else CALL_SECONDS). idle_timeout: seconds without progress.
    requires_user: only for signed-in users. approval: `never`, `always`, or a function of the parameters.
    preview: a function of the parameters that says in a few lines what the call would do, for the person who is to
    approve it: a text, or a `Result`, which the call then has as `Context.approved`. `Refused` ends the call unasked.
    read_only: changes nothing anywhere, or a function of the parameters that says whether it does.
    outside: whether its results may hold the words of strangers (pages, files), as is assumed; behind them, a call that
    changes something and has an approval function is asked for.
    sends: whether its parameters, or those of these names, go to other hosts (addresses, search words). Once a turn
    holds private data and text from outside, a call that sends what neither the user wrote nor a result showed needs
    approval.
    private: whether its results hold the user's own data; if left out, those of one that requires a user.
    cache_seconds: how long an answer may be given again (read-only ones).
    activates_on: kinds of attachment (`image`, `pdf`, `text`) for which it runs before the model.
    tags, examples (questions it answers), version: for people and for routing. settings: a dataclass.
    needs: the extra of its package that it needs, or a function that says what is missing.
    health: a function that raises or returns what is wrong. lifespan: a context manager around the server's life.
    forget: a function of a user and the id of a conversation, or None: drops what the specialist keeps of that, or all.
    Keyword-only parameters of these four are filled by type as well: with the settings, and for health a `Context`;
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
    examples: Sequence[str]
    version: str
    settings: type
    needs: str | Callable[..., str | None]
    health: Callable[..., Awaitable[str | None] | str | None]
    lifespan: Callable[..., AbstractAsyncContextManager[Any]]
    forget: Callable[..., Awaitable[None] | None]


class FunctionOptions(Options, total=False):
    """The same for a function, whose own name is the default."""

    name: str


@dataclass(frozen=True, eq=False)
class Specialist(Generic[P, R]):
    """One specialist, ready to be registered. Calling it calls its function, for tests and for programs."""

    function: Callable[P, R]
    name: str
    description: str
    parameters: Schema
    injected: Mapping[str, Injected]
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
    version: str = ""
    settings: type | None = None
    needs: str | Callable[..., str | None] | None = None
    health: Callable[..., Awaitable[str | None] | str | None] | None = None
    lifespan: Callable[..., AbstractAsyncContextManager[Any]] | None = None
    forget: Callable[..., Awaitable[None] | None] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def needs_approval(self, params: Mapping[str, Any]) -> bool:
        """Whether a person must agree to a call with these parameters."""
        return bool(self.approval(params)) if callable(self.approval) else self.approval == "always"

    def sent_params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of the parameters goes to other hosts."""
        if isinstance(self.sends, bool):
            return params if self.sends else {}
        return {name: value for name, value in params.items() if name in self.sends}

    @property
    def is_private(self) -> bool:
        """Whether its results hold the user's own data."""
        return self.requires_user if self.private is None else self.private

    def reads_only(self, params: Mapping[str, Any]) -> bool:
        """Whether a call with these parameters changes nothing anywhere."""
        return self.read_only(params) is True if callable(self.read_only) else self.read_only


@overload
def specialist(function: Callable[P, R], /) -> Specialist[P, R]: ...
@overload
def specialist(**options: Unpack[FunctionOptions]) -> Callable[[Callable[P, R]], Specialist[P, R]]: ...
def specialist(function: Callable[..., Any] | None = None, /, **options: Unpack[FunctionOptions]) -> Any:
    """Makes a specialist of a function.

    Its name, docstring (the first paragraph) and annotations become name, description and JSON Schema. Keyword-only
    parameters are filled by type: `Context`, and what the app provides. A coroutine function, an async generator of
    `Progress` and a last result, a plain function or a plain generator (both run in a thread) will do.

    Raises:
        RegistrationError: naming the function and what is wrong with it.
    """
    if function is None:
        return lambda decorated: specialist_of(decorated, options)
    return specialist_of(function, options)


def specialist_of(function: Callable[P, R], options: FunctionOptions) -> Specialist[P, R]:
    """What the decorator does."""
    name = options.get("name", getattr(function, "__name__", ""))
    description = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    try:
        signature = signature_of(function, (Context,))
        if not description:
            raise RegistrationError("it has no docstring, so no model would know what it is for")  # noqa: TRY301
        rest: Any = {key: value for key, value in options.items() if key != "name"}
        return _made(function, name, description, signature.schema, signature.injected, signature.struct, rest)
    except RegistrationError as error:
        raise RegistrationError(f"specialist {name}: {error}") from error


def from_schema(
    name: str, description: str, parameters: Schema, handler: Callable[..., Any], options: Options
) -> Specialist[..., Any]:
    """A specialist of a tool that brings its schema; `handler` takes the parameters as one mapping.

    Raises:
        RegistrationError: naming it and what is wrong with it.
    """
    try:
        if not description:
            raise RegistrationError("its description is empty")  # noqa: TRY301
        _check_takes(handler, ({},), "its handler must take the parameters as one mapping")
        return _made(handler, name, description, parameters, find_injected(handler), None, options)
    except RegistrationError as error:
        raise RegistrationError(f"specialist {name}: {error}") from error


def _check_takes(function: Callable[..., Any], given: tuple[Any, ...], otherwise: str) -> None:
    """Whether a function takes these, besides what is injected."""
    injected = find_injected(function)
    try:
        inspect.signature(function).bind(*given, **dict.fromkeys(injected))
    except TypeError as error:
        raise RegistrationError(otherwise) from error


def _made(
    function: Callable[P, R],
    name: str,
    description: str,
    parameters: Schema,
    injected: Mapping[str, Injected],
    struct: type[msgspec.Struct] | None,
    options: Options,
) -> Specialist[P, R]:
    if not isinstance(name, str) or not SPECIALIST_NAME.fullmatch(name):
        raise RegistrationError("its name must be a letter, then letters, digits, _ or -, at most 64")
    rest: dict[str, Any] = dict(options)
    _check(rest)
    rest |= {key: kind(rest[key]) for key, kind in _LISTS.items() if key in rest}
    if not isinstance(rest.get("sends", False), bool):
        rest["sends"] = frozenset(rest["sends"])
    return Specialist(
        function, name, " ".join(description.split()), parameters, injected, validator_of(parameters), struct, **rest
    )


def _check(options: Mapping[str, Any]) -> None:
    """Whether the options say what they may, each by itself and together."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise RegistrationError(f"unknown option {', '.join(sorted(unknown))}")
    for keys, fits, must in _RULES:
        for key in keys:
            if key in options and not fits(options[key]):
                raise RegistrationError(f"{key} must be {must}")
    if options.get("cache_seconds") and options.get("read_only") is not True:
        raise RegistrationError("only a read_only specialist may have cache_seconds")
    if "preview" in options:
        if options.get("approval", "never") == "never":
            raise RegistrationError("preview is for calls that a person approves; give approval too")
        _check_takes(options["preview"], ({},), "preview must take the parameters as one mapping")
    if "forget" in options:
        _check_takes(options["forget"], ("", None), "forget must take a user and the id of a conversation")


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return not isinstance(value, str) and all(isinstance(item, str) for item in value)


_LISTS = {"activates_on": frozenset, "tags": tuple, "examples": tuple}
_RULES: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (("timeout", "idle_timeout", "cache_seconds"), _is_seconds, "a number of seconds above 0"),
    (("requires_user", "outside", "private"), _is_flag, "True or False"),
    (("sends",), lambda value: _is_flag(value) or _are_texts(value), "True, False, or the names of parameters"),
    (("read_only",), lambda value: _is_flag(value) or callable(value), "True, False, or a function of the parameters"),
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
    (tuple(_LISTS), _are_texts, "a list of texts"),
    (("health", "lifespan"), callable, "a function"),
)
"""What a value of these must be, and how that is said."""
