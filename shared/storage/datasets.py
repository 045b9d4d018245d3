"""Rows of datasets and their items."""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid
from shared import canonical
from shared.calls import Expected
from shared.samples import DatasetItem, FactQuery, hash_item
from shared.storage import corpora
from shared.storage.corpora import LONGEST_TEXT, Shown
from shared.storage.database import (
    Database,
    Page,
    check_name,
    copy,
    cursor_scope,
    decode_cursor,
    get_project,
    load_named,
    load_page,
    make_page,
)
from shared.storage.quota import start_tally

COLUMNS = "id, name, encode(hash, 'hex') AS hash, items, grader, project, created_at"
ONE = text(f"SELECT {COLUMNS} FROM datasets WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM datasets WHERE NOT online AND id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = cursor_scope("datasets")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag datasets'))")
INSERT = text("""
    INSERT INTO datasets (name, hash, items, grader, made_by) VALUES (:name, '', 0, :grader, :made_by) RETURNING id""")
ITEM_COLUMNS = ("dataset_id", "ordinal", "hash", "question", "gold", "gold_documents", "subject", "level", "custom_id",
         "alternatives", "expected", "query")  # fmt: skip
FINISH = text("UPDATE datasets SET hash = :hash, items = :items, bytes = :bytes WHERE id = :dataset")


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset."""

    id: int
    """Number of the dataset in the database."""
    name: str
    """Name of the dataset."""
    hash: str
    """SHA-256 of the items with all their fields, in order."""
    items: int
    """Number of items."""
    created_at: datetime
    """Time at which the dataset was stored."""
    grader: str | None = None
    """Default grader of answers; null for mathematics."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class CreatedDataset(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload."""

    dataset: Dataset
    new: bool
    """False if the same dataset existed already."""
    alternatives: int
    """Number of items with further gold answers, any of which is correct."""


def start_content_hash(grader: str | None) -> "hashlib._Hash":
    """Start a dataset's hash with the grader that it declares; the items follow."""
    return hashlib.sha256(b"" if grader is None else canonical.digest(["grader", grader]))


class Digest:
    """The hash that identifies a dataset, updated with every item."""

    def __init__(self, grader: str | None = None) -> None:
        self.items = 0
        self.alternatives = 0
        self._content = start_content_hash(grader)

    def add(self, batch: Sequence[DatasetItem]) -> int:
        """Count and hash the next items, and return their size in bytes of JSON."""
        size = 0
        for item in batch:
            encoded = canonical.encode(item)
            self._content.update(hashlib.sha256(encoded).digest())
            self.alternatives += bool(item.expected and item.expected.golds)
            size += len(encoded)
        self.items += len(batch)
        return size

    @property
    def content(self) -> bytes:
        """SHA-256 over the grader and all items so far."""
        return self._content.digest()


