"""Pipelines by name, and the hash that tells one version of a pipeline from another.

A module in this package registers its pipeline with `@pipeline("name")`; putting the file here is all it takes.
"""

import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from shared import pipelines
from shared.contracts import canonical
from shared.contracts.samples import Pipeline, Prepare

FUSED = ("fusion.method", "fusion.normaliser", "fusion.dense", "fusion.sparse", "rrf_k")
"""Parameters of a pipeline that fuses two lists with fixed weights."""


class UnknownPipeline(LookupError):
    """No pipeline has this name; the message lists those that exist."""


class Registered(NamedTuple):
    """A pipeline by its name, with the calibration that runs before a job's samples, if it needs one."""

    name: str
    run: Pipeline
    prepare: Prepare | None
    reads: frozenset[str] | None = None
    """Parameters that it reads, such as `candidates` or `rerank.floor`; a group's name stands for all of the group.
    None: it does not say, and any parameter is accepted."""

    def ignored(self, path: str) -> bool:
        """Whether it reads nothing at this path of the parameters, such as `gate.tau`."""
        return self.reads is not None and not any(f"{path}.".startswith(f"{read}.") for read in self.reads)


_registered: dict[str, Registered] = {}


def pipeline(
    name: str, prepare: Prepare | None = None, reads: Iterable[str] | None = None
) -> Callable[[Pipeline], Pipeline]:
    """Register the decorated generator function under `name`, with the parameters that it reads.

    Raises:
        ValueError: if another function has that name.
    """

    def register(run: Pipeline) -> Pipeline:
        if name in _registered:
            raise ValueError(f"two pipelines are called {name!r}; rename one of them")
        _registered[name] = Registered(name, run, prepare, None if reads is None else frozenset(reads))
        return run

    return register


def get(name: str) -> Registered:
    """The pipeline called `name`.

    Raises:
        UnknownPipeline: if there is none.
    """
    _discover()
    if name not in _registered:
        raise UnknownPipeline(f"no pipeline {name!r}; there are: {', '.join(names())}")
    return _registered[name]


def names() -> tuple[str, ...]:
    """All pipelines' names, sorted."""
    _discover()
    return tuple(sorted(_registered))


def pipeline_hash(name: str) -> str:
    """SHA-256 in hex over the sources that decide what a pipeline does: its own module and all of shared/rag.

    Raises:
        UnknownPipeline: if there is no such pipeline.
    """
    module = inspect.getmodule(get(name).run)
    if module is None:
        raise UnknownPipeline(f"pipeline {name!r} has no source to hash")
    digest = hashlib.sha256()
    digest.update(canonical.encode([inspect.getsource(module), _rag_sources()]))
    return digest.hexdigest()


@cache
def _rag_sources() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_sources(resources.files("shared.rag"), "")))


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    """(path, text) of every source file and template under `folder`."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".py", ".toml")):
            yield prefix + entry.name, entry.read_text("utf-8")


@cache
def _discover() -> None:
    """Import every module of this package, so that its pipeline is registered."""
    for module in pkgutil.iter_modules(pipelines.__path__):
        importlib.import_module(f"{pipelines.__name__}.{module.name}")
