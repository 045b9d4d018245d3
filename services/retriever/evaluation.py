"""Measure and tune, without a service, how well the configured back ends search a collection with judgements.

Run as a program, it reads one request of `mathrag eval` or `tune` as JSON from standard input, and writes the result as
JSON to standard output. After an error the exit status is 1, and the output is {"error": {"kind", "message", "hint"}}.
"""

import hashlib
import random
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mathrag.errors import Invalid, InvalidLine, MathragError, NotFound, Unavailable
from mathrag.messages import format_count
from mathrag.reading import paths
from mathrag.reading.lines import Reader
from services.retriever.backends import make_backends
from services.retriever.builds import make_recipe
from services.retriever.index import MANIFEST, Backend, Batch, IndexMatch, SearchIndex, verify, write_index
from shared import canonical
from shared import settings as settings_module
from shared.ingest import datasets
from shared.models import servers
from shared.models.embedding import ModelFailed, RerankingModel
from shared.params import EnhanceParams, FusionParams, Params
from shared.pipelines.switches import find_closed
from shared.rag import metrics, retrieval
from shared.rag.fusion import NORMALISERS, fuse
from shared.rag.retrieval import ORIGINAL
from shared.rag.rewriting import enhance
from shared.replies import CorpusRecord
from shared.settings import Settings
from shared.statistics import significance
from shared.statistics.significance import Difference

# The requests of an evaluation.

Depth = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Evaluate(msgspec.Struct, frozen=True, kw_only=True, tag="eval", forbid_unknown_fields=True):
    """Measure a mode on a split, and compare it with others."""

    folder: str
    mode: str
    split: str = "test"
    k: Depth = 100
    """Number of documents in every list, and in the fused one."""
    metrics: tuple[str, ...] = ()
    """Measures beside the usual ones."""
    against: tuple[str, ...] = ()
    """Modes, or files of runs, to compare with."""
    run: str | None = None
    """File to which the ranked lists are written, in TREC's format."""
    params: Params = Params()


class Tune(msgspec.Struct, frozen=True, kw_only=True, tag="tune", forbid_unknown_fields=True):
    """Choose a parameter of fusion on one split, and measure the choice on another."""

    folder: str
    mode: str = "weighted"
    over: Literal["dense", "rrf_k"] = "dense"
    """The parameter: the share of the dense list, or the constant of reciprocal rank fusion."""
    split: str | None = None
    """Split on which the value is chosen; None: `dev`, or half of the queries of `held_out` where there is no such
    split."""
    held_out: str = "test"
    k: Depth = 100
    metric: str = "nDCG@10"
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Seed of the halving and of the bootstrap."""
    params: Params = Params()


Request = Evaluate | Tune


# The modes of evaluation: one list alone, or both of them fused as in a job.

Kind = Literal["dense", "sparse"]
WEIGHTED = "weighted"
RERANK = "rerank"
ENHANCED = "enhanced"
NAMES = (
    *("dense", "sparse", "hybrid", WEIGHTED),
    *(f"{WEIGHTED}-{normaliser}" for normaliser in NORMALISERS),
    *(ENHANCED, RERANK),
)


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a mode of search by everything that its ranking depends on."""

    name: str
    kinds: tuple[Kind, ...]
    """The lists that it needs."""
    fusion: FusionParams = FusionParams()
    rrf_k: int = 60
    reranks: bool = False
    """Whether a cross-encoder reorders the list at the end."""
    enhances: bool = False
    """Whether every query is also searched for in a second wording."""
    enhance: EnhanceParams = EnhanceParams()

    def rank(self, lists: Mapping[Kind, Sequence[IndexMatch]]) -> list[str]:
        """Rank the documents for one query, best first, from what each index found; nothing is reranked here."""
        if len(self.kinds) == 1:
            return [match.document for match in lists[self.kinds[0]]]
        weights = (self.fusion.dense, self.fusion.sparse)
        found = [[(match.document, match.score) for match in lists[kind]] for kind in self.kinds]
        return [document for document, _ in fuse(found, weights, self.fusion, self.rrf_k)]

    def with_dense_weight(self, dense: float) -> "Mode":
        """Return the mode with this weight of the dense list; the sparse list has the rest."""
        fusion = msgspec.structs.replace(self.fusion, dense=dense, sparse=round(1 - dense, 6))
        return msgspec.structs.replace(self, fusion=fusion)


