"""Built in: pages that were read a moment ago, for a call that asks for more of the same document."""

import time
from collections import OrderedDict
from collections.abc import Hashable

from specialists._pictures.reading import Reading

SECONDS = 600.0
PAGES_MOST = 200

_pages: OrderedDict[Hashable, tuple[float, Reading]] = OrderedDict()
"""By what was read and how, with the time until which it is kept; the oldest first."""


def kept(key: Hashable) -> Reading | None:
    """What was read, if it is not long ago."""
    until, reading = _pages.get(key, (0.0, None))
    return reading if time.monotonic() < until else None


def keep(key: Hashable, reading: Reading) -> None:
    """Keeps it for `SECONDS`, unless `PAGES_MOST` others follow."""
    _pages.pop(key, None)
    _pages[key] = (time.monotonic() + SECONDS, reading)
    _forget()


def _forget() -> None:
    now = time.monotonic()
    while _pages and (len(_pages) > PAGES_MOST or next(iter(_pages.values()))[0] < now):
        _pages.popitem(last=False)
