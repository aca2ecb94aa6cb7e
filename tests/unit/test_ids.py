"""Ids: valid UUIDv7, ordered by their instant, and the same one for the same job and instant."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.ids import SHARDS, execution_id, instant_of, is_id, make_id, shard_of
from duetime.domain.instants import LATEST
from duetime.domain.schedule import jitter_of
from samples import NOW


def random_bytes(number: int) -> bytes:
    """Returns ten bytes that differ in every bit, like random ones."""
    return (number * 0x9E3779B97F4A7C15F39D % 2**80).to_bytes(10, "big")


IDS = [make_id(NOW, random_bytes(number)) for number in range(10_000)]


@pytest.mark.parametrize("at", [0, 1, NOW, LATEST - 1])
@pytest.mark.parametrize("ten_bytes", [bytes(10), b"\xff" * 10, bytes(range(10))])
def test_an_id_is_a_uuid_of_version_7(at: int, ten_bytes: bytes):
    made = uuid.UUID(make_id(at, ten_bytes))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == at
    assert is_id(str(made))


def test_ids_differ_if_their_random_bytes_differ():
    assert len(set(IDS)) == len(IDS)


def test_ids_sort_by_their_instant():
    ids = [make_id(at, b"\xff" * 10 if at % 2 else bytes(10)) for at in range(NOW, NOW + 100)]
    assert ids == sorted(ids)


def test_an_execution_id_begins_with_its_scheduled_instant():
    made = execution_id(NOW, 2**72 - 1)
    assert instant_of(made) == NOW
    assert (uuid.UUID(made).version, uuid.UUID(made).variant) == (7, uuid.RFC_4122)


def test_consecutive_numbers_make_neighbouring_ids():
    ids = [execution_id(NOW, 2**60 + number) for number in range(1000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000


def test_another_number_or_another_instant_is_another_execution():
    ids = {execution_id(at, number << 55) for number in range(100) for at in range(NOW, NOW + 100)}
    assert len(ids) == 10_000


@pytest.mark.parametrize(
    "text", ["", "x", IDS[0].upper(), IDS[0][:-1], IDS[0] + "0", IDS[0].replace("-", ""), IDS[0] + "\n"]
)
def test_other_texts_are_not_ids(text: str):
    assert not is_id(text)


def test_jobs_are_spread_evenly_over_the_shards():
    shards = Counter(shard_of(job) for job in IDS)
    assert set(shards) == set(range(SHARDS))
    assert max(shards.values()) < 2 * len(IDS) / SHARDS


def test_jitter_is_spread_evenly_and_stays_below_its_bound():
    seconds = Counter(jitter_of(job, 10) // 1000 for job in IDS)
    assert set(seconds) == set(range(10))
    assert max(seconds.values()) < 1.3 * len(IDS) / 10


def test_the_jitter_of_a_job_is_stable():
    assert jitter_of(IDS[0], 3600) == jitter_of(IDS[0], 3600)
    assert jitter_of(IDS[0], 0) == 0
    assert jitter_of(IDS[0], 0.0005) == 0
    assert jitter_of(IDS[0], 0.001) == 0


def test_urls_of_one_scheme_host_and_port_share_an_endpoint():
    same = {
        endpoint_of_url(url)
        for url in ("https://a.example/x", "https://A.example/y?z=1", "HTTPS://a.example", "https://a.example/x/y")
    }
    assert len(same) == 1
    others = {endpoint_of_url(url) for url in ("http://a.example/", "https://a.example:444/", "https://b.example/")}
    assert len(others | same) == 4
