"""Random histories of two targets: the breaker is compared with a few lines that read the whole history each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.breaker import Circuit, End, Rules, count, lets_through, take_probe
from duetime.domain.states import State
from samples import NOW, TENANT, URL

STEPS = st.lists(
    st.tuples(st.sampled_from(["fails", "succeeds", "asks", "waits"]), st.integers(0, 1), st.integers(0, 40)),
    max_size=60,
)


@given(STEPS, st.integers(1, 5), st.integers(1, 30))
def test_a_circuit_is_open_from_the_threshold_to_the_next_success_with_one_probe_per_cooldown(
    steps: list[tuple[str, int, int]], threshold: int, cooldown: int
):
    rules = Rules(threshold, cooldown)
    known: dict[int, Circuit] = {}
    in_a_row = [0, 0]
    probes: list[list[int]] = [[], []]  # since it was last closed or opened: the instants of the probes
    now = NOW
    for number, (what, circuit, amount) in enumerate(steps):
        if what == "waits":
            now += amount
        elif what == "asks":
            if circuit in known:
                before = known[circuit]
                known[circuit] = take_probe(before, f"{number}", now, rules)
                if known[circuit].probe == f"{number}":
                    probes[circuit].append(now)
        else:
            state = State.FAILED if what == "fails" else State.COMPLETED
            end = End(circuit, TENANT, URL, f"{number}", 1, 1, state, now)
            was_open = circuit in known and known[circuit].opened_at is not None
            (after,) = count(known, [end], rules).values()
            in_a_row[circuit] = in_a_row[circuit] + 1 if what == "fails" else 0
            known.pop(circuit, None)
            if after is not None:
                known[circuit] = after
            if not was_open or what == "succeeds":
                probes[circuit] = []
        for one in (0, 1):
            found = known.get(one)
            assert (found is None) == (in_a_row[one] == 0)
            assert lets_through(found, "somebody") == (in_a_row[one] < threshold)
            assert all(b - a >= cooldown for a, b in zip(probes[one], probes[one][1:], strict=False))


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(1, 6))
def test_the_division_of_ends_into_pages_has_no_effect(failures: list[bool], cut: int, threshold: int):
    rules = Rules(threshold, cooldown=60_000)
    ends = [
        End(1, TENANT, URL, f"{at}", 1, 1, State.FAILED if is_failure else State.COMPLETED, NOW + at)
        for at, is_failure in enumerate(failures)
    ]
    together = count({}, ends, rules).get(1)
    first = count({}, ends[:cut], rules).get(1)
    second = count({} if first is None else {1: first}, ends[cut:], rules).get(1, first)
    assert second == together
