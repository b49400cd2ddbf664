"""Executes one call of one specialist. Every outcome is a value: nothing that a specialist does ends the turn.

A specialist may raise, hang, ignore a cancellation or return what cannot be shown. The details go to the log; the model
and the client get fixed sentences.
"""

import asyncio
import copy
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, overload

import msgspec

from brain.concurrency import NoThread, run_in_thread
from brain.errors import Refused
from brain.events import CallCode, Citation
from brain.markers.neutralize import neutralize
from brain.plugins.context import Progress, Result
from brain.plugins.schema import find_problems, inject
from brain.plugins.specialist import Specialist
from brain.text import replace_surrogates, strip_invisible

MAX_CITATIONS = 50
CANCEL_SECONDS = 0.05
"""How long a cancelled specialist may take to clean up; after that, it is abandoned."""
TASK_NAME = "specialist "
"""Prefix of the names of tasks that run a specialist's code."""
MAX_ABANDONED = 8
"""Abandoned calls of one specialist that may still run; while they do, no further call starts."""

_MAX_LINE = 500
_MAX_URL = 2000
_MAX_PROGRESS = 300

_abandoned: dict[asyncio.Future[Any], str] = {}
"""Tasks that were cancelled and have not ended yet, with the names of their specialists."""

log = logging.getLogger("brain")

T = TypeVar("T")
OnProgress = Callable[[Progress], None]
Dependencies = Mapping[type, Any]
"""Values for keyword-only parameters, by type."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call that succeeded; `more` and `outside` are those of its `Result`."""

    text: str
    citations: tuple[Citation, ...] = ()
    more: Callable[[int], str] | None = None
    outside: bool | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed; people read `reason`, the model reads `reason; advice`."""

    code: CallCode
    reason: str
    advice: str = ""


Outcome = CallResult | Failure

FAILED = Failure("failed", "the specialist failed", "continue without it or try other parameters")
BUSY = Failure("unavailable", "too many earlier calls are still running", "continue without it")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Checked parameters, as a specialist's function takes them."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]


def prepare(specialist: Specialist[..., Any], params: Mapping[str, Any]) -> Arguments | Failure:
    """Check and convert the parameters of a call; a failure names every problem.

    The arguments are a copy, so a specialist that changes them does not change the call.
    """
    try:
        problem = "; ".join(find_problems(specialist.validator, params))
        if not problem:
            params = copy.deepcopy(params)
            if specialist.struct is None:
                return Arguments((dict(params),), {})
            struct = msgspec.convert(params, specialist.struct)
            return Arguments((), {name: getattr(struct, name) for name in struct.__struct_fields__})
    except msgspec.ValidationError as error:
        problem = str(error)
    except BaseException:  # classes of parameters are the specialist's code, too
        log.warning("specialist %s: its parameters could not be made", specialist.name, exc_info=True)
        return FAILED
    return Failure("invalid_params", problem, "correct the parameters and call again")


def read_result(value: Any) -> CallResult:
    """Make a result of what a specialist returned.

    Raises:
        Exception: of any kind, when the value cannot be shown.
    """
    if isinstance(value, Result):
        citations = []
        for citation in islice(value.citations, MAX_CITATIONS):
            if not isinstance(citation, Citation):
                raise TypeError(f"a citation is a {type(citation).__name__}")
            url = plain_text(citation.url) if citation.url else ""
            is_link = url.startswith(("https://", "http://")) and len(url) <= _MAX_URL  # half a URL leads elsewhere
            id_, title = neutralize(one_line(citation.id)), neutralize(one_line(citation.title))
            citations.append(Citation(id_, title, url if is_link else None))
        more = None if value.more is None else _guard_more(value.more)
        outside = None if value.outside is None else value.outside is not False
        return CallResult(plain_text(value.text), tuple(citations), more, outside)
    if value is None:
        raise TypeError("it returned nothing")
    return CallResult(plain_text(value if isinstance(value, str) else msgspec.json.encode(value).decode()))


@overload
async def execute(
    specialist: Specialist[..., Any],
    arguments: Arguments,
    dependencies: Dependencies,
    on_progress: OnProgress,
    *,
    timeout: float,
) -> Outcome: ...
@overload
async def execute(
    specialist: Specialist[..., Any],
    arguments: Arguments,
    dependencies: Dependencies,
    on_progress: OnProgress,
    *,
    timeout: float,
    read: Callable[[Any], T],
) -> T | Failure: ...
async def execute(
    specialist: Specialist[..., Any],
    arguments: Arguments,
    dependencies: Dependencies,
    on_progress: OnProgress,
    *,
    timeout: float,
    read: Callable[[Any], Any] = read_result,
) -> Any:
    """Run a prepared call.

    Returns within `CANCEL_SECONDS` of its time limit or its cancellation, whatever the specialist does.

    Args:
        dependencies: values for the keyword-only parameters.
        on_progress: called on the event loop, until the call ends.
        timeout: seconds for the whole call; the specialist's own `idle_timeout` applies as well.
        read: makes the outcome of the returned value; what it raises is the specialist's failure.
    """
    if list(_abandoned.values()).count(specialist.name) >= MAX_ABANDONED:
        return BUSY
    now = asyncio.get_running_loop().time
    idle_timeout = math.inf if specialist.idle_timeout is None else specialist.idle_timeout
    hard_end, idle_end = now() + timeout, now() + idle_timeout
    has_ended = False

    def report(progress: Progress) -> None:
        nonlocal idle_end
        if not has_ended:
            idle_end = now() + idle_timeout
            on_progress(progress)

    invoking = _invoke(specialist, arguments, inject(specialist.injected, dependencies), report)
    task = asyncio.create_task(invoking, name=f"{TASK_NAME}{specialist.name}")
    try:
        while not task.done() and (remaining := min(hard_end, idle_end) - now()) > 0:
            await asyncio.wait({task}, timeout=remaining)
        is_late = not task.done()
    finally:
        has_ended = True
        if not task.done():
            _abandoned[task] = specialist.name
            task.add_done_callback(_drop_abandoned)
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
    if is_late:
        seconds = timeout if hard_end <= idle_end else idle_timeout
        unit = "second" if seconds == 1 else "seconds"
        return Failure("timeout", f"timed out after {seconds:g} {unit}", "ask for less or continue without it")
    try:
        try:
            return read(task.result())
        except Refused as refusal:
            texts = (refusal.reason, refusal.advice)
            return Failure("refused", *(plain_text(text) if isinstance(text, str) else "" for text in texts))
    except NoThread:
        log.warning("specialist %s: all its threads are taken by abandoned calls", specialist.name)
        return BUSY
    except BaseException:  # of a specialist's code; it ends the call, not the turn
        log.warning("specialist %s failed", specialist.name, exc_info=True)
        return FAILED


async def _invoke(
    specialist: Specialist[..., Any], arguments: Arguments, injected: Mapping[str, Any], on_progress: OnProgress
) -> Any:
    """Call the specialist's function; the value that it returns, or yields last."""
    function, last = specialist.function, None

    def take(item: Any) -> None:
        nonlocal last
        if isinstance(item, Progress):
            on_progress(_clean_progress(item))
        else:
            last = item

    def call() -> Any:
        return function(*arguments.positional, **arguments.named, **injected)

    try:
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            value = call()
        else:
            value = await run_in_thread(specialist.name, call, take)
        if inspect.isasyncgen(value):
            async with aclosing(value) as items:
                async for item in items:
                    take(item)
                    await asyncio.sleep(0)  # a generator that never waits must not hold the loop
            return last
        if inspect.isawaitable(value):
            value = await value
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"raised {error!r}") from error  # as itself, it would end the event loop
    return last if value is None else value


