"""Runs one call of one specialist, and turns whatever comes of it into an answer or a failure.

A stranger's function is bounded in time, and nothing it does ends the turn: not raising, hanging, ignoring a
cancellation, or returning what cannot be shown. What went wrong is logged; the model and the client get fixed words.
"""

import asyncio
import copy
import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import msgspec

from brain.concurrency import NoThread, run_in_thread
from brain.errors import Refused
from brain.events import CallCode, Citation
from brain.markers.neutralize import neutralize
from brain.plugins.context import Progress, Result
from brain.plugins.schema import inject, problems
from brain.plugins.specialist import Specialist
from brain.text import replace_surrogates, strip_invisible

CITATIONS_MOST = 50
LETTING_GO_SECONDS = 0.05
TASK_NAME = "specialist "
"""How the names of tasks begin in which a specialist's code runs."""
GIVEN_UP_MOST = 8
"""Calls of one specialist that were given up and do not listen; more are not begun."""

_CITATION_LENGTH = 500
_URL_LENGTH = 2000
_PROGRESS_LENGTH = 300

_given_up: dict[asyncio.Future[Any], str] = {}
"""Tasks that did not end when they were cancelled, with the names of their specialists."""

log = logging.getLogger("brain")

T = TypeVar("T")
OnProgress = Callable[[Progress], None]
Dependencies = Mapping[type, Any]
"""What keyword-only parameters are filled with, by type."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A call that succeeded; `more` and `outside` are those of its `Result`."""

    text: str
    citations: tuple[Citation, ...] = ()
    more: Callable[[int], str] | None = None
    outside: bool | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that did not; `reason` tells the model what it can do about it."""

    code: CallCode
    reason: str


Outcome = Answer | Failure

FAILED = Failure("failed", "it ran into an error of its own; go on without it, or try other parameters")
BUSY = Failure("unavailable", "too many earlier calls of it are still running; go on without it")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Checked parameters, as a specialist's function takes them."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]


def prepare(specialist: Specialist[..., Any], params: Mapping[str, Any]) -> Arguments | Failure:
    """Checks the parameters; a failure names every problem."""
    try:
        return _checked(specialist, params)
    except BaseException:  # a stranger's classes of parameters are a stranger's code, as its function is
        log.warning("specialist %s: its parameters could not be made", specialist.name, exc_info=True)
        return FAILED


def _checked(specialist: Specialist[..., Any], params: Mapping[str, Any]) -> Arguments | Failure:
    found = problems(specialist.validator, params)
    if found:
        return _invalid("; ".join(found))
    params = copy.deepcopy(params)  # what a stranger does to its parameters does not change what was asked
    if specialist.struct is None:
        return Arguments((dict(params),), {})
    try:
        struct = msgspec.convert(params, specialist.struct)
    except msgspec.ValidationError as error:
        return _invalid(str(error))
    return Arguments((), {name: getattr(struct, name) for name in struct.__struct_fields__})


def _invalid(problem: str) -> Failure:
    return Failure("invalid_params", f"{problem}; correct the parameters and ask again")


async def run(
    specialist: Specialist[..., Any],
    arguments: Arguments,
    provided: Dependencies,
    on_progress: OnProgress,
    *,
    timeout: float,
) -> Outcome:
    """Runs the call that was prepared, for at most `timeout` seconds.

    Returns within `LETTING_GO_SECONDS` of a cancellation, whatever the specialist does about it.
    """
    return await bounded(specialist, arguments, provided, on_progress, _answer, timeout=timeout)


async def bounded(
    specialist: Specialist[..., Any],
    arguments: Arguments,
    provided: Dependencies,
    on_progress: OnProgress,
    read: Callable[[Any], T],
    *,
    timeout: float,
) -> T | Failure:
    """The same, with what is read of the value that the specialist's function returns; `read` may raise."""
    if list(_given_up.values()).count(specialist.name) >= GIVEN_UP_MOST:
        return BUSY
    injected = inject(specialist.injected, provided)
    over = False
    watch = _Watch(specialist.idle_timeout, timeout)

    def tell(progress: Progress) -> None:
        if not over:
            watch.touch()
            on_progress(progress)

    task = asyncio.create_task(_value(specialist, arguments, injected, tell), name=f"{TASK_NAME}{specialist.name}")
    try:
        done_in_time = await watch.wait(task)
    finally:
        over = True
        if not task.done():
            await _let_go(task, specialist.name)
    if not done_in_time:
        longest = f"{watch.seconds:g} second{'' if watch.seconds == 1 else 's'}"
        return Failure("timeout", f"it took longer than {longest}; ask for less, or go on without it")
    return _outcome(specialist, task, read)


