"""The registry of specialists. Discovery rejects a bad specialist and registers the others."""

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator, Mapping, ValuesView
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

from brain.concurrency import call_in_thread
from brain.errors import RegistrationError
from brain.installation import has_extra, install_command
from brain.plugins import specialist_settings
from brain.plugins.context import Context, Result
from brain.plugins.discovery import Package, find_sources
from brain.plugins.schema import Schema, find_injected, find_uninjectable, inject
from brain.plugins.specialist import Options, Specialist, from_schema
from brain.settings import Settings
from brain.text import suggest

if TYPE_CHECKING:
    from brain.net.fetch import Fetch

ERASURE_SECONDS = 30.0
"""Time for one specialist to erase its data of a user."""
MAX_CACHED = 256
MAX_EXAMPLES_SHOWN = 10
CacheKey = tuple[str | None, Hashable]
"""The user and the call of a cached result."""
log = logging.getLogger("brain")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A specialist that discovery did not register, and the reason."""

    name: str
    origin: str
    reason: str

    def describe(self) -> str:
        """Return a line for people."""
        return f"Rejected: {self.name} from {self.origin}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered specialist.

    Attributes:
        unavailable_reason: For the operator: why it cannot run, and the remedy. None if it can.
        public_reason: Why it cannot run, for clients: without settings, commands and paths of the server.
    """

    specialist: Specialist[..., Any]
    origin: str
    settings: Any = None
    unavailable_reason: str | None = None
    version: str = ""
    public_reason: str = ""
    is_allowed: bool = True

    @property
    def dependencies(self) -> Mapping[type, Any]:
        """The specialist's settings, by type."""
        return {} if self.settings is None else {type(self.settings): self.settings}

    @property
    def approval(self) -> str:
        """When a call needs approval: `never`, `always`, or `depends` (on the parameters)."""
        approval = self.specialist.approval
        return approval if isinstance(approval, str) else "depends"

    def describe(self) -> dict[str, Any]:
        """Return a description for clients, as JSON values."""
        one = self.specialist
        description = {
            "name": one.name,
            "description": one.description,
            "version": self.version,
            "parameters": one.parameters,
            "examples": one.examples[:MAX_EXAMPLES_SHOWN],
            "tags": one.tags,
            "timeout": one.timeout,
            "auth": one.requires_user,
            "approval": self.approval,
            "read_only": one.read_only is True,
            "outside": one.outside,
            "activates_on": sorted(one.activates_on),
            "origin": self.origin,
            "available": self.unavailable_reason is None,
        }
        if self.unavailable_reason is not None:
            description["unavailable_reason"] = self.public_reason
        return description


