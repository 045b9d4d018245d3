"""The API as it documents itself."""

from functools import cache
from typing import Any

from services.orchestrator.app import build
from shared.settings import Settings


@cache
def api_document() -> dict[str, Any]:
    """Return the OpenAPI document; building it takes a second."""
    document: dict[str, Any] = build(Settings(database_url="unused")).openapi()
    return document
