"""The error budget against brute force: each execution by itself, in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from duetime.domain.budgets import JobStanding, Standing, worst_of
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import Slo
from duetime.domain.objectives import (
    BURN_RULES,
    BURN_SPANS,
    LEAST_BAD,
    Budget,
    BurnRule,
    Objective,
    ObjectiveKind,
    Sample,
    budget_of,
    burning,
    counted,
    objectives_of,
)

NOW = 1_767_225_600_000
SPANS = (10 * SECOND, MINUTE, HOUR)

targets = st.integers(50_000, 99_999).map(lambda thousandths: thousandths / 1000)
windows = st.sampled_from([HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY])
objectives = st.builds(Objective, st.sampled_from(ObjectiveKind), targets, windows)


@st.composite
def sample_lists(draw: st.DrawFn) -> list[Sample]:
    found = []
    for _ in range(draw(st.integers(0, 30))):
        span = draw(st.sampled_from(SPANS))
        age = draw(st.integers(0, 32 * DAY // span)) * span
        total = draw(st.integers(0, 50))
        found.append(Sample(NOW - NOW % span - age, span, draw(st.integers(0, total)), total))
    return found


def executions(samples: list[Sample], span: int) -> list[bool]:
    """Each execution of the buckets that reach into the last `span` ms: whether it was good."""
    found: list[bool] = []
    for sample in samples:
        if max(sample.at, NOW - span + 1) <= min(sample.at + sample.span - 1, NOW):
            found += [True] * sample.good + [False] * (sample.total - sample.good)
    return found


def exact_rate(samples: list[Sample], span: int, objective: Objective) -> Fraction:
    some = executions(samples, span)
    allowance = 1 - Fraction(str(objective.target)) / 100
    return Fraction(some.count(False), len(some)) / allowance if some else Fraction(0)


def is_near(value: float, exact: Fraction) -> bool:
    return abs(Fraction(value) - exact) <= Fraction(1, 10**6) * max(1, abs(exact))


@given(objectives, sample_lists())
def test_the_budget_is_that_of_the_single_executions(objective: Objective, samples: list[Sample]):
    budget = budget_of(objective, samples, NOW)
    some = executions(samples, objective.window)
    allowed = len(some) * (1 - Fraction(str(objective.target)) / 100)
    assert (budget.good, budget.total) == (some.count(True), len(some))
    assert budget.errors_left == allowed.__floor__() - some.count(False)
    if some:
        assert budget.compliance is not None
        assert is_near(budget.compliance, Fraction(some.count(True), len(some)))
        assert is_near(budget.left, 1 - some.count(False) / allowed)
        assert (budget.compliance * 100 >= objective.target - 1e-9) == (budget.left >= -1e-9)
    else:
        assert (budget.compliance, budget.left, budget.errors_left) == (None, 1.0, 0)
    for name, span in BURN_SPANS.items():
        assert is_near(budget.burn_rate[name], exact_rate(samples, span, objective))


@given(objectives, sample_lists())
def test_a_rule_holds_if_both_of_its_spans_burn_that_fast(objective: Objective, samples: list[Sample]):
    def holds(rule: BurnRule) -> bool:
        rates = [exact_rate(samples, BURN_SPANS[span], objective) for span in (rule.long, rule.short)]
        assume(all(abs(rate - Fraction(str(rule.rate))) > Fraction(1, 10**6) for rate in rates))  # floats are rounded
        bad = executions(samples, BURN_SPANS[rule.long]).count(False)
        return BURN_SPANS[rule.long] <= objective.window and bad >= LEAST_BAD and min(rates) >= rule.rate

    found = burning(objective, samples, NOW)
    assert (None if found is None else found.rule) == next((rule for rule in BURN_RULES if holds(rule)), None)


@given(sample_lists())
def test_a_longer_span_counts_at_least_as_much(samples: list[Sample]):
    counts = [counted(samples, span, NOW) for span in sorted((*BURN_SPANS.values(), 30 * DAY))]
    assert all(one.good <= more.good and one.bad <= more.bad for one, more in pairwise(counts))


@given(st.lists(st.floats(-9, 1), max_size=30), st.integers(0, 20))
def test_the_worst_budgets_are_those_with_the_least_left(lefts: list[float], limit: int):
    objective = Objective(ObjectiveKind.SUCCESS, 99.0, DAY)
    known = [
        JobStanding("acme", str(number), "", Standing(objective, Budget(0, 0, None, left, 0, {"1h": 0.0}), None))
        for number, left in enumerate(lefts)
    ]
    assert [one.standing.budget.left for one in worst_of(known, limit)] == sorted(lefts)[:limit]


@given(st.floats(0.1, 100), targets, targets)
def test_an_slo_states_the_objectives_that_it_names(seconds: float, on_time: float, success: float):
    both = objectives_of(Slo(lateness_seconds=seconds, on_time=on_time, success=success, window="7d"))
    lateness = Objective(ObjectiveKind.LATENESS, on_time, 7 * DAY, seconds)
    assert both == [lateness, Objective(ObjectiveKind.SUCCESS, success, 7 * DAY)]
    assert objectives_of(Slo(lateness_seconds=seconds, on_time=on_time, window="7d")) == [lateness]
    assert objectives_of(None) == []
