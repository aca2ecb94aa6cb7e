"""Sends thousands of requests made from the OpenAPI document, and checks each response against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import requests
from schemathesis import Case, CheckContext, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from api.person import FAR, Person
from patience import PATIENCE_SECONDS

HEADERS: dict[str, str] = {}  # of every request: the credential
CONFIG = {
    "seed": 1,
    "max-stream-events": 1,  # a stream does not end by itself: its first event is enough
    "generation": {"database": "none", "with-security-parameters": False},  # `HEADERS` has the credential
    "checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}},
}
MOST_FAILURES = 10  # after which no more requests are sent
NEWEST = 4  # ids of new things, in addition to those that existed before
SHARE_FED = 0.8  # of the requests; the others go out as they were generated
DATABASE = "postgresql://me@db.invalid:5432/app"

# Values that the schema does not describe precisely enough for a generator. Nothing of it becomes due during the tests.
GOOD_FIELDS: dict[str, tuple[Any, ...]] = {
    "schedule": (FAR, "@yearly", "0 9 1 1 *", "H H 1 1 *", "every 300d", "0 0 0 29 2 *"),
    "timezone": ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"),
    "start_at": (None, "2098-01-01T00:00:00Z"),
    "end_at": (None, "2120-01-01T00:00:00+02:00"),
}
# The fields of a payload determine its type.
TYPES = {"function": "python", "statement": "sql_query", "argv": "script", "script": "script", "url": "http_request"}
GOOD_HEADERS: dict[str, tuple[str | None, ...]] = {
    "If-Match": ("*", '"1"', None),
    "Idempotency-Key": (None,),
}


def success_is_declared(_: CheckContext, answer: Response, case: Case) -> None:
    """`default` is only for problems. (`unsupported_method` checks methods that the operation does not have.)"""
    if answer.status_code < 400 and case.method.lower() == case.operation.method.lower():
        assert str(answer.status_code) in case.operation.responses.status_codes, "a success that is not declared"


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    success_is_declared,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


class World:
    """Existing jobs and executions in every state, by the name of the parameter that takes their ids."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._running: list[str] = []
        self._made: dict[str, list[str]] = {}
        self._newest: dict[str, list[str]] = {}
        self.url = person.receiver.url()
        self.ended: list[str] = []

    def renew(self) -> None:
        """Creates new jobs from time to time, because requests cancel and purge them."""
        person, client = self._person, self._person.client
        for job_id in self._running:
            client.post(f"/jobs/{job_id}/cancel")
        done = person.create("immediate")
        dead, dead_execution = person.fail()
        retrying = person.create("immediate", "/status/500", retry_policy={"delays": [86_400]})
        running = person.create("immediate", "/hang", timeout_seconds=3600)
        far, yearly, paused, halted, cancelled = map(person.create, (FAR, "@yearly", FAR, "@yearly", FAR))
        for job_id, action in ((paused, "pause"), (halted, "pause"), (cancelled, "cancel")):
            assert client.post(f"/jobs/{job_id}/{action}").status == 200
        self.ended = [dead_execution, *(row["execution_id"] for row in person.wait_for_end(done))]
        waits, runs = person.wait_for_state(retrying, "RETRYING"), person.wait_for_state(running, "RUNNING")
        self._running = [running]
        self._made = {
            "job_id": [done, dead, dead, retrying, running, far, yearly, paused, halted, cancelled],
            "execution_id": [*self.ended, waits["execution_id"], runs["execution_id"]],
            "key": ["a key", "ключ", "key"],
            "key_id": [client.post("/api-keys", {"name": "a key"}).json()["key_id"]],
            "from": ["2020-01-01T00:00:00Z"],
            "to": [FAR],
            "name": ["a database", person.name, "failures"],
            "circuit": [it["circuit"] for it in client.get("/circuits").json()["circuits"]],
        }
        assert client.put("/connections/a%20database", {"url": DATABASE}).status == 200
        assert client.put("/alert-channels/a%20database", {"url": self.url}).status == 200
        assert client.put("/alert-rules/failures", {"kind": "failure_ratio"}).status == 200
        for known in client.get("/silences").json()["silences"]:
            assert client.delete(f"/silences/{known['silence_id']}").status == 200
        silence = client.post("/silences", {"seconds": 60, "reason": "tests"})
        self._made["silence_id"] = [silence.json()["silence_id"]]
        for known in client.get("/subscriptions").json()["subscriptions"]:  # a tenant may have several
            assert client.delete(f"/subscriptions/{known['subscription_id']}").status == 200
        subscription = client.post("/subscriptions", {"url": "https://told.example", "events": ["job.resumed"]})
        self._made["subscription_id"] = [subscription.json()["subscription_id"]]
        joined = client.post("/workers/join", {"name": "w", "functions": ["f"], "slots": 1})
        self.worker: int = joined.json()["worker_id"]

    def learn(self, answer: Any) -> None:
        """Collects ids and cursors for later requests."""
        for name, known in {"job_id": "job_id", "execution_id": "execution_id", "next_cursor": "cursor"}.items():
            if isinstance(answer, dict) and isinstance(answer.get(name), str):
                self._newest[known] = [*self._newest.get(known, []), answer[name]][-NEWEST:]

    def known(self, name: str) -> list[str]:
        return self._made.get(name, []) + self._newest.get(name, [])


