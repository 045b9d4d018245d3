"""`python -m services.judge`: the worker of the judge lane: whatever the generator does not do."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from services.judge.absent import Absent
from services.judge.estimates import Estimates
from services.judge.finding_rules import FindingRules
from services.judge.grades import Grades
from services.judge.mining import Mining
from services.judge.mining_pool import MiningPool
from services.judge.reranking import Reranking
from services.judge.retrieving import Retrieving
from services.judge.verifying import Verifying
from services.judge.verifying_pool import VerifyingPool
from shared.contracts.calls import Lane
from shared.processes.grading_pool import GradingPool
from shared.runtime.execution import Executor
from shared.runtime.models import WEIGHTS
from shared.runtime.process import Tools, serve
from shared.runtime.prompting import Prompting
from shared.settings import load


async def executors(tools: Tools) -> Mapping[str, Executor]:
    """One executor a role."""
    limits = tools.settings.workers
    prompting = Prompting(tools.database, tools.guards)
    return {
        "retrieve": Retrieving(tools.database, tools.settings),
        "rerank": Reranking(tools.database, tools.settings),
        "judge": prompting,
        "write": prompting,
        "grade": Grades(GradingPool(limits.graders, deadline_s=limits.grade_deadline_s)),
        "verify": Verifying(tools.database, VerifyingPool(limits.verifiers, deadline_s=limits.verify_deadline_s)),
        "estimate": Estimates() if WEIGHTS.exists() else Absent("no difficulty classifier is installed"),
        "rules": FindingRules(tools.database),
    }


@asynccontextmanager
async def miners(tools: Tools) -> AsyncIterator[Mapping[str, Executor]]:
    """The executor of what is mined, until the process is told to stop."""
    limits = tools.settings.workers
    mining = Mining(tools.database, MiningPool(limits.miners, limits.mine_deadline_s, limits.mining_mib))
    try:
        yield {"mine": mining}
    finally:
        await mining.close()


if __name__ == "__main__":
    serve(Lane.JUDGE, load(), executors, miners)
