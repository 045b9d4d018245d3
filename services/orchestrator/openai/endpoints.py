"""Adds all endpoints of OpenAI's API. OpenAI documents them, so they are not in this API's document."""

from fastapi import FastAPI

from services.orchestrator.openai import batches, chat, embeddings, files, models, rerank
from shared.access.refusals import OPENAI


def install(app: FastAPI) -> None:
    """Add the routes below `/openai/v1`."""
    for part in (batches, chat, embeddings, files, models, rerank):
        app.include_router(part.router, prefix=OPENAI, include_in_schema=False)