def choose_mode(name: str, params: Params) -> Mode:
    """Return the mode called `name`.

    `hybrid` fuses as `params` say; `weighted` uses their normaliser, `weighted-rank` and the like their own. `enhanced`
    is `hybrid` in two wordings; `rerank` is `hybrid` reordered by a cross-encoder.

    Raises:
        Invalid: no mode has this name.
    """
    if name not in NAMES:
        raise Invalid(f"unknown mode {name!r}", hint=f"choose one of {', '.join(NAMES)}")
    if name in ("dense", "sparse"):
        return Mode(name=name, kinds=(name,))  # type: ignore[arg-type] # one of the two
    fusion = params.fusion
    if name.startswith(WEIGHTED):
        normaliser = name.removeprefix(WEIGHTED).removeprefix("-") or fusion.normaliser
        fusion = msgspec.structs.replace(fusion, method="weighted", normaliser=normaliser)
    return Mode(
        name=name,
        kinds=("dense", "sparse"),
        fusion=fusion,
        rrf_k=params.rrf_k,
        reranks=name == RERANK,
        enhances=name == ENHANCED,
        enhance=params.enhance,
    )


# Read a judged collection: a folder in BEIR's layout.

CORPUS = "corpus.jsonl"
BATCH = 1000


class Queries(msgspec.Struct, frozen=True, kw_only=True):
    """The queries of one split and their judgements; every query has a relevant document."""

    texts: dict[str, str]
    judged: dict[str, dict[str, int]]
    """Maps a query to {relevant document: grade}."""
    themselves: frozenset[str]
    """Queries that are documents, too, and must not be among their own hits."""
    unjudged: int = 0
    """Number of further queries of the split without a relevant document: they have no recall, and are left out."""
    unasked: int = 0
    """Number of further queries that the split judges and `queries.jsonl` does not hold."""
    absent: int = 0
    """Number of relevant documents that the corpus does not hold: no search can find them."""

    def only(self, chosen: set[str]) -> "Queries":
        """Return the queries of `chosen`."""
        return Queries(
            texts={query: text for query, text in self.texts.items() if query in chosen},
            judged={query: grades for query, grades in self.judged.items() if query in chosen},
            themselves=self.themselves & chosen,
        )


