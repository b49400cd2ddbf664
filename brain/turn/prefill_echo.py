"""Strips what stands before an answer and is repeated at its start: the started answer, or the clock note."""

WHITE_MOST = 64
"""Characters of white space that are held back below a line."""


class Echo:
    """Compares the beginning of a pass with the text that was to be continued.

    Only a repetition of all of it (white space at its end aside) is dropped; text that merely begins alike comes out
    unchanged as soon as it differs.

    Args:
        prefix: the text that may be repeated.
        is_line: whether it is dropped only as a line with text below; alone, it may be the answer to the question.
    """

    def __init__(self, prefix: str, *, is_line: bool = False) -> None:
        self._is_line = is_line
        self._expected = prefix.rstrip()
        self._space = prefix[len(self._expected) :]
        self._held = ""
        self.settled = not self._expected

    def feed(self, text: str) -> str:
        """Takes the next characters; gives those that are no echo."""
        if self.settled:
            return text
        self._held = self._held + text
        if len(self._held) < len(self._expected):
            if self._expected.startswith(self._held):
                return ""
        elif self._held.startswith(self._expected):
            rest = self._held[len(self._expected) :]
            if self._is_line:
                return self._below(rest)
            if len(rest) < len(self._space) and self._space.startswith(rest):
                return ""
            self._held, self.settled = "", True
            return rest.removeprefix(self._space)
        return self.close()

    def _below(self, rest: str) -> str:
        text = rest.lstrip()
        white = rest[: len(rest) - len(text)]
        if len(white) > WHITE_MOST:
            return self.close()
        if not text:
            return ""
        if "\n" in white:
            self._held = ""  # what follows may be the line once more
            return self.feed(text)
        return self.close()

    def close(self) -> str:
        """Says that the pass ended; gives what was held back and is no echo."""
        held, self._held, self.settled = self._held, "", True
        is_echo = held.startswith(self._expected) and self._expected and not self._is_line
        return "" if is_echo else held
