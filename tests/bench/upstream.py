"""A fake model server with the APIs of OpenAI and Ollama. It writes the tokens that the last message requests.

    python tests/bench/upstream.py PORT

The message contains `play:TOKENS:RATE:HOW:LABEL`. RATE is tokens per second; 0 is as fast as possible. HOW is the end:
`end`, `stay` (open and silent after the last token), or `call` (a call after the last token, then tokens until the
stream is closed). Every token contains one `@`. A paced token has its time of emission after the `@`, so the client can
measure its latency. `GET /log` returns, once, the events of labelled answers: `called`, `behind` (the first token after
a call), `closed` (by the peer, before the end), `asked` (the next request of the turn).
"""

import json
import re
import select
import socket
import sys
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import cycle
from time import monotonic_ns

PLAY = re.compile(rb"play:(\d+):(\d+):(end|stay|call):(\w*)")
WORDS = (
    " the@ of@ and@ to@ in@ that@ with@ stream@,@ token@ model@.@ server@ Sent@ event@s@ is@ a@ not@ special@ist@ for@"
    " when@ <b@>@ as@ café@ by@ it@ more@ from@ can@ be@ Some@ wait@er@ plugin@:@ [1@]@ {x@}@ time@ user@-@ new@ line@"
)
TOKENS = [f"{word}@" for word in WORDS.split("@") if word]
STAMPED = " @%016d"
LAP = "lap-"
"""Text of the call. A request that contains it continues after the call."""
TURNS = 16
"""Tokens of one answer that are written before those of the next one."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
MODELS = {
    "/v1/models": {"object": "list", "data": [{"id": "fake", "object": "model", "owned_by": "vllm"}]},
    "/api/tags": {"models": [{"name": "fake", "model": "fake"}]},
}


def chunk(data: str) -> bytes:
    encoded = data.encode()
    return b"%x\r\n%s\r\n" % (len(encoded), encoded)


def openai_event(text: str | None) -> str:
    """Return one event of `POST /v1/chat/completions`; the last one has no text."""
    delta, finish = ({}, "stop") if text is None else ({"content": text}, None)
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    known = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "fake"}
    return f"data: {json.dumps({**known, 'choices': [choice]}, separators=(',', ':'), ensure_ascii=False)}\n\n"


def ollama_line(text: str | None) -> str:
    """Return one line of `POST /api/chat`; the last one has no text."""
    message = {"role": "assistant", "content": text or ""}
    known = {"model": "fake", "created_at": "2026-01-01T00:00:00.000000Z", "message": message, "done": text is None}
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False) + "\n"


class Dialect:
    """The frames of one API, built once."""

    def __init__(self, media_type: bytes, item: Callable[[str | None], str], end: str) -> None:
        self.head = HEAD % media_type
        self.tokens = [chunk(item(token)) for token in TOKENS]
        before, _, after = chunk(item(STAMPED % 0)).partition(b"%016d" % 0)
        self.stamped = before + b"%016d" + after
        self.end = chunk(item(None)) + (chunk(end) if end else b"") + LAST_CHUNK
        self._item = item

    def marker(self, label: str) -> list[bytes]:
        """Return a call in chunks of five characters, as models write it."""
        call = f'SPECIALIST_REQUEST[stopwatch:{{"lap":"{LAP}{label}"}}]'
        return [chunk(self._item(call[at : at + 5])) for at in range(0, len(call), 5)]


OPENAI = Dialect(b"text/event-stream", openai_event, "data: [DONE]\n\n")
OLLAMA = Dialect(b"application/x-ndjson", ollama_line, "")
DIALECTS = {"/v1/chat/completions": OPENAI, "/api/chat": OLLAMA}


class Reply:
    """The rest of the answer on one connection."""

    def __init__(self, dialect: Dialect, tokens: int, rate: int, how: str, label: str) -> None:
        self.dialect, self.left, self.how, self.label = dialect, tokens, how, label
        self.step = 1_000_000_000 // rate if rate else 0
        self.words = cycle(dialect.tokens)
        self.called = False


class Connection:
    """One client's connection, which is kept alive."""

    def __init__(self, server: "Server", sock: socket.socket) -> None:
        self.server, self.sock, self.fd = server, sock, sock.fileno()
        self.received = b""
        self.unsent = b""
        self.reply: Reply | None = None
        self.due = 0

    def read(self) -> None:
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if found:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if len(body) >= (int(length[1]) if length else 0):
                self.received = b""
                self.answer(head.split(b" ", 2)[1].decode(), body)

    def answer(self, path: str, body: bytes) -> None:
        if path in DIALECTS:
            self.play(DIALECTS[path], body)
        elif path == "/log":
            self.tell(self.server.log)
            self.server.log = []
        else:
            self.tell(MODELS.get(path, {}))

    def tell(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )

    def play(self, dialect: Dialect, body: bytes) -> None:
        asked = PLAY.findall(body)
        tokens, rate, how, label = asked[-1] if asked else (b"1", b"0", b"end", b"")
        self.reply = reply = Reply(dialect, int(tokens), int(rate), how.decode(), label.decode())
        if reply.label and LAP.encode() in body:
            self.server.note("asked", reply.label)
            reply.left, reply.how = 1, "end"
        self.write(dialect.head)
        if reply.step:
            self.due = monotonic_ns() + self.server.phase(reply.step)
            heappush(self.server.paced, (self.due, self.fd))
        else:
            self.server.eager[self.fd] = self

    def speak(self, now: int) -> None:
        """Write one paced token, and schedule the next one."""
        if self.reply is not None and self.say(self.reply, now):
            self.due += self.reply.step
            heappush(self.server.paced, (self.due, self.fd))

    def hurry(self) -> None:
        """Write up to `TURNS` tokens, as far as the socket takes them."""
        assert self.reply is not None
        for _ in range(TURNS):
            if self.unsent or not self.say(self.reply, 0):
                del self.server.eager[self.fd]
                return

    def say(self, reply: Reply, now: int) -> bool:
        """Write the next token, or the end; return whether more follows."""
        if reply.left:
            reply.left -= 1
            self.write(reply.dialect.stamped % now if reply.step else next(reply.words))
            return True
        if reply.how == "call":
            return self.call(reply, now)
        if reply.how == "end":
            self.reply = None
            self.write(reply.dialect.end)
        return False

    def call(self, reply: Reply, now: int) -> bool:
        if reply.called:
            reply.left = 1_000_000
            self.server.note("behind", reply.label)
            return self.say(reply, now)
        for piece in reply.dialect.marker(reply.label):
            self.write(piece)
        reply.called = True
        self.server.note("called", reply.label)
        return True

    def write(self, data: bytes) -> None:
        if self.unsent:
            self.unsent += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the next read tells
        if sent < len(data):
            self.unsent = data[sent:]
            self.server.poll.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        data, self.unsent = self.unsent, b""
        self.server.poll.modify(self.fd, select.EPOLLIN)
        self.write(data)
        if not self.unsent and self.reply is not None and not self.reply.step:
            self.server.eager[self.fd] = self

    def close(self) -> None:
        if self.reply is not None and self.reply.label:
            self.server.note("closed", self.reply.label)
        self.reply = None
        self.server.eager.pop(self.fd, None)
        del self.server.connections[self.fd]
        self.server.poll.unregister(self.fd)
        self.sock.close()


