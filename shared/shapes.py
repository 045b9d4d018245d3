"""Shapes that several services share: API keys, architectures, labels, measures and plug-ins."""

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from mathrag.errors import Invalid
from shared.replies import Graded, Marked

# API keys: their format, their scopes, their lifetimes, and the digest that is stored of them.

PREFIX = "mrg_"
_KEY = re.compile(r"(mrg_[0-9a-f]{8})_[0-9a-f]{64}")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_DURATION = re.compile(r"(?P<count>\d{1,6})(?P<unit>[mhd])")


class Scope(StrEnum):
    """The rights of a key; each route requires one scope."""

    READ = "read"
    """Read everything, and search."""
    SUBMIT = "submit"
    """Upload, submit, ask questions, and change or end jobs."""
    OPERATE = "operate"
    """Manage devices and the configuration, and do all of the above."""


class Issued(NamedTuple):
    """A new key; it is shown only when it is made, and not stored."""

    key: str
    prefix: str
    """Public part of the key, which names it in lists and tables."""
    digest: bytes


def issue_key() -> Issued:
    """Make a key of 256 random bits."""
    prefix = f"{PREFIX}{secrets.token_hex(4)}"
    key = f"{prefix}_{secrets.token_hex(32)}"
    return Issued(key=key, prefix=prefix, digest=digest(key))


def prefix_of(key: str) -> str | None:
    """Return the public part of `key`; None if it does not have the format of a key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def digest(key: str) -> bytes:
    """Return the digest of `key` that is stored.

    It is a single SHA-256: slow hashes protect guessable passwords, and 256 random bits cannot be guessed. A slow hash
    would only let anonymous clients load the server.
    """
    return hashlib.sha256(key.encode()).digest()


def matches_digest(key: str, known: bytes) -> bool:
    """Tell whether `known` is the digest of `key`, in constant time."""
    return secrets.compare_digest(digest(key), known)


def allows(scopes: Collection[str], wanted: Scope) -> bool:
    """Tell whether a key with these scopes may do what requires `wanted`."""
    return wanted in scopes or Scope.OPERATE in scopes


def parse_duration(field: str, words: str) -> timedelta:
    """Parse a lifetime or a grace, such as "90d", "24h" or "30m".

    Raises:
        Invalid: it is not a duration; the message begins with `field`.
    """
    found = _DURATION.fullmatch(words)
    if found is None:
        raise Invalid(f"{field}: {words!r} is not a duration", hint="write a number and m, h or d, such as 90d")
    return int(found["count"]) * _UNITS[found["unit"]]


# The dimensions of a model, from which its memory is estimated.

MIB = 1 << 20


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """The dimensions of a model according to its metadata: a GGUF header, a `config.json`, or Ollama's `show`."""

    weights_bytes: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embedding: int
    vocabulary: int
    trained_context: int
    name: str = ""
    """Family of the model, as the metadata call it, such as "qwen2"."""

    @property
    def weights_mib(self) -> float:
        """Return the size of the weights in MiB: a load reads all of them, and so does each token of a dense model."""
        return self.weights_bytes / MIB


# Labels: people's ratings of documents, answers and sentences, compared with those of the judge or the grader.

What = Literal["documents", "relevance", "answers", "support", "sufficient", "addresses"]
Value = int | str
MOST_TASKS = 1000
"""Maximum number of tasks of a set: a day's work of one person."""
LONGEST_NOTE = 2000
"""Maximum length of a note, in characters."""
FEWEST = 10
"""Minimum number of labelled tasks for which figures are computed."""


class LabelKind(NamedTuple):
    """One kind of label."""

    scale: tuple[Value, ...]
    """Values from worst to best; neighbours are equally far apart."""
    instructions: str
    """Instructions to the labeller, in the same words as for the judge."""
    rubrics: tuple[str, ...] = ()
    """Templates whose ratings are compared with the labels."""
    by_question: bool = False
    """Whether the judge sees the question, so that one document has a rating for each question."""
    judged_by: Literal["judge", "grader"] = "judge"
    metric: str = ""
    """The metric for which the judge gave its labels; "": they belong to none."""
    worth: Mapping[Value, float] = MappingProxyType({})
    """What a label adds to the metric's score of a question, which is the mean over its tasks; others add 0."""