class Collection:
    """Reads a collection whose documents keep its ids: two documents with the same text stay two."""

    def __init__(self, folder: Path) -> None:
        """Read the documents' ids.

        Raises:
            NotFound, Invalid, InvalidLine: this is not a BEIR folder, or a line cannot be used.
        """
        if not folder.exists():
            raise NotFound(f"folder {str(folder)!r} does not exist", hint="name a BEIR folder")
        if not (folder / CORPUS).is_file() or not (folder / "qrels").is_dir():
            hint = "write corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv into it"
            raise Invalid(f"{folder.name!r} is not a BEIR folder", hint=hint)
        self._folder = folder
        records = self._open_records()
        self.ids: dict[str, str] = {}
        """Maps keys to ids. A key is the hash of the content, as in a job, so that ties are broken in the same way; of
        a further document with the same content, it is a hash of both."""
        for each in records:
            key, document = each.document.hash, _get_id(each)
            self.ids[canonical.digest([key, document]).hex() if key in self.ids else key] = document
        self.skipped = records.skipped
        """Number of documents without any text, which no search can find."""

    @property
    def hash(self) -> str:
        """Return the SHA-256 of the documents' file, in hex."""
        with (self._folder / CORPUS).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def batches(self) -> Iterator[Batch]:
        """Yield the documents that an index is built from."""
        keys = {document: key for key, document in self.ids.items()}
        batch: list[tuple[str, str]] = []
        for each in self._open_records():
            batch.append((keys[_get_id(each)], each.document.whole))
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def texts(self, documents: Container[str]) -> dict[str, str]:
        """Return the text of each of these ids."""
        return {_get_id(each): each.document.whole for each in self._open_records() if _get_id(each) in documents}

    def splits(self) -> list[str]:
        """List the splits that have judgements."""
        return sorted(file.stem for file in (self._folder / "qrels").glob("*.tsv"))

    def queries(self, split: str) -> Queries:
        """Return the queries and judgements of `split`.

        Raises:
            Invalid, InvalidLine: the split does not exist, it judges none of the queries, or a line cannot be used.
        """
        file = f"qrels/{split}.tsv"
        items = list(datasets.read_dataset(paths.dataset_lines(self._folder, split=split)))
        judged, texts = dict[str, dict[str, int]](), dict[str, str]()
        for each in items:
            relevant = {document: grade for document, grade in (each.gold_documents or {}).items() if grade > 0}
            if each.custom_id and relevant:
                judged[each.custom_id], texts[each.custom_id] = relevant, each.question
        if not judged:
            hint = "compare the ids in the first column with `_id` in queries.jsonl"
            raise Invalid(f"{file} names no relevant document for any query in queries.jsonl", hint=hint)
        known = set(self.ids.values())
        return Queries(
            texts=texts,
            judged=judged,
            themselves=self._find_own_documents(texts),
            unjudged=len(items) - len(judged),
            unasked=len(paths.read_judgements(self._folder / file, file)) - len(items),
            absent=sum(document not in known for found in judged.values() for document in found),
        )

    def _find_own_documents(self, queries: Mapping[str, str]) -> frozenset[str]:
        """Find the queries that are documents of the collection, under the same id (as in ArguAna).

        BEIR drops every hit with the query's id, which takes for granted that ids are of one kind. Cranfield numbers
        both from 1, and has document 225 among those relevant to query 225. So the document must also hold the query's
        words.
        """
        shared = queries.keys() & set(self.ids.values())
        texts = self.texts(shared) if shared else {}
        return frozenset(query for query in shared if _normalise(queries[query]) in _normalise(texts[query]))

    def _open_records(self) -> Reader[CorpusRecord]:
        rows = paths.corpus_lines(self._folder / CORPUS)
        return Reader(rows, lambda line, _: datasets.record(line), datasets.document_id, skip_empty=True)


def _normalise(text: str) -> str:
    return " ".join(canonical.normalise(text).lower().split())


def _get_id(record: CorpusRecord) -> str:
    if record.external_id is None:
        raise Invalid(f"a document of {CORPUS} has no `_id`, which judgements refer to")
    return record.external_id


# Read and write runs in TREC's format: `query Q0 document rank score tag`, separated by blanks.


def write_run(path: Path, run: Mapping[str, Sequence[str]]) -> None:
    """Write a run; scores fall by one from rank to rank, so that no reader finds a tie.

    Raises:
        Invalid: the file cannot be written.
    """
    rows = (
        f"{query} Q0 {document} {rank} {len(found) - rank + 1} mathrag\n"
        for query, found in run.items()
        for rank, document in enumerate(found, start=1)
    )
    try:
        path.write_text("".join(rows), "utf-8")
    except OSError as error:
        raise Invalid(f"the run cannot be written to {str(path)!r}: {error.strerror}") from error


