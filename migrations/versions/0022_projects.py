"""Data belong to projects: keys of other projects do not see them.

Revision ID: 0022
Revises: 0021
"""

from migrations.scripts import run

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TABLES = (
    "batches", "corpora", "datasets", "experiments", "files", "graphs", "jobs", "label_sets", "prompts", "rule_banks",
)  # fmt: skip
"""Tables of what has a name or an id of its own; all other rows are found through one of these."""
CALLER = "COALESCE(current_setting('mathrag.project', true), '')"
"""The project of the caller, for whom `shared.storage.database` sets it; empty: all projects; `-`: none of them."""
# A row without a project is everybody's to read and to lock, but only callers without a project change it.
UP = f"""
ALTER TABLE {{table}} ADD COLUMN project text DEFAULT NULLIF(NULLIF({CALLER}, ''), '-');
COMMENT ON COLUMN {{table}}.project IS 'keys of other projects do not see the row; null: everybody does';
ALTER TABLE {{table}} ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_project ON {{table}} USING ({CALLER} IN ('', COALESCE(project, {CALLER})))
    WITH CHECK ({CALLER} IN ('', COALESCE(project, '-')));
"""
# Everybody who sees a job, a label set or an experiment sees these rows of it.
PARTS = {
    "sample_notes": "SELECT j.project FROM samples s JOIN jobs j ON j.id = s.job_id WHERE s.id = sample_id",
    "labels": "SELECT project FROM label_sets WHERE id = set_id",
    "experiment_cells": "SELECT project FROM experiments WHERE id = experiment_id",
}
UP_OF_PART = f"""
ALTER TABLE {{table}} ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_project ON {{table}} USING (true) WITH CHECK ({CALLER} = '' OR {CALLER} = COALESCE(({{whole}}), '-'));
"""
# What is made from something of a project belongs to it, also if a caller without a project makes it.
INHERIT = """
CREATE FUNCTION inherit_project() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    named text;
BEGIN
    IF TG_TABLE_NAME = 'prompts' THEN
        SELECT project INTO named FROM public.prompts WHERE name = NEW.name LIMIT 1;
        IF FOUND AND NEW.project IS NOT NULL AND named IS NULL THEN
            RAISE EXCEPTION 'a prompt of no project' USING ERRCODE = 'insufficient_privilege';
        END IF;
        NEW.project := COALESCE(NEW.project, named);
    ELSIF NEW.project IS NOT NULL THEN
        RETURN NEW;
    ELSIF TG_TABLE_NAME = 'label_sets' THEN
        NEW.project := (SELECT project FROM public.jobs WHERE id = NEW.job_id);
    ELSIF TG_TABLE_NAME = 'rule_banks' THEN
        NEW.project := (SELECT project FROM public.graphs WHERE id = NEW.graph_id);
    ELSIF TG_TABLE_NAME = 'batches' THEN
        NEW.project := (SELECT project FROM public.files WHERE public_id = NEW.input_file);
    END IF;
    RETURN NEW;
END $$;
"""
INHERITING = ("batches", "label_sets", "prompts", "rule_banks")
# A policy would delete nothing, and say nothing.
REFUSE = f"""
CREATE FUNCTION refuse_delete() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF {CALLER} NOT IN ('', COALESCE(OLD.project, '-')) THEN
        RAISE EXCEPTION 'a row of no project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN OLD;
END $$;
"""
DELETABLE = ("files", "graphs", "rule_banks")
DOWN = """
DROP POLICY of_project ON {table};
ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
ALTER TABLE {table} DROP COLUMN project;
"""


# PostgreSQL lets only leakproof operators read an index before row security, and `->>` is none. Few jobs are live or
# ended lately, and those have indexes (measured: 4 ms for a key's GPU time among 200,000 jobs, as before); a list of a
# key's jobs now reads all jobs from the newest on.
DROP_INDEX = "DROP INDEX jobs_of_key;"
MAKE_INDEX = """
CREATE INDEX jobs_of_key ON jobs ((code ->> 'submitted_by'), id) WHERE code ->> 'submitted_by' IS NOT NULL;
"""


def upgrade() -> None:
    for table in TABLES:
        run(UP.format(table=table))
    for table, whole in PARTS.items():
        run(UP_OF_PART.format(table=table, whole=whole))
    run(DROP_INDEX)
    run(INHERIT)
    for table in INHERITING:
        run(f"CREATE TRIGGER inherit_project BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION inherit_project();")
    run(REFUSE)
    for table in DELETABLE:
        run(f"CREATE TRIGGER refuse_delete BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_delete();")


def downgrade() -> None:
    for table in DELETABLE:
        run(f"DROP TRIGGER refuse_delete ON {table};")
    for table in INHERITING:
        run(f"DROP TRIGGER inherit_project ON {table};")
    run("DROP FUNCTION refuse_delete();\nDROP FUNCTION inherit_project();")
    run(MAKE_INDEX)
    for table in PARTS:
        run(f"DROP POLICY of_project ON {table};\nALTER TABLE {table} DISABLE ROW LEVEL SECURITY;")
    for table in TABLES:
        run(DOWN.format(table=table))
