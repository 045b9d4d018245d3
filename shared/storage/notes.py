"""Thumbs and notes that people give to samples."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import StringConstraints
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.samples import SampleNote
from shared.storage import jobs
from shared.storage.database import Database
from shared.storage.samples import make_not_found

OF_SAMPLES = text("""
    SELECT sample_id, author, CASE WHEN thumb THEN 'up' WHEN NOT thumb THEN 'down' END AS thumb, note, at
    FROM sample_notes WHERE sample_id = ANY(:samples) ORDER BY sample_id, author""")
SAMPLE = text("""
    SELECT id FROM samples WHERE job_id = :job AND kind = 'item' AND ordinal = :ordinal AND repeat = :repeat""")
LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('note ' || :sample || ' ' || :author, 0))")
WRITE = text("""
    INSERT INTO sample_notes (sample_id, author, thumb, note) VALUES (:sample, :author, :thumb, :note)
    ON CONFLICT (sample_id, author) DO UPDATE SET thumb = :thumb, note = :note, at = clock_timestamp()""")
DELETE = text("DELETE FROM sample_notes WHERE sample_id = :sample AND author = :author")
LONGEST_NOTE = 2000


class NoteChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of the caller's thumb and note; fields that are left out do not change."""

    thumb: Literal["up", "down", "none"] | None = None
    """The new thumb; `none` removes it."""
    note: Annotated[str, StringConstraints(max_length=LONGEST_NOTE)] | None = None
    """The new text of the note; an empty text removes the note."""


async def load_notes(connection: AsyncConnection, samples: Sequence[int]) -> dict[int, tuple[SampleNote, ...]]:
    """Load the notes by samples.id, in the order of their authors; samples without any are left out."""
    found: dict[int, tuple[SampleNote, ...]] = {}
    for row in await connection.execute(OF_SAMPLES, {"samples": list(samples)}):
        note = SampleNote(author=row.author, thumb=row.thumb, note=row.note, at=row.at)
        found[row.sample_id] = (*found.get(row.sample_id, ()), note)
    return found


async def change_note(
    database: Database, author: str, reference: str, index: int, repeat: int, change: NoteChange
) -> tuple[SampleNote, ...]:
    """Change what `author` thinks of a sample, and return the notes of all authors.

    Raises:
        NotFound: no such job or sample.
    """
    async with database.transaction() as connection:
        job = await jobs.resolve(connection, reference)
        sample = await connection.scalar(SAMPLE, {"job": job, "ordinal": index, "repeat": repeat})
        if sample is None:
            raise make_not_found(reference, index, repeat)
        mine = {"sample": sample, "author": author}
        await connection.execute(LOCK, {"sample": str(sample), "author": author})
        notes = (await load_notes(connection, [sample])).get(sample, ())
        before = next((each for each in notes if each.author == author), None)
        thumb = change.thumb or (before and before.thumb)
        is_up = None if thumb in (None, "none") else thumb == "up"
        note = change.note if change.note is not None else (before.note if before else "")
        if is_up is None and not note:
            await connection.execute(DELETE, mine)
        else:
            await connection.execute(WRITE, {**mine, "thumb": is_up, "note": note})
        return (await load_notes(connection, [sample])).get(sample, ())
