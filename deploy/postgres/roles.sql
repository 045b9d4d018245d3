-- The database, its owner (who migrates) and its user (who works); only what is missing, so it may run at every start.
\set ON_ERROR_STOP on
\set owner `cat /run/secrets/owner`
\set app `cat /run/secrets/app`

-- A failed statement is logged with its text, and these hold passwords.
SET log_min_error_statement = 'panic';

SELECT format('CREATE ROLE %I LOGIN', name)
FROM unnest(ARRAY['mathrag_owner', 'mathrag_app']) AS name
WHERE name NOT IN (SELECT rolname FROM pg_roles) \gexec

ALTER ROLE mathrag_owner PASSWORD :'owner';
ALTER ROLE mathrag_app PASSWORD :'app';

SELECT 'CREATE DATABASE mathrag OWNER mathrag_owner'
WHERE 'mathrag' NOT IN (SELECT datname FROM pg_database) \gexec
