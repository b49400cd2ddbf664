"""When a server rejects further turns: tables of times, no clock. And the connections that it rejects by then."""

import asyncio
import math
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from brain.server.admission import ACCEPT_LIMIT, CALM_TURNS, REJECT_SECONDS, WAITING_TURNS, Acceptor, Admission

TICK = 0.1


def pass_time(admission: Admission, seconds: float, lag: float = 0.0, unaccepted: int = 0) -> bool:
    """Whether the server is overloaded afterwards."""
    for _ in range(round(seconds / TICK)):
        admission.measure(TICK + lag, lag, unaccepted)
    return admission.is_overloaded


def start(admission: Admission, count: int) -> None:
    """Let turns wait and start."""
    for _ in range(count):
        with admission.waiting_turn():
            pass


def test_a_thousand_turns_can_wait_and_no_more() -> None:
    admission = Admission()
    with ExitStack() as stack:
        for _ in range(WAITING_TURNS - 3):
            stack.enter_context(admission.waiting_turn())
        admission.measure(TICK, 0.0, 3)
        assert (admission.is_overloaded, admission.capacity) == (False, 3)
        admission.measure(TICK, 0.0, 4)
        assert (admission.is_overloaded, admission.capacity) == (True, 3)
        for _ in range(3):
            stack.enter_context(admission.waiting_turn())
        assert admission.capacity == 0
    assert not pass_time(admission, 2)
    assert admission.capacity == WAITING_TURNS


@pytest.mark.parametrize(
    ("lag", "unaccepted", "is_overloaded"),
    [(0.0, 0, False), (0.05, WAITING_TURNS, False), (0.0, WAITING_TURNS + 1, True), (0.3, 0, True), (0.2, 0, False)],
)
def test_lag_and_a_long_queue_are_overload(lag: float, unaccepted: int, is_overloaded: bool) -> None:
    assert pass_time(Admission(), 3, lag, unaccepted) is is_overloaded


def test_an_overload_ends_after_a_calm_second_and_not_before() -> None:
    admission = Admission()
    assert [pass_time(admission, *row) for row in ((3, 0.5), (3, 0.2), (1, 0.0), (3, 0.0))] == [True, True, True, False]
    admission.measure(3600.0, 3600.0, 0)  # the machine was suspended
    assert admission.is_overloaded
    assert not pass_time(admission, 6)


@pytest.mark.parametrize(("lag", "least", "most"), [(0.3, 20, 39), (0.0, CALM_TURNS, CALM_TURNS)])
def test_an_overloaded_server_accepts_fewer_turns_than_end_while_it_lags(lag: float, least: int, most: int) -> None:
    admission = Admission()
    admission.measure(TICK, 0.0, WAITING_TURNS + 1)
    start(admission, WAITING_TURNS)
    assert (admission.is_overloaded, admission.capacity) == (True, 0)
    counts = []
    for _ in range(50):
        for _ in range(40):
            admission.count_end()
        admission.measure(TICK + lag, lag, WAITING_TURNS)
        counts.append(admission.capacity)
        start(admission, admission.capacity)
    assert admission.is_overloaded
    assert least <= sum(counts) / len(counts) <= most


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
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=ACCEPT_LIMIT + 1))
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


def test_a_connection_whose_request_is_late_is_served() -> None:
    async def test() -> None:
        with connected(1) as (acceptor, (client,)):
            loop = asyncio.get_running_loop()
            assert acceptor.accept(loop, Protocol, 0) == 0
            assert (await loop.sock_recv(client, 1000)).startswith(b"HTTP/1.1 200")

    asyncio.run(test())


def test_after_as_many_turns_as_may_start_requests_are_rejected_a_while_later() -> None:
    async def test() -> None:
        with connected(ACCEPT_LIMIT + 1) as (acceptor, clients):
            loop = asyncio.get_running_loop()
            for client in clients:
                client.sendall(POST)
            began = loop.time()
            assert acceptor.accept(loop, Protocol, 3) == ACCEPT_LIMIT - 3
            assert acceptor.backlog == 1
            for client in clients[:3]:
                assert (await loop.sock_recv(client, 1000)).startswith(b"HTTP/1.1 200")
            acceptor.answer_rejected(began + REJECT_SECONDS - 0.001)
            with pytest.raises(BlockingIOError):
                clients[3].recv(1000)
            acceptor.close()
            for client in clients[3:ACCEPT_LIMIT]:
                assert (await loop.sock_recv(client, 1000)).startswith(b"HTTP/1.1 503")

    asyncio.run(test())
