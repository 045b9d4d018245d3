"""The grading pool: verdicts, the hard deadline, and what is left behind."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from shared.calls import MATH, Rules
from shared.mathtext import mathematics
from shared.processes import children
from shared.processes.grading_pool import GradingPool
from shared.replies import Failure, FailureKind, Graded, Marked
from tests.unit.shared.processes.quick_grading_process import ENDLESS

pytestmark = pytest.mark.anyio

HANGS = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}"
"""Math-Verify issue #65: evaluating it outlasts the library's own time limit."""


REGEX = Rules(grader="regex")
WRONG = Graded(math_verify=False, strict=False)


class QuickPool(GradingPool):
    def __init__(self, size: int, deadline_s: float) -> None:
        super().__init__(size, deadline_s)
        self._module = "tests.unit.shared.processes.quick_grading_process"


@pytest.fixture(scope="module")
async def pool() -> AsyncIterator[GradingPool]:
    async with GradingPool(size=1, deadline_s=30) as started:
        await started.start()
        yield started


@pytest.mark.parametrize(
    ("answer", "gold", "math_verify", "strict"),
    [
        ("5", "5", True, True),
        ("5", "6", False, False),
        ("0.5", r"\frac{1}{2}", True, True),
        ("2/4", r"\frac{1}{2}", True, False),
        ("Evelyn", r"\text{Evelyn}", True, False),
        ("40000", "40{,}000", True, False),
        ("5", "x=5", True, True),
        (r"\{2, 1\}", r"\{1, 2\}", True, False),
        ("0.333", r"\frac{1}{3}", False, False),
        ("(1,2)", "[1,2]", False, False),
        ("12:00", "11:00", False, False),
        ("", "5", False, False),
        (r"\frac{", "2", False, False),
        ("\ud800", "5", False, False),
        ("a\nb", "5", False, False),
    ],
)
async def test_both_graders_give_their_verdict(
    pool: GradingPool, answer: str, gold: str, math_verify: bool, strict: bool
) -> None:
    assert await pool.grade(answer, gold) == Graded(math_verify=math_verify, strict=strict)


async def test_a_gold_answer_that_is_no_regular_expression_is_a_failure(pool: GradingPool) -> None:
    reply = await pool.grade("5", "(5", Rules(grader="regex"))
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED
    assert "'(5' is no regular expression" in reply.detail


async def test_an_answer_is_right_if_any_gold_answer_matches_it(pool: GradingPool) -> None:
    assert await pool.grade("0.5", "2", Rules(golds=("3", r"\frac{1}{2}"))) == Graded(math_verify=True, strict=True)
    words = Rules(grader="text", golds=("United States", "USA"))
    assert await pool.grade("the U.S.A.", "America", words) == Marked(correct=True, strict=False)


async def test_an_unreadable_gold_answer_has_no_verdict(pool: GradingPool) -> None:
    assert await pool.grade("5", "") == Graded(math_verify=None, strict=False)


async def test_one_child_serves_many_items(pool: GradingPool) -> None:
    before = pool.pids
    assert len(before) == 1
    await asyncio.gather(*(pool.grade(str(i), "5") for i in range(10)))
    assert pool.pids == before


async def test_no_answer_needs_no_process() -> None:
    pool = GradingPool(size=1)
    assert await pool.grade(None, "5") == Graded(math_verify=False, strict=False)
    assert pool.pids == frozenset()


async def test_an_endless_item_is_killed_at_the_deadline_and_the_next_gets_a_fresh_child() -> None:
    """The expression of Math-Verify's issue #65, and a pattern of a user, which may take exponential time.

    Each ends as a failure, never as a verdict, and says how much of the processor it was given.
    """
    async with GradingPool(size=1, deadline_s=0.5) as pool:
        for answer, gold, rules in ((HANGS, "5", MATH), ("a" * 64, "^(a+)+b$", REGEX)):
            await pool.start()
            (stuck,) = pool.pids
            reply = await pool.ask({"answer": answer, "gold": gold, "rules": msgspec.to_builtins(rules)})
            detail = "no verdict within 0.5 s of processor time"
            assert reply == Failure(kind=FailureKind.GRADER_TIMEOUT, detail=detail)
            with pytest.raises(ProcessLookupError):
                os.kill(stuck, 0)
            assert await pool.grade("10/2", "5") == Graded(math_verify=True, strict=False)
            assert stuck not in pool.pids
        assert await pool.grade("colour", "colou?r", REGEX) == Marked(correct=True)


async def test_waiting_for_the_processor_counts_for_no_deadline() -> None:
    async with QuickPool(size=1, deadline_s=0.5) as pool:
        await pool.start()
        (child,) = pool.pids
        os.kill(child, signal.SIGSTOP)
        grading = asyncio.create_task(pool.grade("6", "5"))
        await asyncio.sleep(1)
        os.kill(child, signal.SIGCONT)
        assert await grading == WRONG


async def test_a_child_that_never_gets_the_processor_is_the_machines_failure() -> None:
    async with QuickPool(size=1, deadline_s=0.05) as pool:
        await pool.start()
        (child,) = pool.pids
        os.kill(child, signal.SIGSTOP)
        reply = await pool.grade("6", "5")
        detail = "no verdict within 0.5 s, in which it got too little processor time"
        assert reply == Failure(kind=FailureKind.TIMEOUT, detail=detail)


