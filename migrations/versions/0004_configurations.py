"""What can be changed while everything runs: each change is a row of its own, the newest one holds.

Revision ID: 0004
Revises: 0003
"""

from migrations.scripts import run

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# json and not jsonb: a text that a job may have as a parameter may hold what jsonb cannot.
UP = """
CREATE TABLE configurations (
    version integer PRIMARY KEY,
    document json NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE configurations IS 'what jobs and searches that name nothing else get; never updated, only followed';
GRANT SELECT, INSERT ON configurations TO mathrag_app;
"""

DOWN = """
DROP TABLE configurations;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