def read_run(path: Path, k: int) -> dict[str, list[str]]:
    """Read at most `k` documents per query, by descending score as trec_eval does, and by rank where scores are equal.

    Raises:
        NotFound: the file does not exist.
        InvalidLine: a row does not have six columns, or its rank or score is not a number.
    """
    if not path.is_file():
        raise NotFound(f"file {str(path)!r} does not exist", hint="correct the path, or write a run with --run FILE")
    rows: dict[str, list[tuple[float, int, str]]] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            cells = line.split()
            if not cells:
                continue
            if len(cells) != 6:
                columns = format_count(len(cells), "column")
                raise InvalidLine(path.name, number, f"has {columns}, not six; write query Q0 document rank score tag")
            query, _, document, rank, score, _ = cells
            try:
                rows.setdefault(query, []).append((-float(score), int(rank), document))
            except ValueError as error:
                message = f"rank {rank!r} or score {score!r} is not a number; write numbers"
                raise InvalidLine(path.name, number, message) from error
    return {
        query: list(dict.fromkeys(document for _, _, document in sorted(found)))[:k] for query, found in rows.items()
    }


# Search a collection with the configured back ends; their indexes are kept for later evaluations.

FOLDER = "evaluations"
"""Folder below the data directory; it may be deleted at any time."""
AT_ONCE = 256
"""Queries in one search."""

Found = dict[str, list[IndexMatch]]
"""Maps a query to its matches, best first."""
Lists = dict[Kind, Found]
Run = dict[str, list[str]]
"""Maps a query to its documents, best first."""


