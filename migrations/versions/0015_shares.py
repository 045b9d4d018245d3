"""Calls of several keys take turns, and batches have an owner.

Revision ID: 0015
Revises: 0014
"""

from migrations.scripts import run

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# `queue.rank` becomes the place: the rank, and below it the sample's turn (`PLACE` in shared/storage/database.py).
UP = """
CREATE INDEX jobs_of_key ON jobs ((code ->> 'submitted_by'), id) WHERE code ->> 'submitted_by' IS NOT NULL;
ALTER TABLE queue RENAME COLUMN rank TO place;
ALTER TABLE queue ALTER COLUMN place TYPE bigint USING CAST(place AS bigint) << 40;
COMMENT ON COLUMN queue.place IS 'smaller ones are claimed first: rank of the most urgent sample, then its turn';
ALTER TABLE batches ADD COLUMN submitted_by text;
COMMENT ON COLUMN batches.submitted_by IS 'name of the key; null: no key was asked for';
"""
DOWN = """
ALTER TABLE batches DROP COLUMN submitted_by;
ALTER TABLE queue ALTER COLUMN place TYPE smallint USING place >> 40;
ALTER TABLE queue RENAME COLUMN place TO rank;
DROP INDEX jobs_of_key;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
