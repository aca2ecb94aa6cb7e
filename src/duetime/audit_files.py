"""Files of the audit, which housekeeping writes before it prunes, and `duetime audit export`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from duetime.domain.audit_export import ExportVerifier
from duetime.private_files import make_folder

ENDING = ".jsonl"


class AuditFolder:
    """A `ports.archive.AuditArchive`: a folder of files, named by their chain and links."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def save(self, chain: int, first: int, last: int, lines: Sequence[bytes]) -> None:
        path = self._folder / f"chain{chain}-links{first:012}-{last:012}{ENDING}"
        await asyncio.to_thread(self._save, path, lines)

    def _save(self, path: Path, lines: Sequence[bytes]) -> None:
        make_folder(path.parent)
        with writing(path) as write:
            for line in lines:
                write(line)


@contextmanager
def writing(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Writes a file atomically. On success it is on the disk; after an error it does not exist. Only its owner may read
    it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            yield lambda line: file.writelines((line, b"\n"))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def files_of(path: Path) -> list[Path]:
    """Returns the file, or the audit files of a folder, in the order of their links."""
    return sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path]


def verify_files(paths: Sequence[Path]) -> ExportVerifier:
    """Verifies each line of the files, in this order. Raises OSError."""
    verifier = ExportVerifier()
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            verifier.add(f"{path}, line {number}", line)
    return verifier


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            yield line.rstrip(b"\n")
