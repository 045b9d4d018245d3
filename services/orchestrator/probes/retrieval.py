"""What retrieval needs besides its own files: the retriever looks at it; where none runs, a program of its own does."""

import asyncio
import sys
from functools import partial

import msgspec

from services.orchestrator.deps import Deps
from services.orchestrator.probes.asking import asked
from services.orchestrator.probes.probe import Probe
from shared.checks import retrieval
from shared.checks.check import Check, NotReady, correct
from shared.settings import Settings

PROGRAM = "services.retriever.checks"


def probes(settings: Settings) -> list[Probe]:
    """For what the settings name."""
    chosen = settings.retrieval
    names = ["embeddings"]
    if chosen.reranker.kind != "none":
        names.append("reranker")
    if "elasticsearch" in (chosen.dense.backend, chosen.sparse.backend):
        names.append("elasticsearch")
    return [_probe(name) for name in names]


def _probe(name: str) -> Probe:
    return Probe(name=name, run=partial(_look, name), fix=correct(f"retrieval.{name}"), deep=True, alone=True)


async def _look(name: str, deps: Deps) -> str:
    if deps.settings.retriever_url:
        return await asked(deps, deps.settings.retriever_url, name)
    if name == "elasticsearch":
        return await _program(name)
    return await asyncio.to_thread(retrieval.look, name, deps.settings.retrieval)


async def _program(name: str) -> str:
    """The retriever's own check of this folder's configuration."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", PROGRAM, name, stdout=pipe)
    said, _ = await process.communicate()
    if process.returncode:
        raise NotReady(f"{PROGRAM} ended with {process.returncode}", fix="its last words are above")
    [found] = msgspec.json.decode(said, type=list[Check])
    if not found.ok:
        raise NotReady(found.detail, fix=found.fix)
    return found.detail
