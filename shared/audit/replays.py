"""Replay samples and compare them with the stored rows, and compare stored sources with their hashes."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.exc import DBAPIError

from mathrag.errors import Unreadable
from shared import canonical
from shared.audit.finding import AuditedJob, Violation, make_violations, select_over_job_calls
from shared.audit.rows import find_altered_banks
from shared.calls import CALL_KINDS, Expected
from shared.pipelines import registry
from shared.plugins.loading import explain_absence
from shared.replies import Document
from shared.runtime import advance
from shared.runtime.pins import ModelIdentity
from shared.samples import DatasetItem, FactQuery, Outcome, Stored
from shared.shapes import Kind, PluginPin
from shared.storage.database import sql, try_decode_params
from shared.storage.datasets import start_content_hash
from shared.storage.provenance import LibraryCache, list_mentioned_documents

# I18: the gate's decision and every outcome follow from the recorded replies, bit for bit.

REPLAYS_AT_ONCE = 200
"""Samples replayed at a time, to bound memory for any size of job."""
COMPLETED = sql("""
    SELECT s.id, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id, i.expected, i.query,
        g.content AS given, o.outcome, o.answer, o.extraction, o.correct, o.strict, o.record_hash
    FROM samples s JOIN jobs j ON j.id = s.job_id JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN items i ON {ASKED_BY_SAMPLE} AND s.kind = 'item'
    LEFT JOIN given g ON {GIVEN_TO_SAMPLE}
    WHERE s.job_id = :job AND s.kind = :kind AND s.state = {COMPLETED} AND s.id > :after ORDER BY s.id LIMIT :n""")
FORGED_KEYS = select_over_job_calls("""
    SELECT 'calls ' || c.id FROM mine JOIN calls c ON c.id = mine.call_id
    WHERE c.key <> sha256(c.request) ORDER BY c.id""")
PREPARED = sql("""
    SELECT 'jobs ' || j.id FROM jobs j
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare' AND s.state = {COMPLETED}
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE j.id = :job AND j.running_at IS NOT NULL AND j.prepared IS DISTINCT FROM o.outcome""")
ALTERED, MISCOPIED = "its text does not match its hash", "its columns differ from its outcome"
MISSING = "it is gone, although a given answer names it"
OF_ROWS = (ALTERED, MISCOPIED, MISSING)
"""Problems that do not depend on the source of the pipeline."""
Steps = list[list[tuple[bytes, int, bytes | None]]]
"""By position and slot: key and id of the call, and its accepted reply as stored."""
History = dict[int, Steps]
"""Steps by sample."""


class ReplayAuditor:
    """Replays one job's completed samples and compares the results with the stored ones."""

    def __init__(self, audit: AuditedJob, job: advance.JobSpec) -> None:
        self._audit = audit
        self._job = job
        self._cache = LibraryCache()
        self._library: dict[str, Document] = {}
        """Documents that the replays of a batch read."""
        self._seen: set[str] = set()
        """Documents whose hash was checked."""

    async def findings(self) -> AsyncIterator[tuple[str, str]]:
        """Yield (problem, row) for every completed sample and every document that replays read."""
        for kind in ("prepare", "item"):
            async for rows in self._audit.read_batches(COMPLETED, "id", 0, REPLAYS_AT_ONCE, kind=kind):
                # Replay each sample with its stored replies; where that fails, return the reason instead.
                self._library = {}
                history = await self._load_history([row["id"] for row in rows])
                async for document in self._load_given(rows):
                    yield MISSING, f"documents {document}"
                for row in rows:
                    progress = await self._replay(kind, row, history.get(row["id"], []))
                    for message in [progress] if isinstance(progress, str) else _compare_to_stored(row, progress):
                        yield message, f"samples {row['id']}"
                # The documents of the batch that do not match their hash, each once in the whole audit.
                new = self._library.keys() - self._seen
                self._seen |= new
                for hash_ in sorted(hash_ for hash_ in new if self._library[hash_].hash != hash_):
                    yield ALTERED, f"documents {hash_}"

    async def _replay(self, kind: str, row: RowMapping, history: Steps) -> advance.SampleProgress | str:
        try:
            job = self._job
            if kind == "prepare":
                replay = job.prepare(await job.load_calibration_items(self._audit.connection), self._library)
            else:
                replay = job.start(
                    advance.item_from_row(row), row["repeat"], self._library, advance.decode_given(row, job.pipeline)
                )
            progress = advance.SampleProgress(row["id"], job, row["repeat"], row["position"], replay)
            for steps in history:
                if not progress.expects([key for key, _, _ in steps]):
                    break
                answers = [found for _, call, raw in steps if (found := _read_reply(call, raw)) is not None]
                if len(answers) < len(steps):
                    replay.fail("no_reply", f"position {replay.position} lacks a readable reply")
                    break
                progress.consume(answers)
        except (DBAPIError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - changed rows may break a replay anywhere, and the others continue
            return f"could not be replayed: {type(error).__name__}: {error}"
        return progress

    async def _load_given(self, rows: Sequence[RowMapping]) -> AsyncIterator[str]:
        """Have the documents of given answers, and yield the hashes of those that are gone."""
        given = (_decode_given(row, self._job.pipeline) for row in rows)
        shown = advance.list_given_documents(given)
        self._library |= await self._cache.documents(self._audit.connection, shown)
        for hash_ in sorted(shown - self._library.keys() - self._seen):
            self._seen.add(hash_)
            yield hash_

    async def _load_history(self, samples: Sequence[int]) -> History:
        rows = (await self._audit.connection.execute(advance.HISTORY, {"ids": samples})).all()
        history: History = defaultdict(list)
        for (sample, _), steps in groupby(rows, key=lambda row: (row.sample_id, row.position)):
            history[sample].append([(row.key, row.id, row.reply) for row in steps])
        # Have the documents that the replies mention; a replay that reads one that is gone will say so.
        read = (_read_reply(0, reply) for reply in {row.reply for row in rows})
        hashes = list_mentioned_documents(each.reply for each in read if each is not None and each.reply is not None)
        self._library |= await self._cache.documents(self._audit.connection, hashes)
        return history


def _decode_given(row: RowMapping, pipeline: str) -> Stored | None:
    """Decode the stored input of the sample; None without one, or if its replay reports why it cannot be read."""
    try:
        return advance.decode_given(row, pipeline)
    except Unreadable:
        return None


def _read_reply(call: int, raw: bytes | None) -> advance.StoredAnswer | None:
    """Decode the reply; None if it does not exist or it cannot be decoded."""
    try:
        return None if raw is None else advance.decode_answer(call, raw)
    except ValueError:
        return None


def _compare_to_stored(row: RowMapping, progress: advance.SampleProgress) -> Iterator[str]:
    """Yield how the stored result of a completed sample differs from its replay."""
    replay = progress.replay
    if replay.failure is not None:
        yield f"its replay fails: {replay.failure[0]}"
    elif progress.waits:
        yield "its replay makes more calls than it has steps"
    else:
        if canonical.encode(replay.result) != row["outcome"]:
            yield "its replay has another outcome"
        elif _list_columns(replay.result) != tuple(row[name] for name in ("answer", "extraction", "correct", "strict")):
            yield MISCOPIED
        if progress.record != row["record_hash"]:
            yield "its record hash does not verify"


def _list_columns(result: object) -> tuple[object, ...]:
    """Return answer, extraction and verdicts of an outcome; the decision of a gate has none."""
    if not isinstance(result, Outcome):
        return (None, None, None, None)
    verdict = result.verdict
    given = (verdict.correct, verdict.strict) if verdict else (None, None)
    return (result.answer, result.extraction.value, *given)


async def check_replays(audit: AuditedJob) -> list[Violation]:
    """I18: replaying the recorded replies gives the stored gate decision, outcomes, record hashes and call keys."""
    return [
        *await audit.find("I18", "its gate decision is not its preparation's outcome", PREPARED),
        *await audit.find("I18", "its key is not the hash of its request", FORGED_KEYS),
        *await _audit_replays(audit),
    ]


async def _audit_replays(audit: AuditedJob) -> list[Violation]:
    name, row = audit.job["pipeline"], f"jobs {audit.job['id']}"
    pins = msgspec.convert((audit.job["code"] or {}).get("plugins", []), list[PluginPin])
    if name not in registry.names():
        plugin = next((f"{pin.distribution} {pin.version}" for pin in pins if pin.kind == Kind.PIPELINE), None)
        advice = f": audit it with {plugin}" if plugin else ""
        return [_make_replay_violation(audit, f"its pipeline {name!r} is not installed{advice}", [row])]
    # Describe the graders and prompts without which every replay would diverge, even if the rows are correct.
    missing = [
        f"its {pin.kind} {pin.name!r} is not installed in that version: audit it with {pin.distribution} {pin.version}"
        for pin in pins
        if pin.kind != Kind.PIPELINE and explain_absence(pin) is not None
    ]
    if missing:
        return [_make_replay_violation(audit, message, [row]) for message in missing]
    try:
        specs = await advance.JobSpecs(controls=True).load(audit.connection, {audit.job["id"]}, set())
    except ValueError as error:
        return [_make_replay_violation(audit, f"its parameters or decision cannot be read: {error}", [row])]
    found: dict[str, list[str]] = defaultdict(list)
    async for message, at in ReplayAuditor(audit, specs[audit.job["id"]]).findings():
        found[message].append(at)
    return [_make_replay_violation(audit, message, rows) for message, rows in found.items()]


def _make_replay_violation(audit: AuditedJob, message: str, rows: Sequence[str]) -> Violation:
    """Make a violation of I18; if the pipeline has changed, it only tells that the replay is not possible."""
    pipeline_changed = message not in OF_ROWS and has_changed_pipeline(audit.job)
    if pipeline_changed:
        message = f"pipeline changed: cannot be replayed by this version ({message}); audit it with the one that ran it"
    return Violation(invariant="I18", message=message, rows=tuple(rows), source_changed=pipeline_changed)


def has_changed_pipeline(job: RowMapping) -> bool:
    """Return whether the job's pipeline is installed in another version than the job ran."""
    name = job["pipeline"]
    params, _ = try_decode_params(job["params"], "")
    return name in registry.names() and registry.pipeline_hash(name, params) != job["pipeline_hash"].hex()


# I23: dataset, corpus, models, calls and grid of a job are what they were at its submission.
#
# Their hashes are in the job's record, in its pins and in the keys of its calls; here they are computed again.

SOURCES_AT_ONCE = 5000
# A source without a SHA-256 was not uploaded, so it cannot be hashed again.
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
    lanes = canonical.encode({role: kind.lane for role, kind in CALL_KINDS.items()}).decode()
    return [
        *make_violations("I23", "does not match its hash", await _find_altered_dataset(audit)),
        *make_violations("I23", "does not match its hash", [name async for name in find_altered_banks(audit)]),
        *await audit.find("I23", "does not match its hashes", CORPUS),
        *make_violations("I23", "does not match its hash", await _find_altered_models(audit)),
        *await audit.find("I23", "is pinned to a model with another hash", UNPINNED),
        *await audit.find("I23", "its role, lane or model differs from its request", MISNAMED, lanes=lanes),
        *await audit.find("I23", "differs from the request of its job", CELLS),
    ]


async def _find_altered_dataset(audit: AuditedJob) -> list[str]:
    """Return the dataset if its items do not give its hash."""
    dataset = (await audit.connection.execute(DATASET, {"job": audit.job["id"]})).mappings().first()
    if dataset is None:
        return []
    content, count, known = start_content_hash(dataset["grader"]), 0, True
    async for rows in audit.read_batches(ITEMS, "ordinal", -1, SOURCES_AT_ONCE, dataset=dataset["id"]):
        for row in rows:
            stored = {name: value for name, value in row.items() if name != "ordinal"}
            stored["alternatives"] = row["alternatives"] or 0
            stored["expected"] = msgspec.convert(row["expected"], Expected | None)
            stored["query"] = msgspec.convert(row["query"], FactQuery | None)
            content.update(canonical.digest(DatasetItem(**stored)))
            known, count = known and row["alternatives"] is not None, count + 1
    # Of items that were stored before their alternatives were, those that have some cannot be computed again.
    is_altered = count != dataset["items"] or (known and content.digest() != dataset["hash"])
    return [f"datasets {dataset['name']}"] if is_altered else []


async def _find_altered_models(audit: AuditedJob) -> list[str]:
    """Return the models whose rows do not give their hash; the hash of an index's model leaves out its name."""
    altered = []
    for row in (await audit.connection.execute(MODELS, {"job": audit.job["id"]})).mappings():
        fields = ("name", "backend", "digest", "version", "options", "needs_lease")
        identity = ModelIdentity(**{name: row[name] for name in fields})
        of_index = canonical.digest([row["backend"], row["digest"], row["version"], row["options"]])
        if row["hash"] != identity.hash and not (row["indexed"] and row["hash"] == of_index):
            altered.append(f"models {row['id']}")
    return altered
