"""API keys, tokens, and the credentials of the command line. The server is a double that records requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from duetime.api.auth.tokens import Tokens
from duetime.cli import credentials
from duetime.domain.errors import Unauthorized
from duetime.domain.identity import Caller, Right, Role, Tier
from duetime.domain.keys import KEY_BYTES, make_key

SECRET = "correct-horse-battery-staple-0123456789"
SIGNS = {"DUETIME_JWT_SECRET": SECRET}
KEY_ID, _, KEY = make_key(bytes(range(KEY_BYTES)))
CREATED = {
    "key_id": KEY_ID, "key": KEY, "name": "ci", "user_id": "ann", "role": "user", "tier": "free", "scopes": [],
    "created_at": "2026-01-01T00:00:00.000Z", "expires_at": None,
}  # fmt: skip
LISTED = {
    **{name: value for name, value in CREATED.items() if name != "key"},
    "created_by": "root", "last_used_at": None, "revoked_at": None,
}  # fmt: skip


class Double:
    """A server with prepared responses. It records requests."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @property
    def credential(self) -> tuple[str | None, str | None]:
        """Returns the headers Authorization and X-API-Key of the last request."""
        return self.headers[-1].get("authorization"), self.headers[-1].get("x-api-key")


@pytest.fixture
def server() -> Iterator[Double]:
    double = Double()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            double.asked.append((self.command, self.path, json.loads(body) if body else None))
            double.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = json.dumps(double.answer).encode()
            self.send_response(double.status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def do_DELETE(self) -> None:
            self._handle()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        double.url = f"http://127.0.0.1:{listening.server_address[1]}"
        yield double
        listening.shutdown()


@pytest.fixture
def person(alone: Any, server: Double) -> Any:
    alone.url = server.url
    return alone


def verify(token: str, at: int | None = None) -> Caller:
    import time

    verifier = Tokens(secret=SECRET, jwks_file=None, issuer="duetime", audience="duetime")
    return verifier.verify(token, at or time.time_ns() // 1_000_000)


# Tokens that are signed here


def test_a_token_is_signed_without_a_server(alone: Any) -> None:
    result = alone("token", "create", "--jwt", "--user", "ann", env=SIGNS)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1  # alone on its line, for $(…)
    rights = frozenset({Right.READ, Right.WRITE, Right.RUN})
    assert verify(result.stdout.strip()) == Caller("default", "ann", Role.USER, Tier.FREE, rights, "jwt")


def test_a_token_has_the_claims_of_the_flags(alone: Any) -> None:
    result = alone(
        "token", "create", "--jwt", "--user", "ann", "--role", "admin", "--tier", "pro", "--tenant", "acme",
        "--scope", "read", "--scope", "run", "--expires", "90s", "--json", env=SIGNS,
    )  # fmt: skip
    answer = json.loads(result.stdout)
    caller = verify(answer["token"])
    assert caller == Caller("acme", "ann", Role.ADMIN, Tier.PRO, frozenset({Right.READ, Right.RUN}), "jwt")
    from datetime import datetime

    ends = int(datetime.fromisoformat(answer["expires_at"]).timestamp() * 1000)
    verify(answer["token"], ends - 1)
    with pytest.raises(Unauthorized, match="expired"):
        verify(answer["token"], ends)


def test_the_secret_is_read_from_the_file(alone: Any, tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text(f'jwt_secret = "{SECRET}"\n')
    assert verify(alone.ok("token", "create", "--jwt", "--user", "ann").strip()).user_id == "ann"


@pytest.mark.parametrize(
    ("args", "env", "says"),
    [
        (["--jwt", "--user", "ann"], {}, "there is no JWT_SECRET to sign with; set DUETIME_JWT_SECRET"),
        (["--jwt", "--user", "ann"], {"DUETIME_JWT_SECRET": "hush"}, "must have at least 32 bytes"),
        (["--jwt"], SIGNS, "the token's user is missing"),
        (["--jwt", "--user", "ann", "--name", "x"], SIGNS, "--name is for API keys"),
        (["--jwt", "--user", "a b"], SIGNS, "user_id must have 1 to 128 visible characters"),
        (["--jwt", "--user", "ann", "--tenant", "No"], SIGNS, "tenant must have"),
        (["--jwt", "--user", "ann", "--scope", "everything"], SIGNS, "scopes hold one that is not known"),
        (["--jwt", "--user", "ann", "--role", "root"], SIGNS, "root"),
        (["--jwt", "--user", "ann", "--expires", "soon"], SIGNS, "--expires must be a duration"),
        (["--jwt", "--user", "ann", "--expires", "0s"], SIGNS, "--expires must be at least 1s"),
        ([], {}, "the key's name is missing"),
        (["--name", "ci", "--tenant", "acme"], {}, "--tenant is for tokens (--jwt)"),
        (["--name", "ci", "--expires", "36h"], {}, "whole days"),
    ],
)
def test_invalid_flags_exit_2_with_the_reason(alone: Any, args: list[str], env: dict[str, str], says: str) -> None:
    result = alone("token", "create", *args, env=env)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert "hush" not in result.stderr


# API keys


def test_an_api_key_is_created_by_the_server_and_shown_once(person: Any, server: Double) -> None:
    server.status, server.answer = 201, CREATED
    shown = person.ok("token", "create", "--name", "ci")
    assert server.asked == [("POST", "/api/v1/api-keys", {"name": "ci", "role": "user", "scopes": []})]
    assert shown.splitlines()[0] == KEY  # complete, on a separate line
    assert "only once" in shown
    assert "never" in shown


def test_an_api_key_has_the_fields_of_the_flags(person: Any, server: Double) -> None:
    server.status, server.answer = 201, CREATED
    answer = person.json(
        "token", "create", "--name", "ci", "--user", "bob", "--role", "admin", "--tier", "pro", "--scope", "read",
        "--expires", "90d",
    )  # fmt: skip
    body = {"name": "ci", "user_id": "bob", "role": "admin", "tier": "pro", "scopes": ["read"], "expires_in_days": 90}
    assert server.asked[0][2] == body
    assert answer == CREATED


def test_keys_are_listed(person: Any, server: Double) -> None:
    server.answer = {"keys": []}
    assert "no API keys" in person.ok("token", "list")
    server.answer = {"keys": [LISTED, {**LISTED, "key_id": "other", "revoked_at": "2026-01-01T00:00:00.000Z"}]}
    shown = person.ok("token", "list")
    assert KEY_ID in shown
    assert "revoked " in shown
    assert person.json("token", "list") == server.answer
    assert {asked[:2] for asked in server.asked} == {("GET", "/api/v1/api-keys")}


@pytest.mark.parametrize("typed", [KEY_ID, KEY, f" {KEY}\n"])
def test_a_key_is_revoked_and_its_secret_is_in_no_url(person: Any, server: Double, typed: str) -> None:
    server.answer = {"key_id": KEY_ID, "message": "revoked"}
    assert "revoked" in person.ok("token", "revoke", typed)
    assert server.asked == [("DELETE", f"/api/v1/api-keys/{KEY_ID}", None)]


def test_a_key_id_stays_one_part_of_the_path(person: Any, server: Double) -> None:
    server.answer = {"key_id": "x", "message": "revoked"}
    person.ok("token", "revoke", "../jobs/1?purge=true")
    assert server.asked[0][1] == "/api/v1/api-keys/..%2Fjobs%2F1%3Fpurge%3Dtrue"


# The credentials of a command


def test_without_a_token_and_a_secret_nothing_is_sent(person: Any, server: Double) -> None:
    server.answer = {"keys": []}
    person.ok("token", "list")
    assert server.credential == (None, None)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a.b.c", ("Bearer a.b.c", None)),
        (" a.b.c\n", ("Bearer a.b.c", None)),
        (KEY, (None, KEY)),
        ("dt_whatever", (None, "dt_whatever")),
    ],
)
def test_a_jwt_and_a_key_are_sent_in_their_own_headers(
    person: Any, server: Double, text: str, sent: tuple[str | None, str]
) -> None:
    server.answer = {"keys": []}
    for result in (
        person("--token", text, "token", "list", env={**SIGNS, "DUETIME_TOKEN": "other"}),
        person("token", "list", env={**SIGNS, "DUETIME_TOKEN": text}),
    ):
        assert (result.exit_code, result.stderr) == (0, "")
        assert server.credential == sent


@pytest.mark.parametrize("text", ["a\nb", "a b", "ä", "a\x00"])
def test_an_invalid_token_is_refused_and_not_shown(person: Any, server: Double, text: str) -> None:
    result = person("--token", f"hush{text}hush", "token", "list")
    assert result.exit_code == 2
    assert "neither a JWT nor an API key" in result.stderr
    assert "hush" not in result.stderr
    assert server.asked == []


def test_on_the_servers_machine_a_command_signs_its_own_token(person: Any, server: Double) -> None:
    server.answer = {"keys": []}
    result = person("token", "list", env=SIGNS)
    assert (result.exit_code, result.stderr) == (0, "")
    bearer, key = server.credential
    assert key is None
    token = (bearer or "").removeprefix("Bearer ")
    caller = verify(token)
    assert (caller.tenant, caller.user_id, caller.tier, caller.is_admin) == ("default", "cli", Tier.ENTERPRISE, True)
    import time

    with pytest.raises(Unauthorized, match="expired"):
        verify(token, time.time_ns() // 1_000_000 + 60_000)


def test_a_bad_secret_is_reported(person: Any, server: Double) -> None:
    result = person("token", "list", env={"DUETIME_JWT_SECRET": "hush"})
    assert result.exit_code == 2
    assert "JWT_SECRET: '********'" in result.stderr
    assert server.asked == []


@pytest.mark.parametrize(
    ("url", "signs"),
    [
        ("http://127.0.0.1:8080", True), ("http://localhost", True), ("http://[::1]:80", True),
        ("http://0.0.0.0:1", True), ("https://127.0.0.2", True),
        ("http://duetime.example", False), ("https://duetime.example", False),
        ("http://127.0.0.1.example", False), ("http://localhost@evil.example", False), ("http://10.0.0.1", False),
    ],
)  # fmt: skip
def test_a_token_signed_here_is_sent_to_this_machine_only(
    alone: Any, monkeypatch: pytest.MonkeyPatch, url: str, signs: bool
) -> None:
    monkeypatch.setenv("DUETIME_JWT_SECRET", SECRET)
    assert ("Authorization" in credentials.Credentials(None, url).headers()) is signs


@pytest.mark.parametrize(
    ("url", "warns"),
    [("http://duetime.example", 1), ("https://duetime.example", 0), ("http://127.0.0.1", 0), ("http://localhost:1", 0)],
)
def test_an_unencrypted_token_causes_one_warning(capsys: pytest.CaptureFixture[str], url: str, warns: int) -> None:
    given = credentials.Credentials("a.b.c", url)
    for _ in range(3):
        assert given.headers() == {"Authorization": "Bearer a.b.c"}
    said = capsys.readouterr()
    assert said.err.count("sent unencrypted") == warns
    assert said.out == ""


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_printed_unchanged(person: Any, server: Double, status: int) -> None:
    server.status, server.answer = status, {"title": "No", "message": "the token has expired; get a new one"}
    result = person("job", "list", env={"DUETIME_TOKEN": "a.b.c"})
    assert result.exit_code == 1
    assert result.stderr == "duetime: the token has expired; get a new one\n"


def test_without_a_token_the_message_shows_how_to_give_one(person: Any, server: Double) -> None:
    server.status, server.answer = 401, {"title": "No", "message": "who are you?"}
    said = person("job", "list").stderr
    assert said.startswith("duetime: who are you?\n")
    assert "--token or DUETIME_TOKEN" in said


def test_with_a_secret_the_message_explains_why_it_is_not_used_for_other_machines(
    alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUETIME_JWT_SECRET", SECRET)
    assert "on this machine only" in credentials.Credentials(None, "https://duetime.example").advice()[0]
