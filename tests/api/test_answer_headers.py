"""The headers of every response: request id, security headers, rate limit."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest

from api.people import FREE_ON_POSTGRESQL, FREE_ON_SQLITE, ORIGIN, Known, People
from api.person import FAR, refused
from cluster.processes import Answer, Client, Receiver, Server, wait_until
from patience import PATIENCE_SECONDS

JOB: dict[str, Any] = {"name": "a job", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/nobody"}}
NO_ID = "0198c0de-1234-7abc-8def-0123456789ab"
ALWAYS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
LIMITS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
NO_LIMIT = "2147483647"
HOUR = 3600

# One response of every kind: the request, and the expected status.
ASKED: dict[str, tuple[Callable[[Client], Answer], int]] = {
    "a list": (lambda client: client.get("/jobs"), 200),
    "a create": (lambda client: client.post("/jobs", JOB), 201),
    "a create, by the framework": (lambda client: client.post("/jobs/", JOB), 201),
    "a create that is refused": (lambda client: client.post("/jobs", {}), 400),
    "a create by the framework that is refused": (lambda client: client.post("/jobs/", {}), 400),
    "a batch": (lambda client: client.post("/jobs:batch", [JOB]), 200),
    "a batch of lines": (
        lambda client: client.post("/jobs:batch", b"{}", content_type="application/x-ndjson"), 200
    ),
    "a batch that is none": (lambda client: client.post("/jobs:batch", b"no"), 400),
    "a bad parameter": (lambda client: client.get("/jobs?limit=x"), 400),
    "nothing there": (lambda client: client.get("/nowhere"), 404),
    "nothing there at all": (lambda client: client.get("/_"), 404),
    "no such job": (lambda client: client.get(f"/jobs/{NO_ID}"), 404),
    "not with that method": (lambda client: client.delete("/jobs"), 405),
    "a conflict": (lambda client: client.put("/jobs/by-key/x", JOB, if_match='"1"'), 412),
    "too large": (lambda client: client.post("/jobs", b" " * 1_100_000), 413),
    "too large, by the framework": (lambda client: client.post("/schedules/preview", b" " * 1_100_000), 413),
    "the contract": (lambda client: client.get("/openapi.json"), 200),
    "the health": (lambda client: client.get("/health"), 200),
    "the health in words": (lambda client: client.get("/health?verbose=true"), 200),
    "a bad Last-Event-ID": (lambda client: client.get("/events", last_event_id="x"), 400),
    "no preflight": (lambda client: client.request("OPTIONS", "/jobs"), 405),
}  # fmt: skip
PUBLIC = ("the contract", "the health", "the health in words")


def lacking(answer: Answer) -> dict[str, Any]:
    """Returns the required headers that a response does not have."""
    missing = {name: answer.headers.get(name) for name in ALWAYS if answer.headers.get(name) != ALWAYS[name]}
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", answer.headers.get("x-request-id", "")):
        missing["x-request-id"] = answer.headers.get("x-request-id")
    return missing


def unlimited(answer: Answer) -> None:
    """Checks that a request counted towards no limit, and has the headers for that."""
    assert [answer.headers.get(name) for name in LIMITS] == [NO_LIMIT, NO_LIMIT, "0"]


def head_of(client: Known, path: str, **headers: str) -> Answer:
    """Returns the head of a response that does not end."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", f"/api/v1{path}", headers={**client.headers, **headers})
    response = connection.getresponse()
    answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, b"")
    connection.close()
    return answer


