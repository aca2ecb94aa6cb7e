"""A user can't find out whether another user has a job with some key."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from api.people import Known, People
from security.inbox import Inbox, inbox
from security.nodes import STORES, nodes


@pytest.fixture(scope="module", params=[STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def people(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with nodes(request.param, tmp_path_factory.mktemp("hidden")) as started:
        yield People(started[0])


@pytest.fixture
def box() -> Iterator[Inbox]:
    with inbox() as box:
        yield box


def new_key() -> str:
    return f"key-{uuid.uuid4()}"


def holds(client: Known, keys: list[str]) -> list[str]:
    """Returns the reasons why a job waits for these keys, without the keys."""
    job_id = client.create("on_demand", after=keys)
    return _holds(client, job_id, keys)


def _holds(client: Known, job_id: str, keys: list[str]) -> list[str]:
    answer = client.get(f"/jobs/{job_id}/why")
    assert answer.status == 200, answer
    shown_reasons = sorted(answer.json()["holds"])
    for number, key in enumerate(sorted(keys)):
        shown_reasons = [text.replace(key, f"key {number}") for text in shown_reasons]
    return shown_reasons


def test_why_describes_another_users_key_like_an_unknown_key(people: People) -> None:
    theirs = new_key()
    people.ann.create(key=theirs)
    assert holds(people.bob, [theirs]) == holds(people.bob, [new_key()])


def test_why_does_not_show_that_another_users_job_has_ended(people: People, box: Inbox) -> None:
    theirs, nobodys = new_key(), new_key()
    ended = people.ann.create("on_demand", key=theirs, url=box.url())
    waiting = people.bob.create("on_demand", after=[theirs, nobodys], url=box.url())
    before = _holds(people.bob, waiting, [theirs, nobodys])
    assert people.ann.post(f"/jobs/{ended}/run").status == 202
    people.ann.wait_for(ended, "COMPLETED")
    assert _holds(people.bob, waiting, [theirs, nobodys]) == before
    assert len(_holds(people.ada, waiting, [theirs, nobodys])) == 1, "an admin sees that one of them has ended"


def test_the_owner_and_an_admin_see_the_state_of_the_job(people: People) -> None:
    own, theirs = new_key(), new_key()
    people.bob.create(key=own)
    people.ann.create(key=theirs)
    assert "there is no job" not in str(holds(people.bob, [own]))
    assert "there is no job" not in str(holds(people.ada, [theirs]))
    assert "there is no job" in str(holds(people.ada, [new_key()]))


def test_a_loop_names_no_key_of_another_user(people: People) -> None:
    first, hidden, last = f"first-{uuid.uuid4()}", f"hidden-{uuid.uuid4()}", f"last-{uuid.uuid4()}"
    people.ann.create("on_demand", key=hidden, after=[first])
    people.ann.create("on_demand", key=last, after=[hidden])
    body = {"name": "bob's", "schedule": "on_demand", "key": first, "after": [last]}
    answer = people.bob.post("/jobs", {**body, "payload": {"url": "http://127.0.0.1:9/"}})
    assert answer.status == 400
    assert hidden not in answer.body.decode()
    assert first in answer.json()["message"]


def test_the_refusal_of_a_used_key_shows_nothing_of_its_job(people: People) -> None:
    theirs = new_key()
    job_id = people.ann.create(key=theirs, name="ann's own", tags={"team": "ann"})
    body = {"name": "bob's", "schedule": "2099-01-01T00:00:00Z", "payload": {"url": "http://127.0.0.1:9/"}}
    for answer in (people.bob.post("/jobs", {**body, "key": theirs}), people.bob.put(f"/jobs/by-key/{theirs}", body)):
        assert answer.status in (403, 409), answer
        assert not [text for text in (job_id, "ann") if text in answer.body.decode()]
