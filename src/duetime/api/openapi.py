"""The API's description as data (/openapi.json) and as a page (/docs), which loads nothing from other servers."""

from __future__ import annotations

from enum import EnumType
from functools import cache
from html import escape
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Schema
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition

import duetime
from duetime.api import declared
from duetime.api.auth.access import ANYONE
from duetime.api.batch_lines import MOST_JOBS
from duetime.api.gate import PUBLIC
from duetime.api.problems import MEDIA_TYPE
from duetime.api.queries import AnyRequest
from duetime.api.routes.events import EVENT_STREAM
from duetime.domain.job import JobSpec
from duetime.domain.work import Joining, Leaving, Polling, Reporting
from duetime.wire.connections import ConnectionRequest
from duetime.wire.executions import RedriveRequest
from duetime.wire.health import Health, Readiness
from duetime.wire.identity import KeyRequest
from duetime.wire.jobs import CreatedJob, JobView
from duetime.wire.problems import Problem
from duetime.wire.schedules import PreviewRequest
from duetime.wire.signing import RotateRequest
from duetime.wire.subscriptions import SubscriptionRequest

_REF = declared.REF
_CHANGE_MEANS = "The fields of a job to change (JSON Merge Patch); null resets one that has a default."

# The schemas of bodies that a handler decodes itself, for speed and for better errors than the framework's.
_BODIES = {
    ("/api/v1/jobs", "post"): "JobSpec",
    ("/api/v1/jobs/{job_id}", "put"): "JobChange",
    ("/api/v1/jobs/{job_id}", "patch"): "JobChange",
    ("/api/v1/jobs/by-key/{key}", "put"): "JobSpec",
    ("/api/v1/jobs:batch", "post"): "JobSpec",
    ("/api/v1/schedules/preview", "post"): "PreviewRequest",
    ("/api/v1/api-keys", "post"): "KeyRequest",
    ("/api/v1/dead-letters/redrive", "post"): "RedriveRequest",
    ("/api/v1/signing-key/rotate", "post"): "RotateRequest",
    ("/api/v1/subscriptions", "post"): "SubscriptionRequest",
    ("/api/v1/connections/{name}", "put"): "ConnectionRequest",
    ("/api/v1/workers/join", "post"): "Joining",
    ("/api/v1/workers/poll", "post"): "Polling",
    ("/api/v1/workers/report", "post"): "Reporting",
    ("/api/v1/workers/leave", "post"): "Leaving",
}
_SECURITY = {
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def _operation_id(handler: HTTPRouteHandler, *_: object) -> str:
    """Returns the handler's name. Code generators name functions after it, so it must be complete and unique."""
    return handler.handler_name


class WordSchemas(OpenAPISchemaPlugin):
    """Lists the known values of a text field that has an enum in its annotation (`wire.words`)."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return any(isinstance(beside, EnumType) for beside in field_definition.metadata)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        words = next(beside for beside in field_definition.metadata if isinstance(beside, EnumType))
        schema: Schema = schema_creator.for_field_definition(FieldDefinition.from_annotation(words))
        return schema


def openapi_config() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Duetime",
        version=duetime.__version__,
        description="Runs jobs in due time. Errors are RFC 9457 problem+json.",
        enabled_endpoints=set(),
        operation_id_creator=_operation_id,
        path="/_openapi",
    )


@cache
def openapi_document(app: Litestar) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document, made from the routes and the types."""
    document = app.openapi_schema.to_schema()
    kinds = [
        JobSpec, PreviewRequest, RedriveRequest, KeyRequest, CreatedJob, JobView, Health, Readiness, Problem,
        ConnectionRequest, SubscriptionRequest, RotateRequest,
        Joining, Polling, Reporting, Leaving,
    ]  # fmt: skip
    shapes, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    schemas |= {"JobSpec": shapes[0], "JobView": shapes[5]}
    schemas["CreatedJob"]["properties"]["status"] = {"$ref": _REF.format(name="JobStatus")}
    # A job without a type is an HTTP request, so `type` does not discriminate.
    schemas["HttpJob"]["required"].remove("type")
    del schemas["JobSpec"]["discriminator"]
    del schemas["SqlQuery"]["properties"]["bound_to"]  # set by the server, which replaces a request's value
    changes = [declared.change_of(kind, schemas) for kind in shapes[0]["anyOf"]]
    schemas["JobChange"] = {"title": "JobChange", "description": _CHANGE_MEANS, "anyOf": changes}
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas)
    for choice in components["schemas"]["OtherSigningKey"]["properties"]["until"]["oneOf"]:
        choice.pop("format", None)  # generated clients read it as text: it has never had a format
    components["securitySchemes"] = _SECURITY
    document["security"] = [{name: []} for name in _SECURITY]
    problem = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if body := _BODIES.get((path, method)):
                required = (path, method) not in declared.OPTIONAL_BODIES
                schema: dict[str, Any] = {"$ref": _REF.format(name=body)}
                if path.endswith(":batch"):  # NDJSON is only described in text: code generators don't support it
                    schema = {"type": "array", "items": schema, "maxItems": MOST_JOBS}
                operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
            operation["parameters"] = declared.parameters(path, method, operation.get("parameters", []))
            if path in PUBLIC:
                operation["security"] = []
            responses = operation["responses"]
            responses.pop("400", None)
            responses.update(declared.ANSWERS.get((path, method), {}))
            responses["default"] = {"description": "A problem: what happened and what to do.", "content": problem}
    logs = document["paths"]["/api/v1/executions/{execution_id}/logs"]["get"]["responses"]["200"]
    logs["content"][EVENT_STREAM] = {"schema": {}}
    declared.complete(document)
    declared.complete_answers(document)
    return document


@cache
def openapi_body(app: Litestar) -> bytes:
    """Returns the encoded document. It is encoded once, because the route is public."""
    return msgspec.json.encode(openapi_document(app))


@cache
def docs_body(app: Litestar) -> bytes:
    return _page(openapi_document(app)).encode()


@get("/openapi.json", include_in_schema=False, right=ANYONE)
async def get_openapi(request: AnyRequest) -> Response[bytes]:
    return Response(openapi_body(request.app), media_type="application/vnd.oai.openapi+json")


@get("/docs", include_in_schema=False, right=ANYONE)
async def get_docs(request: AnyRequest) -> Response[bytes]:
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
    return Response(docs_body(request.app), media_type="text/html; charset=utf-8", headers=headers)


DOCS_ROUTES = (get_openapi, get_docs)


def _page(document: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td class=m>{escape(method.upper())}</td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(operation.get('summary', ''))}</td></tr>"
        for path, operations in sorted(document["paths"].items())
        for method, operation in operations.items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Duetime API</title><style>"
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:3rem auto;padding:0 1rem;color:#1b1f24}"
        "td{padding:.35rem .8rem .35rem 0;border-bottom:1px solid #e6e8eb;vertical-align:top}"
        ".m{font-weight:600;color:#0b63c5}code{font-size:.95em}</style>"
        f"<h1>Duetime API {escape(document['info']['version'])}</h1>"
        "<p>The complete description, with all types: <a href=/openapi.json>/openapi.json</a></p>"
        f"<table>{rows}</table></html>"
    )