class CollectionSearcher:
    """Searches the indexes of one collection for the `k` best documents of every query."""

    def __init__(
        self, backends: Sequence[Backend[SearchIndex]], data_dir: Path, collection: Collection, k: int,
        reranker: RerankingModel | None = None, threshold: float | None = None,
    ) -> None:  # fmt: skip
        self._backends = {backend.kind: backend for backend in backends}
        self._root = data_dir / FOLDER
        self._collection = collection
        self._k = k
        self._reranker = reranker
        self._threshold = -inf if threshold is None else threshold
        self._indexes: dict[Kind, SearchIndex] = {}

    def recipe(self, kind: Kind) -> dict[str, Any]:
        """Return the values that determine the scores of an index."""
        return make_recipe(self._backends[kind], self._collection.hash)

    def lists(self, kinds: Iterable[Kind], queries: Queries) -> Lists:
        """Search each index, and cut dense lists at the threshold; a query is never among its own hits."""
        lists = {kind: self._search_index(self._open_or_build(kind), queries) for kind in kinds}
        if "dense" in lists:
            lists["dense"] = {
                query: [match for match in found if match.score >= self._threshold]
                for query, found in lists["dense"].items()
            }
        return lists

    def runs(self, modes: Sequence[Mode], queries: Queries) -> dict[str, Run]:
        """Rank in each mode, and return mode -> query -> documents; every index is searched once.

        Raises:
            Invalid: a mode reranks, and no reranker is configured.
            Unavailable: an index or the reranker cannot be used.
        """
        lists = self.lists(dict.fromkeys(kind for mode in modes for kind in mode.kinds), queries)
        runs = {mode.name: self.rank(mode, lists) for mode in modes if not mode.enhances}
        runs |= {mode.name: self._rank_enhanced(mode, lists, queries) for mode in modes if mode.enhances}
        return runs | {mode.name: self._rerank(runs[mode.name], queries) for mode in modes if mode.reranks}

    def rank(self, mode: Mode, lists: Lists) -> Run:
        """Rank the best documents for every query in one mode, by the collection's ids."""
        queries = lists[mode.kinds[0]]
        found = {query: mode.rank({kind: lists[kind][query] for kind in lists}) for query in queries}
        return self._name_documents(found)

    def _rank_enhanced(self, mode: Mode, original: Lists, queries: Queries) -> Run:
        """Rank with the parts of the pipeline `enhanced` that ask no model.

        Queries are cleaned, corrected, and also searched for in a second wording with synonyms; the lists of both
        wordings are fused with the weights that the question's intent gives them.
        """
        params = Params(fusion=mode.fusion, rrf_k=mode.rrf_k, enhance=mode.enhance)
        ready = {query: enhance(text, mode.enhance, mode.fusion) for query, text in queries.texts.items()}
        reworded = msgspec.structs.replace(queries, texts={query: each.widened for query, each in ready.items()})
        widened = self.lists(mode.kinds, reworded)
        keys = {}
        for query, text in queries.texts.items():
            paths = retrieval.make_first_searches(text, ready[query], params)
            found = [
                (original if path.wording == ORIGINAL else widened)["dense" if path.call.index == "dense" else "sparse"]
                for path in paths
            ]
            scored = [[(match.document, match.score) for match in each[query]] for each in found]
            fused = fuse(scored, [path.weight for path in paths], params.fusion, params.rrf_k)
            keys[query] = [document for document, _ in fused]
        return self._name_documents(keys)

    def _name_documents(self, keys: Mapping[str, Sequence[str]]) -> Run:
        return {query: [self._collection.ids[key] for key in found[: self._k]] for query, found in keys.items()}

    def _search_index(self, index: SearchIndex, queries: Queries) -> Found:
        names = list(queries.texts)
        matches: list[list[IndexMatch]] = []
        for start in range(0, len(names), AT_ONCE):
            texts = [queries.texts[name] for name in names[start : start + AT_ONCE]]
            matches += index.search(texts, self._k + 1)
        found: Found = {}
        for name, some in zip(names, matches, strict=True):
            itself = name if name in queries.themselves else None
            found[name] = [match for match in some if self._collection.ids[match.document] != itself][: self._k]
        return found

    def _rerank(self, run: Run, queries: Queries) -> Run:
        if self._reranker is None:
            hint = "configure one under `retrieval.reranker` in mathrag.yaml"
            raise Invalid("mode `rerank` needs a reranker", hint=hint)
        texts = self._collection.texts({document for found in run.values() for document in found})
        reranked: Run = {}
        for query, found in run.items():
            try:
                scores = self._reranker.score(queries.texts[query], [texts[document] for document in found])
            except ModelFailed as failed:
                message = f"the reranker gave no score: {failed}"
                raise Unavailable(message, hint="check `retrieval.reranker`") from failed
            # Documents of equal score keep their order.
            ranked = sorted(zip(found, scores, strict=True), key=lambda each: -each[1])
            reranked[query] = [document for document, _ in ranked]
        return reranked

    def _open_or_build(self, kind: Kind) -> SearchIndex:
        """Return the index of this kind: if it is not in memory, load it from disk; if it is not sound, build it."""
        if kind in self._indexes:
            return self._indexes[kind]
        backend, made = self._backends[kind], self.recipe(kind)
        folder = self._root / canonical.digest(made).hex()
        manifest = folder / MANIFEST
        if manifest.is_file():
            with suppress(Unavailable):  # damaged: it is built again in its place
                verify(folder, made, hashlib.sha256(manifest.read_bytes()).digest())
                backend.check(folder)
                self._indexes[kind] = backend.load(folder)
        if kind not in self._indexes:
            index = backend.build(self._collection.batches(), folder.name)
            write_index(self._root, made, index)
            self._indexes[kind] = index
        return self._indexes[kind]


# Evaluate a mode on one split, and compare others with it (`eval`).

Measured = Mapping[str, Mapping[str, float]]
"""Maps a query to {measure: value}."""


