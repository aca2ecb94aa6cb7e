"""Creates that share a commit, as few pages: the way 64 clients at once send them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from duetime.domain.commands import CreateJobs


def merged(creates: Sequence[CreateJobs]) -> Iterator[CreateJobs]:
    """A page for each instant (what a job is must not depend on who shared its commit) and for each quota."""
    for (now, quota), group in groupby(creates, key=lambda create: (create.now, create.quota)):
        page = list(group)
        yield CreateJobs(
            now,
            tuple(chain.from_iterable(create.jobs for create in page)),
            quota=quota,
            audit=tuple(chain.from_iterable(create.audit for create in page)),
        )
