"""Embedding models: static tables, sentence-transformers, and the normal form of texts."""

import hashlib
import logging
import re
import unicodedata
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from mathrag.errors import Refused, TooLarge, Unavailable
from mathrag.installation import not_installed
from mathrag.messages import redact
from shared import canonical
from shared.models import files
from shared.replies import FailureKind
from shared.settings import Embeddings

# The Unicode normal form in which embedders and the sparse index read texts.

NORMAL_FORM: Final = "NFKC"
"""It maps fullwidth digits and letters and ligatures to ordinary ones. Part of every embedder's signature."""


def normalise(text: str) -> str:
    """Return `text` in the form in which it is passed to a tokenizer."""
    return unicodedata.normalize(NORMAL_FORM, text)


class ModelFailed(Exception):
    """An embedder or reranker gave no usable answer; the message holds no secret."""

    def __init__(self, kind: FailureKind, detail: str, what: str = "") -> None:
        self.kind = kind
        self.detail = redact(detail)
        self.what = redact(what)
        """The server that is away, if `kind` is `unavailable`."""
        super().__init__(f"{kind.value}: {self.detail}")


class Embedder(Protocol):
    """Embeds texts as vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def signature(self) -> str:
        """Hex digest of everything that determines a vector, and so part of the identity of an index."""

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed questions as vectors [len(texts), dimension] of length 1; zero for a text without a known token.

        Raises:
            TooLarge: a text is longer than the model can hold.
            Unavailable: the server behind it gives no vectors, or unusable ones.
        """

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed documents, which some models treat differently from questions; see `embed_queries`.

        Raises:
            TooLarge, Unavailable: as `embed_queries`.
        """


class Encoder(Protocol):
    """A model behind an `Embedder`, with unchecked vectors of any length."""

    def identity(self) -> dict[str, str]:
        """Return everything about the model that determines a vector, if need be from its server.

        Raises:
            ModelFailed: the server does not tell.
        """

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector per text, in one request. Safe to call from several threads.

        Raises:
            ModelFailed: vectors are missing; `context_exceeded` if a text is too long.
        """

    def close(self) -> None:
        """Free the model or close the connections."""


class CrossEncoder(Protocol):
    """A model that reads question and document together, with unchecked scores."""

    def scores(self, question: str, documents: Sequence[str]) -> Sequence[float]:
        """Return one score per document, in order, in one request. Safe to call from several threads.

        Raises:
            ModelFailed: scores are missing; `context_exceeded` if a pair is too long.
        """

    def close(self) -> None:
        """Free the model or close the connections."""


class RerankingModel(Protocol):
    """Estimates how probable it is that a document helps with a question."""

    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        """Return one score in [0, 1] per document, in order.

        Raises:
            ModelFailed: scores are missing, or unusable ones.
        """


_log = logging.getLogger(__name__)
PROBE = "a"
"""Text whose vector tells the dimension."""
TOO_LONG = "set `retrieval.embeddings.too_long: cut`, or a `max_chars` that fits the model; both need a new index"
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
        return self._embed(self._queries, texts, self._settings.query_prefix)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
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
        given, wanted = (" and ".join(map(str, sorted(each))) for each in (lengths, expected))
        raise _make_useless_error(f"vectors of {given} numbers where {wanted} were expected")
    vectors = np.asarray(found, dtype=np.float64)
    if not np.isfinite(vectors).all():
        raise _make_useless_error("vectors that contain NaN or infinity")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


def _make_useless_error(what: str) -> ModelFailed:
    return ModelFailed(FailureKind.BACKEND_ERROR, f"the embedding model gave {what}")


def _translate_failure(failed: ModelFailed) -> TooLarge | Unavailable:
    if failed.kind is FailureKind.CONTEXT_EXCEEDED:
        return TooLarge(f"a text is too long for the embedding model: {failed.detail}", hint=TOO_LONG)
    message = f"no embeddings: {failed.detail}"
    if failed.kind is FailureKind.UNAVAILABLE:
        return Unavailable(message, hint=FIX, what=failed.what)
    return Refused(message, hint=FIX)


# Models of sentence-transformers in this process, on the CPU; they need the extra `rerank`, which installs torch.
#
# A model is loaded at its first use, and truncates texts at its own length, as the library does.

LIBRARY = "sentence-transformers"
MODULE = "sentence_transformers"
DEVICE = "cpu"
"""The CPU, since only the guard may use a GPU's memory."""


class SentenceModel:
    """A model from a folder or the hub, for one thread at a time, since its tokenizer is not thread-safe."""

    def __init__(self, kind: str, path: Path | None, model: str, revision: str) -> None:
        """Check for the library and the folder without loading the model.

        Raises:
            NotInstalled: the library is missing.
            Unavailable: the folder is not there.
        """
        if find_spec(MODULE) is None:
            raise not_installed(LIBRARY, "mathrag-gate[rerank]")
        if not model and not (path and path.is_dir()):
            raise Unavailable(f"no model folder at {path}", hint="correct the `path` under `retrieval` in mathrag.yaml")
        self._kind = kind
        self._path = None if model else path
        self._name = model
        self._revision = revision
        self._lock = Lock()
        self._model: Any = None

    def identity(self) -> dict[str, str]:
        """Return the folder's hash, or name and revision on the hub, with the library's version."""
        which = {"digest": files.digest(self._path)} if self._path else {"name": self._name, "revision": self._revision}
        return {"kind": LIBRARY, "version": version(LIBRARY), **which}

    def ask(self, method: str, *given: object, **options: object) -> Any:
        """Call a method of the model and return its result.

        Raises:
            ModelFailed: the model cannot be loaded, or the method raised.
        """
        with self._lock:
            try:
                if self._model is None:
                    load, where = getattr(import_module(MODULE), self._kind), self._name or str(self._path)
                    revision, local = self._revision or None, self._path is not None
                    self._model = load(where, device=DEVICE, revision=revision, local_files_only=local)
                return getattr(self._model, method)(*given, show_progress_bar=False, **options)
            except Exception as error:  # torch, the hub and the model's files raise all kinds of exceptions
                raise ModelFailed(FailureKind.BACKEND_ERROR, f"{LIBRARY}: {error!r}"[:500]) from error

    def close(self) -> None:
        self._model = None


