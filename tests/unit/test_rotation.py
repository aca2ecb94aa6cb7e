"""Encrypting all secrets again: none is left out, a concurrent change of a job wins, no key is removed too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duetime.domain.channels import Kind
from duetime.domain.commands import Command, NewJob, Reencrypt, ReencryptChannel, ReencryptConnection
from duetime.domain.encryption_keys import Key
from duetime.domain.errors import Overloaded
from duetime.domain.job import JobSpec
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import channel_place, connection_place, decrypt_payload, encrypt_job, key_id_of, list_values
from duetime.operate.rotate import MOST_PASSES, PAGE, reencrypt_all, rotate_file
from duetime.ports.store import ChannelRecord, ConnectionRecord
from duetime.vault.aes import AesVault
from duetime.vault.key_file import KeyFile, make_key
from samples import URL, new_job, spec

SECRET = "Bearer s3cret-of-ann"


class FakeDefinitions:
    """The part of a store for a rotation. `between` is called before each write, as a write of another client."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.rows = {job.job_id: (job.job_id, job.tenant, 1, job.spec) for job in jobs}
        self.connections: dict[str, ConnectionRecord] = {}
        self.channels: dict[str, ChannelRecord] = {}
        self.between: Callable[[], None] = lambda: None
        self.commands = 0

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        return [row for job_id, row in sorted(self.rows.items()) if job_id > after][:limit]

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        return list(self.connections.values())[:limit]

    async def list_channels(self, tenant: str | None, limit: int, after: str = "") -> list[ChannelRecord]:
        return list(self.channels.values())[:limit]

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        self.commands += 1
        self.between()
        (command,) = commands
        if isinstance(command, ReencryptConnection):
            record = self.connections[command.name]
            is_same = record.url == command.old
            if is_same:
                self.connections[command.name] = msgspec.structs.replace(record, url=command.new)
            return [is_same]
        if isinstance(command, ReencryptChannel):
            channel = self.channels[command.name]
            if channel.url == command.old:
                self.channels[command.name] = msgspec.structs.replace(channel, url=command.new)
            return [channel.url == command.old]
        assert isinstance(command, Reencrypt)
        done = 0
        for job_id, version, new in command.changes:
            _, tenant, current, _ = self.rows[job_id]
            if version == current:
                self.rows[job_id] = (job_id, tenant, version, new)
                done += 1
        return [done]

    def change(self, job_id: str, new: JobSpec) -> None:
        _, tenant, version, _ = self.rows[job_id]
        self.rows[job_id] = (job_id, tenant, version + 1, new)

    def key_ids(self) -> set[str | None]:
        return {key_id_of(value) for *_, spec in self.rows.values() for value in list_values(spec.payload)}

    def opened(self, vault: AesVault) -> list[HttpRequest]:
        return [
            decrypt_payload(spec.payload, lambda text, own=(tenant, job_id): vault.decrypt(*own, text))
            for job_id, tenant, _, spec in self.rows.values()
        ]


def nobody(seen: int) -> None:
    """Collects the reported progress."""


def secret_job(tenant: str = "acme") -> NewJob:
    payload = HttpRequest(URL, headers={"A": SECRET}, body={"t": [1, "x"]}, secret=("/body/t",))
    return new_job(spec(payload=payload), tenant=tenant)


def connection(name: str, vault: AesVault) -> ConnectionRecord:
    return ConnectionRecord(
        "acme", name, vault.encrypt("acme", connection_place(name), SECRET), "db.example/app", 1, "ann"
    )


async def test_the_urls_of_connections_are_encrypted_with_the_newest_key_too():
    old, newest, lost = make_key(), make_key(), make_key()
    store = FakeDefinitions([])
    store.connections = {"a": connection("a", AesVault((old,))), "b": connection("b", AesVault((lost,)))}
    done = await reencrypt_all(store, AesVault((newest, old)), nobody)
    assert (done.encrypted, done.left, list(done.broken)) == (1, 1, ["connection b"])
    assert key_id_of(store.connections["a"].url) == newest.id
    assert AesVault((newest,)).decrypt("acme", connection_place("a"), store.connections["a"].url) == SECRET


async def test_all_secrets_and_plain_values_are_encrypted_with_the_newest_key():
    old, newest = make_key(), make_key()
    before = AesVault((old,))
    encrypted = [encrypt_job(secret_job(f"tenant-{number % 3}"), before) for number in range(PAGE + 5)]
    store = FakeDefinitions([*encrypted, *(secret_job() for _ in range(3)), new_job(spec())])
    reported_counts: list[int] = []
    done = await reencrypt_all(store, AesVault((newest, old)), reported_counts.append)
    assert (done.key_id, done.encrypted, done.left, done.broken) == (newest.id, PAGE + 8, 0, {})
    assert store.key_ids() == {newest.id}
    payloads = store.opened(AesVault((newest,)))
    assert payloads[:-1] == [secret_job().spec.payload] * (PAGE + 8)
    assert payloads[-1] == HttpRequest(URL)
    assert reported_counts[:2] == [PAGE, PAGE + 9]
    again = await reencrypt_all(store, AesVault((newest, old)), nobody)
    assert (again.encrypted, again.left) == (0, 0)


