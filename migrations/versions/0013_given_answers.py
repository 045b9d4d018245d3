"""Given answers: what another system answered, for jobs that grade it.

Revision ID: 0013
Revises: 0012
"""

from migrations.scripts import run

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# The answers are copied before their job is inserted, in one transaction, so no foreign key can stand here.
TABLES = """
CREATE TABLE given (
    job uuid NOT NULL,
    ordinal integer NOT NULL,
    repeat smallint NOT NULL CHECK (repeat >= 0),
    content bytea NOT NULL,
    PRIMARY KEY (job, ordinal, repeat)
);
COMMENT ON TABLE given IS 'what another system is said to have answered';
COMMENT ON COLUMN given.job IS 'its public id';
COMMENT ON COLUMN given.ordinal IS 'of the dataset';
COMMENT ON COLUMN given.content IS 'canonical bytes';
"""

PROTECTION = """
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON given FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT ON given TO mathrag_app;
"""
DOWN = "DROP TABLE given;"


def upgrade() -> None:
    run(TABLES)
    run(PROTECTION)


def downgrade() -> None:
    run(DOWN)
