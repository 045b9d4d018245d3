"""Checks a batch's lines and submits the jobs that answer them, or fails the batch with every error by line."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.openai.batch_jobs import BatchJobs
from services.orchestrator.openai.lines import MOST_ERRORS, Line, LineError, LineReader, Stopped, describe_error
from services.orchestrator.openai.names import list_all_models
from shared.errors import InProgress, MathragError, NotFound, TooMany, Unavailable
from shared.runtime.parameters import parse_params
from shared.settings import Settings
from shared.storage import batches, configurations, files
from shared.storage.batches import StoredBatch
from shared.storage.configurations import Configuration
from shared.storage.database import Database

PASSING = (InProgress, TooMany, Unavailable)
"""Temporary errors: the batch stays in `validating` and is tried again."""


class _Refused(Exception):
    """Raised if the lines cannot be used."""

    def __init__(self, errors: list[LineError]) -> None:
        super().__init__(errors)
        self.errors = errors


async def validate(database: Database, settings: Settings, batch: StoredBatch) -> bool:
    """Move a batch from `validating` to `in_progress` or `failed`; return False if it has to wait, or if another
    process does it.
    """
    holding = await configurations.load_newest(database)
    try:
        return await _start(database, settings, batch, holding)
    except _Refused as refused:
        await batches.fail(database, batch.id, [msgspec.structs.asdict(each) for each in refused.errors])
    except PASSING:
        return False
    except MathragError as error:
        await batches.fail(database, batch.id, [msgspec.structs.asdict(describe_error(error, error.kind))])
    return True


async def _start(database: Database, settings: Settings, batch: StoredBatch, holding: Configuration) -> bool:
    models = await list_all_models(settings, database)
    configured = parse_params({}, holding.params).generate.decoding
    reader = LineReader(batch.endpoint, models, configured, settings.limits.line_bytes)
    async with aclosing(_read(database, batch, reader)) as read:
        async with database.transaction() as connection:
            if not await batches.lock(connection, batch.id):
                return False
            batch_jobs = BatchJobs(connection, settings, batch, holding)
            async for lines in read:
                if reader.wrong:
                    break
                await batch_jobs.add(lines)
            if reader.wrong or not await _submit(connection, batch, reader, batch_jobs):
                await connection.rollback()
        async for _ in read:  # past the first bad line, without a transaction: every error is said
            pass
    if reader.wrong:
        raise _Refused(_list_errors(reader))
    return True


async def _submit(connection: AsyncConnection, batch: StoredBatch, reader: LineReader, batch_jobs: BatchJobs) -> bool:
    """Submit the jobs, then start the batch, so that a cancellation waits only for the commit; return False if it
    was cancelled meanwhile.
    """
    await batch_jobs.submit()
    return await batches.start(connection, batch.id, reader.total, batch_jobs.model)


async def _read(database: Database, batch: StoredBatch, reader: LineReader) -> AsyncGenerator[list[Line]]:
    """Yield the requests of each chunk."""
    try:
        async for chunk in files.read(database, batch.input_file):
            yield await to_thread.run_sync(reader.read, chunk)
        yield await to_thread.run_sync(reader.end)
    except Stopped as stopped:
        raise _Refused([*reader.errors, stopped.error]) from stopped
    except NotFound as error:
        raise _Refused([LineError(code="invalid_file", message="the input file was deleted")]) from error


def _list_errors(reader: LineReader) -> list[LineError]:
    """Return the listed errors, and one more that counts the others."""
    more = reader.wrong - len(reader.errors)
    if not more:
        return reader.errors
    message = f"{more} more lines cannot be used; the first {MOST_ERRORS} are listed"
    return [*reader.errors, LineError(code="more_errors", message=message)]
