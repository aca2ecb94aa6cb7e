"""Finds numbers that JSON can't represent, and that msgspec silently writes as null."""

from __future__ import annotations

import math
from typing import Any

NOT_FINITE = "nan or an infinite number, which JSON can't represent; use None, or text"


def is_finite(plain: Any) -> bool:
    """Returns whether JSON can represent all numbers in a value made of lists, dicts and the like."""
    left = [plain]
    while left:
        item = left.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            left.extend(item)
    return True
