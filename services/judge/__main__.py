"""`python -m services.judge`: the worker of the judge lane: whatever the generator does not do."""

from collections.abc import Mapping

from services.judge.absent import Absent
from services.judge.estimates import Estimates
from services.judge.grades import Grades
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
    }


if __name__ == "__main__":
    serve(Lane.JUDGE, load(), executors)
