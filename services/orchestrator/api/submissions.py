"""Request bodies and filters of jobs, decoded strictly: a misspelt parameter is refused, not ignored."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared.params import MOST_REPEATS, WHOLE, Key, Metadata, Rank, Stored
from shared.runtime.lifecycle import Amendment
from shared.runtime.parameters import check_read, list_known_paths, parse_params
from shared.runtime.submit import Submission
from shared.storage import database
from shared.storage.configurations import SHIPPED, Configuration
from shared.storage.database import PATTERN, check_name
from shared.storage.jobs import JobSelection, Sort

EXAMPLE: dict[str, Any] = {
    "name": "first", "dataset": "math-500", "corpus": "math", "pipeline": "mathrag-gate", "repeats": 1,
    "params": {"candidates": 10, "gate": {"tau": 0.45}}, "models": {"judge": "world-judge"},
    "metadata": {"run": "paper-table-2"},
}  # fmt: skip


Named = Annotated[str, StringConstraints(pattern=f"^{PATTERN}$")]
Part = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00]+$")]
State = Literal["preparing", "running", "paused", "finalizing", "completed", "failed", "cancelling", "cancelled"]


class JobRequest(BaseModel):
    """A job to submit."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": EXAMPLE})

    name: str
    dataset: Stored
    pipeline: Stored
    corpus: Stored | None = None
    limit: Annotated[int, Field(ge=1, lt=1 << 31), WHOLE] | None = None
    """Number of items to use, from the start of the dataset; all if it has fewer."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS), WHOLE] = 1
    reuse: Literal["all", "none"] = "all"
    """"none" computes every reply again, even if other jobs have it."""
    params: dict[str, Any] = {}
    """Parameters, nested such as {"gate": {"tau": 0.3}}; others are as `GET /v1/configuration` says, else the default.
    """
    models: dict[Key, Stored] = {}
    """Model names by role, such as {"judge": "world-judge"}."""
    rank: Rank = 100
    """Priority: calls of a smaller rank are claimed first."""
    metadata: Metadata = {}
    """Your own data about the job; the service does not read it."""

    def identity(self) -> dict[str, Any]:
        """Return what its idempotency key stands for. A missing `limit` is left out, so that keys of older releases
        still match.
        """
        return self.model_dump(exclude={"limit"} if self.limit is None else None)

    def submission(self, holding: Configuration = SHIPPED) -> Submission:
        """Return the request after checking it; parameters that it does not set are taken from `holding`.

        Raises:
            Invalid: a field cannot be used; the message names it.
        """
        fields = self.model_dump(exclude={"params"}) | {"name": check_name(self.name)}
        params = parse_params(self.params, holding.params)
        check_read(self.params, [(self.pipeline, params)])
        given = frozenset(list_known_paths(self.params))
        return Submission(params=params, given=given, configuration=holding.version, **fields)


class JobChange(BaseModel):
    """Fields of a job to change; those that are left out stay."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"rank": 10, "metadata": {"run": "paper-table-2"}}}
    )

    name: str | None = None
    rank: Rank | None = None
    """New rank, also of its queued calls."""
    metadata: Metadata | None = None
    """New metadata; it replaces the old one completely."""

    def make_amendment(self) -> Amendment:
        """Return the change after checking it.

        Raises:
            Invalid: the name cannot be used.
        """
        if self.name is not None:
            check_name(self.name)
        return Amendment(**self.model_dump())


class JobFilters(BaseModel):
    """Which jobs to list, and which page of them."""

    model_config = ConfigDict(extra="forbid")

    state: State | None = None
    pipeline: Named | None = None
    dataset: Named | None = None
    corpus: Named | None = None
    name: Named | None = None
    name_contains: Part | None = None
    """Part of the name, regardless of case."""
    experiment: Named | None = None
    submitted_by: Named | None = None
    """Name of the key that submitted the job."""
    sort: Sort = "newest"
    """Order of the list; `state` puts running jobs first, then those that did not end well."""
    limit: Annotated[int, Field(ge=1, le=database.LARGEST), WHOLE] = database.DEFAULT
    cursor: str | None = None

    def make_selection(self) -> JobSelection:
        """Return the filters without the page."""
        return JobSelection(**self.model_dump(exclude={"limit", "cursor", "sort"}))
