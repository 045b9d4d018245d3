"""Label sets of what the judge model labelled for metrics.

Revision ID: 0018
Revises: 0017
"""

from migrations.scripts import run

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KINDS = """
ALTER TABLE label_sets DROP CONSTRAINT label_sets_what_check,
    ADD CONSTRAINT label_sets_what_check CHECK (what IN ({kinds}));
"""
BEFORE = "'documents', 'relevance', 'answers'"


def upgrade() -> None:
    run(KINDS.format(kinds=f"{BEFORE}, 'support', 'sufficient', 'addresses'"))


def downgrade() -> None:
    run(KINDS.format(kinds=BEFORE))
