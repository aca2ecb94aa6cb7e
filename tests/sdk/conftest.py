"""Apps that run in the process of the test, each on its own folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duetime import Duetime
from duetime.client import operations
from duetime.client.models import Execution
from patience import PATIENCE_SECONDS


class Calls:
    """Records the arguments of calls in order, and waits for them."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._changed = threading.Condition()

    def add(self, value: Any) -> None:
        with self._changed:
            self.all.append(value)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, PATIENCE_SECONDS), self.all
            return list(self.all)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def app(tmp_path: Path) -> Duetime:
    """An app that is not started."""
    return Duetime(f"sqlite:///{tmp_path / 'jobs'}")


def executions(app: Duetime, job_id: str) -> list[Execution]:
    return list(app._ask().ask(operations.job_executions(job_id).page(100)).executions)


def until(app: Duetime, job_id: str, reached: Callable[[Execution], bool]) -> Execution:
    """Returns the job's execution when the condition holds."""
    deadline = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.02)):
        found = executions(app, job_id)
        if found and reached(found[0]):
            return found[0]
        deadline.wait(0.02)
    raise AssertionError(executions(app, job_id))
