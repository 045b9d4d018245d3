"""I23: what a job was asked over and answered by is what it was then: dataset, corpus, models, calls, grid.

Their hashes are in the job's record, in its pins and in the keys of its calls; here they are computed again.
"""

from collections.abc import AsyncIterator, Iterator

import msgspec
from sqlalchemy import RowMapping, text

from shared.audit import banks
from shared.audit.finding import AuditedJob, Violation, select_over_job_calls
from shared.contracts import canonical
from shared.contracts.calls import CALL_KINDS
from shared.contracts.datasets import DatasetItem
from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery
from shared.runtime.pins import ModelIdentity
from shared.storage.datasets import start_content_hash

BATCH = 5000

# What is not named by a SHA-256 was not uploaded, and nothing can be computed again of it.
DATASET = text("""
    SELECT d.id, d.name, d.hash, d.items, d.grader FROM jobs j JOIN datasets d ON d.id = j.dataset_id
    WHERE j.id = :job AND octet_length(d.hash) = 32""")
ITEMS = text("""
    SELECT ordinal, question, gold, gold_documents, subject, level, custom_id, alternatives, expected, query FROM items
    WHERE dataset_id = :dataset AND ordinal > :after ORDER BY ordinal LIMIT :n""")
CORPUS = text("""
    SELECT 'corpora ' || k.name FROM jobs j JOIN corpora k ON k.id = j.corpus_id CROSS JOIN LATERAL (
        SELECT count(*) AS documents, sha256(string_agg(hash, '' ORDER BY ordinal)) AS hash,
            sha256(convert_to(string_agg(external_id, E'\\n' ORDER BY ordinal), 'UTF8')) AS ids
        FROM corpus_documents WHERE corpus_id = k.id) m
    WHERE j.id = :job AND octet_length(k.hash) = 32 AND (
        k.hash <> m.hash OR k.ids <> m.ids OR k.documents <> m.documents
        OR j.code ->> 'corpus_ids' <> encode(m.ids, 'hex'))""")
MODELS = select_over_job_calls("""
    SELECT m.id, m.name, m.backend, m.digest, m.version, m.options, m.needs_lease, m.hash, EXISTS (
        SELECT 1 FROM indexes i WHERE i.model_id = m.id AND i.kind = m.name) AS indexed
    FROM models m WHERE m.id IN (
        SELECT c.model_id FROM mine JOIN calls c ON c.id = mine.call_id
        UNION SELECT CAST(p.value ->> 'model_id' AS integer) FROM jobs j, jsonb_each(j.pins) p WHERE j.id = :job)
    ORDER BY m.id""")
UNPINNED = text("""
    SELECT format('jobs %s: %s', j.id, p.key) FROM jobs j CROSS JOIN LATERAL jsonb_each(j.pins) p
    LEFT JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
    WHERE j.id = :job AND encode(m.hash, 'hex') IS DISTINCT FROM p.value ->> 'hash' ORDER BY p.key""")
# `->` leaves texts as they are written: what a jsonb cannot hold may stand in a request. What is not its key is I18's.
MISNAMED = select_over_job_calls("""
    SELECT 'calls ' || c.id FROM mine JOIN calls c ON c.id = mine.call_id JOIN models m ON m.id = c.model_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.key = sha256(c.request) THEN CAST(convert_from(c.request, 'UTF8') AS json) END AS request) r
    WHERE r.request IS NOT NULL AND (CAST(r.request -> 'role' AS text) IS DISTINCT FROM CAST(to_json(c.role) AS text)
        OR c.lane IS DISTINCT FROM CAST(:lanes AS jsonb) ->> c.role
        OR CAST(r.request -> 'model' AS text) IS DISTINCT FROM CAST(to_json(encode(m.hash, 'hex')) AS text))
    ORDER BY c.id""")
CELLS = text("""
    SELECT format('experiment_cells %s/%s', c.experiment_id, c.ordinal) FROM experiment_cells c
    JOIN jobs j ON j.id = c.job_id JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    WHERE j.id = :job AND (c.pipeline <> j.pipeline OR c.dataset <> d.name OR c.corpus <> k.name)
    ORDER BY c.experiment_id, c.ordinal""")


async def check_hashes(audit: AuditedJob) -> list[Violation]:
    """I23: the job's dataset, corpus, rule bank, models and calls match their hashes, and its cells match its
    request.
    """
    return [
        *_make_violation("does not match its hash", [name async for name in _find_altered_dataset(audit)]),
        *_make_violation("does not match its hash", [name async for name in banks.find_altered_banks(audit)]),
        *await audit.find("I23", "does not match its hashes", CORPUS),
        *_make_violation("does not match its hash", [name async for name in _find_altered_models(audit)]),
        *await audit.find("I23", "is pinned to a model with another hash", UNPINNED),
        *await audit.find("I23", "its role, lane or model differs from its request", MISNAMED, lanes=_lanes()),
        *await audit.find("I23", "differs from the request of its job", CELLS),
    ]


def _lanes() -> str:
    return canonical.encode({role: kind.lane for role, kind in CALL_KINDS.items()}).decode()


def _make_violation(message: str, rows: list[str]) -> Iterator[Violation]:
    if rows:
        yield Violation(invariant="I23", message=message, rows=tuple(rows))


async def _find_altered_dataset(audit: AuditedJob) -> AsyncIterator[str]:
    """Yield the dataset if its items do not give its hash."""
    dataset = (await audit.connection.execute(DATASET, {"job": audit.job["id"]})).mappings().first()
    if dataset is None:
        return
    content, count, known = start_content_hash(dataset["grader"]), 0, True
    async for row in _items(audit, dataset["id"]):
        content.update(canonical.digest(_item(row)))
        known, count = known and row["alternatives"] is not None, count + 1
    # Of items that were stored before their alternatives were, those that have some cannot be computed again.
    if count != dataset["items"] or (known and content.digest() != dataset["hash"]):
        yield f"datasets {dataset['name']}"


async def _items(audit: AuditedJob, dataset: int) -> AsyncIterator[RowMapping]:
    after = -1
    while True:
        values = {"dataset": dataset, "after": after, "n": BATCH}
        rows = (await audit.connection.execute(ITEMS, values)).mappings().all()
        for row in rows:
            yield row
        if len(rows) < BATCH:
            return
        after = rows[-1]["ordinal"]


def _item(row: RowMapping) -> DatasetItem:
    stored = {name: value for name, value in row.items() if name != "ordinal"}
    expected = msgspec.convert(row["expected"], Expected | None)
    query = msgspec.convert(row["query"], FactQuery | None)
    return DatasetItem(**{**stored, "alternatives": row["alternatives"] or 0, "expected": expected, "query": query})


async def _find_altered_models(audit: AuditedJob) -> AsyncIterator[str]:
    """Yield the models whose rows do not give their hash; the hash of an index's model leaves out its name."""
    for row in (await audit.connection.execute(MODELS, {"job": audit.job["id"]})).mappings():
        fields = ("name", "backend", "digest", "version", "options", "needs_lease")
        identity = ModelIdentity(**{name: row[name] for name in fields})
        of_index = canonical.digest([row["backend"], row["digest"], row["version"], row["options"]])
        if row["hash"] != identity.hash and not (row["indexed"] and row["hash"] == of_index):
            yield f"models {row['id']}"
