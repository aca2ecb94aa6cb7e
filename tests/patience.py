"""How long a test waits before it reports a hang. It asserts nothing about speed: see `make bench`."""

from __future__ import annotations

PATIENCE_SECONDS = 120.0  # many times what the slowest machine needs
