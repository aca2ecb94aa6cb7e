"""Declared jobs: checked in the decorator, created and updated at the start, removed by a prune."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import until
from client.tokens import SECRET, token
from duetime import Client, Duetime
from duetime.client import Conflict, NotFound, operations
from duetime.client.models import JobPage
from duetime.sdk.declared import TRIES, put_jobs
from duetime.sdk.definitions import JobError
from node_forks import fork_server
from patience import PATIENCE_SECONDS
from served import served


def jobs_of(app: Duetime) -> dict[str | None, str]:
    return {job.key: job.status for job in app._ask().ask(operations.list_jobs().page(100)).jobs}


@pytest.mark.parametrize(
    ("schedule", "fields", "words"),
    [
        ("every noon", {}, "job 'tidy': /schedule"),
        ("0 9 31 2 *", {}, "job 'tidy': /schedule"),
        ("@daily", {"timezone": "Mars/Base"}, "job 'tidy': .*Mars/Base"),
        ("@daily", {"timezon": "UTC"}, "job 'tidy': /timezon: unknown field; did you mean 'timezone'"),
        ("@daily", {"priority": 11}, "job 'tidy': /priority"),
        ("@daily", {"retry_policy": {"max_retries": -1}}, "job 'tidy': /retry_policy/max_retries"),
        (
            "@daily",
            {"slo": {"lateness": 5}},
            "job 'tidy': /slo/lateness: unknown field; did you mean 'lateness_seconds'",
        ),
        ("@daily", {"expect_every": "soon"}, "job 'tidy': /expect_every: 'soon' is no duration"),
    ],
)
def test_an_invalid_job_is_refused_with_its_key_where_it_is_declared(
    schedule: str, fields: dict[str, Any], words: str
) -> None:
    app = Duetime()
    with pytest.raises(JobError, match=words):

        @app.job(schedule, name="tidy", **fields)
        def tidy() -> None: ...


def test_a_past_instant_can_be_declared() -> None:
    app = Duetime()

    @app.job("2020-01-01T00:00:00Z", name="once")
    def once() -> None: ...

    assert list(app.declared) == ["once"]


def test_objectives_are_declared_with_the_job() -> None:
    app = Duetime()

    @app.job("@daily", name="tidy", slo={"success": 99.5}, expect_every="25h")
    def tidy() -> None: ...

    assert app.declared["tidy"].definition["slo"] == {"success": 99.5}
    assert app.declared["tidy"].definition["expect_every"] == "25h"


def test_a_type_that_is_defined_later_in_the_module_is_resolved_at_the_call() -> None:
    app = Duetime()

    def later(day: "Later") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    app.job("@daily", name="later", args=["2027-01-01"])(later)
    later.__globals__["Later"] = int
    try:
        with pytest.raises(TypeError, match="argument 'day' of later"):
            app.registry.get("later").binder.plain(["2027-01-01"], {})  # type: ignore[union-attr]
    finally:
        del later.__globals__["Later"]


def declaring(url: str, *names: str) -> Duetime:
    app = Duetime(url)
    for name in names:
        app.job("@yearly", name=name)(lambda: None)
    return app


def test_a_cancelled_declared_job_stays_cancelled_and_prevents_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs'}"
    with declaring(url, "stays", "goes") as app:
        page = app._ask().ask(operations.list_jobs(name="goes").page(10))
        app._ask().ask(operations.cancel_job(page.jobs[0].job_id))
    with declaring(url, "stays", "goes") as app:
        assert jobs_of(app) == {"stays": "PENDING", "goes": "CANCELLED"}
    (said,) = [record.message for record in caplog.records if "cancelled" in record.message]
    assert said.startswith("job 'goes' was cancelled and stays so")
    assert page.jobs[0].job_id in said


def test_a_job_that_is_no_longer_declared_stays_until_a_prune(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs'}"
    with declaring(url, "stays", "goes") as app:
        app.enqueue("elsewhere", at="2100-01-01T00:00:00Z")
        assert jobs_of(app).keys() == {"stays", "goes", None}
    with declaring(url, "stays") as app:
        assert jobs_of(app).keys() == {"stays", "goes", None}
    with declaring(url, "stays").start(prune_declared=True) as app:
        assert jobs_of(app).keys() == {"stays", None}
    with declaring(url, "stays", "goes") as app:
        assert jobs_of(app).keys() == {"stays", "goes", None}, "it may be declared again"


class Racing:
    """A server to which other workers send the same jobs at the same time."""

    def __init__(self, conflicts: int) -> None:
        self.left = conflicts
        self.put = 0

    def ask(self, call: Any) -> Any:
        if call.method != "PUT":
            return JobPage(jobs=[])
        self.put += 1
        if self.put <= self.left:
            raise Conflict(_body, 409)
        return None


_body: Any = type("Body", (), {"message": "there is one", "error": "CONFLICT", "type": "", "title": "", "instance": ""})


def test_workers_that_start_together_can_declare_the_same_jobs() -> None:
    app = declaring("", "same")
    assert put_jobs(Racing(TRIES - 1), None, app.declared) == []  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="job 'same': there is one"):
        put_jobs(Racing(TRIES), None, app.declared)  # type: ignore[arg-type]


# `duetime worker`

JOBS = """
from duetime import Duetime
app = Duetime()
@app.job("@yearly", name="first")
def first(): return 1
"""
MORE = """
@app.job("@yearly", name="second")
def second(): return 2
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the URL of a server that requires identity."""
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DUETIME_JWT_SECRET", SECRET)
            server = running.enter_context(served(tmp_path_factory.mktemp("served")))
        yield server


@contextmanager
def working(
    url: str, folder: Path, text: str, who: str, *options: str, scopes: tuple[str, ...] = ("read", "write", "work")
) -> Iterator[list[str]]:
    """Runs a worker until it has joined. Afterwards, `said` is its output."""
    (folder / "app_of_a_test.py").write_text(text)
    command = [*fork_server.command(), "worker", "app_of_a_test:app", "--name", folder.name]
    with Client(url, token()) as admin:
        key = admin.create_api_key(who, user_id=who, role="user", scopes=scopes).key
    env = {**os.environ, "DUETIME_URL": url, "DUETIME_TOKEN": key}
    said: list[str] = []
    with subprocess.Popen([*command, *options], cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as worker:
        try:
            with Client(url, token()) as admin:
                until(
                    lambda: worker.poll() is not None or [it.name for it in admin.list_workers().workers],
                    lambda names: names is True or folder.name in names,
                )
                assert worker.poll() is None, worker.communicate()
                yield said
        finally:
            worker.terminate()
            said += worker.communicate(timeout=PATIENCE_SECONDS)[1].splitlines()


def test_a_worker_starts_with_a_cancelled_job_and_prunes_jobs_that_are_no_longer_declared(
    url: str, tmp_path: Path
) -> None:
    with Client(url, token("ann", "user")) as ann:
        with working(url, tmp_path, JOBS + MORE, "ann"):
            jobs = {job.key: job for job in ann.list_jobs()}
            assert jobs.keys() == {"first", "second"}
            ann.cancel_job(jobs["first"].job_id)
        with working(url, tmp_path, JOBS + MORE, "ann") as said:
            assert ann.get_job(jobs["first"].job_id).status == "CANCELLED"
        assert any(line.startswith("job 'first' was cancelled and stays so") for line in said), said
        with working(url, tmp_path, JOBS, "ann", "--prune-declared") as said, pytest.raises(NotFound):
            ann.get_job(jobs["second"].job_id)
        assert "job 'second' was removed: app_of_a_test:app does not declare it any more" in said
        ann.purge_job(jobs["first"].job_id)


@pytest.mark.parametrize("scopes", [("read", "write", "work"), ("work",)], ids=["may write", "may only work"])
def test_a_worker_of_another_user_starts_and_runs_the_jobs_of_the_first(
    url: str, tmp_path: Path, scopes: tuple[str, ...]
) -> None:
    with Client(url, token("ann", "user")) as ann:
        with working(url, tmp_path, JOBS, "ann"):
            (job,) = ann.list_jobs()
        with working(url, tmp_path, JOBS, "bob", scopes=scopes) as said:
            execution_id = ann.run_job(job.job_id).execution_id
            until(lambda: ann.get_execution(execution_id).execution.state, lambda state: state == "COMPLETED")
        assert any(line.startswith("job 'first' was not changed (") for line in said), said
        ann.purge_job(job.job_id)


def test_an_admin_prunes_no_job_of_another_users_app_with_the_same_name(url: str) -> None:
    def app_of(who: str, role: str, *names: str) -> Duetime:
        app = Duetime(url, token(who, role), name="shop")
        for name in names:
            app.job("@yearly", name=name)(lambda: None)
        return app

    with Client(url, token()) as admin:
        app_of("ann", "user", "shop.a").put_jobs()
        app_of("ada", "admin", "shop.b", "shop.c").put_jobs()
        said = app_of("ada", "admin", "shop.b").put_jobs(prune=True)
        assert sorted(said) == [
            "job 'shop.a' of shop was not removed: it belongs to ann",
            "job 'shop.c' was removed: shop does not declare it any more",
        ]
        assert app_of("ada", "admin").put_jobs(prune=True) == [
            "jobs of shop have several owners, and it declares none of them: remove them by hand"
        ]
        assert app_of("ann", "user").put_jobs(prune=True) == [
            "job 'shop.a' was removed: shop does not declare it any more"
        ]
        (left,) = admin.list_jobs(tag="declared_by=shop")
        admin.purge_job(left.job_id)
