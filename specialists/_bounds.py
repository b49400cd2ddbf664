"""Built in: what a process that works on foreign bytes may take. It imports nothing of Brain."""

import contextlib

CPU_SECONDS = 20
"""The end of a process whose parent went away."""
MEMORY = 1 << 30


def bounded(cpu_seconds: int = CPU_SECONDS, memory: int | None = MEMORY) -> None:
    """Limits this process, where the system knows such limits; no memory for one that maps large files."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
