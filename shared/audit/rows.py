"""Checks of single rows: jobs, samples, calls, requests, records, events, banks and residencies."""

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

import msgspec
from sqlalchemy import Row, RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import canonical
from shared.audit.finding import AuditedJob, Violation, make_violations, select_over_job_calls
from shared.calls import CALL_KINDS
from shared.lease.policy import DECIDED
from shared.pipelines import registry
from shared.records import genesis
from shared.replies import INFRASTRUCTURE, Failure, FailureKind, Reply, Rule
from shared.runtime.queue import outcome_name
from shared.storage import provenance
from shared.storage.database import fill_names, sql
from shared.storage.rules import BankDigest

# I19, I20: a key of a request stands for one job, and a page's key for one row.

# Both times are the transaction's.
NOT_WITH_ITS_JOB = text("""
    SELECT format('idempotency %s/%s', i.operation, i.key) FROM idempotency i JOIN jobs j ON j.id = i.job_id
    WHERE j.id = :job AND i.created_at <> j.created_at ORDER BY 1""")
NO_HASH = text("""
    SELECT format('idempotency %s/%s', operation, key) FROM idempotency
    WHERE job_id = :job AND octet_length(body_hash) <> 32 ORDER BY 1""")
SEVERAL_KEYS = text("""
    SELECT format('idempotency %s/%s', operation, key) FROM idempotency
    WHERE job_id = :job AND (SELECT count(*) FROM idempotency o WHERE o.job_id = :job) > 1 ORDER BY 1""")
SHARED_KEY = text("""
    SELECT 'samples ' || id FROM (
        SELECT id, count(*) OVER (PARTITION BY kind, ordinal, repeat) AS rows FROM samples WHERE job_id = :job) s
    WHERE s.rows > 1 ORDER BY id""")


async def check_idempotency_keys(audit: AuditedJob) -> list[Violation]:
    """I19: a job was made by one request, whose key and hash were stored in the job's own transaction."""
    return [
        *await audit.find("I19", "not stored in the transaction of its job", NOT_WITH_ITS_JOB),
        *await audit.find("I19", "its request is not stored as a SHA-256", NO_HASH),
        *await audit.find("I19", "several requests made this job", SEVERAL_KEYS),
    ]


async def check_page_keys(audit: AuditedJob) -> list[Violation]:
    """I20: pages and streams go by (item, repeat): no two samples have the same, so none is skipped or shown twice."""
    return await audit.find("I20", "shares item and repeat with another sample", SHARED_KEY)


# Compare the rule bank that a job uses with its hash; a bank that has been deleted cannot be checked.

RULES_AT_ONCE = 5000
BANK = text("""
    SELECT b.id, b.name, b.hash, encode(b.graph_hash, 'hex') AS graph_hash, b.miner, b.limits, b.rules
    FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
    JOIN rule_banks b ON encode(b.hash, 'hex') = m.digest WHERE j.id = :job ORDER BY b.id""")
RULES = text("""
    SELECT ordinal, head, certainty, rule FROM rules WHERE bank_id = :bank AND ordinal > :after
    ORDER BY ordinal LIMIT :n""")


async def find_altered_banks(audit: AuditedJob) -> AsyncIterator[str]:
    """Yield the banks pinned by the job whose rules do not match their hash or their columns."""
    for bank in (await audit.connection.execute(BANK, {"job": audit.job["id"]})).mappings().all():
        content, shown = BankDigest(bank["graph_hash"], bank["miner"], bank["limits"]), True
        async for rows in audit.read_batches(RULES, "ordinal", -1, RULES_AT_ONCE, bank=bank["id"]):
            for row in rows:
                # The columns by which rules are selected equal the values inside the rule.
                rule = msgspec.json.decode(row["rule"], type=Rule)
                shown = shown and row["head"] == rule.head.relation and row["certainty"] == rule.certainty
                content.add(row["rule"])
        if content.digest() != bank["hash"] or content.rules != bank["rules"] or not shown:
            yield f"rule_banks {bank['name']}"


def _columns_match(row: RowMapping) -> bool:
    """Return whether the columns used to select rules equal the values inside the rule."""
    rule = msgspec.json.decode(row["rule"], type=Rule)
    return bool(row["head"] == rule.head.relation and row["certainty"] == rule.certainty)


# I5, I14: replies count under a claim and with a receipt only, and what has a reply is not executed again.

CALLS_AT_ONCE = 5000
RETRIED = sorted(kind.value for kind in INFRASTRUCTURE)
UNSTAMPED = [FailureKind.POISONED.value, *RETRIED]
"""Outcomes that come from no model and therefore have no receipt."""
ACCEPTED = fill_names("FROM mine JOIN attempts a ON {ACCEPTED_FOR} mine.call_id")
UNCLAIMED = select_over_job_calls(f"""
    SELECT 'attempts ' || a.id {ACCEPTED} WHERE a.token IS NULL AND a.outcome <> :poisoned ORDER BY a.id""")
