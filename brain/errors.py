"""Every error of Brain, drawn as one tree.

BrainError
├── SettingsError        a setting is unknown or has a bad value: the start stops
├── RegistrationError    a specialist cannot be registered: it is refused, the others serve
├── BadRequest           a client's input, answered before the first byte
├── ModelError           the model server could not be reached, failed, or has no room
│   └── PrefillRefused   it will not continue the assistant's own message
├── StoreError           the store cannot be read or written
└── Refused              a specialist refuses a call, with a reason for the model
"""

from typing import Literal

ModelErrorCode = Literal["model_unreachable", "model_failed", "model_context"]
Interruption = Literal["deadline", "silent", "shutdown", "cancelled"]


class BrainError(Exception):
    """Base of all errors that Brain raises on purpose."""


class SettingsError(BrainError):
    """A setting that stops the start.

    Args:
        message: The setting, its value and what is expected.
        advice: What to type next.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class RegistrationError(BrainError):
    """A specialist that cannot be registered; the text holds its name and the reason."""


class BadRequest(BrainError):
    """Input that is refused before the first byte of an answer.

    Args:
        message: what is wrong and what to do, for the client.
        field: the path of the field, such as ``attachments[0].data``.
        code: the error code of the answer.
        status: the HTTP status of the answer.
        retry_after: whole seconds after which asking again may help.
    """

    def __init__(
        self,
        message: str,
        field: str | None = None,
        *,
        code: str = "bad_request",
        status: int = 400,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.code = code
        self.status = status
        self.retry_after = retry_after


class ModelError(BrainError):
    """A model that gave no (whole) answer.

    Args:
        code: what kind of failure it is, as clients see it.
        message: a sentence for clients: no address, no key, nothing the server said.
        detail: what happened, for the log only.
        recoverable: whether asking again may help; never where there is no room.
        status: the HTTP status that the server answered with, if it refused.
    """

    def __init__(
        self,
        code: ModelErrorCode,
        message: str,
        detail: str = "",
        *,
        recoverable: bool = True,
        status: int | None = None,
    ) -> None:
        super().__init__(f"{message} ({detail})" if detail else message)
        self.code: ModelErrorCode = code
        self.message = message
        self.detail = detail
        self.recoverable = recoverable and code != "model_context"
        self.status = status


class PrefillRefused(ModelError):
    """The server answered 400 to a message that was to be continued; the next try must not prefill."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("model_failed", "The model server does not continue a started answer.", detail)


class StoreError(BrainError):
    """The store cannot be read or written.

    Args:
        message: a sentence for clients: no path, nothing the database said.
        detail: what happened, for the log and for the operator.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(f"{message} ({detail})" if detail else message)
        self.message = message


class Refused(BrainError):
    """Raised by a specialist to refuse a call.

    Args:
        reason: what happened, for people and logs.
        advice: what the model does next. The model reads `reason; advice`.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
