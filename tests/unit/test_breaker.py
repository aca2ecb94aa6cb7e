"""The rules of the circuit breaker: what counts, when a circuit opens, which execution is the probe, what closes it."""

from __future__ import annotations

import msgspec
import pytest

from duetime.domain import breaker
from duetime.domain.breaker import (
    Circuit,
    CircuitState,
    End,
    Known,
    Rules,
    beyond,
    circuit_of,
    count,
    end_of,
    explain_open,
    lets_through,
    may_probe,
    take_probe,
    url_of,
)
from duetime.domain.execution import Claim, Outcome, conclude, expire
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import JobSpec, PythonJob, RetryPolicy
from duetime.domain.payloads import PythonCall
from duetime.domain.states import ErrorType, State, Trigger
from samples import NOW, TENANT, URL, new_id, spec

RULES = Rules(threshold=3, cooldown=MINUTE)
ONCE = RetryPolicy(max_retries=0)
NUMBER = circuit_of(TENANT, URL)


def claim_of(job: JobSpec | None = None, attempt: int = 1, tenant: str = TENANT) -> Claim:
    job = job or spec(retry_policy=ONCE)
    return Claim(new_id(), new_id(), tenant, NOW, Trigger.SCHEDULE, 5, 1, attempt, attempt, False, job)


def failed(at: int = NOW, execution_id: str = "") -> End:
    return End(NUMBER, TENANT, URL, execution_id or new_id(), 1, 1, State.FAILED, at)


def succeeded(at: int = NOW) -> End:
    return End(NUMBER, TENANT, URL, new_id(), 1, 1, State.COMPLETED, at)


def after(*ends: End, before: Circuit | None = None) -> Circuit | None:
    return count({} if before is None else {NUMBER: before}, ends, RULES)[NUMBER]


def opened(at: int = NOW) -> Circuit:
    circuit = after(failed(at - 2), failed(at - 1), failed(at))
    assert circuit is not None
    return circuit


# The key of a circuit


def test_a_circuit_belongs_to_a_tenant_and_a_url_without_its_query():
    assert circuit_of(TENANT, f"{URL}?n=1") == circuit_of(TENANT, f"{URL}?n=2#there") == NUMBER
    assert circuit_of(TENANT, "HTTPS://Hook.Example/run") == NUMBER
    others = {circuit_of("other", URL), circuit_of(TENANT, f"{URL}s"), circuit_of(TENANT, "https://hook.example/RUN")}
    assert len(others | {NUMBER}) == 4
    assert all(0 <= number < 2**63 for number in others)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://a.example", "https://a.example"),
        ("https://A.example?q", "https://a.example"),
        ("http://a.example:81/X/y?q=/z#f", "http://a.example:81/X/y"),
    ],
)
def test_the_stored_url_has_no_query(url: str, kept: str):
    assert url_of(url) == kept


def test_the_number_of_a_circuit_is_shown_in_hex():
    assert Circuit(255, TENANT, URL).text == "00000000000000ff"


# Counting

COUNTED = {
    ErrorType.CONNECTION_ERROR,
    ErrorType.DNS_ERROR,
    ErrorType.TLS_ERROR,
    ErrorType.TIMEOUT,
    ErrorType.HTTP_ERROR,
}


@pytest.mark.parametrize("error_type", ErrorType)
def test_only_results_of_the_target_are_counted(error_type: ErrorType):
    claim = claim_of()
    end = end_of(claim, conclude(claim, Outcome(error_type), NOW, NOW + 5, 1.0))
    if error_type not in COUNTED:
        assert end is None
        return
    state = State.TIMEOUT if error_type is ErrorType.TIMEOUT else State.FAILED
    assert end == End(NUMBER, TENANT, URL, claim.execution_id, 1, 1, state, NOW + 5)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 429])
def test_a_status_of_an_unavailable_or_overloaded_target_is_a_failure(status: int):
    claim = claim_of()
    end = end_of(claim, conclude(claim, Outcome(ErrorType.HTTP_ERROR, http_status=status), NOW, NOW, 1.0))
    assert end is not None
    assert not end.is_up


@pytest.mark.parametrize("status", [204, 301, 304, 400, 401, 403, 404, 408, 409, 410, 422, 451])
def test_any_other_status_is_a_success_of_the_target(status: int):
    """Also a status that the job treats as a failure: the next job may expect another one."""
    claim = claim_of()
    end = end_of(claim, conclude(claim, Outcome(ErrorType.HTTP_ERROR, http_status=status), NOW, NOW, 1.0))
    assert end is not None
    assert end.is_up
    assert after(end, before=after(failed(), failed())) is None, "it ends a row of failures"
    assert after(end, before=opened()) is None, "it closes what is open"


