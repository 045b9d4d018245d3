"""The embedded stack: PostgreSQL, Redis and all services as children of one supervisor."""
