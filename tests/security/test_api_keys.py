"""An admin of a tenant can't gain rights through an API key, or create keys and users without limit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api.people import Known, People
from cluster.processes import Server
from security.nodes import STORES, nodes

MOST_KEYS, MOST_USERS = 6, 3


@pytest.fixture(scope="module", params=[STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    limits = {"TENANT_KEYS_LIMIT": str(MOST_KEYS), "TENANT_USERS_LIMIT": str(MOST_USERS)}
    with nodes(request.param, tmp_path_factory.mktemp("keys"), **limits) as started:
        yield started


@pytest.fixture
def people(servers: list[Server]) -> People:
    return People(servers[0])


def count(admin: Known) -> int:
    return len(admin.get("/api-keys").json()["keys"])


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ("free", {"tier": "pro"}),
        ("free", {"tier": "enterprise"}),
        ("pro", {"tier": "enterprise"}),
        ("free", {"role": "enterprise"}),
        ("pro", {"role": "enterprise", "tier": "free"}),
        ("free", {"role": "admin", "tier": "enterprise"}),
        ("free", {"user_id": "somebody", "tier": "pro"}),
    ],
)
def test_an_admin_gets_no_higher_tier_by_a_key(people: People, own: str, wanted: dict[str, Any]) -> None:
    admin = people.as_user(people.acme, "ada", "admin", own)
    answer = admin.post("/api-keys", {"name": "up", **wanted})
    assert answer.status == 403, answer
    assert f"above yours, which is '{own}'" in answer.json()["message"]
    assert count(admin) == 0


def test_a_key_of_an_admin_can_not_create_one_with_more_rights(people: People) -> None:
    admin = people.as_user(people.acme, "ada", "admin", "pro")
    key = admin.post("/api-keys", {"name": "mine", "role": "admin"}).json()
    assert (key["role"], key["tier"]) == ("admin", "pro")
    assert people.with_key(key["key"]).post("/api-keys", {"name": "up", "tier": "enterprise"}).status == 403
    below = people.with_key(key["key"]).post("/api-keys", {"name": "down", "tier": "free"})
    assert below.status == 201
    assert count(admin) == 2


def test_a_key_can_not_create_one_that_expires_later(people: People) -> None:
    key = people.make_key(people.ada, role="admin", expires_in_days=2)
    short = people.with_key(key["key"])
    for days in (2.5, 3650):
        answer = short.post("/api-keys", {"name": "for ever", "expires_in_days": days})
        assert answer.status == 403, answer
        assert "outlive yours" in answer.json()["message"]
    assert short.post("/api-keys", {"name": "sooner", "expires_in_days": 1}).status == 201
    left_out = short.post("/api-keys", {"name": "as long"})
    assert left_out.status == 201
    assert left_out.json()["expires_at"] == key["expires_at"]


def test_many_requests_at_once_make_no_more_keys_than_a_tenant_may_have(people: People, servers: list[Server]) -> None:
    def make(number: int) -> int:
        return people.ada.at(servers[number % len(servers)]).post("/api-keys", {"name": f"key {number}"}).status

    with ThreadPoolExecutor(12) as threads:
        statuses = list(threads.map(make, range(24)))
    assert statuses.count(201) == MOST_KEYS
    assert statuses.count(409) == 24 - MOST_KEYS
    assert count(people.ada) == MOST_KEYS
    full = people.ada.post("/api-keys", {"name": "one more"})
    assert "6 API keys, which is the most" in full.json()["message"]
    revoked = people.ada.get("/api-keys").json()["keys"][0]["key_id"]
    assert people.ada.request("DELETE", f"/api-keys/{revoked}").status == 200
    assert people.ada.post("/api-keys", {"name": "in its place"}).status == 201
    assert people.eve.post("/api-keys", {"name": "another tenant's"}).status == 201


def test_many_requests_at_once_make_keys_for_no_more_users_than_a_tenant_may_have(
    people: People, servers: list[Server]
) -> None:
    def make(number: int) -> int:
        asked = {"name": "a key", "user_id": f"user-{number}"}
        return people.ada.at(servers[number % len(servers)]).post("/api-keys", asked).status

    with ThreadPoolExecutor(12) as threads:
        statuses = list(threads.map(make, range(24)))
    assert (statuses.count(201), statuses.count(409)) == (MOST_USERS, 24 - MOST_USERS)
    users = sorted({key["user_id"] for key in people.ada.get("/api-keys").json()["keys"]})
    assert len(users) == MOST_USERS
    full = people.ada.post("/api-keys", {"name": "one more", "user_id": "yet-another"})
    assert "for 3 users, which is the most" in full.json()["message"]
    assert people.ada.post("/api-keys", {"name": "one more", "user_id": users[0]}).status == 201


@pytest.mark.parametrize("user", [None, "somebody"])
def test_a_key_without_a_tier_gets_the_tier_of_its_creator(people: People, user: str | None) -> None:
    """Not the tier `free`: a hundred new jobs a day are too few for a key of a machine."""
    admin = people.as_user(people.acme, "pat", "admin", "pro")
    asked = {"name": "ci"} if user is None else {"name": "ci", "user_id": user}
    made = admin.post("/api-keys", asked)
    assert made.status == 201, made
    assert made.json()["tier"] == "pro"
    assert admin.post("/api-keys", {**asked, "tier": "free"}).json()["tier"] == "free"
