"""The runtime's tables: what is asked, what is searched, durable calls, residencies.

Revision ID: 0001
Revises:
"""

from alembic import op

from migrations.scripts import run

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CONTENT = """
CREATE TABLE documents (
    hash bytea PRIMARY KEY,
    problem text NOT NULL,
    body text NOT NULL
);
CREATE TABLE models (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    backend text NOT NULL,
    digest text,
    version text NOT NULL DEFAULT '',
    options jsonb NOT NULL DEFAULT '{}',
    hash bytea NOT NULL UNIQUE,
    device text,
    needs_lease boolean NOT NULL,
    footprint_mib integer NOT NULL DEFAULT 0,
    registered_at timestamptz NOT NULL DEFAULT now(),
    served boolean NOT NULL DEFAULT true
);
COMMENT ON COLUMN models.hash IS 'of everything about the model that changes a reply: it goes into a call''s key';
COMMENT ON COLUMN models.served IS 'a guard (or the retriever, or the grader) answers for it now';
CREATE INDEX models_by_name ON models (name, registered_at);
CREATE TABLE indexes (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('dense', 'sparse')),
    signature bytea NOT NULL UNIQUE,
    model_id integer NOT NULL REFERENCES models,
    path text NOT NULL,
    file_hash bytea,
    params jsonb NOT NULL,
    documents integer NOT NULL,
    state text NOT NULL CHECK (state IN ('building', 'ready', 'failed')),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE corpora (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    hash bytea NOT NULL,
    documents integer NOT NULL,
    dense_index integer REFERENCES indexes,
    sparse_index integer REFERENCES indexes,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE corpus_documents (
    corpus_id integer NOT NULL REFERENCES corpora ON DELETE CASCADE,
    ordinal integer NOT NULL,
    external_id text NOT NULL,
    hash bytea NOT NULL REFERENCES documents,
    meta jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (corpus_id, ordinal),
    UNIQUE (corpus_id, external_id)
);
CREATE TABLE datasets (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    hash bytea NOT NULL,
    items integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE items (
    dataset_id integer NOT NULL REFERENCES datasets ON DELETE CASCADE,
    ordinal integer NOT NULL,
    hash bytea NOT NULL,
    question text NOT NULL,
    gold text,
    gold_documents jsonb,
    subject text,
    level text,
    custom_id text,
    PRIMARY KEY (dataset_id, ordinal)
);
"""

RUNTIME = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    name text NOT NULL,
    pipeline text NOT NULL,
    pipeline_hash bytea NOT NULL,
    params bytea NOT NULL,
    dataset_id integer NOT NULL REFERENCES datasets,
    corpus_id integer REFERENCES corpora,
    pins jsonb NOT NULL,
    repeats smallint NOT NULL CHECK (repeats > 0),
    reuse text NOT NULL CHECK (reuse IN ('all', 'none')),
    rank smallint NOT NULL DEFAULT 100,
    total integer NOT NULL,
    state text NOT NULL CHECK (state IN ('preparing', 'running', 'completed', 'failed', 'cancelling', 'cancelled')),
    prepared bytea,
    reason text,
    version integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    running_at timestamptz,
    ended_at timestamptz
) WITH (fillfactor = 70);
COMMENT ON COLUMN jobs.rank IS 'smaller is claimed sooner';
CREATE TABLE samples (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES jobs,
    kind text NOT NULL CHECK (kind IN ('item', 'prepare')),
    ordinal integer NOT NULL,
    repeat smallint NOT NULL,
    state smallint NOT NULL,
    position smallint NOT NULL DEFAULT 0,
    failure text,
    detail text,
    ended_at timestamptz,
    UNIQUE (job_id, kind, ordinal, repeat)
) WITH (fillfactor = 80);
COMMENT ON COLUMN samples.state IS '0 ready, 1 waiting, 2 completed, 3 failed, 4 cancelled';
COMMENT ON COLUMN samples.position IS 'yields recorded so far; a waiting sample waits for the steps at position - 1';
CREATE INDEX samples_ready ON samples (id) WHERE state = 0;
CREATE INDEX samples_of_job ON samples (job_id, state);
CREATE TABLE calls (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 100) PRIMARY KEY,
    key bytea NOT NULL,
    lane text NOT NULL,
    role text NOT NULL,
    model_id integer NOT NULL REFERENCES models,
    request bytea NOT NULL,
    failed boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN calls.request IS 'the canonical bytes that were hashed into the key';
