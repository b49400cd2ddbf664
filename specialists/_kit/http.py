"""HTTP headers that several specialists read."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from brain import Page


def retry_after(page: Page, default: float) -> float:
    """Return the seconds of the `Retry-After` header (RFC 9110, section 10.2.3)."""
    value = page.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", value):
        return float(value)
    with suppress(ValueError, TypeError, OverflowError):
        when = parsedate_to_datetime(value)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return default
