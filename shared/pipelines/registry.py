"""Pipelines by name, and the hash that tells one version of a pipeline from another.

A module in this package registers its pipeline with `@pipeline("name")`; nothing else lists it. A change of what a
pipeline asks or answers raises its `version`; `tests/unit/shared/pipelines/test_versions.py` fails until it is raised.
A plug-in declares its pipeline in the same way, and `shared/plugins/loading.py` adopts it; its files are its version.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from shared import canonical, pipelines
from shared.params import Params
from shared.pipelines import grading, source
from shared.pipelines.switches import Switch, covers, find_closed, get_tree_values
from shared.rag import prompts
from shared.rag.answer_metrics import METRICS_VERSION
from shared.samples import Library, Pipeline, Prepare, Sample, Steps
from shared.shapes import PluginPin

AFTERWARDS = ("grading", "metrics")
"""Parameters that apply after every pipeline."""
FUSED = ("dense", *(f"fusion.{name}" for name in ("method", "normaliser", "slope", "dense", "sparse")), "rrf_k")
"""Parameters of a pipeline that searches both indexes and fuses the lists with fixed weights."""
ENHANCED = (
    *("candidates", "compress", "context_size", "dense", "duplicates", "enhance", "fusion"),
    *("generate", "hyde", "judge.per_repeat"),
    *("rerank.by", "rerank.enabled", "rerank.refuse", "rerank.threshold", "rrf_k"),
)
"""Parameters of a pipeline that searches by every wording, reranks and compresses."""


class UnknownPipeline(LookupError):
    """Raised when no pipeline has this name; the message lists those that exist."""


class Registered(NamedTuple):
    """A pipeline by its name, with the calibration that runs before a job's samples, if it needs one."""

    name: str
    run: Pipeline
    prepare: Prepare | None
    reads: frozenset[str] | None = None
    """Parameters that it reads, such as `candidates` or `rerank.floor`; a group's name stands for all of the group.
    Those of `AFTERWARDS` count for every pipeline. None: it does not say, and any parameter is accepted."""
    offered: bool = True
    """Whether people may submit jobs with it; the runtime alone starts the others."""
    version: int = 1
    """Raised whenever the same replies would lead to other calls or another outcome."""
    plugin: PluginPin | None = None
    """The plug-in that it comes from; None if it is shipped."""

    def run_and_grade(self, sample: Sample, params: Params, library: Library) -> Steps:
        """Run it over one sample, grade the answer, and measure it."""
        steps = self.run(sample, params, library)
        return grading.run_and_grade(steps, sample.item, library, params, sample.control, sample.given)

    def ignores(self, path: str) -> bool:
        """Tell whether it reads nothing at this path of the parameters, such as `gate.tau`, for any values of the
        others."""
        return self.reads is not None and not covers(path, (*self.reads, *AFTERWARDS))

    def find_closed(self, path: str, value_of: Callable[[str], Any]) -> Switch | None:
        """Return the reason why it does not read this parameter with these values of the others, if any."""
        return None if self.reads is None else find_closed(path, (*self.reads, *AFTERWARDS), value_of)

    def select_read(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of `params` that it reads, so that several pipelines can be given the same `params`."""
        value_of = get_tree_values(params)

        def select(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
            parts = {
                name: select(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
                for name, value in tree.items()
                if isinstance(value, Mapping)
                or not (self.ignores(f"{prefix}{name}") or self.find_closed(f"{prefix}{name}", value_of))
            }
            return {name: value for name, value in parts.items() if value != {}}

        return select(params, "")


registered: dict[str, Registered] = {}
_declared: dict[Pipeline, Registered] = {}
"""Pipelines outside this package; `get` does not find them until they are adopted."""
_adopted: dict[str, tuple[source.Texts, Callable[[], source.Texts]]] = {}
"""By name, a plug-in's files as imported, and a function that reads them from disk."""


def pipeline(
    name: str,
    prepare: Prepare | None = None,
    reads: Iterable[str] | None = None,
    *,
    offered: bool = True,
    version: int = 1,
) -> Callable[[Pipeline], Pipeline]:
    """Register the decorated generator function under `name`, with the parameters that it reads.

    A function outside this package is only declared: `adopt` registers it.

    Raises:
        ValueError: if another function has that name.
    """

    def register(run: Pipeline) -> Pipeline:
        made = Registered(name, run, prepare, None if reads is None else frozenset(reads), offered, version)
        if not run.__module__.startswith(f"{pipelines.__name__}."):
            _declared[run] = made
            return run
        if name in registered:
            raise ValueError(f"two pipelines are called {name!r}; rename one of them")
        registered[name] = made
        return run

    return register


def get_declared(name: str, run: object) -> Registered:
    """Return the pipeline that the entry point `name` of a plug-in refers to.

    Raises:
        TypeError: if `run` is not a function decorated with `@pipeline(name)`.
    """
    found = _declared.get(run) if callable(run) else None
    if found is None:
        raise TypeError(f'no pipeline found: decorate the generator function with `@pipeline("{name}")`')
    if found.name != name:
        raise TypeError(
            f"its decorator says `@pipeline({found.name!r})`, but its entry point is {name!r}: use one name"
        )
    return found


def adopt(found: Registered, plugin: PluginPin, imported: source.Texts, read: Callable[[], source.Texts]) -> None:
    """Register a pipeline of a plug-in; `imported` are its files as imported, `read` reads them again.

    Raises:
        ValueError: if a pipeline has that name.
    """
    if found.name in names():
        raise ValueError(f"two pipelines are called {found.name!r}; rename one of them")
    _adopted[found.name] = (imported, read)
    registered[found.name] = found._replace(plugin=plugin)


def get(name: str) -> Registered:
    """Find the pipeline called `name`.

    Raises:
        UnknownPipeline: if it does not exist.
    """
    _discover()
    if name not in registered:
        raise UnknownPipeline(f"no pipeline {name!r}; the pipelines are {', '.join(list_offered())}")
    return registered[name]


def names() -> tuple[str, ...]:
    """Return all pipelines' names, sorted."""
    _discover()
    return tuple(sorted(registered))


def list_offered() -> tuple[str, ...]:
    """Return the sorted names of the pipelines that people may submit jobs with."""
    return tuple(name for name in names() if registered[name].offered)


def pipeline_hash(name: str, params: Params | None = None) -> str:
    """Return the SHA-256, in hex, of a shipped pipeline's name and version, or of a plug-in's files as imported; of a
    job with metrics, whose parameters are `params`, also of the metrics' version.

    Raises:
        UnknownPipeline: if the pipeline does not exist.
    """
    found = get(name)
    own = found.plugin.hash if found.plugin else canonical.digest([name, found.version]).hex()
    return canonical.digest([own, METRICS_VERSION]).hex() if params is not None and params.metrics.names else own


def source_hash() -> str:
    """Return the SHA-256, in hex, over all pipelines and the files of `SOURCES`, which answer their calls.

    It is equal for processes that have imported the same sources.
    """
    return canonical.digest([[(name, pipeline_hash(name)) for name in names()], sorted(_IMPORTED.items())]).hex()


def list_changed_files(name: str) -> list[source.Change]:
    """List files that changed on disk since this process imported them; a restart reads them.

    Those of a plug-in's pipeline are the plug-in's; every other pipeline depends on all files of `SOURCES`.

    Raises:
        UnknownPipeline: if the pipeline does not exist.
    """
    if get(name).plugin:
        imported, read = _adopted[name]
        return source.list_changes(imported, read())
    return source.list_changes(_IMPORTED, source.read_packages(SOURCES))


@cache
def _discover() -> None:
    """Import every module of this package, so that its pipeline is registered, and read every template."""
    for module in pkgutil.iter_modules(pipelines.__path__):
        importlib.import_module(f"{pipelines.__name__}.{module.name}")
    for template in prompts.list_packaged_ids():
        prompts.template(template)


SOURCES = ("shared.pipelines", "shared.rag", "shared.mathtext")
"""Packages that decide what pipelines do and how the program itself answers their calls."""
_IMPORTED = source.read_packages(SOURCES)
"""Read when this module is imported, because files edited before the first job are not run by the process."""
