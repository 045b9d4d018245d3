"""Search indexes: dense and sparse, on the processor and the GPU, and their files."""

import ctypes
import hashlib
import logging
import math
import re
import shutil
import sys
import unicodedata
import warnings
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable
from weakref import WeakSet

import faiss
import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray

from mathrag.errors import Invalid, Refused, Unavailable
from mathrag.installation import not_installed
from shared import canonical
from shared.lease.memory import CUDA_CONTEXT_MIB
from shared.models.embedding import Embedder

# FAISS's default compares up to some 300 questions pair by pair, which takes three times as long as a matrix product.
faiss.cvar.distance_compute_blas_threshold = 16

# Interfaces of search indexes and of the back ends that build and load them.


class IndexMatch(NamedTuple):
    """A document that an index has found."""

    document: str
    """Its hash, in hex."""
    score: float
    """Larger is better; comparable within one index only."""


Batch = Sequence[tuple[str, str]]
"""Documents to index: (hash in hex, text). A hash occurs once per index."""


class SearchIndex(Protocol):
    """An immutable set of documents that can be searched. Safe to search from several threads."""

    @property
    def documents(self) -> Sequence[str]:
        """Hashes of all documents in ascending order."""

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return at most `k` matches per question, by descending score, then ascending hash.

        The matches of a question do not depend on the other questions.
        """

    def save(self, folder: Path) -> None:
        """Write all that `load` needs into the empty `folder`."""


@runtime_checkable
class DenseIndex(SearchIndex, Protocol):
    """Finds the nearest vectors; documents with a zero vector are never found."""

    @property
    def dimension(self) -> int:
        """Return the length of a vector."""

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[IndexMatch]]:
        """Search for vectors [n, dimension] of length 1; a zero vector finds nothing. See `search`."""


UNSIGNED = "0" * 64
"""Signature of an index without a row in the database."""

I_co = TypeVar("I_co", bound=SearchIndex, covariant=True)


class Backend(Protocol[I_co]):
    """Makes and loads the indexes of one kind."""

    @property
    def kind(self) -> str:
        """Return "dense" or "sparse"."""

    def recipe(self) -> dict[str, Any]:
        """Return everything but the documents that determines scores, as JSON values; hashed into the signature."""

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> I_co:
        """Index all documents of `batches`, which are read once, in order.

        Args:
            batches: the documents.
            signature: digest of the recipe in hex, which is part of the index's name on a server.

        Raises:
            Invalid: documents are missing.
        """

    def load(self, folder: Path) -> I_co:
        """Load the index that `save` wrote into `folder`."""

    def check(self, folder: Path) -> None:
        """Check the requirements of the index outside of `folder`.

        Raises:
            UnsoundIndex: it is missing or damaged.
            Unavailable: the server does not answer.
        """

    def point(self, folder: Path, corpus: int) -> None:
        """Record that the corpus with this id now uses the index in `folder`."""


class FolderBackend:
    """Base of a `Backend` whose indexes are completely in their folders."""

    def check(self, folder: Path) -> None:
        """Do nothing: the index is completely in its folder."""

    def point(self, folder: Path, corpus: int) -> None:
        """Do nothing: the row of the corpus tells which index it uses."""


# Memory: what is freed returns to the system, and what does not fit is refused.

CGROUP = Path("/sys/fs/cgroup")
"""Where a container sees its limit (version 2); outside of one, it has no such files."""
MORE_MEMORY = (
    "give the retriever more memory, or use Elasticsearch (`retrieval.dense.backend`, `retrieval.sparse.backend`)"
)


def return_freed_memory() -> None:
    """Give freed memory back to the system: glibc keeps 200 MiB after a build of 80,000 documents.

    Where there is no glibc, nothing is done.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def find_free_memory() -> int:
    """Return the free bytes of the machine, or of the container if it has fewer; those of cached files are free."""
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no container, or "max": it has no limit
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        uses = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        free = min(free, limit - used + int(uses["active_file"]) + int(uses["inactive_file"]))
    return free


def require_memory(needed: int, what: str) -> None:
    """Refuse an index that does not fit into memory, for which the system would kill the service.

    Args:
        needed: bytes that it takes at least.
        what: the index, for the message.

    Raises:
        Unavailable: fewer bytes are free.
    """
    free = find_free_memory()
    if needed > free:
        message = f"{what} does not fit into memory: it needs {needed >> 20} MiB more, and {free >> 20} MiB are free"
        raise Unavailable(message, hint=MORE_MEMORY, what="memory")


