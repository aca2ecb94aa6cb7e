"""Random parts of ids: a later id sorts after an earlier one, also within one millisecond."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

from duetime.api.random_ids import request_ids, rising
from duetime.domain.ids import SHARDS, make_id, shard_of
from samples import NOW


def test_ids_of_one_millisecond_rise_in_the_order_they_were_made():
    random_bytes = rising(os.urandom)
    ids = [make_id(NOW, random_bytes(10)) for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_ids_rise_from_the_highest_first_number_too():
    random_bytes = rising(lambda size: b"\xff" * size)
    ids = [make_id(NOW, random_bytes(10)) for _ in range(1000)]
    assert ids == sorted(set(ids))


def test_two_nodes_do_not_create_the_same_ids():
    one, other = rising(os.urandom), rising(os.urandom)
    assert not {make_id(NOW, one(10)) for _ in range(1000)} & {make_id(NOW, other(10)) for _ in range(1000)}


def test_ids_spread_over_the_shards():
    random_bytes = rising(os.urandom)
    counts = Counter(shard_of(make_id(NOW, random_bytes(10))) for _ in range(16_000))
    assert len(counts) == SHARDS
    assert max(counts.values()) < 400


def test_request_ids_are_random_from_end_to_end():
    """No part of one id is in the next: no counter, and no constant of the node."""
    ids = list(islice(request_ids(os.urandom), 1000))
    assert len(set(ids)) == 1000
    assert {len(request_id) for request_id in ids} == {32}
    for part in range(4):
        assert len({request_id[part * 8 : part * 8 + 8] for request_id in ids}) > 990


def test_request_ids_draw_random_bytes_for_many_at_a_time():
    drawn = []
    ids = request_ids(lambda size: drawn.append(size) or os.urandom(size))
    assert len(set(islice(ids, 1000))) == 1000
    assert len(drawn) < 10
    assert sum(drawn) >= 16_000


def test_ids_of_jobs_draw_random_bytes_for_many_at_a_time():
    drawn = []
    random_bytes = rising(lambda size: drawn.append(size) or os.urandom(size))
    assert len({random_bytes(10) for _ in range(1000)}) == 1000
    assert len(drawn) < 10
