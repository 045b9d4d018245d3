"""Static embeddings (Model2Vec format): a text's vector is the mean of its tokens' vectors from a table."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from shared.errors import Unavailable
from shared.models.normal_form import NORMAL_FORM, normalise

FILES = ("config.json", "model.safetensors", "tokenizer.json")
QUERY_FILE = "query.safetensors"
"""A table for questions, which tuning adds; without it they use the documents' table."""
MAX_TOKENS = 512
"""Longer texts are truncated, as in Model2Vec."""
FIRST_CHARS = 4096
"""Length of the beginning of a longer text that is tokenised first; most texts have `MAX_TOKENS` tokens in it."""
_BATCH = 256
_BLANKS = " \t\n\r\u3000"
_IDEOGRAPHS = "\u4e00-\u9fff"


class StaticEmbedder:
    """The shipped `Embedder`, without a model server or GPU: about 10,000 texts per second and core."""

    def __init__(self, folder: Path) -> None:
        """Load the tables and the tokenizer in `folder`.

        Raises:
            Unavailable: one of `FILES` is missing, or a table cannot be used.
        """
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise Unavailable(
                f"The embeddings in {str(folder)!r} lack {', '.join(missing)}",
                hint="Set `retrieval.embeddings.path`, or make them with `python -m services.retriever.distil`",
            )
        self.signature = _compute_signature(folder)
        self._vectors = _read_table(folder / "model.safetensors")
        self.query_table = _read_query_table(folder / QUERY_FILE, self._vectors)
        """Token vectors [tokens, dimension] of questions."""
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._unknown = _find_unknown_id(self._tokenizer)
        self._cuts = _find_cuts(self._tokenizer)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._vectors.shape[1])

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed questions with their own table if there is one; see `embed_documents`."""
        return self._embed(texts, self.query_table)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return L2-normalised vectors [len(texts), dimension]; a text's vector does not depend on the other texts.

        A text without a known token has the zero vector, which is never searched for and never found.
        """
        return self._embed(texts, self._vectors)

    def _embed(self, texts: Sequence[str], table: NDArray[np.float32]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            for row, ids in enumerate(self.token_ids(texts[start : start + _BATCH]), start=start):
                vectors[row] = _normalise_sum(table[ids])
        return vectors

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's known tokens, in order.

        Of a long text only the beginning is tokenised, as long as it has fewer than `MAX_TOKENS` tokens a longer one:
        to tokenise 20 MB takes 20 seconds and 3 GB.
        """
        found: list[list[int]] = [[] for _ in texts]
        pending, chars = list(range(len(texts))), FIRST_CHARS
        while pending:
            beginnings = [self._cut(texts[at], chars) for at in pending]
            encodings = self._tokenizer.encode_batch_fast(list(map(normalise, beginnings)), add_special_tokens=False)
            short = []
            for at, beginning, encoding in zip(pending, beginnings, encodings, strict=True):
                found[at] = [each for each in encoding.ids if each != self._unknown]
                if len(encoding.ids) < MAX_TOKENS and len(beginning) < len(texts[at]):
                    short.append(at)
            pending, chars = short, 4 * chars
        return found

    def _cut(self, text: str, chars: int) -> str:
        """Return the shortest beginning of at least `chars` characters that ends where a token ends in any case."""
        cut = self._cuts.search(text, chars) if len(text) > chars and self._cuts else None
        return text[: cut.start()] if cut else text


def _read_table(file: Path) -> NDArray[np.float32]:
    """Read token vectors [tokens, dimension]; int8 rows have one `weights` factor each.

    Raises:
        Unavailable: the file is damaged, or holds no such table.
    """
    try:
        tensors = load_file(file)
        table: NDArray[np.float32] = tensors["embeddings"].astype(np.float32)
        if "weights" in tensors:
            table *= tensors["weights"].astype(np.float32)[:, None]
    except (SafetensorError, KeyError, ValueError) as error:
        raise _make_unusable_error(file, f"holds no table of token vectors: {error}") from error
    if table.ndim != 2 or not np.isfinite(table).all():
        raise _make_unusable_error(file, "holds no table of token vectors, or one with NaN or infinity")
    return table


def _read_query_table(file: Path, documents: NDArray[np.float32]) -> NDArray[np.float32]:
    """Read the table in `file`; return the documents' table if there is no file.

    Raises:
        Unavailable: it cannot be used, or has another shape than the documents' table.
    """
    if not file.is_file():
        return documents
    table = _read_table(file)
    if table.shape != documents.shape:
        sizes = " and ".join(
            f"{tokens} tokens of {dimension} numbers" for tokens, dimension in (table.shape, documents.shape)
        )
        raise _make_unusable_error(file, f"belongs to other embeddings: it and model.safetensors have {sizes}")
    return table


def _make_unusable_error(file: Path, why: str) -> Unavailable:
    hint = "Copy it again, or make it again: `python -m services.retriever.distil`, for questions `...retriever.tune`"
    return Unavailable(f"{file} {why}", hint=hint)


def _normalise_sum(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sum of vectors [n, dimension] scaled to length 1, or zeros."""
    total = vectors.sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(total))
    direction: NDArray[np.float32] = (total / length if length > 0 else total).astype(np.float32)
    return direction


def _find_unknown_id(tokenizer: Tokenizer) -> int | None:
    """Find the id of the unknown token, which tells nothing about a text."""
    return tokenizer.token_to_id("[UNK]")


def _find_cuts(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Find the characters before which a text can be cut without a change of the tokens before them.

    Those are the blanks and Chinese characters at which the tokenizer splits a text before it looks for tokens. Return
    None if it does not split texts.
    """
    normalizer, splitter = tokenizer.normalizer, tokenizer.pre_tokenizer

    def splits(text: str) -> bool:
        text = normalise(text)
        return len(splitter.pre_tokenize_str(normalizer.normalize_str(text) if normalizer else text)) > 1

    if splitter is None:
        return None
    characters = "".join(each for each in _BLANKS if splits(f"a{each}b"))
    if splits("三角") and splits("a三"):
        characters += _IDEOGRAPHS
    # A run of blanks is never cut, as some tokenizers have tokens for such runs.
    return re.compile(rf"(?<=\S)[{characters}]") if characters else None


def _compute_signature(folder: Path) -> str:
    """Compute the SHA-256 over the normal form and the name and SHA-256 of each file."""
    total = hashlib.sha256(f"{NORMAL_FORM}\n".encode())
    for name in FILES + ((QUERY_FILE,) if (folder / QUERY_FILE).is_file() else ()):
        total.update(f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
