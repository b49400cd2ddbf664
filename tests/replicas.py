"""Replicas: processes of `brain serve` on one store, as on several machines.

Each has an address of its own in 127/8, which Linux answers, and folders of its own for data and temporary files.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from brain_servers import Process

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


def replica(folder: Path, number: int, env: Mapping[str, str], *arguments: str, port: int = 0) -> Process:
    """Start a replica; `env` has the store, and keys, which addresses other than 127.0.0.1 require."""
    own = folder / f"replica-{number}"
    own.mkdir(exist_ok=True)
    place = {
        "BRAIN_HOST": ADDRESSES[number],
        "BRAIN_ADVERTISE": f"{ADDRESSES[number]}:0",
        "XDG_DATA_HOME": str(own),
        "TMPDIR": str(own),
    }
    return Process("serve", "--port", str(port), *arguments, env={**place, **env}, cwd=own)


@contextmanager
def replicas(folder: Path, envs: Sequence[Mapping[str, str]]) -> Iterator[list[str]]:
    """Run replicas; yield their URLs."""
    with ExitStack() as stack:
        running = [stack.enter_context(replica(folder, number, env)) for number, env in enumerate(envs)]
        yield [one.url() for one in running]
