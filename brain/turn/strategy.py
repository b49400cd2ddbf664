"""The interface between a strategy and the engine.

A strategy is a generator. It yields what to do next: usually a `Plan` for one pass. The engine (`Turn`) does it, sends
back a `PassResult`, and takes care of limits, deadlines, calls, added messages, failing models and storage. The
generator returns why the answer ends.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from brain.events import Limits, Role, StopReason
from brain.messages import Call
from brain.turn.participant import Participant
from brain.turn.tag_filter import OutputFilter
from brain.turn_request import DEFAULT_DECODING, Decoding


@dataclass(frozen=True, slots=True)
class NewRound:
    """The announcement of a round. `text` is the instruction or the finding that began it, for people."""

    role: Role
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One pass.

    Attributes:
        participant: The model to ask, and its messages.
        output: Collects the text by tag. None: all text is the answer.
        round: Begins a round with this pass.
        offers: Whether calls may run.
        reads_on: Whether no call may run, and text after one counts, because no answer rests on it.
        is_json: Whether the text must have the format that the client asked for.
        format: JSON Schema of the text, instead of the client's format.
        max_tokens: Token limit of the pass.
        temperature: Sampling temperature, unless the client chose one.
        decoding: How the model decodes the pass.
        seconds: Time limit of a pass that shows nothing.
        may_fail: Whether the answer continues without the pass if all models fail.
    """

    participant: Participant
    output: OutputFilter | None = None
    round: NewRound | None = None
    offers: bool = True
    reads_on: bool = False
    is_json: bool = False
    format: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    decoding: Decoding = DEFAULT_DECODING
    seconds: float | None = None
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class RunCall:
    """A call that the strategy read in the text of a participant. The engine runs it as any other call."""

    participant: Participant
    call: Call


@dataclass(frozen=True, slots=True)
class Answer:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of a pass or a call.

    Attributes:
        calls: The calls, which have ended.
        finish: Why the model stopped.
        unknown_tool: Name of an unknown tool whose native call was ignored.
        was_last: Whether the limit of calls or their deadline was reached before the pass.
        is_interrupted: Whether a message of the user cut the pass. The next pass reads it.
        is_stopped: Whether a stop sequence of the client ended the answer.
        has_client_call: Whether the client must answer a call.
        is_suspended: Whether a call waits for an approval after the turn has ended.
    """

    calls: Sequence[Call] = ()
    finish: StopReason = "complete"
    unknown_tool: str | None = None
    was_last: bool = False
    is_interrupted: bool = False
    is_stopped: bool = False
    has_client_call: bool = False
    is_suspended: bool = False


Step = Plan | RunCall | Answer
Passes = Generator[Step, PassResult, StopReason]


class Strategy(Protocol):
    """Decides about the passes of one turn."""

    @property
    def participants(self) -> Collection[Participant]:
        """All participants of the turn."""

    @property
    def writer(self) -> Participant:
        """The participant that writes the answer."""

    @property
    def max_rounds(self) -> int:
        """Largest number of rounds."""

    def passes(self) -> Passes:
        """Plan passes until the answer is complete. Called again if the user adds a message at the end."""

    def best_text(self, results: str = "") -> str:
        """Return the best text so far, for a turn that ends without an answer. `results` is all there is else."""

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """Return the largest number of passes, apart from those for added messages and failed models."""
