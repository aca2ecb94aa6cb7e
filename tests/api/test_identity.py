"""Authentication and authorization: credentials, keys and their scopes, owners and tenants."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest

from api.people import JWT_SECRET, Known, People, listed
from api.person import FAR, refused
from cluster.processes import Answer, Client, Server, now_ms, wait_until
from duetime.api.auth.tokens import sign

PUBLIC = {"/health", "/health/live", "/health/ready", "/openapi.json", "/docs"}
NO_ID = "0198c0de-1234-7abc-8def-0123456789ab"
JOB: dict[str, Any] = {"name": "a job", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/nobody"}}


def operations(client: Client) -> Iterator[tuple[str, str]]:
    """Returns every route, with ids that do not exist."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for name in ("job_id", "execution_id", "key_id", "key", "circuit", "name", "subscription_id", "silence_id"):
            path = path.replace(f"{{{name}}}", NO_ID)
        assert "{" not in path, "a path parameter that this test does not know"
        for method in methods:
            yield method.upper(), path.removeprefix("/api/v1")


def job_ids(client: Client, path: str) -> tuple[list[str], int]:
    return listed(client, path, "jobs" if path.startswith("/jobs") else "executions", lambda row: row["job_id"])


def unsigned(claims: dict[str, Any], **header: Any) -> str:
    parts = ({"typ": "JWT", **header}, claims)
    return ".".join([*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])


BAD = {
    "none": {},
    "no token": {"Authorization": "Bearer"},
    "a made-up token": {"Authorization": "Bearer a.b.c"},
    "a password": {"Authorization": "Basic YTpi"},
    "a made-up key": {"X-API-Key": f"dt_{'a' * 16}_{'b' * 52}"},
    "an empty key": {"X-API-Key": ""},
}


def first_that_is_let_in(living: Callable[[int], Known]) -> Known:
    """Yields a client whose credential is valid for 2 seconds, or longer if that is over before its first use."""
    for seconds in (2, 10, 60):
        client = living(seconds)
        if client.get("/jobs").status == 200:
            return client
    raise AssertionError("none is let in")


class TestCredentials:
    @pytest.mark.parametrize("kind", BAD)
    def test_without_a_valid_credential_every_route_responds_401(self, guarded: Server, kind: str) -> None:
        asked = 0
        for method, path in [
            *operations(guarded.client),
            ("GET", "/nowhere"),
            ("GET", "/_/../jobs"),
            ("GET", "/jobs/"),
        ]:
            if path in PUBLIC:
                continue
            answer = guarded.client.request(method, path, JOB if method in ("POST", "PUT") else None, BAD[kind])
            refused(answer, 401, "UNAUTHORIZED")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            asked += 1
        assert asked > 25

    def test_unknown_paths_outside_the_base_path_are_closed_too(self, guarded: Server) -> None:
        for path in ("/health/", "/health/x", "/docs/x", "/_openapi", "/openapi.yaml", "/_"):
            refused(guarded.client.get(path), 401, "UNAUTHORIZED")

    @pytest.mark.parametrize("path", sorted(PUBLIC))
    def test_health_and_the_openapi_document_are_public(self, guarded: Server, path: str) -> None:
        assert guarded.client.get(path).status == 200
        assert guarded.client.get(path, authorization="Bearer a.b.c").status == 200

    def test_with_a_token_no_route_responds_401(self, people: People) -> None:
        for method, path in operations(people.ada):
            if path != "/events":  # which never ends
                assert people.ada.request(method, path).status not in (401, 403, 500)

    def test_a_token_and_a_key_together_are_refused(self, people: People) -> None:
        key = people.make_key(people.ada)["key"]
        assert "one of them" in refused(people.ada.get("/jobs", x_api_key=key), 401, "UNAUTHORIZED")

    @pytest.mark.parametrize(
        "forge",
        [
            lambda claims: unsigned(claims, alg="none"),
            lambda claims: unsigned(claims, alg="HS256"),
            lambda claims: jwt.encode(claims, "another secret of thirty-two bytes", "HS256"),
            lambda claims: jwt.encode(claims, JWT_SECRET, "HS384"),
            lambda claims: jwt.encode(claims, JWT_SECRET, "HS256", headers={"kid": "../../dev/null"}),
            lambda claims: jwt.encode({**claims, "exp": claims["iat"] - 1}, JWT_SECRET, "HS256"),
            lambda claims: jwt.encode({**claims, "aud": "another"}, JWT_SECRET, "HS256"),
            lambda claims: jwt.encode({**claims, "role": "root"}, JWT_SECRET, "HS256"),
            lambda claims: jwt.encode({**claims, "tenant": "ACME/../evil"}, JWT_SECRET, "HS256"),
        ],
    )  # fmt: skip
    def test_a_forged_token_is_refused(self, people: People, forge: Any) -> None:
        now = int(time.time())
        claims = {
            "tenant": people.acme, "user_id": "ada", "role": "admin", "iss": "duetime", "aud": "duetime", "iat": now,
            "exp": now + 60,
        }  # fmt: skip
        assert (
            people.server.client.get("/audit", authorization=f"Bearer {jwt.encode(claims, JWT_SECRET)}").status == 200
        )
        refused(people.server.client.get("/audit", authorization=f"Bearer {forge(claims)}"), 401, "UNAUTHORIZED")

    def test_an_expired_token_is_refused(self, people: People) -> None:
        claims = {"tenant": people.acme, "user_id": "ann", "tier": "enterprise"}

        def living(seconds: int) -> Known:
            short = sign(JWT_SECRET, "duetime", "duetime", claims, now_ms(), seconds)
            return Known(people.server.client.port, {"Authorization": f"Bearer {short}"})

        client = first_that_is_let_in(living)
        wait_until(lambda: client.get("/jobs").status == 401, 5, "the token has expired")

    def test_a_server_without_authentication_accepts_local_users_and_logs_that(self, server: Server) -> None:
        said = (server.folder / "server-1.out").read_text()
        assert "No identity is set up" in said
        assert server.client.get("/audit").status == 200
        assert server.client.get("/jobs", authorization="Bearer a.b.c").status == 200
        refused(server.client.get("/jobs", x_api_key="dt_made_up"), 401, "UNAUTHORIZED")
        refused(server.client.get("/jobs", host="duetime.example.com"), 403, "FORBIDDEN")

    def test_a_server_with_authentication_logs_that(self, guarded: Server) -> None:
        said = (guarded.folder / "server-1.out").read_text()
        assert "Identity is required" in said
        assert JWT_SECRET not in said


