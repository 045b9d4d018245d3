"""What reports are made from: whoever changes it is refused, or found. Every column of every table is tried."""

import uuid
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.exc import DBAPIError

from mathrag.errors import NotFound
from shared.audit import Violation, check
from shared.audit import rows as rows_module
from shared.storage.database import Database
from tests.faults.recording import Seen
from tests.integration.scene import rows
from tests.integration.tampering import as_owner, audited, refused, uploaded

pytestmark = pytest.mark.anyio

COLUMNS = """
    SELECT table_name || '.' || column_name, data_type FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name <> 'alembic_version' ORDER BY 1"""
ANOTHER = {
    "text": "COALESCE(#, '') || 'x'",
    "integer": "COALESCE(#, 0) + 1000",
    "bigint": "COALESCE(#, 0) + 1000",
    "smallint": "COALESCE(#, 0) + 1000",
    "real": "COALESCE(#, 0) + 1000",
    "double precision": "COALESCE(#, 0) + 1000",
    "boolean": "NOT COALESCE(#, false)",
    "bytea": "sha256(COALESCE(#, '') || 'x')",
    "uuid": "gen_random_uuid()",
    "jsonb": """'{"x": 1}'""",
    "json": """'{"x": 1}'""",
    "ARRAY": "array_append(#, NULL)",
    "timestamp with time zone": "COALESCE(#, now()) + interval '1 ms'",
}
"""Another value of each type."""
OTHERWISE = {
    "attempts.call_id": "(SELECT max(id) FROM calls)",
    "calls.model_id": "(SELECT max(id) FROM models)",
    "corpora.dense_index": "(SELECT max(id) FROM indexes)",
    "corpora.sparse_index": "(SELECT min(id) FROM indexes)",
    "experiment_cells.job_id": "(SELECT max(id) FROM jobs)",
    "indexes.kind": "'dense'",
    "indexes.state": "'failed'",
    "jobs.corpus_id": "(SELECT min(id) FROM corpora)",
    "jobs.dataset_id": "(SELECT min(id) FROM datasets)",
    "jobs.reuse": "'none'",
    "jobs.state": "'cancelled'",
    "label_sets.job_id": "(SELECT max(id) FROM jobs)",
    "residencies.state": "'open'",
    "rule_banks.job_id": "(SELECT max(id) FROM jobs)",
    "rule_banks.state": "'failed'",
    "samples.kind": "'prepare'",
    "samples.state": "3",
    "steps.call_id": "(SELECT max(id) FROM calls)",
}
"""Values that a constraint lets pass."""
BESIDE = {
    "api_keys": "who may ask is no part of an answer",
    "archived_parts": "of no archived job; tests/integration/test_archive.py changes those of one",
    "batch_jobs": "which jobs answer a batch; what each answered is in its own record",
    "batch_lines": "where a line of a batch is answered; the answer is in that job's record",
    "batches": "how far a batch is; the application alone writes it, and an ended one is final",
    "devices": "what an operator drained is no part of an answer",
    "file_chunks": "bytes that a client sent or was handed; jobs hold what they are asked",
    "files": "bytes that a client sent or was handed; jobs hold what they are asked",
    "footprints": "what a plan expects; what was held is in the residency",
    "given": "no answer of this job; tests/integration/test_importing.py changes those of one that has some",
    "idempotency": "which request made the job: a repeated request finds it there",
    "outages": "what calls wait for",
    "queue": "what is still to be done",
    "sample_notes": "what people think of an answer; no figure counts it",
}
"""Tables that no report is made from, and why."""
FREE = {
    "corpora.dense_index": "which index is searched next; the job's own is in its record",
    "corpora.sparse_index": "which index is searched next; the job's own is in its record",
    "indexes.file_hash": "as built again; that of the job's day is in its record",
    "indexes.path": "where it lies",
    "indexes.state": "whether jobs may be pinned to it",
    "models.architecture": "what a plan expects of its memory",
    "models.device": "where it is served now; where it answered is in the receipts",
    "models.estimated": "what a plan expects of its memory",
    "models.footprint_mib": "what a plan expects of its memory",
    "models.registered_at": "which of a name jobs get next",
    "models.served": "which of a name jobs get next",
    "rule_banks.job_id": "which job mined it; what that found is in its own record",
}
"""Columns that the application writes whenever it likes, and why no report suffers."""

Change = Callable[[uuid.UUID, str], Awaitable[list[Violation]]]


@pytest.fixture(scope="module")
async def job(emptied: None, connections: Database) -> uuid.UUID:
    """A job whose rows no test of this file changes for good: what it changes is rolled back."""
    job = await uploaded(connections)
    assert await check(connections, job) == []
    return job