# Write and verify an index on disk: a folder named by its signature, whose manifest has the hash of every file.

MANIFEST = "manifest.json"
REBUILD = "Build the corpus's indexes again: `mathrag corpus index NAME`"
LONGEST = 40
"""Longest value, in characters, that messages do not shorten."""


class UnsoundIndex(Refused):
    """An index is damaged or outdated and must be built again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=REBUILD)


class IndexManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of an index's folder."""

    recipe: dict[str, Any]
    """How it was built; its digest is the signature."""
    documents: int
    files: dict[str, str]
    """File name -> SHA-256 in hex."""


def write_index(root: Path, recipe: dict[str, Any], index: SearchIndex) -> tuple[Path, bytes]:
    """Save `index` below `root`, all or nothing; a folder of the same signature is replaced.

    Returns:
        The folder, and the SHA-256 of its manifest.

    Raises:
        Unavailable: the file system refuses, for example because the disk is full.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(prefix=".building-", dir=root))
        try:
            index.save(unfinished)
            files = {file.name: _compute_sha256(file).hex() for file in sorted(unfinished.iterdir())}
            manifest = IndexManifest(recipe=recipe, documents=len(index.documents), files=files)
            (unfinished / MANIFEST).write_bytes(canonical.encode(manifest))
            folder = root / canonical.digest(recipe).hex()
            if folder.exists():  # processes that have the old one open keep it
                replaced = unfinished.with_name(unfinished.name + "-replaced")
                folder.rename(replaced)
                shutil.rmtree(replaced)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return folder, _compute_sha256(folder / MANIFEST)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "free disk space, then `mathrag corpus index NAME`: the build continues where it stopped"
        raise Unavailable(f"the index cannot be written below {root}: {reason}", hint=hint) from error


def verify(folder: Path, recipe: dict[str, Any], file_hash: bytes) -> None:
    """Verify that `folder` is the registered index and that this code would build the same.

    Raises:
        UnsoundIndex: a file is missing or changed, or the index was built by another recipe.
    """
    try:
        found = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(found).digest() != file_hash:
            raise make_refusal(folder, f"{MANIFEST} is not the index that was registered")
        manifest = msgspec.json.decode(found, type=IndexManifest)
        differing = sorted(key for key in manifest.recipe | recipe if manifest.recipe.get(key) != recipe.get(key))
        if differing:
            differences = (
                f"{key} ({_shorten(manifest.recipe.get(key))}, now {_shorten(recipe.get(key))})" for key in differing
            )
            raise make_refusal(folder, f"it was built with another {', '.join(differences)}")
        for name, expected in manifest.files.items():
            if _compute_sha256(folder / name).hex() != expected:
                raise make_refusal(folder, f"{name} differs from the file that was built")
    except OSError as error:
        raise make_refusal(folder, f"{error.filename} cannot be read") from error


def make_refusal(folder: Path, reason: str) -> UnsoundIndex:
    """Make the error of an index that cannot be searched."""
    return UnsoundIndex(f"Index {folder.name[:12]} cannot be used: {reason}")


def _shorten(value: object) -> str:
    """Format a recipe's value, and only the beginning of a digest."""
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:12]}…"


def _compute_sha256(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


# Read and write the hashes of an index's documents, a file of 32 bytes each.

HASHES_FILE = "documents.bin"


def write_hashes(folder: Path, documents: Sequence[str]) -> None:
    """Write the hex hashes `documents` into `folder`, in order."""
    (folder / HASHES_FILE).write_bytes(b"".join(map(bytes.fromhex, documents)))


def read_hashes(folder: Path) -> list[str]:
    """Read the hex hashes that `write_hashes` wrote, in order."""
    data = (folder / HASHES_FILE).read_bytes()
    return [data[at : at + 32].hex() for at in range(0, len(data), 32)]


def sort_positions(documents: Sequence[str]) -> list[int]:
    """Return the positions of `documents` in ascending order of hash."""
    if not documents:
        raise Invalid("the corpus has no documents to index: upload some")
    # `sorted` would hold the interpreter lock: a service of a million documents answers nothing for a second.
    order: list[int] = np.argsort(np.array(documents, dtype=np.bytes_), kind="stable").tolist()
    return order


# Layouts of FAISS indexes: flat, as a graph (HNSW), or in lists around centroids (IVF).
#
# A layout only proposes documents, whose cosines are then computed in double precision, so that scores do not depend on
# it. A graph or a list may miss a near document, but deterministically: neither the build nor the other questions of a
# batch change the result.

LEAST_PER_LIST = 39
"""Lower bound of documents per centroid, below which FAISS warns and finds less."""
SEED = 0
"""Seed of the k-means that finds the centroids."""

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]
Near = Callable[[Vectors, int], Positions]
"""Questions [n, dimension] and k to positions [n, k] of the nearest vectors; -1 where there are no more."""