def may_create(client: Client) -> Answer:
    return client.post("/jobs", JOB)


# For each right: a request that needs it, and its status when there is nothing to act on.
NEEDS: dict[str, list[tuple[str, str, Any]]] = {
    "read": [
        ("GET", "/jobs", None), ("GET", "/executions", None), ("GET", f"/jobs/{NO_ID}/why", None),
        ("GET", "/dead-letters", None), ("POST", "/schedules/preview", {"schedule": "@daily"}),
    ],
    "write": [
        ("POST", "/jobs", JOB), ("POST", "/jobs/", JOB), ("POST", "/jobs:batch", [JOB]), ("PUT", f"/jobs/{NO_ID}", {}),
        ("PATCH", f"/jobs/{NO_ID}", {}), ("PUT", "/jobs/by-key/k", JOB), ("DELETE", f"/jobs/{NO_ID}", None),
        ("POST", f"/jobs/{NO_ID}/pause", None), ("POST", f"/jobs/{NO_ID}/resume", None),
        ("POST", f"/jobs/{NO_ID}/cancel", None),
    ],
    "run": [
        ("POST", f"/jobs/{NO_ID}/run", None), ("POST", f"/jobs/{NO_ID}/retry", None),
        ("POST", f"/executions/{NO_ID}/retry", None), ("POST", f"/executions/{NO_ID}/cancel", None),
        ("POST", "/dead-letters/redrive", {}),
    ],
    "admin": [
        ("GET", "/audit", None), ("GET", "/cluster", None), ("GET", "/api-keys", None),
        ("GET", "/observability/now", None),
        ("POST", "/api-keys", {"name": "x"}), ("DELETE", "/api-keys/aaaaaaaaaaaaaaaa", None),
    ],
}  # fmt: skip


