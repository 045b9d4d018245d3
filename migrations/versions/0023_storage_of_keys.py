"""Uploads have a size and the key that sent them.

Revision ID: 0023
Revises: 0022
"""

from migrations.scripts import run

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

SIZE = """
ALTER TABLE {table} ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN {table}.bytes IS 'of its texts; 0 if an earlier release stored it';
"""
MADE_BY = """
ALTER TABLE {table} ADD COLUMN made_by text;
COMMENT ON COLUMN {table}.made_by IS 'name of the API key that sent it; null without one';
"""
SIZED = ("corpora", "datasets", "graphs")
MADE = (*SIZED, "files")
# The texts are counted while they are stored, after the row that they refer to.
GRANT = """
GRANT UPDATE (bytes) ON corpora TO mathrag_app;
GRANT UPDATE (bytes) ON datasets TO mathrag_app;
"""


def upgrade() -> None:
    for table in SIZED:
        run(SIZE.format(table=table))
    for table in MADE:
        run(MADE_BY.format(table=table))
    run(GRANT)


def downgrade() -> None:
    for table in MADE:
        run(f"ALTER TABLE {table} DROP COLUMN made_by;")
    for table in SIZED:
        run(f"ALTER TABLE {table} DROP COLUMN bytes;")