def _drop_abandoned(task: asyncio.Future[Any]) -> None:
    del _abandoned[task]
    if not task.cancelled():
        task.exception()  # marks it as retrieved, so asyncio does not warn


def _guard_more(more: Callable[[int], str]) -> Callable[[int], str]:
    """Wrap a specialist's `more`, so that it gives one short line and never raises."""

    def guarded(shown: int) -> str:
        try:
            return one_line(more(shown))
        except Exception:
            log.warning("a result could not say how to get more of it", exc_info=True)
            return ""

    return guarded


def plain_text(text: Any) -> str:
    """Return a well-formed string of exactly the type `str`: methods of a subclass could do anything later.

    Raises:
        TypeError: for anything but a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"its text is a {type(text).__name__}")
    return replace_surrogates(str.__str__(text))


def one_line(text: Any, length: int = _MAX_LINE) -> str:
    """Return a visible text on one line, cut to a length in characters."""
    return " ".join(strip_invisible(plain_text(text)).split())[:length]


def _clean_progress(progress: Progress) -> Progress:
    fraction = progress.fraction
    is_number = isinstance(fraction, int | float) and not math.isnan(fraction)
    return Progress(one_line(progress.text, _MAX_PROGRESS), min(1.0, max(0.0, float(fraction))) if is_number else None)  # type: ignore[arg-type]