class TestRights:
    @pytest.mark.parametrize("right", ["read", "write", "run", "script"])
    def test_a_key_gives_the_rights_of_its_scopes_and_no_other(self, people: People, right: str) -> None:
        made = people.make_key(people.ada, user_id="ann", scopes=[right])
        bearer = people.with_key(made["key"])
        for needed, requests in NEEDS.items():
            for method, path, body in requests:
                answer = bearer.request(method, path, body)
                if needed == right:
                    assert answer.status in (200, 201, 202, 404), (method, path, answer)
                else:
                    assert f"right '{needed}'" in refused(answer, 403, "FORBIDDEN"), (method, path)

    def test_a_token_is_narrowed_by_scopes_too(self, people: People) -> None:
        reader = people.as_user(people.acme, "ada", "admin", scopes=["read"])
        assert reader.get("/jobs").status == 200
        refused(may_create(reader), 403, "FORBIDDEN")
        refused(reader.get("/audit"), 403, "FORBIDDEN")
        nobody = people.as_user(people.acme, "ada", "admin", scopes=[])
        refused(nobody.get("/jobs"), 403, "FORBIDDEN")

    def test_an_admin_with_narrower_scopes_sees_only_their_own_jobs(self, people: People) -> None:
        people.ann.create()
        assert job_ids(people.as_user(people.acme, "ada", "admin", scopes=["read"]), "/jobs") == ([], 0)

    def test_a_user_can_neither_make_keys_nor_see_the_audit_or_the_cluster(self, people: People) -> None:
        for user in (people.ann, people.as_user(people.acme, "zoe", "enterprise")):
            for method, path, body in NEEDS["admin"]:
                refused(user.request(method, path, body), 403, "FORBIDDEN")

    def test_a_users_key_can_not_have_the_scope_admin(self, people: People) -> None:
        answer = people.ada.post("/api-keys", {"name": "x", "role": "user", "scopes": ["admin"]})
        refused(answer, 400, "INVALID_REQUEST", "/scopes")

    @pytest.mark.parametrize(("kind", "right"), [("script", "script"), ("sql_query", "sql")])
    def test_scripts_and_sql_jobs_need_a_right(self, people: People, kind: str, right: str) -> None:
        """Without the right every route refuses the job. With the right, no route refuses it for a missing right."""
        payload = {"script": {"argv": ["true"]}, "sql": {"connection": "c", "statement": "SELECT 1"}}[right]
        job = {**JOB, "type": kind, "payload": payload}
        own, other = people.ann.create(), {"script": "sql", "sql": "script"}[right]
        named = people.as_user(people.acme, "ann", scopes=["write", right])
        for user, is_refused in (
            (people.ann, True),
            (people.as_user(people.acme, "ann", scopes=["write", other]), True),
            (named, False),
            (people.ada, False),
        ):
            answers = [
                user.post("/jobs", job), user.post("/jobs/", job), user.put(f"/jobs/by-key/{kind}-{is_refused}", job),
                user.patch(f"/jobs/{own}", {"type": kind, "payload": payload}),
            ]  # fmt: skip
            assert [answer.status == 403 for answer in answers] == [is_refused] * 4
            refusals = user.post("/jobs:batch", [job]).json()["refused"]
            assert [event["error"] for event in refusals if event["error"] == "FORBIDDEN"] == ["FORBIDDEN"] * is_refused