@pytest.fixture
def database(job: uuid.UUID, connections: Database) -> Database:
    return connections


async def unnoticed(database: Database, job: uuid.UUID, change: Change) -> set[str]:
    free = set()
    for column, type_ in await rows(database, COLUMNS):
        table, _, name = str(column).partition(".")
        value = OTHERWISE.get(str(column), ANOTHER[str(type_)].replace("#", f'"{name}"'))
        if table not in BESIDE and await passes(change(job, f'UPDATE {table} SET "{name}" = {value}')):  # noqa: S608
            free.add(str(column))
    return free


async def passes(change: Awaitable[list[Violation]]) -> bool:
    try:
        return not await change
    except NotFound:
        return False
    except DBAPIError as error:
        if not refused(error):
            raise
        return False


@pytest.mark.fault("X8")
async def test_no_column_changes_unseen_as_the_application(database: Database, job: uuid.UUID, seen: Seen) -> None:
    seen.describe("every column of every table set to another value, as the application's role")

    async def change(job: uuid.UUID, statement: str) -> list[Violation]:
        return await audited(database, job, statement)

    assert await unnoticed(database, job, change) == set(FREE)
    seen.note("refused by a missing right or a trigger, or found by the audit")


OWNERS = {
    "what a job got of it is in its record": (
        "configurations.changed_at", "configurations.changed_by", "configurations.document", "configurations.version",
        "indexes.created_at", "indexes.documents", "indexes.kind", "indexes.params", "indexes.signature",
    ),
    "shown beside a corpus or a dataset, and no part of what was asked": (
        "corpora.created_at", "corpus_documents.meta", "datasets.created_at", "datasets.online",
    ),
    "which keys see a row; what a job got of it is in the job's record": (
        "corpora.project", "datasets.project", "experiments.project", "graphs.project", "label_sets.project",
        "prompts.project", "rule_banks.project",
    ),
    "what the quota of a key counts": (
        "corpora.bytes", "corpora.made_by", "datasets.bytes", "datasets.made_by", "graphs.bytes", "graphs.made_by",
    ),
    "no job reads a graph: what it searches is the graph's corpus": (
        "graph_blocks.content", "graph_blocks.graph_id", "graph_blocks.ordinal", "graph_blocks.part",
        "graphs.corpus_id", "graphs.created_at", "graphs.entities", "graphs.facts", "graphs.first_time",
        "graphs.hash", "graphs.largest", "graphs.last_time", "graphs.name", "graphs.relations", "graphs.time_unit",
    ),
    "the words that a job was given are in its replies": ("graphs.phrases", "graphs.phrases_hash"),
    "a place in an order, which stays as it is": ("corpus_documents.ordinal", "experiment_cells.ordinal"),
    "a grid is how jobs are put side by side; what each was asked is in its own record": (
        "experiment_cells.job_id", "experiment_cells.point", "experiment_cells.refused", "experiment_cells.seed",
        "experiment_cells.variant", "experiments.created_at", "experiments.document", "experiments.name",
        "experiments.public_id",
    ),
    "shown beside a bank; which content a job follows is in its record": (
        "rule_banks.created_at", "rule_banks.hash", "rule_banks.name", "rule_banks.reason", "rule_banks.relations",
        "rule_banks.sealed_at", "rules.ordinal",
    ),
    "what people say of a job's answers and documents; it changes none of them": (
        "label_sets.created_at", "label_sets.eligible", "label_sets.hash", "label_sets.job", "label_sets.job_id",
        "label_sets.job_name", "label_sets.made_by", "label_sets.name", "label_sets.seed", "label_sets.size",
        "label_sets.tasks", "label_tasks.content", "label_tasks.item", "label_tasks.repeat", "label_tasks.system",
        "labels.at", "labels.blind", "labels.labeller", "labels.note", "labels.value",
    ),
    "calls name a prompt by the hash of its content, and a content with another hash is not used": (
        "prompts.content", "prompts.created_at", "prompts.created_by", "prompts.hash", "prompts.name",
        "prompts.version",
    ),
    "the journal of operators": (
        "operations.action", "operations.actor", "operations.at", "operations.detail", "operations.target",
    ),
    "who held a claim; who answered is in the record": ("attempts.token",),
    "when a change was noted; the times of the job are in the event's row": ("job_events.at",),
    "how a device was held: receipts say during which epoch, and they are in the record": (
        "residencies.closed_at", "residencies.measured", "residencies.models", "residencies.opened_at",
        "residencies.plan", "residencies.reason", "residencies.servers", "residencies.state", "residencies.wanted_at",
    ),
}  # fmt: skip
"""What an owner can change unseen, by why no answer and no score suffers: docs/reference/threats.md lists them."""