class TestEveryAnswer:
    @pytest.mark.parametrize("kind", ASKED)
    def test_has_a_request_id_and_security_headers(self, people: People, kind: str) -> None:
        ask, status = ASKED[kind]
        answer = ask(people.ann)
        assert answer.status == status, answer
        assert lacking(answer) == {}

    @pytest.mark.parametrize("kind", ASKED)
    def test_has_them_without_a_credential(self, guarded: Server, kind: str) -> None:
        answer = ASKED[kind][0](guarded.client)
        assert answer.status == (200 if kind in PUBLIC else 401)
        assert lacking(answer) == {}
        unlimited(answer)

    @pytest.mark.parametrize("kind", ASKED)
    def test_has_them_on_a_server_without_authentication(self, server: Server, kind: str) -> None:
        answer = ASKED[kind][0](server.client)
        assert answer.status == ASKED[kind][1]
        assert lacking(answer) == {}
        unlimited(answer)

    def test_a_stream_has_them(self, people: People) -> None:
        job_id = people.ann.create("immediate", url=people.receiver.url("/hang"), timeout_seconds=60)
        run = people.ann.wait_for(job_id, "RUNNING")
        for path in ("/events", f"/executions/{run}/logs"):
            answer = head_of(people.ann, path, Accept="text/event-stream")
            assert (answer.status, lacking(answer)) == (200, {})
            assert answer.headers["content-type"].startswith("text/event-stream")
        assert people.ann.post(f"/executions/{run}/cancel").status == 202

    def test_a_forbidden_request_gets_them(self, people: People) -> None:
        assert lacking(people.ann.get("/audit")) == {}
        assert lacking(people.as_user(people.acme, "ann", scopes=["read"]).post("/jobs", JOB)) == {}

    def test_the_docs_page_may_use_its_styles(self, people: People) -> None:
        answer = people.server.client.get("/docs")
        assert lacking(answer) == {
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        }

    @pytest.mark.parametrize(
        ("sent", "status"),
        [(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000, 431), (b"no HTTP at all\r\n\r\n", 400)],
    )
    def test_a_malformed_request_gets_them(self, guarded: Server, sent: bytes, status: int) -> None:
        with socket.create_connection(("127.0.0.1", guarded.client.port), 10) as connection:
            connection.sendall(sent)
            received = b""
            while chunk := connection.recv(65_536):
                received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        answer = Answer(int(first.split()[1]), headers, body)
        refused(answer, status, "INVALID_REQUEST")
        assert lacking(answer) == {}
        unlimited(answer)


class TestRequestIds:
    def test_generated_ids_differ(self, people: People) -> None:
        ids = [people.ann.get("/jobs").headers["x-request-id"] for _ in range(20)]
        assert len(set(ids)) == 20

    @pytest.mark.parametrize("given", ["a", "0af7651916cd43dd8448eb211c80319c", "A.b_c:d-9", "x" * 64])
    def test_a_valid_id_is_used_and_recorded(self, people: People, given: str) -> None:
        answer = people.ann.post("/jobs", JOB, x_request_id=given)
        assert answer.headers["x-request-id"] == given
        (noted,) = people.ada.get("/audit?limit=1").json()["entries"]
        assert (noted["request_id"], noted["resource"]) == (given, answer.json()["job_id"])

    @pytest.mark.parametrize("given", ["", "x" * 65, "a b", "<script>", "a\tb", "é", "a,b"])
    def test_an_invalid_id_is_replaced(self, people: People, given: str) -> None:
        answer = people.ann.get("/jobs", x_request_id=given)
        assert answer.status == 200
        assert answer.headers["x-request-id"] != given
        assert lacking(answer) == {}


