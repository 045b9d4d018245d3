"""What belongs to a project: keys of another project do not see it.

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
MINE = "COALESCE(current_setting('mathrag.project', true), '')"
"""The project of the caller, for whom `shared.storage.database` sets it; empty: the whole installation."""
# A row without a project is everybody's to read and to lock, but only callers without a project change it.
UP = f"""
ALTER TABLE {{table}} ADD COLUMN project text DEFAULT NULLIF({MINE}, '');
COMMENT ON COLUMN {{table}}.project IS 'keys of other projects do not see the row; null: everybody does';
ALTER TABLE {{table}} ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_project ON {{table}} USING ({MINE} IN ('', COALESCE(project, {MINE})))
    WITH CHECK ({MINE} IN ('', project));
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
    ELSIF TG_TABLE_NAME = 'jobs' THEN
        NEW.project := COALESCE((SELECT project FROM public.datasets WHERE id = NEW.dataset_id),
            (SELECT project FROM public.corpora WHERE id = NEW.corpus_id));
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
INHERITING = ("batches", "jobs", "label_sets", "prompts", "rule_banks")
# A policy would delete nothing, and say nothing.
KEEP = f"""
CREATE FUNCTION keep_shared() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF {MINE} NOT IN ('', COALESCE(OLD.project, '')) THEN
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
# ended lately, and those have indexes (measured: 4 ms for a key's GPU time among 200,000 jobs, as before).
DROP_INDEX = "DROP INDEX jobs_of_key;"
MAKE_INDEX = """
CREATE INDEX jobs_of_key ON jobs ((code ->> 'submitted_by'), id) WHERE code ->> 'submitted_by' IS NOT NULL;
"""


def upgrade() -> None:
    for table in TABLES:
        run(UP.format(table=table))
    run(DROP_INDEX)
    run(INHERIT)
    for table in INHERITING:
        run(f"CREATE TRIGGER inherit_project BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION inherit_project();")
    run(KEEP)
    for table in DELETABLE:
        run(f"CREATE TRIGGER keep_shared BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep_shared();")


def downgrade() -> None:
    for table in DELETABLE:
        run(f"DROP TRIGGER keep_shared ON {table};")
    for table in INHERITING:
        run(f"DROP TRIGGER inherit_project ON {table};")
    run("DROP FUNCTION keep_shared();\nDROP FUNCTION inherit_project();")
    run(MAKE_INDEX)
    for table in TABLES:
        run(DOWN.format(table=table))