LATE = Failure(kind=FailureKind.GRADER_TIMEOUT)


async def test_an_item_that_is_endless_twice_is_killed_twice() -> None:
    async with QuickPool(size=1, deadline_s=0.1) as pool:
        detail = "no verdict within 0.1 s of processor time"
        assert await pool.grade(ENDLESS, "5") == Failure(kind=FailureKind.GRADER_TIMEOUT, detail=detail)
        assert pool.pids == frozenset()
        assert await pool.grade("6", "5") == WRONG


@pytest.mark.parametrize(
    ("second", "verdict"), [(LATE, LATE), ({"verdict": {"type": "graded", "math_verify": True, "strict": False}}, None)]
)
async def test_what_ran_into_its_deadline_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, second: Any, verdict: Failure | None
) -> None:
    replies = iter([LATE, second])

    async def ask(_: object) -> Any:
        return next(replies)

    pool = GradingPool(size=1)
    monkeypatch.setattr(pool, "ask", ask)
    assert await pool.grade("2/4", "1/2") == (verdict or Graded(math_verify=True, strict=False))
    assert next(replies, None) is None


async def test_an_answer_that_is_the_gold_one_is_right_though_nobody_could_compute_it() -> None:
    pool = GradingPool(size=1)
    assert await pool.grade(HANGS, HANGS) == Graded(math_verify=True, strict=True)
    assert await pool.grade(HANGS, "5", Rules(golds=(HANGS,))) == Graded(math_verify=True, strict=True)
    assert pool.pids == frozenset()


async def test_a_child_that_dies_at_work_is_a_failure_and_is_replaced() -> None:
    async with QuickPool(size=1, deadline_s=30) as pool:
        await pool.start()
        (victim,) = pool.pids
        grading = asyncio.create_task(pool.grade(ENDLESS, "5"))
        await asyncio.sleep(0.1)
        os.kill(victim, signal.SIGKILL)
        assert await grading == Failure(kind=FailureKind.BACKEND_ERROR, detail="the grader ended with exit status -9")
        assert await pool.grade("6", "5") == WRONG


async def test_a_cancelled_item_takes_its_child_along() -> None:
    async with QuickPool(size=1, deadline_s=30) as pool:
        await pool.start()
        before = pool.pids
        grading = asyncio.create_task(pool.grade(ENDLESS, "5"))
        await asyncio.sleep(0.1)
        grading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await grading
        assert await pool.grade("5", "6") == WRONG
        assert not pool.pids & before


async def test_close_kills_children_at_work() -> None:
    pool = QuickPool(size=2, deadline_s=30)
    await pool.start()
    pids = pool.pids
    assert len(pids) == 2
    grading = asyncio.create_task(pool.grade(ENDLESS, "5"))
    await asyncio.sleep(0.1)
    await pool.close()
    assert isinstance(await grading, Failure)
    assert pool.pids == frozenset()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_closed_pool_refuses_items() -> None:
    pool = GradingPool(size=1)
    await pool.close()
    with pytest.raises(RuntimeError, match="the pool of the grader is closed"):
        await pool.grade("6", "5")


async def test_items_run_side_by_side_up_to_the_pools_size() -> None:
    async with QuickPool(size=2, deadline_s=30) as pool:
        await pool.start()
        stuck = asyncio.create_task(pool.grade(ENDLESS, "5"))
        await asyncio.sleep(0)
        assert await pool.grade("6", "5") == WRONG
        assert not stuck.done()
        stuck.cancel()


PARENT = f"""
import asyncio, os
from shared.processes.grading_pool import GradingPool

async def main():
    pool = GradingPool(size=1, deadline_s=600)
    await pool.start()
    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), 9)
    await pool.grade({HANGS!r}, "5")

asyncio.run(main())
"""


def test_a_child_dies_with_its_parent_even_inside_a_computation() -> None:
    ended = subprocess.run([sys.executable, "-c", PARENT], stderr=subprocess.PIPE, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def test_a_child_without_its_parent_does_not_begin() -> None:
    command = [sys.executable, "-m", "shared.processes.grading_process", "1", "5"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL


NOISY = """
import os, sys
from shared.processes import children

replies = children.claim_stdout()
print("from python")
sys.stdout.flush()
os.write(1, b"from C")
children.send(replies, {"ready": True})
"""


def test_prints_of_a_library_do_not_reach_the_protocol() -> None:
    ended = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, check=True, timeout=60)
    assert ended.stdout == b'{"ready": true}\n'
    assert b"from python" in ended.stderr
    assert b"from C" in ended.stderr


def test_a_grader_that_raises_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise RecursionError

    monkeypatch.setattr("math_verify.verify", fail)
    assert mathematics.grade(r"\sin x", r"\cos x") == Graded(math_verify=None, strict=False)


def test_a_reply_is_one_line_of_json() -> None:
    out = io.StringIO()
    children.send(out, {"text": "a\nb\ud800"})
    assert out.getvalue().count("\n") == 1
    assert json.loads(out.getvalue()) == {"text": "a\nb\ud800"}
