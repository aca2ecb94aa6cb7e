"""The number of examples of a property: few and fixed ones, or many if the run names its seed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from seeds import IS_STEADY

STEADY = settings(deadline=None, derandomize=IS_STEADY, database=None, suppress_health_check=list(HealthCheck))


def examples(few: int, many: int) -> settings:
    return settings(STEADY, max_examples=few if IS_STEADY else many)
