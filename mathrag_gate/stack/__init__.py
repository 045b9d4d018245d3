"""The embedded stack: real PostgreSQL, real Redis and all services as children of one supervisor."""
