"""Serves `/openapi.json` for programs and `/docs` for people.

`/docs` is one page without a script: it loads nothing from other servers, and runs no foreign code on an origin whose
requests may do everything.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

from services.orchestrator.api.routes import route
from shared.shapes import Scope

router = APIRouter(include_in_schema=False)

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


@route(router, "GET", "/openapi.json", Scope.READ, "Get the OpenAPI document", {})
async def openapi(request: Request) -> Response:
    """Returns the OpenAPI 3.1 document of this API."""
    return Response(json.dumps(request.app.openapi()), media_type="application/json")


@route(router, "GET", "/docs", Scope.READ, "Get the reference page", {})
async def docs(request: Request) -> Response:
    """Returns a page with every operation, its parameters and examples."""
    document = request.app.openapi()
    title, summary = (escape(document["info"][name]) for name in ("title", "summary"))
    page = PAGE.format(title=title, summary=summary, style=STYLE, operations="".join(_draw_operations(document)))
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})


def _draw_operations(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield (
                f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
                f"{escape(operation.get('summary', ''))}</summary><p>{escape(operation.get('description', ''))}</p>"
                f"{_draw_parameters(operation)}{_draw_examples(operation)}</details>"
            )


def _draw_parameters(operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in operation.get("parameters", ())
    )
    return f"<table>{rows}</table>" if rows else ""


def _draw_examples(operation: dict[str, Any]) -> str:
    answers = {"request": operation.get("requestBody", {}), **operation.get("responses", {})}
    examples = ((title, media["example"]) for title, answer in answers.items()
             for media in answer.get("content", {}).values() if "example" in media)  # fmt: skip
    return "".join(f"<h4>{escape(str(title))}</h4><pre>{_format_example(example)}</pre>" for title, example in examples)


def _format_example(example: Any) -> str:
    words = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
    return escape(words)
