"""The tally: what the no-op's calls left in their file."""

from __future__ import annotations

import os
from pathlib import Path

from bench.arrivals import Arrival, Arrivals
from bench.noop import CALL, VARIABLE


class Tally(Arrivals):
    """Of all processes that are started with its `environment`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tally"
        self._path.touch()

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self._path)}

    def where(self) -> dict[str, str]:
        return {"tally": str(self._path)}

    def count(self) -> int:
        return self._path.stat().st_size // CALL.size

    def reset(self) -> None:
        os.truncate(self._path, 0)

    def arrivals(self, run: str) -> list[Arrival]:
        calls = sorted(CALL.iter_unpack(self._path.read_bytes()), key=lambda call: float(call[1]))
        return [Arrival(at, f"/{run}/{number}", "", "") for number, at in calls]
