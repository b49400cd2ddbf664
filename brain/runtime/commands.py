"""Commands from clients to a run, in whatever process it executes."""

import msgspec

from brain.errors import BadRequest, Interruption
from brain.messages import Exchange


class ShowTurn(msgspec.Struct, frozen=True, tag=True):
    """Change nothing."""


class StopTurn(msgspec.Struct, frozen=True, tag=True):
    """End the turn."""

    reason: Interruption = "cancelled"


class CancelTurn(msgspec.Struct, frozen=True, tag=True):
    """End the turn for a person, unless a call was approved a moment ago."""


class SteerTurn(msgspec.Struct, frozen=True, tag=True):
    """Add a message of the user to the turn."""

    message: str


class Decide(msgspec.Struct, frozen=True, tag=True):
    """Approve or decline a call."""

    call_id: str
    approve: bool


class Join(msgspec.Struct, frozen=True, tag=True):
    """Count a reader in another process."""


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Stop counting this reader.

    Attributes:
        last_received: Number of the last event that it received.
        will_reconnect: Whether it left to send an approval.
    """

    last_received: int
    will_reconnect: bool


Command = ShowTurn | StopTurn | CancelTurn | SteerTurn | Decide | Join | Leave


class Rejection(msgspec.Struct, frozen=True):
    """The arguments of the `BadRequest` of a rejected command."""

    message: str
    field: str | None
    code: str
    status: int
    retry_after: int | None


class CommandReply(msgspec.Struct, frozen=True):
    """The result of a command.

    Attributes:
        exchange: Question and answer after the command.
        is_stopping: Whether the turn was stopped and has not ended yet.
        last: Number of its newest event.
    """

    exchange: Exchange | None
    is_stopping: bool = False
    last: int = 0
    rejection: Rejection | None = None

    def get_exchange(self) -> Exchange:
        """Return question and answer.

        Raises:
            BadRequest: The command was rejected.
        """
        if self.rejection is not None:
            fields = msgspec.structs.asdict(self.rejection)
            raise BadRequest(fields.pop("message"), fields.pop("field"), **fields)
        assert self.exchange is not None
        return self.exchange


def reject(error: BadRequest) -> CommandReply:
    """Return the reply to a rejected command."""
    rejection = Rejection(error.message, error.field, error.code, error.status, error.retry_after)
    return CommandReply(None, rejection=rejection)


encode = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_reply = msgspec.json.Decoder(CommandReply).decode
decode_exchange = msgspec.json.Decoder(Exchange).decode
