"""Store people's labels. Labels are only added; the last label of each labeller and task counts."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.labels import Content, Value, What, parse_label
from shared.errors import NotFound
from shared.storage.database import Database
from shared.storage.label_sets import LabelSet

NUMBERED = text("""
    SELECT number, item, repeat, content, system FROM label_tasks WHERE set_id = :set AND number = :number""")
NEXT = text("""
    SELECT t.number, t.item, t.repeat, t.content, t.system FROM label_tasks t
    WHERE t.set_id = :set AND NOT EXISTS (
        SELECT 1 FROM labels l WHERE l.set_id = t.set_id AND l.number = t.number AND l.labeller = :labeller)
    ORDER BY t.number LIMIT 1""")
LAST = text("""
    SELECT number, labeller, at, blind, value, note FROM labels
    WHERE set_id = :set AND number = :number AND labeller = :labeller ORDER BY id DESC LIMIT 1""")
INSERT = text("""
    INSERT INTO labels (set_id, number, labeller, blind, value, note)
    VALUES (:set, :number, :labeller, :blind, :value, :note) RETURNING number, labeller, at, blind, value, note""")
EXPORT = text("""
    SELECT l.id, l.number, l.labeller, l.at, l.blind, l.value, l.note, t.item, t.repeat, t.content, t.system,
        NOT EXISTS (
            SELECT 1 FROM labels n WHERE n.set_id = l.set_id AND n.number = l.number AND n.labeller = l.labeller
                AND n.id > l.id) AS counts
    FROM labels l JOIN label_tasks t ON t.set_id = l.set_id AND t.number = l.number
    WHERE l.set_id = :set AND l.id > :after ORDER BY l.id LIMIT :n""")
COUNTED = text("""
    SELECT DISTINCT ON (l.number, l.labeller) l.number, l.labeller, l.value
    FROM labels l WHERE l.set_id = :set AND (l.blind OR NOT :blind) ORDER BY l.number, l.labeller, l.id DESC""")
SYSTEM = text("SELECT number, item, repeat, system FROM label_tasks WHERE set_id = :set ORDER BY number")
BATCH = 500
"""Labels read per transaction."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A stored label."""

    number: int
    """Number of the task, from 1."""
    labeller: str
    """Name of the API key."""
    at: datetime
    blind: bool
    """Whether the labeller did not see the verdict of the judge or the grader."""
    value: Value | None
    abstained: bool
    note: str


class ExportedLabel(Label, frozen=True, kw_only=True):
    """A label with its task: a line of an export."""

    set: str
    what: What
    item: int | None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    document: str | None
    """Hash of the labelled document."""
    answer: str | None
    """The labelled answer."""
    system: Value
    """Verdict of the judge or the grader."""
    counts: bool
    """Whether it is the labeller's last label of this task."""


class LabelTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to label."""

    set: str
    number: int
    """Number of the task, from 1."""
    item: int | None
    repeat: int
    content: Content
    system: Value | None
    """Verdict of the judge or the grader; null in blind labelling."""
    label: Label | None
    """This labeller's last label of the task."""


class NewLabel(NamedTuple):
    """A label to add."""

    value: Value | None
    """None means that the labeller abstains."""
    blind: bool
    note: str


class CountedLabels(NamedTuple):
    """The labels of a set that count, and the system's verdicts."""

    labels: dict[int, dict[str, Value | None]]
    """Values by task and labeller; None for an abstention."""
    tasks: list["SystemRating"]


class SystemRating(NamedTuple):
    """A task with the verdict of the judge or the grader."""

    number: int
    item: int | None
    repeat: int
    value: Value


async def find_next_task(connection: AsyncConnection, of: LabelSet, labeller: str, *, blind: bool) -> LabelTask | None:
    """Find the first task that this labeller has not labelled; None if there is none."""
    row = (await connection.execute(NEXT, {"set": of.id, "labeller": labeller})).mappings().first()
    return None if row is None else _task(of, row, None, blind=blind)


