"""Every place of every route that can name something, with a name that belongs to another user or tenant.

A name of another tenant: the response equals the response for an unknown name, to the byte, and nothing of the other
tenant changes or is shown. A name of another user of the same tenant: 403, or the thing is left out.

A place is a parameter of a path or a query, a header, or a field of a body. The table below lists what each place can
name. `test_every_place_of_every_route_is_in_the_table` fails when a route, or a place in one, is missing from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from api.people import Known, People
from api.person import FAR
from cluster.processes import Answer, Client, Server
from duetime.api import queries

MARK = "what-only-acme-knows"
NOWHERE = "0198c0de-1234-7abc-8def-0123456789ab"
URL = {"url": "http://127.0.0.1:9/nobody"}
JOB: dict[str, Any] = {"name": "eve's", "schedule": FAR, "payload": URL}

# The kinds of things that a place can name.
JOB_ID, EXECUTION_ID, KEY_ID = "job id", "execution id", "API key's id"
JOB_KEY, IDEMPOTENCY_KEY, USER_ID, RESOURCE = "job's key", "idempotency key", "user id", "id of a resource"
NAME, TAG = "name", "tag"
JOBS_CURSOR, EXECUTIONS_CURSOR, AUDIT_CURSOR = "cursor of jobs", "cursor of executions", "cursor of the audit"
WORKERS_CURSOR = "cursor of workers"
EVENT, VERSION, CIRCUIT = "number of an event", "version", "circuit"
CONNECTION, WORKER, SUBSCRIPTION = "name of a connection", "worker's id", "subscription's id"
CHANNEL = "name of an alert channel"
ALERT_RULE, SILENCE, ALERTS_CURSOR = "name of an alert rule", "silence's id", "cursor of alerts"
HELD = "what a worker holds"  # see TestWorkers
PREDECESSORS = "keys of jobs that one comes after"  # see test_chains.py
NOTHING = ""  # the place names no stored thing

_PAGE = {"query limit": NOTHING, "query offset": NOTHING}
_SPAN = {"query from": NOTHING, "query to": NOTHING}
_JOB_FIELDS = {
    f"body {name}": NOTHING
    for name in (
        "name", "schedule", "payload", "type", "description", "timezone", "retry_policy", "timeout_seconds", "priority",
        "start_at", "end_at", "max_runs", "catch_up", "overlap", "jitter_seconds", "dst", "tags", "delivery", "on",
        "webhooks", "slo", "expect_every",
    )
} | {"body key": JOB_KEY, "body after": PREDECESSORS}  # fmt: skip
_ONE_JOB = {"path job_id": JOB_ID}
_ONE_RUN = {"path execution_id": EXECUTION_ID}

# By method and path: each place, and the kind of thing that it can name.
TABLE: dict[str, dict[str, str]] = {
    "post /jobs": {"header Idempotency-Key": IDEMPOTENCY_KEY, **_JOB_FIELDS},
    "post /jobs:batch": _JOB_FIELDS,
    "get /jobs": {
        **_PAGE, "query cursor": JOBS_CURSOR, "query owner": USER_ID, "query name": NAME, "query tag": TAG,
        "query status": NOTHING, "query type": NOTHING, "query sort": NOTHING, "query order": NOTHING,
    },
    "get /jobs/{job_id}": _ONE_JOB,
    "put /jobs/{job_id}": {**_ONE_JOB, "header If-Match": VERSION, **_JOB_FIELDS},
    "patch /jobs/{job_id}": {**_ONE_JOB, "header If-Match": VERSION, **_JOB_FIELDS},
    "delete /jobs/{job_id}": {**_ONE_JOB, "query purge": NOTHING},
    "put /jobs/by-key/{key}": {"path key": JOB_KEY, "header If-Match": VERSION, **_JOB_FIELDS},
    "post /jobs/{job_id}/pause": _ONE_JOB,
    "post /jobs/{job_id}/resume": _ONE_JOB,
    "post /jobs/{job_id}/cancel": _ONE_JOB,
    "post /jobs/{job_id}/run": _ONE_JOB,
    "post /jobs/{job_id}/retry": _ONE_JOB,
    "get /jobs/{job_id}/status": _ONE_JOB,
    "get /jobs/{job_id}/executions": {
        **_ONE_JOB, **_PAGE, "query state": NOTHING, "query cursor": EXECUTIONS_CURSOR
    },
    "get /jobs/{job_id}/next": {**_ONE_JOB, "query count": NOTHING},
    "get /jobs/{job_id}/why": _ONE_JOB,
    "get /executions": {
        **_PAGE, **_SPAN, "query cursor": EXECUTIONS_CURSOR, "query job_id": JOB_ID, "query state": NOTHING
    },
    "get /executions/{execution_id}": _ONE_RUN,
    "get /executions/{execution_id}/logs": {
        **_ONE_RUN, "header Last-Event-ID": EVENT, "query after": NOTHING, "query lines": NOTHING
    },
    "post /executions/{execution_id}/cancel": _ONE_RUN,
    "post /executions/{execution_id}/retry": _ONE_RUN,
    "get /dead-letters": {
        **_PAGE, **_SPAN, "query cursor": EXECUTIONS_CURSOR, "query job_id": JOB_ID, "query error_type": NOTHING,
        "query http_status": NOTHING,
    },
    "post /dead-letters/redrive": {
        "body ids": EXECUTION_ID, "body job_id": JOB_ID,
        **{
            f"body {name}": NOTHING
            for name in ("error_type", "http_status", "from", "to", "limit", "per_second")
        },
    },
    "post /schedules/preview": {
        f"body {name}": NOTHING for name in ("schedule", "timezone", "dst", "after", "count")
    },
    "get /events": {"header Last-Event-ID": EVENT},
    "get /api-keys": {},
    "post /api-keys": {
        "body user_id": USER_ID,
        **{f"body {name}": NOTHING for name in ("name", "role", "tier", "scopes", "expires_in_days")},
    },
    "delete /api-keys/{key_id}": {"path key_id": KEY_ID},
    "get /audit": {
        **_SPAN, "query cursor": AUDIT_CURSOR, "query actor": USER_ID, "query resource": RESOURCE,
        "query action": NOTHING, "query limit": NOTHING,
    },
    "get /circuits": {},
    "delete /circuits/{circuit}": {"path circuit": CIRCUIT},
    "get /cluster": {},
    "get /observability/now": {},
    "get /connections": {},
    "put /connections/{name}": {"path name": CONNECTION, "body url": NOTHING},
    "delete /connections/{name}": {"path name": CONNECTION},
    "get /alert-channels": {},
    "put /alert-channels/{name}": {"path name": CHANNEL, "body url": NOTHING, "body kind": NOTHING},
    "delete /alert-channels/{name}": {"path name": CHANNEL},
    "post /alert-channels/{name}/test": {"path name": CHANNEL},
    "get /alerts": {},
    "get /alerts/history": {"query rule": ALERT_RULE, "query limit": NOTHING, "query cursor": ALERTS_CURSOR},
    "get /alert-rules": {},
    "get /alert-rules/{name}": {"path name": ALERT_RULE},
    "put /alert-rules/{name}": {  # its channels and its scope: see test_alerts.py
        "path name": ALERT_RULE,
        **{
            f"body {name}": NOTHING
            for name in (
                "kind", "scope", "threshold", "window_seconds", "for_seconds", "least_count", "severity", "channels",
                "group_by", "repeat_seconds", "escalate", "quiet_hours", "enabled", "description",
            )
        },
    },
    "delete /alert-rules/{name}": {"path name": ALERT_RULE},
    "post /alert-rules/{name}/test": {"path name": ALERT_RULE},
    "get /silences": {},
    "post /silences": {f"body {name}": NOTHING for name in ("seconds", "rule", "subject", "reason")},
    "delete /silences/{silence_id}": {"path silence_id": SILENCE},
    "get /signing-key": {},
    "post /signing-key/rotate": {"body overlap_seconds": NOTHING},
    "get /subscriptions": {},
    "post /subscriptions": {"body url": NOTHING, "body events": NOTHING},
    "delete /subscriptions/{subscription_id}": {"path subscription_id": SUBSCRIPTION},
    "get /workers": {"query limit": NOTHING, "query cursor": WORKERS_CURSOR},
    "post /workers/join": {"body name": NOTHING, "body functions": NOTHING, "body slots": NOTHING},
    "post /workers/poll": {"body worker_id": WORKER, "body free": NOTHING, "body wait_seconds": NOTHING},
    "post /workers/report": {
        "body worker_id": WORKER, "body running": HELD, "body ended": HELD, "body notes": HELD, "body unbegun": HELD
    },
    "post /workers/leave": {"body worker_id": WORKER},
    "get /health": {"query verbose": NOTHING},
    "get /health/live": {},
    "get /health/ready": {},
    "get /stats": {},
    "get /observability/metrics": {},
    "get /observability/histograms": {**_SPAN, "query bucket": NOTHING, "query type": NOTHING},
    "get /jobs/{job_id}/histograms": {**_ONE_JOB, **_SPAN, "query bucket": NOTHING},
}  # fmt: skip
ADMINS_ONLY = {
    "get /api-keys",
    "post /api-keys",
    "delete /api-keys/{key_id}",
    "get /audit",
    "get /cluster",
    "get /stats",
    "get /observability/metrics",
    "get /observability/histograms",
    "get /observability/now",
    "delete /circuits/{circuit}",
    "put /connections/{name}",
    "delete /connections/{name}",
    "put /alert-channels/{name}",
    "delete /alert-channels/{name}",
    "post /alert-channels/{name}/test",
    "get /alerts/history",
    "get /alert-rules/{name}",
    "put /alert-rules/{name}",
    "delete /alert-rules/{name}",
    "post /alert-rules/{name}/test",
    "delete /silences/{silence_id}",
    "delete /subscriptions/{subscription_id}",
    "post /workers/poll",
    "post /workers/report",
    "post /workers/leave",
}
# Places at which the name of another's thing is as good as any: the request creates something of the caller's own.
MAKES = {("post /jobs", JOB_KEY), ("post /jobs", IDEMPOTENCY_KEY), ("post /jobs:batch", JOB_KEY),
         ("put /jobs/by-key/{key}", JOB_KEY), ("put /jobs/{job_id}", JOB_KEY), ("patch /jobs/{job_id}", JOB_KEY),
         ("post /api-keys", USER_ID), ("put /connections/{name}", CONNECTION),
         ("put /alert-channels/{name}", CHANNEL), ("put /alert-rules/{name}", ALERT_RULE)}  # fmt: skip
# Filters: for another user's name the list is empty.
FILTERS = {
    ("get /jobs", "query name"), ("get /jobs", "query tag"), ("get /executions", "query job_id"),
    ("get /dead-letters", "query job_id"), ("post /dead-letters/redrive", "body job_id"),
}  # fmt: skip
FRAMEWORKS = ("/_openapi", "/_openapi/{path}", "/_openapi/openapi.json")
# Lists, and routes that return an empty list.
LISTS = {"jobs", "executions", "entries", "keys", "skipped", "alerts"}


def places(document: dict[str, Any]) -> dict[str, set[str]]:
    """The routes and places of the contract, in the form of the table."""
    found: dict[str, set[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = found.setdefault(f"{method} {path.removeprefix('/api/v1')}", set())
            named |= {f"{it['in']} {it['name']}" for it in operation.get("parameters", ())}
            for content in (operation.get("requestBody") or {}).get("content", {}).values():
                named |= {f"body {name}" for name in _fields(document, content["schema"])}
    return found


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "items" in schema:
        yield from _fields(document, schema["items"])
    for choice in schema.get("anyOf", ()):
        yield from _fields(document, choice)
    yield from schema.get("properties", {})


def test_every_place_of_every_route_is_in_the_table(guarded: Server) -> None:
    """Add a new place to the table, with what it can name."""
    assert {route: set(found) for route, found in TABLE.items()} == places(guarded.client.get("/openapi.json").json())


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_every_route_is_in_the_openapi_document() -> None:
    from duetime.api.app import _routes, create_routes
    from duetime.api.openapi import DOCS_ROUTES
    from duetime.api.routes.health import HEALTH_ROUTES

    app = create_routes(None, [_routes(), *HEALTH_ROUTES, *DOCS_ROUTES])  # type: ignore[arg-type]
    served = {
        f"{method.lower()} {re.sub(r':str}', '}', route.path).removeprefix('/api/v1')}"
        for route in app.routes
        for method in getattr(route, "methods", ())
        if method not in ("OPTIONS", "HEAD")
    }
    assert served - {"get /openapi.json", "get /docs"} - {f"get {path}" for path in FRAMEWORKS} == set(TABLE)


def test_routes_of_the_framework_are_refused_to_all_users(people: People) -> None:
    for path in FRAMEWORKS:
        assert people.ada.get(path).status in (403, 404)


class Things(NamedTuple):
    """The things that a user owns, by the kind of place that can name them."""

    owner: Known
    names: dict[str, list[str]]


@pytest.fixture
def victim(people_anywhere: People) -> Things:
    return make_things(people_anywhere, people_anywhere.ann)


def make_things(people: People, owner: Known) -> Things:
    """Jobs in every state in which an action is possible."""
    receiver, fields = people.receiver, {"name": MARK, "tags": {MARK: MARK}}
    waiting = owner.create("every 1h", url=receiver.url(), key=MARK, **fields)
    paused = owner.create("every 1h", url=receiver.url(), **fields)
    assert owner.post(f"/jobs/{paused}/pause").status == 200
    hanging = owner.create("immediate", url=receiver.url("/hang"), timeout_seconds=600, **fields)
    fails = {"retry_policy": {"max_retries": 0}, **fields}
    failed = owner.create("immediate", url=receiver.url(f"/status/500?{MARK}"), **fails)
    done = owner.create("immediate", url=receiver.url(), **fields)
    runs = [owner.wait_for(hanging, "RUNNING"), owner.wait_for(failed, "FAILED"), owner.wait_for(done, "COMPLETED")]
    once = owner.post("/jobs", {**JOB, "name": MARK}, idempotency_key=MARK)
    assert once.status == 201
    jobs = [waiting, paused, hanging, failed, done, once.json()["job_id"]]
    key = people.make_key(people.ada, name=MARK, user_id="ann")
    assert people.ada.put(f"/connections/{MARK}", {"url": f"sqlite:///{MARK}.db"}).status == 200
    assert people.ada.put(f"/alert-channels/{MARK}", {"url": receiver.url()}).status == 200
    assert people.ada.put(f"/alert-rules/{MARK}", {"kind": "waiting"}).status == 200
    silence = people.ada.post("/silences", {"seconds": 86_400, "rule": MARK})
    assert silence.status == 201
    normalised = people.ada.post("/subscriptions", {"url": receiver.url(), "events": ["job.resumed"]})
    assert normalised.status == 201
    joined = people.ada.post("/workers/join", {"name": MARK, "functions": [MARK], "slots": 1})
    assert joined.status == 201
    audit = people.ada.get("/audit?limit=1").json()
    return Things(
        owner,
        {
            JOB_ID: jobs,
            EXECUTION_ID: runs,
            KEY_ID: [key["key_id"]],
            JOB_KEY: [MARK],
            IDEMPOTENCY_KEY: [MARK],
            USER_ID: ["ann"],
            RESOURCE: [*jobs, *runs, key["key_id"]],
            NAME: [MARK],
            TAG: [MARK, f"{MARK}={MARK}"],
            JOBS_CURSOR: [owner.get("/jobs?limit=1").json()["next_cursor"]],
            EXECUTIONS_CURSOR: [owner.get("/executions?limit=1").json()["next_cursor"]],
            AUDIT_CURSOR: [audit["next_cursor"]],
            EVENT: ["0", "1"],
            CIRCUIT: [it["circuit"] for it in people.ada.get("/circuits").json()["circuits"]],
            VERSION: ['"1"', "*"],
            CONNECTION: [MARK],
            CHANNEL: [MARK],
            ALERT_RULE: [MARK],
            SILENCE: [silence.json()["silence_id"]],
            ALERTS_CURSOR: [queries.write_cursor(2**40, NOWHERE)],
            SUBSCRIPTION: [normalised.json()["subscription_id"]],
            WORKER: [str(joined.json()["worker_id"])],
            WORKERS_CURSOR: [queries.write_cursor(joined.json()["worker_id"] + 1, queries.NO_ROW)],
        },
    )


# For each kind, a name that does not exist.
ABSENT = {
    JOB_ID: NOWHERE, EXECUTION_ID: NOWHERE, KEY_ID: "a" * 16, JOB_KEY: "nobodys", IDEMPOTENCY_KEY: "nobodys",
    USER_ID: "nobody", RESOURCE: NOWHERE, NAME: "nobodys", TAG: "nobodys",
    CIRCUIT: "1" * 16, CONNECTION: "nobodys", CHANNEL: "nobodys", WORKER: "999999999",
    ALERT_RULE: "nobodys", SILENCE: NOWHERE,
    SUBSCRIPTION: NOWHERE,
}  # fmt: skip


def snapshot(admin: Known) -> list[Any]:
    """Everything that an admin can see of a tenant."""
    # Without notices of alerts: Duetime itself creates them, whenever an alert fires.
    notices = {job["job_id"] for job in admin.pages("/jobs?type=notice", "jobs")}
    jobs = [job for job in admin.pages("/jobs", "jobs") if job["job_id"] not in notices]
    runs = [run for run in admin.pages("/executions", "executions") if run["job_id"] not in notices]
    details = [admin.get(f"/jobs/{job['job_id']}") for job in jobs]
    attempts = [admin.get(f"/executions/{run['execution_id']}{part}") for run in runs for part in ("", "/logs")]
    histories = [admin.get(f"/jobs/{job['job_id']}/executions").json() for job in jobs]
    letters = admin.pages("/dead-letters", "executions")
    keys, audit = admin.get("/api-keys").json(), admin.pages("/audit", "entries")
    circuits, connections = admin.get("/circuits").json(), admin.get("/connections").json()
    workers, subscriptions = admin.get("/workers").json(), admin.get("/subscriptions").json()
    channels = [admin.get(path).json() for path in ("/alert-channels", "/alert-rules", "/silences")]
    assert jobs
    assert runs
    assert audit
    return [
        jobs, runs, [(answer.headers["etag"], answer.json()) for answer in details],
        [answer.json() for answer in attempts], histories, letters, keys, audit,
        circuits, connections, workers, subscriptions, channels,
    ]  # fmt: skip


class Ask(NamedTuple):
    """One place of one route; all other values belong to the caller, or are valid."""

    route: str
    place: str
    kind: str

    def send(self, client: Client, value: str, own_job: str) -> Answer:
        method, _, path = self.route.partition(" ")
        where, _, name = self.place.partition(" ")
        headers, query, body = {}, "", self._body()
        if where == "path":
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        elif where == "query":
            query = f"?{name}={quote(value, safe='')}"
        elif where == "header":
            headers = {name: value}
        elif name == "ids":
            body = {"ids": [value]}
        elif self.kind == WORKER:
            body = {**(body or {}), name: int(value)}
        else:
            body = [{**JOB, name: value}] if isinstance(body, list) else {**(body or {}), name: value}
        if self.route == "delete /jobs/{job_id}":
            query = "?purge=true"
        path = path.replace("{job_id}", own_job).replace("{key}", "of-my-own")
        if path.endswith("/logs"):
            headers["Accept"] = "text/event-stream"
        return client.request(method.upper(), path + query, body, headers)

    def _body(self) -> Any:
        if self.route == "post /jobs:batch":
            return [JOB]
        if self.route == "post /jobs" or self.route.startswith("put /jobs/by-key"):
            return JOB
        if self.route == "post /api-keys":
            return {"name": "eve's"}
        if self.route == "put /alert-channels/{name}":
            return {"url": "https://hooks.example/eve"}
        if self.route == "put /connections/{name}":
            return {"url": "sqlite:///of-eve.db"}
        if self.route == "put /alert-rules/{name}":
            return {"kind": "waiting"}
        if self.route == "post /workers/poll":
            return {"free": 1, "wait_seconds": 0}
        if self.route == "post /workers/report":
            return {"running": []}
        return {} if self.route.startswith(("put", "patch", "post /dead")) else None


ASKS = [Ask(route, place, kind) for route, found in TABLE.items() for place, kind in found.items() if kind in ABSENT]
CURSORS = [
    Ask(route, place, kind)
    for route, found in TABLE.items()
    for place, kind in found.items()
    if kind in (JOBS_CURSOR, EXECUTIONS_CURSOR, AUDIT_CURSOR, WORKERS_CURSOR, ALERTS_CURSOR)
]

_CHANCE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z")
_KEY = re.compile(r'dt_[a-z0-9]+_[a-z0-9]+|(?<="key_id":")[a-z0-9]{16}')
# `connection`: a response that precedes the end of its request's body ends the connection.
_PASSING = {"x-request-id", "date", "content-length", "connection"}


def normalised(answer: Answer, named: str) -> tuple[int, dict[str, str], str]:
    """Returns a response without the requested name, and without the parts that differ between requests."""
    headers = {name: value for name, value in answer.headers.items() if name not in _PASSING}
    body = _KEY.sub("<key>", answer.body.decode())  # first: it may contain the name of a user by chance
    if named.isdecimal():
        body = re.sub(rf"(?<!\d){named}(?!\d)", "<named>", body)
    else:
        body = body.replace(json.dumps(named)[1:-1], "<named>").replace(quote(named, safe=""), "<named>")
    return answer.status, headers, _CHANCE.sub("<chance>", body)


def is_empty(answer: Answer) -> bool:
    """Returns whether a list, or the result of an action on a list, is empty."""
    page = answer.json()
    lists = [page[name] for name in LISTS & page.keys()]
    return bool(lists) and not any(lists) and not page.get("total") and not page.get("redriven")


class TestAnotherTenants:
    @pytest.fixture(params=["an admin", "a user", "an admin's key"])
    def intruder(self, request: pytest.FixtureRequest, people_anywhere: People) -> Known:
        people = people_anywhere
        if request.param == "an admin":
            return people.eve
        if request.param == "a user":
            return people.as_user(people.evil, "mal")
        return people.with_key(people.make_key(people.eve, role="admin")["key"])

    def test_an_id_of_another_tenant_looks_like_one_that_does_not_exist(
        self, people_anywhere: People, victim: Things, intruder: Known
    ) -> None:
        people, own_job = people_anywhere, intruder.create()
        is_admin = intruder.get("/audit").status == 200
        before, checked = snapshot(people.ada), 0
        for ask in ASKS:
            nobodys = ABSENT[ask.kind]
            absent = normalised(self._send(ask, intruder, nobodys, own_job), nobodys)
            for name in victim.names[ask.kind]:
                foreign = self._send(ask, intruder, name, own_job)
                assert normalised(foreign, name) == absent, ask
                self._check(ask, foreign, is_admin, name)
                checked += 1
        assert checked > 100
        assert snapshot(people.ada) == before

    def _send(self, ask: Ask, intruder: Known, name: str, own_job: str) -> Answer:
        """Sends a request, then undoes its effect, so that the next request finds the same state."""
        makes = (ask.route, ask.kind) in MAKES and " /jobs" in ask.route
        answer = ask.send(intruder, name, intruder.create() if makes else own_job)
        if makes and answer.status < 300:
            made = answer.json()
            for job_id in made.get("created") or [made["job_id"]]:
                assert intruder.delete(f"/jobs/{job_id}?purge=true").status == 200
        if ask.route == "put /alert-rules/{name}" and answer.status == 200:
            assert intruder.delete(f"/alert-rules/{name}").status == 200
        if ask.route == "put /alert-channels/{name}" and answer.status == 200:
            assert intruder.delete(f"/alert-channels/{name}").status == 200
        if ask.route == "put /connections/{name}" and answer.status == 200:
            assert intruder.delete(f"/connections/{name}").status == 200
        return answer

    def _check(self, ask: Ask, answer: Answer, is_admin: bool, name: str) -> None:
        shown = answer.body.decode().replace(json.dumps(name)[1:-1], "")
        assert MARK not in shown, ask
        if not is_admin and (ask.route in ADMINS_ONLY or ask.place == "query owner"):
            assert answer.status == 403, (ask, answer)
        elif ask.route.startswith("put /jobs/by-key") and ask.place == "body key":
            assert answer.status == 400, (ask, answer)  # the path has the key
        elif (ask.route, ask.kind) in MAKES:
            assert answer.status in (200, 201), (ask, answer)
        else:
            assert answer.status == 404 or is_empty(answer), (ask, answer)

    def test_a_cursor_shows_only_rows_of_the_caller(self, people_anywhere: People) -> None:
        people, eve = people_anywhere, people_anywhere.eve
        own_job = eve.create("immediate", url=people.receiver.url())
        eve.wait_for_ends([own_job])
        victim = make_things(people, people.ann)  # later: in the lists, eve's rows come after these places
        before = snapshot(people.ada)
        for ask in CURSORS:
            for cursor in victim.names[ask.kind]:
                answer = ask.send(eve, cursor, own_job)
                assert answer.status == 200, (ask, answer)
                assert MARK not in answer.body.decode()
                assert not any(name in answer.body.decode() for name in victim.names[RESOURCE]), ask
                has_jobs = ask.route not in ("get /dead-letters", "get /workers", "get /alerts/history")
                assert (own_job in answer.body.decode()) == has_jobs, ask
                value, row = queries.read_cursor(
                    cursor, int if ask.kind in (AUDIT_CURSOR, WORKERS_CURSOR, ALERTS_CURSOR) else str
                )
                beside = queries.write_cursor(value, row[:-4] + "0000")  # no row, same position
                assert normalised(answer, "") == normalised(ask.send(eve, beside, own_job), "")
        assert snapshot(people.ada) == before

    def test_events_of_another_tenant_are_not_sent(self, people_anywhere: People, victim: Things) -> None:
        eve = people_anywhere.eve
        for last in victim.names[EVENT]:
            marker = eve.create(name="the last of mine")
            with eve.following(last=last) as frames:
                seen = []
                for frame in frames:
                    seen.append(frame)
                    if marker in frame.data:
                        break
            assert not any(MARK in frame.data for frame in seen)
            assert not any(name in frame.data for frame in seen for name in victim.names[RESOURCE])

    def test_if_match_reveals_nothing(self, people_anywhere: People, victim: Things) -> None:
        """If-Match is checked after the owner of the job."""
        eve = people_anywhere.eve
        for method in ("PUT", "PATCH"):
            for version in (*victim.names[VERSION], '"99"'):
                path, match = f"/jobs/{victim.names[JOB_ID][0]}", {"If-Match": version}
                foreign = eve.request(method, path, {"name": "eve's"}, match)
                absent = eve.request(method, f"/jobs/{NOWHERE}", {"name": "eve's"}, match)
                assert normalised(foreign, victim.names[JOB_ID][0]) == normalised(absent, NOWHERE)
                assert foreign.status == 404

    def test_a_redrive_of_several_ids_skips_those_of_another_tenant(
        self, people_anywhere: People, victim: Things
    ) -> None:
        people, eve, before = people_anywhere, people_anywhere.eve, snapshot(people_anywhere.ada)
        fails = {"url": people.receiver.url("/status/500"), "retry_policy": {"max_retries": 0}}
        own_job = eve.create("immediate", **fails)
        (own,) = eve.wait_for_ends([own_job])
        answer = eve.post("/dead-letters/redrive", {"ids": [*victim.names[EXECUTION_ID], own]})
        assert (answer.status, answer.json()["redriven"], len(answer.json()["executions"])) == (202, 1, 1)
        assert answer.json()["executions"][0] not in victim.names[EXECUTION_ID]
        assert eve.post("/dead-letters/redrive", {"limit": 1000}).status == 202
        assert snapshot(people.ada) == before

    def test_a_user_of_the_same_name_in_another_tenant_is_another_user(
        self, people_anywhere: People, victim: Things
    ) -> None:
        people = people_anywhere
        key = people.make_key(people.eve, user_id="ann", role="admin")["key"]
        for namesake in (people.as_user(people.evil, "ann"), people.with_key(key)):
            for path in ("/jobs", "/jobs?owner=ann", "/executions", "/dead-letters"):
                assert is_empty(namesake.get(path)), path
            for job_id in victim.names[JOB_ID]:
                assert namesake.get(f"/jobs/{job_id}").status == 404

    def test_no_field_or_header_selects_the_tenant(self, people: People) -> None:
        people.ann.create(name=MARK)
        for path in (
            f"/jobs?tenant={people.acme}",
            f"/executions?tenant={people.acme}",
            f"/audit?tenant={people.acme}",
        ):
            assert MARK not in people.eve.get(path, x_tenant=people.acme, tenant=people.acme).body.decode()
        assert people.eve.post("/jobs", {**JOB, "tenant": people.acme}).status == 400
        assert people.eve.post("/jobs", {**JOB, "owner": "ann"}).status == 400


class TestAnotherUsers:
    # Uses of another user's name that are allowed in the same tenant.
    OWN = frozenset({("post /jobs", IDEMPOTENCY_KEY)})

    @pytest.fixture(params=["a user", "an enterprise user", "an admin who may only read, write and run", "a key"])
    def other(self, request: pytest.FixtureRequest, people_anywhere: People) -> Known:
        people = people_anywhere
        if request.param == "a user":
            return people.bob
        if request.param == "an enterprise user":
            return people.as_user(people.acme, "bob", "enterprise")
        if request.param == "a key":
            return people.with_key(people.make_key(people.ada, user_id="bob")["key"])
        return people.as_user(people.acme, "bob", "admin", scopes=["read", "write", "run"])

    def test_an_id_of_another_user_is_forbidden_or_left_out(
        self, people_anywhere: People, victim: Things, other: Known
    ) -> None:
        people, own_job = people_anywhere, other.create(name="bob's")
        before, checked = self._state(people), 0
        for ask in ASKS:
            for name in victim.names[ask.kind]:
                answer = ask.send(other, name, own_job)
                self._check(ask, answer, name)
                checked += 1
        assert checked > 100
        assert self._state(people) == before

    def _state(self, people: People) -> Any:
        """Returns the state of ann's things. Bob may change his own things, and the audit records that."""
        found = snapshot(people.ada)
        mine = [job for job in found[0] if job["created_by"] == "ann"]
        ids = {job["job_id"] for job in mine}
        runs = [row for row in found[1] if row["job_id"] in ids]
        entries = [entry for entry in found[7] if entry["actor"] != "bob"]
        return mine, runs, [job for job in found[2] if job[1]["job_id"] in ids], found[6], entries

    def _check(self, ask: Ask, answer: Answer, name: str) -> None:
        if (ask.route, ask.kind) in self.OWN:
            assert answer.status == 201, (ask, answer)
            return
        shown = answer.body.decode().replace(json.dumps(name)[1:-1], "")
        assert MARK not in shown, ask
        if ask.kind == JOB_KEY and ask.route == "post /jobs:batch":
            assert answer.json()["created"] == []
        elif ask.kind == JOB_KEY and ask.place == "body key":  # a key belongs to the tenant: it is used
            assert answer.status in (400, 409), (ask, answer)
        elif (ask.route, ask.place) in FILTERS:
            assert is_empty(answer), (ask, answer)
        else:
            assert answer.status == 403, (ask, answer)

    def test_a_redrive_with_an_id_of_another_user_is_refused_as_a_whole(
        self, people_anywhere: People, victim: Things, other: Known
    ) -> None:
        people = people_anywhere
        fails = {"url": people.receiver.url("/status/500"), "retry_policy": {"max_retries": 0}}
        own_job = other.create("immediate", **fails)
        (own,) = other.wait_for_ends([own_job])
        answer = other.post("/dead-letters/redrive", {"ids": [own, *victim.names[EXECUTION_ID]]})
        assert answer.status == 403
        assert len(other.executions(own_job)) == 1


