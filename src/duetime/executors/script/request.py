"""Builds the request that starts a script: its limits, its arguments, and an environment of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from duetime.domain.instants import format_instant
from duetime.domain.payloads import Script
from duetime.executors.script.wire import Request
from duetime.ports.executor import Attempt
from duetime.settings.table import DEFAULTS

_SHELL = "/bin/sh"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ScriptLimits(msgspec.Struct, frozen=True):
    cpu_seconds: int = 0  # of each process; 0: no limit
    memory_bytes: int = DEFAULTS.script_memory_limit  # data of each process, and resident memory of all of them
    file_bytes: int = DEFAULTS.script_file_limit  # size of the largest file that it may write
    open_files: int = 256
    processes: int = DEFAULTS.script_process_limit
    folder: Path | None = None  # private folders are created in it; None: the system's folder for temporary files


def request_of(attempt: Attempt[Script], limits: ScriptLimits) -> Request:
    payload = attempt.payload
    has_argv = bool(payload.argv)
    return Request(
        list(payload.argv) if has_argv else [payload.interpreter or _SHELL], None if has_argv else payload.script,
        _environment(attempt), payload.cwd, str(limits.folder or tempfile.gettempdir()), limits.cpu_seconds,
        limits.memory_bytes, limits.file_bytes, limits.open_files, limits.processes,
    )  # fmt: skip


def _environment(attempt: Attempt[Script]) -> dict[str, str]:
    """Returns the script's environment variables.

    The job's variables may replace the defaults, but not the DUETIME_* variables: a receiver trusts the fencing token.
    The supervisor sets HOME and TMPDIR to the private folder, unless the job sets them.
    """
    claim = attempt.claim
    return {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        **attempt.payload.env,
        "DUETIME_JOB_ID": claim.job_id,
        "DUETIME_EXECUTION_ID": claim.execution_id,
        "DUETIME_ATTEMPT": str(claim.attempt),
        "DUETIME_FENCING_TOKEN": str(claim.token),
        "DUETIME_SCHEDULED_AT": format_instant(claim.scheduled_at),
        "DUETIME_TRIGGER": str(claim.trigger),
    }
