"""What reports are made from cannot be rewritten: the application may change fewer columns, and ends are final.

Revision ID: 0006
Revises: 0005
"""

from migrations.scripts import run

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Functions that write name every table with its schema, and find nothing of the session's.
FUNCTIONS = """
CREATE FUNCTION refuse_rewrite() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_jsonb(NEW) - TG_ARGV::text[] = to_jsonb(OLD) - TG_ARGV::text[] THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'this row of % is final', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
COMMENT ON FUNCTION refuse_rewrite() IS 'a row that is final keeps every column but those that the trigger names';
CREATE FUNCTION keep_residency() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    later CONSTANT text[] := ARRAY['peak_mib', 'strangers_mib', 'astray'];
BEGIN
    IF NEW.measured - later @> OLD.measured - later AND NEW.servers @> OLD.servers
        AND (OLD.measured -> 'peak_mib' IS NULL
            OR CAST(NEW.measured ->> 'peak_mib' AS numeric) >= CAST(OLD.measured ->> 'peak_mib' AS numeric))
        AND (OLD.opened_at IS NULL OR NEW.opened_at = OLD.opened_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was measured of a residency stays' USING ERRCODE = 'restrict_violation';
END $$;
COMMENT ON FUNCTION keep_residency() IS 'while it is open more is measured of a residency, and its peak only grows';
CREATE FUNCTION keep_cell() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.job_id IS NULL THEN
        IF NOT EXISTS (SELECT FROM public.jobs WHERE id = OLD.job_id) THEN
            RETURN NEW;
        END IF;
    ELSIF NEW.job_id = OLD.job_id
        OR EXISTS (SELECT FROM public.jobs WHERE id = NEW.job_id AND requeued_from = OLD.job_id) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a cell''s job is followed by its own requeue alone' USING ERRCODE = 'restrict_violation';
END $$;
CREATE FUNCTION version_of(job jobs) RETURNS jsonb LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET bytea_output = 'hex' AS $$
    SELECT to_jsonb(job) - ARRAY['requeued_from', 'experiment_id']
$$;
COMMENT ON FUNCTION version_of(jobs) IS 'the row as its event keeps it, but for references that a purge empties';
"""

EVENTS = """
ALTER TABLE job_events ADD COLUMN job jsonb;
COMMENT ON COLUMN job_events.job IS 'the whole row in this version; null: written before versions were kept';
ALTER TABLE job_events DISABLE TRIGGER append_only;
UPDATE job_events e SET job = version_of(j) FROM jobs j WHERE j.id = e.job_id AND j.version = e.version;
ALTER TABLE job_events ENABLE TRIGGER append_only;
CREATE OR REPLACE FUNCTION note_job_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO public.job_events (job_id, version, state, reason, job)
        VALUES (NEW.id, NEW.version, NEW.state, NEW.reason, public.version_of(NEW));
    RETURN NULL;
END $$;
REVOKE INSERT ON job_events FROM mathrag_app;
"""

CONTENT = """
ALTER TABLE items ADD COLUMN alternatives integer;
COMMENT ON COLUMN items.alternatives IS 'further expected answers, counted in the dataset''s hash; null: not kept then';
ALTER TABLE corpora ADD COLUMN ids bytea;
COMMENT ON COLUMN corpora.ids IS 'SHA-256 over the external ids, one a line, in order';
UPDATE corpora c SET ids = (
    SELECT sha256(convert_to(string_agg(external_id, E'\\n' ORDER BY ordinal), 'UTF8'))
    FROM corpus_documents WHERE corpus_id = c.id);
"""

