from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from duetime.api.auth import keyring as module
from duetime.api.auth.keyring import Keyring
from duetime.domain.commands import Command, TouchKeys
from duetime.domain.errors import Unauthorized
from duetime.domain.identity import EVERY_RIGHT, Caller, Right, Role, Tier
from duetime.domain.keys import KEY_BYTES, hash_secret, make_key
from duetime.ports.store import KeyRecord
from duetime.testing import HandClock
from patience import PATIENCE_SECONDS

KEY_ID, SECRET, TOKEN = make_key(bytes(range(KEY_BYTES)))
RECORD = KeyRecord(
    KEY_ID, "acme", "ann", "ci", Role.USER, Tier.PRO, (), hash_secret(SECRET), 1, "root", None, None, None
)
USER = frozenset({Right.READ, Right.WRITE, Right.RUN})


class FakeStore:
    """Holds keys, counts reads, and can be slow or away."""

    def __init__(self, *records: KeyRecord) -> None:
        self.keys = {record.key_id: record for record in records}
        self.reads: list[str] = []
        self.commands: list[Command] = []
        self.away: Exception | None = None
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    def change(self, **fields: Any) -> None:
        self.keys[KEY_ID] = msgspec.structs.replace(self.keys[KEY_ID], **fields)

    async def get_key(self, key_id: str) -> KeyRecord | None:
        self.reads.append(key_id)
        self.asked.set()
        found = self.keys.get(key_id)
        await self.open.wait()
        if self.away:
            raise self.away
        return found

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        await self.open.wait()
        if self.away:
            raise self.away
        self.commands.extend(commands)
        return [None for _ in commands]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store() -> FakeStore:
    return FakeStore(RECORD)


@pytest.fixture
def keyring(store: FakeStore, clock: HandClock) -> Keyring:
    return Keyring(store, clock)


async def refused(keyring: Keyring, token: str = TOKEN) -> str:
    with pytest.raises(Unauthorized) as raised:
        await keyring.find(token)
    return raised.value.message


def other(number: int) -> str:
    return make_key(number.to_bytes(KEY_BYTES, "big"))[2]


async def test_a_key_gives_its_caller(keyring: Keyring) -> None:
    assert await keyring.find(TOKEN) == Caller("acme", "ann", Role.USER, Tier.PRO, USER, KEY_ID)


@pytest.mark.parametrize(
    ("role", "scopes", "rights", "tier"),
    [
        (Role.ADMIN, (), EVERY_RIGHT, Tier.PRO),
        (Role.ADMIN, ("read",), {Right.READ}, Tier.PRO),
        (Role.USER, ("read", "admin"), {Right.READ}, Tier.PRO),
        (Role.USER, ("script",), {Right.SCRIPT}, Tier.PRO),
        (Role.ENTERPRISE, (), USER, Tier.ENTERPRISE),
    ],
)
async def test_scopes_limit_the_rights_and_no_scopes_give_all_rights_of_the_role(
    keyring: Keyring, store: FakeStore, role: Role, scopes: tuple[str, ...], rights: set[Right], tier: Tier
) -> None:
    store.change(role=role, scopes=scopes)
    caller = await keyring.find(TOKEN)
    assert (caller.rights, caller.tier) == (rights, tier)


async def test_every_invalid_key_gets_the_same_error(keyring: Keyring, store: FakeStore, clock: HandClock) -> None:
    said = {await refused(keyring, other(1)), await refused(keyring, TOKEN[:-1] + "7"), await refused(keyring, "dt_x")}
    for fields in ({"revoked_at": 1}, {"revoked_at": clock.now() + 999_999}, {"expires_at": clock.now()},
                   {"expires_at": 1}, {"scopes": ("of a newer version",)}, {"secret_hash": ""}):  # fmt: skip
        store.keys[KEY_ID] = msgspec.structs.replace(RECORD, **fields)
        keyring.forget(KEY_ID)
        said.add(await refused(keyring))
    assert len(said) == 1
    assert "unknown, revoked or expired" in said.pop()