def test_only_the_last_attempt_of_an_execution_is_counted():
    job = spec(retry_policy=RetryPolicy(max_retries=1))
    failure = Outcome(ErrorType.CONNECTION_ERROR)
    first, last = claim_of(job), claim_of(job, attempt=2)
    assert end_of(first, conclude(first, failure, NOW, NOW, 1.0)) is None
    assert end_of(last, conclude(last, failure, NOW, NOW, 1.0)) is not None


def test_a_lost_node_does_not_count_as_a_failure_of_the_target():
    claim = claim_of(attempt=9)
    assert expire(claim, NOW).state is State.FAILED
    assert end_of(claim, expire(claim, NOW)) is None


def test_only_webhooks_have_a_circuit():
    claim = claim_of(PythonJob(name="f", schedule="every 1m", payload=PythonCall(function="f"), retry_policy=ONCE))
    assert end_of(claim, conclude(claim, Outcome(ErrorType.TIMEOUT), NOW, NOW, 1.0)) is None
    assert end_of(claim, conclude(claim, Outcome(), NOW, NOW, 1.0)) is None


def test_a_success_is_counted():
    claim = claim_of()
    end = end_of(claim, conclude(claim, Outcome(http_status=200), NOW, NOW, 1.0))
    assert end is not None
    assert end.state is State.COMPLETED


# Opening and closing


def test_a_circuit_opens_with_the_failure_that_reaches_the_threshold():
    assert after(failed(), failed()) == Circuit(NUMBER, TENANT, URL, 2)
    expected = Circuit(NUMBER, TENANT, URL, 3, NOW + 9, NOW + 9 + MINUTE)
    assert after(failed(), failed(), failed(NOW + 9)) == expected
    assert after(failed(NOW + 9), before=after(failed(), failed())) == expected
    assert expected.state is CircuitState.OPEN


def test_a_success_resets_the_count():
    assert after(failed(), failed(), succeeded(), failed(), failed()) == Circuit(NUMBER, TENANT, URL, 2)
    assert after(failed(), failed(), succeeded()) is None


def test_ends_are_counted_in_the_order_of_their_instants():
    """The results of two nodes, or of one page, come in any order."""
    assert after(succeeded(NOW + 1), failed(NOW + 2), failed(NOW)) == Circuit(NUMBER, TENANT, URL, 1)


def test_a_circuit_without_a_threshold_never_opens():
    circuit = count({}, [failed() for _ in range(50)], Rules(threshold=0, cooldown=MINUTE))[NUMBER]
    assert circuit is not None
    assert circuit.state is CircuitState.CLOSED


def test_circuits_are_counted_separately():
    other = msgspec.structs.replace(failed(), circuit=7, url="https://other.example/")
    counted = count({}, [failed(), other, failed(), failed()], RULES)
    assert counted[NUMBER] == opened()
    assert counted[7] == Circuit(7, TENANT, "https://other.example/", 1)


def test_failures_of_executions_already_running_do_not_extend_the_cooldown():
    late = after(failed(NOW + 30 * SECOND), before=opened())
    assert late == msgspec.structs.replace(opened(), failures=4)


def test_any_success_closes_an_open_circuit():
    assert after(succeeded(), before=opened()) is None


# The probe


def test_an_open_circuit_blocks_all_executions_and_a_closed_one_none():
    assert not lets_through(opened(), new_id())
    assert lets_through(None, new_id())
    assert lets_through(Circuit(NUMBER, TENANT, URL, 2), new_id())


def test_after_the_cooldown_one_execution_is_the_probe_and_no_other():
    circuit = opened()
    mine, other = new_id(), new_id()
    assert take_probe(circuit, mine, NOW + MINUTE - 1, RULES) == circuit
    taken = take_probe(circuit, mine, NOW + MINUTE, RULES)
    assert taken.state is CircuitState.HALF_OPEN
    assert (lets_through(taken, mine), lets_through(taken, other)) == (True, False)
    assert take_probe(taken, other, NOW + MINUTE, RULES) == taken
    assert take_probe(taken, other, NOW + 2 * MINUTE - 1, RULES) == taken


