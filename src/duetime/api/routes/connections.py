"""/api/v1/connections: databases that SQL jobs may use, registered by a tenant's admin. No URL is ever returned."""

from __future__ import annotations

from litestar import Controller, Response, delete, get, put

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant
from duetime.domain.audit import entry
from duetime.domain.commands import PutConnection, RemoveConnection
from duetime.domain.connection_urls import BadUrl, parse_url
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Caller, Right
from duetime.domain.secrets import connection_place
from duetime.ports.store import ConnectionRecord
from duetime.wire.connections import ConnectionList, ConnectionMessage, ConnectionRequest, ConnectionView

MOST_LISTED = 1000
LONGEST_NAME = 255


class ConnectionController(Controller):
    path = "/connections"
    tags = ("connections",)

    @get("/", summary="Databases that SQL jobs may use; never their passwords", right=Right.ADMIN)
    async def list_connections(self, context: ApiContext, caller: Caller) -> ConnectionList:
        records = await context.store.list_connections(caller.tenant, MOST_LISTED)
        return ConnectionList([_view(record) for record in records])

    @put("/{name:str}", summary="Register a database, or give it another URL", right=Right.ADMIN)
    async def put_connection(
        self, request: AnyRequest, context: ApiContext, caller: Caller, name: str
    ) -> Response[ConnectionView]:
        wanted = decode(await request.body(), ConnectionRequest)
        if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
            raise InvalidRequest.at("/name", f"must have 1 to {LONGEST_NAME} characters, and no NUL")
        try:
            url = parse_url(wanted.url)
        except BadUrl as problem:
            raise InvalidRequest.at("/url", str(problem)) from None
        if (refusal := context.rules.connection_refusal(url)) is not None:
            raise InvalidRequest.at("/url", refusal)
        shown = url.shown
        if not context.vault.can_encrypt:
            raise InvalidRequest.at(
                "/url",
                "this server has no key to encrypt it with; its operator sets ENCRYPTION_KEYS (`duetime keys create`)",
            )
        now = context.clock.now()
        encrypted = context.vault.encrypt(caller.tenant, connection_place(name), wanted.url)
        noted = entry(caller, now, "connection.put", name, None, {"shown": shown})
        limit = context.limits.connections
        await context.apply(PutConnection(now, caller.tenant, name, encrypted, shown, caller.user_id, noted, limit))
        return Response(ConnectionView(name, shown, instant(now), caller.user_id))

    @delete("/{name:str}", summary="Remove a database; jobs that use it fail", status_code=200, right=Right.ADMIN)
    async def remove_connection(self, context: ApiContext, caller: Caller, name: str) -> ConnectionMessage:
        noted = entry(caller, context.clock.now(), "connection.remove", name)
        await context.apply(RemoveConnection(caller.tenant, name, noted))
        return ConnectionMessage(name, "Connection removed. Jobs that use it fail from now on.")


def _view(record: ConnectionRecord) -> ConnectionView:
    return ConnectionView(record.name, record.shown, instant(record.created_at), record.created_by)
