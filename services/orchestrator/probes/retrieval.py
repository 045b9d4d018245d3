"""Checks of what retrieval needs: run by the retriever, or by a separate program if none runs."""

import asyncio
import sys
from functools import partial

import msgspec

from services.orchestrator.deps import Deps
from services.orchestrator.probes.probe import Probe
from services.orchestrator.probes.remote_checks import ask_check
from shared import checks
from shared.checks import Check, NotReady, advise_setting
from shared.settings import Settings

PROGRAM = "services.retriever.checks"


def list_probes(settings: Settings) -> list[Probe]:
    """Return the probes that the settings call for."""
    chosen = settings.retrieval
    names = ["embeddings"]
    if chosen.reranker.kind != "none":
        names.append("reranker")
    if "elasticsearch" in (chosen.dense.backend, chosen.sparse.backend):
        names.append("elasticsearch")
    return [_probe(name) for name in names]


def _probe(name: str) -> Probe:
    return Probe(name=name, run=partial(_look, name), fix=advise_setting(f"retrieval.{name}"), deep=True, alone=True)


async def _look(name: str, deps: Deps) -> str:
    if deps.settings.retriever_url:
        return await ask_check(deps, deps.settings.retriever_url, name)
    if name == "elasticsearch":
        return await _run_program(name)
    return await asyncio.to_thread(checks.check_retrieval_model, name, deps.settings.retrieval)


async def _run_program(name: str) -> str:
    """Run the retriever's own check of this folder's configuration in a process."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", PROGRAM, name, stdout=pipe)
    said, _ = await process.communicate()
    if process.returncode:
        raise NotReady(f"{PROGRAM} ended with {process.returncode}", fix="see its output above")
    [found] = msgspec.json.decode(said, type=list[Check])
    if not found.ok:
        raise NotReady(found.detail, fix=found.fix)
    return found.detail
