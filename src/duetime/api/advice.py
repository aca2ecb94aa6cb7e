"""Warnings in the response to a create: what would keep the job from running if it were due now.

A warning refuses nothing: what is missing may come, and what is blocked may be allowed. A batch has none: `why` tells
the same of each job. Refused is an id in `after` that the caller can't see: `check_after`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duetime.api.context import ApiContext
from duetime.domain.chains import check_missing, ids_in, warn_missing
from duetime.domain.identity import Caller
from duetime.domain.ids import is_id
from duetime.domain.job import HttpJob, JobSpec


async def list_warnings(context: ApiContext, caller: Caller, spec: JobSpec) -> list[str]:
    """Of a job that is about to be created."""
    warnings = list_blocked(context, spec)
    for name in spec.after:
        if not is_id(name) and not await _is_seen(context, caller, name):
            warnings.append(warn_missing(name))
    return warnings


async def check_after(context: ApiContext, caller: Caller, spec: JobSpec, old: Sequence[str] = ()) -> None:
    """Raises InvalidRequest for the id of another user's job, as the store does for one that no job has.

    `old`: what the job comes after already. It may be kept: an admin may have named it.
    """
    if caller.sees is None:
        return
    for name in ids_in(spec.after):
        record = None if name in old else await context.store.get_job(caller.tenant, name)
        if record is not None and record.owner != caller.sees:
            check_missing([name])


def list_blocked(context: ApiContext, spec: JobSpec) -> list[str]:
    """Its URLs that no job may call here, each with the reason."""
    urls = {"payload.url": spec.payload.url} if isinstance(spec, HttpJob) else {}
    webhooks = spec.webhooks
    if webhooks.on_success or webhooks.on_failure:
        named = (("webhooks.on_success", webhooks.on_success), ("webhooks.on_failure", webhooks.on_failure))
        urls |= {place: url for place, url in named if url}
    return blocked(context, urls)


def blocked(context: ApiContext, urls: Mapping[str, str]) -> list[str]:
    """Those of the URLs, by the field that they stand in, that no job may call here, each with the reason."""
    refusals = [(place, context.rules.target_refusal(url)) for place, url in urls.items()]
    return [f"{place} can't be called: {refusal}" for place, refusal in refusals if refusal is not None]


async def _is_seen(context: ApiContext, caller: Caller, key: str) -> bool:
    record = await context.store.get_job_by_key(caller.tenant, key)
    return record is not None and caller.sees in (None, record.owner)