CREATE UNIQUE INDEX calls_key ON calls (key) WHERE NOT failed;
CREATE TABLE queue (
    lane text NOT NULL,
    model_id integer NOT NULL,
    rank smallint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 100),
    call_id bigint NOT NULL UNIQUE REFERENCES calls,
    token uuid,
    claim_until timestamptz,
    lapses smallint NOT NULL DEFAULT 0,
    tries smallint NOT NULL DEFAULT 0,
    not_before timestamptz,
    PRIMARY KEY (lane, model_id, rank, seq)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE queue IS 'calls that are pending (no token) or claimed; narrow, and no index on what a claim changes';
CREATE TABLE steps (
    sample_id bigint NOT NULL REFERENCES samples,
    position smallint NOT NULL,
    slot smallint NOT NULL,
    call_id bigint NOT NULL REFERENCES calls,
    created boolean NOT NULL,
    PRIMARY KEY (sample_id, position, slot)
);
COMMENT ON COLUMN steps.created IS 'this step put the call into the queue; false: it reuses another step''s call';
CREATE INDEX steps_of_call ON steps (call_id);
CREATE TABLE attempts (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 100) PRIMARY KEY,
    call_id bigint NOT NULL REFERENCES calls,
    accepted boolean NOT NULL,
    outcome text NOT NULL,
    reply bytea NOT NULL,
    token uuid,
    worker text,
    device text,
    epoch bigint,
    started_at timestamptz,
    ended_at timestamptz,
    concurrency smallint,
    prompt_hash bytea,
    prompt_tokens integer,
    completion_tokens integer,
    finish_reason text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN attempts.accepted IS 'the call''s one terminal row; others are lapses and infrastructure failures';
CREATE UNIQUE INDEX attempts_accepted ON attempts (call_id) WHERE accepted;
CREATE INDEX attempts_rejected ON attempts (call_id) WHERE NOT accepted;
CREATE TABLE outcomes (
    sample_id bigint PRIMARY KEY REFERENCES samples,
    outcome bytea NOT NULL,
    answer text,
    extraction text,
    correct boolean,
    strict boolean,
    record_hash bytea NOT NULL
);
CREATE SEQUENCE gpu_epoch;
CREATE TABLE residencies (
    epoch bigint PRIMARY KEY DEFAULT nextval('gpu_epoch'),
    device text NOT NULL,
    previous_epoch bigint NOT NULL,
    models integer[] NOT NULL,
    cause text NOT NULL,
    state text NOT NULL CHECK (state IN ('wanted', 'draining', 'unloading', 'loading', 'open', 'closed',
                                         'quarantined')),
    reason text,
    servers jsonb NOT NULL DEFAULT '[]',
    measured jsonb NOT NULL DEFAULT '{}',
    wanted_at timestamptz NOT NULL DEFAULT now(),
    opened_at timestamptz,
    closed_at timestamptz,
    UNIQUE (device, previous_epoch)
);
COMMENT ON COLUMN residencies.servers IS 'one entry per model server process that was started: model, pid, seconds';
"""

APPEND_ONLY = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON attempts FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON steps FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outcomes FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON documents FOR EACH ROW EXECUTE FUNCTION refuse_change();
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'mathrag_app') THEN CREATE ROLE mathrag_app NOLOGIN; END IF;
END $$;
GRANT USAGE ON SCHEMA public TO mathrag_app;
GRANT SELECT, INSERT ON documents, calls, steps, attempts, outcomes TO mathrag_app;
GRANT UPDATE (failed) ON calls TO mathrag_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON models, indexes, corpora, corpus_documents, datasets, items, jobs, samples,
    queue, residencies TO mathrag_app;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO mathrag_app;
GRANT SELECT ON alembic_version TO mathrag_app;
"""


def upgrade() -> None:
    for part in (CONTENT, RUNTIME, APPEND_ONLY):
        run(part)


def downgrade() -> None:
    tables = (
        "residencies, outcomes, attempts, steps, queue, calls, samples, jobs, items, datasets, "
        "corpus_documents, corpora, indexes, models, documents"
    )
    for statement in (f"DROP TABLE {tables} CASCADE", "DROP SEQUENCE gpu_epoch", "DROP FUNCTION refuse_change"):
        op.get_bind().exec_driver_sql(statement)