WITHOUT_RECEIPT = select_over_job_calls(f"""
    SELECT 'attempts ' || a.id {ACCEPTED} JOIN calls c ON c.id = a.call_id
    JOIN models m ON m.id = c.model_id AND m.needs_lease
    WHERE a.outcome <> ALL(:unstamped) AND num_nulls(a.epoch, a.device, a.started_at, a.ended_at) > 0 ORDER BY a.id""")
TWICE_ACCEPTED = select_over_job_calls(f"""
    SELECT 'calls ' || a.call_id {ACCEPTED} GROUP BY a.call_id HAVING count(*) > 1 ORDER BY a.call_id""")
REPLIES = select_over_job_calls(f"""
    SELECT a.id, a.call_id, c.role, a.outcome, a.reply {ACCEPTED} JOIN calls c ON c.id = a.call_id
    WHERE a.call_id > :after ORDER BY a.call_id, a.id LIMIT :n""")
AFTER_THE_REPLY = select_over_job_calls(f"""
    SELECT 'attempts ' || b.id {ACCEPTED}
    JOIN attempts b ON b.call_id = a.call_id AND NOT b.accepted AND b.created_at > a.created_at ORDER BY b.id""")
AGAIN_WITHOUT_CAUSE = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM mine JOIN attempts a ON a.call_id = mine.call_id
    WHERE NOT a.accepted AND a.outcome <> ALL(:causes) ORDER BY a.id""")
FREED = select_over_job_calls(f"""
    SELECT 'calls ' || c.id {ACCEPTED} JOIN calls c ON c.id = a.call_id
    WHERE c.failed <> (a.outcome = ANY(:retried)) ORDER BY c.id""")
_DECODER: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


async def check_accepted_replies(audit: AuditedJob) -> list[Violation]:
    """I5: a reply counts once, under a claim, from a leased model with a receipt, and is what its outcome says."""
    unlike: list[str] = []
    async for rows in audit.read_batches(REPLIES, "call_id", 0, CALLS_AT_ONCE):
        unlike += [f"attempts {row['id']}" for row in rows if not _matches_outcome(row)]
    return [
        *await audit.find("I5", "accepted without a claim's token", UNCLAIMED, poisoned=FailureKind.POISONED.value),
        *await audit.find("I5", "accepted from a leased model without a receipt", WITHOUT_RECEIPT, unstamped=UNSTAMPED),
        *await audit.find("I5", "has two accepted attempts", TWICE_ACCEPTED),
        *make_violations("I5", "the reply does not match its call's role or its `outcome`", unlike),
    ]


def _matches_outcome(row: RowMapping) -> bool:
    try:
        reply = _DECODER.decode(row["reply"])
    except ValueError:
        return False
    return isinstance(reply, CALL_KINDS[row["role"]].value | Failure) and outcome_name(reply) == row["outcome"]


async def check_no_calls_after_reply(audit: AuditedJob) -> list[Violation]:
    """I14: a call is executed again only after a lapse or an infrastructure failure, and never after its reply."""
    causes = ["lapsed", *RETRIED]
    message = "`failed` does not match the accepted reply"
    return [
        *await audit.find("I14", "attempted after the accepted reply", AFTER_THE_REPLY),
        *await audit.find("I14", "not accepted, yet neither a lapse nor a failure", AGAIN_WITHOUT_CAUSE, causes=causes),
        *await audit.find("I14", message, FREED, retried=RETRIED),
    ]


# I21: what was counted stays counted: versions and times only grow, an end is an end, no version is rewritten.

EVENTS_MISSING = text("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) AS events, min(version) AS first, max(version) AS last FROM job_events e
        WHERE e.job_id = j.id) e
    WHERE j.id = :job AND (e.last IS DISTINCT FROM j.version OR e.events <> e.last - e.first + 1)""")
LAST = text("""
    SELECT format('job_events %s/%s', e.job_id, e.version) FROM job_events e JOIN jobs j ON j.id = e.job_id
    WHERE j.id = :job AND e.version = j.version AND (e.state, e.reason) IS DISTINCT FROM (j.state, j.reason)""")
# An event without the row was written before versions were kept: it has the state, the reason and the time alone. A
# column that was added later is null in the rows of before and missing from their events, so both are the same.
UNNOTED = text("""
    SELECT 'jobs ' || j.id FROM jobs j JOIN job_events e ON e.job_id = j.id AND e.version = j.version
    WHERE j.id = :job AND jsonb_strip_nulls(e.job) <> jsonb_strip_nulls(version_of(j))""")
REWRITTEN = sql("""
    SELECT format('job_events %s/%s', job_id, version) FROM (
        SELECT job_id, version, job, lag(job) OVER (ORDER BY version) AS before, bool_or(state IN {TERMINAL}) OVER (
            ORDER BY version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ended
        FROM (SELECT job_id, version, state, jsonb_strip_nulls(job) AS job FROM job_events WHERE job_id = :job) v) e
    WHERE job - CAST(:changing AS text[]) <> before - CAST(:changing AS text[])
        OR (ended AND job - CAST(:amended AS text[]) <> before - CAST(:amended AS text[])) ORDER BY version""")