async def create(
    database: Database, name: str, batches: AsyncIterator[list[DatasetItem]], grader: str | None = None
) -> CreatedDataset:
    """Store an upload completely or not at all; repeating an upload returns the existing dataset.

    Args:
        grader: the default grader of answers.

    Raises:
        Conflict: a dataset with this name has other items.
        Invalid: the name cannot be used, or items are missing.
        InvalidLine: from `batches`.
        TooLarge: the key has no room for them.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        row = (await connection.execute(ONE, {"name": check_name(name)})).mappings().first()
        digest = Digest(grader)
        if row is not None:
            dataset = Dataset(**row)
            async for batch in batches:
                digest.add(batch)
            if digest.content.hex() != dataset.hash:
                raise Conflict(
                    f"dataset {dataset.name!r} exists with other items or another grader", hint="choose another name"
                )
            return CreatedDataset(dataset=dataset, new=False, alternatives=digest.alternatives)
        tally = await start_tally(connection)
        values = {"name": name, "grader": grader, "made_by": tally.made_by}
        number = int((await connection.execute(INSERT, values)).scalar_one())
        async for batch in batches:
            # PostgreSQL checks foreign keys at the end of each COPY, here while the next batch is read.
            rows = [item_row(number, ordinal, item) for ordinal, item in enumerate(batch, start=digest.items)]
            await copy(connection, "items", ITEM_COLUMNS, rows)
            tally.add(digest.add(batch))
        if digest.items == 0:
            raise Invalid("the upload holds no items", hint="send one JSON object per line")
        finished = {"dataset": number, "hash": digest.content, "items": digest.items, "bytes": tally.bytes}
        await connection.execute(FINISH, finished)
        dataset = Dataset(**await load_named(connection, ONE, "dataset", name))
        return CreatedDataset(dataset=dataset, new=True, alternatives=digest.alternatives)


def item_row(dataset: int, ordinal: int, item: DatasetItem) -> tuple[Any, ...]:
    """Make the row of an item, with the columns of `ITEMS`."""
    known = (item.question, item.gold, _json(item.gold_documents), item.subject, item.level, item.custom_id)
    return (
        dataset,
        ordinal,
        hash_item(item.question, item.gold),
        *known,
        item.alternatives,
        _json(item.expected),
        _json(item.query),
    )


def _json(said: object | None) -> str | None:
    """Encode a value for a JSON column; None stays NULL."""
    return None if said is None else msgspec.json.encode(said).decode()


DRAWN = text("""
    SELECT question, gold, gold_documents, subject, level, custom_id, COALESCE(alternatives, 0) AS alternatives,
        expected, query
    FROM (
        SELECT *, row_number() OVER (ORDER BY sha256(CAST(:seed AS bytea) || hash), ordinal) <= :size AS is_drawn
        FROM items WHERE dataset_id = :dataset
    ) AS i WHERE is_drawn = :drawn ORDER BY ordinal""")
BATCH = 500
_BATCH = msgspec.json.Decoder(list[DatasetItem])


async def draw(
    database: Database, source: str, name: str, size: int, seed: int, rest: str | None = None
) -> tuple[CreatedDataset, CreatedDataset | None]:
    """Store `size` items of the dataset `source` as the dataset `name`, in their order, and all others as `rest`, and
    return both.

    Which items are drawn depends on their content and the seed alone, so one that the dataset has twice is likely drawn
    twice. Repeating a draw returns the existing datasets.

    Raises:
        NotFound: the dataset `source` does not exist.
        Conflict: a dataset with one of the names has other items.
        Invalid: a name cannot be used, or `source` has too few items.
    """
    found = await get(database, source)
    if size + (rest is not None) > found.items:
        hint = "draw fewer, or use the whole dataset"
        left = " and leave a rest" if rest is not None else ""
        raise Invalid(f"`size`: dataset {source!r} has {found.items} items, too few to draw {size}{left}", hint=hint)
    for each in filter(None, (name, rest)):
        check_name(each)
    if name == rest:
        raise Invalid("`rest`: must differ from the name of the drawn items", hint="choose two names")
    values = {"dataset": found.id, "seed": str(seed).encode(), "size": size}

    async def store(called: str, *, drawn: bool) -> CreatedDataset:
        # Through a file, so that no connection is held while `create` waits for another one.
        with tempfile.TemporaryFile() as lines:
            async with (
                database.snapshot() as connection,
                connection.stream(DRAWN, {**values, "drawn": drawn}, execution_options={"yield_per": BATCH}) as rows,
            ):
                async for batch in rows.mappings().partitions():
                    lines.write(msgspec.json.encode([*map(dict, batch)]) + b"\n")
            lines.seek(0)
            return await create(database, called, _read_items(lines), found.grader)

    return await store(name, drawn=True), None if rest is None else await store(rest, drawn=False)


async def _read_items(lines: IO[bytes]) -> AsyncIterator[list[DatasetItem]]:
    for line in lines:
        yield _BATCH.decode(line)


INSERT_UNLISTED = text("""
    INSERT INTO datasets (name, hash, items, online) VALUES (:name, :hash, :items, true)
    ON CONFLICT (name) DO NOTHING RETURNING id""")
INSERT_QUESTIONS = text("""
    INSERT INTO items (dataset_id, ordinal, hash, question, alternatives)
    SELECT :dataset, ordinal - 1, hash, question, 0
    FROM unnest(CAST(:hashes AS bytea[]), CAST(:questions AS text[])) WITH ORDINALITY u(hash, question, ordinal)""")


def name_unlisted(kind: str, questions: Sequence[str]) -> str:
    """Return the name of the unlisted dataset of these questions, in this order.

    Names that users choose cannot contain `:`, so that it never collides with theirs. Each project has its own.
    """
    project = get_project()
    content = _hash_questions(questions)
    digest = content if project is None else canonical.digest([project, content.hex()])
    return f"{kind}:{digest.hex()[:32]}"


def _hash_questions(questions: Sequence[str]) -> bytes:
    """Return the hash that an upload of the questions would have."""
    digest = Digest()
    digest.add([
        DatasetItem(question=question, gold=None, gold_documents=None, subject=None, level=None, custom_id=None)
        for question in questions
    ])  # fmt: skip
    return digest.content


async def provide_unlisted(database: Database, kind: str, questions: Sequence[str]) -> str:
    """Create that dataset, for jobs of the program itself, unless it exists; return its name."""
    values = {
        "name": name_unlisted(kind, questions), "hash": _hash_questions(questions), "items": len(questions)
    }  # fmt: skip
    async with database.transaction() as connection:
        created = (await connection.execute(INSERT_UNLISTED, values)).scalar()
        if created is not None:
            hashes = [hash_item(question, None) for question in questions]
            rows = {"dataset": created, "hashes": hashes, "questions": list(questions)}
            await connection.execute(INSERT_QUESTIONS, rows)
    return str(values["name"])


async def get(database: Database, name: str) -> Dataset:
    """Get the dataset called `name`.

    Raises:
        NotFound: it does not exist.
    """
    async with database.transaction() as connection:
        return Dataset(**await load_named(connection, ONE, "dataset", name))


async def list_datasets(database: Database, limit: int, cursor: str | None = None) -> Page[Dataset]:
    """List datasets, newest first."""
    return await load_page(database, LIST, SCOPE, limit, cursor, lambda row: Dataset(**row))


COUNTED = 100_000
"""Number of items that are counted, from the beginning."""
MOST = 50
"""Largest number of subjects, and of levels, that are listed."""
COUNTS = text("""
    WITH counted AS MATERIALIZED (
        SELECT subject, level, gold IS NOT NULL AS gold, gold_documents IS NOT NULL AS documents,
            expected ? 'nuggets' AS nuggets
        FROM items WHERE dataset_id = :dataset AND ordinal < :counted)
    SELECT 'all' AS part, NULL AS name, count(*) AS items, count(*) FILTER (WHERE gold) AS gold,
        count(*) FILTER (WHERE documents) AS documents, count(*) FILTER (WHERE nuggets) AS nuggets FROM counted
    UNION ALL (SELECT 'subject', subject, count(*), 0, 0, 0 FROM counted WHERE subject IS NOT NULL
        GROUP BY subject ORDER BY count(*) DESC, subject LIMIT :most)
    UNION ALL (SELECT 'level', level, count(*), 0, 0, 0 FROM counted WHERE level IS NOT NULL
        GROUP BY level ORDER BY length(level), level LIMIT :most)""")


class ItemCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of items with this subject or level."""

    name: str
    """Subject or level."""
    items: int
    """Number of items."""


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the dataset's items."""

    counted: int
    """Number of counted items: the first 100,000 at most."""
    gold: int
    """Number of items with an expected answer."""
    gold_documents: int
    """Number of items that name relevant documents."""
    nuggets: int = 0
    """Number of items with nuggets, the statements that a complete answer contains."""
    subjects: list[ItemCount]
    """Number of items by subject, for the 50 most frequent subjects."""
    levels: list[ItemCount]
    """Number of items by level, for the first 50 levels."""


