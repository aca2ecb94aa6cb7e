"""Which executions are traced follows from their ids; so do the ids of their spans."""

from __future__ import annotations

import os

import pytest

from duetime.domain.ids import execution_id, make_id
from duetime.domain.sampling import JOINED, NOTHING, Parent, Sampling, joins_creation, parent_of, span_id, trace_id
from samples import NOW


def page(size: int) -> list[str]:
    """Ids as a page of executions has them: consecutive."""
    first = int.from_bytes(os.urandom(9), "big")
    return [execution_id(NOW, first + number) for number in range(size)]


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1, 0.5])
def test_each_page_has_its_share_of_sampled_executions(ratio: float):
    sampling = Sampling.of(ratio)
    for _ in range(20):
        found = sum(map(sampling.has, page(4096)))
        assert 0.6 * ratio * 4096 - 4 < found < 1.4 * ratio * 4096 + 4


def test_a_ratio_of_one_samples_all_and_zero_none():
    ids = page(1000)
    assert all(map(Sampling.of(1).has, ids))
    assert not any(map(Sampling.of(0).has, ids))
    assert not any(map(NOTHING.has, ids))


def test_what_a_smaller_ratio_samples_a_larger_one_samples_too():
    small, large = Sampling.of(0.05), Sampling.of(0.2)
    assert all(large.has(id) for id in page(2000) if small.has(id))


def test_ids_of_spans_are_distinct_and_follow_from_the_execution():
    one, other = page(2)
    made = {span_id(name, id, number) for name in ("fire", "queue") for id in (one, other) for number in (0, 1)}
    assert len(made) == 8
    assert span_id("fire", one) == span_id("fire", one)
    assert trace_id(one) == one.replace("-", "")


def test_only_an_execution_soon_after_its_jobs_creation_has_it_in_its_trace():
    job_id = make_id(NOW, os.urandom(10))
    assert [joins_creation(execution_id(NOW + late, 1), job_id) for late in (-1, 0, JOINED, JOINED + 1)] == [
        False, True, True, False,
    ]  # fmt: skip


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{TRACE}-{SPAN}-01", Parent(TRACE, SPAN, True)),
        (f"00-{TRACE}-{SPAN}-00", Parent(TRACE, SPAN, False)),
        (f"00-{TRACE}-{SPAN}-02", Parent(TRACE, SPAN, False)),
        (f"cc-{TRACE}-{SPAN}-03-later", Parent(TRACE, SPAN, True)),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"cc-{TRACE}-{SPAN}-01-" + "x" * 999, None),
        ("\xff", None),
        ("", None),
    ],
)
def test_the_callers_span_is_read_from_its_header(header: str, found: Parent | None):
    assert parent_of(header.encode("latin-1")) == found
    assert parent_of(None) is None
