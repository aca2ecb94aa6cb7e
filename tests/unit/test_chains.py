"""Chains as pure rules: the effect of ends on the jobs that wait for them, and loops."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.chains import MOST_LINKS, Followed, Link, check_loops, explain_wait, follow
from duetime.domain.errors import InvalidRequest
from duetime.domain.instants import LATEST
from duetime.domain.job import JobStatus
from duetime.domain.states import State
from samples import NOW, TENANT

PENDING, PAUSED = JobStatus.PENDING, JobStatus.PAUSED


def link(job: str, awaited: str, *, ends: str = "success", done: bool = False, **fields: object) -> Link:
    known = {"status": PENDING, "due_at": LATEST} | fields
    return Link(job, TENANT, f"key of {awaited}", ends, done, **known, awaited=awaited)  # type: ignore[arg-type]


def loop(keys: list[str], *links: tuple[str, str], **owners: str) -> str | None:
    try:
        check_loops(keys, [(key, awaited, owners.get(key, "ann")) for key, awaited in links])
    except InvalidRequest as refused:
        return refused.errors[0].message.split(": ")[1].split(";")[0]
    return None


def test_the_last_end_starts_the_job_and_clears_the_marks():
    links = [link("c", "a", done=True), link("c", "b")]
    assert follow([("b", State.COMPLETED)], links) == Followed([("c", "key of a", False)], ["c"], [])


def test_a_start_of_a_paused_job_is_skipped():
    assert follow([("a", State.COMPLETED)], [link("c", "a", status=PAUSED)]) == Followed([], [], [("c", TENANT)])


@pytest.mark.parametrize(
    ("status", "due_at"),
    [
        (PENDING, NOW), (PENDING, None), (PAUSED, None), (JobStatus.COMPLETED, None), (JobStatus.CANCELLED, None),
        (JobStatus.COMPLETED, LATEST),
    ],
)  # fmt: skip
def test_an_end_does_not_change_a_due_job_or_one_without_runs(status: JobStatus, due_at: int | None):
    assert follow([("a", State.COMPLETED)], [link("c", "a", status=status, due_at=due_at)]) == Followed([], [], [])


ENDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(sorted(State))), max_size=8)


@given(ENDS, st.sampled_from(["success", "failure", "any"]), st.booleans())
def test_a_page_of_ends_has_the_same_effect_as_single_ends(ends: list[tuple[str, State]], on: str, paused: bool):
    status = PAUSED if paused else PENDING
    links = [link("c", "a", ends=on, status=status), link("c", "b", ends=on, status=status)]
    marks, starts, skips = follow(ends, links)
    good = {"success": {State.COMPLETED}, "failure": {State.FAILED, State.TIMEOUT}}
    counts = good.get(on, {State.COMPLETED, State.FAILED, State.TIMEOUT})
    done: dict[str, bool] = {"a": False, "b": False}
    began = 0
    for job, state in ends:
        if began and not paused:
            break  # it is due: later ends belong to the next start
        if state in (State.COMPLETED, State.FAILED, State.TIMEOUT):
            done[job] = state in counts
        if all(done.values()):
            began, done = began + 1, {"a": False, "b": False}
    assert {key[-1]: is_done for _, key, is_done in marks} == {job: True for job, is_done in done.items() if is_done}
    assert (len(starts), len(skips)) == ((0, min(began, 1)) if paused else (min(began, 1), 0))


def test_a_loop_is_shown_in_the_order_of_execution():
    links = ("b", "a"), ("c", "b"), ("a", "c"), ("a", "x")
    assert loop(["a"], *links) == "a → b → c → a"
    assert loop(["c"], *links) == "c → a → b → c"
    assert loop(["a"], ("b", "a"), ("c", "b"), ("c", "a")) is None


def test_keys_of_other_users_jobs_are_not_named():
    links = ("b", "a"), ("c", "b"), ("a", "c")
    assert loop(["a"], *links, b="bob") == "a → another user's job → c → a"


def test_a_long_loop_is_shown_shortened():
    links = [(f"k{n + 1}", f"k{n}") for n in range(999)]
    way = loop(["k0"], *links, ("k0", "k999"))
    assert way is not None
    assert way.startswith("k0 → k1 → k2 → ")
    assert way.endswith(" → … → k0")
    assert len(way) < 100


def test_too_many_links_to_check_are_refused():
    with pytest.raises(InvalidRequest, match="20,000 links"):
        check_loops(["a"], [("a", "b", "ann")] * (MOST_LINKS + 1))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_a_loop_is_found_if_and_only_if_there_is_one(pairs: list[tuple[int, int]]):
    """The oracle removes every job that waits for nothing, until none does."""
    links = {(str(a), str(b)) for a, b in pairs if a != b}
    left = set(links)
    while free := {link for link in left if not any(other[0] == link[1] for other in left)}:
        left -= free
    found = loop([str(n) for n in range(7)], *sorted(links))
    assert (found is not None) == bool(left)
    if found is not None:
        way = found.split(" → ")
        assert way[0] == way[-1]
        assert all((later, earlier) in links for earlier, later in pairwise(way))


def test_the_predecessors_of_a_job_are_described_in_words():
    assert explain_wait("a", "success", True) == "waits for 'a' to succeed"
    assert (
        explain_wait("a", "failure", False) == "waits for 'a' to fail; there is no job with this key that you can see"
    )
