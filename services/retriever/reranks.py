"""Reranking for jobs that were pinned to what is configured here, and telling the database what that is."""

import logging
from importlib.metadata import version
from math import inf

import msgspec
from anyio import CapacityLimiter, to_thread
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.replies import Failure, FailureKind, Scored
from shared.errors import Unavailable
from shared.models import weights
from shared.models.ports import ModelFailed, Reranker
from shared.retrieval_settings import Reranker as Settings
from shared.runtime import models
from shared.runtime.models import NO_RERANKER, ModelIdentity
from shared.storage.database import Database
from shared.storage.outages import again

AT_ONCE = 4
"""Requests that are scored together; searches keep the other threads."""
LIBRARIES = {"gguf": "xllamacpp", "sentence-transformers": "sentence-transformers"}
"""What reads a model in this process: another version may score otherwise."""

AWAY = "start the server that `retrieval.reranker` names, or correct its `url`"

_log = logging.getLogger(__name__)


class Rerank(msgspec.Struct, frozen=True, kw_only=True):
    """One question and the texts to score."""

    model: str
    """Hash, in hex, of the row of `models` that the job is pinned to."""
    question: str
    documents: tuple[str, ...]


class Reranks:
    """The configured reranker; None: there is none."""

    def __init__(self, identity: ModelIdentity, reranker: Reranker | None) -> None:
        self._identity = identity
        self._reranker = reranker
        self._limiter = CapacityLimiter(AT_ONCE)

    async def register(self, database: Database) -> None:
        """Make it what new jobs are pinned to, also if it is none; an outage of the database is waited for."""

        async def write() -> None:
            async with database.transaction() as connection:
                await models.register(connection, self._identity)

        try:
            await again(write, inf)
        except SQLAlchemyError:
            _log.exception("the reranker could not be registered: jobs are pinned to the one before")

    async def answer(self, asked: Rerank) -> Scored | Failure:
        """One score a document, in order. A job that was given another reranker is not answered by this one.

        Raises:
            Unavailable: the reranker's server answers nobody now.
        """
        if self._reranker is None or asked.model != self._identity.hash.hex():
            said = "the retriever is configured with another reranker than the job was given, or with none"
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=said)
        try:
            scores = await to_thread.run_sync(
                self._reranker.score, asked.question, asked.documents, limiter=self._limiter
            )
        except ModelFailed as failed:
            if failed.kind is FailureKind.UNAVAILABLE:
                raise Unavailable(f"no scores: {failed.detail}", hint=AWAY, what=failed.what) from failed
            return Failure(kind=failed.kind, detail=failed.detail)
        return Scored(scores=tuple(scores))


def identity(settings: Settings) -> ModelIdentity:
    """Everything that changes scores; where a server stands has no part in it.

    Raises:
        NoWeights: there is no such file or folder.
    """
    if settings.kind == "none":
        return NO_RERANKER
    library = LIBRARIES.get(settings.kind)
    return ModelIdentity(
        name=NO_RERANKER.name,
        backend=settings.kind,
        digest=_digest(settings),
        version=version(library) if library else "",
        options=settings.model_dump(include={"model", "protocol", "activation", "max_chars"}),
    )


def _digest(settings: Settings) -> str | None:
    """None: nothing tells this version of the model from the next."""
    if settings.path is not None and not settings.model:
        return weights.digest(settings.path)
    return settings.revision or None