# To lock a row asks for the right to update a column of it, so `idempotency` keeps one.
RIGHTS = """
REVOKE UPDATE, DELETE ON models, indexes, corpora, corpus_documents, datasets, items, jobs, samples, residencies
    FROM mathrag_app;
REVOKE UPDATE ON idempotency, queue, footprints, devices FROM mathrag_app;
GRANT UPDATE (registered_at, device, footprint_mib, estimated, architecture, served) ON models TO mathrag_app;
GRANT UPDATE (path, file_hash, state) ON indexes TO mathrag_app;
GRANT UPDATE (hash, ids, documents, dense_index, sparse_index) ON corpora TO mathrag_app;
GRANT UPDATE (hash, items) ON datasets TO mathrag_app;
GRANT UPDATE (name, rank, metadata, state, prepared, reason, version, running_at, ended_at, chain) ON jobs
    TO mathrag_app;
GRANT UPDATE (state, position, failure, detail, ended_at) ON samples TO mathrag_app;
GRANT UPDATE (state, reason, servers, measured, opened_at, closed_at) ON residencies TO mathrag_app;
GRANT UPDATE (rank, token, claim_until, lapses, tries, not_before) ON queue TO mathrag_app;
GRANT UPDATE (least_mib, most_mib, loads, measured_at) ON footprints TO mathrag_app;
GRANT UPDATE (drained, reason, changed_at) ON devices TO mathrag_app;
GRANT UPDATE (created_at) ON idempotency TO mathrag_app;
"""

# A purge deletes as the owner; what it cannot do, either, is to change what stays.
TRIGGERS = """
CREATE TRIGGER final BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON corpus_documents FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON experiments FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON configurations FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON datasets FOR EACH ROW WHEN (OLD.hash <> '') EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON corpora FOR EACH ROW WHEN (OLD.hash <> '')
    EXECUTE FUNCTION refuse_rewrite('dense_index', 'sparse_index');
CREATE TRIGGER final BEFORE UPDATE ON models FOR EACH ROW
    EXECUTE FUNCTION refuse_rewrite('registered_at', 'device', 'footprint_mib', 'estimated', 'architecture', 'served');
CREATE TRIGGER final BEFORE UPDATE ON samples FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL)
    EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON jobs FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL)
    EXECUTE FUNCTION refuse_rewrite('name', 'rank', 'metadata', 'version', 'requeued_from', 'experiment_id');
CREATE TRIGGER kept BEFORE UPDATE ON residencies FOR EACH ROW WHEN (OLD.closed_at IS NULL)
    EXECUTE FUNCTION keep_residency();
CREATE TRIGGER final BEFORE UPDATE ON residencies FOR EACH ROW
    WHEN (OLD.closed_at IS NOT NULL AND (OLD.state <> 'quarantined' OR NEW.state <> 'closed'))
    EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER forgiven BEFORE UPDATE ON residencies FOR EACH ROW
    WHEN (OLD.closed_at IS NOT NULL AND OLD.state = 'quarantined' AND NEW.state = 'closed')
    EXECUTE FUNCTION refuse_rewrite('state');
CREATE TRIGGER kept BEFORE UPDATE ON experiment_cells FOR EACH ROW EXECUTE FUNCTION keep_cell();
CREATE TRIGGER final BEFORE UPDATE ON experiment_cells FOR EACH ROW EXECUTE FUNCTION refuse_rewrite('job_id');
"""

DOWN = """
DROP FUNCTION refuse_rewrite(), keep_residency(), keep_cell() CASCADE;
CREATE OR REPLACE FUNCTION note_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_events (job_id, version, state, reason) VALUES (NEW.id, NEW.version, NEW.state, NEW.reason);
    RETURN NULL;
END $$;
DROP FUNCTION version_of(jobs);
ALTER TABLE job_events DROP COLUMN job;
ALTER TABLE items DROP COLUMN alternatives;
ALTER TABLE corpora DROP COLUMN ids;
GRANT INSERT ON job_events TO mathrag_app;
GRANT UPDATE, DELETE ON models, indexes, corpora, corpus_documents, datasets, items, residencies TO mathrag_app;
GRANT UPDATE ON jobs, samples, idempotency, queue, footprints, devices TO mathrag_app;
"""


def upgrade() -> None:
    for part in (FUNCTIONS, EVENTS, CONTENT, RIGHTS, TRIGGERS):
        run(part)


def downgrade() -> None:
    run(DOWN)
