"""Lists: filters, orders, pages by offset and by cursor. Each test sees its own jobs through a tag or a name."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import quote

import pytest

from api.person import Person, refused
from cluster.processes import Client

JOB = "0198c0de-1234-7abc-8def-0123456789ab"


def named(person: Person, rest: str = "") -> str:
    return f"/jobs?name={quote(person.name)}{rest}"


def ids(page: dict[str, Any]) -> list[str]:
    return [job["job_id"] for job in page["jobs"]]


@pytest.fixture
def five(person: Person) -> list[str]:
    """Five jobs, oldest first; later ones are due sooner."""
    return [person.create(f"209{9 - number}-01-01T00:00:00Z", name=f"{person.name} {number}") for number in range(5)]


class TestPages:
    def test_the_latest_come_first(self, person: Person, five: list[str]) -> None:
        page = person.client.get(named(person)).json()
        assert ids(page) == five[::-1]
        assert {name: page[name] for name in page if name != "jobs"} == {
            "total": 5, "limit": 20, "offset": 0, "has_more": False, "next_cursor": None
        }  # fmt: skip

    def test_an_offset_skips_rows(self, person: Person, five: list[str]) -> None:
        page = person.client.get(named(person, "&limit=2&offset=1")).json()
        assert ids(page) == five[3:1:-1]
        assert (page["total"], page["limit"], page["offset"], page["has_more"]) == (5, 2, 1, True)
        last = person.client.get(named(person, "&limit=2&offset=4")).json()
        assert (ids(last), last["has_more"]) == (five[:1], False)
        beyond = person.client.get(named(person, "&offset=1000000")).json()
        assert (beyond["jobs"], beyond["total"]) == ([], 5)

    @pytest.mark.parametrize("order", ["asc", "desc"])
    @pytest.mark.parametrize("sort", ["created_at", "next_run_time", "name"])
    def test_cursors_work_in_every_order(self, person: Person, five: list[str], sort: str, order: str) -> None:
        person.client.post(f"/jobs/{five[2]}/pause")  # has no next run: comes last by next_run_time
        seen: list[str] = []
        cursor = ""
        while True:
            page = person.client.get(named(person, f"&sort={sort}&order={order}&limit=2{cursor}")).json()
            seen += ids(page)
            if not page["has_more"]:
                break
            cursor = f"&cursor={page['next_cursor']}"
        expected = five if order == "asc" else five[::-1]
        if sort == "next_run_time":
            expected = [job for job in expected[::-1] if job != five[2]] + [five[2]]
        assert seen == expected

    def test_a_cursor_holds_its_place_while_jobs_are_added(self, person: Person, five: list[str]) -> None:
        first = person.client.get(named(person, "&limit=2")).json()
        person.create()
        second = person.client.get(named(person, f"&limit=2&cursor={first['next_cursor']}")).json()
        assert ids(second) == five[2:0:-1]

    @pytest.mark.parametrize("limit", ["0", "101", "-1", "abc", "", "1.5", "9" * 30])
    @pytest.mark.parametrize("path", ["/jobs", "/executions", "/dead-letters", f"/jobs/{JOB}/executions"])
    def test_a_bad_limit_is_refused(self, client: Client, person: Person, path: str, limit: str) -> None:
        path = path.replace(JOB, person.create())
        refused(client.get(f"{path}?limit={limit}"), 400, "INVALID_REQUEST", "/limit")

    @pytest.mark.parametrize("offset", ["-1", "1000001", "x", "9" * 30])
    @pytest.mark.parametrize("path", ["/jobs", "/executions", "/dead-letters"])
    def test_a_bad_offset_is_refused(self, client: Client, path: str, offset: str) -> None:
        refused(client.get(f"{path}?offset={offset}"), 400, "INVALID_REQUEST", "/offset")

    @pytest.mark.parametrize(
        "cursor",
        [
            "x", "%00", "💥", "AAAA", "null", "=", "a" * 7000,
            *(
                urlsafe_b64encode(raw).decode()
                for raw in (
                    b"[]", b"{}", b"[1]", b'[null, "x"]', b'[{}, "%b"]' % JOB.encode(), b"[null, null]",
                    b'[%d, "%b"]' % (10**30, JOB.encode()), b'[-%d, "%b"]' % (2**63 + 1, JOB.encode()),
                    b'[1.5, "%b"]' % JOB.encode(), b"\xff\xfe", b"[" * 5000,
                    b'["a\\u0000b", "%b"]' % JOB.encode(),
                )
            ),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize(
        "path", ["/jobs?sort=next_run_time&", "/jobs?sort=name&", "/executions?", "/dead-letters?"]
    )
    def test_a_bad_cursor_is_refused(self, client: Client, path: str, cursor: str) -> None:
        refused(client.get(f"{path}cursor={quote(cursor, safe='%=')}"), 400, "INVALID_REQUEST", "/cursor")


class TestFilters:
    def test_the_name_filter_ignores_case(self, person: Person, five: list[str]) -> None:
        assert person.client.get(f"/jobs?name={quote(person.name.upper() + ' 3')}").json()["total"] == 1

    def test_the_name_filter_is_not_a_pattern(self, person: Person, five: list[str]) -> None:
        assert person.client.get(f"/jobs?name={quote(person.name[:-3] + '%_%')}").json()["total"] == 0

    def test_the_tag_filter_has_a_key_and_a_value(self, person: Person) -> None:
        one = person.create(tags={person.name: "1"})
        two = person.create(tags={person.name: "2"})
        tag = quote(person.name)
        assert set(ids(person.client.get(f"/jobs?tag={tag}").json())) == {one, two}
        assert ids(person.client.get(f"/jobs?tag={tag}%3D2").json()) == [two]
        assert ids(person.client.get(f"/jobs?tag={tag}%3D3").json()) == []

    def test_the_status_filter_finds_jobs_by_status(self, person: Person, five: list[str]) -> None:
        person.client.post(f"/jobs/{five[0]}/pause")
        person.client.delete(f"/jobs/{five[1]}")
        for status, expected in (("PAUSED", five[:1]), ("CANCELLED", five[1:2]), ("PENDING", five[:1:-1])):
            page = person.client.get(named(person, f"&status={status}")).json()
            assert (ids(page), page["total"]) == (expected, len(expected))

    def test_the_status_filter_finds_jobs_by_last_state(self, person: Person) -> None:
        job_id, _ = person.fail()
        assert ids(person.client.get(named(person, "&status=FAILED")).json()) == [job_id]
        hanging = person.create("immediate", "/hang")
        person.wait_for_state(hanging, "RUNNING")
        assert ids(person.client.get(named(person, "&status=RUNNING")).json()) == [hanging]
        person.client.delete(f"/jobs/{hanging}")

    def test_jobs_are_filtered_by_type_and_owner(self, person: Person, five: list[str]) -> None:
        assert person.client.get(named(person, "&type=http_request&owner=local")).json()["total"] == 5
        assert person.client.get(named(person, "&owner=nobody")).json()["total"] == 0
        assert person.client.get(named(person, "&type=script")).json()["total"] == 0

    @pytest.mark.parametrize(
        ("parameter", "value"),
        [
            ("status", "pending"), ("status", ""), ("status", "null"), ("type", "x"), ("type", "null"), ("type", ""),
            ("sort", "id"), ("order", "up"), ("order", ""),
        ],
    )  # fmt: skip
    def test_the_error_for_a_bad_filter_names_it(self, client: Client, parameter: str, value: str) -> None:
        refused(client.get(f"/jobs?{parameter}={value}"), 400, "INVALID_REQUEST", f"/{parameter}")

    @pytest.mark.parametrize("parameter", ["name", "tag", "owner", "status", "type", "cursor"])
    def test_the_error_for_a_nul_names_the_parameter(self, client: Client, parameter: str) -> None:
        """No stored text has a NUL, and PostgreSQL refuses to search for one."""
        for value in ("%00", "a%00b", "a%3D%00"):
            refused(client.get(f"/jobs?limit=1&{parameter}={value}"), 400, "INVALID_REQUEST", f"/{parameter}")

    @pytest.mark.parametrize("value", ["%ff", "%ed%a0%80", "'; DROP TABLE jobs; --", "🛸", "a" * 5000])
    @pytest.mark.parametrize("parameter", ["name", "tag", "owner"])
    def test_odd_text_finds_nothing(self, client: Client, parameter: str, value: str) -> None:
        answer = client.get(f"/jobs?{parameter}={quote(value, safe='%')}")
        assert (answer.status, answer.json()["jobs"]) == (200, [])
