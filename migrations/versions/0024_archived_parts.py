"""Archived jobs: their steps, calls and attempts as Parquet.

Revision ID: 0024
Revises: 0023
"""

from migrations.scripts import run

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# zstd has compressed the content already. Only the owner archives.
TABLE = """
CREATE TABLE archived_parts (
    job_id bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    first_sample bigint NOT NULL,
    last_sample bigint NOT NULL,
    steps bytea NOT NULL,
    calls bytea NOT NULL,
    attempts bytea NOT NULL,
    sha256 bytea NOT NULL,
    stages jsonb,
    archived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, first_sample)
);
ALTER TABLE archived_parts ALTER steps SET STORAGE EXTERNAL, ALTER calls SET STORAGE EXTERNAL,
    ALTER attempts SET STORAGE EXTERNAL;
COMMENT ON TABLE archived_parts IS 'rows of an archived job, each part those of the samples from the first to the last';
COMMENT ON COLUMN archived_parts.steps IS 'Parquet file; with steps of other samples that made or wait for these calls';
COMMENT ON COLUMN archived_parts.calls IS 'Parquet file';
COMMENT ON COLUMN archived_parts.attempts IS 'Parquet file';
COMMENT ON COLUMN archived_parts.stages IS
    'in the first part: how many calls of each role the job has, and how many of them are done';
COMMENT ON COLUMN archived_parts.sha256 IS 'over job_id, first_sample and last_sample in words, and the three files';
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON archived_parts
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT ON archived_parts TO mathrag_app;
"""
# Readers of an archived job put its rows into temporary tables. By default everybody may make these.
TEMPORARY = """
DO $$ BEGIN
    IF NOT has_database_privilege('mathrag_app', current_database(), 'TEMPORARY') THEN
        EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO mathrag_app', current_database());
    END IF;
END $$;
"""


def upgrade() -> None:
    run(TABLE)
    run(TEMPORARY)


def downgrade() -> None:
    run("""
DO $$ BEGIN
    IF EXISTS (SELECT FROM archived_parts) THEN RAISE EXCEPTION 'purge the archived jobs first'; END IF;
END $$;
DROP TABLE archived_parts;
""")
