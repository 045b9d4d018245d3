"""OpenAI's models: names that choose a pipeline, a model and a corpus."""

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Response
from sqlalchemy import text

from mathrag.errors import NotFound
from mathrag.messages import make_hint
from services.orchestrator.access.identity import declare_scope
from services.orchestrator.api.routes import json
from services.orchestrator.deps import Deps, RequestDeps
from shared.params import Params
from shared.pipelines import registry
from shared.runtime.price import dry_run, make_placeholder_job
from shared.samples import Item
from shared.settings import Embeddings, Reranker, Settings
from shared.shapes import Scope
from shared.storage.database import Database

Kind = Literal["chat", "embedder", "reranker"]
CORPORA = text("SELECT name, created_at FROM corpora ORDER BY name")
REGISTERED = text("SELECT name, min(registered_at) AS at FROM models WHERE name = ANY(:names) GROUP BY name")


class ModelNotFound(NotFound):
    """No model has this name; the kind is OpenAI's code."""

    kind = "model_not_found"


class NamedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A name that requests may give as their `model`."""

    id: str
    created: int
    """Registration of the model, or creation of the pipeline's corpus, in seconds since 1970; 0 if there is none."""
    kind: Kind = "chat"
    pipeline: str | None = None
    """Name of the pipeline; None for a configured model, which is called without retrieval."""
    corpus: str | None = None


async def list_all_models(settings: Settings, database: Database) -> list[NamedModel]:
    """Return the configured models, embedder and reranker, then pipelines without a corpus, then `PIPELINE@CORPUS`."""
    configured = sorted(settings.models)
    async with database.transaction() as connection:
        corpora = (await connection.execute(CORPORA)).all()
        registered = {row.name: row.at for row in await connection.execute(REGISTERED, {"names": configured})}
    models = [NamedModel(id=name, created=_to_seconds(registered.get(name))) for name in configured]
    alone = [
        NamedModel(id=name, created=0, pipeline=name) for name in registry.list_offered() if not needs_corpus(name)
    ]
    over = [
        NamedModel(id=f"{name}@{row.name}", created=_to_seconds(row.created_at), pipeline=name, corpus=row.name)
        for name in registry.list_offered()
        for row in corpora
        if needs_corpus(name)
    ]
    models.append(NamedModel(id=_get_name(settings.retrieval.embeddings), created=0, kind="embedder"))
    if settings.retrieval.reranker.kind != "none":
        models.append(NamedModel(id=_get_name(settings.retrieval.reranker), created=0, kind="reranker"))
    every = [*models, *alone, *over]
    return list({model.id: model for model in reversed(every)}.values())[::-1]


def _get_name(settings: Embeddings | Reranker) -> str:
    return settings.model or (settings.path.name if settings.path else settings.kind)


async def find_model(deps: Deps, name: str, kind: Kind | None = None) -> NamedModel:
    """Return the model of this name, and of this kind if one is given.

    Raises:
        ModelNotFound: it does not exist; the message has the nearest name.
    """
    return find_named(await list_all_models(deps.settings, deps.database), name, kind)


def find_named(models: Iterable[NamedModel], name: str, kind: Kind | None = None) -> NamedModel:
    """Return the one of `models` with this name, and of this kind if one is given.

    Raises:
        ModelNotFound: it does not exist; the message has the nearest name.
    """
    by_name = {model.id: model for model in models if kind in (None, model.kind)}
    if name not in by_name:
        hint = make_hint(name, by_name, "GET /openai/v1/models")
        raise ModelNotFound(f"`model`: unknown model {name!r}", hint=hint)
    return by_name[name]


@cache
def needs_corpus(pipeline: str) -> bool:
    """Return whether the pipeline searches for documents, as a dry run shows."""
    rounds = dry_run(make_placeholder_job(pipeline, Params()), Item(ordinal=0, question="?"))
    return any(call.role == "retrieve" for round_ in rounds for call in round_)


def _to_seconds(at: datetime | None) -> int:
    return int(at.timestamp()) if at else 0


router = APIRouter(prefix="/models")
OWNER = "mathrag-gate"


@router.get("")
async def list_models(deps: RequestDeps) -> Response:
    """Lists every name that a request may give as its `model`."""
    models = await list_all_models(deps.settings, deps.database)
    return json({"object": "list", "data": [_make_view(model) for model in models]})


@router.get("/{name:path}")
async def get_model(name: str, deps: RequestDeps) -> Response:
    """Returns one model."""
    return json(_make_view(await find_model(deps, name)))


def _make_view(model: NamedModel) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": model.created, "owned_by": OWNER}


declare_scope(list_models, Scope.READ)
declare_scope(get_model, Scope.READ)
