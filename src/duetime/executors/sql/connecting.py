"""Opens a connection to a tenant's PostgreSQL server without using any of the node's own credentials.

The driver reads missing options from the environment and from files of the node's user: a password (PGPASSWORD,
~/.pgpass), a TLS client certificate (PGSSLCERT, ~/.postgresql), root certificates, a Kerberos ticket. Those are for the
node's own database. So each of these options is set here, and TLS contexts are created here instead of by the driver. A
context is created once per `sslmode`, in a thread: reading the system's root certificates takes tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

import asyncpg

from duetime.domain.connection_urls import PostgresUrl
from duetime.domain.execution import ErrorType
from duetime.executors.sql.names import loop_to
from duetime.executors.sql.problems import Failed
from duetime.executors.sql.received import Meter

_PROTOCOLS = ["postgresql"]
# A library that exists only on Windows: a server that requests a Kerberos ticket does not get the node's.
_NO_TICKETS = "sspi"
_contexts: dict[str, ssl.SSLContext] = {}  # by sslmode


async def connect(url: PostgresUrl, addresses: Sequence[str], meter: Meter) -> asyncpg.Connection:
    """Returns a connection to one of these addresses, with or without TLS according to `sslmode`."""
    match url.sslmode:
        case "disable":
            return await _connect(url, addresses, meter, None)
        case "allow":
            try:
                return await _connect(url, addresses, meter, None)
            except asyncpg.InvalidPasswordError:
                raise
            except asyncpg.InvalidAuthorizationSpecificationError:  # the server requires TLS
                return await _connect(url, addresses, meter, await _context(url.sslmode))
        case "prefer":
            try:
                return await _connect(url, addresses, meter, await _context(url.sslmode))
            except (asyncpg.InvalidPasswordError, TimeoutError):
                raise
            except (ssl.SSLError, asyncpg.InvalidAuthorizationSpecificationError):
                return await _connect(url, addresses, meter, None)
            except ConnectionError as problem:
                if type(problem) is not ConnectionError:  # the driver raises plain ConnectionError if there is no TLS
                    raise
                return await _connect(url, addresses, meter, None)
        case _:
            return await _connect(url, addresses, meter, await _context(url.sslmode))


async def _context(sslmode: str) -> ssl.SSLContext:
    if sslmode not in _contexts:
        _contexts[sslmode] = await asyncio.to_thread(context_of, sslmode)
    return _contexts[sslmode]


def context_of(sslmode: str) -> ssl.SSLContext:
    """Returns a TLS context without a client certificate. With `verify-*`, it trusts the system's root certificates."""
    if sslmode.startswith("verify"):
        context = ssl.create_default_context()
        context.check_hostname = sslmode == "verify-full"
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    return context


async def _connect(
    url: PostgresUrl, addresses: Sequence[str], meter: Meter, context: ssl.SSLContext | None
) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(
            host=url.host, port=url.port, user=url.user, password=url.password, database=url.database,
            ssl=context or False, direct_tls=False, target_session_attrs="any", krbsrvname="", gsslib=_NO_TICKETS,
            timeout=None, loop=loop_to(addresses, meter),
            statement_cache_size=0,  # DISCARD ALL drops prepared statements
            server_settings={"application_name": "duetime job"},
        )  # fmt: skip
    except asyncpg.InterfaceError as problem:
        raise Failed(
            ErrorType.CONNECTION_ERROR, f"No connection to {url.shown}: the server and the driver do not agree."
        ) from problem