class SentenceEncoder:
    """An `Encoder` of documents; `queries` encodes questions, which differs for a model with a `Router`."""

    def __init__(self, path: Path | None, model: str, revision: str) -> None:
        self._model = SentenceModel("SentenceTransformer", path, model, revision)
        self._method = "encode_document"

    @property
    def queries(self) -> Self:
        """Return an encoder of questions that shares this one's model."""
        other = copy(self)
        other._method = "encode_query"
        return other

    def identity(self) -> dict[str, str]:
        return self._model.identity()

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`; a prompt in the model's folder is not used, since prefixes are settings."""
        found: list[list[float]] = self._model.ask(self._method, list(texts), prompt="").tolist()
        return found

    def close(self) -> None:
        self._model.close()


class SentenceCrossEncoder(SentenceModel):
    """A `CrossEncoder` whose scores are logits, regardless of the activation that the model's folder names."""

    def __init__(self, path: Path | None, model: str, revision: str) -> None:
        super().__init__("CrossEncoder", path, model, revision)

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        pairs = [(question, document) for document in documents]
        identity = import_module("torch").nn.Identity()
        found = self.ask("predict", pairs, activation_fn=identity)
        if found.shape != (len(pairs),):
            problem = f"the cross-encoder gives {found.shape[-1]} scores per pair; use one that gives a single score"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem)
        scores: list[float] = found.tolist()
        return scores


# Static embeddings (Model2Vec format): a text's vector is the mean of its tokens' vectors from a table.

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


class TokenTable:
    """Token vectors [tokens, dimension] as in their file, whose int8 rows take a quarter of the memory of floats."""

    def __init__(self, rows: NDArray[Any], weights: NDArray[np.float32]) -> None:
        """`weights` [tokens] are the rows' factors."""
        self._rows = rows
        self._weights = weights
        self.shape = rows.shape

    def __getitem__(self, ids: Any) -> NDArray[np.float32]:
        """Return the vectors of these tokens."""
        found: NDArray[np.float32] = self._rows[ids].astype(np.float32)
        found *= self._weights[ids, None]
        return found


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
                hint="Set `retrieval.embeddings.path`, or make them with `python -m tools.embeddings.distil`",
            )
        total = hashlib.sha256(f"{NORMAL_FORM}\n".encode())
        for name in FILES + ((QUERY_FILE,) if (folder / QUERY_FILE).is_file() else ()):
            total.update(f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n".encode())
        self.signature = total.hexdigest()
        self._vectors = _read_table(folder / "model.safetensors")
        self.query_table = self._vectors
        """Token vectors of questions."""
        if (file := folder / QUERY_FILE).is_file():
            self.query_table = _read_table(file)
            shapes = (self.query_table.shape, self._vectors.shape)
            if shapes[0] != shapes[1]:
                sizes = " and ".join(f"{rows} tokens of {width} numbers" for rows, width in shapes)
                raise _make_unusable_error(file, f"belongs to other embeddings: it and model.safetensors have {sizes}")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._unknown = self._tokenizer.token_to_id("[UNK]")
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

    def _embed(self, texts: Sequence[str], table: TokenTable) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            for row, ids in enumerate(self.token_ids(texts[start : start + _BATCH]), start=start):
                total = table[ids].sum(axis=0, dtype=np.float64)
                length = float(np.linalg.norm(total))
                direction: NDArray[np.float32] = (total / length if length > 0 else total).astype(np.float32)
                vectors[row] = direction
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


def _read_table(file: Path) -> TokenTable:
    """Read token vectors [tokens, dimension]; int8 rows have one `weights` factor each.

    Raises:
        Unavailable: the file is damaged, or holds no such table.
    """
    try:
        tensors = load_file(file)
        rows, weights = tensors["embeddings"], tensors.get("weights", np.ones(1)).astype(np.float32)
        table = TokenTable(rows, np.broadcast_to(weights, rows.shape[:1]))
        usable = rows.ndim == 2 and all(
            np.isfinite(table[at : at + _BATCH]).all() for at in range(0, len(rows), _BATCH)
        )
    except (SafetensorError, KeyError, ValueError) as error:
        raise _make_unusable_error(file, f"does not contain a table of token vectors: {error}") from error
    if not usable:
        raise _make_unusable_error(file, "does not contain a table of finite token vectors")
    return table


def _make_unusable_error(file: Path, why: str) -> Unavailable:
    hint = "Copy it, or make it again: `python -m tools.embeddings.distil`, for questions `python -m tools.embeddings`"
    return Unavailable(f"{file} {why}", hint=hint)


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
