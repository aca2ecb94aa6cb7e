"""How many examples a property is tried with: few that are the same in each run, or many where a run names its seed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from seeds import IS_STEADY

STEADY = settings(deadline=None, derandomize=IS_STEADY, database=None, suppress_health_check=list(HealthCheck))


def examples(few: int, many: int) -> settings:
    return settings(STEADY, max_examples=few if IS_STEADY else many)
