"""Creates specialists: `specialist` from a function, `from_schema` from a tool with a JSON Schema."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from brain.errors import RegistrationError
from brain.plugins.context import AssistContext, Context, Result
from brain.plugins.schema import (
    InjectedParameter,
    Schema,
    Signature,
    build_validator,
    check_schema,
    find_injected,
    find_problems,
    read_signature,
)
from brain.text import SPECIALIST_NAME, suggest

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

P = ParamSpec("P")
R = TypeVar("R")

Preview = Callable[..., "Awaitable[str | Result | None] | str | Result | None"]
ApprovalRule = Literal["never", "always"] | Callable[[Mapping[str, Any]], bool]
Assist = Callable[[str, AssistContext], Mapping[str, Any] | None]
Sends = Callable[[Mapping[str, Any], str], Mapping[str, Any]]


class Options(TypedDict, total=False):
    """The options of a specialist.

    Attributes:
        timeout: Time limit of a call, in seconds (default: `CALL_SECONDS`).
        idle_timeout: Longest time without progress, in seconds.
        requires_user: Whether only signed-in users may call it.
        approval: `never`, `always`, or a function of the parameters that returns whether a call needs approval.
        preview: A function of the parameters that returns a few lines about the effect of a call, for the person who
            approves it: text, or a `Result` that the call gets as `Context.approved`. `Refused` ends the call.
        read_only: Whether it changes nothing, or a function of the parameters that returns this.
        outside: Whether its results may contain untrusted content (default: True). After such a result, a call that
            changes something and has an approval function needs approval.
        sends: Whether its parameters go to other hosts, the names of the parameters that do, or a function of the
            parameters and the user's message that returns these parameters with their values. Values that the function
            takes from the message become parameters of the call. In a turn with private data and untrusted content,
            values of unknown source need approval. The `Context` of such a specialist has no memory, no tasks, and only
            a message that is sent; it has attachments only with `activates_on`.
        private: Whether its results contain private data of the user (default: `requires_user`).
        cache_seconds: Time for which a result may be reused. Requires `read_only=True`.
        activates_on: Kinds of attachments (`image`, `pdf`, `text`) that call it automatically before the model runs.
        tags: For people.
        examples: Questions that it answers, alone or as pairs with the parameters of a matching call. The prompt shows
            the parameters of the first pair. Assisted calls and the demo model use all of them.
        not_examples: Similar messages that do not need it, for assisted calls and the demo model.
        assist: A function of a message and an `AssistContext` that returns the parameters of an assisted call, or None
            for no call. `Refused` tells people how to do what assisted calls do not do.
        version: For people.
        settings: A dataclass.
        needs: The extra of its package that it requires, or a function that returns what is missing.
        health: A function that raises an exception or returns a problem.
        lifespan: A context manager around the life of the server.
        forget: A function of a user and a conversation ID or None, which deletes the stored data of these.

    Brain injects keyword-only parameters of `needs`, `health`, `lifespan` and `forget` by type: the settings, and for
    `health` a `Context`. `preview` gets the same parameters as the specialist.
    """

    timeout: float
    idle_timeout: float
    requires_user: bool
    approval: ApprovalRule
    preview: Preview
    read_only: bool | Callable[[Mapping[str, Any]], bool]
    outside: bool
    sends: bool | Sequence[str] | Sends
    private: bool
    cache_seconds: float
    activates_on: Sequence[str]
    tags: Sequence[str]
    examples: Sequence[str | tuple[str, Mapping[str, Any]]]
    not_examples: Sequence[str]
    assist: Assist
    version: str
    settings: type
    needs: str | Callable[..., str | None]
    health: Callable[..., Awaitable[str | None] | str | None]
    lifespan: Callable[..., AbstractAsyncContextManager[Any]]
    forget: Callable[..., Awaitable[None] | None]


class FunctionOptions(Options, total=False):
    """The options of a decorated function; `name` is the function's name by default."""

    name: str