class DatasetDetails(Dataset, frozen=True, kw_only=True):
    """A dataset with the counts of its items."""

    counts: ItemCounts
    """Counts of the dataset's items."""


async def load_details(database: Database, name: str) -> DatasetDetails:
    """Load the dataset called `name` with its counts.

    Raises:
        NotFound: it does not exist.
    """
    dataset = await get(database, name)
    async with database.statement() as connection:
        rows = (await connection.execute(COUNTS, {"dataset": dataset.id, "counted": COUNTED, "most": MOST})).all()
    (whole,) = (row for row in rows if row.part == "all")
    subjects, levels = (
        [ItemCount(name=row.name, items=row.items) for row in rows if row.part == part] for part in ("subject", "level")
    )
    counts = ItemCounts(
        counted=whole.items, gold=whole.gold, gold_documents=whole.documents, nuggets=whole.nuggets,
        subjects=subjects, levels=levels,
    )  # fmt: skip
    return DatasetDetails(counts=counts, **msgspec.structs.asdict(dataset))


SUMMARY = text("""
    SELECT count(query) AS queries, count(*) FILTER (WHERE query ? 'leads') AS led,
        array_agg(DISTINCT query ->> 'bank') FILTER (WHERE query ? 'leads') AS banks
    FROM items WHERE dataset_id = :dataset""")