class Asker:
    """Sends requests, counts the responses, and records each that the document does not declare."""

    def __init__(self, url: str, world: World) -> None:
        self._url = url
        self._world = world
        self._session = requests.Session()
        self._rng = Random(1)
        self._turns: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[tuple[str, int]] = Counter()  # by operation and status
        self.failures: dict[tuple[str, ...], str] = {}  # the first of each kind

    def ask(self, case: Case) -> None:
        if len(self.failures) >= MOST_FAILURES:
            return
        if self._rng.random() < SHARE_FED:
            self._feed(case, self._rng)
        if case.path == "/api/v1/events" and "Last-Event-ID" not in case.headers:
            _set_header(case, "Last-Event-ID", "0")  # without it no event is sent until something happens
        if (harmless := self._harmless(case.body)) != case.body:
            case.body = harmless
        if case.path == "/api/v1/workers/poll" and isinstance(case.body, dict) and _is_wait(case.body):
            case.body = {**case.body, "wait_seconds": 0}  # a request for fewer than there are does not wait
        answer = case.call(self._url, self._session, HEADERS, timeout=PATIENCE_SECONDS)
        self.answers[f"{case.method} {case.path}", answer.status_code] += 1
        self._check(case, answer)
        is_json = answer.headers.get("content-type") == ["application/json"]
        if answer.status_code < 300 and is_json and case.method != "DELETE":
            self._world.learn(answer.json())

    def _check(self, case: Case, answer: Response) -> None:
        # A batch with bad jobs is a good request: the response lists the refused ones.
        excluded = [negative_data_rejection] if case.path == "/api/v1/jobs:batch" else []
        try:
            case.validate_response(answer, CHECKS, excluded_checks=excluded)
        except FailureGroup as group:
            kinds = sorted(type(failure).__name__ for failure in group.exceptions)
            self.failures.setdefault((case.operation.label, str(answer.status_code), *kinds), str(group))

    def _feed(self, case: Case, rng: Random) -> None:
        """Inserts ids that exist and jobs that can be created. Intentionally bad values stay."""
        if _is_good(case, ParameterLocation.PATH):
            case.path_parameters = self._existing(case, case.path_parameters)
        if _is_good(case, ParameterLocation.QUERY):
            case.query = self._existing(case, case.query)
        if _is_good(case, ParameterLocation.HEADER):
            for name in case.headers.keys() & GOOD_HEADERS.keys():
                _set_header(case, name, rng.choice(GOOD_HEADERS[name]))
        if case.path_parameters.get("execution_id") in self._world.ended and case.path.endswith("/logs"):
            _set_header(case, "Accept", rng.choice(("text/event-stream", "application/json")))
        if isinstance(case.body, list):
            case.body = [self._mended(job, rng) for job in case.body]
        elif isinstance(case.body, dict):
            case.body = self._mended(case.body, rng)

    def _existing(self, case: Case, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the ids in turn, so that each operation is tried in each state."""
        found = {}
        for name, value in parameters.items():
            known = self._world.known(name) or [value]
            found[name] = known[self._turns[case.operation.label, name] % len(known)]
            self._turns[case.operation.label, name] += 1
        return found

    def _mended(self, job: Any, rng: Random) -> Any:
        if not isinstance(job, dict):
            return job
        share = rng.choice((0.5, 1, 1))  # some jobs are corrected only partly: one thing is wrong with them
        fields = GOOD_FIELDS if "payload" in job else {name: GOOD_FIELDS[name] for name in ("schedule", "timezone")}
        mended = {
            name: rng.choice(fields[name]) if name in fields and rng.random() < share else value
            for name, value in job.items()
        }
        payload = job.get("payload")
        if isinstance(payload, dict) and rng.random() < share:
            mended["payload"] = payload | {name: {"x-job": "x"} for name in payload.keys() & {"headers"}}
            mended["payload"]["url"] = self._world.url
            kind = next((TYPES[name] for name in TYPES if name in payload), "http_request")
            mended["type"] = kind
            if kind != "http_request":
                mended["payload"] = payload
        if "ids" in job:
            mended["ids"] = self._world.known("execution_id")
        if "worker_id" in job and rng.random() < share:
            mended["worker_id"] = self._world.worker
        if job.keys() == {"url"}:
            mended["url"] = DATABASE
        if job.keys() == {"url", "kind"} and rng.random() < share:
            mended |= {"url": self._world.url, "kind": "webhook"}
        if job.keys() == {"url", "events"} and rng.random() < share:
            mended["url"] = self._world.url
        return mended

    def _harmless(self, body: Any) -> Any:
        """Makes every generated job call only the receiver."""
        if isinstance(body, list):
            return [self._harmless(item) for item in body]
        if isinstance(body, dict):
            return {name: self._harmless(item) for name, item in body.items()}
        return self._world.url if isinstance(body, str) and body.lower().startswith(("http:", "https:")) else body


def _is_wait(body: dict[str, Any]) -> bool:
    wait = body.get("wait_seconds", 20)
    return type(wait) in (int, float) and 0 <= wait <= 30


def _is_good(case: Case, location: ParameterLocation) -> bool:
    component = case.meta.components.get(location) if case.meta else None
    return component is None or component.mode.is_positive


def _set_header(case: Case, name: str, value: str | None) -> None:
    headers = case.headers.copy()
    headers.pop(name, None)
    if value is not None:
        headers[name] = value
    case.headers = headers