@pytest.mark.parametrize("token", ["", "dt_", TOKEN + "\n", TOKEN.upper(), f"dt_{KEY_ID}_", f"dt_{KEY_ID}_%", "a.b.c"])
async def test_text_that_is_not_a_key_is_refused_without_a_read(keyring: Keyring, store: FakeStore, token: str) -> None:
    await refused(keyring, token)
    assert store.reads == []


async def test_a_cached_key_expires_to_the_millisecond(keyring: Keyring, store: FakeStore, clock: HandClock) -> None:
    store.change(expires_at=clock.now() + 1000)
    clock.advance(0.999)
    assert await keyring.find(TOKEN)
    clock.advance(0.001)
    await refused(keyring)
    assert len(store.reads) == 1


async def test_a_record_is_read_once_in_two_seconds(keyring: Keyring, store: FakeStore, clock: HandClock) -> None:
    for _ in range(5):
        await keyring.find(TOKEN)
    clock.advance(1.999)
    await keyring.find(TOKEN)
    assert len(store.reads) == 1
    clock.advance(0.001)
    await keyring.find(TOKEN)
    assert len(store.reads) == 2


async def test_a_key_that_is_revoked_elsewhere_is_refused_within_two_seconds(
    keyring: Keyring, store: FakeStore, clock: HandClock
) -> None:
    await keyring.find(TOKEN)
    store.change(revoked_at=clock.now())
    clock.advance(2)
    await refused(keyring)


async def test_a_clock_that_is_set_back_does_not_extend_the_cache(
    keyring: Keyring, store: FakeStore, clock: HandClock
) -> None:
    await keyring.find(TOKEN)
    store.change(revoked_at=clock.now())
    clock.jump(-3600)
    clock.advance(2)
    await refused(keyring)


async def test_a_key_that_is_revoked_here_is_refused_at_once(keyring: Keyring, store: FakeStore) -> None:
    await keyring.find(TOKEN)
    store.change(revoked_at=1)
    keyring.forget(KEY_ID)
    await refused(keyring)


async def test_a_read_that_began_before_the_revocation_is_not_cached(keyring: Keyring, store: FakeStore) -> None:
    store.open.clear()
    slow = asyncio.create_task(keyring.find(TOKEN))
    await store.asked.wait()
    store.change(revoked_at=1)
    keyring.forget(KEY_ID)
    store.open.set()
    assert await slow  # it was requested before
    await refused(keyring)


async def test_a_missing_key_is_read_once_in_two_seconds(keyring: Keyring, store: FakeStore, clock: HandClock) -> None:
    for _ in range(5):
        await refused(keyring, other(1))
    assert len(store.reads) == 1
    clock.advance(2)
    await refused(keyring, other(1))
    assert len(store.reads) == 2


async def test_guesses_of_a_secret_cause_no_reads(keyring: Keyring, store: FakeStore) -> None:
    for letter in "abcdefgh":
        await refused(keyring, TOKEN[:-1] + letter if not TOKEN.endswith(letter) else TOKEN[:-1] + "7")
    assert len(store.reads) == 1