ORDINALS = text("SELECT ordinal FROM items WHERE dataset_id = :dataset AND query ? 'leads' ORDER BY ordinal")
SELECT_LED_ITEMS = text("""
    SELECT ordinal, question, gold, expected, query FROM items
    WHERE dataset_id = :dataset AND ordinal = ANY(:ordinals) ORDER BY ordinal""")
TEXTS = text("""
    SELECT c.external_id, d.problem, d.body FROM corpora k JOIN corpus_documents c ON c.corpus_id = k.id
    JOIN documents d ON d.hash = c.hash WHERE k.name = :corpus AND c.external_id = ANY(:ids)""")


class GraphQuestionCounts(NamedTuple):
    """Counts of a dataset's questions about graphs."""

    queries: int
    """Items with a query to a graph."""
    led: int
    """Items among them that rules lead to."""
    banks: frozenset[str]
    """Hashes of these rules' banks."""


class LedQuestion(NamedTuple):
    """An item that rules lead to."""

    ordinal: int
    text: str
    golds: Sequence[str]
    """Gold answers, the item's own first; empty if it has none."""
    query: FactQuery


async def count_questions(connection: AsyncConnection, dataset: int) -> GraphQuestionCounts:
    """Count the graph questions of a dataset (row id)."""
    row = (await connection.execute(SUMMARY, {"dataset": dataset})).one()
    return GraphQuestionCounts(row.queries, row.led, frozenset(row.banks or ()))


async def list_ordinals(connection: AsyncConnection, dataset: int) -> list[int]:
    """List the ordinals of the items that rules lead to."""
    return list((await connection.execute(ORDINALS, {"dataset": dataset})).scalars())


async def load_questions(connection: AsyncConnection, dataset: int, wanted: Sequence[int]) -> list[LedQuestion]:
    """Load the items with these ordinals, in order."""
    rows = await connection.execute(SELECT_LED_ITEMS, {"dataset": dataset, "ordinals": list(wanted)})
    questions = []
    for row in rows:
        further = msgspec.convert(row.expected or {}, Expected).golds
        golds = [] if row.gold is None else [row.gold, *further]
        questions.append(LedQuestion(row.ordinal, row.question, golds, msgspec.convert(row.query, FactQuery)))
    return questions


async def load_texts(connection: AsyncConnection, corpus: str, ids: Collection[str]) -> dict[str, str]:
    """Load documents of a corpus by external id, as indexed; unknown ids are left out."""
    rows = await connection.execute(TEXTS, {"corpus": corpus, "ids": sorted(ids)})
    return {row.external_id: f"{row.problem}\n{row.body}" if row.problem else row.body for row in rows}


