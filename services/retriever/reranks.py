"""Rerank for jobs that are pinned to the configured reranker, and register that reranker in the database."""

import logging
from importlib.metadata import version
from math import inf

import msgspec
from anyio import CapacityLimiter, to_thread
from sqlalchemy.exc import SQLAlchemyError

from shared.errors import Unavailable
from shared.models import files
from shared.models.embedding import ModelFailed, Reranker
from shared.models.servers import identity_of
from shared.plugins.loading import find_usable
from shared.replies import Failure, FailureKind, Scored
from shared.runtime import pins
from shared.runtime.pins import NO_RERANKER, ModelIdentity
from shared.settings import Reranker as Settings
from shared.shapes import Kind
from shared.storage.database import Database, retry_through_outage

AT_ONCE = 4
"""Requests that are scored at once; searches keep the other threads."""
LIBRARIES = {"gguf": "xllamacpp", "sentence-transformers": "sentence-transformers"}
"""The library that computes with a model in this process; its version is part of the model's identity."""

START_SERVER = "start the server that `retrieval.reranker` names, or correct its `url`"

_log = logging.getLogger(__name__)


class RerankQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a question and the texts to score for it."""

    model: str
    """Hash, in hex, of the row in `models` to which the job is pinned."""
    question: str
    documents: tuple[str, ...]


class PinnedReranker:
    """The configured reranker, or None where there is none."""

    def __init__(self, identity: ModelIdentity, reranker: Reranker | None) -> None:
        self._identity = identity
        self._reranker = reranker
        self._limiter = CapacityLimiter(AT_ONCE)

    async def register(self, database: Database) -> None:
        """Register the reranker, or that there is none, so that new jobs are pinned to it; wait out database
        outages."""

        async def write() -> None:
            async with database.transaction() as connection:
                await pins.register(connection, self._identity)

        try:
            await retry_through_outage(write, inf)
        except SQLAlchemyError:
            _log.exception("the reranker could not be registered: new jobs stay pinned to the previous one")

    async def answer(self, question: RerankQuestion) -> Scored | Failure:
        """Return one score per document, in order, or a `Failure` if the job is pinned to another reranker.

        Raises:
            Unavailable: the reranker's server does not answer now.
        """
        if self._reranker is None or question.model != self._identity.hash.hex():
            detail = "the job is pinned to another reranker than the retriever is configured with: submit it again"
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=detail)
        try:
            scores = await to_thread.run_sync(
                self._reranker.score, question.question, question.documents, limiter=self._limiter
            )
        except ModelFailed as failed:
            if failed.kind is FailureKind.UNAVAILABLE:
                raise Unavailable(f"no scores: {failed.detail}", hint=START_SERVER, what=failed.what) from failed
            return Failure(kind=failed.kind, detail=failed.detail)
        return Scored(scores=tuple(scores))


def identify_reranker(settings: Settings) -> ModelIdentity:
    """Return the identity of the reranker: everything that changes scores, which its address does not.

    Raises:
        WeightsMissing: there is no such file or folder.
    """
    if settings.kind == "none":
        return NO_RERANKER
    if settings.kind == "plugin":
        return _identify_plugin(settings)
    library = LIBRARIES.get(settings.kind)
    return ModelIdentity(
        name=NO_RERANKER.name,
        backend=settings.kind,
        digest=_compute_digest(settings),
        version=version(library) if library else "",
        options=settings.model_dump(include={"model", "protocol", "activation", "max_chars"}),
    )


def _identify_plugin(settings: Settings) -> ModelIdentity:
    plugin = find_usable(Kind.RERANKER, settings.plugin)
    kept = settings.model_dump(include={"activation", "max_chars"})
    return ModelIdentity(
        name=NO_RERANKER.name,
        backend="plugin",
        digest=plugin.pin.hash,
        version=f"{plugin.distribution} {plugin.version}",
        options={**kept, "plugin": identity_of(plugin, settings.options)},
    )


def _compute_digest(settings: Settings) -> str | None:
    """Return the digest or revision of the weights; None if nothing identifies the version of the model."""
    if settings.path is not None and not settings.model:
        return files.digest(settings.path)
    return settings.revision or None
