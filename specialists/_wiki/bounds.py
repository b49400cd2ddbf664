"""Built in: what the processes that read pages and files have in common; it imports little, so they start fast."""

import contextlib
import json
import sys
from typing import Any


def bounded(cpu_seconds: int, memory: int | None = None) -> None:
    """Limits what this process may take, where the system knows such limits."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def say(value: Any) -> None:
    """Hands a value to the process that asked."""
    sys.stdout.write(json.dumps(value))
