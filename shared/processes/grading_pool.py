"""Grade answers in child processes that can be killed: some expressions outlast every limit within the grader."""

import msgspec

from shared.calls import MATH, MATHEMATICAL, Rules
from shared.plugins.catalogue import Plugin
from shared.processes.children import ChildPool
from shared.rag.grading import mark
from shared.replies import Failure, FailureKind, Graded, Marked

Verdict = Graded | Marked

DEADLINE_S = 5.0


class GradingPool(ChildPool):
    """Grades at most `size` answers at once, each within `deadline_s` seconds of processor time."""

    def __init__(self, size: int = 2, deadline_s: float = DEADLINE_S, plugin: Plugin | None = None) -> None:
        """`plugin`: the grader of a plug-in, which its own processes have to themselves."""
        module, name = "shared.processes.grading_process", "grader"
        words: tuple[str, ...] = ()
        if plugin is not None:
            module, name = "shared.processes.plugin_grading_process", f"grader {plugin.name}"
            words = (plugin.value, plugin.distribution, plugin.pin.hash)
        super().__init__(module, name, FailureKind.GRADER_TIMEOUT, size=size, deadline_s=deadline_s, arguments=words)

    async def grade(self, answer: str | None, gold: str, rules: Rules = MATH) -> Verdict | Failure:
        """Grade `answer` by `rules`.

        A missing answer (None) is wrong, and an answer that equals a gold one letter by letter is right, both without a
        child. An item that exceeds the deadline is tried once more, since its verdict is stored for ever. A gold answer
        that the grader cannot use is an UNPARSED failure.

        Raises:
            RuntimeError: if the pool is closed.
        """
        if answer is None:
            return mark(None, gold, rules)
        if answer in (gold, *rules.golds) and rules.grader in (*MATHEMATICAL, "exact", "text"):
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
