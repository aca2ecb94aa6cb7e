"""Routes each attempt that a node runs itself to the executor for its payload type."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from duetime.ports.executor import Attempt, Executor, Outcome


class ByType:
    def __init__(self, executors: Mapping[type, Executor[Any]]) -> None:
        self._executors = executors

    async def start(self) -> None:
        for executor in self._executors.values():
            await executor.start()

    async def stop(self) -> None:
        for executor in self._executors.values():
            await executor.stop()

    def execute(self, attempt: Attempt[Any]) -> Coroutine[Any, Any, Outcome]:
        return self._executors[type(attempt.payload)].execute(
            attempt
        )  # no coroutine of its own: each attempt has one less
