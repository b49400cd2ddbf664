"""Core: strips the started answer that some servers repeat when they are asked to go on with it."""


class Echo:
    """Compares the beginning of a pass with the text that was to be continued.

    Only a repetition of all of it (white space at its end aside) is dropped; text that merely begins alike comes out
    unchanged as soon as it differs.
    """

    def __init__(self, prefix: str) -> None:
        self._expected = prefix.rstrip()
        self._space = prefix[len(self._expected) :]
        self._held = ""
        self.settled = not self._expected

    def feed(self, text: str) -> str:
        """Takes the next characters; gives those that are no echo."""
        if self.settled:
            return text
        self._held += text
        if len(self._held) < len(self._expected):
            if self._expected.startswith(self._held):
                return ""
        elif self._held.startswith(self._expected):
            rest = self._held[len(self._expected) :]
            if len(rest) < len(self._space) and self._space.startswith(rest):
                return ""
            self._held, self.settled = "", True
            return rest.removeprefix(self._space)
        return self.close()

    def close(self) -> str:
        """Says that the pass ended; gives what was held back and is no echo."""
        held, self._held, self.settled = self._held, "", True
        return "" if held.startswith(self._expected) and self._expected else held