class TestKeys:
    def test_a_key_is_shown_once_and_listed_without_its_secret(self, people_anywhere: People) -> None:
        people = people_anywhere
        made = people.make_key(people.ada, name="ci", user_id="ann", role="user", scopes=["read", "write"])
        assert made["key"].startswith(f"dt_{made['key_id']}_")
        answer = people.ada.get("/api-keys")
        (shown,) = answer.json()["keys"]
        secret = made["key"].rpartition("_")[2]
        assert secret.encode() not in answer.body
        assert {name: shown[name] for name in ("key_id", "name", "user_id", "role", "scopes", "created_by")} == {
            "key_id": made["key_id"], "name": "ci", "user_id": "ann", "role": "user", "scopes": ["read", "write"],
            "created_by": "ada",
        }  # fmt: skip
        assert (shown["last_used_at"], shown["revoked_at"], shown["expires_at"]) == (None, None, None)
        assert people.eve.get("/api-keys").json() == {"keys": []}

    def test_a_key_stands_for_its_user_in_the_tenant_that_created_it(self, people: People) -> None:
        bearer = people.with_key(people.make_key(people.ada, user_id="ann")["key"])
        job_id = bearer.create()
        assert people.ann.get(f"/jobs/{job_id}").json()["created_by"] == "ann"
        refused(people.bob.get(f"/jobs/{job_id}"), 403, "FORBIDDEN")
        refused(people.eve.get(f"/jobs/{job_id}"), 404, "NOT_FOUND")

    def test_its_last_use_is_listed(self, people_anywhere: People) -> None:
        people = people_anywhere
        made = people.make_key(people.ada)
        assert people.with_key(made["key"]).get("/jobs").status == 200

        def used() -> str | None:
            (shown,) = people.ada.get("/api-keys").json()["keys"]
            at: str | None = shown["last_used_at"]
            return at

        assert wait_until(used, 5, "the key's use is noted")

    def test_it_expires(self, people_anywhere: People) -> None:
        people, made = people_anywhere, []

        def living(seconds: int) -> Known:
            made.append(people.make_key(people.ada, expires_in_days=seconds / 86_400))
            return people.with_key(made[-1]["key"])

        bearer = first_that_is_let_in(living)
        wait_until(lambda: bearer.get("/jobs").status == 401, 5, "the key has expired")
        shown = {key["expires_at"] for key in people.ada.get("/api-keys").json()["keys"]}
        assert shown == {key["expires_at"] for key in made}

    def test_a_revoked_key_is_refused_at_once_and_stays_in_the_list(self, people_anywhere: People) -> None:
        people = people_anywhere
        made = people.make_key(people.ada)
        bearer = people.with_key(made["key"])
        assert bearer.get("/jobs").status == 200
        assert people.ada.delete(f"/api-keys/{made['key_id']}").status == 200
        refused(bearer.get("/jobs"), 401, "UNAUTHORIZED")
        (shown,) = people.ada.get("/api-keys").json()["keys"]
        assert shown["revoked_at"] is not None

    @pytest.mark.slow
    def test_another_node_refuses_a_revoked_key(self, pair: tuple[Server, Server], receiver: Any) -> None:
        people = People(pair[0], receiver)
        made = people.make_key(people.ada)
        elsewhere = people.with_key(made["key"]).at(pair[1])
        assert elsewhere.get("/jobs").status == 200
        assert people.ada.delete(f"/api-keys/{made['key_id']}").status == 200
        wait_until(lambda: elsewhere.get("/jobs").status == 401, 5, "the other node knows")

    def test_without_authentication_a_key_still_limits_its_user(self, server: Server) -> None:
        made = server.client.post("/api-keys", {"name": "x", "user_id": "ann", "scopes": ["read"]}).json()
        bearer = Known(server.client.port, {"X-API-Key": made["key"]})
        assert job_ids(bearer, "/jobs")[1] == 0
        refused(may_create(bearer), 403, "FORBIDDEN")


