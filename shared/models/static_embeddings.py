"""Static embeddings: a text's vector is the mean of its tokens' vectors, read from a table (Model2Vec format)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from shared.errors import Unavailable
from shared.models.normal_form import NORMAL_FORM, in_normal_form

FILES = ("config.json", "model.safetensors", "tokenizer.json")
MAX_TOKENS = 512
"""A longer text is cut here, as Model2Vec does."""
_BATCH = 256


class StaticEmbedder:
    """The `Embedder` shipped with the project: no model server, no GPU, about 10,000 texts a second and core."""

    def __init__(self, folder: Path) -> None:
        """Load the artefact in `folder`.

        Raises:
            Unavailable: one of `FILES` is missing.
        """
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise Unavailable(
                f"The embeddings in {str(folder)!r} lack {', '.join(missing)}",
                hint="Set `retrieval.embeddings.path`, or make them with `python -m services.retriever.distil`",
            )
        self.signature = _signature(folder)
        self._vectors = _table(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._unknown = _unknown(self._tokenizer)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._vectors.shape[1])

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As documents: token vectors know no sides."""
        return self.embed_documents(texts)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [len(texts), dimension], L2-normalised; a text's vector does not depend on its neighbours.

        A text without a known token has the zero vector, which is never searched for and never found.
        """
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            for row, ids in enumerate(self._token_ids(batch), start=start):
                vectors[row] = _direction(self._vectors[ids])
        return vectors

    def _token_ids(self, batch: list[str]) -> list[list[int]]:
        texts = [in_normal_form(text) for text in batch]
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [[each for each in encoding.ids if each != self._unknown] for encoding in encodings]


def _table(file: Path) -> NDArray[np.float32]:
    """Vectors [tokens, dimension]; int8 rows come with one `weights` factor each."""
    tensors = load_file(file)
    table: NDArray[np.float32] = tensors["embeddings"].astype(np.float32)
    return table * tensors["weights"].astype(np.float32)[:, None] if "weights" in tensors else table


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
    for name in FILES:
        total.update(f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
