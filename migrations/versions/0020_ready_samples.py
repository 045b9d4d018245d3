"""Ready samples are found through their job alone.

Revision ID: 0020
Revises: 0019
"""

from migrations.scripts import run

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run("DROP INDEX samples_ready;")


def downgrade() -> None:
    run("CREATE INDEX samples_ready ON samples (id) WHERE state = 0;")
