"""What is asked of jobs, decoded strictly: a misspelt parameter is refused and not ignored."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.calls import Decoding
from shared.contracts.fields import WHOLE, Key, Metadata, Rank, Stored
from shared.contracts.params import MOST_REPEATS, Params
from shared.errors import Invalid
from shared.pipelines import registry
from shared.runtime.amending import Change
from shared.runtime.submit import Submission
from shared.storage import pages
from shared.storage.configurations import SHIPPED, Configuration, Tree, merged
from shared.storage.jobs import Filters
from shared.storage.names import PATTERN, checked

FIELDS = frozenset(Params.__struct_fields__)
MOST_CANDIDATES = 1000
"""The retriever answers no longer lists."""
_AT = re.compile(r"^(?P<words>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_UNLISTED = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")

EXAMPLE: dict[str, Any] = {
    "name": "first", "dataset": "math-500", "corpus": "math", "pipeline": "mathrag-gate", "repeats": 1,
    "params": {"candidates": 10, "gate": {"tau": 0.45}}, "models": {"judge": "world-judge"},
    "metadata": {"run": "paper-table-2"},
}  # fmt: skip


Named = Annotated[str, StringConstraints(pattern=f"^{PATTERN}$")]
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
    name: Named | None = None
    experiment: Named | None = None
    limit: Annotated[int, Field(ge=1, le=pages.LARGEST), WHOLE] = pages.DEFAULT
    cursor: str | None = None

    def filters(self) -> Filters:
        """Without the page."""
        return Filters(**self.model_dump(exclude={"limit", "cursor"}))


def params_of(values: Tree, configured: Tree = MappingProxyType({})) -> Params:
    """`values` over what is `configured`, over the defaults.

    Raises:
        Invalid: an unknown parameter, a value of another type, or one out of range; the message names it.
    """
    try:
        params = msgspec.convert(merged(configured, values), Params)
        canonical.encode(params)
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    except UnicodeEncodeError as error:
        raise Invalid("`params`: holds half a character (a lone surrogate), which is no text") from error
    for path, value, rule in _broken(params):
        raise Invalid(f"`params.{path}`: must be {rule}, not {value!r}")
    return params


def check_read(values: Tree, pipelines: Sequence[str], at: str = "params") -> None:
    """Return if one of the pipelines reads each of the parameters.

    A pipeline or a parameter that does not exist is refused elsewhere.

    Raises:
        Invalid: none of them does; the message names the parameter, and the hint what they read.
    """
    known = [registry.get(name) for name in pipelines if name in registry.names()]
    if not known:
        return
    for path in _known_paths(values):
        if all(each.ignored(path) for each in known):
            read = frozenset(name for each in known for name in each.reads or ())
            raise _unread(f"{at}.", path, ", ".join(sorted({each.name for each in known})), read)


def check_read_by(reader: str, values: Tree, reads: frozenset[str]) -> None:
    """Return if `reader`, such as "a search", reads each of the parameters, because `reads` holds it or its group.

    Raises:
        Invalid: as for `check_read`.
    """
    for path in _known_paths(values):
        if not registry.covered(path, reads):
            raise _unread("params.", path, reader, reads)


def _unread(at: str, path: str, readers: str, reads: frozenset[str]) -> Invalid:
    listed = f"parameters of {readers}: {', '.join(sorted(reads))}"
    hint = suggestions.hint(path, sorted(reads), listed)
    return Invalid(f"`{at}{path}`: {readers} would not read it, so it would change nothing", hint=hint)


def _known_paths(values: Tree) -> Iterator[str]:
    return _paths({name: value for name, value in values.items() if name.partition(".")[0] in FIELDS})


def _paths(values: Tree, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _refused(message: str) -> Invalid:
    """msgspec says "… - at `$.gate`"; we say `params.gate`."""
    found = _AT.match(message)
    path = ".".join(filter(None, ["params", found["path"] if found else ""]))
    words = found["words"] if found else message
    if unknown := _UNKNOWN.match(words):
        known = sorted(_fields(path))
        hint = suggestions.hint(unknown["name"], known, f"fields of `{path}`: {', '.join(known)}")
        return Invalid(f"`{path}.{unknown['name']}`: there is no such field", hint=hint)
    if value := _UNLISTED.match(words):
        hint = f"it is one of {', '.join(_listed(path))}"
        return Invalid(f"`{path}`: {value['value']} is none of its values", hint=hint)
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}")


def _listed(path: str) -> list[str]:
    """The values of the parameter at a path such as `params.fusion.method`, which has a fixed list of them."""
    group: Any = Params()
    *parents, leaf = path.split(".")[1:]
    for name in parents:
        group = getattr(group, name)
    return [value for value in get_args(get_type_hints(type(group))[leaf]) if value]


def _fields(path: str) -> tuple[str, ...]:
    """Of the group of parameters at a path such as `params.gate`."""
    group: Any = Params()
    for name in path.split(".")[1:]:
        group = getattr(group, name)
    return tuple(group.__struct_fields__)


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
    crag = params.crag
    for path, limits in (("crag", crag), ("crag.similarity", crag.similarity), ("crag.calibrated", crag.calibrated)):
        for name in ("upper", "lower"):
            bound = getattr(limits, name, None)
            if bound is not None and not math.isfinite(bound):
                yield f"{path}.{name}", bound, "a finite number"
    if gate.on_unusable not in ("fail", "rules"):
        yield "gate.on_unusable", gate.on_unusable, '"fail" or "rules"'
    for role, decoding in _decodings(params):
        yield from _outside(f"{role}.temperature", decoding.temperature, 0, 100)
        yield from _outside(f"{role}.max_tokens", decoding.max_tokens, 1, 1_000_000)


def _decodings(params: Params) -> Iterator[tuple[str, Decoding]]:
    yield from (("generate", params.generate), ("judge", params.judge), ("enhance.decoding", params.enhance.decoding))
    yield from (("critic.decoding", params.critic.decoding), ("hyde.decoding", params.hyde.decoding))
    yield "grading.decoding", params.grading.decoding


def _outside(path: str, value: float, low: int, high: int) -> Iterator[tuple[str, Any, str]]:
    if not low <= value <= high:
        yield path, value, f"between {low} and {high}"
