"""Run the worker of the judge lane, which has all roles but the generator's: `python -m services.judge`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from services.judge.executors import (
    EmbedExecutor,
    EstimateExecutor,
    GradeExecutor,
    MineExecutor,
    ProgramExecutor,
    RerankExecutor,
    RetrieveExecutor,
    RulesExecutor,
    UnconfiguredExecutor,
    VerifyExecutor,
)
from services.judge.pools import MiningPool, ProgramPool, VerificationPool
from shared.calls import Lane
from shared.processes.grading_pool import GradingPool
from shared.runtime.pins import WEIGHTS
from shared.runtime.process import Tools, serve
from shared.runtime.prompting import PromptExecutor
from shared.runtime.worker import Executor
from shared.settings import load


async def make_executors(tools: Tools) -> Mapping[str, Executor]:
    database, settings, limits = tools.database, tools.settings, tools.settings.workers
    prompting = PromptExecutor(database, tools.guards)
    make_graders = partial(GradingPool, limits.graders, limits.grade_deadline_s)
    verifiers = VerificationPool(limits.verifiers, deadline_s=limits.verify_deadline_s)
    no_estimator = UnconfiguredExecutor("no difficulty classifier is installed")
    no_programs = UnconfiguredExecutor("`workers.programs` is 0: programs are not run here")
    programs = ProgramPool(limits.programs, deadline_s=limits.program_deadline_s)
    return {
        "retrieve": RetrieveExecutor(database, settings),
        "rerank": RerankExecutor(database, settings),
        "embed": EmbedExecutor(settings),
        "judge": prompting,
        "write": prompting,
        "grade": GradeExecutor(make_graders(), make_graders),
        "verify": VerifyExecutor(database, verifiers),
        "execute": ProgramExecutor(programs) if limits.programs else no_programs,
        "estimate": EstimateExecutor() if WEIGHTS.exists() else no_estimator,
        "rules": RulesExecutor(database),
    }


@asynccontextmanager
async def run_miner(tools: Tools) -> AsyncIterator[Mapping[str, Executor]]:
    """Yield the executor of mine calls, and close it when the process is told to stop."""
    limits = tools.settings.workers
    mining = MineExecutor(tools.database, MiningPool(limits.miners, limits.mine_deadline_s, limits.mining_mib))
    try:
        yield {"mine": mining}
    finally:
        await mining.close()


if __name__ == "__main__":
    serve(Lane.JUDGE, load(), make_executors, run_miner)