def evaluate(request: Evaluate, collection: Collection, searcher: CollectionSearcher) -> dict[str, Any]:
    """Return the result of the evaluation; every measure is its own key.

    Raises:
        Invalid, NotFound, InvalidLine: a name in the request does not exist or cannot be used.
    """
    names = choose_measures(request)
    queries = collection.queries(request.split)
    runs = _make_runs(request, queries, searcher)
    if request.run is not None:
        write_run(Path(request.run), runs[request.mode])
    measured = {name: metrics.measure_per_query(queries.judged, run, names) for name, run in runs.items()}
    mode = choose_mode(request.mode, request.params)
    others = {other: values for other, values in measured.items() if other != mode.name}
    tests = {name: compare_measures(measured[mode.name], others, name) for name in names}
    modes = [
        {"mode": other, **summarise(values, names), "differences": {name: tests[name][other] for name in names}}
        for other, values in others.items()
    ]
    return {
        "mode": mode.name,
        "split": request.split,
        "k": request.k,
        **count_queries(collection, queries),
        "unanswered": sum(not runs[mode.name].get(query) for query in queries.judged),
        **summarise(measured[mode.name], names),
        "against": modes,
        "fusion": msgspec.to_builtins(mode.fusion) if len(mode.kinds) > 1 else None,
        "indexes": {kind: searcher.recipe(kind) for kind in mode.kinds},
        "per_query": measured[mode.name],
    }


def choose_measures(request: Evaluate) -> list[str]:
    """Return the usual measures for which `k` documents suffice, and those that were asked for.

    Raises:
        Invalid: the measure does not exist, or it looks at more documents.
    """
    k = request.k
    usual = ("nDCG@10", f"Recall@{k}", "MAP", "MRR@10", "nDCG@5", "Recall@10", "Precision@10", "F1@10")
    enough = [name for name in usual if (metrics.get_cutoff(name) or 0) <= k]
    return list(dict.fromkeys([*enough, *(require_depth(name, k) for name in request.metrics)]))


def require_depth(name: str, k: int) -> str:
    """Return the measure if it looks at no more than `k` documents."""
    depth = metrics.get_cutoff(name) or 0
    if depth > k:
        raise Invalid(f"{name} needs {depth} documents, but the ranked lists have {k}", hint=f"set --k {depth}")
    return name


def count_queries(collection: Collection, queries: Queries) -> dict[str, int]:
    """Count the searches and questions, and those left out."""
    return {
        "documents": len(collection.ids),
        "empty_documents": collection.skipped,
        "queries": len(queries.judged),
        "unjudged": queries.unjudged,
        "unasked": queries.unasked,
        "absent": queries.absent,
        "themselves": len(queries.themselves),
    }


def summarise(measured: Measured, names: Sequence[str]) -> dict[str, Any]:
    """Compute every measure's mean over the queries, and the confidence intervals."""
    means = {name: significance.estimate_mean([found[name] for found in measured.values()]) for name in names}
    intervals = {name: [mean.low, mean.high] for name, mean in means.items()}
    return {**{name: mean.value for name, mean in means.items()}, "intervals": intervals}


def compare_measures(measured: Measured, others: Mapping[str, Measured], name: str) -> dict[str, Difference | None]:
    """Test how far `measured` is above each of the others in one measure; the tests are corrected together."""
    left = [found[name] for found in measured.values()]
    tests = [significance.compare_paired(left, [found[name] for found in other.values()]) for other in others.values()]
    return dict(zip(others, significance.correct_family(tests), strict=True))


def _make_runs(request: Evaluate, queries: Queries, searcher: CollectionSearcher) -> dict[str, Run]:
    """Return the runs of the mode and of those that it is compared with; other names are files."""
    files = [name for name in request.against if name not in NAMES and Path(name).is_file()]
    modes = dict.fromkeys(name for name in (request.mode, *request.against) if name not in files)
    runs = searcher.runs([choose_mode(name, request.params) for name in modes], queries)
    runs |= {name: read_run(Path(name), request.k) for name in files}
    return {name: runs[name] for name in dict.fromkeys((request.mode, *request.against))}


# Choose a parameter of fusion on some queries and measure the choice on others (`tune`).

STEPS = 20
SHARES = tuple(step / STEPS for step in range(STEPS + 1))
"""Weights of the dense list that are tried: 0, 0.05 ... 1."""
CONSTANTS = tuple(range(4, 81, 4))
"""Constants of reciprocal rank fusion that are tried, in AutoRAG's range."""
GRIDS: dict[str, tuple[float, ...]] = {"dense": SHARES, "rrf_k": CONSTANTS}
RESAMPLES = 2000
DEVELOPMENT = "dev"
"""The split on which the value is chosen unless the request names one."""


