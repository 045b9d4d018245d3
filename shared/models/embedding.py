"""Embed texts with a model: add prefixes, send batches, check the vectors and scale them to length 1."""

import logging
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from shared.contracts import canonical
from shared.contracts.replies import FailureKind
from shared.errors import Refused, TooLarge, Unavailable
from shared.models.normal_form import NORMAL_FORM, normalise
from shared.models.ports import Encoder, ModelFailed
from shared.retrieval_settings import Embeddings

_log = logging.getLogger(__name__)

PROBE = "a"
"""Text whose vector tells the dimension."""
TOO_LONG = (
    "set `retrieval.embeddings.too_long: cut`, or `max_chars` to what the model can hold; that makes another index"
)
_PIECE = re.compile(r"[^\W\u3000-\uffff]+|.", re.DOTALL)
"""Matches a word, or a single sign or Chinese character."""
FIRST_PIECES = 256
"""Number of such pieces in the first beginning of a text that is tried; many models hold 512 tokens."""
FIX = "see the log of the embedding server, and `retrieval.embeddings` in mathrag.yaml"


class ModelEmbedder:
    """An `Embedder` over an `Encoder`, which is called only when needed, and again until it has answered."""

    def __init__(self, encoder: Encoder, settings: Embeddings, queries: Encoder | None = None) -> None:
        """`queries` encodes questions if `encoder` encodes only documents; both are the same model."""
        self._encoder = encoder
        self._queries = queries or encoder
        self._settings = settings

    @cached_property
    def dimension(self) -> int:
        """Length of a vector.

        Raises:
            Unavailable: the model does not answer.
        """
        try:
            return int(normalise_vectors(self._encoder.encode([PROBE]), 1).shape[1])
        except ModelFailed as failed:
            raise _translate_failure(failed) from failed

    @cached_property
    def signature(self) -> str:
        """Digest of model, revision, prefixes, cut, dimension, normal form and length, but not of a server's address.

        Raises:
            Unavailable: the model does not answer.
        """
        kept = self._settings.model_dump(include={"query_prefix", "document_prefix", "max_chars"})
        if self._settings.too_long == "cut":
            kept["too_long"] = "cut"
        try:
            model = self._encoder.identity()
        except ModelFailed as failed:
            raise _translate_failure(failed) from failed
        made = {**kept, "model": model, "dimension": self.dimension, "length": 1, "unicode": NORMAL_FORM}
        return canonical.digest(made).hex()

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder`."""
        return self._embed(self._queries, texts, self._settings.query_prefix)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder`."""
        return self._embed(self._encoder, texts, self._settings.document_prefix)

    def _embed(self, encoder: Encoder, texts: Sequence[str], prefix: str) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        try:
            for start in range(0, len(texts), self._settings.batch):
                batch = [prefix + self._cut(text) for text in texts[start : start + self._settings.batch]]
                found = normalise_vectors(self._encode_batch(encoder, batch, len(prefix)), len(batch), self.dimension)
                vectors[start : start + len(batch)] = found
        except ModelFailed as failed:
            raise _translate_failure(failed) from failed
        return vectors

    def _encode_batch(self, encoder: Encoder, batch: list[str], prefix: int) -> Sequence[Sequence[float]]:
        """Encode in one request or, if a text is too long and may be cut, in one request per text.

        Only the model knows how many tokens a text has, and servers have no common way to tell, so lengths are tried.

        Raises:
            ModelFailed: as `Encoder.encode`.
        """
        try:
            return encoder.encode(batch)
        except ModelFailed as failed:
            if failed.kind is not FailureKind.CONTEXT_EXCEEDED or self._settings.too_long == "refuse":
                raise
            if len(batch) == 1:
                return [_embed_beginning(encoder, batch[0], prefix, failed)]
        return [vector for text in batch for vector in self._encode_batch(encoder, [text], prefix)]

    def _cut(self, text: str) -> str:
        return normalise(text)[: self._settings.max_chars or None]


def _embed_beginning(encoder: Encoder, text: str, prefix: int, refused: ModelFailed) -> Sequence[float]:
    """Return the vector of the longest beginning that the model accepts.

    Beginnings that double in length are tried until one is refused, so that no more of a very long text is sent, and
    then those between, by bisection between words. `text` itself was `refused`; its first `prefix` characters are never
    cut.
    """
    pieces = (piece.end() for piece in _PIECE.finditer(text, prefix))
    ends: list[int] = []
    fit, too_many, vector = 0, None, None
    while too_many is None or too_many - fit > 1:
        tried = max(FIRST_PIECES, 2 * fit) if too_many is None else (fit + too_many) // 2
        ends += islice(pieces, max(0, tried - len(ends)))
        if len(ends) < tried:
            too_many = len(ends)
            continue
        try:
            [vector] = encoder.encode([text[: ends[tried - 1]]])
            fit = tried
        except ModelFailed as failed:
            if failed.kind is not FailureKind.CONTEXT_EXCEEDED:
                raise
            too_many = tried
    if vector is None:
        raise refused
    _log.info(
        "a text of %d characters is too long for the embedding model: embedded its first %d", len(text), ends[fit - 1]
    )
    return vector


def normalise_vectors(
    found: Sequence[Sequence[float]], count: int, dimension: int | None = None
) -> NDArray[np.float32]:
    """Return `count` vectors scaled to length 1; a zero vector stays zero.

    Raises:
        ModelFailed: there are more or fewer vectors, their lengths differ or are not `dimension`, or are not finite.
    """
    if len(found) != count:
        raise _make_useless_error(f"{len(found)} vectors for {count} texts")
    lengths = {len(vector) for vector in found}
    expected = {dimension} if dimension else lengths
    if lengths != expected or 0 in lengths or len(lengths) != 1:
        raise _make_useless_error(
            f"vectors of {_join_numbers(lengths)} numbers where {_join_numbers(expected)} were expected"
        )
    vectors = np.asarray(found, dtype=np.float64)
    if not np.isfinite(vectors).all():
        raise _make_useless_error("vectors that hold NaN or infinity")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


def _join_numbers(numbers: set[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))


def _make_useless_error(what: str) -> ModelFailed:
    return ModelFailed(FailureKind.BACKEND_ERROR, f"the embedding model gave {what}")


def _translate_failure(failed: ModelFailed) -> TooLarge | Unavailable:
    if failed.kind is FailureKind.CONTEXT_EXCEEDED:
        return TooLarge(f"a text is too long for the embedding model: {failed.detail}", hint=TOO_LONG)
    message = f"no embeddings: {failed.detail}"
    if failed.kind is FailureKind.UNAVAILABLE:
        return Unavailable(message, hint=FIX, what=failed.what)
    return Refused(message, hint=FIX)
