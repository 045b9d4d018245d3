"""Grading on processes that can be killed: some expressions outlast every limit of the grader's own."""

import msgspec

from services.judge.child_pool import ChildPool
from shared.contracts.calls import Failure, FailureKind, Graded, Marked
from shared.contracts.grading import MATH, Rules
from shared.rag.graders import mark

Verdict = Graded | Marked

DEADLINE_S = 5.0


class GradingPool(ChildPool):
    """At most `size` answers are graded at once, each within `deadline_s` seconds or not at all."""

    def __init__(self, size: int = 2, deadline_s: float = DEADLINE_S) -> None:
        module = "services.judge.grading_process"
        super().__init__(module, "grader", FailureKind.GRADER_TIMEOUT, size=size, deadline_s=deadline_s)

    async def grade(self, answer: str | None, gold: str, rules: Rules = MATH) -> Verdict | Failure:
        """The verdict on `answer` by `rules`; without an answer (None) it is wrong and no process is asked.

        A gold answer that its grader cannot use is an UNPARSED failure.

        Raises:
            RuntimeError: if the pool is closed.
        """
        if answer is None:
            return mark(None, gold, rules)
        reply = await self.ask({"answer": answer, "gold": gold, "rules": msgspec.to_builtins(rules)})
        if isinstance(reply, Failure):
            return reply
        if "invalid" in reply:
            return Failure(kind=FailureKind.UNPARSED, detail=reply["invalid"])
        verdict: Verdict = msgspec.convert(reply["verdict"], Verdict)
        return verdict