# The end is stamped in the statement whose trigger writes the event, after the event before it.
STAMPED = sql("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT e.at, (SELECT max(b.at) FROM job_events b WHERE b.job_id = j.id AND b.version < e.version) AS before
        FROM job_events e WHERE e.job_id = j.id AND e.state IN {TERMINAL} ORDER BY e.version LIMIT 1) e
    WHERE j.id = :job AND (j.ended_at > e.at OR j.ended_at < e.before)""")
EVENTS_BACKWARDS = text("""
    SELECT format('job_events %s/%s', job_id, version) FROM (
        SELECT *, lag(at) OVER (ORDER BY version) AS before FROM job_events WHERE job_id = :job) e
    WHERE at < before ORDER BY version""")
AFTER_AN_END = sql("""
    SELECT format('job_events %s/%s', e.job_id, e.version) FROM job_events e
    WHERE e.job_id = :job AND EXISTS (
        SELECT 1 FROM job_events b WHERE b.job_id = e.job_id AND b.version < e.version AND b.state IN {TERMINAL}
            AND b.state <> e.state)
    ORDER BY e.version""")
# A sample reads its replies before it ends; the database's clock stamps both.
LATE = sql("""
    SELECT DISTINCT 'attempts ' || a.id FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN attempts a ON {ACCEPTED_FOR} t.call_id
    WHERE s.job_id = :job AND s.state IN {DONE} AND a.created_at > s.ended_at ORDER BY 1""")
AMENDED = ["name", "rank", "metadata", "version"]
"""Fields of a job that may change at any time."""
CHANGING = [*AMENDED, "state", "prepared", "reason", "running_at", "ended_at", "chain"]
"""Fields of a job that may change until its end."""


async def check_events(audit: AuditedJob) -> list[Violation]:
    """I21: every version has its event, in the order of time, and is what it says; replies are older than the ends."""
    return [
        *await audit.find("I21", "a change of its state has no event", EVENTS_MISSING),
        *await audit.find("I21", "has another state or reason than the job", LAST),
        *await audit.find("I21", "differs from its last event", UNNOTED),
        *await audit.find("I21", "changed a final value", REWRITTEN, changing=CHANGING, amended=AMENDED),
        *await audit.find("I21", "did not end at the time of its events", STAMPED),
        *await audit.find("I21", "is older than the event before it", EVENTS_BACKWARDS),
        *await audit.find("I21", "came after an end", AFTER_AN_END),
        *await audit.find("I21", "was stored after the sample that consumed it had ended", LATE),
    ]


# I22: every sample of an ended job has its record, and the chain is whole.

RECORDS_AT_ONCE = 200
LINKS = text("SELECT sample_id, seq, hash, previous FROM records WHERE sample_id = ANY(:samples)")
# A job whose first event is its end was over before records were kept.
CHAINLESS = sql("""
    SELECT 'jobs ' || j.id FROM jobs j
    WHERE j.id = :job AND (j.state IN {TERMINAL}) <> (j.chain IS NOT NULL) AND NOT EXISTS (
        SELECT 1 FROM job_events e WHERE e.job_id = j.id AND e.state IN {TERMINAL}
            AND NOT EXISTS (SELECT 1 FROM job_events b WHERE b.job_id = j.id AND b.version < e.version))""")
ORPHANS = sql("""
    SELECT 'records ' || r.sample_id FROM records r LEFT JOIN samples s ON s.id = r.sample_id
    WHERE r.job_id = :job AND (s.job_id <> r.job_id OR s.kind <> 'item' OR s.state < {COMPLETED}) ORDER BY r.seq""")
JOB = text("SELECT chain FROM jobs WHERE id = :job")


async def check_records(audit: AuditedJob) -> list[Violation]:
    """I22: records are complete, follow from the rows, and are chained up to the hash that the job keeps."""
    broken: dict[str, list[str]] = defaultdict(list)
    async for message, row in _find_broken(audit):
        broken[message].append(row)
    return [
        *[violation for message, rows in broken.items() for violation in make_violations("I22", message, rows)],
        *await audit.find("I22", "ended without a chain, or has one before its end", CHAINLESS),
        *await audit.find("I22", "belongs to no ended sample of the job", ORPHANS),
    ]


async def _find_broken(audit: AuditedJob) -> AsyncIterator[tuple[str, str]]:
    """Yield (problem, row) along the chain; an unfinished chain is not checked."""
    job = audit.job["id"]
    kept = (await audit.connection.execute(JOB, {"job": job})).scalar()
    if kept is None:
        return
    last, length = genesis(await provenance.load_job_record(audit.connection, job)), 0
    after = provenance.START
    while batch := await provenance.load_sample_records(audit.connection, job, after, RECORDS_AT_ONCE):
        ids = [sample for sample, _ in batch]
        links = {row.sample_id: row for row in await audit.connection.execute(LINKS, {"samples": ids})}
        for sample, record in batch:
            row, link = f"samples {sample}", links.get(sample)
            if link is None:
                yield "has ended and has no record", row
                continue
            is_complete = record.outcome is not None and all(call.reply is not None for call in record.calls)
            hash_ = hashlib.sha256(link.previous + canonical.encode(record)).digest()
            problems = {
                "its record lacks an outcome or a reply": record.state == "completed" and not is_complete,
                "its record differs from its rows": hash_ != link.hash,
                "its link does not follow the one before": link.previous != last or link.seq != length,
            }
            for message in filter(problems.get, problems):
                yield message, row
            last, length = link.hash, length + 1
        after = (batch[-1][1].index, batch[-1][1].repeat)
    if last != kept:
        yield "its chain does not end where the job says", f"jobs {job}"


# I22: an archived job's samples are in its parts, up to the last one.

NOT_ARCHIVED = text("""
    SELECT 'samples ' || s.id FROM samples s
    WHERE s.job_id = :job AND s.id <= (SELECT max(last_sample) FROM archived_parts WHERE job_id = :job) AND 1 <> (
        SELECT count(*) FROM archived_parts p
        WHERE p.job_id = :job AND s.id BETWEEN p.first_sample AND p.last_sample) ORDER BY s.id""")


async def check_archive(audit: AuditedJob) -> list[Violation]:
    """I22: archived rows have the hash that was stored with them, and each sample of an archived job is in one part."""
    return [
        *make_violations("I22", "does not match its hash or cannot be read", audit.damaged),
        *await audit.find("I22", "is in no part of its job's archive, or in several", NOT_ARCHIVED),
    ]


# I22: what keeps rows from being changed is in place: rights, triggers, functions, rules, policies, settings.
#
# One statement says all of it in lines of text, and `protection.txt` holds the lines that a migrated database gives:
# the migrations are the only source, and a test compares both. Every additional or missing line is a finding.

EXPECTED = Path(__file__).with_name("protection.txt")
# Rights are effective rights: granted directly, through a membership or to PUBLIC. All roles count except
# superusers and the owner, who can do everything anyway.
LINES = text("""
    WITH ours AS (
        SELECT c.* FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind <> 'i'),
    owner AS (SELECT relowner AS oid FROM ours WHERE relname = 'alembic_version'),
    roles AS (
        SELECT r.oid, r.rolname FROM pg_roles r, owner o
        WHERE NOT r.rolsuper AND r.oid <> o.oid AND r.rolname NOT LIKE 'pg\\_%'),
    application AS (SELECT oid FROM pg_roles WHERE rolname = 'mathrag_app'),
    writable AS (
        SELECT c.*, p.verb FROM ours c, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) p(verb)
        WHERE c.relkind <> 'S')
    SELECT format('%s %s%s', CASE relkind WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view'
            ELSE 'relation of kind ' || CAST(relkind AS text) END, relname,
            CASE WHEN relrowsecurity THEN ' with row security' ELSE '' END) AS line FROM ours
    UNION SELECT format('%s belongs to %s', relname, relowner::regrole) FROM ours, owner WHERE relowner <> owner.oid
    UNION SELECT format('right %s on %s', w.verb, w.relname) FROM writable w, roles r
        WHERE has_table_privilege(r.oid, w.oid, w.verb)
    UNION SELECT format('right UPDATE on %s(%s)', w.relname, a.attname) FROM writable w, roles r, pg_attribute a
        WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped AND w.verb = 'UPDATE'
            AND has_column_privilege(r.oid, w.oid, a.attnum, 'UPDATE')
            AND NOT has_table_privilege(r.oid, w.oid, 'UPDATE')
    UNION SELECT format('right UPDATE on sequence %s', c.relname) FROM ours c, roles r
        WHERE c.relkind = 'S' AND has_sequence_privilege(r.oid, c.oid, 'UPDATE')
    UNION SELECT format('right CREATE in schema %s', n.nspname) FROM pg_namespace n, roles r
        WHERE n.nspname = 'public' AND has_schema_privilege(r.oid, n.oid, 'CREATE')
    UNION SELECT format('right SET on parameter %s', p) FROM roles r, unnest(ARRAY['session_replication_role']) p
        WHERE has_parameter_privilege(r.oid, p, 'SET')
    UNION SELECT format('default rights in %s: %s', d.defaclnamespace, d.defaclacl) FROM pg_default_acl d
    UNION SELECT format('mathrag_app acts as %s', m.roleid::regrole) FROM pg_auth_members m, application a
        WHERE m.member = a.oid
    UNION SELECT format('mathrag_app may bypass what is refused') FROM pg_roles
        WHERE rolname = 'mathrag_app' AND (rolsuper OR rolcreaterole OR rolbypassrls OR rolreplication)
    UNION SELECT format('trigger on %s (%s): %s', c.relname, t.tgenabled, pg_get_triggerdef(t.oid))
        FROM pg_trigger t JOIN ours c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal
    UNION SELECT format('foreign key trigger on %s is off', c.relname)
        FROM pg_trigger t JOIN ours c ON c.oid = t.tgrelid WHERE t.tgisinternal AND t.tgenabled <> 'O'
    UNION SELECT format('function %s: %s', p.oid::regprocedure, encode(sha256(convert_to(
            concat_ws(E'\\n', p.prosrc, p.prosecdef, p.proconfig, p.provolatile, l.lanname), 'UTF8')), 'hex'))
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'public'::regnamespace
    UNION SELECT format('function %s belongs to %s', p.proname, p.proowner::regrole) FROM pg_proc p, owner
        WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> owner.oid
    UNION SELECT format('unique index %s', pg_get_indexdef(i.indexrelid)) FROM pg_index i JOIN ours c
        ON c.oid = i.indrelid WHERE i.indisunique AND i.indisvalid
    UNION SELECT format('rule %s on %s', r.rulename, c.relname) FROM pg_rewrite r JOIN ours c ON c.oid = r.ev_class
    UNION SELECT format('policy %s on %s: %s; new rows: %s', p.polname, c.relname, pg_get_expr(p.polqual, p.polrelid),
            regexp_replace(pg_get_expr(p.polwithcheck, p.polrelid), '\\s+', ' ', 'g'))
        FROM pg_policy p JOIN ours c ON c.oid = p.polrelid
    UNION SELECT format('event trigger %s', evtname) FROM pg_event_trigger
    UNION SELECT format('%s in schema %s stands before ours', o.relname, o.relnamespace::regnamespace)
        FROM pg_class o JOIN ours c USING (relname)
        WHERE o.relnamespace <> c.relnamespace AND o.relnamespace::regnamespace::text NOT LIKE 'pg\\_%'
    UNION SELECT format('setting of %s: %s', COALESCE(s.setrole::regrole::text, ''), v.value)
        FROM pg_db_role_setting s, unnest(s.setconfig) v(value)
        WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
            AND split_part(v.value, '=', 1) IN ('session_replication_role', 'search_path', 'row_security')
    UNION SELECT format('session_replication_role is %s', v)
        FROM current_setting('session_replication_role') v WHERE v <> 'origin'""")


async def read_protection(connection: AsyncConnection) -> frozenset[str]:
    """Read the lines that describe the protection of this database."""
    return frozenset((await connection.execute(LINES)).scalars())


@cache
def read_expected() -> frozenset[str]:
    """Return the lines of a database that only the migrations have changed."""
    return frozenset(EXPECTED.read_text().splitlines())


async def check_protection(audit: AuditedJob) -> list[Violation]:
    """I22: rights, triggers and functions are those that the migrations made."""
    found = await read_protection(audit.connection)
    return [
        *make_violations("I22", "is missing from the schema", sorted(read_expected() - found)),
        *make_violations("I22", "was not made by the migrations", sorted(found - read_expected())),
    ]


# I12, I13, I17: all promised samples exist, each sample ends once, and after the end nothing happens.

REQUIRED_SAMPLES = fill_names("""
    SELECT i.ordinal, r FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
        AND i.ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), i.ordinal + 1)
    CROSS JOIN generate_series(0, j.repeats - 1) r WHERE j.id = :job AND j.running_at IS NOT NULL
        AND ({GIVEN_FOR_ITEM})""")
SAMPLES_MISSING = text(f"""
    WITH owed(ordinal, repeat) AS ({REQUIRED_SAMPLES})
    SELECT format('items %s repeat %s', o.ordinal, o.repeat) FROM owed o
    LEFT JOIN samples s ON s.job_id = :job AND s.kind = 'item' AND s.ordinal = o.ordinal AND s.repeat = o.repeat
    WHERE s.id IS NULL ORDER BY o.repeat, o.ordinal""")  # noqa: S608 - constants
NOT_ASKED_FOR = text(f"""
    WITH owed(ordinal, repeat) AS ({REQUIRED_SAMPLES})
    SELECT 'samples ' || s.id FROM samples s LEFT JOIN owed o ON o.ordinal = s.ordinal AND o.repeat = s.repeat
    WHERE s.job_id = :job AND s.kind = 'item' AND o.ordinal IS NULL ORDER BY s.id""")  # noqa: S608 - constants
MISCOUNTED = text("""
    SELECT 'jobs ' || j.id FROM jobs j WHERE j.id = :job AND (
        j.total <> CASE
            WHEN j.pipeline IN ('imported', 'measured') THEN (SELECT count(*) FROM given g WHERE g.job = j.public_id)
            ELSE j.repeats * (SELECT LEAST(count(*), CAST(j.code ->> 'limit' AS integer))
                FROM items i WHERE i.dataset_id = j.dataset_id) END
        OR (j.state IN ('running', 'finalizing', 'completed')) AND j.running_at IS NULL)""")
UNPREPARED = text("""
    SELECT 'jobs ' || j.id FROM jobs j WHERE j.id = :job
    AND (SELECT count(*) FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare') <> :prepares""")
UNANSWERED = sql("""
    SELECT format('steps %s/%s/%s', t.sample_id, t.position, t.slot) FROM samples s JOIN steps t ON t.sample_id = s.id
    WHERE s.job_id = :job AND s.state = {COMPLETED}
        AND 1 <> (SELECT count(*) FROM attempts a WHERE {ACCEPTED_FOR} t.call_id)
    ORDER BY t.sample_id, t.position, t.slot""")
GAPS = sql("""
    WITH slots AS (
        SELECT s.id, s.position AS yields, t.position, count(t.slot) AS slots, max(t.slot) AS last
        FROM samples s LEFT JOIN steps t ON t.sample_id = s.id
        WHERE s.job_id = :job AND s.state = {COMPLETED} GROUP BY 1, 2, 3)
    SELECT 'samples ' || id FROM slots GROUP BY id, yields
    HAVING count(position) <> yields OR COALESCE(max(position), -1) <> yields - 1 OR bool_or(slots <> last + 1)
    ORDER BY id""")
WRONG_SUM = sql("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE s.state IN {DONE}) AS done,
            count(*) FILTER (WHERE s.state = {CANCELLED}) AS cancelled
        FROM samples s WHERE s.job_id = j.id AND s.kind = 'item') n
    WHERE j.id = :job AND j.state IN {TERMINAL} AND j.running_at IS NOT NULL
        AND (n.done + n.cancelled <> j.total OR (j.state = 'completed' AND n.cancelled > 0))""")
LIVE = sql("""
    SELECT 'samples ' || s.id FROM jobs j JOIN samples s ON s.job_id = j.id
    WHERE j.id = :job AND j.state IN {TERMINAL} AND s.state IN {LIVE} ORDER BY s.id""")
OUTCOMES = sql("""
    SELECT 'samples ' || s.id FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND (s.state = {COMPLETED}) <> (o.sample_id IS NOT NULL) ORDER BY s.id""")
# By the database's clock alone: a reply is stored after its call has ended, so all of them are older than the end.
CALLED_AFTER = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM jobs j CROSS JOIN mine JOIN attempts a ON a.call_id = mine.call_id
    WHERE j.id = :job AND j.state = 'cancelled' AND a.created_at > j.ended_at AND NOT EXISTS (
        SELECT 1 FROM steps t JOIN samples s ON s.id = t.sample_id AND s.job_id <> j.id WHERE t.call_id = a.call_id)
    ORDER BY a.id""")
