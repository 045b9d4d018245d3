"""Parameters that note what is read of them, and other values for each of them."""

from typing import Any

import msgspec

from services.orchestrator.api.pipelines import Parameter, parameters
from shared.pipelines.switches import covers

Tree = dict[str, Any]
PARAMETERS = parameters()
LEAVES = tuple(dict.fromkeys(".".join(each.path.split(".")[:2]) for each in PARAMETERS))
"""All parameters that a user may set; a decoding, and a pair of thresholds, count as one."""
VALUES: Tree = {
    "enhance.terms": {"a": ["b"]}, "anchors": {"negative": "b"}, "gate.on_unusable": "rules", "context_size": 2,
    "metrics.names": ["x"], "crag.upper": 0.9, "crag.lower": 0.1, "crag.similarity": 0.9,
}  # fmt: skip
"""Another value, where the type does not tell one."""
SEEN: set[str] = set()
"""What was read of watched parameters."""


def watched(group: msgspec.Struct, prefix: str = "") -> Any:
    """The same parameters, which note in `SEEN` what is read of them."""
    kind, names = type(group), frozenset(group.__struct_fields__)

    def note(self: Any, name: str) -> Any:
        if name in names:
            SEEN.add(f"{prefix}{name}")
        return kind.__getattribute__(self, name)

    values = {name: getattr(group, name) for name in names}
    if not prefix:
        values |= {
            name: watched(value, f"{name}.") for name, value in values.items() if isinstance(value, msgspec.Struct)
        }
    methods = {"__getattribute__": note}
    own = msgspec.defstruct(f"Watched{kind.__name__}", [], bases=(kind,), namespace=methods, frozen=True, kw_only=True)
    return own(**values)


def nested(path: str, value: Any) -> Tree:
    """The parameter at `path` as a tree."""
    name, _, rest = path.partition(".")
    return {name: nested(rest, value) if rest else value}


def leaf_of(path: str) -> Parameter:
    """The first parameter at `path` or below it."""
    return next(each for each in PARAMETERS if covers(each.path, (path,)))


def other_values(path: str) -> Tree:
    """The parameter at `path` with another value than its default."""
    found = leaf_of(path)
    texts: dict[str, list[Any]] = {"flag": [True, False], "text": ["x"], "lines": ["x"]}
    candidates = texts.get(found.kind, list(found.choices))
    candidates += [VALUES[path]] if path in VALUES else [found.low, found.high]
    return nested(found.path, [each for each in candidates if each is not None and each != found.default][-1])
