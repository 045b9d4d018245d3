"""Rule banks: the rules that were mined from a graph, or imported, under a name.

Revision ID: 0010
Revises: 0009
"""

from migrations.scripts import run

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE rule_banks (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    hash bytea,
    state text NOT NULL CHECK (state IN ('mining', 'ready', 'failed', 'cancelled')),
    graph_id integer REFERENCES graphs,
    graph_hash bytea,
    miner text NOT NULL,
    limits json NOT NULL,
    relations integer,
    rules integer NOT NULL DEFAULT 0,
    job_id bigint REFERENCES jobs ON DELETE SET NULL,
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    sealed_at timestamptz,
    CHECK ((state = 'ready') = (hash IS NOT NULL))
);
COMMENT ON COLUMN rule_banks.hash IS 'SHA-256 over graph, miner, limits and every rule in order; null: not sealed';
COMMENT ON COLUMN rule_banks.relations IS 'whose rules are mined; null: imported';
COMMENT ON COLUMN rule_banks.job_id IS 'that mines it, or has mined it; null: imported, or the job was purged';
CREATE INDEX rule_banks_of_job ON rule_banks (job_id) WHERE job_id IS NOT NULL;
CREATE TABLE rules (
    bank_id integer NOT NULL REFERENCES rule_banks ON DELETE CASCADE,
    ordinal integer NOT NULL,
    head text NOT NULL,
    certainty double precision NOT NULL,
    rule bytea NOT NULL,
    PRIMARY KEY (bank_id, ordinal)
);
COMMENT ON COLUMN rules.head IS 'the relation that it predicts';
COMMENT ON COLUMN rules.certainty IS 'PCA confidence where there is one, else standard confidence';
COMMENT ON COLUMN rules.rule IS 'the canonical bytes that the bank''s hash is taken over';
"""

# Rules go with their bank, as the foreign key's owner deletes them: the application needs no right for it.
PROTECTION = """
CREATE FUNCTION refuse_sealed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM added a JOIN public.rule_banks b ON b.id = a.bank_id WHERE b.hash IS NOT NULL) THEN
        RAISE EXCEPTION 'a sealed rule bank takes no further rules' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sealed AFTER INSERT ON rules REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_sealed();
CREATE TRIGGER final BEFORE UPDATE ON rules FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER final BEFORE UPDATE ON rule_banks FOR EACH ROW WHEN (OLD.hash IS NOT NULL)
    EXECUTE FUNCTION refuse_rewrite('job_id');
GRANT SELECT, INSERT, DELETE ON rule_banks TO mathrag_app;
GRANT UPDATE (hash, state, rules, job_id, reason, sealed_at) ON rule_banks TO mathrag_app;
GRANT SELECT, INSERT ON rules TO mathrag_app;
"""
DOWN = """
DROP TABLE rules, rule_banks;
DROP FUNCTION refuse_sealed();
"""


def upgrade() -> None:
    run(TABLES)
    run(PROTECTION)


def downgrade() -> None:
    run(DOWN)
