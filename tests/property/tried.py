"""How often a property is tried: with few examples in each run of the tests, with many by `make soak`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from seeds import IS_STEADY

STEADY = settings(deadline=None, derandomize=IS_STEADY, database=None, suppress_health_check=list(HealthCheck))
ANY = settings()  # new examples in each run
SOAK = [pytest.mark.slow, pytest.mark.soak]

Test = Callable[..., None]


def tried(given: Callable[[Test], Test], few: int, many: int, base: settings = STEADY) -> Callable[[Test], Test]:
    """The test once with few examples and once, as a soak, with many: `@tried(given(...), 100, 900)`."""

    def decorate(test: Test) -> Test:
        tests = {count: settings(base, max_examples=count)(given(test)) for count in (few, many)}

        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=SOAK)])
        def with_examples(examples: int) -> None:
            tests[examples]()

        with_examples.__name__ = test.__name__
        with_examples.__qualname__ = test.__qualname__
        with_examples.__doc__ = test.__doc__
        with_examples.__module__ = test.__module__
        return with_examples

    return decorate
