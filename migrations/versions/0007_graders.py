"""Graders: the one that a dataset declares, and what its items say of right answers beside the gold answer.

Revision ID: 0007
Revises: 0006
"""

from migrations.scripts import run

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE datasets ADD COLUMN grader text;
COMMENT ON COLUMN datasets.grader IS 'how its answers are graded unless a job says otherwise; null: as mathematics';
ALTER TABLE items ADD COLUMN expected jsonb;
COMMENT ON COLUMN items.expected IS 'further gold answers, choices and rubric; null: none of them';
"""
DOWN = """
ALTER TABLE items DROP COLUMN expected;
ALTER TABLE datasets DROP COLUMN grader;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
