"""Creates, reads and cancels a job of each kind, with the client that openapi-python-client has generated.

python jobs.py <URL of a node> <URL of a database>
"""

from __future__ import annotations

import json
import sys
from uuid import UUID

from duetime_client import Client
from duetime_client.api.connections import put_connection
from duetime_client.api.jobs import cancel_job, create_job, get_job
from duetime_client.models import (
    ConnectionRequest,
    ConnectionView,
    CreatedJob,
    HttpJob,
    HttpJobView,
    HttpRequest,
    HttpRequestMethod,
    JobMessage,
    JobStatus,
    Problem,
    PythonCall,
    PythonJob,
    PythonJobType,
    PythonJobView,
    Script,
    ScriptJob,
    ScriptJobType,
    ScriptJobView,
    SqlJob,
    SqlJobType,
    SqlJobView,
    SqlQuery,
)

url, database = sys.argv[1:]

JOBS = {
    HttpJobView: HttpJob(
        name="generated webhook",
        schedule="@yearly",
        timezone="Europe/Berlin",
        payload=HttpRequest(url="https://example.com/hook", method=HttpRequestMethod.PUT, body={"n": [1, None, "x"]}),
    ),
    ScriptJobView: ScriptJob(
        type_=ScriptJobType.SCRIPT, name="generated script", schedule="@yearly", payload=Script(argv=["echo", "hello"])
    ),
    SqlJobView: SqlJob(
        type_=SqlJobType.SQL_QUERY,
        name="generated SQL",
        schedule="@yearly",
        payload=SqlQuery(connection="generated", statement="SELECT ?", parameters=[1]),
    ),
    PythonJobView: PythonJob(
        type_=PythonJobType.PYTHON,
        name="generated function",
        schedule="@yearly",
        payload=PythonCall(function="reports.send", args=["acme"]),
    ),
}


with Client(base_url=url) as client:
    connection = put_connection.sync("generated", client=client, body=ConnectionRequest(url=database))
    assert isinstance(connection, ConnectionView), connection
    for view, job in JOBS.items():
        created = create_job.sync(client=client, body=job)
        assert isinstance(created, CreatedJob), created
        read = get_job.sync(created.job_id, client=client)
        assert isinstance(read, view), read
        assert (read.job_id, read.created_at, read.status) == (created.job_id, created.created_at, JobStatus.PENDING)
        assert read.next_run_time == created.next_run_time is not None
        payload = read.payload.to_dict()
        sent = job.payload.to_dict()
        assert {name: payload[name] for name in sent} == sent, payload
        cancelled = cancel_job.sync(created.job_id, client=client)
        assert isinstance(cancelled, JobMessage), cancelled
        refused = cancel_job.sync(UUID(int=0), client=client)
        assert isinstance(refused, Problem), refused
        row = {"job_id": str(read.job_id), "type": read.type_.value, "name": read.name}
        row |= {"status": cancelled.status.value, "refused": refused.error}
        sys.stdout.write(f"{json.dumps(row)}\n")