class VectorLayout(ABC):
    """Builds and searches an index of FAISS."""

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """Return everything that determines which documents are proposed."""

    @abstractmethod
    def lay(self, vectors: Vectors) -> Any:
        """Build an index of `vectors` [n, dimension], deterministically."""

    def finder(self, index: Any) -> Near:
        """Return the function that searches an index of this layout. Safe to call from several threads."""

        def near(questions: Vectors, k: int) -> Positions:
            found: Positions = index.search(questions, k)[1]
            return found

        return near


class Flat(VectorLayout):
    """Searches all vectors exactly; ask for more than `k`, as the last bit of a score depends on the batch's size."""

    def recipe(self) -> dict[str, Any]:
        return {"backend": "faiss IndexFlatIP"}

    def lay(self, vectors: Vectors) -> Any:
        """Build an index of `vectors`: 4 bytes a number."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index


class Hnsw(VectorLayout):
    """A navigable graph (Malkov and Yashunin 2016): a search compares about log n documents, and takes the best of
    `search` candidates, or of k if that is more.
    """

    def __init__(self, neighbours: int, build: int, search: int) -> None:
        self._neighbours = neighbours
        self._build = build
        self._search = search

    def recipe(self) -> dict[str, Any]:
        """Return M, efConstruction and efSearch, and FAISS's version, since another one may link otherwise."""
        parameters = {"neighbours": self._neighbours, "candidates": self._build, "search": self._search}
        return {"backend": f"faiss {faiss.__version__} IndexHNSWFlat", **parameters}

    def lay(self, vectors: Vectors) -> Any:
        """Build the graph with one thread: several would link in an order that differs from run to run."""
        index = faiss.IndexHNSWFlat(vectors.shape[1], self._neighbours, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self._build
        index.hnsw.efSearch = self._search
        with _limit_to_one_thread():
            index.add(vectors)
        return index


class Ivf(VectorLayout):
    """Lists around centroids: those of the nearest ones are searched."""

    def __init__(self, lists: int, probes: int) -> None:
        self._lists = lists
        self._probes = probes

    def recipe(self) -> dict[str, Any]:
        """Return the number of lists and of probes, and FAISS's version, since another one may find other centroids."""
        parameters = {"lists": self._lists, "probes": self._probes, "seed": SEED}
        return {"backend": f"faiss {faiss.__version__} IndexIVFFlat", **parameters}

    def lay(self, vectors: Vectors) -> Any:
        """Build the lists; a small corpus gets fewer than were asked for."""
        dimension = vectors.shape[1]
        lists = self.lists(len(vectors))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = SEED
        index.cp.min_points_per_centroid = 1  # one list may hold less, without a warning
        index.nprobe = min(self._probes, lists)
        with _limit_to_one_thread():
            index.train(vectors)
            index.add(vectors)
        index.make_direct_map()  # so that a vector is found by its position
        return index

    def lists(self, documents: int) -> int:
        """Return the number of lists; by default four times the square root (FAISS's guidelines: 4 to 16 times)."""
        return max(1, min(self._lists or 4 * math.isqrt(documents), documents // LEAST_PER_LIST))

    def finder(self, index: Any) -> Near:
        """Return a function that compares the centroids itself, one question at a time: FAISS's last bit depends on the
        batch."""
        centroids = index.quantizer.reconstruct_n(0, index.nlist).astype(np.float64)

        def near(questions: Vectors, k: int) -> Positions:
            scores = np.stack([(centroids * question).sum(axis=1) for question in questions])
            lists = np.argsort(-scores, axis=1, kind="stable")[:, : index.nprobe]
            nearest = np.take_along_axis(scores, lists, axis=1)
            found: Positions = index.search_preassigned(questions, k, lists, nearest)[1]
            return found

        return near


@contextmanager
def _limit_to_one_thread() -> Iterator[None]:
    """Limit OpenMP to one thread inside the block; its setting is per calling thread."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


# Cut runs of Chinese, Japanese and Korean, which are written without blanks, into terms.
#
# This uses jieba's search mode, which yields a long word and those inside it; or every character and every pair
# of neighbours, which needs no dictionary (as Lucene's CJK analyser does, with single characters in addition).

Cut = Callable[[str], list[str]]
"""Cuts a run of CJK characters into its terms, in order."""

_HAN = re.compile("([\u4e00-\u9fd5]+)")
"""The characters in jieba's dictionary; rarer ones, kana and hangul are not in it."""
_LOADING = Lock()


def split_pairs(run: str) -> list[str]:
    """Return every character, then every pair of neighbours."""
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def split_words(run: str) -> list[str]:
    """Return the words of jieba's search mode, and pairs of the other words.

    Raises:
        NotInstalled: jieba is not installed.
    """
    return [
        term
        for part in _HAN.split(run)
        for term in (_get_tokenizer().lcut_for_search if _HAN.match(part) else split_pairs)(part)
    ]


def _get_tokenizer() -> Any:
    with _LOADING:
        return load_tokenizer()


@cache
def load_tokenizer() -> Any:
    """Make our own tokenizer, and read its dictionary: about a second and 64 MB.

    jieba's `initialize` would take its dictionary from any file called `jieba.cache` in the machine's temporary folder.
    """
    tokenizer = import_jieba().Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


@cache
def import_jieba() -> Any:
    """Import jieba without the log handlers that it installs, and without the warnings about escapes in its strings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import jieba
    except ImportError:
        needs_it = "`retrieval.sparse.chinese: jieba` needs it, `bigrams` does not"
        raise not_installed("jieba", "mathrag-gate[zh]", needs_it) from None
    log = logging.getLogger("jieba")
    log.setLevel(logging.WARNING)
    log.handlers.clear()
    return jieba


# Cut mathematical text into tokens for BM25: `\frac`, `x^2`, numbers and words stay whole; CJK runs are cut
# (`chinese`).

VERSION = 1
"""Version in every sparse index's signature: increase it with any change below."""

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_TOKEN = re.compile(
    rf"""
      \\[a-z]+                            # \frac, \boxed
    | [{_CJK}]+                           # a run of Chinese, Japanese or Korean
    | [^\W\d_{_CJK}][\^_]\{{?\w+\}}?      # x^2, a_n, x^{{10}}: one letter with its exponent or index
    | \d+(?:[.,]\d+)*                     # 12, 3.14, 40,000
    | [^\W\d_{_CJK}]+(?:'[a-z]+)?         # words, also accented
    """,
    re.VERBOSE,
)
_IS_CJK = re.compile(f"[{_CJK}]")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,)(?=\d{3}(?!\d))|(?<=\d),\\!(?=\d{3}(?!\d))")


def tokenise(text: str, cut: Cut = split_pairs) -> list[str]:
    r"""Return the tokens of `text` in order, lower-cased, NFKC; `40{,}000`, `40,000` and `40000` are one token.

    A run of CJK characters yields the terms of `cut`; no token holds a blank.
    """
    normal = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).lower())
    tokens: list[str] = []
    for found in _TOKEN.findall(normal):
        tokens += cut(found) if _IS_CJK.match(found) else _split_power(found)
    return tokens


