"""The gate: every request passes it on its way in, and every response on its way out.

In: identity (deny by default), rate limits, CORS. Out: the request's id, the remaining rate limit, and headers that
let a browser show a response, but not run or frame it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from duetime.api.auth.keyring import Keyring
from duetime.api.auth.local import check_local
from duetime.api.auth.tokens import Tokens
from duetime.api.http.held_bodies import HeldBodies, UnsentResponses, is_counted, is_large
from duetime.api.http.refusal_log import refusal_log
from duetime.api.limiter import NO_LIMIT_HEADERS, Headers, Limiter
from duetime.api.problems import problem_of, problem_of_defect, send_problem, shown_path
from duetime.domain.errors import DuetimeError, Forbidden, Overloaded, RateLimited, Unauthorized
from duetime.domain.identity import LOCAL, Caller, Right
from duetime.ports.clock import Clock
from duetime.telemetry.emitted import RequestServed
from duetime.telemetry.hub import Telemetry

READS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC = frozenset({"/health", "/health/live", "/health/ready", "/openapi.json", "/docs"})
PATH = "/api/v1/jobs"  # of creates, which pass by the framework

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
# A response is data: no page may frame it, run it, or get its address as referrer. Headers of a handler are kept.
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_ALLOWED_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS = b"authorization, content-type, idempotency-key, if-match, last-event-id, x-api-key, x-request-id"
_EXPOSED_HEADERS = b"etag, retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, x-request-id"

log = structlog.get_logger()


WORKERS = "/api/v1/workers/"
# Workers call these all the time, without a rate limit: their executions were counted when they were created.
UNCOUNTED = frozenset({f"{WORKERS}poll", f"{WORKERS}report", f"{WORKERS}leave"})


class Gate:
    """`tokens`: None without authentication; every user of this machine is then an admin.

    `request_ids`: ids for requests that have none. `refusal`: returns why this node accepts no changes now, or None.
    """

    def __init__(
        self, app: ASGIApp, *, tokens: Tokens | None, keyring: Keyring, limiter: Limiter, clock: Clock,
        origins: Sequence[str], request_ids: Iterator[bytes], refusal: Callable[[], DuetimeError | None],
        bodies: HeldBodies, telemetry: Telemetry,
    ) -> None:  # fmt: skip
        self._app = app
        self._tokens = tokens
        self._keyring = keyring
        self._limiter = limiter
        self._clock = clock
        self._origins = frozenset(origin.encode() for origin in origins)
        self._request_ids = request_ids
        self._refusal = refusal
        self._bodies = bodies
        self._unsent = UnsentResponses()
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        given = {name: value for name, value in scope["headers"] if name in _READ}
        request_id = given.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = next(self._request_ids)
        added: Headers = [(b"x-request-id", request_id), *self._cors(given)]
        sender = _Sender(send, added, scope, self._unsent, self._telemetry)
        try:
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in given:
                await self._preflight(given, sender)
                return
            if self._tokens is None:
                check_local(given.get(b"host", b""), given.get(b"origin", b""))
            if scope["path"] not in PUBLIC:
                address = _address(scope)
                caller = await self._identify(given, request_id.decode(), address)
                scope["user"] = caller
                sender.tenant = caller.tenant
                scope["auth"] = partial(self._identify, given, caller.request_id, address)  # for long-lived responses
                self._check_changes(scope["method"], scope["path"])
                if not (scope["path"] in UNCOUNTED and Right.WORK in caller.rights):
                    sender.limits = await self._limiter.take(caller)
        except DuetimeError as error:
            if isinstance(error, RateLimited):
                sender.limits = self._limiter.exhausted(caller)
            refusal_log.note(
                log.info, "a request was refused", path=shown_path(scope["path"]), error=error.code,
                request_id=request_id.decode(),
            )  # fmt: skip
            await send_problem(sender, problem_of(error, scope["path"]))
            return
        except Exception as error:  # noqa: BLE001 (logged there; the client gets a problem like any other)
            await send_problem(sender, problem_of_defect(error, scope["path"]))
            return
        if scope["path"] not in PUBLIC and is_counted(scope, given.get(b"content-length")):
            await self._bodies.call(self._app, scope, receive, sender, caller.tenant)
        else:
            await self._app(scope, receive, sender)

    def _check_changes(self, method: str, path: str) -> None:
        """Raises if the node accepts no changes. Workers may report results; the engine gives them no new work."""
        if method not in READS and not path.startswith(WORKERS) and (refusal := self._refusal()) is not None:
            raise refusal

    async def _identify(self, given: dict[bytes, bytes], request_id: str, address: str) -> Caller:
        key, authorization = given.get(b"x-api-key"), given.get(b"authorization")
        if key is not None and authorization is not None and self._tokens is not None:
            raise Unauthorized("the request has a token and an API key; send one of them")
        if key is not None:
            caller = await self._keyring.find(key.decode("latin-1").strip(), address)
        elif self._tokens is None:
            caller = LOCAL
        elif authorization is None:
            raise Unauthorized("this needs 'Authorization: Bearer <token>' or 'X-API-Key: <key>'")
        else:
            match = _BEARER.fullmatch(authorization.decode("latin-1"))
            if match is None:
                raise Unauthorized("the Authorization header must be 'Bearer <token>'")
            caller = self._tokens.verify(match[1], self._clock.now())
        return caller.asking(request_id)

    def _cors(self, given: dict[bytes, bytes]) -> Headers:
        origin = given.get(b"origin")
        if not self._origins:
            return []
        if origin not in self._origins or origin is None:
            return [(b"vary", b"Origin")]
        return [
            (b"vary", b"Origin"),
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED_HEADERS),
        ]

    async def _preflight(self, given: dict[bytes, bytes], send: Send) -> None:
        origin = given.get(b"origin", b"")
        if origin not in self._origins:
            raise Forbidden(
                "pages of this origin may not use this server; the operator allows origins with CORS_ORIGINS"
            )
        headers = [
            (b"access-control-allow-methods", _ALLOWED_METHODS),
            (b"access-control-allow-headers", _ALLOWED_HEADERS),
            (b"access-control-max-age", b"600"),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Sender:
    """Sends a response with the headers that every response has. A large one counts for its tenant until it is sent.

    An object, not a closure: a closure that sends a problem itself would be a reference cycle, which only the garbage
    collector frees.
    """

    __slots__ = (
        "_added", "_began", "_large", "_path", "_scope", "_send", "_telemetry", "_unsent", "limits", "tenant",
    )  # fmt: skip

    def __init__(
        self, send: Send, added: Headers, scope: HTTPScope, unsent: UnsentResponses, telemetry: Telemetry
    ) -> None:
        self._began = time.perf_counter()
        self._send = send
        self._added = added
        self._scope = scope
        self._path = scope["path"]
        self._telemetry = telemetry
        self._unsent = unsent
        self._large: Message | None = None  # the head of a large response, until its body comes
        self.tenant = ""
        self.limits = NO_LIMIT_HEADERS  # or the caller's rate limit headers

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._emit(message["status"])
            own = list(message.get("headers", ()))
            names = {name.lower() for name, _ in own}
            always = [header for header in ALWAYS if header[0] not in names]
            message["headers"] = own + self._added + self.limits + always
            if is_large(own) and self._path not in PUBLIC:
                self._large = message
                return
        elif self._large is not None:
            head, self._large = self._large, None
            try:
                await self._unsent.send(self._send, self.tenant, head, message)
            except Overloaded as error:
                await send_problem(self, problem_of(error, self._path))
            return
        await self._send(message)

    def _emit(self, status: int) -> None:
        scope = self._scope
        route = scope.get("path_template") or (PATH if scope["path"] == PATH else "")
        self._telemetry.emit(RequestServed(scope["method"], route, status, time.perf_counter() - self._began))


def _address(scope: Scope) -> str:
    """Returns the address of the client, or of the proxy in front of the server."""
    client = scope.get("client")
    return client[0] if client else ""


_READ = frozenset(
    {
        b"host", b"origin", b"authorization", b"x-api-key", b"x-request-id", b"access-control-request-method",
        b"content-length",
    }
)  # fmt: skip
