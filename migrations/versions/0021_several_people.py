"""Placeholder."""

from migrations.scripts import run

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run("""
ALTER TABLE api_keys ADD COLUMN weight smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100);
ALTER TABLE api_keys ADD COLUMN project text;
""")


def downgrade() -> None:
    run("ALTER TABLE api_keys DROP COLUMN weight;")
    run("ALTER TABLE api_keys DROP COLUMN project;")
