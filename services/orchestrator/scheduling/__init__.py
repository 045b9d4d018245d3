"""Reads from the database what a plan needs, and plans jobs."""
