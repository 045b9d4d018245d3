"""What retrieval needs besides its own files: models of others, and Elasticsearch."""

import asyncio
import os

import httpx2

from services.orchestrator.api.resources import Resources
from services.orchestrator.probes.probe import NotReady, Probe, Run
from shared.errors import Unavailable
from shared.models import retrieval_models
from shared.models.ports import ModelFailed
from shared.settings import Settings

LOOK_S = 5.0
IN_PROCESS = ("static", "gguf", "sentence-transformers")
"""Kinds that the retriever loads itself: looked at, not loaded."""


def probes(settings: Settings) -> list[Probe]:
    """For what the settings name."""
    retrieval = settings.retrieval
    found = [_probe("embeddings", embeddings)]
    if retrieval.reranker.kind != "none":
        found.append(_probe("reranker", reranker))
    if "elasticsearch" in (retrieval.dense.backend, retrieval.sparse.backend):
        found.append(_probe("elasticsearch", elasticsearch))
    return found


def _probe(name: str, run: Run) -> Probe:
    fix = f"correct `retrieval.{name}` in mathrag.yaml, then restart the retriever"
    return Probe(name=name, run=run, fix=fix, deep=True, alone=True)


async def embeddings(held: Resources) -> str:
    """The files are there, or the server embeds a letter."""
    return await asyncio.to_thread(_embeddings, held.settings)


def _embeddings(settings: Settings) -> str:
    chosen = settings.retrieval.embeddings.model_copy(update={"timeout_s": LOOK_S})
    try:
        with retrieval_models.embedder(chosen) as made:
            if chosen.kind in IN_PROCESS:
                return f"{chosen.kind}: {chosen.model or chosen.path}"
            return f"{chosen.kind}: {chosen.model}, {made.dimension} numbers; signature {made.signature[:12]}"
    except Unavailable as error:
        raise NotReady(error.message, fix=error.hint or "") from error


async def reranker(held: Resources) -> str:
    """The files are there, or the server scores a letter."""
    return await asyncio.to_thread(_reranker, held.settings)


def _reranker(settings: Settings) -> str:
    chosen = settings.retrieval.reranker.model_copy(update={"timeout_s": LOOK_S})
    try:
        with retrieval_models.reranker(chosen) as made:
            if made is not None and chosen.kind not in IN_PROCESS:
                made.score("a", ["a"])
            return f"{chosen.kind}: {chosen.model or chosen.path or chosen.url}"
    except Unavailable as error:
        raise NotReady(error.message, fix=error.hint or "") from error
    except ModelFailed as failed:
        raise NotReady(failed.detail) from failed


async def elasticsearch(held: Resources) -> str:
    """It answers, and says which it is."""
    settings = held.settings.retrieval.elasticsearch
    url = settings.url or os.environ.get("ELASTICSEARCH_URL", "")
    if not url:
        raise NotReady("no address", fix="set `retrieval.elasticsearch.url` or ELASTICSEARCH_URL")
    headers = {"Authorization": f"ApiKey {settings.api_key}"} if settings.api_key else {}
    async with httpx2.AsyncClient(timeout=LOOK_S, trust_env=False, headers=headers) as client:
        reply = await client.get(url)
    if reply.status_code != httpx2.codes.OK:
        raise NotReady(f"it answers {reply.status_code}")
    return f"Elasticsearch {reply.json().get('version', {}).get('number', 'of unknown version')}"