async def test_a_concurrent_change_of_a_job_wins_and_is_encrypted_in_the_next_pass():
    old, newest = make_key(), make_key()
    before = AesVault((old,))
    job = encrypt_job(secret_job(), before)
    store = FakeDefinitions([job])
    other = HttpRequest(URL, headers={"B": before.encrypt(job.tenant, job.job_id, "other")})

    def change_once() -> None:
        store.between = lambda: None
        store.change(job.job_id, spec(payload=other))

    store.between = change_once
    done = await reencrypt_all(store, AesVault((newest, old)), nobody)
    assert (done.encrypted, done.left) == (1, 0)
    assert store.opened(AesVault((newest,))) == [HttpRequest(URL, headers={"B": "other"})]


async def test_a_rotation_ends_although_a_job_is_changed_all_the_time():
    old, newest = make_key(), make_key()
    job = encrypt_job(secret_job(), AesVault((old,)))
    store = FakeDefinitions([job])
    store.between = lambda: store.change(job.job_id, job.spec)
    done = await reencrypt_all(store, AesVault((newest, old)), nobody)
    assert (done.encrypted, done.left, store.commands) == (0, 1, MOST_PASSES)


async def test_an_undecryptable_secret_is_reported_and_stays_as_it_is():
    newest = make_key()
    lost = encrypt_job(secret_job(), AesVault((make_key(),)))
    store = FakeDefinitions([lost, secret_job()])
    done = await reencrypt_all(store, AesVault((newest,)), nobody)
    assert (done.encrypted, done.left, list(done.broken)) == (1, 1, [lost.job_id])
    assert store.rows[lost.job_id][3] == lost.spec
    assert "s3cret" not in str(done)


async def test_a_refusal_of_the_store_ends_the_rotation():
    class Refusing(FakeDefinitions):
        async def apply(self, commands: Sequence[Command]) -> list[Any]:
            return [Overloaded("not now")]

    with pytest.raises(Overloaded):
        await reencrypt_all(Refusing([secret_job()]), AesVault((make_key(),)), nobody)


class TestFile:
    async def test_the_previous_key_stays_and_older_ones_are_removed(self, tmp_path: Path):
        file, store = KeyFile(tmp_path), FakeDefinitions([secret_job()])
        file.start()
        first = file.list_keys()[0].id
        second = (await rotate_file(store, file, nobody)).key_id
        done = await rotate_file(store, file, nobody)
        assert [key.id for key in file.list_keys()] == [done.key_id, second]
        assert (done.removed, done.kept) == ((first,), (second,))
        assert store.key_ids() == {done.key_id}

    async def test_a_concurrent_change_is_encrypted_at_the_next_rotation(self, tmp_path: Path):
        """A node encrypted with the previous key, and wrote after the last pass."""
        file, store = KeyFile(tmp_path), FakeDefinitions([])
        file.start()
        late = encrypt_job(secret_job(), AesVault(file=file))
        await rotate_file(store, file, nobody)
        store.rows[late.job_id] = (late.job_id, late.tenant, 1, late.spec)
        done = await rotate_file(store, file, nobody)
        assert (done.encrypted, store.key_ids()) == (1, {done.key_id})

    async def test_no_key_is_removed_while_a_secret_needs_it(self, tmp_path: Path):
        file = KeyFile(tmp_path)
        file.start()
        store = FakeDefinitions([encrypt_job(secret_job(), AesVault((make_key(),)))])
        for count in (2, 3, 4):
            done = await rotate_file(store, file, nobody)
            assert (done.left, done.removed, len(file.list_keys())) == (1, (), count)

    async def test_an_interrupted_rotation_is_continued(self, tmp_path: Path):
        file = KeyFile(tmp_path)
        file.start()
        store = FakeDefinitions([encrypt_job(secret_job(), AesVault(file=file)) for _ in range(2 * PAGE)])

        def break_off() -> None:
            if store.commands == 2:
                raise KeyboardInterrupt

        store.between = break_off
        with pytest.raises(KeyboardInterrupt):
            await rotate_file(store, file, nobody)
        assert len(store.key_ids()) == 2
        done = await rotate_file(store, file, nobody)
        assert (done.left, store.key_ids()) == (0, {done.key_id})
        assert store.opened(AesVault(file=KeyFile(tmp_path))) == [secret_job().spec.payload] * (2 * PAGE)


async def test_the_urls_of_alert_channels_are_encrypted_again_too():
    old, newest, lost = make_key(), make_key(), make_key()

    def channel(name: str, key: Key) -> ChannelRecord:
        url = AesVault((key,)).encrypt("acme", channel_place(name), SECRET)
        return ChannelRecord("acme", name, Kind.APPRISE, url, "slack://…", 1, "ann")

    store = FakeDefinitions([])
    store.channels = {"a": channel("a", old), "b": channel("b", lost)}
    done = await reencrypt_all(store, AesVault((newest, old)), nobody)
    assert (done.encrypted, done.left, list(done.broken)) == (1, 1, ["alert channel b"])
    assert AesVault((newest,)).decrypt("acme", channel_place("a"), store.channels["a"].url) == SECRET
