"""What a service needs beyond the runtime: events, keys, idempotency, records, drained devices, an operator's log.

Revision ID: 0002
Revises: 0001
"""

from migrations.scripts import run

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JOBS = """
ALTER TABLE jobs DROP CONSTRAINT jobs_state_check;
ALTER TABLE jobs ADD CONSTRAINT jobs_state_check CHECK (
    state IN ('preparing', 'running', 'paused', 'finalizing', 'completed', 'failed', 'cancelling', 'cancelled'));
ALTER TABLE jobs ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
ALTER TABLE jobs ADD COLUMN online boolean NOT NULL DEFAULT false;
ALTER TABLE jobs ADD COLUMN code jsonb NOT NULL DEFAULT '{}';
ALTER TABLE jobs ADD COLUMN chain bytea;
ALTER TABLE jobs ADD COLUMN requeued_from bigint REFERENCES jobs ON DELETE SET NULL;
ALTER TABLE datasets ADD COLUMN online boolean NOT NULL DEFAULT false;
CREATE INDEX jobs_live ON jobs (id) WHERE ended_at IS NULL;
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
COMMENT ON COLUMN jobs.metadata IS 'what the submitter wants to find again: at most 16 pairs of strings';
COMMENT ON COLUMN jobs.online IS 'one question that somebody waits for; not in the list of jobs';
COMMENT ON COLUMN jobs.code IS 'commit, version, schema and configuration that accepted it, and the indexes then';
COMMENT ON COLUMN jobs.chain IS 'hash of its last record: covers every sample, in sample order';
CREATE TABLE job_events (
    job_id bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    version integer NOT NULL,
    state text NOT NULL,
    reason text,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, version)
);
COMMENT ON TABLE job_events IS 'every change of a job''s state, written by a trigger: none can be forgotten';
INSERT INTO job_events (job_id, version, state, reason, at)
    SELECT id, version, state, reason, COALESCE(ended_at, running_at, created_at) FROM jobs;
CREATE FUNCTION note_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_events (job_id, version, state, reason) VALUES (NEW.id, NEW.version, NEW.state, NEW.reason);
    RETURN NULL;
END $$;
CREATE TRIGGER note_event AFTER INSERT OR UPDATE OF version ON jobs FOR EACH ROW EXECUTE FUNCTION note_job_event();
"""

SERVICE = """
CREATE TABLE idempotency (
    key text NOT NULL,
    operation text NOT NULL,
    body_hash bytea NOT NULL,
    job_id bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (operation, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE TABLE api_keys (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    prefix text NOT NULL UNIQUE,
    hash bytea NOT NULL UNIQUE,
    scopes text[] NOT NULL CHECK (scopes <@ ARRAY['read', 'submit', 'operate']),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    used_at timestamptz
);
COMMENT ON COLUMN api_keys.prefix IS 'its first characters, to tell keys apart; the key is not stored';
CREATE INDEX api_keys_name ON api_keys (name);
CREATE TABLE devices (
    device text PRIMARY KEY,
    drained boolean NOT NULL DEFAULT false,
    reason text,
    changed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN devices.drained IS 'the operator wants it empty: no residency with models until it is released';
CREATE TABLE operations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE operations IS 'what operators did: purges, keys, drains';
CREATE TABLE records (
    sample_id bigint PRIMARY KEY REFERENCES samples,
    job_id bigint NOT NULL REFERENCES jobs,
    seq integer NOT NULL,
    hash bytea NOT NULL,
    previous bytea NOT NULL,
    UNIQUE (job_id, seq)
);
COMMENT ON TABLE records IS 'one link per ended sample, in sample order: hash over its provenance and the link before';
CREATE INDEX queue_suspects ON queue (lane, model_id) WHERE lapses > 0;
COMMENT ON INDEX queue_suspects IS 'every claim asks for suspects, which are few, among rows, which are many';
ALTER TABLE attempts ADD COLUMN trace_id text;
ALTER TABLE attempts ADD COLUMN prompt_ms real;
ALTER TABLE attempts ADD COLUMN completion_ms real;
CREATE INDEX attempts_created ON attempts (created_at);
CREATE INDEX corpus_documents_of_hash ON corpus_documents (hash);
CREATE INDEX samples_ended ON samples (ended_at) WHERE ended_at IS NOT NULL;
"""

APPEND_ONLY = """
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND TG_TABLE_NAME <> 'operations' AND current_setting('mathrag.purge', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
COMMENT ON FUNCTION refuse_change() IS 'a purge deletes as the owner, who says so; the application may not';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON records FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON job_events FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON operations FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT ON job_events, records, operations TO mathrag_app;
REVOKE DELETE ON jobs, samples FROM mathrag_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency TO mathrag_app;
GRANT SELECT, INSERT ON api_keys TO mathrag_app;
GRANT UPDATE (expires_at, revoked_at, used_at) ON api_keys TO mathrag_app;
GRANT SELECT, INSERT, UPDATE ON devices TO mathrag_app;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO mathrag_app;
"""

DOWN = """
GRANT DELETE ON jobs, samples TO mathrag_app;
DROP TABLE records, operations, devices, api_keys, idempotency;
DROP INDEX queue_suspects;
DROP TRIGGER note_event ON jobs;
DROP TABLE job_events;
DROP FUNCTION note_job_event();
ALTER TABLE attempts DROP COLUMN trace_id, DROP COLUMN prompt_ms, DROP COLUMN completion_ms;
ALTER TABLE datasets DROP COLUMN online;
DROP INDEX jobs_live, jobs_ended, samples_ended, attempts_created, corpus_documents_of_hash;
ALTER TABLE jobs DROP COLUMN metadata, DROP COLUMN online, DROP COLUMN code, DROP COLUMN chain,
    DROP COLUMN requeued_from;
UPDATE jobs SET state = CASE WHEN state = 'finalizing' OR running_at IS NOT NULL THEN 'running' ELSE 'preparing' END
    WHERE state IN ('paused', 'finalizing');
ALTER TABLE jobs DROP CONSTRAINT jobs_state_check;
ALTER TABLE jobs ADD CONSTRAINT jobs_state_check CHECK (
    state IN ('preparing', 'running', 'completed', 'failed', 'cancelling', 'cancelled'));
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
"""


def upgrade() -> None:
    for part in (JOBS, SERVICE, APPEND_ONLY):
        run(part)


def downgrade() -> None:
    run(DOWN)
