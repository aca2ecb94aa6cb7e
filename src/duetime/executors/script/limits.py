"""What one script may use. Each is the operator's to set."""

from __future__ import annotations

from pathlib import Path

import msgspec


class ScriptLimits(msgspec.Struct, frozen=True):
    cpu_seconds: int = 0  # of each process; 0: none
    memory_bytes: int = 512 * 1024 * 1024  # data of each process, resident memory of all together
    file_bytes: int = 100 * 1024 * 1024  # the largest file it may write
    open_files: int = 256
    processes: int = 64
    folder: Path | None = None  # where private folders are made; None: the system's folder for temporary files
