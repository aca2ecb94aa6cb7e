"""How long a test waits before it says that something hangs. It asserts nothing about speed: see `make bench`."""

from __future__ import annotations

PATIENCE_SECONDS = 120.0  # many times what the slowest machine needs
