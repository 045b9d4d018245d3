"""Labels: what people say of documents and answers, held against what the judge or the grader said.

Revision ID: 0012
Revises: 0011
"""

from migrations.scripts import run

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# A task holds what is labelled, so that it can be looked at when its job and its corpus are gone.
TABLES = """
CREATE TABLE label_sets (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    what text NOT NULL CHECK (what IN ('documents', 'relevance', 'answers')),
    job_id bigint REFERENCES jobs ON DELETE SET NULL,
    job uuid NOT NULL,
    job_name text NOT NULL,
    seed bigint NOT NULL,
    size integer NOT NULL,
    eligible integer NOT NULL,
    tasks integer NOT NULL CHECK (tasks > 0),
    hash bytea NOT NULL,
    made_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN label_sets.job_id IS 'that the tasks were drawn from; null: it was purged';
COMMENT ON COLUMN label_sets.size IS 'tasks that were asked for';
COMMENT ON COLUMN label_sets.eligible IS 'that could have been drawn';
COMMENT ON COLUMN label_sets.hash IS 'SHA-256 over every task in order';
CREATE INDEX label_sets_of_job ON label_sets (job_id) WHERE job_id IS NOT NULL;
CREATE TABLE label_tasks (
    set_id integer NOT NULL REFERENCES label_sets ON DELETE CASCADE,
    number integer NOT NULL CHECK (number > 0),
    item integer,
    repeat smallint NOT NULL,
    content bytea NOT NULL,
    system text NOT NULL,
    PRIMARY KEY (set_id, number)
);
COMMENT ON COLUMN label_tasks.item IS 'of the dataset; null: a document of the gate''s calibration';
COMMENT ON COLUMN label_tasks.content IS 'canonical bytes of what a labeller is shown';
COMMENT ON COLUMN label_tasks.system IS 'what the judge or the grader said; not shown to who labels blindly';
CREATE TABLE labels (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    set_id integer NOT NULL,
    number integer NOT NULL,
    labeller text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    blind boolean NOT NULL,
    value text,
    note text NOT NULL,
    FOREIGN KEY (set_id, number) REFERENCES label_tasks ON DELETE CASCADE
);
COMMENT ON TABLE labels IS 'every label that was given; of each labeller the last one of a task counts';
COMMENT ON COLUMN labels.labeller IS 'name of the API key';
COMMENT ON COLUMN labels.value IS 'null: abstained';
CREATE INDEX labels_of_task ON labels (set_id, number, labeller, id);
"""

PROTECTION = """
CREATE TRIGGER final BEFORE UPDATE ON label_sets FOR EACH ROW EXECUTE FUNCTION refuse_rewrite('job_id');
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON label_tasks FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON labels FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT ON label_sets, label_tasks, labels TO mathrag_app;
"""
DOWN = "DROP TABLE labels, label_tasks, label_sets;"


def upgrade() -> None:
    run(TABLES)
    run(PROTECTION)


def downgrade() -> None:
    run(DOWN)