class TestCors:
    def preflight(self, client: Client, origin: str | None, **headers: str) -> Answer:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization", **headers}
        return client.request("OPTIONS", "/jobs", None, asked | ({} if origin is None else {"Origin": origin}))

    def test_is_off_unless_set(self, server: Server, people: People) -> None:
        for origin in (ORIGIN, "null", f"http://127.0.0.1:{server.client.port}"):
            answer = self.preflight(server.client, origin)
            refused(answer, 403, "FORBIDDEN")
            assert self.allowed(answer) == {}
        for client, path in ((server.client, "/jobs"), (server.client, "/health")):
            assert self.allowed(client.get(path, origin=f"http://127.0.0.1:{server.client.port}")) == {}

    def allowed(self, answer: Answer) -> dict[str, str]:
        return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}

    @pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:3000"])
    def test_a_page_of_an_allowed_origin_may_send_requests(self, people: People, origin: str) -> None:
        answer = self.preflight(people.server.client, origin)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == origin
        assert {"POST", "PATCH", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
        wanted = {"authorization", "content-type", "x-api-key", "idempotency-key", "if-match", "last-event-id"}
        assert wanted <= set(answer.headers["access-control-allow-headers"].split(", "))
        assert "origin" in answer.headers["vary"].lower()
        assert lacking(answer) == {}
        nobody = people.server.client
        for allowed_answer in (
            people.ann.get("/jobs", origin=origin), people.ann.post("/jobs", {}, origin=origin),
            nobody.get("/jobs", origin=origin), nobody.get("/health", origin=origin),
            head_of(people.ann, "/events", Origin=origin),
        ):  # fmt: skip
            assert allowed_answer.headers["access-control-allow-origin"] == origin
            exposed = set(allowed_answer.headers["access-control-expose-headers"].split(", "))
            assert {"etag", "retry-after", "x-request-id", *LIMITS} <= exposed
            assert "origin" in allowed_answer.headers["vary"].lower()

    @pytest.mark.parametrize(
        "origin",
        ["https://evil.example", "null", "*", "", f"{ORIGIN}.evil.example", f"{ORIGIN}:8443", ORIGIN.upper(),
         "http://app.example.com", f"{ORIGIN}/", f"{ORIGIN},https://evil.example", "https://xapp.example.com"],
    )  # fmt: skip
    def test_a_page_of_another_origin_may_not_send_requests(self, people: People, origin: str) -> None:
        answer = self.preflight(people.server.client, origin)
        refused(answer, 403, "FORBIDDEN")
        allowed_answer = people.ann.get("/jobs", origin=origin)
        assert self.allowed(answer) == self.allowed(allowed_answer) == {}
        assert "origin" in allowed_answer.headers["vary"].lower()

    def test_wildcard_origins_and_credentials_are_never_allowed(self, people: People) -> None:
        for answer in (self.preflight(people.server.client, ORIGIN), people.ann.get("/jobs", origin=ORIGIN)):
            assert "*" not in self.allowed(answer).values()
            assert "access-control-allow-credentials" not in answer.headers

    def test_a_preflight_does_not_count_as_a_request(self, people: People) -> None:
        free = people.as_user(people.acme, "free", tier="free")
        left = int(free.get("/jobs").headers["x-ratelimit-remaining"])
        for _ in range(3):
            unlimited(self.preflight(free, ORIGIN))
        assert int(free.get("/jobs").headers["x-ratelimit-remaining"]) == left - 1


class TestLimits:
    def test_a_user_without_a_limit_gets_headers_that_say_so(self, people: People) -> None:
        unlimited(people.ann.get("/jobs"))

    def test_every_response_has_the_remaining_requests(self, people: People) -> None:
        """Requests for /health and the OpenAPI document do not count."""
        left, began = FREE_ON_SQLITE, time.time()
        for number, (kind, (ask, status)) in enumerate(ASKED.items()):
            free = people.as_user(people.acme, f"free-{number // 10}", tier="free")
            if number % 10 == 0:
                left, began = FREE_ON_SQLITE, time.time()
            answer = ask(free)
            assert answer.status == status, kind
            if kind in PUBLIC:
                unlimited(answer)
                continue
            left -= 1
            self.check(answer, FREE_ON_SQLITE, left, began)

    def check(self, answer: Answer, limit: int, left: int, began: float) -> None:
        """`began`: the time of the first request, or earlier."""
        assert [answer.headers.get(name) for name in LIMITS[:2]] == [str(limit), str(left)], answer
        full_in = int(answer.headers["x-ratelimit-reset"]) - time.time()
        back = (limit - left) * HOUR / limit - full_in  # the requests that have returned since
        assert -1 <= back <= time.time() - began + 1, "the bucket is full when all that was taken has come back"

    def test_a_stream_counts_once(self, people: People) -> None:
        free = people.as_user(people.acme, "streams", tier="free")
        began = time.time()
        self.check(head_of(free, "/events"), FREE_ON_SQLITE, FREE_ON_SQLITE - 1, began)

    def test_a_request_over_the_limit_is_refused(self, people_anywhere: People) -> None:
        people = people_anywhere
        limit = FREE_ON_SQLITE if people.server._settings.get("DATABASE_URL") is None else FREE_ON_POSTGRESQL
        free = people.as_user(people.acme, "eager", tier="free")
        began = time.time()
        statuses = [free.get("/jobs?limit=1").status for _ in range(limit)]
        first_over = time.time()
        assert statuses == [200] * limit
        for ask in (lambda: free.get("/jobs"), lambda: free.post("/jobs", JOB), lambda: free.get("/nowhere")):
            asked = time.time()
            answer = ask()
            assert "an hour" in refused(answer, 429, "RATE_LIMIT_EXCEEDED")
            wait = answer.json()["retry_after"]
            assert answer.headers["retry-after"] == str(wait)
            # One returns `emission` after the first was used, which was between `began` and `first_over`.
            emission = HOUR / limit
            assert emission - (time.time() - began) - 0.01 <= wait <= emission - (asked - first_over) + 1.01
            assert [answer.headers[name] for name in LIMITS[:2]] == [str(limit), "0"]
            assert lacking(answer) == {}
        assert people.as_user(people.evil, "eager", tier="free").get("/jobs").status == 200, "a namesake elsewhere"
        assert people.bob.get("/jobs").status == 200
        assert free.get("/health").status == 200

    def test_a_users_keys_and_tokens_share_a_limit(self, people: People) -> None:
        key = people.make_key(people.ada, user_id="ann", tier="free")["key"]
        as_ann = people.as_user(people.acme, "ann", tier="free")
        began = time.time()
        self.check(as_ann.get("/jobs"), FREE_ON_SQLITE, FREE_ON_SQLITE - 1, began)
        self.check(people.with_key(key).get("/jobs"), FREE_ON_SQLITE, FREE_ON_SQLITE - 2, began)

    def test_switching_between_tiers_loses_no_requests(self, people: People) -> None:
        """A key has the tier free unless the admin sets another. One request of free's limit is worth 500 of pro's."""
        pro, free = (people.as_user(people.acme, "both", tier=tier) for tier in ("pro", "free"))
        for _ in range(5):
            assert (pro.get("/jobs").status, free.get("/jobs").status) == (200, 200)

        def left() -> int:
            return int(pro.get("/jobs").headers["x-ratelimit-remaining"])

        fair = 10_000 - 5 - 5 * 10_000 // FREE_ON_SQLITE
        wait_until(lambda: left() >= fair - 50, 5, "what was reserved and not used is there again", pause=1.1)

    def test_new_jobs_have_a_separate_limit(self, people_anywhere: People) -> None:
        """A hundred a day, in any distribution: each takes 864 seconds to return."""
        people = people_anywhere
        free = people.as_user(people.acme, "busy", tier="free")
        began = time.time()
        batch = free.post("/jobs:batch", [JOB] * 101).json()
        assert (batch["created_count"], [row["error"] for row in batch["refused"]]) == (100, ["QUOTA_EXCEEDED"])
        for answer in (free.post("/jobs", JOB), free.post("/jobs/", JOB), free.put("/jobs/by-key/x", JOB)):
            assert "a day" in refused(answer, 429, "QUOTA_EXCEEDED")
            wait = answer.json()["retry_after"]
            assert answer.headers["retry-after"] == str(wait)
            assert 864 - (time.time() - began) - 0.01 <= wait <= 864
            assert int(answer.headers["x-ratelimit-remaining"]) > 0
        assert free.get("/jobs?limit=1").json()["total"] == 100
        assert people.as_user(people.evil, "busy", tier="free").post("/jobs", JOB).status == 201

    def test_used_requests_return_with_time(self, guarded: Server, people: People) -> None:
        """The tier pro has 10,000 requests an hour, which is one in 360 ms."""
        pro = people.as_user(people.acme, "pro", tier="pro")
        first = pro.get("/jobs").headers
        assert first["x-ratelimit-limit"] == "10000"
        # Reserved and unused requests are given back, and used ones return with time.
        wait_until(
            lambda: int(pro.get("/jobs").headers["x-ratelimit-remaining"]) >= 9990, 5, "nearly all are there", pause=0.4
        )

    @pytest.mark.slow
    async def test_two_nodes_together_admit_no_more_than_the_limit(
        self, pair: tuple[Server, Server], receiver: Receiver
    ) -> None:
        people = People(pair[0], receiver)
        free = people.as_user(people.acme, "everywhere", tier="free")
        nodes = [free.at(server) for server in pair]
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: nodes[number % 2].get("/jobs?limit=1").status, range(180)))
        passed = answers.count(200)
        assert set(answers) <= {200, 429}
        # Requests reserved by the other node are refused for a moment, and never more than the limit.
        assert passed <= FREE_ON_POSTGRESQL + (time.monotonic() - began) * FREE_ON_POSTGRESQL / HOUR
        await self.given_back(pair[0], people.acme, "everywhere", passed)
        more = 0
        while nodes[more % 2].get("/jobs?limit=1").status == 200:
            more += 1
        assert FREE_ON_POSTGRESQL <= passed + more <= FREE_ON_POSTGRESQL + 1

    @pytest.mark.slow
    @pytest.mark.parametrize("after", [0, 1])
    async def test_the_remaining_requests_can_be_used_on_either_node(
        self, pair: tuple[Server, Server], receiver: Receiver, after: int
    ) -> None:
        people = People(pair[0], receiver)
        free = people.as_user(people.acme, "quiet", tier="free")
        nodes = [free.at(server) for server in pair]
        for node in nodes:  # each node reserves a few more than the one request
            assert node.get("/jobs?limit=1").status == 200
        await self.given_back(pair[0], people.acme, "quiet", 2)
        statuses = [nodes[after].get("/jobs?limit=1").status for _ in range(FREE_ON_POSTGRESQL - 2)]
        assert statuses == [200] * len(statuses)
        refused(nodes[1 - after].get("/jobs"), 429, "RATE_LIMIT_EXCEEDED")

    async def given_back(self, server: Server, tenant: str, user_id: str, used: int) -> None:
        """Waits until no node holds reserved requests: the store's count is then the number of used ones."""
        connection = await asyncpg.connect(server._settings["DATABASE_URL"])
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                full_at = await connection.fetchval(
                    "SELECT full_at FROM limits WHERE (tenant, user_id, name) = ($1, $2, 'requests')", tenant, user_id
                )
                taken = (full_at / 1_000_000 - time.time()) * FREE_ON_POSTGRESQL / HOUR
                if taken <= used + 0.01:
                    return
                assert time.monotonic() < deadline, f"{taken} are taken and {used} were used"
                await asyncio.sleep(0.05)
        finally:
            await connection.close()


def test_every_body_has_a_content_type(people: People) -> None:
    """Otherwise browsers guess the type."""
    for kind, (ask, status) in ASKED.items():
        answer = ask(people.ann)
        if answer.body:
            json.loads(answer.body)
            kinds = {"application/json", "application/problem+json", "application/vnd.oai.openapi+json"}
            assert answer.headers["content-type"] in kinds, kind
            assert (answer.headers["content-type"] == "application/problem+json") == (status >= 400), kind