@pytest.mark.slow
@pytest.mark.fault("X8")
async def test_no_column_changes_unseen_as_the_owner(
    database: Database, owner: Database, job: uuid.UUID, seen: Seen
) -> None:
    seen.describe("the same as the owner, with the triggers disabled")

    async def change(job: uuid.UUID, statement: str) -> list[Violation]:
        return await as_owner(owner, job, statement)

    known = {column for columns in OWNERS.values() for column in columns}
    assert await unnoticed(database, job, change) == set(FREE) | known
    seen.note("found by the audit, except for columns that no report uses")


async def test_the_schema_says_what_the_migrations_made(database: Database) -> None:
    async with database.snapshot() as connection:
        assert sorted(await rows_module.read_protection(connection)) == rows_module.EXPECTED.read_text().splitlines()


NOTHING = "RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"


@pytest.mark.fault("X8")
@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE OR REPLACE FUNCTION refuse_change() {NOTHING}",
        f"CREATE OR REPLACE FUNCTION refuse_rewrite() {NOTHING}",
        f"CREATE OR REPLACE FUNCTION note_job_event() {NOTHING}",
        "ALTER FUNCTION note_job_event() RESET search_path",
        "GRANT UPDATE (reply) ON attempts TO mathrag_app",
        "GRANT UPDATE (digest) ON models TO PUBLIC",
        "GRANT DELETE ON records TO mathrag_app",
        "GRANT TRUNCATE ON items TO PUBLIC",
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES GRANT UPDATE ON TABLES TO mathrag_app",
        "ALTER TABLE records DISABLE TRIGGER append_only",
        "ALTER TABLE records ENABLE REPLICA TRIGGER append_only",
        "DROP TRIGGER append_only ON records",
        "CREATE OR REPLACE TRIGGER append_only BEFORE DELETE ON records FOR EACH ROW EXECUTE FUNCTION refuse_change()",
        "CREATE OR REPLACE TRIGGER final BEFORE UPDATE ON items FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()",
        f"CREATE FUNCTION skip() {NOTHING}",
        "ALTER TABLE outcomes ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY none ON outcomes USING (true)",
        "CREATE RULE silent AS ON INSERT TO operations DO INSTEAD NOTHING",
        "CREATE VIEW shown AS SELECT * FROM outcomes",
        "DROP INDEX attempts_accepted",
    ],
)
async def test_a_protection_that_was_weakened_is_found(
    owner: Database, job: uuid.UUID, seen: Seen, statement: str
) -> None:
    seen.describe("rights granted, and triggers, functions and rules replaced, as the owner")
    found = await audited(owner, job, statement)
    assert {each.invariant for each in found} == {"I22"}
    assert all("schema" in each.message or "migrations" in each.message for each in found)
    seen.note("I22 names missing objects and objects that no migration created")


async def test_a_schema_of_ones_own_stands_before_nothing(owner: Database, job: uuid.UUID) -> None:
    (name,) = (await rows(owner, "SELECT current_database()"))[0]
    found = await audited(
        owner, job, "CREATE SCHEMA mine", "CREATE TABLE mine.records (job_id bigint)",
        f"ALTER DATABASE {name} SET search_path = mine, public")  # fmt: skip
    assert {row for each in found for row in each.rows} >= {
        "records in schema mine stands before ours",
        "setting of -: search_path=mine, public",
    }


@pytest.mark.fault("X8")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET pipeline = 'closed-book'",
        "UPDATE jobs SET pipeline = 'gone'",
        "UPDATE jobs SET params = '{'",
        "UPDATE jobs SET prepared = 'x'",
        "UPDATE jobs SET pins = '[]'",
        """UPDATE jobs SET pins = '{"judge": 3}'""",
        "UPDATE jobs SET code = '[]'",
        "UPDATE calls SET request = 'x', key = sha256('x' || id::text::bytea)",
        "UPDATE outcomes SET outcome = 'x'",
        "UPDATE attempts SET reply = 'x'",
        "UPDATE items SET gold_documents = '[1]'",
        """UPDATE residencies SET measured = '{"peak_mib": "much", "budget_mib": 1}'""",
        "UPDATE models SET options = '3'",
        "DELETE FROM items WHERE ordinal = 2",
        "DELETE FROM corpus_documents",
    ],
)
async def test_rows_that_cannot_be_read_are_findings(
    owner: Database, job: uuid.UUID, seen: Seen, statement: str
) -> None:
    seen.describe("rows changed so that they cannot be read")
    found = await as_owner(owner, job, statement)
    assert found
    assert all(each.invariant.startswith("I") and each.message and each.rows for each in found)
    seen.note("the audit names the rows that it could not check")
