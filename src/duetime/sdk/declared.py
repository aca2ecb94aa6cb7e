"""Creates and updates the jobs that an app declares, and removes those that it no longer declares.

The tag `declared_by` marks a job of the app. A cancelled job stays cancelled, and a job of another user is not changed.
Neither prevents a worker from starting.
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
TRIES = 3  # workers that start together put the same jobs


class Declared(msgspec.Struct, frozen=True):
    """A job that a decorator declares. It is created or updated when a worker starts."""

    key: str
    definition: dict[str, Any]


def put_jobs(asking: Asking, app_name: str | None, declared: Mapping[str, Declared]) -> list[str]:
    """Creates or updates the jobs. Returns a sentence about each job that was not changed.

    Raises the errors of the client, with the job's key in the message.
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
            yield f"job '{key}' was not changed ({error.message}); its function can still run here"
        except (Conflict, PreconditionFailed):
            if (cancelled := _cancelled(asking, key, definition["name"])) is not None:
                yield (
                    f"job '{key}' was cancelled and stays so: purge job {cancelled.job_id} (Client().purge_job, or "
                    "DELETE with ?purge=true) to create it again, or remove its schedule from the code"
                )
            elif attempt < TRIES:
                continue
            else:
                raise
        return


def _cancelled(asking: Asking, key: str, name: str) -> m.Job | None:
    """Returns the job with this key if it was cancelled. It may have had another name."""
    for part in (name, None):
        listed = operations.list_jobs(status=JobStatus.CANCELLED, type=JobType.PYTHON, name=part)
        for job in _each(asking, listed):
            if job.key == key:
                return job
    return None


def prune_jobs(asking: Asking, app_name: str, declared: Mapping[str, Declared]) -> list[str]:
    """Removes the jobs with the app's tag that it does not declare. Returns a sentence about each.

    An admin sees the jobs of all users, and another user may have an app with this name. So only jobs of the users who
    own this app's declared jobs are removed.
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
            said.append(f"job '{job.key}' of {app_name} was not removed: it belongs to {job.created_by}")
            continue
        try:
            if job.status != JobStatus.CANCELLED:
                asking.ask(operations.cancel_job(job.job_id))  # stops its running executions
            asking.ask(operations.purge_job(job.job_id))
        except NotFound:  # another worker removed it
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
