"""Commands from clients to a run."""

import msgspec

from brain.errors import Interruption


class StopTurn(msgspec.Struct, frozen=True):
    """End the turn."""

    reason: Interruption = "cancelled"


class CancelTurn(msgspec.Struct, frozen=True):
    """End the turn for a person, unless a call was approved a moment ago."""


class SteerTurn(msgspec.Struct, frozen=True):
    """Add a message of the user to the turn."""

    message: str


class Decide(msgspec.Struct, frozen=True):
    """Approve or decline a call."""

    call_id: str
    approve: bool


Command = StopTurn | CancelTurn | SteerTurn | Decide