def _split_power(token: str) -> list[str]:
    """Yield `x^{10}` as `x^10` and also as `x` and `10`, so that it matches the bare variable."""
    if "^" not in token and "_" not in token:
        return [token]
    power = token.replace("{", "").replace("}", "")
    return [power, *re.split(r"[\^_]", power)]


class TermCutter:
    """Cuts documents and questions into terms, for all sparse indexes."""

    def __init__(self, cut: Literal["auto", "jieba", "bigrams"] = "bigrams") -> None:
        """Set up the tokenizer.

        Raises:
            NotInstalled: jieba is asked for and not installed.
        """
        pairs = cut == "bigrams" or (cut == "auto" and find_spec("jieba") is None)
        self._cut, self._made_by = (split_pairs, "") if pairs else (split_words, f"jieba {import_jieba().__version__}")

    def of(self, text: str) -> list[str]:
        """Return the terms of `text` in order, with repetitions."""
        return tokenise(text, self._cut)

    def recipe(self) -> dict[str, Any]:
        """Return the values that determine the terms. Pairs of characters add nothing, so that indexes from before the
        choice stay valid."""
        return {"tokens": VERSION} | ({"chinese": self._made_by} if self._made_by else {})


PAIRS = TermCutter()
"""The default, which needs no dictionary."""

