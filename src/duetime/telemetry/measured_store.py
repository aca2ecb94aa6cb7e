"""A store that emits how each of its methods went. The adapters themselves know nothing of telemetry."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from duetime.domain.commands import Command
from duetime.ports.store import Store
from duetime.telemetry.emitted import Read, WriteFailed, Written
from duetime.telemetry.hub import Telemetry

_NOT_READS = frozenset({"apply", "start", "stop"})


def measured(store: Store, telemetry: Telemetry) -> Store:
    """Returns the store with its writes and reads measured. All else is the store's own."""
    return cast(Store, _MeasuredStore(store, telemetry))


class _MeasuredStore:
    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry

    async def apply(self, commands: Sequence[Command]) -> list[object]:
        began = time.perf_counter()
        try:
            answers = await self._store.apply(commands)
        except Exception as error:
            self._telemetry.emit(WriteFailed(commands, error, time.perf_counter() - began))
            raise
        self._telemetry.emit(Written(commands, answers, time.perf_counter() - began))
        return answers

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in _NOT_READS and inspect.iscoroutinefunction(attribute):
            attribute = self._read(name, attribute)
        setattr(self, name, attribute)  # found without this method from now on
        return attribute

    def _read(self, name: str, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        emit = self._telemetry.emit

        async def read(*values: Any, **named: Any) -> object:
            began = time.perf_counter()
            try:
                answer = await method(*values, **named)
            except Exception as error:
                emit(Read(name, time.perf_counter() - began, error))
                raise
            emit(Read(name, time.perf_counter() - began))
            return answer

        return read
