"""A job's report: accuracy, its uncertainty, and its cost, computed from rows at each request."""
