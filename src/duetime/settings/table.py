"""The table of all settings: each with its default, its parser and its help."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

from duetime.domain.log_levels import parse_log_levels
from duetime.domain.sql_servers import parse_servers
from duetime.settings import values as read
from duetime.settings.setting import Given, GivenTexts, Setting


class Shown(NamedTuple):
    """A setting for display."""

    name: str
    value: str
    source: str
    help: str


def _own_name(settings: Settings) -> str:
    """Returns the default name of a node. On PostgreSQL it has the port: names of nodes must be unique."""
    host = socket.gethostname()
    return f"{host}:{settings.port or os.getpid()}" if settings.database_url else host


class Settings(GivenTexts):
    """An attribute is the value of the setting of that name in upper case. It is read when it is first used."""

    host = Setting("127.0.0.1", read.text, "address to listen on")
    port = Setting("8080", read.port, "port to listen on")
    data = Setting("duetime-data", Path, "folder of the database, if there is no DATABASE_URL")
    database_url = Setting(
        "", read.database_url, "postgresql://…: several nodes share it; empty: SQLite in DATA",
        is_secret=True, also_from="DATABASE_URL",
    )  # fmt: skip
    db_op_timeout = Setting("5s", read.period, "timeout of calls to PostgreSQL, and of API reads from SQLite")
    db_max_open_conns = Setting("25", read.connections, "most connections to PostgreSQL, without the heartbeat's")
    db_max_idle_conns = Setting("5", read.limit, "idle connections to PostgreSQL that are kept for reads")
    db_conn_max_lifetime = Setting("30m", read.period_or_none, "greatest age of a connection to PostgreSQL; 0: any age")
    db_conn_max_idle_time = Setting(
        "5m", read.period_or_none, "how long an unused connection for reads is kept; 0: any time"
    )
    roles = Setting("api,timer,worker,alerts", read.roles, "roles of this node; all by default")
    node_lease_seconds = Setting("5s", read.period, "how long a silent node keeps its shards and executions")
    node_name = Setting(
        "", read.text, "this node's name, unique in the cluster; the machine's name (and port) if empty",
        if_empty=_own_name,
    )  # fmt: skip
    dispatcher_workers = Setting("512", read.count, "attempts at once on this node; tenants share them")
    endpoint_concurrency = Setting(
        "64", read.count, "attempts at once for one scheme, host and port; tenants share them"
    )
    endpoint_rate = Setting(
        "0", read.rate, "requests a second to one scheme, host and port, from this node; 0: no limit"
    )
    tenant_concurrency = Setting("0", read.limit, "attempts at once of one tenant; 0: as many as DISPATCHER_WORKERS")
    job_execution_timeout = Setting(
        "", read.attempt_seconds, "timeout_seconds of jobs that name none; empty: by type of job"
    )
    max_execution_attempts = Setting("", read.attempts, "attempts of jobs that name no retries; empty: by type of job")
    dispatcher_drain_timeout = Setting("30s", read.duration, "how long a stop waits for running attempts")
    http_shutdown_timeout = Setting("10s", read.duration, "how long a stop waits for requests to this server")
    reconcile_interval = Setting("5m", read.period, "how often the node looks for executions of expired nodes")
    reconcile_batch_size = Setting("500", read.count, "how many of them are taken over in one commit")
    circuit_breaker_threshold = Setting(
        "5", read.limit, "failed executions in a row that open a target's circuit; 0: never"
    )
    circuit_breaker_cooldown = Setting("2m", read.period, "how long an open circuit waits before a probe")
    execution_history_retention = Setting("30d", read.duration, "how long executions are kept")
    execution_history_limit = Setting("10000000", read.count, "how many executions are kept at most")
    audit_retention = Setting("365d", read.duration, "how long audit entries stay in the database; 0: forever")
    audit_export_folder = Setting(
        "", read.path, "where entries are written before they are removed; empty: audit in DATA"
    )
    worker_lease_seconds = Setting("5s", read.period, "how long a silent worker keeps its executions")
    logs_url = Setting(
        "", read.text, "where logs are kept, such as s3://bucket/prefix; empty: in DATA, on this machine"
    )
    log_size_limit = Setting("1MB", read.size, "how much of the log of one attempt is kept")
    logs_total_limit = Setting("10GB", read.size, "size of all logs; beyond it the largest tenants lose their oldest")
    allow_scripts = Setting("false", read.switch, "true lets jobs run programs on the machines of the nodes")
    script_concurrency = Setting("8", read.count, "scripts at once on this node; tenants share them")
    script_memory_limit = Setting("512MB", read.size, "memory of one script, all its processes together")
    script_cpu_limit = Setting("0s", read.duration, "processor time of each process of a script; 0: no separate limit")
    script_process_limit = Setting("64", read.count, "processes of one script at once")
    script_file_limit = Setting("100MB", read.size, "the largest file that a script may write")
    allow_sql = Setting("false", read.switch, "true lets jobs run statements on databases that admins register")
    sql_allowed_hosts = Setting(
        "public", parse_servers, "database servers: public, names, addresses, networks; or with :port"
    )
    sql_allow_superusers = Setting(
        "false", read.switch, "true lets SQL jobs use roles that can run programs at the database"
    )
    sql_receive_limit = Setting("8MB", read.size, "bytes that a PostgreSQL server may send for one statement")
    sql_sqlite_folder = Setting(
        "", read.text, "folder of the tenants' SQLite files, one folder for each; empty: no SQLite jobs"
    )
    sql_sqlite_file_limit = Setting("100MB", read.size, "the largest SQLite file that SQL jobs may create")
    sql_sqlite_memory_limit = Setting("64MB", read.size, "memory of SQLite for one statement")
    sql_rows_limit = Setting("100", read.count, "rows of a statement's result that are kept")
    sql_result_limit = Setting("16KB", read.size, "size of a statement's result that is kept")
    sql_connections = Setting("4", read.count, "connections of this node to one database of SQL jobs")
    allow_private_targets = Setting(
        "false", read.networks, "true, or networks that jobs may call although they are not public"
    )
    allowed_targets = Setting("", read.domains, "hosts that jobs may call: example.com,*.example.com; empty: any")
    target_max_idle_conns = Setting("1024", read.count, "connections to targets that are kept for the next request")
    target_max_idle_conns_per_host = Setting("256", read.limit, "of these, to one scheme, host and port")
    target_tls_handshake_timeout = Setting("10s", read.period, "timeout of a target's TLS handshake")
    target_response_header_timeout = Setting(
        "0s", read.period_or_none, "time until a target's response must begin; 0: as long as the job's timeout_seconds"
    )
    signing_secrets = Setting(
        "", read.secrets, "whsec_… secrets that tenants' signing keys are derived from; the first is the newest",
        is_secret=True,
    )  # fmt: skip
    sign_with_shared_key = Setting(
        "false", read.switch, "true also signs each request with SIGNING_SECRETS themselves, for all tenants"
    )
    encryption_keys = Setting(
        "", read.encryption_keys, "id:base64 keys that encrypt secrets at rest; the first is the newest", is_secret=True
    )
    jwt_secret = Setting(
        "", read.jwt_secret, "verifies tokens signed with HS256; with it, or JWKS_FILE, callers must authenticate",
        is_secret=True,
    )  # fmt: skip
    jwks_file = Setting(
        "", read.path, "public keys that verify tokens signed with RS256 or EdDSA; read again when it changes"
    )
    jwt_issuer = Setting("duetime", read.claim, "the required issuer of a token: its iss; empty: not checked")
    operator_tenant = Setting(
        "", read.tenant_or_none, "the tenant whose admins see figures of all tenants; empty: with identity, nobody"
    )
    jwt_audience = Setting("duetime", read.claim, "the required audience of a token: its aud; empty: not checked")
    tenant_keys_limit = Setting("500", read.count, "API keys of one tenant that are neither revoked nor expired")
    tenant_users_limit = Setting("100", read.count, "users of one tenant that such API keys are for")
    tenant_workers_limit = Setting(
        "2000", read.count, "workers of Python functions of one tenant, on all nodes together"
    )
    tenant_connections_limit = Setting("100", read.count, "databases that one tenant may register for SQL jobs")
    tenant_channels_limit = Setting("50", read.count, "alert channels that one tenant may have")
    alert_urls = Setting(
        "", read.alert_urls, "the operator's own channels, with blanks between: https://… or URLs of apprise; for when "
        "the database is gone or the node is leaving",
        is_secret=True,
    )  # fmt: skip
    alert_database_after = Setting(
        "30s", read.period, "how long a node may not reach its database before ALERT_URLS are told"
    )
    heartbeat_url = Setting(
        "", read.heartbeat_url, "a URL that this node calls while it works, such as one of Healthchecks; empty: none",
        is_secret=True,
    )  # fmt: skip
    heartbeat_interval = Setting("60s", read.period, "how often HEARTBEAT_URL is called")
    free_requests_per_hour = Setting("1000", read.limit, "requests an hour of a user of the tier free; 0: no limit")
    free_jobs_per_day = Setting("100", read.limit, "new jobs a day of a user of the tier free; 0: no limit")
    pro_requests_per_hour = Setting("10000", read.limit, "requests an hour of a user of the tier pro; 0: no limit")
    pro_jobs_per_day = Setting("10000", read.limit, "new jobs a day of a user of the tier pro; 0: no limit")
    connections_per_address = Setting(
        "1024", read.limit, "connections to this server from one address; 0: no such limit"
    )
    cors_origins = Setting(
        "", read.origins, "origins whose pages may send requests from a browser, with commas; empty: none"
    )
    queue_memory_limit = Setting("", read.size_or_none, "memory for jobs: 2GB, 500MB, plain bytes; empty: by percent")
    queue_memory_percent = Setting(
        "50", read.percent, "percentage of the machine's memory, if QUEUE_MEMORY_LIMIT is empty"
    )
    queue_job_limit = Setting("0", read.limit, "how many jobs there may be; 0: no limit")
    tenant_capacity_percent = Setting(
        "75", read.percent, "percentage of both that one tenant may hold; the rest is for the others"
    )
    tenant_notifications_per_hour = Setting("100000", read.limit, "notifications an hour of one tenant; 0: no limit")
    metrics_host = Setting("127.0.0.1", read.text, "address of the metrics")
    metrics_port = Setting("9090", read.port, "port of the metrics; 0: off")
    metrics_token = Setting(
        "", read.metrics_token, "bearer token that clients of the metrics port need; empty: none", is_secret=True
    )
    health_failure_threshold = Setting(
        "0.1", read.share, "/health is degraded if more of the executions of the last 5 minutes failed: 0 to 1"
    )
    log_level = Setting(
        "info", parse_log_levels, "debug, info, warning or error; also for single areas: info,engine=debug"
    )
    otel_exporter_otlp_endpoint = Setting(
        "", read.collector, "collector of traces, such as http://127.0.0.1:4318; empty: no traces",
        is_secret=True, also_from="OTEL_EXPORTER_OTLP_ENDPOINT",
    )  # fmt: skip
    otel_service_name = Setting("duetime", read.text, "the service's name in traces", also_from="OTEL_SERVICE_NAME")
    traces_sample_ratio = Setting(
        "0.01", read.share, "share of executions that are traced, if there is a collector: 0 to 1"
    )

    def list_shown(self) -> list[Shown]:
        return [Shown(it.name, it.show(self), self.given[it.name].source, it.help) for it in SETTINGS.values()]


SETTINGS: dict[str, Setting[Any]] = {it.name: it for it in vars(Settings).values() if isinstance(it, Setting)}
DEFAULTS = Settings({name: Given(setting.default, "default") for name, setting in SETTINGS.items()})
