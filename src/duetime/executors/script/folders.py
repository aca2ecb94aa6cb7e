"""A script's private folder: made for one run, removed with whatever is in it then.

By the time of removal none of the script's processes is left, so nobody plays tricks meanwhile; but what they left may
be nested deeper than any path is long, or closed to its own owner.
"""

from __future__ import annotations

import os
import stat


def make_folder(parent: str) -> str:
    path = os.path.join(parent, f"duetime-script-{os.urandom(8).hex()}")
    os.mkdir(path, 0o700)
    return path


def write_script(folder: str, text: str, user: int | None) -> str:
    path = os.path.join(folder, "script")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        if user is not None:
            os.fchown(file.fileno(), user, user)
    return path


def remove_folder(folder: str) -> None:
    """Folders inside are brought to the top before they are emptied: no path gets long, and nothing recurses."""
    number = 0
    os.chmod(folder, 0o700)
    while inner := _remove_files(folder):
        for path in inner:
            os.chmod(path, 0o700)
            for deeper in _remove_files(path):
                os.chmod(deeper, 0o700)  # a folder that changes its parent is written to
                number = _rename(deeper, folder, number)
            os.rmdir(path)
    os.rmdir(folder)


def _remove_files(folder: str) -> list[str]:
    """Answers the folders in it, which stay."""
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
                inner.append(entry.path)
            else:
                os.unlink(entry.path)
    return inner


def _rename(path: str, parent: str, number: int) -> int:
    """To the first free number; answers that."""
    while True:
        number += 1
        target = os.path.join(parent, str(number))
        if not os.path.lexists(target):
            os.rename(path, target)
            return number