UNDATED = sql("""
    SELECT 'jobs ' || j.id FROM jobs j
    WHERE j.id = :job AND (j.state IN {TERMINAL}) <> (j.ended_at IS NOT NULL)""")
UNDATED_SAMPLES = sql("""
    SELECT 'samples ' || s.id FROM samples s
    WHERE s.job_id = :job AND (s.state IN {ENDED}) <> (s.ended_at IS NOT NULL) ORDER BY s.id""")
CHANGED_AFTER = text("""
    SELECT 'samples ' || s.id FROM jobs j JOIN samples s ON s.job_id = j.id
    WHERE j.id = :job AND s.ended_at > j.ended_at ORDER BY s.id""")


async def check_expansion(audit: AuditedJob) -> list[Violation]:
    """I12: a job that was accepted has its preparation, and once it runs, a sample for every item and repeat."""
    prepares = int(
        audit.job["pipeline"] in registry.names() and registry.get(audit.job["pipeline"]).prepare is not None
    )
    return [
        *await audit.find("I12", "has no sample", SAMPLES_MISSING),
        *await audit.find("I12", "the job has no such item or repeat", NOT_ASKED_FOR),
        *await audit.find("I12", "`total` is not items times repeats, or it runs without its samples", MISCOUNTED),
        *await audit.find("I12", f"does not have its {prepares} preparation(s)", UNPREPARED, prepares=prepares),
    ]


