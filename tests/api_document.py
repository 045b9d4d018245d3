"""The API as it documents itself."""

from functools import cache
from typing import Any

from fastapi import FastAPI

from services.orchestrator.app import build
from shared.settings import Settings


@cache
def application() -> FastAPI:
    """Return the API without a database; it keeps its document, which takes a second to build."""
    return build(Settings(database_url="unused"))


@cache
def api_document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    document: dict[str, Any] = application().openapi()
    return document
