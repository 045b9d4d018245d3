"""Grading on processes that can be killed: some expressions outlast every limit of the grader's own."""

from services.judge.child_pool import ChildPool
from shared.contracts.calls import Failure, FailureKind, Graded

DEADLINE_S = 5.0


class GradingPool(ChildPool):
    """At most `size` answers are graded at once, each within `deadline_s` seconds or not at all."""

    def __init__(self, size: int = 2, deadline_s: float = DEADLINE_S) -> None:
        module = "services.judge.grading_process"
        super().__init__(module, "grader", FailureKind.GRADER_TIMEOUT, size=size, deadline_s=deadline_s)

    async def grade(self, answer: str | None, gold: str) -> Graded | Failure:
        """Both graders' verdicts on `answer`; without an answer (None) both are False and no process is asked.

        Raises:
            RuntimeError: if the pool is closed.
        """
        if answer is None:
            return Graded(math_verify=False, strict=False)
        reply = await self.ask({"answer": answer, "gold": gold})
        if isinstance(reply, Failure):
            return reply
        return Graded(math_verify=reply["math_verify"], strict=reply["strict"])