async def check_endings(audit: AuditedJob) -> list[Violation]:
    """I13: a completed sample has one accepted reply a step and one outcome, and an ended job's samples sum up."""
    return [
        *await audit.find("I13", "a completed sample's step has not exactly one accepted reply", UNANSWERED),
        *await audit.find("I13", "completed with a step missing or too many", GAPS),
        *await audit.find("I13", "completed + failed + cancelled is not its total", WRONG_SUM),
        *await audit.find("I13", "live in a job that has ended", LIVE),
        *await audit.find("I13", "completed without an outcome, or not completed with one", OUTCOMES),
    ]


async def check_quiet_after_end(audit: AuditedJob) -> list[Violation]:
    """I17: an end has its time; after it no sample changes and no call is made that a cancelled job alone wanted."""
    return [
        *await audit.find("I17", "made for the cancelled job alone after its end", CALLED_AFTER),
        *await audit.find("I17", "ended without a time, or a time without an end", UNDATED),
        *await audit.find("I17", "ended without a time, or a time without an end", UNDATED_SAMPLES),
        *await audit.find("I17", "ended after its job had", CHANGED_AFTER),
    ]


# I1, I2, I8, I9, I10: one set of models at a time, within the budget; calls inside their epoch; few loads, caused.

PLANNED = ("first", "drained")
"""Causes of residencies in a run without faults."""
# In the order of their opening, intervals overlap if and only if neighbours do.
NEIGHBOURS = """
    devices AS MATERIALIZED (SELECT DISTINCT a.device FROM mine JOIN attempts a ON a.call_id = mine.call_id),
    opened AS (
        SELECT r.epoch, r.opened_at, r.closed_at, lag(r.epoch) OVER w AS before,
            COALESCE(lag(r.closed_at) OVER w, 'infinity') AS before_closed
        FROM residencies r WHERE r.opened_at IS NOT NULL AND r.device IN (SELECT device FROM devices)
        WINDOW w AS (PARTITION BY r.device ORDER BY r.opened_at, r.epoch))"""
