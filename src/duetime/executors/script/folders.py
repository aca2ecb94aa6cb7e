"""A script's private folder: created for one attempt, and removed with everything in it.

The script owns the folder, and may replace it, or a folder inside it, with a link to another place. So nothing here is
looked up by its path a second time: each step goes from an open folder to a name in it, and no link is followed. The
script may also leave folders that are nested deeper than the longest path, or that even their owner may not enter.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_MODE = 0o700
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PLACE = getattr(os, "O_PATH", os.O_RDONLY)  # opens the parent folder, even one that may not be listed
_MOST_TRIES = 3  # to remove a name that may get a new entry each time


class PrivateFolder:
    """Creates the folder. `path` is for the script and the code that starts it; `remove` never uses it."""

    def __init__(self, parent: str) -> None:
        self._name = f"duetime-script-{os.urandom(8).hex()}"
        self._parent = os.open(parent, _PLACE | os.O_DIRECTORY)
        try:
            os.mkdir(self._name, _MODE, dir_fd=self._parent)
            self._folder = os.open(self._name, _OPEN, dir_fd=self._parent)
        except BaseException:
            os.close(self._parent)
            raise
        self.path = os.path.join(parent, self._name)

    def give_to(self, user: int) -> None:
        os.fchown(self._folder, user, user)

    def write_script(self, text: str, user: int | None) -> str:
        """Writes the text to an executable file and returns its path."""
        descriptor = os.open("script", os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE, dir_fd=self._folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            if user is not None:
                os.fchown(file.fileno(), user, user)
        return os.path.join(self.path, "script")

    def remove(self) -> None:
        """Empties the folder, wherever the script has moved it, and removes the entry at its name. Raises OSError."""
        try:
            _empty(self._folder)
            self._remove_name()
        finally:
            os.close(self._folder)
            os.close(self._parent)

    def _remove_name(self) -> None:
        """Removes the folder, or whatever the script has put in its place. Does not follow a link."""
        for _ in range(_MOST_TRIES):
            try:
                os.rmdir(self._name, dir_fd=self._parent)
            except FileNotFoundError:
                return
            except NotADirectoryError:
                os.unlink(self._name, dir_fd=self._parent)
                return
            except OSError:
                if (other := _open(self._name, self._parent)) is None:
                    continue
                try:
                    _empty(other)
                finally:
                    os.close(other)
            else:
                return
        os.rmdir(self._name, dir_fd=self._parent)


def _empty(top: int) -> None:
    """Empties a folder. Moves inner folders to the top before it empties them: no long paths and no recursion."""
    number = 0
    os.fchmod(top, _MODE)
    while names := _remove_files(top):
        for name in names:
            folder = _open(name, top)
            if folder is None:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=top)
                continue
            try:
                for deeper in _remove_files(folder):
                    _make_usable(deeper, folder)  # moving a folder to another parent needs write permission on it
                    number = _rename(deeper, folder, top, number)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _open(name: str, parent: int) -> int | None:
    """Opens a folder and gives its owner full access. Returns None if it is not a folder, or no longer one."""
    try:
        _make_usable(name, parent)
        return os.open(name, _OPEN, dir_fd=parent)
    except OSError as problem:
        if isinstance(problem, PermissionError):
            raise
        return None


def _make_usable(name: str, parent: int) -> None:
    """Does chmod 700 on a folder, never on the target of a link. Raises OSError."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, _MODE, dir_fd=parent, follow_symlinks=False)
        return
    # Linux has no chmod that does not follow links. O_PATH opens the folder itself and needs no permission on it.
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{folder}", _MODE)
    finally:
        os.close(folder)


def _remove_files(folder: int) -> list[str]:
    """Removes all entries except folders. Returns the names of the folders."""
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
                inner.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return inner


def _rename(name: str, parent: int, top: int, number: int) -> int:
    """Moves a folder into `top`, under the first free number after `number`. Returns that number."""
    while True:
        number += 1
        try:
            os.stat(str(number), dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, str(number), src_dir_fd=parent, dst_dir_fd=top)
            return number
