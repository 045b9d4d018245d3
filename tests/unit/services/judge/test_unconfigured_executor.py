"""Roles that an installation has nothing for."""

import pytest

from services.judge.executors import UnconfiguredExecutor
from shared.replies import Failure, FailureKind
from shared.runtime.queue import ClaimedCall

pytestmark = pytest.mark.anyio


async def test_a_role_that_nobody_answers_says_so_for_every_call() -> None:
    calls = [ClaimedCall(id=n, key=b"", role="estimate", model_id=1, request=b"{}") for n in (1, 2)]
    answers = [answer async for answer in UnconfiguredExecutor("no classifier").run(calls, None)]
    reply = Failure(kind=FailureKind.NOT_CONFIGURED, detail="no classifier")
    assert [(answer.call_id, answer.reply) for answer in answers] == [(1, reply), (2, reply)]
    assert not any(answer.is_infrastructure for answer in answers)
