"""Executes one call of a specialist. Every outcome is a value, so a specialist cannot end the turn.

A specialist may raise, hang, ignore a cancellation or return an invalid value. The log gets the details; the model and
the client get fixed sentences.
"""

import asyncio
import copy
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from brain.concurrency import NoThread, run_in_thread
from brain.errors import Refused
from brain.events import CallCode, Citation
from brain.markers.neutralize import neutralize
from brain.plugins.context import Progress, Result
from brain.plugins.schema import find_problems, inject
from brain.plugins.specialist import Specialist
from brain.text import one_line, replace_surrogates

MAX_CITATIONS = 50
CANCEL_SECONDS = 0.05
"""Time for a cancelled specialist to clean up. After it, the call is abandoned."""
TASK_NAME = "specialist "
"""Prefix of the names of tasks that run a specialist's code."""
MAX_ABANDONED = 8
"""Limit of abandoned calls of one specialist that still run. At the limit, no further call starts."""

_MAX_LINE = 500
_MAX_URL = 2000
_MAX_PROGRESS = 300

_abandoned: dict[asyncio.Future[Any], str] = {}
"""Cancelled tasks that still run, with the names of their specialists."""

log = logging.getLogger("brain")

T = TypeVar("T")
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call. People read `reason`; the model reads `reason; advice`."""

    code: CallCode
    reason: str
    advice: str = ""


Outcome = Result | Failure

FAILED = Failure("failed", "the specialist failed", "continue without it or try other parameters")
NOT_STORED = Failure("unavailable", "the call could not be stored, so it did not start", "try again later")
BUSY = Failure("unavailable", "too many earlier calls are still running", "continue without it")


def bind(specialist: Specialist[..., Any], params: Mapping[str, Any]) -> Callable[..., Any] | Failure:
    """Return the specialist's function with checked and converted parameters. A failure names every problem.

    They are a copy, so a specialist cannot change the parameters of the call.
    """
    try:
        problem = ", ".join(find_problems(specialist.validator, params))
        if not problem:
            params = copy.deepcopy(params)
            if specialist.struct is None:
                return partial(specialist.function, dict(params))
            struct = msgspec.convert(params, specialist.struct)
            return partial(specialist.function, **{name: getattr(struct, name) for name in struct.__struct_fields__})
    except msgspec.ValidationError as error:
        problem = str(error)
    except BaseException:  # parameter classes are the specialist's code
        log.warning("specialist %s: its parameters could not be converted", specialist.name, exc_info=True)
        return FAILED
    return Failure("invalid_params", problem, "correct the parameters and call again")


def read_result(value: Any) -> Result:
    """Convert the return value of a specialist to a result of exact types, within limits."""
    if isinstance(value, Result):
        citations = []
        for citation in islice(value.citations, MAX_CITATIONS):
            if not isinstance(citation, Citation):
                raise TypeError(f"a citation must be a Citation, not a {type(citation).__name__}")
            url = plain_text(citation.url) if citation.url else ""
            is_link = url.startswith(("https://", "http://")) and len(url) <= _MAX_URL  # a cut URL has another target
            id_, title = neutralize(_clean_line(citation.id)), neutralize(_clean_line(citation.title))
            citations.append(Citation(id_, title, url if is_link else None))
        more = None if value.more is None else _guard_more(value.more)
        untrusted, private = (None if one is None else one is not False for one in (value.outside, value.private))
        return Result(plain_text(value.text), tuple(citations), None, more, untrusted, private)
    if value is None:
        raise TypeError("the specialist returned None")
    return Result(plain_text(value if isinstance(value, str) else msgspec.json.encode(value).decode()))


async def execute(
    specialist: Specialist[..., Any],
    function: Callable[..., Any],
    dependencies: Mapping[type, Any],
    on_progress: OnProgress,
    *,
    timeout: float,
) -> Outcome:
    """Run a call whose parameters are bound.

    Args:
        timeout: Time limit for the whole call, in seconds. The specialist's `idle_timeout` applies as well.
    """
    function = partial(function, **inject(specialist.injected, dependencies))
    idle_timeout = math.inf if specialist.idle_timeout is None else specialist.idle_timeout
    return await run(specialist.name, function, read_result, on_progress, timeout=timeout, idle_timeout=idle_timeout)


async def run(
    name: str,
    function: Callable[[], Any],
    read: Callable[[Any], T],
    on_progress: OnProgress,
    *,
    timeout: float,
    idle_timeout: float = math.inf,
) -> T | Failure:
    """Run a function of a specialist, and convert what it returns or yields last.

    It returns within `CANCEL_SECONDS` of its time limit or cancellation, whatever the specialist does.

    Args:
        read: Converts the value. An exception in it is a failure of the specialist.
        idle_timeout: Longest time between two reports of progress, in seconds.
    """
    if list(_abandoned.values()).count(name) >= MAX_ABANDONED:
        return BUSY
    now = asyncio.get_running_loop().time
    hard_end, idle_end = now() + timeout, now() + idle_timeout
    has_ended = False

    def report(progress: Progress) -> None:
        nonlocal idle_end
        if not has_ended:
            idle_end = now() + idle_timeout
            on_progress(progress)

    task = asyncio.create_task(_invoke(name, function, report), name=f"{TASK_NAME}{name}")
    try:
        while not task.done() and (remaining := min(hard_end, idle_end) - now()) > 0:
            await asyncio.wait({task}, timeout=remaining)
        is_late = not task.done()
    finally:
        has_ended = True
        if not task.done():
            _abandoned[task] = name
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
        log.warning("specialist %s: abandoned calls use all its threads", name)
        return BUSY
    except BaseException:  # from a specialist's code; it ends the call, not the turn
        log.warning("specialist %s failed", name, exc_info=True)
        return FAILED


async def _invoke(name: str, function: Callable[[], Any], on_progress: OnProgress) -> Any:
    """Call a function of a specialist. Return the value that it returns or yields last."""
    last = None

    def take(item: Any) -> None:
        nonlocal last
        if isinstance(item, Progress):
            on_progress(_clean_progress(item))
        else:
            last = item

    try:
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            value = function()
        else:
            value = await run_in_thread(name, function, take)
        if inspect.isasyncgen(value):
            async with aclosing(value) as items:
                async for item in items:
                    take(item)
                    await asyncio.sleep(0)  # a generator that never awaits must not block the loop
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
    """Wrap a specialist's `more` function. It then returns one short line and never raises."""

    def guarded(shown: int) -> str:
        try:
            return _clean_line(more(shown))
        except Exception:
            log.warning("the `more` function of a result failed", exc_info=True)
            return ""

    return guarded


def plain_text(text: Any) -> str:
    """Return a well-formed string of the exact type `str`, because methods of a subclass could do anything later."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not a {type(text).__name__}")
    return replace_surrogates(str.__str__(text))


def _clean_line(text: Any, length: int = _MAX_LINE) -> str:
    return one_line(plain_text(text))[:length]


def _clean_progress(progress: Progress) -> Progress:
    fraction = progress.fraction
    is_number = isinstance(fraction, int | float) and not math.isnan(fraction)
    text = _clean_line(progress.text, _MAX_PROGRESS)
    return Progress(text, min(1.0, max(0.0, float(fraction))) if is_number else None)  # type: ignore[arg-type]
