"""A submitted experiment: the body of a request, or a YAML file with the same fields."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared.fields import WHOLE, Key, Metadata, Rank, Stored
from shared.params import MOST_REPEATS, Params

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


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class ExperimentDataset(_Part):
    """A dataset and the corpus to search for its questions."""

    dataset: Stored
    """Name of the dataset."""
    corpus: Stored | None = None
    """Name of the corpus; null if no pipeline searches."""


class Variant(_Part):
    """One of the systems that the experiment compares."""

    name: VariantName
    """Name of the variant."""
    pipeline: Stored
    """Name of the pipeline."""
    params: dict[str, Any] = {}
    """Parameters, nested as in {"gate": {"tau": 0.3}}; they override those of the experiment."""
    models: dict[Key, Stored] = {}
    """Model names by role, such as {"judge": "world-judge"}; they override those of the experiment."""


class Experiment(_Part):
    """Jobs to compare: one for every dataset, variant, point of the grid and seed."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    name: Name
    """Name of the experiment; it must be unique."""
    datasets: Annotated[list[ExperimentDataset], Field(min_length=1, max_length=100)]
    """Datasets. Comparisons are pooled over the datasets, which should be of one kind, such as seeds of the problem
    world."""
    variants: Annotated[list[Variant], Field(min_length=1, max_length=100)]
    """The variants to compare."""
    grid: Annotated[dict[Path, Annotated[list[Any], Field(min_length=1)]], Field(max_length=16)] = {}
    """Values by parameter path, such as {"gate.tau": [0.3, 0.45]}. Their product overrides the parameters of each
    variant."""
    seeds: Annotated[list[Seed], Field(min_length=1, max_length=1000)] | None = None
    """Values of the parameter `seed`, which chooses the items of the calibration."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS), WHOLE] = 1
    """Number of answers to each item."""
    reuse: Literal["all", "none"] = "all"
    """`all`: reuse replies of other jobs; `none`: every job computes everything again, and every repeat draws its own
    replies, including ratings and greedy answers."""
    params: dict[str, Any] = {}
    """Parameters of every job."""
    models: dict[Key, Stored] = {}
    """Model names by role, for every job."""
    baseline: VariantName | None = None
    """The variant with which all others are compared; null compares all variants with each other."""
    rank: Rank = 100
    """Priority of the jobs: calls with a smaller rank are claimed first."""
    metadata: Metadata = {}
    """Metadata of every job."""


def schema() -> str:
    """Return the JSON schema of an experiment, with every parameter that a job may set; it is committed."""
    described = Experiment.model_json_schema()
    _, parts = msgspec.json.schema_components([Params], ref_template="#/$defs/{name}")
    described["$defs"] |= parts
    for holder in (described, described["$defs"]["Variant"]):
        holder["properties"]["params"] |= {"$ref": "#/$defs/Params"}
    return msgspec.json.format(msgspec.json.encode({"$schema": SCHEMA, **described}), indent=2).decode()