async def test_made_up_keys_take_limited_memory_and_evict_no_real_key(
    keyring: Keyring, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CACHED", 3)
    keyring = Keyring(store, HandClock())
    await keyring.find(TOKEN)
    for number in range(10):
        await refused(keyring, other(number << 300))
    assert (len(keyring._found), len(keyring._missing), len(keyring._reading)) == (1, 3, 0)
    await keyring.find(TOKEN)
    assert store.reads.count(KEY_ID) == 1


async def test_the_keys_that_were_used_last_stay_cached(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CACHED", 2)
    made = [make_key(bytes([number] * KEY_BYTES)) for number in range(3)]
    store = FakeStore(
        *(msgspec.structs.replace(RECORD, key_id=key_id, secret_hash=hash_secret(it)) for key_id, it, _ in made)
    )
    keyring = Keyring(store, clock)
    for number in (0, 1, 0, 2, 0):
        await keyring.find(made[number][2])
    assert store.reads == [made[number][0] for number in (0, 1, 2)]


async def test_concurrent_requests_share_one_read(keyring: Keyring, store: FakeStore) -> None:
    store.open.clear()
    asking = [asyncio.create_task(keyring.find(TOKEN)) for _ in range(50)]
    await store.asked.wait()
    asking[0].cancel()  # the request that began the read is cancelled
    await asyncio.sleep(0)
    store.open.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert {caller.user_id for caller in found[1:] if isinstance(caller, Caller)} == {"ann"}
    assert len(store.reads) == 1


async def test_an_error_of_the_store_is_raised_and_not_cached(keyring: Keyring, store: FakeStore) -> None:
    store.away = OSError("away")
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await keyring.find(TOKEN)
    store.away = None
    assert await keyring.find(TOKEN)


# The last use


def touched(store: FakeStore) -> list[tuple[str, ...]]:
    return [command.key_ids for command in store.commands if isinstance(command, TouchKeys)]


async def test_the_use_of_a_key_is_stored_once_a_minute(keyring: Keyring, store: FakeStore, clock: HandClock) -> None:
    began = clock.now()
    for _ in range(60):
        await keyring.find(TOKEN)
        await keyring.stop()
        clock.advance(1)
    assert store.commands == [TouchKeys(now=began, key_ids=(KEY_ID,))]
    await keyring.find(TOKEN)
    await keyring.stop()
    assert store.commands[1:] == [TouchKeys(now=began + 60_000, key_ids=(KEY_ID,))]


async def test_a_use_that_another_node_has_stored_is_not_stored_again(
    keyring: Keyring, store: FakeStore, clock: HandClock
) -> None:
    store.change(last_used_at=clock.now() - 59_999)
    await keyring.find(TOKEN)
    await keyring.stop()
    assert touched(store) == []
    clock.advance(0.001)
    await keyring.find(TOKEN)
    await keyring.stop()
    assert touched(store) == [(KEY_ID,)]


async def test_the_use_of_a_refused_key_is_not_stored(keyring: Keyring, store: FakeStore, clock: HandClock) -> None:
    await refused(keyring, TOKEN[:-1] + "7")
    store.change(revoked_at=1)
    keyring.forget(KEY_ID)
    await refused(keyring)
    await keyring.stop()
    assert touched(store) == []


async def test_storing_uses_delays_no_request(keyring: Keyring, store: FakeStore) -> None:
    await keyring._record(KEY_ID)
    store.open.clear()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await keyring.find(TOKEN)
    store.open.set()
    await keyring.stop()
    assert touched(store) == [(KEY_ID,)]


async def test_uses_during_a_write_are_stored_together(clock: HandClock) -> None:
    made = [make_key(bytes([number] * KEY_BYTES)) for number in range(4)]
    store = FakeStore(
        *(msgspec.structs.replace(RECORD, key_id=key_id, secret_hash=hash_secret(it)) for key_id, it, _ in made)
    )
    keyring = Keyring(store, clock)
    for key_id, _, _ in made:
        await keyring._record(key_id)
    store.open.clear()
    await keyring.find(made[0][2])
    await asyncio.sleep(0)
    for _, _, token in made[1:]:
        await keyring.find(token)
    store.open.set()
    await keyring.stop()
    assert touched(store) == [(made[0][0],), tuple(sorted(key_id for key_id, _, _ in made[1:]))]


async def test_a_failed_write_of_uses_fails_no_request_and_is_logged(
    keyring: Keyring, store: FakeStore, clock: HandClock
) -> None:
    await keyring._record(KEY_ID)
    store.away = OSError("away")
    with capture_logs() as logs:
        assert await keyring.find(TOKEN)
        await keyring.stop()
    assert [(entry["log_level"], entry["error"]) for entry in logs] == [("warning", "away")]
    store.away = None
    clock.advance(60)
    await keyring.find(TOKEN)
    await keyring.stop()
    assert touched(store) == [(KEY_ID,)]
