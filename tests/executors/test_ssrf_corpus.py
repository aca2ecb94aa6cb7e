"""The whole SSRF corpus against a real node, with a canary at the forbidden addresses. The canary is never reached.

First on the machine itself: the canary listens on loopback, 127.0.0.2 stands for a public address, and a resolver in
the node's process returns the names. Then in separate Linux namespaces, where the canary listens on every address,
the public address is public, and a name server returns the names.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cluster.processes import Server, wait_until
from duetime.domain.execution import ErrorType
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt
from executors.canary import EVERYWHERE, Canary
from executors.name_server import NameServer
from executors.ssrf_corpus import ALIASES, LOW_PORTS, NAMES, OWN_NAMES, End, Entry, corpus, same
from patience import PATIENCE_SECONDS

OWN_MACHINE = "DUETIME_TESTS_OWN_MACHINE" in os.environ
LOOPBACKS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.1.2.3", "127.255.255.254", "::1")
PUBLIC = "93.184.215.14" if OWN_MACHINE else "127.0.0.2"
PORTS = (80, 443, *LOW_PORTS)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "FTP_PROXY")
OPEN = ("QUEUED", "RUNNING", "RETRYING")


class Verdict(NamedTuple):
    url: str
    at_create: bool
    error: str | None
    message: str
    http_status: int | None


def names() -> dict[str, list[list[str]]]:
    """Returns the addresses of each name, with aliases resolved, for a resolver that does not follow them."""
    known = {name: [[_public(address) for address in answer] for answer in NAMES[name]] for name in NAMES}
    return known | {name: [[address]] for name, address in OWN_NAMES.items()}


def _public(text: str) -> str:
    return text.replace("{public}", PUBLIC)


def _aliases_resolved(known: dict[str, list[list[str]]]) -> dict[str, list[list[str]]]:
    return known | {alias: known[ALIASES.get(name, name)] for alias, name in ALIASES.items()}


@pytest.fixture
def canary() -> Iterator[Canary]:
    with Canary(EVERYWHERE if OWN_MACHINE else LOOPBACKS, (PUBLIC,), PORTS) as canary:
        yield canary


@pytest.fixture
def environment(tmp_path: Path, canary: Canary) -> Iterator[dict[str, str]]:
    """The environment of the nodes: the canary as proxy, and the names of the corpus."""
    proxies = dict.fromkeys(PROXIES, f"http://127.0.0.1:{canary.port}") | {"NO_PROXY": "", "no_proxy": ""}
    if OWN_MACHINE:
        with NameServer("127.0.0.53", names(), ALIASES):
            yield proxies
    else:
        file = tmp_path / "names.json"
        file.write_text(json.dumps(_aliases_resolved(names())), encoding="utf-8")
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent / "names"), os.environ.get("PYTHONPATH")]))
        yield {**proxies, "NAMES_OF_TESTS": str(file), "PYTHONPATH": path}


@pytest.fixture
def start(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Server]]:
    started: list[Server] = []

    def start(allowed: str) -> Server:
        started.append(Server(tmp_path / "node", ALLOW_PRIVATE_TARGETS=allowed))
        if not OWN_MACHINE:
            return started[-1].start(environment)
        with monkeypatch.context() as patch:  # forks inherit it without starting an interpreter
            for name, value in environment.items():
                patch.setenv(name, value)
            return started[-1].start()

    yield start
    for server in started:
        server.close()


def run(server: Server, canary: Canary, entries: list[Entry]) -> list[Verdict]:
    """Runs each entry as a job of one batch. Returns the result of each."""
    places = {"{port}": str(canary.port), "{tls}": str(canary.tls), "{public}": PUBLIC}
    urls = []
    for number, entry in enumerate(entries):
        url = entry.url.replace("{at}", f"/entry-{number}")
        for place, value in places.items():
            url = url.replace(place, value)
        urls.append(url)
    jobs = [
        {"name": f"entry {number}", "schedule": "immediate", "timeout_seconds": 5, "payload": {"url": url},
         "retry_policy": {"max_retries": 0}}
        for number, url in enumerate(urls)
    ]  # fmt: skip
    made = server.client.post("/jobs:batch", jobs).json()
    refused = {item["index"]: item for item in made["refused"]}
    taken = [number for number in range(len(jobs)) if number not in refused]
    assert made["created_count"] == len(taken)
    ended = wait_until(lambda: _ended(server, len(taken)), 60, f"{len(taken)} executions have ended", 0.1)
    by_job = {row["job_id"]: row for row in ended}
    rows = dict(zip(taken, (by_job[job_id] for job_id in made["created"]), strict=True))
    return [
        _at_create(url, refused[number]) if number in refused else _at_run(url, rows[number])
        for number, url in enumerate(urls)
    ]


def _ended(server: Server, count: int) -> list[dict[str, Any]]:
    for state in OPEN:  # the counts, before all rows are read
        if server.client.get(f"/executions?state={state}&limit=1").json()["executions"]:
            return []
    rows = server.client.pages("/executions", "executions")
    return rows if len(rows) == count and not any(row["state"] in OPEN for row in rows) else []


def _at_create(url: str, refused: dict[str, Any]) -> Verdict:
    assert refused["error"] == "INVALID_REQUEST", refused
    assert [field["pointer"] for field in refused["errors"]] == ["/payload/url"], refused
    return Verdict(url, True, refused["error"], refused["message"], None)


def _at_run(url: str, row: dict[str, Any]) -> Verdict:
    return Verdict(url, False, row["error_type"], row["error_message"] or "", row["http_status"])


def is_as_expected(entry: Entry, verdict: Verdict) -> bool:
    match entry.end:
        case End.REFUSED:
            blocked = verdict.error == ErrorType.BLOCKED_TARGET and verdict.message.endswith("Nothing was sent.")
            return verdict.at_create or blocked
        case End.PUBLIC:
            return verdict.http_status == 200
        case End.REDIRECT:
            return verdict.error == ErrorType.HTTP_ERROR and "redirects are not followed" in verdict.message


def test_no_url_of_the_corpus_reaches_the_canary(start: Callable[[str], Server], canary: Canary):
    entries = corpus()
    server = start("false" if OWN_MACHINE else f"{PUBLIC}/32")
    verdicts = run(server, canary, entries)
    assert canary.hits == []
    assert [
        verdict for entry, verdict in zip(entries, verdicts, strict=True) if not is_as_expected(entry, verdict)
    ] == []
    # In origin form, and once each: no request to a proxy, and no second request.
    guests = sorted(visit.line.split("?")[0].split(" HTTP")[0].split("/redirect")[0] for visit in canary.guests)
    allowed = [number for number, entry in enumerate(entries) if entry.end is not End.REFUSED]
    assert [line.split("/")[1] for line in guests] == sorted(f"entry-{number}" for number in allowed)
    assert all(line.startswith("POST /entry-") for line in guests)


def test_the_canary_sees_the_same_entries_when_everything_is_allowed(start: Callable[[str], Server], canary: Canary):
    """Uses only the entries that lead to the canary, so that no other address is called."""
    entries = [entry for entry in corpus() if entry.reach and canary.listens_on(entry.reach)]
    verdicts = run(start("true"), canary, entries)
    arrived = {visit.line.split(" ")[1]: visit.address for visit in canary.hits if visit.line}
    missed = [
        verdict
        for number, (entry, verdict) in enumerate(zip(entries, verdicts, strict=True))
        if not _arrived(entry, arrived.get(f"/entry-{number}"))
    ]
    assert missed == []
    assert len(entries) >= (100 if OWN_MACHINE else 20)


def _arrived(entry: Entry, address: str | None) -> bool:
    if entry.reach == "localhost":
        return address in ("127.0.0.1", "::1")
    return address == same(entry.reach)


@pytest.mark.skipif(OWN_MACHINE, reason="this is that machine")
def test_the_same_holds_on_a_machine_where_every_address_is_listened_on(tmp_path: Path):
    command = [*_own_machine(tmp_path), sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(
        command, env={**os.environ, "DUETIME_TESTS_OWN_MACHINE": "1"}, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout


def _own_machine(folder: Path) -> list[str]:
    """The beginning of a command that runs where all addresses lead to loopback. Skips where that is not possible."""
    files = {
        "hosts": "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in OWN_NAMES.items()),
        "resolv.conf": "nameserver 127.0.0.53\noptions timeout:2 attempts:2\n",
        "nsswitch.conf": "hosts: files dns\n",
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    script = folder / "own-machine"
    script.write_text(
        "set -e\nip link set lo up\nip route add local 0.0.0.0/0 dev lo\nip -6 route add local ::/0 dev lo\n"
        + "".join(f"mount --bind {folder / name} /etc/{name}\n" for name in files if Path("/etc", name).exists())
        + 'exec "$@"\n'
    )
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", str(script)]
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("unshare or ip is not installed: the corpus ran on loopback only")
    if (tried := subprocess.run([*command, "true"], capture_output=True, text=True)).returncode:
        pytest.skip(f"no namespaces on this machine ({tried.stderr.strip()}): the corpus ran on loopback only")
    return command


@pytest.mark.skipif(OWN_MACHINE, reason="needs an address that is allowed beside loopback")
async def test_a_name_that_keeps_changing_never_reaches_the_canary(canary: Canary, attempt: Callable[..., Attempt]):
    """Without a cache, each attempt resolves the name again, and connects to the checked addresses."""
    answers = cycle([[PUBLIC], ["127.0.0.1"], [PUBLIC, "127.0.0.1"], ["::1"], [PUBLIC], ["127.0.0.1", PUBLIC]])

    async def lookup(host: str) -> list[str]:
        await asyncio.sleep(0)
        return next(answers)

    executor = HttpExecutor(allow=(ip_network(f"{PUBLIC}/32"),), lookup=lookup, dns_ttl_seconds=0)
    ends: Counter[ErrorType | int | None] = Counter()
    for _ in range(20):
        url = f"http://rebind.example:{canary.port}/entry-0"
        outcomes = await asyncio.gather(*(executor.execute(attempt(url)) for _ in range(10)))
        ends.update(outcome.error_type or outcome.http_status for outcome in outcomes)
    await executor.stop()
    assert canary.hits == []
    assert ends.keys() == {200, ErrorType.BLOCKED_TARGET}
    assert len(canary.guests) == ends[200]
