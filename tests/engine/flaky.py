"""A store that fails or waits when a test says so. It passes all other calls to the real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from duetime.domain.commands import Command, Finish, Fire, Release
from duetime.domain.errors import Overloaded, TimedOut
from duetime.ports.store import Store

_NO_GATE: tuple[Callable[[Any], bool], None] = (bool, None)


class FlakyStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures: dict[type[Command], int] = {}
        self.failed = 0
        self._gates: dict[type[Command], tuple[Callable[[Any], bool], asyncio.Event]] = {}
        self.held: list[Command] = []  # sent, and waiting at a gate
        self._most: dict[type[Command], int] = {}
        self.sizes: list[int] = []  # of the commands that have a bound, in the order in which they were sent

    def fail_next(self, kind: type[Command], times: int = 1) -> None:
        self._failures[kind] = times

    def hold(self, kind: type[Command], which: Callable[[Any], bool] = lambda command: True) -> asyncio.Event:
        """Holds commands of this kind until the returned event is set; or only some of them."""
        return self._gates.setdefault(kind, (which, asyncio.Event()))[1]

    def write_in_time(self, kind: type[Command], most: int) -> None:
        """Commands of this kind with more rows than that time out, however often they are sent."""
        self._most[kind] = most

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        for command in commands:
            if self._failures.get(type(command), 0):
                self._failures[type(command)] -= 1
                self.failed += 1
                raise Overloaded("the disk is full, nothing was written; free some space and try again")
        for command in commands:
            if (most := self._most.get(type(command))) is not None:
                self.sizes.append(_rows(command))
                if _rows(command) > most:
                    raise TimedOut("the database did not answer in time, nothing was changed; try again")
        for command in commands:
            which, gate = self._gates.get(type(command), _NO_GATE)
            if gate is not None and not gate.is_set() and which(command):
                self.held.append(command)
                await gate.wait()
                self.held.remove(command)
        return await self._store.apply(commands)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _rows(command: Command) -> int:
    match command:
        case Finish():
            return len(command.ends)
        case Release():
            return len(command.claims)
        case Fire():
            return len(command.moves)
        case _:
            return 1
