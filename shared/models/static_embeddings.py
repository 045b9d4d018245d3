"""Static embeddings: a text's vector is the mean of its tokens' vectors, read from a table (Model2Vec format)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from shared.errors import Unavailable
from shared.models.normal_form import NORMAL_FORM, in_normal_form

FILES = ("config.json", "model.safetensors", "tokenizer.json")
QUERY_FILE = "query.safetensors"
"""A table for questions alone, which tuning adds; without it they share the documents'."""
MAX_TOKENS = 512
"""A longer text is cut here, as Model2Vec does."""
_BATCH = 256


class StaticEmbedder:
    """The `Embedder` shipped with the project: no model server, no GPU, about 10,000 texts a second and core."""

    def __init__(self, folder: Path) -> None:
        """Load the artefact in `folder`.

        Raises:
            Unavailable: one of `FILES` is missing, or a table cannot be used.
        """
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise Unavailable(
                f"The embeddings in {str(folder)!r} lack {', '.join(missing)}",
                hint="Set `retrieval.embeddings.path`, or make them with `python -m services.retriever.distil`",
            )
        self.signature = _signature(folder)
        self._vectors = _table(folder / "model.safetensors")
        self.query_table = _query_table(folder / QUERY_FILE, self._vectors)
        """Token vectors [tokens, dimension] of questions."""
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._unknown = _unknown(self._tokenizer)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._vectors.shape[1])

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As documents, from the table for questions where there is one."""
        return self._embed(texts, self.query_table)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [len(texts), dimension], L2-normalised; a text's vector does not depend on its neighbours.

        A text without a known token has the zero vector, which is never searched for and never found.
        """
        return self._embed(texts, self._vectors)

    def _embed(self, texts: Sequence[str], table: NDArray[np.float32]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            for row, ids in enumerate(self.token_ids(texts[start : start + _BATCH]), start=start):
                vectors[row] = _direction(table[ids])
        return vectors

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Of each text its known tokens, in order."""
        encodings = self._tokenizer.encode_batch_fast(list(map(in_normal_form, texts)), add_special_tokens=False)
        return [[each for each in encoding.ids if each != self._unknown] for encoding in encodings]


def _table(file: Path) -> NDArray[np.float32]:
    """Vectors [tokens, dimension]; int8 rows come with one `weights` factor each.

    Raises:
        Unavailable: the file is damaged, or holds no such table.
    """
    try:
        tensors = load_file(file)
        table: NDArray[np.float32] = tensors["embeddings"].astype(np.float32)
        found = table * tensors["weights"].astype(np.float32)[:, None] if "weights" in tensors else table
    except (SafetensorError, KeyError, ValueError) as error:
        raise _unusable(file, f"holds no table of token vectors: {error}") from error
    if found.ndim != 2 or not np.isfinite(found).all():
        raise _unusable(file, "holds no table of token vectors, or one with NaN or infinity")
    return found


def _query_table(file: Path, documents: NDArray[np.float32]) -> NDArray[np.float32]:
    """The table in `file`, or the documents' where there is no file.

    Raises:
        Unavailable: it cannot be used, or is not of the shape of the documents' table.
    """
    if not file.is_file():
        return documents
    table = _table(file)
    if table.shape != documents.shape:
        sizes = " and ".join(
            f"{tokens} tokens of {dimension} numbers" for tokens, dimension in (table.shape, documents.shape)
        )
        raise _unusable(file, f"belongs to other embeddings: it and model.safetensors have {sizes}")
    return table


def _unusable(file: Path, why: str) -> Unavailable:
    hint = "Copy it again, or make it again: `python -m services.retriever.distil`, for questions `...retriever.tune`"
    return Unavailable(f"{file} {why}", hint=hint)


def _direction(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of [n, dimension] at length 1, or zeros."""
    total = vectors.sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(total))
    direction: NDArray[np.float32] = (total / length if length > 0 else total).astype(np.float32)
    return direction


def _unknown(tokenizer: Tokenizer) -> int | None:
    """Id of the unknown token, which says nothing about a text."""
    return tokenizer.token_to_id("[UNK]")


def _signature(folder: Path) -> str:
    """SHA-256 over the normal form, and name and SHA-256 of each file, so that no byte can move between them."""
    total = hashlib.sha256(f"{NORMAL_FORM}\n".encode())
    for name in FILES + ((QUERY_FILE,) if (folder / QUERY_FILE).is_file() else ()):
        total.update(f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
