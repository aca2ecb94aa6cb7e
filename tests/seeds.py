"""Whether tests use random values: only if a run names its seed, as `make hard-test` does."""

from __future__ import annotations

import os

# `make test` uses the same examples each time, so its findings are reproducible. With a seed, Hypothesis begins there.
IS_STEADY = not os.environ.get("DUETIME_TEST_SEED")