@dataclass(frozen=True, eq=False)
class Specialist(Generic[P, R]):
    """A specialist, ready to register. Calling it calls its function, for tests and programs."""

    function: Callable[P, R]
    name: str
    description: str
    parameters: Schema
    injected: Mapping[str, InjectedParameter]
    struct: type[msgspec.Struct] | None = field(repr=False)
    timeout: float | None = None
    idle_timeout: float | None = None
    requires_user: bool = False
    approval: ApprovalRule = "never"
    preview: Preview | None = None
    read_only: bool | Callable[[Mapping[str, Any]], bool] = False
    outside: bool = True
    sends: bool | frozenset[str] | Sends = False
    private: bool = False
    cache_seconds: float = 0.0
    activates_on: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    example_params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_examples: tuple[str, ...] = ()
    assist: Assist | None = None
    version: str = ""
    settings: type | None = None
    needs: str | Callable[..., str | None] | None = None
    health: Callable[..., Awaitable[str | None] | str | None] | None = None
    lifespan: Callable[..., AbstractAsyncContextManager[Any]] | None = None
    forget: Callable[..., Awaitable[None] | None] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @cached_property
    def validator(self) -> "Draft202012Validator":
        """Checks parameters by the schema."""
        return build_validator(self.parameters)

    def needs_approval(self, params: Mapping[str, Any]) -> bool:
        """Whether a person must approve a call with these parameters."""
        return bool(self.approval(params)) if callable(self.approval) else self.approval == "always"

    def reads_only(self, params: Mapping[str, Any]) -> bool:
        """Whether a call with these parameters changes nothing."""
        return self.read_only(params) is True if callable(self.read_only) else self.read_only

    def sent_params(self, params: Mapping[str, Any], message: str) -> Mapping[str, Any]:
        """Return the parameters that go to other hosts, also those that a call takes from the user's message."""
        if callable(self.sends):
            return self.sends(params, message)
        if isinstance(self.sends, bool):
            return params if self.sends else {}
        return {name: value for name, value in params.items() if name in self.sends}

    def to_openai_tool(self) -> dict[str, Any]:
        """Return it as an entry of `tools` in a request to a model server with the OpenAI or Ollama API."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@overload
def specialist(function: Callable[P, R], /) -> Specialist[P, R]: ...
@overload
def specialist(**options: Unpack[FunctionOptions]) -> Callable[[Callable[P, R]], Specialist[P, R]]: ...
def specialist(function: Callable[..., Any] | None = None, /, **options: Unpack[FunctionOptions]) -> Any:
    """Create a specialist from a function.

    The function's name, the first paragraph of its docstring and its annotations become name, description and JSON
    Schema. Brain injects keyword-only parameters by type: `Context`, and objects that the program provides. The
    function can be a coroutine function, an async generator of `Progress` and a last result, a plain function or a
    plain generator. The last two run in a thread.

    Raises:
        RegistrationError: The message has the function's name and the problem.
    """

    def decorate(function: Callable[..., Any]) -> Specialist[..., Any]:
        name = options.get("name", getattr(function, "__name__", ""))
        description = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        others: Any = {key: value for key, value in options.items() if key != "name"}
        try:
            signature = read_signature(function, (Context,))
            if not description:
                raise RegistrationError("it has no docstring; the model needs one to know its purpose")  # noqa: TRY301
            return _build(function, name, description, signature, others)
        except RegistrationError as error:
            raise RegistrationError(f"specialist {name}: {error}") from error

    return decorate if function is None else decorate(function)


def from_schema(
    name: str, description: str, parameters: Schema, handler: Callable[..., Any], options: Options
) -> Specialist[..., Any]:
    """Create a specialist from a tool with a JSON Schema. `handler` takes the parameters as one mapping.

    Raises:
        RegistrationError: The message has the tool's name and the problem.
    """
    try:
        if not description:
            raise RegistrationError("its description is empty")  # noqa: TRY301
        _check_accepts(handler, ({},), "its handler must take the parameters as one mapping")
        return _build(handler, name, description, Signature(parameters, find_injected(handler)), options)
    except RegistrationError as error:
        raise RegistrationError(f"specialist {name}: {error}") from error


def _check_accepts(function: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    """Raise an error with this message unless the function takes these arguments and the injected ones."""
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


_SEQUENCES: Mapping[str, Callable[[Any], Any]] = {"activates_on": frozenset, "tags": tuple, "not_examples": tuple}
_RULES: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (
        ("timeout", "idle_timeout", "cache_seconds"),
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0,
        "a number of seconds above 0",
    ),
    (("requires_user", "outside", "private"), _is_bool, "True or False"),
    (
        ("sends",),
        lambda value: _is_bool(value) or callable(value) or _is_list_of_str(value),
        "True, False, the names of parameters, or a function of the parameters and the message",
    ),
    (("read_only",), lambda value: _is_bool(value) or callable(value), "True, False, or a function of the parameters"),
    (
        ("approval",),
        lambda value: value in ("never", "always") or callable(value),
        "never, always, or a function of the parameters",
    ),
    (
        ("approval", "read_only", "assist", "sends"),
        lambda value: not inspect.iscoroutinefunction(value),
        "a plain function, not a coroutine function",
    ),
    (tuple(_SEQUENCES), _is_list_of_str, "a list of strings"),
    (("examples",), _is_list_of_examples, "a list of questions, or of pairs of a question and its parameters"),
    (("health", "lifespan"), callable, "a function"),
)
"""Options, a check of their values, and the rule for people."""


def _build(
    function: Callable[P, R], name: str, description: str, signature: Signature, options: Options
) -> Specialist[P, R]:
    """Check name, options and schema, and create the specialist."""
    if not isinstance(name, str) or not SPECIALIST_NAME.fullmatch(name):
        raise RegistrationError("the name must be a letter, then letters, digits, _ or -, up to 64 characters")
    values: dict[str, Any] = dict(options)
    if unknown := sorted(values.keys() - Options.__annotations__.keys()):
        raise RegistrationError(f"unknown option {', '.join(unknown)}.{suggest(unknown[0], Options.__annotations__)}")
    for keys, is_valid, rule in _RULES:
        for key in keys:
            if key in values and not is_valid(values[key]):
                raise RegistrationError(f"{key} must be {rule}, not {values[key]!r}")
    if values.get("cache_seconds") and values.get("read_only") is not True:
        raise RegistrationError("cache_seconds requires read_only=True")
    if "preview" in values:
        if values.get("approval", "never") == "never":
            raise RegistrationError("preview requires approval: 'always' or a function of the parameters")
        _check_accepts(values["preview"], ({},), "preview must take the parameters as one mapping")
    if "forget" in values:
        _check_accepts(values["forget"], ("", None), "forget must take a user and a conversation ID")
    if "assist" in values:
        _check_accepts(values["assist"], ("", None), "assist must take a message and its context")
    values.setdefault("private", values.get("requires_user", False))
    values |= {key: convert(values[key]) for key, convert in _SEQUENCES.items() if key in values}
    if callable(values.get("sends")):
        _check_accepts(values["sends"], ({}, ""), "sends must take the parameters and the message")
    elif not isinstance(values.get("sends", False), bool):
        values["sends"] = frozenset(values["sends"])
    is_included = str(getattr(function, "__module__", "")).startswith("specialists.")  # tests check these
    if not is_included:
        check_schema(signature.schema)
    pairs = [(one, None) if isinstance(one, str) else one for one in values.get("examples", ())]
    values["examples"] = tuple(question for question, _ in pairs)
    values["example_params"] = {question: params for question, params in pairs if params is not None}
    read = signature.schema, signature.injected, signature.struct
    found = Specialist(function, name, " ".join(description.split()), *read, **values)
    for question, params in () if is_included else found.example_params.items():
        if problems := find_problems(found.validator, params):
            raise RegistrationError(f"the parameters of example {question!r} are invalid: {'; '.join(problems)}")
    return found
