"""How much the store may hold: the bytes of all jobs' definitions, and their number."""

from __future__ import annotations

import msgspec

from duetime.domain.errors import InsufficientStorage

JOB_OVERHEAD_BYTES = 512  # what a job takes beside its definition: its timer, its columns and their indexes
DEGRADED_PERCENT = 90.0
# Writers that add at the same time don't see each other's jobs yet. This far from a limit they can't pass it together.
AMPLE = 50_000, 256 * 1024 * 1024  # jobs, bytes


class Load(msgspec.Struct, frozen=True, array_like=True):
    """What there is, of all tenants."""

    jobs: int = 0
    bytes: int = 0

    def plus(self, jobs: int, size: int) -> Load:
        return Load(self.jobs + jobs, self.bytes + size)


class Capacity(msgspec.Struct, frozen=True):
    """None: no limit."""

    most_jobs: int | None = None
    most_bytes: int | None = None

    def check(self, load: Load, jobs: int, size: int) -> None:
        """May so many jobs of so many bytes be added? Raises InsufficientStorage."""
        if self.most_bytes is not None and size > 0 and load.bytes + size > self.most_bytes:
            raise InsufficientStorage("memory", load.bytes, self.most_bytes, size)
        if self.most_jobs is not None and jobs > 0 and load.jobs + jobs > self.most_jobs:
            raise InsufficientStorage("job_count", load.jobs, self.most_jobs, jobs)

    def is_near(self, load: Load) -> bool:
        """Whether those who add have to take turns."""
        return any(
            most is not None and current > most - max(most // 10, ample)
            for current, most, ample in zip(
                (load.jobs, load.bytes), (self.most_jobs, self.most_bytes), AMPLE, strict=True
            )
        )

    def utilization_percent(self, load: Load) -> float:
        """Of the limit that is nearest."""
        shares = [
            100.0 * current / most
            for current, most in ((load.bytes, self.most_bytes), (load.jobs, self.most_jobs))
            if most is not None
        ]
        return max(shares, default=0.0)


UNBOUNDED = Capacity()


def size_of(definition: str | bytes) -> int:
    """What a job counts for, by its stored definition."""
    return len(definition) + JOB_OVERHEAD_BYTES
