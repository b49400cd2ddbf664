"""Core: how many tokens a turn takes, as the server counted them or estimated from the bytes of the texts.

Bytes and not characters: a Chinese character is about a token, as three bytes nearly are; four letters of English are
one too.
"""

from collections.abc import Sequence

from brain.events import Usage
from brain.messages import Message, PassUsage

BYTES_A_TOKEN = 4
"""For estimates only, where a server does not count: `bytes/4`."""


def size(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Counted:
    """Tokens over all passes of a turn."""

    def __init__(self) -> None:
        self._prompt = self._completion = 0
        self._reused: int | None = None
        self._estimated = False
        self._asked_bytes = self._heard_bytes = 0
        self._of_pass: PassUsage | None = None
        self._is_whole = False  # whether the pass was read to its end, so that its count is final

    def asked(self, messages: Sequence[Message]) -> None:
        """A pass begins with these messages."""
        self._asked_bytes = sum(size(message.content) for message in messages)
        self._heard_bytes = 0
        self._of_pass, self._is_whole = None, False

    @property
    def asked_bytes(self) -> int:
        """What the pass was asked with."""
        return self._asked_bytes

    def heard(self, text: str) -> None:
        """The model said this in the pass."""
        self._heard_bytes += len(text) if text.isascii() else size(text)

    def counted(self, usage: PassUsage) -> None:
        """The server told what the pass took, so far or in all."""
        self._of_pass = usage

    def read_whole(self) -> None:
        """The model finished the pass by itself."""
        self._is_whole = True

    def so_far(self) -> tuple[PassUsage, bool]:
        """What the pass took so far, and whether any of it is estimated.

        A count of a pass that was cut short is one of before the cut: it lacks what the model wrote since.
        """
        counted = self._of_pass
        if counted is not None and self._is_whole:
            return counted, False
        prompt, completion = estimated(self._asked_bytes), estimated(self._heard_bytes)
        if counted is None:
            return PassUsage(prompt, completion), True
        return PassUsage(counted.prompt or prompt, max(counted.completion, completion), counted.reused), True

    def pass_ended(self) -> tuple[PassUsage, bool]:
        """The pass is over, however it ended: what it took, and whether that is estimated."""
        usage, estimated = self.so_far()
        self._of_pass = None
        self._estimated = self._estimated or estimated
        self._prompt += usage.prompt
        self._completion += usage.completion
        if usage.reused is not None:
            self._reused = (self._reused or 0) + usage.reused
        return usage, estimated

    def total(self) -> Usage:
        """The sum over the passes so far."""
        return Usage(self._prompt, self._completion, self._reused, self._estimated)


def estimated(size_in_bytes: int) -> int:
    """About how many tokens a text of so many bytes takes, where no server counts them."""
    return -(-size_in_bytes // BYTES_A_TOKEN)
