"""Turns a target's response into values that can be stored. The input is untrusted: nothing here may raise."""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime

KEPT_CHARACTERS = 1000

# Control characters except tab and line ends, bidi overrides (they can disguise a log line), and non-characters.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
_SECONDS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")


def kept_text(data: bytes, limit: int = KEPT_CHARACTERS) -> str:
    """Returns the start of a response as text that is safe to store, to log and to show on a page."""
    # A UTF-8 character takes at most four bytes, so this slice holds at least `limit` whole characters.
    text = data[: 4 * limit + 4].decode("utf-8", "replace")[:limit]
    return text if text.isprintable() and text.isascii() else _UNFIT.sub("\ufffd", text)


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """Returns Retry-After as seconds from now, or None if it is absent, invalid or negative. Does not clamp it."""
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        instant = parsedate_to_datetime(value)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        seconds = instant.timestamp() - now
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return seconds if seconds >= 0 and math.isfinite(seconds) else None
