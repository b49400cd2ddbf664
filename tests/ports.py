"""Free ports that stay free, and URLs with another port."""

import re
import socket


def reserve_port() -> tuple[socket.socket, int]:
    """Find a free port of 127.0.0.1 that no other program gets while the socket is open.

    A server that sets SO_REUSEADDR, as most do, can listen on it, stop, and listen again.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved, reserved.getsockname()[1]


def port_of(url: str) -> int:
    found = re.search(r":(\d+)(?=/|$)", url)
    assert found is not None
    return int(found[1])


def with_port(url: str, port: int) -> str:
    return re.sub(r":\d+(?=/|$)", f":{port}", url, count=1)
