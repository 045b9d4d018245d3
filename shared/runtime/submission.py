"""A job as it is requested, before anything that it names is looked up."""

import uuid
from collections.abc import Mapping

import msgspec

from shared.contracts.params import Params


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that were stored for a job of `imported`."""

    answers: int
    missing: int
    """Items of the dataset without an answer."""
    matched: dict[str, int]
    """Number of answers by what named their item: "id", "question", "index" or "order"."""
    hash: str
    """SHA-256 in hex over all of them, in the file's order."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is requested."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    limit: int | None = None
    """Number of items to ask, from the dataset's beginning; None asks all."""
    repeats: int = 1
    reuse: str = "all"
    """Whether replies of other jobs are reused: "all" or "none"."""
    params: Params = Params()
    given: frozenset[str] = frozenset()
    """Paths of the parameters that the submitter has set, such as `grading.threshold`."""
    configuration: int | None = None
    """Version of the configuration that filled in missing parameters; None if it was not needed."""
    models: Mapping[str, str] = {}
    """Model names by role; the operator's defaults apply to the other roles."""
    rank: int = 100
    metadata: Mapping[str, str] = {}
    """Free-form labels of the submitter, which the runtime never reads."""
    submitted_by: str | None = None
    """Name of the key that submits it; None where no keys are asked for."""
    online: bool = False
    """Whether a client waits for this single question; such jobs are not listed."""
    requeued_from: uuid.UUID | None = None
    """The ended job that this one repeats."""
    experiment: int | None = None
    """Row id of the job's experiment."""
    graph: str = ""
    """Hash of the graph to mine, for a job of `mine-rules`; otherwise empty."""
    job: uuid.UUID | None = None
    """The job's future id, if something was already stored for its samples; None draws one."""
    imported: ImportSummary | None = None
    """What a job of `imported` grades; None for other pipelines."""
