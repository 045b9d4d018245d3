"""Thumbs and notes that people give to samples.

Revision ID: 0017
Revises: 0016
"""

from migrations.scripts import run

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# Remarks of people for people: no result depends on them, so they may be changed and taken back.
UP = """
CREATE TABLE sample_notes (
    sample_id bigint NOT NULL REFERENCES samples ON DELETE CASCADE,
    author text NOT NULL,
    thumb boolean,
    note text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (sample_id, author),
    CHECK (thumb IS NOT NULL OR note <> '')
);
COMMENT ON COLUMN sample_notes.author IS 'name of the API key, or local';
COMMENT ON COLUMN sample_notes.thumb IS 'true: up, false: down';
GRANT SELECT, INSERT, UPDATE, DELETE ON sample_notes TO mathrag_app;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run("DROP TABLE sample_notes;")
