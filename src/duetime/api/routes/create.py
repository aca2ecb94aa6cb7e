"""Creates a job: the route that gets ten thousand requests a second.

`create_job` does all of it. The framework's route (in jobs.py) calls it, and so does `QuickCreate`, which handles
POST /api/v1/jobs before the framework: the framework's routing, signatures and response objects take as long as
reading, planning and storing the job (measured: docs/decisions/0009-a-bare-route-for-creates.md).
"""

from __future__ import annotations

import re
from hashlib import blake2b

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from duetime.api.advice import check_after, list_warnings
from duetime.api.bodies import MAX_BODY_BYTES, decode_spec
from duetime.api.context import ApiContext
from duetime.api.problems import problem_of, problem_of_defect, send_problem
from duetime.api.views import encode, instant, instant_or_none
from duetime.domain import authoring
from duetime.domain.audit import entry
from duetime.domain.commands import CreateJobs, IdempotencyRecord, NewJob
from duetime.domain.errors import Conflict, DuetimeError, IdempotencyKeyReused, InvalidRequest, PayloadTooLarge
from duetime.domain.identity import Caller, Right, check_right, check_type
from duetime.domain.job import JobSpec, JobStatus, JobType, SqlJob
from duetime.domain.redirection import bind_secrets
from duetime.domain.secrets import encrypt_job, hide_spec
from duetime.domain.weights import LIGHT_BYTES
from duetime.wire.jobs import CreatedJob

PATH = "/api/v1/jobs"
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")

_SWITCHES = {JobType.SCRIPT: "ALLOW_SCRIPTS=true", JobType.SQL_QUERY: "ALLOW_SQL=true"}

Known = dict[str, str | None]  # the shown URLs of connections by name; None: there is no such connection

_under_way: set[tuple[str, str]] = set()  # (tenant, key) of the idempotent creates that run in this process


async def create_job(context: ApiContext, caller: Caller, body: bytes, key: str | None) -> bytes:
    """Returns the response to a create. With `key`, a repeat of the same body gets the same response."""
    check_right(caller, Right.WRITE)
    if len(body) > MAX_BODY_BYTES:
        raise PayloadTooLarge(f"the body has {len(body)} bytes; a job may have {MAX_BODY_BYTES}")
    if len(body) > LIGHT_BYTES:  # checked here too: most bodies are small, and this saves a call
        await context.take_turn(caller.tenant, body)
    if key is None:
        return await store_job(context, caller, decode_spec(body))
    return await _create_once(context, caller, body, key)


def new_job(context: ApiContext, caller: Caller, spec: JobSpec, now: int) -> NewJob:
    """Returns a job that is ready to be stored. Raises DuetimeError if the definition is invalid."""
    check_runnable(context, caller, spec)
    spec = context.rules.defaults.fill(spec)
    job = authoring.new_job(spec, caller.tenant, caller.user_id, now, context.random_bytes(10))
    return encrypt_job(job, context.vault)


async def bound(
    context: ApiContext, caller: Caller, spec: JobSpec, old: JobSpec | None = None, known: Known | None = None
) -> JobSpec:
    """Returns a SQL job with its secrets bound to the connection's target. `known`: connections that were read before.

    Raises InvalidRequest if there is no such connection.
    """
    if not isinstance(spec, SqlJob):
        return spec
    name = spec.payload.connection
    check_runnable(context, caller, spec)
    if known is None or name not in known:
        record = await context.store.get_connection(caller.tenant, name)
        known = {} if known is None else known
        known[name] = None if record is None else record.shown
    return bind_secrets(spec, known[name], old)


def check_runnable(context: ApiContext, caller: Caller, spec: JobSpec) -> None:
    """Raises Forbidden if this caller may not have a job of this type, and InvalidRequest if no caller may."""
    check_type(caller, spec.type)
    if spec.type not in context.rules.types:
        raise InvalidRequest.at(
            "/type", f"'{spec.type}' jobs are off here; the operator turns them on: {_SWITCHES[spec.type]}"
        )


