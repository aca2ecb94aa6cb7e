"""Limits on the resources of one script. The operator can set each of them."""

from __future__ import annotations

from pathlib import Path

import msgspec


class ScriptLimits(msgspec.Struct, frozen=True):
    cpu_seconds: int = 0  # of each process; 0: no limit
    memory_bytes: int = 512 * 1024 * 1024  # data of each process, and resident memory of all processes together
    file_bytes: int = 100 * 1024 * 1024  # size of the largest file that it may write
    open_files: int = 256
    processes: int = 64
    folder: Path | None = None  # private folders are created in it; None: the system's folder for temporary files
