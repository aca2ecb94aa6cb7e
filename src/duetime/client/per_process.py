"""One HTTP client for each process: a fork copies neither threads nor usable connections."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from duetime.client.plain_http import PlainHttp

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Has a client of the HTTP library for the process that creates it. A forked process gets another one, or a
    `PlainHttp` if the library was used before the fork and can't be used any more.

    The child keeps the parent's client and never touches it: closing or freeing it could wait for threads that were not
    copied, and its requests would use the parent's connections.
    """

    def __init__(self, make: Callable[[], T], timeout_seconds: float) -> None:
        self._make = make
        self._timeout_seconds = timeout_seconds
        self._made: dict[int, T | PlainHttp] = {os.getpid(): self._new()}

    def get(self) -> T | PlainHttp:
        process = os.getpid()
        made = self._made.get(process)
        return self._made.setdefault(process, self._new()) if made is None else made

    def _new(self) -> T | PlainHttp:
        try:
            return self._make()
        except RuntimeError as error:
            if "fork" not in str(error):
                raise
            return PlainHttp(self._timeout_seconds)
