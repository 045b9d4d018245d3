"""Answer grade calls with a pool of processes that can be killed."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from services.judge.tasks import as_completed
from shared.calls import MATH, Request, Rules
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.processes.grading_pool import GradingPool
from shared.rag.grading import GRADERS
from shared.replies import Failure, FailureKind, Reply
from shared.runtime.pins import grader_identity
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import Wait
from shared.shapes import Kind, PluginPin

_REQUEST = msgspec.json.Decoder(Request)


class GradeExecutor:
    """The executor of grade calls; the grader of each plug-in has a pool of its own, so that it stops no other."""

    def __init__(self, pool: GradingPool, plugin_pool: Callable[[Plugin], GradingPool]) -> None:
        """`plugin_pool` makes the pool of a plug-in's grader, when the first answer comes."""
        self._pool = pool
        self._plugin_pool = plugin_pool
        self._pools: dict[PluginPin, GradingPool] = {}

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncGenerator[AnsweredCall | Wait, None]:  # noqa: ARG002 - no lease
        """Yield the grades as they come; the pool bounds how many run at once."""
        async with aclosing(as_completed([self._grade(call) for call in calls])) as answers:
            async for answer in answers:
                yield answer

    async def _grade(self, call: ClaimedCall) -> AnsweredCall | Wait:
        request = _REQUEST.decode(call.request)
        rules = request.rules or MATH
        plugin = self._find_plugin(rules, request.model)
        if plugin is None and rules.grader not in GRADERS:
            return _wait(call, rules)
        pool = self._pool if plugin is None else self._pool_of(plugin)
        answer, gold = _require_text(request.values["answer"]), _require_text(request.values["gold"]) or ""
        started = datetime.now(UTC)
        reply = await pool.grade(answer, gold, rules)
        if _is_broken(reply) and plugin is not None and loading.has_changed(plugin):
            return _wait(call, rules)
        return AnsweredCall(
            call_id=call.id, reply=reply, receipt=Receipt(started_at=started, ended_at=datetime.now(UTC))
        )

    def _find_plugin(self, rules: Rules, model: str) -> Plugin | None:
        """Find the plug-in that grades by these rules and has the hash `model`; None if there is none."""
        plugin = loading.get_usable(Kind.GRADER, rules.grader)
        return plugin if plugin is not None and grader_identity(rules.grader).hash.hex() == model else None

    def _pool_of(self, plugin: Plugin) -> GradingPool:
        if plugin.pin not in self._pools:
            self._pools[plugin.pin] = self._plugin_pool(plugin)
        return self._pools[plugin.pin]


def _is_broken(reply: Reply) -> bool:
    return isinstance(reply, Failure) and reply.kind is FailureKind.BACKEND_ERROR


def _wait(call: ClaimedCall, rules: Rules) -> Wait:
    """Make the call wait for the plug-in's code of when the job was submitted: other code would give other verdicts."""
    message = "it is not installed with the code that the job was submitted with; `mathrag plugin list` says more"
    return Wait(call.id, f"the plug-in's grader {rules.grader!r}", message)


def _require_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
