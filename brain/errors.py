"""All errors of Brain, with the packages that raise them.

BrainError
├── SettingsError            settings, models, telemetry: a setting is unknown or invalid; Brain does not start
├── RegistrationError        plugins: a specialist cannot be registered; the others can
├── BadRequest               all: a client's request is rejected before the first byte of the answer
│   ├── RequestTaken         store: another process began the turn of the same request ID, which the request joins
│   ├── ConversationBusy     store: the conversation has a running turn
│   ├── RunsElsewhere        runtime: another process runs the turn, to which the server forwards the request
│   ├── Duplicate            store: an active task is the same
│   └── NothingToReport      store, runtime: no task has news, so no report begins
├── ModelError               models, turn: the model server cannot be reached, failed, or has no room
│   ├── PrefillRefused       models: it rejects a prefill
│   ├── ToolsRefused         models: it rejects tools
│   ├── ContentFiltered      models: its content filter rejects the request, or stopped the answer
│   └── UnreadableData       models: it sent something that breaks its protocol
├── StoreError               store: the store cannot be read or written
│   ├── Damaged              store: a row cannot be read; readers skip it
│   └── OutcomeUnknown       store: the connection to the database was lost while a write was committed
├── Refused                  specialists, net, models: a specialist, or what it uses, rejects a call
└── CommandError             cli: a command fails
    └── UsageError           cli: its arguments are wrong

Exceptions that do not leave their package have other base classes. No handler of errors may catch `RunsElsewhere`,
which is not a failure.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Literal

ModelErrorCode = Literal["model_unreachable", "model_failed", "model_context"]
Interruption = Literal["deadline", "shutdown", "cancelled"]
RETRY_SECONDS = 2
"""Time after which a request that was rejected for now may succeed."""


is_private: ContextVar[bool] = ContextVar("is_private", default=False)
"""Whether what runs now belongs to a private conversation, no word of which may be logged."""


def for_log(detail: str) -> str:
    """Return what a server sent or a model wrote for the log: nothing of it in a private conversation."""
    return "(private)" if is_private.get() else detail


class BrainError(Exception):
    """Base class of all errors that Brain raises on purpose."""


class SettingsError(BrainError):
    """A setting is invalid, so Brain does not start.

    Args:
        message: The setting, its value and the allowed values.
        advice: The command to type next, or a sentence that ends with a period.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class RegistrationError(BrainError):
    """A specialist cannot be registered. The message has its name and the reason."""


class BadRequest(BrainError):
    """A request is rejected before the first byte of the answer.

    Args:
        message: What is wrong and what to do, for the client.
        field: Path of the field, such as ``attachments[0].data``.
        code: Error code of the response.
        status: HTTP status of the response.
        retry_after: Seconds after which a retry may succeed.
        details: Further fields of the error in Brain's own protocol.
    """

    def __init__(
        self,
        message: str,
        field: str | None = None,
        *,
        code: str = "bad_request",
        status: int = 400,
        retry_after: int | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self.details = details or {}


class RunsElsewhere(BadRequest):
    """The turn of a request runs in another process that uses the store. A server forwards the request.

    Attributes:
        process: The ID of that process.
        address: Where it takes requests; empty if no process has the turn at the moment.
    """

    def __init__(self, process: str, address: str) -> None:
        super().__init__("This turn runs in another process of Brain. Try again.", code="busy", status=409)
        self.process = process
        self.address = address


class ModelError(BrainError):
    """A model gave no answer, or only a part of it.

    Args:
        code: Error code for clients.
        message: A sentence for clients, without URLs, keys and texts of the server.
        detail: What happened, for the log only; it may repeat the request. It is not logged in private conversations.
        recoverable: Whether a retry may help. Always False for `model_context`.
        status: HTTP status of the model server, if it rejected the request.
        retry_after: Seconds that the server asks to wait.
    """

    def __init__(
        self,
        code: ModelErrorCode,
        message: str,
        detail: str = "",
        *,
        recoverable: bool = True,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{message} ({detail})" if detail else message)
        self.code: ModelErrorCode = code
        self.message = message
        self.detail = detail
        self.recoverable = recoverable and code != "model_context"
        self.status = status
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message if is_private.get() else super().__str__()


class PrefillRefused(ModelError):
    """The model server answered 400 to a prefill. The next try must send a message instead."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("model_failed", "The model server cannot continue a started answer.", detail)


class ToolsRefused(ModelError):
    """The model server rejected a request with tools. The next try must describe them in the prompt.

    Args:
        is_general: Whether the server supports no tools at all. Otherwise, it may reject only these.
    """

    def __init__(self, detail: str = "", *, is_general: bool = True) -> None:
        super().__init__("model_failed", "The model server rejected a request with tools.", detail)
        self.is_general = is_general


class ContentFiltered(ModelError):
    """The content filter of the model server rejected the request or stopped the answer."""

    def __init__(self, detail: str = "", *, status: int | None = None) -> None:
        message = "The content filter of the model server stopped the answer."
        super().__init__("model_failed", message, detail, recoverable=False, status=status)


class UnreadableData(ModelError):
    """The model server sent something that breaks its protocol. What follows may still be an answer."""

    def __init__(self, detail: str) -> None:
        super().__init__("model_failed", "The model server sent data that Brain cannot read.", detail)


class StoreError(BrainError):
    """The store cannot be read or written.

    Args:
        message: A sentence for clients, without paths and texts of the database.
        detail: What happened, for the log and the operator.
        may_pass: Whether the same may succeed later, such as after a full disk.
    """

    def __init__(self, message: str, detail: str = "", *, may_pass: bool = False) -> None:
        super().__init__(f"{message} ({detail})" if detail else message)
        self.message = message
        self.detail = detail
        self.may_pass = may_pass

    def rejection(self) -> BadRequest:
        """Return the error for a client whose request needs the store."""
        retry_after = RETRY_SECONDS if self.may_pass else None
        return BadRequest(self.message, code="unavailable", status=503, retry_after=retry_after)


class OutcomeUnknown(StoreError):
    """The connection to the database was lost while a write was committed: its outcome is not known."""


class Refused(BrainError):
    """A specialist raises this to reject a call.

    Args:
        reason: What happened, for people and logs.
        advice: What the model should do next. The model reads `reason; advice`.
    """

    reason: str = ""  # for subclasses that do not call `__init__` and set one of the two
    advice: str = ""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