class Halves(msgspec.Struct, frozen=True, kw_only=True):
    """Queries on which the value is chosen, and queries on which it is measured; they are disjoint."""

    development: Queries
    held_out: Queries
    how: str
    """Where the development queries come from, in words."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the parameter, measured on the development queries."""

    at: float
    value: float
    separable: bool
    """Whether the best value is better in a paired test."""


def tune(request: Tune, collection: Collection, searcher: CollectionSearcher) -> dict[str, Any]:
    """Return the curve, the choice with its plateau and interval, and how the choice does on other queries.

    Raises:
        Invalid, InvalidLine: the mode has no weights, the measure looks too far, there are too few queries, or a file
            cannot be used.
    """
    base, metric, grid = _require_tunable_mode(request), require_depth(request.metric, request.k), GRIDS[request.over]
    halves = split_queries(request, collection)
    lists = searcher.lists(base.kinds, halves.development)
    modes = (_set_value(base, request.over, value) for value in grid)
    measured = (
        metrics.measure_per_query(halves.development.judged, searcher.rank(each, lists), [request.metric])
        for each in modes
    )
    values = np.array([[found[request.metric] for found in each.values()] for each in measured])
    curve = make_curve(grid, values)
    chosen = grid[int(values.mean(axis=1).argmax())]
    tuned = _set_value(base, request.over, chosen)
    return {
        "mode": base.name,
        "over": request.over,
        "metric": metric,
        "k": request.k,
        "development": {"from": halves.how, **count_queries(collection, halves.development)},
        "chosen": chosen,
        "interval": estimate_interval(grid, values, request.seed),
        "plateau": find_plateau(curve, chosen),
        "curve": curve,
        "set": format_settings(tuned),
        "held_out": {
            "from": f"{request.held_out}.tsv",
            **count_queries(collection, halves.held_out),
            **_measure_held_out(request, tuned, base, halves.held_out, searcher),
        },
    }


