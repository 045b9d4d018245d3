"""Plan jobs from the state in the database."""
