"""The operator's secrets and the tenants' keys: several during a rotation, the shared one only if it is allowed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.people import SETTINGS, People
from security.inbox import Inbox, inbox
from security.nodes import nodes
from security.test_signing_keys import key_of, rotated, sent_by

OLD = SETTINGS["SIGNING_SECRETS"]
NEW = f"whsec_{b64encode(b'n' * 32).decode()}"


@pytest.fixture
def box() -> Iterator[Inbox]:
    with inbox() as box:
        yield box


def test_a_new_secret_of_the_operator_adds_keys_to_the_previous_ones(tmp_path: Path, box: Inbox) -> None:
    with nodes("sqlite", tmp_path) as (server,):
        people = People(server)
        first = rotated(people.ada)
        server.kill()
        server.start(SIGNING_SECRETS=f"{NEW},{OLD}")
        people.ada, people.ann = people.ada.at(server), people.ann.at(server)
        both = key_of(people.ada)
        received = sent_by(box, people.ann)
        secrets = [both["secret"], *(one["secret"] for one in both["others"])]
        assert len(set(secrets)) == len(received.signatures) == 4
        assert {first["secret"], first["others"][0]["secret"]} < set(secrets), "receivers go on with what they have"
        assert all(received.verifies(secret) for secret in secrets)
        assert both["others"][0] == {"version": 2, "secret": first["secret"], "until": None}
        server.kill()
        server.start(SIGNING_SECRETS=NEW)
        received = sent_by(box, people.ann.at(server))
        assert received.verifies(both["secret"])
        assert not received.verifies(first["secret"])


def test_sign_with_shared_key_keeps_existing_receivers_working(tmp_path: Path, box: Inbox) -> None:
    with nodes("sqlite", tmp_path, SIGN_WITH_SHARED_KEY="true") as (server,):
        people = People(server)
        received, key = sent_by(box, people.ann), key_of(people.ada)
        assert received.verifies(OLD)
        assert received.verifies(key["secret"])
        assert key["others"] == [], "nobody is shown the operator's own secret"
        assert OLD not in str(key)
        assert "SIGN_WITH_SHARED_KEY is on" in server.errors()


def test_without_secrets_nothing_is_signed_and_there_is_no_key(tmp_path: Path, box: Inbox) -> None:
    with nodes("sqlite", tmp_path, SIGNING_SECRETS="") as (server,):
        people = People(server)
        assert "webhook-signature" not in sent_by(box, people.ann).headers
        for answer in (people.ada.get("/signing-key"), people.ada.post("/signing-key/rotate")):
            assert answer.status == 404
            assert "SIGNING_SECRETS" in answer.json()["message"]