class Registry(Mapping[str, Entry]):
    """The specialists of a process, sorted by name.

    Args:
        settings: The specialists' settings, and the operator's list of allowed names.
        provide: Objects for keyword-only parameters of their types.
        now: Clock for cached results, in seconds.

    Attributes:
        call_seconds: Default time limit of a call, in seconds.
        dependencies: The objects of `provide`, by type.
        refused: Specialists that discovery did not register.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        provide: Iterable[Any] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or Settings()
        self._entries: dict[str, Entry] = {}
        self._usable: tuple[Specialist[..., Any], ...] = ()
        self._cached: OrderedDict[CacheKey, tuple[float, Result]] = OrderedDict()
        self._variables: dict[str, set[str]] = {}  # environment variables by specialist, including rejected ones
        self._now = now
        self.call_seconds = self._settings.call_seconds
        self.dependencies: Mapping[type, Any] = {type(value): value for value in provide}
        self.refused: list[Refusal] = []

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> ValuesView[Entry]:
        return self._entries.values()

    @cached_property
    def fetch(self) -> "Fetch":
        """The HTTP client for public hosts that all specialists share."""
        from brain.net.fetch import Fetch  # imports httpx, which programs without specialist calls do not need

        return Fetch(frozenset(self._settings.fetch_hosts))

    def usable(self, names: Collection[str] | None = None) -> tuple[Specialist[..., Any], ...]:
        """Return the specialists that can run: all, or those with these names."""
        return self._usable if names is None else tuple(one for one in self._usable if one.name in names)

    def _set(self, name: str, entry: Entry) -> None:
        self._entries = dict(sorted({**self._entries, name: entry}.items()))
        entries = [one for one in self.values() if one.is_allowed and one.unavailable_reason is None]
        self._usable = tuple(one.specialist for one in entries)

    def add(self, specialist: Specialist[..., Any], origin: str = "the program", *, package: Package = None) -> None:
        """Register one specialist.

        Args:
            origin: What provides it, for people.
            package: The installed package that provides it, if any.

        Raises:
            RegistrationError: The message has the name and the reason. For a taken name, it has both origins.
        """
        name, needs = specialist.name, specialist.needs
        if name in self._entries:
            raise RegistrationError(f"specialist {name} from {origin}: {self[name].origin} already provides this name")
        self._variables[name] = specialist_settings.environment_variables(specialist)
        if isinstance(needs, str) and package is None:
            raise RegistrationError(
                f"specialist {name} from {origin}: needs={needs!r} names an extra, but no package provides the "
                "specialist; use a function that returns what is missing"
            )
        own = () if specialist.settings is None else (specialist.settings,)
        for label, function, kinds in (
            ("", specialist.function, (*self.dependencies, *own, Context)),
            ("preview: ", specialist.preview, (*self.dependencies, *own, Context)),
            ("needs: ", needs, own),
            ("lifespan: ", specialist.lifespan, own),
            ("health: ", specialist.health, (*own, Context)),
            ("forget: ", specialist.forget, own),
            ("assist: ", specialist.assist, ()),
        ):
            if callable(function) and (missing := find_uninjectable(find_injected(function), kinds)):
                raise RegistrationError(f"specialist {name} from {origin}: {label}nothing provides {missing}")
        version = specialist.version or (package.version if package else "")
        own_settings = specialist_settings.read_settings(specialist, self._settings)
        allowed = self._settings.allowed_specialists
        entry = Entry(specialist, origin, own_settings, None, version, is_allowed=not allowed or name in allowed)
        if callable(needs):
            try:
                reason = needs(**inject(find_injected(needs), entry.dependencies))
            except Exception:
                log.warning("specialist %s: its requirements could not be checked", name, exc_info=True)
                reason = "its requirements could not be checked; the log has the error"
            entry = replace(entry, unavailable_reason=reason, public_reason="not set up on this server")
        elif needs is not None and package is not None and not has_extra(package, needs):
            reason = f"the extra {needs} is not installed: {install_command(needs, package.name)}"
            entry = replace(entry, unavailable_reason=reason, public_reason="not installed on this server")
        self._set(name, entry)

    def register(
        self, name: str, description: str, parameters: Schema, handler: Any, **options: Unpack[Options]
    ) -> None:
        """Register a tool with a JSON Schema. Brain calls `handler` with the parameters as one mapping.

        Raises:
            RegistrationError: As for `add`.
        """
        self.add(from_schema(name, description, parameters, handler, options))

    def settings_table(self) -> str:
        """Return the specialists' settings, as more rows of `settings.table()`."""
        rows = [row for entry in self.values() for row in specialist_settings.list_settings(entry.specialist)]
        return "\n".join(f"| {row.key} | {row.default} | {row.meaning} |" for row in rows)

    def discover(self) -> "Registry":
        """Register the installed specialists and those in the operator's directory. Errors go to `refused`."""
        for source in find_sources(self._settings.specialists_folder):
            try:
                specialists = source.load_specialists()
            except RegistrationError as error:
                self._refuse(source.name, source.origin, error)
                continue
            for specialist in specialists:
                try:
                    self.add(specialist, source.origin, package=source.package)
                except RegistrationError as error:
                    self._refuse(specialist.name, source.origin, error)
        for name in sorted(set(self._settings.specialist_settings) - set(self._variables)):
            log.warning("settings for specialist %s, which is not registered.%s", name, suggest(name, self._variables))
        known = set().union(*self._variables.values())
        for key in sorted(set(self._settings.specialist_environ) - known):
            log.warning("%s is not a setting of any registered specialist.%s", key, suggest(key, known))
        return self

    def _refuse(self, name: str, origin: str, error: RegistrationError) -> None:
        """Add a refusal, whose reason does not repeat the name and the origin."""
        prefix = rf"specialist {re.escape(name)}(?: from {re.escape(origin)})?: "
        self.refused.append(Refusal(name, origin, re.sub(rf"\A{prefix}", "", str(error))))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the lifespans of all specialists. A specialist that fails to start becomes unavailable."""
        async with AsyncExitStack() as stack:
            for name, entry in self._entries.items():
                lifespan = entry.specialist.lifespan
                if lifespan is None or entry.unavailable_reason is not None:
                    continue
                try:
                    manager = lifespan(**inject(find_injected(lifespan), entry.dependencies))
                    await manager.__aenter__()
                except Exception:
                    log.warning("specialist %s failed to start", name, exc_info=True)
                    reason = "it failed to start; the log has the error"
                    self._set(name, replace(entry, unavailable_reason=reason, public_reason="failed to start"))
                else:
                    stack.push_async_callback(_exit_lifespan, name, manager)
            yield

    def find_cached(self, key: CacheKey) -> Result | None:
        """Return a cached result that has not expired."""
        expires_at, result = self._cached.get(key, (-float("inf"), None))
        return result if self._now() < expires_at else None

    def cache(self, key: CacheKey, result: Result, seconds: float) -> None:
        """Cache a result. Over `MAX_CACHED`, drop the oldest."""
        self._cached[key] = (self._now() + seconds, result)
        self._cached.move_to_end(key)
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)

    async def erase_user_data(self, user: str, conversation_id: str | None = None) -> list[str]:
        """Call the `forget` function of every specialist, for one conversation of the user or for all data.

        Returns:
            The names of specialists that failed. The log has the errors.
        """
        for key in [key for key in self._cached if key[0] == user]:
            del self._cached[key]
        failed = []
        for name, entry in self.items():
            forget = entry.specialist.forget
            if forget is None:
                continue
            erase = partial(forget, user, conversation_id, **inject(find_injected(forget), entry.dependencies))
            try:
                async with asyncio.timeout(ERASURE_SECONDS):
                    await call_in_thread(name, erase)
            except Exception:
                log.warning("specialist %s could not erase its data", name, exc_info=True)
                failed.append(name)
        return failed


async def _exit_lifespan(name: str, manager: AbstractAsyncContextManager[Any]) -> None:
    """Exit a lifespan. It gets no exception, because it must not swallow the server's."""
    try:
        await manager.__aexit__(None, None, None)
    except Exception:
        log.warning("specialist %s failed to stop", name, exc_info=True)
