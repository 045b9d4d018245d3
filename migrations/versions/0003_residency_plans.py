"""A residency says how it was planned; what loads really took is learned; models keep what their size follows from.

Revision ID: 0003
Revises: 0002
"""

from migrations.scripts import run

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE residencies ADD COLUMN plan jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN residencies.plan IS 'parallelism by model, predicted MiB, and why: what the decision was made of';
ALTER TABLE models ADD COLUMN architecture jsonb;
COMMENT ON COLUMN models.architecture IS 'what a footprint is estimated from; null where the backend tells nothing';
ALTER TABLE models ADD COLUMN estimated boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN models.estimated IS 'footprint_mib is not declared, but follows from the architecture';
CREATE TABLE footprints (
    model_id integer NOT NULL REFERENCES models,
    device text NOT NULL,
    driver text NOT NULL DEFAULT '',
    parallel smallint NOT NULL,
    least_mib real NOT NULL,
    most_mib real NOT NULL,
    loads integer NOT NULL DEFAULT 1,
    measured_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model_id, device, driver, parallel)
);
COMMENT ON TABLE footprints IS 'the learned band: memory that verified loads of a model took on a device';
GRANT SELECT, INSERT, UPDATE ON footprints TO mathrag_app;
"""

DOWN = """
DROP TABLE footprints;
ALTER TABLE models DROP COLUMN estimated;
ALTER TABLE models DROP COLUMN architecture;
ALTER TABLE residencies DROP COLUMN plan;
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    run(DOWN)
