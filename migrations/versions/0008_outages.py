"""Outages: which models' servers are away since when, and since when a call is in the queue.

Revision ID: 0008
Revises: 0007
"""

from migrations.scripts import run

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE outages (
    model_id integer PRIMARY KEY REFERENCES models ON DELETE CASCADE,
    what text NOT NULL,
    said text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    tried_at timestamptz NOT NULL,
    next_try timestamptz NOT NULL
);
COMMENT ON TABLE outages IS 'models whose calls wait, because what they need is away for every call alike';
COMMENT ON COLUMN outages.tried_at IS 'the last try that found it away';
ALTER TABLE queue ADD COLUMN queued_at timestamptz DEFAULT now();
COMMENT ON COLUMN queue.queued_at IS 'a call waits for an outage from then on, or from the outage''s beginning';
GRANT SELECT, INSERT, DELETE ON outages TO mathrag_app;
GRANT UPDATE (what, said, tried_at, next_try) ON outages TO mathrag_app;
"""
DOWN = """
ALTER TABLE queue DROP COLUMN queued_at;
DROP TABLE outages;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
