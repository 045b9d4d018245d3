"""Compares the answers of two jobs to one question."""

import msgspec
from anyio import to_thread

from services.orchestrator.reports.prompt_difference import PromptDifference, compare_prompts
from shared.records import Provenance
from shared.replies import Generated
from shared.storage import samples
from shared.storage.database import Database
from shared.storage.provenance import load_provenance


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one question in two jobs."""

    left_name: str
    right_name: str
    """Name of the right job."""
    left: Provenance
    right: Provenance
    prompts: PromptDifference | None
    """Differences between the prompts of the generated answers; null if one sample has no prompt, or if its template
    belongs to another release.
    """


async def load_side_by_side(database: Database, left: str, right: str, index: int, repeat: int) -> SideBySide:
    """Return the left job's sample, and the right job's sample of the same question.

    Raises:
        NotFound: there is no such job or sample, or the right job has no sample of the question.
        Conflict: a reference is ambiguous.
        Invalid: both references name the same job.
    """
    found = await samples.find_match(database, left, right, index, repeat)
    one = await load_provenance(database, left, index, repeat, prompts=True)
    two = await load_provenance(database, right, found.right_index, repeat, prompts=True)
    asked, of_other = find_prompt(one), find_prompt(two)
    difference = (
        None if asked is None or of_other is None else await to_thread.run_sync(compare_prompts, asked, of_other)
    )
    return SideBySide(left_name=found.left_name, right_name=found.right_name, left=one, right=two, prompts=difference)


def find_prompt(sample: Provenance) -> str | None:
    """Return the prompt of the text that the sample answers with; None if nothing was generated."""
    for step in reversed(sample.steps):
        reply = step.attempt.reply if step.attempt else None
        if step.role == "generate" and isinstance(reply, Generated) and reply.text == sample.text:
            return step.prompt
    return None
