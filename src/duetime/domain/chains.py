"""Chains: jobs that start when others have ended. Decides which jobs an end starts, and finds loops. Pure.

A job that runs `after` others has a link to each, by its key. A link is done while the latest end of that job is one
that counts. When all links of a job are done, they are cleared and the job is due. Ends that come while the job is
already due belong to the start that is about to happen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from duetime.domain.commands import NewJob
from duetime.domain.errors import InvalidRequest
from duetime.domain.execution import AttemptEnd
from duetime.domain.ids import is_id
from duetime.domain.instants import LATEST
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.plan import Skipped
from duetime.domain.states import OPEN, State

MOST_LINKS = 20_000  # that are read to find out whether a chain has a loop
_MOST_NAMED = 12  # keys of a loop
_NOT_NAMED = "another user's job"

_FAILURES = frozenset({State.FAILED, State.TIMEOUT})
_ENDS = {"success": "succeed", "failure": "fail", "any": "end"}
_COUNTS = {"success": frozenset({State.COMPLETED}), "failure": _FAILURES, "any": _FAILURES | {State.COMPLETED}}


class Link(msgspec.Struct, frozen=True, array_like=True):
    """A stored dependency: a job waits for the end of another. With the state of the waiting job."""

    job_id: str
    tenant: str
    key: str  # of the other job, or its id
    ends: str  # which of its ends count: `on` of the waiting job
    is_done: bool
    status: JobStatus
    due_at: int | None  # of the waiting job; while it is paused, when it would be due
    awaited: str | None  # the id of the other job; None while there is no such job

    @property
    def is_open(self) -> bool:
        """Returns whether ends count for this link: not while its job is due already, or has no run left."""
        if self.status is JobStatus.PAUSED:
            return self.due_at is not None
        return self.status is JobStatus.PENDING and self.due_at == LATEST


def read_link(row: Iterable[Any]) -> Link:
    """Returns a link from a row that has its fields in the same order."""
    job_id, tenant, key, ends, is_done, status, due_at, awaited = row
    return Link(job_id, tenant, key, ends, bool(is_done), JobStatus(status), due_at, awaited)


def new_links(job_id: str, tenant: str, spec: JobSpec) -> list[tuple[str, str, str, str]]:
    """Returns (job, tenant, key, which ends count) of each job that this one runs after."""
    return [(job_id, tenant, key, spec.on) for key in spec.after]


def chained_by_tenant(jobs: Iterable[NewJob]) -> dict[str, list[NewJob]]:
    """Returns the new jobs that run after others."""
    found = defaultdict[str, list[NewJob]](list)
    for job in [job for job in jobs if job.spec.after]:
        found[job.tenant].append(job)
    return found


def ends_in_order(ends: Iterable[AttemptEnd]) -> list[tuple[str, State]]:
    """Returns (job, state) of those ends that ended their executions."""
    ended = [end for end in ends if end.state not in OPEN]
    return [(end.job_id, end.state) for end in sorted(ended, key=lambda end: end.ended_at)]


class Followed(NamedTuple):
    marks: list[tuple[str, str, bool]]  # (job, key, whether it is done now) of the links that change
    starts: list[str]  # jobs that are due now
    skips: list[tuple[str, str]]  # (job, tenant) of jobs that would be due, but are paused


def follow(ends: Iterable[tuple[str, State]], links: Sequence[Link]) -> Followed:
    """Returns what ends of executions change for the jobs that wait for them.

    `ends` are (job, state), in order. `links` must contain all links of each of the waiting jobs.
    """
    of_job, of_awaited = defaultdict[str, list[Link]](list), defaultdict[str, list[Link]](list)
    for link in links:
        of_job[link.job_id].append(link)
        if link.awaited is not None:
            of_awaited[link.awaited].append(link)
    done = {(link.job_id, link.key): link.is_done for link in links}
    starts: dict[str, None] = {}
    skips: dict[tuple[str, str], None] = {}
    for job_id, state in ends:
        if state not in _COUNTS["any"]:
            continue
        for link in of_awaited.get(job_id, ()):
            if not link.is_open or link.job_id in starts:
                continue
            done[link.job_id, link.key] = state in _COUNTS[link.ends]
            own = [(one.job_id, one.key) for one in of_job[link.job_id]]
            if all(done[place] for place in own):
                done.update(dict.fromkeys(own, False))
                if link.status is JobStatus.PAUSED:
                    skips[link.job_id, link.tenant] = None
                else:
                    starts[link.job_id] = None
    marks = [(*place, is_done) for place, is_done in done.items()]
    before = [link.is_done for link in links]
    changed = [mark for mark, was in zip(marks, before, strict=True) if mark[2] != was]
    return Followed(changed, list(starts), list(skips))


def skipped(skips: Iterable[tuple[str, str]], now: int) -> list[Skipped]:
    """Returns the ledger's entries for starts during a pause."""
    return [Skipped(job_id, tenant, now, now + 1, 1, "paused") for job_id, tenant in skips]