async def find_task(connection: AsyncConnection, of: LabelSet, number: int, labeller: str, *, blind: bool) -> LabelTask:
    """Find the task with this number.

    Raises:
        NotFound: there is none.
    """
    row = (await connection.execute(NUMBERED, {"set": of.id, "number": number})).mappings().first()
    if row is None:
        raise NotFound(f"label set {of.name!r} has no task {number}", hint=f"its tasks are 1 to {of.tasks}")
    return _task(of, row, await _load_last_label(connection, of, number, labeller), blind=blind)


async def add_label(
    database: Database, of: LabelSet, number: int, labeller: str, given: NewLabel
) -> tuple[Label, bool]:
    """Add a label unless it equals the labeller's last one of the task; return the label and whether it was added.

    Raises:
        NotFound: no such task.
    """
    async with database.transaction() as connection:
        last = (await find_task(connection, of, number, labeller, blind=True)).label
        if last is not None and NewLabel(last.value, last.blind, last.note) == given:
            return last, False
        value = None if given.value is None else str(given.value)
        values = {**given._asdict(), "value": value, "set": of.id, "number": number, "labeller": labeller}
        row = (await connection.execute(INSERT, values)).mappings().one()
        return Label(**_label(of.what, row)), True


async def stream_labels(database: Database, of: LabelSet) -> AsyncIterator[list[ExportedLabel]]:
    """Yield all labels of the set in the order in which they were given, one short transaction per batch."""
    after = 0
    while True:
        async with database.transaction() as connection:
            values = {"set": of.id, "after": after, "n": BATCH}
            rows = (await connection.execute(EXPORT, values)).mappings().all()
        if not rows:
            return
        yield [_export_row(of, row) for row in rows]
        after = rows[-1]["id"]


async def count_labels(connection: AsyncConnection, of: LabelSet, *, blind: bool) -> CountedLabels:
    """Collect each labeller's last label of each task; with `blind`, only labels that were given blindly."""
    found: dict[int, dict[str, Value | None]] = {}
    for row in (await connection.execute(COUNTED, {"set": of.id, "blind": blind})).mappings():
        found.setdefault(row["number"], {})[row["labeller"]] = _value(of.what, row["value"])
    tasks = [
        SystemRating(row.number, row.item, row.repeat, parse_label(of.what, row.system))
        for row in await connection.execute(SYSTEM, {"set": of.id})
    ]
    return CountedLabels(found, tasks)


async def _load_last_label(connection: AsyncConnection, of: LabelSet, number: int, labeller: str) -> Label | None:
    values = {"set": of.id, "number": number, "labeller": labeller}
    row = (await connection.execute(LAST, values)).mappings().first()
    return None if row is None else Label(**_label(of.what, row))


def _task(of: LabelSet, row: RowMapping, label: Label | None, *, blind: bool) -> LabelTask:
    return LabelTask(
        set=of.name,
        number=row["number"],
        item=row["item"],
        repeat=row["repeat"],
        content=msgspec.json.decode(row["content"], type=Content),
        system=None if blind else parse_label(of.what, row["system"]),
        label=label,
    )


def _label(what: What, row: RowMapping) -> dict[str, Any]:
    copied = {name: row[name] for name in ("number", "labeller", "at", "blind", "note")}
    return {**copied, "value": _value(what, row["value"]), "abstained": row["value"] is None}


def _export_row(of: LabelSet, row: RowMapping) -> ExportedLabel:
    content = msgspec.json.decode(row["content"], type=Content)
    return ExportedLabel(
        set=of.name,
        what=of.what,
        item=row["item"],
        repeat=row["repeat"],
        document=content.document or None,
        answer=None if content.document else content.answer,
        system=parse_label(of.what, row["system"]),
        counts=row["counts"],
        **_label(of.what, row),
    )


def _value(what: What, text: str | None) -> Value | None:
    return None if text is None else parse_label(what, text)
