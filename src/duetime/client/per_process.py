"""What sends a client's calls, in each process: a fork copies neither threads nor connections."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from duetime.client.plain_http import PlainHttp

T = TypeVar("T")


class PerProcess(Generic[T]):
    """The HTTP library's client in the process that makes this one; in one that is forked from it, another, or a
    `PlainHttp` where the library has been used before the fork and so can't be.

    The parent's is kept in the child and never touched: to close or free it could wait for threads that are not there,
    and what it sends would go over the parent's connections.
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
