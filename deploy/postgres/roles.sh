#!/usr/bin/env bash
# On an empty data folder: the database, its owner (who migrates) and its user (who works).
set -euo pipefail
owner=$(</run/secrets/owner) app=$(</run/secrets/app)
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<SQL
-- A failed statement is logged with its text, and these hold passwords.
SET log_min_error_statement = 'panic';
CREATE ROLE mathrag_owner LOGIN PASSWORD '$owner';
CREATE ROLE mathrag_app LOGIN PASSWORD '$app';
CREATE DATABASE mathrag OWNER mathrag_owner;
SQL