def split_queries(request: Tune, collection: Collection) -> Halves:
    """Split into development and held-out queries; a query of both splits is held out.

    Raises:
        Invalid: the split does not exist, or one of them would hold fewer than two queries.
    """
    held_out = collection.queries(request.held_out)
    split = request.split or (DEVELOPMENT if DEVELOPMENT in collection.splits() else request.held_out)
    if split != request.held_out:
        found = collection.queries(split)
        development = found.only(set(found.judged) - set(held_out.judged))
        how = f"{split}.tsv"
    else:
        names = sorted(held_out.judged)
        random.Random(request.seed).shuffle(names)  # noqa: S311 - which half, not a secret
        half = set(names[: len(names) // 2])
        development, held_out = held_out.only(half), held_out.only(set(names) - half)
        how = f"half of {split}.tsv, seed {request.seed}"
    if min(len(development.judged), len(held_out.judged)) < 2:
        too_few = f"`{request.held_out}` has too few queries"
        raise Invalid(f"{too_few}: two are needed for tuning, and two others for measuring")
    return Halves(development=development, held_out=held_out, how=how)


def make_curve(grid: Sequence[float], values: NDArray[np.float64]) -> list[CurvePoint]:
    """Make the curve from values [len(grid), queries]."""
    best = values[int(values.mean(axis=1).argmax())].tolist()
    curve = []
    for at, found in zip(grid, values, strict=True):
        tested = significance.compare_paired(best, found.tolist())
        separable = tested is not None and tested.p < significance.LEVEL
        curve.append(CurvePoint(at=at, value=float(found.mean()), separable=separable))
    return curve


def find_plateau(curve: Sequence[CurvePoint], chosen: float) -> list[float]:
    """Return the first and last value around the choice between which no value is separable from it."""
    low = high = next(place for place, point in enumerate(curve) if point.at == chosen)
    while low > 0 and not curve[low - 1].separable:
        low -= 1
    while high < len(curve) - 1 and not curve[high + 1].separable:
        high += 1
    return [curve[low].at, curve[high].at]


def estimate_interval(grid: Sequence[float], values: NDArray[np.float64], seed: int) -> list[float]:
    """Estimate the range of 95 % of the choices on other queries of the kind, by a bootstrap over queries."""
    queries = values.shape[1]
    draws = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=RESAMPLES)
    choices = np.asarray(grid)[(values @ draws.T).argmax(axis=0)]
    tail = 100 * significance.LEVEL / 2
    low, high = np.percentile(choices, [tail, 100 - tail], method="nearest")
    return [float(low), float(high)]


def format_settings(tuned: Mode) -> str:
    """Format the options that `mathrag job submit` needs for this mode."""
    names = ("method", "normaliser", "slope", "dense", "sparse")
    chosen = {f"fusion.{name}": getattr(tuned.fusion, name) for name in names} | {"rrf_k": tuned.rrf_k}
    read = {name: value for name, value in chosen.items() if not find_closed(name, chosen, chosen.__getitem__)}
    return " ".join(f"--set {name}={value}" for name, value in read.items())


def _require_tunable_mode(request: Tune) -> Mode:
    base = choose_mode(request.mode, request.params)
    if len(base.kinds) < 2 or base.reranks or base.enhances:
        raise Invalid(f"mode `{base.name}` has no weights to tune", hint="tune hybrid, weighted, weighted-z-score ...")
    if request.over == "rrf_k" and base.fusion.method != "rrf":
        raise Invalid(f"mode `{base.name}` has no `rrf_k` to tune", hint="use --mode hybrid --over rrf_k")
    return base


def _set_value(base: Mode, over: str, value: float) -> Mode:
    return base.with_dense_weight(value) if over == "dense" else msgspec.structs.replace(base, rrf_k=int(value))


def _measure_held_out(
    request: Tune, tuned: Mode, base: Mode, queries: Queries, searcher: CollectionSearcher
) -> dict[str, Any]:
    """Measure the choice on queries that it was not made on, and compare it with modes that need no choice."""
    name = request.metric
    plain = {kind: choose_mode(kind, request.params) for kind in ("dense", "sparse")}
    modes = {"tuned": tuned, "untuned": base, **plain}
    lists = searcher.lists(base.kinds, queries)
    measured = {
        label: metrics.measure_per_query(queries.judged, searcher.rank(each, lists), [name])
        for label, each in modes.items()
    }
    chosen = measured.pop("tuned")
    tests = compare_measures(chosen, measured, name)
    return {
        **summarise(chosen, [name]),
        "against": [
            {"mode": other, **summarise(values, [name]), "difference": tests[other]}
            for other, values in measured.items()
        ],
    }


def main() -> None:
    try:
        try:
            request: Request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
        except msgspec.DecodeError as error:
            hint = "`$` stands for the request; docs/explanation/pipelines.md has all of `params`"
            raise Invalid(str(error), hint=hint) from error
        found, code = answer(request, settings_module.load()), 0
    except MathragError as error:
        found, code = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}, 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    sys.exit(code)


def answer(request: Request, settings: Settings) -> dict[str, Any]:
    """Return the result of `request` with the back ends of `settings`.

    Raises:
        MathragError: something that either names cannot be used.
    """
    collection, retrieval = Collection(Path(request.folder)), settings.retrieval
    with (
        servers.open_embedder(retrieval.embeddings) as embedder,
        servers.open_reranker(retrieval.reranker) as reranker,
    ):
        indexes = make_backends(retrieval, embedder)
        threshold = request.params.dense.threshold
        searcher = CollectionSearcher(indexes, settings.data_dir, collection, request.k, reranker, threshold)
        if isinstance(request, Evaluate):
            return evaluate(request, collection, searcher)
        return tune(request, collection, searcher)


if __name__ == "__main__":
    main()
