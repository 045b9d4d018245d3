"""Graphs: facts under a name, as compressed blocks of arrays and names that are written once.

Revision ID: 0009
Revises: 0008
"""

from migrations.scripts import run

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE graphs (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    hash bytea NOT NULL,
    facts integer NOT NULL,
    entities integer NOT NULL,
    relations integer NOT NULL,
    time_unit text CHECK (time_unit IN ('day', 'step')),
    first_time bigint,
    last_time bigint,
    largest jsonb NOT NULL,
    corpus_id integer NOT NULL REFERENCES corpora,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((time_unit IS NULL) = (first_time IS NULL) AND (time_unit IS NULL) = (last_time IS NULL))
);
COMMENT ON COLUMN graphs.hash IS 'SHA-256 over the facts in order, each a line of names and time between tabs';
COMMENT ON COLUMN graphs.time_unit IS 'whether times are dates or plain steps; null: facts have none';
COMMENT ON COLUMN graphs.largest IS 'the relations with most facts: name and number';
COMMENT ON COLUMN graphs.corpus_id IS 'its facts as documents';
CREATE TABLE graph_blocks (
    graph_id integer NOT NULL REFERENCES graphs ON DELETE CASCADE,
    part text NOT NULL,
    ordinal integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (graph_id, part, ordinal)
);
COMMENT ON COLUMN graph_blocks.part IS 'triples (int32), times (int64): little-endian; entities, relations: lines';
COMMENT ON COLUMN graph_blocks.content IS 'compressed by zlib; what follows another block of its part goes on there';
"""

# Blocks go with their graph, as the foreign key's owner deletes them: the application needs no right for it.
PROTECTION = """
CREATE TRIGGER final BEFORE UPDATE ON graphs FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON graph_blocks FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
GRANT SELECT, INSERT, DELETE ON graphs TO mathrag_app;
GRANT SELECT, INSERT ON graph_blocks TO mathrag_app;
"""
DOWN = "DROP TABLE graph_blocks, graphs;"


def upgrade() -> None:
    run(TABLES)
    run(PROTECTION)


def downgrade() -> None:
    run(DOWN)