class _Watch:
    """Two clocks over one call: a hard one, and one that progress sets back."""

    def __init__(self, idle: float | None, hard: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._idle = idle
        self._hard = hard
        self._hard_end = self._clock() + hard
        self.seconds = hard
        self.touch()

    def touch(self) -> None:
        self._idle_end = self._clock() + self._idle if self._idle is not None else self._hard_end

    async def wait(self, task: asyncio.Future[Any]) -> bool:
        """Whether the task was done before either clock ran out."""
        while not task.done():
            left = min(self._hard_end, self._idle_end) - self._clock()
            if left <= 0:
                self.seconds = self._hard if self._hard_end <= self._idle_end else self._idle or self._hard
                return False
            await asyncio.wait({task}, timeout=left)
        return True


async def _let_go(task: asyncio.Future[Any], name: str) -> None:
    """Cancels, and waits a moment for the task to clean up; one that does not listen is left to itself."""
    _given_up[task] = name
    task.add_done_callback(_ended)
    task.cancel()
    await asyncio.wait({task}, timeout=LETTING_GO_SECONDS)


def _ended(task: asyncio.Future[Any]) -> None:
    del _given_up[task]
    if not task.cancelled():
        task.exception()  # retrieved, so that nothing warns


async def _value(
    specialist: Specialist[..., Any],
    arguments: Arguments,
    injected: dict[str, Any],
    tell: OnProgress,
) -> Any:
    """What the specialist's function returns, or yields last."""
    function = specialist.function
    args, named = arguments.positional, arguments.named
    last: Any = None

    def take(item: Any) -> None:
        nonlocal last
        if isinstance(item, Progress):
            tell(_tame(item))
        else:
            last = item

    try:
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            value = function(*args, **named, **injected)
        else:
            value = await run_in_thread(specialist.name, lambda: function(*args, **named, **injected), take)
        if inspect.isasyncgen(value):
            async with aclosing(value) as items:
                async for item in items:
                    take(item)
                    await asyncio.sleep(0)  # so that one which never waits does not hold the loop
            return last
        if inspect.isawaitable(value):
            value = await value
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"raised {error!r}") from error  # which would end the loop, not the call
    return last if value is None else value


def _outcome(specialist: Specialist[..., Any], task: asyncio.Future[Any], read: Callable[[Any], T]) -> T | Failure:
    try:
        return _said(task, read)
    except NoThread:
        log.warning("specialist %s: all its threads are taken by calls that were given up", specialist.name)
        return BUSY
    except BaseException:  # whatever a stranger's function raises ends its call, not the turn
        log.warning("specialist %s failed", specialist.name, exc_info=True)
        return FAILED


def _said(task: asyncio.Future[Any], read: Callable[[Any], T]) -> T | Failure:
    try:
        return read(task.result())
    except Refused as refusal:
        return Failure("refused", plain_text(refusal.reason) if isinstance(refusal.reason, str) else "")


def _answer(value: Any) -> Answer:
    if isinstance(value, Result):
        citations = tuple(_citation(c) for c in islice(value.citations, CITATIONS_MOST))
        more = _more(value.more) if value.more is not None else None
        return Answer(
            plain_text(value.text), citations, more, None if value.outside is None else value.outside is not False
        )
    if isinstance(value, str):
        return Answer(plain_text(value))
    if value is None:
        raise TypeError("it returned nothing")
    return Answer(plain_text(msgspec.json.encode(value).decode()))


def _more(said: Callable[[int], str]) -> Callable[[int], str]:
    """The same, of which nothing but a short line can come."""

    def more(shown: int) -> str:
        try:
            return _line(said(shown))
        except Exception:
            log.warning("a result could not say how to get more of it", exc_info=True)
            return ""

    return more


def plain_text(text: Any) -> str:
    """A string that is one and no subclass of a stranger's, whose methods could do anything later."""
    if not isinstance(text, str):
        raise TypeError(f"its text is a {type(text).__name__}")
    return replace_surrogates(str.__str__(text))


def _citation(citation: Any) -> Citation:
    if not isinstance(citation, Citation):
        raise TypeError(f"a citation is a {type(citation).__name__}")
    return Citation(neutralize(_line(citation.id)), neutralize(_line(citation.title)), _url(citation.url))


def _url(url: str | None) -> str | None:
    """An address that can be shown as a link; half of one would lead elsewhere."""
    url = plain_text(url) if url else ""
    return url if url.startswith(("https://", "http://")) and len(url) <= _URL_LENGTH else None


def _line(text: str) -> str:
    return " ".join(strip_invisible(plain_text(text)).split())[:_CITATION_LENGTH]


def _tame(progress: Progress) -> Progress:
    fraction = progress.fraction
    if isinstance(fraction, int | float) and fraction == fraction:  # not NaN
        fraction = min(1.0, max(0.0, float(fraction)))
    else:
        fraction = None
    return Progress(" ".join(strip_invisible(plain_text(progress.text)).split())[:_PROGRESS_LENGTH], fraction)
