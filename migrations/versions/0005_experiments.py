"""Experiments: what was asked of a grid, and which job answers which of its cells.

Revision ID: 0005
Revises: 0004
"""

from migrations.scripts import run

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# A job that is purged leaves its cells: they say what was asked. json and not jsonb, as for configurations.
UP = """
CREATE TABLE experiments (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    name text NOT NULL UNIQUE,
    document json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN experiments.document IS 'as it was asked for: datasets, variants, grid, seeds';
ALTER TABLE jobs ADD COLUMN experiment_id integer REFERENCES experiments ON DELETE SET NULL;
COMMENT ON COLUMN jobs.experiment_id IS 'the experiment that it was made for, also where a later job took its place';
CREATE INDEX jobs_of_experiment ON jobs (experiment_id) WHERE experiment_id IS NOT NULL;
CREATE TABLE experiment_cells (
    experiment_id integer NOT NULL REFERENCES experiments ON DELETE CASCADE,
    ordinal integer NOT NULL,
    dataset text NOT NULL,
    corpus text,
    variant text NOT NULL,
    pipeline text NOT NULL,
    point json NOT NULL,
    seed bigint NOT NULL,
    job_id bigint REFERENCES jobs ON DELETE SET NULL,
    refused text,
    PRIMARY KEY (experiment_id, ordinal)
);
COMMENT ON COLUMN experiment_cells.point IS 'values of the grid by parameter path';
COMMENT ON COLUMN experiment_cells.job_id IS 'cells that ask the same share one; null: none was made, or it was purged';
COMMENT ON COLUMN experiment_cells.refused IS 'why no job was made';
CREATE INDEX experiment_cells_of_job ON experiment_cells (job_id);
GRANT SELECT, INSERT ON experiments TO mathrag_app;
GRANT SELECT, INSERT ON experiment_cells TO mathrag_app;
GRANT UPDATE (job_id) ON experiment_cells TO mathrag_app;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO mathrag_app;
"""

DOWN = """
DROP TABLE experiment_cells;
ALTER TABLE jobs DROP COLUMN experiment_id;
DROP TABLE experiments;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
