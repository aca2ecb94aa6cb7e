"""Finds the callers of API keys. Records are cached for two seconds, so that a request seldom waits for the store.

So this node refuses a key that another node revokes two seconds later at most, and a key that it revokes itself at once
(`forget`). Every bad key gets the same error, so that callers can't find out which keys exist.

A key that is not cached costs a read, whether it is real or made up. Few such reads run at a time, and they are shared
by client address: made-up keys delay neither cached keys nor the first use of a key from another address.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Protocol

import structlog

from duetime.domain.commands import TouchKeys
from duetime.domain.errors import Unauthorized
from duetime.domain.identity import Caller, rights_of, tier_of
from duetime.domain.instants import MINUTE
from duetime.domain.keys import hash_secret, is_secret, parse_key
from duetime.places import Places
from duetime.ports.clock import Clock
from duetime.ports.store import KeyRecord, Writable
from duetime.recent import Recent

FRESH_SECONDS = 2.0
MOST_CACHED = 4096  # of each kind
UNKNOWN_AT_ONCE = 2  # reads of keys that are not cached; an address below its share may start one in addition
MOST_UNKNOWN_AT_ONCE = 8
MOST_UNKNOWN_WAITING = 128  # of one address
TOUCH_EVERY = MINUTE
_NO_HASH = hash_secret("")  # compared if there is no record, so that the check takes the same time

log = structlog.get_logger()


class KeyStore(Writable, Protocol):
    """The methods of the store that the keyring needs."""

    async def get_key(self, key_id: str) -> KeyRecord | None: ...


class Keyring:
    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._found = Recent[str, tuple[KeyRecord, float]](MOST_CACHED)
        # Separate, so that made-up keys evict no real one.
        self._missing = Recent[str, float](MOST_CACHED)
        self._unknown = Places(UNKNOWN_AT_ONCE, MOST_UNKNOWN_AT_ONCE, MOST_UNKNOWN_WAITING, "unknown API keys")
        self._reading: dict[str, asyncio.Task[KeyRecord | None]] = {}
        self._touched = Recent[str, float](MOST_CACHED)
        self._to_touch: set[str] = set()
        self._touching: asyncio.Task[None] | None = None

    async def find(self, token: str, address: str = "") -> Caller:
        """Returns the caller of this key. `address`: the client's.

        Raises Unauthorized, or Overloaded if too many keys wait to be read. Errors of the store pass through.
        """
        parsed = parse_key(token)
        if parsed is None:
            raise _refusal()
        key_id, secret = parsed
        record = await self._record(key_id, address)
        if not is_secret(secret, record.secret_hash if record else _NO_HASH) or record is None:
            raise _refusal()
        now = self._clock.now()
        if record.revoked_at is not None or (record.expires_at is not None and now >= record.expires_at):
            raise _refusal()
        caller = _caller(record)
        self._note_use(record, now)
        return caller

    def forget(self, key_id: str) -> None:
        """Drops a key that this node has just changed. A read that is under way is not cached: it may be old."""
        self._found.pop(key_id)
        self._missing.pop(key_id)
        self._reading.pop(key_id, None)

    async def stop(self) -> None:
        """Waits for pending writes."""
        while self._touching is not None:
            await asyncio.wait({self._touching})

    async def _record(self, key_id: str, address: str = "") -> KeyRecord | None:
        oldest = self._clock.monotonic() - FRESH_SECONDS
        found = self._found.get(key_id)
        if found is not None and found[1] > oldest:
            return found[0]
        missing_since = self._missing.get(key_id)
        if missing_since is not None and missing_since > oldest:
            return None
        reading = self._reading.get(key_id)
        if reading is None:
            reading = self._reading[key_id] = asyncio.create_task(self._read(key_id, address), name="read-key")
        return await asyncio.shield(reading)  # cancelling one request must not cancel the read for others

    async def _read(self, key_id: str, address: str) -> KeyRecord | None:
        """Reads a record once for all requests that wait for it."""
        own = asyncio.current_task()
        try:
            async with nullcontext() if self._found.get(key_id) else self._unknown.of(address):
                read_at = self._clock.monotonic()
                record = await self._store.get_key(key_id)
            if self._reading.get(key_id) is own:
                self._keep(key_id, record, read_at)
            return record
        finally:
            if self._reading.get(key_id) is own:
                del self._reading[key_id]

    def _keep(self, key_id: str, record: KeyRecord | None, read_at: float) -> None:
        self._found.pop(key_id)
        self._missing.pop(key_id)
        if record is None:
            self._missing.put(key_id, read_at)
        else:
            self._found.put(key_id, (record, read_at))

    def _note_use(self, record: KeyRecord, now: int) -> None:
        """Records the use of a key, at most once a minute per key over all nodes."""
        at = self._clock.monotonic()
        touched_at = self._touched.get(record.key_id)
        if touched_at is not None and at - touched_at < TOUCH_EVERY / 1000:
            return
        if record.last_used_at is not None and abs(now - record.last_used_at) < TOUCH_EVERY:
            return
        self._touched.put(record.key_id, at)
        self._to_touch.add(record.key_id)
        if self._touching is None:
            self._touching = asyncio.create_task(self._touch(), name="touch-keys")

    async def _touch(self) -> None:
        """Writes the last uses in the background: no request waits for this or fails with it."""
        try:
            while self._to_touch:
                key_ids = tuple(sorted(self._to_touch))
                self._to_touch.clear()
                await self._store.apply([TouchKeys(now=self._clock.now(), key_ids=key_ids)])
        except Exception as error:  # noqa: BLE001 - when a key was last used is worth no more than a line in the log
            log.warning("the last uses of API keys could not be stored", error=str(error) or type(error).__name__)
        finally:
            self._touching = None


def _caller(record: KeyRecord) -> Caller:
    try:
        rights = rights_of(record.role, record.scopes or None)
    except ValueError:  # written by a newer version: this one does not know what the scope grants
        log.warning("an API key was refused: it has a scope that this version does not support", key_id=record.key_id)
        raise _refusal() from None
    return Caller(
        record.tenant, record.user_id, record.role, tier_of(record.role, record.tier), rights, record.key_id,
        expires_at=record.expires_at,
    )  # fmt: skip


def _refusal() -> Unauthorized:
    return Unauthorized(
        "this API key is unknown, revoked or expired; an admin creates a new one with `duetime token create`"
    )