class TestOwners:
    def test_a_user_lists_their_own_and_an_admin_all(self, people_anywhere: People) -> None:
        people = people_anywhere
        path = {"url": people.receiver.url("/ok")}
        of_ann = sorted(people.ann.create("immediate", payload=path) for _ in range(3))
        of_bob = sorted(people.bob.create("immediate", payload=path) for _ in range(2))
        people.ada.wait_for_ends(of_ann + of_bob)
        for lists in ("/jobs", "/executions", "/executions?state=COMPLETED", "/jobs?status=COMPLETED"):
            assert job_ids(people.ann, lists) == (of_ann, 3)
            assert job_ids(people.bob, lists) == (of_bob, 2)
            assert job_ids(people.ada, lists) == (sorted(of_ann + of_bob), 5)
            assert job_ids(people.eve, lists) == ([], 0)
        assert people.ann.get("/jobs?limit=2").json()["has_more"]
        assert len(people.ann.pages("/executions?limit=1", "executions")) == 3

    def test_only_admins_may_filter_by_owner(self, people_anywhere: People) -> None:
        people = people_anywhere
        of_ann, of_bob = people.ann.create(), people.bob.create()
        assert job_ids(people.ada, "/jobs?owner=ann") == ([of_ann], 1)
        assert job_ids(people.ada, "/jobs?owner=nobody") == ([], 0)
        assert job_ids(people.bob, "/jobs?owner=bob") == ([of_bob], 1)
        for owner in ("ann", "nobody", "", "BOB", "bob%20"):
            refused(people.bob.get(f"/jobs?owner={owner}"), 403, "FORBIDDEN")
        assert job_ids(people.eve, "/jobs?owner=ann") == ([], 0)

    def test_dead_letters_are_listed_and_redriven_by_their_owner(self, people_anywhere: People) -> None:
        people = people_anywhere
        failing = {"payload": {"url": people.receiver.url("/status/500")}, "retry_policy": {"max_retries": 0}}
        of_ann, of_bob = people.ann.create("immediate", **failing), people.bob.create("immediate", **failing)
        people.ada.wait_for_ends([of_ann, of_bob])
        assert job_ids(people.ann, "/dead-letters") == ([of_ann], 1)
        assert job_ids(people.ada, "/dead-letters") == (sorted([of_ann, of_bob]), 2)
        assert job_ids(people.eve, "/dead-letters") == ([], 0)
        assert people.eve.post("/dead-letters/redrive", {}).json()["redriven"] == 0
        assert people.bob.post("/dead-letters/redrive", {"job_id": of_ann}).json()["redriven"] == 0
        assert job_ids(people.bob, "/dead-letters?http_status=5xx&error_type=http_error") == ([of_bob], 1)
        assert people.eve.post("/dead-letters/redrive", {"http_status": "5xx"}).json()["redriven"] == 0
        assert people.bob.post("/dead-letters/redrive", {"http_status": "5xx"}).json()["redriven"] == 1
        people.ada.wait_for_ends([of_bob])
        assert (len(people.ada.executions(of_ann)), len(people.ada.executions(of_bob))) == (1, 2)

    def test_a_user_gets_events_of_their_own_jobs(self, people: People) -> None:
        """An admin gets all events of the tenant."""
        with people.bob.following() as bobs, people.ada.following() as adas, people.eve.following() as eves:
            of_ann = people.ann.create("immediate", url=people.receiver.url())
            people.ann.wait_for(of_ann, "COMPLETED")
            assert people.ann.post("/jobs:batch", [JOB]).status == 200
            people.ann.post(f"/jobs/{of_ann}/run")
            of_bob, of_eve = people.bob.create(), people.eve.create()
            assert [json.loads(next(event).data)["job_id"] for event in (bobs, eves)] == [of_bob, of_eve]
            kinds = [next(adas).kind for _ in range(4)]
            assert kinds == ["job.created", "execution.started", "execution.completed", "jobs.created"]

    def test_a_resumed_stream_has_only_the_users_own_events(self, people: People) -> None:
        with people.ada.following() as event:
            people.ann.create()
            first = next(event)
        of_bob, of_eve = people.bob.create(), people.eve.create()
        before = str(int(first.number) - 1)
        with people.bob.following(last=before) as bobs, people.eve.following(last=before) as eves:
            assert [json.loads(next(event).data)["job_id"] for event in (bobs, eves)] == [of_bob, of_eve]

    def test_the_same_idempotency_key_of_two_users_is_two_keys(self, people_anywhere: People) -> None:
        people = people_anywhere
        same_name = people.as_user(people.evil, "ann")
        first = people.ann.post("/jobs", JOB, idempotency_key="the same")
        assert first.status == 400, "a key without blanks is asked for"
        askers = (people.ann, people.bob, people.ada, people.eve, same_name)
        made = [asker.post("/jobs", JOB, idempotency_key="the-same") for asker in askers]
        assert [answer.status for answer in made] == [201] * 5
        assert len({answer.json()["job_id"] for answer in made}) == 5
        assert people.ann.post("/jobs", JOB, idempotency_key="the-same").json() == made[0].json()
        other = people.bob.post("/jobs", {**JOB, "name": "another"}, idempotency_key="the-same")
        assert "'the-same'" in refused(other, 422, "IDEMPOTENCY_KEY_REUSED")

    def test_a_job_key_belongs_to_its_tenant(self, people_anywhere: People) -> None:
        """In another tenant the key names another job. In the same tenant a user can't change another user's job."""
        people = people_anywhere
        of_ann = people.ann.put("/jobs/by-key/nightly", JOB)
        of_eve = people.eve.put("/jobs/by-key/nightly", {**JOB, "name": "eve's"})
        assert (of_ann.status, of_eve.status) == (201, 201)
        assert of_ann.json()["job_id"] != of_eve.json()["job_id"]
        before = people.ann.get(f"/jobs/{of_ann.json()['job_id']}").json()
        refused(people.bob.put("/jobs/by-key/nightly", {**JOB, "name": "bob's"}), 403, "FORBIDDEN")
        assert people.ann.get(f"/jobs/{of_ann.json()['job_id']}").json() == before
        refused(people.bob.post("/jobs", {**JOB, "key": "nightly"}), 409, "CONFLICT")
        assert people.ada.put("/jobs/by-key/nightly", {**JOB, "description": "ada's"}).status == 200
        kept = people.ann.get(f"/jobs/{of_ann.json()['job_id']}").json()
        assert (kept["name"], kept["description"], kept["created_by"]) == ("a job", "ada's", "ann")
        assert people.eve.get(f"/jobs/{of_eve.json()['job_id']}").json()["name"] == "eve's"
