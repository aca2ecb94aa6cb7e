"""Warnings in the response to a create: reasons why the job could not run if it were due now.

A warning refuses nothing: a missing job may be created later, and a blocked target may be allowed. A batch has no
warnings: `why` reports the same for each job. `check_after` refuses an id in `after` that the caller can't see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duetime.api.context import ApiContext
from duetime.domain.chains import check_missing, ids_in, warn_missing
from duetime.domain.identity import Caller
from duetime.domain.ids import is_id
from duetime.domain.job import HttpJob, JobSpec


async def list_warnings(context: ApiContext, caller: Caller, spec: JobSpec) -> list[str]:
    """Returns the warnings for a job that is about to be created."""
    warnings = list_blocked(context, spec)
    for name in spec.after:
        if not is_id(name) and not await _is_seen(context, caller, name):
            warnings.append(warn_missing(name))
    return warnings


async def check_after(context: ApiContext, caller: Caller, spec: JobSpec, old: Sequence[str] = ()) -> None:
    """Raises InvalidRequest for the id of another user's job, as the store does for an id that does not exist.

    `old`: the ids that the job's `after` has already. They may stay: an admin may have set them.
    """
    if caller.sees is None:
        return
    for name in ids_in(spec.after):
        record = None if name in old else await context.store.get_job(caller.tenant, name)
        if record is not None and record.owner != caller.sees:
            check_missing([name])


def list_blocked(context: ApiContext, spec: JobSpec) -> list[str]:
    """Returns a sentence for each URL of the job that no job may call here."""
    urls = {"payload.url": spec.payload.url} if isinstance(spec, HttpJob) else {}
    if spec.webhooks.on_success:
        urls["webhooks.on_success"] = spec.webhooks.on_success
    if spec.webhooks.on_failure:
        urls["webhooks.on_failure"] = spec.webhooks.on_failure
    return blocked(context, urls)


def blocked(context: ApiContext, urls: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each of these URLs (by field) that no job may call here."""
    refusals = [(place, context.rules.target_refusal(url)) for place, url in urls.items()]
    return [f"{place} can't be called: {refusal}" for place, refusal in refusals if refusal is not None]


async def _is_seen(context: ApiContext, caller: Caller, key: str) -> bool:
    record = await context.store.get_job_by_key(caller.tenant, key)
    return record is not None and caller.sees in (None, record.owner)
