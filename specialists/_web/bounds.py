"""Built in: what a child process of `web` may take. It imports nothing of Brain."""

import contextlib

MEMORY_MOST = 1 << 30
CPU_SECONDS_MOST = 20
"""The end of a process whose parent went away."""


def bound(memory: int = MEMORY_MOST) -> None:
    """Limits what this process may take, where the system knows such limits."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MOST, CPU_SECONDS_MOST))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
