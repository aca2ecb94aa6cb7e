"""Files and folders for their owner only: how Duetime makes its own, and which of them are open to others.

What is there already is never changed: an operator may have meant it. It is told, at start and by `duetime doctor`.
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
MOST_ENTRIES = 1000  # of a data folder, that are looked at
SHOWN = 3


def make_folder(path: str | Path) -> None:
    """Makes a folder, and those above it that are missing. One that is there stays as it is."""
    missing = []
    place = Path(path)
    while not place.exists() and place != place.parent:
        missing.append(place)
        place = place.parent
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_file(path: str | Path) -> None:
    """Makes an empty file. One that is there stays as it is."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def list_wide(folder: Path) -> list[Path]:
    """Returns the folder, and what is directly in it, as far as others than its owner have any right to it."""
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
    """Returns the command that closes these to others."""
    shown = [f"'{path}'" for path in wide[:SHOWN]]
    more = " …" if len(wide) > SHOWN else ""
    return f"Close them to others: chmod go= {' '.join(shown)}{more}"


def permissions(folder: Path) -> Check:
    """What `duetime doctor` says."""
    wide = list_wide(folder)
    if not wide:
        return ok("permissions", f"Only its owner may read {folder} and what is in it.")
    found = f"Others than their owner may read, write or enter {len(wide)} of {folder} and what is in it."
    return warning("permissions", found, f"{advice_for(wide)}")
