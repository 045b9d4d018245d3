"""I22: what keeps rows from being changed is in place: rights, triggers, functions, rules, policies, settings.

One statement says all of it in lines of text, and `protection.txt` holds the lines that a migrated database gives: the
migrations are the only source, and a test compares both. Whatever is more or less than these lines is a finding.
"""

from functools import cache
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.audit.finding import AuditedJob, Violation

EXPECTED = Path(__file__).with_name("protection.txt")

# Rights are effective ones: whoever has them by himself, through a membership or as everybody. All roles count but
# superusers and the owner, who can do everything anyway.
LINES = text("""
    WITH ours AS (
        SELECT c.* FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind <> 'i'),
    owner AS (SELECT relowner AS oid FROM ours WHERE relname = 'alembic_version'),
    roles AS (
        SELECT r.oid, r.rolname FROM pg_roles r, owner o
        WHERE NOT r.rolsuper AND r.oid <> o.oid AND r.rolname NOT LIKE 'pg\\_%'),
    application AS (SELECT oid FROM pg_roles WHERE rolname = 'mathrag_app'),
    writable AS (
        SELECT c.*, p.verb FROM ours c, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) p(verb)
        WHERE c.relkind <> 'S')
    SELECT format('%s %s%s', CASE relkind WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view'
            ELSE 'relation of kind ' || CAST(relkind AS text) END, relname,
            CASE WHEN relrowsecurity THEN ' with row security' ELSE '' END) AS line FROM ours
    UNION SELECT format('%s belongs to %s', relname, relowner::regrole) FROM ours, owner WHERE relowner <> owner.oid
    UNION SELECT format('right %s on %s', w.verb, w.relname) FROM writable w, roles r
        WHERE has_table_privilege(r.oid, w.oid, w.verb)
    UNION SELECT format('right UPDATE on %s(%s)', w.relname, a.attname) FROM writable w, roles r, pg_attribute a
        WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped AND w.verb = 'UPDATE'
            AND has_column_privilege(r.oid, w.oid, a.attnum, 'UPDATE')
            AND NOT has_table_privilege(r.oid, w.oid, 'UPDATE')
    UNION SELECT format('right UPDATE on sequence %s', c.relname) FROM ours c, roles r
        WHERE c.relkind = 'S' AND has_sequence_privilege(r.oid, c.oid, 'UPDATE')
    UNION SELECT format('right CREATE in schema %s', n.nspname) FROM pg_namespace n, roles r
        WHERE n.nspname = 'public' AND has_schema_privilege(r.oid, n.oid, 'CREATE')
    UNION SELECT format('right SET on parameter %s', p) FROM roles r, unnest(ARRAY['session_replication_role']) p
        WHERE has_parameter_privilege(r.oid, p, 'SET')
    UNION SELECT format('default rights in %s: %s', d.defaclnamespace, d.defaclacl) FROM pg_default_acl d
    UNION SELECT format('mathrag_app acts as %s', m.roleid::regrole) FROM pg_auth_members m, application a
        WHERE m.member = a.oid
    UNION SELECT format('mathrag_app may bypass what is refused') FROM pg_roles
        WHERE rolname = 'mathrag_app' AND (rolsuper OR rolcreaterole OR rolbypassrls OR rolreplication)
    UNION SELECT format('trigger on %s (%s): %s', c.relname, t.tgenabled, pg_get_triggerdef(t.oid))
        FROM pg_trigger t JOIN ours c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal
    UNION SELECT format('foreign key trigger on %s is off', c.relname)
        FROM pg_trigger t JOIN ours c ON c.oid = t.tgrelid WHERE t.tgisinternal AND t.tgenabled <> 'O'
    UNION SELECT format('function %s: %s', p.oid::regprocedure, encode(sha256(convert_to(
            concat_ws(E'\\n', p.prosrc, p.prosecdef, p.proconfig, p.provolatile, l.lanname), 'UTF8')), 'hex'))
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'public'::regnamespace
    UNION SELECT format('function %s belongs to %s', p.proname, p.proowner::regrole) FROM pg_proc p, owner
        WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> owner.oid
    UNION SELECT format('unique index %s', pg_get_indexdef(i.indexrelid)) FROM pg_index i JOIN ours c
        ON c.oid = i.indrelid WHERE i.indisunique AND i.indisvalid
    UNION SELECT format('rule %s on %s', r.rulename, c.relname) FROM pg_rewrite r JOIN ours c ON c.oid = r.ev_class
    UNION SELECT format('policy %s on %s', p.polname, c.relname) FROM pg_policy p JOIN ours c ON c.oid = p.polrelid
    UNION SELECT format('event trigger %s', evtname) FROM pg_event_trigger
    UNION SELECT format('%s in schema %s stands before ours', o.relname, o.relnamespace::regnamespace)
        FROM pg_class o JOIN ours c USING (relname)
        WHERE o.relnamespace <> c.relnamespace AND o.relnamespace::regnamespace::text NOT LIKE 'pg\\_%'
    UNION SELECT format('setting of %s: %s', COALESCE(s.setrole::regrole::text, ''), v.value)
        FROM pg_db_role_setting s, unnest(s.setconfig) v(value)
        WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
            AND split_part(v.value, '=', 1) IN ('session_replication_role', 'search_path', 'row_security')
    UNION SELECT format('session_replication_role is %s', v)
        FROM current_setting('session_replication_role') v WHERE v <> 'origin'""")


async def read_protection(connection: AsyncConnection) -> frozenset[str]:
    """Read the lines that describe the protection of this database."""
    return frozenset((await connection.execute(LINES)).scalars())


@cache
def read_expected() -> frozenset[str]:
    """Return the lines of a database that only the migrations have changed."""
    return frozenset(EXPECTED.read_text().splitlines())


async def check_protection(audit: AuditedJob) -> list[Violation]:
    """I22: rights, triggers and functions are those that the migrations made."""
    found = await read_protection(audit.connection)
    differences = {
        "is missing from the schema": read_expected() - found,
        "was not made by the migrations": found - read_expected(),
    }
    return [
        Violation(invariant="I22", message=message, rows=tuple(sorted(rows)))
        for message, rows in differences.items()
        if rows
    ]
