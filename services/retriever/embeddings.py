"""Embed texts for jobs that are pinned to the configured embedder, and register that embedder in the database."""

import asyncio
import logging
from collections.abc import Sequence
from math import inf

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from services.retriever.questions import QuestionVectors
from shared.errors import Conflict, Unavailable
from shared.models.embedding import Embedder
from shared.models.retriever_client import EmbeddedTexts
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity, embedder_identity
from shared.storage.database import Database, retry_through_outage

AGAIN_S = 5.0
"""Seconds before an embedder's server is asked again which model it serves."""

_log = logging.getLogger(__name__)


class TextEmbedder:
    """Embeds texts as documents."""

    def __init__(self, embedder: Embedder, questions: QuestionVectors) -> None:
        self._embedder = embedder
        self._questions = questions

    async def register(self, database: Database) -> None:
        """Make the embedder what new jobs are pinned to; an outage of its server or the database is waited for."""
        identity = await self._identify()

        async def write() -> None:
            async with database.transaction() as connection:
                await pins.register(connection, identity)

        try:
            await retry_through_outage(write, inf)
        except SQLAlchemyError:
            _log.exception("the embedder could not be registered: new jobs stay pinned to the previous one")

    async def _identify(self) -> ModelIdentity:
        while True:
            try:
                return embedder_identity(await to_thread.run_sync(lambda: self._embedder.signature))
            except Unavailable:
                await asyncio.sleep(AGAIN_S)

    async def embed(self, texts: Sequence[str], model: str) -> EmbeddedTexts:
        """Return a vector of length 1 for each text, in order.

        Args:
            texts: what is embedded.
            model: hash, in hex, of the row of `models` that the asking job is pinned to; "": whatever is configured.

        Raises:
            Conflict: the job was given another embedder.
            TooLarge: a text is longer than the model can hold.
            Unavailable: the embedder's server does not answer now.
        """
        if model and model != (await self._identify()).hash.hex():
            raise Conflict("the job is pinned to another embedder than the retriever is configured with")
        vectors = await self._questions.documents(texts)
        return EmbeddedTexts(vectors=tuple(vector.astype("<f4").tobytes() for vector in vectors))
