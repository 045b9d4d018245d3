"""Adds all endpoints of OpenAI's API. OpenAI documents them, so they are not in this API's document."""

from fastapi import Depends, FastAPI

from services.orchestrator.api.routes import check_query
from services.orchestrator.openai import batches, chat, embeddings, files, models
from shared.access.filters import OPENAI


def install(app: FastAPI) -> None:
    """Add the routes below `/openai/v1`."""
    for part in (batches, chat, embeddings, files, models):
        app.include_router(part.router, prefix=OPENAI, include_in_schema=False, dependencies=[Depends(check_query)])
