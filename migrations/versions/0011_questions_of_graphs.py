"""Questions of graphs: what an item asks of a graph, and the words that a graph has for its relations.

Revision ID: 0011
Revises: 0010
"""

from migrations.scripts import run

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE items ADD COLUMN query jsonb;
COMMENT ON COLUMN items.query IS 'what the question asks of a graph, and which rules lead there; null: not said';
ALTER TABLE graphs ADD COLUMN phrases json;
ALTER TABLE graphs ADD COLUMN phrases_hash bytea;
COMMENT ON COLUMN graphs.phrases IS 'words by relation; null: relations are called by their names';
COMMENT ON COLUMN graphs.phrases_hash IS 'SHA-256 of the canonical phrases';
CREATE INDEX graphs_by_phrases ON graphs (phrases_hash) WHERE phrases_hash IS NOT NULL;
"""
DOWN = """
ALTER TABLE graphs DROP COLUMN phrases_hash;
ALTER TABLE graphs DROP COLUMN phrases;
ALTER TABLE items DROP COLUMN query;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