OVERLAPPING = select_over_job_calls(
    """
    SELECT DISTINCT 'residencies ' || e FROM opened o, unnest(ARRAY[o.before, o.epoch]) e
    WHERE o.before IS NOT NULL AND o.before_closed > o.opened_at ORDER BY 1""",
    NEIGHBOURS,
)
SHRINKING = select_over_job_calls(
    "SELECT 'residencies ' || o.epoch FROM opened o WHERE o.before > o.epoch ORDER BY o.epoch", NEIGHBOURS
)
RESIDENCIES_BACKWARDS = select_over_job_calls(
    "SELECT 'residencies ' || o.epoch FROM opened o WHERE o.closed_at < o.opened_at ORDER BY o.epoch", NEIGHBOURS
)
OUTSIDE = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM mine JOIN attempts a ON a.call_id = mine.call_id JOIN calls c ON c.id = a.call_id
    LEFT JOIN residencies r ON r.epoch = a.epoch
    WHERE a.epoch IS NOT NULL AND NOT COALESCE(
        r.device = a.device AND c.model_id = ANY(r.models) AND r.opened_at <= a.started_at
        AND a.started_at <= a.ended_at AND a.ended_at <= COALESCE(r.closed_at, 'infinity'), false)
    ORDER BY a.id""")
NEEDLESS = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM mine JOIN attempts a ON a.call_id = mine.call_id JOIN calls c ON c.id = a.call_id
    JOIN models m ON m.id = c.model_id WHERE a.epoch IS NOT NULL AND NOT m.needs_lease ORDER BY a.id""")