# Search vectors in this process, by inner product (FAISS).

VECTORS_FILE = "vectors.faiss"
MARGIN = 16
"""Extra candidates per search, which are scored again: FAISS's scores differ in the last bit with the batch's size."""
LOOK = 1000
"""Vectors that are read in one step to find those that are zero."""
SCORED = 500
"""Candidates scored in one step: a core's cache holds their vectors, and with 2,000 it takes three times as long."""


class FaissIndex:
    """A `DenseIndex` in memory; scores are cosines in double precision, so that every batch gives the same ones."""

    def __init__(self, index: Any, documents: list[str], embedder: Embedder, layout: VectorLayout) -> None:
        self._index = index
        self._embedder = embedder
        self._near = layout.finder(index)
        # Find the positions of documents with a zero vector, whose cosine with every question would be 0.
        starts = range(0, index.ntotal, LOOK)
        blocks = (index.reconstruct_n(start, min(LOOK, index.ntotal - start)) for start in starts)
        self._zero = np.flatnonzero(~np.concatenate([block.any(axis=1) for block in blocks]))
        self.documents = documents

    @property
    def dimension(self) -> int:
        return int(self._index.d)

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return the `k` nearest documents of each question, or as many as the layout finds."""
        return self.search_vectors(self._embedder.embed_queries(questions), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[IndexMatch]]:
        if not vectors.any():
            return [[] for _ in vectors]
        near = self._near(vectors, min(k + MARGIN + len(self._zero), len(self.documents)))
        near = np.sort(np.where(np.isin(near, self._zero), -1, near), axis=1)  # equal scores stay in order of position
        step = max(1, SCORED // near.shape[1])
        starts = range(0, len(vectors), step)
        return [each for at in starts for each in self._find_matches(vectors[at : at + step], near[at : at + step], k)]

    def _find_matches(self, vectors: Vectors, near: Positions, k: int) -> Iterator[list[IndexMatch]]:
        found = self._index.reconstruct_batch(np.maximum(near, 0).ravel()).reshape(*near.shape, self.dimension)
        scores = (found.astype(np.float64) * vectors[:, np.newaxis]).sum(axis=2)
        scores[(near < 0) | ~vectors.any(axis=1, keepdims=True)] = -math.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows = (np.take_along_axis(values, best, axis=1).tolist() for values in (near, scores))
        for positions, values in zip(*rows, strict=True):
            pairs = zip(positions, values, strict=True)
            yield [IndexMatch(self.documents[at], score) for at, score in pairs if score > -math.inf]

    def save(self, folder: Path) -> None:
        # FAISS's own writer does not notice a disk that is full only when the file is closed.
        with (folder / VECTORS_FILE).open("wb") as file:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]
        write_hashes(folder, self.documents)


class Faiss(FolderBackend):
    """The `Backend` of dense indexes in this process."""

    kind = "dense"

    def __init__(self, embedder: Embedder, layout: VectorLayout | None = None) -> None:
        self._embedder = embedder
        self._layout = layout or Flat()

    def recipe(self) -> dict[str, Any]:
        embedder = {"embedder": self._embedder.signature, "dimension": self._embedder.dimension}
        return {**self._layout.recipe(), **embedder}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> FaissIndex:  # noqa: ARG002 - files bear it
        """Embed and index all documents; the vectors are in memory twice, 4 bytes a number.

        Raises:
            Unavailable: there is not enough memory.
        """
        documents: list[str] = []
        parts: list[NDArray[np.float32]] = []
        for batch in batches:
            documents += [document for document, _ in batch]
            parts.append(self._embedder.embed_documents([text for _, text in batch]))
            copy = 4 * len(documents) * self._embedder.dimension
            require_memory(copy, f"the dense index of its first {len(documents)} documents")
        order = sort_positions(documents)
        places, ordered = np.argsort(order), np.empty((len(order), self._embedder.dimension), dtype=np.float32)
        while parts:  # a part is freed once it is copied
            part = parts.pop()
            places, here = np.split(places, [len(places) - len(part)])
            ordered[here] = part
        return_freed_memory()
        index = self._layout.lay(ordered)
        return FaissIndex(index, [documents[at] for at in order], self._embedder, self._layout)

    def load(self, folder: Path) -> FaissIndex:
        index = faiss.read_index(str(folder / VECTORS_FILE))
        return FaissIndex(index, read_hashes(folder), self._embedder, self._layout)


# Search words in this process: BM25 as in Lucene, ln(1 + (N - n + .5) / (n + .5)) * f / (f + k1 (1 - b + b |d| /
# avgdl)).

K1 = 1.2
B = 0.75


@cache
def import_bm25s() -> Any:
    """Import the library at the first use of a sparse index: with SciPy it takes 11 MiB.

    Where JAX is installed, bm25s starts it when it is imported, and JAX then takes most of the GPU's memory (seen on an
    H200 with 12 GiB free: 11 GiB). It is not needed here.
    """
    sys.modules.setdefault("jax", None)  # type: ignore[arg-type]
    try:
        library = import_module("bm25s")
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # its import sets DEBUG
        return library
    finally:
        if sys.modules["jax"] is None:
            del sys.modules["jax"]


METHOD = "lucene"
GROUP = 32
"""Scores of which a search for the best ones first looks at the maximum."""


class Bm25Index:
    """Finds documents that share terms with the question; a term that the question repeats counts as often."""

    def __init__(self, scorer: Any, documents: list[str], words: TermCutter) -> None:
        self._scorer = scorer
        self._words = words
        self.documents = documents
        self._scores, self._found, self._starts = (scorer.scores[name] for name in ("data", "indices", "indptr"))
        self._common = {int(term): self._spread(term) for term in self._find_common_terms()}

    def _find_common_terms(self) -> NDArray[np.intp]:
        """Return the terms whose scores are kept for all documents, with at most the memory that all postings take.

        To add up so long a row at once is faster from one document in sixteen on.
        """
        holding, documents = np.diff(self._starts), len(self.documents)
        most_common = np.argsort(-holding, kind="stable")[: 2 * len(self._scores) // documents]
        found: NDArray[np.intp] = most_common[holding[most_common] > documents / 16]
        return found

    def _spread(self, term: np.intp) -> NDArray[np.float32]:
        """Return a term's score for every document, 0 where it does not occur."""
        scores = np.zeros(len(self.documents), dtype=np.float32)
        postings = slice(self._starts[term], self._starts[term + 1])
        scores[self._found[postings]] = self._scores[postings]
        return scores

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        return [self._find_matches(question, k) for question in questions]

    def _find_matches(self, question: str, k: int) -> list[IndexMatch]:
        scores = self._score(self._scorer.get_tokens_ids(self._words.of(question)))
        chosen = find_best(scores, k)
        return [
            IndexMatch(self.documents[at], score) for at, score in zip(chosen, scores[chosen].tolist(), strict=True)
        ]

    def _score(self, terms: Sequence[int]) -> NDArray[np.float32]:
        """Add up the terms' scores in the question's order, and so to the last bit of `BM25.get_scores_from_ids`."""
        scores = np.zeros(len(self.documents), dtype=np.float32)
        for term in terms:
            if (common := self._common.get(term)) is not None:
                scores += common
            else:
                postings = slice(self._starts[term], self._starts[term + 1])
                scores[self._found[postings]] += self._scores[postings]
        return scores

    def save(self, folder: Path) -> None:
        self._scorer.save(folder, show_progress=False)
        write_hashes(folder, self.documents)


