"""Executions that the current commit has ended. On-finish commands are applied in the same commit, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from duetime.domain.commands import CreateJobs, OnFinish
from duetime.domain.execution import AttemptEnd
from duetime.domain.overlap import Uncounted


class Ended:
    """Builds its index by id only when `find` is called: most pages have no on-finish commands."""

    def __init__(self, pages: Sequence[tuple[Sequence[AttemptEnd], Sequence[str]]] = ()) -> None:
        self._pages = list(pages)
        self._by_id: dict[str, AttemptEnd] | None = None

    def add(self, written: Sequence[AttemptEnd], refused: Sequence[str]) -> None:
        """Adds the ends of a Finish that were written, and the ids of those that were refused.

        A refused execution has ended before, if at all.
        """
        self._pages.append((written, refused))
        self._by_id = None

    def find(self, on_finish: OnFinish) -> AttemptEnd | None:
        """Returns the end that the command belongs to; None if this commit has not written it."""
        if self._by_id is None:
            self._by_id = {}
            for written, refused in self._pages:
                for execution_id in refused:
                    self._by_id.pop(execution_id, None)
                self._by_id.update((end.execution_id, end) for end in written)
        found = self._by_id.get(on_finish.execution_id)
        if found is None:
            return None
        is_it = (found.attempt, found.token, found.state) == (on_finish.attempt, on_finish.token, on_finish.state)
        return found if is_it else None

    def copy(self) -> Ended:
        return Ended(self._pages)


def ownerless(command: object) -> bool:
    return isinstance(command, CreateJobs) and any(not job.owner for job in command.jobs)


def owned(command: CreateJobs, owner: str) -> CreateJobs:
    """Returns the command with `owner` set on the jobs that have no owner."""
    return replace(command, jobs=tuple(job if job.owner else replace(job, owner=owner) for job in command.jobs))


def uncounted(ends: Iterable[AttemptEnd]) -> list[Uncounted]:
    """Returns the executions that were counted when they fired, but were not sent. Mostly there are none."""
    rows: dict[str, Uncounted] = {}
    for a in ends:
        if a.uncounted:
            _, number, or_due_at = rows.get(a.job_id, (a.job_id, 0, None))
            later = max((at for at in (or_due_at, a.or_due_at) if at is not None), default=None)
            rows[a.job_id] = (a.job_id, number + 1, later)
    return list(rows.values())
