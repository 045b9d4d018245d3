"""Executors whose calls run side by side: what is closed early leaves no task, and no chunk loses its documents."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from services.judge.executors import GradeExecutor, VerifyExecutor
from shared.calls import DocumentRef, Request, Rules
from shared.replies import Failure, Graded, Reply, Verified
from shared.runtime.queue import ClaimedCall
from shared.storage import provenance

pytestmark = pytest.mark.anyio

VERDICT = Verified(verified=1, refuted=0, unknown=0)


class Row(NamedTuple):
    hash: bytes
    problem: str
    body: str


class Documents:
    @asynccontextmanager
    async def statement(self) -> AsyncIterator["Documents"]:
        yield self

    async def execute(self, _query: Any, values: dict[str, list[bytes]]) -> list[Row]:
        await asyncio.sleep(0)
        return [Row(each, "", each.hex()) for each in values["hashes"]]


class Pool:
    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = 0

    async def grade(self, _answer: str | None, _gold: str, _rules: Rules) -> Reply:
        return await self._work(Graded(math_verify=True, strict=True))

    async def verify(self, _text: str) -> Reply:
        return await self._work(VERDICT)

    async def _work(self, reply: Reply) -> Reply:
        self.asked += 1
        try:
            if self.asked > 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return reply


class Patient:
    async def verify(self, _text: str) -> Reply:
        for _ in range(20):
            await asyncio.sleep(0)
        return VERDICT


def calls(*requests: Request) -> list[ClaimedCall]:
    return [
        ClaimedCall(id=number, key=b"", role=each.role, model_id=1, request=msgspec.json.encode(each))
        for number, each in enumerate(requests)
    ]


def verify(number: int) -> Request:
    return Request(role="verify", model="", values={"document": DocumentRef(f"{number:064x}")})


GRADE = Request(role="grade", model="", values={"answer": "5", "gold": "5"})


@pytest.mark.parametrize("what", ["grades", "verifying"])
async def test_an_executor_that_is_closed_early_leaves_no_task(what: str) -> None:
    pool, database = Pool(), Documents()
    given: Any = pool
    made: Any = database
    executor = GradeExecutor(given, lambda _: given) if what == "grades" else VerifyExecutor(made, given)
    chunk = calls(GRADE, GRADE, GRADE) if what == "grades" else calls(verify(1), verify(2), verify(3))
    before = asyncio.all_tasks()
    async with aclosing(executor.run(chunk, None)) as answers:
        await anext(answers)
    assert asyncio.all_tasks() == before
    assert pool.cancelled == 2


async def test_chunks_side_by_side_do_not_lose_each_others_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance.LibraryCache.__init__, "__defaults__", (2,))
    pool: Any = Patient()
    database: Any = Documents()
    executor = VerifyExecutor(database, pool)

    async def replies(start: int) -> list[Reply]:
        chunk = calls(*(verify(number) for number in range(start, start + 4)))
        return [answer.reply async for answer in executor.run(chunk, None)]

    for found in await asyncio.gather(*(replies(start) for start in range(0, 20, 2))):
        assert not [reply for reply in found if isinstance(reply, Failure)]
