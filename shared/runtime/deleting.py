"""Delete one dataset or one corpus by name, as the database's owner. What existing jobs use is not deleted.

Reports and audits of an ended job read its items and its corpus, so an ended job keeps both until it is purged. A live
job keeps the corpus that CRAG falls back to as well.
"""

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import text

from shared.errors import Conflict
from shared.storage import operations
from shared.storage.database import Database
from shared.storage.unknown import make_not_found

Kind = Literal["dataset", "corpus"]
NAMED = 5
"""Number of jobs that an error names."""
# FOR UPDATE: a job that is being submitted holds the row, and a later submission finds it gone.
ROW = {
    "dataset": text("SELECT id FROM datasets WHERE name = :name AND NOT online FOR UPDATE"),
    "corpus": text("SELECT id FROM corpora WHERE name = :name FOR UPDATE"),
}
USERS = {
    "dataset": text("SELECT name, state, ended_at FROM jobs WHERE dataset_id = :id ORDER BY ended_at DESC, id"),
    "corpus": text("""
        SELECT j.name, j.state, j.ended_at FROM jobs j WHERE j.corpus_id = :id OR (j.ended_at IS NULL AND EXISTS (
            SELECT FROM corpora c JOIN indexes i ON i.id = c.sparse_index
            WHERE c.id = :id AND i.model_id = CAST(j.pins -> 'fallback' ->> 'model_id' AS integer)))
        ORDER BY j.ended_at DESC, j.id"""),
}
GRAPH = text("SELECT name FROM graphs WHERE corpus_id = :id")
DELETE = {
    "dataset": text("DELETE FROM datasets WHERE id = :id"),
    "corpus": text("DELETE FROM corpora WHERE id = :id"),
}


async def delete(owner: Database, kind: Kind, name: str, actor: str) -> None:
    """Delete a dataset or corpus. `mathrag purge` deletes a corpus's documents once no other corpus holds them.

    Raises:
        NotFound: nothing has this name.
        Conflict: jobs use it (the message names the first five), or it belongs to a graph.
    """
    async with owner.transaction() as connection:
        number = (await connection.execute(ROW[kind], {"name": name})).scalar()
        if number is None:
            raise await make_not_found(connection, kind, name)
        users = (await connection.execute(USERS[kind], {"id": number})).all()
        if users:
            raise _make_in_use_error(kind, name, users)
        if kind == "corpus" and (graph := (await connection.execute(GRAPH, {"id": number})).scalar()):
            raise Conflict(f"corpus {name!r} belongs to graph {graph!r}", hint=f"mathrag graph delete {graph}")
        await operations.record_operation(connection, actor, "delete", f"{kind} {name}")
        await connection.execute(DELETE[kind], {"id": number})


def _make_in_use_error(kind: Kind, name: str, users: Sequence[Any]) -> Conflict:
    live = [user for user in users if user.ended_at is None]
    shown = live or users
    names = ", ".join(f"{user.name} ({user.state})" for user in shown[:NAMED])
    more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    if live:
        return Conflict(f"{kind} {name!r} is used by live jobs: {names}{more}", hint="wait for them, or cancel them")
    return Conflict(
        f"{kind} {name!r} is needed by the reports of ended jobs: {names}{more}",
        hint="purge these jobs first: mathrag purge JOB...",
    )
