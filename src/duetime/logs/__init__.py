"""Logs of executions: `FolderLogs` on a local disk, `ObjectLogs` in an object store. `open_logs` picks one."""

from __future__ import annotations

from pathlib import Path

from duetime.logs.folder import FolderLogs
from duetime.ports.clock import Clock
from duetime.ports.logs import LogStore


def open_logs(url: str, folder: Path, limit_bytes: int, clock: Clock) -> LogStore:
    """Returns a log store that is not started yet: the object store at `url`, or `folder` if `url` is empty."""
    if not url:
        return FolderLogs(folder, limit_bytes, clock)
    from duetime.logs.objects import ObjectLogs  # takes 20 ms, and is not needed for a folder

    return ObjectLogs(url, limit_bytes, clock)
