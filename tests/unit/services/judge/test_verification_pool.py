"""The verifier's processes: counts and the hard deadline. What all pools share is tested with grading."""

import asyncio
import os
import signal

import pytest

from services.judge import verification_process
from services.judge.pools import VerificationPool
from shared.replies import Failure, FailureKind, Verified

pytestmark = pytest.mark.anyio

SLOW = " ".join(
    rf"$(a_{{{n}}} + y + z)^{{24}} = (a_{{{n}}}^2 + y^2 + z^2 + 2a_{{{n}}}y + 2a_{{{n}}}z + 2yz)^{{12}}$"
    for n in range(400)
)
"""Identities that SymPy expands one by one."""


async def test_documents_are_verified_in_a_process_that_is_kept_until_it_dies() -> None:
    """Starting it costs more than a document.

    A process that dies at work is an infrastructure failure: the runtime tries again.
    """
    async with VerificationPool(1, deadline_s=60) as pool:
        assert await pool.verify("$1+1=2$, $2+2=5$, $x=3$, $(a+b)^2=a^2+2ab+b^2$") == Verified(
            verified=2, refuted=1, unknown=1
        )
        before = pool.pids
        assert await pool.verify("8+7=15") == Verified(verified=1, refuted=0, unknown=0)
        assert pool.pids == before
        (victim,) = before
        verifying = asyncio.create_task(pool.verify(SLOW))
        await asyncio.sleep(0.1)
        os.kill(victim, signal.SIGKILL)
        detail = "the verifier ended with exit status -9"
        assert await verifying == Failure(kind=FailureKind.BACKEND_ERROR, detail=detail)


async def test_a_document_that_takes_too_long_is_a_failure_of_its_own_kind() -> None:
    async with VerificationPool(1, deadline_s=0.5) as pool:
        await pool.start()
        (stuck,) = pool.pids
        reply = await pool.verify(SLOW)
        assert reply == Failure(kind=FailureKind.VERIFIER_TIMEOUT, detail="no verdict within 0.5 s of processor time")
        with pytest.raises(ProcessLookupError):
            os.kill(stuck, 0)
        await pool.start()
        assert await pool.verify("$1+1=2$") == Verified(verified=1, refuted=0, unknown=0)


def test_the_process_answers_with_what_a_reply_is_made_of() -> None:
    answer = verification_process.load()
    assert Verified(**answer({"text": "1+1=2. \ud800"})).verified == 1
