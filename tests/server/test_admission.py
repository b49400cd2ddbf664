"""When a server rejects further turns: tables of times, no clock. And the connections that it rejects by then."""

import asyncio
import math
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from brain.server.admission import ANSWERS_PER_ROUND, BURST, CALM_STARTS, Acceptor, Admission

TICK = 0.1


def pass_time(admission: Admission, seconds: float, lag: float = 0.0, unaccepted: int = 0) -> bool:
    """Whether the server is overloaded afterwards."""
    for n in range(round(seconds / TICK)):
        admission.measure(n * TICK, TICK + lag, lag, unaccepted)
    return admission.is_overloaded


def test_a_burst_is_accepted_whole_and_no_more() -> None:
    admission = Admission()
    starts = [admission.admit(0.0) for _ in range(BURST + CALM_STARTS)]
    assert admission.capacity == 0
    for start in starts:
        start.end()
        start.end()
    assert admission.capacity == CALM_STARTS
    pass_time(admission, 1)
    assert CALM_STARTS < admission.capacity < BURST
    pass_time(admission, 10)
    assert admission.capacity == BURST + CALM_STARTS


@pytest.mark.parametrize(
    ("lag", "unaccepted", "is_overloaded"),
    [(0.0, 0, False), (0.05, BURST, False), (0.0, BURST + CALM_STARTS + 1, True), (0.3, 0, True), (0.2, 0, False)],
)
def test_lag_and_a_queue_longer_than_a_burst_are_overload(lag: float, unaccepted: int, is_overloaded: bool) -> None:
    assert pass_time(Admission(), 3, lag, unaccepted) is is_overloaded


def test_an_overload_ends_after_a_calm_second_and_not_before() -> None:
    admission = Admission()
    assert [pass_time(admission, *row) for row in ((3, 0.5), (3, 0.2), (1, 0.0), (3, 0.0))] == [True, True, True, False]
    admission.measure(3600.0, 3600.0, 3600.0, 0)  # the machine was suspended
    assert admission.is_overloaded
    assert not pass_time(admission, 6)


def test_an_overloaded_server_accepts_nearly_as_many_turns_as_end() -> None:
    admission = Admission()
    for _ in range(BURST):
        admission.admit(0.0).end()
    count = 0
    for n in range(100):
        for _ in range(40):
            admission.count_end()
        admission.measure(n * TICK, TICK + 0.3, 0.3, 0)
        for _ in range(min(admission.capacity, 400)):
            admission.admit(n * TICK).end()
            count += n >= 50
    assert admission.is_overloaded
    assert 50 * 40 * 0.5 < count < 50 * 40


POST = b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


class Protocol(asyncio.Protocol):
    """Answers whatever comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
        transport.close()


@contextmanager
def connected(count: int) -> Iterator[tuple[Acceptor, list[socket.socket]]]:
    """Connections in the queue of the kernel."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200))
        listening.setblocking(False)
        clients = [stack.enter_context(socket.create_connection(listening.getsockname())) for _ in range(count)]
        for client in clients:
            client.setblocking(False)
        acceptor = Acceptor([listening])
        stack.callback(acceptor.close)
        yield acceptor, clients


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
def test_waiting_connections_are_rejected_if_they_start_a_turn(sent: bytes, status: bytes) -> None:
    async def test() -> None:
        with connected(1) as (acceptor, (client,)):
            assert acceptor.backlog == 1
            loop = asyncio.get_running_loop()
            client.sendall(sent)
            assert acceptor.accept(loop, Protocol, 0) == (status == b"503")
            acceptor.answer_rejected(math.inf)
            answer = await loop.sock_recv(client, 1000)
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert (b"retry-after: 2\r\n" in answer) is (status == b"503")
            assert acceptor.backlog == 0

    asyncio.run(test())


def test_a_connection_whose_request_is_late_is_looked_at_once_more_and_then_served() -> None:
    async def test() -> None:
        with connected(2) as (acceptor, (early, late)):
            loop = asyncio.get_running_loop()
            assert acceptor.accept(loop, Protocol, 0) == 0
            early.sendall(POST)
            assert acceptor.accept(loop, Protocol, 0) == 1
            late.sendall(POST)
            assert (await loop.sock_recv(late, 1000)).startswith(b"HTTP/1.1 200")
            acceptor.close()
            assert (await loop.sock_recv(early, 1000)).startswith(b"HTTP/1.1 503")

    asyncio.run(test())


def test_rejections_are_answered_few_at_a_time_after_as_many_turns_as_may_start() -> None:
    async def test() -> None:
        with connected(3 + 2 * ANSWERS_PER_ROUND) as (acceptor, clients):
            loop = asyncio.get_running_loop()
            for client in clients:
                client.sendall(POST)
            assert acceptor.accept(loop, Protocol, 3) == 2 * ANSWERS_PER_ROUND
            for client in clients[:3]:
                assert (await loop.sock_recv(client, 1000)).startswith(b"HTTP/1.1 200")
            acceptor.answer_rejected(math.inf)
            for client in clients[3 : 3 + ANSWERS_PER_ROUND]:
                assert (await loop.sock_recv(client, 1000)).startswith(b"HTTP/1.1 503")
            with pytest.raises(BlockingIOError):
                clients[-1].recv(1000)

    asyncio.run(test())
