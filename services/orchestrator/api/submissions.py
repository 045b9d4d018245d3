"""The body of POST /v1/jobs: decoded strictly, so that a misspelt parameter is refused and not ignored."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.calls import Decoding
from shared.contracts.samples import GateParams, Params
from shared.errors import Invalid
from shared.runtime.submit import Submission
from shared.storage.names import checked

MOST_CANDIDATES = 1000
"""The retriever answers no longer lists."""
_AT = re.compile(r"^(?P<words>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")

EXAMPLE: dict[str, Any] = {
    "name": "first", "dataset": "math-500", "corpus": "math", "pipeline": "mathrag-gate", "repeats": 1,
    "params": {"candidates": 10, "gate": {"tau": 0.45}}, "models": {"judge": "world-judge"},
}  # fmt: skip


class JobRequest(BaseModel):
    """A job as it is asked for."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": EXAMPLE})

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    reuse: Literal["all", "none"] = "all"
    """"none": compute everything anew, whatever other jobs have."""
    params: dict[str, Any] = {}
    """Nested, such as {"gate": {"tau": 0.3}}; what is left out has its default."""
    models: dict[str, str] = {}
    """Model names by role, such as {"judge": "world-judge"}."""
    rank: Annotated[int, Field(ge=0, le=32767)] = 100
    """Smaller is claimed sooner."""

    def submission(self) -> Submission:
        """The same, checked.

        Raises:
            Invalid: a field cannot be used; the message names it.
        """
        fields = self.model_dump(exclude={"params"})
        return Submission(params=params_of(self.params), **{**fields, "name": checked(self.name)})


def params_of(values: dict[str, Any]) -> Params:
    """`values` over the defaults.

    Raises:
        Invalid: an unknown parameter, a value of another type, or one out of range; the message names it.
    """
    try:
        params = msgspec.convert(values, Params)
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    for path, value, rule in _broken(params):
        raise Invalid(f"`params.{path}`: must be {rule}, not {value!r}")
    return params


def _refused(message: str) -> Invalid:
    """msgspec says "… - at `$.gate`"; we say `params.gate`."""
    found = _AT.match(message)
    path = ".".join(filter(None, ["params", found["path"] if found else ""]))
    words = found["words"] if found else message
    if unknown := _UNKNOWN.match(words):
        known = ", ".join(sorted(_fields(path)))
        return Invalid(f"`{path}.{unknown['name']}`: there is no such field", hint=f"fields of `{path}`: {known}")
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}")


def _fields(path: str) -> tuple[str, ...]:
    types = {"params.gate": GateParams, "params.generate": Decoding, "params.judge": Decoding}
    return types.get(path, Params).__struct_fields__


def _broken(params: Params) -> Iterator[tuple[str, Any, str]]:
    """(path, value, rule) of every parameter out of range; NaN is out of every range."""
    gate = params.gate
    yield from _outside("candidates", params.candidates, 1, MOST_CANDIDATES)
    yield from _outside("context_size", params.context_size, 0, params.candidates)
    yield from _outside("rrf_k", params.rrf_k, 1, 1_000_000)
    yield from _outside("rrf_weight", params.rrf_weight, 0, 1000)
    yield from _outside("quality_weight", params.quality_weight, 0, 1000)
    yield from _outside("seed", params.seed, -(1 << 63), (1 << 63) - 1)
    yield from _outside("gate.tau", gate.tau, -1, 1)
    yield from _outside("gate.items", gate.items, 1, 10_000)
    yield from _outside("gate.top", gate.top, 1, MOST_CANDIDATES)
    yield from _outside("gate.max_documents", gate.max_documents, 1, 100_000)
    yield from _outside("gate.min_pairs", gate.min_pairs, 2, 100_000)
    if gate.on_unusable not in ("fail", "rules"):
        yield "gate.on_unusable", gate.on_unusable, '"fail" or "rules"'
    for role, decoding in (("generate", params.generate), ("judge", params.judge)):
        yield from _outside(f"{role}.temperature", decoding.temperature, 0, 100)
        yield from _outside(f"{role}.max_tokens", decoding.max_tokens, 1, 1_000_000)


def _outside(path: str, value: float, low: int, high: int) -> Iterator[tuple[str, Any, str]]:
    if not low <= value <= high:
        yield path, value, f"between {low} and {high}"
