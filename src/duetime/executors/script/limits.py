"""Limits on the resources of one script. The operator can set each of them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from duetime.settings.table import DEFAULTS


class ScriptLimits(msgspec.Struct, frozen=True):
    cpu_seconds: int = 0  # of each process; 0: no limit
    memory_bytes: int = DEFAULTS.script_memory_limit  # data of each process, and resident memory of all of them
    file_bytes: int = DEFAULTS.script_file_limit  # size of the largest file that it may write
    open_files: int = 256
    processes: int = DEFAULTS.script_process_limit
    folder: Path | None = None  # private folders are created in it; None: the system's folder for temporary files
