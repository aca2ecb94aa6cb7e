"""Creates files and folders for their owner only, and lists those that other users can access.

Permissions of existing files are never changed: they may be intended. A start and `duetime doctor` report them.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from duetime.domain.doctor import Check, ok, warning

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077
MOST_ENTRIES = 1000  # of a data folder, that are checked
SHOWN = 3


def make_folder(path: str | Path) -> None:
    """Creates a folder and its missing parents. Existing folders are not changed."""
    missing = []
    place = Path(path)
    while not place.exists() and place != place.parent:
        missing.append(place)
        place = place.parent
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_file(path: str | Path) -> None:
    """Creates an empty file. An existing file is not changed."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def list_wide(folder: Path) -> list[Path]:
    """Returns the folder and its entries, as far as users other than the owner have access."""
    try:
        wide = [folder] if os.stat(folder).st_mode & OTHERS else []
        with os.scandir(folder) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                mode = entry.stat(follow_symlinks=False).st_mode
                if not stat.S_ISLNK(mode) and mode & OTHERS:
                    wide.append(Path(entry.path))
    except FileNotFoundError:
        return []
    return sorted(wide)


def advice_for(wide: list[Path]) -> str:
    """Returns the command that removes the access of other users."""
    shown = [f"'{path}'" for path in wide[:SHOWN]]
    more = " …" if len(wide) > SHOWN else ""
    return f"Remove their access: chmod go= {' '.join(shown)}{more}"


def permissions(folder: Path) -> Check:
    """A check of `duetime doctor`."""
    wide = list_wide(folder)
    if not wide:
        return ok("permissions", f"Only the owner has access to {folder} and its content.")
    found = f"Users other than the owner have access to {len(wide)} of {folder} and its content."
    return warning("permissions", found, advice_for(wide))