class Bm25(FolderBackend):
    """The `Backend` of sparse indexes in this process."""

    kind = "sparse"

    def __init__(self, words: TermCutter = PAIRS, *, k1: float = K1, b: float = B) -> None:
        self._words = words
        self._k1 = k1
        self._b = b

    def recipe(self) -> dict[str, Any]:
        formula = {"method": METHOD, "k1": self._k1, "b": self._b}
        return {"backend": f"bm25s {version('bm25s')}", **formula, **self._words.recipe()}

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> Bm25Index:  # noqa: ARG002 - files bear it
        """Index all documents; of their texts only the numbers of the terms stay in memory."""
        vocabulary = {"": 0}
        documents: list[str] = []
        terms: list[array[int]] = []  # the garbage collector visits all that lists hold, for seconds
        for batch in batches:
            for document, text in batch:
                documents.append(document)
                numbers = [vocabulary.setdefault(term, len(vocabulary)) for term in self._words.of(text)]
                terms.append(array("i", numbers))
        order = sort_positions(documents)
        if not any(terms):
            terms = [array("i", [0])] * len(terms)  # the empty term: an average length of 0 cannot be divided by
        scorer = import_bm25s().BM25(method=METHOD, k1=self._k1, b=self._b, backend="numpy", csc_backend="scipy")
        scorer.index(([terms[at] for at in order], vocabulary), show_progress=False)
        return Bm25Index(scorer, [documents[at] for at in order], self._words)

    def load(self, folder: Path) -> Bm25Index:
        return Bm25Index(import_bm25s().BM25.load(folder, show_progress=False), read_hashes(folder), self._words)


