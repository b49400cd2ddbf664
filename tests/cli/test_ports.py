"""Who uses a port."""

import socket
from threading import Thread

from brain.cli.ports import describe_port_user


def test_a_port_of_a_service_without_http() -> None:
    def greet(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"220 mail.example ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=greet, args=(listener,)).start()
        assert not describe_port_user("127.0.0.1", listener.getsockname()[1]).startswith("Brain")