LOADS = text("""
    SELECT DISTINCT r.device, a.epoch, c.model_id FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
    JOIN calls c ON c.id = t.call_id JOIN attempts a ON a.call_id = c.id
    JOIN residencies r ON r.epoch = a.epoch AND c.model_id = ANY(r.models) WHERE s.job_id = :job
    ORDER BY r.device, a.epoch, c.model_id""")
SPANNED = text("""
    SELECT r.epoch, r.models, r.cause, r.opened_at FROM residencies r
    WHERE r.device = :device AND r.epoch BETWEEN :first AND :last ORDER BY r.epoch""")
# How the samples' sequences of the device's models look: few distinct rows, however many samples.
SEQUENCES = text("""
    WITH made AS MATERIALIZED (
        SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
        WHERE s.job_id = :job),
    visits AS (
        SELECT s.id, s.kind, t.position, c.model_id, bool_or(c.id IN (SELECT call_id FROM made)) AS made
        FROM samples s JOIN steps t ON t.sample_id = s.id
        JOIN calls c ON c.id = t.call_id
        JOIN models m ON m.id = c.model_id AND m.needs_lease AND (m.device = :device OR m.id = ANY(:loaded))
        WHERE s.job_id = :job GROUP BY s.id, t.position, c.model_id),
    changes AS (
        SELECT v.*, v.model_id <> lag(v.model_id) OVER (PARTITION BY v.id ORDER BY v.position, v.model_id) AS changed
        FROM visits v)
    SELECT DISTINCT kind = 'prepare' AS prepares, array_agg(DISTINCT model_id) AS models,
        (array_agg(model_id ORDER BY position, model_id))[1] AS first,
        (array_agg(model_id ORDER BY position) FILTER (WHERE made))[1] AS begins,
        (array_agg(model_id ORDER BY position DESC, model_id DESC))[1] AS last,
        count(*) FILTER (WHERE changed) AS alternations
    FROM changes GROUP BY id, kind""")
USED = """
    used AS (
        SELECT r.* FROM residencies r
        WHERE r.epoch IN (SELECT a.epoch FROM mine JOIN attempts a ON a.call_id = mine.call_id))"""
