"""Tune the query side of the static embeddings: pairs, the loss of RuleRAG-FT, and the steps of training."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from shared.models.embedding import FILES, QUERY_FILE, StaticEmbedder
from tools.embeddings.distil import quantise

TEMPERATURE = 0.01
"""The authors' temperature, by which scores are divided."""
Matrix = NDArray[np.floating]


def compute_contrastive_loss(
    queries: Matrix,
    documents: Matrix,
    positives: NDArray[np.integer],
    oracle: NDArray[np.bool_],
    temperature: float = TEMPERATURE,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute RuleRAG-FT's contrastive loss of each query, and its gradient with respect to the query's vector.

    Documents are constants (Hu et al. 2024; seed document 002).

    L = -log e^{s(d+, q∘r)/t} / (e^{s(d+, q∘r)/t} + the sum of e^{s(d-, q∘r)/t} over all d- of the batch that are no
    oracle documents of the query); s is the inner product, t the temperature.

    Args:
        queries: vectors [n, d] of the queries with their rules.
        documents: vectors [m, d] of the batch's distinct documents.
        positives: of each query, the row of its positive document [n].
        oracle: whether a document is one of the query's oracle documents [n, m]; all but the positive are left out.
        temperature: t, above 0.

    Returns:
        Losses [n] and gradients [n, d].
    """
    own = np.arange(len(queries))
    left_out = oracle.copy()
    left_out[own, positives] = False
    scores = queries.astype(np.float64) @ documents.T.astype(np.float64) / temperature
    scores[left_out] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    totals = np.log(np.exp(scores).sum(axis=1, keepdims=True))
    losses = totals[:, 0] - scores[own, positives]
    shares = np.exp(scores - totals)
    shares[own, positives] -= 1
    return losses, shares @ documents.astype(np.float64) / temperature


Kind = Literal["static", "sentence-transformers"]
RATES: dict[Kind, float] = {"static": 2e-3, "sentence-transformers": 1e-5}
"""Adam's learning rates: the second is RuleRAG-FT's; a table of token vectors needs larger steps
(docs/how-to/retrieval.md#tuning)."""


class TuningOptions(NamedTuple):
    """The options of a tuning; batch and temperature are RuleRAG-FT's (Hu et al. 2024)."""

    rate: float = RATES["static"]
    batch: int = 32
    """Positives in one step; their documents are each other's negatives."""
    epochs: int = 10
    dev: float = 0.1
    """Share of the questions that choose the epoch and are not trained on."""
    negatives: int = 0
    """Negatives of each line that join the documents of the batch."""
    temperature: float = TEMPERATURE
    seed: int = 0


MOST_LINES = 200_000
"""Upper bound of a file's lines."""
MOST_DOCUMENTS = 200_000
"""Upper bound of distinct documents in memory; their vectors take 290 MiB."""
Numbers = NDArray[np.int64]


class TrainingPair(msgspec.Struct, frozen=True):
    """A line of `mathrag dataset training-data --as pairs`."""

    query: str
    rule: str
    positives: tuple[str, ...]
    """The documents that the rule leads to."""
    negatives: tuple[str, ...] = ()
    """Documents of the same entity or relation that lead to no answer."""

    @property
    def text(self) -> str:
        """Return the query that is embedded: the question and the rule."""
        return f"{self.query} {self.rule}"


class NumberedDocuments:
    """Distinct texts, numbered in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """Return the texts, in the order of their numbers."""
        return list(self._numbers)

    def numbers(self, texts: Sequence[str]) -> Numbers:
        """Return the sorted numbers of the texts; new texts are added.

        Raises:
            SystemExit: there are too many.
        """
        found = sorted({self._numbers.setdefault(text, len(self._numbers)) for text in texts})
        if len(self._numbers) > MOST_DOCUMENTS:
            raise SystemExit(f"more than {MOST_DOCUMENTS} different documents: make the file shorter with --limit")
        return np.array(found, dtype=np.int64)


class TrainingQuery(NamedTuple):
    """A question with a rule; documents are given by number."""

    text: str
    question: str
    positives: Numbers
    """Documents of this rule."""
    oracle: Numbers
    """Documents of all rules of the question."""
    negatives: Numbers
    """Documents that are compared with the positive, in addition to those of the batch."""


def read(path: Path, documents: NumberedDocuments) -> list[TrainingQuery]:
    """Read the queries of a file, and add their documents to `documents`.

    Raises:
        SystemExit: a line is not a pair, has no positive document, or there are none or too many.
    """
    found: list[tuple[str, str, Numbers, Numbers]] = []
    oracle: defaultdict[str, set[int]] = defaultdict(set)
    for pair in _read_pairs(path):
        positives = documents.numbers(pair.positives)
        oracle[pair.query].update(positives.tolist())
        found.append((pair.text, pair.query, positives, documents.numbers(pair.negatives)))
    known = {question: np.array(sorted(numbers), dtype=np.int64) for question, numbers in oracle.items()}
    return [TrainingQuery(text, question, own, known[question], negatives) for text, question, own, negatives in found]


def _read_pairs(path: Path) -> Iterator[TrainingPair]:
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number > MOST_LINES:
                raise SystemExit(f"{path} has more than {MOST_LINES} lines: make it again with --limit")
            where = f"{path}:{number}"
            try:
                pair = msgspec.json.decode(line, type=TrainingPair)
            except msgspec.DecodeError as error:
                hint = "lines are made by `mathrag dataset training-data NAME --as pairs`"
                raise SystemExit(f"{where}: {error}; {hint}") from error
            if not pair.positives:
                raise SystemExit(f"{where}: `positives` is empty; name the documents that the rule leads to")
            yield pair
    if number == 0:
        raise SystemExit(f"{path} is empty: make it with `mathrag dataset training-data NAME --as pairs`")


def split(queries: Sequence[TrainingQuery], share: float, seed: int) -> tuple[list[TrainingQuery], list[TrainingQuery]]:
    """Split into (train, dev): about this share of the questions goes to dev, at least one, and never all.

    Raises:
        SystemExit: all pairs are of one question.
    """
    questions = list(dict.fromkeys(query.question for query in queries))
    if len(questions) == 1:
        raise SystemExit("all pairs are of one question: at least two are needed, one of them to choose the epoch")
    count = min(max(1, round(len(questions) * share)), len(questions) - 1)
    chosen = set(np.random.default_rng(seed).permutation(questions)[:count].tolist())
    return (
        [query for query in queries if query.question not in chosen],
        [query for query in queries if query.question in chosen],
    )


# Draw batches of positives, whose documents are each other's negatives.


class TrainingBatch(NamedTuple):
    """The input of one step's loss."""

    queries: list[int]
    """Positions of the queries [n]; a query occurs once for each of its positives in the batch."""
    documents: Numbers
    """Distinct document numbers [m]."""
    positives: Numbers
    """Row in `documents` of each query's positive [n]."""
    oracle: NDArray[np.bool_]
    """Whether a document is one of the query's oracle documents [n, m]."""


def draw_batches(
    queries: Sequence[TrainingQuery], options: TuningOptions, rng: np.random.Generator
) -> Iterator[TrainingBatch]:
    """Yield every oracle document of every query once as its positive, in random order."""
    examples = [(at, positive) for at, query in enumerate(queries) for positive in query.positives.tolist()]
    order = rng.permutation(len(examples)).tolist()
    for start in range(0, len(order), options.batch):
        chosen = [examples[at] for at in order[start : start + options.batch]]
        places, positives = map(list, zip(*chosen, strict=True))
        further = [queries[at].negatives[: options.negatives] for at in places]
        documents = np.unique(np.concatenate([np.array(positives, dtype=np.int64), *further]))
        oracle = np.stack([np.isin(documents, queries[at].oracle) for at in places])
        yield TrainingBatch(places, documents, np.searchsorted(documents, positives), oracle)


FIRST = 10
BLOCK = 256
"""Queries whose scores are in memory at a time."""
Vectors = NDArray[np.float32]


class Recall(NamedTuple):
    """Shares of the queries, from 0 to 1."""

    question: float
    """Share with an oracle document of the question among the first ten."""
    rule: float
    """Share with a document of the query's own rule there."""


def measure_recall(
    vectors: Vectors, documents: Vectors, queries: Sequence[TrainingQuery], first: int = FIRST
) -> Recall:
    """Measure recall among the `first` nearest documents; ties keep their order. There must be a query."""
    question = rule = 0
    for start in range(0, len(queries), BLOCK):
        scores = vectors[start : start + BLOCK] @ documents.T
        for row, query in zip(scores, queries[start : start + BLOCK], strict=True):
            question += _is_found(row, query.oracle, first)
            rule += _is_found(row, query.positives, first)
    return Recall(question / len(queries), rule / len(queries))


def _is_found(scores: Vectors, wanted: Numbers, first: int) -> bool:
    """Tell whether fewer than `first` documents rank before the best wanted one."""
    best = wanted[np.argmax(scores[wanted])]
    before = np.count_nonzero(scores > scores[best]) + np.count_nonzero(scores[:best] == scores[best])
    return bool(before < first)


FILE = "tuning.json"
HEADING = " epoch      loss  R@10  of the rule"


class Epoch(NamedTuple):
    """One pass over the pairs; number 0 is the state before the first."""

    number: int
    loss: float | None
    """Mean loss over the pass, while the vectors change."""
    recall: Recall
    """Recall on the dev part after the pass."""


def format_recall(recall: Recall) -> str:
    """Format both figures as under `HEADING`."""
    return f"{recall.question:.3f}  {recall.rule:.3f}"


def make_report(pairs: str, options: TuningOptions, epochs: Sequence[Epoch]) -> dict[str, Any]:
    """Describe how an embedder was made; `pairs` is the SHA-256 of their file."""
    passed = [{**each._asdict(), "recall": each.recall._asdict()} for each in epochs]
    return {"pairs": pairs, "options": options._asdict(), "epochs": passed}


def write(folder: Path, content: dict[str, Any]) -> None:
    (folder / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


# Adam (Kingma and Ba 2015) on the rows of a table that a step touches; other rows and their moments do not change.

DECAYS = (0.9, 0.999)
EPSILON = 1e-8


class Adam:
    """Optimises a table [rows, d] in place."""

    def __init__(self, table: Vectors, rate: float) -> None:
        self._table = table
        self._rate = rate
        self._means = np.zeros_like(table)
        self._squares = np.zeros_like(table)
        self._steps = 0

    def step(self, rows: NDArray[np.int64], gradients: Vectors) -> None:
        """Update these distinct rows from their gradients [len(rows), d]."""
        self._steps += 1
        first, second = DECAYS
        means = first * self._means[rows] + (1 - first) * gradients
        squares = second * self._squares[rows] + (1 - second) * gradients**2
        self._means[rows], self._squares[rows] = means, squares
        size = np.sqrt(squares / (1 - second**self._steps)) + EPSILON
        self._table[rows] -= self._rate * (means / (1 - first**self._steps)) / size


Ids = Sequence[int]
"""Token ids of a text."""


class Tower:
    """Token vectors [tokens, d]; the vector of a text is their mean at length 1."""

    def __init__(self, table: Vectors, rate: float) -> None:
        self.table = table.copy()
        self._adam = Adam(self.table, rate)

    def vectors(self, texts: Sequence[Ids]) -> Vectors:
        """Embed texts given as token ids: [len(texts), d]; zero for a text without tokens."""
        rows, counts = _count_tokens(texts)
        sums = counts @ self.table[rows]
        return sums / _measure_lengths(sums)

    def step(self, texts: Sequence[Ids], documents: Vectors, batch: TrainingBatch, temperature: float) -> float:
        """Train one step on the texts [n] of a batch and the vectors [m, d] of its documents, which do not change.

        Returns the mean loss before the step.
        """
        rows, counts = _count_tokens(texts)
        sums = counts @ self.table[rows]
        lengths = _measure_lengths(sums)
        vectors = sums / lengths
        losses, slopes = compute_contrastive_loss(vectors, documents, batch.positives, batch.oracle, temperature)
        slopes /= len(texts)
        # The part of the slope along v = u / |u| has no effect.
        along = (slopes * vectors).sum(axis=1, keepdims=True)
        self._adam.step(rows, (counts.T @ ((slopes - along * vectors) / lengths)).astype(np.float32))
        return float(losses.mean())


def _count_tokens(texts: Sequence[Ids]) -> tuple[Numbers, Vectors]:
    """Return the distinct tokens [m] of some texts, and how often each text has each [texts, m]."""
    tokens = np.array([each for ids in texts for each in ids], dtype=np.int64)
    rows, columns = np.unique(tokens, return_inverse=True)
    counts = np.zeros((len(texts), len(rows)), dtype=np.float32)
    np.add.at(counts, (np.repeat(np.arange(len(texts)), [len(ids) for ids in texts]), columns), 1)
    return rows, counts


def _measure_lengths(sums: Vectors) -> Vectors:
    """Return the length of each row as a column; 1 for a zero row."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True).astype(np.float32)
    return np.where(lengths > 0, lengths, np.float32(1))


class QueryTuning(Protocol):
    """An embedder whose query side is trained, among the documents that it was made with."""

    def epochs(self, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery]) -> Iterator[Epoch]:
        """Train, and yield the dev part's figures before the first epoch and after each."""

    def save(self, out: Path) -> None:
        """Write the present embedder."""

    def measure(self, queries: Sequence[TrainingQuery], folder: Path | None = None) -> Recall:
        """Measure R@10 of the embedder in `folder`, or of the present one; there must be a query."""


def run(tuning: QueryTuning, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery], out: Path) -> list[Epoch]:
    """Train, print a line per epoch, and write the best epoch, the first among equals.

    Raises:
        SystemExit: no epoch is better than none.
    """
    print(HEADING, flush=True)
    passed: list[Epoch] = []
    for epoch in tuning.epochs(train, dev):
        loss = "" if epoch.loss is None else f"{epoch.loss:.4f}"
        print(f"{epoch.number or 'before':>6}  {loss:>8}  {format_recall(epoch.recall)}", flush=True)
        if passed and epoch.recall.question > find_best(passed).recall.question:
            tuning.save(out)
        passed.append(epoch)
    if not find_best(passed).number:
        raise SystemExit("no epoch improved the embedder, so nothing is written: try another --rate")
    return passed


def find_best(epochs: Sequence[Epoch]) -> Epoch:
    """Return the epoch with the highest R@10 of questions, the first among equals."""
    return max(epochs, key=lambda epoch: epoch.recall.question)


class StaticTuning:
    """Trains the query table of the embeddings in `folder` on the CPU; documents' vectors do not change."""

    def __init__(self, folder: Path, texts: Sequence[str], options: TuningOptions) -> None:
        """Load the embeddings and embed `texts`, the documents by number.

        Raises:
            Unavailable: the folder holds no static embeddings.
        """
        self._folder = folder
        self._embedder = StaticEmbedder(folder)
        self._documents = self._embedder.embed_documents(texts)
        self._tower = Tower(self._embedder.query_table[:], options.rate)
        self._options = options

    def epochs(self, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery]) -> Iterator[Epoch]:
        ids, asked = self._ids(train), self._ids(dev)
        rng = np.random.default_rng(self._options.seed)
        yield Epoch(0, None, self._recall(dev, asked))
        for number in range(1, self._options.epochs + 1):
            losses = []
            for batch in draw_batches(train, self._options, rng):
                texts, documents = [ids[at] for at in batch.queries], self._documents[batch.documents]
                losses.append(self._tower.step(texts, documents, batch, self._options.temperature))
            yield Epoch(number, float(np.mean(losses)), self._recall(dev, asked))

    def save(self, out: Path) -> None:
        """Write the unchanged files of the embeddings, and the present query table."""
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(self._folder / name, out / name)
        rows, scales = quantise(self._tower.table)
        (out / QUERY_FILE).write_bytes(save({"embeddings": rows, "weights": scales}))

    def measure(self, queries: Sequence[TrainingQuery], folder: Path | None = None) -> Recall:
        if folder is None:
            return self._recall(queries, self._ids(queries))
        vectors = StaticEmbedder(folder).embed_queries([query.text for query in queries])
        return measure_recall(vectors, self._documents, queries)

    def _ids(self, queries: Sequence[TrainingQuery]) -> list[Ids]:
        texts = [query.text for query in queries]
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        return [ids for block in blocks for ids in self._embedder.token_ids(block)]

    def _recall(self, queries: Sequence[TrainingQuery], ids: Sequence[Ids]) -> Recall:
        vectors = np.concatenate([self._tower.vectors(ids[at : at + BLOCK]) for at in range(0, len(ids), BLOCK)])
        return measure_recall(vectors, self._documents, queries)
