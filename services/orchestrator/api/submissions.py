"""What is asked of jobs, decoded strictly: a misspelt parameter is refused and not ignored."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared.contracts.fields import WHOLE, Key, Metadata, Rank, Stored
from shared.contracts.params import MOST_REPEATS
from shared.runtime.amending import Change
from shared.runtime.drafting import Submission
from shared.runtime.parameters import check_read, params_of
from shared.storage import pages
from shared.storage.configurations import SHIPPED, Configuration
from shared.storage.job_list import Filters, Sort
from shared.storage.names import PATTERN, checked

EXAMPLE: dict[str, Any] = {
    "name": "first", "dataset": "math-500", "corpus": "math", "pipeline": "mathrag-gate", "repeats": 1,
    "params": {"candidates": 10, "gate": {"tau": 0.45}}, "models": {"judge": "world-judge"},
    "metadata": {"run": "paper-table-2"},
}  # fmt: skip


Named = Annotated[str, StringConstraints(pattern=f"^{PATTERN}$")]
Part = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00]+$")]
State = Literal["preparing", "running", "paused", "finalizing", "completed", "failed", "cancelling", "cancelled"]


class JobRequest(BaseModel):
    """A job as it is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": EXAMPLE})

    name: str
    dataset: Stored
    pipeline: Stored
    corpus: Stored | None = None
    limit: Annotated[int, Field(ge=1, lt=1 << 31), WHOLE] | None = None
    """Only the first so many items of the dataset; all of them where it has fewer."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS), WHOLE] = 1
    reuse: Literal["all", "none"] = "all"
    """"none": compute everything anew, whatever other jobs have."""
    params: dict[str, Any] = {}
    """Nested, such as {"gate": {"tau": 0.3}}; what is left out is as `GET /v1/configuration` says, else the default."""
    models: dict[Key, Stored] = {}
    """Model names by role, such as {"judge": "world-judge"}."""
    rank: Rank = 100
    """Smaller is claimed sooner."""
    metadata: Metadata = {}
    """What you want to find again; nothing here reads it."""

    def identity(self) -> dict[str, Any]:
        """What its idempotency key stands for; a `limit` that is not given is left out, as before there was one."""
        return self.model_dump(exclude={"limit"} if self.limit is None else None)

    def submission(self, holding: Configuration = SHIPPED) -> Submission:
        """The same, checked; parameters that it does not name are as `holding` has them.

        Raises:
            Invalid: a field cannot be used; the message names it.
        """
        fields = self.model_dump(exclude={"params"}) | {"name": checked(self.name)}
        params = params_of(self.params, holding.params)
        check_read(self.params, [self.pipeline])
        return Submission(params=params, configuration=holding.version, **fields)


class JobChange(BaseModel):
    """What shall change about a job; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"rank": 10, "metadata": {"run": "paper-table-2"}}}
    )

    name: str | None = None
    rank: Rank | None = None
    """Of its queued calls, too."""
    metadata: Metadata | None = None
    """Replaces all of it."""

    def change(self) -> Change:
        """The same, checked.

        Raises:
            Invalid: the name cannot be used.
        """
        if self.name is not None:
            checked(self.name)
        return Change(**self.model_dump())


class JobFilters(BaseModel):
    """Which jobs a list holds, and which page of it."""

    model_config = ConfigDict(extra="forbid")

    state: State | None = None
    pipeline: Named | None = None
    dataset: Named | None = None
    corpus: Named | None = None
    name: Named | None = None
    name_contains: Part | None = None
    """A part of the name, in upper or lower case."""
    experiment: Named | None = None
    sort: Sort = "newest"
    """`state`: what goes on first, then what did not end well."""
    limit: Annotated[int, Field(ge=1, le=pages.LARGEST), WHOLE] = pages.DEFAULT
    cursor: str | None = None

    def filters(self) -> Filters:
        """Without the page."""
        return Filters(**self.model_dump(exclude={"limit", "cursor", "sort"}))
