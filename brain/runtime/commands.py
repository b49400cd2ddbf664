"""What a client can do to a run, in whatever process it is."""

import msgspec

from brain.errors import BadRequest, Interruption
from brain.messages import TurnReport


class Show(msgspec.Struct, frozen=True, tag=True):
    """Do nothing but report."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the turn."""

    reason: Interruption = "cancelled"


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End the turn for a person, unless a call of it was approved a moment ago."""


class Steer(msgspec.Struct, frozen=True, tag=True):
    """Add a message of the user to the turn."""

    message: str


class Decide(msgspec.Struct, frozen=True, tag=True):
    """Approve or decline a call."""

    call_id: str
    approve: bool


class Join(msgspec.Struct, frozen=True, tag=True):
    """Count a reader in another process."""


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Stop counting that reader.

    Attributes:
        last_received: the number of the last event that it received.
        will_reconnect: whether it left to bring a person's approval.
    """

    last_received: int
    will_reconnect: bool


Command = Show | Stop | Cancel | Steer | Decide | Join | Leave


class Rejection(msgspec.Struct, frozen=True):
    """Why a command was not carried out: the arguments of a `BadRequest`."""

    message: str
    field: str | None
    code: str
    status: int
    retry_after: int | None


class CommandReply(msgspec.Struct, frozen=True):
    """The result of a command.

    Attributes:
        report: the turn after it.
        is_stopping: whether the turn was stopped and has not ended yet.
        last: the number of its newest event.
    """

    report: TurnReport | None
    is_stopping: bool = False
    last: int = 0
    rejection: Rejection | None = None

    def get_report(self) -> TurnReport:
        """The report.

        Raises:
            BadRequest: when the command was not carried out.
        """
        if self.rejection is not None:
            fields = msgspec.structs.asdict(self.rejection)
            raise BadRequest(fields.pop("message"), fields.pop("field"), **fields)
        assert self.report is not None
        return self.report


def reject(error: BadRequest) -> CommandReply:
    """The answer to a command that cannot be carried out."""
    rejection = Rejection(error.message, error.field, error.code, error.status, error.retry_after)
    return CommandReply(None, rejection=rejection)


encode = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_reply = msgspec.json.Decoder(CommandReply).decode
decode_report = msgspec.json.Decoder(TurnReport).decode
