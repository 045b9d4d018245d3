"""What a plan is made of, read from the database, and the plans of jobs."""
