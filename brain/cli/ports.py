"""Find out which process uses a port."""

import http.client
import json
import os
import urllib.request
from contextlib import suppress
from pathlib import Path

ANSWER_SECONDS = 1.0
LISTENING = "0A"
"""The state of a socket in `/proc/net/tcp`."""


def describe_port_user(host: str, port: int) -> str:
    """Return who listens on a port: Brain or another program, with its process ID where the system shows it."""
    pid = _find_pid(port)
    name = "another program"
    if _is_brain(host, port):
        name = "Brain"
    elif pid is not None:
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
    return name if pid is None else f"{name} (process {pid})"


def _is_brain(host: str, port: int) -> bool:
    """Ask the port for Brain's readiness, which needs no API key."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://{f'[{address}]' if ':' in address else address}:{port}/readyz"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _AnyStatus())
    try:
        with opener.open(url, timeout=ANSWER_SECONDS) as response:
            answer = json.loads(response.read(10_000))
    except (OSError, ValueError, http.client.HTTPException):  # another program, which may not speak HTTP
        return False
    return isinstance(answer, dict) and {"status", "model", "specialists"} <= set(answer)


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Returns a response whatever its status."""

    def http_response(self, request: urllib.request.Request, response: object) -> object:
        return response


def _find_pid(port: int) -> int | None:
    """Return the process that listens on a port; None where `/proc` does not show it, as on other systems."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    with suppress(OSError):
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()) if inodes else ():
            with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:  # of another user, or gone
                if any(os.readlink(entry.path) in inodes for entry in entries):
                    return pid
    return None
