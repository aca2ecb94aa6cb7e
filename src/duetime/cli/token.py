"""`duetime token`: API keys, which the server stores and can revoke, and tokens (JWT), which are signed here."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Json, client_of, segment
from duetime.cli.output import exactly, print_facts, print_json, print_line, print_table, when

app = typer.Typer(no_args_is_help=True, help="API keys and tokens: create, list, revoke.")

DAY_SECONDS = 86_400
JWT_SECONDS = DAY_SECONDS


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="The purpose of the API key, shown in the list.")] = None,
    jwt: Annotated[bool, typer.Option("--jwt", help="Sign a token with JWT_SECRET, without the server.")] = False,
    user: Annotated[str | None, typer.Option(help="Its user; for a key, you if left out.")] = None,
    role: Annotated[Literal["user", "admin", "enterprise"], typer.Option(help="The user's role.")] = "user",
    tier: Annotated[
        Literal["free", "pro", "enterprise"] | None,
        typer.Option(help="The user's limits; if left out, yours for a key, and free for a token (--jwt)."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The user's tenant, with --jwt; 'default' if left out.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Only this right: read, write, run, script, sql, work, admin. May be repeated."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="When it expires: 24h, 30d. If left out, a key never expires, and a token after 24h."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create an API key, or with --jwt sign a token.

    The server stores an API key as a hash, with a name, and can revoke it. The key is shown only once. A token is
    signed without a server, with JWT_SECRET of the environment or duetime.toml. It can't be revoked, but expires.

    \b
    duetime token create --name ci --scope read --scope run --expires 90d
    duetime token create --name "Ann's laptop" --user ann --tier pro
    duetime token create --jwt --user ann --role admin --expires 1h
    curl http://127.0.0.1:8080/api/v1/jobs \\
        -H "authorization: Bearer $(duetime token create --jwt --user ann)"
    """
    if jwt:
        if name is not None:
            raise BadUsage("--name is for API keys; a token (--jwt) has none")
        if user is None:
            raise BadUsage("the token's user is missing: duetime token create --jwt --user ann")
        claims: dict[str, Any] = {"user_id": user, "role": role, "tier": tier or "free", "tenant": tenant or "default"}
        _create_jwt({**claims, "scopes": scope} if scope else claims, _seconds(expires) or JWT_SECONDS, as_json)
        return
    if name is None:
        raise BadUsage(
            "the key's name is missing: duetime token create --name ci   (or --jwt --user ann, for a signed token)"
        )
    if tenant is not None:
        raise BadUsage("--tenant is for tokens (--jwt); an API key belongs to your own tenant")
    body = {"name": name, "user_id": user, "role": role, "tier": tier, "scopes": scope or [],
            "expires_in_days": _days(expires)}  # fmt: skip
    answer = client_of(context).post("/api-keys", {field: value for field, value in body.items() if value is not None})
    _print_key(answer, as_json)


@app.command("list")
def list_keys(context: typer.Context, as_json: Json = False) -> None:
    """List API keys, the latest first, without their secrets.

    \b
    duetime token list
    duetime token list --json | jq -r '.keys[] | select(.last_used_at == null) | .key_id'
    """
    answer = client_of(context).get("/api-keys")
    if as_json:
        print_json(answer)
        return
    rows = [
        (key["key_id"], key["name"], key["user_id"], key["role"], key["tier"], ", ".join(key["scopes"]) or "all",
         when(key["last_used_at"]) or "never", _end(key))
        for key in answer["keys"]
    ]  # fmt: skip
    columns = ("key id", "name", "user", "role", "tier", "scopes", "last used", "ends")
    print_table(columns, rows, "no API keys; `duetime token create --help` shows how to make one")


@app.command()
def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, as `duetime token list` shows it.")],
    as_json: Json = False,
) -> None:
    """Revoke an API key, so that it can't be used any more. It stays in the list.

    \b
    duetime token revoke k7w2m4xq5n3ab6cd
    """
    from duetime.domain.keys import parse_key

    parsed = parse_key(key.strip())  # of a whole key, only the id is sent: a URL must not hold the secret
    answer = client_of(context).request("DELETE", f"/api-keys/{segment(parsed[0] if parsed else key)}")
    if as_json:
        print_json(answer)
    else:
        print_line(answer["message"])


def _create_jwt(claims: dict[str, Any], seconds: int, as_json: bool) -> None:
    from duetime.api.auth.jwks import BadKeys
    from duetime.api.auth.tokens import Tokens, sign
    from duetime.domain.errors import Unauthorized
    from duetime.domain.instants import format_instant
    from duetime.settings.loading import load_on_demand

    settings = load_on_demand()
    secret, issuer, audience = settings.jwt_secret, settings.jwt_issuer, settings.jwt_audience
    if not secret:
        raise BadUsage(
            "there is no JWT_SECRET to sign with; set DUETIME_JWT_SECRET, or jwt_secret in duetime.toml, to the secret "
            "of the server (`openssl rand -base64 32` prints a new one)"
        )
    now = time.time_ns() // 1_000_000
    try:
        token = sign(secret, issuer, audience, claims, now, seconds)
        Tokens(secret=secret, jwks_file=None, issuer=issuer, audience=audience).verify(token, now)
    except BadKeys as error:
        raise BadUsage(str(error)) from None
    except Unauthorized as error:  # no server would accept this token
        raise BadUsage(error.message) from None
    if as_json:
        print_json({"token": token, "expires_at": format_instant((now // 1000 + seconds) * 1000), **claims})
    else:
        sys.stdout.write(f"{token}\n")  # alone, for $(…)


def _print_key(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print_line(answer["key"])
    print_line("It is shown only once. Use it as the header X-API-Key, or as DUETIME_TOKEN.")
    print_facts(
        [
            ("key id", answer["key_id"]),
            ("name", answer["name"]),
            ("user", answer["user_id"]),
            ("role, tier", f"{answer['role']}, {answer['tier']}"),
            ("scopes", ", ".join(answer["scopes"]) or "all that the role has"),
            ("ends", exactly(answer["expires_at"]) or "never"),
        ]
    )


def _end(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return f"revoked {when(key['revoked_at'])}"
    return when(key["expires_at"]) or "never"


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    from duetime.settings.values import duration

    try:
        seconds = int(duration(text))
    except ValueError as error:
        raise BadUsage(f"--expires {error}") from None
    if seconds < 1:
        raise BadUsage("--expires must be at least 1s")
    return seconds


def _days(text: str | None) -> int | None:
    seconds = _seconds(text)
    if seconds is None:
        return None
    if seconds % DAY_SECONDS:
        raise BadUsage("--expires: an API key expires after whole days, such as 30d (a token need not)")
    return seconds // DAY_SECONDS
