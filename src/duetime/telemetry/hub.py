"""The hub between the parts that emit and those that subscribe: logs, metrics, traces, rates, alerts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from duetime.telemetry.emitted import Emitted

log = structlog.get_logger()

E = TypeVar("E", bound=Emitted)


class Telemetry:
    """Calls the subscribers of each kind, in the order in which they subscribed. They must neither wait nor be slow.

    A subscriber that raises is logged the first time, and affects neither the emitter nor the other subscribers.
    """

    def __init__(self) -> None:
        self._subscribers: dict[type[Emitted], tuple[Callable[[Any], None], ...]] = {}
        self._failed: set[tuple[type[Emitted], str]] = set()

    def subscribe(self, kind: type[E], subscriber: Callable[[E], None]) -> None:
        self._subscribers[kind] = (*self._subscribers.get(kind, ()), subscriber)

    def emit(self, emitted: Emitted) -> None:
        for subscriber in self._subscribers.get(type(emitted), ()):
            try:
                subscriber(emitted)
            except Exception as error:  # noqa: BLE001 (logged; what is measured must not depend on the measurement)
                self._note(type(emitted), error)

    def _note(self, kind: type[Emitted], error: Exception) -> None:
        mark = kind, type(error).__name__
        if mark not in self._failed:
            self._failed.add(mark)
            log.error("a subscriber of telemetry failed", emitted=kind.__name__, exc_info=error)
