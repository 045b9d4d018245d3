"""Pipelines by name, and the hash that tells one version of a pipeline from another.

A module in this package registers its pipeline with `@pipeline("name")`; putting the file here is all it takes.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from shared import pipelines
from shared.contracts import canonical
from shared.contracts.params import Params
from shared.contracts.samples import Library, Pipeline, Prepare, Sample, Steps
from shared.pipelines import grading, source
from shared.rag import prompts

AFTERWARDS = ("grading", "verify.modulus")
"""Parameters of what comes after every pipeline: the grade, and the ending of a wrong answer."""
FUSED = ("fusion.method", "fusion.normaliser", "fusion.dense", "fusion.sparse", "rrf_k")
"""Parameters of a pipeline that fuses two lists with fixed weights."""
ENHANCED = (
    *("candidates", "compress", "context_size", "duplicates", "enhance", "fusion"),
    *("generate", "hyde", "judge.per_repeat", "rerank", "rrf_k"),
)
"""Parameters of a pipeline that searches by every wording, reranks and compresses."""


class UnknownPipeline(LookupError):
    """No pipeline has this name; the message lists those that exist."""


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

    def graded(self, sample: Sample, params: Params, library: Library) -> Steps:
        """Its run over one sample, and the grade of what it answers."""
        return grading.graded(self.run(sample, params, library), sample.item, library, params.grading)

    def ignored(self, path: str) -> bool:
        """Whether it reads nothing at this path of the parameters, such as `gate.tau`."""
        if self.reads is None:
            return False
        return not covered(path, (*self.reads, *AFTERWARDS))

    def only_read(self, params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """The part of a job's `params` that it reads, for whoever asks several pipelines with the same."""
        parts = {
            name: self.only_read(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
            for name, value in params.items()
            if isinstance(value, Mapping) or not self.ignored(f"{prefix}{name}")
        }
        return {name: value for name, value in parts.items() if value != {}}


def covered(path: str, reads: Iterable[str]) -> bool:
    """Whether the parameter at `path`, such as `gate.tau`, is one of `reads`, or of a group that stands there."""
    return any(f"{path}.".startswith(f"{read}.") for read in reads)


_registered: dict[str, Registered] = {}


def pipeline(
    name: str, prepare: Prepare | None = None, reads: Iterable[str] | None = None, *, offered: bool = True
) -> Callable[[Pipeline], Pipeline]:
    """Register the decorated generator function under `name`, with the parameters that it reads.

    Raises:
        ValueError: if another function has that name.
    """

    def register(run: Pipeline) -> Pipeline:
        if name in _registered:
            raise ValueError(f"two pipelines are called {name!r}; rename one of them")
        _registered[name] = Registered(name, run, prepare, None if reads is None else frozenset(reads), offered)
        _imported(run.__module__)
        return run

    return register


def get(name: str) -> Registered:
    """The pipeline called `name`.

    Raises:
        UnknownPipeline: if there is none.
    """
    _discover()
    if name not in _registered:
        raise UnknownPipeline(f"no pipeline {name!r}; there are: {', '.join(offered())}")
    return _registered[name]


def names() -> tuple[str, ...]:
    """All pipelines' names, sorted."""
    _discover()
    return tuple(sorted(_registered))


def offered() -> tuple[str, ...]:
    """The names of those that people may submit jobs with, sorted."""
    return tuple(name for name in names() if _registered[name].offered)


def pipeline_hash(name: str) -> str:
    """SHA-256 in hex over what decides what a pipeline does: its module, all that this imports, and their data files.

    They are hashed as this process has imported them, whatever has become of the files since.

    Raises:
        UnknownPipeline: if there is no such pipeline.
    """
    module = get(name).run.__module__
    if not _imported(module):
        raise UnknownPipeline(f"pipeline {name!r} has no source to hash")
    return _hash(module)


def source_hash() -> str:
    """SHA-256 in hex over all pipelines, shared/rag and shared/mathtext, which answer the pipelines' calls.

    It is equal for processes that have imported the same sources.
    """
    return canonical.digest([[(name, pipeline_hash(name)) for name in names()], sorted(_ANSWERING.items())]).hex()


def changed_files(name: str) -> list[source.Change]:
    """Files of a pipeline's source that have changed on disk since this process imported them; a restart reads them.

    Raises:
        UnknownPipeline: if there is no such pipeline.
    """
    module = get(name).run.__module__
    return source.changes(_imported(module), source.covered(module, source.on_disk))


@cache
def _hash(module: str) -> str:
    return canonical.digest(sorted(_imported(module).items())).hex()


@cache
def _imported(module: str) -> source.Texts:
    """Read while the module is imported: `pipeline` asks for it."""
    return source.covered(module, source.imported)


@cache
def _discover() -> None:
    """Import every module of this package, so that its pipeline is registered, and read every template."""
    for module in pkgutil.iter_modules(pipelines.__path__):
        importlib.import_module(f"{pipelines.__name__}.{module.name}")
    for template in prompts.template_ids():
        prompts.template(template)


_ANSWERING = source.package("shared.rag") | source.package("shared.mathtext")
"""Read with this module, long before the first job asks for it: what is edited in between has not been imported."""
