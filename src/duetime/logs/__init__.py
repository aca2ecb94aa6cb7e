"""Logs of executions: `FolderLogs` on a disk of ours, `ObjectLogs` in an object store; `open_logs` takes either."""

from __future__ import annotations

from pathlib import Path

from duetime.logs.folder import FolderLogs
from duetime.ports.clock import Clock
from duetime.ports.logs import LogStore

__all__ = ["open_logs"]


def open_logs(url: str, folder: Path, limit_bytes: int, clock: Clock) -> LogStore:
    """Not yet started. `url` is where an object store is; if it is empty, logs are kept in `folder`."""
    if not url:
        return FolderLogs(folder, limit_bytes, clock)
    from duetime.logs.objects import ObjectLogs  # 20 ms that nobody needs who keeps logs in a folder

    return ObjectLogs(url, limit_bytes, clock)
