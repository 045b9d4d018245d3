"""Serves probes, metrics and the reference of the API."""

import base64
import hashlib
from dataclasses import replace
from html import escape
from json import dumps
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from mathrag.check import Check
from mathrag.errors import Forbidden
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.metrics import Metrics
from services.orchestrator.probes import checks, list_readiness_probes, probes
from shared.shapes import Scope
from shared.storage.database import get_project

router = APIRouter(tags=["health"])


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The checks, and whether all of them pass."""

    ready: bool
    """Whether every check passes."""
    checks: list[Check]
    """The checks, in the order in which they ran."""


@route(router, "GET", "/healthz", None, "Is this process up?", answers(dict[str, str], {"status": "ok"}))
async def healthz() -> dict[str, str]:
    """Answers 200 while this process serves requests; it asks no other service."""
    return {"status": "ok"}


@route(
    router, "GET", "/readyz", Scope.READ, "Can jobs run?",
    answers(Readiness) | answers(Readiness, make_example("FailedReadiness"), status=503),
)  # fmt: skip
async def readyz(deps: RequestDeps) -> Response:
    """Answers 200 if every check that jobs depend on passes, else 503; each failed check says how to fix it. `mathrag
    doctor` runs more checks (docs/how-to/operations.md#doctor-and-readyz).
    """
    found = await checks(list_readiness_probes(deps.settings), replace(deps, database=deps.admission))
    ready = all(check.ok for check in found)
    return json(Readiness(ready=ready, checks=found), 200 if ready else 503)


@route(router, "GET", "/v1/checks", Scope.OPERATE, "Check everything", answers(Readiness), name="examined")
async def run_every_check(deps: RequestDeps) -> Response:
    """Runs every check of `mathrag doctor` with the settings of the running services and returns all results, passed or
    failed (docs/how-to/operations.md#doctor-and-readyz). It hashes every index and every model file, which may take
    minutes.
    """
    found = await checks(probes(deps.settings), deps)
    return json(Readiness(ready=all(check.ok for check in found), checks=found))


# Serves `/metrics`: the metrics for Prometheus.

metrics_router = APIRouter(tags=["health"])

RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Metrics in the text format of Prometheus.",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": 'mathrag_workers{lane="judge"} 1.0\n'}},
    }
}


@route(metrics_router, "GET", "/metrics", Scope.READ, "Metrics", RESPONSE, response_class=Response)
async def metrics(request: Request, deps: RequestDeps) -> Response:
    """Returns the metrics for Prometheus (docs/how-to/telemetry.md#metrics); an answer is cached for five seconds.
    Answers 404 if the operator has switched metrics off, and 403 for keys with a project, because the metrics cover all
    projects.
    """
    if get_project() is not None:
        raise Forbidden("these are the metrics of all projects", hint="use a key without a project")
    found: Metrics = request.app.state.metrics
    return Response(await found.text(deps), media_type=CONTENT_TYPE_LATEST)


# Serves `/openapi.json` for programs and `/docs` for people.
#
# `/docs` is one page without a script: it loads nothing from other servers, and runs no foreign code on an origin whose
# requests may do everything.

reference_router = APIRouter(include_in_schema=False)

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
p { white-space: pre-line }
pre { overflow-x: auto; padding: .5rem; border: 1px solid #8886; font-size: .9em }
details { border-bottom: 1px solid #8886 }
summary { cursor: pointer; padding: .3rem 0 }
summary b { display: inline-block; width: 4.5rem }
td { padding: .1rem 1rem .1rem 0 }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'"
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>
<h1>{title}</h1><p>{summary}</p>
<p>For programs: <a href="openapi.json">openapi.json</a>. If keys are required, send <code>Authorization: Bearer
KEY</code>.</p>
{operations}</html>
"""


@route(reference_router, "GET", "/openapi.json", Scope.READ, "Get the OpenAPI document", {})
async def openapi(request: Request) -> Response:
    """Returns the OpenAPI 3.1 document of this API."""
    return Response(dumps(request.app.openapi()), media_type="application/json")


@route(reference_router, "GET", "/docs", Scope.READ, "Get the reference page", {})
async def docs(request: Request) -> Response:
    """Returns a page with every operation, its parameters and examples."""
    document, operations = request.app.openapi(), []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rows = "".join(
                f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}</td>"
                f"<td>{escape(each.get('description', ''))}</td></tr>"
                for each in operation.get("parameters", ())
            )
            drawn = f"<table>{rows}</table>" if rows else ""
            for title, body in {"request": operation.get("requestBody", {}), **operation["responses"]}.items():
                for example in (media["example"] for media in body.get("content", {}).values() if "example" in media):
                    text = example if isinstance(example, str) else dumps(example, indent=2, ensure_ascii=False)
                    drawn += f"<h4>{escape(str(title))}</h4><pre>{escape(text)}</pre>"
            operations.append(
                f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
                f"{escape(operation.get('summary', ''))}</summary><p>{escape(operation.get('description', ''))}</p>"
                f"{drawn}</details>"
            )
    title, summary = (escape(document["info"][name]) for name in ("title", "summary"))
    page = PAGE.format(title=title, summary=summary, style=STYLE, operations="".join(operations))
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})
