"""Shares reads of jobs among many clients that ask at the same time."""