def test_an_unfinished_probe_is_replaced_after_another_cooldown():
    lost = take_probe(opened(), "lost", NOW + MINUTE, RULES)
    taken = take_probe(lost, "next", NOW + 2 * MINUTE, RULES)
    assert (taken.probe, taken.next_probe_at) == ("next", NOW + 3 * MINUTE)
    assert taken.opened_at == NOW


def test_a_failed_probe_opens_the_circuit_again_with_a_new_cooldown():
    taken = take_probe(opened(), "probe", NOW + MINUTE, RULES)
    again = after(failed(NOW + 90 * SECOND, "probe"), before=taken)
    assert again == Circuit(NUMBER, TENANT, URL, 4, NOW + 90 * SECOND, NOW + 150 * SECOND)


def test_failures_of_other_executions_do_not_end_the_probe():
    taken = take_probe(opened(), "probe", NOW + MINUTE, RULES)
    assert after(failed(NOW + 90 * SECOND), before=taken) == msgspec.structs.replace(taken, failures=4)


def test_a_closed_circuit_has_no_probe():
    closed = Circuit(NUMBER, TENANT, URL, 2)
    assert take_probe(closed, "probe", NOW, RULES) == closed


def test_a_clock_that_was_set_back_does_not_keep_a_circuit_open():
    """A clock slightly behind that of another node is no reason to close it, though."""
    assert may_probe(opened(), NOW - HOUR, RULES)
    assert not may_probe(opened(), NOW - 30 * SECOND, RULES)


# The effect on an execution


def test_an_execution_without_an_attempt_is_skipped_and_one_with_an_attempt_fails():
    refused = Outcome(ErrorType.CIRCUIT_OPEN, "the circuit is open")
    skipped = conclude(claim_of(), refused, NOW, NOW + 1, 1.0)
    assert (skipped.state, skipped.reason, skipped.dead, skipped.started_at) == (
        State.SKIPPED, "circuit_open", False, None,
    )  # fmt: skip
    dead = conclude(claim_of(spec(), attempt=2), refused, NOW, NOW + 1, 1.0)
    assert (dead.state, dead.reason, dead.dead, dead.started_at) == (State.FAILED, None, True, None)
    assert dead.error_type is ErrorType.CIRCUIT_OPEN


def test_the_reason_has_the_url_the_time_of_the_opening_and_the_next_probe():
    text = explain_open(opened())
    for part in (URL, "since 2026-01-01T00:00:00.000Z", "3 failed executions", "from 2026-01-01T00:01:00.000Z on"):
        assert part in text
    assert "tries it now" in explain_open(take_probe(opened(), "probe", NOW + MINUTE, RULES))


# The cache of a node


def failing(number: int, tenant: str = TENANT, *, is_open: bool = False) -> Circuit:
    return Circuit(number, tenant, f"https://{number}.example/", 1, *((NOW, NOW + MINUTE) if is_open else ()))


def test_a_cached_circuit_is_found_until_it_is_closed():
    known = Known(10)
    assert known.put(1, failing(1)) is None
    assert known.put(1, failing(1, is_open=True)) == failing(1)
    assert (known.get(1), 1 in known, len(known), known.numbers()) == (failing(1, is_open=True), True, 1, {1})
    assert known.put(1, None) == failing(1, is_open=True)
    assert (known.get(1), 1 in known, len(known)) == (None, False, 0)
    assert known.put(1, None) is None


def test_the_oldest_closed_circuit_of_a_tenant_is_evicted_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(breaker, "MOST_OF_TENANT", 3)
    known = Known(100)
    known.put(9, failing(9, "other"))
    known.put(1, failing(1, is_open=True))
    for number in (2, 3, 2, 4):
        known.put(number, failing(number))
    assert known.numbers() == {9, 1, 2, 4}
    for number in (5, 6, 7):
        known.put(number, failing(number, is_open=True))
    assert known.numbers() == {9, 5, 6, 7}, "an open one only where all are"


def test_the_oldest_circuit_of_all_is_evicted_first():
    known = Known(3)
    for number in range(5):
        known.put(number, failing(number, f"tenant-{number}"))
    assert known.numbers() == {2, 3, 4}


@pytest.mark.parametrize(
    ("count", "forgotten"), [(0, 0), (1000, 0), (1001, 1), (1500, 500), (2000, 1000), (9000, 1000)]
)
def test_a_tenant_has_at_most_a_thousand_circuits_and_a_page_is_evicted_at_a_time(count: int, forgotten: int):
    assert beyond(count) == forgotten