OVER_BUDGET = select_over_job_calls(
    """
    SELECT 'residencies ' || epoch FROM used
    WHERE CAST(measured -> 'peak_mib' AS float) > CAST(measured -> 'budget_mib' AS float) ORDER BY epoch""",
    USED,
)
CAUSELESS = select_over_job_calls(
    "SELECT 'residencies ' || epoch FROM used WHERE btrim(cause) = '' ORDER BY epoch", USED
)
UNEXPLAINED = select_over_job_calls(
    """
    SELECT 'residencies ' || u.epoch FROM used u
    WHERE u.state IN ('closed', 'quarantined') AND btrim(COALESCE(u.reason, '')) = '' AND NOT EXISTS (
        SELECT 1 FROM residencies n
        WHERE n.device = u.device AND n.previous_epoch = u.epoch AND n.cause = ANY(:decided))
    ORDER BY u.epoch""",
    USED,
)


async def check_no_overlap(audit: AuditedJob) -> list[Violation]:
    """I1: no two residencies of a device that the job used overlap in time, and epochs grow as they are opened."""
    return [
        *await audit.find("I1", "overlaps with another residency of its device", OVERLAPPING),
        *await audit.find("I1", "opened after a residency with a larger epoch", SHRINKING),
        *await audit.find("I1", "closed before it was opened", RESIDENCIES_BACKWARDS),
    ]


async def check_epochs_of_calls(audit: AuditedJob) -> list[Violation]:
    """I2: every stamped call ran while its epoch was open, on that device, by one of its models; no others have one."""
    return [
        *await audit.find("I2", "ran outside the open interval, device or models of its epoch", OUTSIDE),
        *await audit.find("I2", "has an epoch though its model needs no lease", NEEDLESS),
    ]


async def check_memory(audit: AuditedJob) -> list[Violation]:
    """I8: where the device's memory was measured, no residency that the job used ever held more than its budget."""
    return await audit.find("I8", "its models held more than the device's budget", OVER_BUDGET)


async def check_loads(audit: AuditedJob) -> list[Violation]:
    """I9: of two models of a device the job loads at most once more than any of its samples changes between them.

    Interruptions with a recorded cause, and residencies in between that only others used, come on top.
    """
    loads = (await audit.connection.execute(LOADS, {"job": audit.job["id"]})).all()
    return [
        violation
        for device, rows in groupby(loads, key=lambda row: str(row.device))
        for violation in await _check_device_loads(audit, device, list(rows))
    ]


async def _check_device_loads(
    audit: AuditedJob, device: str, loads: Sequence[Row[tuple[object, ...]]]
) -> list[Violation]:
    """Compare the loads of one device with its bound; models of other devices do not count."""
    used = sorted({row.epoch for row in loads})
    values = {"job": audit.job["id"], "device": device, "loaded": sorted({row.model_id for row in loads})}
    sequences = (await audit.connection.execute(SEQUENCES, values)).all()
    if len({model for row in sequences for model in row.models}) > 2:
        return []
    spanned = {"device": device, "first": used[0], "last": used[-1]}
    # Count the loads without faults: one more than the model changes of the sample that has most.
    # The changes of the preparation are added, unless other jobs made all its calls. Without a preparation,
    # samples that begin with different models cost one more load, because some wait for the other model. A
    # sample whose first calls were made by another job begins with the first model that this job called.
    prepare = next((row for row in sequences if row.prepares and row.begins is not None), None)
    items = [row for row in sequences if not row.prepares]
    if prepare is None:
        most = max((int(row.alternations) for row in items), default=0)
        planned_loads = 1 + most + (len({row.begins for row in items} - {None}) > 1)
    else:
        after = [row.alternations + (row.first != prepare.last) for row in items]
        planned_loads = 1 + int(prepare.alternations) + max(after, default=0)
    bound = planned_loads + _count_excused_loads(
        (await audit.connection.execute(SPANNED, spanned)).all(), frozenset(used)
    )
    message = f"{len(loads)} model loads on {device}, at most {bound} are explained"
    return make_violations("I9", message, (f"residencies {epoch}" for epoch in used if len(loads) > bound))


def _count_excused_loads(residencies: Sequence[Row[tuple[object, ...]]], used: frozenset[int]) -> int:
    """Count the loads caused by interruptions and other jobs between the job's first and last residency."""
    excused = 0
    for before, row in pairwise(residencies):
        if row.epoch not in used:
            # An interruption that never opened is followed by its retry, and costs the way back all the same.
            turned = row.cause not in PLANNED and row.models != before.models
            excused += bool(row.models) and (row.opened_at is not None or turned)
        elif row.cause not in PLANNED:
            # Going on with the other model also costs the way back; models that are held together are loaded together.
            excused += max(len(row.models), 1 if row.models == before.models else 2)
    return excused


async def check_causes(audit: AuditedJob) -> list[Violation]:
    """I10: every residency that the job used has a cause, and one that ended otherwise than by a decision a reason."""
    return [
        *await audit.find("I10", "has no cause", CAUSELESS),
        *await audit.find("I10", "ended without a decision and without a reason", UNEXPLAINED, decided=list(DECIDED)),
    ]
