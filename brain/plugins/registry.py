"""Which specialists there are. A dict by name, filled from what is found; a bad one is refused."""

import importlib.metadata
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from brain.errors import RegistrationError
from brain.plugins import specialist_settings
from brain.plugins.context import Context
from brain.plugins.discovery import Package, Source, sources
from brain.plugins.executor import Answer
from brain.plugins.schema import Injected, Schema, find_injected, find_uninjectable, inject
from brain.plugins.specialist import Options, Specialist, from_schema
from brain.settings import Settings

if TYPE_CHECKING:
    from brain.net.fetch import Fetch

ANSWERS_KEPT = 256
AnswerKey = tuple[str | None, Hashable]
"""Whose an answer is, and to what."""
log = logging.getLogger("brain")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A specialist that was not taken in, and why."""

    name: str
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered specialist: where it comes from, its settings, and why it cannot be used, if so.

    `version` is its own, else that of its package.
    """

    specialist: Specialist[..., Any]
    origin: str
    settings: Any = None
    unavailable_reason: str | None = None
    version: str = ""

    @property
    def dependencies(self) -> Mapping[type, Any]:
        """Its settings, for parameters of their type."""
        return {} if self.settings is None else {type(self.settings): self.settings}

    @property
    def approval(self) -> str:
        """Whether a person must agree to a call: `never`, `always`, or `depends` on its parameters."""
        approval = self.specialist.approval
        return approval if isinstance(approval, str) else "depends"

    def describe(self) -> dict[str, Any]:
        """All that clients may know of it, as JSON values."""
        one = self.specialist
        found = {
            "name": one.name,
            "description": one.description,
            "version": self.version,
            "parameters": one.parameters,
            "examples": one.examples,
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
        return found if self.unavailable_reason is None else {**found, "unavailable_reason": self.unavailable_reason}


class Registry(Mapping[str, Entry]):
    """The specialists by name, in the order of their names.

    Args:
        settings: where specialists find their own settings, and the operator's list of allowed names.
        provide: objects for keyword-only parameters of their types.
    """

    def __init__(self, settings: Settings | None = None, provide: Iterable[Any] = ()) -> None:
        self._settings = settings or Settings()
        self._entries: dict[str, Entry] = {}
        self._answers: OrderedDict[AnswerKey, tuple[float, Answer]] = OrderedDict()
        self._settable: dict[str, set[str]] = {}  # by specialist, refused ones too: the variables that it reads
        self.dependencies: Mapping[type, Any] = {type(value): value for value in provide}
        self.refused: list[Refusal] = []

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def is_allowed(self, name: str) -> bool:
        """Whether the operator lets this specialist be called."""
        return not self._settings.allowed_specialists or name in self._settings.allowed_specialists

    @cached_property
    def fetch(self) -> "Fetch":
        """The guarded way to the web, for all of them."""
        from brain.net.fetch import Fetch  # with httpx, which nobody pays for who calls no specialist

        return Fetch(frozenset(self._settings.fetch_hosts))

    @property
    def call_seconds(self) -> float:
        """How long a call may take whose specialist does not say."""
        return self._settings.call_seconds

    def usable(self, wanted: Iterable[str] | None = None) -> list[Specialist[..., Any]]:
        """Those that can be called now, of the wanted names or of all."""
        names = self if wanted is None else sorted(set(wanted) & set(self._entries))
        return [
            self[name].specialist for name in names if self.is_allowed(name) and self[name].unavailable_reason is None
        ]

    def add(self, specialist: Specialist[..., Any], origin: str = "the program", *, package: Package = None) -> None:
        """Takes in one specialist.

        Args:
            origin: where it comes from, in words.
            package: the installed one that brings it, if any.

        Raises:
            RegistrationError: naming it and the reason; for a taken name, both origins.
        """
        name = specialist.name
        if name in self._entries:
            raise RegistrationError(f"specialist {name} from {origin}: {self[name].origin} already brings this name")
        self._settable[name] = specialist_settings.variables(specialist)
        if isinstance(specialist.needs, str) and package is None:
            raise RegistrationError(
                f"specialist {name} from {origin}: needs names an extra of a package, and it comes with none: "
                "give a function that says what is missing"
            )
        self._check_injected(specialist, origin)
        version = specialist.version or (package.version if package else "")
        entry = Entry(specialist, origin, specialist_settings.read(specialist, self._settings), None, version)
        self._entries[name] = replace(entry, unavailable_reason=_missing(entry, package))

    def _check_injected(self, specialist: Specialist[..., Any], origin: str) -> None:
        """Refuses one that wants, for itself or for what is asked about it, what nothing provides."""
        own = () if specialist.settings is None else (specialist.settings,)
        functions = {
            "": (specialist.injected, (*self.dependencies, *own, Context)),
            "preview: ": (_injected(specialist.preview), (*self.dependencies, *own, Context)),
            "needs: ": (_injected(specialist.needs), own),
            "lifespan: ": (_injected(specialist.lifespan), own),
            "health: ": (_injected(specialist.health), (*own, Context)),
            "forget: ": (_injected(specialist.forget), own),
        }
        for what, (injected, kinds) in functions.items():
            lacking = find_uninjectable(injected, kinds)
            if lacking:
                raise RegistrationError(f"specialist {specialist.name} from {origin}: {what}nothing provides {lacking}")

    def register(
        self, name: str, description: str, parameters: Schema, handler: Any, **options: Unpack[Options]
    ) -> None:
        """Takes in a tool that brings its JSON Schema; `handler` is called with the parameters as one mapping.

        Raises:
            RegistrationError: as `add`.
        """
        self.add(from_schema(name, description, parameters, handler, options))

    def settings_table(self) -> str:
        """The settings that specialists declare, as further rows of `settings.table()`."""
        own = [setting for entry in self.values() for setting in specialist_settings.declared(entry.specialist)]
        return "\n".join(f"| {one.key} | {one.default} | {one.meaning} |" for one in own)

    def discover(self) -> "Registry":
        """Takes in what is installed, and what lies in the operator's folder. Never raises: see `refused`."""
        for source in sources(self._settings.specialists_folder):
            self._take(source)
        for name in sorted(set(self._settings.specialist_settings) - set(self._settable)):
            log.warning("settings for specialist %s, which is not there", name)
        known = set().union(*self._settable.values())
        for key in sorted(set(self._settings.specialist_environ) - known):
            log.warning("%s is no setting of a specialist that is there", key)
        return self

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Starts and stops the specialists that have a lifespan; one that cannot start is unavailable."""
        async with AsyncExitStack() as stack:
            for name, entry in self._entries.items():
                if entry.specialist.lifespan is not None and entry.unavailable_reason is None:
                    try:
                        life = entry.specialist.lifespan(
                            **inject(_injected(entry.specialist.lifespan), entry.dependencies)
                        )
                        await life.__aenter__()
                    except Exception:
                        log.warning("specialist %s could not start", name, exc_info=True)
                        self._entries[name] = replace(entry, unavailable_reason="it could not start")
                    else:
                        stack.push_async_callback(_stop, name, life)
            yield

    def find_cached(self, key: AnswerKey) -> Answer | None:
        """An answer kept under this key, if it may still be given."""
        until, answer = self._answers.get(key, (0.0, None))
        return answer if time.monotonic() < until else None

    def cache(self, key: AnswerKey, answer: Answer, seconds: float) -> None:
        """Keeps an answer for so long."""
        self._answers[key] = (time.monotonic() + seconds, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > ANSWERS_KEPT:
            self._answers.popitem(last=False)

    def drop_cached(self, user: str | None) -> None:
        """Forgets the answers that are kept for a user."""
        for key in [key for key in self._answers if key[0] == user]:
            del self._answers[key]

    def _take(self, source: Source) -> None:
        try:
            found = source.specialists()
        except RegistrationError as error:
            self.refused.append(Refusal(source.name, source.origin, str(error)))
            return
        for specialist in found:
            try:
                self.add(specialist, source.origin, package=source.package)
            except RegistrationError as error:
                self.refused.append(Refusal(specialist.name, source.origin, str(error)))


def _injected(function: Any) -> Mapping[str, Injected]:
    return find_injected(function) if callable(function) else {}


def _missing(entry: Entry, package: Package) -> str | None:
    """What a specialist lacks, in a sentence with the remedy; None when it lacks nothing."""
    specialist = entry.specialist
    if callable(specialist.needs):
        try:
            return specialist.needs(**inject(_injected(specialist.needs), entry.dependencies))
        except Exception:
            log.warning("specialist %s: what it needs could not be checked", specialist.name, exc_info=True)
            return "what it needs could not be checked"
    if specialist.needs is None or package is None:
        return None
    marker = re.compile(rf"""extra\s*==\s*['"]{re.escape(specialist.needs)}['"]""")
    for line in package.requires or ():
        if marker.search(line) and not _installed(line):
            return f"its extra is not installed: pip install '{package.name}[{specialist.needs}]'"
    return None


async def _stop(name: str, life: AbstractAsyncContextManager[Any]) -> None:
    try:
        await life.__aexit__(None, None, None)
    except Exception:
        log.warning("specialist %s could not stop", name, exc_info=True)


def _installed(requirement: str) -> bool:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    try:
        importlib.metadata.version(name[0] if name else requirement)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