KINDS: Mapping[What, LabelKind] = {
    "documents": LabelKind(
        scale=(1, 2, 3, 4, 5),
        instructions="Rate the reasoning of the document from 1 (an answer without reasoning) to 5 (complete and"
        " correct steps).",
        rubrics=("reasoning-quality",),
    ),
    "relevance": LabelKind(
        scale=(1, 2, 3, 4, 5),
        instructions="Rate how much the document helps to answer the question, from 1 (not at all) to 5 (it answers"
        " it).",
        rubrics=("relevance", "relevance-zh"),
        by_question=True,
    ),
    "answers": LabelKind(
        scale=("wrong", "tie", "right"),
        instructions="Say whether the answer is right. It is a tie where as much speaks for it as against it.",
        judged_by="grader",
    ),
    "support": LabelKind(
        scale=(1, 2, 3),
        instructions="Compare the sentence with the source, and not with what you know: 1, the source contradicts the"
        " sentence; 2, it does not say it, or only part of it; 3, it says all of it.",
        rubrics=("support", "support-zh"),
        metric="faithfulness",
        worth={3: 1.0},
    ),
    "sufficient": LabelKind(
        scale=(1, 2, 3),
        instructions="Say whether the source alone answers the question, whatever you know: 1, the question cannot be"
        " answered from it; 2, it gives several different answers; 3, one answer follows from it.",
        rubrics=("sufficient", "sufficient-zh"),
        metric="context_sufficiency",
        worth={3: 1.0},
    ),
    "addresses": LabelKind(
        scale=(1, 2, 3, 4),
        instructions="Say whether the reply answers what the question asks, true or not: 1, it declines to answer; 2,"
        " it answers something else; 3, it answers a part; 4, it answers all that was asked.",
        rubrics=("addresses", "addresses-zh"),
        metric="answer_relevance",
        worth={3: 0.5, 4: 1.0},
    ),
}


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of several documents of a task."""

    document: str
    """Hash of the document."""
    problem: str
    """Problem of the document; empty for a plain passage."""
    text: str
    """Text of the document."""


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a task as the labeller sees it, without the verdict of the judge or the grader."""

    question: str = ""
    """The question; empty for a document of the gate's calibration, which is rated without one."""
    document: str = ""
    """Hash of the document; empty for an answer."""
    problem: str = ""
    """Problem of the document; empty for a plain passage."""
    text: str = ""
    """Text of the document, or the passage that the prompt had instead of documents."""
    golds: tuple[str, ...] = ()
    """The accepted answers."""
    choices: tuple[str, ...] = ()
    """Choices of a multiple-choice question."""
    answer: str = ""
    """The answer; with `addresses`, the whole reply."""
    documents: tuple[SourceDocument, ...] = ()
    """Documents in the prompt, in order."""
    sentence: str = ""
    """Sentence or claim of a reply that is compared with the documents or the passage."""
    before: str = ""
    """The sentence before it, as the judge saw it."""


def parse_label(what: What, text: str) -> Value:
    """Parse `text`, as stored or typed, into a value on the scale of `what`.

    Raises:
        ValueError: the scale has no such value; the message lists its values.
    """
    scale = KINDS[what].scale
    for value in scale:
        if str(value) == text:
            return value
    raise ValueError(f"{text[:40]!r} is not on the scale: {', '.join(map(str, scale))}")


def find_position(what: What, value: Value) -> int:
    """Return the position of `value` on its scale, from 0."""
    return KINDS[what].scale.index(value)


# The measures by which jobs are compared: each gives a sample a value in [0, 1].

ACCURACY, EXACT, SCORE = "accuracy", "exact", "score"
OFFERED = f"{ACCURACY}, {EXACT}, {SCORE}, answer@K with K from 1 to 1000, or a score of a metric such as faithfulness"
METRIC_NAME = r"[a-z][a-z0-9_-]{0,60}"
"""Regular expression that matches the names of metrics and of their scores."""
MEASURE_NAME = rf"answer@(?:[1-9][0-9]{{0,2}}|1000)|{METRIC_NAME}"
"""Regular expression that matches the names of all measures."""


