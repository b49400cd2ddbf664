"""When a server takes no further turns: tables of moments, no clock. And the connections that it refuses by then."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from brain.server.admission import ANSWERS_PER_ROUND, BURST, CALM_STARTS, REJECT_SECONDS, Acceptor, Admission

TICK = 0.1


def pass_time(admission: Admission, seconds: float, lag: float = 0.0, unaccepted: int = 0) -> None:
    for n in range(round(seconds / TICK)):
        admission.measure(n * TICK, TICK + lag, lag, unaccepted)


def test_a_burst_is_taken_whole_and_no_more() -> None:
    admission = Admission()
    starts = [admission.admit(0.0) for _ in range(BURST + CALM_STARTS)]
    assert admission.capacity == 0
    for start in starts[:10]:
        start.end()
        start.end()
    assert admission.capacity == 0
    for start in starts[10:]:
        start.end()
    assert admission.capacity == CALM_STARTS
    pass_time(admission, 1)
    assert CALM_STARTS < admission.capacity < BURST
    pass_time(admission, 10)
    assert admission.capacity == BURST + CALM_STARTS


@pytest.mark.parametrize(
    ("lag", "unaccepted", "overloaded"),
    [(0.0, 0, False), (0.05, BURST, False), (0.0, BURST + CALM_STARTS + 1, True), (0.3, 0, True), (0.2, 0, False)],
)
def test_lag_and_a_queue_that_is_longer_than_a_burst_are_overload(
    lag: float, unaccepted: int, overloaded: bool
) -> None:
    admission = Admission()
    pass_time(admission, 3, lag, unaccepted)
    assert admission.is_overloaded is overloaded


def test_an_overload_ends_after_a_calm_second_and_not_before() -> None:
    admission = Admission()
    pass_time(admission, 3, 0.5)
    pass_time(admission, 3, 0.2)
    assert admission.is_overloaded
    pass_time(admission, 1, 0.0)
    assert admission.is_overloaded
    pass_time(admission, 3, 0.0)
    assert not admission.is_overloaded


def test_one_long_stall_is_soon_forgotten() -> None:
    admission = Admission()
    admission.measure(3600.0, 3600.0, 3600.0, 0)
    assert admission.is_overloaded
    pass_time(admission, 6)
    assert not admission.is_overloaded


def test_an_overloaded_server_takes_nearly_as_many_turns_as_end() -> None:
    admission = Admission()
    for _ in range(BURST):
        admission.admit(0.0).end()
    taken = 0
    for n in range(100):
        for _ in range(40):
            admission.count_end()
        admission.measure(n * TICK, TICK + 0.3, 0.3, 0)
        for _ in range(min(admission.capacity, 400)):
            admission.admit(n * TICK).end()
            taken += n >= 50
    assert admission.is_overloaded
    assert 50 * 40 * 0.5 < taken < 50 * 40


POST = b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (POST, b"503"),
        (POST.replace(b"/v1/chat/stream", b"/v1/chat/completions?a=b"), b"503"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"POST /v1/turns/t1/cancel HTTP/1.1\r\n\r\n", b"200"),
        (POST.replace(b"Host", b"LAST-event-ID: t1.4\r\nHost"), b"200"),
        (POST.replace(b"Host", b"Origin: http://localhost\r\nHost"), b"200"),
        (POST[:30], b"200"),
    ],
)
def test_connections_that_wait_are_refused_if_they_start_a_turn(sent: bytes, status: bytes) -> None:
    async def test(listening: socket.socket, client: socket.socket) -> None:
        acceptor = Acceptor([listening])
        assert acceptor.backlog == 1
        loop = asyncio.get_running_loop()
        client.sendall(sent)
        refused = acceptor.accept(loop, Answers, 0)
        assert refused == (status == b"503")
        acceptor.answer_rejected(loop.time() + REJECT_SECONDS)
        answer = await loop.sock_recv(client, 1000)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert (b"retry-after: 2\r\n" in answer) is (status == b"503")
        assert acceptor.backlog == 0

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        client.setblocking(False)
        asyncio.run(test(listening, client))


def test_a_connection_whose_request_is_late_is_looked_at_once_more_and_then_served() -> None:
    async def test(listening: socket.socket, early: socket.socket, late: socket.socket) -> None:
        acceptor = Acceptor([listening])
        loop = asyncio.get_running_loop()
        assert acceptor.accept(loop, Answers, 0) == 0
        early.sendall(POST)
        assert acceptor.accept(loop, Answers, 0) == 1
        late.sendall(POST)
        assert (await loop.sock_recv(late, 1000)).startswith(b"HTTP/1.1 200")
        acceptor.close()
        assert early.recv(1000).startswith(b"HTTP/1.1 503")

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        early, late = [stack.enter_context(socket.create_connection(listening.getsockname())) for _ in range(2)]
        late.setblocking(False)
        asyncio.run(test(listening, early, late))


def test_few_refusals_are_answered_at_once_and_the_first_are_as_many_as_may_start() -> None:
    async def test(listening: socket.socket, clients: list[socket.socket]) -> None:
        acceptor = Acceptor([listening])
        loop = asyncio.get_running_loop()
        for client in clients:
            client.sendall(POST)
        assert acceptor.accept(loop, Answers, 3) == len(clients) - 3
        for client in clients[:3]:
            assert (await loop.sock_recv(client, 1000)).startswith(b"HTTP/1.1 200")
        acceptor.answer_rejected(loop.time() + REJECT_SECONDS)
        told = clients[3 : 3 + ANSWERS_PER_ROUND]
        assert all(client.recv(1000).startswith(b"HTTP/1.1 503") for client in told)
        for client in clients[3 + ANSWERS_PER_ROUND :]:
            with pytest.raises(BlockingIOError):
                client.recv(1000)
        acceptor.close()

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200))
        listening.setblocking(False)
        place = listening.getsockname()
        clients = [stack.enter_context(socket.create_connection(place)) for _ in range(ANSWERS_PER_ROUND + 20)]
        for client in clients:
            client.setblocking(False)
        asyncio.run(test(listening, clients))


class Answers(asyncio.Protocol):
    """Answers whatever comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
        transport.close()
