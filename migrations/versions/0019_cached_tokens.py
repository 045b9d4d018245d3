"""Prompt tokens that a model server took from its cache.

Revision ID: 0019
Revises: 0018
"""

from migrations.scripts import run

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE attempts ADD COLUMN cached_tokens integer;
COMMENT ON COLUMN attempts.cached_tokens IS
    'prompt tokens that the model server took from its cache; null: the server does not report it';
"""


def upgrade() -> None:
    run(UPGRADE)


def downgrade() -> None:
    run("ALTER TABLE attempts DROP COLUMN cached_tokens;")
