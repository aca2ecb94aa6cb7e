"""Starts the process of a script, from fork to exec. Runs in a supervisor, which has one thread."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal

from duetime.executors.script.system import (
    IGNORED_BY_FORK_SERVER,
    LINUX,
    die_with_parent,
    forgo_privileges,
    limit_resource,
    succeeds_in_child,
    tasks_of,
)
from duetime.executors.script.users import switch
from duetime.executors.script.wire import Refused, Request

NOT_FOUND = 127
NOT_RUNNABLE = 126
_FIRST_TO_GO = b"1000"  # when the machine runs out of memory, the kernel kills scripts before anything else
# Signals are ignored by the fork server itself, by Python, and by the node's parent: nohup, or a shell that started the
# node in the background.
_IGNORED = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
_IGNORED.update(IGNORED_BY_FORK_SERVER)


class Launch(Exception):
    """The script was not started; the message says why."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.refused = Refused(exit_code, message)


def launch(request: Request, folder: str, user: int | None, outputs: tuple[int, int], process_ceiling: int) -> int:
    """Starts the program in its own session and returns its process id. Raises Launch if that fails."""
    receiver, sender = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _become(request, folder, user, outputs, process_ceiling, supervisor)
        except Launch as problem:
            os.write(sender, json.dumps(problem.refused).encode())
        except BaseException as problem:  # noqa: BLE001 -- a child must never return into the supervisor's code
            os.write(sender, json.dumps([NOT_RUNNABLE, f"The script can't be started: {problem!r}."]).encode())
        finally:
            os._exit(NOT_RUNNABLE)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        refused_why = pipe.read()  # empty when exec has closed the other end
    if refused_why:
        os.waitpid(child, 0)
        raise Launch(*json.loads(refused_why))
    return child


def _become(
    request: Request, folder: str, user: int | None, outputs: tuple[int, int], process_ceiling: int, supervisor: int
) -> None:
    os.setsid()
    _reset_signals()
    _plug(outputs)
    os.umask(0o077)
    if LINUX:
        _be_first_to_go()
    limit_resource(resource.RLIMIT_CORE, 0)
    limit_resource(resource.RLIMIT_FSIZE, request.file_bytes)
    limit_resource(resource.RLIMIT_NOFILE, request.open_files)
    if process_ceiling:
        limit_resource(resource.RLIMIT_NPROC, process_ceiling)
    if request.cpu_seconds:
        # The kernel sends SIGXCPU, and SIGKILL a second later.
        limit_resource(resource.RLIMIT_CPU, request.cpu_seconds, request.cpu_seconds + 1)
    if user is not None:
        switch(user)
    die_with_parent(supervisor, signal.SIGKILL)
    forgo_privileges()
    _enter(request.cwd or folder, user)
    if LINUX:  # macOS refuses this limit
        # Unlike RLIMIT_AS, this limit does not count memory that is reserved but never written. Some runtimes reserve
        # gigabytes.
        limit_resource(resource.RLIMIT_DATA, request.memory_bytes)
    _execute(request.argv, request.env, user)


def _reset_signals() -> None:
    """Resets ignored signals to their defaults: unlike handlers, they stay in effect after exec."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _be_first_to_go() -> None:
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return  # a sandbox without this file
    os.write(descriptor, _FIRST_TO_GO)
    os.close(descriptor)


def _plug(outputs: tuple[int, int]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((nothing, *outputs)):
        os.dup2(source, target)  # all other descriptors close at exec


def _enter(cwd: str, user: int | None) -> None:
    if not os.path.isabs(cwd):
        raise Launch(NOT_RUNNABLE, f"The job's cwd '{cwd}' is not absolute; write it from the root: /…")
    try:
        os.chdir(cwd)
    except FileNotFoundError:
        raise Launch(NOT_RUNNABLE, f"The folder '{cwd}' is not there; make it on this node, or change it.") from None
    except PermissionError:
        raise Launch(
            NOT_RUNNABLE, f"The folder '{cwd}' can't be entered by {_who(user)}; let others read and enter it."
        ) from None
    except (OSError, ValueError) as problem:
        raise Launch(NOT_RUNNABLE, f"The folder '{cwd}' can't be entered: {problem}.") from None


def _execute(argv: list[str], env: dict[str, str], user: int | None) -> None:
    program = argv[0]
    try:
        os.execvpe(program, argv, env)
    except (FileNotFoundError, NotADirectoryError):
        if "/" in program and os.path.exists(program):
            message = f"The program '{program}' needs an interpreter (its #! line) that does not exist."
        else:
            place = "" if "/" in program else f" in PATH ({env['PATH']})"
            message = f"There is no program '{program}'{place}; install it on this node, or name its whole path."
        raise Launch(NOT_FOUND, message) from None
    except PermissionError:
        raise Launch(NOT_RUNNABLE, f"The program '{program}' may not be run by {_who(user)}.") from None
    except OSError as problem:
        why = {
            errno.ENOEXEC: "it is no program of this machine, and has no #! line",
            errno.E2BIG: "its arguments and environment are too long",
        }.get(problem.errno or 0, problem.strerror)
        raise Launch(NOT_RUNNABLE, f"The program '{program}' can't be run: {why}.") from None
    except ValueError as problem:
        raise Launch(NOT_RUNNABLE, f"The argv or env can't be handed to a program: {problem}.") from None


def _who(user: int | None) -> str:
    return f"the user that scripts run as ({os.getuid() if user is None else user})"


def process_ceiling(user: int | None, processes: int) -> int:
    """Returns the kernel's limit on processes: twice the limit that the supervisor enforces itself. 0: no limit.

    The kernel counts all threads of a user. A script's own user has none yet. Our user has some, and some of them may
    be invisible in other containers; with a ceiling below their number the script could not start any process.
    """
    if user is not None:
        return 2 * processes
    if not LINUX or os.geteuid() == 0:
        return 0  # the limit does not apply to root
    ceiling = tasks_of(os.getuid()) + 2 * processes

    def fork_under_it() -> None:
        limit_resource(resource.RLIMIT_NPROC, ceiling)
        os.fork()  # both processes return, and end

    return ceiling if succeeds_in_child(fork_under_it) else 0