def find_best(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Return the positions of the `k` largest positive scores, in descending order; ties by position."""
    # The k-th largest of some maxima is no larger than that of all scores, and is found sooner.
    maxima = scores[: len(scores) // GROUP * GROUP].reshape(GROUP, -1).max(axis=0)
    least = next((np.partition(some, -k)[-k] for some in (maxima, scores) if len(some) > k), np.float32(0))
    found = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores > 0)
    return found[np.argsort(-scores[found], kind="stable")][:k]


# Search flat indexes on the GPU, within the memory that the settings set aside for them.
#
# Only FAISS's own count of GPUs tells whether there is one: FAISS's GPU package has its functions also on machines
# without a GPU, and the CPU package lacks them.

SCRATCH_MIB = 64
"""FAISS's scratch memory, by default 18 % of the GPU or 1.5 GiB; a larger search is cut into more steps."""
MIB = 1 << 20

_log = logging.getLogger(__name__)


class GpuCopy:
    """A copy of an index's vectors on the GPU, which is freed with its last reference."""

    def __init__(self, index: Any, mib: float) -> None:
        self.index = index
        self.mib = mib


class GpuFlat(Flat):
    """Searches a flat index on the GPU as far as `mib` suffices.

    The candidates and so the scores are those of the CPU. An index that does not fit, or fails on the GPU, is searched
    on the CPU.
    """

    def __init__(self, mib: int) -> None:
        self._mib = mib
        self._resources = faiss.StandardGpuResources()
        self._resources.setTempMemory(SCRATCH_MIB * MIB)
        self._copies: WeakSet[GpuCopy] = WeakSet()
        self._one_at_a_time = Lock()  # FAISS's GPU indexes are not safe for threads, and share the scratch memory

    @property
    def used_mib(self) -> float:
        """Return the memory in use, in MiB: CUDA's context, scratch memory and the vectors."""
        return CUDA_CONTEXT_MIB + SCRATCH_MIB + sum(copy.mib for copy in self._copies)

    def finder(self, index: Any) -> Near:
        """Return a function that searches on the GPU if there is room, and else on the CPU."""
        on_cpu, copy = super().finder(index), self._copy_to_gpu(index)
        if copy is None:
            return on_cpu

        def near(questions: Vectors, k: int) -> Positions:
            try:
                with self._one_at_a_time:
                    found: Positions = copy.index.search(questions, k)[1]
                    return found
            except RuntimeError as error:
                _log.warning("a search failed on the GPU and is done on the CPU: %s", error)
                return on_cpu(questions, k)

        return near

    def _copy_to_gpu(self, index: Any) -> GpuCopy | None:
        needed = index.ntotal * index.d * 4 / MIB
        with self._one_at_a_time:
            if self.used_mib + needed > self._mib:
                message = "an index of %d MiB stays on the CPU: %d of `retrieval.dense.gpu_mib` (%d) are taken"
                _log.warning(message, needed, self.used_mib, self._mib)
                return None
            try:
                copy = GpuCopy(faiss.index_cpu_to_gpu(self._resources, 0, index), needed)
            except RuntimeError as error:
                _log.warning("an index stays on the CPU: %s", error)
                return None
            self._copies.add(copy)
            return copy


def make_flat(setting: str, mib: int) -> Flat:
    """Return the flat layout, on the GPU if the setting allows it and FAISS finds one."""
    return GpuFlat(mib) if setting == "auto" and faiss.get_num_gpus() > 0 else Flat()
