"""Which parameters are read: those that a pipeline names, unless another parameter keeps one of them from it.

`compress.tokens`, for instance, says nothing while `compress.enabled` is false.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from shared.params import Params
from shared.rag.grading import GRADERS

DEFAULTS = Params()
CALIBRATION = tuple(
    f"gate.{name}" for name in ("tau", "items", "top", "max_documents", "min_pairs", "on_unusable", "repeats", "truth")
)
BY_RULES = tuple(
    f"rulerag.{name}"
    for name in ("confidence", "support", "order", "use", "ask", "query", "width", "documents", "question")
)
OF_JUDGE = ("judge.temperature", "judge.max_tokens")


class Switch(NamedTuple):
    """Parameters that are not read while others have certain values."""

    paths: tuple[str, ...]
    """Parameters, or groups of them."""
    by: tuple[str, ...]
    """Parameters that keep them from being read if all of them do; those that are themselves not read do not count."""
    closing: tuple[Any, ...] = (False,)
    """Values of `by` that do so."""


SWITCHES = (
    Switch(("fusion.normaliser", "fusion.slope"), ("fusion.method",), ("rrf",)),
    Switch(("fusion.slope",), ("fusion.normaliser",), ("min-max", "z-score", "rank", "raw")),
    Switch(("rrf_k",), ("fusion.method",), ("weighted",)),
    Switch(("fusion", "rrf_k"), ("rulerag.index",), ("dense", "sparse")),
    Switch(("dense",), ("rulerag.index",), ("sparse",)),
    Switch(("enhance.terms",), ("enhance.synonyms", "enhance.correct")),
    Switch(("enhance.shown",), ("enhance.rewrite",)),
    Switch(("enhance.subqueries",), ("enhance.decompose",)),
    Switch(("enhance.decoding",), ("enhance.rewrite", "enhance.decompose", "crag.rounds", "crag.fallback"), (0, "")),
    Switch(("hyde",), ("enhance.hyde",)),
    Switch(("hyde.style", "hyde.decoding"), ("hyde.documents",), (0,)),
    Switch(("rerank.threshold", "rerank.refuse"), ("rerank.enabled",)),
    # A floor that is not set may be filled in at submission.
    Switch(("rerank.by",), ("rerank.enabled", "rerank.floor", "crag.evaluator"), (False, 0, "judge", "similarity")),
    Switch(("rerank.tested",), ("rerank.floor",), (0,)),
    Switch(("rerank.tested",), ("rerank.by",), ("reranker",)),
    Switch(("compress.ratio", "compress.tokens"), ("compress.enabled",)),
    Switch(("crag.calibrated", "crag.calibrated_by", "crag.judged_by"), ("crag.thresholds",), ("fixed",)),
    Switch(("crag.diversity",), ("crag.rounds",), (0,)),
    Switch(OF_JUDGE, ("crag.evaluator",), ("reranker", "similarity")),
    Switch(OF_JUDGE, ("critic.reply",), ("json",)),
    Switch((*OF_JUDGE, "anchors", "gate.labels"), ("quality",), ("rules", "verifier")),
    Switch((*CALIBRATION, "seed"), ("quality",), ("rules", "judge", "verifier")),
    Switch(("seed",), ("rulerag.order",), ("best", "worst")),
    Switch(("route.threshold",), ("route.enabled",)),
    Switch((*BY_RULES, "rules"), ("rulerag.most",), (0,)),
    Switch(
        ("rulerag.query", "rulerag.width", "rulerag.documents", "rulerag.question"), ("rulerag.use",), ("generation",)
    ),
    # Graders of plug-ins are given threshold and separators as well; "" is the dataset's grader, which is not known
    # here.
    Switch(("grading.threshold",), ("grading.grader",), tuple(GRADERS.keys() - {"f1"})),
    Switch(("grading.separators",), ("grading.grader",), tuple(GRADERS.keys() - {"set"})),
    Switch(
        ("grading.rubric", "grading.rating", "grading.decoding"),
        ("grading.grader",),
        tuple(GRADERS.keys() - {"rubric"}),
    ),
    Switch(
        ("metrics.unit", "metrics.most_units", "metrics.max_tokens", "metrics.controls"), ("metrics.names",), ((), [])
    ),
)


def covers(path: str, names: Iterable[str]) -> bool:
    """Tell whether `names` has the parameter at `path`, such as `gate.tau`, or a group around it."""
    return any(f"{path}.".startswith(f"{name}.") for name in names)


def find_closed(path: str, read: Iterable[str], value_of: Callable[[str], Any]) -> Switch | None:
    """Return the reason why the parameter at `path` is not read, if any.

    Args:
        path: a parameter that `read` covers.
        read: the parameters that are read, unless a switch keeps them from it.
        value_of: returns the value of the parameter at a path.
    """
    read = tuple(read)
    for switch in SWITCHES:
        if not covers(path, switch.paths):
            continue
        by = [each for each in switch.by if covers(each, read)]
        if by and all(value_of(each) in switch.closing for each in by):
            return switch._replace(by=tuple(by))
    return None


def get_values(params: Params) -> Callable[[str], Any]:
    """Return a function that returns the value of the parameter at a path."""
    return lambda path: attrgetter(path)(params)


def get_tree_values(tree: Mapping[str, Any]) -> Callable[[str], Any]:
    """Do the same for parameters as in JSON, of which some may be missing: those have their defaults."""

    def value_of(path: str) -> Any:
        value: Any = tree
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return attrgetter(path)(DEFAULTS)
            value = value[name]
        return value

    return value_of
