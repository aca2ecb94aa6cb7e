"""Whether chance is left to chance: only where a run names its seed, as `make hard-test` does."""

from __future__ import annotations

import os

# `make test` tries the same examples each time; what it finds it finds again. With a seed, Hypothesis begins there.
IS_STEADY = not os.environ.get("DUETIME_TEST_SEED")
