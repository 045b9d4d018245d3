"""One question as two jobs answered it."""

import msgspec
from anyio import to_thread

from services.orchestrator.reports.prompt_difference import PromptDifference, difference
from shared.contracts.provenance import Provenance
from shared.contracts.replies import Generated
from shared.storage import changed_samples
from shared.storage.database import Database
from shared.storage.provenance import provenance


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """Two samples of one question."""

    left_name: str
    right_name: str
    """Of the jobs."""
    left: Provenance
    right: Provenance
    prompts: PromptDifference | None
    """Of what the generators were asked for the texts that they answered with; None: one of them was asked nothing, or
    its template is of another release."""


async def side_by_side(database: Database, left: str, right: str, index: int, repeat: int) -> SideBySide:
    """The left job's sample, and the right job's one of the same question.

    Raises:
        NotFound: there is no such job or sample, or the right job has none of the same question.
        Conflict: a reference stands for several jobs.
        Invalid: both are the same job.
    """
    found = await changed_samples.match(database, left, right, index, repeat)
    one = await provenance(database, left, index, repeat, prompts=True)
    two = await provenance(database, right, found.right_index, repeat, prompts=True)
    asked, of_other = prompt(one), prompt(two)
    told = None if asked is None or of_other is None else await to_thread.run_sync(difference, asked, of_other)
    return SideBySide(left_name=found.left_name, right_name=found.right_name, left=one, right=two, prompts=told)


def prompt(sample: Provenance) -> str | None:
    """What the generator was asked for the text that the sample answers with."""
    for step in reversed(sample.steps):
        reply = step.attempt.reply if step.attempt else None
        if step.role == "generate" and isinstance(reply, Generated) and reply.text == sample.text:
            return step.prompt
    return None
