"""The keys of a data folder: the file `encryption.keys`, one key per line, newest first, readable by its owner only.

A node creates it at its first start. The file is only replaced as a whole, and read again when it has changed, so that
a running node encrypts with a new key as soon as there is one. Without this file, encrypted secrets are lost: back it
up, but not in the same backup as the database.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from duetime.domain.encryption_keys import KEY_BYTES, Key, parse_keys
from duetime.ports.vault import KeysUnusable
from duetime.private_files import make_file, make_folder

FILE_NAME = "encryption.keys"
LOCK_NAME = "encryption.lock"
OWNER_ONLY = 0o600
KEPT = 2  # the newest and the previous key: writes in flight may have been encrypted with the previous one

log = structlog.get_logger()

_Seen = tuple[int, int, int]


def make_key(random_bytes: Callable[[int], bytes] = os.urandom) -> Key:
    """Returns a new key. Its id begins with the day, so that people see how old it is, and ends with random digits."""
    return Key(f"k{time.strftime('%Y%m%d', time.gmtime())}-{random_bytes(4).hex()}", random_bytes(KEY_BYTES))


class KeyFile:
    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._name = str(self.path)  # cached: `_look` runs at each encrypt, and this would be half its time
        self._keys: tuple[Key, ...] = ()
        self._known: dict[str, Key] = {}
        self._seen: _Seen | None = None
        self._trouble = ""

    def start(self) -> None:
        """Creates the file if there is none. Raises KeysUnusable."""
        self._look()
        if self._seen is None and not self._trouble:
            self._create()
            self._look()
        if self._trouble:
            raise KeysUnusable(self._trouble)

    def list_keys(self) -> tuple[Key, ...]:
        """Returns the keys, newest first; none if the file is missing or can't be read."""
        self._look()
        return () if self._trouble else self._keys

    def find(self, key_id: str) -> Key | None:
        """Returns a key, even one that was removed from the file since: secrets in memory may still need it."""
        if key_id not in self._known:
            self._look()
        return self._known.get(key_id)

    def _look(self) -> None:
        """Reads the file again if it has changed."""
        try:
            found = os.stat(self._name)
        except FileNotFoundError:
            if self._seen is not None:
                self._complain(f"{self.path} is missing: nothing can be encrypted. Put it back from a backup.")
            return
        except OSError as error:
            self._complain(f"{self.path} can't be read: {error.strerror}")
            return
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen == self._seen and not self._trouble:
            return
        self._read(seen, found.st_mode)

    def _read(self, seen: _Seen, mode: int) -> None:
        try:
            keys = parse_keys(self.path.read_text(encoding="ascii").splitlines())
        except UnicodeDecodeError:
            self._complain(f"{self.path} can't be used: it is not text")
            return
        except OSError as error:
            self._complain(f"{self.path} can't be read: {error.strerror}. May this user read it?")
            return
        except ValueError as error:
            self._complain(f"{self.path} can't be used: {error}")
            return
        if not keys:
            self._complain(
                f"{self.path} holds no key. Put it back from a backup, or remove it if nothing was encrypted."
            )
            return
        if mode & 0o077:
            log.warning("other users may read the file of keys: run chmod 600 on it", file=str(self.path))
        self._keys, self._seen, self._trouble = keys, seen, ""
        self._known.update({key.id: key for key in keys})

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.error("the keys can't be used", error=trouble)
        self._trouble = trouble

    def _create(self) -> None:
        try:
            make_folder(self.path.parent)
            draft = self._draft([make_key()])
            try:
                _link(draft, self.path)
            finally:
                draft.unlink(missing_ok=True)
            _sync(self.path.parent)
        except OSError as error:
            raise KeysUnusable(f"{self.path} can't be made: {error.strerror}. May this user write there?") from None

    def _draft(self, keys: Sequence[Key]) -> Path:
        """Writes and syncs a file of these keys under a temporary name, and returns its path."""
        draft = self.path.with_name(f".{FILE_NAME}.{os.getpid()}.{os.urandom(4).hex()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with open(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{key.text}\n" for key in keys)
            file.flush()
            os.fsync(descriptor)
        return draft

    def replace(self, keys: Sequence[Key]) -> None:
        """Replaces all keys atomically. Only under `locked`. Raises KeysUnusable."""
        try:
            os.replace(self._draft(keys), self.path)
            _sync(self.path.parent)
        except OSError as error:
            raise KeysUnusable(f"{self.path} can't be written: {error.strerror}. May this user write there?") from None
        self._look()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks out other rotations: of two new keys, one would be lost. Raises KeysUnusable if one is running."""
        make_file(self.path.with_name(LOCK_NAME))
        with open(self.path.with_name(LOCK_NAME), "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KeysUnusable("another `duetime keys rotate` is under way on this folder; wait for it") from None
            yield


def _link(draft: Path, path: Path) -> None:
    """Publishes the draft unless the file exists: of two processes that start at once, the first creates the file."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not path.exists():
            os.rename(draft, path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
