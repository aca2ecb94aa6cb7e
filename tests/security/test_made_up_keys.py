"""Made-up API keys: each costs a read, and many of them delay neither cached keys nor the first use of another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from duetime.api.auth import keyring as module
from duetime.api.auth.keyring import Keyring
from duetime.domain.commands import Command
from duetime.domain.errors import Overloaded, Unauthorized
from duetime.domain.identity import Caller, Role, Tier
from duetime.domain.keys import KEY_BYTES, hash_secret, make_key
from duetime.ports.store import KeyRecord
from duetime.testing import HandClock
from engine.stage import until

HOSTILE, ELSEWHERE = "192.0.2.66", "192.0.2.9"


def key(number: int) -> tuple[str, str, str]:
    return make_key(number.to_bytes(KEY_BYTES, "little"))


def record(number: int) -> KeyRecord:
    key_id, secret, _ = key(number)
    hashed = hash_secret(secret)
    return KeyRecord(key_id, "acme", "ann", "ci", Role.USER, Tier.PRO, (), hashed, 1, "root", None, 1, None)


class SlowStore:
    """Returns known keys at once. Reads of unknown keys hang, which is the worst case of many made-up keys."""

    def __init__(self, *records: KeyRecord) -> None:
        self.keys = {one.key_id: one for one in records}
        self.looking = 0

    async def get_key(self, key_id: str) -> KeyRecord | None:
        if key_id not in self.keys:
            self.looking += 1
            await asyncio.Event().wait()
        return self.keys[key_id]

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        return [None for _ in commands]


def guess(keyring: Keyring, numbers: range) -> list[asyncio.Task[Caller]]:
    return [asyncio.create_task(keyring.find(key(number)[2], HOSTILE)) for number in numbers]


async def test_made_up_keys_delay_neither_cached_keys_nor_new_ones_of_other_addresses() -> None:
    store, clock = SlowStore(record(1), record(2)), HandClock()
    keyring = Keyring(store, clock)
    known = await keyring.find(key(1)[2], HOSTILE)
    clock.advance(module.FRESH_SECONDS + 1)
    guesses = guess(keyring, range(10, 110))
    await until(lambda: store.looking == module.UNKNOWN_AT_ONCE)
    assert await keyring.find(key(1)[2], HOSTILE) == known, "read anew, beside the made-up ones"
    assert (await keyring.find(key(2)[2], ELSEWHERE)).tenant == "acme"
    assert store.looking == module.UNKNOWN_AT_ONCE
    assert not any(task.done() for task in guesses)


async def test_an_address_may_have_a_bounded_number_of_unknown_keys_waiting() -> None:
    store = SlowStore(record(2))
    keyring = Keyring(store, HandClock())
    most = module.UNKNOWN_AT_ONCE + module.MOST_UNKNOWN_WAITING
    guesses = guess(keyring, range(10, 10 + most + 50))
    await until(lambda: sum(task.done() for task in guesses) == 50)
    refused = [task.exception() for task in guesses if task.done()]
    assert {type(error) for error in refused} == {Overloaded}
    assert len(keyring._reading) == most
    assert (await keyring.find(key(2)[2], ELSEWHERE)).tenant == "acme"


async def test_a_made_up_key_is_still_refused_like_any_other() -> None:
    class Empty(SlowStore):
        async def get_key(self, key_id: str) -> KeyRecord | None:
            return None

    with pytest.raises(Unauthorized, match="unknown, revoked or expired"):
        await Keyring(Empty(), HandClock()).find(key(1)[2], HOSTILE)
