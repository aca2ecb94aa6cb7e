"""Notices: jobs within their bounds, one for each channel; and what a node tells the operator of directly."""

from __future__ import annotations

import msgspec
import pytest

from duetime.domain.direct_alerts import MOST_AN_HOUR, DirectRules, database_back, database_gone, node_leaving
from duetime.domain.execution import ErrorType, Outcome, conclude
from duetime.domain.instants import HOUR
from duetime.domain.job import JobSpec, NoticeJob
from duetime.domain.notices import MOST_DATA_BYTES, OWNER, create_notices, make_notice, webhook_body
from duetime.domain.payloads import Notice
from duetime.domain.states import State
from duetime.domain.subscriptions import is_notification
from samples import NOW, claim_of


def notice(*channels: str, **fields: object) -> Notice:
    given = {"title": "Late", "body": "3 jobs are late.", "severity": "critical", "status": "firing"} | fields
    return make_notice(channels or ("ops",), given.pop("title"), given.pop("body"), **given)  # type: ignore[arg-type]


def test_a_notice_is_a_job_for_each_channel_with_an_id_of_its_own():
    command = create_notices("acme", notice("ops", "mail", "ops"), NOW, b"\xff" * 10)
    assert [job.spec.payload.channels for job in command.jobs] == [("ops",), ("mail",)]
    assert len({job.job_id for job in command.jobs}) == 2
    assert command.is_reserved
    assert {(job.tenant, job.owner, job.due_at, job.recurs) for job in command.jobs} == {("acme", OWNER, NOW, False)}
    assert create_notices("acme", notice("ops", "mail", "ops"), NOW, b"\xff" * 10) == command


def test_no_notification_is_sent_about_a_notice():
    (job,) = create_notices("acme", notice(), NOW, bytes(10)).jobs
    assert is_notification(job.spec)


def test_a_notice_is_stored_and_read_as_it_is():
    (job,) = create_notices("acme", notice(data={"job_id": "j", "count": 3}), NOW, bytes(10)).jobs
    assert msgspec.json.decode(msgspec.json.encode(job.spec), type=JobSpec) == job.spec


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"title": "x" * 300}, ("x" * 254 + "…", "3 jobs are late.")),
        ({"body": "y" * 5000}, ("Late", "y" * 3999 + "…")),
        ({"title": ""}, ("alert", "3 jobs are late.")),
        ({"title": "a\0b"}, ("a\ufffdb", "3 jobs are late.")),
    ],
)
def test_texts_are_cut_to_their_bounds(fields: dict[str, object], seen: tuple[str, str]):
    made = notice(**fields)
    assert (made.title, made.body) == seen


def test_data_that_is_too_large_is_left_out():
    assert set(notice(data={"x": "y" * MOST_DATA_BYTES}).data) == {"left_out"}
    assert notice(data={"x": 1}).data == {"x": 1}


def test_a_severity_that_there_is_not_is_refused():
    with pytest.raises(msgspec.ValidationError):
        notice(severity="fatal")


def test_the_body_of_a_webhook_has_the_data_only_if_there_is_some():
    body = webhook_body(notice(status="resolved"), NOW)
    assert (body["type"], body["timestamp"]) == ("alert.resolved", "2026-01-01T00:00:00.000Z")
    assert "data" not in body["data"]
    assert webhook_body(notice(data={"x": 1}), NOW)["data"]["data"] == {"x": 1}


def test_a_notice_is_tried_for_hours_and_a_channel_that_is_gone_is_not():
    (job,) = create_notices("acme", notice(), NOW, bytes(10)).jobs
    assert isinstance(job.spec, NoticeJob)
    failed, waits = Outcome(ErrorType.CONNECTION_ERROR, "no"), []
    for attempt in range(1, 10):
        end = conclude(claim_of(job.spec, attempt=attempt), failed, NOW, NOW, 0.999)
        waits.append(end.due_at - NOW if end.state is State.RETRYING else None)
    assert waits[-1] is None
    assert sum(filter(None, waits)) > 2 * HOUR
    gone = Outcome(ErrorType.BLOCKED_TARGET, "no channel")
    assert conclude(claim_of(job.spec), gone, NOW, NOW, 0.5).state is State.FAILED


class TestDirectRules:
    def test_an_alert_is_told_once_until_it_is_resolved(self):
        rules = DirectRules()
        gone, back = database_gone("n1", 30, "no answer"), database_back("n1", 90)
        assert [rules.admits(one, NOW) for one in (gone, gone, back, back, gone)] == [True, False, True, False, True]

    def test_what_nobody_was_told_of_is_not_resolved(self):
        assert not DirectRules().admits(database_back("n1", 90), NOW)

    def test_alerts_of_other_nodes_are_other_alerts(self):
        rules = DirectRules()
        assert rules.admits(node_leaving("n1"), NOW)
        assert rules.admits(node_leaving("n2"), NOW)

    def test_a_storm_is_cut_and_what_was_told_is_still_resolved(self):
        rules = DirectRules()
        gone = [database_gone(f"n{number}", 30, "x") for number in range(MOST_AN_HOUR + 5)]
        assert sum(rules.admits(one, NOW) for one in gone) == MOST_AN_HOUR
        assert rules.admits(database_back("n0", 60), NOW)
        assert not rules.admits(database_back(f"n{MOST_AN_HOUR}", 60), NOW)
        assert rules.admits(gone[-1], NOW + HOUR + 1)

    def test_a_clock_that_was_set_back_silences_nothing_for_long(self):
        rules = DirectRules()
        for number in range(MOST_AN_HOUR):
            rules.admits(node_leaving(f"n{number}"), NOW + 10 * HOUR)
        assert rules.admits(node_leaving("another"), NOW)
