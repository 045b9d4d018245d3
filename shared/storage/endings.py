"""How samples ended, told from their rows: what is wrong with an answer needs a look at what it was made from."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.params import VerifyParams
from shared.contracts.replies import Marked
from shared.contracts.samples import Outcome
from shared.mathtext.equations import arithmetic
from shared.pipelines.imported import IMPORTED
from shared.rag.graders import GRADERS, Extract, grader
from shared.rag.taxonomy import Ended, Ending, Facts, ending
from shared.storage.gold import among
from shared.storage.sql import sql
from shared.storage.stored import decoded

PARAMS = text("SELECT params FROM jobs WHERE id = :job")
# The last texts first. Replies of other roles are not read: a sample may have asked for a hundred ratings.
CALLS = sql("""
    SELECT t.sample_id, c.role, a.reply FROM steps t JOIN calls c ON c.id = t.call_id
    LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id AND c.role = 'generate'
    WHERE t.sample_id = ANY(CAST(:samples AS bigint[])) AND c.role IN ('retrieve', 'generate')
    ORDER BY t.sample_id, t.position DESC, t.slot DESC""")
OPEN = frozenset({Ending.JUDGE_FAILURE, Ending.LOGIC})
"""What an answer's ending is while nobody has looked further than its outcome."""
KEPT = 16_384
"""Texts whose false equations are remembered, some 30 MB."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A sample whose ending is asked for."""

    sample: int
    index: int
    answer: str | None
    facts: Facts | None
    """None: it has not ended by itself."""


class _Text(msgspec.Struct, frozen=True):
    """What matters here of a reply of the generator."""

    text: str = ""


class _Grading(msgspec.Struct, frozen=True):
    """What matters here of how a job's answers are graded."""

    grader: str = ""


class _Read(msgspec.Struct, frozen=True):
    """What matters here of a job's parameters, also of those that another release wrote."""

    verify: VerifyParams = VerifyParams()
    grading: _Grading = _Grading()


class _Made(msgspec.Struct):
    """How an answer was made, beyond what its outcome says."""

    searched: bool = False
    text: str | None = None
    holds: bool = False
    """Whether the answer stands in this text."""

    def add(self, written: str, answer: str | None, extract: Extract) -> None:
        """A text that was generated; of several the last one with the answer counts, else the last one."""
        holds = extract(written)[0] == answer
        if self.text is None or (holds and not self.holds):
            self.text, self.holds = written, holds


def facts(row: RowMapping, outcome: Outcome | None) -> Facts | None:
    """What a sample's own row says; None where it neither completed nor failed."""
    if outcome is None:
        return None if row["failure"] is None else Facts(failure=row["failure"])
    return Facts(
        refusal=outcome.refusal,
        correct=row["correct"],
        mathematics=not isinstance(outcome.verdict, Marked),
        grading_failure=outcome.grading_failure,
        strict=row["strict"],
        gold=row["gold"] is not None,
        extraction=outcome.extraction,
        truncated=outcome.truncated,
        truncated_by=outcome.truncated_by or "",
        candidates=outcome.trace.candidates,
        context=outcome.context,
        unscored=outcome.trace.unscored,
        imported=any(each.stage == IMPORTED for each in outcome.trace.decisions),
    )


async def endings(connection: AsyncConnection, job: int, asked: Sequence[Subject]) -> list[Ended | None]:
    """The endings of these samples of one job, in order; None for those that have not ended by themselves."""
    found = [ending(each.facts) if each.facts else None for each in asked]
    wrong = [each for each, ended in zip(asked, found, strict=True) if ended and ended.ending in OPEN]
    if not wrong:
        return found
    params = await _params(connection, job)
    relevant = await among(connection, job, min(each.index for each in wrong), max(each.index for each in wrong))
    made = await _made(connection, wrong, grader(params.grading.grader if params else "").extract)
    told = await to_thread.run_sync(_told, wrong, relevant, made, params.verify.modulus if params else None)
    return [told.get(each.sample, ended) for each, ended in zip(asked, found, strict=True)]


async def _params(connection: AsyncConnection, job: int) -> _Read | None:
    """None: this release cannot read how the job's equations and answers are meant."""
    params = (await connection.execute(PARAMS, {"job": job})).scalar_one()
    known, _ = decoded(params, _Read, "")
    return known if known and known.grading.grader in {"", *GRADERS} else None


async def _made(connection: AsyncConnection, asked: Sequence[Subject], extract: Extract) -> dict[int, _Made]:
    """By sample."""
    made, answers = {each.sample: _Made() for each in asked}, {each.sample: each.answer for each in asked}
    async for row in await connection.stream(CALLS, {"samples": list(made)}):
        if row.role == "retrieve":
            made[row.sample_id].searched = True
        elif row.reply is not None:
            written, _ = decoded(row.reply, _Text, "")
            made[row.sample_id].add(written.text if written else "", answers[row.sample_id], extract)
    return made


def _told(
    asked: Sequence[Subject], relevant: Mapping[int, Mapping[str, int]], made: Mapping[int, _Made], modulus: int | None
) -> dict[int, Ended]:
    """By sample. Runs in a thread: reading equations takes a while."""
    return {
        each.sample: _ending(each.facts, relevant.get(each.index), made[each.sample], modulus)
        for each in asked
        if each.facts
    }


@lru_cache(maxsize=KEPT)
def _refuted(written: str, modulus: int) -> tuple[str, ...]:
    """A text's equations stay as they are, and reports are asked for again and again."""
    return tuple(each.text for each in arithmetic(written, modulus) if each.holds is False)


def _ending(known: Facts, relevant: Mapping[str, int] | None, made: _Made, modulus: int | None) -> Ended:
    refuted = () if modulus is None else _refuted(made.text or "", modulus)
    documents = None if relevant is None else frozenset(relevant)
    return ending(replace(known, searched=made.searched, relevant=documents, refuted=refuted))