FIRST = -1
"""Value before the first ordinal."""
SELECT_ITEM_PREVIEWS = text("""
    SELECT ordinal AS index, custom_id AS id, question, gold, subject, level, gold_documents,
        expected -> 'nuggets' AS nuggets, query ->> 'relation' AS relation
    FROM items WHERE dataset_id = :dataset AND ordinal > :after ORDER BY ordinal LIMIT :n""")
DOCUMENTS = text("""
    SELECT c.ordinal AS index, c.external_id AS id, encode(c.hash, 'hex') AS hash, left(d.problem, :most) AS problem,
        left(d.body, :most) AS text, greatest(length(d.problem), length(d.body)) > :most AS truncated
    FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = :corpus AND c.ordinal > :after ORDER BY c.ordinal LIMIT :n""")


class ItemPreview(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a dataset."""

    index: int
    """Position in the dataset, from 0; `mathrag sample show JOB INDEX` shows a job's answer to it."""
    id: str | None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None
    """The expected answer; null if the item has none."""
    subject: str | None
    """Subject of the item; null if it has none."""
    level: str | None
    """Level of the item; null if it has none."""
    gold_documents: dict[str, int] | None
    """Grades of the relevant documents by id; null if the item names none."""
    nuggets: list[str] | None
    """Statements that a complete answer contains; null if the item has none."""
    relation: str | None
    """Relation of a graph that the question is about; null if the item names none."""


class DocumentPreview(Shown, frozen=True, kw_only=True):
    """A document of a corpus, with texts up to 4,000 characters."""

    index: int
    """Position in the corpus, from 0."""


Preview = TypeVar("Preview", ItemPreview, DocumentPreview)


async def list_items(database: Database, dataset: str, limit: int, cursor: str | None) -> Page[ItemPreview]:
    """List a dataset's items in order.

    Raises:
        NotFound: no such dataset.
        BadRequest: the cursor belongs to another list.
    """
    return await list_items_of(database, await get(database, dataset), limit, cursor)


async def list_items_of(database: Database, dataset: Dataset, limit: int, cursor: str | None) -> Page[ItemPreview]:
    """List the items of a dataset that is already loaded."""
    scope = cursor_scope("items", dataset=str(dataset.id))
    return await _page(database, ItemPreview, SELECT_ITEM_PREVIEWS, {"dataset": dataset.id}, scope, limit, cursor)


async def list_documents(database: Database, corpus: str, limit: int, cursor: str | None) -> Page[DocumentPreview]:
    """List a corpus's documents in order.

    Raises:
        NotFound: no such corpus.
        BadRequest: the cursor is of another list.
    """
    return await list_documents_of(database, await corpora.get(database, corpus), limit, cursor)


async def list_documents_of(
    database: Database, corpus: corpora.Corpus, limit: int, cursor: str | None
) -> Page[DocumentPreview]:
    """List the documents of a corpus that is already loaded."""
    scope = cursor_scope("documents", corpus=str(corpus.id))
    values = {"corpus": corpus.id, "most": LONGEST_TEXT}
    return await _page(database, DocumentPreview, DOCUMENTS, values, scope, limit, cursor)


async def _page(
    database: Database, kind: type[Preview], statement: TextClause, values: Mapping[str, object],
    scope: str, limit: int, cursor: str | None,
) -> Page[Preview]:  # fmt: skip
    """Fetch the rows of `statement` after the cursor's ordinal as instances of `kind`."""
    after = decode_cursor(cursor, scope, 1)[0] if cursor else FIRST
    async with database.transaction() as connection:
        found = await connection.execute(statement, {**values, "after": after, "n": limit + 1})
        rows = [kind(**row) for row in found.mappings()]
    return make_page(rows, limit, scope, *(row.index for row in rows[:limit][-1:]))