def create_command(
    context: ApiContext, caller: Caller, job: NewJob, now: int, record: IdempotencyRecord | None = None
) -> CreateJobs:
    """Returns the command that stores a job, with the caller's quota and the audit entry."""
    noted = entry(caller, now, "job.create", job.job_id, None, hide_spec(job.spec))
    return CreateJobs(now, (job,), record, context.quota_of(caller), (noted,))


async def store_job(context: ApiContext, caller: Caller, spec: JobSpec, repeat: tuple[str, str] | None = None) -> bytes:
    """Stores a job and returns the response. `repeat`: the idempotency key and the body's fingerprint."""
    if spec.type is JobType.SQL_QUERY:
        spec = await bound(context, caller, spec)
    if spec.after:
        await check_after(context, caller, spec)
    now = context.clock.now()
    job = new_job(context, caller, spec, now)
    warnings = await list_warnings(context, caller, spec)
    answer = encode(
        CreatedJob(
            job.job_id, job.name, JobStatus.PENDING, instant_or_none(job.due_at), instant(now), job.owner, warnings
        )
    )
    record = None if repeat is None else IdempotencyRecord(caller.tenant, *repeat, answer.decode())
    first = await context.apply(create_command(context, caller, job, now, record))
    if first is not None:
        return first.encode()
    context.engine.due_hint(job.due_at)
    context.events.publish("job.created", now, job.tenant, {"job_id": job.job_id, "name": job.name}, job.owner)
    return answer


async def _create_once(context: ApiContext, caller: Caller, body: bytes, key: str) -> bytes:
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidRequest.at("/Idempotency-Key", "must be 1 to 255 visible ASCII characters")
    # The same key of another user is another key. (No key has a space, so none looks like this. Without authentication
    # the key is stored as it is, so that a repeat is recognised across an upgrade.)
    own_key = key if caller.via == "open" else f"{caller.user_id} {key}"
    mark = caller.tenant, own_key
    if mark in _under_way:
        raise Conflict(f"a request with Idempotency-Key '{key}' is under way; repeat this one in a moment")
    _under_way.add(mark)
    try:
        fingerprint = blake2b(body, digest_size=16).hexdigest()
        # A repeat gets the first response, even if its instant has passed meanwhile and would be refused now.
        known = await context.store.get_response(caller.tenant, own_key)
        if known is not None and known[0] == fingerprint:
            return known[1].encode()
        return await store_job(context, caller, decode_spec(body), (own_key, fingerprint))
    except IdempotencyKeyReused:  # its message has the key with its user
        message = f"Idempotency-Key '{key}' was used with another body; send a new key for a new request"
        raise IdempotencyKeyReused(message) from None
    finally:
        _under_way.discard(mark)


class QuickCreate:
    """Handles POST /api/v1/jobs, and passes all other requests on."""

    def __init__(self, app: ASGIApp, context: ApiContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        key = None
        for name, value in scope["headers"]:
            if name == b"idempotency-key":
                key = value.decode("latin-1")
        try:
            body = await _read(receive)
            if body is None:  # the client has disconnected
                return
            answer = await create_job(self._context, scope["user"], body, key)
        except DuetimeError as error:
            await send_problem(send, problem_of(error, PATH))
            return
        except Exception as error:  # noqa: BLE001 (logged there; the client gets a problem like any other)
            await send_problem(send, problem_of_defect(error, PATH))
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": answer, "more_body": False})


async def _read(receive: Receive) -> bytes | None:
    """Returns the whole body, or None if the client disconnects. Holds no more than a job may have."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message["body"])
        size += len(message["body"])
        if size > MAX_BODY_BYTES:
            raise PayloadTooLarge(f"the body has more than {MAX_BODY_BYTES} bytes; a job may not")
        if not message["more_body"]:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