def explain_wait(key: str, on: str, is_there: bool) -> str:
    """Returns what a job waits for, as a sentence. `is_there`: the caller may see the other job.

    A job that the caller may not see and a job that does not exist get the same sentence.
    """
    missing = "" if is_there else f"; there is no job with this {_kind(key)} that you can see"
    return f"waits for '{key}' to {_ENDS[on]}{missing}"


def warn_missing(key: str) -> str:
    """Returns the warning about a new job that runs after a job which its creator can't see."""
    return (
        f"after: there is no job with the key '{key}' that you can see; until there is one, this job waits. "
        "If the key is misspelt, change `after`"
    )


def ids_in(names: Iterable[str]) -> list[str]:
    """Returns the names in `after` that have the form of an id. Users do not choose ids: each job must exist."""
    return [name for name in names if is_id(name)]


def check_missing(missing: Sequence[str]) -> None:
    """Raises InvalidRequest if there are any: names in the form of an id that no job has."""
    if missing:
        raise InvalidRequest.at("/after", f"there is no job with the id '{missing[0]}'; name a job that there is")


def _kind(key: str) -> str:
    return "id" if is_id(key) else "key"


def check_loops(keys: Sequence[str], links: Sequence[Iterable[Any]]) -> None:
    """Raises InvalidRequest if one of these jobs would wait for its own end.

    `links` are (name, name of a job that it waits for, owner of the first): of these jobs, and of all that they wait
    for, directly or not. A job's name is its key, or its id if it has no key. Jobs of other users are not named.
    """
    if len(links) > MOST_LINKS:
        message = f"it would make a chain of more than {MOST_LINKS:,} links; cut it in two"
        raise InvalidRequest.at("/after", message)
    before = defaultdict[str, list[str]](list)
    owners: dict[str, str] = {}
    for key, awaited, owner in links:
        before[key].append(awaited)
        owners[key] = owner
    if (way := _find_loop(keys, before)) is not None:
        own = {owners[key] for key in keys if key in owners}
        way = [key if owners.get(key) in own else _NOT_NAMED for key in way]
        named = way if len(way) <= _MOST_NAMED else [*way[: _MOST_NAMED - 1], "…", way[-1]]
        message = f"the chain would come back to itself: {' → '.join(named)}; take one of these out of it"
        raise InvalidRequest.at("/after", message)


def _find_loop(keys: Sequence[str], before: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Returns a loop, in the order in which the jobs would run; None if there is none."""
    finished: set[str] = set()
    for first in keys:
        if first in finished:
            continue
        way = {first: None}  # from a job back to one that it waits for, and so on
        ahead = [iter(before.get(first, ()))]
        while ahead:
            found = next(ahead[-1], None)
            if found is None:
                ahead.pop()
                finished.add(way.popitem()[0])
            elif found in way:
                round_trip = list(way)[list(way).index(found) :]
                return [found, *reversed(round_trip)]
            elif found not in finished:
                way[found] = None
                ahead.append(iter(before.get(found, ())))
    return None
