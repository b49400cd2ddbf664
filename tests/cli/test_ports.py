"""The ports of `brain serve`: its listeners, and who uses a busy port."""

import socket
from threading import Thread

import pytest

from brain.cli.ports import describe_port_user
from brain.cli.serve import listen
from brain.settings import read


def test_every_address_of_a_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = socket.SOCK_STREAM, 6, ""
    addresses = [
        (socket.AF_INET, *stream, ("127.0.0.1", 0)),
        (socket.AF_INET, *stream, ("192.0.2.1", 0)),  # no address of this machine
        (socket.AF_INET, *stream, ("127.0.0.2", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: addresses)
    with listen(read({"BRAIN_HOST": "localhost", "BRAIN_PORT": "0"})) as listeners:
        names = [one.getsockname() for one in listeners]
    assert [address for address, _ in names] == ["127.0.0.1", "127.0.0.2"]
    assert len({port for _, port in names}) == 1


def test_a_port_of_a_service_without_http() -> None:
    def greet(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"220 mail.example ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=greet, args=(listener,)).start()
        assert not describe_port_user("127.0.0.1", listener.getsockname()[1]).startswith("Brain")
