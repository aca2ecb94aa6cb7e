"""The jobs that an app declares, put in place where they run; and those that it declares no more, removed.

A job is known as the app's by its tag `declared_by`. What people have done to a declared job stands: one that was
cancelled stays cancelled, and one that this user may not change (another user's) is left as it is. Neither keeps a
worker from starting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from duetime.client import models as m
from duetime.client import operations
from duetime.client.calls import PAGE_ROWS
from duetime.client.errors import Conflict, Forbidden, NotFound, PreconditionFailed, Problem
from duetime.domain.job import JobStatus, JobType
from duetime.sdk.asking import Asking

TAG = "declared_by"
TRIES = 3  # workers that start together put the same jobs in place


class Declared(msgspec.Struct, frozen=True):
    """A job that a decorator asks for; it is put in place when a worker starts."""

    key: str
    definition: dict[str, Any]


def put_jobs(asking: Asking, app_name: str | None, declared: Mapping[str, Declared]) -> list[str]:
    """Create them, or make them what the decorators say. Returns sentences about those that were left as they are.

    Raises what the client raises, with the job's name.
    """
    said: list[str] = []
    for job in declared.values():
        definition = job.definition
        if app_name is not None:
            definition = {**definition, "tags": {**definition.get("tags", {}), TAG: app_name}}
        try:
            said += _put(asking, job.key, definition)
        except Problem as error:
            error.message = f"job '{job.key}': {error.message}"
            raise
    return said


def _put(asking: Asking, key: str, definition: dict[str, Any]) -> Iterator[str]:
    for attempt in range(1, TRIES + 1):
        try:
            asking.ask(operations.put_job_by_key(key, definition))
        except Forbidden as error:
            yield f"job '{key}' is left as it is ({error.message}); its function runs here all the same"
        except (Conflict, PreconditionFailed):
            if (cancelled := _cancelled(asking, key, definition["name"])) is not None:
                yield (
                    f"job '{key}' was cancelled and stays so: purge job {cancelled.job_id} (Client().purge_job, or "
                    "DELETE with ?purge=true) to have it declared anew, or take its schedule out of the code"
                )
            elif attempt < TRIES:
                continue
            else:
                raise
        return


def _cancelled(asking: Asking, key: str, name: str) -> m.Job | None:
    """The job with this key, if it was cancelled. It may have had another name then."""
    for part in (name, None):
        listed = operations.list_jobs(status=JobStatus.CANCELLED, type=JobType.PYTHON, name=part)
        for job in _each(asking, listed):
            if job.key == key:
                return job
    return None


def prune_jobs(asking: Asking, app_name: str, declared: Mapping[str, Declared]) -> list[str]:
    """Remove jobs that carry the app's tag and that it does not declare. Returns a sentence about each.

    An admin sees everybody's jobs, and another user may have an app of the same name: what is removed is of those who
    own what this app declares.
    """
    said: list[str] = []
    found = list(_each(asking, operations.list_jobs(type=JobType.PYTHON, tag=f"{TAG}={app_name}")))
    owners = {job.created_by for job in found if job.key in declared} or {job.created_by for job in found}
    if len(owners) > 1 and not any(job.key in declared for job in found):
        return [f"jobs of {app_name} have several owners, and it declares none of them: remove them by hand"]
    for job in found:
        if job.key in declared:
            continue
        if job.created_by not in owners:
            said.append(f"job '{job.key}' of {app_name} is left as it is: it is {job.created_by}'s")
            continue
        try:
            if job.status != JobStatus.CANCELLED:
                asking.ask(operations.cancel_job(job.job_id))  # what of it runs is stopped
            asking.ask(operations.purge_job(job.job_id))
        except NotFound:  # another worker that starts does the same
            continue
        said.append(f"job '{job.key}' was removed: {app_name} does not declare it any more")
    return said


def _each(asking: Asking, listed: Any) -> Iterator[m.Job]:
    cursor = None
    while True:
        page: m.JobPage = asking.ask(listed.page(PAGE_ROWS, cursor))
        yield from page.jobs
        cursor = page.next_cursor
        if cursor is None:
            return
