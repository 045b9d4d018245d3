"""Ends a batch: stops what is still being answered, then writes the results of the lines in one transaction with the
end.
"""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.openai.identifiers import BATCH, format_id
from services.orchestrator.openai.results import Result, read_results
from shared.runtime.lifecycle import cancel_all
from shared.storage import batches, files
from shared.storage.batches import Ended, StoredBatch
from shared.storage.database import Database
from shared.storage.files import File


async def finish(database: Database, batch: StoredBatch) -> bool:
    """End a batch that is finalizing or cancelling; return False while its jobs run or another process ends it."""
    if jobs := await batches.list_live_jobs(database, batch.id):
        await cancel_all(database, jobs)
        return False
    async with database.transaction() as connection:
        if not await batches.lock(connection, batch.id):
            return False
        await batches.end(connection, batch.id, await _write_files(connection, batch))
    return True


class _LineCounts:
    """Counts the results of the lines so far."""

    def __init__(self) -> None:
        self.completed = self.failed = self.prompt_tokens = self.completion_tokens = 0

    def add(self, page: Sequence[Result]) -> None:
        answered = sum(each.answered for each in page)
        self.completed += answered
        self.failed += len(page) - answered
        self.prompt_tokens += sum(each.prompt_tokens for each in page)
        self.completion_tokens += sum(each.completion_tokens for each in page)


async def _write_files(connection: AsyncConnection, batch: StoredBatch) -> Ended:
    output, errors, tally = files.Writer(connection), files.Writer(connection), _LineCounts()
    async for page in read_results(connection, batch):
        tally.add(page)
        await output.write(b"".join(each.content for each in page if each.answered))
        await errors.write(b"".join(each.content for each in page if not each.answered))
    return _make_end(batch, tally, await _store(output, batch, "output"), await _store(errors, batch, "error"))


async def _store(writer: files.Writer, batch: StoredBatch, name: str) -> File | None:
    kept_s = batch.output_s or files.KEPT_S
    return await writer.finish(f"{format_id(BATCH, batch.public_id)}_{name}.jsonl", "batch_output", kept_s)


def _make_end(batch: StoredBatch, tally: _LineCounts, output: File | None, errors: File | None) -> Ended:
    """Return the end of the batch; it has failed if no line was answered, even if all lines were valid."""
    none_answered = batch.ends_as == "completed" and not tally.completed
    message = f"none of the {tally.failed} requests was answered; the error file has the reason of each"
    return Ended(
        state="failed" if none_answered else batch.ends_as,
        completed=tally.completed,
        failed=tally.failed,
        prompt_tokens=tally.prompt_tokens,
        completion_tokens=tally.completion_tokens,
        output_file=output.id if output else None,
        error_file=errors.id if errors else None,
        errors=[{"code": "all_requests_failed", "message": message}] if none_answered else None,
    )
