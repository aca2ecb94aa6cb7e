"""A store that fails when told to; all else goes to the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetime.domain.commands import Command
from duetime.domain.errors import Overloaded
from duetime.ports.store import Store


class FlakyStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures: dict[type[Command], int] = {}
        self.failed = 0

    def fail_next(self, kind: type[Command], times: int = 1) -> None:
        self._failures[kind] = times

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        for command in commands:
            if self._failures.get(type(command), 0):
                self._failures[type(command)] -= 1
                self.failed += 1
                raise Overloaded("the disk is full, nothing was written; free some space and try again")
        return await self._store.apply(commands)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