class ScoreValue(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a metric's score that measures read."""

    value: float | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an outcome that measures read."""

    verdict: Graded | Marked | None = None
    answer_rank: int | msgspec.UnsetType | None = msgspec.UNSET
    metrics: dict[str, ScoreValue] = {}


class Measure(NamedTuple):
    """A measure by its name."""

    name: str
    k: int | None = None
    """Number of candidates among which `answer@K` looks for the answer."""

    @property
    def of_metric(self) -> bool:
        """Tell whether it is a score that a metric gives (`shared/rag/answer_metrics.py`)."""
        return self.k is None and self.name not in (ACCURACY, EXACT, SCORE)

    @property
    def has_degrees(self) -> bool:
        """Tell whether a sample's value may lie between 0 and 1."""
        return self.name == SCORE or self.of_metric

    def value(self, outcome: Measured) -> float | None:
        """Return the value of one sample; None if it was not measured."""
        if self.k is not None:
            return measure_within(outcome.answer_rank, self.k)
        if self.of_metric:
            score = outcome.metrics.get(self.name)
            return None if score is None else score.value
        verdict = outcome.verdict
        if verdict is None:
            return None
        by_name = {ACCURACY: verdict.correct, EXACT: verdict.strict, SCORE: verdict.score}
        value = by_name[self.name]
        return None if value is None else float(value)


def find_measure(name: str) -> Measure:
    """Return the measure called `name`. Whether a metric gives the score of this name is not checked.

    Raises:
        LookupError: no measure can have this name; the message lists those that exist.
    """
    if re.fullmatch(MEASURE_NAME, name) is None:
        raise LookupError(f"unknown measure {name!r}: name one of {OFFERED}")
    _, at, k = name.partition("@")
    return Measure(name, int(k) if at else None)


def make_answer_measure(k: int) -> Measure:
    """Return the measure of whether an answer occurs in the first `k` candidates."""
    return Measure(f"answer@{k}", k)


def measure_within(rank: int | msgspec.UnsetType | None, k: int) -> float | None:
    """Return 1 or 0 from the rank of the first candidate with an answer; None if it was not measured."""
    if rank is msgspec.UNSET:
        return None
    return float(rank is not None and rank <= k)


# Identity and state of a plug-in: its distribution and code, and whether it can be used.


class Kind(StrEnum):
    """The kind of a plug-in. Its entry point is in the group `mathrag.` with the plural, unless it is a file."""

    PIPELINE = "pipeline"
    GRADER = "grader"
    METRIC = "metric"
    DRIVER = "driver"
    READER = "reader"
    EMBEDDER = "embedder"
    RERANKER = "reranker"
    TEMPLATE = "template"
    """A prompt, in a file of the folder `plugins.templates`."""
    RUBRIC = "rubric"
    """A text of the folder `plugins.rubrics` that the judge model rates by."""

    @property
    def group(self) -> str:
        """Return the group of the kind's entry points, such as `mathrag.pipelines`."""
        return f"mathrag.{self.value}s"


class State(StrEnum):
    """Whether a plug-in can be used, and if not, why."""

    READY = "ready"
    FAILED = "import failed"
    TIMED_OUT = "import timed out"
    SHIPPED = "takes a shipped name"
    DOUBLED = "name taken twice"
    REFUSED = "refused"
    """Its entry point, its files or the imported object cannot be used; the detail says why."""
    CHANGED = "changed on disk"
    """Its files differ from those that the service imported, or it was installed after the service started."""
    MISSING = "missing"
    """A job that has not ended needs it, but it is not installed."""


class PluginPin(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in as stored with a job. Another version or other code is another plug-in."""

    kind: str
    """What the plug-in adds."""
    name: str
    """Name of the plug-in."""
    distribution: str
    """Python distribution that provides the plug-in."""
    version: str
    """Version of the distribution."""
    hash: str
    """SHA-256 over the distribution's own files, in hex."""

    def __str__(self) -> str:
        """Format as in `pipeline best-of-three (mathrag-best-of-three 1.0, 5f1c0e9a77ab)`."""
        return f"{self.kind} {self.name} ({self.distribution} {self.version}, {self.hash[:12]})"
