"""`duetime keys rotate`: encrypts all secrets with the newest key, while nodes may be running.

Definitions are read page by page. A definition is replaced only if it still has the version that was read: a concurrent
change of a job wins, and the next pass handles the job again. The rotation ends when a pass finds nothing to do.

With a key file, a new key is first added in front, and running nodes encrypt with it from then on. The previous key
stays in the file until the next rotation: a node may be storing a change that was encrypted with it. Older keys are
removed once no secret needs them. A rotation that was killed can be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from duetime.domain.commands import Command, Reencrypt, ReencryptChannel, ReencryptConnection
from duetime.domain.job import JobSpec
from duetime.domain.secrets import channel_place, connection_place, key_id_of, reencrypt_spec
from duetime.operate.offline import open_offline
from duetime.ports.store import ChannelRecord, ConnectionRecord, Writable, apply_one
from duetime.ports.vault import DecryptionFailed, KeysUnusable, Vault
from duetime.settings.table import Settings
from duetime.vault.aes import AesVault
from duetime.vault.key_file import KEPT, KeyFile, make_key

PAGE = 200
MOST_PASSES = 10
MOST_URLS = 100_000  # of connections, and of alert channels
MOST_LISTED = 20  # jobs that can't be decrypted, in the result
FIRST_ID = "00000000-0000-0000-0000-000000000000"


class Rotated(msgspec.Struct, frozen=True):
    """`left`: jobs with a secret that is not encrypted with `key_id`. `broken`: why some can't be decrypted, by job."""

    key_id: str
    encrypted: int
    left: int = 0
    broken: dict[str, str] = {}
    removed: tuple[str, ...] = ()  # ids of keys that no secret needs any more
    kept: tuple[str, ...] = ()  # ids of keys that stay in the file, without the newest


class Definitions(Writable, Protocol):
    """The methods of a store that a rotation needs."""

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]: ...
    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]: ...
    async def list_channels(self, tenant: str | None, limit: int) -> list[ChannelRecord]: ...


async def rotate(settings: Settings, tell: Callable[[int], None]) -> Rotated:
    """`tell` is called with the number of jobs read so far. Raises StoreUnusable, KeysUnusable or DuetimeError."""
    keys, file = settings.encryption_keys, KeyFile(settings.data)
    on_postgres = bool(settings.database_url)
    if on_postgres and not keys:
        raise KeysUnusable("there are no ENCRYPTION_KEYS; `duetime keys create` prints a key; put the newest first")
    async with open_offline(settings) as store:
        if keys:
            return await reencrypt_all(store, AesVault(keys, None if on_postgres else file), tell)
        return await rotate_file(store, file, tell)


async def rotate_file(store: Definitions, file: KeyFile, tell: Callable[[int], None]) -> Rotated:
    file.start()
    with file.locked():
        file.replace([make_key(), *file.list_keys()])
        done = await reencrypt_all(store, AesVault(file=file), tell)
        keys = file.list_keys()
        older = () if done.left else keys[KEPT:]
        if older:
            file.replace(keys[:KEPT])
    ids = tuple(key.id for key in keys)
    removed = tuple(key.id for key in older)
    return msgspec.structs.replace(done, removed=removed, kept=tuple(id for id in ids[1:] if id not in removed))


async def reencrypt_all(store: Definitions, vault: Vault, tell: Callable[[int], None]) -> Rotated:
    """Repeats passes until all secrets that can be decrypted are encrypted with the newest key."""
    key_id, encrypted = vault.key_id, 0
    for _ in range(MOST_PASSES):
        wanted, done, broken = await _pass(store, vault, key_id, tell)
        for urls in (await _list_connections(store), await _list_channels(store)):
            also_wanted, also_done = await _pass_urls(store, vault, key_id, urls, broken)
            wanted, done = wanted + also_wanted, done + also_done
        encrypted += done
        if not wanted:
            break
    left = wanted - done + len(broken)
    return Rotated(key_id, encrypted, left, dict(list(broken.items())[:MOST_LISTED]))


async def _pass(
    store: Definitions, vault: Vault, key_id: str, tell: Callable[[int], None]
) -> tuple[int, int, dict[str, str]]:
    """Returns (how many jobs had to be encrypted again, how many of them were, the errors by job)."""
    wanted = done = seen = 0
    broken: dict[str, str] = {}
    after = FIRST_ID
    while page := await store.list_specs(after, PAGE):
        after = page[-1][0]
        changes: list[tuple[str, int, JobSpec]] = []
        for job_id, tenant, version, spec in page:
            try:
                again = reencrypt_spec(
                    spec, key_id, partial(vault.encrypt, tenant, job_id), partial(vault.decrypt, tenant, job_id)
                )
            except DecryptionFailed as error:
                broken[job_id] = str(error)
                continue
            if again is not spec:
                changes.append((job_id, version, again))
        if changes:
            done += await apply_one(store, Reencrypt(tuple(changes)))
            wanted += len(changes)
        seen += len(page)
        tell(seen)
    return wanted, done, broken


class _Url(NamedTuple):
    """An encrypted URL, and how its replacement is written."""

    what: str
    tenant: str
    place: str
    url: str
    replace: Callable[[str], Command[bool]]


async def _list_connections(store: Definitions) -> list[_Url]:
    return [
        _Url(
            f"connection {it.name}", it.tenant, connection_place(it.name), it.url,
            partial(ReencryptConnection, it.tenant, it.name, it.url),
        )
        for it in await store.list_connections(None, MOST_URLS)
    ]  # fmt: skip


async def _list_channels(store: Definitions) -> list[_Url]:
    return [
        _Url(
            f"alert channel {it.name}", it.tenant, channel_place(it.name), it.url,
            partial(ReencryptChannel, it.tenant, it.name, it.url),
        )
        for it in await store.list_channels(None, MOST_URLS)
    ]  # fmt: skip


async def _pass_urls(
    store: Definitions, vault: Vault, key_id: str, urls: Sequence[_Url], broken: dict[str, str]
) -> tuple[int, int]:
    """Does the same for URLs of connections or channels."""
    wanted = done = 0
    for one in urls:
        if key_id_of(one.url) == key_id:
            continue
        try:
            again = vault.encrypt(one.tenant, one.place, vault.decrypt(one.tenant, one.place, one.url))
        except DecryptionFailed as error:
            broken[one.what] = str(error)
            continue
        done += await apply_one(store, one.replace(again))
        wanted += 1
    return wanted, done
