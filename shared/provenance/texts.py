"""Read the texts that a record's hashes stand for; each text is named by the SHA-256 of its bytes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.canonical import normalise
from shared.contracts.provenance_lines import Texts
from shared.contracts.requests import DocumentRef, Request
from shared.storage.database import sql

# A cancelled sample has consumed no reply to what it waited for at its end.
CALLS = sql("""
    SELECT t.sample_id, encode(c.key, 'hex') AS key, c.request, encode(sha256(a.reply), 'hex') AS hash, a.reply
    FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    LEFT JOIN attempts a ON {ACCEPTED_FOR} t.call_id AND (s.state <> {CANCELLED} OR t.position < s.position - 1)
    WHERE s.id = ANY(:samples)""")
ENDS = sql("""
    SELECT s.id, i.question, i.gold, o.outcome, encode(sha256(o.outcome), 'hex') AS hash
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE s.id = ANY(:samples)""")
DOCUMENTS = text("SELECT problem, body FROM documents WHERE hash = ANY(:hashes)")
JOB = text("SELECT prepared, encode(sha256(prepared), 'hex') AS hash, pins FROM jobs WHERE id = :job")
MODELS = text("SELECT name, backend, digest, version, options, needs_lease FROM models WHERE id = ANY(:models)")

_REQUEST = msgspec.json.Decoder(Request)


async def read_job_texts(connection: AsyncConnection, job: int) -> Texts:
    """Read the gate's decision and the identities of the models that the job is pinned to."""
    row = (await connection.execute(JOB, {"job": job})).one()
    models = await connection.execute(MODELS, {"models": [pin["model_id"] for pin in row.pins.values()]})
    identities = dict(_name_by_hash(list(model)) for model in models)
    return identities | ({row.hash: row.prepared.decode()} if row.prepared is not None else {})


async def read_sample_texts(connection: AsyncConnection, samples: Sequence[int]) -> dict[int, Texts]:
    """Read, by samples.id, the item, the requests, the consumed replies, the documents in requests, and the outcome."""
    found: dict[int, Texts] = defaultdict(dict)
    documents: dict[int, set[str]] = defaultdict(set)
    for row in await connection.execute(CALLS, {"samples": samples}):
        found[row.sample_id][row.key] = row.request.decode()
        documents[row.sample_id] |= list_prompt_documents(_REQUEST.decode(row.request))
        if row.reply is not None:
            found[row.sample_id][row.hash] = row.reply.decode()
    for row in await connection.execute(ENDS, {"samples": samples}):
        found[row.id] |= [_name_by_hash([normalise(row.question), row.gold])]
        if row.outcome is not None:
            found[row.id][row.hash] = row.outcome.decode()
    library = await _read_documents(connection, set().union(*documents.values()))
    for sample, hashes in documents.items():
        found[sample] |= {hash_: library[hash_] for hash_ in sorted(hashes) if hash_ in library}
    return found


def list_prompt_documents(request: Request) -> set[str]:
    """Return the hashes of the documents in the prompt of a request."""
    values = request.values.values()
    lists = [value for value in values if isinstance(value, list)]
    single = [value for value in values if isinstance(value, DocumentRef)]
    return {reference.doc for references in (single, *lists) for reference in references}


async def _read_documents(connection: AsyncConnection, hashes: Iterable[str]) -> Texts:
    rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in sorted(hashes)]})
    return dict(_name_by_hash([normalise(row.problem), normalise(row.body)]) for row in rows)


def _name_by_hash(value: Sequence[Any]) -> tuple[str, str]:
    return canonical.digest(value).hex(), canonical.encode(value).decode()