class Server:
    """All connections, on one thread."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.connections: dict[int, Connection] = {}
        self.eager: dict[int, Connection] = {}
        self.paced: list[tuple[int, int]] = []
        self.log: list[tuple[str, str, int]] = []
        self._replies = 0

    def note(self, what: str, label: str) -> None:
        if label:
            self.log.append((what, label, monotonic_ns()))

    def phase(self, step: int) -> int:
        """Return the delay of an answer's first token, so that answers do not run in step."""
        self._replies += 1
        return self._replies * 7_919_000 % step

    def run(self) -> None:
        while True:
            self.wait()
            for fd, event in self.poll.poll(0):
                if fd == self.listener.fileno():
                    self.accept()
                elif connection := self.connections.get(fd):
                    if event & select.EPOLLOUT:
                        connection.flush()
                    if event & ~select.EPOLLOUT:
                        connection.read()
            now = monotonic_ns()
            while self.paced and self.paced[0][0] <= now:
                due, fd = heappop(self.paced)
                if (found := self.connections.get(fd)) and found.due == due:
                    found.speak(monotonic_ns())
            for eager in list(self.eager.values()):
                eager.hurry()

    def wait(self) -> None:
        """Wait for work. `epoll` counts in milliseconds, which is too coarse for paced tokens."""
        if not self.eager:
            left = max(0, self.paced[0][0] - monotonic_ns()) / 1e9 if self.paced else None
            select.select([self.poll], [], [], left)

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections[sock.fileno()] = Connection(self, sock)
            self.poll.register(sock, select.EPOLLIN)


if __name__ == "__main__":
    Server(int(sys.argv[1])).run()
