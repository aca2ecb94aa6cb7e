"""Opens a file in a tenant's folder by its name, and never a file outside that folder.

Runs in a child process, which makes the tenant's folder its working folder. No link is followed, neither for the
tenant's folder nor for the file. The folder is opened without following links and entered by its descriptor. SQLite
opens the file by its name; after that, the open descriptors must belong to the file that was checked. So a link that
replaces the file in between is detected before anything is read. A file with a second name (a hard link) is refused: it
may belong to another user.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat

from duetime.domain.execution import ErrorType
from duetime.executors.sql.problems import Failed, blocked

MOST_FILES = 32  # per tenant
SIDE_FILES = ("-journal", "-wal", "-shm")
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"

Identity = tuple[int, int]  # device and inode
OpenFile = tuple[int, int, int]  # descriptor, device and inode


def enter_folder(folder: str, tenant: str, *, make: bool) -> int:
    """Makes the tenant's folder the working folder, and returns its descriptor. `make`: create it if it is missing."""
    if not _TENANT.fullmatch(tenant):
        raise blocked(f"The tenant {tenant!r} has no name that a folder can have.")
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        raise Failed(
            ErrorType.CONNECTION_ERROR,
            f"The folder for SQLite files can't be opened: {problem.strerror}. The operator makes the folder that "
            "SQL_SQLITE_FOLDER names.",
        ) from None
    try:
        if make:
            _make(top, tenant)
        inner = os.open(tenant, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        os.fchdir(inner)
    except FileNotFoundError:
        raise _missing("The tenant has no SQLite files yet") from None
    except OSError as problem:
        raise blocked(f"The tenant's folder can't be entered: {_reason(problem)}.") from None
    finally:
        os.close(top)
    return inner


def _make(top: int, tenant: str) -> None:
    try:
        os.mkdir(tenant, 0o700, dir_fd=top)
    except FileExistsError:
        return


def find_file(folder: int, name: str, mode: str) -> Identity:
    """Returns the identity of a file that SQLite may open. With mode `rwc`, creates an empty file if it is missing."""
    try:
        found = _look(folder, name, mode)
    except FileNotFoundError:
        if mode != "rwc":
            raise _missing(f"{name} is not there") from None
        found = _create(folder, name)
    for suffix in SIDE_FILES:
        try:
            _check(name + suffix, os.stat(name + suffix, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            continue
    return found.st_dev, found.st_ino


def _look(folder: int, name: str, mode: str) -> os.stat_result:
    access = os.O_RDONLY if mode == "ro" else os.O_RDWR
    try:
        # Closed before SQLite opens the file: closing a descriptor releases all locks that the process has on the file.
        descriptor = os.open(name, access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise blocked(f"{name} is no file of the tenant's own: {_reason(problem)}.") from None
        raise Failed(ErrorType.CONNECTION_ERROR, f"{name} can't be opened: {problem.strerror}.") from None
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    _check(name, found)
    return found


def _check(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise blocked(f"{name} is no file of the tenant's own: it is a link, a folder or a device.")
    if found.st_nlink > 1:
        raise blocked(f"{name} is no file of the tenant's own: it has another name (a hard link).")


def _create(folder: int, name: str) -> os.stat_result:
    fcntl.flock(folder, fcntl.LOCK_EX)  # without it, two processes that count at the same time would both create a file
    try:
        count = sum(not entry.endswith(SIDE_FILES) for entry in os.listdir(folder))
        if count >= MOST_FILES:
            raise Failed(
                ErrorType.CONNECTION_ERROR,
                f"{name} was not made: the tenant has {count} SQLite files, and may have {MOST_FILES}.",
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        except FileExistsError:  # another process has created it meanwhile
            return _look(folder, name, "rw")
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def open_files() -> set[OpenFile]:
    """Returns the regular files that this process has open, with their descriptors."""
    found: set[OpenFile] = set()
    for entry in os.listdir(_DESCRIPTORS):
        try:
            status = os.fstat(int(entry))
        except OSError:  # the descriptor of os.listdir itself, which is closed by now
            continue
        if stat.S_ISREG(status.st_mode):
            found.add((int(entry), status.st_dev, status.st_ino))
    return found


def check_opened(before: set[OpenFile], expected: Identity, name: str) -> None:
    """Raises Failed if any file that was opened since `before` is not the expected one."""
    if any((device, inode) != expected for _, device, inode in open_files() - before):
        raise blocked(f"{name} was replaced while it was opened.")


def _missing(what: str) -> Failed:
    return Failed(
        ErrorType.CONNECTION_ERROR, f"{what}: with ?mode=rwc in the connection's URL, a missing file is created."
    )


def _reason(problem: OSError) -> str:
    return "it is a link" if problem.errno in (errno.ELOOP, errno.ENOTDIR) else str(problem.strerror)
