"""Files and batches of clients that speak OpenAI's API.

Revision ID: 0014
Revises: 0013
"""

from migrations.scripts import run

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# A file's chunks are written before the file, whose size is known at its end.
TABLES = """
CREATE TABLE files (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id uuid NOT NULL UNIQUE,
    name text NOT NULL,
    purpose text NOT NULL CHECK (purpose IN ('batch', 'batch_output')),
    bytes bigint NOT NULL CHECK (bytes > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX files_expiring ON files (expires_at);
CREATE TABLE file_chunks (
    file uuid NOT NULL REFERENCES files (public_id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    ordinal integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (file, ordinal)
);
CREATE TABLE batches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id uuid NOT NULL UNIQUE,
    input_file uuid NOT NULL,
    endpoint text NOT NULL,
    metadata jsonb,
    output_s integer,
    state text NOT NULL DEFAULT 'validating' CHECK (state IN (
        'validating', 'in_progress', 'finalizing', 'cancelling', 'completed', 'failed', 'expired', 'cancelled')),
    ends_as text NOT NULL DEFAULT 'completed' CHECK (ends_as IN ('completed', 'expired', 'cancelled')),
    model text,
    errors jsonb,
    total integer NOT NULL DEFAULT 0,
    completed integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    prompt_tokens bigint,
    completion_tokens bigint,
    output_file uuid,
    error_file uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    cancelling_at timestamptz,
    ended_at timestamptz
);
COMMENT ON COLUMN batches.input_file IS 'a file''s public id; the file may be deleted';
COMMENT ON COLUMN batches.output_s IS 'seconds that its files are kept; null: as long as any';
COMMENT ON COLUMN batches.ends_as IS 'the state that it ends in, unless its lines could not be used or all failed';
COMMENT ON COLUMN batches.model IS 'the name that all lines give; null: they give several';
CREATE INDEX batches_live ON batches (id) WHERE ended_at IS NULL;
CREATE TABLE batch_jobs (
    batch_id bigint NOT NULL REFERENCES batches ON DELETE CASCADE,
    number integer NOT NULL,
    job uuid NOT NULL UNIQUE,
    model text NOT NULL,
    corpus text,
    PRIMARY KEY (batch_id, number)
);
COMMENT ON TABLE batch_jobs IS 'the jobs that answer a batch: one for each model, or pipeline and how it samples';
COMMENT ON COLUMN batch_jobs.job IS 'its public id; the job may be purged once the batch has ended';
CREATE TABLE batch_lines (
    batch_id bigint NOT NULL REFERENCES batches ON DELETE CASCADE,
    line integer NOT NULL,
    custom_id text NOT NULL,
    job integer NOT NULL,
    ordinal integer NOT NULL,
    PRIMARY KEY (batch_id, line)
);
COMMENT ON COLUMN batch_lines.job IS 'number of the batch''s job that answers it';
COMMENT ON COLUMN batch_lines.ordinal IS 'of its item in that job''s dataset';
"""

PROTECTION = """
CREATE TRIGGER final BEFORE UPDATE ON batches FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL)
    EXECUTE FUNCTION refuse_rewrite();
GRANT SELECT, INSERT, DELETE ON files, file_chunks TO mathrag_app;
GRANT SELECT, INSERT ON batches, batch_jobs, batch_lines TO mathrag_app;
GRANT UPDATE (state, ends_as, model, errors, total, completed, failed, prompt_tokens, completion_tokens, output_file,
    error_file, in_progress_at, finalizing_at, cancelling_at, ended_at) ON batches TO mathrag_app;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO mathrag_app;
"""
DOWN = "DROP TABLE batch_lines, batch_jobs, batches, file_chunks, files;"


def upgrade() -> None:
    run(TABLES)
    run(PROTECTION)


def downgrade() -> None:
    run(DOWN)
