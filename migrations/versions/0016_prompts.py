"""Prompts that users store, by name and version.

Revision ID: 0016
Revises: 0015
"""

from migrations.scripts import run

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# Calls name a prompt by its hash, so no version is ever deleted.
UP = """
CREATE TABLE prompts (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    version integer NOT NULL CHECK (version > 0),
    hash bytea NOT NULL,
    content bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (name, version)
);
COMMENT ON COLUMN prompts.hash IS 'SHA-256 of the content; an earlier content may come back as a new version';
COMMENT ON COLUMN prompts.content IS 'text, system prompt and examples as JSON';
CREATE INDEX prompts_of_hash ON prompts (hash);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON prompts FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT ON prompts TO mathrag_app;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run("DROP TABLE prompts;")
