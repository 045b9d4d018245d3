"""An experiment as it is asked for: the body of a request, and a YAML file of the same fields."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared.contracts.fields import WHOLE, Key, Metadata, Rank, Stored
from shared.contracts.params import MOST_REPEATS, Params

EXAMPLE: dict[str, Any] = {
    "name": "gate-or-not", "datasets": [{"dataset": "math-500", "corpus": "math"}],
    "variants": [{"name": "dense", "pipeline": "dense"},
                 {"name": "gate-judge", "pipeline": "mathrag-gate", "params": {"gate": {"tau": 1.0}}}],
    "grid": {"context_size": [1, 3]}, "seeds": [0], "repeats": 1, "baseline": "dense",
}  # fmt: skip
SCHEMA = "https://json-schema.org/draft/2020-12/schema"

# Jobs are called EXPERIMENT-VARIANT-NUMBER, in at most 100 characters.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$")]
VariantName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,29}$")]
Path = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00]+$")]
Seed = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1), WHOLE]


class ExperimentDataset(BaseModel):
    """What is asked, and where it is searched."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    dataset: Stored
    corpus: Stored | None = None
    """Only where the pipelines search."""


class Variant(BaseModel):
    """One of the systems that are compared."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    name: VariantName
    pipeline: Stored
    params: dict[str, Any] = {}
    """Nested, such as {"gate": {"tau": 0.3}}; on top of the experiment's."""
    models: dict[Key, Stored] = {}
    """Model names by role, such as {"judge": "world-judge"}; on top of the experiment's."""


class Experiment(BaseModel):
    """Jobs that are compared: every dataset, with every variant, at every point of the grid, with every seed."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, json_schema_extra={"example": EXAMPLE}
    )

    name: Name
    """Its own: no two experiments share one."""
    datasets: Annotated[list[ExperimentDataset], Field(min_length=1, max_length=100)]
    """Several of one kind are, for example, seeds of the problem world: comparisons are pooled over them."""
    variants: Annotated[list[Variant], Field(min_length=1, max_length=100)]
    grid: Annotated[dict[Path, Annotated[list[Any], Field(min_length=1)]], Field(max_length=16)] = {}
    """Values by parameter path, such as {"gate.tau": [0.3, 0.45]}; their product, on top of each variant."""
    seeds: Annotated[list[Seed], Field(min_length=1, max_length=1000)] | None = None
    """Of the parameter `seed`, which chooses the calibration's items."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS), WHOLE] = 1
    reuse: Literal["all", "none"] = "all"
    """"none": every job computes everything anew, and every repeat draws anew, also ratings and greedy answers."""
    params: dict[str, Any] = {}
    """Of every job."""
    models: dict[Key, Stored] = {}
    """Model names by role, of every job."""
    baseline: VariantName | None = None
    """The variant that all others are compared with; without one, each is compared with each."""
    rank: Rank = 100
    """Smaller is claimed sooner."""
    metadata: Metadata = {}
    """Of every job."""


def schema() -> str:
    """The JSON schema, as it is committed, with every parameter that a job may set."""
    described = Experiment.model_json_schema()
    _, parts = msgspec.json.schema_components([Params], ref_template="#/$defs/{name}")
    described["$defs"] |= parts
    for holder in (described, described["$defs"]["Variant"]):
        holder["properties"]["params"] |= {"$ref": "#/$defs/Params"}
    return msgspec.json.format(msgspec.json.encode({"$schema": SCHEMA, **described}), indent=2).decode()
