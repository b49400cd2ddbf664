"""A streaming load client: it opens many streams of one server, counts tokens, and measures their latency."""

import re
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns

STAMP = re.compile(rb"@(\d{16})")
SECOND = 1_000_000_000
READ = 1 << 18


@dataclass(frozen=True)
class Play:
    """What the fake model writes on one stream; see `upstream.py`.

    Attributes:
        leave: number of tokens after which the client disconnects.
        keep: whether to keep all bytes of the answer.
        conversation: its ID, to continue an earlier stream.
    """

    tokens: int
    rate: int = 0
    how: str = "end"
    label: str = ""
    leave: int | None = None
    keep: bool = False
    conversation: str | None = None

    @property
    def message(self) -> str:
        return f"play:{self.tokens}:{self.rate}:{self.how}:{self.label}"


@dataclass(eq=False)
class Stream:
    """One answer as it arrives; times in nanoseconds."""

    play: Play
    sock: socket.socket
    began: int
    first: int = 0
    ended: int = 0
    left: int = 0
    tokens: int = 0
    tail: bytes = b""
    body: bytes = b""

    @property
    def settled(self) -> bool:
        """Whether nothing more will arrive: it ended, the client left, or the model is silent now."""
        return bool(self.ended or self.left) or (self.play.how == "stay" and self.tokens >= self.play.tokens)


@dataclass
class Window:
    """A part of a run, in seconds from its beginning; `read` is called at its start and its end.

    Latencies are recorded from its start on.
    """

    start: float
    end: float
    read: Callable[[], float]
    tokens: int = 0
    used: float = 0.0


@dataclass
class Outcome:
    """The result of a run."""

    streams: list[Stream] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0

    def close(self) -> None:
        """Close the streams that are still open."""
        for stream in self.streams:
            stream.sock.close()


class Failed(Exception):
    """A server did not answer as expected."""


class Client:
    """The streams of one run, on one thread.

    Args:
        request: returns the bytes of a request for a play.
        repeats: whether the end of an answer repeats all its text.
    """

    def __init__(self, port: int, request: Callable[[Play], bytes], *, repeats: bool) -> None:
        self._port, self._request, self._repeats = port, request, repeats
        self._poll = select.epoll()
        self._open: dict[int, Stream] = {}
        self._outcome = Outcome()

    def run(
        self,
        plays: Sequence[Play],
        at_once: int = 0,
        spread: float = 0.0,
        window: Window | None = None,
        limit: float = 60.0,
    ) -> Outcome:
        """Open the streams, `at_once` at a time or all over `spread` seconds, and read until all have settled.

        Raises:
            Failed: an answer was incomplete, or took longer than `limit` seconds.
        """
        try:
            return self._run(plays, at_once, spread, window, limit)
        except BaseException:
            self._outcome.close()
            raise
        finally:
            self._poll.close()

    def _run(self, plays: Sequence[Play], at_once: int, spread: float, window: Window | None, limit: float) -> Outcome:
        began = monotonic_ns()
        starts = [began + int(SECOND * spread * n / len(plays)) for n in range(len(plays))]
        marks = self._marks(window, began) if window else []
        opened, unsettled = 0, 0
        while opened < len(plays) or unsettled or marks:
            now = monotonic_ns()
            if now - began > limit * SECOND:
                raise Failed(f"not done after {limit:g} s: {unsettled} of {len(plays)} streams are still open")
            while marks and now >= marks[0][0]:
                marks.pop(0)[1]()
            due = opened < len(plays) and now >= starts[opened] and (not at_once or unsettled < at_once)
            if due:
                self._begin(plays[opened])
                opened, unsettled = opened + 1, unsettled + 1
            unsettled -= self._read_all(0 if due else 0.001 if opened < len(plays) or marks else 0.1)
        self._outcome.seconds = (monotonic_ns() - began) / SECOND
        return self._outcome

    def _marks(self, window: Window, began: int) -> list[tuple[int, Callable[[], None]]]:
        outcome = self._outcome

        def start() -> None:
            window.tokens, window.used = -outcome.tokens, -window.read()
            outcome.late.clear()

        def end() -> None:
            window.tokens += outcome.tokens
            window.used += window.read()

        return [(began + int(window.start * SECOND), start), (began + int(window.end * SECOND), end)]

    def _begin(self, play: Play) -> None:
        request = self._request(play)
        began = monotonic_ns()
        sock = socket.create_connection(("127.0.0.1", self._port), 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(request)
        sock.setblocking(False)
        stream = self._open[sock.fileno()] = Stream(play, sock, began)
        self._outcome.streams.append(stream)
        self._poll.register(sock, select.EPOLLIN)

    def _read_all(self, seconds: float) -> int:
        """Read what has arrived; return how many streams settled."""
        settled = 0
        for fd, _ in self._poll.poll(seconds):
            stream = self._open[fd]
            before = stream.settled
            self._read(stream)
            if stream.settled and not before:
                settled += 1
            if stream.ended or stream.left:
                del self._open[fd]
                stream.sock.close()
        return settled

    def _read(self, stream: Stream) -> None:
        try:
            data = stream.sock.recv(READ)
        except ConnectionError as error:
            raise Failed(f"{error} after {stream.tokens} tokens") from None
        now = monotonic_ns()
        play, found = stream.play, data.count(b"@")
        if found:
            stream.first = stream.first or now
            if stream.tokens < play.tokens:
                self._outcome.tokens += min(found, play.tokens - stream.tokens)
                if play.rate:
                    self._outcome.late += [now - int(stamp) for stamp in STAMP.findall(data)]
            stream.tokens += found
        if play.keep:
            stream.body += data
        if play.leave is not None and stream.tokens >= play.leave:
            stream.left = monotonic_ns()
            stream.sock.close()
            return
        stream.tail = (stream.tail + data)[-5:]
        if not data or stream.tail == b"0\r\n\r\n":
            stream.ended = now
            self._check(stream)

    def _check(self, stream: Stream) -> None:
        wanted = stream.play.tokens * (2 if self._repeats else 1)
        if stream.play.how == "end" and stream.tokens != wanted:
            raise Failed(f"{stream.tokens} tokens instead of {wanted}")
