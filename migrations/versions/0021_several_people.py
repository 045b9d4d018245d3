"""API keys have a weight and a project.

Revision ID: 0021
Revises: 0020
"""

from migrations.scripts import run

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

# A turn is counted in 5,040 parts of a sample, and has 47 bits below the rank (`PLACE` in shared/storage/database.py).
UP = """
UPDATE queue SET place = ((place >> 40) << 47) + (place & ((CAST(1 AS bigint) << 40) - 1)) * 5040;
ALTER TABLE api_keys ADD COLUMN weight smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100),
    ADD COLUMN project text;
COMMENT ON COLUMN api_keys.weight IS 'its share of the samples that are served, relative to other keys';
COMMENT ON COLUMN api_keys.project IS 'null: no project';
GRANT UPDATE (weight, project) ON api_keys TO mathrag_app;
"""
DOWN = """
UPDATE queue SET place = ((place >> 47) << 40) + (place & ((CAST(1 AS bigint) << 47) - 1)) / 5040;
ALTER TABLE api_keys DROP COLUMN weight, DROP COLUMN project;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