class TestWorkers:
    """Workers name executions by id. Ids of another tenant are treated like unknown ids."""

    def test_workers_of_another_tenant_get_nothing_and_end_nothing(self, people_anywhere: People) -> None:
        ada, eve = people_anywhere.ada, people_anywhere.eve
        own, other = (_join(client) for client in (ada, eve))
        job_id = ada.create(type="python", schedule="immediate", payload={"function": MARK, "args": [MARK]})
        assert eve.post("/workers/poll", {"worker_id": other, "free": 9, "wait_seconds": 0}).json() == {}
        (held,) = ada.post("/workers/poll", {"worker_id": own, "free": 9, "wait_seconds": 5}).json()["assignments"]
        claim = {name: held[name] for name in ("execution_id", "attempt", "token")}
        said = {
            "worker_id": other, "running": [claim], "unbegun": [claim],
            "ended": [{**claim, "started_at": 0, "ended_at": 1, "result": "1"}],
            "notes": [{**claim, "text": "not mine", "progress": 1}],
        }  # fmt: skip
        assert eve.post("/workers/report", said).json() == {"refused": [claim]}
        assert ada.executions(job_id)[0]["state"] == "RUNNING"
        assert "not mine" not in ada.get(f"/executions/{held['execution_id']}/logs").json()["logs"]
        assert [it["worker_id"] for it in eve.get("/workers").json()["workers"]] == [other]
        assert eve.get("/connections").json() == {"connections": []}
        assert ada.post("/workers/report", {**said, "worker_id": own, "unbegun": []}).json() == {}
        assert ada.executions(job_id)[0]["state"] == "COMPLETED"


def _join(client: Known) -> int:
    answer = client.post("/workers/join", {"name": "a worker", "functions": [MARK], "slots": 9})
    assert answer.status == 201, answer
    worker_id: int = answer.json()["worker_id"]
    return worker_id
