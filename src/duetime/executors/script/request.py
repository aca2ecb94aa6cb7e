"""Builds the request that starts a script: its arguments, and an environment that inherits nothing from the node."""

from __future__ import annotations

import tempfile

from duetime.domain.instants import format_instant
from duetime.domain.payloads import Script
from duetime.executors.script.limits import ScriptLimits
from duetime.executors.script.wire import Request
from duetime.ports.executor import Attempt

_SHELL = "/bin/sh"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def request_of(attempt: Attempt[Script], limits: ScriptLimits) -> Request:
    payload = attempt.payload
    has_argv = bool(payload.argv)
    return Request(
        argv=list(payload.argv) if has_argv else [payload.interpreter or _SHELL],
        script=None if has_argv else payload.script,
        env=_environment(attempt),
        cwd=payload.cwd,
        folder=str(limits.folder or tempfile.gettempdir()),
        cpu_seconds=limits.cpu_seconds,
        memory_bytes=limits.memory_bytes,
        file_bytes=limits.file_bytes,
        open_files=limits.open_files,
        processes=limits.processes,
    )


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
