"""Creates keys that encrypt secrets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from duetime.domain.encryption_keys import KEY_BYTES, Key


def make_key(random_bytes: Callable[[int], bytes] = os.urandom) -> Key:
    """Returns a new key. Its id begins with the day, so that people see how old it is, and ends with random digits."""
    return Key(f"k{time.strftime('%Y%m%d', time.gmtime())}-{random_bytes(4).hex()}", random_bytes(KEY_BYTES))
