"""Grading on processes that can be killed: some expressions outlast every limit of the grader's own."""

import msgspec

from shared.contracts.grading import MATH, Rules
from shared.contracts.replies import Failure, FailureKind, Graded, Marked
from shared.processes.child_pool import ChildPool
from shared.rag.graders import mark

Verdict = Graded | Marked

DEADLINE_S = 5.0


class GradingPool(ChildPool):
    """At most `size` answers are graded at once, each within `deadline_s` seconds of the processor."""

    def __init__(self, size: int = 2, deadline_s: float = DEADLINE_S) -> None:
        module = "shared.processes.grading_process"
        super().__init__(module, "grader", FailureKind.GRADER_TIMEOUT, size=size, deadline_s=deadline_s)

    async def grade(self, answer: str | None, gold: str, rules: Rules = MATH) -> Verdict | Failure:
        """The verdict on `answer` by `rules`; without an answer (None) it is wrong and no process is asked.

        An answer that is the gold one letter by letter is right, and no process is asked either. What runs into the
        deadline is tried once more, since it is stored for ever. A gold answer that its grader cannot use is an
        UNPARSED failure.

        Raises:
            RuntimeError: if the pool is closed.
        """
        if answer is None:
            return mark(None, gold, rules)
        if answer in (gold, *rules.golds) and rules.grader in ("math", "exact", "text"):
            return mark(answer, answer, msgspec.structs.replace(rules, golds=()))
        request = {"answer": answer, "gold": gold, "rules": msgspec.to_builtins(rules)}
        reply = await self.ask(request)
        if isinstance(reply, Failure) and reply.kind is FailureKind.GRADER_TIMEOUT:
            reply = await self.ask(request)
        if isinstance(reply, Failure):
            return reply
        if "invalid" in reply:
            return Failure(kind=FailureKind.UNPARSED, detail=reply["invalid"])
        verdict: Verdict = msgspec.convert(reply["verdict"], Verdict)
        return verdict
