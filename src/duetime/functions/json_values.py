"""What JSON can't say, and msgspec writes as null in silence."""

from __future__ import annotations

import math
from typing import Any

NOT_FINITE = "nan or an infinite number, which JSON can't say; use None, or text"


def is_finite(plain: Any) -> bool:
    """Whether JSON can say all numbers in a value of lists, dicts and the like."""
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
