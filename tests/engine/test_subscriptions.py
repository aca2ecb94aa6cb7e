"""Subscriptions: a URL gets one notification of each event that it subscribed to, and no other."""

from __future__ import annotations

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.job import RetryPolicy, Webhooks
from duetime.domain.states import ErrorType
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, URL, new_id, spec

HOOK, OTHER = "https://told.example/hook", "https://told.example/other"
FAILURE = Outcome(ErrorType.HTTP_ERROR, "answered 404", 404)
GONE = Outcome(ErrorType.HTTP_ERROR, "answered 410", 410)


async def subscribe(stage: Stage, *events: str, url: str = HOOK, tenant: str = TENANT) -> None:
    await stage.apply(c.AddSubscription(NOW, tenant, new_id(), url, events, "ann"))
    await stage.engine.term.subscribers.run_once()


def notified(executor: ScriptedExecutor) -> list[tuple[str, str]]:
    return [
        (attempt.payload.url, attempt.payload.body["type"])
        for attempt in executor.attempts
        if attempt.payload.url != URL
    ]


async def run(stage: Stage, executor: ScriptedExecutor, outcome: Outcome, **fields: object) -> str:
    executor.answer(outcome, URL)
    job_id = await stage.add_job(spec(**{"schedule": "immediate", "retry_policy": RetryPolicy(max_retries=0)} | fields))
    for _ in range(4):
        await stage.tick()
    return job_id


async def test_subscribed_urls_get_a_notification(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await subscribe(stage, "execution.completed")
    await subscribe(stage, "execution.failed", url=OTHER)
    await run(stage, executor, Outcome(http_status=200))
    await run(stage, executor, FAILURE)
    assert notified(executor) == [(HOOK, "execution.completed"), (OTHER, "execution.failed")]


async def test_subscriptions_of_an_earlier_term_apply_from_the_first_end(stage: Stage, executor: ScriptedExecutor):
    await stage.apply(c.AddSubscription(NOW, TENANT, new_id(), HOOK, ("execution.completed",), "ann"))
    await stage.join()  # no service has run yet
    await run(stage, executor, Outcome(http_status=200))
    assert notified(executor) == [(HOOK, "execution.completed")]


async def test_a_notification_causes_no_notification(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await subscribe(stage, "execution.completed")
    await run(stage, executor, Outcome(http_status=200), webhooks=Webhooks(on_success=OTHER))
    assert sorted(notified(executor)) == [(HOOK, "execution.completed"), (OTHER, "execution.completed")]


async def test_another_tenant_gets_no_notification(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await subscribe(stage, "execution.completed", tenant="globex")
    await run(stage, executor, Outcome(http_status=200))
    assert notified(executor) == []


async def test_a_job_paused_by_its_target_causes_a_notification(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await subscribe(stage, "execution.failed", "job.paused")
    job_id = await run(stage, executor, GONE, schedule="every 1h", start_at="2026-01-01T00:00:00Z")
    await stage.pass_time(3600, step=1800)
    assert notified(executor) == [(HOOK, "execution.failed"), (HOOK, "job.paused")]
    (paused,) = [
        attempt
        for attempt in executor.attempts
        if attempt.payload.body and attempt.payload.body["type"] == "job.paused"
    ]
    assert paused.payload.body["data"] == {"job_id": job_id, "job_name": "report", "key": None, "by": "duetime"}


async def test_a_refused_end_causes_no_notification(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await subscribe(stage, "execution.completed")
    executor.hold()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    (running,) = await stage.executions(job_id)
    await stage.apply(c.FenceNodes(NOW, (stage.engine.node,)))
    second = Stage(stage.store, stage.clock, ScriptedExecutor())
    await second.join(node_name="node-2")
    await second.engine.term.subscribers.run_once()
    await second.engine.term.reconciler.run_once()
    for _ in range(4):
        await second.tick()
    executor.let_go()
    await stage.let_run()
    await stage.engine.term.recorder.run_once()
    assert notified(executor) == []
    assert notified(second.executor) == [(HOOK, "execution.completed")]
    assert (await stage.executions(job_id))[0].execution_id == running.execution_id
