"""Labels: who said what of which task, blind or not. Only added to: of each labeller the last of a task counts."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.labels import Content, Value, What, parsed
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
"""Labels that are read together."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """One label as it was given."""

    number: int
    """Of the task, from 1."""
    labeller: str
    """Name of the API key."""
    at: datetime
    blind: bool
    """The labeller was not shown what the judge or the grader said."""
    value: Value | None
    abstained: bool
    note: str


class ExportedLabel(Label, frozen=True, kw_only=True):
    """The same by itself: a line of an export."""

    set: str
    what: What
    item: int | None
    """Of the dataset, from 0; null: a document of the gate's calibration."""
    repeat: int
    document: str | None
    """Hash of the document that was labelled."""
    answer: str | None
    """The answer that was labelled."""
    system: Value
    """What the judge or the grader said."""
    counts: bool
    """It is the labeller's last one of this task."""


class LabelTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be labelled."""

    set: str
    number: int
    """From 1."""
    item: int | None
    repeat: int
    content: Content
    system: Value | None
    """What the judge or the grader said; null: not shown to who labels blindly."""
    label: Label | None
    """The last one that this labeller gave."""


class Given(NamedTuple):
    """A label as it is given."""

    value: Value | None
    """None: abstained."""
    blind: bool
    note: str


class Counted(NamedTuple):
    """The labels of a set that count, and what the system said."""

    labels: dict[int, dict[str, Value | None]]
    """By task and labeller; None: abstained."""
    tasks: list["SystemRating"]


class SystemRating(NamedTuple):
    """A task, and what the judge or the grader said of it."""

    number: int
    item: int | None
    repeat: int
    value: Value


async def following(connection: AsyncConnection, of: LabelSet, labeller: str, *, blind: bool) -> LabelTask | None:
    """The first task of the set that this labeller has not labelled; None: all are."""
    row = (await connection.execute(NEXT, {"set": of.id, "labeller": labeller})).mappings().first()
    return None if row is None else _task(of, row, None, blind=blind)


async def task(connection: AsyncConnection, of: LabelSet, number: int, labeller: str, *, blind: bool) -> LabelTask:
    """The task with this number.

    Raises:
        NotFound: there is none.
    """
    row = (await connection.execute(NUMBERED, {"set": of.id, "number": number})).mappings().first()
    if row is None:
        raise NotFound(f"label set {of.name!r} has no task {number}", hint=f"its tasks are 1 to {of.tasks}")
    return _task(of, row, await _last(connection, of, number, labeller), blind=blind)


async def give(database: Database, of: LabelSet, number: int, labeller: str, given: Given) -> tuple[Label, bool]:
    """Add a label; what the labeller has said last already is not added again. Returns whether it was.

    Raises:
        NotFound: no such task.
    """
    async with database.transaction() as connection:
        last = (await task(connection, of, number, labeller, blind=True)).label
        if last is not None and Given(last.value, last.blind, last.note) == given:
            return last, False
        value = None if given.value is None else str(given.value)
        values = {**given._asdict(), "value": value, "set": of.id, "number": number, "labeller": labeller}
        row = (await connection.execute(INSERT, values)).mappings().one()
        return Label(**_label(of.what, row)), True


async def exported(database: Database, of: LabelSet) -> AsyncIterator[list[ExportedLabel]]:
    """Every label of the set in the order in which they were given, a short read a batch."""
    after = 0
    while True:
        async with database.transaction() as connection:
            values = {"set": of.id, "after": after, "n": BATCH}
            rows = (await connection.execute(EXPORT, values)).mappings().all()
        if not rows:
            return
        yield [_exported(of, row) for row in rows]
        after = rows[-1]["id"]


async def counted(connection: AsyncConnection, of: LabelSet, *, blind: bool) -> Counted:
    """Of each labeller the last label of each task; with `blind` the last one that was given blindly."""
    found: dict[int, dict[str, Value | None]] = {}
    for row in (await connection.execute(COUNTED, {"set": of.id, "blind": blind})).mappings():
        found.setdefault(row["number"], {})[row["labeller"]] = _value(of.what, row["value"])
    tasks = [
        SystemRating(row.number, row.item, row.repeat, parsed(of.what, row.system))
        for row in await connection.execute(SYSTEM, {"set": of.id})
    ]
    return Counted(found, tasks)


async def _last(connection: AsyncConnection, of: LabelSet, number: int, labeller: str) -> Label | None:
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
        system=None if blind else parsed(of.what, row["system"]),
        label=label,
    )


def _label(what: What, row: RowMapping) -> dict[str, Any]:
    copied = {name: row[name] for name in ("number", "labeller", "at", "blind", "note")}
    return {**copied, "value": _value(what, row["value"]), "abstained": row["value"] is None}


def _exported(of: LabelSet, row: RowMapping) -> ExportedLabel:
    content = msgspec.json.decode(row["content"], type=Content)
    return ExportedLabel(
        set=of.name,
        what=of.what,
        item=row["item"],
        repeat=row["repeat"],
        document=content.document or None,
        answer=None if content.document else content.answer,
        system=parsed(of.what, row["system"]),
        counts=row["counts"],
        **_label(of.what, row),
    )


def _value(what: What, text: str | None) -> Value | None:
    return None if text is None else parsed(what, text)
