"""Determine how samples ended from their rows: what is wrong with an answer depends on how it was made."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.replies import Marked
from shared.contracts.samples import Outcome
from shared.mathtext.equations import arithmetic
from shared.pipelines.imported import IMPORTED
from shared.rag.extraction import Extract
from shared.rag.graders import get_grader, grader_names
from shared.rag.taxonomy import EndedSample, Ending, SampleFacts, classify_ending
from shared.storage.decoding import try_decode
from shared.storage.gold import read_gold_documents
from shared.storage.sql import sql

PARAMS = text("SELECT params FROM jobs WHERE id = :job")
# Last texts first. Replies of other roles are not read: a sample may have a hundred ratings.
CALLS = sql("""
    SELECT t.sample_id, c.role, a.reply FROM steps t JOIN calls c ON c.id = t.call_id
    LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id AND c.role = 'generate'
    WHERE t.sample_id = ANY(CAST(:samples AS bigint[])) AND c.role IN ('retrieve', 'generate')
    ORDER BY t.sample_id, t.position DESC, t.slot DESC""")
OPEN = frozenset({Ending.JUDGE_FAILURE, Ending.LOGIC})
"""Endings that need more than the outcome to be decided."""
KEPT = 16_384
"""Number of texts whose refuted equations are cached, about 30 MB."""


class EndingSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A sample whose ending is to be determined."""

    sample: int
    index: int
    answer: str | None
    facts: SampleFacts | None
    """None if the sample neither completed nor failed."""


class _ReplyText(msgspec.Struct, frozen=True):
    """The part of a generator's reply that is needed here."""

    text: str = ""


class _Grading(msgspec.Struct, frozen=True):
    """The part of a job's grading parameters that is needed here."""

    grader: str = ""


class _EndingParams(msgspec.Struct, frozen=True):
    """The part of a job's parameters that is needed here, in a form that all releases can read."""

    grading: _Grading = _Grading()


class _AnswerHistory(msgspec.Struct):
    """Facts about a sample that only its calls tell, not its outcome."""

    searched: bool = False
    text: str | None = None
    holds: bool = False
    """Whether this text contains the answer."""

    def add(self, written: str, answer: str | None, extract: Extract) -> None:
        """Add a generated text, newest first: the last text with the answer counts, otherwise the last text."""
        holds = extract(written)[0] == answer
        if self.text is None or (holds and not self.holds):
            self.text, self.holds = written, holds


def facts_of(row: RowMapping, outcome: Outcome | None) -> SampleFacts | None:
    """Collect what a sample's own row tells; None if it neither completed nor failed."""
    if outcome is None:
        return None if row["failure"] is None else SampleFacts(failure=row["failure"])
    return SampleFacts(
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


async def find_endings(
    connection: AsyncConnection, job: int, asked: Sequence[EndingSubject]
) -> list[EndedSample | None]:
    """Determine the endings of samples of one job, in order; None for those that neither completed nor failed."""
    found = [classify_ending(each.facts) if each.facts else None for each in asked]
    wrong = [each for each, ended in zip(asked, found, strict=True) if ended and ended.ending in OPEN]
    if not wrong:
        return found
    relevant = await read_gold_documents(
        connection, job, min(each.index for each in wrong), max(each.index for each in wrong)
    )
    made = await _read_calls(connection, wrong, await _find_extractor(connection, job))
    endings = await to_thread.run_sync(_decide_endings, wrong, relevant, made)
    return [endings.get(each.sample, ended) for each, ended in zip(asked, found, strict=True)]


async def _find_extractor(connection: AsyncConnection, job: int) -> Extract:
    """Return the function by which the job finds an answer in a text; that of mathematics if its grader is unknown."""
    params = (await connection.execute(PARAMS, {"job": job})).scalar_one()
    known, _ = try_decode(params, _EndingParams, "")
    name = known.grading.grader if known else ""
    return get_grader(name if name in grader_names() else "").extract


async def _read_calls(
    connection: AsyncConnection, asked: Sequence[EndingSubject], extract: Extract
) -> dict[int, _AnswerHistory]:
    """Read each sample's searches and generated texts."""
    made, answers = {each.sample: _AnswerHistory() for each in asked}, {each.sample: each.answer for each in asked}
    async for row in await connection.stream(CALLS, {"samples": list(made)}):
        if row.role == "retrieve":
            made[row.sample_id].searched = True
        elif row.reply is not None:
            written, _ = try_decode(row.reply, _ReplyText, "")
            made[row.sample_id].add(written.text if written else "", answers[row.sample_id], extract)
    return made


def _decide_endings(
    asked: Sequence[EndingSubject],
    relevant: Mapping[int, Mapping[str, int]],
    made: Mapping[int, _AnswerHistory],
) -> dict[int, EndedSample]:
    """Decide the endings by sample, in a thread because parsing equations takes a while."""
    return {
        each.sample: _classify(each.facts, relevant.get(each.index), made[each.sample]) for each in asked if each.facts
    }


@lru_cache(maxsize=KEPT)
def _find_refuted_equations(written: str) -> tuple[str, ...]:
    """List a text's refuted equations; cached because reports are requested repeatedly."""
    return tuple(each.text for each in arithmetic(written) if each.holds is False)


def _classify(known: SampleFacts, relevant: Mapping[str, int] | None, made: _AnswerHistory) -> EndedSample:
    refuted = _find_refuted_equations(made.text or "")
    documents = None if relevant is None else frozenset(relevant)
    return classify_ending(replace(known, searched=made.searched, relevant=documents, refuted=refuted))
